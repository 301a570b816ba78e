"""`Client` and `AsyncClient` behave as the bank itself, and say what to do where a line is between."""

from __future__ import annotations

import asyncio
import importlib.util
import inspect
import socket
import threading
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

pytest.importorskip("starlette", reason="the server extra is not installed")

from http_server import Running
from hypothesis import given, settings
from hypothesis import strategies as st

import skep.errors
from skep import AsyncClient, Bank, Client
from skep.bank.memory_bank import MemoryBank
from skep.errors import AccessError, ConfigError, InvalidInputError, RemoteError, SkepError, VersionError

SCRIPT = Path(__file__).parents[2] / "scripts" / "build_client.py"
NOW = 1_790_000_000.0
TEXTS = (
    "Use ruff for linting",
    "Never use ruff for linting",
    "The staging database runs PostgreSQL 14",
    "The staging database runs PostgreSQL 16",
    "Deploys happen on Tuesdays",
    "Ana is on call in November",
    "",
    "a\x00b",
)
SCOPES = (None, {"user": "ana"}, {"user": "ana", "project": "x"}, {"user": "*"})


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with Running(tmp_path_factory.mktemp("served")) as running:
        yield running


@pytest.fixture
def client(server: Running) -> Iterator[Client]:
    with server.client() as opened:
        yield opened


text = st.sampled_from(TEXTS)
scope = st.sampled_from(SCOPES)
SURE = (0.2, 0.9, 7, float("nan"))
SINCE = (date(2026, 1, 2), datetime(2026, 1, 2, tzinfo=UTC), "2026-03-01", 5.0)
ENDS = ("success", "failure", True, 0.4, "well")
WHOLE = ("scopes", "stats", "utility", "find_conflicts", "pending_judgements", "versions", "settings")
VALUES = (1, None, {"a": [2]})
which = st.integers(1, 7)
step = st.one_of(
    st.tuples(st.just("remember"), st.fixed_dictionaries(
        {"text": text, "on_conflict": st.sampled_from(("warn", "ignore", "supersede", "raise"))},
        optional={"scope": scope, "tags": st.just(("a", "b")), "confidence": st.sampled_from(SURE),
                  "kind": st.sampled_from(("fact", "episode", "nope")), "ttl": st.just(timedelta(days=2)),
                  "valid_from": st.sampled_from(SINCE),
                  "metadata": st.just({"n": [1, None, "x"]})})),
    st.tuples(st.just("remember_many"), st.fixed_dictionaries({"items": st.lists(text, max_size=3)})),
    st.tuples(st.just("recall"), st.fixed_dictionaries(
        {"query": text}, optional={"scope": scope, "limit": st.sampled_from((1, 3, 0)), "explain": st.booleans(),
                                   "expand": st.booleans(), "preset": st.sampled_from(("hybrid", "nope"))})),
    st.tuples(st.just("rank"), st.fixed_dictionaries({"query": text})),
    st.tuples(st.just("find"), st.fixed_dictionaries(
        {}, optional={"text": text, "scope": scope, "status": st.just(None)})),
    st.tuples(st.just("search_memory"), st.fixed_dictionaries({"query": text})),
    st.tuples(st.sampled_from(("get", "retract", "restore", "history", "blame", "neighbors", "outcomes")),
              st.fixed_dictionaries({"memory_id": which})),
    st.tuples(st.just("revise"), st.fixed_dictionaries(
        {"memory_id": which}, optional={"text": text, "tags": st.just(["c"]), "scope": scope,
                                  "colour": st.just(1), "expected_version": st.integers(0, 3)})),
    st.tuples(st.just("supersede"), st.fixed_dictionaries({"old": which, "new": which})),
    st.tuples(st.just("merge"), st.fixed_dictionaries({"loser": which, "winner": which})),
    st.tuples(st.just("link"), st.fixed_dictionaries({"src": which, "dst": which, "rel": st.just("refines")})),
    st.tuples(st.just("unlink"), st.fixed_dictionaries({"src": which, "dst": which})),
    st.tuples(st.just("path"), st.fixed_dictionaries({"a": which, "b": which})),
    st.tuples(st.just("mark"), st.fixed_dictionaries(
        {"memory_id": which, "status": st.sampled_from(("quarantined", "active", "gone"))})),
    st.tuples(st.sampled_from(("confirm", "dispute")), st.fixed_dictionaries({"memory_id": which, "by": which})),
    st.tuples(st.just("support"), st.fixed_dictionaries({"memory_id": which, "sources": st.lists(which, max_size=2)})),
    st.tuples(st.just("forget"), st.fixed_dictionaries({"memory_ids": which}, optional={"dry_run": st.booleans()})),
    st.tuples(st.just("undo"), st.fixed_dictionaries({"event_id": which})),
    st.tuples(st.just("event"), st.fixed_dictionaries({"event_id": which})),
    st.tuples(st.just("learn"), st.fixed_dictionaries(
        {"task": text, "outcome": st.sampled_from(ENDS), "used": st.lists(which, max_size=2)})),
    st.tuples(st.just("recommend"), st.fixed_dictionaries({"task": text})),
    st.tuples(st.sampled_from(WHOLE), st.just({})),
    st.tuples(st.just("set_setting"), st.fixed_dictionaries(
        {"key": st.just("team/x"), "value": st.sampled_from(VALUES)})),
    st.tuples(st.just("setting"), st.just({"key": "team/x"})),
    st.tuples(st.just("maintain"), st.fixed_dictionaries({"dry_run": st.booleans()})),
)  # fmt: skip
IDS = ("memory_id", "old", "new", "loser", "winner", "src", "dst", "a", "b", "event_id", "by")
SEVERAL = ("memory_ids", "sources", "used")


@settings(max_examples=12)
@given(st.lists(step, min_size=5, max_size=25))
def test_a_client_answers_as_the_bank_on_any_history(history: list[tuple[str, dict[str, Any]]]) -> None:
    with Pair() as pair:
        for verb, arguments in history:
            mine, theirs = pair.both(verb, arguments)
            assert theirs == mine, (verb, arguments)


class Pair:
    """The same calls on a bank here and on one behind a server, with one clock."""

    def __init__(self) -> None:
        self.now = NOW
        self.bank = Bank.open(":memory:", now=lambda: self.now)
        self.theirs = Bank.open(":memory:", now=lambda: self.now)
        _SERVERS[-1].banks._open["team"] = self.theirs
        self.client = _SERVERS[-1].client()

    def __enter__(self) -> Pair:
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()
        for bank in (self.bank, self.theirs):
            bank.close()

    def both(self, verb: str, arguments: dict[str, Any]) -> tuple[Any, Any]:
        self.now += 1
        return self._told(self.bank, self.bank, verb, arguments), self._told(
            self.client, self.theirs, verb, arguments
        )

    def _told(self, asked: MemoryBank, home: Bank, verb: str, arguments: dict[str, Any]) -> Any:
        given = dict(arguments)
        for field in IDS:
            if field in given:
                given[field] = f"{home.actor}-{given[field]}"
        for field in SEVERAL:
            if isinstance(given.get(field), list):
                given[field] = [f"{home.actor}-{one}" for one in given[field]]
            elif field in given:
                given[field] = f"{home.actor}-{given[field]}"
        try:
            answer: Any = getattr(asked, verb)(**given)
        except SkepError as error:
            return "InvalidInputError" if isinstance(error, InvalidInputError) else type(error).__name__
        if verb == "scopes":
            answer = sorted(map(str, answer.items()))
        return msgspec.json.encode(answer).replace(home.actor.encode(), b"ACTOR")


@pytest.fixture(scope="module", autouse=True)
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with Running(tmp_path_factory.mktemp("pairs")) as running:
        _SERVERS.append(running)
        yield


_SERVERS: list[Running] = []


def test_the_methods_of_client_are_those_of_the_protocol() -> None:
    for name in (name for name in vars(MemoryBank) if not name.startswith("_")):
        theirs = inspect.getattr_static(Client, name)
        if callable(theirs):
            wanted = list(inspect.signature(getattr(MemoryBank, name)).parameters)
            assert list(inspect.signature(theirs).parameters) == wanted, name
            assert hasattr(AsyncClient, name) or name == "stream", name


def test_the_generated_client_is_what_its_script_writes() -> None:
    spec = importlib.util.spec_from_file_location("build_client", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)

    written = Path(inspect.getfile(Client)).read_text(encoding="utf-8")

    assert script.source() == written, "run python scripts/build_client.py"


def test_a_view_of_the_past_is_read_and_never_written(client: Client) -> None:
    made = client.remember("Before").memory
    client.revise(made.id, text="After")
    past = client.as_of(made.created_at + 0.0005)

    assert past.get(made.id).text == "Before"
    with pytest.raises(skep.errors.ReadOnlyError):
        past.retract(made.id)


def test_two_who_revise_one_version_do_not_overwrite_each_other(client: Client) -> None:
    memory = client.remember("The limit is 1").memory
    client.revise(memory.id, expected_version=memory.version, text="The limit is 2")

    with pytest.raises(VersionError) as caught:
        client.revise(memory.id, expected_version=memory.version, text="The limit is 3")

    now = caught.value.memory
    assert now.text == "The limit is 2"
    assert [event.kind for event in caught.value.changes] == ["revise"]
    assert (
        client.revise(memory.id, expected_version=now.version, text="The limit is 3").text == "The limit is 3"
    )


def test_a_function_is_not_sent_and_the_error_says_so(client: Client) -> None:
    with pytest.raises(InvalidInputError, match="stays here"):
        client.remember("a text", contradiction_fn=lambda _a, _b: True)


def test_passive_recall_works_over_a_server(client: Client) -> None:
    client.remember("The espresso machine is descaled on Fridays")
    with client.stream(inline=True) as stream:
        stream.observe("when is the espresso machine descaled?")
        assert [hit.memory.text for hit in stream.context().facts] == [
            "The espresso machine is descaled on Fridays"
        ]


def test_the_events_of_a_bank_make_the_same_bank_elsewhere(client: Client) -> None:
    client.remember("Carried over by events")
    with Bank.open(":memory:") as copy:
        copy.apply(client.events())
        assert {m.id for m in copy.find(status=None, limit=1000)} == {
            m.id for m in client.find(status=None, limit=1000)
        }
        assert list(client.events(since=copy.versions())) == []


def test_a_server_that_is_away_is_named_after_some_attempts() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        away = Client(f"http://127.0.0.1:{taken.getsockname()[1]}", bank="team")
        with pytest.raises(RemoteError, match="is the server running"):
            away.versions()


def test_a_write_whose_answer_was_lost_is_made_once(server: Running) -> None:
    lost = threading.Event()
    with (
        LosesFirstAnswer(server.port, lost) as relay,
        Client(relay.url, token=server.owner, bank="team") as client,
    ):
        made = client.remember("The answer to this was lost on the way")

    assert lost.is_set()
    with server.client() as direct:
        assert [m.id for m in direct.find("answer lost way")] == [made.memory.id]


def test_addresses_and_tokens_that_are_none_are_refused_at_once() -> None:
    for wrong in ("", "team.skep", "ftp://x"):
        with pytest.raises(ConfigError):
            Client(wrong)
    with pytest.raises(ConfigError):
        Client("http://127.0.0.1:1", token=" ")


def test_a_wrong_token_is_an_access_error(server: Running) -> None:
    with Client(server.url, token="skep_wrong", bank="team") as client, pytest.raises(AccessError):
        client.versions()


def test_the_only_bank_need_not_be_named(server: Running) -> None:
    with Client(server.url, token=server.owner) as client:
        assert client.bank == "team"


def test_an_async_client_asks_many_things_at_once(server: Running) -> None:
    async def main() -> list[str]:
        async with AsyncClient(server.url, token=server.owner, bank="team") as bank:
            made = await asyncio.gather(
                *(bank.remember(f"async note {n}", on_conflict="ignore") for n in range(20))
            )
            found = await bank.find("async note", limit=100)
            assert {m.id for m in found} >= {one.memory.id for one in made}
            return [(await bank.get(one.memory.id)).text for one in made]

    assert asyncio.run(main()) == [f"async note {n}" for n in range(20)]


class LosesFirstAnswer:
    """A relay that passes requests on and drops the first answer, as a broken line does."""

    def __init__(self, port: int, lost: threading.Event) -> None:
        self._port, self._lost = port, lost
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> LosesFirstAnswer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.join(30)
        self._listener.close()

    def _run(self) -> None:
        for _ in range(2):
            near, _ = self._listener.accept()
            with near, socket.create_connection(("127.0.0.1", self._port)) as far:
                request = near.recv(1 << 16)
                while not _whole(request):
                    request += near.recv(1 << 16)
                far.sendall(request)
                answer = far.recv(1 << 16)
                while not _whole(answer):
                    answer += far.recv(1 << 16)
                if not self._lost.is_set():
                    self._lost.set()
                    continue
                near.sendall(answer)


def _whole(message: bytes) -> bool:
    head, end, body = message.partition(b"\r\n\r\n")
    length = [
        int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")
    ]
    return bool(end) and len(body) >= length[0]
