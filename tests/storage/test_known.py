"""What a store keeps in memory after writes of its own is what another process would read from the file."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import apsw
import pytest

from skep.bank.bank import Bank
from skep.config import Settings
from skep.embedding.static_table import HashingEmbedder
from skep.errors import NotFoundError
from skep.storage.sqlite_store import SqliteStore

NOW = 1_750_000_000.0


def opened(path: Path) -> Bank:
    return Bank.open(path, embedder=HashingEmbedder(32), now=lambda: NOW)


def known(store: SqliteStore) -> dict[str, Any]:
    return {
        "head": store.head(),
        "last": store.last_seq(),
        "boundary": store.next_boundary(NOW),
        "colour": store.setting("colour"),
        "spaces": store.present().spaces,
    }


def refused(bank: Bank, some: str) -> None:
    with pytest.raises(NotFoundError):
        bank.revise("nobody-1", importance=0.9)


WRITES: dict[str, Callable[[Bank, str], object]] = {
    "remember": lambda bank, _: bank.remember("the cache drops the token", on_conflict="ignore"),
    "checked": lambda bank, _: bank.remember("the cache drops the token"),
    "many": lambda bank, _: bank.remember_many(f"note {n} on the ledger" for n in range(70)),
    "for a while": lambda bank, _: bank.remember("the queue is full", ttl=60, on_conflict="ignore"),
    "from a day on": lambda bank, _: bank.remember("closed", valid_from=NOW + 30, on_conflict="ignore"),
    "revise": lambda bank, some: bank.revise(some, importance=0.9),
    "revise a text": lambda bank, some: bank.revise(some, text="the cache keeps the token"),
    "revise an end": lambda bank, some: bank.revise(some, valid_to=NOW + 10),
    "revise for good": lambda bank, some: bank.revise(some, valid_to=None),
    "set": lambda bank, _: bank.set_setting("colour", "red"),
    "set again": lambda bank, _: bank.set_setting("colour", "blue"),
    "undo": lambda bank, _: bank.undo(next(bank.engine.store.log.backwards()).id),
    "refused": refused,
    "retract": lambda bank, some: bank.retract(some),
    "restore": lambda bank, some: bank.restore(some),
    "link": lambda bank, some: bank.link(some, bank.find(limit=1).memories[0].id, "supports"),
    "use": lambda bank, some: (bank.engine.note_uses([some]), bank.engine.flush_uses()),
    "forget": lambda bank, some: bank.forget(some),
    "unknown use": lambda bank, some: (bank.engine.note_uses([some]), bank.engine.flush_uses()),
}


def test_what_is_kept_after_a_write_is_what_the_file_says(bank_path: Path) -> None:
    with opened(bank_path) as bank:
        store = bank.engine.store
        some = bank.remember("the worker retries the report").memory.id
        for name, write in WRITES.items():
            known(store)
            write(bank, some)
            other = SqliteStore.open(bank_path, Settings(), read_only=True)
            assert known(store) == known(other), name
            with store.connection.snapshot():
                assert known(store) == known(other), name
            other.close()


def test_what_another_process_writes_in_between_is_seen(bank_path: Path) -> None:
    with opened(bank_path) as mine, opened(bank_path) as others:
        some = mine.remember("the worker retries the report").memory.id
        for name, write in WRITES.items():
            known(mine.engine.store)
            mine.remember("one more of mine", on_conflict="ignore")
            write(others, some)
            assert known(mine.engine.store) == known(others.engine.store), name


def test_uses_are_counted_once_whatever_the_ids_look_like(bank_path: Path) -> None:
    odd = ('q"uote-1', "back\\slash-2", "ümläut-3", "tab\t-4", "a-5")
    with opened(bank_path) as bank:
        store = bank.engine.store
        gone = bank.remember("nobody needs this", on_conflict="ignore").memory.id
        bank.forget(gone)
        for _ in range(2):
            store.write([("use", {"counts": {**dict.fromkeys(odd, 3), gone: 1}, "at": NOW})], now=NOW)

        counted = dict(store.connection.rows("SELECT memory, count FROM uses"))  # type: ignore[arg-type]
        assert counted == dict.fromkeys(odd, 6)


def interrupt(at: int, work: Callable[[], object]) -> bool:
    """Do some work, and interrupt it as the storage makes its nth call; whether it came that far."""
    calls = 0

    def watch(frame: FrameType, event: str, _arg: object) -> None:
        nonlocal calls
        where = frame.f_code
        if event == "call" and "/skep/storage/" in where.co_filename and where.co_name != "<genexpr>":
            calls += 1
            if calls == at:
                raise KeyboardInterrupt

    before = sys.gettrace()
    sys.settrace(watch)
    try:
        work()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


def test_an_interrupt_at_any_step_of_a_write_leaves_nothing_open(bank_path: Path) -> None:
    with opened(bank_path) as bank:
        bank.remember("first", on_conflict="ignore")
        step = 0
        while interrupt(step := step + 1, lambda: bank.remember("interrupted", on_conflict="ignore")):
            other = threading.Thread(
                target=bank.remember, args=(f"told {step}",), kwargs={"on_conflict": "ignore"}
            )
            other.start()
            other.join(timeout=60)
            assert not other.is_alive(), step
            assert not bank.engine.store.connection.db.in_transaction
        assert step > 20

        file: Any = apsw.Connection(str(bank_path))
        assert file.execute("SELECT count(*) FROM memories WHERE text LIKE 'told%'").get == step - 1
        file.close()
        assert bank.engine.store.head() == bank.engine.store.connection.one(
            "SELECT max(changed) FROM memories"
        )
