"""Commands for agents' clients: install, uninstall, hook, mcp; and audit, for other memories.

Files are written by `integrations`, requests served by `server`; the environment is read here.
"""

from __future__ import annotations

import os
import secrets
import shlex
import shutil
import sys
import time
from pathlib import Path

import click
import msgspec

from skep.cli.app import json_option, outer_bank, print_json
from skep.config import find_bank
from skep.integrations.clients import (
    CLIENTS,
    Change,
    Client,
    Place,
    client,
    edits,
    plan_install,
    plan_uninstall,
    show,
    traces,
    write,
)
from skep.server.mcp.start import PROFILE_NAMES

NAMES = click.Choice([one.name for one in CLIENTS])


def this_place() -> Place:
    """This machine, as an installer sees it."""
    return Place(home=Path.home(), cwd=Path.cwd(), platform=sys.platform, environ=os.environ)


def _command(command: str | None, absolute: bool) -> list[str]:
    """What starts skep where the shell of the user is not around, whose PATH a virtual environment is on."""
    if command is not None:
        return shlex.split(command)
    found = shutil.which("skep")
    beside = Path(sys.executable).with_name("skep.exe" if os.name == "nt" else "skep")
    inside = found is None or (sys.prefix != sys.base_prefix and Path(found).parent == beside.parent)
    if not (absolute or inside):
        return ["skep"]
    if found is not None:
        return [os.path.abspath(found)]
    return [str(beside)] if beside.is_file() else [sys.executable, "-m", "skep"]


@click.command()
@click.argument("client_name", metavar="CLIENT", type=NAMES)
@click.option("--project", is_flag=True, help="Write the project's file instead of the user's.")
@click.option("--no-hooks", is_flag=True, help="Only the server; no recall before each prompt.")
@click.option("--command", help="What starts skep, such as 'uvx skep'; default: skep.")
@click.option("--absolute", is_flag=True, help="Write the full path of skep, for clients with another PATH.")
@click.option(
    "--bank",
    "bank_path",
    type=click.Path(),
    help="Always use this bank; default: that of the client's folder.",
)
@click.option("--user", help="With hooks: show what is for this user, too.")
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
    bank_path: str | None,
    user: str | None,
    only_print: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Add skep to CLIENT: its MCP server, and hooks where the client has them.

    What is in the client's files stays there and is backed up first. Running it again changes nothing. With hooks, the
    bank they keep sessions in is made if there is none. In a virtual environment the full path of skep is written, for
    a client is started without it.
    """
    chosen, place = client(client_name), this_place()
    given = outer_bank() if bank_path is None else bank_path
    bank = None if given is None else os.path.abspath(find_bank(given, os.environ, place.cwd))
    started = _command(command, absolute)
    wanted = edits(chosen, place, command=started, project=project, hooks=not no_hooks, bank=bank, user=user)
    if only_print:
        shown = show(wanted, place.home)
        print_json({"lines": shown}) if as_json else click.echo(shown, nl=False)
        return
    changes = plan_install(wanted)
    _report(changes if dry_run else write(changes, time.time()), dry_run=dry_run, as_json=as_json)
    if dry_run:
        return
    before = find_bank(None, os.environ, place.cwd)
    made = _make_bank(bank) if chosen.hooks and not no_hooks else None
    if not as_json:
        if made is not None:
            click.echo(f"made {made}")
            from skep.cli.bank_file import offer_to_move

            offer_to_move(before, made)
        _advise(chosen, started, bank)
        _offer_sessions(chosen, place)


@click.command()
@click.argument("client_name", metavar="CLIENT", type=NAMES)
@click.option("--project", is_flag=True, help="Clean the project's file instead of the user's.")
@click.option("--dry-run", is_flag=True, help="Say which files would change; touch nothing.")
@json_option
def uninstall(*, client_name: str, project: bool, dry_run: bool, as_json: bool) -> None:
    """Take skep out of CLIENT's configuration; everything else stays. Memories are not touched."""
    place = this_place()
    changes = plan_uninstall(traces(client(client_name), place, project=project))
    _report(changes if dry_run else write(changes, time.time()), dry_run=dry_run, as_json=as_json)


def _make_bank(bank: str | None) -> Path | None:
    """Make the bank that hooks will keep a session in, where there is none yet: they never make one themselves."""
    from skep.bank.bank import Bank

    path = find_bank(bank, os.environ, Path.cwd())
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


def _advise(chosen: Client, started: list[str], bank: str | None) -> None:
    click.echo(chosen.after)
    if shutil.which(started[0]) is None:
        click.echo(f"{started[0]} is not on PATH; install it there, or use --absolute or --command", err=True)
    named = os.environ.get("SKEP_BANK")
    if named and bank is None and not chosen.environment:
        click.echo(
            f"SKEP_BANK is set here, but {chosen.title} starts servers without it; to always use that bank:"
            f" skep install {chosen.name} --bank {named}",
            err=True,
        )


def _offer_sessions(chosen: Client, place: Place) -> None:
    """Say what the client left on this machine, and take it in if a person says so."""
    from skep.integrations.importers.sessions import files, stores

    name = {"vscode": "copilot"}.get(chosen.name, chosen.name)
    left = len(files(place, name)) if name in stores(place) else 0
    if not left:
        return
    words = f"skep import sessions --from {name}"
    if not sys.stdin.isatty():
        click.echo(f"{left} sessions of {chosen.title} are on this machine; `{words}` takes them in")
    elif click.confirm(f"Take in the {left} sessions of {chosen.title} on this machine? (later: {words})"):
        from skep.cli.app import app

        app(["import", "sessions", "--from", name], standalone_mode=False)


@click.command(context_settings={"ignore_unknown_options": True, "allow_extra_args": True})
@click.argument("client", default="claude-code")
@click.option("--bank", "bank_path", type=click.Path(), help="The bank file.")
@click.option("--user", help="Show what is for this user, too; default: SKEP_USER.")
@click.option("--project", help="Show what is for this project, too; default: the project folder's name.")
@click.pass_context
def hook(
    ctx: click.Context, client: str, bank_path: str | None, user: str | None, project: str | None
) -> None:
    """Run as a hook of CLIENT (claude-code, codex or gemini).

    Reads the event from standard input and prints what the model should know. Always exits with 0, whatever it is
    given: some clients take any other code as a reason to stop the prompt. `skep install CLIENT` sets it up.
    """
    from skep.integrations.hooks import main

    outer = ctx.obj.get("bank") if isinstance(ctx.obj, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    bank = bank_path or (outer if isinstance(outer, str) else None)
    given = {"--bank": bank, "--user": user, "--project": project}
    main([client, *(word for name, value in given.items() if value for word in (name, value))])


@click.command()
@click.argument("path", type=click.Path(exists=True, path_type=Path))
@click.option("--from", "source", help="What the file is; guessed when not given.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def audit(path: Path, source: str | None, as_json: bool) -> None:
    """Report junk, duplicates, contradictions and staleness in PATH; nothing is changed.

    PATH is a file or folder of any kind that `skep import` reads.
    """
    from skep.bank.bank import Bank
    from skep.cli.app import progress_bar
    from skep.integrations.audit import audit as examine
    from skep.integrations.audit import report
    from skep.integrations.importers.registry import read

    chosen, items = read(path, source)
    with Bank.open(":memory:") as bank, progress_bar("comparing", "memories") as progress:
        found = examine(items, source=chosen.name, now=time.time(), bank=bank, progress=progress)
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(found), indent=2))
    else:
        click.echo(report(found))


@click.command()
@click.option("--bank", "bank_path", type=click.Path(), help="The bank file.")
@click.option("--hive", "hive", metavar="FILE[#AGENT]", help="In place of a bank: an agent of a hive.")
@click.option(
    "--profile",
    type=click.Choice(PROFILE_NAMES),
    default="default",
    show_default=True,
    help="Which tools: the everyday ones, all, those of the reference memory server, or search and fetch.",
)
@click.option(
    "--judge", envvar="SKEP_JUDGE", help="An agent's command that decides conflicts, such as 'claude -p'."
)
@click.option("--http", is_flag=True, help="Serve streamable HTTP instead of stdio.")
@click.option("--host", default="127.0.0.1", show_default=True, help="With --http: the address to listen on.")
@click.option("--port", type=click.IntRange(1, 65535), default=8420, show_default=True, help="With --http.")
@click.option("--token", envvar="SKEP_MCP_TOKEN", help="With --http: the bearer token; else one is made up.")
@click.option("--no-auth", is_flag=True, help="With --http on the loopback address: ask for no token.")
@click.option("--allow-host", "hosts", multiple=True, help="With --http: a host name that clients may use.")
@click.option("--origin", "origins", multiple=True, help="With --http: a web origin that may connect.")
@click.pass_context
def mcp(
    ctx: click.Context,
    *,
    bank_path: str | None,
    hive: str | None,
    profile: str,
    judge: str | None,
    http: bool,
    host: str,
    port: int,
    token: str | None,
    no_auth: bool,
    hosts: tuple[str, ...],
    origins: tuple[str, ...],
) -> None:
    """Serve the bank to an agent over MCP, on standard input and output or over HTTP."""
    from skep.server.mcp.start import Plain, Serving, serve_plain

    outer = ctx.obj.get("bank") if isinstance(ctx.obj, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    chosen = f"hive://{hive}" if hive else bank_path or (outer if isinstance(outer, str) else None)
    if not http:
        serve_plain(Plain(chosen, profile), {**os.environ, **({"SKEP_JUDGE": judge} if judge else {})})
        return
    if no_auth:
        token = None
    elif token is None and "SKEP_MCP_TOKEN" in os.environ:
        token = ""  # set but empty: refused in words, as --token "" is
    elif token is None:
        token = secrets.token_urlsafe(32)
        click.echo(f"bearer token: {token}", err=True)
    if host in ("0.0.0.0", "::") and not hosts:
        click.echo("only requests to localhost are answered; --allow-host NAME adds a name", err=True)
    from skep.server.mcp.http import serve_http

    with Serving(chosen, profile, judge, os.environ, local=False) as serving:
        click.echo(f"serving http://{host}:{port}/mcp", err=True)
        serve_http(serving.server, host=host, port=port, token=token, allowed_hosts=hosts, origins=origins)
