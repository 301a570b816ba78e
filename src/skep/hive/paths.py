"""Which way copies came: the members and hives a memory passed through, kept in the bank that holds it.

A way is the same for nearly everything one bank writes, so what is kept per writer is where the way changes:
a register `path/<member>/<writer>` with stretches of counters. It is written only when a copy comes another
way than was to be expected, survives a restart, and travels with the bank's other settings.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import msgspec

from skep.hive.about import PATHS, dot_of
from skep.hive.replica import seen
from skep.hive.versions import Ranges, holds

if TYPE_CHECKING:
    from skep.bank import Bank


class Stretch(msgspec.Struct, frozen=True, array_like=True):
    """Memories of one writer that came the same way; the last one that covers a counter counts."""

    low: int
    high: int | None
    path: tuple[str, ...]

    def covers(self, counter: int) -> bool:
        """Whether a memory belongs to it."""
        return self.low <= counter and (self.high is None or counter <= self.high)


class Paths:
    """The ways by which copies came to one member."""

    def __init__(self, bank: Bank, member: str, expected: Callable[[str], tuple[str, ...]]) -> None:
        self._bank = bank
        self._member = member
        self._expected = expected
        self._known: dict[str, tuple[Stretch, ...]] = {}
        self._lock = threading.Lock()

    def of(self, memory_id: str) -> tuple[str, ...]:
        """The way a memory came, from its writer to here."""
        actor, counter = dot_of(memory_id)
        if actor == self._bank.actor:
            return (self._member,)
        with self._lock:
            return self._of(actor, counter)

    def _of(self, actor: str, counter: int) -> tuple[str, ...]:
        for stretch in reversed(self._stretches(actor)):
            if stretch.covers(counter):
                return stretch.path
        return self._expected(actor)

    def _stretches(self, actor: str) -> tuple[Stretch, ...]:
        if actor not in self._known:
            raw: Any = self._bank.setting(f"{PATHS}{self._member}/{actor}")
            try:
                self._known[actor] = tuple(msgspec.convert(raw or [], list[Stretch]))
            except msgspec.ValidationError:  # somebody else's setting of that name
                self._known[actor] = ()
        return self._known[actor]

    def surprising(self, memory_ids: Iterable[str], path: tuple[str, ...]) -> Surprise | None:
        """Which of some memories that are about to arrive come another way than was to be expected."""
        found: dict[str, list[int]] = {}
        with self._lock:
            for memory_id in memory_ids:
                actor, counter = dot_of(memory_id)
                if actor != self._bank.actor and self._of(actor, counter) != path:
                    found.setdefault(actor, []).append(counter)
        if not found:
            return None
        ranges = seen(self._bank).ranges
        return Surprise(path, {actor: sorted(counters) for actor, counters in found.items()}, ranges)

    def note(self, surprise: Surprise) -> None:
        """Remember it, now that they have arrived."""
        with self._lock:
            for actor, counters in surprise.counters.items():
                known = surprise.before.get(actor, ())
                newest = known[-1][1] if known else 0
                stretches = list(self._stretches(actor))
                for counter in counters:
                    if not holds(known, counter):
                        _extend(stretches, counter, surprise.path, last=counter > newest)
                if tuple(stretches) != self._stretches(actor):
                    self._known[actor] = tuple(stretches)
                    key = f"{PATHS}{self._member}/{actor}"
                    self._bank.set_setting(key, [msgspec.to_builtins(one) for one in stretches])


class Surprise(msgspec.Struct, frozen=True):
    """Memories that come another way than was to be expected, and what was here before."""

    path: tuple[str, ...]
    counters: dict[str, list[int]]
    before: dict[str, Ranges]


def _extend(stretches: list[Stretch], counter: int, path: tuple[str, ...], *, last: bool) -> None:
    """One more memory that came this way; if nothing later is here, later ones are expected to as well."""
    newest = stretches[-1] if stretches else None
    if newest is not None and newest.path == path and newest.covers(counter):
        return
    if newest is not None and newest.path == path and newest.high == counter - 1:
        stretches.pop()
        low = newest.low
    else:
        low = counter
    stretches.append(Stretch(low, None if last else counter, path))
