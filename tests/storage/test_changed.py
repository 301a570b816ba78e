"""Rows that changed after a change: found by an index, whoever changed them and in whatever order."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import apsw
import pytest
from tests.storage.older import make_older

from skep.bank.bank import Bank
from skep.embedding.static_table import HashingEmbedder
from skep.storage import queries


def opened(path: Path) -> Bank:
    return Bank.open(path, embedder=HashingEmbedder(32))


def busy(bank: Bank, draw: random.Random, steps: int) -> None:
    """New memories and changed ones in any order; some many at a time, some again and again."""
    for step in range(steps):
        ids = [memory.id for memory in bank.find(limit=1000).memories]
        kind = draw.choice(("one", "many", "revise", "again", "touch", "forget") if ids else ("one", "many"))
        if kind == "one":
            bank.remember(f"note {step}", on_conflict="ignore")
        elif kind == "many":
            bank.remember_many(f"note {step} part {n}" for n in range(draw.randint(1, 9)))
        elif kind == "revise":
            for each in draw.sample(ids, min(len(ids), 3)):
                bank.revise(each, importance=draw.random())
        elif kind == "again":
            for _ in range(12):
                bank.revise(ids[-1], text=f"said otherwise {draw.random()}")
        elif kind == "touch":
            store = bank.engine.store
            with store.writing():
                store.tables.touch(draw.sample(range(1, len(ids) + 1), len(ids) // 2))
        elif step % 3 == 0:
            bank.forget(draw.choice(ids))


def agrees(bank: Bank) -> None:
    """Whatever is asked for, the answer is that of a look at every row."""
    store = bank.engine.store
    every = sorted(store.connection.rows("SELECT changed, row, forgotten, status FROM memories"))
    assert store.head() == (every[-1][0] if every else 0)
    for after in range(store.head() + 1):
        expected = [(changed, row) for changed, row, *_ in every if changed > after]
        assert [(row.seq, row.row) for row in store.changed_since(after)] == expected
        if not store.read_only:  # who only reads writes no segments, and so does not ask
            assert store.erased_since(after) == any(gone for changed, _, gone, _ in every if changed > after)
        rows = sorted(row for changed, row, gone, _ in every if changed > after and not gone)
        found = store.changed_memories(after, ("fact",))
        assert [memory.id for memory in found] == [store.memories([row])[row].id for row in rows]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("batch", [3, 1000])
def test_what_changed_is_what_a_look_at_every_row_says(
    bank_path: Path, seed: int, batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queries, "BATCH", batch)
    draw = random.Random(seed)
    with opened(bank_path) as bank:
        busy(bank, draw, 14)
        agrees(bank)
    make_older(bank_path, draw.choice((7, 8)))
    with Bank.open(bank_path, embedder=HashingEmbedder(32), read_only=True) as bank:
        agrees(bank)
    with opened(bank_path) as bank:
        agrees(bank)
        busy(bank, draw, 8)
        agrees(bank)
        assert bank.engine.store.connection.rows("PRAGMA integrity_check") == [("ok",)]
        assert [found for found in bank.doctor(deep=True) if found.level == "error"] == []


def test_another_process_may_write_between_a_look_at_the_head_and_the_rows(bank_path: Path) -> None:
    with opened(bank_path) as bank, opened(bank_path) as other:
        bank.remember_many(f"note {n}" for n in range(20))
        rows = bank.engine.store.changed_since(15)
        other.remember_many(f"later note {n}" for n in range(30))
        assert [row.seq for row in rows] == [16, 17, 18, 19, 20]


def test_what_changed_is_found_without_a_look_at_every_row(bank_path: Path) -> None:
    steps: list[int] = []

    def note(event: dict[str, Any]) -> bool:
        steps[-1] += event["stmt_status"]["SQLITE_STMTSTATUS_VM_STEP"]
        return True

    for count in (200, 3000):
        with opened(bank_path) as bank:
            bank.remember_many(f"note {n}" for n in range(count))
            store = bank.engine.store
            with store.writing():
                store.tables.touch(
                    range(1, count, 2)
                )  # the last in the way, if rows were gone through from the end
            first = bank.remember("the last but one", on_conflict="ignore").memory
            bank.revise(first.id, importance=0.7)
            steps.append(0)
            store.connection.db.trace_v2(apsw.SQLITE_TRACE_PROFILE, note)
            after = store.head() - 2
            assert len(list(store.changed_since(after))) == 1
            assert len(store.changed_memories(after, ("fact",))) == 1
            assert store.head() == after + 2
            store.connection.db.trace_v2(0, None)
        bank_path.unlink()
    assert steps[1] <= steps[0] + 20
