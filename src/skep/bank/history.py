"""Verbs about the past: history, blame, event, undo. `as_of` is in `open_bank`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import islice
from typing import Any

from skep.bank.open_bank import OpenBank
from skep.errors import NotFoundError, UndoError
from skep.events import mentioned, voided
from skep.model import Event, ScopeLike
from skep.storage.store import Plan
from skep.validation import clean_count, clean_id, clean_scope, public_text

FINAL = ("forget", "use")
"""Events that cannot be undone."""
REPLACING = {"supersede": "new", "merge": "winner"}
"""Events by which a memory takes the place of another, and where they name it."""


class PastVerbs(OpenBank):
    """History, blame, event, undo."""

    def history(
        self,
        memory_id: str | None = None,
        *,
        limit: int | None = None,
        scope: ScopeLike | None = None,
        include_shared: bool = False,
    ) -> list[Event]:
        """The events of a memory, oldest first; without an id, the newest events of the bank, newest first.

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
        """The events that were written with a merge; there are none with any other event."""
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


def _along(other: Event, why: dict[str, Any], ids: Sequence[str]) -> dict[str, Any]:
    """The undo of an event that is undone along with another, whose undo is written first."""
    return {"event": other.id, "mentions": list(mentioned(other)), "along": ids[0], **why}
