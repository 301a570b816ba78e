"""Listing memories of a whole hive, a page at a time."""

from __future__ import annotations

import base64
from collections import deque
from typing import TYPE_CHECKING, Any

import msgspec

from skep.bank import Page
from skep.errors import InvalidInputError
from skep.hive.calls import Listed
from skep.hive.frames import Frame, ShardFetch, ShardFetched, ShardFind, ShardPage
from skep.hive.pool import PRIVATE
from skep.model import CURRENT, STATUSES, Memory
from skep.storage.base import Filter
from skep.validation import clean_count, clean_words
from skep.words import query_terms

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from skep.hive.agent import AgentBank
    from skep.hive.hive import Hive
    from skep.hive.placing import Placing


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
    limit = clean_count("limit", limit, 1, 10_000)
    text = clean_words("text", text, view.engine.settings.text_limit)
    places = _read_cursor(cursor)
    words = query_terms(text) if text else ()
    shown: dict[str, Memory] = {}
    while True:
        queues = _ask(hive, view, where, limit + 1, places, words)
        skipped = _shown_elsewhere(hive, queues)
        full = {name for name, queue in queues.items() if len(queue) > limit}
        while waiting := {name: queue for name, queue in queues.items() if queue}:
            name = max(waiting, key=lambda name: (waiting[name][0][1].created_at, name))
            row, memory = waiting[name][0]
            another = memory.id not in shown and (name, memory.id) not in skipped
            if another and len(shown) == limit:
                return Page(memories=tuple(shown.values()), cursor=_write_cursor(places))
            waiting[name].popleft()
            places[name] = row
            if another:
                shown[memory.id] = memory
            if not queues[name] and name in full:
                break  # this member may have more, and it may come next
        else:
            return Page(memories=tuple(shown.values()))


def _ask(
    hive: Hive, view: AgentBank, where: Filter, limit: int, places: dict[str, int], words: Sequence[str]
) -> dict[str, deque[tuple[int, Memory]]]:
    """The next memories of every member, and of the agent's own bank."""
    frames: dict[str, Frame] = {
        name: ShardFind(where=where, limit=limit, before=places.get(name), terms=tuple(words))
        for name in hive.layout.members
    }
    answers = hive.calls.ask_each(frames, ShardPage).answers
    queues = {name: deque(answers[name].found) for name in sorted(answers)}
    if view.private is not None:
        store = view.private.engine.store
        found = store.find(where, limit=limit, before_row=places.get(PRIVATE), terms=words)
        queues[PRIVATE] = deque(found)
    return queues


def _shown_elsewhere(hive: Hive, queues: dict[str, deque[tuple[int, Memory]]]) -> frozenset[tuple[str, str]]:
    """The copies that are shown by the member that answers for them, and so not by the others."""
    doubtful: dict[str, dict[str, list[str]]] = {}
    for name, queue in queues.items():
        for _, memory in queue:
            owner = hive.layout.owner(memory.id)
            if name != PRIVATE and owner is not None and owner != name:
                doubtful.setdefault(owner, {}).setdefault(memory.id, []).append(name)
    frames: dict[str, Frame] = {name: ShardFetch(ids=tuple(held)) for name, held in doubtful.items()}
    told = hive.calls.ask_each(frames, ShardFetched).answers
    return frozenset(
        (name, memory.id)
        for owner, part in told.items()
        for memory in part.found.memories
        for name in doubtful[owner].get(memory.id, ())
    )


def of_members(
    hive: Placing, statuses: Sequence[str], names: Iterable[str] | None = None, *, batch: int = 1000
) -> Listed[tuple[str, Memory]]:
    """Every memory of some statuses that members (all, unless named) hold, copies included."""
    where = Filter(statuses=tuple(statuses))
    places: dict[str, int | None] = dict.fromkeys(hive.layout.members if names is None else names)
    asked, missing = len(places), set[str]()
    found: list[tuple[str, Memory]] = []
    while places:
        frames: dict[str, Frame] = {
            name: ShardFind(where=where, limit=batch, before=before) for name, before in places.items()
        }
        told = hive.calls.ask_each(frames, ShardPage)
        missing |= set(told.missing)
        found += [(name, memory) for name, page in told.answers.items() for _, memory in page.found]
        places = {name: page.found[-1][0] for name, page in told.answers.items() if len(page.found) >= batch}
    return Listed(found, asked=asked, missing=missing)


def _read_cursor(cursor: str | None) -> dict[str, int]:
    if cursor is None:
        return {}
    try:
        return msgspec.json.decode(base64.urlsafe_b64decode(cursor), type=dict[str, int])
    except (TypeError, ValueError, msgspec.DecodeError):
        raise InvalidInputError(
            f"cursor must be one that `find` gave, got {cursor!r:.80}; leave it out to start over",
            field="cursor",
        ) from None


def _write_cursor(places: dict[str, int]) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(places)).decode()
