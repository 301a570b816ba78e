"""A file that is moved, deleted or replaced under an open bank: no write goes where nobody would find it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from skep.bank.bank import Bank
from skep.errors import ClosedError, MovedError

VERBS: dict[str, Callable[[Bank], object]] = {
    "remember": lambda bank: bank.remember("The harbour opens at six"),
    "remember_many": lambda bank: bank.remember_many(["The harbour opens at six"]),
    "recall": lambda bank: bank.recall("harbour"),
    "rank": lambda bank: bank.rank("harbour", preset="rrf"),
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


def test_the_index_of_a_relative_path_stays_in_the_folder_it_was_opened_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "there").mkdir()
    monkeypatch.chdir(tmp_path)
    with Bank.open("bank.skep") as bank:
        monkeypatch.chdir(tmp_path / "there")
        bank.remember_many([f"The harbour opens at {hour}" for hour in range(400)], on_conflict="ignore")
        bank.recall("harbour")
        bank.maintain()
    assert not list((tmp_path / "there").iterdir())
    assert list((tmp_path / "bank.skep.index").iterdir())


@pytest.mark.skipif(os.name == "nt", reason="there an open file keeps its name")
def test_a_path_through_a_link_and_back_leads_where_the_system_says(tmp_path: Path) -> None:
    (tmp_path / "deep" / "folder").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "deep" / "folder")
    with Bank.open(str(tmp_path / "link" / ".." / "bank.skep")) as bank:
        bank.remember("The harbour opens at five")
        (tmp_path / "deep" / "bank.skep").rename(tmp_path / "deep" / "away.skep")
        with pytest.raises(MovedError):
            bank.remember("The harbour opens at six")


@pytest.mark.skipif(os.name == "nt", reason="there an open file keeps its name")
def test_who_may_not_look_has_not_seen_the_file_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_path: object) -> os.stat_result:
        raise PermissionError("not yours")

    with Bank.open(tmp_path / "bank.skep") as bank:
        bank.remember("The harbour opens at five")
        with monkeypatch.context() as patch:
            patch.setattr("skep.storage.sqlite_connection.os.stat", refused)
            assert not bank.engine.store.connection.moved


@pytest.mark.skipif(os.name == "nt", reason="there an open file keeps its name")
def test_a_bank_that_lost_nothing_is_closed_without_a_word(tmp_path: Path) -> None:
    bank = Bank.open(tmp_path / "bank.skep")
    bank.remember("The harbour opens at five")
    store = bank.engine.store
    with Bank.open(tmp_path / "bank.skep") as other:
        other.remember("The harbour opens at six")
    (tmp_path / "bank.skep").unlink()
    bank.close()
    with pytest.raises(ClosedError):
        store.connection.one("SELECT 1")
