"""Files that somebody else has made or damaged: nothing in them runs, and the doctor names findings about each."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path

import apsw
import pytest

from skep.bank.bank import Bank
from skep.config import Settings
from skep.embedding.static_table import HashingEmbedder
from skep.errors import NotABankError, SkepError, StorageError
from skep.storage.doctor import examine
from skep.storage.sqlite_store import SqliteStore

ENDLESS = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x FROM n"


def filled(path: Path) -> Path:
    with Bank.open(path, embedder=HashingEmbedder(16)) as bank:
        bank.remember_many({"text": f"note {n} on the ledger", "tags": ["books"]} for n in range(60))
        bank.revise(bank.find(limit=1)[0].id, importance=0.9)
        bank.link(*[memory.id for memory in bank.find(limit=2)])
    return path


@pytest.mark.parametrize(
    "sql",
    [
        "CREATE TRIGGER spy AFTER INSERT ON memories BEGIN DELETE FROM memories; END",
        f"CREATE VIEW endless AS {ENDLESS}",
        f"ALTER TABLE settings RENAME TO kept; CREATE VIEW settings(key) AS {ENDLESS}",
        "CREATE VIRTUAL TABLE more USING fts5(a)",
    ],
)
@pytest.mark.parametrize("read_only", [True, False])
def test_a_bank_that_holds_what_no_skep_makes_is_refused_and_left_as_it_is(
    bank_path: Path, sql: str, read_only: bool
) -> None:
    filled(bank_path)
    foreign = apsw.Connection(str(bank_path))
    foreign.execute(sql).fetchall()
    foreign.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    foreign.close()
    before = bank_path.read_bytes()

    with pytest.raises(NotABankError, match="no skep makes"):
        Bank.open(bank_path, read_only=read_only)
    assert bank_path.read_bytes() == before


def test_the_doctor_names_findings_about_every_damaged_file_and_never_raises(bank_path: Path) -> None:
    whole = filled(bank_path).read_bytes()
    for seed in range(60):
        draw = random.Random(seed)
        damaged = bytearray(whole)
        start = draw.randrange(100, len(damaged) - 600)
        damaged[start : start + draw.randrange(1, 600)] = draw.randbytes(draw.randrange(1, 600))
        for beside in bank_path.parent.glob("bank.skep-*"):
            beside.unlink()
        bank_path.write_bytes(damaged)
        try:
            store = SqliteStore.open(bank_path, Settings())
        except SkepError:
            continue  # refused in words
        try:
            found = list(examine(store, deep=True))
            assert found
            assert all(finding.fix for finding in found if finding.level == "error")
        finally:
            with contextlib.suppress(StorageError):  # said in words
                store.close()
