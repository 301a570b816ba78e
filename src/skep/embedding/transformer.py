"""A small transformer run by numpy: layers with int8 weights, and how they are read from a file.

The sentence encoder (`minilm`) and the reader of pairs (`semantics.pair_reader`) are made of it. It holds no weights
and touches nothing but the file that it is given.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from skep import runtime
from skep.errors import EmbedderUnavailableError

if TYPE_CHECKING:
    import os

    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]

LAYERS, HEADS, WIDTH, INNER = 6, 12, 384, 1536
REINSTALL = "reinstall skep, or open the bank with embedder='static'"


class Tensor(NamedTuple):
    """One tensor of the file: its name, its shape, and if it is int8 with one scale per row."""

    name: str
    shape: tuple[int, ...]
    scaled: bool


def layers_layout() -> list[Tensor]:
    """The tensors of the norm of the input and of all layers, in the order in which they lie in a file."""
    tensors = [Tensor("norm.weight", (WIDTH,), False), Tensor("norm.bias", (WIDTH,), False)]
    for layer in range(LAYERS):
        for name, outputs, inputs in (
            ("mixer", 3 * WIDTH, WIDTH),
            ("mixed", WIDTH, WIDTH),
            ("inner", INNER, WIDTH),
            ("outer", WIDTH, INNER),
        ):
            tensors.append(Tensor(f"{layer}.{name}.weight", (outputs, inputs), True))
            tensors.append(Tensor(f"{layer}.{name}.bias", (outputs,), False))
        for name in ("first", "second"):
            tensors.append(Tensor(f"{layer}.{name}.weight", (WIDTH,), False))
            tensors.append(Tensor(f"{layer}.{name}.bias", (WIDTH,), False))
    return tensors


BLOCK = 1 << 17
"""Weights that are widened at once: half a megabyte, which stays in a processor's cache."""


class Dense(NamedTuple):
    """A dense layer. Its weights stay int8, as they are mapped: each call widens them block by block.

    That costs no more than reading wide weights from memory, and nothing at loading. The scales multiply the output.
    """

    weights: NDArray[np.int8]
    scales: Floats
    bias: Floats

    def __call__(self, x: Floats) -> Floats:
        """Rows after the layer."""
        import numpy as np

        outputs, inputs = self.weights.shape
        step = BLOCK // inputs
        wide = np.empty((step, inputs), np.float32)
        out = np.empty((len(x), outputs), np.float32)
        for start in range(0, outputs, step):
            block = wide[: min(step, outputs - start)]
            block[:] = self.weights[start : start + step]
            np.matmul(x, block.T, out=out[:, start : start + step])
        out *= self.scales
        out += self.bias
        return out


class Norm(NamedTuple):
    """Layer normalisation, in place."""

    weight: Floats
    bias: Floats

    def __call__(self, x: Floats) -> Floats:
        """The rows, changed in place."""
        import numpy as np

        x -= x.mean(axis=-1, keepdims=True)
        x *= 1.0 / np.sqrt(np.einsum("ij,ij->i", x, x)[:, None] / WIDTH + 1e-12)
        x *= self.weight
        x += self.bias
        return x


class Layer(NamedTuple):
    """One layer of the transformer: attention (`mixer`, `mixed`) and the feed-forward part (`inner`, `outer`)."""

    mixer: Dense
    mixed: Dense
    inner: Dense
    outer: Dense
    first: Norm
    second: Norm

    def __call__(self, x: Floats, spans: Sequence[tuple[int, int]]) -> Floats:
        """The token states after this layer; a span is the tokens of one text, which see each other."""
        import numpy as np

        mixed = np.empty_like(x)
        every = self.mixer(x).reshape(len(x), 3, HEADS, WIDTH // HEADS)
        for start, end in spans:
            query, key, value = every[start:end].transpose(1, 2, 0, 3)
            scores = query @ key.transpose(0, 2, 1)
            scores -= scores.max(axis=-1, keepdims=True)
            np.exp(scores, out=scores)
            scores /= scores.sum(axis=-1, keepdims=True)
            mixed[start:end] = (scores @ value).transpose(1, 0, 2).reshape(end - start, WIDTH)
        x = self.first(x + self.mixed(mixed))
        return self.second(x + self.outer(_gelu(self.inner(x))))


class Tensors(NamedTuple):
    """The tensors of a file, by name."""

    plain: dict[str, Any]
    scales: dict[str, Floats]
    """The scales of the rows of those that are int8."""

    def dense(self, name: str) -> Dense:
        """A dense layer."""
        weight = f"{name}.weight"
        return Dense(self.plain[weight], self.scales[weight], self.plain[f"{name}.bias"])

    def norm(self, name: str) -> Norm:
        """A layer normalisation."""
        return Norm(self.plain[f"{name}.weight"], self.plain[f"{name}.bias"])

    def layers(self) -> tuple[Norm, list[Layer]]:
        """The norm of the input, and the layers."""
        return self.norm("norm"), [
            Layer(
                *(self.dense(f"{layer}.{name}") for name in ("mixer", "mixed", "inner", "outer")),
                first=self.norm(f"{layer}.first"),
                second=self.norm(f"{layer}.second"),
            )
            for layer in range(LAYERS)
        ]


def read_tensors(path: str | os.PathLike[str], tensors: Sequence[Tensor]) -> Tensors:
    """Map a file and cut it into tensors; a file that is missing or of another size is refused."""
    import numpy as np

    try:
        raw = np.memmap(path, np.uint8, "r")
    except FileNotFoundError as error:
        raise EmbedderUnavailableError(f"the model {path} is missing; {REINSTALL}") from error
    expected = sum(
        math.prod(each.shape) * (1 if each.scaled else 4) + 4 * each.shape[0] * each.scaled
        for each in tensors
    )
    if len(raw) != expected:
        raise EmbedderUnavailableError(
            f"the model {path} has {len(raw)} bytes instead of {expected}; {REINSTALL}"
        )
    plain: dict[str, Any] = {}
    scales: dict[str, Any] = {}
    at = 0
    for name, shape, scaled in tensors:
        if scaled:
            scales[name] = np.frombuffer(raw, "<f4", shape[0], at)
            at += 4 * shape[0]
        count = math.prod(shape)
        plain[name] = np.frombuffer(raw, "i1" if scaled else "<f4", count, at).reshape(shape)
        at += count * (1 if scaled else 4)
    return Tensors(plain, scales)


def _gelu(x: Floats) -> Floats:
    """The Gaussian error linear unit, its error function by Abramowitz and Stegun 7.1.26 (error below 1.5e-7)."""
    import numpy as np

    size = np.abs(x)
    size *= math.sqrt(0.5)
    t = np.reciprocal(1 + np.float32(0.3275911) * size)
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


class _OpenBlas:
    """The OpenBLAS that came with numpy. Where numpy has another library, that is left as it is."""

    NAMES = ("scipy_openblas_{}_num_threads64_", "openblas_{}_num_threads64_", "openblas_{}_num_threads")

    def __init__(self) -> None:
        import ctypes
        from importlib import import_module

        library: Any = ctypes.CDLL(import_module("numpy._core._multiarray_umath").__file__ or "")
        found = [name for name in self.NAMES if hasattr(library, name.format("set"))]
        self._get: Callable[[], int] | None = getattr(library, found[0].format("get")) if found else None
        self._set: Callable[[int], object] | None = (
            getattr(library, found[0].format("set")) if found else None
        )
        self._lock = threading.Lock()
        self._inside = 0
        self._before = 1
        runtime.watch(self)

    def forked(self) -> None:
        """In a child: the threads that were inside are not here."""
        self._lock = threading.Lock()
        if self._inside and self._set is not None:
            self._inside = 0
            self._set(self._before)

    @contextmanager
    def one_thread(self) -> Generator[None]:
        """Work on the calling thread alone: waking others costs more than products this small."""
        if self._get is None or self._set is None:
            yield
            return
        with self._lock:
            if not self._inside:
                self._before = self._get()
                self._set(1)
            self._inside += 1
        try:
            yield
        finally:
            with self._lock:
                self._inside -= 1
                if not self._inside:
                    self._set(self._before)


@lru_cache(maxsize=1)
def _openblas() -> _OpenBlas:
    return _OpenBlas()


def one_thread() -> AbstractContextManager[None]:
    """Work on the calling thread alone."""
    return _openblas().one_thread()
