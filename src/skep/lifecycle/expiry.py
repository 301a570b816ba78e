"""Plans of the steps `expire`, `deprecate`, `prune` and `rederive`. Maintenance calls them; nothing is written here.

A ttl removes a memory exactly at its end. Age alone sets nothing aside, unless a policy of decay or an age limit was
chosen by name.
"""

from __future__ import annotations

import msgspec

from skep.confidence import DEPRECATED, FADING, effective
from skep.engine.engine import Engine
from skep.filters import Filter
from skep.lifecycle.decisions import ByHand
from skep.lifecycle.extract_facts import in_doubt
from skep.lifecycle.maintenance_run import Action
from skep.lifecycle.reflect import summed_up
from skep.lifecycle.summarise import stated, summary
from skep.model import CURRENT, Memory
from skep.semantics.evidence import Said, supports_many
from skep.semantics.find_conflicts import load
from skep.storage.sqlite_store import Plan

ROUNDED = 0.001
"""What the confidences that the index holds may differ by."""
DAY = 86_400.0
MADE_BY = "maintenance:"
"""How the source of what maintenance wrote begins."""


STATED = 0.8
"""How near a fact and its sources are taken to be."""


def _mark(step: str, memory: Memory, status: str, why: str) -> Action:
    plan: Plan = ("mark", {"memory": memory.id, "status": status, "reason": why})
    return Action(step=step, why=f"{memory.text!r}: {why}", memories=(memory.id,), plans=(plan,))


def expire(engine: Engine, now: float) -> list[Action]:
    """Plan the end of what has reached its time, unless somebody brought it back."""
    due, by_hand = engine.due(now), ByHand(engine)
    by_hand.look(memory.id for memory in due)
    return [
        _mark("expire", memory, "expired", "its time is over")
        for memory in due
        if not by_hand.kept(memory.id, "ttl", "expires_at")
    ]


def deprecate(engine: Engine, now: float, *, decay: str = "none") -> list[Action]:
    """Plan the setting aside of facts of which less than 0.3 of confidence is left. Pinned ones and procedures stay.

    The index tells which may be meant, because it need not read the whole bank for that; the bank decides. What
    somebody brought back stays until something speaks against it.

    Args:
        engine: The bank.
        now: The time.
        decay: A policy of `confidence.FADING`; with `hours` only facts with a ttl fade.
    """
    rate = FADING[decay]
    facts = Filter(kinds=("fact",), now=now, decay_per_day=rate)
    firm = msgspec.structs.replace(facts, min_confidence=DEPRECATED + ROUNDED)
    rows: list[int] = engine.index.rows_where(facts, unless=firm).tolist()

    def left(memory: Memory) -> float:
        fades = decay != "hours" or memory.expires_at is not None
        return effective(memory.confidence, memory.last_evidence_at, now, per_day=rate if fades else 0.0)

    found = [
        memory
        for _row, memory in sorted(load(engine, rows).items())
        if memory.status in CURRENT and not memory.pinned and left(memory) < DEPRECATED
    ]
    by_hand = ByHand(engine)
    by_hand.look(memory.id for memory in found)
    return [
        _mark("deprecate", memory, "deprecated", _why(memory, left(memory), decay))
        for memory in found
        if not by_hand.trusted(memory.id)
    ]


def _why(memory: Memory, left: float, decay: str) -> str:
    if memory.confidence < DEPRECATED:
        return f"its confidence is {memory.confidence:.2f}, below {DEPRECATED}"
    return f"its confidence of {memory.confidence:.2f} faded to {left:.2f} by the policy decay={decay}"


def prune(engine: Engine, now: float, days: float) -> list[Action]:
    """Plan the setting aside of what is older than an age. Pinned ones, procedures and what was brought back stay."""
    where = Filter(kinds=("fact", "episode", "document"), until=now - days * DAY, statuses=("active",))
    old = [memory for _row, memory in engine.find(where, limit=1 << 40) if not memory.pinned]
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
    for memory in engine.stale_memories():
        if memory.pinned or memory.kind == "procedure" or not (memory.source or "").startswith(MADE_BY):
            continue  # what people or agents wrote stays as they wrote it, and marked as stale
        links = engine.links(memory.id, rel="derived_from", direction="out")
        found = {link.dst: engine.get(link.dst) for link in links}
        standing = [s for s in found.values() if s is not None and _stands(engine, s)]
        lost = [i for i, s in found.items() if s not in standing]
        if not standing and by_hand.kept(memory.id):
            continue
        if not standing:
            actions.append(
                _mark("rederive", memory, "deprecated", "what it was derived from no longer stands")
            )
            continue
        plans: list[Plan] = [("unlink", {"src": memory.id, "dst": i, "rel": "derived_from"}) for i in lost]
        changes: dict[str, object] = {}
        text = _said_again(memory, [source.text for source in standing])
        if text != memory.text:
            changes["text"] = text
        evidence = [i for i in memory.evidence if i not in lost and not engine.is_forgotten(i)]
        if evidence != list(memory.evidence):
            changes["evidence"] = evidence
        if changes:
            plans.append(("revise", {"memory": memory.id, "changes": changes}))
        sources = (
            "1 source that still stands"
            if len(standing) == 1
            else f"{len(standing)} sources that still stand"
        )
        actions.append(
            Action(
                step="rederive",
                why=f"{memory.text!r} from the {sources}",
                memories=(memory.id,),
                plans=tuple(plans),
            )
        )
    return actions


def _stands(engine: Engine, source: Memory) -> bool:
    """True if something can still be derived from a memory; what was only summed up has lost nothing."""
    if in_doubt(engine, source):
        return False
    return source.status in CURRENT or summed_up(engine, source.id)


def _said_again(memory: Memory, texts: list[str]) -> str:
    """The text of a derived memory by its sources of today; its own words, if a source still says them."""
    if memory.level:
        return summary(texts)
    if any(supports_many([Said(memory.text, text, STATED) for text in texts])):
        return memory.text
    return stated(texts) or memory.text
