"""Fit the levels of hits (`skep.retrieval.score`) on the topic files, and measure them on writers left out.

The banks, the questions and the published encoder are those of `training.fit_update_order`; questions that nothing
answers take part. A hit is right where it is one of the answers. Needs scikit-learn; minutes on a processor.

    python -m training.fit_levels --published published
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from skep.filters import Filter
from skep.model import Memory
from skep.recall.update_order import UpdateOrder
from skep.retrieval import score as levels
from skep.retrieval.pipeline import Call, Candidates, run
from skep.retrieval.recall_config import preset
from skep.retrieval.sources import InMemorySources
from training.fit_update_order import EVERYWHERE, Known, banks
from training.topics import Topic, read_topics

HITS = 5
Array = Any


def rows(bank: Sequence[Topic], embedder: Known) -> Iterator[tuple[Array, Array]]:
    """The features of the first hits of every question, and which of them are right."""
    memories: list[Memory] = []
    for number, topic in enumerate(bank):
        for note in topic.notes:
            at = datetime.fromisoformat(note.at).timestamp() + len(memories)
            name = f"{number}.{note.id}"
            memories.append(
                Memory(id=name, kind=note.kind, text=note.text, created_at=at, last_evidence_at=at)
            )
    sources = InMemorySources(memories, embedder)
    now = max(memory.created_at for memory in memories) + 86_400
    config, order = preset("default", model=True), UpdateOrder()
    where = Filter(scope=EVERYWHERE, min_confidence=0.0, now=now)
    for number, topic in enumerate(bank):
        for question in topic.questions:
            right = {f"{number}.{each}" for each in question.answers}
            seen: list[tuple[Array, Array]] = []

            def note(found: Candidates, call: Call) -> Candidates:
                found = order(found, call)
                head = found.first(HITS + 1)
                rival = head.signals.get(levels.RIVAL, np.zeros(len(head)))
                ids = [memory.id for memory in call.memories(head.rows)]
                seen.append(
                    (levels.level_features(head.score, rival)[:HITS], np.isin(ids, list(right))[:HITS])
                )  # noqa: B023
                return found

            run(question.text, config, sources, now, where=where, updates=note)
            yield seen[0]


def main() -> None:
    """Print weights, and how often hits of each level are right, by writer left out."""
    from sklearn.linear_model import LogisticRegression

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--published", type=Path, required=True, help="folder of the published encoder")
    embedder = Known(parser.parse_args().published)
    x, y, writers = [], [], []
    for bank in banks(read_topics()):
        for features, right in rows(bank, embedder):
            x.append(features)
            y.append(right)
            writers += [bank[0].writer] * len(right)
    x, y, writer = np.concatenate(x), np.concatenate(y), np.array(writers)

    def fit(chosen: Array) -> Any:
        return LogisticRegression(C=10, max_iter=2000).fit(x[chosen], y[chosen])

    whole = fit(np.ones(len(y), bool))
    print("weights", whole.coef_[0].round(3).tolist(), "bias", round(float(whole.intercept_[0]), 3))
    likely = np.zeros(len(y))
    for each in sorted(set(writers)):
        likely[writer == each] = fit(writer != each).predict_proba(x[writer == each])[:, 1]
    for low, high in (
        (0.0, 0.3),
        (0.3, 0.4),
        (0.4, 0.5),
        (0.5, 0.6),
        (0.6, 0.7),
        (0.7, 0.75),
        (0.75, 0.8),
        (0.8, 1.01),
    ):
        chosen = (likely >= low) & (likely < high)
        print(f"{low:.2f} to {high:.2f}: {chosen.sum()} hits, {y[chosen].mean():.3f} right")


if __name__ == "__main__":
    main()
