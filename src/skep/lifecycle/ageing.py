"""What time does: expiry, fading, age limits, and what stands on something that no longer does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set

import msgspec

from skep.confidence import effective
from skep.engine import Engine
from skep.lifecycle import consolidating
from skep.lifecycle.byhand import ByHand
from skep.lifecycle.clusters import by_threshold
from skep.lifecycle.deciding import disputes_by
from skep.lifecycle.distil import Distil, by_call, stated, summary
from skep.lifecycle.extraction import NEAREST, SAME_EVENT
from skep.lifecycle.nearness import load, neighbours
from skep.lifecycle.report import Action
from skep.model import CURRENT, Memory
from skep.storage.base import Filter
from skep.storage.fold import fold
from skep.storage.sqlite import Plan

DEPRECATED = 0.3
"""Effective confidence below which a fact is set aside."""
ROUNDED = 0.001
"""What the confidences that the index holds may differ by."""
DAY = 86_400.0
MADE_BY = "maintenance:"
"""How the source of what maintenance wrote begins."""
SUMMARISED = 3
"""Fewer episodes than this are not worth a summary."""


def _mark(step: str, memory: Memory, status: str, why: str) -> Action:
    plan: Plan = ("mark", {"memory": memory.id, "status": status, "reason": why})
    return Action(step=step, why=f"{memory.text!r}: {why}", memories=(memory.id,), plans=(plan,))


def expire(engine: Engine, now: float) -> list[Action]:
    """Plan the end of what has reached its time, unless somebody brought it back."""
    due, by_hand = engine.store.due(now), ByHand(engine)
    by_hand.look(memory.id for memory in due)
    return [
        _mark("expire", memory, "expired", "its time is over")
        for memory in due
        if not by_hand.kept(memory.id, "ttl", "expires_at")
    ]


def deprecate(
    engine: Engine, now: float, *, decay_per_day: float, waiting: Callable[[], Mapping[str, Set[str]]]
) -> list[Action]:
    """Plan the setting aside of facts that nothing has supported for too long. Pinned ones and procedures stay.

    The index tells which may be meant, because it need not read the whole bank for that; the bank decides. What a
    contradiction cost a fact does not count while the pair waits for a judge. What somebody brought back stays until
    something speaks against it.

    Args:
        engine: The bank.
        now: The time.
        decay_per_day: How fast confidence fades.
        waiting: Gives, by memory, the others that it waits with; called if something is about to be set aside.
    """
    facts = Filter(kinds=("fact",), now=now, decay_per_day=decay_per_day)
    firm = msgspec.structs.replace(facts, min_confidence=DEPRECATED + ROUNDED)
    rows: list[int] = engine.index.rows_where(facts, unless=firm).tolist()

    def faded(memory: Memory) -> bool:
        left = effective(memory.confidence, memory.last_evidence_at, now, per_day=decay_per_day)
        return left < DEPRECATED

    found = [
        memory
        for _row, memory in sorted(load(engine, rows).items())
        if memory.status in CURRENT and not memory.pinned and faded(memory)
    ]
    if not found:
        return []
    partners, by_hand = waiting(), ByHand(engine)
    by_hand.look(memory.id for memory in found)
    return [
        _mark("deprecate", memory, "deprecated", "too little confidence is left")
        for memory in found
        if (memory.id not in partners or faded(_undisputed(engine, memory, partners[memory.id])))
        and not by_hand.trusted(memory.id, partners.get(memory.id, ()))
    ]


def _undisputed(engine: Engine, memory: Memory, others: Set[str]) -> Memory:
    """A memory as it would be if others had not contradicted it."""
    events = engine.store.log.of(memory.id)
    left_out = {event.id for event in disputes_by(events, memory.id, others)}
    state = fold(memory.id, [event for event in events if event.id not in left_out]) if left_out else None
    return memory if state is None else state.memory


def prune(engine: Engine, now: float, days: float) -> list[Action]:
    """Plan the setting aside of what is older than an age. Pinned ones, procedures and what was brought back stay."""
    where = Filter(kinds=("fact", "episode", "document"), until=now - days * DAY, statuses=("active",))
    old = [memory for _row, memory in engine.store.find(where, limit=1 << 40) if not memory.pinned]
    by_hand = ByHand(engine)
    by_hand.look(memory.id for memory in old)
    return [
        _mark("prune", memory, "deprecated", f"older than {days:g} days")
        for memory in old
        if not by_hand.kept(memory.id)
    ]


def rederive(engine: Engine) -> list[Action]:
    """Plan for what is stale: say it again from the sources that still stand, or retire it."""
    actions: list[Action] = []
    by_hand = ByHand(engine)
    for memory in engine.store.stale_memories():
        if memory.pinned or memory.kind == "procedure" or not (memory.source or "").startswith(MADE_BY):
            continue  # what people or agents wrote stays as they wrote it, and marked as stale
        links = engine.store.links(memory.id, rel="derived_from", direction="out")
        found = {link.dst: engine.store.get(link.dst) for link in links}
        standing = [
            s
            for s in found.values()
            if s is not None and s.status in CURRENT and not s.stale and not s.disputes
        ]
        lost = [i for i, s in found.items() if s not in standing]
        if not standing and by_hand.kept(memory.id):
            continue
        if not standing:
            actions.append(
                _mark("rederive", memory, "deprecated", "what it was derived from no longer stands")
            )
            continue
        texts = [source.text for source in standing]
        text = (stated(texts) or memory.text) if memory.level == 0 else summary(texts)
        plans: list[Plan] = [("unlink", {"src": memory.id, "dst": i, "rel": "derived_from"}) for i in lost]
        if text != memory.text:
            plans.append(("revise", {"memory": memory.id, "changes": {"text": text}}))
        actions.append(
            Action(
                step="rederive",
                why=f"{memory.text!r} from the {len(standing)} sources that still stand",
                memories=(memory.id,),
                plans=tuple(plans),
            )
        )
    return actions


def reflect(
    engine: Engine,
    episodes: Sequence[Memory],
    *,
    consolidate: str = "soft",
    summarise: Distil | None = None,
) -> list[Action]:
    """Plan a summary per cluster of episodes; the sources are superseded by it, and with `hard` to be forgotten."""
    by_id = {episode.id: episode for episode in episodes}

    near = neighbours(engine, list(by_id.values()), kinds=("episode",), threshold=SAME_EVENT, limit=NEAREST)

    def joined(memory_id: str) -> list[str]:
        return [other.id for other, _ in near[memory_id] if other.id in by_id]

    groups = [
        sorted((by_id[i] for i in group), key=lambda m: (m.created_at, m.id))
        for group in by_threshold(sorted(by_id), joined)
        if len(group) >= SUMMARISED
    ]
    texts = [[episode.text for episode in group] for group in groups]
    words = by_call(summarise, texts) if summarise is not None else [summary(group) for group in texts]
    hard = consolidate == "hard"
    told = zip(groups, words, strict=True)
    return [_summary(engine, group, text, hard=hard) for group, text in told if text]


def _summary(engine: Engine, group: Sequence[Memory], text: str, *, hard: bool) -> Action:
    scope = group[0].scope
    trust = [engine.setting(f"trust/{m.agent}") for m in group if m.agent is not None]
    body: dict[str, object] = {
        "text": text,
        "kind": "episode",
        "level": max(m.level for m in group) + 1,
        "importance": sum(m.importance for m in group) / len(group),
        "confidence": min(m.confidence for m in group),
        "evidence": [m.id for m in group],
        "source": "maintenance: summary",
        "created_at": max(m.created_at for m in group),
        "metadata": {"trust": min([1.0, *(float(t) for t in trust if t is not None)])},
    }
    parts = {k: v for k in ("user", "project", "session") if (v := getattr(scope, k)) is not None}
    if parts:
        body["scope"] = parts
    plans: list[Plan] = [("remember", body)]
    for member in group:
        plans.append(("link", _derived(member.id)))
        plans.append(("supersede", _replaced(member.id)))
    if hard:
        plans.append(consolidating.noted(group))
    return Action(
        step="reflect",
        why=f"{len(group)} episodes in one: {text!r}",
        memories=tuple(m.id for m in group),
        plans=tuple(plans),
    )


def _derived(source: str) -> Callable[[Sequence[str]], dict[str, object]]:
    return lambda ids: {"src": ids[0], "dst": source, "rel": "derived_from", "strength": 1.0}


def _replaced(source: str) -> Callable[[Sequence[str]], dict[str, object]]:
    return lambda ids: {"old": source, "new": ids[0], "reason": "summarised"}
