"""One call of a verb at the server: repeated calls answered once, versions compared, then the bank asked.

A call with an idempotency key is written in one transaction with the note that it was done, so that a client which
lost the answer (or a server that was killed) repeats nothing. Notes name memories and events by id and hold no text:
what is forgotten stays forgotten. The last few thousand are kept.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from skep.client.verb_table import Verb
from skep.errors import ChangedError, InvalidInputError
from skep.lifecycle.learn import outcome_of
from skep.model import Event, Memory, Outcome

if TYPE_CHECKING:
    from skep.bank.bank import Bank
    from skep.bank.memory_bank import MemoryBank

SLOTS: Final = 4096
"""Answers that are kept for repeated calls; a newer one takes the place of an older."""
KEY_LIMIT: Final = 200
REPEATABLE: Final = ("forget", "maintain", "apply")
"""Verbs that may be called twice without harm, and so need no key."""
UNCOUNTED: Final = ("use", "outcome")
"""Kinds of events that make no new version of a memory."""


def version_of(bank: MemoryBank, memory_id: str) -> tuple[str, list[Event]]:
    """The tag of a memory as it is now, and the events that made it so, oldest first."""
    events = [event for event in bank.history(memory_id) if event.kind not in UNCOUNTED]
    return (events[-1].id if events else memory_id), events


def refuse_changed(bank: MemoryBank, memory_id: str, known: str) -> None:
    """Raise if a memory is no longer the version that the caller read."""
    tag, events = version_of(bank, memory_id)
    if tag == known:
        return
    names = [event.id for event in events]
    since = events[names.index(known) + 1 :] if known in names else events
    raise ChangedError(
        f"{memory_id} was changed since it was read ({', '.join(event.kind for event in since[-5:])}); look at what it"
        " says now and send the change again with the new tag",
        current=bank.get(memory_id),
        events=tuple(since),
        tag=tag,
    )


def perform(bank: MemoryBank, verb: Verb, arguments: Mapping[str, Any], *, known: str | None = None) -> Any:
    """Call a verb; with `known`, only if the memory still is that version."""
    method = getattr(bank, verb.name)
    if known is None:
        return method(**arguments)
    with cast("Bank", bank).engine.writing():  # nobody else writes between the look and the change
        refuse_changed(bank, arguments["memory_id"], known)
        return method(**arguments)


def perform_once(
    bank: Bank, verb: Verb, arguments: Mapping[str, Any], *, key: str, asked: bytes, known: str | None = None
) -> tuple[Any, bool]:
    """Call a verb that changes something, unless the same call was made before; the answer, and if it is repeated.

    Args:
        bank: The bank.
        verb: The verb.
        arguments: Its arguments.
        key: The name of the call: who calls, and the key that they gave it.
        asked: What was asked, to tell a repeated call from another one under the same key.
        known: As for `perform`.
    """
    name = hashlib.sha256(key.encode("utf-8", "replace")).hexdigest()[:32]
    job = f"answer:{int(name[:8], 16) % SLOTS}"
    request = hashlib.sha256(verb.name.encode() + b"\0" + asked).hexdigest()[:32]
    with bank.engine.writing():
        kept = bank.engine.note(job)
        if kept is not None:
            before = msgspec.json.decode(kept, type=_Note)
            if before.name == name:
                if before.request != request:
                    raise InvalidInputError(
                        "this idempotency key was used for another call; make a new key for each call",
                        field="Idempotency-Key",
                    )
                return _restored(bank, before.answer), True
        answer = perform(bank, verb, arguments, known=known)
        note = _Note(name=name, request=request, answer=_without_text(answer))
        bank.engine.set_note(job, msgspec.json.encode(note).decode())
    return answer, False


class _Note(msgspec.Struct):
    """A call that was made."""

    name: str
    request: str
    answer: Any


def _without_text(value: Any) -> Any:
    """An answer with ids in the place of memories and events."""
    if isinstance(value, Memory):
        return {"$memory": value.id}
    if isinstance(value, Event):
        return {"$event": value.id}
    if isinstance(value, Outcome):
        return {"$outcome": value.id}
    if isinstance(value, msgspec.Struct):
        return {name: _without_text(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, list | tuple):
        return [_without_text(one) for one in cast("list[Any]", value)]
    return value


def _restored(bank: Bank, value: Any) -> Any:
    """The answer again, with memories and events as they are now."""
    if isinstance(value, list):
        return [_restored(bank, one) for one in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    held = cast("dict[str, Any]", value)
    if "$memory" in held:
        return bank.get(held["$memory"])
    if "$event" in held:
        return bank.event(held["$event"])
    if "$outcome" in held:
        return outcome_of(bank.event(held["$outcome"]))
    return {name: _restored(bank, one) for name, one in held.items()}
