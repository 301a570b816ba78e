"""What is compared: every preset of skep, BM25 alone, vectors alone, mem0's scoring as published, and Chroma's."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.quality.sets import EvalSet, Question
from skep.embedding.embedder import Embedder, default_embedder, open_embedder
from skep.model import Recalled
from skep.recall.update_order import UpdateOrder
from skep.retrieval.pipeline import run
from skep.retrieval.recall_config import PRESETS, preset
from skep.retrieval.sources import InMemorySources
from skep.text.terms import query_terms

POOL = 60
"""mem0 asks its vector store for max(4 * limit, 60) memories and scores only those."""
MIDPOINTS = ((3, 5.0, 0.7), (6, 7.0, 0.6), (9, 9.0, 0.5), (15, 10.0, 0.5), (math.inf, 12.0, 0.5))
"""Up to so many terms in the query: midpoint and steepness of the sigmoid over BM25."""


class Answer(NamedTuple):
    """Ranked ids, and the texts' length in tokens for the first ten."""

    ids: list[str]
    tokens: int


Ranker = Callable[[Question, int], Answer]


CHROMA = "chroma"
"""The ranker that needs the published MiniLM: Chroma ranks by its cosine alone."""
WITH_TABLE = "default+table"
"""`default` on a bank that has the table of words as its embedder."""


def prepare(
    data: EvalSet,
    wanted: Sequence[str],
    model: Path | None = None,
    *,
    embedder: str | Embedder | None = None,
) -> dict[str, Ranker]:
    """The rankers by name, over one index of the set; over others with the table, or with the published MiniLM."""
    sources = InMemorySources(
        data.memories,
        open_embedder(embedder) if isinstance(embedder, str) else embedder or default_embedder(),
    )
    every: dict[str, Ranker] = {
        "bm25": lambda question, limit: _by_scores(sources, question, limit, words=1.0, vectors=0.0),
        "vectors": lambda question, limit: _by_scores(sources, question, limit, words=0.0, vectors=1.0),
        "mem0": lambda question, limit: _mem0(sources, question, limit),
    }
    for name in PRESETS:
        every[name] = _preset(sources, name)
    if not wanted or WITH_TABLE in wanted:
        every[WITH_TABLE] = _preset(InMemorySources(data.memories, open_embedder("static")), "default")
    if model is not None and (not wanted or CHROMA in wanted):
        published = InMemorySources(data.memories, open_embedder(f"minilm-onnx:{model}"))
        every[CHROMA] = lambda question, limit: _by_scores(published, question, limit, words=0.0, vectors=1.0)
    unknown = [name for name in wanted if name not in every]
    if unknown:
        raise SystemExit(f"no ranker {unknown[0]!r}; there are {', '.join(every)}")
    return {name: every[name] for name in wanted or every}


def _preset(sources: InMemorySources, name: str) -> Ranker:
    """A preset as a bank with this embedder has it."""
    assert sources.embedder is not None
    config = preset(name, model=not sources.embedder.instant)
    updates = UpdateOrder(lambda _ids: ())

    def rank(question: Question, limit: int) -> Answer:
        found: Recalled = run(
            question.text,
            config,
            sources,
            question.now,
            where=question.where,
            limit=limit,
            updates=updates,
        )
        return answer([hit.memory.id for hit in found.hits], sources, question)

    return rank


def answer(ids: Sequence[str], sources: InMemorySources, question: Question) -> Answer:
    """Without what the set excludes, and with what the first ten would cost a reader."""
    kept = [each for each in ids if each != question.exclude]
    rows = sources.rows_of(kept[:10], question.where)
    texts = sources.texts(np.array([row for row in rows if row is not None], dtype=np.int64))
    return Answer(kept, sum(len(text) for text in texts) // 4)


def _by_scores(
    sources: InMemorySources, question: Question, limit: int, *, words: float, vectors: float
) -> Answer:
    mask = sources.mask(question.where)
    scores = np.zeros(len(mask))
    if words:
        scores += words * sources.scores(query_terms(question.text))
        mask = mask & (scores > 0)
    vector = sources.embed(question.text) if vectors else None
    if vector is not None:
        scores += vectors * (sources.vectors(np.arange(len(mask))) @ vector)
    order = np.argsort(-np.where(mask, scores, -np.inf), kind="stable")[: min(limit, int(mask.sum()))]
    return answer([sources.all[row].id for row in order.tolist()], sources, question)


def _mem0(sources: InMemorySources, question: Question, limit: int) -> Answer:
    """(semantic + sigmoid of BM25) / 2 over the nearest vectors; its entity boost needs its own entity store."""
    vector = sources.embed(question.text)
    if vector is None:
        return Answer([], 0)
    mask = sources.mask(question.where)
    cosine = sources.vectors(np.arange(len(mask))) @ vector
    nearest = np.argsort(-np.where(mask, cosine, -np.inf), kind="stable")
    nearest = nearest[: min(max(4 * limit, POOL), int(mask.sum()))]
    terms = query_terms(question.text)
    words = sources.scores(terms)[nearest]
    middle, steep = next((m, s) for count, m, s in MIDPOINTS if len(terms) <= count)
    keyword = np.where(words > 0, 1 / (1 + np.exp(-steep * (words - middle))), 0.0)
    order = nearest[np.argsort(-(cosine[nearest] + keyword) / 2, kind="stable")]
    return answer([sources.all[row].id for row in order[:limit].tolist()], sources, question)
