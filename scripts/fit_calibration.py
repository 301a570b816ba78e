"""Fit the map from an embedder's raw cosines to the common scale, on pairs of texts.

    python scripts/fit_calibration.py --pairs pairs.jsonl.gz ... --texts corpus.jsonl.gz ... [--embedder minilm]

Pairs are gzipped JSON lines with `a`, `b` and `label`; those labelled `duplicate` are paraphrases. Random pairs
and retyped texts are drawn from the texts. Half of the random pairs then lie below 0, three quarters of the
paraphrases above 0.80, and three quarters of the retyped texts above 0.95. Without --embedder the knots are
written beside the bundled table.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from skep.embedding.embedder import Embedder, knots_from, open_embedder
from skep.embedding.static_table import DATA

PER_FILE = 1500
Pair = tuple[str, str]


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The rows of a gzipped JSON lines file."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def sample(found: list[Any], chance: random.Random) -> list[Any]:
    """At most PER_FILE of them."""
    return chance.sample(found, min(PER_FILE, len(found)))


def retype(text: str, chance: random.Random) -> str:
    """The text as someone might type it again: other case or ending, a word left out, a letter lost."""
    words = text.split()
    place = chance.randrange(len(words))
    changes: list[Callable[[], str]] = [
        lambda: text.lower().rstrip(".!?"),
        lambda: text.rstrip(".") + "!",
        lambda: " ".join(words[:place] + words[place + 1 :]),
        lambda: " ".join([*words[:place], words[place][:-1], *words[place + 1 :]]),
    ]
    return chance.choice(changes)()


def cosines(embedder: Embedder, pairs: Sequence[Pair]) -> list[float]:
    """The raw cosine of every pair."""
    left, right = (embedder.embed([pair[side] for pair in pairs]) for side in (0, 1))
    return np.einsum("ij,ij->i", left, right).tolist()


def main() -> None:
    """Fit, print and, for the bundled table, store."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=Path, nargs="+", required=True)
    parser.add_argument("--texts", type=Path, nargs="+", required=True)
    parser.add_argument("--embedder", default="static")
    args = parser.parse_args()
    chance = random.Random(0)
    paraphrases: list[Pair] = []
    for path in args.pairs:
        same = [(row["a"], row["b"]) for row in read_lines(path) if row["label"] == "duplicate"]
        paraphrases += sample([pair for pair in same if pair[0] != pair[1]], chance)
    unrelated: list[Pair] = []
    retyped: list[Pair] = []
    for path in args.texts:
        texts = sample([row["text"] for row in read_lines(path) if len(row["text"].split()) > 5], chance)
        unrelated += zip(texts, chance.sample(texts, len(texts)), strict=True)
        retyped += ((text, retype(text, chance)) for text in texts)
    embedder = open_embedder(args.embedder)
    knots = knots_from(*(cosines(embedder, pairs) for pairs in (unrelated, paraphrases, retyped)))
    knots = [[round(raw, 3), common] for raw, common in knots]
    print(json.dumps(knots))
    if args.embedder == "static":
        described = Path(DATA) / "static.json"
        about = json.loads(described.read_text())
        described.write_text(json.dumps(about | {"knots": knots}, indent=1) + "\n")


if __name__ == "__main__":
    main()
