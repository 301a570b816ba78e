"""What one write costs, counted: statements, pages of the write-ahead log, and what is not written down twice."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

from skep.bank.bank import Bank
from skep.embedding.static_table import HashingEmbedder
from skep.model import Event
from skep.storage import event_log
from skep.storage.memory_rows import event_of

PAGE = 4096
FRAME = PAGE + 24


def opened(path: Path) -> Bank:
    return Bank.open(path, embedder=HashingEmbedder(32))


def grown(bank: Bank) -> str:
    """Enough that every table has leaves of its own; the id of one memory."""
    done = bank.remember_many(f"note {n} on the ledger of the harbour office" for n in range(600))
    return done[300].memory.id


def statements(bank: Bank, write: Callable[[], object]) -> list[str]:
    ran: list[str] = []

    def counted(sql: str, _bindings: Any) -> None:
        ran.append(" ".join(sql.split()[:3]))

    bank.engine.store.connection.trace = counted
    write()
    bank.engine.store.connection.trace = None
    return ran


def pages(path: Path, bank: Bank, write: Callable[[], object]) -> int:
    """Pages that a write puts into the write-ahead log, which was emptied before."""
    bank.engine.store.connection.db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    write()
    return (path.with_name(path.name + "-wal").stat().st_size - 32) // FRAME


def test_a_new_memory_takes_few_statements(bank_path: Path) -> None:
    with opened(bank_path) as bank:
        grown(bank)
        bank.remember("the first of its kind", on_conflict="ignore")
        ran = statements(bank, lambda: bank.remember("another of its kind", on_conflict="ignore"))
    assert len(ran) <= 15, ran


def test_uses_of_many_memories_take_as_many_statements_as_those_of_one(bank_path: Path) -> None:
    with opened(bank_path) as bank:
        some = grown(bank)
        ids = [memory.id for memory in bank.find(limit=40)]

        def use(*memory_ids: str) -> None:
            bank.engine.note_uses(memory_ids)
            bank.engine.flush_uses()

        use(some)
        assert len(statements(bank, lambda: use(some, *ids))) == len(statements(bank, lambda: use(some)))


def test_a_new_memory_dirties_few_pages(bank_path: Path) -> None:
    """One leaf of each table and of each index that a new memory is in, as long as none of them fills up."""
    with opened(bank_path) as bank:
        grown(bank)
        bank.remember("the first of its kind", on_conflict="ignore")
        taken = [
            pages(bank_path, bank, lambda n=n: bank.remember(f"number {n} of its kind", on_conflict="ignore"))
            for n in range(50)
        ]
    assert sorted(taken)[len(taken) // 2] <= 14


def test_a_revision_dirties_few_pages(bank_path: Path) -> None:
    with opened(bank_path) as bank:
        some = grown(bank)
        bank.revise(some, importance=0.41)
        taken = [
            pages(bank_path, bank, lambda n=n: bank.revise(some, importance=0.42 + n / 100)) for n in range(9)
        ]
    assert sorted(taken)[len(taken) // 2] <= 6


def test_an_undo_reads_none_of_the_undos_of_other_memories(
    bank_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[object] = []

    def counted(row: Any) -> Event:
        read.append(row)
        return event_of(row)

    def undone(bank: Bank, memory_id: str) -> int:
        event = bank.history(bank.retract(memory_id).id)[-1].id
        read.clear()
        bank.undo(event)
        return len(read)

    with opened(bank_path) as bank:
        grown(bank)
        ids = [memory.id for memory in bank.find(limit=40)]
        monkeypatch.setattr(event_log, "event_of", counted)
        assert len({undone(bank, memory_id) for memory_id in ids}) == 1


@pytest.mark.parametrize("verb", ["revise", "forget"])
def test_taking_tags_out_reads_none_of_other_memories(bank_path: Path, verb: str) -> None:
    def steps(tags: int) -> int:
        """What SQLite does for one such write where others have so many tags each, in tens of its instructions."""
        done = 0

        def counted() -> bool:
            nonlocal done
            done += 1
            return False

        with opened(bank_path.with_name(f"{tags}.skep")) as bank:
            others = [f"t{n}" for n in range(tags)]
            items = [{"text": f"note {n}", "tags": others} for n in range(1000)]
            stored = bank.remember_many([*items, {"text": "the one", "tags": ["one"]}, *items[:100]])
            one = stored[1000].memory.id
            bank.engine.store.connection.db.set_progress_handler(counted, 10)
            bank.revise(one, tags=["other"]) if verb == "revise" else bank.forget(one)
            bank.engine.store.connection.db.set_progress_handler(None)
            assert len(bank.find(tags=["one"], status=None)) == 0
            assert len(bank.find(tags=["t0"], limit=5000)) == 1100
        return done

    assert steps(40) < 1.5 * steps(1)


@pytest.mark.parametrize("partial", [False, True])
def test_what_comes_from_elsewhere_is_written_down_and_minting_goes_on_after_it(
    tmp_path: Path, partial: bool
) -> None:
    """Events under the bank's own name may come back to it, where an older state of it was put in its place."""
    with opened(tmp_path / "a.skep") as a, opened(tmp_path / "b.skep") as b:
        for n in range(5):
            a.remember(f"note {n}", on_conflict="ignore")
        events = list(a.engine.store.log.after(0))
        store = b.engine.store
        kept = events[:2] if not partial else [events[0], events[1], events[4]]
        store.apply(kept, now=events[-1].at, partial=partial)
        assert store.log.versions()[a.actor] == 2
        stamp = store.connection.one("SELECT hlc FROM actors WHERE actor = ?", (a.actor,))
        assert stamp == events[4 if partial else 1].hlc
        b.remember("its own", on_conflict="ignore")
        store.apply(events, now=events[-1].at)
        assert store.log.versions() == {a.actor: 5, b.actor: 1}

        mine = list(store.log.ranges({b.actor: [(1, 1)]}))
        a.engine.store.apply(mine, now=mine[0].at)
        assert a.engine.store.log.versions() == {a.actor: 5, b.actor: 1}

    with opened(tmp_path / "c.skep") as c:
        c.remember("the first", on_conflict="ignore")
        (own,) = c.engine.store.log.after(0)
        lost = type(own)(
            actor=own.actor, counter=2, hlc=own.hlc + 1, kind="remember", body={"text": "came back"}
        )
        assert c.engine.store.apply([lost], now=own.at + 10, partial=partial).new == 1
        assert c.engine.store.connection.rows("SELECT * FROM actors") == [(own.actor, 2, lost.hlc)]
        assert c.actor != own.actor  # it is an older copy of itself, and others may have its later events
        assert c.remember("the third", on_conflict="ignore").memory.id == f"{c.actor}-1"
        assert c.engine.store.log.versions() == {own.actor: 2, c.actor: 1}
