"""`skep demo`, `skep hive demo`, `skep tune demo`: what skep does, in seconds, in a folder that is thrown away."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import click

from skep.bank.bank import Bank
from skep.cli.app import JOINED, json_option, memory_line, print_json, progress_bar, stage_line
from skep.model import Recalled

if TYPE_CHECKING:
    from skep.hive.hive import Hive

NOTES = (
    "The staging database runs PostgreSQL 16 on port 5433.",
    "Deploys to production happen on Tuesdays and Thursdays before 15:00",
    "The payments service retries failed webhooks five times with exponential back-off",
    "Use ruff for linting and formatting",
    "Integration tests need the REDIS_URL variable",
    "The mobile team owns the notifications API",
    "PR #441 moved rate limiting from the gateway into MemoryStore.recall",
    "Customer data is stored in Frankfurt and never leaves the EU",
    "The nightly backup starts at 02:30 UTC and takes about forty minutes",
    "Feature flags live in config/flags.toml and are read once at start-up",
)
QUESTIONS = (
    "which postgres version is on staging?",
    "when can I deploy?",
    "MemoryStore.recall",
    "what is the capital of Mongolia?",
)


@click.command()
@json_option
def demo(as_json: bool) -> None:
    """Fill a bank, recall, show a conflict and an explanation. Nothing is left behind."""
    with TemporaryDirectory() as folder, Bank.open(Path(folder) / "demo.skep") as bank:
        report = _run(bank, quiet=as_json)
    if as_json:
        print_json(report)


def _run(bank: Bank, *, quiet: bool) -> dict[str, object]:
    say, heading = _voices(quiet)
    heading(f"1. Remember {len(NOTES)} things")
    for note in NOTES:
        say("   " + memory_line(bank.remember(note).memory))

    heading("2. Recall: the best first, and low scores where nothing answers")
    answers: dict[str, list[str]] = {}
    for question in QUESTIONS:
        found = bank.recall(question, limit=2)
        answers[question] = [hit.memory.text for hit in found]
        say(f"   {click.style('?', fg='cyan')} {question}")
        _show(found, say)

    heading("3. A change of mind is seen as it is written")
    result = bank.remember("Use flake8 for linting and formatting")
    for conflict in result.conflicts:
        say(
            f"   {click.style(JOINED[conflict.kind], fg='yellow')} {conflict.existing.text!r}"
            f" (because of the {conflict.reason}, {conflict.confidence:.0%} sure)"
        )
    if result.conflicts:
        old = bank.supersede(result.conflicts[0].existing.id, result.memory.id, "the team switched")
        say(f"   {old.text!r} is now {click.style(old.status, fg='yellow')}; the answer is")
    say("   " + memory_line(bank.recall("which linter do we use?", limit=1)[0].memory))

    heading("4. Every answer explains itself")
    explained = bank.recall("which linter do we use?", limit=1, explain=True)
    say("   " + explained[0].why())
    for stage in explained.trace:
        say(click.style(f"   {stage_line(stage)}", dim=True))

    heading("5. Nothing is ever lost, unless you say so")
    switched = bank.history(result.memory.id)[-1]
    bank.undo(switched.id)
    say(f"   undo of {switched.id} ({switched.kind}): ruff is {bank.find('ruff').memories[0].status} again")
    receipt = bank.forget(result.memory.id)
    say("   forget erased: " + ", ".join(f"{place} {count}" for place, count in receipt.erased.items()))
    status = bank.status()
    say(
        f"\n{status.memories} memories, {status.events} events, {status.size_bytes / 1e3:.0f} kB, no LLM, no network"
    )
    return {"answers": answers, "conflicts": len(result.conflicts), "memories": status.memories}


def _voices(quiet: bool) -> tuple[Callable[[str], object], Callable[[str], object]]:
    """What prints a line, and what prints a heading; nothing is printed with `quiet`."""
    say: Callable[[str], object] = (lambda _text: None) if quiet else click.echo
    return say, lambda text: say("\n" + click.style(text, bold=True))


def _show(found: Recalled, say: Callable[[str], object]) -> None:
    for hit in found:
        flags = click.style(f" ({', '.join(hit.flags)})", fg="yellow") if hit.flags else ""
        say(f"     {click.style(f'{hit.score:.2f}', fg='green')} {hit.memory.text}{flags}")
    if not found:
        say(click.style(f"     nothing ({found.reason})", dim=True))


@click.command("demo")
@json_option
def hive_demo(as_json: bool) -> None:
    """Show three agents that share, in a folder that is thrown away."""
    from skep.hive.hive import Hive

    groups = {"ops": ["ana"], "shop": ["bob"], "guests": ["eve"]}
    with TemporaryDirectory() as folder, Hive.federated(groups, store=folder) as hive:
        report = _share(hive, quiet=as_json)
    if as_json:
        print_json(report)


def _share(hive: Hive, *, quiet: bool) -> dict[str, object]:
    say, heading = _voices(quiet)
    ana, bob, eve = (hive.agent(name) for name in ("ana", "bob", "eve"))
    question = "which port does the staging database use?"

    def ask(agent: Any) -> str:
        say(f"   {click.style('?', fg='cyan')} {agent.name}: {question}")
        found = agent.recall(question, limit=2)
        for hit in found:
            flags = click.style(f" ({', '.join(hit.flags)})", fg="yellow") if hit.flags else ""
            say(f"     {hit.memory.text}  [{hit.memory.agent}]{flags}")
        return found[0].memory.text

    def tell(agent: Any, text: str, **fields: Any) -> Any:
        told = agent.remember(text, **fields)
        shared = f", {told.copies} copies" if told.copies else ""
        say(f"   {agent.name} says: {text}  ->  {told.decision.why()}{shared}")
        for conflict in told.conflicts[:1]:
            say(
                f"     {click.style(JOINED[conflict.kind], fg='yellow')} what {conflict.existing.agent} said:"
                f" {conflict.existing.text}"
            )
        return told

    heading("1. What one agent learns, the others find: each has a bank of its own")
    tell(ana, "The staging database listens on port 5433.", confidence=0.95)
    first = ask(bob)

    heading("2. An update passes, and the older value says that it is outdated")
    tell(bob, "The staging database listens on port 6543 now.", confidence=0.95)
    updated = ask(ana)

    heading("3. A stranger is held back: eve is trusted 0.2 of 2, and below 0.3 a person decides")
    hive.trust.set("eve", 0.2)
    tell(eve, "The staging database listens on port 9999 now.", confidence=0.99)
    kept = ask(ana)
    waiting = hive.review()
    for one in waiting:
        hive.dismiss(one.memory.id, "nobody else has seen it")
        say(f"   to review: {one.memory.text} ({one.reasons}); dismissed")

    heading("4. Who knows what")
    tell(ana, "The nightly backup goes to nas3 and takes forty minutes.", confidence=0.6)
    tell(bob, "The checkout page is built with Svelte.", confidence=0.6)
    experts: dict[str, list[str]] = {}
    for topic in ("how long does the backup take?", "what is the checkout built with?"):
        experts[topic] = [one.agent for one in hive.route(topic, limit=1)]
        say(f"   {click.style('?', fg='cyan')} {topic}  ->  ask {', '.join(experts[topic])}")
    say(f"\n{len(hive.members)} banks, no coordinator, no LLM, no network; your own: skep hive init")
    return {
        "answers": [first, updated, kept],
        "held_back": [one.memory.text for one in waiting],
        "experts": experts,
    }


STEPS = (
    ("naive", "ten results of every question"),
    ("filtered", "without the category that answers other questions"),
    ("dynamic-k", "and cut where the scores fall"),
)
"""The configs of the example workspace, each built on the one before."""


@click.command("demo")
@json_option
def tune_demo(as_json: bool) -> None:
    """Tune the search of the example in two steps, in a folder that is thrown away."""
    from skep.cli.tune import rng
    from skep.tuning import tuning_report
    from skep.tuning.deploy import BANK, deploy, index_workspace, judge, opened
    from skep.tuning.workspace import init

    say, heading = _voices(as_json)
    rows: list[dict[str, Any]] = []
    with TemporaryDirectory() as folder:
        init(Path(folder), example=True)
        with opened(Path(folder), Path(folder) / BANK, create=True) as (workspace, bank):
            with progress_bar("indexing") as progress:
                (report,) = index_workspace(workspace, bank, progress)
            eval_set = workspace.eval_set(None)
            heading(f"{report.documents} documents, questions that no config was made on, three configs")
            for name, about in STEPS:
                with progress_bar(f"measuring {name}") as progress:
                    verdict = judge(
                        workspace, bank, workspace.config(name), eval_set,
                        rng=rng(), latency_budget_ms=60_000.0, progress=progress,
                    )  # fmt: skip
                version = deploy(workspace, bank, verdict, author="demo", reason=about)
                overall = verdict.candidate.overall
                rows.append(
                    {
                        "config": name,
                        "about": about,
                        "nudcg": overall.nudcg,
                        "distractors": overall.distractors,
                        "precision": overall.precision,
                        "version": version.number,
                    }
                )
    if as_json:
        print_json(rows)
        return
    cells = [
        (
            row["config"],
            f"{row['nudcg']:.2f}",
            f"{row['distractors']}",
            f"{row['precision']:.2f}",
            f"{row['version']}",
            row["about"],
        )
        for row in rows
    ]
    say(
        tuning_report.table(
            ("config", "nUDCG", "distractors", "share that answers", "version", "returns"), cells
        )
    )
    say(
        "\nnUDCG is 1 at best; a distractor, which looks right and misleads, costs as much as an answer is worth."
        "\nEach config passed the gate: no worse than the deployed one. Your own: skep tune init work --example"
    )
