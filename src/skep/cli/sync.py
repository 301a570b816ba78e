"""`skep sync`: exchange events with another replica, directly or through files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
import msgspec

from skep.cli.shared import bank_exists, common, open_bank, print_json, progress_bar
from skep.errors import BankNotFoundError, InvalidInputError

if TYPE_CHECKING:
    from skep.hive.replica import Transfer
    from skep.hive.signing import Keyring
    from skep.hive.versions import Versions

F = TypeVar("F", bound=Callable[..., Any])


@click.group()
def group() -> None:
    """Exchange events with another replica of a bank.

    Replicas that meet use `with`. Those that never meet carry files: `export` on one side, `apply` on the
    other.
    """


def keys_option(command: F) -> F:
    """`--key ACTOR=HEX`: whose signatures to check."""
    help_text = "ACTOR=KEY: take events of this bank only with this signing key (64 hex digits). Repeatable."
    return click.option("--key", "keys", multiple=True, help=help_text)(command)


def _keyring(keys: tuple[str, ...]) -> Keyring | None:
    if not keys:
        return None
    from skep.hive.signing import Keyring

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


@group.command()
@common
def versions(bank_path: str | None, as_json: bool) -> None:
    """Print what this bank has seen; give the output to `export --since` on the other side."""
    from skep.hive.replica import seen

    with open_bank(bank_path, create=False) as bank:
        found = seen(bank)
    if as_json:
        print_json(found)
        return
    for actor in sorted(found.ranges):
        click.echo(f"{actor}  {', '.join(f'{low}-{high}' for low, high in found.ranges[actor])}")


@group.command("export")
@click.argument("path", type=click.Path())
@click.option(
    "--since",
    type=click.Path(exists=True),
    help="What the other side has seen: `versions --json`, or a file of changes it sent.",
)
@common
def export(path: str, since: str | None, bank_path: str | None, as_json: bool) -> None:
    """Write the events the other side lacks to PATH; everything when nothing is known of it."""
    from skep.hive.transfer import export_changes

    known = None if since is None else _read_since(Path(since))
    with open_bank(bank_path, create=False) as bank, progress_bar("export") as progress:
        written = export_changes(bank, path, since=known, progress=progress)
    if as_json:
        print_json(written)
    else:
        click.echo(f"{written.events} events, {written.bytes:,} bytes in {written.path}")


def _read_since(path: Path) -> Versions:
    from skep.hive.transfer import read_changes
    from skep.hive.versions import Versions

    try:
        return msgspec.json.decode(path.read_bytes(), type=Versions)
    except msgspec.DecodeError:
        return read_changes(path)[0].seen


@group.command()
@click.argument("path", type=click.Path())
@keys_option
@common
def apply(path: str, keys: tuple[str, ...], bank_path: str | None, as_json: bool) -> None:
    """Take in a file of changes; taking it twice changes nothing."""
    from skep.hive.transfer import apply_changes

    with open_bank(bank_path) as bank, progress_bar("apply") as progress:
        taken, lacking = apply_changes(bank, path, keyring=_keyring(keys), progress=progress)
    if as_json:
        print_json({"taken": taken, "they_lack": lacking.count()})
        return
    _report("taken", taken)
    if lacking:
        click.echo(
            f"the other side lacks {lacking.count()} events; send them with: skep sync export FILE --since {path}"
        )


@group.command(name="with")
@click.argument("other", type=click.Path())
@click.option("--create", is_flag=True, help="Make the bank OTHER if it is not there.")
@keys_option
@common
def with_(other: str, create: bool, keys: tuple[str, ...], bank_path: str | None, as_json: bool) -> None:
    """Exchange events with the bank file OTHER, both ways."""
    from skep.hive.replica import sync

    if not (create or bank_exists(other)):
        raise BankNotFoundError(
            f"there is no bank at {other}; check the path, or make one there with `skep sync with --create {other}`"
        )
    with open_bank(bank_path) as bank, open_bank(other) as peer:
        if bank.file is not None and peer.file is not None and bank.file.resolve() == peer.file.resolve():
            raise InvalidInputError("a bank cannot be synced with itself; name another file", field="other")
        done = sync(bank, peer, keyring=_keyring(keys))
    if as_json:
        print_json({"sent": done.sent, "received": done.received, "equal": done.equal})
        return
    _report("sent", done.sent)
    _report("received", done.received)
    click.echo("both show the same" if done.equal else "some events were held back or refused")


def _report(label: str, transfer: Transfer) -> None:
    click.echo(f"{label}: {transfer.events} events, {transfer.bytes:,} bytes")
    if transfer.held:
        click.echo(f"  held back until their time comes: {', '.join(transfer.held[:5])}")
    for refused in transfer.refused[:5]:
        click.echo(f"  refused {refused.event}: {refused.fault}")
