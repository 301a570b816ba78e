"""Methods about links."""

from __future__ import annotations

from collections.abc import Iterable

from skep.errors import InvalidInputError
from skep.facade.base import Base
from skep.model import Graph, Link
from skep.semantics import links as graph
from skep.storage.sqlite import Plan
from skep.validation import clean_number, clean_text


class Linking(Base):
    """Link, unlink, neighbors, subgraph, path."""

    def link(self, src: str, dst: str, rel: str = "related", strength: float = 1.0) -> Link:
        """Link two memories; the same link twice is one link."""
        self._engine.known(src, dst)
        if src == dst:
            raise InvalidInputError(
                f"{src} cannot be linked to itself; pass two different memories", field="dst"
            )
        rel = clean_text("rel", rel, self._engine.settings.label_limit)
        strength = clean_number("strength", strength, 0.0, 1.0)
        found = self._engine.store.links(src, rel=rel, direction="out")
        wanted = Link(src=src, dst=dst, rel=rel, strength=strength)
        if wanted not in found:
            self._write("link", {"src": src, "dst": dst, "rel": rel, "strength": strength})
        return wanted

    def unlink(self, src: str, dst: str, rel: str | None = None) -> int:
        """Remove the links from one memory to another; how many there were."""
        stored = [
            link
            for link in self._engine.store.links(src, rel=rel, direction="out")
            if link.dst == dst and link.rel not in ("supersedes", "duplicate_of")
        ]
        plans: list[Plan] = [("unlink", {"src": src, "dst": dst, "rel": link.rel}) for link in stored]
        if plans:
            self._engine.write(plans)
        return len(plans)

    def neighbors(
        self,
        memory_id: str,
        rel: str | None = None,
        direction: graph.Direction = "both",
        depth: int = 1,
    ) -> Graph:
        """The memories within `depth` links of one, and the links; targets that are gone are listed as dangling."""
        self._engine.known(memory_id)
        depth = int(clean_number("depth", depth, 1, 100))
        distance, crossed = graph.walk([memory_id], self._links_of, rel=rel, direction=direction, depth=depth)
        found = {i: self._engine.store.get(i) for i in distance if i != memory_id}
        return Graph(
            memories={i: m for i, m in found.items() if m is not None},
            links=tuple(crossed),
            dangling=tuple(i for i, m in found.items() if m is None),
        )

    def subgraph(self, memory_ids: Iterable[str], depth: int = 1) -> Graph:
        """Memories, their surroundings, and the links among them."""
        ids = tuple(memory_ids)
        self._engine.known(*ids)
        return graph.graph_of(ids, self._links_of, self._engine.store.get, depth=depth)

    def path(self, a: str, b: str, max_depth: int = 6) -> list[Link]:
        """The fewest links that lead from one memory to another; empty when none do."""
        self._engine.known(a, b)
        return graph.shortest_path(a, b, self._links_of, max_depth=max_depth)

    def _links_of(self, memory_id: str, rel: str | None, direction: graph.Direction) -> list[Link]:
        return self._engine.store.links(memory_id, rel=rel, direction=direction)
