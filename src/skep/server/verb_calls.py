"""A call of a verb that may be repeated: it changes the bank once, and is answered each time.

A call with an idempotency key is written in one transaction with the note that it was done, so that a client which
lost the answer (or a server that was killed) repeats nothing. Notes name memories and events by id and hold no text:
what is forgotten stays forgotten. The last thirty thousand are kept, about.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from skep.bank.bank import Bank
from skep.client.verb_table import Verb
from skep.errors import InvalidInputError
from skep.lifecycle.learn import outcome_of
from skep.model import Event, Memory, Outcome

if TYPE_CHECKING:
    from skep.hub.replica import LocalReplica

SLOTS: Final = 4096
"""Notes over which the answers for repeated calls are spread."""
KEPT: Final = 8
"""Answers in one note; a newer one takes the place of the oldest."""
KEY_LIMIT: Final = 200
REPEATABLE: Final = ("forget", "maintain", "apply")
"""Verbs that may be called twice without harm, and so need no key."""


def perform_once(
    bank: Bank, verb: Verb, arguments: Mapping[str, Any], *, key: str, asked: bytes
) -> tuple[Any, bool]:
    """Call a verb that changes something, unless the same call was made before; the answer, and if it is repeated.

    Args:
        bank: The bank.
        verb: The verb.
        arguments: Its arguments.
        key: The name of the call: who calls, and the key that they gave it.
        asked: What was asked, to tell a repeated call from another one under the same key.
    """
    name = hashlib.sha256(key.encode("utf-8", "replace")).hexdigest()[:32]
    request = hashlib.sha256(verb.name.encode() + b"\0" + asked).hexdigest()[:32]
    answer, again = _noted(bank, verb, arguments, name, request)
    replica: LocalReplica | None = getattr(bank, "replica", None)
    if replica is not None:
        replica.push()  # only now: what a hub has cannot be rolled back
    return answer, again


def _noted(bank: Bank, verb: Verb, arguments: Mapping[str, Any], name: str, request: str) -> tuple[Any, bool]:
    """Call a verb and note that it was called, in one transaction; or the answer that was noted before."""
    job = f"answer:{int(name[:8], 16) % SLOTS}"
    with bank.engine.writing():
        kept = bank.engine.note(job)
        notes = msgspec.json.decode(kept, type=list[_Note]) if kept else []
        before = next((one for one in notes if one.name == name), None)
        if before is not None:
            if before.request != request:
                raise InvalidInputError(
                    "this idempotency key was used for another call; make a new key for each call",
                    field="Idempotency-Key",
                )
            return _restored(bank, before.answer), True
        kind: Any = type(bank)  # an agent's bank in a hive has verbs of its own
        answer = getattr(Bank if issubclass(kind, Bank) else kind, verb.name)(bank, **arguments)
        notes.append(_Note(name=name, request=request, answer=_without_text(answer)))
        bank.engine.set_note(job, msgspec.json.encode(notes[-KEPT:]).decode())
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
