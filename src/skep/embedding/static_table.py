"""Two embedders without a model: the bundled table of word vectors, and feature hashing for tests.

A text is the normalised, weighted sum of the rows of its word pieces. The table lies beside this module as int8 and is
memory-mapped, so that opening it reads nothing; `scripts/build_static_table.py` makes it. Banks open it by the spec
`static`; the ranking compares texts word by word with it whatever embedder a bank has. It touches its own files alone.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

import msgspec

from skep.embedding.embedder import Calibration
from skep.embedding.wordpiece import WordPiece, split_words
from skep.errors import ConfigError, EmbedderUnavailableError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from skep.embedding.embedder import Vectors


DATA = os.path.join(os.path.dirname(__file__), "data")
VOCABULARIES = ("vocab.bin", "vocab.z")
"""Names a vocabulary may have; tables made before the first one have the second."""
CHUNK = 4096
"""Word pieces summed at once, so that a long text needs little memory."""
MEMO_TEXTS = 8192
"""Texts whose pieces are remembered where Python cuts them."""
EXACT = 1024
"""Products of rows up to this length are exact in single precision: 1024 * 128 * 128 is 2 ** 24."""


class _Table(NamedTuple):
    rows: NDArray[np.int8]
    scales: NDArray[np.float32]


class StaticEmbedder:
    """Word vectors from a bundled table, summed with weights that favour rare words."""

    def __init__(self, folder: str | os.PathLike[str] = DATA) -> None:
        self._folder = os.fspath(folder)
        self.spec = "static" if self._folder == DATA else f"static:{self._folder}"
        try:
            with open(self._path("static.json"), "rb") as file:
                about = msgspec.json.decode(file.read())
        except FileNotFoundError as error:
            raise EmbedderUnavailableError(
                f"the word-vector table is missing from {folder}; reinstall skep, or make it with "
                "scripts/build_static_table.py"
            ) from error
        self._size: int = about["rows"]
        self._dim: int = about["dim"]
        self._fingerprint: str = about["fingerprint"]
        self.calibration = Calibration(about["knots"])

    def _path(self, name: str) -> str:
        return os.path.join(self._folder, name)

    @property
    def fingerprint(self) -> str:
        """Names the table, its dimension and its content."""
        return self._fingerprint

    @property
    def dim(self) -> int:
        """The length of every row."""
        return self._dim

    @property
    def instant(self) -> bool:
        """True: a text costs some 20 microseconds."""
        return True

    @cached_property
    def wordpiece(self) -> WordPiece:
        """The tokenizer, read on first use."""
        return bundled_wordpiece() if self._folder == DATA else _wordpiece(self._folder)

    @cached_property
    def _table(self) -> _Table:
        """Row scales and int8 rows, mapped from the file."""
        import mmap

        import numpy as np

        with open(self._path("static.bin"), "rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        expected = self._size * (4 + self._dim)
        if len(mapped) != expected:
            raise EmbedderUnavailableError(
                f"the word-vector table has {len(mapped)} bytes instead of {expected}; reinstall skep"
            )
        scales = np.frombuffer(mapped, "<f4", self._size)
        rows = np.frombuffer(mapped, np.int8, self._size * self._dim, self._size * 4)
        return _Table(rows.reshape(self._size, self._dim), scales)

    def embed(self, texts: Sequence[str]) -> Vectors:
        """One unit row per text; a text without a known word gives a zero row."""
        rows, scales = self._table
        import numpy as np

        out = np.zeros((len(texts), self._dim), np.float32)
        for number, text in enumerate(texts):
            ids = np.array(self.wordpiece.cut([text])[0], np.intp)
            for start in range(0, len(ids), CHUNK):
                chunk = ids[start : start + CHUNK]
                out[number] += scales[chunk] @ rows[chunk].astype(np.float32)
        norms = np.sqrt(np.einsum("ij,ij->i", out, out))[:, None]
        np.divide(out, norms, out=out, where=norms > 0)
        return out

    def calibrate(self, cosine: float) -> float:
        """Map a raw cosine of this table to the common scale."""
        return self.calibration(cosine)


@lru_cache(maxsize=1)
def bundled_table() -> StaticEmbedder:
    """The one that the banks of a process share."""
    return StaticEmbedder()


@lru_cache(maxsize=1)
def bundled_wordpiece() -> WordPiece:
    """One for the whole process: what one embedder has cut, the others need not."""
    return _wordpiece(DATA)


def _wordpiece(folder: str) -> WordPiece:
    paths = [os.path.join(folder, name) for name in VOCABULARIES]
    return WordPiece.from_file(next(filter(os.path.exists, paths), paths[0]))


TRIGRAM_WEIGHT = 0.8
KNOTS = ((0.05, 0.0), (0.7, 0.8), (0.9, 0.95))


@lru_cache(maxsize=16_384)
def _features(word: str) -> tuple[tuple[int, float], ...]:
    """Signed hashes of a word and of its letter trigrams, so that inflected forms stay close."""
    if not any(char.isalnum() for char in word):
        return ()
    padded = f"<{word}>"
    trigrams = [padded[i : i + 3] for i in range(len(padded) - 2)] if len(word) > 2 else []
    pairs = [(word, 1.0), *((f"#{gram}", TRIGRAM_WEIGHT / len(trigrams) ** 0.5) for gram in trigrams)]
    hashed = ((crc32(feature.encode()), weight) for feature, weight in pairs)
    return tuple((value >> 1, weight if value & 1 else -weight) for value, weight in hashed)


class HashingEmbedder:
    """Deterministic vectors with no table: texts are as close as the words and trigrams they share."""

    def __init__(self, dim: int = 256) -> None:
        if dim < 8:
            raise ConfigError(f"a hashing embedder needs at least 8 dimensions, not {dim}")
        self._dim = dim
        self.calibration = Calibration(KNOTS)

    @property
    def fingerprint(self) -> str:
        """Names the method and its dimension."""
        return f"hash-{self._dim}-v1"

    @property
    def dim(self) -> int:
        """The length of every row."""
        return self._dim

    @property
    def instant(self) -> bool:
        """True."""
        return True

    def embed(self, texts: Sequence[str]) -> Vectors:
        """One unit row per text; a text without a letter or a digit gives a zero row."""
        import numpy as np

        out = np.zeros((len(texts), self._dim), np.float32)
        for row, text in zip(out, texts, strict=True):
            for word in split_words(text):
                for value, weight in _features(word):
                    row[value % self._dim] += weight
        norms = np.linalg.norm(out, axis=1, keepdims=True)
        np.divide(out, norms, out=out, where=norms > 0)
        return out

    def calibrate(self, cosine: float) -> float:
        """Map a raw cosine to the common scale."""
        return self.calibration(cosine)
