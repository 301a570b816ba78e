"""Put the items of an importer into a bank: each once, however often the file is imported."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import msgspec

from skep.errors import NotFoundError
from skep.facade.base import BULK
from skep.integrations.importers.banks import ORIGIN
from skep.integrations.importers.base import Item, label_of, source_of

if TYPE_CHECKING:
    from skep.bank import Bank
    from skep.storage.sqlite import Plan

Progress = Callable[[int, int], None]


class Imported(msgspec.Struct, frozen=True, kw_only=True):
    """What an import did, or would do."""

    new: int
    known: int
    """Already here: from an earlier import, or memories of this bank itself."""
    links: int
    dry_run: bool = False


def import_items(
    bank: Bank, items: Iterable[Item], *, dry_run: bool = False, progress: Progress | None = None
) -> Imported:
    """Store items and the links among them. The file is read to its end before anything is written."""
    unique = {item.key: item for item in items}
    here = _sources(
        bank, {tag for item in unique.values() for tag in item.fields["tags"] if tag.startswith("from:")}
    )
    ids = {key: here[source] for key, item in unique.items() if (source := item.fields["source"]) in here}
    versions = bank.versions()
    ids |= {key: key for key, item in unique.items() if key not in ids and _own(item, versions)}
    fresh = [item for key, item in unique.items() if key not in ids]
    links = [link for item in unique.values() for link in _unsaid(bank, item, ids) if link[2] in unique]
    if dry_run:
        return Imported(new=len(fresh), known=len(ids), links=len(links), dry_run=True)
    stored = bank.remember_many([item.fields for item in fresh], progress=progress)
    ids.update({item.key: one.memory.id for item, one in zip(fresh, stored, strict=True)})
    wanted = dict.fromkeys(
        (ids[key], ids[target], rel) for key, rel, target in links if ids[key] != ids[target]
    )
    plans: list[Plan] = [
        ("link", {"src": src, "dst": dst, "rel": rel, "strength": 1.0}) for src, dst, rel in wanted
    ]
    for start in range(0, len(plans), BULK):
        bank.engine.write(plans[start : start + BULK])
    return Imported(new=len(fresh), known=len(unique) - len(fresh), links=len(plans))


def _unsaid(bank: Bank, item: Item, ids: dict[str, str]) -> list[tuple[str, str, str]]:
    """The links of an item that were never made, by keys: an earlier import may have been cut off before them, or the
    other end is new. What was made and taken away since stays away.
    """
    links = [(item.key, label_of(rel) or "related", target) for rel, target in item.links]
    if not links or item.key not in ids:
        return links
    made = bank.engine.store.log.of(ids[item.key])
    said = {(event.body["dst"], event.body["rel"]) for event in made if event.kind == "link"}
    return [
        link
        for link in links
        if (ids.get(link[2]), link[1]) not in said and ids.get(link[2]) != ids[item.key]
    ]


def _own(item: Item, versions: dict[str, int]) -> bool:
    """Whether it is a memory of this very bank, out of a copy of it or of a replica: here, or forgotten here."""
    actor, _, counter = item.key.rpartition("-")
    return (
        item.fields["source"] == source_of(ORIGIN, item.key)
        and counter.isdecimal()
        and int(counter) <= versions.get(actor, 0)
    )


def _sources(bank: Bank, tags: set[str]) -> dict[str, str]:
    """The ids of what earlier imports left, by source, whatever became of it since."""
    found: dict[str, str] = {}
    for tag in sorted(tags):
        cursor: str | None = None
        while True:
            try:
                page = bank.find(tags=[tag], status=None, limit=1000, cursor=cursor)
            except NotFoundError:
                break
            found.update({memory.source: memory.id for memory in page if memory.source})
            cursor = page.cursor
            if cursor is None:
                break
    return found
