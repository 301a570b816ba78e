"""Learning from outcomes: events of one outcome, procedures recommended for a task, and the effect of each memory.

An outcome moves the confidence of what was used in it, links what was used together, and leaves a procedure behind.
`recommend` ranks procedures by their record and declines where none fits the task. `effects` estimates what a memory is
worth. The façade (`bank/`) and a hive call this.

How an effect is estimated: a small share of recalls leaves one hit out at random. How likely a memory is to be that
one depends on how many hits there were, and so on the query: easy and hard tasks may recall different numbers of
them. Among recalls with the same number of hits and the same share, tasks in which everything was shown and tasks in
which one memory was withheld differ by chance alone. So success rates are compared within such groups, and the
differences averaged with the weights of Mantel and Haenszel, which give most to the groups that can tell most and
nothing to those in which a memory was always, or never, shown. Tasks in which another memory was withheld are left
out: they would charge that one's absence to this one's presence. Pure but for the outcomes it is given.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations
from random import Random
from typing import NamedTuple

import msgspec

from skep.confidence import procedure_score
from skep.engine.engine import Engine
from skep.errors import InvalidInputError
from skep.events import voided
from skep.filters import Filter
from skep.lifecycle.similar_memories import derived_from
from skep.model import CURRENT, Event, Hit, Link, Memory, Outcome, Scope
from skep.semantics.conflict_policy import draft
from skep.semantics.find_conflicts import find_for
from skep.storage.sqlite_store import Plan
from skep.text.terms import query_terms

GRADE = "grade"
"""The metric of an outcome that says how well it went, 0 to 1."""
Z95 = 1.959964
TOGETHER = "used_with"
"""The relation between memories that were used in one successful task."""
ANALOGY = "analogy"
"""The relation between strategies of different domains that are alike."""
STEP = 0.2
"""How much of the way to 1 each further success takes the strength of such a link, and each failure back to 0."""
NOTICEABLE = 0.002
"""A link that would grow by less is left as it is."""
RECENCY_PER_DAY = 0.0256
"""Two days ago counts 0.95, four weeks ago about a half."""
DAY = 86_400.0
CANDIDATES = 50
UNTRIED = "not tried yet"
PRIOR = 0.5
"""How often a strategy that was never tried is expected to work. One that works less often than that gains less by
having been used much, and nothing if it never works: else what was tried first would be recommended for ever."""
FITTING = 0.5
BAR = 0.2
"""Context match below which a procedure does not fit a task."""
BY_WORDS = 2 / 3
"""Context match of a procedure that holds every word of a task."""
TASKS = 20
"""Tasks in which a procedure worked that a new task is compared with."""
USES = 10
"""Uses after which a procedure may be left out because it keeps failing."""
WORKS = 0.5
"""Success rate below which a procedure fails more often than not; a graded outcome from here on is a success."""


class Learned(msgspec.Struct, frozen=True, kw_only=True):
    """The result of learning from one outcome."""

    outcome: Outcome
    procedure: Memory | None
    """The procedure that was made or confirmed."""
    moved: dict[str, float]
    """The confidence of each memory that was used, as it is now."""


class Recommendation(msgspec.Struct, frozen=True, kw_only=True):
    """A strategy, with the record behind it."""

    memory: Memory
    score: float
    parts: dict[str, float]
    """success, usage, recency and context, each in [0, 1]."""
    record: str
    """Such as `18 of 20`."""
    analogy_of: str | None = None
    """The strategy of another domain whose link led here."""

    def why(self) -> str:
        """In one readable line, why this is recommended."""
        parts = ", ".join(f"{name} {value:.2f}" for name, value in self.parts.items())
        record = self.record if self.record == UNTRIED else f"worked {self.record}"
        line = f"{record}; {self.score:.3f} = {parts}"
        return line + (f"; by analogy with {self.analogy_of}" if self.analogy_of else "")


def context_match(task: str, memory: Memory, cosine: float, tasks: Iterable[str] = ()) -> float:
    """The match of a procedure with a task, 0 to 1.

    By its calibrated cosine, or by the share of the task's words that it holds, or that one of the `tasks` does in
    which it worked before.
    """
    words = query_terms(task)
    texts = (f"{memory.title or ''} {memory.text}", str(memory.metadata.get("task", "")), *tasks)
    share = max(len(set(words).intersection(query_terms(text))) for text in texts) / max(1, len(set(words)))
    return max(0.0 if math.isnan(cosine) else cosine, BY_WORDS * share)


def keeps_failing(success: float, trials: int) -> bool:
    """True if even the upper bound of a success rate (Wilson, 95 %) says that a procedure fails more often than not.

    >>> keeps_failing(1 / 10, 10), keeps_failing(2 / 10, 10), keeps_failing(0.0, 9)
    (True, False, False)
    """
    if trials < USES:
        return False
    share = Z95**2 / trials
    spread = Z95 * math.sqrt(success * (1 - success) / trials + share / (4 * trials))
    return (success + share / 2 + spread) / (1 + share) < WORKS


def outcome_of(event: Event) -> Outcome:
    """An outcome from its event."""
    body = event.body
    return Outcome(
        id=event.id,
        task=body.get("task", ""),
        success=bool(body.get("success")),
        used=tuple(body.get("used", ())),
        steps=tuple(body.get("steps", ())),
        metrics=body.get("metrics", {}),
        task_type=body.get("task_type"),
        domain=body.get("domain"),
        at=event.at,
    )


def learn(
    engine: Engine,
    task: str,
    *,
    success: bool | float,
    used: Sequence[str] = (),
    steps: Sequence[str] = (),
    metrics: Mapping[str, float] | None = None,
    task_type: str | None = None,
    domain: str | None = None,
    lesson: str | None = None,
    scope: Scope | None = None,
    agent: str | None = None,
    shown: Sequence[str] = (),
    withheld: Sequence[str] = (),
    withhold: float | None = None,
) -> Learned:
    """Record how a task went, and what follows from it, in one transaction. A grade of 0 to 1 is kept as a metric."""
    if not isinstance(success, bool):
        metrics = {**(metrics or {}), GRADE: success}
        success = success >= WORKS
    engine.known(*used)
    used = list(dict.fromkeys(_standing(engine, memory_id) for memory_id in used))
    scopes = {engine.memory(memory_id).scope for memory_id in used}
    if scope is None and len(scopes) == 1:
        scope = next(iter(scopes))
    mixed = scope is None and len(scopes) > 1  # nobody's private text goes into what others can read
    if lesson is not None and mixed:
        raise InvalidInputError(
            "what was used belongs to different scopes; say with scope= whom the lesson is for"
        )
    known, plans = _procedure(
        engine, task, success, used, task_type, domain, lesson, scope, agent, mixed=mixed
    )
    body: dict[str, object] = {"task": task, "success": success, "used": used}
    extra = {"metrics": dict(metrics or {}), "task_type": task_type, "domain": domain}
    extra |= {"steps": list(steps)}
    extra |= {"shown": list(shown), "withheld": list(withheld)}
    body |= {key: value for key, value in extra.items() if value}
    if withhold is not None and (shown or withheld):
        body["withhold"] = withhold
    taught = not success and lesson is not None  # what a failure taught is not charged with it, however often
    tried = [*used, known.id] if known is not None and known.id not in used and not taught else used
    if plans and success:
        plans.append(("outcome", lambda ids: body | {"used": [*used, ids[0]]}))
    else:
        plans.append(("outcome", body | {"used": tried}))
    if success:
        plans += _together(engine, used)
    plans += _carried_over(engine, used, domain, success=success)
    events, _ = engine.write(plans)
    event = next(event for event in events if event.kind == "outcome")
    kept = events[0].id if events[0].kind == "remember" else (known.id if known else None)
    return Learned(
        outcome=outcome_of(event),
        procedure=engine.memory(kept) if kept else None,
        moved={memory_id: engine.memory(memory_id).confidence for memory_id in used},
    )


def _standing(engine: Engine, memory_id: str) -> str:
    """A memory, or the one that it was merged into: what is learnt of a copy is learnt of what was kept."""
    seen: set[str] = set()
    while (merged := engine.memory(memory_id).merged_into) is not None and merged not in seen:
        if engine.is_forgotten(merged):
            break
        seen.add(memory_id := merged)
    return memory_id


def _together(engine: Engine, used: list[str]) -> list[Plan]:
    """Links between what was used together, stronger each time."""
    plans: list[Plan] = []
    for a, b in combinations(sorted(used), 2):
        known = [link for link in engine.links(a, rel=TOGETHER, direction="out") if link.dst == b]
        before = known[0].strength if known else 0.0
        strength = round(before + STEP * (1 - before), 6)
        if strength - before < NOTICEABLE:
            continue
        plans.append(("link", {"src": a, "dst": b, "rel": TOGETHER, "strength": strength}))
    return plans


def _carried_over(engine: Engine, used: Sequence[str], domain: str | None, *, success: bool) -> list[Plan]:
    """Links of analogy that led a strategy into another domain: stronger where it worked, else weaker, or gone."""
    plans: list[Plan] = []
    for memory in map(engine.memory, used):
        if domain is None or memory.domain in (None, domain):
            continue
        for link in engine.links(memory.id, rel=ANALOGY):
            other = engine.get(link.dst if link.src == memory.id else link.src)
            if other is None or other.domain != domain:
                continue
            strength = round(link.strength + STEP * ((1 - link.strength) if success else -link.strength), 6)
            body = {"src": link.src, "dst": link.dst, "rel": ANALOGY}
            plans.append(("link", body | {"strength": strength}) if strength >= STEP else ("unlink", body))
    return plans


def _procedure(
    engine: Engine,
    task: str,
    success: bool,
    used: Sequence[str],
    task_type: str | None,
    domain: str | None,
    lesson: str | None,
    scope: Scope | None,
    agent: str | None,
    *,
    mixed: bool,
) -> tuple[Memory | None, list[Plan]]:
    """The lesson: a procedure that is already known, or the events that make a new one (it comes first)."""
    memories = [engine.memory(memory_id) for memory_id in used]
    strategies = [memory for memory in memories if memory.kind == "procedure"]
    if lesson is None and (not success or strategies or not memories or mixed):
        return (strategies[0] if strategies else None), []
    text = lesson or f"For {task_type or task}: " + "; ".join(memory.text.rstrip(".") for memory in memories)
    body: dict[str, object] = {
        "text": text,
        "kind": "procedure",
        "metadata": {"task": task} | ({"task_type": task_type} if task_type else {}),
    }
    parts = {k: v for k in ("user", "project", "session") if scope and (v := getattr(scope, k)) is not None}
    for key, value in (("domain", domain), ("agent", agent), ("scope", parts), ("evidence", list(used))):
        if value:
            body[key] = value
    for conflict in find_for(engine, draft(body, engine.now())):
        if conflict.kind == "duplicate":
            return conflict.existing, []
    plans: list[Plan] = [("remember", body)]
    plans += [("link", derived_from(memory.id)) for memory in memories]
    return None, plans


def recommend(
    engine: Engine,
    task: str,
    *,
    k: int = 3,
    domain: str | None = None,
    scope: Scope | None = None,
    include_shared: bool = True,
) -> list[Recommendation]:
    """The strategies that worked for tasks like this one, best first."""
    now = engine.now()
    vector = engine.embeddings.query_vector(task)
    where = Filter(
        scope=scope,
        include_shared=include_shared,
        kinds=("procedure",),
        statuses=CURRENT,
        valid_at=now,
        now=now,
    )
    engine.index.refresh()
    pool = engine.index.search(query_terms(task), vector, where, k_words=CANDIDATES, k_vectors=CANDIDATES)
    found = engine.memories([int(row) for row in pool.rows])
    records = {memory.id: _record(engine, memory) for memory in found.values()}
    candidates = [
        Candidate(
            found[int(row)],
            float(words),
            context_match(
                task,
                found[int(row)],
                engine.embeddings.calibrate(float(cosine)),
                records[found[int(row)].id].tasks,
            ),
        )
        for row, words, cosine in zip(pool.rows, pool.words, pool.cosine, strict=True)
        if int(row) in found
    ]
    return best_of(
        candidates,
        k=k,
        domain=domain,
        total=engine.trials(),
        now=now,
        links=engine.links,
        get=engine.get,
        success_of=lambda memory: records[memory.id].success,
    )


class _Record(NamedTuple):
    """The record of a procedure in outcomes: its success rate, with grades, and the last tasks in which it worked."""

    success: float
    tasks: Sequence[str] = ()


def _record(engine: Engine, memory: Memory) -> _Record:
    trials = memory.successes + memory.failures
    if not trials:
        return _Record(PRIOR)
    events = engine.log.of(memory.id)
    void = voided(events)
    tried = [event.body for event in events if event.kind == "outcome" and event.id not in void]
    tasks = [body["task"] for body in tried if body["success"]][-TASKS:]
    graded = any(GRADE in body.get("metrics", ()) for body in tried)
    if not graded or len(tried) != trials:  # others were counted with a copy that was merged
        return _Record(success_rate(memory), tasks)
    grades = [body.get("metrics", {}).get(GRADE, float(body["success"])) for body in tried]
    return _Record(sum(grades) / trials, tasks)


def success_rate(memory: Memory) -> float:
    """Share of the uses of a procedure that were successes; what is expected where it was never tried."""
    trials = memory.successes + memory.failures
    return memory.successes / trials if trials else PRIOR


class Candidate(NamedTuple):
    """A strategy that may fit a task: how well by words, and how near in meaning, 0 to 1."""

    memory: Memory
    words: float
    context: float


def best_of(
    candidates: Sequence[Candidate],
    *,
    k: int,
    domain: str | None,
    total: int,
    now: float,
    links: Callable[[str], Sequence[Link]],
    get: Callable[[str], Memory | None],
    success_of: Callable[[Memory], float] = success_rate,
) -> list[Recommendation]:
    """The best of some strategies, then those of other domains that they are linked to.

    Args:
        candidates: What was found for the task.
        k: How many to recommend.
        domain: The domain of the task; strategies of another count half.
        total: How often any strategy was tried.
        now: The time of asking.
        links: The links that touch a memory.
        get: A memory by id.
        success_of: The success rate of a procedure, grades included.
    """
    ranked: list[Recommendation] = []
    for memory, _, near in _fitting(candidates):
        if keeps_failing(success_of(memory), memory.successes + memory.failures):
            continue
        match = near * (1.0 if domain is None or memory.domain in (None, domain) else 0.5)
        ranked.append(_rated(memory, success_of(memory), total, match, now))
    ranked.sort(key=lambda r: (-r.score, -r.parts["context"], r.memory.id))
    best = ranked[:k]
    return best + _analogies(links, get, best, total, now)[: max(0, k - len(best))]


def _fitting(candidates: Sequence[Candidate]) -> list[Candidate]:
    """The candidates about this kind of task: above the bar, and at least half as close as the closest.

    The four factors say what works, not what a task is about, so a proven strategy for something else must not even
    stand for election.
    """
    candidates = [one for one in candidates if one.context >= BAR]
    most = max((one.words for one in candidates), default=0.0) or 1.0
    bar = FITTING * max((one.words / most + one.context for one in candidates), default=0.0)
    return [one for one in candidates if one.words / most + one.context >= bar]


def _rated(
    memory: Memory, success: float, total: int, match: float, now: float, analogy_of: str | None = None
) -> Recommendation:
    trials = memory.successes + memory.failures
    days = max(0.0, (now - max(memory.last_evidence_at, memory.created_at)) / DAY)
    parts = {
        "success": success,
        "usage": min(1.0, success / PRIOR) * trials / total if total else 0.0,
        "recency": math.exp(-RECENCY_PER_DAY * days),
        "context": match,
    }
    return Recommendation(
        memory=memory,
        score=procedure_score(parts["success"], parts["usage"], parts["recency"], parts["context"]),
        parts=parts,
        record=f"{memory.successes} of {trials}" if trials else UNTRIED,
        analogy_of=analogy_of,
    )


def _analogies(
    links: Callable[[str], Sequence[Link]],
    get: Callable[[str], Memory | None],
    best: Sequence[Recommendation],
    total: int,
    now: float,
) -> list[Recommendation]:
    """Procedures of other domains that the best ones are linked to."""
    seen = {recommendation.memory.id for recommendation in best}
    found: list[Recommendation] = []
    for recommendation in best:
        for link in links(recommendation.memory.id):
            other = link.dst if link.src == recommendation.memory.id else link.src
            memory = get(other)
            if memory is None or other in seen or memory.kind != "procedure" or memory.status not in CURRENT:
                continue
            if memory.domain == recommendation.memory.domain or memory.scope != recommendation.memory.scope:
                continue
            seen.add(other)
            trials = memory.successes + memory.failures
            if keeps_failing(success_rate(memory), trials):
                continue
            match = recommendation.parts["context"] * link.strength
            rated = _rated(
                memory, success_rate(memory), max(total, trials), match, now, recommendation.memory.id
            )
            found.append(rated)
    return sorted(found, key=lambda r: (-r.score, r.memory.id))


class Effect(msgspec.Struct, frozen=True, kw_only=True):
    """The estimated effect of one memory on success, with a 95 % interval."""

    memory: str
    shown: int
    shown_successes: int
    withheld: int
    withheld_successes: int
    effect: float
    low: float
    high: float

    @property
    def clear(self) -> bool:
        """True if the interval leaves no doubt about the direction."""
        return self.low > 0 or self.high < 0


Counts = list[int]
"""Shown, of these successful; withheld, of these successful."""


def difference(a: float, of_a: float, b: float, of_b: float) -> tuple[float, float, float]:
    """The difference of two success rates with a 95 % interval (Agresti and Caffo: one success and one failure added).

    >>> tuple(round(x, 2) for x in difference(9, 10, 5, 10))
    (0.4, -0.02, 0.69)
    """
    p1, p2 = (a + 1) / (of_a + 2), (b + 1) / (of_b + 2)
    spread = Z95 * math.sqrt(p1 * (1 - p1) / (of_a + 2) + p2 * (1 - p2) / (of_b + 2))
    raw = (a / of_a if of_a else 0.5) - (b / of_b if of_b else 0.5)
    return raw, max(-1.0, p1 - p2 - spread), min(1.0, p1 - p2 + spread)


def compared(groups: Iterable[Counts]) -> tuple[float, float, float] | None:
    """The difference within groups, averaged, with a 95 % interval; None if no group can tell.

    The interval is that of as many tasks as would tell as much if all were of one group; with one group it is exact.

    >>> compared([[10, 9, 10, 5]]) == difference(9, 10, 5, 10)
    True
    """
    told = [group for group in groups if group[0] and group[2]]
    if not told:
        return None
    weights = [shown * held / (shown + held) for shown, _, held, _ in told]
    total = sum(weights)
    rates = [
        sum(w * group[at + 1] / group[at] for w, group in zip(weights, told, strict=True)) / total
        for at in (0, 2)
    ]
    sizes = [
        total**2 / sum(w * w / group[at] for w, group in zip(weights, told, strict=True)) for at in (0, 2)
    ]
    return difference(rates[0] * sizes[0], sizes[0], rates[1] * sizes[1], sizes[1])


def effects(outcomes: Iterable[Event]) -> list[Effect]:
    """The effect of every memory that was withheld at least once, clearest first."""
    tally: dict[str, dict[tuple[int, float | None], Counts]] = {}
    for event in outcomes:
        won = int(bool(event.body.get("success")))
        shown, withheld = event.body.get("shown", ()), event.body.get("withheld", ())
        group = (
            len(shown) + len(withheld),
            event.body.get("withhold"),
        )  # older records do not tell the share
        for at, memories in ((0, () if withheld else shown), (2, withheld)):
            for memory in memories:
                counts = tally.setdefault(memory, {}).setdefault(group, [0, 0, 0, 0])
                counts[at] += 1
                counts[at + 1] += won
    found: list[Effect] = []
    for memory, groups in tally.items():
        told = compared(groups.values())
        if told is not None:
            shown, shown_won, held, held_won = map(sum, zip(*groups.values(), strict=True))
            found.append(
                Effect(
                    memory=memory,
                    shown=shown,
                    shown_successes=shown_won,
                    withheld=held,
                    withheld_successes=held_won,
                    effect=told[0],
                    low=told[1],
                    high=told[2],
                )
            )
    return sorted(found, key=lambda e: (not e.clear, -abs(e.effect), e.memory))


def withhold(hits: Sequence[Hit], share: float, rng: Random) -> tuple[tuple[Hit, ...], tuple[str, ...]]:
    """With probability `share`, leave one hit out; what is shown, and the id of what is not."""
    if not hits or rng.random() >= share:
        return tuple(hits), ()
    place = rng.randrange(len(hits))
    return tuple(hit for i, hit in enumerate(hits) if i != place), (hits[place].memory.id,)
