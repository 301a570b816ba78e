"""`skep maintain`: keep the bank clean, once or again and again."""

from __future__ import annotations

import shlex
import shutil
import signal
import sys
import threading
from typing import TypeVar

import click

from skep.bank import Bank
from skep.cli.shared import SPAN, common, open_bank, print_json, progress_bar
from skep.errors import LeaseHeldError
from skep.lifecycle.distillers import CommandDistiller, Distiller, EndpointDistiller
from skep.lifecycle.endpoints import Endpoint
from skep.lifecycle.judge import CommandJudge, EndpointJudge, Judge, RulesJudge
from skep.lifecycle.maintain import DEFAULT_STEPS, STEPS, MaintainConfig
from skep.lifecycle.report import MaintainReport

Kind = TypeVar("Kind", bound=Endpoint)

AFTER = 0.5
"""Seconds after the end of somebody's lease until a run is tried again."""
BUSY = 75
"""The exit code when another run is at work: what service managers call a temporary failure."""


def _often(_ctx: click.Context, _param: click.Parameter, seconds: float | None) -> float | None:
    if seconds is not None and not seconds >= 1:
        raise click.BadParameter("once a second is the most; write it like 30m, 24h or 7d")
    return seconds


@click.command()
@click.option("--dry-run", is_flag=True, help="Show the plan, and change nothing.")
@click.option(
    "--step", "steps", multiple=True, type=click.Choice(STEPS), help="Only this step; may be repeated."
)
@click.option("--skip", multiple=True, type=click.Choice(STEPS), help="All steps but this; may be repeated.")
@click.option(
    "--reflect",
    is_flag=True,
    help="Also sum up clusters of episodes; what becomes of the episodes is said by --consolidate.",
)
@click.option(
    "--consolidate",
    type=click.Choice(["soft", "hard"]),
    default="soft",
    show_default=True,
    help="With --reflect: the episodes are replaced and stay in history (soft), or are forgotten for good (hard).",
)
@click.option("--gc-days", type=float, help="Let `prune` set aside what is older than this.")
@click.option(
    "--cluster",
    type=click.Choice(["threshold", "hdbscan"]),
    default="threshold",
    show_default=True,
    help="How episodes are grouped; hdbscan needs the extra `cluster`.",
)
@click.option(
    "--distil-command",
    help="Let a command word facts and summaries: the prompt on its standard input, JSON on its standard output.",
)
@click.option("--distil-url", help="The same by an OpenAI-compatible or Anthropic endpoint.")
@click.option("--distil-model", help="The model behind --distil-url.")
@click.option("--distil-key", envvar="SKEP_DISTIL_KEY", help="The key for --distil-url.")
@click.option("--distil-price", type=float, default=0.0, help="What a million tokens of --distil-url cost.")
@click.option("--judge-rules", is_flag=True, help="Let rules decide what waits for a judge.")
@click.option("--judge-command", help="Let a command decide: the prompt on its standard input.")
@click.option("--judge-url", help="Let an OpenAI-compatible or Anthropic endpoint decide.")
@click.option("--judge-model", help="The model behind --judge-url.")
@click.option("--judge-key", envvar="SKEP_JUDGE_KEY", help="The key for --judge-url.")
@click.option("--judge-price", type=float, default=0.0, help="What a million tokens of --judge-url cost.")
@click.option(
    "--max-tokens",
    type=int,
    default=100_000,
    show_default=True,
    help="Ask the model that distils and the judge about as much as this is expected to be enough for.",
)
@click.option(
    "--max-money",
    type=float,
    default=1.0,
    show_default=True,
    help="The same in money, where prices are given.",
)
@click.option(
    "--every",
    type=SPAN,
    callback=_often,
    help="Run again and again, such as every 24h; for service managers.",
)
@common
def maintain(
    dry_run: bool,
    steps: tuple[str, ...],
    skip: tuple[str, ...],
    reflect: bool,
    consolidate: str,
    gc_days: float | None,
    cluster: str,
    distil_command: str | None,
    distil_url: str | None,
    distil_model: str | None,
    distil_key: str | None,
    distil_price: float,
    judge_rules: bool,
    judge_command: str | None,
    judge_url: str | None,
    judge_model: str | None,
    judge_key: str | None,
    judge_price: float,
    max_tokens: int,
    max_money: float,
    every: float | None,
    bank_path: str | None,
    as_json: bool,
) -> None:
    """Embed, extract, weigh evidence, merge duplicates, resolve conflicts, expire, derive again.

    Exits with 75 if another run is at work on the bank; with --every it tries again as soon as that may be over.
    """
    chosen = [step for step in steps or DEFAULT_STEPS if step not in skip]
    chosen += ["reflect"] if reflect and "reflect" not in chosen else []
    if not chosen:
        raise click.UsageError("--skip leaves no step to run")
    if consolidate == "hard" and "reflect" not in chosen:
        raise click.UsageError("--consolidate hard says what --reflect does with its sources; add --reflect")
    config = MaintainConfig(
        steps=tuple(chosen),
        consolidate=consolidate,
        gc_days=gc_days,
        cluster=cluster,
        max_tokens=max_tokens,
        max_money=max_money,
    )
    judge = _judge(judge_rules, judge_command, judge_url, judge_model, judge_key, judge_price)
    if distil_command is not None and distil_url is not None:
        raise click.UsageError("one model at a time: --distil-command or --distil-url")
    words = None if distil_command is None else _program("--distil-command", distil_command)
    model = _endpoint(Endpoint, "distil", distil_url, distil_model, distil_key, distil_price)
    stop = threading.Event()
    if every is not None:
        for name in (signal.SIGINT, signal.SIGTERM):
            signal.signal(name, lambda _number, _frame: stop.set())
    waits_for: str | None = None
    while not stop.is_set():
        wait = every
        with open_bank(bank_path, create=False) as bank:
            try:
                distil = _distiller(words, model, config)
                _once(bank, config, judge, distil, dry_run=dry_run, as_json=as_json)
                waits_for = None
            except LeaseHeldError as error:
                if waits_for is None or waits_for != error.owner:  # say it once for each run in the way
                    click.echo(f"skep: {error}", err=True)
                if every is None:
                    sys.exit(BUSY)
                waits_for = error.owner
                if error.ends_in is not None:
                    wait = min(every, error.ends_in + AFTER)
        if wait is None or stop.wait(wait):
            return


def _judge(
    rules: bool, command: str | None, url: str | None, model: str | None, key: str | None, price: float
) -> Judge | None:
    """The judge that was asked for."""
    if sum((rules, command is not None, url is not None)) > 1:
        raise click.UsageError("one judge at a time: --judge-rules, --judge-command or --judge-url")
    behind = _endpoint(EndpointJudge, "judge", url, model, key, price)
    if rules:
        return RulesJudge()
    if command is not None:
        return CommandJudge(_program("--judge-command", command))
    return behind


def _distiller(words: list[str] | None, model: Endpoint | None, config: MaintainConfig) -> Distiller | None:
    """The model that was asked for, with nothing spent."""
    if words is not None:
        return CommandDistiller(words, max_tokens=config.max_tokens)
    if model is None:
        return None
    return EndpointDistiller(model, max_tokens=config.max_tokens, max_money=config.max_money)


def _endpoint(
    kind: type[Kind], job: str, url: str | None, model: str | None, key: str | None, price: float
) -> Kind | None:
    """What stands behind --JOB-url, if that is given."""
    if url is None:
        if model is not None or price:
            raise click.UsageError(f"--{job}-model and --{job}-price belong to --{job}-url; add it")
        return None
    if not model:
        raise click.UsageError(f"--{job}-url needs --{job}-model")
    if not price >= 0:
        raise click.BadParameter(f"--{job}-price must be 0 or more")
    return kind(url, model, key=key, price_per_million=price)


def _program(option: str, command: str) -> list[str]:
    """The words of a command whose program is there."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise click.BadParameter(f"{option} cannot be read: {error}") from None
    if not words or shutil.which(words[0]) is None:
        raise click.BadParameter(f"{option}: there is no program {(words or [''])[0]!r} on the path")
    return words


def _once(
    bank: Bank,
    config: MaintainConfig,
    judge: Judge | None,
    distil: Distiller | None,
    *,
    dry_run: bool,
    as_json: bool,
) -> None:
    with progress_bar("maintaining") as progress:
        report = bank.maintain(config, dry_run=dry_run, judge=judge, distil=distil, progress=progress)
    if as_json:
        print_json(report)
        return
    _show(report)


def _show(report: MaintainReport) -> None:
    told = [step for step in report.steps if step.looked_at or step.actions or step.note]
    if not told:
        click.echo("nothing new since the last run")
    for step in told:
        verb = "would do" if report.dry_run else "did"
        click.echo(f"{click.style(step.step, bold=True):>20}  looked at {step.looked_at}, {verb} {len(step.actions)}"
                   + (f"; {step.note}" if step.note else ""))  # fmt: skip
        for action in step.actions[:20]:
            click.echo(click.style(f"              {action}", dim=True))
        if len(step.actions) > 20:
            click.echo(click.style(f"              and {len(step.actions) - 20} more", dim=True))
    if report.queued:
        waits = "1 pair waits" if report.queued == 1 else f"{report.queued} pairs wait"
        click.echo(
            f"{waits} for a judge: `skep judge` shows them; --judge-rules, --judge-command or --judge-url decide"
        )
    if report.spent_tokens:
        click.echo(f"spent {report.spent_tokens} tokens, {report.spent_money:.4f} in money")
