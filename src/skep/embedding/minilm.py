"""MiniLM: the bundled six-layer transformer with int8 weights, run by numpy alone, and the sentence encoder made of it.

A short text costs about 5 milliseconds. Banks open the encoder by the spec `minilm`; the reader of pairs
(`semantics.pair_reader`) is made of the same layers with weights of its own. Nothing is touched but the files beside
this module, which are read at the first text. `training/train_embedder.py` fine-tunes the weights,
`scripts/build_minilm.py` packs them, NOTICE names their origin.
"""

from __future__ import annotations

import math
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from skep import runtime
from skep.embedding.embedder import Calibration
from skep.errors import EmbedderUnavailableError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from skep.embedding.embedder import Vectors
    from skep.embedding.wordpiece import WordPiece

    Floats = NDArray[np.float32]

DATA = os.path.join(os.path.dirname(__file__), "data")
LAYERS, HEADS, WIDTH, INNER = 6, 12, 384, 1536
LIMIT = 256
"""Word pieces of a text that are read, its two marks included."""
TOKENS = 512
"""Word pieces of one pass: what fits the caches of a processor."""
CLS, SEP = 101, 102
SMALL_WRITE = 32
"""Texts of one write that are embedded while the caller waits."""
SMALL_LENGTH = 4096
"""Characters of one write that are embedded while the caller waits; only `READ` of a long text count."""
READ = 1024
"""Characters that are about `LIMIT` word pieces."""
RECENT = 512
"""Texts whose vectors are kept: the banks of one process often hold, and are often asked, the same."""
REINSTALL = "reinstall skep, make it with scripts/build_minilm.py, or open the bank with embedder='static'"


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


def layout() -> list[Tensor]:
    """The tensors in the order in which they lie in the file; dense weights as (output, input)."""
    return [Tensor("word", (30522, WIDTH), True), Tensor("position", (LIMIT, WIDTH), False), *layers_layout()]


class _Model(NamedTuple):
    """All weights; those of words stay int8, since a text looks up a few rows."""

    words: NDArray[np.int8]
    word_scales: Floats
    positions: Floats
    norm: Norm
    layers: Sequence[Layer]


def in_passes(
    rows: Sequence[Sequence[int]],
    model: Callable[[Sequence[int], Floats, Sequence[tuple[int, int]]], Floats],
    width: int,
    folder: str = DATA,
) -> Floats:
    """The outputs of a model for rows of word pieces, some of like length at a time and on one thread.

    The rows of a pass stand one behind another without padding; only attention takes them apart.

    Args:
        rows: The word pieces of each text, its marks included.
        model: Called with the numbers of some rows, the vectors of their pieces and places, and where each row begins
            and ends among those. Gives one row of output for each.
        width: The length of a row of output.
        folder: Where the vectors of words and places lie.
    """
    import numpy as np

    out = np.zeros((len(rows), width), np.float32)
    words = model_of(folder)
    waiting = sorted(range(len(rows)), key=lambda at: len(rows[at]))
    while waiting:
        batch = waiting[-max(1, TOKENS // len(rows[waiting[-1]])) :]
        del waiting[-len(batch) :]
        ends = np.cumsum([len(rows[at]) for at in batch]).tolist()
        spans = [(end - len(rows[at]), end) for end, at in zip(ends, batch, strict=True)]
        ids = np.concatenate([np.asarray(rows[at], np.intp) for at in batch])
        with one_thread():
            x = words.words[ids] * words.word_scales[ids, None]
            for start, end in spans:
                x[start:end] += words.positions[: end - start]
            out[batch] = model(batch, x, spans)
    return out


class MiniLMEmbedder:
    """Sentence vectors from the bundled transformer, without a download and without another library."""

    spec = "minilm"
    dim = WIDTH
    instant = False
    """A text costs milliseconds."""

    def __init__(self, folder: str | os.PathLike[str] = DATA) -> None:
        self._folder = os.fspath(folder)
        about = _about(self._folder)
        self.fingerprint: str = about["fingerprint"]
        """Names the model, its dimension and its weights."""
        self.calibration = Calibration(about["knots"])
        self._recent: OrderedDict[str, Floats] = OrderedDict()
        self._lock = threading.Lock()
        runtime.watch(self)

    def forked(self) -> None:
        """In a child: whoever held the lock is not here."""
        self._lock = threading.Lock()

    def at_once(self, texts: Sequence[str]) -> bool:
        """True for a small write, which is embedded while its caller waits."""
        return len(texts) <= SMALL_WRITE and sum(min(len(text), READ) for text in texts) <= SMALL_LENGTH

    def draft(self, texts: Sequence[str]) -> Vectors:
        """Rough rows for texts that wait for the model: the word table's rows, mapped by a matrix fitted for that.

        Their cosine with the model's own rows is about 0.78.
        """
        import numpy as np

        from skep.embedding.static_table import bundled_table

        table = bundled_table()
        rows = table.embed(texts)
        out = rows @ _draft_map(self._folder, table.dim)
        norms = np.linalg.norm(out, axis=1, keepdims=True)
        return np.divide(out, norms, out=np.zeros_like(out), where=norms > 0)

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
        fresh: dict[str, list[int]] = {}
        with self._lock:
            for number, text in enumerate(texts):
                known = self._recent.get(text)
                if known is None:
                    fresh.setdefault(text, []).append(number)
                else:
                    self._recent.move_to_end(text)
                    out[number] = known
        if not fresh:
            return out
        made = self._made(list(fresh))
        for row, places in zip(made, fresh.values(), strict=True):
            out[places] = row
        with self._lock:
            self._recent.update(zip(list(fresh)[-RECENT:], made[-RECENT:].copy(), strict=True))
            while len(self._recent) > RECENT:
                self._recent.popitem(last=False)
        return out

    def _made(self, texts: list[str]) -> Floats:
        """The rows of texts nobody has asked for lately: of each the mean of its token states, as a unit row."""
        import numpy as np

        flat, sizes = self._wordpiece.cut(texts, None, LIMIT - 2)
        ends = np.cumsum(sizes).tolist()
        rows = [[CLS, *flat[end - size : end], SEP] for end, size in zip(ends, sizes, strict=True)]
        there = [at for at, row in enumerate(rows) if len(row) > 2]
        _words, _scales, _positions, norm, layers = model_of(self._folder)

        def encode(_batch: Sequence[int], x: Floats, spans: Sequence[tuple[int, int]]) -> Floats:
            x = norm(x)
            for layer in layers:
                x = layer(x, spans)
            means = np.stack([x[start:end].mean(axis=0) for start, end in spans])
            means /= np.linalg.norm(means, axis=1, keepdims=True)
            return means

        out = np.zeros((len(texts), WIDTH), np.float32)
        out[there] = in_passes([rows[at] for at in there], encode, WIDTH, self._folder)
        return out


@lru_cache(maxsize=1)
def bundled_minilm() -> MiniLMEmbedder:
    """The one that the banks of a process share, with the vectors it has made lately."""
    return MiniLMEmbedder()


@lru_cache(maxsize=4)
def _about(folder: str) -> dict[str, Any]:
    try:
        with open(os.path.join(folder, "minilm.json"), "rb") as file:
            return msgspec.json.decode(file.read())
    except FileNotFoundError as error:
        raise EmbedderUnavailableError(
            f"the sentence encoder is missing from {folder}; {REINSTALL}"
        ) from error


@lru_cache(maxsize=2)
def _draft_map(folder: str, inputs: int) -> Floats:
    """The matrix from rows of the word table to rough rows of the model; `training/fit_drafts.py` makes it."""
    import numpy as np

    path = os.path.join(folder, "minilm_draft.bin")
    try:
        return np.fromfile(path, "<f2").astype(np.float32).reshape(inputs, WIDTH)
    except (FileNotFoundError, ValueError) as error:
        raise EmbedderUnavailableError(f"{path} is missing or damaged; {REINSTALL}") from error


@lru_cache(maxsize=2)
def model_of(folder: str = DATA) -> _Model:
    """The weights of a folder, kept for as long as the process lives: several banks share them."""
    tensors = read_tensors(os.path.join(folder, "minilm.bin"), layout())
    return _Model(tensors.plain["word"], tensors.scales["word"], tensors.plain["position"], *tensors.layers())
