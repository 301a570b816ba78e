"""One member's part of a question to the hive: its own index under a filter, less what others answer for.

A shard searches the member's bank as any recall does, drops the copies that another member answers for, and sends the
rest as a `Slice`: what is known of each candidate, but no score. Scores of two banks cannot be compared, because each
knows only its own word counts; the asker adds the counts up and scores everything at once (`hive.hive_sources`).
Called by `members`, and by the recall of a past state. It reads one engine and writes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from skep.confidence import content_hash
from skep.filters import Filter
from skep.hive.messages import ROW, Ask, Slice
from skep.model import STATUSES
from skep.retrieval.sources import BankSources

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from skep.engine.engine import Engine
    from skep.retrieval.sources import Pool

    Ints = NDArray[np.int64]

SAMPLE = 256
"""Rows of a bank by which the word counts of copies are told from those of its own."""
EVERYTHING, NOTHING = Filter(statuses=STATUSES), Filter(statuses=("",))


class Shard:
    """The memories one member answers for, searched by its own index.

    Args:
        engine: The member's bank.
        member: Its name.
        answers_for: Whether the member answers for a memory while some others are missing; for all unless given.
        lineage: The agents that wrote what a memory was derived from.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        member: str = "",
        answers_for: Callable[[str, tuple[str, ...]], bool] | None = None,
        lineage: Callable[[str], tuple[str, ...]] | None = None,
    ) -> None:
        self._engine = engine
        self._member = member
        self.answers_for = answers_for
        self._lineage = lineage
        self._sample: tuple[int, Ints, NDArray[np.bool_]] | None = None
        """Some rows of the bank as of a position, and for which of them the member answers."""
        self._ours: dict[int, bool] = {}
        """Per row that was looked at, whether the member answers for it."""

    def reassign(self) -> None:
        """The members of the hive have changed, and with them what this one answers for."""
        self._sample = None
        self._ours.clear()

    def mine(self, memory_id: str, missing: tuple[str, ...] = ()) -> bool:
        """True if the member answers for a memory; with `missing`, only because these members do not."""
        if self.answers_for is None:
            return not missing
        if not missing:
            return self.answers_for(memory_id, ())
        if self._member in missing or self.answers_for(memory_id, ()):
            return False
        return self.answers_for(memory_id, missing)

    def _answered(self, found: _Search, rows: Ints) -> NDArray[np.bool_]:
        """The rows for which the member answers."""
        listed, ours, missing = rows.tolist(), self._ours, found.ask.missing
        if missing or self.answers_for is None:
            return np.array([self.mine(name, missing) for name in found.sources.ids(rows)], np.bool_)
        unknown = [row for row in listed if row not in ours]
        if unknown:
            names = found.sources.ids(np.array(unknown, np.int64))
            ours.update((row, self.mine(name)) for row, name in zip(unknown, names, strict=True))
        return np.array([ours[row] for row in listed], np.bool_)

    def answer(self, ask: Ask) -> Slice:
        """The candidates of a question, those for which the member answers."""
        engine = self._engine
        engine.embeddings.before_reading()  # it may write, which a snapshot is not for
        with engine.snapshot():
            found = _Search(engine, ask, engine.index.refresh(engine.turn()))
            if ask.near:
                return self._slice(found, found.lookup(found.beside()), judged=True)
            if ask.only:
                return self._led(found, np.array(sorted(engine.rows_of(ask.only).values()), np.int64))
            return self._best(found)

    def _best(self, found: _Search) -> Slice:
        """The best by words and by meaning, and the best of what was replaced where that is asked for."""
        ask = found.ask
        factor = ask.boost if self._member in ask.boosted else 1
        pool = found.sources.search(
            ask.terms, found.vector, ask.where, ask.k_words * factor, ask.k_vectors * factor
        )
        held, having = self._owned(found) if not ask.missing else (0.0, ())
        part = self._slice(found, pool)
        where = ask.where
        scoped = Filter(scope=where.scope, include_shared=where.include_shared, statuses=STATUSES)
        former = (
            found.sources.replaced(ask.terms, found.vector, ask.where, ask.former) if ask.former else None
        )
        return msgspec.structs.replace(
            part,
            held=held,
            having=having,
            whole=len(pool.rows) == len(self._engine.index.rows_where(scoped, NOTHING)),
            former=None if former is None else self._led(found, former.rows),
        )

    def _owned(self, found: _Search) -> tuple[float, tuple[float, ...]]:
        """The number of memories the member answers for, and how many of them hold each term.

        The index counts copies that others answer for as well. What share those are is told by a sample of its rows,
        which is all of them in a small bank.
        """
        sources, terms, total = found.sources, found.ask.terms, self._engine.index.stats().rows
        if self._sample is None or self._sample[0] != found.position:
            rows = self._engine.index.rows_where(EVERYTHING, NOTHING)
            rows = rows[:: max(1, len(rows) // SAMPLE)]
            mine = self._answered(found, rows)
            self._sample = (found.position, rows, mine)
        _, rows, mine = self._sample
        share = float(mine.mean()) if len(mine) else 1.0
        holds = sources.impacts(terms, rows) > 0
        there = holds.sum(axis=0)
        shares = np.where(there > 0, holds[mine].sum(axis=0) / np.maximum(there, 1), share)
        having = np.maximum((total + 1) / np.exp(sources.idf(terms)) - 0.5, 0.0) * shares
        return total * share, tuple(having.tolist())

    def _led(self, found: _Search, rows: Ints) -> Slice:
        """Rows, what stands in the place of the replaced ones as far as this bank knows, and those memories too."""
        heirs = {row: heir or "" for row, heir in zip(rows.tolist(), found.sources.heirs(rows), strict=True)}
        ends = self._engine.rows_of(sorted(set(filter(None, heirs.values()))))
        every = np.array(sorted({*heirs, *ends.values()}), np.int64)
        return self._slice(found, found.lookup(every), judged=True, heirs=heirs)

    def _slice(
        self, found: _Search, pool: Pool, *, judged: bool = False, heirs: dict[int, str] | None = None
    ) -> Slice:
        """The slice to send of a pool; with `judged`, some rows may not pass the filter, and each says if it does."""
        ask, sources, index = found.ask, found.sources, self._engine.index
        kept = np.flatnonzero(self._answered(found, pool.rows))
        if not len(kept):
            return Slice()
        rows = pool.rows[kept]
        ids = sources.ids(rows)
        sent, texts = np.zeros(len(ids), ROW), sources.texts(rows)
        for name in ("cosine", "created_at", "confidence", "last_evidence_at", "importance"):
            sent[name] = getattr(pool, name)[kept]
        sent["scope"], sent["kind"] = index.columns(("scope", "kind"), rows)
        sent["place"], sent["talk"] = sources.scopes(rows)
        sent["content"] = [
            content_hash(text, *row) for text, *row in zip(texts, sent["scope"], sent["kind"], strict=True)
        ]
        sent["admitted"] = np.isin(rows, index.rows_where(ask.where, NOTHING)) if judged else True
        extra: dict[str, Any] = {}
        if heirs is not None:
            extra["heirs"] = tuple(heirs.get(row, "") for row in rows.tolist())
        if ask.vectors:
            vectors = sources.vectors(rows).astype("<f4")
            fits = vectors.shape[1] == ask.vectors  # another embedder's are of no use to the asker
            extra["vectors"] = vectors.tobytes() if fits else bytes(4 * ask.vectors * len(ids))
        if ask.counters:
            counters = sources.counters(rows)
            told = (counters.uses, counters.confirmations, counters.last_used_at)
            extra["counters"] = np.stack(told, axis=1).astype("<f8").tobytes()
            extra["agents"] = self._authors(ids, rows)
        weights = sources.impacts(ask.terms, rows) / sources.idf(ask.terms)
        return Slice(
            ids=tuple(ids),
            rows=sent.tobytes(),
            weights=weights.astype("<f4").tobytes(),
            texts=tuple(texts),
            matched=pool.words_total,
            embedded=pool.vectors_total,
            **extra,
        )

    def _authors(self, ids: Sequence[str], rows: Ints) -> tuple[tuple[str, ...], ...]:
        """The authors of each memory, and of the memories it was derived from."""
        known = self._engine.memories(rows.tolist())
        found: list[tuple[str, ...]] = []
        for memory_id, row in zip(ids, rows.tolist(), strict=True):
            memory = known[row]
            own = () if memory.agent is None else (memory.agent,)
            derived = self._lineage(memory_id) if memory.evidence and self._lineage is not None else ()
            found.append((*own, *derived))
        return tuple(found)


class _Search:
    """One question in one bank."""

    def __init__(self, engine: Engine, ask: Ask, position: int) -> None:
        self._engine = engine
        self.ask = ask
        self.position = position
        """Up to which event the index has caught up."""
        self.sources = BankSources(engine)
        space = engine.active_space()
        usable = ask.vector is not None and space is not None and space.fingerprint == ask.embedder
        vector = np.frombuffer(ask.vector or b"", "<f4") if usable else None
        self.vector = (
            vector if vector is not None and space is not None and len(vector) == space.dim else None
        )

    def lookup(self, rows: Ints) -> Pool:
        """These very rows as a pool."""
        return self.sources.lookup(rows, self.ask.terms, self.vector)

    def beside(self) -> Ints:
        """The rows nearest in time to the moments asked for, in their scopes; of equal moments all."""
        index, window = self._engine.index, self.ask.window
        rows = index.rows_where(EVERYTHING, NOTHING)
        scope, created = index.columns(("scope", "created_at"), rows)
        found = np.zeros(len(rows), np.bool_)
        for key, moments in self.ask.near.items():
            here = np.flatnonzero(scope == np.uint64(key))
            if not len(here):
                continue
            here = here[np.argsort(created[here], kind="stable")]
            first, last = (created[here].searchsorted(moments, side) for side in ("left", "right"))
            for low, high in zip((first - window).tolist(), (last + window).tolist(), strict=True):
                found[here[max(0, low) : high]] = True
        return rows[found]
