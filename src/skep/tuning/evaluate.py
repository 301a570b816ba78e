"""Measuring a config: ask every query, hold the answers against the labels, keep the result.

A result says what it was measured on: the config's hash, the data version, the eval set's hash and the
embedder's fingerprint. Two results are only ever compared when all but the config are equal.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

import msgspec

from skep.bank import Bank
from skep.model import Recalled
from skep.recall.question import Question, made
from skep.recall.search import Recaller
from skep.retrieval.config import from_dict
from skep.storage.base import Filter
from skep.tuning.findings import Finding, RefusedError
from skep.tuning.indexing import data_version, document_of
from skep.tuning.metrics import Overall, QueryScore, overall, score_query
from skep.tuning.search_config import OUTSIDE_RECALL_CONFIG, SearchConfig, config_hash, recall_settings
from skep.tuning.statistics import Interval, bootstrap_interval
from skep.tuning.workspace import EvalQuery, EvalSet, Split

if TYPE_CHECKING:
    import numpy as np

KEY = "tuning/evaluation/"
MEASURED = ("nudcg", "ndcg", "precision", "recall", "mrr")
Timer = Callable[[], float]
Ask = Callable[[str, SearchConfig], Sequence[str]]
"""Answers a query under a config with the document of each chunk, best first."""
Progress = Callable[[int, int], None]


class Circumstances(msgspec.Struct, frozen=True, kw_only=True):
    """What two results must share to be comparable."""

    evals: str
    """Name and hash of the eval set."""
    split: str
    """`tune`, `holdout` or `all`."""
    data: str
    embedder: str


class Evaluation(msgspec.Struct, frozen=True, kw_only=True):
    """How one config did, and on what."""

    config: str
    """Its name, for people."""
    hash: str
    """Its content, for comparing."""
    on: Circumstances
    k: int
    overall: Overall
    intervals: dict[str, Interval]
    scores: tuple[QueryScore, ...]
    at: float = 0.0

    def like(self, other: Evaluation) -> bool:
        """Whether the two were measured on the same things."""
        return self.on == other.on and self.k == other.k

    def by_query(self) -> dict[str, QueryScore]:
        """The scores by the id of their query."""
        return {score.query: score for score in self.scores}


def evals_hash(eval_set: EvalSet) -> str:
    """Name and content of an eval set; equal when it asks the same questions with the same labels."""
    body = msgspec.json.encode((eval_set.k, eval_set.queries))
    return f"{eval_set.name}:{hashlib.sha256(body).hexdigest()[:16]}"


class Searcher:
    """Answers queries as the bank would if a config were deployed, and leaves no trace in the bank."""

    def __init__(self, bank: Bank) -> None:
        self._now = bank.engine.now
        self._recaller = Recaller(bank.engine)
        self._ready: tuple[SearchConfig, Question] | None = None

    def search(self, query: str, config: SearchConfig, *, explain: bool = False) -> Recalled:
        """The answer to one query under one config."""
        if self._ready is None or self._ready[0] != config:
            self._ready = (config, prepared(config))
        return self._recaller.answer(query, self._ready[1], self._now(), explain=explain, count_uses=False)

    def ask(self, query: str, config: SearchConfig) -> list[str]:
        """The document of each chunk in the answer, best first."""
        return [document_of(hit.memory) for hit in self.search(query, config).hits]


def prepared(config: SearchConfig) -> Question:
    """A config as it is asked with: how to rank, what to let in, and how many."""
    settings = recall_settings(config)
    where = Filter(
        kinds=tuple(settings.get("kinds", ())),
        tags=tuple(tuple(group) for group in settings.get("tags", ())),
        valid_at=0.0,  # as of now, which is what is asked later
    )
    ranking = {key: value for key, value in settings.items() if key not in OUTSIDE_RECALL_CONFIG}
    return made(where, settings["limit"], from_dict(ranking))


def score_queries(
    ask: Ask,
    config: SearchConfig,
    queries: Sequence[EvalQuery],
    *,
    k: int,
    timer: Timer = time.perf_counter,
    progress: Progress | None = None,
) -> tuple[QueryScore, ...]:
    """Ask every query and score its answer."""
    scores: list[QueryScore] = []
    for at, query in enumerate(queries, start=1):
        start = timer()
        documents = ask(query.query, config)
        spent = (timer() - start) * 1000
        scores.append(score_query(query.id, documents, query.labels(), k=k, milliseconds=spent))
        if progress is not None:
            progress(at, len(queries))
    return tuple(scores)


def evaluate(
    bank: Bank,
    config: SearchConfig,
    eval_set: EvalSet,
    *,
    rng: np.random.Generator,
    split: Split | None = None,
    timer: Timer = time.perf_counter,
    progress: Progress | None = None,
    ask: Ask | None = None,
) -> Evaluation:
    """Measure a config on one split of an eval set, or on all of it."""
    queries = eval_set.of(split)
    if not queries:
        code = {"tune": "no-tune", "holdout": "no-holdout"}.get(split or "", "empty-evals")
        what = f"no query has the split {split!r}" if split else "the eval set has no queries"
        fix = f"add queries to evals/{eval_set.name}.json"
        raise RefusedError([Finding(code=code, file=f"evals/{eval_set.name}.json", what=what, fix=fix)])
    on = Circumstances(
        evals=evals_hash(eval_set),
        split=split or "all",
        data=data_version(bank, eval_set.collection),
        embedder=bank.status().embedder,
    )
    ask = ask or Searcher(bank).ask
    ask(f"{queries[0].query} ", config)  # opens the index, which is no part of answering
    scores = score_queries(ask, config, queries, k=eval_set.k, timer=timer, progress=progress)
    return Evaluation(
        config=config.name,
        hash=config_hash(config),
        on=on,
        k=eval_set.k,
        overall=overall(scores),
        intervals=intervals(scores, rng),
        scores=scores,
        at=bank.engine.now(),
    )


def intervals(scores: Sequence[QueryScore], rng: np.random.Generator) -> dict[str, Interval]:
    """Bootstrap intervals of the means, over the queries that have an answer."""
    answerable = [score for score in scores if score.answerable]
    return {
        name: bootstrap_interval([cast("float", getattr(score, name)) for score in answerable], rng)
        for name in MEASURED
    }


def save(bank: Bank, evaluation: Evaluation) -> str:
    """Keep a result in the bank; a later one of the same config in the same circumstances replaces it."""
    key = _key(evaluation)
    bank.set_setting(key, msgspec.to_builtins(evaluation))
    return key


def saved(bank: Bank) -> list[Evaluation]:
    """Every result kept in the bank, oldest first."""
    kept: dict[str, Any] = bank.settings(KEY)
    return sorted((msgspec.convert(value, Evaluation) for value in kept.values()), key=lambda found: found.at)


def _key(evaluation: Evaluation) -> str:
    where = msgspec.json.encode((evaluation.on, evaluation.k))
    return f"{KEY}{evaluation.hash}/{hashlib.sha256(where).hexdigest()[:16]}"
