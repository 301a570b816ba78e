"""Changes of a bank as they happen, for `/v1/banks/{bank}/changes` (server-sent events) and for replicas that wait.

One look per bank at a time serves everybody who waits: it asks SQLite whether anybody wrote, this process or another.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import msgspec

from skep.errors import SkepError
from skep.events import mentioned

if TYPE_CHECKING:
    from skep.bank.bank import Bank

LOOK: Final = 0.2
"""Seconds between two looks at a bank somebody waits for."""
KEEPALIVE: Final = 15.0
"""Seconds after which a silent stream says that it is still there."""
BATCH: Final = 500


class Pulse:
    """Wakes those who wait for a bank to change."""

    def __init__(self, bank: Callable[[], Bank], closing: asyncio.Event) -> None:
        self._bank = bank
        self._closing = closing
        self._changed = asyncio.Event()
        self._waiting = 0
        self._task: asyncio.Task[None] | None = None
        self.last = 0

    async def wait(self, after: int, timeout: float) -> int:
        """The position of the last event, once it is beyond `after`, or after `timeout` seconds."""
        self._waiting += 1
        self.last = await asyncio.to_thread(self._look)
        if self._task is None:
            self._task = asyncio.create_task(self._run())
        try:
            async with asyncio.timeout(timeout):
                while self.last <= after and not self._closing.is_set():
                    await self._changed.wait()
        except TimeoutError:
            pass
        finally:
            self._waiting -= 1
        return self.last

    async def _run(self) -> None:
        while self._waiting and not self._closing.is_set():
            last = await asyncio.to_thread(self._look)
            if last != self.last:
                self.last = last
                self._wake()
            await asyncio.sleep(LOOK)
        self._task = None
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def _look(self) -> int:
        try:
            return self._bank().engine.log.last_seq()
        except SkepError:  # not to be read just now; the next look may succeed
            return self.last


async def changes(
    bank: Callable[[], Bank],
    pulse: Pulse,
    after: int,
    shows: Callable[[Bank, Any], bool],
    ended: Callable[[], bool],
) -> AsyncIterator[bytes]:
    """Frames of server-sent events: one per event of the log that may be shown, and a comment now and then.

    It ends once `ended` says so: when the server stops, or the token is valid no more.
    """

    def newer() -> list[Any]:
        opened = bank()
        events = islice(opened.engine.log.after(after), BATCH)
        return [(event, event.kind != "use" and shows(opened, event)) for event in events]

    yield b": skep\n\n"
    while not ended():
        found = await asyncio.to_thread(newer)
        for event, shown in found:
            after = event.seq
            if shown:
                told = {"id": event.id, "kind": event.kind, "at": event.at, "memories": mentioned(event)}
                yield b"id: %d\nevent: change\ndata: %s\n\n" % (after, msgspec.json.encode(told))
        if not found and await pulse.wait(after, KEEPALIVE) <= after:
            yield b": still here\n\n"
