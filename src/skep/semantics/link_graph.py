"""Walking the graph of links. Pure but for the two look-ups it is given."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from skep.errors import InvalidInputError, LineageError
from skep.model import CURRENT, Graph, Link, Memory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Literal


if TYPE_CHECKING:
    Direction = Literal["out", "in", "both"]
    LinksOf = Callable[[str, str | None, Direction], Sequence[Link]]
    Get = Callable[[str], Memory | None]

UPDATES = "updates"
"""The relation between a memory and an older one whose value it revises."""
CONTRADICTS = "contradicts"
"""The relation between a memory and one that it does not go together with."""
MARKED = "recall/updates"
"""The setting that says that there are such links; a bank without them is not asked for any."""
OPPOSED = "recall/contradicts"
"""The same for links that say that memories contradict each other."""


def announced(rel: str, setting: Callable[[str], object]) -> list[tuple[str, dict[str, object]]]:
    """The event that goes with the first link of a relation that recalls look for; none if it is there."""
    key = {UPDATES: MARKED, CONTRADICTS: OPPOSED}.get(rel)
    return [] if key is None or setting(key) else [("setting", {"key": key, "value": True})]


def opposing(setting: Callable[[str], object]) -> list[tuple[str, dict[str, object]]]:
    """The event that goes with the first link of `CONTRADICTS`."""
    return announced(CONTRADICTS, setting)


def other_end(link: Link, memory_id: str) -> str:
    """The memory at the far side of a link."""
    return link.dst if link.src == memory_id else link.src


def walk(
    start: Iterable[str],
    links_of: LinksOf,
    *,
    rel: str | None = None,
    direction: Direction = "both",
    depth: int = 1,
) -> tuple[dict[str, int], list[Link]]:
    """Every memory within `depth` steps, with its distance, and the links crossed. Each is visited once."""
    if type(direction) is not str or direction not in ("out", "in", "both"):
        raise InvalidInputError(f"direction must be out, in or both, got {direction!r}", field="direction")
    distance = dict.fromkeys(start, 0)
    crossed: dict[tuple[str, str, str], Link] = {}
    queue = deque(distance)
    while queue:
        here = queue.popleft()
        if distance[here] >= depth:
            continue
        for link in links_of(here, rel, direction):
            crossed[link.src, link.dst, link.rel] = link
            there = other_end(link, here)
            if there not in distance:
                distance[there] = distance[here] + 1
                queue.append(there)
    return distance, list(crossed.values())


def graph_of(ids: Iterable[str], links_of: LinksOf, get: Get, *, depth: int = 1) -> Graph:
    """The memories around `ids` and the links among them."""
    distance, links = walk(ids, links_of, depth=depth)
    memories = {memory_id: get(memory_id) for memory_id in distance}
    return Graph(
        memories={memory_id: memory for memory_id, memory in memories.items() if memory is not None},
        links=tuple(links),
        dangling=tuple(memory_id for memory_id, memory in memories.items() if memory is None),
    )


def shortest_path(a: str, b: str, links_of: LinksOf, *, max_depth: int = 6) -> list[Link]:
    """The fewest links from a to b, crossed in either direction; empty when there is no way."""
    came: dict[str, Link | None] = {a: None}
    queue = deque([(a, 0)])
    while queue:
        here, steps = queue.popleft()
        if here == b:
            return _retrace(b, came)
        if steps >= max_depth:
            continue
        for link in links_of(here, None, "both"):
            there = other_end(link, here)
            if there not in came:
                came[there] = link
                queue.append((there, steps + 1))
    return []


def _retrace(end: str, came: dict[str, Link | None]) -> list[Link]:
    path: list[Link] = []
    here = end
    while (link := came[here]) is not None:
        path.append(link)
        here = other_end(link, here)
    return path[::-1]


def chain(memory_id: str, get: Get) -> list[str]:
    """The memory and, one after the other, those that replaced it; the last is the head."""
    seen = [memory_id]
    memory = get(memory_id)
    while memory is not None:
        target = memory.superseded_by or memory.merged_into
        if target is None or target in seen:
            break
        seen.append(target)
        memory = get(target)
    return seen


def refuse_cycle(old: str, new: str, get: Get) -> None:
    """Raise if replacing `old` by `new` would make a chain bite its tail."""
    if old == new:
        raise LineageError(f"{old} cannot replace itself; pass two different memories")
    if old in chain(new, get):
        raise LineageError(f"{new} was itself replaced by {old}; restore one of them first")


def refuse_set_aside(new: str, get: Get) -> None:
    """Raise if what a memory is to be replaced by, or what stands for that, is shown to nobody."""
    head = get(chain(new, get)[-1])
    if head is not None and head.status not in CURRENT:
        led = f", which stands for {new}," if head.id != new else ""
        raise LineageError(
            f"{head.id}{led} is {head.status}, so that nothing would be left in sight; restore it first, or name"
            " another memory"
        )
