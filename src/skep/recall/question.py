"""What is asked but for its words: what may be in the answer, how it is ranked, and how much of it is wanted.

A caller asks in the same few ways again and again, so that checking them, and working out what applies, is worth
doing once.
"""

from __future__ import annotations

import msgspec

from skep.retrieval.config import RecallConfig
from skep.retrieval.ways import narrowed
from skep.storage.base import Filter

_pack = msgspec.msgpack.Encoder().encode


class Question(msgspec.Struct, frozen=True):
    """How something is asked."""

    where: Filter
    """As of no time; `at` says what it is at some."""
    limit: int
    config: RecallConfig
    key: bytes
    """What stands for all of it in the keys of answers."""
    current: bool
    """Whether only what holds at the time of asking may be in the answer."""

    def at(self, now: float) -> Filter:
        """The filter as of a time."""
        if self.current:
            return msgspec.structs.replace(self.where, now=now, valid_at=now)
        return msgspec.structs.replace(self.where, now=now)


def made(where: Filter, limit: int, config: RecallConfig, *, current: bool = True) -> Question:
    """A question from a filter of any time; `current` if what it says of validity is meant for the time of asking."""
    current = current and where.valid_at is not None and where.valid_at == where.now
    timeless = msgspec.structs.replace(where, now=0.0, valid_at=None if current else where.valid_at)
    timeless = narrowed(timeless, config)
    return Question(timeless, limit, config, _pack((timeless, limit, config, current)), current)
