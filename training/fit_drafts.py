"""Fit the matrix by which the word table foretells the vectors of the bundled MiniLM, for texts that wait for it.

Ridge regression on the texts of the topic files; prints the mean cosine with the model's rows on texts left out.

    python -m training.fit_drafts --out src/skep/embedding/data
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from skep.embedding.minilm import MiniLMEmbedder
from skep.embedding.static_table import StaticEmbedder
from training.topics import read_topics

TEXTS = 12_000
RIDGE = 1.0


def texts_of_topics() -> list[str]:
    """Every memory, question and side of a pair, once, in an order that does not depend on their topics."""
    found: dict[str, None] = {}
    for topic in read_topics():
        for text in (
            *(note.text for note in topic.notes),
            *(question.text for question in topic.questions),
            *(text for pair in topic.pairs for text in (pair.earlier, pair.later)),
        ):
            found[text] = None
    texts = list(found)
    np.random.default_rng(0).shuffle(texts)
    return texts[:TEXTS]


def fitted(words: np.ndarray, model: np.ndarray) -> np.ndarray:
    """The matrix that takes rows of the word table nearest to rows of the model."""
    return np.linalg.solve(words.T @ words + RIDGE * np.eye(words.shape[1]), words.T @ model)


def main() -> None:
    """Fit, print how near the drafts come, and write the matrix."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    texts = texts_of_topics()
    words, model = StaticEmbedder().embed(texts), MiniLMEmbedder().embed(texts)
    seen = len(texts) * 9 // 10
    drafts = words[seen:] @ fitted(words[:seen], model[:seen])
    drafts /= np.linalg.norm(drafts, axis=1, keepdims=True)
    print(
        f"mean cosine on {len(texts) - seen} texts left out: {(drafts * model[seen:]).sum(axis=1).mean():.3f}"
    )
    fitted(words, model).astype("<f2").tofile(args.out / "minilm_draft.bin")


if __name__ == "__main__":
    main()
