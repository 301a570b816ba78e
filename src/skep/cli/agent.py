"""`skep agent`: agents that learn, answer and work through a queue, on a bank or in a hive."""

from __future__ import annotations

import functools
import os
import re
import signal
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

import click

from skep.cli.app import SPAN, bank_option, json_option, open_bank, outer_bank, print_json
from skep.config import HIVE

if TYPE_CHECKING:
    from skep.agent.agent import Agent
    from skep.hive.hive import Hive
    from skep.llm.language_model import LLM
    from skep.storage.task_queue import Task, TaskQueue

F = TypeVar("F", bound=Callable[..., Any])
NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,99}")
FAILED = 1


@click.group()
def group() -> None:
    """Agents that learn from texts, answer with citations, and work through a queue.

    An agent works on a bank, or with --hive as a member of a hive; it is the same agent. A language model is optional:
    name one with --llm, such as ollama:llama3.2, anthropic:MODEL, openai:MODEL, gemini:MODEL or 'command:codex exec -'.
    """


def where_options(command: F) -> F:
    """The agent's name, and where its memory is."""
    for option in (
        click.option(
            "--hive", "manifest", type=click.Path(), help="The manifest of its hive; else it has a bank."
        ),
        click.option("--name", default="agent", show_default=True, help="The agent's name."),
    ):
        command = option(command)
    return bank_option(command)


def llm_options(command: F) -> F:
    """The language model and what it may spend; the command gets the model, or None."""

    @functools.wraps(command)
    def with_llm(
        *args: Any,
        llm_spec: str | None,
        llm_url: str | None,
        llm_price: float,
        max_tokens: int,
        max_money: float | None,
        **rest: Any,
    ) -> Any:
        return command(*args, llm=_llm(llm_spec, llm_url, llm_price, max_tokens, max_money), **rest)

    made: Any = with_llm
    for option in (
        click.option("--max-money", type=float, help="Spend at most this much; needs --llm-price."),
        click.option(
            "--max-tokens", type=int, default=100_000, show_default=True, help="Spend at most so many tokens."
        ),
        click.option("--llm-price", type=float, default=0.0, help="The price of a million tokens."),
        click.option("--llm-url", help="Another address that speaks the same dialect."),
        click.option("--llm", "llm_spec", envvar="SKEP_LLM", help="The language model; none: rules."),
    ):
        made = option(made)
    return made


def _llm(
    spec: str | None, url: str | None, price: float, max_tokens: int, max_money: float | None
) -> LLM | None:
    if spec is None:
        if url or max_money is not None:
            raise click.UsageError("--llm-url and --max-money belong to --llm; add it")
        return None
    from skep.llm import Budget, open_llm

    budget = Budget(max_tokens=max_tokens, max_money=max_money)
    return open_llm(spec, base_url=url, price=price, budget=budget, environ=os.environ)


class Home(NamedTuple):
    """An agent, where its queue lies, and its hive if it has one."""

    agent: Agent
    queue: Path
    hive: Hive | None


@contextmanager
def _home(
    name: str, manifest: str | None, bank_path: str | None, llm: LLM | None = None, withhold: float = 0.0
) -> Generator[Home]:
    """The agent, on its bank or in its hive."""
    from skep.agent.agent import Agent

    if not NAME.fullmatch(name):
        raise click.BadParameter(f"--name must be letters, digits, '.', '-' and '_', not {name!r}")
    if manifest is not None and (bank_path or outer_bank()):
        raise click.UsageError("an agent has a bank or a hive: give --bank or --hive")
    if manifest is not None:
        from skep.hive.controller import Controller
        from skep.hive.hive_manifest import load

        controller = Controller(load(manifest, os.environ), folder=Path(manifest).parent)
        folder = controller.store or Path(manifest).parent
        with controller.open() as hive:
            agent = Agent(hive.agent(name), name, llm=llm, withhold=withhold)
            yield Home(agent, folder / "tasks" / f"{name}.sqlite", hive)
        return
    if ((bank_path or outer_bank()) or "").startswith(HIVE):
        raise click.UsageError("for an agent of a hive give --hive hive.yaml --name NAME in place of --bank")
    with open_bank(bank_path) as bank:
        file = Path(bank.file or "bank.skep")
        agent = Agent(bank, name, llm=llm, withhold=withhold)
        yield Home(agent, file.with_name(f"{file.name}.tasks") / f"{name}.sqlite", None)


@contextmanager
def _queue(path: Path) -> Generator[TaskQueue]:
    from skep.clock import system_now
    from skep.storage.task_queue import TaskQueue

    queue = TaskQueue(path, system_now)
    try:
        yield queue
    finally:
        queue.close()


@group.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(allow_dash=True))
@click.option("--source", help="Where it comes from; by default the file's name.")
@where_options
@llm_options
@json_option
def learn(
    files: tuple[str, ...],
    source: str | None,
    name: str,
    manifest: str | None,
    bank_path: str | None,
    llm: LLM | None,
    as_json: bool,
) -> None:
    """Learn the facts of FILES, Markdown or plain text; - is standard input. Again adds nothing."""
    with _home(name, manifest, bank_path, llm) as home:
        for file in files:
            text, named = _read(file)
            told = home.agent.learn_from_content(text, source or named)
            if as_json:
                print_json(told)
                continue
            click.echo(told.line())
            for each in told.rejected:
                click.echo(f"  rejected: {each.text!r}: {each.reason}")
            for memory in told.quarantined:
                click.echo(f"  quarantined: {memory.id} {memory.text!r:.80}")


def _read(file: str) -> tuple[str, str]:
    """The text of a file and its name."""
    if file == "-":
        return sys.stdin.read(), "standard input"
    try:
        return Path(file).read_text(encoding="utf-8"), file
    except UnicodeDecodeError as error:
        raise click.ClickException(f"{file} is no UTF-8 text ({error.reason}); convert it first") from None


@group.command()
@click.argument("question")
@where_options
@llm_options
@json_option
def ask(
    question: str,
    name: str,
    manifest: str | None,
    bank_path: str | None,
    llm: LLM | None,
    as_json: bool,
) -> None:
    """Answer QUESTION from memory, with citations; without a model the best passages are quoted."""
    with _home(name, manifest, bank_path, llm) as home:
        found = home.agent.answer(question)
    if as_json:
        print_json(found)
    else:
        click.echo(found.line())
        if found.spent.calls:
            click.echo(f"spent: {found.spent.line()}", err=True)


@group.command()
@click.argument("kind", type=click.Choice(["learn", "ask", "feed-complete", "tick"]))
@click.argument("what", required=False)
@click.option("--source", help="Of a text: where it comes from; by default the file's name.")
@click.option("--feed", help="Of a text: the feed it belongs to.")
@click.option("--expected", type=int, help="Of a feed: how many texts there should be.")
@where_options
@json_option
def send(
    kind: str,
    what: str | None,
    source: str | None,
    feed: str | None,
    expected: int | None,
    name: str,
    manifest: str | None,
    bank_path: str | None,
    as_json: bool,
) -> None:
    """Put a task into an agent's queue: learn FILE, ask QUESTION, feed-complete FEED, or tick.

    It is durable when this returns; `skep agent run` does it.
    """
    from skep.agent.runner import put, work_of

    given: dict[str, Any] = {"kind": kind.replace("-", "_")}
    if kind != "tick" and not what:
        raise click.UsageError(f"say what to {kind.split('-', maxsplit=1)[0]}")
    if kind == "learn":
        text, named = _read(cast("str", what))
        given |= {"text": text, "source": source or named} | ({"feed": feed} if feed else {})
    elif kind == "ask":
        given["question"] = what
    elif kind == "feed-complete":
        if expected is None:
            raise click.UsageError("feed-complete needs --expected, the number of texts")
        given |= {"feed": what, "expected": expected}
    with _home(name, manifest, bank_path) as home, _queue(home.queue) as queue:
        task = put(queue, work_of(given))
    if as_json:
        print_json(task)
    else:
        click.echo(f"task {task.id}: {task.kind}")


@group.command()
@click.argument("task_id", required=False, type=int)
@click.option("--status", type=click.Choice(["waiting", "taken", "done", "failed"]), help="Only these.")
@click.option("--limit", default=20, show_default=True, help="At most this many, newest first.")
@where_options
@json_option
def tasks(
    task_id: int | None,
    status: str | None,
    limit: int,
    name: str,
    manifest: str | None,
    bank_path: str | None,
    as_json: bool,
) -> None:
    """Show an agent's tasks, or one with its result."""
    with _home(name, manifest, bank_path) as home, _queue(home.queue) as queue:
        found = [queue.get(task_id)] if task_id is not None else queue.tasks(cast("Any", status), limit)
    if as_json:
        print_json(found if task_id is None else found[0])
        return
    for task in found:
        click.echo(_line(task))
    if not found:
        click.echo("no tasks", err=True)


def _line(task: Task) -> str:
    said = f"task {task.id}: {task.kind}, {task.status}"
    if task.status == "done" and task.kind == "ask":
        return f"{said}: {task.result['answer']}"
    if task.status == "done" and task.kind == "learn":
        return f"{said}: {len(task.result['facts'])} facts by {task.result['how']}"
    return said + (f": {task.error}" if task.error else "")


@group.command()
@click.argument("task_id", type=int)
@where_options
def retry(task_id: int, name: str, manifest: str | None, bank_path: str | None) -> None:
    """Let a task that failed wait again."""
    with _home(name, manifest, bank_path) as home, _queue(home.queue) as queue:
        click.echo(_line(queue.retry(task_id)))


@group.command()
@click.option("--once", is_flag=True, help="End when nothing is left to do now.")
@click.option("--tick", type=SPAN, help="Keep the bank clean so often, such as 1h.")
@click.option(
    "--health-port", type=click.IntRange(0, 65_535), help="Serve /health on this port of this machine."
)
@click.option(
    "--withhold", type=click.FloatRange(0, 1), default=0.0, help="Leave out one hit of so many recalls."
)
@click.option(
    "--lease", type=SPAN, default=30.0, show_default=True, help="Seconds that a task is held by a dead run."
)
@where_options
@llm_options
def run(
    once: bool,
    tick: float | None,
    health_port: int | None,
    withhold: float,
    lease: float,
    name: str,
    manifest: str | None,
    bank_path: str | None,
    llm: LLM | None,
) -> None:
    """Work through an agent's queue until stopped (SIGTERM or Ctrl-C ends after the task at hand).

    When it dies in the middle of a task, the next run takes it again. With --once, the exit code is 1 if a task failed.
    """
    from skep.agent.runner import Runner, health_server

    failed = False
    with _home(name, manifest, bank_path, llm, withhold) as home, _queue(home.queue) as queue:
        intake = None
        if home.hive is not None:
            from skep.agent.intake import Intake

            intake = Intake(home.hive, name, queue)

        def told(task: Task) -> None:
            nonlocal failed
            failed = failed or task.status == "failed"
            click.echo(_line(task))
            if intake is not None:
                intake.answer(task)

        runner = Runner(home.agent, queue, lease=lease, intake=intake, notify=told)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda _number, _frame: runner.stop())
        with nullcontext() if health_port is None else health_server(runner, health_port) as port:
            if port is not None:
                click.echo(f"health: http://127.0.0.1:{port}/health", err=True)
            click.echo(f"{name} works through {home.queue}", err=True)
            ended = runner.run(tick=tick, once=once)
        spent = "" if llm is None else f"; {llm.spent.line()}"
        click.echo(f"{name} stopped after {ended} tasks{spent}", err=True)
    if once and failed:
        sys.exit(FAILED)


@group.command()
@click.option(
    "--seeds", default=10, show_default=True, type=click.IntRange(1, 1000), help="Scripts to work through."
)
@llm_options
@json_option
def benchmark(
    seeds: int,
    llm: LLM | None,
    as_json: bool,
) -> None:
    """Measure if memory helps: scripted tasks with and without it, errors counted, in banks of its own."""
    from skep.agent import benefit_suite

    found = benefit_suite.benchmark(range(seeds), llm=llm)
    if as_json:
        print_json(found)
        return
    for benefit in found:
        click.echo(benefit.line())
    if llm is not None:
        click.echo(llm.spent.line(), err=True)


@click.command()
@bank_option
@json_option
def report(bank_path: str | None, as_json: bool) -> None:
    """Tell on one page what memory was worth, from the outcomes of tasks.

    It needs outcomes (`skep learn`, `Agent.act`), and recalls that leave out a hit now and then (withhold).
    """
    from skep.agent.usefulness_report import usefulness

    with open_bank(bank_path, create=False) as bank:
        found = usefulness(bank)
    print_json(found) if as_json else click.echo(found.page())
