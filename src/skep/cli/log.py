"""Commands about the log: history, blame, undo."""

from __future__ import annotations

import click
import msgspec

from skep.cli.shared import asked_scope, common, open_bank, print_json, when
from skep.model import Event


def _line(event: Event) -> str:
    body = msgspec.json.encode(event.body).decode()
    shown = body if len(body) <= 100 else body[:97] + "..."
    kind = click.style(f"{event.kind:<10}", bold=True)
    return f"{click.style(event.id, fg='cyan')}  {when(event.at)}  {kind} {shown}"


@click.command()
@click.argument("memory_id", required=False)
@click.option("-n", "--limit", type=int, default=20, show_default=True, help="The newest so many.")
@asked_scope
@common
def history(
    memory_id: str | None,
    limit: int,
    scope: dict[str, str] | None,
    include_shared: bool,
    bank_path: str | None,
    as_json: bool,
) -> None:
    """Show what happened to MEMORY_ID, oldest first; without it, what happened last, newest first."""
    with open_bank(bank_path, create=False) as bank:
        events = bank.history(memory_id, limit=limit, scope=scope, include_shared=include_shared)
    if as_json:
        print_json(
            [{"id": event.id, "at": event.at, "kind": event.kind, "body": event.body} for event in events]
        )
        return
    for event in events:
        click.echo(_line(event))


@click.command()
@click.argument("memory_id")
@asked_scope
@common
def blame(
    memory_id: str,
    scope: dict[str, str] | None,
    include_shared: bool,
    bank_path: str | None,
    as_json: bool,
) -> None:
    """Show which event last set each field of MEMORY_ID."""
    with open_bank(bank_path, create=False) as bank:
        found = bank.blame(memory_id, scope=scope, include_shared=include_shared)
    if as_json:
        print_json({field: {"event": e.id, "at": e.at, "kind": e.kind} for field, e in found.items()})
        return
    for field, event in sorted(found.items()):
        click.echo(f"{field:>16}  {event.id}  {when(event.at)}  {event.kind}")


@click.command()
@click.argument("event_id")
@click.option("--reason", help="Why; kept in the history.")
@click.option("--dry-run", is_flag=True, help="Show the event, and undo nothing.")
@common
def undo(event_id: str, reason: str | None, dry_run: bool, bank_path: str | None, as_json: bool) -> None:
    """Make EVENT_ID as if it had never been; undoing the undo brings it back."""
    with open_bank(bank_path, create=False) as bank:
        event = bank.event(event_id) if dry_run else bank.undo(event_id, reason)
    if as_json:
        print_json({"id": event.id, "kind": event.kind, "body": event.body, "dry_run": dry_run})
    else:
        click.echo(_line(event))
