"""Whether a file is still where it was opened."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from skep.storage.sqlite_connection import Place

pytestmark = pytest.mark.skipif(os.name == "nt", reason="there an open file keeps its name")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    under = tmp_path / "here"
    under.mkdir()
    return under


@pytest.mark.parametrize("name", ["bank.skep", "Bücher 🐝.skep", os.fsdecode(b"caf\xe9.skep")])
def test_a_file_that_stays_holds_its_place_however_it_is_called(folder: Path, name: str) -> None:
    (folder / name).write_text("one")
    place = Place(str(folder / name))
    (folder / name).write_text("more")

    assert place.holds()


def test_one_that_is_moved_deleted_or_replaced_does_not(folder: Path) -> None:
    path, other = folder / "bank.skep", folder / "other.skep"
    for file in (path, other):
        file.write_text("one")
    place, second = Place(str(path)), Place(str(other))

    path.rename(folder / "elsewhere.skep")
    assert not place.holds()
    (folder / "elsewhere.skep").rename(path)
    assert place.holds()
    other.replace(path)
    assert not place.holds()
    assert not second.holds()


def test_nor_does_one_whose_folder_became_a_file(folder: Path) -> None:
    (folder / "bank.skep").write_text("one")
    place = Place(str(folder / "bank.skep"))
    folder.rename(folder.with_name("there"))
    folder.write_text("a file")

    assert not place.holds()


def test_who_cannot_look_has_not_seen_it_go(folder: Path) -> None:
    (folder / "bank.skep").write_text("one")
    place = Place(str(folder / "bank.skep"))
    (folder / "bank.skep").unlink()
    (folder / "bank.skep").symlink_to("bank.skep")  # leads round and round

    assert place.holds()


def test_what_was_not_there_is_not_watched(folder: Path) -> None:
    assert Place(str(folder / "none.skep")).holds()
