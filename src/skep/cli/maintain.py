"""Commands of upkeep: maintain, judge, redact; and of outcomes: learn, recommend, stats."""

from __future__ import annotations

import shlex
import shutil
import signal
import sys
import threading
from typing import Literal

import click

from skep.bank.bank import Bank
from skep.cli.app import (
    SPAN,
    asked_scope,
    bank_exists,
    common,
    memory_line,
    open_bank,
    print_json,
    progress_bar,
    scope_of,
    scope_options,
)
from skep.confidence import FADING
from skep.errors import LeaseHeldError
from skep.lifecycle.judge import DECISIONS, Judge, LLMJudge, RulesJudge
from skep.lifecycle.maintain import DEFAULT_STEPS, STEPS, MaintainConfig
from skep.lifecycle.maintenance_run import MaintainReport
from skep.lifecycle.summarise import Distiller
from skep.llm.chat_services import ANTHROPIC_CHAT, OPENAI_CHAT
from skep.llm.language_model import LLM, CommandSource, ServiceSource

COMMAND_SECONDS = 120.0
"""Seconds that a program may take to answer."""

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
@click.option(
    "--decay",
    type=click.Choice(sorted(FADING)),
    default="none",
    show_default=True,
    help="Let facts fade that nothing supports, and set aside those below 0.3; look at --dry-run first.",
)
@click.option(
    "--halve", is_flag=True, help="A clear contradiction halves the confidence of both until it is decided."
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
    "--seconds",
    type=float,
    help="Stop after about so long; what was done stays, and the next run goes on there.",
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
    decay: Literal["none", "days", "hours"],
    halve: bool,
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
    seconds: float | None,
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
        decay=decay,
        halve=halve,
        gc_days=gc_days,
        cluster=cluster,
        max_tokens=max_tokens,
        max_money=max_money,
        seconds=seconds,
    )
    judge = _judge(judge_rules, judge_command, judge_url, judge_model, judge_key, judge_price)
    if distil_command is not None and distil_url is not None:
        raise click.UsageError("one model at a time: --distil-command or --distil-url")
    words = None if distil_command is None else _program("--distil-command", distil_command)
    model = _endpoint("distil", distil_url, distil_model, distil_key, distil_price)
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
    behind = _endpoint("judge", url, model, key, price)
    if rules:
        return RulesJudge()
    if command is not None:
        return LLMJudge(LLM(CommandSource(_program("--judge-command", command)), timeout=COMMAND_SECONDS))
    return None if behind is None else LLMJudge(behind)


def _distiller(words: list[str] | None, model: LLM | None, config: MaintainConfig) -> Distiller | None:
    """The model that was asked for, with nothing spent."""
    if words is not None:
        model = LLM(CommandSource(words), timeout=COMMAND_SECONDS)
    if model is None:
        return None
    return Distiller(model, max_tokens=config.max_tokens, max_money=config.max_money)


def _endpoint(job: str, url: str | None, model: str | None, key: str | None, price: float) -> LLM | None:
    """The model behind --JOB-url, if that is given; the address tells the dialect."""
    if url is None:
        if model is not None or price:
            raise click.UsageError(f"--{job}-model and --{job}-price belong to --{job}-url; add it")
        return None
    if not model:
        raise click.UsageError(f"--{job}-url needs --{job}-model")
    if not price >= 0:
        raise click.BadParameter(f"--{job}-price must be 0 or more")
    anthropic = url.partition("?")[0].rstrip("/").endswith("/messages")
    source = ServiceSource(ANTHROPIC_CHAT if anthropic else OPENAI_CHAT, key, url)
    return LLM(source, model, price=price)


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
    try:
        with progress_bar("maintaining") as progress:
            report = bank.maintain(config, dry_run=dry_run, judge=judge, distil=distil, progress=progress)
    except KeyboardInterrupt:
        click.echo("stopped; what was done stays. Run it again to go on there", err=True)
        sys.exit(130)

    from skep.cli.upkeep import project_root
    from skep.integrations.anchor_check import report as verified
    from skep.integrations.anchor_check import verify

    root = project_root(bank)
    checked = None if root is None else verify(bank, root, dry_run=dry_run)
    if as_json:
        print_json(report)
        return
    _show(report)
    if checked is not None and (checked.findings or checked.back):
        click.echo(verified(checked))


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
    if report.stopped:
        click.echo(f"the time was over at {report.stopped!r}; run it again to go on there")
    if report.queued:
        waits = "1 pair waits" if report.queued == 1 else f"{report.queued} pairs wait"
        click.echo(
            f"{waits} for a judge: `skep judge` shows them; --judge-rules, --judge-command or --judge-url decide"
        )
    if report.spent_tokens:
        click.echo(f"spent {report.spent_tokens} tokens, {report.spent_money:.4f} in money")


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


@click.command()
@click.argument("text", required=False)
@click.option("--kind", "kinds", multiple=True, help="Look for this kind only; may be repeated.")
@click.option(
    "--set",
    "wanted",
    multiple=True,
    help="From now on take this kind out of what is stored; may be repeated.",
)
@click.option("--off", is_flag=True, help="From now on take nothing out but what is marked <private>.")
@click.option("--reset", is_flag=True, help="Back to the usual kinds.")
@common
def redact(
    text: str | None,
    kinds: tuple[str, ...],
    wanted: tuple[str, ...],
    off: bool,
    reset: bool,
    bank_path: str | None,
    as_json: bool,
) -> None:
    """Print TEXT (or standard input, for -) without secrets and personal data; nothing is stored.

    Without TEXT: show which kinds the bank takes out, or set them. A kind is one of those listed, or `secrets`,
    `personal` or `all`. The setting holds for every write into this bank, and it does not travel to other replicas.
    """
    from skep.text import redaction

    if (wanted or off or reset) and (text is not None or kinds or (bool(wanted) + off + reset) > 1):
        raise click.UsageError("--set, --off and --reset each stand alone")
    chosen = redaction.clean_kinds("--kind", kinds) if kinds else None
    if text is not None:
        if chosen is None and bank_exists(bank_path):
            with open_bank(bank_path, create=False) as bank:
                chosen = redaction.kinds_of(bank.setting(redaction.SETTING))
        kinds = redaction.USUAL if chosen is None else chosen
        done = redaction.redact(sys.stdin.read() if text == "-" else text, kinds)
        if as_json:
            print_json(done)
            return
        click.echo(done.text)
        if done.kinds:
            click.echo(f"taken out: {', '.join(done.kinds)}", err=True)
        return
    with open_bank(bank_path, create=bool(wanted) or off) as bank:
        if wanted or off or reset:
            value = None if reset else list(redaction.clean_kinds("--set", wanted))
            bank.set_setting(redaction.SETTING, value)
        inforce = redaction.kinds_of(bank.setting(redaction.SETTING))
        taken = bank.stats()["redacted"]
    if as_json:
        print_json({"kinds": inforce, "redacted": taken})
        return
    click.echo("taken out: " + (", ".join(inforce) or "nothing"))
    others = [kind for kind in redaction.KINDS if kind not in inforce]
    click.echo("left in: " + (", ".join(others) or "nothing"))
    if taken:
        click.echo("so far: " + ", ".join(f"{kind} {count}" for kind, count in taken.items()))


commands = [redact]


def _graded(outcome: str) -> str | float:
    """An outcome as it is, or as a grade where it is a number."""
    try:
        return float(outcome)
    except ValueError:
        return outcome


@click.command()
@click.argument("task")
@click.argument("outcome")
@click.option("--used", multiple=True, help="The id of a memory that was used; may be repeated.")
@click.option(
    "--done", "steps", multiple=True, help="A step of the task, such as 'run_tests(unit)'; in order."
)
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
    steps: tuple[str, ...],
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
    """Record that TASK ended in OUTCOME, and learn from it.

    OUTCOME is success, failure, or a grade from 0 to 1.
    """
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
            _graded(outcome),
            used=used,
            steps=steps,
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
@click.option("--task-type", help="Only this kind of task.")
@click.option("--keep", "kept", is_flag=True, help="Make a procedure of each, which `skep recommend` offers.")
@asked_scope
@common
def strategies(
    task_type: str | None,
    kept: bool,
    scope: dict[str, str] | None,
    include_shared: bool,  # noqa: ARG001 - analysis looks at what is shared, too
    bank_path: str | None,
    as_json: bool,
) -> None:
    """Show which tools and memories made tasks go well, and which did not, by kind of task."""
    from skep.agent.strategies import analyse, keep

    with open_bank(bank_path, create=False) as bank:
        found = analyse(bank, task_type=task_type, scope=scope)
        if kept:
            keep(bank, found, scope=scope)
    if as_json:
        print_json(found)
        return
    for each in found:
        click.echo(f"{click.style(each.text, bold=True)}  ({each.success_rate:.0%} of {each.outcomes})")
        for part in each.parts:
            click.echo(click.style(f"    {part.line()}", dim=True))
    if not found:
        click.echo("no outcome tells a strategy yet; see docs/how-to/learning.md", err=True)


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
