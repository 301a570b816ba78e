"""`skep demo`: the main job, in seconds, in a bank that is thrown away."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import click

from skep.bank.bank import Bank
from skep.cli.app import JOINED, json_option, memory_line, print_json, stage_line
from skep.model import Recalled

NOTES = (
    "The staging database runs PostgreSQL 16 on port 5433",
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
    say = (lambda _text="": None) if quiet else click.echo

    def heading(text: str) -> None:
        say("\n" + click.style(text, bold=True))

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


def _show(found: Recalled, say: object) -> None:
    assert callable(say)
    for hit in found:
        flags = click.style(f" ({', '.join(hit.flags)})", fg="yellow") if hit.flags else ""
        say(f"     {click.style(f'{hit.score:.2f}', fg='green')} {hit.memory.text}{flags}")
    if not found:
        say(click.style(f"     nothing ({found.reason})", dim=True))
