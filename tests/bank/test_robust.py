"""Foreign events, copies, threads and models that are gone."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import Clock

from skep import AsyncBank, Bank
from skep.embedding.static_table import HashingEmbedder
from skep.errors import EmptyTextError, InvalidInputError, SyncError
from skep.model import Event

GOOD: dict[str, Any] = {
    "actor": "peer",
    "counter": 1,
    "hlc": 1 << 40,
    "kind": "remember",
    "body": {"text": "fine"},
}
BAD: list[dict[str, Any]] = [
    {"body": {"text": "ok", "kind": "weird"}},
    {"body": {"text": "ok", "confidence": "high"}},
    {"body": {"text": 123}},
    {"body": {"text": "ok", "scope": {"nope": 1}}},
    {"body": {"text": "a\x00b"}},
    {"kind": "supersede", "body": {}},
    {"kind": "use", "body": {"counts": [1]}},
    {"kind": "forget", "body": {"memories": "x"}},
    {"hlc": 1 << 70},
    {"counter": 0},
    {"actor": ""},
]


@pytest.mark.parametrize("change", BAD, ids=str)
def test_a_malformed_event_of_a_peer_is_refused_and_changes_nothing(
    plain_bank: Bank, change: dict[str, Any]
) -> None:
    plain_bank.remember("already here")
    with pytest.raises(SyncError):
        plain_bank.apply([Event(**{**GOOD, "counter": 2}), Event(**{**GOOD, **change})])
    assert plain_bank.status().events == 1
    assert plain_bank.recall("already here")


def test_an_event_of_a_kind_from_the_future_is_kept_without_effect(plain_bank: Bank) -> None:
    assert plain_bank.apply([Event(**{**GOOD, "kind": "sing", "body": {"song": 1}})]).new == 1
    assert plain_bank.status().memories == 0


def test_a_backup_put_in_the_place_of_its_bank_writes_under_a_new_name(
    bank_path: Path, tmp_path: Path
) -> None:
    with Bank.open(bank_path, embedder="hash:32") as bank:
        bank.remember("first")
        bank.backup(tmp_path / "copy.skep")
        second = bank.remember("second").memory
    for extra in ("-wal", "-shm"):
        bank_path.with_name(bank_path.name + extra).unlink(missing_ok=True)
    shutil.copy(tmp_path / "copy.skep", bank_path)
    with Bank.open(bank_path, embedder="hash:32") as bank:
        assert bank.remember("third").memory.id != second.id


def test_a_backup_overwrites_nothing_but_an_earlier_backup(plain_bank: Bank, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(InvalidInputError, match="exists"):
        plain_bank.backup(tmp_path / "notes.txt")
    plain_bank.backup(tmp_path / "copy.skep")
    plain_bank.backup(tmp_path / "copy.skep")
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_writers_and_readers_in_threads_do_not_lock_each_other_out(bank_path: Path) -> None:
    async def work() -> int:
        async with await AsyncBank.open(bank_path, embedder=HashingEmbedder(32)) as bank:
            for turn in range(5):
                writes = [bank.remember(f"note {turn} {i} apple") for i in range(4)]
                reads = [bank.recall(f"apple {i}") for i in range(4)]
                await asyncio.wait_for(asyncio.gather(*writes, *reads, bank.maintain()), timeout=120)
            return (await bank.status()).memories

    assert asyncio.run(work()) > 0


def test_a_model_only_its_owner_can_bring_is_never_replaced_by_accident(
    bank_path: Path, clock: Clock
) -> None:
    class Own(HashingEmbedder):
        @property
        def fingerprint(self) -> str:
            return "my-own-model"

    with Bank.open(bank_path, embedder=Own(32), now=clock) as bank:
        bank.remember("the kettle is blue")
    with Bank.open(bank_path, now=clock) as bank:
        assert bank.recall("kettle")
        bank.remember("the kettle was green", on_conflict="ignore")
        bank.maintain()
        assert bank.status().embedder == "my-own-model"
        assert bank.status().reembedding == 0
    with Bank.open(bank_path, embedder=Own(32), now=clock) as bank:
        bank.reembed()
        assert bank.status().pending == 0


def test_a_view_of_the_past_lives_as_long_as_it_is_held_and_never_shows_what_was_forgotten(
    plain_bank: Bank, clock: Clock
) -> None:
    memory = plain_bank.remember("the launch code is 1234").memory
    then = clock.now
    clock.pass_days(1)
    first = plain_bank.as_of(then)
    plain_bank.as_of(then + 3600)
    assert first.get(memory.id).text
    plain_bank.forget(memory.id)
    assert plain_bank.recall("launch code", as_of=then).hits == ()


def test_a_moment_can_be_asked_for_again_after_its_view_was_closed(plain_bank: Bank) -> None:
    plain_bank.remember("the launch code is known")
    for _ in range(2):
        with plain_bank.as_of(4e9) as view:
            assert len(view.find()) == 1
        assert view.closed
    assert not plain_bank.closed


@pytest.mark.parametrize(("moment", "count"), [("0001-01-01", 0), ("9999-12-31", 1), (253_402_300_799.9, 1)])
def test_the_ends_of_time_can_be_asked_for(plain_bank: Bank, moment: str | float, count: int) -> None:
    plain_bank.remember("the launch code is known")
    assert len(plain_bank.as_of(moment).find()) == count


def test_time_alone_takes_nothing_out_of_a_recall(bank_path: Path, clock: Clock) -> None:
    with Bank.open(bank_path, now=clock) as bank:
        pinned = bank.remember("To deploy, run make ship", kind="procedure", pinned=True).memory.id
        fact = bank.remember("The launch code is known").memory.id
        clock.pass_seconds(200 * 86_400)
        assert bank.recall("deploy make ship")[0].memory.id == pinned
        assert bank.recall("launch code")[0].memory.id == fact
        bank.maintain()
        assert bank.recall("launch code", min_confidence=0.8)[0].memory.id == fact
        bank.restore(fact)
        assert bank.recall("launch code")[0].memory.id == fact


def test_forgetting_what_replaced_something_brings_the_older_one_back(plain_bank: Bank) -> None:
    a, b = (m.memory.id for m in plain_bank.remember_many(["port is 80", "port is 90"]))
    plain_bank.supersede(a, b)
    plain_bank.forget(b)
    assert plain_bank.get(a).status == "active"


def test_merged_copies_of_what_is_forgotten_are_named(plain_bank: Bank) -> None:
    a, b = (m.memory.id for m in plain_bank.remember_many(["the code is 7", "the code is 7."]))
    plain_bank.merge(a, b)
    assert plain_bank.forget(b).copies == (a,)


def test_words_that_are_none_find_nothing(plain_bank: Bank) -> None:
    plain_bank.remember("something")
    assert [list(plain_bank.find(text)) for text in ("!!!", "  ")] == [[], []]
    assert len(plain_bank.find("")) == 1


def test_private_parts_are_never_stored_whatever_the_verb(plain_bank: Bank) -> None:
    memory = plain_bank.remember(
        "note <private>hunter2</private> one", title="a < private >hunter2</private> title"
    ).memory
    plain_bank.revise(memory.id, text="note <private x>hunter2</private> two")
    plain_bank.learn("task <private>hunter2</private>", "success", lesson="do <private>hunter2</private> it")
    plain_bank.remember_many([{"text": "more <private>hunter2"}])
    assert "hunter2" not in str(list(plain_bank.events()))


@pytest.mark.parametrize("redact", [False, True])
def test_a_text_that_is_all_private_is_refused_in_those_words(plain_bank: Bank, redact: bool) -> None:
    kept = plain_bank.remember("a note").memory
    hidden = " <private>hunter2</private> "
    for refused in (
        lambda: plain_bank.remember(hidden, redact=redact),
        lambda: plain_bank.remember_many([{"text": hidden, "redact": redact}]),
        lambda: plain_bank.revise(kept.id, text=hidden),
        lambda: plain_bank.learn(hidden, "success"),
    ):
        with pytest.raises(EmptyTextError, match="all of it is marked <private>"):
            refused()
    with pytest.raises(EmptyTextError, match="visible character"):
        plain_bank.remember(" ", redact=redact)


def test_all_of_a_batch_is_looked_at_before_the_first_is_written(bank: Bank) -> None:
    from skep.errors import ConflictError

    bank.remember("Use ruff for linting")
    with pytest.raises(ConflictError):
        bank.remember_many(["The sky is blue today", "Never use ruff for linting"], on_conflict="raise")
    assert bank.status().memories == 1


def test_closing_a_reader_does_not_wait_for_a_writer(bank_path: Path) -> None:
    with Bank.open(bank_path, embedder="hash:32") as writer:
        writer.remember("already there")
        reader = Bank.open(bank_path, embedder="hash:32")
        assert reader.recall("already there")
        with writer.engine.store.connection.transaction():
            reader.close()
