"""The bundled sentence encoder: a six-layer MiniLM with int8 weights, run by numpy alone.

A text costs 5 to 10 milliseconds, so that one memory or one question is embedded in place, and many are left to the
queue. The weights lie beside this module; `scripts/build_minilm.py` makes them, NOTICE names their origin.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from skep.embedding.embedder import Calibration
from skep.errors import EmbedderUnavailableError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from skep.embedding.embedder import Vectors
    from skep.embedding.wordpiece import WordPiece

DATA = os.path.join(os.path.dirname(__file__), "data")
LAYERS, HEADS, WIDTH, INNER = 6, 12, 384, 1536
LIMIT = 256
"""Word pieces of a text that are read, its two marks included; what follows them has no say."""
TOKENS = 512
"""Word pieces of one pass: what fits the caches of a processor."""
CLS, SEP = 101, 102
REINSTALL = "reinstall skep, make it with scripts/build_minilm.py, or open the bank with embedder='static'"


class Layout(NamedTuple):
    """One tensor of the file: its name, its shape, and whether it is int8 with one scale per row."""

    name: str
    shape: tuple[int, ...]
    scaled: bool


def layout() -> list[Layout]:
    """The tensors in the order in which they lie in the file; dense weights as (output, input)."""
    tensors = [
        Layout("word", (30522, WIDTH), True),
        Layout("position", (LIMIT, WIDTH), False),
        Layout("norm.weight", (WIDTH,), False),
        Layout("norm.bias", (WIDTH,), False),
    ]
    for layer in range(LAYERS):
        for name, outputs, inputs in (
            ("mixer", 3 * WIDTH, WIDTH),
            ("mixed", WIDTH, WIDTH),
            ("inner", INNER, WIDTH),
            ("outer", WIDTH, INNER),
        ):
            tensors.append(Layout(f"{layer}.{name}.weight", (outputs, inputs), True))
            tensors.append(Layout(f"{layer}.{name}.bias", (outputs,), False))
        for name in ("first", "second"):
            tensors.append(Layout(f"{layer}.{name}.weight", (WIDTH,), False))
            tensors.append(Layout(f"{layer}.{name}.bias", (WIDTH,), False))
    return tensors


class _Layer(NamedTuple):
    """The weights of one layer, dense ones as (input, output)."""

    mixer: tuple[NDArray[np.float32], NDArray[np.float32]]
    mixed: tuple[NDArray[np.float32], NDArray[np.float32]]
    inner: tuple[NDArray[np.float32], NDArray[np.float32]]
    outer: tuple[NDArray[np.float32], NDArray[np.float32]]
    first: tuple[NDArray[np.float32], NDArray[np.float32]]
    second: tuple[NDArray[np.float32], NDArray[np.float32]]


class _Model(NamedTuple):
    """All weights; those of words stay int8, since a text looks up a few rows."""

    words: NDArray[np.int8]
    word_scales: NDArray[np.float32]
    positions: NDArray[np.float32]
    norm: tuple[NDArray[np.float32], NDArray[np.float32]]
    layers: list[_Layer]


class MiniLMEmbedder:
    """Sentence vectors from the bundled transformer, without a download and without another library."""

    at_once = 64
    """So many texts may be embedded while a caller waits; more are left to the queue."""

    def __init__(self, folder: str | os.PathLike[str] = DATA) -> None:
        self._folder = os.fspath(folder)
        about = _about(self._folder)
        self._fingerprint: str = about["fingerprint"]
        self.calibration = Calibration(about["knots"])

    @property
    def fingerprint(self) -> str:
        """Names the model, its dimension and its weights."""
        return self._fingerprint

    @property
    def dim(self) -> int:
        """The length of every row."""
        return WIDTH

    @property
    def instant(self) -> bool:
        """Never: milliseconds per text."""
        return False

    def calibrate(self, cosine: float) -> float:
        """Map a raw cosine of this model to the common scale."""
        return self.calibration(cosine)

    @cached_property
    def _wordpiece(self) -> WordPiece:
        from skep.embedding.static_table import bundled_wordpiece

        return bundled_wordpiece()

    def embed(self, texts: Sequence[str]) -> Vectors:
        """One unit row per text; a text without a word gives a zero row."""
        import numpy as np

        out = np.zeros((len(texts), WIDTH), np.float32)
        rows = [self._wordpiece.ids(text)[: LIMIT - 2] for text in texts]
        waiting = sorted((number for number, row in enumerate(rows) if row), key=lambda at: len(rows[at]))
        while waiting:
            longest = len(rows[waiting[-1]]) + 2
            batch = waiting[-max(1, TOKENS // longest) :]
            del waiting[-len(batch) :]
            out[batch] = self._encode([[CLS, *rows[at], SEP] for at in batch])
        return out

    def _encode(self, rows: Sequence[Sequence[int]]) -> Vectors:
        """Token states of one batch, averaged to one unit row per text.

        The texts stand one behind another without padding; only attention takes them apart.
        """
        import numpy as np

        model = _model(self._folder)
        sizes = [len(row) for row in rows]
        ends = np.cumsum(sizes)
        spans = [(int(end) - size, int(end)) for end, size in zip(ends, sizes, strict=True)]
        ids = np.concatenate([np.asarray(row, np.intp) for row in rows])
        x = model.words[ids] * model.word_scales[ids, None]
        for start, end in spans:
            x[start:end] += model.positions[: end - start]
        x = _normalised(x, model.norm)
        for layer in model.layers:
            x = _attended(x, layer, spans)
        out = np.stack([x[start:end].mean(axis=0) for start, end in spans])
        out /= np.linalg.norm(out, axis=1, keepdims=True)
        return out


def _attended(x: NDArray[np.float32], layer: _Layer, spans: Sequence[tuple[int, int]]) -> NDArray[np.float32]:
    """One layer of the transformer."""
    import numpy as np

    mixed = np.empty_like(x)
    every = _dense(x, layer.mixer).reshape(len(x), 3, HEADS, WIDTH // HEADS)
    for start, end in spans:
        query, key, value = every[start:end].transpose(1, 2, 0, 3)
        scores = query @ key.transpose(0, 2, 1)
        scores -= scores.max(axis=-1, keepdims=True)
        np.exp(scores, out=scores)
        scores /= scores.sum(axis=-1, keepdims=True)
        mixed[start:end] = (scores @ value).transpose(1, 0, 2).reshape(end - start, WIDTH)
    x = _normalised(x + _dense(mixed, layer.mixed), layer.first)
    return _normalised(x + _dense(_gelu(_dense(x, layer.inner)), layer.outer), layer.second)


def _dense(
    x: NDArray[np.float32], weights: tuple[NDArray[np.float32], NDArray[np.float32]]
) -> NDArray[np.float32]:
    out = x @ weights[0]
    out += weights[1]
    return out


def _normalised(
    x: NDArray[np.float32], weights: tuple[NDArray[np.float32], NDArray[np.float32]]
) -> NDArray[np.float32]:
    """Layer normalisation, in place."""
    import numpy as np

    x -= x.mean(axis=-1, keepdims=True)
    x *= 1.0 / np.sqrt(np.einsum("ij,ij->i", x, x)[:, None] / WIDTH + 1e-12)
    x *= weights[0]
    x += weights[1]
    return x


def _gelu(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """The Gaussian error linear unit, its error function by Abramowitz and Stegun 7.1.26 (error below 1.5e-7)."""
    import numpy as np

    size = np.abs(x)
    size *= math.sqrt(0.5)
    t = 1 / (1 + 0.3275911 * size)
    tail = np.float32(1.061405429) * t
    for coefficient in (-1.453152027, 1.421413741, -0.284496736, 0.254829592):
        tail += np.float32(coefficient)
        tail *= t
    size *= size
    np.negative(size, out=size)
    tail *= np.exp(size, out=size)
    tail -= 1
    np.copysign(tail, x, out=tail)  # the error function: 1 - tail above 0, tail - 1 below
    tail += 1
    tail *= x
    tail *= np.float32(0.5)
    return tail


@lru_cache(maxsize=4)
def _about(folder: str) -> dict[str, object]:
    try:
        with open(os.path.join(folder, "minilm.json"), "rb") as file:
            return msgspec.json.decode(file.read())
    except FileNotFoundError as error:
        raise EmbedderUnavailableError(
            f"the sentence encoder is missing from {folder}; {REINSTALL}"
        ) from error


@lru_cache(maxsize=2)
def _model(folder: str) -> _Model:
    """The weights of a file, kept for as long as the process lives: several banks share them."""
    import numpy as np

    try:
        raw = np.fromfile(os.path.join(folder, "minilm.bin"), np.uint8)
    except FileNotFoundError as error:
        raise EmbedderUnavailableError(
            f"the sentence encoder is missing from {folder}; {REINSTALL}"
        ) from error
    tensors = layout()
    expected = sum(
        math.prod(each.shape) * (1 if each.scaled else 4) + 4 * each.shape[0] * each.scaled
        for each in tensors
    )
    if len(raw) != expected:
        raise EmbedderUnavailableError(
            f"the sentence encoder has {len(raw)} bytes instead of {expected}; {REINSTALL}"
        )
    at = 0

    def taken(kind: str, count: int) -> NDArray[np.generic]:
        nonlocal at
        found = raw[at : (at := at + count * np.dtype(kind).itemsize)].view(kind)
        return found

    found: dict[str, NDArray[np.float32]] = {}
    words = np.zeros((0, 0), np.int8)
    for name, shape, scaled in tensors:
        if not scaled:
            found[name] = taken("<f4", math.prod(shape)).reshape(shape)
            continue
        scales = taken("<f4", shape[0])
        rows = taken("i1", math.prod(shape)).reshape(shape)
        if name == "word":
            words, found[name] = rows, scales
        else:
            found[name] = rows.T * scales
    layers = [
        _Layer(*((found[f"{layer}.{name}.weight"], found[f"{layer}.{name}.bias"]) for name in _Layer._fields))
        for layer in range(LAYERS)
    ]
    return _Model(words, found["word"], found["position"], (found["norm.weight"], found["norm.bias"]), layers)
