"""Two embedders without a model: the bundled table of word vectors, and feature hashing for tests.

A text is the normalised, weighted sum of the rows of its word pieces. The table lies beside this module as int8 and is
memory-mapped, so that opening it reads nothing; `scripts/build_static_table.py` makes it. Banks open it by the spec
`static`; the ranking compares texts word by word with it whatever embedder a bank has. It touches its own files alone.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, NamedTuple, cast
from zlib import crc32

import msgspec

from skep import runtime
from skep.embedding.calibration import Calibration
from skep.embedding.wordpiece import WordPiece, split_words
from skep.errors import ConfigError, EmbedderUnavailableError
from skep.runtime import product, undisturbed

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from skep.embedding.embedder import Embedder, Vectors


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

        with undisturbed():
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

    def tokens(self, text: str) -> list[int]:
        """The word-piece ids of a text that carry any meaning, in order."""
        return self.wordpiece.cut([text], self._meant)[0].tolist()

    def pieces(self, texts: Sequence[str], most: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """The first word pieces of each text that carry any meaning, text after text, and how many each has."""
        import numpy as np

        if self.wordpiece.compiled:
            ids, sizes = self.wordpiece.cut(list(texts), self._meant, most)
            return np.frombuffer(ids, np.int32), np.frombuffer(sizes, np.int32)
        found = [self._remembered(text, most) for text in texts]
        flat = np.concatenate(found) if found else np.zeros(0, np.int32)
        return flat, np.array([len(each) for each in found], np.int32)

    @cached_property
    def _remembered(self) -> Callable[[str, int], NDArray[np.int32]]:
        """The pieces of a text. A bank's texts come up again and again, and Python cuts them slowly."""
        import numpy as np

        @lru_cache(MEMO_TEXTS)
        def cut(text: str, most: int) -> NDArray[np.int32]:
            return np.array(self.wordpiece.cut([text], self._meant, most)[0], np.int32)

        return cut

    @cached_property
    def _meant(self) -> bytes:
        """Which word pieces carry any meaning: a byte for each, which is quicker to look at than an array."""
        return (self._table.scales > 0).tobytes()

    def token_vectors(self, ids: Sequence[int]) -> Vectors:
        """One unit row per word piece, for late interaction."""
        import numpy as np

        rows = self._table.rows[np.asarray(ids, np.intp)].astype(np.float32)
        norms = np.sqrt(np.einsum("ij,ij->i", rows, rows))
        norms[norms == 0] = 1.0
        rows /= norms[:, None]
        return rows

    def closest(
        self, asked: Sequence[int], pieces: NDArray[np.int32], lengths: NDArray[np.int32], block: int
    ) -> Vectors:
        """The highest cosine of each piece asked for (rows) in each stretch of pieces (columns).

        The table holds whole numbers, of which every sum is exact.

        Args:
            asked: Word pieces, of a question for example.
            pieces: The word pieces of some texts, text after text.
            lengths: How many each text has.
            block: How many pieces of a text make a stretch; its last one may have fewer.
        """
        import numpy as np

        rows = self._table.rows
        wanted = np.array(asked, np.int32)
        counts = -(-lengths // block)
        out = np.empty((len(wanted), int(counts.sum())), np.float32)
        if runtime.native is not None:
            runtime.native.closest(rows, wanted, pieces, lengths, block, out)
            return out
        distinct, back = _distinct(pieces)
        exact = np.float32 if self._dim <= EXACT else np.float64
        one, other = rows[wanted].astype(exact), rows[distinct].astype(exact)
        cosines = product(one, other.T) * (_shrink(one)[:, None] * _shrink(other))
        within = np.arange(out.shape[1]) - np.repeat(np.cumsum(counts) - counts, counts)
        starts = np.repeat(np.cumsum(lengths) - lengths, counts) + block * within
        np.maximum.reduceat(cosines.astype(np.float32).take(back, axis=1), starts, axis=1, out=out)
        return out

    def token_weights(self, ids: Sequence[int]) -> NDArray[np.float32]:
        """How much each word piece counts in a text: near 1 for rare words, near 0 for the commonest."""
        import numpy as np

        chosen = np.asarray(ids, np.intp)
        rows = self._table.rows[chosen].astype(np.float32)
        return self._table.scales[chosen] * np.sqrt(np.einsum("ij,ij->i", rows, rows))

    def weighed_tokens(self, ids: Sequence[int]) -> Vectors:
        """The rows of `token_vectors`, each times its weight."""
        import numpy as np

        chosen = np.asarray(ids, np.intp)
        rows = self._table.rows.take(chosen, axis=0).astype(np.float32)
        norms = np.sqrt(np.einsum("ij,ij->i", rows, rows))
        weights = self._table.scales[chosen] * norms
        norms[norms == 0] = 1.0
        rows /= norms[:, None]
        rows *= weights[:, None]
        return rows


def _distinct(pieces: NDArray[np.int32]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Every piece once, ascending, and where each stands among them; by marking, which is quicker than sorting."""
    import numpy as np

    marked = np.zeros(int(pieces.max(initial=0)) + 1, dtype=bool)
    marked[pieces] = True
    found = np.flatnonzero(marked)
    place = np.empty(len(marked), dtype=np.int64)
    place[found] = np.arange(len(found))
    return found, place[pieces]


def _shrink(rows: NDArray[np.floating]) -> NDArray[np.float64]:
    """One divided by the length of each row; 0 where it has none."""
    import numpy as np

    lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows), dtype=np.float64)
    return np.divide(1.0, lengths, out=np.zeros(len(rows)), where=lengths > 0)


def word_table(embedder: Embedder) -> StaticEmbedder:
    """The word pieces that texts are compared by: those of the embedder, or the bundled ones where it has none."""
    return cast("StaticEmbedder", embedder) if hasattr(embedder, "closest") else bundled_table()


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
