"""Bundles that others can read and check, and a folder of notes that is read back."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.conftest import Clock

from skep.bank.bank import Bank
from skep.cli.app import app
from skep.errors import InvalidInputError
from skep.integrations import bundle_check
from skep.integrations.importers.registry import import_items, read
from skep.integrations.open_files import import_bundle, is_view, read_view, write_bundle, write_view


@pytest.fixture
def filled(bank: Bank) -> Bank:
    a = bank.remember("Ana lives in Oslo", tags=["people"], scope={"user": "ana"}, metadata={"n": 1}).memory
    b = bank.remember("The kettle is blue", title='Kitchen: "the kettle"').memory
    gone = bank.remember("The vault code is 4711").memory
    bank.link(b.id, a.id, "related")
    bank.forget(gone.id)
    return bank


@pytest.fixture
def bundle(filled: Bank, tmp_path: Path, clock: Clock) -> Path:
    path = tmp_path / "all.skep-bundle"
    assert write_bundle(filled, path, clock())["memories.jsonl"] == 2
    return path


def test_a_bundle_is_whole_by_a_checker_that_needs_nothing_of_skep(bundle: Path, tmp_path: Path) -> None:
    alone = tmp_path / "checker.py"
    alone.write_text(Path(bundle_check.__file__).read_text())
    done = subprocess.run(
        [sys.executable, "-I", str(alone), str(bundle)],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert (done.returncode, done.stdout) == (0, "whole\n"), done.stderr


def test_a_bundle_says_what_others_need_and_nothing_of_what_was_forgotten(bundle: Path) -> None:
    with zipfile.ZipFile(bundle) as archive:
        memories = {one["text"]: one for one in bundle_check.lines(archive, "memories.jsonl")}
        dead = list(bundle_check.lines(archive, "tombstones.jsonl"))
        everything = b"".join(archive.read(name) for name in archive.namelist())
    ana = memories["Ana lives in Oslo"]
    assert (ana["kind"], ana["tags"], ana["scope"], ana["metadata"]) == (
        "fact",
        ["people"],
        {"user": "ana"},
        {"n": 1},
    )
    assert ana["created_at"].startswith("2025-")
    assert len(dead) == 1
    assert b"4711" not in everything


def test_skep_takes_a_bundle_in_whole_and_a_tombstone_wins(bundle: Path, filled: Bank) -> None:
    with Bank.open(":memory:") as other:
        assert import_bundle(other, bundle) is not None
        assert {m.id for m in other.find()} == {m.id for m in filled.find()}
        assert other.history() != []
        assert import_bundle(other, bundle) == {"new": 0, "known": filled.status().events, "held": 0}


def rewritten(bundle: Path, target: Path, **changed: bytes | None) -> Path:
    """The same with some parts changed or left out."""
    with zipfile.ZipFile(bundle) as old, zipfile.ZipFile(target, "w") as new:
        for name in old.namelist():
            content = changed.get(name.partition(".")[0], old.read(name))
            if content is not None:
                new.writestr(name, content)
    return target


def test_a_bundle_of_another_program_is_read_by_its_memories(bundle: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(bundle) as archive:
        manifest = json.loads(archive.read("manifest.json"))
    del manifest["files"]["events.jsonl"]
    other = rewritten(bundle, tmp_path / "o.zip", manifest=json.dumps(manifest).encode(), events=None)
    assert bundle_check.check(str(other)) == []
    with Bank.open(":memory:") as bank:
        assert import_bundle(bank, other) is None
        done = import_items(bank, read(other)[1])
        assert (done.new, done.links) == (2, 1)
        ana = next(m for m in bank.find() if "Oslo" in m.text)
        assert (ana.scope.user, ana.tags) == ("ana", ("from:bundle", "people"))
        assert import_items(bank, read(other)[1]).new == 0


@pytest.mark.parametrize(
    ("part", "content", "message"),
    [
        ("memories", b'{"id": "x"}\n', "checksum differs"),
        ("links", None, "links.jsonl: missing"),
        ("manifest", b'{"format": "skep-bundle", "version": 9}', "version 1"),
    ],
)
def test_a_damaged_bundle_changes_nothing_and_says_what_is_wrong(
    bundle: Path, tmp_path: Path, part: str, content: bytes | None, message: str
) -> None:
    broken = rewritten(bundle, tmp_path / "b.zip", **{part: content})
    with Bank.open(":memory:") as bank:
        with pytest.raises(InvalidInputError, match=message):
            import_bundle(bank, broken)
        assert len(bank.find()) == 0
    assert bundle_check.main(str(broken)) == 1


def test_a_bundle_that_is_nested_without_end_is_refused_in_words(tmp_path: Path) -> None:
    for name in ("manifest.json", "memories.jsonl"):
        parts = {"manifest.json": '{"files": {}}', name: "[" * 200_000}
        deep = tmp_path / f"{name}.zip"
        with zipfile.ZipFile(deep, "w") as archive:
            for part, text in parts.items():
                archive.writestr(part, text)
        assert bundle_check.main(str(deep)) == 1
        with zipfile.ZipFile(deep) as archive, pytest.raises(bundle_check.BrokenBundleError, match="no JSON"):
            list(bundle_check.lines(archive, name))


def note(folder: Path, word: str) -> Path:
    return next(path for path in folder.glob("*.md") if word in path.read_text())


def test_a_folder_that_nobody_touched_changes_nothing(filled: Bank, tmp_path: Path) -> None:
    folder = tmp_path / "view"
    assert write_view(filled, folder) == 2
    assert is_view(folder)
    assert "[[Ana lives in Oslo" in note(folder, "kettle").read_text()
    before = filled.status().events
    found = read_view(filled, folder)
    assert (found.new, found.changed, found.same, found.absent) == (0, 0, 2, 0)
    assert filled.status().events == before


def test_edits_become_versions_and_new_notes_memories(filled: Bank, tmp_path: Path) -> None:
    folder = tmp_path / "view"
    write_view(filled, folder)
    kettle = note(folder, "kettle")
    kettle.write_text(kettle.read_text().replace("kettle is blue", "kettle is red"))
    ana = note(folder, "people")
    ana.write_text(ana.read_text().replace('- "people"', '- "people"\n  - "norway"'))
    (folder / "Idea.md").write_text("Buy a second kettle\n")

    planned = read_view(filled, folder, dry_run=True)
    assert (planned.new, planned.changed) == (1, 2)
    assert len(filled.find()) == 2
    done = read_view(filled, folder)
    assert (done.new, done.changed, done.both, done.absent) == (1, 2, (), 0)
    texts = {m.text: m for m in filled.find()}
    assert set(texts) == {"The kettle is red", "Ana lives in Oslo", "Buy a second kettle"}
    assert texts["Ana lives in Oslo"].tags == ("people", "norway")
    [old] = filled.find("blue", status="superseded")
    assert old.superseded_by == texts["The kettle is red"].id
    assert write_view(filled, folder) == 3
    assert read_view(filled, folder).same == 3


def test_what_was_changed_on_both_sides_is_left_and_named(filled: Bank, tmp_path: Path) -> None:
    folder = tmp_path / "view"
    write_view(filled, folder)
    kettle = note(folder, "kettle")
    kettle.write_text(kettle.read_text().replace("blue", "red"))
    memory = filled.find("kettle").memories[0]
    filled.supersede(memory.id, filled.remember("The kettle is green", on_conflict="ignore").memory.id)
    assert read_view(filled, folder).both == (kettle.name,)
    assert "red" not in " ".join(m.text for m in filled.find(status=None))


def test_a_note_that_is_gone_takes_nothing_away_and_other_files_are_safe(
    filled: Bank, tmp_path: Path
) -> None:
    folder = tmp_path / "view"
    write_view(filled, folder)
    note(folder, "kettle").unlink()
    assert read_view(filled, folder).absent == 1
    assert len(filled.find()) == 2
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "diary.md").write_text("x")
    with pytest.raises(InvalidInputError, match="other files"):
        write_view(filled, tmp_path / "mine")


def test_the_commands_write_and_read_both(tmp_path: Path) -> None:
    bank = tmp_path / "a.skep"

    def run(*words: str, at: Path = bank) -> str:
        done = CliRunner().invoke(app, list(words), env={"SKEP_BANK": str(at)}, catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return done.output

    run("add", "The kettle is blue")
    run("export", str(tmp_path / "out.skep-bundle"))
    assert "new 1" in run("import", str(tmp_path / "out.skep-bundle"), at=tmp_path / "b.skep")
    assert "notes 1" in run("export", "--markdown", str(tmp_path / "notes"))
    assert "same 1" in run("import", str(tmp_path / "notes"))
