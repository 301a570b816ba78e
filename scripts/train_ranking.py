"""Fit the weights of the second look on labelled sets, and say what to expect on sets of a new kind.

    python scripts/train_ranking.py --data FOLDER              # FOLDER holds the evaluation sets (conv/NAME)

Every question is asked once with `default`; the signals of its short list are kept. Then the weights are moved one at a
time, in coarse steps, as long as the mean over families of sets gains: recall@10, a quarter of MRR, and less the share
of questions in which a distractor comes first. A family that loses counts three times, so that no set pays for another.
Few weights and coarse steps are on purpose: boosted trees and freely fitted linear models over seventy features did
worse on families they had not seen than the weights set by hand.

Printed are the weights, and for each family the figures with weights that were fitted without it.
The chosen weights stand in `skep.retrieval.recall_config`; nothing is written.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks.quality import sets
from benchmarks.quality.sets import Question

from skep.embedding.embedder import default_embedder
from skep.retrieval import candidates, pipeline, query
from skep.retrieval import score as score_module
from skep.retrieval.query import understand
from skep.retrieval.recall_config import PRESETS
from skep.retrieval.shortlist import second_look
from skep.retrieval.sources import InMemorySources

FAMILIES = {"locomo": "locomo", "amplihack": "amplihack", "scifact": "scifact", "factcon": "factcon"}
"""Sets whose names begin alike share texts or makers: they are held out together."""
MOST_MEMORIES = 20_000
MOST_QUESTIONS = 400
STEPS = (-0.2, -0.1, -0.05, 0.05, 0.1, 0.2)
ROUNDS = 4
LEAST_GAIN = 0.0004
MRR_SHARE, MISLED_SHARE, LOSS_SHARE, MOST_GAIN = 0.25, 0.05, 2.0, 0.03
SIGNALS = (
    "lexical", "semantic", "coverage", "numbers", "late", "close", "contrast", "peers", "subject", "wanted", "in_time",
)  # fmt: skip
DEFAULT = PRESETS["default"]
UNIT = candidates.unit(DEFAULT)
ASKED = msgspec.structs.replace(DEFAULT, currency=False, temporal="off", floor=0.0, relative_floor=0.0)

Weights = dict[str, float]


class Table(NamedTuple):
    """The short lists of one set: questions in rows, places in columns."""

    signals: dict[str, np.ndarray]
    rest: np.ndarray
    """What the score holds apart from the signals."""
    labels: np.ndarray
    filled: np.ndarray
    answers: np.ndarray
    """How many memories answer each question."""


class Figures(NamedTuple):
    """How one ranking does on one set."""

    recall: float
    mrr: float
    misled: float


def weights_now() -> Weights:
    """The weights of `default`."""
    out = {name: float(getattr(DEFAULT, name)) for name in SIGNALS if hasattr(DEFAULT, name)}
    out |= {name: DEFAULT.weights[name] for name in ("lexical", "semantic")}
    return out | {"in_time": DEFAULT.temporal_boost / UNIT}


def signals_of(
    question: Question, sources: InMemorySources
) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
    """Rows, scores and signals of the short list, best first."""
    asked = understand(question.text, question.now)
    vector = sources.embed(question.text)
    call = candidates.Call(asked, ASKED, sources, question.where, question.now, vector)
    found = pipeline._gather(call)
    found = second_look(found, call) if len(found) else found
    size = min(ASKED.shortlist, len(found))
    kept = {name: values[:size] for name, values in found.signals.items() if name in SIGNALS}
    kept["semantic"] = score_module.minmax(found.cosine, ~np.isnan(found.cosine))[:size]
    if asked.wants in query.READERS and size:
        kept["wanted"] = query.wanted(asked.wants, sources.texts(found.rows[:size]))
    times = found.created_at[:size]
    inside = [(times >= span.start) & (times < span.end) for span in asked.spans]
    if inside:
        kept["in_time"] = np.any(inside, axis=0).astype(float)
    return found.rows[:size], found.score[:size], kept


def table_of(root: Path, name: str) -> Table | None:
    """Ask every question of a set once."""
    data = sets.load(root, name)
    if len(data.memories) > MOST_MEMORIES:
        return None
    questions = [q for q in data.questions if any(grade > 0 for grade in q.labels.values())]
    if not questions:
        return None
    if len(questions) > MOST_QUESTIONS:
        chosen = np.random.default_rng(0).choice(len(questions), MOST_QUESTIONS, replace=False)
        questions = [questions[at] for at in chosen]
    sources = InMemorySources(data.memories, default_embedder())
    shape = (len(questions), ASKED.shortlist)
    out = Table(
        {each: np.zeros(shape) for each in SIGNALS},
        np.zeros(shape),
        np.zeros(shape, np.int8),
        np.zeros(shape, bool),
        np.array([sum(grade > 0 for grade in q.labels.values()) for q in questions]),
    )
    now = weights_now()
    for at, question in enumerate(questions):
        rows, score, kept = signals_of(question, sources)
        ids = [sources.all[row].id for row in rows.tolist()]
        size = len(ids)
        out.labels[at, :size] = [question.labels.get(each, 0) for each in ids]
        out.filled[at, :size] = [each != question.exclude for each in ids]
        out.rest[at, :size] = score
        for each, values in kept.items():
            out.signals[each][at, :size] = values
            if each != "in_time":
                out.rest[at, :size] -= UNIT * now[each] * values
    return out


def scored(table: Table, weights: Weights) -> np.ndarray:
    """The score of every place."""
    return table.rest + UNIT * sum(weight * table.signals[name] for name, weight in weights.items())


def figures(table: Table, score: np.ndarray) -> Figures:
    """Recall@10, MRR, and how often a distractor comes first."""
    order = np.argsort(-np.where(table.filled, score, -np.inf), axis=1, kind="stable")
    labels = np.take_along_axis(np.where(table.filled, table.labels, 0), order, 1)
    good, bad = labels > 0, labels < 0
    first = np.where(good.any(1), good.argmax(1), 10_000)
    wrong = np.where(bad.any(1), bad.argmax(1), 10_001)
    tempted = bad.any(1)
    return Figures(
        float((good[:, :10].sum(1) / table.answers).mean()),
        float(np.where(good.any(1), 1 / (first + 1), 0.0).mean()),
        float((wrong < first)[tempted].mean()) if tempted.any() else 0.0,
    )


def family(name: str) -> str:
    """The sets that are held out together with this one."""
    return next((each for start, each in FAMILIES.items() if name.startswith(start)), name)


def worth(found: Mapping[str, Figures], before: Mapping[str, Figures]) -> float:
    """The gain over all families; losses count more."""
    gains: dict[str, list[float]] = {}
    for name, each in found.items():
        was = before[name]
        gain = each.recall - was.recall + MRR_SHARE * (each.mrr - was.mrr)
        gains.setdefault(family(name), []).append(gain - MISLED_SHARE * (each.misled - was.misled))
    means = np.array([np.mean(each) for each in gains.values()])
    return float(np.minimum(means, MOST_GAIN).mean() + LOSS_SHARE * np.minimum(means, 0).mean())


def fit(tables: Mapping[str, Table], start: Weights) -> Weights:
    """Move one weight at a time while it pays."""
    scores = {name: scored(table, start) for name, table in tables.items()}
    before = {name: figures(table, scores[name]) for name, table in tables.items()}
    weights, best = dict(start), 0.0
    for _ in range(ROUNDS):
        moved = False
        for signal in SIGNALS:
            tried: list[tuple[float, float]] = []
            for step in STEPS:
                weight = max(0.0, weights[signal] + step)
                shift = UNIT * (weight - weights[signal])
                found = {n: figures(t, scores[n] + shift * t.signals[signal]) for n, t in tables.items()}
                tried.append((worth(found, before), weight))
            gain, weight = max(tried)
            if gain > best + LEAST_GAIN:
                shift = UNIT * (weight - weights[signal])
                scores = {n: scores[n] + shift * t.signals[signal] for n, t in tables.items()}
                best, weights[signal], moved = gain, round(weight, 3), True
        if not moved:
            break
    return weights


def report(tables: Mapping[str, Table], start: Weights) -> None:
    """Fit on everything, then without each family in turn."""
    print("weights of default:", json.dumps(start))
    print("fitted on all sets:", json.dumps(fit(tables, start)))
    print("\nset                 default R@10 MRR misled   fitted without its family")
    for each in sorted({family(name) for name in tables}):
        weights = fit({name: table for name, table in tables.items() if family(name) != each}, start)
        for name in (name for name in tables if family(name) == each):
            was, found = (figures(tables[name], scored(tables[name], w)) for w in (start, weights))
            print(
                f"{name:20s}" + "   ".join(f"{f.recall:.3f} {f.mrr:.3f} {f.misled:.2f}" for f in (was, found))
            )


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the sets, fit, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", required=True, type=Path, help="folder of the sets")
    parser.add_argument("--sets", nargs="*", help="which sets; all that have labels by default")
    parser.add_argument("--plain", action="store_true", help="start with the newer signals at 0")
    given = parser.parse_args(arguments)
    tables: dict[str, Table] = {}
    for name in given.sets or sets.names(given.data):
        table = table_of(given.data, name) if name != "commits" else None
        if table is not None:
            tables[name] = table
    start = weights_now()
    if given.plain:
        start |= dict.fromkeys(("numbers", "close", "contrast", "peers"), 0.0)
    report(tables, start)


if __name__ == "__main__":
    main()
