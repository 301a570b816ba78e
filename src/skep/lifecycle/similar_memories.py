"""Groups of similar memories, and the fields that a group shares.

The steps of maintenance that make one memory of several call this. It writes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

from skep.engine.engine import Engine
from skep.errors import MissingExtraError
from skep.model import Memory

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Union:
    """Disjoint sets with path halving."""

    def __init__(self) -> None:
        self._parent: dict[str, str] = {}

    def find(self, item: str) -> str:
        """The representative of an item's set."""
        parent = self._parent.setdefault(item, item)
        while parent != item:
            self._parent[item] = item = self._parent[parent]
            parent = self._parent[item]
        return item

    def join(self, a: str, b: str) -> None:
        """Put two items into one set; the smaller name represents it, so that the result does not depend on order."""
        first, second = sorted((self.find(a), self.find(b)))
        self._parent[second] = first

    def groups(self) -> list[list[str]]:
        """The sets, each sorted, in order of their representatives."""
        found: dict[str, list[str]] = {}
        for item in self._parent:
            found.setdefault(self.find(item), []).append(item)
        return [sorted(found[name]) for name in sorted(found)]


def by_density(ids: Sequence[str], vectors: NDArray[np.float32], *, smallest: int = 2) -> list[list[str]]:
    """Groups by HDBSCAN (the `cluster` extra); what it calls noise is left out."""
    try:
        from sklearn.cluster import HDBSCAN  # pyright: ignore
    except ImportError:
        raise MissingExtraError("clustering by density", "cluster") from None
    found: Any = HDBSCAN(min_cluster_size=max(2, smallest), copy=True).fit_predict(vectors)  # pyright: ignore
    labels: list[int] = list(map(int, cast("Any", found)))
    groups: dict[int, list[str]] = {}
    for memory_id, label in zip(ids, labels, strict=True):
        if label >= 0:
            groups.setdefault(label, []).append(memory_id)
    return [sorted(groups[label]) for label in sorted(groups)]


TRUST = 1.0
"""How far is trusted who nobody has said anything about."""


def least_trust(engine: Engine, sources: Sequence[Memory]) -> float:
    """The trust in a memory that is derived: that in the least trusted of its sources, which may state their own."""

    def trust(memory: Memory) -> float:
        derived = memory.agent is None and (memory.level or memory.source == "maintenance: extracted")
        value = memory.metadata.get("trust") if derived else None
        if not isinstance(value, int | float):
            value = None if memory.agent is None else engine.setting(f"trust/{memory.agent}")
        return float(value) if isinstance(value, int | float) else TRUST

    return min(map(trust, sources))


SHARED_FIELDS = ("domain", "agent")
"""Kept if every source has the same."""


def inherited(sources: Sequence[Memory]) -> dict[str, object]:
    """The fields of a new memory that follow from its sources, all of one scope.

    It is as old as the newest of them, as important as they are on average, and ends with the first of them that ends.
    Domain, agent and tags are those that all of them share.
    """
    body: dict[str, object] = {
        "importance": sum(source.importance for source in sources) / len(sources),
        "evidence": [source.id for source in sources],
        "created_at": max(source.created_at for source in sources),
    }
    scope = sources[0].scope
    parts = {k: v for k in ("user", "project", "session") if (v := getattr(scope, k)) is not None}
    tags = [tag for tag in sorted(sources[0].tags) if all(tag in source.tags for source in sources)]
    ends = [source.expires_at for source in sources if source.expires_at is not None]
    if parts:
        body["scope"] = parts
    if tags:
        body["tags"] = tags
    for key in SHARED_FIELDS:
        values = {getattr(source, key) for source in sources}
        if len(values) == 1 and None not in values:
            body[key] = values.pop()
    if ends:
        body["expires_at"] = min(ends)
    return body


def derived_from(source: str) -> Callable[[Sequence[str]], dict[str, object]]:
    """The body of the link from a memory that is yet to be written to one of its sources."""
    return lambda ids: {"src": ids[0], "dst": source, "rel": "derived_from", "strength": 1.0}
