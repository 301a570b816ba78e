"""`skep judge`: what rules could not decide, by hand."""

from __future__ import annotations

import click

from skep.cli.shared import common, memory_line, open_bank, print_json
from skep.lifecycle.judge import DECISIONS

SHOWN = 20


@click.command()
@click.argument("older", required=False)
@click.argument("newer", required=False)
@click.argument("decision", required=False, type=click.Choice(DECISIONS, case_sensitive=False))
@click.option(
    "--limit", type=click.IntRange(min=1), help="How many to show; default: 20, and with --json all."
)
@common
def judge(
    older: str | None,
    newer: str | None,
    decision: str | None,
    limit: int | None,
    bank_path: str | None,
    as_json: bool,
) -> None:
    """Show the pairs that wait for a judge, surest first; with OLDER, NEWER and a DECISION, decide one.

    MERGE: both say the same. KEEP_BOTH: both can hold. CONTRADICTION: they cannot, and it is unclear which does.
    SUPERSEDED: the newer one replaces the older one.
    """
    if older is not None and (newer is None or decision is None):
        raise click.UsageError("give both ids and a decision, or nothing to see what waits")
    with open_bank(bank_path, create=False) as bank:
        if older is not None and newer is not None and decision is not None:
            written = bank.resolve_judgement(older, newer, decision)
            print_json({"events": written}) if as_json else click.echo(f"{decision.upper()}: done")
            return
        cases = bank.pending_judgements()
    cases.sort(key=lambda case: (-case.confidence, case.key))
    if as_json:
        print_json(cases[:limit])
        return
    limit = limit or SHOWN
    for case in cases[:limit]:
        click.echo(f"{click.style(case.kind, bold=True)}, {case.confidence:.0%} sure")
        click.echo(f"  older  {memory_line(case.older)}")
        click.echo(f"  newer  {memory_line(case.newer)}")
    if not cases:
        click.echo("nothing waits", err=True)
    elif len(cases) > limit:
        click.echo(f"and {len(cases) - limit} more; --limit shows them", err=True)
