"""Embedders at the command line: services by the variables their tools use, and nothing left undone in silence."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.embedding.stub import KEY, Stub, serving

from skep.bank.bank import Bank
from skep.config import find_bank
from skep.server.mcp.start import _open

NOBODY = "http://127.0.0.1:1"
"""Where no service listens."""


@pytest.fixture
def stub() -> Iterator[Stub]:
    with serving() as stub:
        yield stub


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "GEMINI_API_KEY", "GOOGLE_API_KEY", "OLLAMA_HOST"):
        monkeypatch.delenv(name, raising=False)


def test_a_service_is_used_with_the_key_from_the_environment_which_is_kept_nowhere(
    run: Any, stub: Stub, bank_path: Path
) -> None:
    service = {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": stub.url + "/v1"}
    run("add", "the kettle is blue")
    done = run("reembed", "--embedder", "openai:m@4", **service)
    assert done.stdout == "embedded 1; 0 waiting; openai-m-4\n"

    run("add", "the fox is red", **service)
    run("reembed", **service)
    found = run("search", "red fox", "--json", **service)
    assert "words alone" not in json.loads(found.stdout)["reason"]
    assert {headers["Authorization"] for _, headers, _ in stub.requests} == {f"Bearer {KEY}"}
    kept = [path for path in bank_path.parent.rglob("*") if path.is_file()]
    assert not any(KEY.encode() in path.read_bytes() for path in kept)


def test_without_the_key_search_goes_by_words_and_says_what_to_set(run: Any, stub: Stub) -> None:
    run("add", "the kettle is blue")
    run("reembed", "--embedder", "openai:m@4", OPENAI_API_KEY=KEY, OPENAI_BASE_URL=stub.url)
    found = run("search", "blue kettle")

    assert "the kettle is blue" in found.stdout
    assert "words alone" in found.stderr
    assert "OPENAI_API_KEY" in found.stderr


def test_reembed_with_a_service_that_is_down_says_what_is_left_and_why(run: Any, stub: Stub) -> None:
    run("add", "one thing")
    run("add", "another thing entirely")
    down = run("reembed", "--embedder", "ollama:nomic-embed-text@4", code=1, OLLAMA_HOST=NOBODY)
    assert down.stdout.startswith("embedded 0; 2 waiting; static-")
    assert "2 left for ollama-nomic-embed-text-4" in down.stderr
    assert "could not be reached" in down.stderr
    assert "answers until then" in down.stderr

    as_json = run("reembed", "--embedder", "ollama:nomic-embed-text@4", "--json", code=1, OLLAMA_HOST=NOBODY)
    told = json.loads(as_json.stdout)
    assert (told["embedded"], told["reembedding"]) == (0, 2)
    assert "could not be reached" in told["error"]

    up = run("reembed", "--embedder", "ollama:nomic-embed-text@4", OLLAMA_HOST=stub.url)
    assert up.stdout == "embedded 2; 0 waiting; ollama-nomic-embed-text-4\n"


def test_the_exit_code_reaches_the_shell(run: Any, bank_path: Path) -> None:
    run("add", "one thing")
    command = [sys.executable, "-m", "skep", "--bank", str(bank_path)]
    down = subprocess.run(
        [*command, "reembed", "--embedder", "ollama:nomic-embed-text@4"],
        env={**os.environ, "OLLAMA_HOST": NOBODY},
        capture_output=True,
        text=True,
        check=False,
    )

    assert (down.returncode, "1 left for" in down.stderr) == (1, True)


def test_a_change_that_cannot_be_finished_can_be_given_up(run: Any) -> None:
    run("add", "one thing")
    run("reembed", "--embedder", "ollama:nomic-embed-text@4", code=1, OLLAMA_HOST=NOBODY)

    assert "0 waiting; static-" in run("reembed", "--embedder", "static").stdout
    assert json.loads(run("status", "--json").stdout)["embed_error"] is None
    assert "0 waiting; static-" in run("reembed").stdout


def test_reembed_without_the_model_of_the_bank_says_so(run: Any, bank_path: Path) -> None:
    class Mine:
        fingerprint, dim, instant = "mine-2", 2, False

        def embed(self, texts: Any) -> Any:
            raise ConnectionError

        def calibrate(self, cosine: float) -> float:
            return cosine

    with Bank.open(bank_path, embedder=Mine()) as bank:
        bank.engine.embeddings.work = lambda **_: None  # type: ignore[method-assign]
        bank.remember("waits", on_conflict="ignore")

    assert "mine-2) is not at hand" in run("reembed", code=1).stderr


def test_commands_work_while_the_service_is_down(run: Any, stub: Stub) -> None:
    run("add", "first thing")
    run("reembed", "--embedder", "ollama:nomic-embed-text@4", OLLAMA_HOST=stub.url)
    stub.requests.clear()
    run("add", "second thing entirely", OLLAMA_HOST=NOBODY)
    found = run("search", "second thing", OLLAMA_HOST=NOBODY)

    assert "second thing entirely" in found.stdout
    assert "words alone" in found.stderr
    assert json.loads(run("status", "--json", OLLAMA_HOST=NOBODY).stdout)["pending"] == 1


def test_a_command_that_reads_starts_no_worker(run: Any, stub: Stub) -> None:
    run("add", "first thing")
    run("reembed", "--embedder", "ollama:nomic-embed-text@4", OLLAMA_HOST=stub.url)
    run("add", "second thing entirely", OLLAMA_HOST=NOBODY)
    stub.requests.clear()
    run("list", "thing", OLLAMA_HOST=stub.url)

    assert stub.requests == []


def test_the_server_uses_the_environment_too(run: Any, stub: Stub, bank_path: Path) -> None:
    service = {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": stub.url}
    run("add", "the kettle is blue")
    run("reembed", "--embedder", "openai:m@4", **service)
    with _open(str(find_bank(bank_path, {}, bank_path.parent)), service) as bank:
        assert "words alone" not in bank.recall("kettle").reason
    with _open(str(bank_path), {}) as bank:
        assert "OPENAI_API_KEY" in bank.recall("kettle").reason
