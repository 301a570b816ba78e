"""`skep demo`: the main job, in seconds, in a bank that is thrown away.

A small story for the demo, made up from a seed: many facts, and questions that each need one of them.

The demo: twenty agents learn disjoint parts of a story, then each is asked everything.

It runs the same story through four set-ups (everybody alone, flat, federated, sharded), counts how many
questions were answered, what each cost, and how fast twenty separate hives agree when they gossip.

Small plots without a library: bars and curves for the terminal, and the same curve as SVG.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

import click
import msgspec

from skep.bank.bank import Bank
from skep.cli.app import JOINED, json_option, memory_line, print_json, stage_line
from skep.embedding.embedder import default_embedder
from skep.hive.gateway import HivePolicy
from skep.hive.gossip import Gossip, Round
from skep.hive.hive import Hive
from skep.model import Recalled

if TYPE_CHECKING:
    from skep.embedding.embedder import Embedder


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

    heading("2. Recall: the answer first, and nothing when nothing answers")
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


_KEEPERS = (
    "Ada", "Bruno", "Carla", "Dmitri", "Elif", "Farid", "Greta", "Hugo", "Iris", "Jonas",
    "Kira", "Luis", "Mona", "Nils", "Olga", "Pavel", "Quinn", "Rosa", "Sven", "Tara",
)  # fmt: skip
_PLACES = (
    "the mill", "the north meadow", "the lime avenue", "the chapel garden", "the old quarry", "the river bend",
    "the school roof", "the south orchard", "the railway bank", "the herb terrace",
)  # fmt: skip
_FLOWERS = ("lime", "clover", "acacia", "heather", "buckwheat", "lavender", "chestnut", "rapeseed")
_COLOURS = ("blue", "yellow", "white", "green", "red", "grey", "orange", "violet")


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """One fact of the story, and a question that it answers."""

    fact: str
    question: str


def story(count: int, seed: int = 7) -> list[Part]:
    """The parts of a story about a village of beekeepers; as many as asked for, all different."""
    rng = random.Random(seed)
    parts: dict[str, Part] = {}
    number = 0
    while len(parts) < count:
        keeper = _KEEPERS[number % len(_KEEPERS)]
        place, flower, colour = rng.choice(_PLACES), rng.choice(_FLOWERS), rng.choice(_COLOURS)
        hive, amount, day = 100 + number, rng.randint(4, 38), rng.randint(1, 28)
        kinds = (
            (f"{keeper} keeps hive {hive} at {place}.", f"Where does {keeper} keep hive {hive}?"),
            (f"Hive {hive} gave {amount} kilos of {flower} honey.", f"How much honey did hive {hive} give?"),
            (f"The lid of hive {hive} is painted {colour}.", f"What colour is the lid of hive {hive}?"),
            (
                f"{keeper} saw the queen of hive {hive} on May {day}.",
                f"When was the queen of hive {hive} seen?",
            ),
            (f"Hive {hive} swarmed towards {place}.", f"Where did the bees of hive {hive} swarm to?"),
        )
        fact, question = kinds[number % len(kinds)]
        parts[fact] = Part(fact=fact, question=question)
        number += 1
    return list(parts.values())


LIMIT = 5


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """How one set-up did."""

    topology: str
    members: int
    asked: int
    answered: int
    recall: float
    """Share of questions whose fact was among the first five."""
    cpu_ms: float
    """Processor time of one question, the median."""
    members_asked: float
    candidates: float
    """Memories that reached the asker per question."""


class DemoReport(msgspec.Struct, frozen=True, kw_only=True):
    """What the demo shows."""

    agents: int
    facts: int
    outcomes: tuple[Outcome, ...]
    rounds: tuple[Round, ...]


def run_demo(
    *,
    agents: int = 20,
    facts: int = 200,
    questions: int = 5,
    seed: int = 7,
    embedder: Embedder | None = None,
    progress: Callable[[str], None] | None = None,
) -> DemoReport:
    """Run everything.

    Args:
        agents: How many agents.
        facts: How many facts the story has; dealt out evenly, each to one agent.
        questions: How many questions each agent is asked, about anybody's facts.
        seed: Decides the story, who learns what, and who is asked what.
        embedder: What turns text into vectors.
        progress: Told what happens.
    """
    embedder = embedder or default_embedder()
    names = [f"agent-{n:02}" for n in range(agents)]
    parts = story(facts, seed)
    dealt = {name: parts[n::agents] for n, name in enumerate(names)}
    policy = HivePolicy(rate=1e6, burst=10**6, deadline=30.0, hedge_after=10.0)
    groups = {f"group-{g}": names[g::4] for g in range(min(4, agents))}
    outcomes: list[Outcome] = []
    setups: tuple[tuple[str, Callable[[], Hive]], ...] = (
        ("flat", lambda: Hive.flat(names, policy=policy, embedder=embedder)),
        ("federated", lambda: Hive.federated(groups, policy=policy, embedder=embedder)),
        ("sharded", lambda: Hive.sharded(names, policy=policy, embedder=embedder)),
    )
    say = progress or _silent
    say("alone: no hive")
    outcomes.append(_alone(dealt, parts, questions, seed, embedder))
    for kind, make in setups:
        say(f"{kind}: {agents} agents learn {facts} facts")
        with make() as hive:
            for name, own in dealt.items():
                hive.agent(name).remember_many([part.fact for part in own])
            outcomes.append(_ask_all(kind, hive, names, parts, questions, seed))
    say("gossip: twenty separate hives until they agree")
    rounds = _gossip(dealt, seed, embedder)
    return DemoReport(agents=agents, facts=facts, outcomes=tuple(outcomes), rounds=tuple(rounds))


def _silent(line: str) -> None:
    """Say nothing."""


def _alone(
    dealt: dict[str, list[Part]], parts: Sequence[Part], questions: int, seed: int, embedder: Embedder
) -> Outcome:
    banks = {name: Bank.open(":memory:", embedder=embedder) for name in dealt}
    for name, own in dealt.items():
        banks[name].remember_many([part.fact for part in own])
    rng = random.Random(seed)
    right, times = 0, list[float]()
    for bank in banks.values():
        for part in rng.sample(list(parts), questions):
            started = time.process_time()
            hits = bank.recall(part.question, limit=LIMIT)
            times.append(time.process_time() - started)
            right += any(hit.memory.text == part.fact for hit in hits)
    for bank in banks.values():
        bank.close()
    return _outcome("alone", 1, right, times, [1] * len(times), [0] * len(times))


def _ask_all(
    kind: str, hive: Hive, names: Sequence[str], parts: Sequence[Part], questions: int, seed: int
) -> Outcome:
    rng = random.Random(seed)
    right, times, asked, sent = 0, list[float](), list[int](), list[int]()
    for name in names:
        bank = hive.agent(name)
        for part in rng.sample(list(parts), questions):
            started = time.process_time()
            answer = bank.recall(part.question, limit=LIMIT)
            times.append(time.process_time() - started)
            asked.append(getattr(answer, "asked", 1))
            sent.append(getattr(answer, "candidates", 0))
            right += any(hit.memory.text == part.fact for hit in answer)
    return _outcome(kind, len(hive.members), right, times, asked, sent)


def _outcome(
    kind: str, members: int, right: int, times: list[float], asked: list[int], sent: list[int]
) -> Outcome:
    count = len(times)
    return Outcome(
        topology=kind,
        members=members,
        asked=count,
        answered=right,
        recall=right / count,
        cpu_ms=sorted(times)[count // 2] * 1000,
        members_asked=sum(asked) / count,
        candidates=sum(sent) / count,
    )


def _gossip(dealt: dict[str, list[Part]], seed: int, embedder: Embedder) -> list[Round]:
    banks = {name: Bank.open(":memory:", embedder=embedder) for name in dealt}
    for name, own in dealt.items():
        banks[name].remember_many([part.fact for part in own])
    rounds = Gossip(banks, rng=random.Random(seed), batch=20).run(limit=50)
    for bank in banks.values():
        bank.close()
    return rounds


_EIGHTHS = " ▏▎▍▌▋▊▉█"


def bars(values: Mapping[str, float], *, width: int = 40, most: float | None = None) -> list[str]:
    """One line per value, as long as its share of the largest.

    >>> bars({"a": 1.0, "b": 0.5}, width=4)
    ['a  ████  1.00', 'b  ██    0.50']
    """
    top = most or max(values.values(), default=1.0) or 1.0
    label = max((len(name) for name in values), default=0)
    lines: list[str] = []
    for name, value in values.items():
        eighths = round(max(0.0, min(1.0, value / top)) * width * 8)
        bar = "█" * (eighths // 8) + (_EIGHTHS[eighths % 8] if eighths % 8 else "")
        lines.append(f"{name:<{label}}  {bar:<{width}}  {value:.2f}")
    return lines


def curve(points: Sequence[float], *, height: int = 8, top: float = 1.0) -> list[str]:
    """A curve of values from 0 to `top`, one column per point, with a scale on the left."""
    rows: list[str] = []
    for level in range(height, 0, -1):
        cells = ""
        for value in points:
            filled = value / top * height - (level - 1)
            cells += "█ " if filled >= 1 else ("▄ " if filled >= 0.5 else "  ")
        rows.append(f"{top * level / height:4.2f} │{cells}")
    return [
        *rows,
        "     └" + "─" * (2 * len(points)),
        "      " + " ".join(str((n + 1) % 10) for n in range(len(points))),
    ]


def curve_svg(
    points: Sequence[float], *, title: str, x: str, y: str, width: int = 560, height: int = 300
) -> str:
    """The same curve as an SVG document."""
    left, right, top, bottom = 60, 20, 40, 45
    inner_w, inner_h = width - left - right, height - top - bottom
    steps = max(1, len(points) - 1)

    def place(index: int, value: float) -> tuple[float, float]:
        return left + inner_w * index / steps, top + inner_h * (1 - max(0.0, min(1.0, value)))

    coordinates = [place(index, value) for index, value in enumerate(points)]
    path = " ".join(f"{px:.1f},{py:.1f}" for px, py in coordinates)
    grid = "".join(
        f'<line x1="{left}" x2="{width - right}" y1="{place(0, share)[1]:.1f}" y2="{place(0, share)[1]:.1f}" '
        f'stroke="#ddd"/><text x="{left - 8}" y="{place(0, share)[1] + 4:.1f}" text-anchor="end">{share:.0%}</text>'
        for share in (0, 0.25, 0.5, 0.75, 1.0)
    )
    ticks = "".join(
        f'<text x="{px:.1f}" y="{height - bottom + 16}" text-anchor="middle">{index + 1}</text>'
        for index, (px, _) in enumerate(coordinates)
        if len(points) <= 20 or index % 5 == 4
    )
    dots = "".join(f'<circle cx="{px:.1f}" cy="{py:.1f}" r="3" fill="#b8860b"/>' for px, py in coordinates)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
        f'font-size="11"><rect width="{width}" height="{height}" fill="white"/>'
        f'<text x="{left}" y="22" font-size="14">{escape(title)}</text>{grid}{ticks}'
        f'<polyline points="{path}" fill="none" stroke="#b8860b" stroke-width="2"/>{dots}'
        f'<text x="{left + inner_w / 2:.0f}" y="{height - 10}" text-anchor="middle">{escape(x)}</text>'
        f'<text x="14" y="{top + inner_h / 2:.0f}" transform="rotate(-90 14 {top + inner_h / 2:.0f})" '
        f'text-anchor="middle">{escape(y)}</text></svg>\n'
    )
