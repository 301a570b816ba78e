"""Who may do what: a scope cannot leak, a right cannot be gone round, a token ends when it should."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="the server extra is not installed")

from click.testing import CliRunner
from http_server import Running
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from skep import Bank
from skep.cli.app import app
from skep.client.verb_table import RIGHTS, verbs
from skep.errors import ConfigError, InvalidInputError, NotABankError
from skep.model import Scope
from skep.server.serve_process import serve
from skep.server.served_banks import ServedBanks
from skep.server.tokens import Token, TokenFile

SCOPES: tuple[dict[str, str], ...] = (
    {},
    {"user": "ana"},
    {"user": "ana", "project": "x"},
    {"user": "ben"},
    {"user": "ben", "project": "x", "session": "s"},
    {"project": "docs/one"},
)
WALLS: tuple[dict[str, str] | None, ...] = (
    *SCOPES[1:],
    {"user": "ana", "project": "*"},
    {"user": "*"},
    {"project": "docs/*"},
    {"user": "*", "project": "*", "session": "*"},
    None,
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with Running(tmp_path_factory.mktemp("served"), ("team", "other")) as running:
        yield running


class Walled:
    """A bank with secrets in several scopes, and calls by tokens."""

    def __init__(self, server: Running) -> None:
        self.server = server
        self.bank = server.banks.bank("team")
        self.count = 0
        self.secrets: dict[str, tuple[str, Scope]] = {}

    def fill(self) -> None:
        """Memories anew: whatever the last example left is forgotten."""
        if self.secrets:
            self.bank.forget([m.id for m in self.bank.find(status=None, limit=1000)])
        self.secrets = {}
        for _ in range(2):
            for scope in SCOPES:
                self.count += 1
                word = f"secret{self.count}word"
                made = self.bank.remember(
                    f"The garden gate code is {word}",
                    scope=scope or None,
                    on_conflict="ignore",
                    tags=[f"t{word}"],
                ).memory
                self.secrets[made.id] = word, made.scope
        ids = list(self.secrets)
        for one, other in pairwise(ids):
            self.bank.link(one, other)
        self.bank.merge(ids[7], ids[1])
        self.bank.supersede(ids[2], ids[8])

    def state(self, keep: list[str]) -> dict[str, Any]:
        found = {one: self.bank.get(one) for one in keep}
        return {one: (m.text, m.status, m.version, m.confidence, m.tags, m.scope) for one, m in found.items()}


@pytest.fixture(scope="module")
def walled(server: Running) -> Walled:
    return Walled(server)


which = st.integers(0, 11)
scope = st.sampled_from((None, *SCOPES, {"user": "*"}, {"user": "*", "project": "*"}, {"project": "*"}))
QUERY = st.sampled_from(("garden gate code", "secret1word", "what is the code?"))
shared = {"include_shared": st.booleans()}
by_query = {"scope": scope, **shared}
one = {"memory_id": which}
FORMS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    # verb: what is always given, what may be
    "recall": ({"query": QUERY}, {**by_query, "expand": st.just(True), "include_superseded": st.just(True)}),
    "rank": ({"query": QUERY}, by_query),
    "search_memory": ({"query": QUERY}, by_query),
    "find": ({}, {**by_query, "status": st.just(None)}),
    "history": ({}, {**one, **by_query}),
    "find_conflicts": ({}, {**one, **by_query}),
    "outcomes": ({}, {**one, **by_query}),
    "neighbors": (one, by_query),
    "blame": (one, by_query),
    "subgraph": ({"memory_ids": st.lists(which, max_size=3)}, by_query),
    "path": ({"a": which, "b": which}, by_query),
    "stats": ({}, by_query),
    "utility": ({}, by_query),
    "scopes": ({}, by_query),
    "recommend": ({"task": QUERY}, by_query),
    "get": (one, {}),
    "retract": (one, {}),
    "restore": (one, {}),
    "confirm": (one, {}),
    "event": ({"event_id": which}, {}),
    "undo": ({"event_id": which}, {}),
    "revise": (one, {"text": st.just("overwritten"), "scope": scope}),
    "remember": (
        {"text": st.just("The garden gate code is mine")},
        {"scope": scope, "evidence": st.lists(which, max_size=2), "key": st.just("code"),
         "on_conflict": st.sampled_from(("warn", "supersede", "raise", "ignore"))},
    ),
    "remember_many": ({"items": st.just([{"text": "many"}])}, {}),
    "supersede": ({"old": which, "new": which}, {}),
    "merge": ({"loser": which, "winner": which}, {}),
    "mark": (one | {"status": st.just("deprecated")}, {}),
    "dispute": (one | {"by": st.just("me")}, {}),
    "support": (one | {"sources": st.lists(which, max_size=2)}, {}),
    "link": ({"src": which, "dst": which}, {}),
    "unlink": ({"src": which, "dst": which}, {}),
    "forget": ({"memory_ids": st.lists(which, min_size=1, max_size=2)}, {"derived": st.booleans()}),
    "learn": ({"task": st.just("open"), "outcome": st.just(True), "used": st.lists(which, max_size=2)}, {}),
    "set_setting": ({"key": st.just("x"), "value": st.just(1)}, {}),
    "setting": ({"key": st.just("x")}, {}),
} | {verb: ({}, {}) for verb in ("status", "versions", "settings", "pending_judgements")}  # fmt: skip
calls = st.one_of(
    *(
        st.tuples(st.just(v), st.fixed_dictionaries(given, optional=also))
        for v, (given, also) in FORMS.items()
    )
)


def test_every_verb_is_tried_against_the_wall() -> None:
    assert set(FORMS) == set(verbs()) - {"maintain", "apply", "resolve_judgement"}


ONE = ("memory_id", "event_id", "old", "new", "loser", "winner", "src", "dst", "a", "b")
SEVERAL = ("memory_ids", "evidence", "sources", "used")


@settings(max_examples=25, phases=(Phase.generate,))
@given(
    wall=st.sampled_from(WALLS),
    rights=st.sampled_from((set(RIGHTS), {"read", "write", "erase"}, {"read"}, {"write"})),
    person=st.booleans(),
    asked=st.lists(calls, min_size=20, max_size=40),
)
def test_a_scope_is_a_wall_and_a_right_is_asked_for(
    walled: Walled,
    wall: dict[str, str] | None,
    rights: set[str],
    person: bool,
    asked: list[tuple[str, dict[str, Any]]],
) -> None:
    walled.fill()
    server = walled.server
    scope = Scope(**wall) if wall is not None else None
    rights = rights - (set() if person else {"review"})
    secret, token = server.tokens.add("tried", rights=tuple(rights), scope=scope, person=person, rate=1e6)
    ids = list(walled.secrets)
    hidden = [
        i for i in ids if scope and not (walled.secrets[i][1].shared or scope.admits(walled.secrets[i][1]))
    ]
    foreign = [i for i in ids if scope and not scope.admits(walled.secrets[i][1])]
    before = walled.state(foreign)
    try:
        for verb, arguments in asked:
            sent = _named(arguments, ids)
            status, found = server.verb(verb, token=secret, bank="team", **sent)
            told = json.dumps(found)
            assert status < 500, (verb, sent, found)
            if not token.allows(verb, verbs()[verb].right):
                assert status == 403, (verb, found)
            for one in hidden:
                assert walled.secrets[one][0] not in told, (verb, sent, found)
            if status == 200 and verb not in ("neighbors", "subgraph"):
                named = json.dumps(sent)
                assert not [one for one in hidden if f'"id": "{one}"' in told and one not in named], (
                    verb,
                    found,
                )
        assert walled.state(foreign) == before
    finally:
        server.tokens.revoke("tried")


def _named(arguments: dict[str, Any], ids: list[str]) -> dict[str, Any]:
    sent = dict(arguments)
    for field in ONE:
        if field in sent:
            sent[field] = ids[sent[field]]
    for field in SEVERAL:
        if field in sent:
            sent[field] = [ids[one] for one in sent[field]]
    return sent


@given(wall=st.sampled_from(WALLS[:-1]), one=which)
@settings(max_examples=20)
def test_what_lies_behind_the_wall_and_what_is_not_there_are_answered_alike(
    walled: Walled, wall: dict[str, str], one: int
) -> None:
    if not walled.secrets:
        walled.fill()
    walled.fill()
    scope = Scope(**wall)
    secret, _ = walled.server.tokens.add("probe", rights=("read", "write"), scope=scope, rate=1e6)
    memory_id = list(walled.secrets)[one]
    held = walled.secrets[memory_id][1]
    try:
        for verb, rest in (("get", {}), ("history", {}), ("retract", {}), ("blame", {})):
            there = walled.server.verb(verb, token=secret, bank="team", memory_id=memory_id, **rest)
            absent = walled.server.verb(verb, token=secret, bank="team", memory_id="zzzzzzzzzz-9", **rest)
            if not (held.shared or scope.admits(held)):
                assert json.dumps(there).replace(memory_id, "ID") == json.dumps(absent).replace(
                    "zzzzzzzzzz-9", "ID"
                )
    finally:
        walled.server.tokens.revoke("probe")


def test_the_stream_of_changes_tells_a_token_of_its_own_scope_alone(server: Running) -> None:
    secret, _ = server.tokens.add("ana-follows", rights=("read",), scope=Scope(user="ana"))
    with server.client(secret, "team") as client:
        follow = client.changes(after=0)
        bens = server.verb("remember", text="Of Ben alone", scope={"user": "ben"})[1]["memory"]["id"]
        anas = server.verb("remember", text="Of Ana alone", scope={"user": "ana"})[1]["memory"]["id"]
        heard = []
        for change in follow:
            heard += change.memories
            if anas in heard:
                break

    assert bens not in heard


def test_a_stream_of_changes_ends_when_its_token_is_revoked(server: Running) -> None:
    secret, _ = server.tokens.add("follower", rights=("read",))
    with server.client(secret, "other") as client:
        follow = client.changes(after=0)
        first = server.verb("remember", bank="other", text="Heard while the token was valid")[1]["memory"][
            "id"
        ]
        heard = next(change for change in follow if first in change.memories)
        server.tokens.revoke("follower")
        server.verb("remember", bank="other", text="May be the last that is heard")
        rest = [change.memories for change in follow]

    assert heard.kind == "remember"
    assert len(rest) <= 1


def test_a_token_opens_the_banks_it_names(server: Running) -> None:
    secret, _ = server.tokens.add("other-only", rights=("read",), banks=("other",))

    assert server.verb("versions", token=secret, bank="other")[0] == 200
    assert server.verb("versions", token=secret, bank="team")[0] == 403
    assert server.ask("GET", "/v1/banks/team/events", token=secret)[0] == 403
    assert server.ask("GET", "/v1/banks/team/changes", token=secret)[0] == 403
    assert server.ask("GET", "/v1/banks", token=secret)[2] == ["other"]


def test_a_single_verb_may_be_given(server: Running) -> None:
    secret, _ = server.tokens.add("recaller", rights=("recall",))

    assert server.verb("recall", token=secret, bank="team", query="anything")[0] == 200
    assert server.verb("find", token=secret, bank="team")[0] == 403


def test_only_a_person_lets_a_memory_out_of_quarantine(server: Running) -> None:
    agent, _ = server.tokens.add("agent", rights=("read", "write", "erase", "manage"))
    made = server.verb("remember", bank="other", text="Not trusted yet")[1]["memory"]["id"]
    server.verb("mark", bank="other", memory_id=made, status="quarantined")
    marked = server.verb("history", bank="other", memory_id=made)[1][-1]
    event = f"{marked['actor']}-{marked['counter']}"

    assert server.verb("mark", token=agent, bank="other", memory_id=made, status="active")[0] == 403
    assert server.verb("restore", token=agent, bank="other", memory_id=made)[0] == 403
    assert server.verb("undo", token=agent, bank="other", event_id=event)[0] == 403
    assert (
        server.verb("resolve_judgement", token=agent, bank="other", a="a-1", b="b-1", decision="MERGE")[0]
        == 403
    )
    assert server.verb("mark", bank="other", memory_id=made, status="active")[1]["status"] == "active"


@pytest.mark.parametrize(
    "given", ["", "Bearer", "Bearer ", "Bearer  ", "Basic b3duZXI6", "bearer\tx", "Bearer null"]
)
def test_an_empty_or_strange_token_opens_nothing(server: Running, given: str) -> None:
    status, headers, found = server.ask("GET", "/v1/me", token=None, authorization=given)

    assert status in (401, 429)
    assert found["error"]["message"]
    assert status == 429 or headers["www-authenticate"] == "Bearer"


def test_an_empty_token_opens_nothing_even_where_no_token_is_asked_for(tmp_path: Path) -> None:
    with Running(tmp_path, open=True) as running:
        assert running.ask("GET", "/v1/me", token=None)[0] == 200
        assert running.ask("GET", "/v1/me", token=None, authorization="Bearer wrong")[0] == 401


def test_a_token_ends_when_it_is_revoked_or_has_expired(tmp_path: Path) -> None:
    now = [1000.0]
    tokens = TokenFile(tmp_path / "tokens.json", lambda: now[0])
    secret, _ = tokens.add("short", rights=("read",), seconds=60)
    other, _ = tokens.add("long", rights=("read",))
    elsewhere = TokenFile(tmp_path / "tokens.json", lambda: now[0])

    assert elsewhere.find(secret) is not None
    now[0] += 60
    assert elsewhere.find(secret) is None
    assert elsewhere.find(other) is not None
    tokens.revoke("long")
    assert elsewhere.find(other) is None


def test_the_file_holds_no_token_and_only_its_owner_reads_it(tmp_path: Path) -> None:
    tokens = TokenFile(tmp_path / "tokens.json")
    secret, token = tokens.add("ci", rights=("read",))

    text = (tmp_path / "tokens.json").read_text()
    assert secret not in text
    assert secret.removeprefix("skep_") not in text
    assert token.hash in text
    assert (tmp_path / "tokens.json").stat().st_mode & 0o077 == 0


def test_a_damaged_file_of_tokens_is_refused_in_words(tmp_path: Path) -> None:
    (tmp_path / "tokens.json").write_text("[{]")
    with pytest.raises(ConfigError, match=r"tokens\.json"):
        TokenFile(tmp_path / "tokens.json").list()


@pytest.mark.parametrize(
    "wrong",
    [{"name": ""}, {"name": "a b"}, {"rights": ()}, {"rights": ("reed",)}, {"rights": ("review",)}, {"seconds": 0},
     {"banks": ()}, {"rate": 0}],
)  # fmt: skip
def test_a_token_that_makes_no_sense_is_refused(tmp_path: Path, wrong: dict[str, Any]) -> None:
    given = {"name": "ci", "rights": ("read",)} | wrong
    with pytest.raises(InvalidInputError):
        TokenFile(tmp_path / "tokens.json").add(given.pop("name"), **given)
    assert not (tmp_path / "tokens.json").exists()


def test_off_the_loopback_address_nothing_is_served_without_a_token(tmp_path: Path) -> None:
    banks = ServedBanks({"a": str(tmp_path / "a.skep")}, lambda _: pytest.fail("opened"))
    with pytest.raises(ConfigError, match="there is no token yet"):
        serve(banks, TokenFile(tmp_path / "tokens.json"), host="0.0.0.0", port=0)
    with pytest.raises(ConfigError, match="loopback"):
        serve(banks, TokenFile(tmp_path / "tokens.json"), host="0.0.0.0", port=0, no_auth=True)


def test_a_port_that_is_taken_and_a_file_that_is_no_bank_are_told_before_anything_is_served(
    tmp_path: Path,
) -> None:
    tokens = TokenFile(tmp_path / "tokens.json")
    (tmp_path / "note.txt").write_text("no bank\n" * 1000)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        banks = ServedBanks({"a": str(tmp_path / "a.skep")}, Bank.open)
        with pytest.raises(ConfigError, match="--port"):
            serve(banks, tokens, port=taken.getsockname()[1])
    with pytest.raises(NotABankError):
        serve(ServedBanks({"a": str(tmp_path / "note.txt")}, Bank.open), tokens, port=0)


@pytest.mark.parametrize(
    "headers",
    [{"host": "evil.example"}, {"host": "evil.example:8420"}, {"origin": "https://evil.example"}, {"origin": "null"},
     {"host": "127.0.0.1.evil.example"}],
)  # fmt: skip
@pytest.mark.parametrize("path", ["/v1/me", "/", "/mcp"])
def test_no_other_site_reaches_the_server(server: Running, headers: dict[str, str], path: str) -> None:
    assert server.ask("GET", path, **headers)[0] == 403


def test_a_form_of_another_site_cannot_write(server: Running) -> None:
    for kind in ("application/x-www-form-urlencoded", "multipart/form-data", "text/plain"):
        status, _, _ = server.ask(
            "POST", "/v1/banks/team/remember", raw=b'{"text":"forged"}', content_type=kind
        )
        assert status == 415
    assert server.verb("find", bank="team", text="forged")[1]["memories"] == []


def test_whoever_guesses_tokens_in_quick_succession_is_slowed_down(tmp_path: Path) -> None:
    with Running(tmp_path) as server:
        statuses = {server.ask("GET", "/v1/me", token=f"wrong-{number}")[0] for number in range(60)}
        assert statuses == {401, 429}


def test_a_token_that_calls_too_often_is_told_when_to_go_on(server: Running) -> None:
    secret, _ = server.tokens.add("slow", rights=("read",), rate=0.5)
    statuses = [server.ask("GET", "/v1/me", token=secret) for _ in range(3)]

    assert [status for status, _, _ in statuses][-1] == 429
    assert int(statuses[-1][1]["retry-after"]) >= 1
    assert server.ask("GET", "/v1/me")[0] == 200


def test_what_was_turned_away_can_be_read_and_names_no_token(server: Running) -> None:
    secret, _ = server.tokens.add("reader", rights=("read",))
    server.verb("remember", token=secret, bank="team", text="not allowed")

    newest = server.ask("GET", "/v1/denials")[2][0]

    assert (newest["token"], newest["status"], newest["path"]) == ("reader", 403, "/v1/banks/team/remember")
    assert secret not in (server.folder / "denials.jsonl").read_text()
    assert server.ask("GET", "/v1/denials", token=secret)[0] == 403


def test_mcp_is_for_tokens_that_may_do_what_its_tools_do(server: Running) -> None:
    client = {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "t", "version": "1"},
    }
    first = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": client}
    accept = "application/json, text/event-stream"
    scoped, _ = server.tokens.add("scoped", rights=("read", "write", "erase"), scope=Scope(user="ana"))
    other, _ = server.tokens.add("whole", rights=("read", "write", "erase"))

    status, headers, found = server.ask("POST", "/mcp/team", first, accept=accept)
    session = headers["mcp-session-id"]
    listed = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}

    assert status == 200
    assert found["result"]["serverInfo"]["name"] == "skep"
    assert server.ask("POST", "/mcp/team", first, token=scoped, accept=accept)[0] == 403
    assert server.ask("POST", "/mcp/team", listed, accept=accept, mcp_session_id=session)[0] == 200
    assert (
        server.ask("POST", "/mcp/team", listed, token=other, accept=accept, mcp_session_id=session)[0] == 404
    )
    assert server.ask("POST", "/mcp/other", listed, accept=accept, mcp_session_id=session)[0] == 404


def test_the_commands_make_list_and_revoke(tmp_path: Path) -> None:
    file = str(tmp_path / "t.json")
    run = CliRunner().invoke
    made = run(app, ["token", "add", "ci", "--rights", "read", "--user", "ana", "--tokens", file])
    twice = run(app, ["token", "add", "ci", "--tokens", file])

    assert made.exit_code == 0
    assert isinstance(twice.exception, InvalidInputError)
    assert "ci  read; banks *; scope user=ana" in run(app, ["token", "list", "--tokens", file]).output
    assert run(app, ["token", "revoke", "ci", "--tokens", file]).output == "revoked ci\n"
    assert Token(name="x", hash="", rights=("review",)).allows("resolve_judgement", "review") is False
