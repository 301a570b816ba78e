"""Keys and addresses from the environment: found by the names their own tools use."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.embedding.stub import KEY, Stub, serving

from skep.embedding.remote import from_environment, ollama_address
from skep.errors import ConfigError


@pytest.fixture
def stub() -> Iterator[Stub]:
    with serving() as stub:
        yield stub


def test_a_key_and_an_address_are_used(stub: Stub) -> None:
    opener = from_environment({"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": stub.url + "/v1"})

    assert opener("openai:m@4").embed(["x"]).any()
    path, headers, _ = stub.requests[0]
    assert (path, headers["Authorization"]) == ("/v1/embeddings", f"Bearer {KEY}")


def test_the_address_of_ollama_is_used(stub: Stub) -> None:
    opener = from_environment({"OLLAMA_HOST": stub.url.removeprefix("http://")})

    assert opener("ollama:m").dim == 4
    assert opener("ollama:m", known_dim=4).fingerprint == "ollama-m-4"
    assert len(stub.requests) == 1, "what is known is not asked"


@pytest.mark.parametrize("name", ["GEMINI_API_KEY", "GOOGLE_API_KEY"])
def test_either_name_of_the_key_will_do(name: str) -> None:
    assert from_environment({name: KEY})("gemini:gemini-embedding-001").dim == 3072


def test_without_a_key_the_error_names_the_variable() -> None:
    for spec, name in (("openai:m@4", "OPENAI_API_KEY"), ("gemini:m@4", "GEMINI_API_KEY")):
        with pytest.raises(ConfigError, match=name):
            from_environment({})(spec)


def test_what_needs_neither_is_opened_as_ever() -> None:
    assert from_environment({"OPENAI_API_KEY": KEY})("hash:32").dim == 32


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("gpu", "http://gpu:11434"),
        ("10.0.0.7:8000", "http://10.0.0.7:8000"),
        ("0.0.0.0", "http://127.0.0.1:11434"),
        (":8000", "http://127.0.0.1:8000"),
        ("[::1]", "http://[::1]:11434"),
        ("[::]:8000", "http://127.0.0.1:8000"),
        ("https://models.example/ollama", "https://models.example/ollama"),
    ],
)
def test_hosts_are_written_in_many_ways(host: str, address: str) -> None:
    assert ollama_address(host) == address
