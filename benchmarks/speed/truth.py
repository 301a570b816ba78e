"""The exact answers to a workload's questions, by full scans: what recall is measured against."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.speed.engines.values import CANDIDATES, RRF_K, Query, fuse
from benchmarks.speed.plan import TRUTHS
from benchmarks.speed.workload import DIM, FUNCTION_WORDS, MARKED, Block, Workload

VERSION = 5
"""Part of the file's name: raise it when the answers change."""
K1 = 1.2
B = 0.75


@dataclass(frozen=True)
class Truth:
    """Per kind of search, the ids of the exact answer to each question, best first."""

    keyword: list[list[str]]
    """BM25 of the content words; a text is as long as all its words."""
    keyword_content: list[list[str]]
    """The same, a text being as long as its content words."""
    question: list[list[str]]
    """BM25 of every word of the question, function words too, weighed as FTS5 does; lengths of all words."""
    vector: list[list[str]]
    hybrid: list[list[str]]
    hybrid_content: list[list[str]]
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


def kind_for(op: str, about: Mapping[str, Any]) -> str:
    """Which exact answer an engine's answer is compared with, by what the engine says of itself.

    Engines count words in their own ways, all of them sound: whether function words count in the length of a text,
    whether they are searched for, and whether fusion ranks every candidate by both signals. Each is compared with an
    exact search that counts as it does.

    >>> kind_for("keyword_ids50", {"lengths": "content"}), kind_for("question", {"drops_function_words": True})
    ('keyword_content', 'keyword')
    """
    kind = TRUTHS[op][0]
    if kind == "question" and about.get("drops_function_words"):
        kind = "keyword"
    if kind == "hybrid" and about.get("fusion") == "pooled":
        return "pooled"
    if kind in ("keyword", "hybrid") and about.get("lengths") == "content":
        return f"{kind}_content"
    return kind


@dataclass(frozen=True)
class _Words:
    """The words asked for, their weights, and how lengths are counted."""

    wanted: NDArray[np.int64]
    idf: NDArray[np.float64]
    average: float
    content: bool


def _lengths(block: Block, first: int, *, content: bool) -> NDArray[np.int64]:
    """Words of each text of a block that starts at row `first`, the identifier of one in ten included."""
    sizes = np.diff(block.starts)
    if content:
        doc = np.repeat(np.arange(len(sizes)), sizes)
        sizes = np.bincount(doc[block.tokens >= len(FUNCTION_WORDS)], minlength=len(sizes))
    return sizes + (np.arange(first, first + len(sizes)) % MARKED == 0)


def _count(workload: Workload, wanted: NDArray[np.int64]) -> tuple[NDArray[np.int64], dict[bool, float]]:
    """In how many texts each wanted word stands, and the mean length, with and without function words."""
    counts = np.zeros(len(wanted), np.int64)
    words = {True: 0, False: 0}
    first = 0
    for block in workload.blocks():
        for content in words:
            words[content] += int(_lengths(block, first, content=content).sum())
        first += len(block.topics)
        doc = np.repeat(np.arange(len(block.topics)), np.diff(block.starts))
        here = np.searchsorted(wanted, block.tokens)
        here = np.minimum(here, len(wanted) - 1)
        mask = wanted[here] == block.tokens
        pairs = np.unique(np.stack([here[mask], doc[mask]]), axis=1)
        counts += np.bincount(pairs[0], minlength=len(wanted))
    return counts, {content: total / max(1, workload.size) for content, total in words.items()}


def exact(workload: Workload, queries: list[Query]) -> Truth:
    """Scan every row for every question."""
    index = {word: i for i, word in enumerate(workload.vocabulary)}
    terms = [[index[w] for w in query.text.split() if w in index] for query in queries]
    asked = [sorted({index[w] for w in query.question.split() if w in index}) for query in queries]
    wanted = np.unique([t for ts in terms + asked for t in ts] or [len(FUNCTION_WORDS)])
    df, averages = _count(workload, wanted)
    idf = np.log1p((workload.size - df + 0.5) / (df + 0.5))
    plain, narrow_words = (_Words(wanted, idf, averages[content], content) for content in (False, True))
    own_idf = np.maximum(np.log((workload.size - df + 0.5) / (df + 0.5)), 1e-6)
    as_fts5 = _Words(wanted, own_idf, averages[False], content=False)
    probes = np.array([np.frombuffer(q.vector, np.float32) for q in queries]).reshape(-1, DIM)
    teams = np.array([int(q.team[1:]) for q in queries])
    projects = np.array([int(q.project[1:]) for q in queries])
    by_words = {
        "keyword": (plain, terms),
        "keyword_content": (narrow_words, terms),
        "question": (as_fts5, asked),
    }
    bests = {name: [_Best(CANDIDATES) for _ in queries] for name in (*by_words, "vector")}
    narrow = {name: [_Best(CANDIDATES) for _ in queries] for name in ("filtered_1", "filtered_10")}
    first = 0
    for block in workload.blocks():
        rows = np.arange(first, first + len(block.topics))
        weights = {name: _impacts(block, first, words) for name, (words, _) in by_words.items()}
        scores = block.vectors @ probes.T
        for q in range(len(queries)):
            for name, (_, texts) in by_words.items():
                lexical = weights[name][:, np.searchsorted(wanted, texts[q])].sum(axis=1)
                hit = lexical > 0
                bests[name][q].add(rows[hit], lexical[hit])
            bests["vector"][q].add(rows, scores[:, q])
            for name, mask in (
                ("filtered_1", block.projects == projects[q]),
                ("filtered_10", block.teams == teams[q]),
            ):
                narrow[name][q].add(rows[mask], scores[mask, q])
        first += len(block.topics)
    found = {name: [best.ids() for best in each] for name, each in {**bests, **narrow}.items()}
    fused = {
        f"hybrid{name}": [
            fuse(w, v)[:10] for w, v in zip(found[f"keyword{name}"], found["vector"], strict=True)
        ]
        for name in ("", "_content")
    }
    pools = [np.union1d(w.rows, v.rows) for w, v in zip(bests["keyword"], bests["vector"], strict=True)]
    scored = _pool_scores(workload, pools, terms, probes, plain)
    return Truth(pooled=[_pooled(*each)[:10] for each in scored], **fused, **found)


Scored = tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.float32]]


def _pool_scores(
    workload: Workload,
    pools: list[NDArray[np.int64]],
    terms: list[list[int]],
    probes: NDArray[np.float32],
    words: _Words,
) -> list[Scored]:
    """Rows, BM25 and cosine of every pool."""
    found: list[Scored] = [
        (pool, np.zeros(len(pool), np.float32), np.zeros(len(pool), np.float32)) for pool in pools
    ]
    first = 0
    for block in workload.blocks():
        weights = _impacts(block, first, words)
        for q, (pool, lexical, cosine) in enumerate(found):
            here = np.flatnonzero((pool >= first) & (pool < first + len(block.topics)))
            local = pool[here] - first
            lexical[here] = weights[np.ix_(local, np.searchsorted(words.wanted, terms[q]))].sum(axis=1)
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


def _impacts(block: Block, first: int, words: _Words) -> NDArray[np.float32]:
    """BM25 of every row of a block for every wanted word."""
    sizes = np.diff(block.starts)
    doc = np.repeat(np.arange(len(sizes)), sizes)
    here = np.minimum(np.searchsorted(words.wanted, block.tokens), len(words.wanted) - 1)
    mask = words.wanted[here] == block.tokens
    tf = np.zeros((len(sizes), len(words.wanted)), np.float32)
    np.add.at(tf, (doc[mask], here[mask]), 1.0)
    norm = K1 * (1 - B + B * _lengths(block, first, content=words.content) / words.average)
    return (words.idf * tf * (K1 + 1) / (tf + norm[:, None])).astype(np.float32)
