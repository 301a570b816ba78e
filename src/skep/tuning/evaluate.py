"""Evaluation of a config: every query asked, the answers held against the labels, the result kept in the bank.

A result names its circumstances: the config's hash, the data version, the eval set's hash, the embedder's
fingerprint. Two results are compared only when all but the config are equal. `look` shows one query closely.
`SteadySearcher` keeps a bank still for a search over hundreds of configs: candidates depend on the query and the
filter alone, so most of a trial is ranking. Called by `deploy`, `autotune` and `skep tune`.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

import msgspec

from skep.bank.bank import Bank
from skep.filters import Filter
from skep.model import Memory, Recalled
from skep.recall.recaller import Question, Recaller, made
from skep.retrieval.pipeline import run
from skep.retrieval.recall_config import from_dict
from skep.retrieval.sources import BankSources
from skep.tuning.document_index import data_version, document_of
from skep.tuning.findings import Finding, RefusedError
from skep.tuning.metrics import (
    Handed,
    Interval,
    Overall,
    QueryScore,
    bootstrap_interval,
    overall,
    score_query,
)
from skep.tuning.search_config import OUTSIDE_RECALL_CONFIG, SearchConfig, config_hash, recall_settings
from skep.tuning.workspace import EvalQuery, EvalSet, Split

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from skep.index.index import Pool


KEY = "tuning/evaluation/"
MEASURED = ("nudcg", "ndcg", "precision", "recall", "mrr")
Timer = Callable[[], float]
Ask = Callable[[str, SearchConfig], Sequence[Handed]]
"""Answers a query under a config with the document of each chunk, best first."""
Progress = Callable[[int, int], None]


class Circumstances(msgspec.Struct, frozen=True, kw_only=True):
    """The circumstances that two results must share to be comparable."""

    evals: str
    """Name and hash of the eval set."""
    split: str
    """`tune`, `holdout` or `all`."""
    data: str
    embedder: str


class Evaluation(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one config, and its circumstances."""

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
        """True if the two were measured on the same things."""
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

    def ask(self, query: str, config: SearchConfig) -> list[Handed]:
        """The document of each chunk in the answer, best first."""
        return handed(self.search(query, config))


def handed(answer: Recalled) -> list[Handed]:
    """The document of each hit, and whether it was flagged."""
    return [Handed(document_of(hit.memory), "disagreement" in hit.flags) for hit in answer.hits]


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
        answer = ask(query.query, config)
        spent = (timer() - start) * 1000
        scores.append(score_query(query.id, answer, query.labels(), k=k, milliseconds=spent))
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


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """One result."""

    rank: int
    score: float
    chunk: str
    """The chunk id, or the memory's id."""
    document: str
    title: str
    text: str
    ranks: dict[str, int]
    signals: dict[str, float]
    flags: tuple[str, ...]


class Looked(msgspec.Struct, frozen=True, kw_only=True):
    """An answer with everything that explains it."""

    query: str
    config: str
    results: tuple[Found, ...]
    curve: tuple[float, ...]
    """What dynamic-k looks at, of all that it may keep; the answer is the first `len(results)` of them."""
    reason: str
    stages: tuple[str, ...]


def look(searcher: Searcher, query: str, config: SearchConfig) -> Looked:
    """Answer a query and explain the answer."""
    answer = searcher.search(query, config, explain=True)
    whole = answer
    if config.dynamic_k.enabled:
        least = msgspec.structs.replace(config.dynamic_k, min_results=config.retrieval.top_k)
        whole = searcher.search(query, msgspec.structs.replace(config, dynamic_k=least))
    return Looked(
        query=query,
        config=config.name,
        results=tuple(_found(answer)),
        curve=tuple(hit.signals.get("strength", hit.score) for hit in whole.hits),
        reason=answer.reason,
        stages=tuple(
            f"{stage.name}: {stage.kept} kept, {stage.cut} cut" + (f" ({stage.note})" if stage.note else "")
            for stage in answer.trace
        ),
    )


def _found(answer: Recalled) -> list[Found]:
    return [
        Found(
            rank=rank,
            score=hit.score,
            chunk=hit.memory.source or hit.memory.id,
            document=document_of(hit.memory),
            title=hit.memory.title or "",
            text=hit.memory.text,
            ranks=hit.ranks,
            signals=hit.signals,
            flags=hit.flags,
        )
        for rank, hit in enumerate(answer.hits, start=1)
    ]


if TYPE_CHECKING:
    Ints = NDArray[np.int64]
    Singles = NDArray[np.float32]


class SteadySources(BankSources):
    """The sources of a recall, each answer kept."""

    def __init__(self, bank: Bank) -> None:
        super().__init__(bank.engine)
        self._kept: dict[tuple[Any, ...], Any] = {}
        self._read: dict[int, Memory] = {}

    def embed(self, text: str) -> Singles | None:
        """The vector of a query in the active space."""
        key = ("embed", text)
        if key not in self._kept:
            self._kept[key] = super().embed(text)
        return self._kept[key]

    def calibrate(self, cosines: Singles) -> Singles:
        """Raw cosines on the common scale."""
        key = ("calibrate", cosines.shape, cosines.tobytes())
        if key not in self._kept:
            self._kept[key] = super().calibrate(cosines)
        return self._kept[key]

    def search(
        self, terms: Sequence[str], vector: Singles | None, where: Filter, k_words: int, k_vectors: int
    ) -> Pool:
        """Candidates by words and by meaning under one filter."""
        meaning = None if vector is None else vector.tobytes()
        key = ("search", tuple(terms), meaning, msgspec.json.encode(where), k_words, k_vectors)
        if key not in self._kept:
            self._kept[key] = super().search(terms, vector, where, k_words, k_vectors)
        return self._kept[key]

    def texts(self, rows: Ints) -> list[str]:
        """Title and text of each row."""
        key = ("texts", rows.tobytes())
        if key not in self._kept:
            self._kept[key] = super().texts(rows)
        return self._kept[key]

    def memories(self, rows: Ints) -> list[Memory]:
        """The memories of these rows, in the same order."""
        import numpy as np

        wanted = rows.tolist()
        missing = [row for row in wanted if row not in self._read]
        if missing:
            found = super().memories(np.array(missing, dtype=np.int64))
            self._read.update(zip(missing, found, strict=True))
        return [self._read[row] for row in wanted]


class SteadySearcher:
    """Ranks as `Searcher` does, many times faster, on a bank that holds still."""

    def __init__(self, bank: Bank) -> None:
        self._now = bank.engine.now()
        bank.engine.index.refresh()
        self._sources = SteadySources(bank)
        self._ready: tuple[SearchConfig, Question] | None = None

    def ask(self, query: str, config: SearchConfig) -> list[Handed]:
        """The document of each chunk in the answer, best first."""
        if self._ready is None or self._ready[0] != config:
            self._ready = (config, prepared(config))
        asked, now = self._ready[1], self._now
        return handed(run(query, asked.config, self._sources, now, where=asked.at(now), limit=asked.limit))
