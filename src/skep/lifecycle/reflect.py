"""Plans of the step `reflect`: clusters of episodes become one summary of a higher level, which replaces them.

Each level is clustered by itself: three episodes that tell of the same thing make a summary of level 1, three such
summaries one of level 2. Whether the episodes came in one run or one by one makes no difference. With `hard` the
episodes are forgotten: a note of them stands in the transaction that replaces them and goes when that is done, so that
a run that finds one finishes what another began.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

from skep.engine.engine import Engine, forget, passed_on
from skep.lifecycle.decisions import ByHand
from skep.lifecycle.extract_facts import NEAREST, SAME_EVENT, in_doubt
from skep.lifecycle.maintenance_run import Action, Planned, Run
from skep.lifecycle.similar_memories import Union, derived_from, inherited, least_trust
from skep.lifecycle.summarise import Distil, Worded, by_call, summary
from skep.model import Memory
from skep.semantics.find_conflicts import neighbours
from skep.storage.sqlite_store import Plan

PREFIX = "consolidate/"


def noted(sources: Sequence[Memory]) -> Plan:
    """The event that notes the sources of one summary as to be forgotten."""
    return ("setting", {"key": PREFIX + sources[0].id, "value": [source.id for source in sources]})


def finish(run: Run) -> str:
    """Forget what is noted and still replaced by its summary; in words, what was done or could not be.

    What somebody restored in the meantime stays.
    """
    engine = run.engine
    notes = {key: ids for key, ids in engine.settings_under(PREFIX).items() if _is_note(key, ids)}
    if not notes:
        return ""
    ids = [i for sources in notes.values() for i in sources]
    if run.lease is None:
        would = [i for i in ids if summed_up(engine, i)]
        return f"would forget {_episodes(would)} for good" if would else ""
    with engine.writing():  # looked at and forgotten at one moment: what somebody restores now stays
        run.lease.check()
        replaced = [i for i in ids if summed_up(engine, i)]
        plans = _repointed(engine, replaced)
        if replaced:
            plans += [*passed_on(engine, replaced), ("forget", {"memories": replaced})]
        engine.write(plans)
    unreached: tuple[str, ...] = ()
    again = [i for i in ids if engine.is_forgotten(i)]
    if again:  # what is forgotten may still stand in the index or in copies
        unreached = forget(engine, again).unreached
    engine.write([("setting", {"key": key, "value": None}) for key in notes])
    done = f"forgot {_episodes(replaced)} for good" if replaced else ""
    return "; ".join([*([done] if done else []), *(f"not reached: {each}" for each in unreached)])


def _is_note(key: str, value: object) -> bool:
    """True if a setting is a note of ours; anybody may have settings under any name."""
    if not isinstance(value, list) or not value:
        return False
    ids = cast("list[object]", value)
    return all(isinstance(each, str) for each in ids) and key == f"{PREFIX}{ids[0]}"


def summed_up(engine: Engine, memory_id: str) -> bool:
    """True if a memory is replaced by a summary of it, and not by something else since."""
    memory = engine.get(memory_id)
    if memory is None or memory.status != "superseded" or memory.superseded_by is None:
        return False
    summary = engine.get(memory.superseded_by)
    links = engine.links(memory_id, rel="derived_from", direction="in")
    return (
        summary is not None and summary.level > memory.level and any(link.src == summary.id for link in links)
    )


def _episodes(ids: Sequence[str]) -> str:
    return "1 episode" if len(ids) == 1 else f"{len(ids)} episodes"


def _repointed(engine: Engine, sources: Sequence[str]) -> list[Plan]:
    """Events that move what was derived from sources over to the summary that replaced them."""
    plans: list[Plan] = []
    for source in sources:
        memory = engine.get(source)
        summary = memory.superseded_by if memory is not None else None
        for link in engine.links(source, rel="derived_from", direction="in"):
            plans.append(("unlink", {"src": link.src, "dst": source, "rel": "derived_from"}))
            if summary is not None and link.src != summary:
                moved = {"src": link.src, "dst": summary, "rel": "derived_from", "strength": link.strength}
                plans.append(("link", moved))
    return plans


SUMMARISED = 3
"""Fewer memories than this are not worth a summary."""


def admitted(engine: Engine, memory: Memory) -> bool:
    """True if a memory may be summed up; what is pinned stays as it is, and what expires goes by itself.

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
    """Clusters worth a summary around changed memories, level by level, each oldest first.

    What somebody brought back stays as it is.
    """
    known = {memory.id: memory for memory in changed}
    union = Union()
    frontier = list(known.values())
    while frontier:
        near = neighbours(engine, frontier, threshold=SAME_EVENT, limit=NEAREST)
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
        "metadata": {"trust": least_trust(engine, group)},
        **inherited(group),
    }
    plans: list[Plan] = [("remember", body)]
    for member in group:
        plans.append(("link", derived_from(member.id)))
        plans.append(("supersede", _replaced(member.id)))
    if hard:
        plans.append(noted(group))
    return Action(
        step="reflect",
        why=f"{len(group)} {_what(group)} in one: {text!r}",
        memories=tuple(m.id for m in group),
        plans=tuple(plans),
    )


def _replaced(source: str) -> Callable[[Sequence[str]], dict[str, object]]:
    return lambda ids: {"old": source, "new": ids[0], "reason": "summarised"}
