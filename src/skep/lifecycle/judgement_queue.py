"""Pairs that wait for a judge and pairs that were decided, kept as settings, so that every replica knows them.

`ask` sends one batch within the limits, once more for what the judge left out, and keeps both memories otherwise.
Maintenance and the façade (`bank/`) call this; only a `Run` writes.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import cast

import msgspec

from skep.engine.engine import Engine
from skep.errors import InvalidInputError, JudgeError, NotFoundError
from skep.lifecycle import decisions
from skep.lifecycle import decisions as decisions_module
from skep.lifecycle.judge import DECISIONS, Case, Decision, Judge, Verdicts, fitting, known_word
from skep.lifecycle.maintenance_run import Action, Run
from skep.lifecycle.maintenance_run import counted as counted_report
from skep.model import CURRENT, Event, Memory
from skep.semantics.find_conflicts import JUDGEMENTS, by_id, key_of, older_first, standing
from skep.semantics.link_graph import chain
from skep.storage.sqlite_store import Plan

PREFIX = JUDGEMENTS
DAY = 86_400.0


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """One pair: `decision` is None while it waits."""

    older: str
    newer: str
    kind: str
    similarity: float
    confidence: float
    decision: str | None = None
    by: str | None = None
    at: float = 0.0
    """When it was decided."""
    words: str = ""
    """A digest of what both said then; empty in judgements of an older skep, which count whatever they say now."""


_decode = msgspec.json.Decoder(Judgement).decode


def words_of(a: Memory, b: Memory) -> str:
    """A short digest of what two memories say, in whatever order they come."""
    first, second = (a, b) if a.id <= b.id else (b, a)
    said = [(first.text, first.polarity), (second.text, second.polarity)]
    return blake2b(msgspec.json.encode(said), digest_size=8).hexdigest()


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """Of changed memories: the pairs that rules need not look at again, and those whose words have changed since."""

    pairs: set[str]
    outdated: dict[str, Judgement]
    waiting: Counter[str] = msgspec.field(default_factory=Counter[str])
    """By memory, in how many of the pairs that wait it is."""


def judgements(engine: Engine) -> dict[str, Judgement]:
    """Every judgement. A setting of such a name that is none, of a user or a peer, does not count."""
    kept: dict[str, Judgement | None] = engine.settings_under(PREFIX, _judgement)
    return {key: judgement for key, judgement in kept.items() if judgement is not None}


def _judgement(text: str) -> Judgement | None:
    try:
        return _decode(text)
    except msgspec.ValidationError:
        return None


def known_pairs(engine: Engine, changed: Sequence[Memory]) -> Known:
    """The keys of the pairs of changed memories that wait or were decided, and which of them that made outdated."""
    memories = {memory.id: memory for memory in changed}
    kept: dict[str, str] = engine.settings_under(PREFIX, str) if memories else {}
    touched: dict[str, Judgement] = {}
    for key, text in kept.items():  # the key tells whose they are; most need not be read for that
        if not memories.keys().isdisjoint(key[len(PREFIX) :].split("|")):
            judgement = _judgement(text)
            if judgement is not None:
                touched[key] = judgement
    both = (i for judgement in touched.values() for i in (judgement.older, judgement.newer))
    memories |= by_id(engine, [i for i in both if i not in memories])
    outdated = {key: judgement for key, judgement in touched.items() if not _still_said(judgement, memories)}
    waiting = Counter[str]()
    for key, judgement in touched.items():
        if judgement.decision is None and key not in outdated:
            waiting.update((judgement.older, judgement.newer))
    return Known(pairs=touched.keys() - outdated.keys(), outdated=outdated, waiting=waiting)


def _still_said(judgement: Judgement, memories: Mapping[str, Memory]) -> bool:
    """True if two memories say what they said when they were judged, as far as they are known."""
    older, newer = memories.get(judgement.older), memories.get(judgement.newer)
    if older is None or newer is None or not judgement.words:
        return True
    return judgement.words == words_of(older, newer)


def queue_plan(case: Case) -> Plan:
    """The event that queues a case."""
    return _written(case)


def _written(case: Case, decision: Decision | None = None, by: str | None = None, at: float = 0.0) -> Plan:
    judgement = Judgement(
        older=case.older.id,
        newer=case.newer.id,
        kind=case.kind,
        similarity=round(case.similarity, 4),
        confidence=round(case.confidence, 4),
        decision=decision,
        by=by,
        at=at,
        words=words_of(case.older, case.newer),
    )
    return ("setting", {"key": PREFIX + case.key, "value": msgspec.to_builtins(judgement)})


class Kept:
    """Every judgement of a bank, and which memories they are about still stand."""

    def __init__(self, engine: Engine) -> None:
        self.judgements = judgements(engine)
        self._engine = engine
        both = (i for judgement in self.judgements.values() for i in (judgement.older, judgement.newer))
        self._current, self._active = standing(engine, both)

    def waiting(self) -> list[Judgement]:
        """Those that are not decided, both sides still current."""
        active = self._active
        return [
            judgement
            for judgement in self.judgements.values()
            if judgement.decision is None and judgement.older in active and judgement.newer in active
        ]

    def pending(self) -> list[Case]:
        """The cases that wait, with their memories; what says something else by now waits for the rules."""
        waiting = self.waiting()
        known = by_id(self._engine, (i for judgement in waiting for i in (judgement.older, judgement.newer)))
        return [
            Case(
                older=known[judgement.older],
                newer=known[judgement.newer],
                kind=judgement.kind,
                similarity=judgement.similarity,
                confidence=judgement.confidence,
            )
            for judgement in waiting
            if judgement.older in known and judgement.newer in known and _still_said(judgement, known)
        ]

    def let_go(self, now: float, *, most: int, days: float) -> list[list[Plan]]:
        """The events that let go of what need not be kept, judgement by judgement.

        What a pair cost its memories before anybody decided on it, they get back: there is nothing left to decide.
        """
        found = {key: self.judgements[key] for key in self.outdated(now, most=most, days=days)}
        return [
            dropped(self._engine, key, judgement, "no longer to be decided")
            if judgement.decision is None
            else [("setting", {"key": key, "value": None})]
            for key, judgement in found.items()
        ]

    def outdated(self, now: float, *, most: int, days: float) -> list[str]:
        """The keys of judgements that need not be kept.

        Those of which a side is no longer current, whether decided or not; those decided long ago; and the oldest
        decisions beyond `most`. A decision that was let go costs at most one more question, and only if one of the two
        memories changes again.
        """
        gone = {
            key
            for key, j in self.judgements.items()
            if j.older not in self._current or j.newer not in self._current
        }
        decided = {
            key: j.at for key, j in self.judgements.items() if j.decision is not None and key not in gone
        }
        newest = sorted(decided, key=lambda key: (-decided[key], key))
        old = [key for key in newest[:most] if decided[key] < now - days * DAY]
        return sorted([*gone, *old, *newest[most:]])


def pending(engine: Engine) -> list[Case]:
    """The cases that wait, both sides still current."""
    return Kept(engine).pending()


def as_they_are(engine: Engine, cases: Sequence[Case]) -> list[Case]:
    """Cases with their memories read again; without those of which one was forgotten."""
    known = by_id(engine, (memory.id for case in cases for memory in (case.older, case.newer)))
    return [
        msgspec.structs.replace(case, older=known[case.older.id], newer=known[case.newer.id])
        for case in cases
        if case.older.id in known and case.newer.id in known
    ]


def dropped(engine: Engine, key: str, judgement: Judgement, why: str) -> list[Plan]:
    """The events that let a judgement go; like any setting, the last writer's word counts in every replica."""
    plans = decisions.reconciled(engine, judgement.older, judgement.newer, why)
    return [*plans, ("setting", {"key": key, "value": None})]


def decided_plans(engine: Engine, case: Case, decision: Decision, by: str) -> list[Plan]:
    """The events that carry out a decision and remember it."""
    remembered = _written(case, decisions.carried_out(case, decision), by, engine.now())
    return [*decisions.plans_for(engine, case, decision, by), remembered]


def resolve(engine: Engine, a: str, b: str, decision: str, by: str) -> list[Event]:
    """Decide a pair, whether it waits for a judge or not: both hold, one replaces the other, and so on."""
    word = decision.strip().upper()
    if word not in DECISIONS:
        raise InvalidInputError(
            f"decision must be one of {', '.join(DECISIONS)}, got {decision!r}", field="decision"
        )
    key = key_of(a, b)
    case = next((case for case in pending(engine) if PREFIX + case.key == key), None) or _case(engine, a, b)
    if word == "SUPERSEDED" and case.older.id in chain(case.newer.id, engine.get):
        raise InvalidInputError(f"{case.newer.id} was itself replaced by {case.older.id}", field="decision")
    if decisions.carried_out(case, word) != word:  # type: ignore[arg-type]
        raise InvalidInputError(
            f"{case.older.id} is pinned, so no judgement replaces it; decide KEEP_BOTH, or replace it yourself:"
            f" `skep supersede {case.older.id} {case.newer.id}`",
            field="decision",
        )
    events, _ = engine.write(decided_plans(engine, case, word, by))  # type: ignore[arg-type]
    return events


def _case(engine: Engine, a: str, b: str) -> Case:
    """A pair that nobody has asked about."""
    if a == b:
        raise InvalidInputError(
            f"{a} cannot be judged against itself; pass two different memories", field="b"
        )
    one, other = engine.memory(a), engine.memory(b)
    for memory in (one, other):
        if memory.status not in CURRENT:
            raise NotFoundError(
                f"{memory.id} is {memory.status}, so there is nothing to decide; `restore` makes it current again"
            )
    older, newer = older_first(one, other, engine.now())
    return Case(older=older, newer=newer, kind="asked", similarity=0.0, confidence=1.0)


TRIES = 2
_MOVES = {"MERGE": "merge", "SUPERSEDED": "supersede"}
"""The decisions that move a memory, and the event that does it."""


def ask(
    run: Run,
    judge: Judge | None,
    kept: Kept,
    *,
    max_tokens: int,
    max_money: float,
) -> None:
    """Decide what waits, as far as the limits go, surest pairs first."""
    run.queued = len(kept.waiting())
    if judge is None or not run.queued or run.dry:
        run.note("judge", looked_at=run.queued, note=f"{run.queued} wait for a judge" if run.queued else "")
        return
    cases = kept.pending()
    cases.sort(key=lambda case: (-case.confidence, case.key))
    asked = cases[: _affordable(run, judge, cases, max_tokens, max_money)]
    decisions: dict[str, Decision] = {}
    problem = ""
    for _ in range(TRIES):
        waiting = [case for case in asked if case.key not in decisions]
        waiting = waiting[: _affordable(run, judge, waiting, max_tokens, max_money)]
        if not waiting:
            break
        try:
            answer = _answer(judge, waiting)
        except JudgeError as error:
            problem = str(error)
            continue
        problem = answer.problem
        run.tokens += answer.tokens
        run.money += answer.money
        given = zip(waiting, answer.decisions, strict=False)
        decisions |= {case.key: decision for case, decision in given if decision is not None}
    missing = len(asked) - len(decisions)
    note = ""
    if missing:
        note = f"{'1 pair was' if missing == 1 else f'{missing} pairs were'} not decided"
        note += (
            f": {problem}" if problem else "; both memories are kept, and the judge is asked again next time"
        )
    if len(asked) < len(cases):
        limit = f"the limits allow asking about {len(asked)} of {len(cases)} pairs; the others wait"
        note = f"{note}; {limit}" if note else limit
    actions = _carry_out(
        run,
        [case for case in asked if case.key in decisions],
        decisions,
        str(getattr(judge, "name", "judge")),
    )
    run.report("judge", actions, looked_at=len(cases), note=note)
    run.queued = None  # a decision may have settled other pairs, too


def _answer(judge: Judge, cases: list[Case]) -> Verdicts:
    """The checked answer of a judge: anybody may have written it."""
    try:
        given = cast("object", judge.decide(cases))
    except JudgeError:
        raise
    except Exception as error:  # whatever it is, the run goes on, and the report says what happened
        raise JudgeError(
            f"the judge failed ({type(error).__name__}: {error}); both memories are kept"
        ) from error
    if not isinstance(given, Verdicts) or not isinstance(given.decisions, tuple | list):  # pyright: ignore
        raise JudgeError(f"the judge gave {given!r:.100}, not verdicts; both memories are kept")
    if len(given.decisions) != len(cases):  # which of them is meant for which pair, nobody can tell
        gave = counted_report(len(given.decisions), "decision")
        few = f"the judge gave {gave} for {counted_report(len(cases), 'pair')}"
        given = msgspec.structs.replace(
            given, decisions=(None,) * len(cases), problem=f"{few}; both memories are kept"
        )
    return Verdicts(
        decisions=tuple(known_word(word) for word in given.decisions),
        tokens=int(_amount(given.tokens)),
        money=_amount(given.money),
        problem=given.problem,
    )


def _amount(value: float) -> float:
    """A cost; nothing if it is none."""
    return value if isinstance(value, int | float) and 0 < value < math.inf else 0  # pyright: ignore


def _affordable(run: Run, judge: Judge, cases: list[Case], max_tokens: int, max_money: float) -> int:
    """The number of first cases for which the rest of the budget is expected to be enough."""
    if getattr(judge, "free", False):
        return len(cases)
    if run.money > 0 and run.money >= max_money:
        return 0
    return fitting(
        cases,
        tokens=max_tokens - run.tokens,
        money=max_money - run.money,
        price_per_million=float(getattr(judge, "price_per_million", 0.0)),
    )


def _carry_out(run: Run, cases: list[Case], decisions: Mapping[str, Decision], by: str) -> list[Action]:
    """Carry out decisions in rounds: what one has moved, another looks at again before it moves it on."""
    done: list[Action] = []
    while cases:
        moved: set[str] = set()
        later: list[Case] = []
        actions: list[Action] = []
        for case in cases:
            both = {case.older.id, case.newer.id}
            if both & moved:
                later.append(case)
                continue
            if decisions[case.key] in _MOVES:
                moved |= both
            actions.append(_decided(run, case, decisions[case.key], by))
        run.write(actions)
        done += actions
        cases = as_they_are(run.engine, later)
    return done


def _decided(run: Run, case: Case, decision: Decision, by: str) -> Action:
    plans = decided_plans(run.engine, case, decision, by)
    carried_out = decisions_module.carried_out(case, decision)
    if carried_out != decision:
        word = f"{carried_out} instead of {decision}, as it is pinned"
    elif decision in _MOVES and not any(kind == _MOVES[decision] for kind, _body in plans):
        word = f"settled by another decision ({decision})"
    else:
        word = decision
    return Action(
        step="judge",
        why=f"{word}: {case.older.text!r} and {case.newer.text!r}",
        memories=(case.older.id, case.newer.id),
        plans=tuple(plans),
    )
