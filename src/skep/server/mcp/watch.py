"""Changes that other processes make to a bank, told to whoever subscribed to a memory.

SQLite says cheaply whether another connection wrote, and the log says what. Nobody is asked while nobody listens.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from skep.errors import SkepError

if TYPE_CHECKING:
    from skep.bank import Bank

INTERVAL: Final = 1.0
"""Seconds between two looks."""
STATS: Final = "memory://stats"


def addresses(memory_id: str) -> tuple[str, str]:
    """The resources that change when a memory does."""
    return f"memory://{memory_id}", f"memory://{memory_id}/history"


class Watch:
    """Looks at the banks of those who listen, and publishes the addresses of what others changed there.

    Args:
        publish: Told the addresses.
        pause: Waits between two looks, for at most so many seconds; true means stop.
        interval: How many seconds.
    """

    def __init__(
        self,
        publish: Callable[[set[str]], None],
        *,
        pause: Callable[[float], bool] | None = None,
        interval: float = INTERVAL,
    ) -> None:
        self._publish = publish
        self._stopped = threading.Event()
        self._pause = pause or self._stopped.wait
        self._interval = interval
        self._lock = threading.Lock()
        self._followed: dict[object, Callable[[], Bank]] = {}
        self._seen: dict[Bank, tuple[int | None, int]] = {}
        """Per bank the version SQLite gave and the last event that is known."""
        self._thread: threading.Thread | None = None

    def follow(self, key: object, bank: Callable[[], Bank]) -> None:
        """From now on look at a bank. What is in it already is not news."""
        found = bank()
        position = _position(found)
        with self._lock:
            self._seen.setdefault(found, position)
            self._followed[key] = bank
            if self._thread is None and not self._stopped.is_set():
                self._thread = threading.Thread(target=self._run, name="skep-watch", daemon=True)
                self._thread.start()

    def leave(self, key: object) -> None:
        """Stop looking for this one."""
        with self._lock:
            self._followed.pop(key, None)

    def look(self) -> None:
        """Look once at every bank that somebody follows."""
        with self._lock:
            followed = list(self._followed.values())
        looked: set[Bank] = set()
        for ask in followed:
            try:
                bank = ask()
                changed = self._news(bank) if bank not in looked else set[str]()
            except SkepError:  # not to be read just now: a tool call says why, and the next look may succeed
                continue
            looked.add(bank)
            if changed:
                self._publish(changed)

    def close(self) -> None:
        """End, and wait for a look that is under way."""
        self._stopped.set()
        thread = self._thread
        if thread is not None:
            thread.join()

    def _run(self) -> None:
        while not self._pause(self._interval):
            with self._lock:
                if not self._followed:
                    self._thread = None
                    self._seen.clear()
                    return
            self.look()

    def _news(self, bank: Bank) -> set[str]:
        from skep.storage.subjects import mentioned

        version, last = _position(bank)
        known, seen = self._seen.get(bank, (None, 0))  # a bank that was made meanwhile is new as a whole
        self._seen[bank] = version, last
        if version == known or last == seen:  # whatever is newer this process wrote, and has told itself
            return set()
        events = bank.engine.store.log.after(seen)
        subjects = {subject for event in events if event.kind != "use" for subject in mentioned(event)}
        changed = {address for subject in subjects for address in addresses(subject)}
        return {*changed, STATS} if changed else changed


def _position(bank: Bank) -> tuple[int, int]:
    """What SQLite and the log say. The log first: what comes in between is then found the next time."""
    store = bank.engine.store
    last = store.log.last_seq()
    return store.connection.data_version(), last
