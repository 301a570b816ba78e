"""What the members of a hive sent for one recall: columns over all of it, and the statistics of the whole.

Each memory stands there once, at the place where it was first heard of; a place is a row of the union.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, count
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from skep.hive.bm25 import impact, inverse_frequency
from skep.hive.pool import Ask, Slice

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]
    Singles = NDArray[np.float32]


class UnionPool(msgspec.Struct, frozen=True):
    """The candidates of one search; see `retrieval.sources.Pool`."""

    rows: Any
    words: Any
    cosine: Any
    created_at: Any
    confidence: Any
    last_evidence_at: Any
    importance: Any
    words_total: int
    vectors_total: int

    @property
    def lines(self) -> None:
        """It is made of arrays."""

    @property
    def scale(self) -> None:
        """Only lines need it."""


_TYPES: dict[str, Any] = {
    "length": np.uint32,
    "cosine": np.float32,
    "content": np.int64,
    "created_at": np.float64,
    "confidence": np.float64,
    "last_evidence_at": np.float64,
    "importance": np.float64,
}


class Gathered:
    """The rows that members sent, in columns."""

    def __init__(self, ask: Ask, dim: int) -> None:
        """Begin with nothing.

        Args:
            ask: What the members are asked; which columns they send follows from it.
            dim: The length of a vector.
        """
        self._ask = ask
        self.ids: list[str] = []
        self.homes: list[str] = []
        self.at: dict[str, int] = {}
        self.keys: list[str] = []
        self.voices: list[str] = []
        self.authors: list[str] = []
        self.texts: list[str] = []
        self.heirs: list[str] = []
        """What was put in the place of each; empty where it was not replaced, or nobody said so."""
        self.admitted = np.zeros(0, np.bool_)
        self.columns: dict[str, NDArray[Any]] = {n: np.zeros(0, t) for n, t in _TYPES.items()}
        self.vectors = np.zeros((0, dim), np.float32)
        self.uses: list[tuple[int, int, float, tuple[str, ...]]] = []
        self._counts = np.zeros((0, len(ask.terms)), np.uint16)
        self._held = 0
        self._total_terms = 0
        self._having = np.zeros(len(ask.terms), np.int64)

    def count(self, parts: Iterable[Slice]) -> None:
        """Add up what members hold."""
        for part in parts:
            self._held += part.held
            self._total_terms += part.terms
            if part.having:
                self._having += np.array(part.having, np.int64)

    def add(self, answers: Mapping[str, Slice]) -> None:
        """Append the candidates of many slices, each memory once."""
        parts = [(name, part) for name, part in sorted(answers.items()) if part.ids]
        if not parts:
            return
        slices = [part for _, part in parts]
        sent = list(chain.from_iterable([part.ids for part in slices]))
        homes = list(chain.from_iterable([[name] * len(part.ids) for name, part in parts]))
        position = len(sent)
        if not self.at and len(set(sent)) == position:
            self.at, self.ids, self.homes = dict(zip(sent, count(), strict=False)), sent, homes
            keep: Sequence[int] = range(position)
        else:
            keep = self._fresh(sent, homes)
        at = np.array(keep, np.int64)
        for name, kind in _TYPES.items():
            fresh = np.frombuffer(b"".join([getattr(part, name) for part in slices]), kind)[at]
            self.columns[name] = np.concatenate([self.columns[name], fresh])
        width = len(self._ask.terms)
        counts = np.frombuffer(b"".join([part.counts for part in slices]), np.uint16).reshape(
            position, width
        )[at]
        self._counts = np.concatenate([self._counts, counts])
        self._add_lists(slices, keep, position)

    def _fresh(self, sent: Sequence[str], homes: Sequence[str]) -> list[int]:
        """The places of memories that were not sent before; they are noted."""
        keep: list[int] = []
        for place, memory_id in enumerate(sent):
            if memory_id not in self.at:
                self.at[memory_id] = len(self.ids)
                self.ids.append(memory_id)
                self.homes.append(homes[place])
                keep.append(place)
        return keep

    def _add_lists(self, slices: Sequence[Slice], keep: Sequence[int], total: int) -> None:
        def pick(name: str, absent: Any) -> list[Any]:
            joined = list(chain.from_iterable([getattr(part, name) for part in slices]))
            if not joined:
                return [absent] * len(keep)
            if len(joined) != total:  # a member of an older version leaves out what it does not know of
                each = [getattr(part, name) or [absent] * len(part.ids) for part in slices]
                joined = list(chain.from_iterable(each))
            return joined if len(keep) == total else [joined[i] for i in keep]

        self.keys += pick("keys", "")
        self.voices += pick("voices", "")
        self.authors += pick("authors", "")
        self.texts += pick("texts", "")
        self.heirs += pick("heirs", "")
        flags = b"".join([part.admitted or b"\x01" * len(part.ids) for part in slices])
        at = np.array(keep, np.int64)
        self.admitted = np.concatenate([self.admitted, np.frombuffer(flags, np.uint8)[at] > 0])
        if self._ask.vectors:
            dim = self.vectors.shape[1]
            fresh = np.frombuffer(b"".join([part.vectors for part in slices]), np.float32).reshape(-1, dim)
            fresh = fresh if len(at) == total else fresh[at]
            self.vectors = np.concatenate([self.vectors, fresh]) if len(self.vectors) else fresh
        if self._ask.counters:
            joined = [
                np.frombuffer(b"".join([getattr(part, name) for part in slices]), kind)[at].tolist()
                for name, kind in (
                    ("uses", np.int64),
                    ("confirmations", np.int64),
                    ("last_used_at", np.float64),
                )
            ]
            self.uses += list(zip(*joined, pick("agents", ()), strict=True))

    def words(self) -> Singles:
        """BM25 of every row."""
        if not self._ask.terms:
            return np.zeros(len(self.ids), np.float32)
        return self._impacts(slice(None)).sum(axis=1).astype(np.float32)

    def idf(self, terms: Sequence[str]) -> Floats:
        """How rare each term is in the whole hive."""
        known = dict(zip(self._ask.terms, self._having.tolist(), strict=True))
        return inverse_frequency(self._held, [known.get(term, 0) for term in terms])

    def impacts(self, terms: Sequence[str], rows: Ints) -> Singles:
        """The part of BM25 that each term gives to each row; row -1 gives zeros."""
        if not self.ids:
            return np.zeros((len(rows), len(terms)), np.float32)
        found = self._impacts(rows)
        found[rows < 0] = 0.0
        column = {term: index for index, term in enumerate(self._ask.terms)}
        picked = [column.get(term, -1) for term in terms]
        padded = np.concatenate([found, np.zeros((len(rows), 1))], axis=1)
        return padded[:, picked].astype(np.float32)

    def _impacts(self, at: Any) -> Floats:
        mean = self._total_terms / max(1, self._held)
        idf = inverse_frequency(self._held, self._having)
        return impact(self._counts[at], self.columns["length"][at], mean, idf)

    def pool(self, at: Ints, words: Singles, matched: int = 0, embedded: int = 0) -> UnionPool:
        """These rows as a pool."""
        columns = self.columns
        return UnionPool(
            at,
            words[at].astype(np.float64),
            columns["cosine"][at],
            columns["created_at"][at],
            columns["confidence"][at].astype(np.float32).astype(np.float64),
            columns["last_evidence_at"][at],
            columns["importance"][at].astype(np.float32).astype(np.float64),
            matched,
            embedded,
        )


def best(words: Singles, cosine: Singles, k_words: int, k_vectors: int) -> Ints:
    """The best by words and the best by meaning, as one bank would have chosen them."""
    kept = np.zeros(len(words), np.bool_)
    by_words = np.flatnonzero(words > 0)
    if len(by_words) > k_words:
        by_words = by_words[np.argsort(-words[by_words], kind="stable")[:k_words]]
    by_meaning = np.flatnonzero(~np.isnan(cosine))
    if len(by_meaning) > k_vectors:
        by_meaning = by_meaning[np.argsort(-cosine[by_meaning], kind="stable")[:k_vectors]]
    kept[by_words] = True
    kept[by_meaning] = True
    return np.flatnonzero(kept)
