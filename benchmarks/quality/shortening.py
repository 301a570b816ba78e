"""What shortens an answer and what marks a distractor, on labelled sets: `python -m benchmarks.quality.shortening`.

Dynamic-k beside a fixed number of results of the same mean (recall interpolated between the two whole numbers around
it), and the flag `disagreement` on results that answer and on labelled distractors, under `rrf` with ten results.

    python -m benchmarks.quality.shortening --data FOLDER SET ...
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.quality.sets import EvalSet, load, load_own
from skep.embedding.embedder import default_embedder
from skep.model import Hit
from skep.retrieval.pipeline import run
from skep.retrieval.recall_config import from_dict
from skep.retrieval.sources import InMemorySources

TOP = 10
RRF = {"fusion": "rrf", "weights": {"semantic": 1.0, "lexical": 1.0}}
FACTORS = (2.0, 3.0)


class Answered(NamedTuple):
    """One question with an answer: its labels and its first results, whole and by factor of the cliff."""

    labels: dict[str, int]
    whole: Sequence[Hit]
    kept: dict[float, int]

    def recall(self, count: int) -> float:
        """The share of relevant memories among the first so many results."""
        found = sum(self.labels.get(hit.memory.id, 0) > 0 for hit in self.whole[:count])
        return found / sum(grade > 0 for grade in self.labels.values())

    def precision(self, count: int) -> float:
        """The share of relevant memories among the first so many results, of those."""
        return sum(self.labels.get(hit.memory.id, 0) > 0 for hit in self.whole[:count]) / max(1, count)


def ask(data: EvalSet, most: int) -> list[Answered]:
    """Every question that has an answer, at most so many."""
    sources = InMemorySources(data.memories, default_embedder())
    found: list[Answered] = []
    for question in [each for each in data.questions if any(g > 0 for g in each.labels.values())][:most]:
        config = from_dict(RRF)
        whole = run(question.text, config, sources, question.now, where=question.where, limit=TOP)
        kept: dict[float, int] = {}
        for factor in FACTORS:
            config = from_dict({**RRF, "dynamic_k": True, "cliff": factor})
            cut = run(question.text, config, sources, question.now, where=question.where, limit=TOP)
            kept[factor] = len(cut.hits)
        found.append(Answered(question.labels, whole.hits, kept))
    return found


def shortened(answered: Sequence[Answered], factor: float) -> str:
    """Dynamic-k in figures, beside a fixed number of results of the same mean."""
    count = len(answered)
    mean = math.fsum(each.kept[factor] for each in answered) / count
    low, share = int(mean), mean - int(mean)

    def fixed(name: str) -> float:
        return math.fsum(
            (1 - share) * getattr(each, name)(low) + share * getattr(each, name)(low + 1) for each in answered
        )

    own = {
        name: math.fsum(getattr(each, name)(each.kept[factor]) for each in answered)
        for name in ("recall", "precision")
    }
    return (
        f"factor {factor:g}: {mean:.2f} results, precision {own['precision'] / count:.2f} "
        f"({fixed('precision') / count:.2f}), recall {own['recall'] / count:.2f} ({fixed('recall') / count:.2f})"
    )


def flagged(answered: Sequence[Answered]) -> str:
    """How many distractors and how many relevant results are flagged."""
    told: list[str] = []
    counts: list[int] = []
    for name, sign in (("distractors", -1), ("relevant", 1)):
        hits = [
            hit for each in answered for hit in each.whole if each.labels.get(hit.memory.id, 0) * sign > 0
        ]
        counts.append(sum("disagreement" in hit.flags for hit in hits))
        told.append(f"{counts[-1]} of {len(hits)} {name}")
    return f"flagged: {', '.join(told)}; precision {counts[0] / max(1, sum(counts)):.2f}"


def main() -> None:
    """Print the figures of each set; in brackets those of a fixed number of results."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, help="folder of evaluation sets; without it, the project's own")
    parser.add_argument("--most", type=int, default=300, help="questions of a set, at most")
    parser.add_argument("sets", nargs="*")
    given = parser.parse_args()
    for name in given.sets or ["own"]:
        answered = ask(load(given.data, name) if given.data else load_own(), given.most)
        print(
            f"{name}, {len(answered)} questions", *(shortened(answered, one) for one in FACTORS), sep="\n  "
        )
        print(f"  {flagged(answered)}", flush=True)


if __name__ == "__main__":
    main()
