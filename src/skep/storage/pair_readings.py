"""The table of what the reader of pairs said: outputs by a number that is made of both texts.

It is derived: it may be emptied at any time, and what it held is read again when it is wanted. It holds no text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from skep.storage.sqlite_connection import Connection


class PairReadings:
    """The outputs of the reader for pairs of texts of one bank."""

    def __init__(self, connection: Connection) -> None:
        self._c = connection

    def get(self, pairs: Sequence[int]) -> dict[int, bytes]:
        """The outputs of those pairs that were read."""
        found = self._c.rows(
            "SELECT pair, outputs FROM pair_readings WHERE pair IN (SELECT value FROM json_each(?))",
            (str(list(pairs)),),
        )
        return dict(found)

    def put(self, outputs: Mapping[int, bytes]) -> None:
        """Keep outputs; called inside a transaction."""
        self._c.execute_many(
            "INSERT OR REPLACE INTO pair_readings(pair, outputs) VALUES(?, ?)", list(outputs.items())
        )
