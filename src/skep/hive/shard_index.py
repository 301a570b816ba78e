"""BM25 from counts, so that counts of many shelves can be added up before anything is scored.

A shelf: the part of the hive's memories that one member answers for, ready to be asked.

It is a dense, exact index over what its member answers for, made for shards of some thousands of memories
and many questions: it catches up with the bank by itself, and answers a question that is already embedded
and split into terms without touching SQL.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from skep.filters import Facets, Filter, IndexRow, admits
from skep.hive.messages import Ask, Moment, Slice
from skep.hive.shard_rows import Prepared, Rows, ShelfStore
from skep.model import REPLACED, STATUSES

if TYPE_CHECKING:
    from numpy.typing import NDArray


K1, B = 1.2, 0.75


def inverse_frequency(held: int, having: Any) -> NDArray[np.float64]:
    """ln(1 + (N - df + 0.5) / (df + 0.5)) of each term."""
    df = np.asarray(having, np.float64)
    return np.log1p(np.maximum(held - df, 0.0) / (df + 0.5) + 0.5 / (df + 0.5))


def impact(counts: Any, length: Any, mean: float, idf: NDArray[np.float64]) -> NDArray[np.float64]:
    """BM25 of each term (columns) for each memory (rows)."""
    tf = np.asarray(counts, np.float64)
    norm = K1 * (1 - B + B * np.asarray(length, np.float64) / max(mean, 1e-9))
    return idf * tf * (K1 + 1) / (tf + norm[:, None])


DAY = 86_400.0
PREPARED = 8
"""Filters whose rows are kept ready."""
MASKS = 64


class Shelf(Rows):
    """The answers of one member."""

    _stand_in: tuple[tuple[tuple[str, ...], int], Shelf] | None = None

    def _clear(self) -> None:
        super()._clear()
        self._key_of: dict[Facets, str] = {}

    def _key(self, facets: Facets) -> str:
        known = self._key_of.get(facets)
        if known is None:
            known = self._key_of[facets] = facets.key
        return known

    def answer(self, ask: Ask) -> Slice:
        """What this shelf holds for a question."""
        with self._lock:
            if ask.missing:
                return self._instead(ask)
            if ask.only:
                return self._these(ask)
            if not ask.near:
                self.refresh()
                ready = self._ready(ask)
                if ready is not None:
                    return self._with_former(ready.answer(ask, self._postings), ask)
            size = len(self._rows)
            mine = self._columns["live"][:size]
            if ask.near:
                return self._neighbours(ask, mine)
            counts = self._counts(ask.terms, size)
            cosine = self._cosine(ask, size)
            fits = mine & self._admitted(ask.where, size)
            matches = fits & counts.any(axis=1) if ask.terms else np.zeros(size, np.bool_)
            embedded = fits & ~np.isnan(cosine)
            factor = ask.boost if self.member in ask.boosted else 1
            chosen = self._best(matches, embedded, counts, cosine, ask, mine, factor)
            found = self._slice(
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
            return self._with_former(found, ask)

    def _with_former(self, found: Slice, ask: Ask) -> Slice:
        """An answer, and what was replaced and matches, where that is asked for and there is any."""
        if not ask.former:
            return found
        size = len(self._rows)
        former = Filter(
            scope=ask.where.scope, include_shared=ask.where.include_shared, statuses=REPLACED
        )  # what may be shown is for the filter to say, what speaks for it only for the scope
        fits = self._admitted(former, size)
        if not fits.any():
            return found
        counts, cosine = self._counts(ask.terms, size), self._cosine(ask, size)
        chosen = self._best(
            fits & counts.any(axis=1),
            fits & ~np.isnan(cosine),
            counts,
            cosine,
            msgspec.structs.replace(ask, k_words=ask.former, k_vectors=ask.former),
            self._columns["live"][:size],
            1,
        )
        return msgspec.structs.replace(found, former=self._led(chosen, ask, counts, cosine))

    def _led(
        self,
        chosen: NDArray[np.int64],
        ask: Ask,
        counts: NDArray[np.uint16],
        cosine: NDArray[np.float32],
    ) -> Slice:
        """Rows with what they lead to, as far as this bank knows, and of that what the shelf has."""
        places: list[int] = chosen.tolist()
        rows = {place: self._rows[place] for place in places}
        unknown = [row for row in rows.values() if row not in self._heirs]
        if unknown:
            self._heirs |= dict.fromkeys(unknown, "") | self._store.heirs(unknown)
        leading = {place: self._heirs[row] for place, row in rows.items()}
        there = self._places(sorted(set(filter(None, leading.values()))))
        at = np.array(sorted({*places, *there}), np.int64)
        return self._slice(
            at,
            ask,
            counts,
            cosine,
            admitted=self._admitted(ask.where, len(self._rows))[at].astype(np.uint8).tobytes(),
            heirs=tuple(leading.get(place, "") for place in at.tolist()),
        )

    def _places(self, ids: Sequence[str]) -> list[int]:
        """Where memories by id stand here; those that the shelf does not answer for are left out."""
        found = [self._at.get(row) for row in self._store.rows_of(ids).values()] if ids else []
        return [place for place in found if place is not None and self._columns["live"][place]]

    def _these(self, ask: Ask) -> Slice:
        """Memories by id, and what they lead to where they were replaced."""
        self.refresh()
        at = self._places(ask.only)
        if not at:
            return Slice()
        size = len(self._rows)
        counts, cosine = self._counts(ask.terms, size), self._cosine(ask, size)
        return self._led(np.array(at, np.int64), ask, counts, cosine)

    def _ready(self, ask: Ask) -> Prepared | None:
        """What was prepared for this filter, if every row it admits can be sent whatever the query."""
        where = ask.where
        size = len(self._rows)
        if (
            ask.missing
            or ask.counters
            or ask.vector is None
            or ask.embedder != self._fingerprint
            or len(ask.vector) != 4 * self._vectors.shape[1]
            or size > min(ask.k_words, ask.k_vectors)
            or (self._timed and where.valid_at is not None)
            or where.min_importance is not None
            or (where.min_confidence is not None and self._may_be_unsure(where, where.min_confidence))
        ):
            return None
        key = (static_part(where), ask.texts, ask.vectors)
        prepared = self._prepared.get(key)
        if prepared is None or not prepared.fresh(self._changes):
            prepared = self._prepare(ask, key[0], size)
            if len(self._prepared) >= PREPARED:
                self._prepared.clear()
            self._prepared[key] = prepared
        return prepared

    def _prepare(self, ask: Ask, where: Filter, size: int) -> Prepared:
        columns = self._columns
        mine = columns["live"][:size]
        fits = mine & self._admitted(where, size) & columns["embedded"][:size]
        at = np.flatnonzero(fits)
        scoped = msgspec.structs.replace(Filter(), scope=where.scope, include_shared=where.include_shared)
        scoped = msgspec.structs.replace(scoped, statuses=STATUSES)
        empty = np.zeros((size, 0), np.uint16)
        base = self._slice(
            at,
            ask,
            empty,
            np.zeros(size, np.float32),
            held=int(mine.sum()),
            terms=int(columns["length"][:size][mine].sum()),
            embedded=len(at),
            whole=int((mine & self._admitted(scoped, size)).sum()) == len(at),
        )
        rows: list[int] = at.tolist()
        owned = frozenset(int(row) for row in np.flatnonzero(mine))
        vectors = self._vectors[:size] if len(at) == size else self._vectors[at]
        return Prepared(base, rows, vectors, owned, self._changes)

    def _instead(self, ask: Ask) -> Slice:
        """Answer from copies for what members that are missing would have answered for."""
        self.refresh()
        return self._standing_in(ask.missing).answer(msgspec.structs.replace(ask, missing=()))

    def _standing_in(self, missing: tuple[str, ...]) -> Shelf:
        key = (missing, self._changes)
        if self._stand_in is None or self._stand_in[0] != key:
            self._stand_in = (key, self._stand_in_for(missing))
        return self._stand_in[1]

    def _stand_in_for(self, missing: tuple[str, ...]) -> Shelf:
        """A shelf of the copies that this member answers for while others are missing."""
        shelf = Shelf(_Some(self._store, ()), member=self.member, lineage=self._lineage)
        if self.member in missing or self._first_for is None:
            return shelf
        there = self._store.memories(self.copies_of(missing))
        wanted = {row for row, memory in there.items() if self._first_for(memory.id, missing)}
        return Shelf(_Some(self._store, wanted), member=self.member, lineage=self._lineage)

    def tally(
        self, missing: tuple[str, ...] = (), *, now: float
    ) -> tuple[dict[str, int], dict[str, int], frozenset[str]]:
        """How many memories of each status and each kind this shelf answers for at a moment, and which they are.

        What waits for review is nobody's yet, and not counted. With `missing`, instead those it answers for while
        these members are missing.
        """
        with self._lock:
            self.refresh()
            if missing:
                return self._standing_in(missing).tally(now=now)
            at: list[int] = np.flatnonzero(self._columns["live"][: len(self._rows)]).tolist()
            by_status, by_kind = Counter[str](), Counter[str]()
            for place in at:
                facets = self._facets[self._facet_of[place]]
                if facets.status == "quarantined":
                    continue
                status = facets.status
                if status == "active":
                    waits = not self._columns["embedded"][place]
                    ended = self._columns["expires_at"][place] <= now
                    status = "expired" if ended else "pending" if waits else status
                by_status[status] += 1
                by_kind[facets.kind] += 1
            return dict(by_status), dict(by_kind), frozenset(self._ids[place] for place in at)

    def _counts(self, terms: Sequence[str], size: int) -> NDArray[np.uint16]:
        counts = np.zeros((size, len(terms)), np.uint16)
        for column, term in enumerate(terms):
            self._postings.fill(term, counts[:, column])
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
        """Memories of the same conversations around the moments asked for."""
        found: set[int] = set()
        for key, moments in ask.near.items():
            talk = self._talks.get(key)
            if talk is None:
                continue
            if len(talk) <= 2 * ask.window * len(moments):
                found.update(at for *_, at in talk if mine[at])
            else:
                for moment in moments:
                    found.update(self._beside(moment, talk, ask.window, mine))
        if not found:
            return Slice()
        at = np.array(sorted(found), np.int64)
        size = len(self._rows)
        counts, cosine = self._counts(ask.terms, size), self._cosine(ask, size)
        admitted = self._admitted(ask.where, size)[at].astype(np.uint8).tobytes()
        return self._slice(at, ask, counts, cosine, admitted=admitted)

    @staticmethod
    def _beside(
        moment: Moment, talk: list[tuple[float, int, int]], window: int, mine: NDArray[np.bool_]
    ) -> list[int]:
        middle = bisect_left(talk, (*moment, -1))
        before = [at for *_, at in talk[max(0, middle - 4 * window) : middle] if mine[at]]
        after = [at for *_, at in talk[middle : middle + 4 * window + 1] if mine[at]]
        return before[-window:] + after[: window + 1]

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
        facets = [self._facets[self._facet_of[i]] for i in listed]
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
            content=columns["content"][at].tobytes(),
            created_at=columns["created_at"][at].tobytes(),
            confidence=columns["confidence"][at].tobytes(),
            last_evidence_at=columns["last_evidence_at"][at].tobytes(),
            importance=columns["importance"][at].tobytes(),
            keys=tuple([self._key(each) for each in facets]),
            voices=tuple([each.kind for each in facets]),
            authors=tuple([each.agent or "" for each in facets]),
            **extra,
        )

    def _use(self, listed: list[int]) -> dict[str, Any]:
        found = self._store.use_counts([self._rows[i] for i in listed])
        rows = [found.get(self._rows[i], (0, 0, None, None)) for i in listed]
        return {
            "uses": np.array([row[0] for row in rows], np.int64).tobytes(),
            "confirmations": np.array([row[1] for row in rows], np.int64).tobytes(),
            "last_used_at": np.array([np.nan if r[2] is None else r[2] for r in rows], np.float64).tobytes(),
            "agents": tuple(self._authors(i, row[3]) for i, row in zip(listed, rows, strict=True)),
        }

    def _authors(self, at: int, agent: str | None) -> tuple[str, ...]:
        """Who wrote a memory, and who wrote what it was derived from."""
        own = () if agent is None else (agent,)
        if at not in self._derived or self._lineage is None:
            return own
        return (*own, *self._lineage(self._ids[at]))

    # Filters

    def _admitted(self, where: Filter, size: int) -> NDArray[np.bool_]:
        static = static_part(where)
        mask = self._masks.get(static)
        if mask is None:
            mask = self._fitting(static, size)
            if len(self._masks) > MASKS:
                self._masks.clear()
            self._masks[static] = mask
        columns = self._columns
        if where.valid_at is not None and self._timed:
            t = where.valid_at
            mask = mask & (columns["valid_from"][:size] <= t) & (columns["valid_to"][:size] > t)
            mask &= columns["expires_at"][:size] > t
        if where.min_confidence is not None and self._may_be_unsure(where, where.min_confidence):
            days = np.maximum(0.0, where.now - columns["last_evidence_at"][:size]) / DAY
            sure = columns["confidence"][:size] * np.exp(-where.decay_per_day * days)
            mask = mask & (sure >= where.min_confidence)
        if where.min_importance is not None:
            mask = mask & (columns["importance"][:size] >= where.min_importance)
        return mask

    def _fitting(self, static: Filter, size: int) -> NDArray[np.bool_]:
        """The rows that a filter without times admits: judged once per kind of row, and by when they were made."""
        timeless = msgspec.structs.replace(static, since=None, until=None)
        kinds = np.array([admits(timeless, facets) for facets in self._facets], np.bool_)
        mask = self._columns["live"][:size].copy()
        if len(kinds) and not kinds.all():
            mask &= kinds[np.frombuffer(self._facet_of, np.uint32)[:size]]
        created = self._columns["created_at"][:size]
        if static.since is not None:
            mask &= created >= static.since
        if static.until is not None:
            mask &= created < static.until
        return mask

    def _may_be_unsure(self, where: Filter, bar: float) -> bool:
        days = max(0.0, where.now - self._oldest) / DAY
        return self._least_sure * math.exp(-where.decay_per_day * days) < bar


class _Some:
    """A store of which only some rows count, as they are now."""

    def __init__(self, store: ShelfStore, rows: Iterable[int]) -> None:
        self._store = store
        self._wanted = sorted(rows)
        self.fingerprint = store.fingerprint
        self.dim = store.dim
        self.memories = store.memories
        self.texts_of = store.texts_of
        self.vectors_of = store.vectors_of
        self.use_counts = store.use_counts
        self.rows_of = store.rows_of
        self.heirs = store.heirs

    def head(self) -> int:
        """It never changes."""
        return 1

    def changed_since(self, seq: int) -> Iterator[IndexRow]:
        """Those rows, once."""
        if seq:
            return
        there = self._store.memories(self._wanted)
        texts, vectors = self._store.texts_of(list(there)), self._store.vectors_of(list(there))
        for row, memory in there.items():
            scope = memory.scope
            yield IndexRow(
                row,
                1,
                texts.get(row, memory.text),
                vectors.get(row),
                memory.kind,
                memory.status,
                memory.domain,
                memory.agent,
                scope.user,
                scope.project,
                scope.session,
                memory.tags,
                memory.created_at,
                memory.valid_from,
                memory.valid_to,
                memory.expires_at,
                memory.confidence,
                memory.last_evidence_at,
                memory.importance,
            )


@lru_cache(maxsize=1024)
def static_part(where: Filter) -> Filter:
    """A filter without what depends on the time of asking."""
    return msgspec.structs.replace(where, now=0.0, valid_at=None, min_confidence=None, min_importance=None)
