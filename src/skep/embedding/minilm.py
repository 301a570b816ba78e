"""The bundled sentence encoder: a six-layer MiniLM with int8 weights, run by numpy alone.

A short text costs about 5 milliseconds. Banks open it by the spec `minilm`; it touches nothing but the files beside it,
which are read at the first text. `training/train_embedder.py` fine-tunes the weights, `scripts/build_minilm.py` packs
them, NOTICE names their origin.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from skep import runtime
from skep.embedding.calibration import Calibration
from skep.embedding.transformer import WIDTH, Layer, Norm, Tensor, layers_layout, one_thread, read_tensors
from skep.errors import EmbedderUnavailableError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from skep.embedding.embedder import Vectors
    from skep.embedding.wordpiece import WordPiece

    Floats = NDArray[np.float32]

DATA = os.path.join(os.path.dirname(__file__), "data")
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

    def encode(self, rows: Sequence[Sequence[int]]) -> Floats:
        """The mean of the token states of each text, as a unit row.

        The texts stand one behind another without padding; only attention takes them apart.
        """
        import numpy as np

        ends = np.cumsum([len(row) for row in rows]).tolist()
        spans = [(end - len(row), end) for end, row in zip(ends, rows, strict=True)]
        ids = np.concatenate([np.asarray(row, np.intp) for row in rows])
        x = self.words[ids] * self.word_scales[ids, None]
        for start, end in spans:
            x[start:end] += self.positions[: end - start]
        x = self.norm(x)
        for layer in self.layers:
            x = layer(x, spans)
        out = np.stack([x[start:end].mean(axis=0) for start, end in spans])
        out /= np.linalg.norm(out, axis=1, keepdims=True)
        return out


class MiniLMEmbedder:
    """Sentence vectors from the bundled transformer, without a download and without another library."""

    spec = "minilm"

    def __init__(self, folder: str | os.PathLike[str] = DATA) -> None:
        self._folder = os.fspath(folder)
        about = _about(self._folder)
        self._fingerprint: str = about["fingerprint"]
        self.calibration = Calibration(about["knots"])
        self._recent: OrderedDict[str, Floats] = OrderedDict()
        self._lock = threading.Lock()
        runtime.watch(self)

    def forked(self) -> None:
        """In a child: whoever held the lock is not here."""
        self._lock = threading.Lock()

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
        """False: a text costs milliseconds."""
        return False

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
        """The rows of texts nobody has asked for lately, in passes of texts of like length."""
        import numpy as np

        out = np.zeros((len(texts), WIDTH), np.float32)
        flat, sizes = self._wordpiece.cut(texts, None, LIMIT - 2)
        ends = np.cumsum(sizes).tolist()
        rows = [[CLS, *flat[end - size : end], SEP] for end, size in zip(ends, sizes, strict=True)]
        waiting = sorted((at for at, row in enumerate(rows) if len(row) > 2), key=lambda at: len(rows[at]))
        model = model_of(self._folder)
        while waiting:
            longest = len(rows[waiting[-1]])
            batch = waiting[-max(1, TOKENS // longest) :]
            del waiting[-len(batch) :]
            with one_thread():
                out[batch] = model.encode([rows[at] for at in batch])
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
