"""Methods about the past."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import islice
from typing import Any, Self

from skep.bank.shared_base import Base
from skep.clock import pack
from skep.engine.engine import Engine
from skep.errors import ClosedError, NotFoundError, UndoError
from skep.events import mentioned, voided
from skep.model import Event, ScopeLike
from skep.storage.sqlite_store import Plan
from skep.validation import Time, clean_count, clean_id, clean_scope, clean_time, public_text

FINAL = ("forget", "use")
"""Events that cannot be undone."""
LAST = (1 << 63) - 1
"""No stamp is later."""
REPLACING = {"supersede": "new", "merge": "winner"}
"""Events by which a memory takes the place of another, and where they name it."""


class _Closed:
    """What stands in the place of the engine of a bank that was closed."""

    def __init__(self, path: str | None) -> None:
        self._path = path

    def __getattr__(self, name: str) -> Any:
        raise ClosedError(f"{self._path or 'this bank'} was closed; open it again with `Bank.open`")


class History(Base):
    """History, blame, undo, as_of."""

    _past: tuple[tuple[float, tuple[int, int]], Self] | None
    """The last view that was asked for; older ones live for as long as somebody holds them."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._past = None

    @property
    def closed(self) -> bool:
        """Whether it was closed, so that nothing can be asked of it any more."""
        return isinstance(self._engine, _Closed)

    def close(self) -> None:
        """Write what is still in memory and release the file. Closing twice is no error."""
        if self.closed:
            return
        self._past = None
        engine = self._engine
        try:
            engine.close()
        finally:
            self._engine = _Closed(engine.file)  # type: ignore[assignment]

    def history(
        self,
        memory_id: str | None = None,
        *,
        limit: int | None = None,
        scope: ScopeLike | None = None,
        include_shared: bool = False,
    ) -> list[Event]:
        """What happened to a memory, oldest first; without an id, what happened last in the bank, newest first.

        Args:
            memory_id: The memory; of one that was forgotten the events are left, without its text.
            limit: The newest so many; by default all of a memory, and 100 of the bank.
            scope: Only events all of whose memories are of this scope.
            include_shared: With a scope: memories that have none count as well.
        """
        sees = self._sees(scope, include_shared)
        most = None if limit is None else clean_count("limit", limit, 1, 1 << 40)
        log = self._engine.log
        if memory_id is None:
            few = None if include_shared else self._few(scope)
            latest = log.backwards() if few is None else log.latest_of(few)
            return list(islice((event for event in latest if self._shown(event, sees)), most or 100))
        if sees is not None:
            self._seen(memory_id, sees)
        events = [event for event in log.of(clean_id(memory_id)) if self._shown(event, sees)]
        if not events:
            raise NotFoundError(f"there is no memory {memory_id!r}; `skep list` shows what there is")
        return events[-most:] if most else events

    def _few(self, scope: ScopeLike | None) -> list[str] | None:
        """The memories of a scope, where they are so few that their events are quicker read than all."""
        if scope is None:
            return None
        asked = clean_scope("scope", scope, self._engine.settings.label_limit, asked=True)
        return self._engine.few_of_scope(asked)

    def blame(
        self, memory_id: str, *, scope: ScopeLike | None = None, include_shared: bool = False
    ) -> dict[str, Event]:
        """Per field of a memory, the event that last set it; with a scope, if the event speaks of nothing else."""
        from skep.storage.fold import fold

        sees = self._sees(scope, include_shared)
        self._seen(memory_id, sees)
        events = {event.id: event for event in self._engine.log.of(memory_id)}
        state = fold(memory_id, events.values())
        found = {field: events[event_id] for field, event_id in (state.blame if state else {}).items()}
        return {field: event for field, event in found.items() if self._shown(event, sees)}

    def event(self, event_id: str) -> Event:
        """One event by id."""
        event = self._engine.log.get(clean_id(event_id, "event_id"))
        if event is None:
            raise NotFoundError(f"there is no event {event_id!r}; `skep history` lists them")
        return event

    def undo(self, event_id: str, reason: str | None = None) -> Event:
        """Make one event as if it had never been. Undoing an undo brings it back. A forget is final.

        What is undone already is refused: a second undo would stay in force when the first is taken back. Where two
        replicas have undone the same event unknown to each other, undoing either undo takes back both. With the making
        of a memory, what it had replaced or taken in stands again; with a merge, what went over to the winner goes
        back. A memory whose end is undone after it has reached it
        has no end any more.
        """
        event = self.event(event_id)
        if event.kind in FINAL:
            raise UndoError(f"{event_id} is a {event.kind}, which cannot be undone")
        if any(self._engine.is_forgotten(subject) for subject in mentioned(event)):
            raise UndoError(f"{event_id} speaks of a memory that was forgotten; nothing of it is left")
        why = (
            {}
            if reason is None
            else {"reason": public_text("reason", reason, self._engine.settings.text_limit)}
        )
        targets = (event_id, *self._twins(event))
        plans: list[Plan] = [
            ("undo", {"event": target, "mentions": list(mentioned(event)), **why}) for target in targets
        ]
        plans += self._without_end(event)
        plans += [
            ("undo", partial(_along, other, why)) for other in self._meaningless_without(event, targets)
        ]
        events, _ = self._engine.write(plans, check=lambda: self._refuse_undone(event))
        return events[0]

    def _without_end(self, undone: Event) -> list[Plan]:
        """The event that takes away the end of a memory which somebody brings back after it has reached it."""
        if undone.kind != "mark" or undone.body["status"] != "expired":
            return []
        memory = self._engine.get(undone.body["memory"])
        if memory is None or memory.expires_at is None or memory.expires_at > self._engine.now():
            return []
        return [("revise", {"memory": memory.id, "changes": {"expires_at": None}})]

    def _twins(self, undo: Event) -> list[str]:
        """The other undos of the same event that are in force."""
        if undo.kind != "undo":
            return []
        undos = self._engine.log.undos(mentioned(undo))
        void = voided(undos)
        same = (other for other in undos if other.body["event"] == undo.body["event"])
        return [other.id for other in same if other.id not in void and other.id != undo.id]

    def _meaningless_without(self, event: Event, targets: Sequence[str]) -> list[Event]:
        """Events in force that go when an event is undone: what was replaced by a memory that then never was;
        what went over to a winner with a merge, whether that is undone or the winner; and, for an undo or a restore,
        the undos that were written along with it or with its twins."""
        if event.kind in ("undo", "restore"):
            others = [undo for undo in self._engine.log.undos() if undo.body.get("along") in targets]
        elif event.kind == "remember":
            others = [
                other
                for other in self._engine.log.of(event.id)
                if other.body.get(REPLACING.get(other.kind, "")) == event.id
            ]
            others += [moved for other in others for moved in self._went_along(other)]
        else:
            others = self._went_along(event)
        void = voided(self._engine.log.undos()) if others else set[str]()
        return [other for other in others if other.id not in void]

    def _went_along(self, event: Event) -> list[Event]:
        """What was written with a merge; nothing is with any other event."""
        if event.kind != "merge":
            return []
        from skep.engine.engine import went_along

        return went_along(self._engine.log, event)

    def _refuse_undone(self, event: Event) -> None:
        undos = self._engine.log.undos(mentioned(event))
        void = voided(undos)
        if event.id in void:
            by = next(u.id for u in undos if u.body["event"] == event.id and u.id not in void)
            raise UndoError(f"{event.id} is undone already; to bring it back, undo {by}")

    def as_of(self, time: Time) -> Self:
        """The bank as it was at a moment; for reading only. What was forgotten since stays forgotten."""
        moment = clean_time("time", time)
        key = (moment, self._engine.position())
        if self._past is not None and self._past[0] == key and not self._past[1].closed:
            return self._past[1]
        mine = self._engine
        store = mine.copy_to_memory()
        store.rewind(min(pack(moment) | 0xFFFF, LAST))
        engine = Engine(
            store,
            mine.embeddings.embedder,
            spec=mine.embeddings.spec,
            settings=mine.settings,
            now=lambda: moment,
            index_folder=mine.index_folder,
            frozen=True,
            opener=mine.embeddings.opener,
        )
        engine.embeddings.drain_few()
        store.read_only = True
        past = type(self)(engine)
        self._past = (key, past)
        return past


def _along(other: Event, why: dict[str, Any], ids: Sequence[str]) -> dict[str, Any]:
    """The undo of an event that goes with another, whose undo is the first that is written."""
    return {"event": other.id, "mentions": list(mentioned(other)), "along": ids[0], **why}
