"""The whole loop through files and commands alone, as an agent would run it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from skep.cli.tune import group

from .conftest import Write


def run(folder: Path, *arguments: str) -> Result:
    return CliRunner().invoke(group, [arguments[0], "-w", str(folder), *arguments[1:]])


def ok(folder: Path, *arguments: str) -> Any:
    result = run(folder, *arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def codes(folder: Path, *arguments: str) -> list[str]:
    result = run(folder, *arguments, "--json")
    assert result.exit_code == 1, result.output
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return [finding["code"] for finding in json.loads(result.stdout)["findings"]]


def test_an_agent_can_run_the_loop_from_an_empty_folder(folder: Path) -> None:
    assert [report["added"] for report in ok(folder, "index")] == [11]
    assert ok(folder, "fields")["kb"]["category"] == {"api": 2, "faq": 2}
    assert ok(folder, "validate")["findings"] == []
    assert ok(folder, "evaluate", "naive")["overall"]["distractors"] > 0
    assert ok(folder, "deploy", "naive", "--reason", "start")["number"] == 1
    compared = ok(folder, "compare", "naive", "filtered")
    assert compared["losses"] == 0
    assert "better" in compared["verdict"]
    assert ok(folder, "validate", "filtered", "--behaviour")["findings"] == []
    assert ok(folder, "deploy", "filtered", "--author", "agent")["number"] == 2
    assert codes(folder, "deploy", "faq-only") != []
    assert codes(folder, "validate", "faq-only", "--behaviour") != []
    assert ok(folder, "history")["active"] == 2
    assert ok(folder, "rollback", "1")["of"] == 1
    assert ok(folder, "query", "revoke a key")["config"] == "naive"
    assert json.loads((folder / "configs/active.json").read_text())["name"] == "naive"


def test_indexing_offers_the_values_to_editors(folder: Path) -> None:
    ok(folder, "index")
    schema = json.loads((folder / "configs/config.schema.json").read_text())

    assert schema["properties"]["filters"]["properties"]["category"]["items"]["enum"] == ["api", "faq"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("evaluate", "nowhere"),
        ("evaluate", "../../etc/passwd"),
        ("compare", "naive", "nowhere"),
        ("deploy", "nowhere"),
        ("rollback", "9"),
        ("harvest",),
        ("evaluate", "naive", "--evals", "nowhere"),
        ("autotune", "naive", "--trials", "0"),
        ("autotune", "naive", "--name", "../x"),
    ],
)
def test_what_cannot_be_done_is_a_finding_and_exit_code_one(folder: Path, arguments: tuple[str, ...]) -> None:
    ok(folder, "index")

    assert codes(folder, *arguments)


@pytest.mark.parametrize("command", ["index", "fields", "validate", "history"])
def test_a_folder_that_is_no_workspace_is_refused_and_stays_empty(tmp_path: Path, command: str) -> None:
    assert codes(tmp_path, command) == ["no-workspace"]
    assert list(tmp_path.iterdir()) == []


def test_measuring_before_indexing_says_so_and_creates_no_bank(folder: Path) -> None:
    assert codes(folder, "evaluate", "naive") == ["not-indexed"]
    assert ok(folder, "validate")["findings"] == []
    assert ok(folder, "fields")
    assert not (folder / "bank.skep").exists()


def test_saved_results_are_listed_in_groups_that_can_be_compared(folder: Path) -> None:
    ok(folder, "index")
    for arguments in (("naive",), ("filtered",), ("naive", "--split", "holdout")):
        ok(folder, "evaluate", *arguments)

    assert len(ok(folder, "results")) == 3
    text = run(folder, "results").output
    assert "group 2" in text
    assert "group 3" not in text


def test_the_bank_named_before_the_command_is_used(folder: Path, tmp_path: Path) -> None:
    from skep.cli.app import app

    other = tmp_path / "elsewhere.skep"
    result = CliRunner().invoke(app, ["--bank", str(other), "tune", "index", "-w", str(folder)])

    assert result.exit_code == 0, result.output
    assert other.exists()
    assert not (folder / "bank.skep").exists()


def test_a_malformed_document_stops_indexing_before_anything_is_written(folder: Path, write: Write) -> None:
    write("documents/bad.md", "---\nnever closed")

    assert codes(folder, "index") == ["bad-front-matter"]
    assert [report["added"] for report in _after_removing(folder, "documents/bad.md")] == [11]


def _after_removing(folder: Path, path: str) -> Any:
    (folder / path).unlink()
    return ok(folder, "index")


def test_malformed_json_anywhere_is_named_and_the_rest_still_works(folder: Path, write: Write) -> None:
    write("configs/broken.json", "{")
    write("evals/broken.json", "[")

    assert codes(folder, "validate") == ["malformed-json", "malformed-json"]
    ok(folder, "index")
    assert ok(folder, "evaluate", "naive")["config"] == "naive"


def test_force_without_a_reason_is_refused(folder: Path) -> None:
    ok(folder, "index")
    ok(folder, "deploy", "filtered")

    assert "reason-needed" in codes(folder, "deploy", "faq-only", "--force")
    assert ok(folder, "deploy", "faq-only", "--force", "--reason", "to see it fail")["forced"]


def test_autotune_writes_a_config_and_deploys_it_if_the_gate_lets_it(folder: Path) -> None:
    ok(folder, "index")
    ok(folder, "deploy", "naive")
    result = ok(folder, "autotune", "naive", "--trials", "30", "--name", "found", "--deploy")

    assert result["version"]["number"] == 2
    assert result["tuned"]["after"]["distractors"] == 0
    assert json.loads((folder / "configs/found.json").read_text())["note"]


def test_every_command_also_speaks_to_people(folder: Path) -> None:
    for arguments in (
        ("index",),
        ("fields",),
        ("validate",),
        ("evaluate", "naive"),
        ("compare", "naive", "filtered"),
        ("deploy", "naive"),
        ("query", "revoke a key", "--curve"),
        ("history",),
    ):
        result = run(folder, *arguments)
        assert result.exit_code == 0, result.output
        assert result.stdout.strip()


def test_the_guide_names_every_command_of_the_loop() -> None:
    text = CliRunner().invoke(group, ["guide"]).output

    assert all(
        f"skep tune {name}" in text
        for name in ("fields", "evaluate", "query", "validate", "compare", "deploy")
    )


def test_init_lays_out_the_example(tmp_path: Path) -> None:
    result = CliRunner().invoke(group, ["init", str(tmp_path / "new"), "--example"])

    assert result.exit_code == 0
    assert (tmp_path / "new/documents/api/authentication.md").is_file()
    assert CliRunner().invoke(group, ["init", str(tmp_path / "new")]).exit_code == 1


def test_every_command_has_help() -> None:
    for name, command in group.commands.items():
        assert command.help, name
        for parameter in command.params:
            if parameter.param_type_name == "option":
                assert getattr(parameter, "help", None), f"{name} --{parameter.name}"
