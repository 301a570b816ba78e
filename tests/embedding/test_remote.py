"""Remote services, against a real HTTP server on this machine."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from tests.embedding.stub import KEY, Stub, serving

from skep.embedding.embedder import open_embedder
from skep.embedding.remote import (
    COHERE,
    GEMINI,
    OLLAMA,
    OPENAI,
    VOYAGE,
    RemoteEmbedder,
    Retry,
    Service,
    retry_after,
)
from skep.errors import ConfigError, EmbedderMismatchError, EmbedderUnavailableError, EmbeddingError


@pytest.fixture
def stub() -> Iterator[Stub]:
    with serving() as stub:
        yield stub


@pytest.fixture
def slept() -> list[float]:
    return []


@pytest.fixture
def make(stub: Stub, slept: list[float]) -> Callable[..., RemoteEmbedder]:
    def build(service: Service = OPENAI, model: str = "m", **options: Any) -> RemoteEmbedder:
        settings: dict[str, Any] = {"dim": 4, "api_key": KEY, "base_url": stub.url, "sleep": slept.append}
        return RemoteEmbedder(service, model, **(settings | options))

    return build


@pytest.mark.parametrize("service", [OPENAI, GEMINI, VOYAGE, COHERE, OLLAMA], ids=lambda s: s.name)
def test_every_service_gives_unit_rows_in_the_order_of_the_texts(
    make: Callable[..., RemoteEmbedder], stub: Stub, service: Service
) -> None:
    texts = ["a", "bbb", "cc"]
    expected = np.array([stub.vector(text) for text in texts], np.float32)
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)

    np.testing.assert_allclose(make(service).embed(texts), expected, rtol=1e-6)


def test_the_key_travels_in_the_header_of_the_service_and_nowhere_else(
    make: Callable[..., RemoteEmbedder], stub: Stub
) -> None:
    for service in (OPENAI, GEMINI, OLLAMA):
        make(service).embed(["x"])

    assert f"Bearer {KEY}" == stub.requests[0][1]["Authorization"]
    assert KEY in [value for name, value in stub.requests[1][1].items() if name.lower() == "x-goog-api-key"]
    assert KEY not in str(stub.requests[2])
    assert not any(KEY in str((path, body)) for path, _, body in stub.requests)


def test_one_connection_serves_many_questions(make: Callable[..., RemoteEmbedder], stub: Stub) -> None:
    embedder = make()
    for number in range(5):
        embedder.embed([f"text {number}"])
    assert (len(stub.requests), stub.connections) == (5, 1)


def test_a_connection_that_the_service_closed_meanwhile_is_opened_anew(
    make: Callable[..., RemoteEmbedder], stub: Stub, slept: list[float]
) -> None:
    embedder = make()
    embedder.embed(["one"])
    stub.script = [(0, {}, None)]  # it hangs up as soon as it is asked again
    embedder.embed(["two"])
    assert (stub.connections, slept) == (2, [])


def test_texts_are_sent_in_batches_of_what_the_service_takes(
    make: Callable[..., RemoteEmbedder], stub: Stub
) -> None:
    assert make(GEMINI).embed(["x"] * 230).shape == (230, 4)
    assert [len(body["requests"]) for _, _, body in stub.requests] == [100, 100, 30]


def test_blank_texts_are_not_sent_and_give_zero_rows(make: Callable[..., RemoteEmbedder], stub: Stub) -> None:
    rows = make().embed(["", "word", " \n"])

    assert [round(float(norm)) for norm in np.linalg.norm(rows, axis=1)] == [0, 1, 0]
    assert stub.requests[0][2]["input"] == ["word"]
    assert make().embed([]).shape == (0, 4)


def test_a_rate_limit_is_waited_out_as_long_as_the_service_asks(
    make: Callable[..., RemoteEmbedder], stub: Stub, slept: list[float]
) -> None:
    stub.script = [(429, {"Retry-After": "7"}, {}), (429, {"Retry-After": "9999"}, {})]

    assert make().embed(["x"]).any()
    assert slept == [7, 30]


def test_a_busy_or_silent_service_is_tried_again_with_growing_pauses(
    make: Callable[..., RemoteEmbedder], stub: Stub, slept: list[float]
) -> None:
    stub.script = [
        (503, {}, {}),
        (0, {}, {}),
        (0, {}, {}),
        (500, {}, {}),
    ]  # the first silence closes what was kept

    assert make().embed(["x"]).any()
    assert slept == [0.5, 1, 2]


def test_asked_once_it_does_not_try_again_and_passes_on_what_the_service_asked_for(
    make: Callable[..., RemoteEmbedder], stub: Stub, slept: list[float]
) -> None:
    stub.script = [(429, {"Retry-After": "7"}, {})]

    with pytest.raises(EmbedderUnavailableError, match="429") as caught:
        make().embed_once(["x"], 1.0)
    assert (caught.value.retry_after, slept, len(stub.requests)) == (7.0, [], 1)
    assert make().embed_once(["x"]).any()


def test_after_the_last_try_the_error_says_what_the_service_said(
    make: Callable[..., RemoteEmbedder], stub: Stub
) -> None:
    stub.script = [(503, {}, {"error": "overloaded"})] * 4

    with pytest.raises(EmbedderUnavailableError, match=r"503.*overloaded.*4 tries"):
        make().embed(["x"])


def test_a_service_that_is_not_there_is_unavailable(make: Callable[..., RemoteEmbedder], stub: Stub) -> None:
    embedder = make(base_url="http://127.0.0.1:1", retry=Retry(attempts=2))

    with pytest.raises(EmbedderUnavailableError, match="could not be reached"):
        embedder.embed(["x"])


@pytest.mark.parametrize("status", [401, 403, 404])
def test_a_wrong_key_or_model_fails_at_once_without_showing_the_key(
    make: Callable[..., RemoteEmbedder], stub: Stub, slept: list[float], status: int
) -> None:
    stub.script = [(status, {}, {"error": "no"})]

    with pytest.raises(EmbedderUnavailableError, match=str(status)) as caught:
        make().embed(["x"])
    assert KEY not in str(caught.value)
    assert slept == []


def test_a_refused_text_is_told_apart_from_a_service_that_is_down(
    make: Callable[..., RemoteEmbedder], stub: Stub
) -> None:
    """So that the queue can look for the text at fault."""
    stub.script = [(400, {}, {"error": "too long"})]

    with pytest.raises(EmbeddingError, match="too long") as caught:
        make().embed(["x"])
    assert not isinstance(caught.value, EmbedderUnavailableError)


def test_a_redirect_is_not_followed_with_the_key(make: Callable[..., RemoteEmbedder], stub: Stub) -> None:
    stub.script = [(302, {"Location": stub.url + "/elsewhere"}, {})]

    with pytest.raises(EmbedderUnavailableError, match="302"):
        make().embed(["x"])
    assert len(stub.requests) == 1


def test_vectors_of_another_length_never_get_in(make: Callable[..., RemoteEmbedder], stub: Stub) -> None:
    stub.dim = 6

    with pytest.raises(EmbedderMismatchError, match="'openai:m@6'"):
        make().embed(["x"])


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        ({"data": []}, EmbedderMismatchError),
        ({"vectors": []}, EmbedderUnavailableError),
        ([], EmbedderUnavailableError),
        (b"<html>", EmbedderUnavailableError),
        (b'{"data": [{"index": 0, "embedding": [1, 2, NaN, 0]}]}', EmbedderUnavailableError),
        (b'{"data": [{"index": 0, "embedding": [1, 2, "x", 0]}]}', EmbedderUnavailableError),
    ],
)
def test_a_useless_reply_is_a_named_error(
    make: Callable[..., RemoteEmbedder], stub: Stub, reply: Any, error: type[EmbeddingError]
) -> None:
    stub.script = [(200, {}, reply)]

    with pytest.raises(error):
        make().embed(["x"])


def test_known_models_need_no_request_to_name_their_dimension() -> None:
    embedder = open_embedder("openai:text-embedding-3-small", api_key=KEY)

    assert (embedder.fingerprint, embedder.instant) == ("openai-text-embedding-3-small-1536", False)


def test_an_unknown_model_is_asked_for_its_dimension_once(
    make: Callable[..., RemoteEmbedder], stub: Stub
) -> None:
    embedder = make(OLLAMA, dim=None)

    assert (embedder.fingerprint, embedder.dim) == ("ollama-m-4", 4)
    assert len(stub.requests) == 1


@pytest.mark.parametrize(
    ("service", "model", "field"),
    [
        (OPENAI, "text-embedding-3-small", "dimensions"),
        (GEMINI, "gemini-embedding-001", "outputDimensionality"),
        (OLLAMA, "bge-m3", "dimensions"),
    ],
)
def test_a_shorter_dimension_is_asked_of_the_service(
    make: Callable[..., RemoteEmbedder], stub: Stub, service: Service, model: str, field: str
) -> None:
    make(service, model, dim=4).embed(["x"])

    assert f'"{field}": 4' in json.dumps(stub.requests[0][2])


def test_calibration_is_measured_with_one_request_unless_given(
    make: Callable[..., RemoteEmbedder], stub: Stub
) -> None:
    embedder = make()

    assert embedder.calibrate(1.0) == 1.0
    assert embedder.calibrate(-1.0) == -1.0
    assert len(stub.requests) == 1
    assert make(knots=[(0.5, 0.0)]).calibrate(0.5) == 0.0
    assert len(stub.requests) == 1


@pytest.mark.parametrize(
    ("spec", "options", "hint"),
    [
        ("openai:text-embedding-3-small", {}, "needs a key"),
        ("gemini:", {"api_key": KEY}, "name a model"),
        ("ollama:m@big", {}, "not a dimension"),
        ("ollama:m", {"base_url": "file:///etc/passwd"}, "not an http"),
        ("onnx", {}, "folder of a model"),
        ("word2vec", {}, "choose one of static"),
    ],
)
def test_a_spec_that_cannot_work_says_what_to_do(spec: str, options: dict[str, str], hint: str) -> None:
    with pytest.raises(ConfigError, match=hint):
        open_embedder(spec, **options)


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (None, None),
        ("3", 3),
        ("-1", 0),
        ("Thu, 01 Jan 1970 00:02:00 GMT", 20),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 0),
        ("soon", None),
    ],
)
def test_retry_after_is_a_number_or_a_date(header: str | None, seconds: float | None) -> None:
    assert seconds == retry_after(header, now=100.0)
