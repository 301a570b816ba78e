"""Scopes never leak: every read path sees exactly the scope that was asked for."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skep.bank.bank import Bank
from skep.embedding.static_table import HashingEmbedder
from skep.errors import NotFoundError
from skep.model import SHARED, Scope

PART = st.sampled_from([None, "a", "b"])
SCOPES = st.builds(Scope, user=PART, project=PART, session=PART)
ASKED_PART = st.sampled_from([None, "a", "b", "*"])
ASKED = st.builds(Scope, user=ASKED_PART, project=ASKED_PART, session=ASKED_PART)
SECRET = "marrow"
"""Every text, task and title of memory `i` holds the word `marrow<i>`, so that a leak can be seen anywhere."""


def filled(bank: Bank, scopes: list[Scope]) -> dict[str, Scope]:
    """Memories that are alike, linked in a ring across scopes, revised, superseded, and used in tasks."""
    kinds = ("fact", "fact", "episode", "procedure")
    stored = {
        bank.remember(
            f"the common note says {SECRET}{i}x on port {i}",
            scope=scope,
            kind=kinds[i % 4],
            on_conflict="ignore",
        ).memory.id: scope
        for i, scope in enumerate(scopes)
    }
    ids = list(stored)
    for i, (src, dst) in enumerate(zip(ids, [*ids[1:], ids[0]], strict=True)):
        if src != dst:
            bank.link(src, dst, ("related", "derived_from")[i % 2])
        bank.revise(src, title=f"{SECRET}{i}x")
        bank.learn(f"task {SECRET}{i}x", i % 2 == 0, used=[src], domain="d")
    if len(ids) > 3:
        bank.supersede(ids[0], ids[1])
        bank.learn("task of two", False, used=ids[:2])
    return {m.id: m.scope for m in bank.find(status=None)}


def reads(bank: Bank, scope: Scope, shared: bool) -> dict[str, Callable[[], Any]]:
    """Every way to read with a scope. The test below fails if `Bank` grows another that is not here."""
    ids = [m.id for m in bank.find(status=None, limit=1000)]
    asked: dict[str, Any] = {"scope": scope, "include_shared": shared}

    def tried(read: Callable[..., Any], *args: Any) -> list[Any]:
        found: list[Any] = []
        for memory_id in ids:
            with contextlib.suppress(NotFoundError):
                found.append(read(memory_id, *args, **asked))
        return found

    def streamed() -> Any:
        stream = bank.stream(inline=True, **asked)
        stream.observe("what does the common note say")
        return stream.context()

    return {
        "find": lambda: (
            bank.find(**asked, limit=100),
            bank.find("common note", status=None, limit=100, **asked),
        ),
        "recall": lambda: [
            bank.recall(
                "common note port", limit=20, preset=preset, include_superseded=True, expand=True, **asked
            )
            for preset in ("default", "semantic", "hybrid", "rrf")
        ],
        "rank": lambda: [
            bank.rank("common note port", limit=20, preset=preset, expand=expand, **asked)
            for preset in ("default", "semantic", "hybrid", "rrf")
            for expand in (None, True)
        ],
        "search_memory": lambda: [
            bank.search_memory("common note", kind, 50, **asked) for kind in ("facts", "episodes", "both")
        ],
        "stream": streamed,
        "find_conflicts": lambda: (bank.find_conflicts(threshold=0.1, **asked), tried(bank.find_conflicts)),
        "history": lambda: (bank.history(**asked), tried(bank.history)),
        "blame": lambda: tried(bank.blame),
        "neighbors": lambda: tried(bank.neighbors, None, "both", 5),
        "subgraph": lambda: tried(lambda i, **o: bank.subgraph([i], 5, **o)),
        "path": lambda: [tried(lambda i, other=other, **o: bank.path(i, other, **o)) for other in ids],
        "recommend": lambda: bank.recommend("the common note", 20, **asked),
        "outcomes": lambda: (bank.outcomes(**asked), tried(bank.outcomes)),
        "scopes": lambda: sorted(map(str, bank.scopes(**asked))),
        "stats": lambda: bank.stats(**asked),
        "utility": lambda: bank.utility(**asked),
    }


WRITES = {"remember", "remember_many", "learn", "revise"}


def test_every_method_that_takes_a_scope_is_in_the_list(plain_bank: Bank) -> None:
    takes = {
        name
        for name, method in inspect.getmembers(Bank, inspect.isfunction)
        if not name.startswith("_") and "scope" in inspect.signature(method).parameters
    }
    assert takes - WRITES == set(reads(plain_bank, SHARED, False))


@settings(max_examples=40)
@given(st.lists(SCOPES, min_size=1, max_size=8), ASKED, st.booleans(), SCOPES)
def test_a_read_with_a_scope_sees_exactly_that_scope(
    scopes: list[Scope], asked: Scope, include_shared: bool, writer: Scope
) -> None:
    with Bank.open(":memory:", embedder=HashingEmbedder(32)) as bank:
        stored = filled(bank, scopes)
        allowed = {
            i for i, scope in stored.items() if asked.admits(scope) or (include_shared and scope == SHARED)
        }
        words = {
            f"{SECRET}{i}x"
            for i, scope in enumerate(scopes)
            if asked.admits(scope) or (include_shared and scope == SHARED)
        }

        found = {m.id for m in bank.find(status=None, limit=100, scope=asked, include_shared=include_shared)}
        assert allowed == found
        for name, read in reads(bank, asked, include_shared).items():
            shown = msgspec.json.encode(read()).decode()
            leaked = {f"{SECRET}{i}x" for i in range(len(scopes)) if f"{SECRET}{i}x" in shown} - words
            assert not leaked, (name, leaked)
        seen = bank.stats(scope=asked, include_shared=include_shared)["outcomes"]
        assert seen <= len(bank.outcomes())
        if not allowed:
            assert seen == 0
        for conflict in bank.remember("the common note 0", scope=writer).conflicts:
            assert conflict.existing.scope in (writer, SHARED)


def test_links_are_walked_within_the_scope_alone(plain_bank: Bank) -> None:
    mine, theirs, also_mine, shared = (
        plain_bank.remember(text, scope=scope, on_conflict="ignore").memory.id
        for text, scope in (
            ("one", {"user": "ana"}),
            ("two", {"user": "bo"}),
            ("three", {"user": "ana"}),
            ("four", None),
        )
    )
    for src, dst in ((mine, theirs), (theirs, also_mine), (mine, shared)):
        plain_bank.link(src, dst)

    assert set(plain_bank.neighbors(mine, depth=3).memories) == {theirs, also_mine, shared}
    assert plain_bank.neighbors(mine, depth=3, scope={"user": "ana"}).links == ()
    within = plain_bank.neighbors(mine, depth=3, scope={"user": "ana"}, include_shared=True)
    assert set(within.memories) == {shared}
    assert len(plain_bank.path(mine, also_mine)) == 2
    assert plain_bank.path(mine, also_mine, scope={"user": "ana"}) == []
    assert set(plain_bank.subgraph([mine], 3, scope={"user": "ana"}).memories) == {mine}
    with pytest.raises(NotFoundError, match="in that scope"):
        plain_bank.neighbors(theirs, scope={"user": "ana"})


def test_conflicts_with_shared_memories_are_shown_only_when_asked_for(bank: Bank) -> None:
    shared = bank.remember("Use ruff for linting").memory
    mine = bank.remember("Never use ruff for linting", scope={"user": "ana"}).memory

    assert bank.find_conflicts(scope={"user": "ana"}) == []
    assert bank.find_conflicts(mine.id, scope={"user": "ana"}) == []
    (found,) = bank.find_conflicts(scope={"user": "ana"}, include_shared=True)
    assert {found.existing.id, found.memory.id if found.memory else ""} == {shared.id, mine.id}


def test_what_lies_outside_a_scope_reads_like_what_does_not_exist(plain_bank: Bank) -> None:
    theirs = plain_bank.remember("a secret", scope={"user": "bo"}).memory.id
    said: list[str] = []
    for memory_id in (theirs, "nobody-1"):
        with pytest.raises(NotFoundError) as caught:
            plain_bank.history(memory_id, scope={"user": "ana"})
        said.append(str(caught.value).replace(memory_id, "ID"))
    assert said[0] == said[1]
