"""A shelf: the part of the hive's memories that one member answers for, ready to be asked.

It is a dense, exact index over one bank, made for shards of some thousands of memories and many questions:
it catches up with the bank by itself, and answers a question that is already embedded and split into terms
without touching SQL.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
import numpy as np

from skep.hive.admission import admits
from skep.hive.bm25 import impact, inverse_frequency
from skep.hive.pool import Ask, Near, Slice
from skep.storage.base import Filter, IndexRow
from skep.words import terms as terms_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from skep.model import Memory

DAY = 86_400.0
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

    def use_counts(self, rows: Sequence[int]) -> dict[int, tuple[int, int, float | None, str | None]]:
        """Uses, confirmations, last use and author of rows."""
        ...


class Shelf:
    """The answers of one member. `first_for(id, missing)` says whether it answers for a memory."""

    def __init__(
        self,
        store: ShelfStore,
        *,
        member: str = "",
        first_for: Callable[[str, tuple[str, ...]], bool] | None = None,
    ) -> None:
        self.member = member
        self._store = store
        self._first_for = first_for
        self._lock = threading.RLock()
        self._seen = 0
        self._fingerprint = ""
        self._clear()

    def _clear(self) -> None:
        self._at: dict[int, int] = {}
        self._rows: list[int] = []
        self._ids: list[str] = []
        self._texts: list[str] = []
        self._meta: list[IndexRow | None] = []
        self._keys: list[str] = []
        self._voices: list[str] = []
        self._postings: dict[str, dict[int, int]] = {}
        self._talks: dict[str, list[tuple[float, int, int]]] = {}
        self._capacity = 0
        self._masks: dict[Filter, NDArray[np.bool_]] = {}
        self._grow(16)

    def _grow(self, capacity: int) -> None:
        dim = self._store.dim()
        old = self._capacity
        fresh: dict[str, NDArray[Any]] = {name: np.zeros(capacity, np.float64) for name in _COLUMNS}
        fresh["length"] = np.zeros(capacity, np.uint32)
        fresh["live"] = np.zeros(capacity, np.bool_)
        fresh["owned"] = np.zeros(capacity, np.bool_)
        fresh["embedded"] = np.zeros(capacity, np.bool_)
        vectors = np.zeros((capacity, dim), np.float32)
        if old:
            for name, column in fresh.items():
                column[:old] = self._columns[name][:old]
            vectors[:old] = self._vectors[:old]
        self._columns, self._vectors, self._capacity = fresh, vectors, capacity

    # Catching up

    def refresh(self) -> None:
        """Take in what the bank changed since the last time."""
        with self._lock:
            head = self._store.head()
            if head == self._seen:
                return
            if self._store.fingerprint() != self._fingerprint:
                self._fingerprint = self._store.fingerprint()
                self._seen = 0
                self._clear()
            changed = list(self._store.changed_since(self._seen))
            there = self._store.memories([row.row for row in changed if not row.gone])
            for row in changed:
                memory = there.get(row.row)
                self._drop(row.row)
                if memory is not None:
                    self._put(row, memory.id)
            self._seen = head
            self._masks.clear()

    def reassign(self) -> None:
        """Ask again which memories this shelf answers for; the members of the hive changed."""
        with self._lock:
            for at, memory_id in enumerate(self._ids):
                self._columns["owned"][at] = self._columns["live"][at] and self._owns(memory_id, ())

    def _owns(self, memory_id: str, missing: tuple[str, ...]) -> bool:
        return self._first_for is None or self._first_for(memory_id, missing)

    def _put(self, row: IndexRow, memory_id: str) -> None:
        at = self._at.get(row.row)
        if at is None:
            at = len(self._rows)
            if at >= self._capacity:
                self._grow(self._capacity * 2)
            self._at[row.row] = at
            self._rows.append(row.row)
            self._ids.append(memory_id)
            self._texts.append("")
            self._meta.append(None)
            self._keys.append("")
            self._voices.append("")
        found = Counter(terms_of(row.text))
        for term, count in found.items():
            self._postings.setdefault(term, {})[at] = min(count, 65_535)
        columns = self._columns
        columns["length"][at] = found.total()
        columns["live"][at] = True
        columns["owned"][at] = self._owns(memory_id, ())
        columns["created_at"][at] = row.created_at
        columns["confidence"][at] = row.confidence
        columns["last_evidence_at"][at] = row.last_evidence_at
        columns["importance"][at] = row.importance
        columns["valid_from"][at] = -np.inf if row.valid_from is None else row.valid_from
        columns["valid_to"][at] = np.inf if row.valid_to is None else row.valid_to
        columns["expires_at"][at] = np.inf if row.expires_at is None else row.expires_at
        columns["embedded"][at] = row.vector is not None
        self._vectors[at] = 0.0 if row.vector is None else np.frombuffer(row.vector, "<f4")
        self._ids[at], self._texts[at], self._meta[at] = memory_id, row.text, row
        scope = (row.user, row.project, row.session)
        self._keys[at] = "" if scope == (None, None, None) else "\x1f".join(part or "" for part in scope)
        self._voices[at] = f"{row.agent or ''}\x1f{row.kind}"
        if self._keys[at]:
            insort(self._talks.setdefault(self._keys[at], []), (row.created_at, order_of(memory_id), at))

    def _drop(self, row: int) -> None:
        at = self._at.get(row)
        if at is None or not self._columns["live"][at]:
            return
        for term in set(terms_of(self._texts[at])):
            postings = self._postings.get(term)
            if postings is not None:
                postings.pop(at, None)
                if not postings:
                    del self._postings[term]
        if self._keys[at]:
            entry = (float(self._columns["created_at"][at]), order_of(self._ids[at]), at)
            self._talks[self._keys[at]].remove(entry)
        for name in ("live", "owned", "embedded"):
            self._columns[name][at] = False
        self._texts[at] = ""
        self._meta[at] = None

    # Answering

    def answer(self, ask: Ask) -> Slice:
        """What this shelf holds for a question."""
        with self._lock:
            self.refresh()
            size = len(self._rows)
            mine = self._columns["owned"][:size] if not ask.missing else self._instead(ask.missing)
            if ask.near:
                return self._neighbours(ask, mine)
            counts = self._counts(ask.terms, size)
            cosine = self._cosine(ask, size)
            fits = mine & self._admitted(ask.where, size)
            matches = fits & counts.any(axis=1) if ask.terms else np.zeros(size, np.bool_)
            embedded = fits & ~np.isnan(cosine)
            factor = ask.boost if self.member in ask.boosted else 1
            chosen = self._best(matches, embedded, counts, cosine, ask, mine, factor)
            return self._slice(
                chosen,
                ask,
                counts,
                cosine,
                held=int(mine.sum()),
                terms=int(self._columns["length"][:size][mine].sum()),
                having=tuple((counts[mine] > 0).sum(axis=0).tolist()),
                matched=int(matches.sum()),
                embedded=int(embedded.sum()),
            )

    def _instead(self, missing: tuple[str, ...]) -> NDArray[np.bool_]:
        live = self._columns["live"]
        absent = set(missing)
        return np.array(
            [
                bool(live[at]) and self._first_for is not None and self._steps_in(memory_id, missing, absent)
                for at, memory_id in enumerate(self._ids)
            ],
            np.bool_,
        )

    def _steps_in(self, memory_id: str, missing: tuple[str, ...], absent: set[str]) -> bool:
        """Whether it answers for a memory now that others are missing, and did not before."""
        return self.member not in absent and not self._owns(memory_id, ()) and self._owns(memory_id, missing)

    def _counts(self, terms: Sequence[str], size: int) -> NDArray[np.uint16]:
        counts = np.zeros((size, len(terms)), np.uint16)
        for column, term in enumerate(terms):
            postings = self._postings.get(term)
            if postings:
                counts[list(postings), column] = list(postings.values())
        return counts

    def _cosine(self, ask: Ask, size: int) -> NDArray[np.float32]:
        if ask.vector is None or ask.embedder != self._fingerprint:
            return np.full(size, np.nan, np.float32)
        query = np.frombuffer(ask.vector, "<f4")
        if len(query) != self._vectors.shape[1]:
            return np.full(size, np.nan, np.float32)
        cosine = self._vectors[:size] @ query
        embedded = self._columns["embedded"][:size]
        if not embedded.all():
            cosine[~embedded] = np.nan
        return cosine

    def _best(
        self,
        matches: NDArray[np.bool_],
        embedded: NDArray[np.bool_],
        counts: NDArray[np.uint16],
        cosine: NDArray[np.float32],
        ask: Ask,
        mine: NDArray[np.bool_],
        factor: int,
    ) -> NDArray[np.int64]:
        """The candidates to send: all of them, or the best by words and the best by meaning."""
        k_words, k_vectors = ask.k_words * factor, ask.k_vectors * factor
        if len(matches) <= max(k_words, k_vectors):
            return np.flatnonzero(matches | embedded)
        kept = np.zeros(len(matches), np.bool_)
        for pool, k, score in (
            (matches, k_words, lambda: self._bm25(counts, mine)),
            (embedded, k_vectors, lambda: cosine),
        ):
            at = np.flatnonzero(pool)
            if len(at) > k > 0:
                at = at[np.argpartition(-score()[at], k - 1)[:k]]
            if k > 0:
                kept[at] = True
        return np.flatnonzero(kept)

    def _bm25(self, counts: NDArray[np.uint16], mine: NDArray[np.bool_]) -> NDArray[np.float64]:
        """Scores by this shelf's own statistics; good enough to choose what to send."""
        length = self._columns["length"][: len(counts)].astype(np.float64)
        idf = inverse_frequency(int(mine.sum()), (counts[mine] > 0).sum(axis=0))
        return impact(counts, length, float(length[mine].mean()) if mine.any() else 1.0, idf).sum(axis=1)

    def _neighbours(self, ask: Ask, mine: NDArray[np.bool_]) -> Slice:
        found: set[int] = set()
        for near in ask.near:
            found.update(at for at in self._beside(near, ask.window, mine))
        at = np.array(sorted(found), np.int64)
        size = len(self._rows)
        counts, cosine = self._counts(ask.terms, size), self._cosine(ask, size)
        admitted = self._admitted(ask.where, size)[at].astype(np.uint8).tobytes()
        return self._slice(at, ask, counts, cosine, admitted=admitted)

    def _beside(self, near: Near, window: int, mine: NDArray[np.bool_]) -> list[int]:
        talk = self._talks.get(near.key, [])
        middle = bisect_left(talk, (near.created_at, near.order, -1))
        before = [entry for entry in talk[max(0, middle - 4 * window) : middle] if mine[entry[2]]][-window:]
        after = [entry for entry in talk[middle : middle + 4 * window + 1] if mine[entry[2]]]
        same = (near.created_at, near.order)
        return [at for *_, at in before] + [at for *when, at in after if tuple(when) != same][:window]

    def _slice(
        self,
        at: NDArray[np.int64],
        ask: Ask,
        counts: NDArray[np.uint16],
        cosine: NDArray[np.float32],
        **totals: Any,
    ) -> Slice:
        columns = self._columns
        listed: list[int] = at.tolist()
        extra: dict[str, Any] = dict(totals)
        if ask.texts:
            extra["texts"] = tuple(self._texts[i] for i in listed)
        if ask.vectors:
            extra["vectors"] = self._vectors[at].tobytes()
        if ask.counters:
            extra |= self._use(listed)
        return Slice(
            ids=tuple([self._ids[i] for i in listed]),
            counts=counts[at].tobytes(),
            length=columns["length"][at].tobytes(),
            cosine=cosine[at].tobytes(),
            created_at=columns["created_at"][at].tobytes(),
            confidence=columns["confidence"][at].tobytes(),
            last_evidence_at=columns["last_evidence_at"][at].tobytes(),
            importance=columns["importance"][at].tobytes(),
            keys=tuple([self._keys[i] for i in listed]),
            voices=tuple([self._voices[i] for i in listed]),
            **extra,
        )

    def _use(self, listed: list[int]) -> dict[str, Any]:
        found = self._store.use_counts([self._rows[i] for i in listed])
        rows = [found.get(self._rows[i], (0, 0, None, None)) for i in listed]
        return {
            "uses": np.array([row[0] for row in rows], np.int64).tobytes(),
            "confirmations": np.array([row[1] for row in rows], np.int64).tobytes(),
            "last_used_at": np.array([np.nan if r[2] is None else r[2] for r in rows], np.float64).tobytes(),
            "agents": tuple(row[3] for row in rows),
        }

    # Filters

    def _admitted(self, where: Filter, size: int) -> NDArray[np.bool_]:
        static = msgspec.structs.replace(
            where, now=0.0, valid_at=None, min_confidence=None, min_importance=None
        )
        mask = self._masks.get(static)
        if mask is None:
            mask = np.array([row is not None and admits(static, row) for row in self._meta], np.bool_)
            if len(self._masks) > 256:
                self._masks.clear()
            self._masks[static] = mask
        columns = self._columns
        if where.valid_at is not None:
            t = where.valid_at
            mask = mask & (columns["valid_from"][:size] <= t) & (columns["valid_to"][:size] > t)
            mask &= columns["expires_at"][:size] > t
        if where.min_confidence is not None:
            days = np.maximum(0.0, where.now - columns["last_evidence_at"][:size]) / DAY
            sure = columns["confidence"][:size] * np.exp(-where.decay_per_day * days)
            mask = mask & (sure >= where.min_confidence)
        if where.min_importance is not None:
            mask = mask & (columns["importance"][:size] >= where.min_importance)
        return mask


def order_of(memory_id: str) -> int:
    """The place of a memory among those of its writer."""
    counter = memory_id.rpartition("-")[2]
    return int(counter) if counter.isdigit() else 0
