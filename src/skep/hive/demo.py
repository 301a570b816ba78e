"""The demo: twenty agents learn disjoint parts of a story, then each is asked everything.

It runs the same story through four set-ups (everybody alone, flat, federated, sharded), counts how many
questions were answered, what each cost, and how fast twenty separate hives agree when they gossip.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

from skep.bank import Bank
from skep.embedding import default_embedder
from skep.hive.gossip import Gossip, Round
from skep.hive.hive import Hive
from skep.hive.policy import HivePolicy
from skep.hive.story import Part, story

if TYPE_CHECKING:
    from skep.embedding.base import Embedder

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
