"""Listing memories of a whole hive, a page at a time."""

from __future__ import annotations

import base64
from collections import deque
from typing import TYPE_CHECKING, Any

import msgspec

from skep.bank import Page
from skep.errors import InvalidInputError
from skep.model import CURRENT, STATUSES, Memory
from skep.validation import clean_number
from skep.words import query_terms

if TYPE_CHECKING:
    from skep.bank import Bank
    from skep.hive.agent import AgentBank
    from skep.hive.hive import Hive

PRIVATE = "private"


def find_everywhere(
    hive: Hive,
    view: AgentBank,
    text: str | None = None,
    *,
    status: Any = CURRENT,
    limit: int = 50,
    cursor: str | None = None,
    **conditions: Any,
) -> Page:
    """Memories of all members, newest first, each once; the cursor knows how far each member was read."""
    where = view.filter(status=STATUSES if status is None else status, **conditions)
    limit = int(clean_number("limit", limit, 1, 10_000))
    places = _read_cursor(cursor)
    words = query_terms(text) if text else ()
    queues = {
        name: deque(bank.engine.store.find(where, limit=limit + 1, before_row=places.get(name), terms=words))
        for name, bank in _banks(hive, view).items()
    }
    shown: dict[str, Memory] = {}
    while waiting := {name: queue for name, queue in queues.items() if queue}:
        name = max(waiting, key=lambda name: (waiting[name][0][1].created_at, name))
        row, memory = waiting[name][0]
        if memory.id not in shown and len(shown) == limit:
            return Page(memories=tuple(shown.values()), cursor=_write_cursor(places))
        waiting[name].popleft()
        shown.setdefault(memory.id, memory)
        places[name] = row
    return Page(memories=tuple(shown.values()))


def _banks(hive: Hive, view: AgentBank) -> dict[str, Bank]:
    banks = {name: member.bank for name, member in hive.members.items()}
    return banks if view.private is None else {**banks, PRIVATE: view.private}


def _read_cursor(cursor: str | None) -> dict[str, int]:
    if cursor is None:
        return {}
    try:
        return msgspec.json.decode(base64.urlsafe_b64decode(cursor), type=dict[str, int])
    except (ValueError, msgspec.DecodeError):
        raise InvalidInputError(f"cursor {cursor!r} is not one that `find` gave", field="cursor") from None


def _write_cursor(places: dict[str, int]) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(places)).decode()
