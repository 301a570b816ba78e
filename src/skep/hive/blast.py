"""What one member holds that a source wrote, confirmed, or that was derived from some memories."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

from skep.engine.core import CHANGES
from skep.hive.frames import BlastAnswer, BlastQuery, Touched
from skep.model import Memory
from skep.storage.subjects import mentioned, voided

if TYPE_CHECKING:
    from skep.bank import Bank

UNDONE = ("retracted",)


class Keeps(Protocol):
    """A member with a bank."""

    @property
    def name(self) -> str:
        """Its name."""
        ...

    @property
    def bank(self) -> Bank:
        """Its bank."""
        ...


def blast(member: Keeps, query: BlastQuery) -> BlastAnswer:
    """The part of a blast radius that is here."""
    origins = frozenset(query.origins)
    touched: list[Touched] = []
    confirmations: dict[str, None] = {}
    for memory in everything(member.bank):
        if (query.source is not None and _wrote(member.bank, memory, query)) or (
            origins and not origins.isdisjoint(_origins(member.bank, memory))
        ):
            touched.append(Touched(memory.id, memory.created_at, memory.text))
        if query.source is not None and memory.confirmations:
            confirmations |= dict.fromkeys(_confirmed_by(member.bank, memory.id, query))
    return BlastAnswer(
        member=member.name,
        memories=tuple(touched),
        confirmations=tuple(confirmations),
        changes=tuple(_changed_by(member.bank, query)) if query.source is not None else (),
    )


def everything(bank: Bank, status: str | None = None) -> Iterator[Memory]:
    """Every memory (of one status, if given) that was not already taken back, a page at a time."""
    cursor: str | None = None
    while True:
        page = bank.find(status=status, limit=1000, cursor=cursor)
        yield from (memory for memory in page if memory.status not in UNDONE)
        if page.cursor is None:
            return
        cursor = page.cursor


def _wrote(bank: Bank, memory: Memory, query: BlastQuery) -> bool:
    """Whether the source wrote it since then; when it was written counts, not the date it claims."""
    if query.source not in (memory.agent, memory.source):
        return False
    if query.since is None or memory.created_at >= query.since:
        return True
    event = bank.engine.store.log.get(memory.id)
    return event is not None and event.at >= query.since


def _origins(bank: Bank, memory: Memory) -> set[str]:
    links = bank.engine.store.links(memory.id, rel="derived_from", direction="out")
    return {*memory.evidence, *(link.dst for link in links)}


def _changed_by(bank: Bank, query: BlastQuery) -> Iterator[str]:
    """Changes the source made to what others wrote, newest first; what it wrote itself goes as a whole."""
    store = bank.engine.store
    undone = voided(store.log.undos())
    for event in reversed(store.log.by(query.source or "")):
        if event.id in undone or (query.since is not None and event.at < query.since):
            continue
        if event.kind not in CHANGES or any(store.is_forgotten(name) for name in mentioned(event)):
            continue
        memories = [store.get(name) for name in mentioned(event)]
        if not all(memory is None or memory.agent == query.source for memory in memories):
            yield event.id


def _confirmed_by(bank: Bank, memory_id: str, query: BlastQuery) -> list[str]:
    history = bank.history(memory_id)
    undone = voided(history)
    return [
        event.id
        for event in history
        if event.kind == "confirm"
        and event.id not in undone
        and event.body.get("by") == query.source
        and (query.since is None or event.at >= query.since)
    ]
