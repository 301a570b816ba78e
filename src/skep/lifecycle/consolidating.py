"""Forgetting what was summed up, if that was asked for, even when a run was cut short in between.

The event that replaces episodes by a summary stands in one transaction with a note of what is to be forgotten. The
note goes when that is done, so a run that finds one finishes what another began.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from skep.engine import Engine
from skep.engine.forgetting import forget, passed_on
from skep.lifecycle.running import Run
from skep.model import Memory
from skep.storage.sqlite import Plan

PREFIX = "consolidate/"


def noted(sources: Sequence[Memory]) -> Plan:
    """The event that notes the sources of one summary as to be forgotten."""
    return ("setting", {"key": PREFIX + sources[0].id, "value": [source.id for source in sources]})


def finish(run: Run) -> str:
    """Forget what is noted and still replaced by its summary; in words, what was done or could not be.

    What somebody restored in the meantime stays.
    """
    engine = run.engine
    notes = {key: ids for key, ids in engine.store.settings_under(PREFIX).items() if _is_note(key, ids)}
    if not notes:
        return ""
    ids = [i for sources in notes.values() for i in sources]
    if run.lease is None:
        would = [i for i in ids if summed_up(engine, i)]
        return f"would forget {_episodes(would)} for good" if would else ""
    with engine.store.writing():  # looked at and forgotten at one moment: what somebody restores now stays
        run.lease.check()
        replaced = [i for i in ids if summed_up(engine, i)]
        plans = _repointed(engine, replaced)
        if replaced:
            plans += [*passed_on(engine.store, replaced), ("forget", {"memories": replaced})]
        engine.write(plans)
    unreached: tuple[str, ...] = ()
    again = [i for i in ids if engine.store.is_forgotten(i)]
    if again:  # what is forgotten may still stand in the index or in copies
        unreached = forget(engine, again).unreached
    engine.write([("setting", {"key": key, "value": None}) for key in notes])
    done = f"forgot {_episodes(replaced)} for good" if replaced else ""
    return "; ".join([*([done] if done else []), *(f"not reached: {each}" for each in unreached)])


def _is_note(key: str, value: object) -> bool:
    """Whether a setting is a note of ours; anybody may have settings under any name."""
    if not isinstance(value, list) or not value:
        return False
    ids = cast("list[object]", value)
    return all(isinstance(each, str) for each in ids) and key == f"{PREFIX}{ids[0]}"


def summed_up(engine: Engine, memory_id: str) -> bool:
    """Whether a memory is replaced by a summary of it, and not by something else since."""
    memory = engine.store.get(memory_id)
    if memory is None or memory.status != "superseded" or memory.superseded_by is None:
        return False
    summary = engine.store.get(memory.superseded_by)
    links = engine.store.links(memory_id, rel="derived_from", direction="in")
    return (
        summary is not None and summary.level > memory.level and any(link.src == summary.id for link in links)
    )


def _episodes(ids: Sequence[str]) -> str:
    return "1 episode" if len(ids) == 1 else f"{len(ids)} episodes"


def _repointed(engine: Engine, sources: Sequence[str]) -> list[Plan]:
    """Events that move what was derived from sources over to the summary that replaced them."""
    plans: list[Plan] = []
    for source in sources:
        memory = engine.store.get(source)
        summary = memory.superseded_by if memory is not None else None
        for link in engine.store.links(source, rel="derived_from", direction="in"):
            plans.append(("unlink", {"src": link.src, "dst": source, "rel": "derived_from"}))
            if summary is not None and link.src != summary:
                moved = {"src": link.src, "dst": summary, "rel": "derived_from", "strength": link.strength}
                plans.append(("link", moved))
    return plans
