"""The slots that a search may see, in whatever form it wants them.

Which rows a search may see, decided exactly and before anything is scored.

A mask over a hundred thousand rows costs more than a search, and the same few filters are asked again and again,
so masks are kept. What depends on time changes only when some row's time comes: a mask says until when it holds.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from functools import cached_property
from math import inf, log
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec.structs import astuple

from skep import runtime
from skep.filters import Filter
from skep.index.bm25 import distinct_sorted
from skep.index.columns import KIND_CODES, STATUS_CODES, key_of, maybe_key, scope_key
from skep.model import ANY, Scope

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from skep.index.row_table import Table


if TYPE_CHECKING:
    Ints = NDArray[np.int64]
    Mask = NDArray[np.bool_]


class Admitted:
    """The slots that a search may see: live, and admitted by every condition. Made from a mask or from few slots."""

    def __init__(self, mask: Mask | None, version: int, *, slots: Ints | None = None, room: int = 0) -> None:
        self.version = version
        """The state of the table it is true of."""
        self.all = False
        """Whether it is every slot there is."""
        self.size = 0
        """Bytes it takes now; more once its slots, or its mask, were asked for."""
        if mask is not None:
            self.mask = mask
            self.count = int(np.count_nonzero(mask))
            self.all = self.count == len(mask)
            self.size = mask.nbytes
        elif slots is not None:
            self.slots = slots
            self.count = len(slots)
            self.size = slots.nbytes
        self._room = room

    @cached_property
    def slots(self) -> Ints:
        """The slots themselves, ascending."""
        slots = np.flatnonzero(self.mask)
        self.size += slots.nbytes
        return slots

    @cached_property
    def mask(self) -> Mask:
        """One flag per slot."""
        mask = np.zeros(self._room, dtype=bool)
        mask[self.slots] = True
        self.size += mask.nbytes
        return mask

    @cached_property
    def places(self) -> memoryview:
        """The slots as compiled searches take them: a view costs far less to look at than an array."""
        return self.slots.data

    @cached_property
    def flags(self) -> memoryview | None:
        """The mask as compiled searches take it; None where it is every slot there is."""
        return None if self.all else self.mask.data


if TYPE_CHECKING:
    Floats = NDArray[np.float64]
    Part = slice | Ints

DAY = 86400.0
SLACK = 1.0
"""Seconds around a crossing within which a mask is not kept, so that rounding never decides."""
KEPT = 16
"""Parts of filters that are kept."""
FILTERS, KEPT_BYTES = 1024, 4 << 20
"""Whole filters that are kept, and what they may take, unless masks of all rows for each part take more."""
FEW = 8
"""Tags that fewer than one row in so many carries are decided for those rows alone."""
BY_HAND = 8
"""Rows that were just written, up to which each is looked at by itself: an array costs more than a row."""
BLOCK = 8192
"""Rows looked at together where a row takes several steps: what lies between them stays in the cache."""


Times = tuple[float | None, float | None]
"""The moment a filter is asked for, and the one that confidences decay to; None where it does not matter."""
Moments = tuple[tuple[float, float], tuple[float, float]]
"""From when, and until when, an answer holds for either."""


def _hold(moments: Moments, times: Times) -> bool:
    """Whether what holds at some moments is true at these times."""
    (low, high), (first, last) = moments
    at, now = times
    return (at is None or low <= at < high) and (now is None or first <= now < last)


class _Kept:
    """The answer to one part of a filter, live or not, for the first `upto` slots, and when it holds."""

    __slots__ = ("admitted", "mask", "moments", "upto")

    def __init__(self, room: int) -> None:
        self.mask: Mask = np.zeros(room, dtype=bool)
        self.upto = 0
        self.moments: Moments = ((-inf, inf), (-inf, inf))
        self.admitted: Admitted | None = None
        """With the dead slots taken out; only of the standing part."""


Kept = OrderedDict[tuple[Any, ...], _Kept]
Decide = Callable[["Table", "Filter", slice, "Mask", _Kept], None]


class _Whole:
    """What a whole filter admits, for as long as its standing part holds and the table stays as it was.

    Of that part it keeps the moments alone: a mask of all rows for each filter would take far more than what it admits.
    """

    __slots__ = ("admitted", "moments", "size")

    def __init__(self, moments: Moments, admitted: Admitted) -> None:
        self.moments = moments
        self.admitted = admitted
        self.size = 0
        """The bytes that were counted for it."""


class Masks:
    """The masks of one table, the most recently used ones.

    A filter has a *standing* part, the same for nearly every search (what is current, at this time, sure enough),
    and a *narrowing* part (whose, what kind, which tags). Each is decided for itself, so that a filter that was
    never asked before costs little. What whole filters admit is kept too: few rows take little room, so that a
    filter for every agent, project or tag of a bank may be.
    """

    def __init__(self, table: Table) -> None:
        self.table = table
        self._standing: Kept = OrderedDict()
        self._narrowing: Kept = OrderedDict()
        self._whole: OrderedDict[tuple[Any, ...], _Whole] = OrderedDict()
        self._version = table.version
        """Of the table that whole filters were decided for."""
        self._bytes = 0
        """What they take."""
        self._last: _Whole | None = None
        """The one that was handed out last: it may have grown since."""

    def admitted(self, where: Filter) -> Admitted:
        """What a filter admits now."""
        last = self._last
        if self._version != self.table.version or (last is not None and last.size != last.admitted.size):
            self._settle()
        asked = astuple(where)
        at, now = asked[_VALID_AT], asked[_NOW]
        key = (at is None, _WHOLE(asked))
        known = self._whole.get(key)
        if known is not None:
            (low, high), (first, until) = known.moments
            if (at is None or low <= at < high) and first <= now < until:
                self._whole.move_to_end(key)
                self._last = known
                return known.admitted
        self._drop(key)
        self._last = known = self._whole[key] = self._decided(where)
        if len(self._whole) > FILTERS:
            self._drop(next(iter(self._whole)))
        return known.admitted

    def _settle(self) -> None:
        """Let go of what is no longer true, and of what takes too much room."""
        table, last = self.table, self._last
        if self._version != table.version:
            self._whole.clear()
            self._version, self._bytes, self._last = table.version, 0, None
        elif last is not None:
            self._last = None
            size = last.admitted.size
            self._bytes += size - last.size
            last.size = size
            while self._bytes > max(KEPT_BYTES, KEPT * table.count) and len(self._whole) > 1:
                self._drop(next(iter(self._whole)))

    def _drop(self, key: tuple[Any, ...]) -> None:
        known = self._whole.pop(key, None)
        if known is not None:
            self._bytes -= known.size

    def _decided(self, where: Filter) -> _Whole:
        """What a filter admits, from its parts."""
        version, count = self.table.version, self.table.count
        key = _key(where)
        times = (where.valid_at, None if where.min_confidence is None else where.now)
        standing = self._part(self._standing, key[:STANDING], where, times, _stands)
        if standing.admitted is None or standing.admitted.version != version:
            standing.admitted = Admitted(standing.mask[:count] & self.table.alive[:count], version)
        narrowing_key = key[STANDING:]
        if narrowing_key == _EVERYTHING:
            return _Whole(standing.moments, standing.admitted)
        admitted = None
        if where.tags:
            alone = narrowing_key[:3] == _EVERYTHING[:3] and narrowing_key[4:] == _EVERYTHING[4:]
            admitted = self._tagged(where, standing.admitted, alone=alone)
        if admitted is None:
            narrowing = self._part(self._narrowing, narrowing_key, where, (None, None), _narrows)
            admitted = Admitted(narrowing.mask[:count] & standing.admitted.mask, version)
        return _Whole(standing.moments, admitted)

    def _tagged(self, where: Filter, standing: Admitted, *, alone: bool) -> Admitted | None:
        """What a filter by tags admits, decided for the rows that carry them alone; None if they are many.

        `alone` says that it asks for nothing but tags.
        """
        table = self.table
        found = _carrying(table, where.tags, standing.mask)
        if found is None:
            return None
        if not alone or len(where.tags) > 1:
            mask = np.ones(len(found), dtype=bool)
            _by_scope(table, where, found, mask)
            _by_values(table, where, found, mask)
            if len(where.tags) > 1:
                for group in where.tags:
                    mask &= np.isin(found, _tagged(table, group))
            found = found[mask]
        return Admitted(None, standing.version, slots=found, room=table.count)

    def _part(
        self,
        kept: Kept,
        key: tuple[Any, ...],
        where: Filter,
        times: Times,
        decide: Decide,
    ) -> _Kept:
        """One part of a filter, decided for every slot there is."""
        found = kept.get(key)
        if found is None or not _hold(found.moments, times):
            found = kept[key] = _Kept(len(self.table.alive))
            if len(kept) > KEPT:
                kept.popitem(last=False)
        else:
            kept.move_to_end(key)
        if found.upto < self.table.count:
            self._extend(found, where, decide)
        return found

    def _extend(self, kept: _Kept, where: Filter, decide: Decide) -> None:
        """Decide the slots that came after the mask was made."""
        table = self.table
        if len(kept.mask) < table.count:
            kept.mask = np.concatenate([kept.mask, np.zeros(len(table.alive) - len(kept.mask), dtype=bool)])
        part = slice(kept.upto, table.count)
        mask = np.ones(part.stop - part.start, dtype=bool)
        decide(table, where, part, mask, kept)
        kept.mask[part] = mask
        kept.upto = table.count
        kept.admitted = None


def _stands(table: Table, where: Filter, part: slice, mask: Mask, kept: _Kept) -> None:
    ages = where.min_confidence is not None and where.decay_per_day
    if part.start >= table.base and part.stop - part.start <= BY_HAND and not ages:  # as after a single write
        valid, sure = kept.moments
        kept.moments = (_narrow(valid, _each_stands(table, where, part, mask)), sure)
        return
    if where.statuses:
        mask &= _among(table.column("status")[part], [STATUS_CODES.get(s, -1) for s in where.statuses])
    valid, sure = kept.moments
    kept.moments = (
        _narrow(valid, _by_time(table, where, part, mask)),
        _narrow(sure, _by_confidence(table, where, part, mask)),
    )


def _each_stands(table: Table, where: Filter, part: slice, mask: Mask) -> tuple[float, float]:
    """The same for a few rows of the tail, one by one; and while no row's answer changes."""
    low, high = -inf, inf
    moment, bar = where.valid_at, where.min_confidence
    for place in range(part.start, part.stop):
        entry = table.tail.entries.get(place - table.base)
        if entry is None:  # gone, so that nothing is asked of it
            continue
        row = entry.row
        stands = not where.statuses or (row.status in where.statuses and row.status in STATUS_CODES)
        if bar is not None and not row.confidence >= bar:
            stands = False
        if moment is not None:
            for edge, opens in ((row.valid_from, True), (row.valid_to, False), (row.expires_at, False)):
                if edge is None:
                    continue
                if edge <= moment:
                    low, stands = max(low, edge), stands and opens
                else:
                    high, stands = min(high, edge), stands and not opens
        mask[place - part.start] = stands
    return low, high


def _narrows(table: Table, where: Filter, part: slice, mask: Mask, _kept: _Kept) -> None:
    _by_scope(table, where, part, mask)
    _by_values(table, where, part, mask)
    _by_tags(table, where, part, mask)


def _key(where: Filter) -> tuple[Any, ...]:
    """What decides a filter, but for the moments it is asked for: its standing part, then its narrowing part."""
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
    )


_FIELDS = Filter.__struct_fields__
_VALID_AT, _NOW = _FIELDS.index("valid_at"), _FIELDS.index("now")
_WHOLE = itemgetter(*(place for place in range(len(_FIELDS)) if place not in (_VALID_AT, _NOW)))
"""Of the fields of a filter, all but the moments it is asked for."""
STANDING = 4
"""So many entries of a key are of the standing part."""
_EVERYTHING = (None, False, (), (), (), (), None, None, None)


def _narrow(a: tuple[float, float], b: tuple[float, float]) -> tuple[float, float]:
    return max(a[0], b[0]), min(a[1], b[1])


def _by_scope(table: Table, where: Filter, part: Part, mask: Mask) -> None:
    if where.scope is None:
        return
    admitted = _admitted(table, where.scope, part, len(mask))
    if where.include_shared:
        admitted |= table.column("scope")[part] == 0
    mask &= admitted


def _admitted(table: Table, scope: Scope, part: Part, count: int) -> Mask:
    asked = {"user": scope.user, "project": scope.project, "session": scope.session}
    if ANY not in asked.values():
        return table.column("scope")[part] == np.uint64(scope_key(scope.user, scope.project, scope.session))
    admitted = np.ones(count, dtype=bool)
    for name, value in asked.items():
        if value != ANY:
            admitted &= table.column(name)[part] == np.uint64(maybe_key(value))
    return admitted


def _by_values(table: Table, where: Filter, part: Part, mask: Mask) -> None:
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
        same = _equal(values, code) if code >= 0 else False
        if same is True:
            found.fill(True)
        elif same is not False:
            found |= same
    return found


def _equal(values: NDArray[Any], code: int) -> Mask | bool:
    wanted = values.dtype.type(code)
    return bool(values[0] == wanted) if _all_alike(values) else values == wanted


def _all_alike(values: NDArray[Any]) -> bool:
    """Whether a column is one value over and over, as those are that a segment does not store."""
    return len(values) > 0 and values.strides == (0,)


def _by_tags(table: Table, where: Filter, part: slice, mask: Mask) -> None:
    for group in where.tags:
        tagged = np.zeros(len(mask), dtype=bool)
        slots = _tagged(table, group, part.start)
        tagged[slots[slots >= part.start] - part.start] = True
        mask &= tagged


def _carrying(table: Table, groups: tuple[tuple[str, ...], ...], mask: Mask) -> Ints | None:
    """The slots of a mask that meet the rarest of some groups of tags, ascending; None if many do."""
    if runtime.native is not None and len(groups) == 1 and len(groups[0]) == 1:
        key = key_of(groups[0][0])
        lists, newest = table.tags, table.tail.tagged(key)
        if newest:
            lists = (*lists, (table.base, None, None, np.array(newest, dtype=np.uint32)))
        room = np.empty(table.count // FEW, dtype=np.int64)
        found = runtime.native.carrying(lists, key, mask, room)
        return None if found < 0 else room[:found].copy()
    found = min((_tagged(table, group) for group in groups), key=len)
    if len(found) * FEW > table.count:
        return None
    found = distinct_sorted(found)
    return found[mask[found]]


def _tagged(table: Table, group: tuple[str, ...], start: int = 0) -> Ints:
    """The slots that carry one of some tags, dead ones too; those of segments that end before `start` are left out."""
    parts = [slots + np.int64(base) for tag in group for base, slots in _lists(table, tag, start)]
    return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)


def _lists(table: Table, tag: str, start: int = 0) -> list[tuple[int, NDArray[np.uint32]]]:
    """Part by part where it begins and which of its places carry a tag, ascending."""
    key = key_of(tag)
    lists = [
        (base, segment.tagged(key))
        for base, segment in zip(table.bases, table.segments, strict=False)
        if base + segment.count > start
    ]
    newest = table.tail.tagged(key)
    if newest:
        lists.append((table.base, np.array(newest, dtype=np.uint32)))
    return lists


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
        if _all_alike(edges):
            edges = edges[:1]
        passed = edges <= moment
        if len(passed) < len(mask):  # all alike: numpy is slow where one flag stands for all
            if bool(passed[0]) is not opens:
                mask.fill(False)
        else:
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
        if table.least("confidence", part) < bar:
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
    least = table.least("confidence", part)
    if not bar <= least < inf:
        return -inf
    return table.least("last_evidence_at", part) + log(least / bar) / decay * DAY
