"""Frames: what is read, what is refused, and that nothing is ever lost or raised."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.server.mcp.protocol import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    PARSE_ERROR,
    UNSUPPORTED_VERSION,
    Answer,
    Malformed,
    Notification,
    Request,
    RpcError,
    negotiate,
    open_envelope,
    parse,
)

META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}


def test_a_frame_with_id_and_method_is_a_request() -> None:
    assert Request(7, "ping", {}) == parse(b'{"jsonrpc":"2.0","id":7,"method":"ping"}')


def test_a_frame_without_id_is_a_notification() -> None:
    assert Notification("x", {"a": 1}) == parse(b'{"jsonrpc":"2.0","method":"x","params":{"a":1}}')


def test_a_frame_without_method_is_an_answer() -> None:
    assert Answer("s", {"a": 1}, None) == parse(b'{"jsonrpc":"2.0","id":"s","result":{"a":1}}')


@pytest.mark.parametrize(
    ("frame", "code", "identity"),
    [
        (b"{", PARSE_ERROR, None),
        (b"\xff\xfe", PARSE_ERROR, None),
        (b"[]", INVALID_REQUEST, None),
        (b"3", INVALID_REQUEST, None),
        (b'{"jsonrpc":"1.0","id":4,"method":"ping"}', INVALID_REQUEST, 4),
        (b'{"jsonrpc":"2.0","id":4}', INVALID_REQUEST, 4),
        (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', INVALID_REQUEST, None),
        (b'{"jsonrpc":"2.0","id":true,"method":"ping"}', INVALID_REQUEST, None),
        (b'{"jsonrpc":"2.0","id":5,"method":"ping","params":[1]}', INVALID_REQUEST, 5),
        (b'{"jsonrpc":"2.0","id":6,"method":"ping","params":{"x":"\\ud800"}}', PARSE_ERROR, 6),
        (b'{"jsonrpc":"2.0","id":6,"method":"ping","params":{"x":"\xff"}}', PARSE_ERROR, 6),
        (b'{"jsonrpc":"2.0","id":"\\ud800","method":"ping"}', PARSE_ERROR, None),
        (b"[" * 100_000, PARSE_ERROR, None),
    ],
)
def test_a_bad_frame_is_named_and_keeps_its_id_where_one_can_be_read(
    frame: bytes, code: int, identity: int | None
) -> None:
    message = parse(frame)

    assert isinstance(message, Malformed)
    assert (code, identity) == (message.code, message.id)


@given(st.binary(max_size=200))
def test_no_bytes_make_the_reader_raise(frame: bytes) -> None:
    parse(frame)


KEYS = st.sampled_from(["jsonrpc", "id", "method", "params", "result", "error"]) | st.text(max_size=3)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner) | st.dictionaries(KEYS, inner),
)


@given(VALUES)
def test_no_json_makes_the_reader_raise(value: object) -> None:
    parse(json.dumps(value).encode())


def test_a_known_revision_is_spoken_and_an_unknown_one_answered_with_the_newest() -> None:
    assert (negotiate("2025-06-18"), negotiate("1999-01-01")) == ("2025-06-18", "2025-11-25")


def test_a_complete_envelope_opens() -> None:
    envelope = open_envelope({"_meta": META})

    assert envelope.stateless
    assert envelope.log_level is None


@pytest.mark.parametrize("missing", sorted(META))
def test_an_envelope_lacking_a_key_is_refused_by_name(missing: str) -> None:
    with pytest.raises(RpcError, match=missing) as caught:
        open_envelope({"_meta": {key: value for key, value in META.items() if key != missing}})

    assert caught.value.code == INVALID_PARAMS


def test_an_unknown_revision_is_refused_with_those_that_would_do() -> None:
    with pytest.raises(RpcError) as caught:
        open_envelope({"_meta": {**META, "io.modelcontextprotocol/protocolVersion": "2031-01-01"}})

    assert caught.value.code == UNSUPPORTED_VERSION
    assert caught.value.data == {"supported": ["2026-07-28"], "requested": "2031-01-01"}
