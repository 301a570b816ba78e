"""Methods about links."""

from __future__ import annotations

from collections.abc import Iterable

from skep.errors import InvalidInputError
from skep.facade.base import Base, ScopeLike, Sees
from skep.model import LINEAGE, Graph, Link, Memory
from skep.semantics import links as graph
from skep.storage.sqlite import Plan
from skep.validation import clean_count, clean_id, clean_ids, clean_number, clean_text


class Linking(Base):
    """Link, unlink, neighbors, subgraph, path."""

    def link(self, src: str, dst: str, rel: str = "related", strength: float = 1.0) -> Link:
        """Link two memories; the same link twice is one link.

        The engine knows `related`, `refines`, `derived_from` (what is derived from something goes stale with it),
        `example_of`, `contradicts`, `updates` and `entails`; any other word may be a relation too.
        What replaces or repeats another is said with `supersede` and `merge`, and shows among the links.
        """
        self._engine.known(src, field="src")
        self._engine.known(dst, field="dst")
        if src == dst:
            raise InvalidInputError(
                f"{src} cannot be linked to itself; pass two different memories", field="dst"
            )
        rel = clean_text("rel", rel, self._engine.settings.label_limit)
        if rel in LINEAGE:
            raise InvalidInputError(
                f"rel cannot be {rel!r}, which would replace nothing; call `{LINEAGE[rel]}`", field="rel"
            )
        strength = clean_number("strength", strength, 0.0, 1.0)
        found = self._engine.store.links(src, rel=rel, direction="out")
        wanted = Link(src=src, dst=dst, rel=rel, strength=strength)
        if wanted not in found:
            plans: list[Plan] = [("link", {"src": src, "dst": dst, "rel": rel, "strength": strength})]
            if rel == graph.CONTRADICTS:
                plans += graph.opposing(self._engine.setting)
            self._engine.write(plans)
        return wanted

    def unlink(self, src: str, dst: str, rel: str | None = None) -> int:
        """Remove the links from one memory to another; how many there were."""
        src, dst = clean_id(src, "src"), clean_id(dst, "dst")
        rel = None if rel is None else clean_text("rel", rel, self._engine.settings.label_limit)
        stored = [
            link
            for link in self._engine.store.links(src, rel=rel, direction="out")
            if link.dst == dst and link.rel not in LINEAGE
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
        *,
        scope: ScopeLike | None = None,
        include_shared: bool = False,
    ) -> Graph:
        """The memories within `depth` links of one, and the links; targets that are gone are listed as dangling.

        With a scope only memories of that scope are walked and shown, as in `recall`.
        """
        sees = self._sees(scope, include_shared)
        self._seen(memory_id, sees)
        depth = clean_count("depth", depth, 1, 100)
        rel = None if rel is None else clean_text("rel", rel, self._engine.settings.label_limit)
        distance, crossed = graph.walk(
            [memory_id], self._links_within(sees), rel=rel, direction=direction, depth=depth
        )
        found = {i: self._engine.store.get(i) for i in distance if i != memory_id}
        return Graph(
            memories={i: m for i, m in found.items() if m is not None},
            links=tuple(crossed),
            dangling=tuple(i for i, m in found.items() if m is None),
        )

    def subgraph(
        self,
        memory_ids: Iterable[str],
        depth: int = 1,
        *,
        scope: ScopeLike | None = None,
        include_shared: bool = False,
    ) -> Graph:
        """Memories, their surroundings, and the links among them; with a scope, within it alone."""
        sees = self._sees(scope, include_shared)
        ids = clean_ids("memory_ids", memory_ids)
        for memory_id in ids:
            self._seen(memory_id, sees)
        depth = clean_count("depth", depth, 0, 100)
        return graph.graph_of(ids, self._links_within(sees), self._engine.store.get, depth=depth)

    def path(
        self,
        a: str,
        b: str,
        max_depth: int = 6,
        *,
        scope: ScopeLike | None = None,
        include_shared: bool = False,
    ) -> list[Link]:
        """The fewest links that lead from one memory to another; empty when none do. With a scope, within it alone."""
        sees = self._sees(scope, include_shared)
        self._seen(clean_id(a, "a"), sees)
        self._seen(clean_id(b, "b"), sees)
        max_depth = clean_count("max_depth", max_depth, 0, 100)
        return graph.shortest_path(a, b, self._links_within(sees), max_depth=max_depth)

    def _links_within(self, sees: Sees | None) -> graph.LinksOf:
        """The links of a memory that lead to what may be shown."""

        def links_of(memory_id: str, rel: str | None, direction: graph.Direction) -> list[Link]:
            links = self._links_of(memory_id, rel, direction)
            if sees is None:
                return links
            ends = self._known({graph.other_end(link, memory_id) for link in links})
            return [
                link
                for link in links
                if (end := ends.get(graph.other_end(link, memory_id))) is not None and sees(end)
            ]

        return links_of

    def _links_of(self, memory_id: str, rel: str | None, direction: graph.Direction) -> list[Link]:
        return self._engine.store.links(memory_id, rel=rel, direction=direction)

    def _known(self, memory_ids: Iterable[str]) -> dict[str, Memory]:
        """Those of the memories that are there, by id."""
        found = {memory_id: self._engine.store.get(memory_id) for memory_id in memory_ids}
        return {memory_id: memory for memory_id, memory in found.items() if memory is not None}
