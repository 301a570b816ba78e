"""Did memory help? What outcomes say about each memory, and what withholding says about its effect.

A small share of recalls leaves one hit out at random. How likely a memory is to be that one depends on how many hits
there were, and so on the query: easy and hard tasks may recall different numbers of them. Among recalls with the same
number of hits and the same share, tasks in which everything was shown and tasks in which one memory was withheld differ
by chance alone. So success rates are compared within such groups, and the differences averaged with the weights of
Mantel and Haenszel, which give most to the groups that can tell most and nothing to those in which a memory was always,
or never, shown. Tasks in which another memory was withheld are left out: they would charge that one's absence to this
one's presence. Pure but for the outcomes it is given.
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


Counts = list[int]
"""Shown, of these successful; withheld, of these successful."""


def difference(a: float, of_a: float, b: float, of_b: float) -> tuple[float, float, float]:
    """The difference of two success rates with a 95 % interval (Agresti and Caffo: one success and one failure added).

    >>> tuple(round(x, 2) for x in difference(9, 10, 5, 10))
    (0.4, -0.02, 0.69)
    """
    p1, p2 = (a + 1) / (of_a + 2), (b + 1) / (of_b + 2)
    spread = Z95 * math.sqrt(p1 * (1 - p1) / (of_a + 2) + p2 * (1 - p2) / (of_b + 2))
    raw = (a / of_a if of_a else 0.5) - (b / of_b if of_b else 0.5)
    return raw, max(-1.0, p1 - p2 - spread), min(1.0, p1 - p2 + spread)


def compared(groups: Iterable[Counts]) -> tuple[float, float, float] | None:
    """The difference within groups, averaged, with a 95 % interval; None if no group can tell.

    The interval is that of as many tasks as would tell as much if all were of one group; with one group it is exact.

    >>> compared([[10, 9, 10, 5]]) == difference(9, 10, 5, 10)
    True
    """
    told = [group for group in groups if group[0] and group[2]]
    if not told:
        return None
    weights = [shown * held / (shown + held) for shown, _, held, _ in told]
    total = sum(weights)
    rates = [
        sum(w * group[at + 1] / group[at] for w, group in zip(weights, told, strict=True)) / total
        for at in (0, 2)
    ]
    sizes = [
        total**2 / sum(w * w / group[at] for w, group in zip(weights, told, strict=True)) for at in (0, 2)
    ]
    return difference(rates[0] * sizes[0], sizes[0], rates[1] * sizes[1], sizes[1])


def effects(outcomes: Iterable[Event]) -> list[Effect]:
    """The effect of every memory that was withheld at least once, clearest first."""
    tally: dict[str, dict[tuple[int, float | None], Counts]] = {}
    for event in outcomes:
        won = int(bool(event.body.get("success")))
        shown, withheld = event.body.get("shown", ()), event.body.get("withheld", ())
        group = (
            len(shown) + len(withheld),
            event.body.get("withhold"),
        )  # older records do not tell the share
        for at, memories in ((0, () if withheld else shown), (2, withheld)):
            for memory in memories:
                counts = tally.setdefault(memory, {}).setdefault(group, [0, 0, 0, 0])
                counts[at] += 1
                counts[at + 1] += won
    found: list[Effect] = []
    for memory, groups in tally.items():
        told = compared(groups.values())
        if told is not None:
            shown, shown_won, held, held_won = map(sum, zip(*groups.values(), strict=True))
            found.append(
                Effect(
                    memory=memory,
                    shown=shown,
                    shown_successes=shown_won,
                    withheld=held,
                    withheld_successes=held_won,
                    effect=told[0],
                    low=told[1],
                    high=told[2],
                )
            )
    return sorted(found, key=lambda e: (not e.clear, -abs(e.effect), e.memory))


def withhold(hits: Sequence[Hit], share: float, rng: Random) -> tuple[tuple[Hit, ...], tuple[str, ...]]:
    """With probability `share`, leave one hit out; what is shown, and the id of what is not."""
    if not hits or rng.random() >= share:
        return tuple(hits), ()
    place = rng.randrange(len(hits))
    return tuple(hit for i, hit in enumerate(hits) if i != place), (hits[place].memory.id,)
