"""The HTTP API: what each part of it promises, asked of a real server."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

pytest.importorskip("starlette", reason="the server extra is not installed")

from http_server import Running

from skep import Bank
from skep.bank.memory_bank import MemoryBank
from skep.client.verb_table import LOCAL, verbs
from skep.model import Scope
from skep.server.serve_process import listener


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with Running(tmp_path_factory.mktemp("served"), ("team", "notes")) as running:
        yield running


def test_every_method_of_a_memory_bank_is_a_verb_or_made_of_verbs() -> None:
    methods = {name for name in vars(MemoryBank) if not name.startswith("_")}

    assert methods == set(verbs()) | LOCAL


def test_a_memory_that_was_written_is_recalled_with_what_explains_it(server: Running) -> None:
    server.verb("remember", text="The staging database runs PostgreSQL 16")

    status, found = server.verb("recall", query="which postgres version?", explain=True)

    assert status == 200
    assert found["hits"][0]["memory"]["text"] == "The staging database runs PostgreSQL 16"
    assert found["trace"]
    assert found["hits"][0]["signals"]


def test_banks_of_one_server_are_apart(server: Running) -> None:
    server.verb("remember", bank="notes", text="Only the notes know of zebras")

    assert server.verb("find", bank="team", text="zebras")[1]["memories"] == []
    assert len(server.verb("find", bank="notes", text="zebras")[1]["memories"]) == 1
    assert server.ask("GET", "/v1/banks")[2] == ["team", "notes"]


def test_pages_follow_the_cursor_to_the_end(server: Running) -> None:
    server.verb("remember_many", items=[f"page item {n}" for n in range(25)])
    seen, cursor = [], None
    while True:
        page = server.verb("find", text="page item", limit=10, **({"cursor": cursor} if cursor else {}))[1]
        seen += [memory["text"] for memory in page["memories"]]
        cursor = page["cursor"]
        if cursor is None:
            break

    assert sorted(seen) == sorted(f"page item {n}" for n in range(25))


def test_a_call_that_is_repeated_with_its_key_writes_once(server: Running) -> None:
    path, body = "/v1/banks/team/remember", {"text": "Written once with a key", "on_conflict": "ignore"}
    _, first_headers, first = server.ask("POST", path, body, idempotency_key="one")
    _, second_headers, second = server.ask("POST", path, body, idempotency_key="one")
    status, _, other = server.ask("POST", path, {"text": "Something else"}, idempotency_key="one")

    assert second == first
    assert (first_headers["idempotency-replayed"], second_headers["idempotency-replayed"]) == (
        "false",
        "true",
    )
    assert status == 400
    assert other["error"]["field"] == "Idempotency-Key"


def test_an_answer_kept_for_a_key_holds_no_text_that_was_forgotten(server: Running) -> None:
    path, body = "/v1/banks/team/remember", {"text": "xylophone secret of the key"}
    made = server.ask("POST", path, body, idempotency_key="gone")[2]
    server.verb("forget", memory_ids=made["memory"]["id"])

    status, _, again = server.ask("POST", path, body, idempotency_key="gone")
    file = Path(server.banks.places["team"])

    assert status == 410
    assert "xylophone" not in json.dumps(again)
    assert b"xylophone" not in file.read_bytes()


def test_a_revision_of_an_old_version_is_refused_with_what_changed(server: Running) -> None:
    made = server.verb("remember", text="The limit is 10")[1]["memory"]["id"]
    tag = server.ask("POST", "/v1/banks/team/get", {"memory_id": made})[1]["etag"]
    server.verb("revise", memory_id=made, text="The limit is 20")

    change = {"memory_id": made, "text": "The limit is 30"}
    status, _, refused = server.ask("POST", "/v1/banks/team/revise", change, if_match=tag)
    new = f'"{refused["error"]["current"]["version"]}"'
    good, _, revised = server.ask("POST", "/v1/banks/team/revise", change, if_match=new)

    assert status == 409
    assert refused["error"]["type"] == "VersionError"
    assert refused["error"]["current"]["text"] == "The limit is 20"
    assert [event["body"]["changes"]["text"] for event in refused["error"]["changes"]] == ["The limit is 20"]
    assert (good, revised["text"]) == (200, "The limit is 30")


@pytest.mark.parametrize(
    ("verb", "arguments", "status", "kind", "says"),
    [
        ("get", {"memory_id": "zz-99"}, 404, "NotFoundError", "no memory"),
        ("remember", {"text": ""}, 400, "EmptyTextError", ""),
        ("remember", {"text": "a", "confidence": 7}, 400, "OutOfRangeError", "confidence"),
        ("remember", {"text": "a", "txt": "b"}, 400, "UnknownKeyError", "did you mean 'text'"),
        ("remember", {}, 400, "WrongTypeError", "text"),
        ("recal", {}, 404, "NotFoundError", "did you mean 'recall'"),
        ("recall", {"query": "a", "preset": "nope"}, 400, "ConfigError", ""),
    ],
)
def test_an_error_has_a_type_a_status_and_words(
    server: Running, verb: str, arguments: dict[str, object], status: int, kind: str, says: str
) -> None:
    found, body = server.verb(verb, **arguments)

    assert (found, body["error"]["type"]) == (status, kind)
    assert says in body["error"]["message"]


@pytest.mark.parametrize(
    "raw", [b"{", b"[]", b'{"query": "\xff"}', b"\x00", b"nul", b"[" * 100_000, b'{"query": 1e999}']
)
def test_a_body_that_is_no_json_of_the_verb_is_refused_in_words(server: Running, raw: bytes) -> None:
    status, _, found = server.ask("POST", "/v1/banks/team/recall", raw=raw)

    assert status == 400
    assert found["error"]["message"]


def test_a_body_that_is_too_large_or_no_json_is_turned_away(server: Running) -> None:
    assert server.ask("POST", "/v1/banks/team/recall", raw=b" " * (17 << 20))[0] == 413
    assert server.ask("POST", "/v1/banks/team/recall", raw=b"query=a", content_type="text/plain")[0] == 415
    assert server.ask("POST", "/v1/banks/team/recall", raw=b"x", content_encoding="gzip")[0] == 415


def test_long_answers_are_compressed_for_whoever_takes_it(server: Running) -> None:
    _, headers, _ = server.ask("GET", "/v1/openapi.json", accept_encoding="gzip")

    assert headers["content-encoding"] == "gzip"


def test_the_past_can_be_asked_and_not_written(server: Running) -> None:
    made = server.verb("remember", text="Before the change")[1]["memory"]
    server.verb("revise", memory_id=made["id"], text="After the change")
    then = made["created_at"] + 0.0005

    status, _, found = server.ask("POST", f"/v1/banks/team/get?as_of={then}", {"memory_id": made["id"]})
    refused = server.ask("POST", f"/v1/banks/team/retract?as_of={then}", {"memory_id": made["id"]})

    assert (status, found["text"]) == (200, "Before the change")
    assert refused[0] == 400


def test_changes_are_told_as_they_happen_whoever_makes_them(server: Running) -> None:
    heard: list[str] = []
    client = server.client(bank="notes")
    client.remember("Known before anybody listened")
    follow = client.changes(after=max(event.seq for event in client.events()))

    def listen() -> None:
        for change in follow:
            heard.append(change.memories[0])
            if len(heard) == 2:
                return

    thread = threading.Thread(target=listen)
    thread.start()
    mine = client.remember("Told through the server").memory.id
    with Bank.open(server.banks.places["notes"]) as other:
        theirs = other.remember("Told by another process").memory.id
    thread.join(30)
    client.close()

    assert heard == [mine, theirs]


def test_events_of_another_replica_are_taken_and_the_log_is_read_in_order(
    server: Running, tmp_path: Path
) -> None:
    with Bank.open(tmp_path / "replica.skep") as replica:
        mine = replica.remember("Written at a replica").memory.id
        sent = [json.loads(msgspec.json.encode(event)) for event in replica.events()]
    status, applied = server.verb("apply", bank="notes", events=sent)
    broken = server.verb("apply", bank="notes", events=[sent[0] | {"actor": ""}])
    read = server.ask("GET", "/v1/banks/notes/events?limit=10000")[2]

    assert (status, applied["new"]) == (200, 1)
    assert server.verb("get", bank="notes", memory_id=mine)[1]["text"] == "Written at a replica"
    assert (broken[0], broken[1]["error"]["type"]) == (400, "SyncError")
    assert [event["seq"] for event in read["events"]] == list(range(1, read["position"] + 1))
    assert server.ask("GET", "/v1/banks/notes/events?limit=0")[0] == 400


def test_health_needs_no_token_and_metrics_count_what_was_asked(server: Running) -> None:
    server.verb("versions")

    assert server.ask("GET", "/health/live", token=None)[0] == 200
    assert server.ask("GET", "/health/ready", token=None)[0] == 200
    assert server.ask("GET", "/metrics", token=None)[0] == 401
    text = server.ask("GET", "/metrics")[2].decode()
    assert 'skep_requests_total{verb="versions",status="200"}' in text
    assert 'skep_memories{bank="team"}' in text


def test_questions_are_counted_by_what_they_found(tmp_path: Path) -> None:
    with Running(tmp_path) as running:
        running.verb("remember", text="The staging database runs PostgreSQL 16")
        running.verb("recall", query="which PostgreSQL does the staging database run?")
        running.verb("recall", query="Which PostgreSQL does the staging database run?")
        running.verb("recall", query="zebras", kind="episode")
        counted = running.ask("GET", "/v1/banks/team/usage")[2]

    assert counted == {"asked": 3, "likely": 2, "silent": 1, "repeated": 1}


def test_a_fault_of_the_server_is_told_as_an_error_like_any_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(_bank: Bank) -> None:
        raise ZeroDivisionError("oh")

    monkeypatch.setattr(Bank, "status", broken)
    with Running(tmp_path) as running:
        status, found = running.verb("status")

    assert status == 500
    assert "ZeroDivisionError" in found["error"]["message"]


def test_it_is_told_how_far_each_event_has_come_but_not_to_a_token_with_a_scope(tmp_path: Path) -> None:
    with Running(tmp_path, ("ana", "bob")) as running:
        for name in ("ana", "bob"):
            running.verb("remember", bank=name, text=f"{name} looks after the {name} service")
        running.banks.bank("bob").apply(running.banks.bank("ana").events())
        scoped, _ = running.tokens.add("scoped", rights=("read",), scope=Scope(user="ana"))
        actors = [running.banks.bank(name).actor for name in ("ana", "bob")]
        found = running.ask("GET", "/v1/spread")[2]

        assert running.ask("GET", "/v1/spread", token=scoped)[0] == 403
    assert found["known"] == {"ana": {actors[0]: 1}, "bob": dict.fromkeys(actors, 1)}
    assert found["shared"] == 0.5


@pytest.mark.parametrize(
    "path",
    ["/../../etc/passwd", "/assets/../http_api.py", "/assets/%2e%2e/http_api.py", "/assets/..%2fhttp_api.py",
     "/assets//etc/passwd", "/v1/banks/..%2f..%2fetc/find", "/v1/banks/%00/find"],
)  # fmt: skip
def test_no_path_leads_out_of_what_is_served(server: Running, path: str) -> None:
    for method, body in (("GET", None), ("POST", {})):
        status, _, found = server.ask(method, path, body)

        assert status in (404, 405), (path, found)


def test_a_bank_that_several_machines_share_is_served_and_written_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = (tmp_path / "hub").as_uri()
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "here"))
    with Running(tmp_path) as running:
        running.banks.places["team"] = hub
        body = {"text": "Shared by two machines"}
        first = running.ask("POST", "/v1/banks/team/remember", body, idempotency_key="k")[2]
        again = running.ask("POST", "/v1/banks/team/remember", body, idempotency_key="k")[2]
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "there"))
    with Bank.open(hub) as elsewhere:
        found = [memory.id for memory in elsewhere.find()]

    assert found == [first["memory"]["id"]]
    assert again == first


def test_the_description_names_every_verb_and_every_reference_in_it_leads_somewhere(server: Running) -> None:
    described = server.ask("GET", "/v1/openapi.json")[2]
    text = json.dumps(described)

    assert described["openapi"].startswith("3.1")
    assert all(f"/v1/banks/{{bank}}/{name}" in described["paths"] for name in verbs())
    for reference in {part.split('"')[0] for part in text.split('"$ref": "#/')[1:]}:
        at = described
        for step in reference.split("/"):
            at = at[step]


def test_a_request_that_comes_too_slowly_is_ended_and_holds_nobody_up(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("skep.server.http_api.REQUEST_SECONDS", 0.3)
    with socket.create_connection(("127.0.0.1", server.port)) as slow:
        head = f"POST /v1/banks/team/find HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {server.owner}\r\n"
        slow.sendall(head.encode() + b"Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{")
        assert server.verb("versions")[0] == 200
        slow.settimeout(30)
        assert slow.recv(100).startswith(b"HTTP/1.1 408")


def test_answers_leave_at_once_and_wait_for_no_acknowledgement() -> None:
    with listener("127.0.0.1", 0) as bound, socket.create_connection(bound.getsockname()):
        taken, _ = bound.accept()
        with taken:
            assert taken.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
