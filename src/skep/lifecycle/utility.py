"""Did memory help? What outcomes say about each memory, and what withholding says about its effect.

A small share of recalls leaves one hit out at random. Tasks in which everything was shown and tasks in which one memory
was withheld differ by that chance alone, so the difference of their success rates estimates the memory's own effect.
Tasks in which another memory was withheld are left out: they would charge that one's absence to this one's presence.
Pure but for the outcomes it is given.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from random import Random

import msgspec

from skep.model import Event, Hit

Z95 = 1.959964


class Effect(msgspec.Struct, frozen=True, kw_only=True):
    """The estimated effect of one memory on success, with a 95 % interval."""

    memory: str
    shown: int
    shown_successes: int
    withheld: int
    withheld_successes: int
    effect: float
    low: float
    high: float

    @property
    def clear(self) -> bool:
        """Whether the interval leaves no doubt about the direction."""
        return self.low > 0 or self.high < 0


def difference(a: int, of_a: int, b: int, of_b: int) -> tuple[float, float, float]:
    """The difference of two success rates with a 95 % interval (Agresti and Caffo: one success and one failure added).

    >>> tuple(round(x, 2) for x in difference(9, 10, 5, 10))
    (0.4, -0.02, 0.69)
    """
    p1, p2 = (a + 1) / (of_a + 2), (b + 1) / (of_b + 2)
    spread = Z95 * math.sqrt(p1 * (1 - p1) / (of_a + 2) + p2 * (1 - p2) / (of_b + 2))
    raw = (a / of_a if of_a else 0.5) - (b / of_b if of_b else 0.5)
    return raw, max(-1.0, p1 - p2 - spread), min(1.0, p1 - p2 + spread)


def effects(outcomes: Iterable[Event]) -> list[Effect]:
    """The effect of every memory that was withheld at least once, clearest first."""
    tally: dict[str, list[int]] = {}
    for event in outcomes:
        won = int(bool(event.body.get("success")))
        for memory in () if event.body.get("withheld") else event.body.get("shown", ()):
            counts = tally.setdefault(memory, [0, 0, 0, 0])
            counts[0] += 1
            counts[1] += won
        for memory in event.body.get("withheld", ()):
            counts = tally.setdefault(memory, [0, 0, 0, 0])
            counts[2] += 1
            counts[3] += won
    found: list[Effect] = []
    for memory, (shown, shown_won, held, held_won) in tally.items():
        if shown and held:
            effect, low, high = difference(shown_won, shown, held_won, held)
            found.append(
                Effect(
                    memory=memory,
                    shown=shown,
                    shown_successes=shown_won,
                    withheld=held,
                    withheld_successes=held_won,
                    effect=effect,
                    low=low,
                    high=high,
                )
            )
    return sorted(found, key=lambda e: (not e.clear, -abs(e.effect), e.memory))


def withhold(hits: Sequence[Hit], share: float, rng: Random) -> tuple[tuple[Hit, ...], tuple[str, ...]]:
    """With probability `share`, leave one hit out; what is shown, and the id of what is not."""
    if not hits or rng.random() >= share:
        return tuple(hits), ()
    place = rng.randrange(len(hits))
    return tuple(hit for i, hit in enumerate(hits) if i != place), (hits[place].memory.id,)
