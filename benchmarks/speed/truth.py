"""The exact answers to a workload's questions, by full scans: what recall is measured against."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.speed.engines.values import CANDIDATES, RRF_K, Query, fuse
from benchmarks.speed.workload import DIM, FUNCTION_WORDS, Workload

K1 = 1.2
B = 0.75


@dataclass(frozen=True)
class Truth:
    """Per kind of search, the ids of the exact answer to each question, best first."""

    keyword: list[list[str]]
    vector: list[list[str]]
    hybrid: list[list[str]]
    pooled: list[list[str]]
    """Like `hybrid`, where every candidate is ranked by both signals."""
    filtered_1: list[list[str]]
    filtered_10: list[list[str]]

    def as_dict(self) -> dict[str, list[list[str]]]:
        """For JSON."""
        return dict(vars(self))


class _Best:
    """The best `k` of a stream of scored rows."""

    def __init__(self, k: int) -> None:
        self.k = k
        self.rows: NDArray[np.int64] = np.empty(0, np.int64)
        self.scores: NDArray[np.float32] = np.empty(0, np.float32)

    def add(self, rows: NDArray[np.int64], scores: NDArray[Any]) -> None:
        self.rows = np.concatenate([self.rows, rows])
        self.scores = np.concatenate([self.scores, scores])
        best = np.lexsort((self.rows, -self.scores))[: self.k]
        self.rows, self.scores = self.rows[best], self.scores[best]

    def ids(self) -> list[str]:
        return [f"r{row:07d}" for row in self.rows]


def _document_frequencies(workload: Workload, wanted: NDArray[np.int64]) -> tuple[NDArray[np.int64], float]:
    counts = np.zeros(len(wanted), np.int64)
    words = 0
    for block in workload.blocks():
        words += len(block.tokens)
        doc = np.repeat(np.arange(len(block.topics)), np.diff(block.starts))
        here = np.searchsorted(wanted, block.tokens)
        here = np.minimum(here, len(wanted) - 1)
        mask = wanted[here] == block.tokens
        pairs = np.unique(np.stack([here[mask], doc[mask]]), axis=1)
        counts += np.bincount(pairs[0], minlength=len(wanted))
    return counts, words / max(1, workload.size)


def exact(workload: Workload, queries: list[Query]) -> Truth:
    """Scan every row for every question."""
    index = {word: i for i, word in enumerate(workload.vocabulary)}
    terms = [[index[w] for w in query.text.split() if w in index] for query in queries]
    wanted = np.unique([t for ts in terms for t in ts] or [len(FUNCTION_WORDS)])
    df, average = _document_frequencies(workload, wanted)
    idf = np.log1p((workload.size - df + 0.5) / (df + 0.5))
    probes = np.array([np.frombuffer(q.vector, np.float32) for q in queries]).reshape(-1, DIM)
    teams = np.array([int(q.team[1:]) for q in queries])
    projects = np.array([int(q.project[1:]) for q in queries])
    bests = {name: [_Best(CANDIDATES) for _ in queries] for name in ("keyword", "vector")}
    narrow = {name: [_Best(10) for _ in queries] for name in ("filtered_1", "filtered_10")}
    first = 0
    for block in workload.blocks():
        rows = np.arange(first, first + len(block.topics))
        weights = _impacts(block.tokens, block.starts, wanted, idf, average)
        scores = block.vectors @ probes.T
        for q in range(len(queries)):
            lexical = weights[:, np.searchsorted(wanted, terms[q])].sum(axis=1)
            hit = lexical > 0
            bests["keyword"][q].add(rows[hit], lexical[hit])
            bests["vector"][q].add(rows, scores[:, q])
            for name, mask in (
                ("filtered_1", block.projects == projects[q]),
                ("filtered_10", block.teams == teams[q]),
            ):
                narrow[name][q].add(rows[mask], scores[mask, q])
        first += len(block.topics)
    found = {name: [best.ids() for best in each] for name, each in {**bests, **narrow}.items()}
    hybrid = [fuse(w, v)[:10] for w, v in zip(found["keyword"], found["vector"], strict=True)]
    pools = [np.union1d(w.rows, v.rows) for w, v in zip(bests["keyword"], bests["vector"], strict=True)]
    scored = _pool_scores(workload, pools, terms, probes, (wanted, idf, average))
    return Truth(hybrid=hybrid, pooled=[_pooled(*each)[:10] for each in scored], **found)


Scored = tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.float32]]


def _pool_scores(
    workload: Workload,
    pools: list[NDArray[np.int64]],
    terms: list[list[int]],
    probes: NDArray[np.float32],
    words: tuple[NDArray[np.int64], NDArray[np.float64], float],
) -> list[Scored]:
    """Rows, BM25 and cosine of every pool."""
    wanted, idf, average = words
    found: list[Scored] = [
        (pool, np.zeros(len(pool), np.float32), np.zeros(len(pool), np.float32)) for pool in pools
    ]
    first = 0
    for block in workload.blocks():
        weights = _impacts(block.tokens, block.starts, wanted, idf, average)
        for q, (pool, lexical, cosine) in enumerate(found):
            here = np.flatnonzero((pool >= first) & (pool < first + len(block.topics)))
            local = pool[here] - first
            lexical[here] = weights[np.ix_(local, np.searchsorted(wanted, terms[q]))].sum(axis=1)
            cosine[here] = block.vectors[local] @ probes[q]
        first += len(block.topics)
    return found


def _pooled(pool: NDArray[np.int64], lexical: NDArray[np.float32], cosine: NDArray[np.float32]) -> list[str]:
    """The pool by the sum of both reciprocal ranks; rows without a word share the last rank by words."""
    by_words = np.empty(len(pool))
    by_words[np.lexsort((pool, -lexical))] = np.arange(1, len(pool) + 1)
    by_words[lexical == 0] = np.count_nonzero(lexical) + 1
    by_vector = np.empty(len(pool))
    by_vector[np.lexsort((pool, -cosine))] = np.arange(1, len(pool) + 1)
    score = 1.0 / (RRF_K + by_words) + 1.0 / (RRF_K + by_vector)
    return [f"r{row:07d}" for row in pool[np.lexsort((pool, -score))]]


def _impacts(
    tokens: NDArray[np.int64],
    starts: NDArray[np.int64],
    wanted: NDArray[np.int64],
    idf: NDArray[np.float64],
    average: float,
) -> NDArray[np.float32]:
    """BM25 of every row of a block for every wanted term."""
    lengths = np.diff(starts)
    doc = np.repeat(np.arange(len(lengths)), lengths)
    here = np.minimum(np.searchsorted(wanted, tokens), len(wanted) - 1)
    mask = wanted[here] == tokens
    tf = np.zeros((len(lengths), len(wanted)), np.float32)
    np.add.at(tf, (doc[mask], here[mask]), 1.0)
    norm = K1 * (1 - B + B * lengths / average)
    return (idf * tf * (K1 + 1) / (tf + norm[:, None])).astype(np.float32)
