"""A bank in a dictionary, and the answers a slow and simple search over it would give."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from skep.filters import Filter, IndexRow
from skep.index.index import Pool
from skep.model import Scope
from skep.text.terms import terms as terms_of

DIM = 16


class FakeBank:
    """Implements `IndexSource`."""

    def __init__(self, dim: int = DIM, identity: str = "bank-1", fingerprint: str = "fake-1") -> None:
        self._dim = dim
        self._identity = identity
        self.print = fingerprint
        self.rows: dict[int, IndexRow] = {}
        self.reads = 0
        self._seq = 0

    def head(self) -> int:
        return self._seq

    def changed_since(self, seq: int) -> Iterator[IndexRow]:
        self.reads += 1
        yield from sorted((row for row in self.rows.values() if row.seq > seq), key=lambda row: row.seq)

    def fingerprint(self) -> str:
        return self.print

    def dim(self) -> int:
        return self._dim

    def identity(self) -> str:
        return self._identity

    def put(self, row: int, text: str = "", vector: Sequence[float] | None = None, **fields: Any) -> IndexRow:
        self._seq += 1
        packed = None if vector is None else unit(np.array(vector)).astype("<f4").tobytes()
        made = make_row(row, self._seq, text, packed, **fields)
        self.rows[row] = made
        return made

    def change(self, row: int, **fields: Any) -> None:
        self._seq += 1
        self.rows[row] = msgspec.structs.replace(self.rows[row], seq=self._seq, **fields)

    def forget(self, row: int) -> None:
        self._seq += 1
        self.rows[row] = make_row(row, self._seq, "", None, gone=True)

    @property
    def live(self) -> list[IndexRow]:
        return [row for row in self.rows.values() if not row.gone]


def make_row(row: int, seq: int, text: str, vector: bytes | None, **fields: Any) -> IndexRow:
    values: dict[str, Any] = {
        "kind": "fact",
        "status": "active",
        "domain": None,
        "agent": None,
        "user": None,
        "project": None,
        "session": None,
        "tags": (),
        "created_at": float(row),
        "valid_from": None,
        "valid_to": None,
        "expires_at": None,
        "confidence": 0.8,
        "last_evidence_at": 0.0,
        "importance": 0.5,
    }
    return IndexRow(row=row, seq=seq, text=text, vector=vector, **(values | fields))


def unit(vector: NDArray[Any]) -> NDArray[Any]:
    norm = np.linalg.norm(vector)
    return vector / norm if norm else vector


class Expected(NamedTuple):
    words: dict[int, float]
    """BM25 of every admitted row that matches a term."""
    cosine: dict[int, float]
    """Of every admitted row that has a vector."""


def expected(
    bank: FakeBank,
    terms: Sequence[str],
    vector: NDArray[Any] | None,
    where: Filter,
    weights: dict[str, float] | None = None,
) -> Expected:
    """What a search must find, by the book."""
    live = bank.live
    counts = {row.row: Counter(terms_of(row.text)) for row in live}
    lengths = {row: sum(found.values()) for row, found in counts.items()}
    mean = sum(lengths.values()) / len(live) if live else 0.0
    words: dict[int, float] = {}
    for term in dict.fromkeys(terms):
        weight = (weights or {}).get(term, 1.0)
        found = sum(1 for each in counts.values() if term in each)
        rare = math.log(1 + (len(live) - found + 0.5) / (found + 0.5))
        for row, each in counts.items():
            if term in each and weight > 0:
                norm = 1.2 * (1 - 0.75 + 0.75 * lengths[row] / mean)
                words[row] = words.get(row, 0.0) + weight * rare * each[term] * 2.2 / (each[term] + norm)
    cosine: dict[int, float] = {}
    if vector is not None and np.linalg.norm(vector) > 0:
        for row in live:
            if row.vector is not None:
                there = np.frombuffer(row.vector, "<f4").astype(np.float64)
                if np.linalg.norm(there) > 0:
                    cosine[row.row] = float(unit(there) @ unit(np.asarray(vector, dtype=np.float64)))
    admitted = {row.row for row in live if admits(where, row)}
    return Expected(
        {row: score for row, score in words.items() if row in admitted},
        {row: score for row, score in cosine.items() if row in admitted},
    )


def admits(where: Filter, row: IndexRow) -> bool:
    """A filter, read aloud."""
    scope = Scope(user=row.user, project=row.project, session=row.session)
    moment = where.valid_at
    days = max(0.0, where.now - row.last_evidence_at) / 86400
    return (
        (where.scope is None or where.scope.admits(scope) or (where.include_shared and scope.shared))
        and (not where.kinds or row.kind in where.kinds)
        and (not where.statuses or row.status in where.statuses)
        and all(any(tag in row.tags for tag in group) for group in where.tags)
        and (not where.domains or row.domain in where.domains)
        and (not where.agents or row.agent in where.agents)
        and (where.since is None or row.created_at >= where.since)
        and (where.until is None or row.created_at < where.until)
        and (
            moment is None
            or (
                (row.valid_from is None or row.valid_from <= moment)
                and (row.valid_to is None or moment < row.valid_to)
                and (row.expires_at is None or moment < row.expires_at)
            )
        )
        and (
            where.min_confidence is None
            or row.confidence * math.exp(-where.decay_per_day * days) >= where.min_confidence
        )
        and (where.min_importance is None or row.importance >= where.min_importance)
    )


def assert_same(one: Pool, other: Pool) -> None:
    """The same pool, up to rounding."""
    assert one.rows.tolist() == other.rows.tolist()
    for left, right in zip(one, other, strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-6)
