"""Which rows hold a term, and how often, in little memory: most terms are in one row, and that costs one number.

What does not depend on the query, prepared once per filter.

A shelf whose rows all fit into an answer sends the same rows for every query with the same filter; only the
word counts and the cosines differ. So everything else is made once and kept until a row or an owner
changes.

The rows of a shelf: columns and postings over the part of one bank that its member answers for.
"""

from __future__ import annotations

import math
import threading
from array import array
from bisect import insort
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import blake2b
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import msgspec
import numpy as np

from skep.filters import Facets, Filter, IndexRow
from skep.hive.messages import Ask, Slice
from skep.storage.vectors import unpacked
from skep.text.terms import terms as terms_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from skep.model import Memory


Entry: TypeAlias = "int | array[int]"
MOST = 65_535


class Postings:
    """Rows and counts per term. An entry is `row << 16 | count`, alone or in an array."""

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries: dict[str, Entry] = {}

    def add(self, term: str, row: int, count: int) -> None:
        """Note that a row holds a term so many times."""
        code = row << 16 | min(count, MOST)
        known = self._entries.get(term)
        if known is None:
            self._entries[term] = code
        elif isinstance(known, int):
            self._entries[term] = array("Q", (known, code))
        else:
            known.append(code)

    def drop(self, term: str, row: int) -> None:
        """Forget that a row holds a term."""
        known = self._entries.get(term)
        left = [code for code in _codes(known) if code >> 16 != row]
        if len(left) > 1:
            self._entries[term] = array("Q", left)
        elif left:
            self._entries[term] = left[0]
        elif known is not None:
            del self._entries[term]

    def of(self, term: str) -> Iterator[tuple[int, int]]:
        """Rows and counts of a term."""
        for code in _codes(self._entries.get(term)):
            yield code >> 16, code & MOST

    def fill(self, term: str, column: NDArray[np.uint16]) -> None:
        """Write the counts of a term into a column of all rows."""
        known = self._entries.get(term)
        if isinstance(known, int):
            column[known >> 16] = known & MOST
        elif known is not None:
            codes = np.frombuffer(known, np.uint64)
            column[(codes >> np.uint64(16)).astype(np.int64)] = (codes & np.uint64(MOST)).astype(np.uint16)


def _codes(entry: Entry | None) -> Iterator[int]:
    if isinstance(entry, int):
        yield entry
    elif entry is not None:
        yield from entry


class Prepared:
    """The rows a shelf sends under one filter, and the answer without what depends on the query."""

    __slots__ = ("_changes", "_owned", "_places", "_slice", "_vectors")

    def __init__(
        self,
        base: Slice,
        rows: Sequence[int],
        vectors: NDArray[np.float32],
        owned: frozenset[int],
        changes: int,
    ) -> None:
        self._slice = base
        self._places = {row: place for place, row in enumerate(rows)}
        self._vectors = vectors
        self._owned = owned
        self._changes = changes

    def fresh(self, changes: int) -> bool:
        """Whether nothing has changed since."""
        return self._changes == changes

    def answer(self, ask: Ask, postings: Postings) -> Slice:
        """The answer to one query."""
        places, owned = self._places, self._owned
        counts = np.zeros((len(places), len(ask.terms)), np.uint16)
        having: list[int] = []
        matched: set[int] = set()
        for column, term in enumerate(ask.terms):
            number = 0
            for row, count in postings.of(term):
                if row in owned:
                    number += 1
                    place = places.get(row)
                    if place is not None:
                        counts[place, column] = count
                        matched.add(place)
            having.append(number)
        cosine = self._vectors @ np.frombuffer(ask.vector or b"", "<f4")
        return msgspec.structs.replace(
            self._slice,
            counts=counts.tobytes(),
            cosine=cosine.tobytes(),
            having=tuple(having),
            matched=len(matched),
        )


BATCH = 1000
_COLUMNS = (
    "created_at",
    "confidence",
    "last_evidence_at",
    "importance",
    "valid_from",
    "valid_to",
    "expires_at",
)


class ShelfStore(Protocol):
    """What a shelf reads of a bank's store."""

    def head(self) -> int:
        """The newest change."""
        ...

    def changed_since(self, seq: int) -> Iterator[IndexRow]:
        """Rows changed after `seq`."""
        ...

    def fingerprint(self) -> str:
        """The embedder of the vectors."""
        ...

    def dim(self) -> int:
        """Their length."""
        ...

    def memories(self, rows: Sequence[int]) -> dict[int, Memory]:
        """Memories by row."""
        ...

    def texts_of(self, rows: Sequence[int]) -> dict[int, str]:
        """Title and text of rows, as searched."""
        ...

    def vectors_of(self, rows: Sequence[int]) -> dict[int, bytes]:
        """Vectors of rows."""
        ...

    def rows_of(self, ids: Sequence[str]) -> dict[str, int]:
        """Rows by id."""
        ...

    def heirs(self, rows: Sequence[int]) -> dict[int, str]:
        """What stands in place of replaced rows."""
        ...

    def use_counts(self, rows: Sequence[int]) -> dict[int, tuple[int, int, float | None, str | None]]:
        """Uses, confirmations, last use and author of rows."""
        ...


class Rows:
    """The rows of one bank that its member answers for.

    Copies that another member answers for are not kept here: only which rows they are, per member, so that
    they can be read when that member is missing. `first_for(id, missing)` says whether this member answers for
    a memory, and `owner_of(id)` who does.
    """

    def __init__(
        self,
        store: ShelfStore,
        *,
        member: str = "",
        first_for: Callable[[str, tuple[str, ...]], bool] | None = None,
        owner_of: Callable[[str], str | None] | None = None,
        lineage: Callable[[str], tuple[str, ...]] | None = None,
    ) -> None:
        self.member = member
        self._store = store
        self._first_for = first_for
        self._owner_of = owner_of
        self._lineage = lineage
        self._lock = threading.RLock()
        self._seen = 0
        self._fingerprint = ""
        self._outdated = False
        self._clear()

    def _clear(self) -> None:
        self._at: dict[int, int] = {}
        self._rows: list[int] = []
        self._ids: list[str] = []
        self._texts: list[str] = []
        self._facet_of = array("I")
        self._facets: list[Facets] = []
        self._facet_at: dict[Facets, int] = {}
        self._derived: set[int] = set()
        self._copies: dict[str, array[int]] = {}
        self._postings = Postings()
        self._talks: dict[str, list[tuple[float, int, int]]] = {}
        self._capacity = 0
        self._masks: dict[Filter, NDArray[np.bool_]] = {}
        self._prepared: dict[tuple[Filter, bool, bool], Prepared] = {}
        self._heirs: dict[int, str] = {}
        self._changes = 0
        """Grows whenever rows or ownership change; what was prepared before is then outdated."""
        self._timed, self._least_sure, self._oldest = False, 1.0, math.inf
        self._grow(16)

    def _grow(self, capacity: int) -> None:
        dim = self._store.dim()
        old = self._capacity
        fresh: dict[str, NDArray[Any]] = {name: np.zeros(capacity, np.float64) for name in _COLUMNS}
        fresh["length"] = np.zeros(capacity, np.uint32)
        fresh["content"] = np.zeros(capacity, np.int64)
        fresh["live"] = np.zeros(capacity, np.bool_)
        fresh["embedded"] = np.zeros(capacity, np.bool_)
        vectors = np.zeros((capacity, dim), np.float32)
        if old:
            for name, column in fresh.items():
                column[:old] = self._columns[name][:old]
            vectors[:old] = self._vectors[:old]
        self._columns, self._vectors, self._capacity = fresh, vectors, capacity

    # Catching up

    @property
    def cold(self) -> bool:
        """Whether everything has to be read before the next answer."""
        return self._outdated or not self._fingerprint

    def refresh(self) -> None:
        """Take in what the bank changed since the last time."""
        with self._lock:
            head = self._store.head()
            if head == self._seen and not self._outdated:
                return
            if self._outdated or self._store.fingerprint() != self._fingerprint:
                self._fingerprint = self._store.fingerprint()
                self._outdated = False
                self._seen = 0
                self._clear()
            changed = self._store.changed_since(self._seen)
            while group := list(islice(changed, BATCH)):
                there = self._store.memories([row.row for row in group if not row.gone])
                for row in group:
                    self._renew(row, there.get(row.row))
            self._seen = head
            self._masks.clear()
            self._heirs.clear()
            self._changes += 1
            self._summarise()

    def _renew(self, row: IndexRow, memory: Memory | None) -> None:
        self._drop(row.row)
        if memory is None:
            return
        if self._first_for is None or self._first_for(memory.id, ()):
            self._put(row, memory.id)
            if memory.evidence:
                self._derived.add(self._at[row.row])
            return
        owner = self._owner_of(memory.id) if self._owner_of is not None else None
        self._copies.setdefault(owner or "", array("Q")).append(row.row)

    def _summarise(self) -> None:
        """Bounds over the whole shelf, by which most filters need not look at its rows."""
        live, columns = self._columns["live"], self._columns
        self._timed = bool(
            (columns["valid_from"][live] > -np.inf).any()
            or (columns["valid_to"][live] < np.inf).any()
            or (columns["expires_at"][live] < np.inf).any()
        )
        self._least_sure = float(columns["confidence"][live].min(initial=1.0))
        self._oldest = float(columns["last_evidence_at"][live].min(initial=np.inf))

    def reassign(self) -> None:
        """Ask again which memories this shelf answers for; the members of the hive changed."""
        with self._lock:
            self._outdated = True

    def _put(self, row: IndexRow, memory_id: str) -> None:
        at = self._at.get(row.row)
        if at is None:
            at = len(self._rows)
            if at >= self._capacity:
                self._grow(self._capacity + max(16, self._capacity // 4))
            self._at[row.row] = at
            self._rows.append(row.row)
            self._ids.append(memory_id)
            self._texts.append("")
            self._facet_of.append(0)
        found = Counter(terms_of(row.text))
        for term, count in found.items():
            self._postings.add(term, at, count)
        columns = self._columns
        columns["length"][at] = found.total()
        columns["live"][at] = True
        columns["content"][at] = content_of(row)
        columns["created_at"][at] = row.created_at
        columns["confidence"][at] = row.confidence
        columns["last_evidence_at"][at] = row.last_evidence_at
        columns["importance"][at] = row.importance
        columns["valid_from"][at] = -np.inf if row.valid_from is None else row.valid_from
        columns["valid_to"][at] = np.inf if row.valid_to is None else row.valid_to
        columns["expires_at"][at] = np.inf if row.expires_at is None else row.expires_at
        columns["embedded"][at] = row.vector is not None
        self._vectors[at] = unpacked([row.vector], self._vectors.shape[1])[0]
        self._ids[at], self._texts[at] = memory_id, row.text
        scope = (row.user, row.project, row.session)
        facets = Facets(row.status, row.kind, row.domain, row.agent, row.tags, *scope)
        if facets not in self._facet_at:
            self._facet_at[facets] = len(self._facets)
            self._facets.append(facets)
        self._facet_of[at] = self._facet_at[facets]
        if facets.key:
            insort(self._talks.setdefault(facets.key, []), (row.created_at, order_of(memory_id), at))

    def _drop(self, row: int) -> None:
        at = self._at.get(row)
        if at is None or not self._columns["live"][at]:
            return
        for term in set(terms_of(self._texts[at])):
            self._postings.drop(term, at)
        key = self._facets[self._facet_of[at]].key
        if key:
            entry = (float(self._columns["created_at"][at]), order_of(self._ids[at]), at)
            self._talks[key].remove(entry)
        for name in ("live", "embedded"):
            self._columns[name][at] = False
        self._derived.discard(at)
        self._texts[at] = ""

    def copies_of(self, members: Iterable[str]) -> list[int]:
        """The rows of copies that some members answer for; also of those nobody is known to answer for."""
        return sorted({row for name in ("", *members) for row in self._copies.get(name, ())})


def content_of(row: IndexRow) -> int:
    """Equal for memories of one kind and scope with the same words, whatever their case."""
    parts = (
        row.kind,
        row.user or "",
        row.project or "",
        row.session or "",
        " ".join(row.text.casefold().split()),
    )
    digest = blake2b("\x1f".join(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


def order_of(memory_id: str) -> int:
    """The place of a memory among those of its writer."""
    counter = memory_id.rpartition("-")[2]
    return int(counter) if counter.isdigit() else 0
