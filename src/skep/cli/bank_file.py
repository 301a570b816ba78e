"""Commands about the bank as a whole: init, export, import, backup, status, doctor, reembed, sync, completion."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click
import msgspec

from skep.bank.bank import Bank
from skep.cli.app import (
    bank_exists,
    common,
    json_option,
    open_bank,
    opener,
    outer_bank,
    print_json,
    progress_bar,
)
from skep.config import BANK_NAME, PROJECT_FOLDER, find_bank
from skep.errors import BankNotFoundError, CorruptBankError, InvalidInputError, NotABankError, NotFoundError
from skep.storage.doctor import Finding

if TYPE_CHECKING:
    from skep.replication.exchange import Transfer
    from skep.replication.signatures import Keyring
    from skep.replication.version_vectors import Versions


MEMORY = ":memory:"
BUNDLE = ".skep-bundle"
_LAST_RESORT = (
    "put the newest copy in its place with `skep backup --restore COPY`; without one, `skep export --salvage FILE`"
    " saves what can be read, to be imported into a new bank, or sync a new bank with a replica"
)
_LEVELS = {"ok": "green", "warning": "yellow", "error": "red"}


@click.command()
@click.option("--project/--user", default=True, help="In this folder's .skep, or in the user's data folder.")
@common
def init(project: bool, bank_path: str | None, as_json: bool) -> None:
    """Create a bank for this project (in .skep/) or for the user."""
    target: Path
    given = outer_bank() if bank_path is None else bank_path
    asked = os.environ.get("SKEP_BANK") or None if given is None else given
    if asked is not None:
        target = find_bank(asked, os.environ, Path.cwd())
    elif project:
        target = Path.cwd() / PROJECT_FOLDER / BANK_NAME
    else:
        target = find_bank(None, {k: v for k, v in os.environ.items() if k != "SKEP_BANK"}, Path("/"))
    there = target.exists()
    before = find_bank(None, os.environ, Path.cwd())
    with Bank.open(target, create=not there, opener=opener()) as bank:
        if project and asked is None and not (target.parent / ".gitignore").exists():
            (target.parent / ".gitignore").write_text("*\n")
        actor = bank.actor
    if as_json:
        print_json({"path": str(target), "created": not there, "actor": actor})
    else:
        click.echo(f"{'found' if there else 'created'} {target}")
        if not there and asked is None:
            offer_to_move(before, target)


def offer_to_move(old: Path, new: Path) -> None:
    """Say that another bank was used here until now, and take its memories over if a person says so."""
    if not old.is_file() or old == new:
        return
    with Bank.open(old, create=False, read_only=True, opener=opener()) as bank:
        count = bank.status().memories
    if not count:
        return
    words = f"skep --bank {new} import {old}"
    told = f"until now {old} was used here; what it holds ({count:,}) stays there"
    if not sys.stdin.isatty():
        click.echo(f"{told}. `{words}` copies them into this one", err=True)
    elif click.confirm(f"{told}. Copy them into this one? (later: {words})", err=True):
        from skep.integrations.importers.registry import import_items, read

        items = list(read(old)[1])
        with open_bank(str(new)) as bank, progress_bar("importing", "items") as progress:
            done = import_items(bank, items, progress=progress)
        click.echo(f"new {done.new}, known {done.known}, links {done.links}")


@click.command()
@click.argument("path", type=click.Path())
@click.option("--salvage", is_flag=True, help="Of a damaged bank: write what can be read.")
@click.option("--markdown", is_flag=True, help="PATH is a folder: a note per memory, to be read and edited.")
@common
def export(path: str, salvage: bool, markdown: bool, bank_path: str | None, as_json: bool) -> None:
    """Write everything to PATH as JSON lines, links and history included; - is standard output.

    A PATH that ends in .skep-bundle becomes a bundle that other programs can read: a zip with manifest, checksums and
    tombstones. With --markdown, PATH becomes a folder for Obsidian; `skep import PATH` reads edits back.
    """
    if markdown or path.endswith(BUNDLE):
        from skep.integrations.open_files import write_bundle, write_view

        with open_bank(bank_path, create=False) as bank:
            if markdown:
                report: dict[str, Any] = {"path": path, "notes": write_view(bank, Path(path))}
            else:
                report = {"path": path, **write_bundle(bank, Path(path), bank.engine.now())}
        print_json(report) if as_json else click.echo(
            ", ".join(f"{key} {value}" for key, value in report.items())
        )
        return
    if salvage:
        named = outer_bank() if bank_path is None else bank_path
        count, lost = Bank.salvage(find_bank(named, os.environ, Path.cwd()), path)
        if lost:
            click.echo(f"{lost} events at least could not be read", err=True)
    else:
        with open_bank(bank_path, create=False) as bank:
            if path == "-":
                for line in bank.export_lines():
                    sys.stdout.buffer.write(line + b"\n")
                return
            with progress_bar("exporting", "events") as progress:
                count = bank.export(path, progress=progress)
    print_json({"path": path, "events": count}) if as_json else click.echo(
        f"{count} events written to {path}"
    )


SESSIONS = "sessions"
"""Instead of a path: what coding agents left on this machine."""


@click.command("import")
@click.argument("path", type=click.Path())
@click.option(
    "--from",
    "source",
    help="The format, or with `sessions` the client, if it is not to be told from the file.",
)
@click.option("--dry-run", is_flag=True, help="Say what would be imported, and import nothing.")
@common
def import_(path: str, source: str | None, dry_run: bool, bank_path: str | None, as_json: bool) -> None:
    """Take in PATH: a skep export, the files of another memory, or `sessions`.

    `skep import sessions` reads what Claude Code, Codex, Cursor, Gemini, opencode, Copilot and Continue left on this
    machine: turns, rules that you stated, and commands that failed and then worked in another form.
    """
    if dry_run and not bank_exists(bank_path):
        bank_path = MEMORY  # looking on creates nothing
    if path == SESSIONS:
        report = _import_sessions(source, bank_path, dry_run=dry_run)
    else:
        report = _import_file(Path(path).expanduser(), source, bank_path, dry_run=dry_run)
    if as_json:
        print_json(report)
    else:
        for found in report.pop("clients", ()):
            click.echo(
                f"{found.client}: {found.sessions} sessions, {found.turns} turns, {found.rules} rules,"
                f" {found.lessons} lessons"
            )
        told = ", ".join(f"{key} {value}" for key, value in report.items())
        click.echo(f"would be: {told}" if dry_run else told)


def _import_file(path: Path, source: str | None, bank_path: str | None, *, dry_run: bool) -> dict[str, Any]:
    from skep.integrations.importers.chats import is_export
    from skep.integrations.importers.registry import import_items, read
    from skep.integrations.open_files import import_bundle, is_bundle, is_view, read_view

    if source is None and is_export(path):
        with open_bank(bank_path, fills=True) as bank, progress_bar("importing", "items") as progress:
            if dry_run:
                return bank.import_preview(path)
            applied = bank.import_(path, progress=progress)
            return {"new": applied.new, "known": applied.known, "held": len(applied.held)}
    if source is None and is_view(path):
        with open_bank(bank_path, create=False) as bank:
            back = read_view(bank, path, dry_run=dry_run)
        for name in back.both:
            click.echo(f"{name}: its memory was changed or is gone, too; left as it is", err=True)
        return {"new": back.new, "changed": back.changed, "same": back.same, "without a note": back.absent}
    if source is None and is_bundle(path) and not dry_run:
        with open_bank(bank_path, fills=True) as bank, progress_bar("importing", "items") as progress:
            taken = import_bundle(bank, path, progress)
        if taken is not None:
            return taken
    chosen, found = read(path, source)
    items = list(found)  # to the end, before a bank is touched
    if not items:
        click.echo(
            f"{path} was taken for {chosen.title}, and nothing to remember was found in it; if it is something else,"
            " name it with --from",
            err=True,
        )
    with open_bank(bank_path, fills=True) as bank, progress_bar("importing", "items") as progress:
        done = import_items(bank, items, dry_run=dry_run, progress=progress)
    return {"from": chosen.name, "new": done.new, "known": done.known, "links": done.links}


def _import_sessions(client: str | None, bank_path: str | None, *, dry_run: bool) -> dict[str, Any]:
    from skep.cli.clients import this_place
    from skep.integrations.importers.registry import import_items
    from skep.integrations.importers.sessions import files, read_sessions
    from skep.text import redaction

    found = files(this_place(), client)
    if not found:
        raise NotFoundError(
            "no sessions were found on this machine; `skep import --help` names whose are looked for"
        )
    with open_bank(bank_path, fills=True) as bank:
        with progress_bar("reading") as progress:
            told = read_sessions(found, redaction.kinds_of(bank.setting(redaction.SETTING)), progress)
        with progress_bar("importing", "items") as progress:
            done = import_items(bank, told.items, dry_run=dry_run, progress=progress)
    report: dict[str, Any] = {
        "clients": told.found,
        "new": done.new,
        "known": done.known,
        "links": done.links,
    }
    if told.redacted:
        report["taken out"] = sum(told.redacted.values())
    return report


@click.command()
@click.argument("path", type=click.Path(dir_okay=False))
@click.option(
    "--restore",
    is_flag=True,
    help="The other way round: put PATH in the bank's place. What stood there is kept beside it.",
)
@click.option(
    "--gone", is_flag=True, help="Say that the copy PATH was deleted: `forget` looks for it no longer."
)
@common
def backup(path: str, restore: bool, gone: bool, bank_path: str | None, as_json: bool) -> None:
    """Copy the bank to PATH while it is in use."""
    if restore and gone:
        raise click.UsageError("--restore needs a copy that is there; --gone is about one that is not")
    if gone:
        with open_bank(bank_path, create=False) as bank:
            bank.drop_backup(path)
            left = bank.backups()
        if as_json:
            print_json({"gone": path, "backups": [str(copy) for copy in left]})
        else:
            click.echo(f"{path} is struck out; copies left: {len(left)}")
        return
    if restore:
        aside = Bank.put_back(path, outer_bank() if bank_path is None else bank_path)
        if as_json:
            print_json({"restored": path, "replaced": None if aside is None else str(aside)})
        else:
            click.echo(
                f"restored from {path}" + ("" if aside is None else f"; what stood there is now {aside}")
            )
        return
    with open_bank(bank_path, create=False) as bank:
        target = bank.backup(path)
    print_json({"path": str(target)}) if as_json else click.echo(f"copied to {target}")


@click.command()
@common
def status(bank_path: str | None, as_json: bool) -> None:
    """Show counts, sizes, the embedder and its backlog."""
    with open_bank(bank_path, create=False) as bank:
        found = bank.status()
    if as_json:
        print_json(found)
        return
    for name, value in msgspec.to_builtins(found).items():
        if name in ("versions", "held", "embed_error") and not value:
            continue
        if name.endswith("_bytes"):
            name, value = name.removesuffix("_bytes"), f"{value / 1e6:.1f} MB"
        if isinstance(value, dict):
            value = ", ".join(f"{k} {v}" for k, v in cast("dict[str, Any]", value).items()) or "-"
        shown = f"{value:,}" if isinstance(value, int) else value
        click.echo(f"{name.replace('_', ' '):>12}  {shown}")


@click.command()
@click.option(
    "--deep", is_flag=True, help="Also replay the whole log and compare, and read every byte of the index."
)
@click.option("--mend", is_flag=True, help="Rebuild from the log what can be rebuilt.")
@common
def doctor(deep: bool, mend: bool, bank_path: str | None, as_json: bool) -> None:
    """Look the bank over: integrity, index drift, disk, permissions, versions; and say how to mend each finding."""
    done: list[str] = []
    try:
        with open_bank(bank_path, create=False) as bank:
            done = bank.mend() if mend else []
            findings = bank.doctor(deep=deep)
    except (CorruptBankError, NotABankError) as error:
        findings = [Finding(check="file", level="error", message=str(error), fix=_LAST_RESORT)]
    bad = any(finding.level == "error" for finding in findings)
    if as_json:
        print_json({"mended": done, "findings": findings, "healthy": not bad})
    else:
        for line in done:
            click.echo(line)
        for finding in findings:
            mark = click.style(f"{finding.level:>8}", fg=_LEVELS[finding.level])
            click.echo(
                f"{mark}  {finding.check}: {finding.message}"
                + (f"\n          mend: {finding.fix}" if finding.fix else "")
            )
    if bad:
        raise click.exceptions.Exit(1)


@click.command()
@click.option("--embedder", help="The model to switch to, such as static, minilm or ollama:NAME.")
@common
def reembed(embedder: str | None, bank_path: str | None, as_json: bool) -> None:
    """Embed what waits, or everything with another model; recall keeps working meanwhile.

    Keys and addresses of services come from OPENAI_API_KEY, OPENAI_BASE_URL, GEMINI_API_KEY (or GOOGLE_API_KEY) and
    OLLAMA_HOST. The exit code is 1 if anything is left; the same command goes on from there, and naming the model that
    the bank has gives up a change to another.
    """
    options: dict[str, Any] = {"embedder": embedder} if embedder else {}
    with open_bank(bank_path, create=False, **options) as bank, progress_bar("embedding") as progress:
        if embedder:
            bank.engine.embeddings.keep()
        done = bank.reembed(progress)
        found = bank.status()
        space = bank.engine.building_space() or bank.engine.active_space()
        why = found.embed_error or (bank.engine.embeddings.absence(space) if space else None)
    left = found.reembedding or found.pending
    if as_json:
        print_json(
            {
                "embedded": done,
                "embedder": found.embedder,
                "pending": found.pending,
                "reembedding": found.reembedding,
                "error": why if left else None,
            }
        )
    else:
        click.echo(f"embedded {done}; {left} waiting; {found.embedder}")
    if left:
        name = space.fingerprint if space else embedder
        still = f"; {found.embedder} answers until then" if found.reembedding else ""
        click.echo(f"{left} left for {name}: {why or 'another process is at work on them'}{still}", err=True)
        sys.exit(1)


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@json_option
def completion(shell: str, as_json: bool) -> None:
    """Print the completion script for SHELL; put its output into your shell's start-up file."""
    from click.shell_completion import get_completion_class

    from skep.cli.app import app

    kind = get_completion_class(shell)
    assert kind is not None
    script = kind(app, {}, "skep", "_SKEP_COMPLETE").source()
    print_json({"shell": shell, "script": script}) if as_json else click.echo(script)


F = TypeVar("F", bound=Callable[..., Any])


class SyncGroup(click.Group):
    """`skep sync`, whose commands about hubs are imported when they are needed; an address is a command by itself."""

    HUBS = ("URL", "status", "retire", "serve")

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names, those about hubs first."""
        return [*self.HUBS, *super().list_commands(ctx)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of a name."""
        if cmd_name not in self.HUBS:
            return super().get_command(ctx, cmd_name)
        from skep.cli import hubs

        return hubs.sync if cmd_name == "URL" else getattr(hubs, cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that is meant; for an address, that of hubs."""
        if any("://" in word for word in args) and args[0] not in self.list_commands(ctx)[1:]:
            return "URL", self.get_command(ctx, "URL"), args
        return super().resolve_command(ctx, args)


@click.group(cls=SyncGroup)
def sync_group() -> None:
    """Exchange events with a hub or another replica of a bank.

    `skep sync URL` exchanges with a hub that several machines share. Replicas that meet use `with`. Those that
    never meet carry files: `export` on one side, `apply` on the other.
    """


def keys_option(command: F) -> F:
    """`--key ACTOR=HEX`: whose signatures to check."""
    help_text = "ACTOR=KEY: take events of this bank only with this signing key (64 hex digits). Repeatable."
    return click.option("--key", "keys", multiple=True, help=help_text)(command)


def _keyring(keys: tuple[str, ...]) -> Keyring | None:
    if not keys:
        return None
    from skep.replication.signatures import Keyring

    ring = Keyring()
    for entry in keys:
        actor, separator, key = entry.partition("=")
        try:
            ring.add(actor, bytes.fromhex(key))
        except ValueError:
            separator = ""
        if not separator:
            raise InvalidInputError(
                f"--key {entry!r} is not ACTOR=KEY with 64 hexadecimal digits", field="key"
            )
    return ring


@sync_group.command()
@common
def versions(bank_path: str | None, as_json: bool) -> None:
    """Print what this bank has seen; give the output to `export --since` on the other side."""
    from skep.replication.exchange import seen

    with open_bank(bank_path, create=False) as bank:
        found = seen(bank)
    if as_json:
        print_json(found)
        return
    for actor in sorted(found.ranges):
        click.echo(f"{actor}  {', '.join(f'{low}-{high}' for low, high in found.ranges[actor])}")


@sync_group.command("export")
@click.argument("path", type=click.Path())
@click.option(
    "--since",
    type=click.Path(exists=True),
    help="What the other side has seen: `versions --json`, or a file of changes it sent.",
)
@common
def export_changes_command(path: str, since: str | None, bank_path: str | None, as_json: bool) -> None:
    """Write the events the other side lacks to PATH; everything when nothing is known of it."""
    from skep.replication.change_files import export_changes

    known = None if since is None else _read_since(Path(since))
    with open_bank(bank_path, create=False) as bank, progress_bar("exporting", "events") as progress:
        written = export_changes(bank, path, since=known, progress=progress)
    if as_json:
        print_json(written)
    else:
        click.echo(f"{written.events} events, {written.bytes:,} bytes in {written.path}")


def _read_since(path: Path) -> Versions:
    from skep.replication.change_files import read_changes
    from skep.replication.version_vectors import Versions

    try:
        return msgspec.json.decode(path.read_bytes(), type=Versions)
    except msgspec.DecodeError:
        return read_changes(path)[0].seen


@sync_group.command()
@click.argument("path", type=click.Path())
@keys_option
@common
def apply(path: str, keys: tuple[str, ...], bank_path: str | None, as_json: bool) -> None:
    """Take in a file of changes; taking it twice changes nothing."""
    from skep.replication.change_files import apply_changes

    with open_bank(bank_path, fills=True) as bank, progress_bar("applying", "events") as progress:
        taken, lacking = apply_changes(bank, path, keyring=_keyring(keys), progress=progress)
    if as_json:
        print_json({"taken": taken, "they_lack": lacking.count()})
        return
    _report("taken", taken)
    if lacking:
        click.echo(
            f"the other side lacks {lacking.count()} events; send them with: skep sync export FILE --since {path}"
        )


@sync_group.command(name="with")
@click.argument("other", type=click.Path())
@click.option("--create", is_flag=True, help="Make the bank OTHER if it is not there.")
@keys_option
@common
def with_(other: str, create: bool, keys: tuple[str, ...], bank_path: str | None, as_json: bool) -> None:
    """Exchange events with the bank file OTHER, both ways."""
    from skep.replication.exchange import sync

    if not (create or bank_exists(other)):
        raise BankNotFoundError(
            f"there is no bank at {other}; check the path, or make one there with `skep sync with --create {other}`"
        )
    if create and not bank_exists(other):
        Bank.open(other, opener=opener()).close()
    with open_bank(bank_path) as bank, open_bank(other) as peer:
        if bank.file is not None and peer.file is not None and bank.file.resolve() == peer.file.resolve():
            raise InvalidInputError("a bank cannot be synced with itself; name another file", field="other")
        done = sync(bank, peer, keyring=_keyring(keys))
    if as_json:
        print_json({"sent": done.sent, "received": done.received, "equal": done.equal})
        return
    _report("sent", done.sent)
    _report("received", done.received)
    if done.forked:
        click.echo(
            f"one of the two went back in time and was written to: under {', '.join(done.forked)} they hold different"
            " events. It writes under a new name now; remember again what it alone holds",
            err=True,
        )
    click.echo("both show the same" if done.equal else "some events were held back, refused or differ")


def _report(label: str, transfer: Transfer) -> None:
    click.echo(f"{label}: {transfer.events} events, {transfer.bytes:,} bytes")
    if transfer.held:
        click.echo(f"  held back until their time comes: {', '.join(transfer.held[:5])}")
    for refused in transfer.refused[:5]:
        click.echo(f"  refused {refused.event}: {refused.fault}")
