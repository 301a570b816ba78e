"""Groups of memories that mean the same: disjoint sets, and groups by density. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from skep.errors import MissingExtraError

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
