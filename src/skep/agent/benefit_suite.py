"""Does memory help? The same agent works through scripted tasks with and without its memory; the errors are counted.

Three kinds of task come again and again: one of several ways works, and which one has to be found (repeated failures);
a user said once what they want (preferences); what held has changed (changed facts). An error is a tool call that
fails. Everything is drawn from seeds, so a run can be repeated. `skep agent benchmark` prints the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from random import Random

import msgspec

from skep.agent.agent import Agent
from skep.agent.loop import Tool
from skep.bank.bank import Bank
from skep.lifecycle.learn import difference
from skep.llm.language_model import LLM

KINDS = ("repeated failures", "preferences", "changed facts")
SYSTEMS = ("shop", "ledger", "mailer", "archive", "planner", "gateway", "registry", "scheduler")
WAYS = ("push", "canary", "rsync", "bluegreen", "snapshot", "rolling")
PEOPLE = ("Mira", "Jonas", "Ines", "Okan", "Petra", "Rui", "Selma", "Tomas")
DRINKS = ("tea", "coffee", "cocoa", "juice", "water", "lemonade")
ROUNDS = 3
"""How often each task comes."""


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """One task of the script."""

    kind: str
    goal: str
    tools: tuple[str, ...]
    works: str
    told: tuple[str, ...] = ()
    """What somebody says before."""
    repeated: bool = True
    """False for the first time of a task that nobody could know about; such errors are not counted."""


class Benefit(msgspec.Struct, frozen=True, kw_only=True):
    """What memory did for one kind of task."""

    kind: str
    tasks: int
    errors_without: int
    """Tasks with an error that could have been avoided, without memory."""
    errors_with: int
    avoided: float
    """The share of those errors that memory avoided."""
    effect: float
    """Difference of the share of tasks without an error, with its 95 % interval."""
    low: float
    high: float

    def line(self) -> str:
        """One line of the table."""
        return (
            f"{self.kind}: {self.tasks} tasks, errors in {self.errors_without} without memory,"
            f" {self.errors_with} with memory; {self.avoided:.0%} avoided,"
            f" effect {self.effect:+.2f} [{self.low:+.2f}, {self.high:+.2f}]"
        )


def script(seed: int) -> list[Job]:
    """The tasks of one seed, in their order."""
    rng = Random(seed)
    return [*_failures(rng), *_preferences(rng), *_changes(rng)]


def _failures(rng: Random) -> Iterator[Job]:
    """Each system is deployed in one way; only trying tells which."""
    works = {system: rng.choice(WAYS) for system in rng.sample(SYSTEMS, 4)}
    for turn in range(ROUNDS):
        for system, way in works.items():
            tools = tuple(rng.sample(WAYS, len(WAYS)))
            yield Job(kind=KINDS[0], goal=f"deploy the {system}", tools=tools, works=way, repeated=turn > 0)


def _preferences(rng: Random) -> Iterator[Job]:
    """People say once what they drink; later somebody serves them."""
    wants = {person: rng.choice(DRINKS) for person in rng.sample(PEOPLE, 4)}
    for turn in range(ROUNDS):
        for person, drink in wants.items():
            told = (f"{person} always drinks {drink}.",) if turn == 0 else ()
            tools = tuple(rng.sample(DRINKS, len(DRINKS)))
            yield Job(
                kind=KINDS[1], goal=f"serve a drink that {person} drinks", tools=tools, works=drink, told=told
            )


def _changes(rng: Random) -> Iterator[Job]:
    """What backs a system up changes; the newer statement holds."""
    for system in rng.sample(SYSTEMS, 4):
        old, new = rng.sample(WAYS, 2)
        told = (f"The backup of the {system} uses {old}.", f"The backup of the {system} now uses {new}.")
        for turn in range(ROUNDS):
            tools = tuple(rng.sample(WAYS, len(WAYS)))
            goal = f"run the backup of the {system}"
            yield Job(kind=KINDS[2], goal=goal, tools=tools, works=new, told=told if turn == 0 else ())


def erred(bank: Bank, job: Job, llm: LLM | None = None) -> bool:
    """Work on one task; True if a tool call failed."""
    errors = 0

    def way(name: str) -> Callable[[str], str]:
        def call(_text: str) -> str:
            nonlocal errors
            if name != job.works:
                errors += 1
                raise RuntimeError(f"{name} does not work here")
            return "done"

        return call

    tools = [Tool(name=name, about=f"use {name}", call=way(name)) for name in job.tools]
    agent = Agent(bank, "worker", llm=llm, tools=tools)
    agent.act(job.goal, check=lambda answer: answer == "done", max_steps=len(tools) + 2)
    return errors > 0


def benchmark(seeds: Sequence[int] = range(10), *, llm: LLM | None = None) -> list[Benefit]:
    """The same script with one memory for all tasks, and with an empty one for each."""
    counts = {kind: [0, 0, 0] for kind in KINDS}
    for seed in seeds:
        with Bank.open(":memory:") as bank:
            for job in script(seed):
                for text in job.told:
                    bank.remember(text)
                with_memory = erred(bank, job, llm)
                if not job.repeated:
                    continue
                with Bank.open(":memory:") as empty:
                    without = erred(empty, job, llm)
                found = counts[job.kind]
                found[0] += 1
                found[1] += without
                found[2] += with_memory
    return [_benefit(kind, *found) for kind, found in counts.items()]


def _benefit(kind: str, tasks: int, without: int, with_memory: int) -> Benefit:
    effect, low, high = difference(tasks - with_memory, tasks, tasks - without, tasks)
    return Benefit(
        kind=kind,
        tasks=tasks,
        errors_without=without,
        errors_with=with_memory,
        avoided=1 - with_memory / without if without else 0.0,
        effect=effect,
        low=low,
        high=high,
    )
