"""Masks: which slots a filter admits, decided exactly and before anything is scored.

A mask over a hundred thousand rows costs more than a search, and the same few filters are asked again and again, so
masks are kept. What depends on time changes only when the time of some row comes: a mask says until when it holds.
`index` asks; the columns of the table answer.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from functools import cached_property
from math import inf, log
from typing import TYPE_CHECKING, Any

import numpy as np

from skep.filters import Filter
from skep.index.bm25 import key_of
from skep.index.columns import KIND_CODES, STATUS_CODES, maybe_key, scope_key
from skep.model import ANY, BELOW, Scope

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from skep.filters import IndexSource
    from skep.index.row_table import Table

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]
    Mask = NDArray[np.bool_]

DAY = 86400.0
SLACK = 1.0
"""Seconds around a crossing within which a mask is not kept, so that rounding never decides."""
KEPT = 16
"""Parts of filters that are kept."""
FILTERS = 32
"""Whole filters that are kept while the table stays as it is."""
BLOCK = 8192
"""Rows looked at together where a row takes several steps: what lies between them stays in the cache."""


class Admitted:
    """The slots that a search may see: live, and admitted by every condition."""

    def __init__(self, mask: Mask) -> None:
        self.mask = mask
        self.count = int(np.count_nonzero(mask))
        self.all = self.count == len(mask)
        """True if it is every slot there is."""

    @cached_property
    def slots(self) -> Ints:
        """The slots themselves, ascending."""
        return np.flatnonzero(self.mask)


Times = tuple[float | None, float | None]
"""The moment a filter is asked for, and the one that confidences decay to; None where it does not matter."""
Moments = tuple[tuple[float, float], tuple[float, float]]
"""From when, and until when, an answer holds for either."""


def _hold(moments: Moments, times: Times) -> bool:
    """True if what holds at some moments holds at these times."""
    (low, high), (first, last) = moments
    at, now = times
    return (at is None or low <= at < high) and (now is None or first <= now < last)


class _Part:
    """The answer to one part of a filter, live or not, for the first `upto` slots, and when it holds."""

    __slots__ = ("mask", "moments", "upto")

    def __init__(self, room: int) -> None:
        self.mask: Mask = np.zeros(room, dtype=bool)
        self.upto = 0
        self.moments: Moments = ((-inf, inf), (-inf, inf))


Parts = OrderedDict[tuple[Any, ...], _Part]
Decide = Callable[["Table", "Filter", slice, "Mask"], Moments]


class Masks:
    """The masks of one table, the most recently used ones.

    A filter has a *standing* part, the same for nearly every search (what is current, at this time, sure enough),
    and a *narrowing* part (whose, what kind, which tags). Each is decided for itself and only for the slots that came
    since, so that a filter that was never asked before costs little.
    """

    def __init__(self, table: Table, source: IndexSource) -> None:
        self.table = table
        self._source = source
        self._standing: Parts = OrderedDict()
        self._narrowing: Parts = OrderedDict()
        self._whole: OrderedDict[tuple[Any, ...], tuple[Moments, Admitted]] = OrderedDict()
        """Whole filters: the slots they admit, and the moments while that holds."""
        self._version = table.version
        """Of the table that whole filters were decided for."""

    def admitted(self, where: Filter) -> Admitted:
        """The slots that a filter admits now."""
        if self._version != self.table.version:
            self._whole.clear()
            self._version = self.table.version
        key = _key(where)
        times = (where.valid_at, None if where.min_confidence is None else where.now)
        known = self._whole.get(key)
        if known is None or not _hold(known[0], times):
            known = self._whole[key] = self._decided(where, key, times)
        self._whole.move_to_end(key)
        if len(self._whole) > FILTERS:
            self._whole.popitem(last=False)
        return known[1]

    def _decided(self, where: Filter, key: tuple[Any, ...], times: Times) -> tuple[Moments, Admitted]:
        """The slots that a filter admits, from its parts."""
        count = self.table.count
        standing = self._part(self._standing, key[:STANDING], where, times, _stands)
        mask = standing.mask[:count] & self.table.alive[:count]
        if key[STANDING:] != _EVERYTHING:
            mask &= self._part(self._narrowing, key[STANDING:], where, (None, None), _narrows).mask[:count]
        return standing.moments, Admitted(mask)

    def _part(self, kept: Parts, key: tuple[Any, ...], where: Filter, times: Times, decide: Decide) -> _Part:
        """One part of a filter, decided for every slot there is."""
        table, found = self.table, kept.get(key)
        if found is None or not _hold(found.moments, times):
            found = kept[key] = _Part(len(table.alive))
        kept.move_to_end(key)
        if len(kept) > KEPT:
            kept.popitem(last=False)
        if found.upto < table.count:
            if len(found.mask) < table.count:
                more = np.zeros(len(table.alive) - len(found.mask), dtype=bool)
                found.mask = np.concatenate([found.mask, more])
            part = slice(found.upto, table.count)
            mask = found.mask[part]
            mask[:] = True
            (valid, sure), (valid_here, sure_here) = found.moments, decide(table, where, part, mask)
            if decide is _narrows:
                self._by_the_store(where, part, mask)
            found.moments = (_narrow(valid, valid_here), _narrow(sure, sure_here))
            found.upto = table.count
        return found

    def _by_the_store(self, where: Filter, part: slice, mask: Mask) -> None:
        """Leave what meets the conditions of which the index holds nothing: on metadata, keys and paths."""
        paths = where.scope if where.scope is not None and _has_path(where.scope) else None
        if not (where.metadata or where.keys or paths):
            return
        asked = Filter(
            statuses=(),
            scope=paths,
            include_shared=where.include_shared and paths is not None,
            metadata=where.metadata,
            keys=where.keys,
        )
        slots = np.flatnonzero(mask & self.table.alive[part])
        rows = self.table.rows[part][slots]
        found = self._source.admitted(rows.tolist(), asked)
        mask[:] = False
        mask[slots[np.isin(rows, np.fromiter(found, dtype=np.int64, count=len(found)))]] = True


def _has_path(scope: Scope) -> bool:
    return any(
        part is not None and part.endswith(BELOW) for part in (scope.user, scope.project, scope.session)
    )


def _stands(table: Table, where: Filter, part: slice, mask: Mask) -> Moments:
    if where.statuses:
        mask &= _among(table.column("status")[part], [STATUS_CODES.get(s, -1) for s in where.statuses])
    return _by_time(table, where, part, mask), _by_confidence(table, where, part, mask)


def _narrows(table: Table, where: Filter, part: slice, mask: Mask) -> Moments:
    _by_scope(table, where, part, mask)
    _by_values(table, where, part, mask)
    _by_tags(table, where, part, mask)
    return (-inf, inf), (-inf, inf)


def _key(where: Filter) -> tuple[Any, ...]:
    """The conditions of a filter without the moments it is asked for: its standing part, then its narrowing part."""
    return (
        where.statuses,
        where.min_confidence,
        where.decay_per_day if where.min_confidence is not None else None,
        where.valid_at is None,
        where.scope,
        where.include_shared and where.scope is not None,
        where.kinds,
        where.tags,
        where.domains,
        where.agents,
        where.since,
        where.until,
        where.min_importance,
        where.metadata,
        where.keys,
    )


STANDING = 4
"""So many entries of a key are of the standing part."""
_EVERYTHING = (None, False, (), (), (), (), None, None, None, (), ())


def _narrow(a: tuple[float, float], b: tuple[float, float]) -> tuple[float, float]:
    return max(a[0], b[0]), min(a[1], b[1])


def _by_scope(table: Table, where: Filter, part: slice, mask: Mask) -> None:
    if where.scope is None or _has_path(where.scope):
        return
    admitted = _admitted(table, where.scope, part, len(mask))
    if where.include_shared:
        admitted |= table.column("scope")[part] == 0
    mask &= admitted


def _admitted(table: Table, scope: Scope, part: slice, count: int) -> Mask:
    asked = {"user": scope.user, "project": scope.project, "session": scope.session}
    if ANY not in asked.values():
        return table.column("scope")[part] == np.uint64(scope_key(scope.user, scope.project, scope.session))
    admitted = np.ones(count, dtype=bool)
    for name, value in asked.items():
        if value != ANY:
            admitted &= table.column(name)[part] == np.uint64(maybe_key(value))
    return admitted


def _by_values(table: Table, where: Filter, part: slice, mask: Mask) -> None:
    if where.kinds:
        mask &= _among(
            table.column("kind")[part],
            [KIND_CODES.get(kind, -1) for kind in where.kinds],
        )
    if where.domains:
        mask &= _among(table.column("domain")[part], [key_of(domain) for domain in where.domains])
    if where.agents:
        mask &= _among(table.column("agent")[part], [key_of(agent) for agent in where.agents])
    if where.since is not None:
        mask &= table.column("created_at")[part] >= where.since
    if where.until is not None:
        mask &= table.column("created_at")[part] < where.until
    if where.min_importance is not None:
        mask &= table.column("importance")[part] >= where.min_importance


def _among(values: NDArray[Any], codes: list[int]) -> Mask:
    found = np.zeros(len(values), dtype=bool)
    for code in codes:
        if code >= 0:
            found |= values == values.dtype.type(code)
    return found


def _by_tags(table: Table, where: Filter, part: slice, mask: Mask) -> None:
    for group in where.tags:
        tagged = np.zeros(len(mask), dtype=bool)
        slots = _tagged(table, group, part.start)
        tagged[slots[slots >= part.start] - part.start] = True
        mask &= tagged


def _tagged(table: Table, group: tuple[str, ...], start: int) -> Ints:
    """The slots that carry one of some tags, dead ones too; those of segments that end before `start` are left out."""
    parts: list[Ints] = [np.zeros(0, dtype=np.int64)]
    for key in map(key_of, group):
        for base, segment in zip(table.bases, table.segments, strict=False):
            if base + segment.count > start:
                parts.append(segment.tagged(key) + np.int64(base))
        parts.append(np.array(table.tail.tagged(key), dtype=np.int64) + table.base)
    return np.concatenate(parts)


def _by_time(table: Table, where: Filter, part: slice, mask: Mask) -> tuple[float, float]:
    """valid_from <= t < valid_to, and not expired at t; and while no row's answer changes."""
    if where.valid_at is None:
        return -inf, inf
    moment = where.valid_at
    low, high = -inf, inf
    for name, opens in (
        ("valid_from", True),
        ("valid_to", False),
        ("expires_at", False),
    ):
        edges = table.column(name)[part]
        if len(edges) and edges.strides == (0,):  # one value over and over, as a segment keeps most columns
            edges = edges[:1]
        passed = edges <= moment
        mask &= passed if opens else ~passed
        low = max(low, float(edges.max(initial=-inf, where=passed)))
        high = min(high, float(edges.min(initial=inf, where=~passed)))
    return low, high


def _by_confidence(table: Table, where: Filter, part: slice, mask: Mask) -> tuple[float, float]:
    """Effective confidence at `now`; and while no row crosses the bar, never if one is about to."""
    if where.min_confidence is None:
        return -inf, inf
    bar, decay, now = where.min_confidence, where.decay_per_day, where.now
    if not decay:  # as nearly every search has it: what is stored decides, at any time
        mask &= table.column("confidence")[part] >= bar
        return -inf, inf
    if decay > 0 and bar > 0:
        first = _first_crossing(table, part, bar, decay) - SLACK
        if now < first:
            return -inf, first
    stored = table.column("confidence")[part]
    evidence = table.column("last_evidence_at")[part]
    if decay <= 0 or bar <= 0:
        mask &= stored * np.exp(-decay * (np.maximum(now - evidence, 0.0) / DAY)) >= bar
        return -inf, inf
    low, high = -inf, inf
    for start in range(0, len(mask), BLOCK):
        here = slice(start, start + BLOCK)
        sure, since = stored[here], evidence[here]
        mask[here] &= sure * np.exp(-decay * (np.maximum(now - since, 0.0) / DAY)) >= bar
        could = sure >= bar
        with np.errstate(divide="ignore", over="ignore"):
            crossing = since + np.log(np.maximum(sure, bar) / bar) / decay * DAY
        low = max(low, float(crossing.max(initial=-inf, where=could & (crossing <= now))))
        high = min(high, float(crossing.min(initial=inf, where=could & (crossing > now))))
    low, high = low + SLACK, high - SLACK
    return (low, high) if low <= now < high else (inf, -inf)


def _first_crossing(table: Table, part: slice, bar: float, decay: float) -> float:
    """No row falls below the bar before this moment: the oldest would not, were it as unsure as the least sure."""
    least = float(table.column("confidence")[part].min(initial=inf))
    if not bar <= least < inf:
        return -inf
    oldest = float(table.column("last_evidence_at")[part].min(initial=inf))
    return oldest + log(least / bar) / decay * DAY
