"""A file that is moved, deleted or replaced under an open bank: no write goes where nobody would find it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from skep.bank import Bank
from skep.errors import ClosedError, MovedError

VERBS: dict[str, Callable[[Bank], object]] = {
    "remember": lambda bank: bank.remember("The harbour opens at six"),
    "remember_many": lambda bank: bank.remember_many(["The harbour opens at six"]),
    "recall": lambda bank: bank.recall("harbour"),
    "find": lambda bank: bank.find(),
    "history": lambda bank: bank.history(),
    "status": lambda bank: bank.status(),
    "maintain": lambda bank: bank.maintain(),
}


def replaced(path: Path) -> None:
    with Bank.open(path.with_name("other.skep")) as other:
        other.remember("Another bank")
    os.replace(path.with_name("other.skep"), path)


AWAY: dict[str, Callable[[Path], object]] = {
    "moved": lambda path: path.rename(path.with_name("elsewhere.skep")),
    "deleted": Path.unlink,
    "replaced": replaced,
}


@pytest.mark.skipif(os.name == "nt", reason="there an open file keeps its name")
@pytest.mark.parametrize("how", AWAY)
@pytest.mark.parametrize("verb", VERBS)
def test_a_bank_whose_file_went_away_says_so(tmp_path: Path, how: str, verb: str) -> None:
    path = tmp_path / "bank.skep"
    bank = Bank.open(path)
    try:
        bank.remember("The harbour opens at five")
        AWAY[how](path)
        with pytest.raises(MovedError, match="open the bank again"):
            VERBS[verb](bank)
    finally:
        bank.close()


@pytest.mark.skipif(os.name == "nt", reason="there an open file keeps its name")
def test_uses_that_have_no_place_are_told_and_the_bank_is_closed_all_the_same(tmp_path: Path) -> None:
    bank = Bank.open(tmp_path / "bank.skep")
    bank.remember("The harbour opens at five")
    assert bank.recall("harbour").hits
    (tmp_path / "bank.skep").unlink()
    with pytest.raises(MovedError):
        bank.close()
    with pytest.raises(ClosedError):
        bank.find()
    bank.close()


@pytest.mark.skipif(os.name == "nt", reason="there an open file keeps its name")
def test_after_a_copy_is_put_back_an_open_bank_writes_no_more(tmp_path: Path) -> None:
    path, copy = tmp_path / "bank.skep", tmp_path / "copy.skep"
    with Bank.open(path) as bank:
        bank.remember("The harbour opens at five")
        bank.backup(copy)
    still_open = Bank.open(path)
    Bank.put_back(copy, path)
    with pytest.raises(MovedError):
        still_open.remember("The harbour opens at six")
    still_open.close()
    with Bank.open(path) as bank:
        assert [memory.text for memory in bank.find()] == ["The harbour opens at five"]


def test_a_relative_path_means_the_folder_it_was_opened_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "there").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with Bank.open("bank.skep") as bank:
        bank.remember("The harbour opens at five")
        monkeypatch.chdir(tmp_path / "there")
        assert bank.recall("harbour").hits
        bank.remember("The harbour closes at nine")
