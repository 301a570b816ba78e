"""Memories of one scope among those of many: found without reading the others, and the same ones."""

from __future__ import annotations

from typing import Any

import pytest

from skep.bank.bank import Bank
from skep.storage import event_log, queries
from skep.storage.memory_rows import event_of

SCOPES: list[dict[str, str]] = [
    {"user": "u1"},
    {"user": "u1", "project": "p"},
    {"user": "u1", "project": "*"},
    {"user": "*"},
    {"user": "*", "project": "p"},
    {"project": "p"},
    {"project": "p", "session": "*"},
    {"session": "s"},
    {"user": "nobody"},
    {"user": "*", "project": "*", "session": "*"},
]


@pytest.fixture
def filled(plain_bank: Bank) -> Bank:
    given: list[dict[str, str] | None] = [
        {"user": "u1"},
        {"user": "u2"},
        {"user": "u1", "project": "p"},
        {"project": "p"},
        {"project": "p", "session": "s"},
        {"session": "s"},
        None,
    ]
    done = plain_bank.remember_many(
        {"text": f"note {n} on the harbour", "scope": given[n % len(given)]} for n in range(70)
    )
    ids = [one.memory.id for one in done]
    plain_bank.retract(ids[0])
    plain_bank.revise(ids[1], scope={"user": "u1"})
    plain_bank.link(ids[7], ids[14])
    plain_bank.link(ids[7], ids[15])
    plain_bank.forget(ids[21])
    return plain_bank


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("scope", SCOPES, ids=str)
def test_few_and_many_are_found_alike(
    filled: Bank, scope: dict[str, str], shared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def found() -> tuple[list[str], list[str], list[str]]:
        page = filled.find(scope=scope, include_shared=shared, limit=4, status=None)
        after = filled.find(scope=scope, include_shared=shared, cursor=page.cursor) if page.cursor else ()
        events = filled.history(scope=scope, include_shared=shared, limit=9)
        return [m.id for m in page], [m.id for m in after], [event.id for event in events]

    few = found()
    monkeypatch.setattr(queries, "FEW_SCOPED", -1)  # everything is much

    assert found() == few


def test_the_memories_of_others_are_not_read(plain_bank: Bank, monkeypatch: pytest.MonkeyPatch) -> None:
    plain_bank.remember_many({"text": f"note {n}", "scope": {"user": f"u{n // 3}"}} for n in range(600))
    read: list[Any] = []

    def counted(row: Any) -> Any:
        read.append(row)
        return event_of(row)

    monkeypatch.setattr(event_log, "event_of", counted)
    assert len(plain_bank.history(scope={"user": "u7"})) == 3
    assert len(read) == 3

    asked: list[tuple[str, Any]] = []
    connection = plain_bank.engine.store.connection
    connection.trace = lambda sql, bindings: asked.append((sql, bindings))
    assert len(plain_bank.find(scope={"user": "u7"})) == 3
    connection.trace = None
    plans = [
        step[-1]
        for sql, bindings in asked
        if "FROM memories" in sql
        for step in connection.rows(f"EXPLAIN QUERY PLAN {sql}", bindings)
    ]
    assert plans
    assert not [step for step in plans if step.startswith(("SCAN m", "SCAN memories"))]
