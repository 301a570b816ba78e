"""Passive recall: after each turn a search runs in the background; at the next turn its result is simply there."""

from __future__ import annotations

import asyncio
import re
import threading
from collections import deque
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any

import msgspec

from skep.confidence import ABOVE, STREAMED
from skep.errors import ClosedError
from skep.model import Hit
from skep.patterns import lazy
from skep.recall.messages import as_text
from skep.recall.search import Recaller
from skep.storage.base import Filter

TURNS = 2
"""How many of the last turns a search looks for."""
MOST = 5
"""At most this many facts, and as many episodes."""
RELEVANT = 0.2
"""Calibrated cosine below which a memory has nothing to do with the turns, however sure and new it is."""
_ROLE = lazy(r"\s*(?:user|assistant|human|ai|system|tool|developer)\s*:\s+", re.IGNORECASE)
"""Who speaks, as chat APIs name them; "user: hi" is not about users."""


class StreamContext(msgspec.Struct, frozen=True, kw_only=True):
    """What the last finished search found."""

    facts: tuple[Hit, ...] = ()
    episodes: tuple[Hit, ...] = ()
    turn: int = 0
    """The turn it was searched after; 0 before the first search has finished."""


class Stream:
    """Watches a conversation. `observe` each turn, ask `context` for what to put before the model; neither blocks.

    One search runs at a time. A turn that comes while one is waiting takes its place; a turn that comes while one is
    running has its result dropped, so that `context` never goes back to an older turn.

    Args:
        recaller: Answers the searches.
        where: What may be recalled; called for every search, so that time moves on.
        turns: How many of the last turns make the query.
        inline: Search at once in `observe` instead of in the background; for tests.
    """

    def __init__(
        self, recaller: Recaller, where: Callable[[], Filter], *, turns: int = TURNS, inline: bool = False
    ) -> None:
        self._recaller = recaller
        self._where = where
        self._recent: deque[str] = deque(maxlen=max(1, turns))
        self._inline = inline
        self._turn = 0
        self._found = StreamContext()
        self._wake = threading.Condition()
        self._asked: tuple[int, str] | None = None
        self._closed = False
        self._thread: threading.Thread | None = None
        self.cancelled = 0
        """Searches that a newer turn made stale: not begun, broken off between facts and episodes, or not shown."""
        self.error: str | None = None
        """What went wrong in the last search, if anything."""

    def __enter__(self) -> Stream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def observe(self, turn: str | Mapping[str, Any]) -> None:
        """Note what was said; starts a search for the next turn and returns at once. Refused once it is closed.

        A turn is a text, or a message as chat APIs have it, with `role` and `content`.
        """
        if self._closed:
            raise ClosedError("this stream is closed; `bank.stream()` opens another")
        said = as_text(turn, "turn")
        role = _ROLE.match(said)
        said = said[role.end() :] if role else said
        if not said.strip():
            return
        self._recent.append(said)
        self._turn += 1
        query = "\n".join(self._recent)
        if self._inline:
            self._search(self._turn, query)
            return
        with self._wake:
            if self._asked is not None:
                self.cancelled += 1
            self._asked = (self._turn, query)
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="skep-stream", daemon=True)
                self._thread.start()
            self._wake.notify()

    def context(self) -> StreamContext:
        """What the last finished search found, less what this bank has forgotten since; never waits."""
        found = self._found
        facts, episodes = (self._recaller.without_erased(hits) for hits in (found.facts, found.episodes))
        if facts is found.facts and episodes is found.episodes:
            return found
        return StreamContext(facts=facts, episodes=episodes, turn=found.turn)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until every search that was asked for is done; for those who can afford to."""
        with self._wake:
            return self._wake.wait_for(lambda: self._closed or self._found.turn >= self._turn, timeout)

    async def observe_async(self, turn: str | Mapping[str, Any]) -> None:
        """The same for asyncio; it never blocks the loop."""
        self.observe(turn)

    async def context_async(self, timeout: float | None = None) -> StreamContext:
        """What was found, waiting at most `timeout` seconds for the newest search without blocking the loop."""
        if timeout:
            await asyncio.to_thread(self.wait, timeout)
        return self.context()

    def close(self) -> None:
        """End the background thread; a search in hand is finished first. `context` still tells what was found last."""
        with self._wake:
            self._closed = True
            self._wake.notify_all()
        if self._thread is not None:
            self._thread.join()

    def _work(self) -> None:
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self._asked is not None or self._closed)
                if self._closed:
                    return
                assert self._asked is not None
                turn, query = self._asked
                self._asked = None
            self._search(turn, query)

    def _search(self, turn: int, query: str) -> None:
        """Search for one turn. What a newer turn has made stale on the way is dropped, never shown."""
        error: str | None = None
        found = StreamContext(turn=turn)
        try:
            facts = self._some(query, ("fact", "procedure"))
            if not self._stale():
                episodes = self._some(query, ("episode",))
                found = StreamContext(facts=facts, episodes=episodes, turn=turn)
        except Exception as problem:  # noqa: BLE001 - the root of a thread: what went wrong is shown, not lost
            error = str(problem) or type(problem).__name__
        with self._wake:
            if self._stale():
                self.cancelled += 1
                return
            self.error = error
            self._found = found
            self._wake.notify_all()

    def _stale(self) -> bool:
        """Whether a newer turn waits for its own search."""
        return self._asked is not None

    def _some(self, query: str, kinds: tuple[str, ...]) -> tuple[Hit, ...]:
        where = msgspec.structs.replace(self._where(), kinds=kinds, min_confidence=STREAMED + ABOVE)
        hits = self._recaller.run(query, where, limit=MOST, preset="stream", count_uses=False).hits
        return tuple(hit for hit in hits if _relevant(hit))


def _relevant(hit: Hit) -> bool:
    """Whether a memory is about the turns; one that has no vector yet, if it has words of theirs."""
    if "pending" in hit.flags:
        return hit.signals.get("lexical", 0.0) > 0
    return hit.signals.get("semantic", 1.0) >= RELEVANT
