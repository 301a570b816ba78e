"""A hive as it was at a moment: every member's bank as it was, asked like the hive itself."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import TYPE_CHECKING

from skep.bank import Bank
from skep.hive.asking import Asking, HiveRecaller
from skep.hive.pool import PRIVATE, Ask, Fetched, Slice
from skep.hive.scatter import Heard, joined
from skep.hive.shelf import Shelf
from skep.model import Memory
from skep.validation import Time, clean_time

if TYPE_CHECKING:
    from skep.hive.agent import AgentBank
    from skep.hive.hive import Hive
    from skep.recall.search import Recaller


class PastMembers:
    """The banks of the members as they were; implements `union.Members`."""

    def __init__(self, hive: Hive, banks: Mapping[str, Bank]) -> None:
        self._banks = dict(banks)
        self._shelves = {
            name: Shelf(
                bank.engine.store,
                member=name,
                first_for=lambda memory, missing, name=name: hive.layout.first_for(name, memory, missing),
                owner_of=hive.layout.owner,
            )
            for name, bank in banks.items()
            if name in hive.members
        }
        private = banks.get(PRIVATE)
        if private is not None:
            self._shelves[PRIVATE] = Shelf(private.engine.store, member=PRIVATE)
        self.heard = Heard(asked=len(banks), answered=len(banks))

    def ask(self, ask: Ask, *, but: Container[str] = ()) -> Mapping[str, Slice]:
        """The answers by member."""
        return {name: shelf.answer(ask) for name, shelf in self._shelves.items() if name not in but}

    def fetch(self, ids: Mapping[str, str], *, links: bool = False) -> Fetched:
        """Memories by id."""
        parts: list[Fetched] = []
        for bank in self._banks.values():
            store = bank.engine.store
            memories: tuple[Memory, ...] = tuple(m for m in map(store.get, ids) if m is not None)
            found = tuple(link for m in memories for link in store.links(m.id)) if links else ()
            parts.append(Fetched(memories=memories, links=found))
        return joined(*parts)


class PastHive(Bank):
    """Read-only; the methods of a bank."""

    def __init__(self, hive: Hive, view: AgentBank, moment: Time) -> None:
        time = clean_time("time", moment)
        banks = {name: member.bank.as_of(time) for name, member in hive.members.items()}
        if view.private is not None:
            banks[PRIVATE] = view.private.as_of(time)
        super().__init__(banks[view.home.name].engine)
        self._members = PastMembers(hive, banks)
        self._asking = Asking(
            scatter=lambda: self._members,
            embedder=hive.embedder,
            trust=hive.trust.of,
            policy=hive.policy,
            fitting=hive.layout.fitting,
            used=lambda _per_home: None,
        )

    @property
    def _recall(self) -> Recaller:
        return HiveRecaller(self._engine, self._asking)

    def get(self, memory_id: str) -> Memory:
        """One memory as it was then."""
        found = self._members.fetch({memory_id: ""}).memories
        return found[0] if found else super().get(memory_id)

    def close(self) -> None:
        """The members keep their views of the past."""
