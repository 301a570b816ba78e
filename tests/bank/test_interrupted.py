"""What an interrupt, two threads or an odd peer leaves behind must not cost anybody a memory."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import apsw
import pytest

from skep.bank.bank import Bank
from skep.clock import pack
from skep.embedding.static_table import HashingEmbedder
from skep.index import row_table
from skep.model import Event
from skep.storage.sqlite_connection import Connection


def opened(path: Path) -> Bank:
    return Bank.open(path, embedder=HashingEmbedder(32))


@pytest.mark.parametrize("sql", ["BEGIN IMMEDIATE", "COMMIT"])
def test_an_interrupt_inside_a_write_takes_no_later_write_with_it(
    bank_path: Path, monkeypatch: pytest.MonkeyPatch, sql: str
) -> None:
    with opened(bank_path) as bank:
        bank.remember("first", on_conflict="ignore")
        interrupted_at(sql, monkeypatch)
        with pytest.raises(KeyboardInterrupt):
            bank.remember("interrupted", on_conflict="ignore")
        for i in range(5):
            bank.remember(f"acknowledged {i}", on_conflict="ignore")
        other = threading.Thread(target=bank.remember, args=("from another thread",))
        other.start()
        other.join(timeout=60)
        assert not other.is_alive()

        file = apsw.Connection(str(bank_path))
        assert file.execute("SELECT count(*) FROM memories WHERE text LIKE 'acknowledged%'").get == 5
        file.close()


def interrupted_at(sql: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Interrupt once, right after a statement was run."""
    whole = Connection.execute

    def interrupted(connection: Connection, statement: str, bindings: Any = ()) -> Any:
        found = whole(connection, statement, bindings)
        if statement == sql:
            monkeypatch.setattr(Connection, "execute", whole)
            raise KeyboardInterrupt
        return found

    monkeypatch.setattr(Connection, "execute", interrupted)


@pytest.mark.parametrize("sql", ["BEGIN", "COMMIT"])
def test_an_interrupt_at_either_end_of_a_recall_leaves_nothing_open(
    bank_path: Path, monkeypatch: pytest.MonkeyPatch, sql: str
) -> None:
    with opened(bank_path) as bank, opened(bank_path) as other:
        bank.remember("first", on_conflict="ignore")
        bank.recall("first", preset="hybrid")
        interrupted_at(sql, monkeypatch)
        with pytest.raises(KeyboardInterrupt):
            bank.recall("second", preset="hybrid")
        other.remember("written by another process", on_conflict="ignore")

        assert len(bank.find()) == 2, "no read is of the moment of the recall that was interrupted"


def test_an_interrupt_while_the_index_catches_up_is_made_good(
    bank_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(bank_path) as bank:
        for i in range(6):
            bank.remember(f"the ledger of case k{i}", on_conflict="ignore")
        whole, calls = row_table.Entry, iter(range(100))

        def interrupted(*parts: Any) -> row_table.Entry:
            if next(calls) == 2:
                raise KeyboardInterrupt
            return whole(*parts)

        monkeypatch.setattr(row_table, "Entry", interrupted)
        with pytest.raises(KeyboardInterrupt):
            bank.recall("ledger of case k3", limit=10, preset="hybrid")

        found = bank.recall("ledger of case k3", limit=10, preset="hybrid")
        assert {hit.memory.text for hit in found} == {f"the ledger of case k{i}" for i in range(6)}


def test_a_peers_memory_with_a_tag_twice_stops_nobody(bank_path: Path) -> None:
    with opened(bank_path) as bank:
        body = {"text": "hello from a peer", "tags": ["a", "a"]}
        event = Event(actor="peeractor1", counter=1, hlc=pack(time.time() - 10), kind="remember", body=body)
        bank.engine.store.apply([event], now=time.time())
        for i in range(70):
            bank.remember(f"note {i}", on_conflict="ignore")

        assert [memory.text for memory in bank.find(tags=["a"])] == ["hello from a peer"]
        assert all(finding.level == "ok" for finding in bank.doctor() if finding.check == "words")


def test_a_lost_word_index_is_seen_and_mended(bank_path: Path) -> None:
    with opened(bank_path) as bank:
        bank.remember_many([{"text": f"alpha {i}", "tags": ["t"]} for i in range(192)])
        apsw.Connection(str(bank_path)).execute("INSERT INTO words(words) VALUES('delete-all')")
        assert [finding.level for finding in bank.doctor() if finding.check == "words"] == ["error"]

        bank.mend()

        assert len(bank.find("alpha", limit=1000)) == 192
        assert all(finding.level == "ok" for finding in bank.doctor() if finding.check == "words")
