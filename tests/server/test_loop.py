"""One connection: order, cancellation, progress, questions to the client, and frames that break others."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from everything import build
from hypothesis import given, settings
from hypothesis import strategies as st
from mcp_wire import META, Client, run_frames

from skep.server.mcp.protocol import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    UNSUPPORTED_VERSION,
    Envelope,
)
from skep.server.mcp.start import Banks
from skep.server.mcp.tool_calls import Call, no_bank
from skep.server.mcp.tool_profiles import build_server


def frame(message: dict[str, Any]) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n"


def test_a_session_opens_with_the_revision_the_client_asked_for(client: Client) -> None:
    result = client.initialize("2025-06-18")

    assert result["protocolVersion"] == "2025-06-18"
    assert result["serverInfo"]["name"] == "everything"


def test_without_a_session_a_plain_request_is_told_what_is_missing(client: Client) -> None:
    error = client.ask("tools/list")["error"]

    assert error["code"] == INVALID_PARAMS
    assert "protocolVersion" in error["message"]


def test_a_stateless_request_needs_no_session_and_names_the_server(client: Client) -> None:
    result = client.ask("server/discover", {"_meta": META})["result"]

    assert result["supportedVersions"] == ["2026-07-28"]
    assert result["resultType"] == "complete"
    assert result["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "everything"


def test_both_eras_are_served_on_one_connection(client: Client) -> None:
    client.initialize()

    old = client.call("add", a=1)
    new = client.ask("tools/call", {"name": "add", "arguments": {"a": 1}, "_meta": META})["result"]

    assert old["content"] == new["content"]
    assert ("resultType" in old, new["resultType"]) == (False, "complete")


def test_an_unknown_revision_names_ours(client: Client) -> None:
    meta = {**META, "io.modelcontextprotocol/protocolVersion": "2099-01-01"}

    error = client.ask("tools/list", {"_meta": meta})["error"]

    assert error["code"] == UNSUPPORTED_VERSION
    assert error["data"]["supported"] == ["2026-07-28"]


def test_methods_of_the_other_era_do_not_exist(client: Client) -> None:
    assert client.ask("ping", {"_meta": META})["error"]["code"] == METHOD_NOT_FOUND
    client.initialize()
    assert client.ask("nonsense")["error"]["code"] == METHOD_NOT_FOUND


def test_bad_arguments_come_back_as_something_the_model_can_mend(client: Client) -> None:
    client.initialize()

    result = client.call("add", b="four")

    assert result["isError"]
    assert result["content"][0]["text"] == "add: b must be a whole number, not 'four'. Also missing: a"


def test_numbers_and_lists_sent_as_text_are_understood(client: Client) -> None:
    client.initialize()

    assert client.text("add", a="3", b="2") == "5"


def test_an_unknown_tool_is_a_protocol_error(client: Client) -> None:
    client.initialize()

    assert client.call("no_such_tool")["error"]["code"] == INVALID_PARAMS


def test_progress_is_reported_only_to_who_asks_for_it(client: Client) -> None:
    client.initialize()
    client.call("test_tool_with_progress")
    assert client.seen == []

    params = {"name": "test_tool_with_progress", "arguments": {}, "_meta": {"progressToken": "t"}}
    client.ask("tools/call", params)

    told = [message["params"] for message in client.seen]
    assert [(note["progressToken"], note["progress"]) for note in told] == [("t", 0), ("t", 50), ("t", 100)]


def test_progress_comes_in_a_hundred_steps_at_most_and_ends_at_the_end() -> None:
    told: list[float] = []

    class Wire:
        def notify(self, method: str, params: Mapping[str, Any]) -> None:
            told.append(params["progress"])

        def request(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
            raise AssertionError(method)

        def cancelled(self) -> bool:
            return False

    params = {"_meta": {"progressToken": 1}}
    call = Call(
        channel=Wire(), envelope=Envelope("2025-11-25", {}, {}), params=params, bank=lambda _call: no_bank()
    )
    for done in range(10_001):
        call.progress(done, 10_000)

    assert told == [float(step) for step in range(0, 10_001, 100)]


def test_a_cancelled_call_stops_and_is_never_answered(client: Client) -> None:
    client.initialize()
    params = {"name": "wait", "arguments": {}, "_meta": {"progressToken": 1}}
    slow = client.start("tools/call", params)
    assert client.read()["method"] == "notifications/progress"

    client.send({"method": "notifications/cancelled", "params": {"requestId": slow}})
    client.ask("ping")
    client.close()

    rest = [message for message in client.seen if message.get("id") == slow]
    assert rest == []


def test_a_slow_tool_does_not_hold_up_a_ping(client: Client) -> None:
    client.initialize()
    slow = client.start("tools/call", {"name": "wait", "arguments": {"steps": 20}})

    assert client.ask("ping")["result"] == {}
    assert client.wait(slow)["result"]["content"][0]["text"] == "waited"


def test_an_id_in_flight_cannot_be_used_twice(client: Client) -> None:
    client.initialize()
    first = client.start("tools/call", {"name": "wait", "arguments": {"steps": 20}})
    client.send({"id": first, "method": "ping"})

    assert client.wait(first)["error"]["code"] == INVALID_REQUEST
    assert "result" in client.wait(first)


def test_the_client_is_asked_and_its_answer_used(client: Client) -> None:
    client.initialize(capabilities={"sampling": {}})
    identity = client.start("tools/call", {"name": "test_sampling", "arguments": {"prompt": "hi"}})
    question = client.read()
    assert question["method"] == "sampling/createMessage"

    client.send({"id": question["id"], "result": {"content": {"type": "text", "text": "hello"}}})

    assert client.wait(identity)["result"]["content"][0]["text"] == "LLM response: hello"


def test_a_subscriber_hears_of_a_change_in_either_era(client: Client) -> None:
    client.initialize()
    client.ask("resources/subscribe", {"uri": "test://watched-resource"})
    wanted = {"resourceSubscriptions": ["test://watched-resource"]}
    listen = client.start("subscriptions/listen", {"_meta": META, "notifications": wanted})
    assert client.read()["method"] == "notifications/subscriptions/acknowledged"

    client.call("touch")

    updates = [message["params"] for message in client.seen if message["method"].endswith("updated")]
    assert [None, listen] == sorted(
        (note.get("_meta", {}).get("io.modelcontextprotocol/subscriptionId") for note in updates),
        key=lambda value: value or 0,
    )


def test_a_frame_that_is_too_long_is_refused_and_the_next_one_answered() -> None:
    frames = (
        b'{"jsonrpc":"2.0","id":1,"method":"ping","x":"'
        + b"y" * 5000
        + b'"}\n'
        + frame({"id": 2, "method": "ping"})
    )

    first, second = run_frames(build(), frames, limit=1000)

    assert (first["error"]["code"], first["id"]) == (INVALID_REQUEST, None)
    assert second == {"jsonrpc": "2.0", "id": 2, "result": {}}


def test_the_last_frame_needs_no_newline_and_blank_lines_are_nothing() -> None:
    frames = b"\n\r\n" + frame({"id": 1, "method": "ping"}).rstrip()

    assert [message["id"] for message in run_frames(build(), frames)] == [1]


def test_what_was_asked_before_the_client_left_is_still_answered() -> None:
    frames = frame(
        {"id": 1, "method": "initialize", "params": {"protocolVersion": "2025-11-25", "capabilities": {}}}
    ) + frame({"id": 2, "method": "tools/call", "params": {"name": "wait", "arguments": {"steps": 10}}})

    assert {1, 2} == {message["id"] for message in run_frames(build(), frames)}


def test_an_id_with_half_a_surrogate_ends_no_connection() -> None:
    frames = b'{"jsonrpc":"2.0","id":"\\ud800","method":"ping"}\n' + frame({"id": 2, "method": "ping"})

    first, second = run_frames(build(), frames)

    assert (first["error"]["code"], first["id"]) == (PARSE_ERROR, None)
    assert second["result"] == {}


def test_a_recall_sent_after_a_remember_sees_it_before_that_is_answered(
    connect: Callable[..., Client], tmp_path: Path
) -> None:
    banks = Banks(str(tmp_path / "bank.skep"), environ={}, start=tmp_path)
    client = connect(build_server("default", banks, version="1"))
    client.initialize()

    recalls: list[int] = []
    for number in range(20):
        text = f"Ana likes drink{number}"
        client.start("tools/call", {"name": "remember", "arguments": {"text": text}})
        recalls.append(
            client.start("tools/call", {"name": "recall", "arguments": {"query": f"drink{number}"}})
        )
    found = [client.wait(one)["result"]["content"][0]["text"] for one in recalls]
    client.close()
    banks.close()

    assert [f"drink{number}" in text for number, text in enumerate(found)] == [True] * 20


def test_two_thousand_calls_at_once_get_two_thousand_right_answers(client: Client) -> None:
    client.initialize()
    asked = {client.start("tools/call", {"name": "add", "arguments": {"a": n}}): n + 1 for n in range(2000)}

    answers = {identity: client.wait(identity)["result"]["structuredContent"]["sum"] for identity in asked}

    assert asked == answers


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)
METHODS = st.sampled_from(
    [
        "initialize",
        "ping",
        "tools/list",
        "tools/call",
        "resources/read",
        "prompts/get",
        "resources/subscribe",
        "completion/complete",
        "logging/setLevel",
        "server/discover",
        "subscriptions/listen",
        "x",
    ]
)
PARAMS = st.dictionaries(
    st.sampled_from(
        ["name", "arguments", "uri", "_meta", "cursor", "ref", "argument", "level", "notifications"]
    )
    | st.text(max_size=4),
    JSON | st.just(META) | st.sampled_from(["add", "touch", "test://static-text", "test_simple_prompt"]),
    max_size=5,
)
FRAMES = st.one_of(
    st.binary(max_size=40).map(lambda raw: raw.replace(b"\n", b" ")),
    JSON.map(lambda value: json.dumps(value).encode()),
    st.builds(
        lambda method, params, kind: json.dumps(
            {"jsonrpc": "2.0", "method": method, "params": params, **kind}
        ).encode(),
        METHODS,
        PARAMS | JSON,
        st.sampled_from([{}, {"id": None}, {"id": 1.5}, {"id": []}])
        | st.integers(0, 3).map(lambda n: {"id": n}),
    ),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(FRAMES, max_size=12))
def test_whatever_is_sent_the_connection_lives_and_every_line_out_is_a_frame(frames: list[bytes]) -> None:
    last = frame({"id": "last", "method": "ping"})

    answers = run_frames(build(), b"\n".join([*frames, b""]) + last)

    assert "last" in [message.get("id") for message in answers]
    assert all(message["jsonrpc"] == "2.0" for message in answers)
    assert not [m for m in answers if m.get("error", {}).get("code") == -32603]
