"""Reflection: clusters of episodes become one memory of a higher level, which replaces them.

Each level is clustered by itself: three episodes that tell of the same thing make a summary of level 1, three such
summaries one of level 2. Whether the episodes came in one run or one by one makes no difference.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from skep.engine import Engine
from skep.lifecycle import consolidating
from skep.lifecycle.byhand import ByHand
from skep.lifecycle.clusters import Union
from skep.lifecycle.deriving import derived_from, inherited
from skep.lifecycle.distil import Distil, Worded, by_call, summary
from skep.lifecycle.evidence import in_doubt
from skep.lifecycle.extraction import NEAREST, SAME_EVENT
from skep.lifecycle.nearness import neighbours
from skep.lifecycle.report import Action, Planned
from skep.model import Memory
from skep.storage.sqlite import Plan

SUMMARISED = 3
"""Fewer memories than this are not worth a summary."""
TRUST = 1.0
"""How far is trusted who nobody has said anything about."""


def admitted(engine: Engine, memory: Memory) -> bool:
    """Whether a memory may be summed up; what is pinned stays as it is, and what expires goes by itself.

    An episode in doubt would be replaced by a summary that does not stand on it. A summary is said again instead.
    """
    if memory.kind != "episode" or memory.pinned or memory.expires_at is not None:
        return False
    return memory.level > 0 or not in_doubt(engine, memory)


def reflect(
    engine: Engine,
    changed: Sequence[Memory],
    *,
    consolidate: str = "soft",
    summarise: Distil | None = None,
    ask: bool = True,
) -> Planned:
    """Plan a summary per cluster; the sources are superseded by it, and with `hard` to be forgotten.

    With `ask=False` a given `summarise` is not called: only what it would be asked about is told.
    """
    by_hand = ByHand(engine)
    by_hand.look(memory.id for memory in changed)
    groups = _clusters(
        engine, [m for m in changed if admitted(engine, m) and not by_hand.kept(m.id, "text")], by_hand
    )
    if summarise is not None and not ask:
        return Planned([_to_sum_up(group) for group in groups])
    texts = [[episode.text for episode in group] for group in groups]
    told = by_call(summarise, texts) if summarise is not None else Worded([summary(group) for group in texts])
    hard = consolidate == "hard"
    worded = zip(groups, told.texts, strict=False)
    return Planned([_summary(engine, group, text, hard=hard) for group, text in worded if text], told.problem)


def _clusters(engine: Engine, changed: Sequence[Memory], by_hand: ByHand) -> list[list[Memory]]:
    """What is near what changed, and near that, level by level; clusters worth a summary, each oldest first.

    What somebody brought back stays as it is.
    """
    known = {memory.id: memory for memory in changed}
    union = Union()
    frontier = list(known.values())
    while frontier:
        near = neighbours(engine, frontier, kinds=("episode",), threshold=SAME_EVENT, limit=NEAREST)
        found: dict[str, Memory] = {}
        by_hand.look(other.id for memory in frontier for other, _ in near[memory.id])
        for memory in frontier:
            union.find(memory.id)
            for other, _ in near[memory.id]:
                if (
                    admitted(engine, other)
                    and other.level == memory.level
                    and not by_hand.kept(other.id, "text")
                ):
                    union.join(memory.id, other.id)
                    if other.id not in known:
                        found[other.id] = other
        known |= found
        frontier = list(found.values())
    return [
        sorted((known[i] for i in group), key=lambda m: (m.created_at, m.id))
        for group in union.groups()
        if len(group) >= SUMMARISED
    ]


def _trust(engine: Engine, memory: Memory) -> float:
    """How far a source is trusted; a summary as far as it says itself."""
    value = memory.metadata.get("trust") if memory.level and memory.agent is None else None
    if value is None and memory.agent is not None:
        value = engine.setting(f"trust/{memory.agent}")
    return TRUST if value is None else float(value)


def _to_sum_up(group: Sequence[Memory]) -> Action:
    why = f"{len(group)} {_what(group)} to be summed up, such as {group[0].text!r}"
    return Action(step="reflect", why=why, memories=tuple(m.id for m in group))


def _what(group: Sequence[Memory]) -> str:
    return "summaries" if group[0].level else "episodes"


def _summary(engine: Engine, group: Sequence[Memory], text: str, *, hard: bool) -> Action:
    body: dict[str, object] = {
        "text": text,
        "kind": "episode",
        "level": max(m.level for m in group) + 1,
        "confidence": min(m.confidence for m in group),
        "source": "maintenance: summary",
        "metadata": {"trust": min(_trust(engine, m) for m in group)},
        **inherited(group),
    }
    plans: list[Plan] = [("remember", body)]
    for member in group:
        plans.append(("link", derived_from(member.id)))
        plans.append(("supersede", _replaced(member.id)))
    if hard:
        plans.append(consolidating.noted(group))
    return Action(
        step="reflect",
        why=f"{len(group)} {_what(group)} in one: {text!r}",
        memories=tuple(m.id for m in group),
        plans=tuple(plans),
    )


def _replaced(source: str) -> Callable[[Sequence[str]], dict[str, object]]:
    return lambda ids: {"old": source, "new": ids[0], "reason": "summarised"}
