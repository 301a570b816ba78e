"""Run rankers over sets and average the metrics."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.quality import metrics
from benchmarks.quality.rankers import Answer, Ranker
from benchmarks.quality.sets import EvalSet, Question

DEPTH = 20
FIGURES = ("recall@5", "recall@10", "recall@20", "ndcg@10", "mrr", "nudcg@10", "misled")


def evaluate(data: EvalSet, rankers: Mapping[str, Ranker]) -> dict[str, Any]:
    """Per ranker: the averages, by kind of question, abstention, tokens and CPU milliseconds per question."""
    return {name: _one(data, ranker) for name, ranker in rankers.items()}


def _one(data: EvalSet, ranker: Ranker) -> dict[str, Any]:
    answered: list[tuple[Question, dict[str, float]]] = []
    quiet: list[tuple[bool, bool]] = []
    tokens: list[int] = []
    started = time.process_time()
    for question in data.questions:
        answer = ranker(question, DEPTH + (question.exclude is not None))
        if metrics.relevant(question.labels):
            answered.append((question, scores(answer, question)))
            tokens.append(answer.tokens)
        if question.answerable is not None:
            quiet.append((not answer.ids, not question.answerable))
    spent = time.process_time() - started
    out: dict[str, Any] = {
        "questions": len(answered),
        "without an answer": sum(not metrics.relevant(q.labels) for q in data.questions),
        **_mean([each for _, each in answered]),
        "tokens@10": round(sum(tokens) / len(tokens)) if tokens else 0,
        "ms": round(1000 * spent / max(len(data.questions), 1), 2),
        "kinds": _by_kind(answered),
    }
    unanswerable = sum(truth for _, truth in quiet)
    if unanswerable:
        silent = sum(said for said, _ in quiet)
        right = sum(said and truth for said, truth in quiet)
        out["abstention accuracy"] = round(sum(said == truth for said, truth in quiet) / len(quiet), 4)
        out["abstained where right"] = round(right / unanswerable, 4)
        out["abstained rightly"] = round(right / silent, 4) if silent else None
        out["unanswerable"] = unanswerable
    return out


def scores(answer: Answer, question: Question) -> dict[str, float]:
    """Every metric of one answer."""
    ids, labels = answer.ids, question.labels
    out = {f"recall@{k}": metrics.recall(ids, labels, k) for k in (5, 10, 20)}
    out["ndcg@10"] = metrics.ndcg(ids, labels, 10)
    out["mrr"] = metrics.reciprocal_rank(ids, labels)
    out["nudcg@10"] = metrics.nudcg(ids, labels, 10)
    out["precision"] = metrics.precision(ids, labels)
    if metrics.distractors(labels):
        out["misled"] = float(metrics.misled(ids, labels))
    return out


def _mean(rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
    found: defaultdict[str, list[float]] = defaultdict(list)
    for row in rows:
        for name, value in row.items():
            found[name].append(value)
    return {name: round(sum(values) / len(values), 4) for name, values in found.items()}


def _by_kind(answered: Sequence[tuple[Question, Mapping[str, float]]]) -> dict[str, dict[str, float]]:
    groups: defaultdict[str, list[Mapping[str, float]]] = defaultdict(list)
    for question, each in answered:
        if question.kind:
            groups[question.kind].append(each)
    return {
        kind: {"questions": len(rows), "recall@10": _mean(rows)["recall@10"]}
        for kind, rows in sorted(groups.items())
    }
