"""Evidence: episodes that say what a fact says raise its confidence, once each."""

from __future__ import annotations

from collections.abc import Sequence

from skep.engine import Engine
from skep.lifecycle.nearness import neighbours
from skep.lifecycle.report import Action, counted
from skep.model import CURRENT, Memory
from skep.semantics.supporting import Said, supports_many
from skep.storage.base import Filter

SUPPORTS = 0.75
"""Similarity from which an episode may support a fact."""
SUPPORTED = 4
"""How many facts an episode may support."""
SUPPORTING = 64
"""How many earlier episodes are looked at for a fact that came after them."""


def support(engine: Engine, changed: Sequence[Memory]) -> list[Action]:
    """Plan evidence for facts near new episodes, and from episodes near new facts.

    A summary is no evidence: the episodes that it sums up were counted. Nor is what is in doubt.
    """
    episodes = [memory for memory in changed if memory.kind == "episode" and memory.level == 0]
    facts = [memory for memory in changed if memory.kind == "fact"]
    pairs: dict[tuple[str, str], tuple[Memory, Memory, float]] = {}
    near = neighbours(engine, episodes, kinds=("fact",), threshold=SUPPORTS, limit=SUPPORTED)
    for episode in episodes:
        for fact, similarity in near[episode.id]:
            pairs[fact.id, episode.id] = fact, episode, similarity
    if facts and _has_episodes(engine):
        near = neighbours(engine, facts, kinds=("episode",), threshold=SUPPORTS, limit=SUPPORTING)
        for fact in facts:
            for episode, similarity in near[fact.id]:
                if episode.level == 0:
                    pairs.setdefault((fact.id, episode.id), (fact, episode, similarity))
    new = [pair for pair in pairs.values() if pair[1].id not in pair[0].evidence]
    asked = [Said(fact.text, episode.text, similarity) for fact, episode, similarity in new]
    found: dict[str, tuple[Memory, list[str]]] = {}
    for (fact, episode, _), told in zip(new, supports_many(asked), strict=True):
        if told and not in_doubt(engine, episode):
            found.setdefault(fact.id, (fact, []))[1].append(episode.id)
    return [_evidence(fact, sources) for fact, sources in found.values()]


def in_doubt(engine: Engine, memory: Memory) -> bool:
    """Whether something contradicts a memory, or what it was derived from no longer stands: nothing follows from it."""
    return memory.stale or memory.disputes > 0 or engine.store.contradicted(memory.id)


def _has_episodes(engine: Engine) -> bool:
    """Asked of the index: where there is none, a store has to look at everything to tell."""
    episodes, facts = (Filter(kinds=(kind,), statuses=CURRENT) for kind in ("episode", "fact"))
    return bool(len(engine.index.rows_where(episodes, unless=facts)))


def _evidence(fact: Memory, sources: list[str]) -> Action:
    support = "supports" if len(sources) == 1 else "support"
    return Action(
        step="evidence",
        why=f"{counted(len(sources), 'episode')} {support} {fact.text!r}",
        memories=(fact.id,),
        plans=(("evidence", {"memory": fact.id, "sources": sources}),),
    )
