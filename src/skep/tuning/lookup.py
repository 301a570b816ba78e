"""One query, looked at closely: what was found, by which signal, what was flagged, and where the answer stopped."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import msgspec

from skep.model import Recalled
from skep.tuning.evaluate import Searcher
from skep.tuning.indexing import document_of
from skep.tuning.search_config import SearchConfig


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
    """Scores as they would be without dynamic-k; the answer is the first `len(results)` of them."""
    cut: str
    """Where dynamic-k stopped and why; empty when it did not."""
    reason: str
    stages: tuple[str, ...]


def look(searcher: Searcher, query: str, config: SearchConfig) -> Looked:
    """Answer a query and explain the answer."""
    answer = searcher.search(query, config, explain=True)
    curve = [hit.score for hit in answer.hits]
    cut = ""
    if config.dynamic_k.enabled:
        fixed = msgspec.structs.replace(config.dynamic_k, enabled=False)
        limit = min(config.retrieval.top_k, config.dynamic_k.max_results)
        found_by = msgspec.structs.replace(config.retrieval, top_k=limit)
        whole = msgspec.structs.replace(config, dynamic_k=fixed, retrieval=found_by)
        curve = [hit.score for hit in searcher.search(query, whole).hits]
        cut = explain_cut(curve, len(answer.hits))
    return Looked(
        query=query,
        config=config.name,
        results=tuple(_found(answer)),
        curve=tuple(curve),
        cut=cut,
        reason=answer.reason,
        stages=tuple(
            f"{stage.name}: {stage.kept} kept, {stage.cut} cut" + (f" ({stage.note})" if stage.note else "")
            for stage in answer.trace
        ),
    )


def explain_cut(scores: Sequence[float], kept: int) -> str:
    """Why dynamic-k stopped after `kept` results; empty when it did not.

    >>> explain_cut([0.0328, 0.0318, 0.0307, 0.0295, 0.0281, 0.0266, 0.0198], 6)
    'stopped after 6: the next gap (0.0068) is 5.5 times the mean of those before it (0.0012)'
    """
    if not 0 < kept < len(scores):
        return ""
    gaps = [before - after for before, after in pairwise(scores)]
    gap = gaps[kept - 1]
    others, where = (gaps[: kept - 1], "before") if kept > 1 else (gaps[1:], "after")
    mean = sum(others) / len(others) if others else 0.0
    times = f"{gap / mean:.1f} times" if mean > 0 else "far above"
    return (
        f"stopped after {kept}: the next gap ({gap:.4f}) is {times} the mean of those {where} it ({mean:.4f})"
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
