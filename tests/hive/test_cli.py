"""The commands `skep hive` and `skep sync`, as a user types them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from skep.bank.bank import Bank
from skep.cli.app import app
from skep.cli.bank_file import sync_group
from skep.cli.hive import group as hive_group
from skep.storage import sqlite_file

pytest.importorskip("yaml")

Run = Callable[..., Result]

MANIFEST = """
name: team
topology: federated
store: banks
groups: [{name: infra, domains: [servers]}, {name: people}]
agents: [{name: ana, group: infra}, {name: bob, group: people}]
"""
FACT = "The staging database runs PostgreSQL 16 on port 5433."


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command in an empty folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hive.yaml").write_text(MANIFEST)

    def go(*words: str, ok: bool = True) -> Result:
        result = CliRunner().invoke(app, list(words))
        if ok:
            assert result.exit_code == 0, (result.output, result.exception)
        return result

    return go


def parsed(result: Result) -> Any:
    return json.loads(result.stdout)


@pytest.mark.parametrize("group", [hive_group, sync_group], ids=["hive", "sync"])
def test_every_command_says_what_it_does(group: Any) -> None:
    for command in group.commands.values():
        assert command.help
        assert all(option.help for option in command.params if isinstance(option, click.Option))


def test_from_an_empty_folder_to_an_answer(run: Run) -> None:
    assert "+ agent ana" in run("hive", "plan").output
    run("hive", "apply")
    assert run("hive", "apply").output == "nothing to do\n"
    assert "promoted" in run("hive", "add", "ana", FACT, "--confidence", "0.95").output
    assert FACT in run("hive", "ask", "bob", "port of the staging database").output
    status = parsed(run("hive", "status", "--json"))
    assert (status["memories"], status["changes"]) == (1, 0)
    assert "infra: 1 memories" in run("hive", "status").output


def test_diff_tells_by_its_exit_code(run: Run, tmp_path: Path) -> None:
    assert run("hive", "diff", ok=False).exit_code == 1
    run("hive", "apply")
    assert run("hive", "diff").exit_code == 0
    (tmp_path / "hive.yaml").write_text(MANIFEST.replace("{name: bob,", "{name: bob, trust: 0.5,"))
    assert "~ trust bob: 1.0 → 0.5" in run("hive", "diff", ok=False).output


def test_init_writes_a_manifest_that_works_and_never_overwrites(run: Run, tmp_path: Path) -> None:
    assert run("hive", "init", ok=False).exit_code == 1
    run("hive", "init", "mine", "-f", "other.yaml")
    assert parsed(run("hive", "plan", "-f", "other.yaml", "--json"))
    run("hive", "init", "mine", "--force")
    assert "name: mine" in (tmp_path / "hive.yaml").read_text()


def test_rights_are_granted_and_questions_routed(run: Run) -> None:
    run("hive", "apply")
    run("hive", "add", "ana", "The staging database listens on port 5433.")

    assert run("hive", "right", "bob", "retract", "--of", "ana").output == "bob: retract:ana\n"
    assert run("hive", "right", "bob", "--revoke").output == "bob: what it wrote itself\n"
    assert run("hive", "route", "staging database port").output.startswith("ana  ")


def test_what_was_held_back_is_reviewed(run: Run) -> None:
    run("hive", "apply")
    run("hive", "trust", "ana", "0.1")
    assert "quarantined" in run("hive", "add", "ana", FACT).output
    (waiting,) = parsed(run("hive", "review", "--json"))
    assert "trust 0.10" in run("hive", "review").output
    run("hive", "approve", waiting["memory"]["id"])
    assert FACT in run("hive", "ask", "bob", "staging database").output
    second = parsed(run("hive", "add", "ana", "The printer stands in the long corridor.", "--json"))
    run("hive", "dismiss", second["memory"]["id"])
    assert run("hive", "review").output == "nothing to review\n"
    assert run("hive", "trust").output == "ana: 0.1\nbob: 1\n"


def test_a_rollback_shows_its_blast_radius_and_asks_first(run: Run) -> None:
    run("hive", "apply")
    run("hive", "add", "ana", FACT)
    shown = CliRunner().invoke(app, ["hive", "rollback", "ana"], input="n\n")
    assert FACT[:40] in shown.output
    assert FACT in run("hive", "ask", "bob", "staging database").output
    assert parsed(run("hive", "rollback", "ana", "--dry-run", "--json"))["applied"] is False
    run("hive", "rollback", "ana", "--yes", "--since", "2020-01-01")
    assert "heard" in run("hive", "ask", "bob", "staging database").output


def test_housekeeping_reports_what_it_did(run: Run) -> None:
    run("hive", "apply")

    assert run("hive", "gc").output == "0 memories had expired\n"
    assert run("hive", "repair").output == "0 events moved\n"


# Sync


@pytest.fixture
def two(tmp_path: Path) -> tuple[str, str]:
    """Two bank files with one memory each."""
    for name, text in (("a", "The cat sleeps on the red mat."), ("b", "The dog sleeps in the long hall.")):
        with Bank.open(tmp_path / f"{name}.skep") as bank:
            bank.remember(text)
    return str(tmp_path / "a.skep"), str(tmp_path / "b.skep")


def count(path: str) -> int:
    with Bank.open(path) as bank:
        return len(bank.find())


def test_two_files_meet(run: Run, two: tuple[str, str]) -> None:
    assert "both show the same" in run("sync", "with", two[1], "--bank", two[0]).output
    assert [count(path) for path in two] == [2, 2]
    again = parsed(run("sync", "with", two[1], "--bank", two[0], "--json"))
    assert again["sent"]["events"] == again["received"]["events"] == 0


def test_a_bank_to_sync_with_is_made_only_on_purpose(
    run: Run, two: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_file, "FIRST_SECONDS", 0.0)
    refused = run("sync", "with", "typo.skep", "--bank", two[0], ok=False)
    assert refused.exit_code == 1
    assert "there is no bank at typo.skep" in str(refused.exception)
    assert "--create" in str(refused.exception)
    assert not (tmp_path / "typo.skep").exists()
    assert "both show the same" in run("sync", "with", "new.skep", "--create", "--bank", two[0]).output
    assert count("new.skep") == 1
    (tmp_path / "emptied.skep").touch()
    emptied = run("sync", "with", "emptied.skep", "--create", "--bank", two[0], ok=False)
    assert "is empty" in str(emptied.exception)


def test_a_member_that_was_cut_to_nothing_is_not_taken_for_a_new_one(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_file, "FIRST_SECONDS", 0.0)
    run("hive", "apply")
    bank = tmp_path / "banks" / "infra.skep"
    assert bank.stat().st_size > 0
    os.truncate(bank, 0)
    failed = run("hive", "add", "ana", FACT, ok=False)
    assert "is empty" in str(failed.exception)
    assert bank.stat().st_size == 0


def test_changes_are_carried_in_files(run: Run, two: tuple[str, str], tmp_path: Path) -> None:
    (tmp_path / "seen.json").write_text(run("sync", "versions", "--json", "--bank", two[1]).stdout)
    assert "1 events" in run("sync", "export", "a.changes", "--since", "seen.json", "--bank", two[0]).output
    output = run("sync", "apply", "a.changes", "--bank", two[1]).output
    assert "taken: 1 events" in output
    assert "the other side lacks 1 events" in output
    run("sync", "export", "b.changes", "--since", "a.changes", "--bank", two[1])
    assert parsed(run("sync", "apply", "b.changes", "--bank", two[0], "--json"))["taken"]["events"] == 1
    assert [count(path) for path in two] == [2, 2]
    assert "1-1" in run("sync", "versions", "--bank", two[0]).output


def test_mistakes_are_told_in_plain_words(run: Run, two: tuple[str, str], tmp_path: Path) -> None:
    (tmp_path / "bad.changes").write_text("nothing\nuseful\n")
    (tmp_path / "bad.yaml").write_text("{nane: x}")
    for words, expected in (
        (("sync", "apply", "bad.changes", "--bank", two[0]), "not a file of changes"),
        (("sync", "with", two[0], "--bank", two[0]), "with itself"),
        (("sync", "with", two[1], "--bank", two[0], "--key", "nonsense"), "ACTOR=KEY"),
        (("hive", "plan", "-f", "bad.yaml"), "did you mean 'name'?"),
        (("hive", "plan", "-f", "none.yaml"), "skep hive init"),
        (("hive", "ask", "zoe", "x"), "no 'zoe'"),
    ):
        result = run(*words, ok=False)
        assert result.exit_code != 0
        assert expected in str(result.exception), words


def test_a_key_is_checked(run: Run, two: tuple[str, str]) -> None:
    pytest.importorskip("nacl")
    with Bank.open(two[1]) as bank:
        actor = bank.actor
    done = parsed(run("sync", "with", two[1], "--bank", two[0], "--key", f"{actor}={'ab' * 32}", "--json"))

    assert done["received"]["events"] == 0
    assert done["received"]["refused"][0]["fault"] == "unsigned"
    assert "refused" in run("sync", "with", two[1], "--bank", two[0], "--key", f"{actor}={'ab' * 32}").output
