"""Commands about outcomes: learn, recommend, stats."""

from __future__ import annotations

import click

from skep.cli.shared import asked_scope, common, open_bank, print_json, scope_of, scope_options


@click.command()
@click.argument("task")
@click.argument("outcome", type=click.Choice(["success", "failure"]))
@click.option("--used", multiple=True, help="The id of a memory that was used; may be repeated.")
@click.option("--lesson", help="What was learnt, in words.")
@click.option("--task-type", help="The kind of task.")
@click.option("--domain", help="The field.")
@click.option("--agent", help="Who did it.")
@click.option("--metric", "metrics", multiple=True, help="A figure, as name=number; may be repeated.")
@scope_options
@common
def learn(
    task: str,
    outcome: str,
    used: tuple[str, ...],
    lesson: str | None,
    task_type: str | None,
    domain: str | None,
    agent: str | None,
    metrics: tuple[str, ...],
    user: str | None,
    project: str | None,
    session: str | None,
    bank_path: str | None,
    as_json: bool,
) -> None:
    """Record that TASK ended in OUTCOME, and learn from it."""
    figures: dict[str, float] = {}
    for metric in metrics:
        name, _, value = metric.partition("=")
        try:
            figures[name] = float(value)
        except ValueError:
            raise click.BadParameter(f"{metric!r} is not of the form name=number") from None
    with open_bank(bank_path) as bank:
        learned = bank.learn(
            task,
            outcome,
            used=used,
            metrics=figures,
            task_type=task_type,
            domain=domain,
            lesson=lesson,
            agent=agent,
            scope=scope_of(user, project, session),
        )
    if as_json:
        print_json(learned)
        return
    for memory_id, confidence in learned.moved.items():
        click.echo(f"{memory_id}  confidence {confidence:.3f}")
    if learned.procedure is not None:
        click.echo(f"{learned.procedure.id}  {learned.procedure.text}")


@click.command()
@click.argument("task")
@click.option("-k", type=int, default=3, show_default=True, help="How many.")
@click.option("--domain", help="The field.")
@click.option("--own", is_flag=True, help="With a scope: only what is of that scope, nothing shared.")
@scope_options
@common
def recommend(
    task: str,
    k: int,
    domain: str | None,
    own: bool,
    user: str | None,
    project: str | None,
    session: str | None,
    bank_path: str | None,
    as_json: bool,
) -> None:
    """Suggest what worked before for tasks like TASK."""
    with open_bank(bank_path, create=False) as bank:
        found = bank.recommend(
            task, k, domain=domain, scope=scope_of(user, project, session), include_shared=not own
        )
    if as_json:
        print_json(found)
        return
    for recommendation in found:
        click.echo(f"{click.style(f'{recommendation.score:.3f}', fg='green')}  {recommendation.memory.text}")
        click.echo(click.style(f"       {recommendation.why()}", dim=True))
    if not found:
        click.echo("no procedure is known yet; `skep learn` records outcomes", err=True)


@click.command()
@click.option(
    "--utility", is_flag=True, help="What each memory does to success, where it was sometimes withheld."
)
@asked_scope
@common
def stats(
    utility: bool,
    scope: dict[str, str] | None,
    include_shared: bool,
    bank_path: str | None,
    as_json: bool,
) -> None:
    """Show what outcomes say."""
    with open_bank(bank_path, create=False) as bank:
        effects = bank.utility(scope=scope, include_shared=include_shared) if utility else []
        found = bank.stats(scope=scope, include_shared=include_shared)
    if as_json:
        print_json(effects if utility else found)
        return
    if utility:
        for effect in effects:
            click.echo(
                f"{effect.memory}  {effect.effect:+.2f} [{effect.low:+.2f}, {effect.high:+.2f}]  shown"
                f" {effect.shown_successes}/{effect.shown}, withheld {effect.withheld_successes}/{effect.withheld}"
            )
        if not effects:
            click.echo("nothing was withheld yet; see docs/how-to/learning.md", err=True)
        return
    rate = found["success_rate"]
    click.echo(f"{found['outcomes']} outcomes" + (f", {rate:.0%} successes" if rate is not None else ""))
    for name in ("by_domain", "by_task_type"):
        for key, entry in found[name].items():
            click.echo(f"  {name.removeprefix('by_')} {key}: {entry['successes']} of {entry['of']}")
    if taken := found.get("redacted"):
        click.echo(
            "taken out before storing: " + ", ".join(f"{kind} {count}" for kind, count in taken.items())
        )
