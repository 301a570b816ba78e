"""Figures of the comparer on writers left out, with a control that knows cosine and word overlap alone.

`python -m training.fit_judge --left-out 3 --seed 1` prints the tables of `training/JUDGE.md`.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np

from skep.semantics.pair_judge import FEATURES, KINDS
from training.fit_judge import (
    LINK_STRENGTH,
    NOTE_WEIGHT,
    TEMPLATE_WEIGHT,
    VERDICT_STRENGTH,
    Columns,
    Row,
    fit,
    targets,
)

BARS = (0.5, 0.7, 0.8, 0.9, 0.95)
Array = Any


def report(rows: Sequence[Row], columns: Columns, folds: int, seed: int) -> None:
    """Print tables in Markdown."""
    fold = _folds(rows, folds, seed)
    link, label = targets(rows)
    source = np.array([row.source for row in rows])
    overlap = columns.words[:, [FEATURES.index("shared"), FEATURES.index("shared_all")]]
    sets = {
        "control: similarity and overlap": np.concatenate([columns.near, overlap], 1),
        "words and similarity (shipped)": np.concatenate([columns.words, columns.near], 1),
        "words": columns.words,
    }
    weight = np.ones(len(rows), np.float32)
    weight[source == "notes"], weight[source == "templates"] = NOTE_WEIGHT, TEMPLATE_WEIGHT
    print(
        "## Verdicts\n| features | rows | conflict AP | same AP | "
        + " | ".join(f"at {b}" for b in BARS)
        + " |"
    )
    print("|---" * (4 + len(BARS)) + "|", flush=True)
    for name, x in sets.items():
        logits = _left_out(x, label, weight, fold, VERDICT_STRENGTH)
        chances = np.exp(logits - logits.max(1, keepdims=True))
        chances /= chances.sum(1, keepdims=True)
        against, true = chances[:, 1] + chances[:, 2], (label == 1) | (label == 2)
        for kind in ("pairs", "templates", "notes"):
            at = source == kind
            cells = [_at(against[at], true[at], label[at] == KINDS.index("both"), bar) for bar in BARS]
            same = (
                f"{average_precision(chances[at, 0], label[at] == 0):.3f}" if (label[at] == 0).any() else "-"
            )
            cells = [name, kind, f"{average_precision(against[at], true[at]):.3f}", same, *cells]
            print(f"| {' | '.join(cells)} |", flush=True)
    print("\n## Links\n| features | notes AP | pairs AP |\n|---|---|---|", flush=True)
    chosen = link >= 0
    full = np.concatenate([columns.words, columns.vectors], 1)
    for name, x in (
        ("control: cosine", columns.vectors[:, :6]),
        ("words", columns.words),
        ("words and vectors", full),
    ):
        scores = np.full(len(rows), np.nan)
        told = np.concatenate([x, columns.source], 1)
        plain = np.concatenate([x, np.zeros_like(columns.source)], 1)
        for each in range(folds):
            train, test = chosen & (fold != each), fold == each
            weights = fit(told[train], link[train], np.ones(int(train.sum()), np.float32), LINK_STRENGTH)
            scores[test] = (plain[test] @ weights[:, :-1].T + weights[:, -1])[:, 0]
        parts = [chosen & (source == kind) for kind in ("notes", "pairs")]
        cells = [f"{average_precision(scores[at], link[at] == 1):.3f}" for at in parts]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


def average_precision(scores: Array, true: Array) -> float:
    """The mean precision at the place of each true row."""
    found = true[np.argsort(-scores, kind="stable")]
    return float((np.cumsum(found) / np.arange(1, len(found) + 1))[found].mean())


def _folds(rows: Sequence[Row], folds: int, seed: int) -> Array:
    """Which group each row is left out with: whole writers, and whole patterns of the templates."""
    writers = sorted({row.writer for row in rows})
    random.Random(seed).shuffle(writers)
    place = {writer: number % folds for number, writer in enumerate(writers)}
    return np.array([place[row.writer] for row in rows])


def _left_out(x: Array, y: Array, weight: Array, fold: Array, strength: float) -> Array:
    """Logits of each row, from weights that were fitted without its group."""
    logits = np.zeros((len(y), len(KINDS)))
    for each in range(int(fold.max()) + 1):
        train = fold != each
        weights = fit(x[train], y[train], weight[train], strength)
        logits[~train] = x[~train] @ weights[:, :-1].T + weights[:, -1]
    return logits


def _at(against: Array, true: Array, both: Array, bar: float) -> str:
    """Precision, recall, and the share of look-alikes that are called a conflict."""
    called = against >= bar
    precision = true[called].mean() if called.any() else float("nan")
    return f"{precision:.2f} / {called[true].mean():.2f} / {called[both].mean():.3f}"
