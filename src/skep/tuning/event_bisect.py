"""The event after which something went wrong: a binary search over the log with a command of the user as the judge.

Like `git bisect run`: the command runs against a bank that holds the first events only (`SKEP_BANK` names it), and
exits with 0 if all is well, 125 if it cannot tell, anything else if it went wrong. Called by `skep bisect`. The bank
itself is only read; the copies lie in a temporary folder.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import msgspec

from skep.bank.bank import Bank
from skep.errors import InvalidInputError
from skep.events import mentioned
from skep.model import Event, Memory

if TYPE_CHECKING:
    from skep.embedding.embedder import Opener


CANNOT_TELL = 125
DEPTH = 6
"""How many links of derivation away the consequences of an event are looked for."""
Judge = Callable[[Path], int]
"""Runs on a bank file; the exit code."""


class Culprit(msgspec.Struct, frozen=True, kw_only=True):
    """The first event with which it goes wrong, and what it touches."""

    event: str
    kind: str
    at: float
    body: dict[str, object]
    suspects: tuple[str, ...]
    """Events of which one is to blame, where the command could not tell; the event alone otherwise."""
    memories: tuple[Memory, ...]
    """What the event is about."""
    derived: tuple[Memory, ...]
    """What was derived from that, directly or not: the blast radius."""
    runs: int


def bisect(bank: Bank, judge: Judge, *, opener: Opener, told: Callable[[str], None]) -> Culprit:
    """Find the event after which a command fails.

    Raises:
        InvalidInputError: The command does not fail on the whole bank, or fails on an empty one.
    """
    events = list(bank.engine.log.after(0))
    runs = 0
    known: dict[int, int] = {}

    def verdict(count: int) -> int:
        nonlocal runs
        if count not in known:
            runs += 1
            known[count] = _verdict(bank, events[:count], judge, opener)
            word = {0: "good", CANNOT_TELL: "cannot tell"}.get(known[count], "bad")
            told(f"{count} of {len(events)} events: {word}")
        return known[count]

    if verdict(len(events)) in (0, CANNOT_TELL):
        raise InvalidInputError(
            "the command does not fail on the bank as it is, so there is nothing to find; it must exit with 0 if all is"
            " well, and with another code (but not 125) if it went wrong"
        )
    if verdict(0) not in (0, CANNOT_TELL):
        raise InvalidInputError(
            "the command fails on an empty bank too, so no event is to blame; check the command"
        )
    good, bad = 0, len(events)
    while bad - good > 1:
        middle = _telling(good, bad, verdict)
        if middle is None:
            break
        if verdict(middle) == 0:
            good = middle
        else:
            bad = middle
    found = events[bad - 1]
    touched = [memory for name in mentioned(found) if (memory := bank.engine.get(name)) is not None]
    return Culprit(
        event=found.id,
        kind=found.kind,
        at=found.at,
        body=found.body,
        suspects=tuple(event.id for event in events[good:bad]),
        memories=tuple(touched),
        derived=tuple(_derived(bank, touched)),
        runs=runs,
    )


def _telling(good: int, bad: int, verdict: Callable[[int], int]) -> int | None:
    """A number of events between two for which the command can tell, nearest to the middle, or None."""
    middle = (good + bad) // 2
    for count in sorted(range(good + 1, bad), key=lambda one: abs(one - middle)):
        if verdict(count) != CANNOT_TELL:
            return count
    return None


def _verdict(bank: Bank, events: Sequence[Event], judge: Judge, opener: Opener) -> int:
    with TemporaryDirectory(prefix="skep-bisect-") as folder:
        path = Path(folder) / "bank.skep"
        spec = bank.engine.embeddings.spec
        with Bank.open(path, embedder=spec, opener=opener) as copy:
            copy.apply(events)
            copy.reembed()
        return judge(path)


def _derived(bank: Bank, memories: Sequence[Memory]) -> list[Memory]:
    found: dict[str, Memory] = {}
    for memory in memories:
        graph = bank.neighbors(memory.id, "derived_from", "in", DEPTH)
        found |= {name: one for name, one in graph.memories.items() if name != memory.id}
    return list(found.values())
