"""Commands about hubs: `skep sync URL`, `skep sync status`, `skep sync retire`."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Generator

import click

from skep.cli.app import common, open_bank, outer_bank, print_json, when
from skep.config import bank_url
from skep.errors import BankNotFoundError, InvalidInputError
from skep.hub.hub_urls import open_hub, options_of, shown
from skep.hub.replica import LocalReplica
from skep.hub.shared_bank import SharedBank

TRIES = 30


@contextlib.contextmanager
def _replica(
    url: str | None, bank_path: str | None, *, join: bool = False, fills: bool = False
) -> Generator[LocalReplica]:
    """The bank of a command and its hub: the one named, or the one that the bank was opened by."""
    named = outer_bank() if bank_path is None else bank_path
    if url is None and bank_url(named, os.environ) is None:
        raise InvalidInputError(
            "which hub? give its address: `skep sync status URL`, or `skep --bank URL sync status`",
            field="url",
        )
    with open_bank(bank_path, fills=fills) as bank:
        if url is None:
            if not isinstance(bank, SharedBank) or bank.replica is None:
                raise InvalidInputError(
                    "a hive has no hub; `skep hive status` shows how it is doing", field="url"
                )
            yield bank.replica
            return
        options = options_of(url)
        replica = LocalReplica(
            bank, lambda: open_hub(url), url=shown(url), mode=options.mode, name=options.name, join=join
        )
        try:
            yield replica
        finally:
            replica.close()


@click.command()
@click.argument("url")
@click.option("--join", is_flag=True, help="Bring the memories of this bank into the other bank at the hub.")
@common
def sync(url: str, join: bool, bank_path: str | None, as_json: bool) -> None:
    """Exchange events with the hub at URL, both ways."""
    with _replica(url, bank_path, join=join, fills=True) as replica:
        done = replica.sync()
        replica.register()
        replica.push()
    if as_json:
        print_json({"sent": done.sent, "received": done.received, "equal": done.equal})
        return
    click.echo(f"sent {done.sent.events} events, received {done.received.events}; in step with {shown(url)}")
    if done.received.held:
        click.echo(f"  held back until their time comes: {', '.join(done.received.held[:5])}")


@click.command()
@click.argument("url", required=False)
@common
def status(url: str | None, bank_path: str | None, as_json: bool) -> None:
    """Show how far this bank and a hub are apart, and why."""
    with _replica(url, bank_path) as replica:
        found = replica.status()
    if as_json:
        print_json(found)
        return
    unknown = "unknown, the hub is away"
    click.echo(f"hub       {found.url}")
    click.echo(f"replica   {found.name}, {found.file}")
    click.echo(f"behind    {unknown if found.behind is None else f'{found.behind:,} events'}")
    click.echo(f"unsent    {found.unsent:,} events")
    click.echo(f"heard     {when(found.heard_at) or 'never'}")
    if found.snapshot_behind is not None:
        click.echo(f"snapshot  {found.snapshot_behind:,} events old")
    for line in (found.why, found.note):
        if line:
            click.echo(f"because   {line}")
    for actor, name in found.replicas.items():
        click.echo(f"          {actor}  {name}")
    for memory, late in found.unconfirmed.items():
        click.echo(f"forgotten {memory} is not confirmed by {', '.join(late)}")


@click.command()
@click.argument("actor")
@click.argument("url", required=False)
@common
def retire(actor: str, url: str | None, bank_path: str | None, as_json: bool) -> None:
    """Strike out the replica ACTOR that is no more: nobody waits for its confirmation."""
    with _replica(url, bank_path) as replica:
        replica.pull()
        replica.retire(actor)
        replica.push()
    print_json({"retired": actor}) if as_json else click.echo(f"{actor} is struck out")


@click.command()
@common
def serve(bank_path: str | None, as_json: bool) -> None:  # noqa: ARG001
    """Speak for this bank on standard input and output; `ssh://` addresses start it."""
    import sys
    import time

    from skep.hub.ssh import answer_stream

    for tried in range(TRIES):
        try:
            with open_bank(bank_path, fills=True) as bank:
                answer_stream(bank, sys.stdin.buffer, sys.stdout.buffer)
            return
        except BankNotFoundError:  # another line of the same hub is about to make it
            if tried == TRIES - 1:
                raise
            time.sleep(0.1)
