"""Forgetting leaves no byte of the text: not in the file, the log, the index, nor the backups skep made."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import apsw
import pytest
from tests.conftest import Clock
from tests.storage.older import make_older

from skep.bank.bank import Bank
from skep.config import Settings
from skep.embedding.static_table import HashingEmbedder
from skep.errors import InvalidInputError, NotFoundError
from skep.lifecycle.maintain import MaintainConfig
from skep.replication.exchange import sync
from skep.storage.schema import VERSION

SECRET = "xylophonequartz"


def told(bank: Bank, *texts: str) -> list[str]:
    return [bank.remember(text, on_conflict="ignore").memory.id for text in texts]


def bytes_of(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


def test_no_byte_of_the_text_survives(tmp_path: Path, bank_path: Path) -> None:
    with Bank.open(bank_path, embedder=HashingEmbedder(32)) as bank:
        bank.remember_many([f"ordinary note {i}" for i in range(50)])
        memory = bank.remember(f"the code is {SECRET}", tags=[f"tag{SECRET}"], metadata={"k": SECRET}).memory
        bank.revise(memory.id, text=f"the code was {SECRET}", title=SECRET)
        bank.retract(memory.id, f"because of {SECRET}")
        bank.restore(memory.id)
        bank.backup(tmp_path / "copy.skep")
        bank.recall(SECRET)
        bank.engine.index.refresh()
        assert SECRET.encode() in bytes_of(tmp_path)

        receipt = bank.forget(memory.id)

        assert receipt.erased["rows"] == receipt.erased["backups"] == 1
        assert receipt.erased["log"] >= 3
        assert receipt.unreached == ()
        assert SECRET.encode() not in bytes_of(tmp_path)
        assert bank.recall(SECRET).hits == () or SECRET not in bank.recall(SECRET)[0].memory.text
    assert SECRET.encode() not in bytes_of(tmp_path)


def test_a_backup_that_cannot_be_reached_is_named(tmp_path: Path, bank_path: Path) -> None:
    with Bank.open(bank_path, embedder=HashingEmbedder(32)) as bank:
        memory = bank.remember("secret").memory
        bank.backup(tmp_path / "copy.skep")
        (tmp_path / "copy.skep").write_bytes(b"no longer a bank" * 100)
        bank.backup(tmp_path / "gone.skep").unlink()

        receipt = bank.forget(memory.id)

        assert [text.partition(":")[0].rpartition("/")[2] for text in receipt.unreached] == [
            "copy.skep",
            "gone.skep",
        ]


def test_a_dry_run_says_what_would_go_and_erases_nothing(plain_bank: Bank) -> None:
    memory = plain_bank.remember("still here").memory
    receipt = plain_bank.forget(memory.id, dry_run=True)
    assert (receipt.dry_run, receipt.erased["rows"], receipt.unreached) == (True, 1, ())
    assert plain_bank.get(memory.id).text == "still here"


def test_what_was_derived_from_it_is_named_and_marked_stale(plain_bank: Bank) -> None:
    source, summary, above = (
        m.memory.id for m in plain_bank.remember_many(["raw", "summary", "summary of summary"])
    )
    plain_bank.link(summary, source, "derived_from")
    plain_bank.link(above, summary, "derived_from")

    receipt = plain_bank.forget(source)

    assert (receipt.derived, receipt.unreached) == ((summary,), ())
    assert plain_bank.get(summary).stale
    assert plain_bank.get(above).stale
    assert plain_bank.neighbors(summary).dangling == (source,)


def told_again(bank: Bank) -> tuple[str, bytes]:
    """A memory of which skep makes copies of its own in every way it has; and the words that must go."""
    word = "quartzumbrella"
    source = bank.remember(f"The deploy key sits behind the {word}").memory
    bank.learn("deploy to staging", True, used=[source.id])
    bank.remember_many(
        [{"text": f"Backup to the {word} failed again, attempt {n}", "kind": "episode"} for n in range(4)]
    )
    bank.maintain(MaintainConfig(steps=("extract", "reflect")))
    bank.maintain()
    copy = bank.remember(f"Behind the {word} sits the deploy key", on_conflict="ignore").memory
    bank.merge(copy.id, source.id)
    return source.id, word.encode()


def held(folder: Path, word: bytes) -> list[str]:
    return [file.name for file in folder.rglob("*") if file.is_file() and word in file.read_bytes()]


def test_what_skep_made_of_it_goes_with_it_when_asked(tmp_path: Path, bank_path: Path) -> None:
    with Bank.open(bank_path) as bank:
        source, word = told_again(bank)
        assert len([m for m in bank.find(limit=100) if word.decode() in m.text and m.kind != "episode"]) >= 2
        bank.backup(tmp_path / "copy.skep")
        episodes = [m.id for m in bank.find(kind="episode", status=None, limit=100)]
        named = bank.forget([source, *episodes], dry_run=True)
        assert named.derived
        assert named.copies

        receipt = bank.forget([source, *episodes], derived=True)

        assert {source, *episodes, *named.derived, *named.copies} <= set(receipt.memories)
        assert (receipt.derived, receipt.copies, receipt.unreached) == ((), (), ())
        assert bank.find(text=word.decode(), status=None).memories == ()
    assert held(tmp_path, word) == []


def test_what_a_replica_derived_meanwhile_goes_when_it_is_forgotten_again(
    tmp_path: Path, bank_path: Path
) -> None:
    with Bank.open(bank_path) as one, Bank.open(tmp_path / "two.skep") as two:
        source = one.remember("The deploy key sits behind the quartzumbrella").memory
        two.apply(one.events())
        two.learn("deploy to staging", True, used=[source.id])
        one.forget(source.id, derived=True)
        sync(one, two)
        [left] = one.forget(source.id, dry_run=True).derived
        assert "quartzumbrella" in one.get(left).text

        one.forget(source.id, derived=True)
        sync(one, two)

        for bank in (one, two):
            assert bank.find(text="quartzumbrella", status=None).memories == ()
    assert held(tmp_path, b"quartzumbrella") == []


def test_nothing_to_forget_and_unknown_ids_are_errors(plain_bank: Bank) -> None:
    kept = plain_bank.remember("kept").memory
    with pytest.raises(InvalidInputError):
        plain_bank.forget([])
    with pytest.raises(NotFoundError):
        plain_bank.forget([kept.id, "nobody-1"])
    assert plain_bank.get(kept.id)


def finish_by_writing(bank: Bank) -> None:
    bank.remember("something else")


def finish_by_closing(bank: Bank) -> None:
    bank.close()


def finish_by_maintaining(bank: Bank) -> None:
    bank.maintain()


def finish_by_the_doctor(bank: Bank) -> None:
    assert all(finding.check != "forgotten" for finding in bank.doctor())


@pytest.mark.parametrize(
    "finish", [finish_by_writing, finish_by_closing, finish_by_maintaining, finish_by_the_doctor]
)
def test_a_reader_in_the_way_is_named_and_the_rest_is_erased_when_it_is_gone(
    tmp_path: Path, bank_path: Path, finish: Callable[[Bank], None]
) -> None:
    settings = Settings(busy_seconds=0.05)
    bank = Bank.open(bank_path, embedder=HashingEmbedder(32), settings=settings)
    memory = bank.remember(f"the code is {SECRET}").memory
    reader = apsw.Connection(str(bank_path))
    reader.execute("BEGIN")
    assert reader.execute("SELECT count(*) FROM memories").get == 1

    receipt = bank.forget(memory.id)

    assert [text.partition(":")[0] for text in receipt.unreached] == [f"{bank_path}-wal"]
    assert "maintain or doctor" in receipt.unreached[0]
    assert SECRET.encode() in bytes_of(tmp_path)
    assert [finding.level for finding in bank.doctor() if finding.check == "forgotten"] == ["warning"]

    reader.execute("COMMIT")
    finish(bank)

    assert SECRET.encode() not in bytes_of(tmp_path)
    reader.close()
    bank.close()


def test_what_a_crash_left_of_a_forgotten_text_goes_when_the_bank_is_next_used(
    tmp_path: Path, bank_path: Path
) -> None:
    settings = Settings(busy_seconds=0.05)
    with Bank.open(bank_path, embedder=HashingEmbedder(32), settings=settings) as bank:
        memory = bank.remember(f"the code is {SECRET}").memory
        reader = apsw.Connection(str(bank_path))
        reader.execute("BEGIN")
        assert reader.execute("SELECT count(*) FROM memories").get == 1
        bank.forget(memory.id)
    assert SECRET.encode() in bytes_of(tmp_path)
    reader.execute("COMMIT")
    with Bank.open(bank_path, embedder=HashingEmbedder(32)) as bank:
        bank.remember("another note")
        assert SECRET.encode() not in bytes_of(tmp_path)
    reader.close()


def test_the_copy_that_was_kept_before_a_migration_is_reached_too(tmp_path: Path, bank_path: Path) -> None:
    with Bank.open(bank_path, embedder=HashingEmbedder(32)) as bank:
        memory = bank.remember(f"the code is {SECRET}").memory
    make_older(bank_path, 7)

    with Bank.open(bank_path, embedder=HashingEmbedder(32)) as bank:
        assert SECRET.encode() in bank_path.with_name(f"bank.skep.before-v{VERSION}").read_bytes()
        receipt = bank.forget(memory.id)
        assert (receipt.erased["backups"], receipt.unreached) == (1, ())
        assert SECRET.encode() not in bytes_of(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == [
        "bank.skep",
        f"bank.skep.before-v{VERSION}",
    ]


def test_what_is_left_to_erase_waits_for_the_end_of_a_transaction(tmp_path: Path, bank_path: Path) -> None:
    with Bank.open(bank_path, embedder=HashingEmbedder(32), settings=Settings(busy_seconds=0.05)) as bank:
        memory = bank.remember(f"the code is {SECRET}").memory
        reader = apsw.Connection(str(bank_path))
        reader.execute("BEGIN")
        assert reader.execute("SELECT count(*) FROM memories").get == 1
        bank.forget(memory.id)
        reader.close()
        with bank.engine.store.writing():
            bank.remember("inside")
        assert SECRET.encode() in bytes_of(tmp_path)
        bank.remember("outside")
        assert SECRET.encode() not in bytes_of(tmp_path)


def test_forgetting_the_middle_of_a_chain_does_not_bring_back_its_beginning(
    tmp_path: Path, bank: Bank
) -> None:
    a, b, c = (
        bank.remember(f"The deploy region is {place}", on_conflict="ignore").memory.id
        for place in ("Frankfurt", "Dublin", "Oslo")
    )
    bank.supersede(a, b)
    bank.supersede(b, c)

    receipt = bank.forget(b)

    assert bank.event(receipt.event or "").kind == "forget"
    assert (bank.get(a).status, bank.get(a).superseded_by) == ("superseded", c)
    assert [hit.memory.id for hit in bank.recall("deploy region")] == [c]
    bank.restore(a)
    assert bank.get(a).status == "active"


def test_forgetting_two_of_a_chain_at_once_follows_it_to_its_end(bank: Bank) -> None:
    ids = [bank.remember(f"note {word}", on_conflict="ignore").memory.id for word in "abcd"]
    for old, new in pairwise(ids):
        bank.supersede(old, new)
    bank.forget(ids[1:3])
    assert bank.get(ids[0]).superseded_by == ids[3]


def test_a_copy_of_a_forgotten_copy_stays_a_copy_of_the_one_that_is_kept(bank: Bank) -> None:
    a, b, c = (bank.remember(f"copy {word}", on_conflict="ignore").memory.id for word in "abc")
    bank.merge(a, b)
    bank.merge(b, c)
    bank.forget(b)
    assert (bank.get(a).status, bank.get(a).merged_into) == ("merged", c)


def test_what_only_the_forgotten_one_had_replaced_stands_again(bank: Bank) -> None:
    a, b = (bank.remember(f"note {word}", on_conflict="ignore").memory.id for word in "ab")
    bank.supersede(a, b)
    bank.forget(b)
    assert bank.get(a).status == "active"


def test_a_backup_does_not_bring_back_the_beginning_of_a_chain_either(
    tmp_path: Path, bank_path: Path
) -> None:
    with Bank.open(bank_path, embedder=HashingEmbedder(32)) as bank:
        a, b, c = (bank.remember(f"note {word}", on_conflict="ignore").memory.id for word in "abc")
        bank.supersede(a, b)
        bank.supersede(b, c)
        bank.backup(tmp_path / "copy.skep")
        bank.forget(b)
    with Bank.open(tmp_path / "copy.skep", embedder=HashingEmbedder(32)) as copy:
        assert copy.get(a).superseded_by == c


def test_whoever_inherits_a_copy_has_learnt_nothing_new(bank: Bank, clock: Clock) -> None:
    first, middle, last = told(bank, "use ruff", "use ruff.", "Use ruff")
    bank.merge(first, middle)
    bank.merge(middle, last)
    before = bank.get(last)
    clock.pass_days(30)
    bank.forget(middle)
    assert bank.get(first).merged_into == last
    after = bank.get(last)
    assert (after.last_evidence_at, after.evidence) == (before.last_evidence_at, before.evidence)
    with Bank.open(":memory:", now=clock) as other:
        other.apply(bank.events())
        assert other.get(last).last_evidence_at == before.last_evidence_at


def test_a_merge_of_an_older_log_that_names_no_copies_counts_as_it_did(bank: Bank, clock: Clock) -> None:
    first, last = told(bank, "use ruff", "Use ruff")
    clock.pass_days(30)
    bank.engine.write([("merge", {"loser": first, "winner": last, "evidence": []})])
    assert bank.get(last).last_evidence_at == pytest.approx(clock())


def test_what_replaced_what_is_passed_on_in_the_transaction_that_forgets(bank_path: Path) -> None:
    with Bank.open(bank_path, embedder=HashingEmbedder(16)) as bank:
        first, middle, last = told(bank, "a", "b", "c")
        bank.supersede(first, middle)
        bank.supersede(middle, last)
        other = apsw.Connection(str(bank_path))
        refused: list[bool] = []

        def author() -> None:
            """Asked for just before the events are written, after what they say was decided."""
            try:
                other.execute("BEGIN IMMEDIATE; ROLLBACK")
            except apsw.BusyError:
                refused.append(True)

        bank.engine.author = author
        bank.forget(middle)
        other.close()
        assert refused == [True]
        assert bank.get(first).superseded_by == last


def test_nobody_who_spoke_of_a_forgotten_memory_is_named_in_the_log(tmp_path: Path) -> None:
    """What was handed to another memory, and events that speak of another as well, stay whole."""
    with Bank.open(tmp_path / "bank.skep") as bank, Bank.open(tmp_path / "other.skep") as other:
        kept = bank.remember("The tea is green.").memory.id
        gone = bank.remember("The password is swordfish.", on_conflict="ignore").memory.id
        for memory_id in (kept, gone):
            bank.confirm(memory_id, "Ann Confirmer")
            bank.dispute(memory_id, "Dan Disputer")
        bank.support(gone, ["https://example.com/leak"])
        other.apply(bank.events())
        receipt = bank.forget(gone)
        other.apply(bank.events())
        for each in (bank, other):
            about = [event.body for event in each.history(gone)]
            assert all(name not in str(about) for name in ("Ann", "Dan", "leak", "swordfish"))
            assert [event.kind for event in each.history(gone)].count("confirm") == 1
            assert (each.get(kept).confirmations, each.get(kept).disputes) == (1, 1)
            assert [finding for finding in each.doctor(deep=True) if finding.level == "error"] == []
        assert receipt.erased["log"] == 4
    assert b"Ann Confirmer" in (tmp_path / "bank.skep").read_bytes()  # of the memory that is there
