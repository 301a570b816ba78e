"""Evaluation of agents in every layout: a dialogue is fed to 1, 10 or 100 of them, then they are asked about it.

Answers are graded by a rubric without a model: the share of the words that a right answer must hold that stand in the
answer. What a question costs in processor time, tokens and money is measured beside it. The same questions are asked in
every layout, each of another agent. `skep hive eval` prints the table.
"""

from __future__ import annotations

import gzip
import json
import math
import secrets
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from multiprocessing import get_context
from pathlib import Path
from threading import BrokenBarrierError
from typing import TYPE_CHECKING, Any, Literal, cast

import msgspec

from skep.agent.answers import answer
from skep.agent.learn_content import learn_from_content
from skep.clock import Now, system_now
from skep.errors import InvalidInputError, NotFoundError, SyncError
from skep.hive.gateway import HivePolicy
from skep.hive.hive import Hive
from skep.lifecycle.learn import Z95
from skep.llm.budget import Spent

if TYPE_CHECKING:
    from skep.embedding.embedder import Embedder
    from skep.llm.language_model import LLM


Topology = Literal["single", "flat", "federated", "sharded", "distributed"]
TOPOLOGIES: tuple[Topology, ...] = ("single", "flat", "federated", "sharded")
POLICY = HivePolicy(rate=1e9, burst=10**9, deadline=20.0, hedge_after=5.0)
"""The usual rules, without the limit on how much one agent may write in a minute: a feed is fast. And with patience: on
a busy machine no member is given up early, for what is measured is answers."""
GROUP = 5
"""Agents in a group of a federated hive."""
PROCESSES = 3
"""Processes of a distributed hive, this one included."""
STARTING = 120.0
"""Seconds in which the other processes must be there."""


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """Something that one agent is told."""

    text: str
    scope: str | None = None
    agent: str | None = None
    """Who is told; dealt out in turn where nothing is said."""


Told = tuple[float, Turn]
"""When a turn was told, and the turn."""


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """A question, and the words that a right answer holds."""

    text: str
    keywords: tuple[str, ...]
    category: str = ""
    scope: str | None = None


class Grade(msgspec.Struct, frozen=True, kw_only=True):
    """How one layout did."""

    topology: str
    agents: int
    memories: int
    questions: int
    score: float
    """Mean share of the words of the rubric, 0 to 100."""
    margin: float
    """Half the width of its 95 % interval."""
    read: float
    """The same among the passages that were read, so what a model could have answered with."""
    unknown: int
    """Questions that were answered with "not known"."""
    cpu_ms: float
    """Processor time per question."""
    feed_s: float
    """Processor time to feed it."""
    spent: Spent = Spent()
    by_category: dict[str, float] = {}
    scores: tuple[float, ...] = ()
    """Of each question, 0 to 100."""

    def line(self) -> str:
        """One line of the table."""
        tokens = f"{self.spent.tokens / max(1, self.questions):8.0f}" if self.spent.calls else "       –"
        return (
            f"{self.topology:10} {self.agents:6} {self.memories:8} {self.score:6.1f} ±{self.margin:4.1f}"
            f" {self.read:6.1f} {self.unknown:7} {self.cpu_ms:9.1f} {tokens}"
        )


HEADING = "layout     agents memories  score        read unknown  cpu ms/q tokens/q"


def read_turns(path: Path) -> list[Turn]:
    """Turns from JSON lines (`.gz` or not): `text`, and `scope` and `agent` in the line or in its `meta`."""
    return [
        Turn(text=line["text"], scope=_of(line, "scope"), agent=_of(line, "agent"))
        for line in _lines(path, "text")
    ]


def read_questions(path: Path) -> list[Question]:
    """Questions from JSON lines: `text` and `keywords`; those without keywords cannot be graded and are left out."""
    found = [
        Question(
            text=line["text"],
            keywords=tuple(str(word) for word in cast("Sequence[Any]", _of(line, "keywords") or ())),
            category=str(_of(line, "category") or ""),
            scope=_of(line, "scope"),
        )
        for line in _lines(path, "text")
    ]
    graded = [each for each in found if each.keywords]
    if not graded:
        raise InvalidInputError(f'{path} holds no question with "keywords"; nothing can be graded')
    return graded


def _of(line: Mapping[str, Any], key: str) -> Any:
    meta: Mapping[str, Any] = line.get("meta") or {}
    return line.get(key, meta.get(key))


def _lines(path: Path, field: str) -> Iterator[dict[str, Any]]:
    if not path.is_file():
        raise NotFoundError(f"there is no file {path}")
    with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8") as file:
        for number, raw in enumerate(file, 1):
            if not raw.strip():
                continue
            try:
                line: Any = json.loads(raw)
            except (ValueError, RecursionError) as error:
                raise InvalidInputError(f"{path}, line {number}: no JSON ({error})") from None
            if not isinstance(line, dict) or not isinstance(cast("dict[str, Any]", line).get(field), str):
                raise InvalidInputError(
                    f'{path}, line {number}: an object with a text in "{field}" is wanted'
                )
            yield cast("dict[str, Any]", line)


def names_of(agents: int) -> list[str]:
    """The names of so many agents."""
    return [f"agent-{number:03}" for number in range(agents)]


def hive_of(topology: Topology, agents: int, embedder: Embedder | None = None) -> Hive:
    """An empty hive in memory."""
    names = names_of(agents)
    options: dict[str, Any] = {"policy": POLICY, "embedder": embedder}
    if topology == "single":
        return Hive.single(names[0], **options)
    if topology == "flat":
        return Hive.flat(names, **options)
    if topology == "sharded":
        return Hive.sharded(names, **options)
    groups = max(1, math.ceil(agents / GROUP))
    return Hive.federated({f"group-{g:02}": names[g::groups] for g in range(groups)}, **options)


def rubric(text: str, keywords: Sequence[str]) -> float:
    """The share of the words of a rubric that stand in a text, 0 to 1.

    >>> rubric("Thor, her dog, is a husky.", ["thor", "husky", "cat"])
    0.6666666666666666
    """
    said = text.casefold()
    return sum(word.casefold() in said for word in keywords) / len(keywords)


def evaluate(
    topology: Topology,
    agents: int,
    turns: Sequence[Turn],
    questions: Sequence[Question],
    *,
    llm: LLM | None = None,
    learns: bool = False,
    embedder: Embedder | None = None,
    bus: str | None = None,
    now: Now = system_now,
    progress: Callable[[str, int, int], None] | None = None,
) -> Grade:
    """Feed a dialogue to the agents of one layout, and ask them about it.

    Args:
        topology: The layout.
        agents: How many; a `single` layout has one whatever this says.
        turns: The dialogue.
        questions: What is asked, each of the next agent.
        llm: The model that words answers, and with `learns` finds facts.
        learns: Learn the facts of each turn; otherwise each turn is kept as it is.
        embedder: What turns text into vectors.
        bus: The address of the bus of a `distributed` layout, such as `nats://localhost:4222`.
        now: The clock.
        progress: Told what is done, of how much.
    """
    agents = 1 if topology == "single" else agents
    names = names_of(agents)
    before = Spent() if llm is None else llm.spent
    fed = _dealt(turns, names, now() - len(turns))
    if topology == "distributed":
        opened = distributed(bus, names, fed, learns=learns or embedder is not None)
    else:
        opened = nullcontext(Whole(hive_of(topology, agents, embedder), names))
    with opened as whole, whole.hive as hive:
        names = whole.names
        started = time.process_time()
        done = 0
        for name, mine in fed.items():
            if name in names:
                _feed(hive, name, mine, llm=llm, learns=learns)
            done += len(mine)
            if progress is not None:
                progress("turns", done, len(turns))
        whole.fed()
        feed_s = time.process_time() - started
        memories = sum(1 for _ in _everything(hive, names[0]))
        scores: list[float] = []
        read: list[float] = []
        unknown = 0
        categories: dict[str, list[float]] = {}
        started = time.process_time()
        for number, question in enumerate(questions):
            bank = hive.agent(names[number % len(names)])
            found = answer(bank, question.text, llm=llm, scope=_scope(question.scope))
            scores.append(100 * rubric(found.text, question.keywords))
            hits = found.recalled.hits if found.recalled is not None else ()
            read.append(100 * rubric("\n".join(hit.memory.text for hit in hits), question.keywords))
            unknown += not found.known
            categories.setdefault(question.category or "-", []).append(scores[-1])
            if progress is not None:
                progress("questions", number + 1, len(questions))
        cpu = time.process_time() - started + whole.others()
    mean = sum(scores) / len(scores)
    spread = math.sqrt(sum((each - mean) ** 2 for each in scores) / max(1, len(scores) - 1))
    return Grade(
        topology=topology,
        agents=agents,
        memories=memories,
        questions=len(questions),
        score=round(mean, 2),
        margin=round(Z95 * spread / math.sqrt(len(scores)), 2),
        read=round(sum(read) / len(read), 2),
        unknown=unknown,
        cpu_ms=round(1000 * cpu / len(questions), 2),
        feed_s=round(feed_s, 2),
        spent=Spent() if llm is None else llm.spent - before,
        by_category={name: round(sum(own) / len(own), 1) for name, own in sorted(categories.items())},
        scores=tuple(round(each, 2) for each in scores),
    )


def _dealt(turns: Sequence[Turn], names: Sequence[str], first: float) -> dict[str, list[Told]]:
    """Who is told which turns, and when."""
    fed: dict[str, list[Told]] = {}
    known: dict[str, str] = {}
    for number, turn in enumerate(turns):
        said = turn.agent or ""
        name = known.setdefault(said, names[len(known) % len(names)]) if said else names[number % len(names)]
        fed.setdefault(name, []).append((first + number, turn))
    return fed


class Whole:
    """A hive whose members all run in this process."""

    def __init__(self, hive: Hive, names: Sequence[str]) -> None:
        self.hive, self.names = hive, names
        """The agents of this process."""

    def fed(self) -> None:
        """Everybody was told everything: have the model read what waits for it."""
        for member in self.hive.members.values():
            member.bank.reembed()

    def others(self) -> float:
        """Processor seconds that other processes spent on the questions."""
        return 0.0


class Spread(Whole):
    """A hive over several processes."""

    def __init__(
        self, hive: Hive, names: Sequence[str], barrier: Any, stop: Any, costs: Any, count: int
    ) -> None:
        super().__init__(hive, names)
        self._barrier, self._stop, self._costs, self._count = barrier, stop, costs, count

    def fed(self) -> None:
        """See `Whole`; what others were told has been copied by then."""
        self._barrier.wait(STARTING)
        super().fed()
        self._barrier.wait(STARTING)

    def others(self) -> float:
        """See `Whole`."""
        self._stop.set()
        return sum(self._costs.get(timeout=STARTING) for _ in range(self._count))


@contextmanager
def distributed(
    bus: str | None, names: Sequence[str], fed: Mapping[str, list[Told]], *, learns: bool
) -> Generator[Whole]:
    """A sharded hive whose members run in several processes and talk over a bus."""
    if bus is None:
        raise InvalidInputError(
            "a distributed layout needs a bus, such as nats://localhost:4222", field="bus"
        )
    if learns or len(names) < PROCESSES:
        raise InvalidInputError(
            f"a distributed layout has {PROCESSES} agents or more, which keep turns as they are",
            field="topology",
        )
    context = get_context("spawn")
    parts = [list(names[place::PROCESSES]) for place in range(PROCESSES)]
    barrier, stop, costs = context.Barrier(PROCESSES), context.Event(), context.Queue()
    hive = f"eval-{secrets.token_hex(4)}"
    workers = [
        context.Process(
            target=_member,
            args=(bus, hive, list(names), mine, {n: fed.get(n, []) for n in mine}, barrier, stop, costs),
            daemon=True,
        )
        for mine in parts[1:]
    ]
    for worker in workers:
        worker.start()
    try:
        opened = Hive.sharded(names, policy=POLICY, name=hive, bus=bus, local=parts[0])
        barrier.wait(STARTING)
        yield Spread(opened, parts[0], barrier, stop, costs, len(workers))
    except BrokenBarrierError:
        raise SyncError("a process of the distributed hive did not come up; is the bus running?") from None
    finally:
        stop.set()
        for worker in workers:
            worker.join(10)
            if worker.is_alive():
                worker.kill()
                worker.join()


def _member(
    bus: str,
    name: str,
    names: list[str],
    mine: list[str],
    fed: dict[str, list[Told]],
    barrier: Any,
    stop: Any,
    costs: Any,
) -> None:
    """Another process of a distributed hive: it is told its turns, and answers until it is stopped."""
    with Hive.sharded(names, policy=POLICY, name=name, bus=bus, local=mine) as hive:
        barrier.wait(STARTING)
        for agent, turns in fed.items():
            _feed(hive, agent, turns, llm=None, learns=False)
        spread = Spread(hive, mine, barrier, stop, costs, 0)
        spread.fed()
        started = time.process_time()
        stop.wait()
        costs.put(time.process_time() - started)


def _scope(name: str | None) -> dict[str, str] | None:
    return None if name is None else {"project": name}


def _feed(hive: Hive, name: str, turns: Sequence[Told], *, llm: LLM | None, learns: bool) -> None:
    """Tell an agent its turns; a second lies between two turns of the dialogue, whoever is told them."""
    bank = hive.agent(name)
    if not learns:
        bank.remember_many(
            {"text": turn.text, "scope": _scope(turn.scope), "created_at": at} for at, turn in turns
        )
        return
    for number, (at, turn) in enumerate(turns):
        source, scope = f"turn {number} of {name}", _scope(turn.scope)
        learn_from_content(bank, turn.text, source, llm=llm, scope=scope, now=lambda at=at: at)


def _everything(hive: Hive, name: str) -> Iterator[str]:
    """The ids of all memories that can be read."""
    bank, cursor = hive.agent(name), None
    while True:
        page = bank.find(limit=500, cursor=cursor)
        yield from (memory.id for memory in page)
        cursor = page.cursor
        if cursor is None:
            return


def compared(one: Grade, other: Grade) -> tuple[float, float]:
    """The difference of two scores over the same questions, and half the width of its 95 % interval."""
    pairs = [a - b for a, b in zip(one.scores, other.scores, strict=True)]
    mean = sum(pairs) / len(pairs)
    spread = math.sqrt(sum((each - mean) ** 2 for each in pairs) / max(1, len(pairs) - 1))
    return round(mean, 2), round(Z95 * spread / math.sqrt(len(pairs)), 2)
