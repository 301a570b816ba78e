"""`skep install` and `skep uninstall`: a place in a client's configuration."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import time
from pathlib import Path

import click

from skep.cli.shared import json_option, print_json
from skep.integrations.clients import CLIENTS, Client, Place, client, edits, traces
from skep.integrations.install import Change, plan_install, plan_uninstall, show, write

NAMES = click.Choice([one.name for one in CLIENTS])


def _place() -> Place:
    return Place(home=Path.home(), cwd=Path.cwd(), platform=sys.platform, environ=os.environ)


def _command(command: str | None, absolute: bool) -> list[str]:
    if command is not None:
        return shlex.split(command)
    found = shutil.which("skep")
    return [found] if absolute and found else ["skep"]


@click.command()
@click.argument("client_name", metavar="CLIENT", type=NAMES)
@click.option("--project", is_flag=True, help="Write the project's file instead of the user's.")
@click.option("--no-hooks", is_flag=True, help="Only the server; no recall before each prompt.")
@click.option("--command", help="What starts skep, such as 'uvx skep'; default: skep.")
@click.option("--absolute", is_flag=True, help="Write the full path of skep, for clients with another PATH.")
@click.option("--print", "only_print", is_flag=True, help="Print the lines to add; touch nothing.")
@click.option("--dry-run", is_flag=True, help="Say which files would change; touch nothing.")
@json_option
def install(
    *,
    client_name: str,
    project: bool,
    no_hooks: bool,
    command: str | None,
    absolute: bool,
    only_print: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Add skep to CLIENT: its MCP server, and hooks where the client has them.

    What is in the client's files stays there and is backed up first. Running it again changes nothing. With hooks, the
    bank they keep sessions in is made if there is none.
    """
    chosen, place = client(client_name), _place()
    wanted = edits(chosen, place, command=_command(command, absolute), project=project, hooks=not no_hooks)
    if only_print:
        shown = show(wanted, place.home)
        print_json({"lines": shown}) if as_json else click.echo(shown, nl=False)
        return
    changes = plan_install(wanted)
    _report(changes if dry_run else write(changes, time.time()), dry_run=dry_run, as_json=as_json)
    if dry_run:
        return
    made = _make_bank() if chosen.hooks and not no_hooks else None
    if not as_json:
        if made is not None:
            click.echo(f"made {made}")
        _advise(chosen, command, absolute)


@click.command()
@click.argument("client_name", metavar="CLIENT", type=NAMES)
@click.option("--project", is_flag=True, help="Clean the project's file instead of the user's.")
@click.option("--dry-run", is_flag=True, help="Say which files would change; touch nothing.")
@json_option
def uninstall(*, client_name: str, project: bool, dry_run: bool, as_json: bool) -> None:
    """Take skep out of CLIENT's configuration; everything else stays. Memories are not touched."""
    place = _place()
    changes = plan_uninstall(traces(client(client_name), place, project=project))
    _report(changes if dry_run else write(changes, time.time()), dry_run=dry_run, as_json=as_json)


def _make_bank() -> Path | None:
    """Make the bank that hooks will keep a session in, where there is none yet: they never make one themselves."""
    from skep.bank import Bank
    from skep.config import find_bank

    path = find_bank(None, os.environ, Path.cwd())
    if path.exists():
        return None
    Bank.open(path).close()
    return path


def _report(changes: list[Change], *, dry_run: bool, as_json: bool) -> None:
    changed = [change for change in changes if change.changed]
    if as_json:
        files = [{"file": str(c.file), "backup": str(c.backup) if c.backup else None} for c in changed]
        print_json({"dry_run": dry_run, "changed": files})
        return
    for change in changed:
        verb = "would change" if dry_run else "changed"
        click.echo(f"{verb} {change.file}" + (f" (backup: {change.backup.name})" if change.backup else ""))
    if not changed:
        click.echo("nothing to change")


def _advise(chosen: Client, command: str | None, absolute: bool) -> None:
    click.echo(chosen.after)
    if command is None and not absolute and shutil.which("skep") is None:
        click.echo("skep is not on PATH; install it there, or use --absolute or --command", err=True)
