"""What `deploy/` holds can be used: files are well-formed, linted, and every skep command in them is one."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from skep.cli.app import app
from skep.hive.hive_manifest import load, parse

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"
YAML = sorted(DEPLOY.rglob("*.yaml"))
RULES = (
    "{extends: default, rules: {line-length: {max: 140}, braces: {max-spaces-inside: 1}, truthy: disable}}"
)


def program(name: str) -> str:
    beside = Path(sys.executable).with_name(name)
    return str(beside) if beside.exists() else name


@pytest.mark.parametrize("path", YAML, ids=lambda path: str(path.relative_to(DEPLOY)))
def test_yaml_is_clean(path: Path) -> None:
    done = subprocess.run(
        [program("yamllint"), "--strict", "-d", RULES, str(path)], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout


def test_the_dockerfile_is_clean() -> None:
    done = subprocess.run(
        [program("hadolint"), str(DEPLOY / "Dockerfile")], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout


def documents(path: Path) -> list[Any]:
    return [one for one in yaml.safe_load_all(path.read_text(encoding="utf-8")) if one]


def commands() -> Iterator[tuple[str, list[str]]]:
    """Every command of skep in the files, without what a shell or a service manager fills in."""
    (compose,) = documents(DEPLOY / "compose.yaml")
    for name, service in compose["services"].items():
        words = service.get("command", [])
        if words and service.get("image") == "skep" and "entrypoint" not in service:
            yield f"compose {name}", words
    for path in sorted((DEPLOY / "kubernetes").glob("*.yaml")):
        for document in documents(path):
            for one in document.get("spec", {}).get("template", {}).get("spec", {}).get("containers", []):
                if one["image"].startswith("skep") and "command" not in one:
                    yield f"kubernetes {path.stem}", one["args"]
    shells = [*DEPLOY.rglob("*.yaml"), *DEPLOY.rglob("*.service"), DEPLOY / "azure/main.bicep"]
    for path in shells:
        for line in path.read_text(encoding="utf-8").splitlines():
            found = re.search(r"(?:ExecStart=/opt/skep/bin/|exec |do )skep ([^;'`]*)", line)
            if found:
                yield path.name, shlex.split(found[1].replace("$$SKEP_HUB", "postgresql://db/skep"))
            bicep = re.search(r"args: \[('hive'.*)\]", line)
            if bicep:
                yield path.name, [word.strip().strip("'") for word in bicep[1].split(",")]


@pytest.mark.parametrize(("where", "words"), list(commands()), ids=lambda found: str(found)[:30])
def test_every_command_is_one_that_skep_knows(where: str, words: list[str]) -> None:
    command: click.Command = app
    arguments = list(words)
    context: click.Context | None = None
    while isinstance(command, click.Group):
        context = command.make_context(command.name or "skep", arguments, parent=context)
        name, found, arguments = command.resolve_command(context, [*context._protected_args, *context.args])
        assert found is not None, f"{where}: skep has no {name}"
        command = found
    command.make_context(command.name or "", arguments, parent=context)


def test_every_file_has_commands() -> None:
    places = {where.split()[0] for where, _ in commands()}
    assert {
        "compose",
        "kubernetes",
        "hive.yaml",
        "skep.service",
        "skep-hive@.service",
        "main.bicep",
    } <= places


def test_the_manifests_are_hives() -> None:
    assert load(DEPLOY / "hive.yaml", {}).bus == "nats://nats:4222"
    (found,) = [d for d in documents(DEPLOY / "kubernetes/hive.yaml") if d["kind"] == "ConfigMap"]
    assert set(parse(found["data"]["hive.yaml"], {}).instances()) == {"member-0", "member-1", "member-2"}


@pytest.mark.parametrize("unit", sorted((DEPLOY / "systemd").glob("*.service")), ids=lambda unit: unit.name)
def test_units_say_what_they_run_and_as_whom(unit: Path) -> None:
    text = unit.read_text(encoding="utf-8")
    for needed in (
        "[Unit]",
        "[Service]",
        "[Install]",
        "ExecStart=/",
        "Restart=always",
        "NoNewPrivileges=yes",
    ):
        assert needed in text
    assert "User=" in text or "DynamicUser=" in text


@pytest.mark.slow
def test_the_topology_of_the_docs_answers_like_one_bank() -> None:
    words = ["--agents", "10", "--facts", "40", "--questions", "20", "--layout", "sharded"]
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts/topology.py"), *words],
        check=True,
        capture_output=True,
        text=True,
    )
    lines = [line.split("|") for line in done.stdout.splitlines() if line.startswith(("| one", "| sharded"))]
    one, sharded = ([float(cell) for cell in line[2:5]] for line in lines)
    assert sharded[0] >= one[0] - 0.1
    assert sharded[2] == 1.0
