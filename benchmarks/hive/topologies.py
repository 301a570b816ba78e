"""Twenty agents learn disjoint parts of a story; then each is asked about everything.

    python -m benchmarks.hive.topologies

The story is made up from a seed and told in four set-ups (everybody alone, flat, federated, sharded). Counted are the
questions answered, what each cost, and how fast twenty separate hives agree when they gossip.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

from skep.bank.bank import Bank
from skep.embedding.embedder import default_embedder
from skep.hive.gateway import HivePolicy
from skep.hive.gossip import Gossip, Round
from skep.hive.hive import Hive

if TYPE_CHECKING:
    from skep.embedding.embedder import Embedder

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


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What the demo shows."""

    agents: int
    facts: int
    outcomes: tuple[Outcome, ...]
    rounds: tuple[Round, ...]


def run(
    *,
    agents: int = 20,
    facts: int = 200,
    questions: int = 5,
    seed: int = 7,
    embedder: Embedder | None = None,
    progress: Callable[[str], None] | None = None,
) -> Report:
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
    return Report(agents=agents, facts=facts, outcomes=tuple(outcomes), rounds=tuple(rounds))


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


def show(report: Report) -> str:
    """The report as a table."""
    lines = [
        f"{report.agents} agents, {report.facts} facts, each known to one agent at first",
        "",
        f"{'':<10} {'answered':>9} {'members asked':>14} {'candidates':>11} {'CPU ms':>8}",
    ]
    for one in report.outcomes:
        sent = f"{one.candidates:.0f}" if one.candidates else "-"
        lines.append(
            f"{one.topology:<10} {one.recall:>9.0%} {one.members_asked:>14.0f} {sent:>11} {one.cpu_ms:>8.1f}"
        )
    shares = " ".join(f"{one.convergence:.0%}" for one in report.rounds)
    moved = sum(one.bytes for one in report.rounds)
    return "\n".join([*lines, "", f"gossip, share known to all per round ({moved:,} bytes in all): {shares}"])


if __name__ == "__main__":
    print(show(run(progress=print)))
