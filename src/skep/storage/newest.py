"""The newest numbers of a bank: after which event, row and change the next one follows."""

from __future__ import annotations

from skep.storage.connection import Connection
from skep.storage.rows import HEAD
from skep.storage.runs import END

_NUMBERS = (
    "SELECT (SELECT max(seq) FROM events), (SELECT max(row) FROM memories), "
    f" {HEAD}, (SELECT max(id) FROM words_docsize)"
)
_ACTORS = (
    "SELECT a.actor, a.counter, a.hlc, r.counter IS NULL FROM actors a JOIN replicas r ON r.actor = a.actor"
)
_RUN = (
    f"SELECT e.actor, e.counter + 1, coalesce((SELECT min(r.counter) FROM runs r WHERE r.actor = e.actor"
    f" AND r.counter > e.counter), {END}) FROM events e WHERE e.seq = ?"
)
_NO_RUN = ("", 0, 0)


class Newest:
    """Kept in memory from one write to the next, and read again when anybody else wrote or a write came to nothing.

    Whoever gives out a number inside a transaction moves it on here as well.
    """

    __slots__ = ("_c", "_version", "actors", "change", "followed", "row", "run", "seq", "stamp", "worded")

    def __init__(self, connection: Connection) -> None:
        self._c = connection
        self._version = -1
        self.seq = 0
        self.row = 0
        self.change = 0
        self.worded = 0
        """The last row in the full-text index; those after it wait to be put there together."""
        self.actors: dict[str, tuple[int, int]] = {}
        """Per actor, its counter and its stamp."""
        self.followed: set[str] = set()
        """Those of them whose counter and stamp follow from the log."""
        self.stamp = 0
        self.run: tuple[str, int, int] = _NO_RUN
        """Whose the newest event is, the counter that follows, and one that must not: where another run begins."""

    def look(self) -> None:
        """Be true for a transaction that has begun."""
        version = self._c.version
        if version is None:
            version = self._c.data_version()
        if version == self._version:
            return
        ((seq, row, change, worded),) = self._c.rows(_NUMBERS)
        self.seq, self.row, self.change, self.worded = seq or 0, row or 0, change or 0, worded or 0
        run = self._c.rows(_RUN, (self.seq,))
        self.run = run[0] if run else _NO_RUN  # type: ignore[assignment]
        found = self._c.rows(_ACTORS)
        self.actors = {actor: (counter, hlc) for actor, counter, hlc, _followed in found}
        self.followed = {actor for actor, _counter, _hlc, followed in found if followed}
        self.stamp = max((hlc for _counter, hlc in self.actors.values()), default=0)
        self._version = version

    def stands(self, version: int) -> bool:
        """Whether what is here is true of that version of the file."""
        return version == self._version

    def drop(self) -> None:
        """What is here may not be true any more."""
        self._version = -1
