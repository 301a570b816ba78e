"""Conversations among the candidates of a hive: who stands beside whom in time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

PAUSE_SECONDS = 3600.0
"""A longer silence than this separates one conversation from the next."""


class Talks:
    """All rows in the order they were said, conversation by conversation."""

    def __init__(
        self,
        keys: Sequence[str],
        voices: Sequence[str],
        moments: NDArray[np.float64],
        orders: Ints,
        admitted: NDArray[np.bool_],
    ) -> None:
        self.size = len(keys)
        self._talk = _codes(keys)
        self._voice = _codes(voices)
        self._moments = moments
        self._admitted = admitted
        self._spoken: Ints = np.lexsort((np.arange(self.size), orders, moments, self._talk))
        self._place = np.empty(self.size, np.int64)
        self._place[self._spoken] = np.arange(self.size)

    def around(self, rows: Ints, window: int) -> Ints:
        """The neighbours of rows, from far before to far after; -1 where there is none or it is not admitted.

        A walk ends at a pause, at the end of the conversation, and where another kind of memory begins.
        """
        found = np.full((len(rows), 2 * window), -1, np.int64)
        for step, nearest in ((-1, window - 1), (1, window)):
            walking = self._talk[rows] > 0
            last = self._moments[rows]
            for distance in range(1, window + 1):
                at = self._place[rows] + step * distance
                walking &= (at >= 0) & (at < self.size)
                there = self._spoken[np.clip(at, 0, self.size - 1)]
                walking &= self._talk[there] == self._talk[rows]
                walking &= self._voice[there] == self._voice[rows]
                walking &= np.abs(self._moments[there] - last) <= PAUSE_SECONDS
                column = nearest + step * (distance - 1)
                found[:, column] = np.where(walking & self._admitted[there], there, -1)
                last = self._moments[there]
        return found


def _codes(names: Sequence[str]) -> NDArray[Any]:
    """A number per name; 0 for the empty one."""
    known = {"": 0}
    return np.array([known.setdefault(name, len(known)) for name in names], np.int64)
