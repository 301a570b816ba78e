"""The command line: the answer on standard output, everything else elsewhere, errors in plain words."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from skep.bank.bank import Bank
from skep.cli.app import ALIASES, COMMANDS, MEANT, app, when
from skep.errors import ConfigError, SkepError
from skep.storage import sqlite_file


def as_json(result: Any) -> Any:
    return json.loads(result.stdout)


def test_add_prints_the_id_and_nothing_else(run: Any) -> None:
    result = run("add", "the kettle is blue")
    memory_id = result.stdout.strip()
    assert as_json(run("get", memory_id, "--json"))["text"] == "the kettle is blue"


def test_lines_on_standard_input_are_one_memory_each(run: Any) -> None:
    lines = 'plain text\n{"text": "with tags", "tags": ["a"]}\n\n'
    ids = run("add", "-", "--tag", "b", stdin=lines).stdout.split()
    assert len(ids) == 2
    tags = [as_json(run("get", i, "--json"))["tags"] for i in ids]
    assert tags == [["b"], ["a"]]


def test_what_is_given_as_nought_is_nought(run: Any) -> None:
    a = run("add", "the kettle leaks", "--importance", "0", "--confidence", "0").stdout.strip()
    memory = as_json(run("get", a, "--json"))
    assert (memory["importance"], memory["confidence"]) == (0.0, 0.0)


def test_search_finds_and_explains(run: Any) -> None:
    run("add", "the staging database runs PostgreSQL 16")
    run("add", "the office has two kettles")
    found = as_json(run("search", "which postgres on staging", "--json"))
    assert found["hits"][0]["memory"]["text"] == "the staging database runs PostgreSQL 16"
    assert "words" in run("search", "postgres", "--explain").stdout


def test_search_may_give_ids_alone(run: Any) -> None:
    run("add", "Postgres 16 runs on staging")
    run("add", "The staging cache has port 6379")
    hits = as_json(run("search", "which postgres on staging", "--json"))["hits"]
    order = as_json(run("search", "which postgres on staging", "--ids", "--json"))

    assert order["ids"] == [hit["memory"]["id"] for hit in hits]
    assert len(order["scores"]) == len(hits)
    lines = run("search", "which postgres on staging", "--ids").stdout.splitlines()
    assert [line.split("  ")[0] for line in lines] == order["ids"]
    empty = run("search", "zebra quantum parliament", "--ids", "--tag", "none", code=3)
    assert (empty.stdout, bool(empty.stderr)) == ("", True)
    assert "leave --explain out" in run("search", "x", "--ids", "--explain", code=2).output


def test_search_goes_by_the_config_of_the_bank_unless_told_otherwise(run: Any, bank_path: Path) -> None:
    for number in range(4):
        run("add", f"kettle {number} stands in room {number}", "--importance", f"0.{number}")
    with Bank.open(bank_path) as bank:
        bank.set_setting(
            "recall/config", {"limit": 2, "relative_floor": 0, "short_floor": 0, "brief_floor": 0}
        )

    def count(*options: str) -> int:
        return len(as_json(run("search", "kettle in room", "--json", *options))["hits"])

    assert count() == 2
    assert count("-n", "3") == 3
    assert count("--min-importance", "0.3") == 1
    assert count("--config", '{"max_results": 1}') == 1
    wrong = run("search", "x", "--config", '{"max_reslts": 1}', code=1)
    assert "did you mean 'max_results'" in str(wrong.exception)
    assert "must be a JSON object" in run("search", "x", "--config", "[1]", code=2).output


def test_revise_sets_and_clears_fields(run: Any) -> None:
    a = run("add", "use ruff", "--title", "linting", "--tag", "x", "--user", "ana").stdout.strip()
    run("revise", a, "--clear", "title", "--clear", "scope", "--source", "notes.md")
    memory = as_json(run("get", a, "--json"))
    assert (memory["title"], memory["scope"], memory["source"], memory["tags"]) == (
        None,
        {},
        "notes.md",
        ["x"],
    )
    assert "at once" in run("revise", a, "--clear", "title", "--title", "t", code=2).output


def test_a_scope_narrows_what_is_listed_linked_and_told(run: Any) -> None:
    mine = run("add", "my note", "--user", "ana").stdout.strip()
    theirs = run("add", "their note", "--user", "bo").stdout.strip()
    run("link", mine, theirs)
    assert theirs in run("neighbors", mine).stdout
    assert run("neighbors", mine, "--user", "ana").stdout == ""
    assert run("path", mine, theirs).stdout == f"{mine} -related-> {theirs}\n"
    assert run("path", theirs, mine, "--user", "*").stdout.strip()
    assert "their note" not in run("history", "--user", "ana").stdout
    assert run("list", "--user", "ana").stdout.count("note") == 1


def test_every_verb_works_from_the_shell(run: Any, tmp_path: Path) -> None:
    a = run("add", "use ruff for linting").stdout.strip()
    b = run("add", "use flake8 for linting").stdout.strip()
    assert "ruff" in run("list").stdout
    run("revise", a, "use ruff for linting and formatting", "--importance", "0.9")
    run("link", a, b, "--rel", "related")
    assert b in run("neighbors", a).stdout
    run("unlink", a, b)
    run("supersede", b, a, "--reason", "decided")
    assert "superseded" in run("list", "--status", "all").stdout
    run("restore", b)
    run("retract", b)
    events = as_json(run("history", a, "--json"))
    revision = next(e["id"] for e in events if e["kind"] == "revise")
    run("undo", revision, "--dry-run")
    assert "formatting" in run("list").stdout
    run("undo", revision)
    assert "formatting" not in run("list").stdout
    assert "text" in run("blame", a).stdout
    run("export", str(tmp_path / "out.jsonl"))
    assert as_json(run("import", str(tmp_path / "out.jsonl"), "--json"))["new"] == 0
    run("backup", str(tmp_path / "copy.skep"))
    assert "would erase" in run("forget", a, "--dry-run").stdout
    assert "erased" in run("forget", a, "--yes").stdout
    assert as_json(run("status", "--json"))["memories"] == 0
    assert "ok" in run("doctor", "--deep").stdout
    assert "embedded" in run("reembed").stdout


def test_forget_names_what_may_repeat_it_and_erases_that_too_when_asked(run: Any, bank_path: Path) -> None:
    a = run("add", "the door code is 4711").stdout.strip()
    b = run("add", "to open the door type 4711").stdout.strip()
    c = run("add", "code of the door: 4711", "--on-conflict", "ignore").stdout.strip()
    run("link", b, a, "--rel", "derived_from")
    with Bank.open(bank_path) as bank:
        bank.merge(c, a)

    told = run("forget", a, "--dry-run").stderr
    assert f"{b} (--derived erases it too)" in told
    assert f"merged with it and says the same: {c}" in told
    assert "erased" in run("forget", a, "--yes", "--derived").stdout
    assert run("list", "--status", "all", code=3).stdout == ""


def test_errors_are_one_line_and_exit_code_one(bank_path: Path) -> None:
    def shell(*args: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "skep", "--bank", str(bank_path), *args],
            capture_output=True,
            text=True,
            check=False,
        )

    missing = shell("search", "x")
    assert (missing.returncode, missing.stdout) == (1, "")
    assert "skep init" in missing.stderr
    assert shell("init").returncode == 0
    bad = shell("add", "x", "--confidence", "7")
    assert (bad.returncode, bad.stdout, bad.stderr.count("\n")) == (1, "", 1)
    assert "Traceback" not in bad.stderr
    assert shell("add", "x", "--nonsense").returncode == 2
    assert shell("get", "nobody-1").returncode == 1


def test_exit_codes_are_those_of_the_command_itself(bank_path: Path) -> None:
    bank_path.write_bytes(b"no bank at all" * 500)
    done = subprocess.run(
        [sys.executable, "-m", "skep", "--bank", str(bank_path), "doctor", "--json"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert json.loads(done.stdout)["healthy"] is False
    assert done.returncode == 1


def test_a_terminal_that_cannot_show_an_answer_is_named(bank_path: Path, run: Any) -> None:
    run("add", "東京 is big")
    done = subprocess.run(
        [sys.executable, "-m", "skep", "--bank", str(bank_path), "list"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONIOENCODING": "latin-1"},
    )
    assert done.returncode == 1
    assert "PYTHONIOENCODING" in done.stderr


def test_add_takes_every_field_and_a_memory_of_several_lines(run: Any) -> None:
    a = run("add", "no smoking", "--polarity", "-1", "--pinned", "--metadata", '{"by": 3}').stdout.strip()
    memory = as_json(run("get", a, "--json"))
    assert (memory["polarity"], memory["pinned"], memory["metadata"]) == (-1, True, {"by": 3})
    b = run("add", "--whole", stdin="first line\nsecond line\n").stdout.strip()
    assert as_json(run("get", b, "--json"))["text"] == "first line\nsecond line"
    assert "JSON object" in run("add", "x", "--metadata", "[1]", code=2).stderr
    assert "begins like a JSON object" in str(run("add", "-", stdin="{broken\n", code=1).exception)


def test_a_copy_is_put_back_and_a_damaged_bank_is_saved(run: Any, bank_path: Path, tmp_path: Path) -> None:
    run("add", "the kettle is blue")
    run("backup", str(tmp_path / "copy.skep"))
    run("add", "the office has two kettles")
    told = as_json(run("backup", "--restore", str(tmp_path / "copy.skep"), "--json"))
    assert Path(told["replaced"]).exists()
    assert as_json(run("status", "--json"))["memories"] == 1
    assert "1 events written" in run("export", "--salvage", str(tmp_path / "out.jsonl")).stdout


def test_what_is_left_of_a_bank_that_was_cut_short_is_saved(
    run: Any, bank_path: Path, tmp_path: Path
) -> None:
    for turn in range(10):
        run("add", "-", stdin="".join(f"fact {number} of turn {turn}\n" for number in range(50)))
    os.truncate(bank_path, bank_path.stat().st_size * 3 // 4)
    told = run("export", "--salvage", str(tmp_path / "out.jsonl"))
    assert "events written" in told.stdout
    assert "events at least could not be read" in told.stderr


@pytest.mark.parametrize(
    "command",
    [("add", "a fact"), ("init",), ("learn", "a task", "success"), ("redact", "--off"), ("status",)],
)
def test_a_bank_that_was_cut_to_nothing_is_not_taken_for_a_new_one(
    run: Any, bank_path: Path, command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_file, "FIRST_SECONDS", 0.0)
    run("add", "the kettle is blue")
    os.truncate(bank_path, 0)
    failed = run(*command, code=1)
    assert isinstance(failed.exception, SkepError)
    assert "skep backup --restore" in str(failed.exception)
    assert bank_path.stat().st_size == 0


def test_nothing_found_prints_nothing_on_standard_output(run: Any) -> None:
    run("add", "the kettle is blue")
    result = run("search", "zebra quantum parliament", "--tag", "none", code=3)
    assert result.stdout == ""
    assert result.stderr


def commands() -> list[tuple[str, click.Command]]:
    context = click.Context(app)
    found: list[tuple[str, click.Command]] = []
    for name in COMMANDS:
        command = app.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            found += [(f"{name} {sub}", command.commands[sub]) for sub in command.commands]
        else:
            found.append((name, command))
    return found


def test_every_command_has_help_and_speaks_json() -> None:
    for name, command in commands():
        assert command.help, name
        options = {option for parameter in command.params for option in parameter.opts}
        assert "--json" in options or {"mcp", "hook", "serve", "token", "agent"} & set(name.split()), (
            f"{name} lacks --json"
        )


def test_completion_scripts_are_printed() -> None:
    result = CliRunner().invoke(app, ["completion", "bash"])
    assert "_SKEP_COMPLETE" in result.stdout


def test_init_makes_a_project_bank_that_git_ignores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SKEP_BANK", raising=False)
    CliRunner().invoke(app, ["init"])
    assert (tmp_path / ".skep" / "bank.skep").exists()
    assert (tmp_path / ".skep" / ".gitignore").read_text() == "*\n"
    (tmp_path / "deep" / "er").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "deep" / "er")
    CliRunner().invoke(app, ["add", "found from below"])
    monkeypatch.chdir(tmp_path)
    assert "found from below" in CliRunner().invoke(app, ["list"]).stdout


def test_init_makes_the_bank_that_was_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SKEP_BANK", str(tmp_path / "named.skep"))
    CliRunner().invoke(app, ["init"])
    CliRunner().invoke(app, ["--bank", str(tmp_path / "other.skep"), "init"])
    assert (tmp_path / "named.skep").exists()
    assert (tmp_path / "other.skep").exists()
    assert not (tmp_path / ".skep").exists()


ODD = [
    "",
    "x",
    "-1",
    "1e999",
    "nan",
    str(10**30),
    chr(0xD800),
    chr(0xDCFF),
    "*",
    "2026-13-45",
    "x" * 300,
    "no/such",
]
ELSEWHERE = {
    "mcp",
    "hook",
    "install",
    "uninstall",
    "bench",
    "demo",
    "hive",
    "sync",
    "tune",
    "audit",
    "completion",
    "serve",
}


@pytest.mark.parametrize("name", sorted(set(COMMANDS) - ELSEWHERE))
def test_odd_arguments_end_in_plain_words(
    bank_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Only what `main` turns into one line and an exit code may come out of a command."""
    monkeypatch.chdir(tmp_path)
    runner = CliRunner()
    with Bank.open(bank_path) as bank:
        known = bank.remember("use ruff").memory.id
    command = app.get_command(click.Context(app), name)
    assert command is not None
    arguments = [p for p in command.params if isinstance(p, click.Argument)]
    options = [p.opts[0] for p in command.params if isinstance(p, click.Option) and not p.is_flag]
    lines = [[odd] * len(arguments) for odd in ODD]
    lines += [
        [*([known] * len(arguments)), option, odd]
        for option in options
        for odd in ODD
        if not option.startswith(("--judge", "--every"))
    ]
    for line in lines:
        result = runner.invoke(app, ["--bank", str(bank_path), name, *line], input="")
        if not isinstance(result.exception, SystemExit | SkepError | OSError | UnicodeError | None):
            raise AssertionError(f"skep {name} {line}") from result.exception


def test_the_doctor_says_what_to_do_even_if_the_bank_cannot_be_opened(run: Any, bank_path: Path) -> None:
    bank_path.write_bytes(b"no longer a bank" * 100)
    told = run("doctor", code=1).stdout
    assert "not a skep bank" in told
    assert "mend: put the newest copy" in told


def test_a_dry_run_of_an_import_creates_no_bank(run: Any, tmp_path: Path) -> None:
    run("add", "use ruff")
    run("export", str(tmp_path / "out.jsonl"))
    other = tmp_path / "other.skep"
    result = CliRunner().invoke(
        app, ["--bank", str(other), "import", str(tmp_path / "out.jsonl"), "--dry-run"]
    )
    assert result.stdout == "would be: new 1, known 0\n"
    assert not other.exists()


def test_a_bank_with_no_name_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for line in (["--bank", "", "status"], ["add", "x", "--bank", ""], ["init", "--bank", ""]):
        result = CliRunner().invoke(app, line)
        assert isinstance(result.exception, ConfigError)
        assert "path of the bank is empty" in str(result.exception)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("merge", "maintain"), ("recal", "recall"), ("serach", "search"), ("as-of", "search --as-of")],
)
def test_an_unknown_command_names_the_one_that_is_meant(run: Any, typed: str, meant: str) -> None:
    assert f"did you mean `skep {meant}`?" in run(typed, "x", code=2).output
    assert "`skep --help` lists them" in run("zzzzzz", code=2).output


def test_every_hint_leads_to_a_command() -> None:
    meant = MEANT | ALIASES
    assert {name.split()[0] for name in meant.values()} <= set(COMMANDS)
    assert not set(meant) & set(COMMANDS)


def test_the_words_people_try_run(run: Any) -> None:
    memory_id = run("remember", "The kettle is blue").stdout.strip()
    assert "blue" in run("recall", "kettle").stdout
    assert "#kitchen" in run("update", memory_id, "--tag", "kitchen").stdout
    assert "erased" in run("delete", memory_id, "--yes").stdout
    assert "version" in run("version").stdout
    assert "SKEP_BANK" in run("config").stdout


def test_a_script_can_tell_that_nothing_was_found(run: Any) -> None:
    run("add", "The kettle is blue")
    assert run("list", "submarine", code=3).stdout == ""
    assert as_json(run("list", "submarine", "--json", code=3))["memories"] == []
    assert run("search", "anything", "--kind", "episode", code=3).stdout == ""
    run("list", "kettle")


def test_a_bank_that_is_named_is_never_made_by_the_way(tmp_path: Path) -> None:
    path = tmp_path / "bnak.skep"
    for words in (["add", "x"], ["search", "x"]):
        refused = CliRunner().invoke(app, ["--bank", str(path), *words])
        assert isinstance(refused.exception, SkepError)
        assert "init" in str(refused.exception)
    assert list(tmp_path.iterdir()) == []
    assert CliRunner().invoke(app, ["--bank", str(path), "init"]).exit_code == 0
    assert CliRunner().invoke(app, ["--bank", str(path), "add", "x"]).exit_code == 0


def test_a_script_learns_by_the_exit_code_that_nothing_probably_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SKEP_BANK", str(tmp_path / "b.skep"))
    runner = CliRunner()
    runner.invoke(app, ["add", "The kettle is blue"], catch_exceptions=False)

    assert runner.invoke(app, ["search", "who won the regatta?", "--bar", "likely"]).exit_code == 3
    found = runner.invoke(app, ["search", "which colour is the kettle?", "--bar", "likely"])
    assert (found.exit_code, "blue" in found.output) == (0, True)


def test_a_new_project_bank_never_hides_an_older_one_silently(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    monkeypatch.delenv("SKEP_BANK", raising=False)
    (tmp_path / "shop").mkdir()
    monkeypatch.chdir(tmp_path / "shop")
    runner = CliRunner()
    runner.invoke(app, ["add", "The kettle is blue"], catch_exceptions=False)
    told = runner.invoke(app, ["init"], catch_exceptions=False)
    assert "what it holds (1) stays there" in told.stderr
    command = told.stderr.split("`")[1].removeprefix("skep ")
    assert runner.invoke(app, ["list"]).exit_code == 3
    assert "new 1" in runner.invoke(app, shlex.split(command), catch_exceptions=False).output
    assert "kettle" in runner.invoke(app, ["list"], catch_exceptions=False).output


def test_times_are_those_of_the_clock_on_the_wall(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        assert when(0.0) == "1970-01-01 09:00"
    finally:
        monkeypatch.undo()
        time.tzset()


def test_maintenance_tells_only_what_it_looked_at(run: Any) -> None:
    run("add", "the kettle is blue")
    first = run("maintain").stdout
    assert "merge  looked at 1, did 0" in first
    assert "prune" not in first
    assert run("maintain", "--step", "expire").stdout == "nothing new since the last run\n"


def test_columns_of_the_history_line_up(run: Any) -> None:
    memory_id = run("add", "the kettle is blue").stdout.strip()
    run("retract", memory_id)
    lines = run("history").stdout.splitlines()
    assert len({line.index("{") for line in lines}) == 1


def test_what_people_read_has_no_names_of_fields(run: Any) -> None:
    run("add", "The port is 5432")
    assert "update of" in run("add", "The port is 5433").stderr
    assert "by_status" not in run("status").stdout
    assert "by status  active 2" in run("status").stdout
    assert "2 by words" in run("search", "which port", "--explain").stderr
    assert "kept 2, cut 0 (" in run("search", "which port", "--explain").stderr


def options_of(name: str, command: click.Command | None) -> list[tuple[str, click.Option]]:
    if isinstance(command, click.Group):
        inner = click.Context(command)
        return [
            found
            for each in command.list_commands(inner)
            for found in options_of(f"{name} {each}", command.get_command(inner, each))
        ]
    assert command is not None
    return [(name, option) for option in command.params if isinstance(option, click.Option)]


def test_every_option_says_what_it_does() -> None:
    silent = [f"{name} {option.opts[-1]}" for name, option in options_of("skep", app) if not option.help]
    assert silent == []


def test_lines_of_standard_input_are_read_behind_a_mark_and_named_where_they_stand(run: Any) -> None:
    ids = run("add", "-", stdin='\ufeff{"text": "first thing"}\nsecond thing\n').stdout.split()
    assert [json.loads(run("get", one, "--json").stdout)["text"] for one in ids] == [
        "first thing",
        "second thing",
    ]
    whole = run("add", "--whole", stdin="\ufeffthird\nthing").stdout.strip()
    assert json.loads(run("get", whole, "--json").stdout)["text"] == "third\nthing"
    bad = run("add", "-", stdin='one\n\n{"text": "two", "confidence": 7}\nthree\n', code=1)
    assert str(bad.exception).startswith("line 3 of standard input: confidence must be")
    assert json.loads(run("status", "--json").stdout)["memories"] == 3


def test_a_deleted_copy_is_struck_out(run: Any, tmp_path: Path) -> None:
    memory, copy = run("add", "some thing").stdout.strip(), tmp_path / "copy.skep"
    run("backup", str(copy))
    copy.unlink()
    assert "--gone" in run("forget", memory).stderr
    assert json.loads(run("backup", "--gone", str(copy), "--json").stdout)["backups"] == []
    assert "not reached" not in run("forget", memory).stderr
    assert "no copy" in str(run("backup", "--gone", str(copy), code=1).exception)
    run("backup", "--gone", "--restore", str(copy), code=2)


def test_how_long_a_memory_lives_is_said_in_seconds_or_with_a_unit(run: Any) -> None:
    lives: list[float] = []
    for said in ("90", "1.5m", "2h", "7d"):
        made = as_json(run("get", run("add", f"lives {said}", "--ttl", said).stdout.strip(), "--json"))
        lives.append(round(made["expires_at"] - made["created_at"]))
    assert lives == [90, 90, 7200, 604800]
    for wrong in ("soon", "5w", "h", ""):
        assert "write it like" in run("add", "lives", "--ttl", wrong, code=2).stderr
