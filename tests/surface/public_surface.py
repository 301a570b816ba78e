"""The public surface as data: names, signatures, command help, MCP schemas, tables of the bank file.

`python -m tests.surface.public_surface > tests/surface/public_surface.json` writes it anew after a meant change.
"""

from __future__ import annotations

import importlib
import inspect
import json
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import click
from click.testing import CliRunner

MODULES = ("skep", "skep.hive")


def signatures() -> dict[str, Any]:
    """Every public name with its signature; methods of classes as well."""
    found: dict[str, Any] = {}
    for module in MODULES:
        home = importlib.import_module(module)
        for name in sorted(home.__all__):
            value = getattr(home, name)
            found[f"{module}.{name}"] = _signature(value)
            if inspect.isclass(value):
                for method in sorted(vars_of(value)):
                    found[f"{module}.{name}.{method}"] = _signature(inspect.getattr_static(value, method))
    return found


def vars_of(kind: type) -> set[str]:
    """Names of public attributes, inherited ones from this project too."""
    return {
        name
        for base in kind.__mro__
        if base.__module__.startswith("skep")
        for name in vars(base)
        if not name.startswith("_")
    }


def _signature(value: Any) -> str:
    if isinstance(value, (staticmethod, classmethod)):
        value = value.__func__
    if isinstance(value, property):
        return "property"
    try:
        return (
            re.sub(r" at 0x[0-9a-f]+", "", str(inspect.signature(value)))
            if callable(value)
            else type(value).__name__
        )
    except (TypeError, ValueError):
        return type(value).__name__


def commands() -> dict[str, str]:
    """The help text of every command."""
    from skep.cli.app import app

    found: dict[str, str] = {}

    def walk(command: click.Command, path: tuple[str, ...]) -> None:
        found[" ".join(("skep", *path))] = (
            CliRunner(env={"COLUMNS": "80"}).invoke(app, [*path, "--help"], prog_name="skep").output
        )
        if isinstance(command, click.Group):
            context = click.Context(command)
            for name in command.list_commands(context):
                child = command.get_command(context, name)
                if child is not None:
                    walk(child, (*path, name))

    walk(app, ())
    return found


def tables() -> list[str]:
    """The tables, indexes and triggers of a new bank."""
    import apsw

    from skep import Bank

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bank.skep"
        with Bank.open(path) as bank:
            bank.remember("The surface is written down")
        connection = apsw.Connection(str(path))
        rows = list(connection.execute("SELECT type, name, sql FROM sqlite_master ORDER BY type, name"))
        connection.close()
    return [f"{kind} {name}: {sql}" for kind, name, sql in rows]


def tools() -> dict[str, Any]:
    """Names and input schemas of the MCP tools, profile by profile."""
    from skep.server.mcp.tool_profiles import PROFILES

    return {profile: {tool.name: tool.wire() for tool in make(None)} for profile, make in PROFILES.items()}


def surface() -> dict[str, Any]:
    """Everything a user or a file of theirs may depend on."""
    return {"signatures": signatures(), "commands": commands(), "tables": tables(), "tools": tools()}


if __name__ == "__main__":
    json.dump(surface(), sys.stdout, indent=1, sort_keys=True, default=str)
