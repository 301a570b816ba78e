"""The banks of a server by name, each opened on first use and kept open."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import reduce
from pathlib import PurePath
from typing import TYPE_CHECKING, cast

import msgspec

from skep.config import HIVE
from skep.errors import ConfigError, MovedError, NotFoundError, did_you_mean

if TYPE_CHECKING:
    from skep.bank.bank import Bank


def named_banks(given: Sequence[str]) -> dict[str, str]:
    """Names and places from a command line: each `NAME=PLACE`, or a place whose file names it.

    >>> named_banks(["team=/srv/a.skep", "notes.skep"])
    {'team': '/srv/a.skep', 'notes': 'notes.skep'}
    """
    found: dict[str, str] = {}
    for one in given:
        name, equals, place = one.partition("=")
        if not equals or "/" in name:
            name, place = PurePath(one).stem, one
        if (
            not name
            or not place
            or name in (".", "..")
            or any(c in "/?#%\\" or not c.isprintable() for c in name)
        ):
            raise ConfigError(f"{one!r} names no bank; give a file, or NAME=FILE with a plain name")
        if name in found:
            raise ConfigError(f"two banks are called {name!r}; give one another name: NAME={place}")
        found[name] = place
    return found


class Spread(msgspec.Struct):
    """How far the events of each actor have come among some banks."""

    known: dict[str, dict[str, int]]
    """Per bank and actor, the number of events that are there."""
    of: dict[str, int]
    """Per actor, the number of events that stand in any of the banks."""
    shared: float
    """The share of all events that every bank has."""


class ServedBanks:
    """Opens banks on first use; one whose file was replaced is opened again."""

    def __init__(self, places: Mapping[str, str], opener: Callable[[str], Bank]) -> None:
        self.places = dict(places)
        self._opener = opener
        self._lock = threading.Lock()
        self._open: dict[str, Bank] = {}

    def bank(self, name: str) -> Bank:
        """A bank by its name.

        Raises:
            NotFoundError: There is none of that name.
        """
        if name not in self.places:
            raise NotFoundError(f"this server has no bank {name!r}; {did_you_mean(name, self.places)}")
        with self._lock:
            found = self._open.get(name)
            if found is not None and found.engine.moved:
                del self._open[name]
                with suppress(MovedError):
                    found.close()
                found = None
            if found is None:
                found = self._open[name] = self._opener(self.places[name])
            return found

    def spread(self, names: Sequence[str]) -> Spread:
        """How far the events of each actor have come among these banks."""
        from skep.replication.exchange import seen
        from skep.replication.version_vectors import Versions

        def counts(versions: Versions) -> dict[str, int]:
            return {
                actor: sum(high - low + 1 for low, high in ranges)
                for actor, ranges in versions.ranges.items()
            }

        found = {name: seen(self.bank(name)) for name in names}
        every = reduce(Versions.merged, found.values(), Versions({}))
        shared = reduce(Versions.common, found.values(), every)
        return Spread(
            {name: counts(versions) for name, versions in found.items()},
            counts(every),
            shared.count() / every.count() if every else 1.0,
        )

    def opened(self) -> dict[str, Bank]:
        """Those that are open now."""
        with self._lock:
            return dict(self._open)

    def close(self) -> None:
        """Close all of them."""
        with self._lock:
            banks, self._open = list(self._open.values()), {}
        for bank in banks:
            bank.close()


def opener(environ: Mapping[str, str]) -> Callable[[str], Bank]:
    """Opens the bank of a place, and makes it where there is none; at `hive://hive.yaml#ana`, that of an agent."""
    from skep.bank.bank import Bank
    from skep.embedding.remote import from_environment

    embedders = from_environment(environ)

    def opened(place: str) -> Bank:
        if place.startswith(HIVE):
            from skep.hive.controller import open_agent

            return cast("Bank", open_agent(place, environ))
        return Bank.open(place, create=not os.path.exists(place), opener=embedders)

    return opened
