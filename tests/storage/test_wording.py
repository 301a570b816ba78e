"""Words and tags of rows: found as soon as they are written, and as they are now."""

from __future__ import annotations

from pathlib import Path

import pytest

from skep.bank.bank import Bank
from skep.config import Settings
from skep.embedding.static_table import HashingEmbedder
from skep.filters import Filter
from skep.storage.doctor import examine, mend
from skep.storage.full_text import rarities, rows_by_rare_words
from skep.storage.sqlite_store import SqliteStore

MANY = 64


def opened(path: Path) -> Bank:
    return Bank.open(path, embedder=HashingEmbedder(32))


def note(bank: Bank, number: int) -> str:
    text = f"note {number} on the ledger"
    return bank.remember(text, tags=("even" if number % 2 == 0 else "odd",), on_conflict="ignore").memory.id


def texts(bank: Bank, **how: object) -> set[str]:
    return {memory.text for memory in bank.find(limit=500, **how).memories}  # type: ignore[arg-type]


def test_every_row_is_found_by_word_and_tag_at_every_moment(bank_path: Path) -> None:
    with opened(bank_path) as bank:
        for number in range(2 * MANY + 5):
            note(bank, number)
            assert len(bank.find(text=f"note {number}").memories) == 1
            if number % 16 == 0:
                every = {f"note {n} on the ledger" for n in range(number + 1)}
                assert texts(bank, text="ledger") == every
                assert texts(bank, tags=("even",)) == {
                    f"note {n} on the ledger" for n in range(0, number + 1, 2)
                }
                assert bank.engine.store.count(Filter(tags=(("even",),))) == number // 2 + 1


@pytest.mark.parametrize("filled", [3, MANY + 3])
@pytest.mark.parametrize("ahead", [0, MANY])
def test_what_is_changed_or_forgotten_is_found_as_it_now_is(bank_path: Path, filled: int, ahead: int) -> None:
    with opened(bank_path) as bank:
        for number in range(filled):
            note(bank, number)
        one, two = note(bank, 1000), note(bank, 1001)
        for number in range(ahead):
            note(bank, 2000 + number)
        bank.revise(one, text="the mailer retries", tags=("post",))
        bank.forget(two)
        assert texts(bank, text="mailer") == texts(bank, tags=("post",)) == {"the mailer retries"}
        assert texts(bank, text="note 1000") == texts(bank, text="note 1001") == set()
        for number in range(MANY):
            note(bank, 3000 + number)
        assert texts(bank, text="mailer") == texts(bank, tags=("post",)) == {"the mailer retries"}
        assert texts(bank, text="note 1000") == texts(bank, text="note 1001") == set()
        assert len(texts(bank, text="ledger")) == filled + ahead + MANY
    assert sound(bank_path)


def sound(path: Path) -> bool:
    store = SqliteStore.open(path, Settings())
    levels = {one.check: one.level for one in examine(store, deep=True)}
    store.close()
    return set(levels.values()) == {"ok"}


def test_the_newest_row_can_be_forgotten_again_and_again(bank_path: Path) -> None:
    with opened(bank_path) as bank:
        ids = [note(bank, number) for number in range(MANY + 2)]
        for memory_id in reversed(ids[-6:]):
            bank.forget(memory_id)
        assert len(texts(bank, text="ledger")) == MANY - 4
        for number in range(MANY):
            note(bank, 500 + number)
        assert len(texts(bank, text="ledger")) == 2 * MANY - 4
    assert sound(bank_path)


def test_two_processes_fill_the_index_together(bank_path: Path) -> None:
    with opened(bank_path) as one, opened(bank_path) as other:
        for number in range(3 * MANY):
            note(one if number % 3 else other, number)
        assert len(texts(one, text="ledger")) == len(texts(other, text="ledger")) == 3 * MANY
        assert len(texts(one, tags=("odd",))) == 3 * MANY // 2
    assert sound(bank_path)


def test_rows_that_arrive_together_or_come_to_nothing(bank_path: Path, tmp_path: Path) -> None:
    def fail() -> None:
        raise KeyError

    with opened(bank_path) as bank, opened(tmp_path / "other.skep") as other:
        for number in range(MANY - 1):
            note(bank, number)
        with pytest.raises(KeyError):
            bank.engine.write([("remember", {"text": "lost"})], check=fail)
        with pytest.raises(ValueError, match="no"):
            refused(bank)
        assert texts(bank, text="lost") == set()
        other.apply(bank.events({}))
        note(bank, 777)
        other.apply(bank.events(other.versions()))
        assert texts(other, text="ledger") == texts(bank, text="ledger")
    assert sound(bank_path)


def refused(bank: Bank) -> None:
    with bank.engine.store.writing():
        bank.engine.write([("remember", {"text": "lost"})])  # is taken back
        raise ValueError("no")


def test_words_straight_from_the_file_count_the_newest_rows(bank_path: Path) -> None:
    with opened(bank_path) as bank:
        for number in range(MANY + 2):
            note(bank, number)
        store = bank.engine.store
        weights = rarities(store, ["note", str(MANY), str(MANY + 1), "nothing"])
        assert weights["note"] < weights[str(MANY)] == weights[str(MANY + 1)] < weights["nothing"]
        assert rows_by_rare_words(store, {str(MANY + 1): 1.0}, 5) == [MANY + 2]
        assert len(rows_by_rare_words(store, {"note": 1.0}, 500)) == MANY + 2


def test_doctor_sees_and_mends_a_row_that_is_missing(bank_path: Path) -> None:
    with opened(bank_path) as bank:
        for number in range(MANY + 2):
            note(bank, number)
        store = bank.engine.store
        with store.connection.transaction():
            store.connection.execute("DELETE FROM words_docsize WHERE id = 3")
            store.connection.execute("DELETE FROM tags WHERE row = 4")
        assert [f.level for f in examine(store) if f.check == "words"] == ["error"]
        mend(store)
        assert [f.level for f in examine(store) if f.check == "words"] == ["ok"]
        assert len(texts(bank, text="ledger")) == MANY + 2
        assert len(texts(bank, tags=("odd",))) == MANY // 2 + 1
