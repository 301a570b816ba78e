"""The state is a function of the set of events: replayed in any order, it is the same."""

from __future__ import annotations

import random
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, rule
from tests.conftest import SEARCH

from skep.config import Settings
from skep.events import mentioned, order
from skep.filters import Filter
from skep.model import STATUSES, Event
from skep.storage.doctor import examine
from skep.storage.fold import fold, fold_on, fold_whole
from skep.storage.sqlite_store import SqliteStore

TEXTS = st.sampled_from(
    ["use ruff", "lives in Oslo", "été à Paris", "PR #441 merged", "日本語のメモ", "foo_bar v2.3.1"]
)
LABELS = st.sampled_from(["red", "green", "blue"])


def visible(store: SqliteStore) -> dict[str, Any]:
    """All that users can see, apart from row numbers."""
    everything = Filter(statuses=STATUSES)
    memories = {memory.id: memory for _row, memory in store.find(everything, limit=10**9)}
    words = {
        term: sorted(memory.id for _row, memory in store.find(everything, limit=10**6, terms=[term]))
        for term in ("ruff", "oslo", "441", "v2.3.1", "日本")
    }
    return {
        "memories": memories,
        "links": store.all_links(),
        "settings": store.settings_under(""),
        "words": words,
        "forgotten": sorted(
            i for (i,) in store.connection.rows("SELECT id FROM memories WHERE forgotten = 1")
        ),
    }


class Replay(RuleBasedStateMachine):
    """Two replicas write; each may be behind the other; a third replays everything in another order."""

    memories = Bundle("memories")
    events = Bundle("events")

    @initialize()
    def open(self) -> None:
        self.stores = [SqliteStore.open(":memory:", Settings()) for _ in range(2)]
        self.stores[1].tables.long = 1  # one of them folds step by step from the first event on
        self.now = 1_000_000.0

    def teardown(self) -> None:
        for store in getattr(self, "stores", []):
            store.close()

    def write(self, side: int, kind: str, body: dict[str, Any]) -> str:
        self.now += 1
        events, _ = self.stores[side].write([(kind, body)], now=self.now + 300 * side)
        return events[0].id

    @rule(
        target=memories, side=st.integers(0, 1), text=TEXTS, tags=st.lists(LABELS, unique=True), user=LABELS
    )
    def remember(self, side: int, text: str, tags: list[str], user: str) -> str:
        return self.write(
            side, "remember", {"text": text, "tags": tags, "scope": {"user": user}, "agent": user}
        )

    @rule(target=events, side=st.integers(0, 1), memory=memories, text=TEXTS)
    def revise(self, side: int, memory: str, text: str) -> str:
        return self.write(side, "revise", {"memory": memory, "changes": {"text": text, "importance": 0.9}})

    @rule(target=events, side=st.integers(0, 1), memory=memories, rest=st.booleans())
    def retract_what_is_seen(self, side: int, memory: str, rest: bool) -> str:
        return self.write(side, "retract", {"memory": memory, "observed": [memory] if rest else []})

    @rule(target=events, side=st.integers(0, 1), memory=memories)
    def restore(self, side: int, memory: str) -> str:
        return self.write(side, "restore", {"memory": memory})

    @rule(target=events, side=st.integers(0, 1), a=memories, b=memories)
    def supersede_even_in_rings(self, side: int, a: str, b: str) -> Any:
        return self.write(side, "supersede", {"old": a, "new": b}) if a != b else multiple()

    @rule(
        target=events,
        side=st.integers(0, 1),
        a=memories,
        b=memories,
        anew=st.booleans(),
        record=st.sampled_from([{}, {"successes": 2}, {"successes": 1, "failures": 3}]),
    )
    def merge(self, side: int, a: str, b: str, anew: bool, record: dict[str, int]) -> Any:
        taken = {"evidence": [a], **record} if anew else {}
        return self.write(side, "merge", {"loser": a, "winner": b, **taken}) if a != b else multiple()

    @rule(
        target=events,
        side=st.integers(0, 1),
        a=memories,
        b=memories,
        rel=st.sampled_from(["related", "derived_from", "contradicts"]),
    )
    def link(self, side: int, a: str, b: str, rel: str) -> Any:
        return (
            self.write(side, "link", {"src": a, "dst": b, "rel": rel, "strength": 0.5})
            if a != b
            else multiple()
        )

    @rule(
        target=events,
        side=st.integers(0, 1),
        a=memories,
        b=memories,
        rel=st.sampled_from(["related", "contradicts"]),
    )
    def unlink(self, side: int, a: str, b: str, rel: str) -> str:
        return self.write(side, "unlink", {"src": a, "dst": b, "rel": rel})

    @rule(target=events, side=st.integers(0, 1), memory=memories, pinned=st.booleans())
    def pin(self, side: int, memory: str, pinned: bool) -> str:
        return self.write(side, "revise", {"memory": memory, "changes": {"pinned": pinned}})

    @rule(target=events, side=st.integers(0, 1), memory=memories, by=LABELS)
    def confirm(self, side: int, memory: str, by: str) -> str:
        return self.write(side, "confirm", {"memory": memory, "by": by})

    @rule(target=events, side=st.integers(0, 1), memory=memories, by=LABELS)
    def dispute(self, side: int, memory: str, by: str) -> str:
        return self.write(side, "dispute", {"memory": memory, "by": by})

    @rule(target=events, side=st.integers(0, 1), memory=memories, source=memories)
    def evidence(self, side: int, memory: str, source: str) -> str:
        return self.write(side, "evidence", {"memory": memory, "sources": [source]})

    @rule(target=events, side=st.integers(0, 1), memory=memories, success=st.booleans())
    def outcome(self, side: int, memory: str, success: bool) -> str:
        return self.write(side, "outcome", {"task": "t", "success": success, "used": [memory]})

    @rule(
        target=events,
        side=st.integers(0, 1),
        memory=memories,
        status=st.sampled_from(["deprecated", "active"]),
    )
    def mark(self, side: int, memory: str, status: str) -> str:
        return self.write(side, "mark", {"memory": memory, "status": status})

    @rule(side=st.integers(0, 1), memory=memories)
    def use(self, side: int, memory: str) -> None:
        self.write(side, "use", {"counts": {memory: 2}, "at": self.now})

    @rule(side=st.integers(0, 1), memory=consumes(memories))
    def forget(self, side: int, memory: str) -> None:
        self.write(side, "forget", {"memories": [memory]})

    @rule(target=events, side=st.integers(0, 1), value=LABELS)
    def set_setting(self, side: int, value: str) -> str:
        return self.write(side, "setting", {"key": "colour", "value": value})

    @rule(target=events, side=st.integers(0, 1), event=events)
    def undo(self, side: int, event: str) -> Any:
        known = next((e for s in self.stores if (e := s.log.get(event)) is not None), None)
        if known is None:
            return multiple()
        return self.write(side, "undo", {"event": event, "mentions": list(mentioned(known))})

    @rule(source=st.integers(0, 1), share=st.integers(1, 10))
    def send_some(self, source: int, share: int) -> None:
        target = self.stores[1 - source]
        events = list(self.stores[source].log.lacking(target.log.versions()))
        target.apply(events[: max(1, len(events) * share // 10)], now=self.now + 1000)

    @invariant()
    def log_and_tables_agree_whatever_the_order(self) -> None:
        if not hasattr(self, "stores"):
            return
        rng = random.Random(len(self.stores[0].log.versions()) + int(self.now))
        for store in self.stores:
            events = list(store.log.after(0))
            rng.shuffle(events)
            other = SqliteStore.open(":memory:", Settings())
            middle = len(events) // 2
            other.apply(events[middle:], now=self.now + 1000)
            other.apply(events[:middle], now=self.now + 1000)
            assert other.log.held() == []
            assert visible(other) == visible(store)
            assert [f for f in examine(store, deep=True) if f.check == "replay" and f.level != "ok"] == []
            other.close()

    @invariant()
    def what_was_forgotten_is_nowhere(self) -> None:
        for store in getattr(self, "stores", []):
            for (memory_id,) in store.connection.rows("SELECT id FROM memories WHERE forgotten = 1"):
                assert store.get(memory_id) is None
                assert all(
                    "text" not in event.body and "changes" not in event.body
                    for event in store.log.of(memory_id)
                )


TestReplay = Replay.TestCase
TestReplay.settings = settings(max_examples=25 * max(1, SEARCH), stateful_step_count=25, deadline=None)


def test_forgetting_what_never_arrived_takes_the_links_others_gave_it() -> None:
    here, there = (SqliteStore.open(":memory:", Settings()) for _ in range(2))
    kept = here.write([("remember", {"text": "use ruff"})], now=1.0)[0][0].id
    unseen = there.write([("remember", {"text": "use black"})], now=1.0)[0][0].id
    here.write([("link", {"src": unseen, "dst": kept, "rel": "related"})], now=2.0)
    assert len(here.all_links()) == 1
    here.write([("forget", {"memories": [unseen]})], now=3.0)
    assert here.all_links() == []


ABOUT: dict[str, st.SearchStrategy[dict[str, Any]]] = {
    "revise": st.fixed_dictionaries(
        {},
        optional={
            "text": TEXTS,
            "tags": st.lists(LABELS, unique=True),
            "confidence": st.floats(0, 1),
            "agent": LABELS,
            "scope": st.fixed_dictionaries({"user": LABELS}),
            "ttl": st.floats(1, 1e6),
            "title": st.none() | TEXTS,
        },
    ).map(lambda changes: {"memory": "a-1", "changes": changes}),
    "retract": st.lists(st.sampled_from(["a-1", "a-3", "b-4", "b-5"])).map(
        lambda dots: {"memory": "a-1", "observed": dots}
    ),
    "restore": st.just({"memory": "a-1"}),
    "supersede": st.sampled_from([{"old": "a-1", "new": "x-1"}, {"old": "x-1", "new": "a-1"}]),
    "merge": st.sampled_from(
        [
            {"loser": "a-1", "winner": "x-1"},
            {"loser": "x-1", "winner": "a-1", "evidence": ["x-1"]},
            {"loser": "x-1", "winner": "a-1", "evidence": ["x-1"], "successes": 2},
            {"loser": "y-1", "winner": "a-1", "evidence": ["y-1"], "failures": 1, "successes": 1},
        ]
    ),
    "mark": st.sampled_from(["deprecated", "active", "expired"]).map(
        lambda status: {"memory": "a-1", "status": status}
    ),
    "evidence": st.lists(LABELS).map(lambda sources: {"memory": "a-1", "sources": sources}),
    "confirm": LABELS.map(lambda by: {"memory": "a-1", "by": by}),
    "dispute": LABELS.map(lambda by: {"memory": "a-1", "by": by}),
    "outcome": st.booleans().map(lambda success: {"task": "t", "success": success, "used": ["a-1"]}),
    "undo": st.sampled_from(["a-1", "a-2", "a-3", "b-3", "b-4", "b-6"]).map(
        lambda event: {"event": event, "mentions": ["a-1"]}
    ),
    "sing": st.just({"memory": "a-1"}),
}


@st.composite
def histories(draw: st.DrawFn) -> list[Event]:
    """What two replicas said of one memory, in any order of arrival."""
    first = {"text": draw(TEXTS), "agent": "red", "confidence": draw(st.floats(0, 1))}
    events = [Event(actor="a", counter=1, hlc=1 << 16, kind="remember", body=first)]
    for counter in range(2, draw(st.integers(3, 14))):
        kind = draw(st.sampled_from(sorted(ABOUT)))
        events.append(
            Event(
                actor=draw(st.sampled_from("ab")),
                counter=counter,
                hlc=(1 << 16) * draw(st.integers(0, 20)),
                kind=kind,
                body=draw(ABOUT[kind]),
            )
        )
    return draw(st.permutations(events))


@settings(max_examples=300 * max(1, SEARCH))
@given(histories())
def test_folding_on_from_what_was_kept_is_folding_the_whole(history: list[Event]) -> None:
    steps = 0
    for cut in range(1, len(history)):
        before, after = history[:cut], history[cut : cut + 2]
        state, kept = fold_whole("a-1", before)
        if state is None or kept is None or not kept.follows(after):
            continue
        assert fold_on(state.memory, kept, after) == fold_whole("a-1", [*before, *after])
        steps += 1
    ordered = sorted(history, key=order)
    if ordered[0].kind == "remember" and all(event.kind != "undo" for event in history):
        assert steps or history != ordered


def test_a_revision_that_was_undone_before_it_was_made_never_was() -> None:
    store = SqliteStore.open(":memory:", Settings())
    memory = store.write([("remember", {"text": "use ruff"})], now=1.0)[0][0].id
    store.write([("revise", {"memory": memory, "changes": {"importance": 0.6}})], now=2.0)
    undo = {"event": f"{store.actor}-3", "mentions": [memory]}
    store.apply([Event(actor="b", counter=1, hlc=2 << 16, kind="undo", body=undo)], now=3.0)
    event = store.write([("revise", {"memory": memory, "changes": {"importance": 0.9}})], now=4.0)[0][0]

    found, state = store.get(memory), fold(memory, store.log.of(memory))
    assert event.id == undo["event"]
    assert found is not None
    assert state is not None
    assert found.importance == state.memory.importance == 0.6
    store.close()


def work_of(store: SqliteStore, kind: str, body: dict[str, Any]) -> tuple[int, int]:
    """How many statements one write runs, and how many of them go through the events of a memory."""
    statements: list[str] = []
    store.connection.trace = lambda sql, _bindings: statements.append(sql)
    store.write([(kind, body)], now=1_000.0)
    store.connection.trace = None
    return len(statements), sum("FROM subjects" in sql for sql in statements)


@pytest.mark.parametrize("kind", ["outcome", "confirm", "link", "revise", "setting"])
def test_the_thousandth_event_of_a_memory_costs_no_more_than_the_tenth(kind: str) -> None:
    store = SqliteStore.open(":memory:", Settings())
    memory, other = (
        event.id
        for event in store.write([("remember", {"text": "use ruff"}), ("remember", {"text": "b"})], now=1.0)[
            0
        ]
    )

    def body(number: int) -> dict[str, Any]:
        return {
            "outcome": {"task": "t", "success": True, "used": [memory]},
            "confirm": {"memory": memory, "by": f"agent {number}"},
            "link": {"src": memory, "dst": other, "rel": f"r{number}"},
            "revise": {"memory": memory, "changes": {"importance": 1 / number}},
            "setting": {"key": "colour", "value": number},
        }[kind]

    for number in range(1, 10):
        store.write([(kind, body(number))], now=1.0 + number)
    tenth, _ = work_of(store, kind, body(10))
    for number in range(11, 1000):
        store.write([(kind, body(number))], now=1.0 + number)
    thousandth, readings = work_of(store, kind, body(1000))

    assert thousandth <= tenth
    assert readings == 0
    found = store.get(memory)
    assert found is not None
    assert {"outcome": found.successes, "confirm": found.confirmations}.get(kind, 1000) == 1000
    store.close()


def test_a_record_that_was_merged_stays_when_the_copy_it_came_from_is_forgotten() -> None:
    here, there = (SqliteStore.open(":memory:", Settings()) for _ in range(2))
    copy, kept = (
        here.write([("remember", {"text": text})], now=1.0)[0][0].id for text in ("ruff", "use ruff")
    )
    record = {"evidence": [copy], "successes": 3, "failures": 1}
    here.write([("merge", {"loser": copy, "winner": kept, **record})], now=2.0)
    here.write([("forget", {"memories": [copy]})], now=3.0)
    there.apply(list(here.log.after(0)), now=4.0)
    for store in (here, there):
        found = store.get(kept)
        assert found is not None
        assert (found.successes, found.failures) == (3, 1)
        assert [f for f in examine(store, deep=True) if f.check == "replay" and f.level != "ok"] == []
        store.close()


@pytest.mark.parametrize("long", [1, 100])
def test_a_record_is_merged_once_whatever_the_winner_rests_on(long: int) -> None:
    store = SqliteStore.open(":memory:", Settings())
    store.tables.long = long
    copy = store.write([("remember", {"text": "ruff"})], now=1.0)[0][0].id
    kept = store.write([("remember", {"text": "use ruff", "evidence": [copy]})], now=1.0)[0][0].id
    for record in ({"successes": 2}, {"successes": 3, "failures": 1}, {"successes": 1}):
        body = {"loser": copy, "winner": kept, "evidence": [copy], **record}
        store.write([("merge", body)], now=2.0)
    found = store.get(kept)
    assert found is not None
    assert (found.successes, found.failures) == (3, 1)
    assert [f for f in examine(store, deep=True) if f.check == "replay" and f.level != "ok"] == []
    store.close()
