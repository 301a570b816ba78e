"""From episodes to facts: cluster what happened by meaning, and keep what each cluster says, with its evidence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce

from skep.engine import Engine
from skep.lifecycle.clusters import by_density, by_threshold
from skep.lifecycle.distil import Distil, by_call, stated
from skep.lifecycle.nearness import by_id as load_by_id
from skep.lifecycle.nearness import neighbours
from skep.lifecycle.report import Action
from skep.model import CURRENT, Memory
from skep.semantics.compare import compare
from skep.storage.sqlite import Plan

SAME_EVENT = 0.80
"""Similarity from which episodes tell of the same thing."""
SUPPORTS = 0.75
"""Similarity from which an episode may support a fact."""
NEAREST = 16
"""How many of the nearest episodes are joined to one."""
SUPPORTED = 4
"""How many facts an episode may support."""
EXTRACTED = 0.7
"""The confidence of a fact that was distilled, before its evidence counts."""


def extract(
    engine: Engine,
    episodes: Sequence[Memory],
    *,
    smallest: int = 2,
    cluster: str = "threshold",
    distil: Distil | None = None,
) -> list[Action]:
    """Plan one fact per cluster of episodes, or more evidence for a fact that was distilled from it before."""
    by_id = {episode.id: episode for episode in episodes}
    groups = _clusters(engine, by_id, cluster, smallest)
    groups = [group for group in groups if len(group) >= smallest and any(i in by_id for i in group)]
    others = load_by_id(engine, (i for group in groups for i in group if i not in by_id))
    members = [_loaded(group, by_id | others) for group in groups]
    fresh: list[list[Memory]] = []
    actions: list[Action] = []
    for group in members:
        known = _fact_of(engine, group)
        if known is None:
            fresh.append(group)
            continue
        new = [episode.id for episode in group if episode.id not in known.evidence]
        if new and known.status in CURRENT:  # what was taken back is not said again
            actions.append(_more_evidence(known, new))
    texts = [[episode.text for episode in group] for group in fresh]
    facts = by_call(distil, texts) if distil is not None else [stated(group) for group in texts]
    actions += [_new_fact(group, fact) for group, fact in zip(fresh, facts, strict=True) if fact is not None]
    return actions


def _clusters(engine: Engine, by_id: dict[str, Memory], cluster: str, smallest: int) -> list[list[str]]:
    if cluster == "hdbscan" and by_id:
        import numpy as np

        groups: list[list[str]] = []
        for scope in dict.fromkeys(memory.scope for memory in by_id.values()):
            ids = sorted(i for i, memory in by_id.items() if memory.scope == scope)
            if len(ids) >= max(2, smallest):
                rows = engine.store.rows_of(ids)
                vectors = engine.index.vectors(np.array([rows[i] for i in ids], dtype=np.int64))
                groups += by_density(ids, vectors, smallest=smallest)
        return groups

    near = neighbours(engine, list(by_id.values()), kinds=("episode",), threshold=SAME_EVENT, limit=NEAREST)
    return by_threshold(sorted(by_id), lambda memory_id: [other.id for other, _ in near[memory_id]])


def _loaded(group: list[str], known: dict[str, Memory]) -> list[Memory]:
    return sorted((known[i] for i in group if i in known), key=lambda m: (m.created_at, m.id))


def _fact_of(engine: Engine, group: Sequence[Memory]) -> Memory | None:
    """The fact that was distilled from one of these episodes before, whatever became of it."""
    for episode in group:
        for link in engine.store.links(episode.id, rel="derived_from", direction="in"):
            fact = engine.store.get(link.src)
            if fact is not None and fact.kind == "fact" and (fact.source or "").startswith("maintenance:"):
                return fact
    return None


def _more_evidence(fact: Memory, episodes: list[str]) -> Action:
    plans: list[Plan] = [("evidence", {"memory": fact.id, "sources": episodes})]
    plans += [("link", {"src": fact.id, "dst": i, "rel": "derived_from", "strength": 1.0}) for i in episodes]
    return Action(
        step="extract",
        why=f"{len(episodes)} more episodes say {fact.text!r}",
        memories=(fact.id,),
        plans=tuple(plans),
    )


def _new_fact(group: Sequence[Memory], text: str) -> Action:
    first = group[0]
    tags = reduce(lambda a, b: a & b, (set(episode.tags) for episode in group))
    domains = {episode.domain for episode in group}
    agents = {episode.agent for episode in group}
    body: dict[str, object] = {
        "text": text,
        "kind": "fact",
        "confidence": EXTRACTED,
        "importance": sum(episode.importance for episode in group) / len(group),
        "evidence": [episode.id for episode in group],
        "source": "maintenance: extracted",
        "created_at": max(episode.created_at for episode in group),  # as old as what it stands on
    }
    scope = {k: v for k in ("user", "project", "session") if (v := getattr(first.scope, k)) is not None}
    for key, value in (("scope", scope), ("tags", sorted(tags))):
        if value:
            body[key] = value
    if len(domains) == 1 and None not in domains:
        body["domain"] = next(iter(domains))
    if len(agents) == 1 and None not in agents:
        body["agent"] = next(iter(agents))
    plans: list[Plan] = [("remember", body)]
    plans += [("link", _derived(episode.id)) for episode in group]
    return Action(
        step="extract",
        why=f"{len(group)} episodes say {text!r}",
        memories=tuple(episode.id for episode in group),
        plans=tuple(plans),
    )


def _derived(source: str) -> Callable[[Sequence[str]], dict[str, object]]:
    return lambda ids: {"src": ids[0], "dst": source, "rel": "derived_from", "strength": 1.0}


def support(engine: Engine, episodes: Sequence[Memory]) -> list[Action]:
    """Plan evidence: an episode that says what a fact says raises its confidence, once."""
    found: dict[str, tuple[Memory, list[str]]] = {}
    near = neighbours(engine, episodes, kinds=("fact",), threshold=SUPPORTS, limit=SUPPORTED)
    for episode in episodes:
        for fact, similarity in near[episode.id]:
            if episode.id in fact.evidence:
                continue
            verdict = compare(fact.text, episode.text, similarity=similarity)
            if verdict.kind not in ("contradiction", "update"):
                found.setdefault(fact.id, (fact, []))[1].append(episode.id)
    return [
        Action(
            step="evidence",
            why=f"{len(sources)} episodes support {fact.text!r}",
            memories=(fact.id,),
            plans=(("evidence", {"memory": fact.id, "sources": sources}),),
        )
        for fact, sources in found.values()
    ]
