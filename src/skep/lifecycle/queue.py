"""The judgements that wait, and those that were made; kept as settings, so that every replica knows them."""

from __future__ import annotations

import msgspec

from skep.engine import Engine
from skep.errors import InvalidInputError, NotFoundError
from skep.lifecycle.judge import DECISIONS, Case, Decision
from skep.model import Event, Memory
from skep.semantics.links import chain
from skep.storage.sqlite import Plan

PREFIX = "judgement/"


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """One pair: `decision` is None while it waits."""

    older: str
    newer: str
    kind: str
    similarity: float
    confidence: float
    decision: str | None = None
    by: str | None = None


def key_of(a: str, b: str) -> str:
    """The setting that holds the judgement on two memories."""
    return PREFIX + "|".join(sorted((a, b)))


def known_pairs(engine: Engine) -> set[str]:
    """The keys of all pairs that wait or were decided: the rules need not look at them again."""
    return set(engine.store.settings_under(PREFIX))


def queue_plan(case: Case) -> Plan:
    """The event that queues a case."""
    judgement = Judgement(
        older=case.older.id,
        newer=case.newer.id,
        kind=case.kind,
        similarity=round(case.similarity, 4),
        confidence=round(case.confidence, 4),
    )
    return ("setting", {"key": PREFIX + case.key, "value": msgspec.to_builtins(judgement)})


def pending(engine: Engine) -> list[Case]:
    """The cases that wait, both sides still current."""
    cases: list[Case] = []
    for value in engine.store.settings_under(PREFIX).values():
        judgement = msgspec.convert(value, Judgement)
        if judgement.decision is not None:
            continue
        older, newer = engine.store.get(judgement.older), engine.store.get(judgement.newer)
        if older is None or newer is None or "active" not in (older.status, newer.status):
            continue
        if older.status != "active" or newer.status != "active":
            continue
        cases.append(
            Case(
                older=older,
                newer=newer,
                kind=judgement.kind,
                similarity=judgement.similarity,
                confidence=judgement.confidence,
            )
        )
    return cases


def decided_plans(case: Case, decision: Decision, by: str) -> list[Plan]:
    """The events that carry out a decision and remember it."""
    older, newer = case.older, case.newer
    plans: list[Plan] = []
    match decision:
        case "MERGE":
            winner, loser = best_first(older, newer)
            evidence = list(dict.fromkeys((loser.id, *loser.evidence)))
            plans.append(
                ("merge", {"loser": loser.id, "winner": winner.id, "evidence": evidence, "reason": by})
            )
        case "SUPERSEDED":
            plans.append(("supersede", {"old": older.id, "new": newer.id, "reason": by}))
        case "CONTRADICTION":
            plans += contradiction_plans(older, newer)
        case _:
            pass
    judgement = Judgement(
        older=older.id,
        newer=newer.id,
        kind=case.kind,
        similarity=round(case.similarity, 4),
        confidence=round(case.confidence, 4),
        decision=decision,
        by=by,
    )
    plans.append(("setting", {"key": PREFIX + case.key, "value": msgspec.to_builtins(judgement)}))
    return plans


def contradiction_plans(older: Memory, newer: Memory) -> list[Plan]:
    """Both lose half of their confidence, once, and are linked."""
    return [
        ("dispute", {"memory": older.id, "by": newer.id}),
        ("dispute", {"memory": newer.id, "by": older.id}),
        ("link", {"src": newer.id, "dst": older.id, "rel": "contradicts", "strength": 1.0}),
    ]


def best_first(a: Memory, b: Memory) -> tuple[Memory, Memory]:
    """The one to keep: more confident, then better evidenced, then older."""
    ranked = sorted((a, b), key=lambda m: (-m.confidence, -len(m.evidence), m.created_at, m.id))
    return ranked[0], ranked[1]


def resolve(engine: Engine, a: str, b: str, decision: str, by: str) -> list[Event]:
    """Decide one pair that waits."""
    word = decision.strip().upper()
    if word not in DECISIONS:
        raise InvalidInputError(
            f"decision must be one of {', '.join(DECISIONS)}, got {decision!r}", field="decision"
        )
    key = key_of(a, b)
    case = next((case for case in pending(engine) if PREFIX + case.key == key), None)
    if case is None:
        raise NotFoundError(
            f"no judgement on {a} and {b} is pending; `pending_judgements` lists those that are"
        )
    if word == "SUPERSEDED" and case.older.id in chain(case.newer.id, engine.store.get):
        raise InvalidInputError(f"{case.newer.id} was itself replaced by {case.older.id}", field="decision")
    events, _ = engine.write(decided_plans(case, word, by))  # type: ignore[arg-type]
    return events
