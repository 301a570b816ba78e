"""Feature hashing: vectors from the letters of the words alone. For tests, and where no table may go."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING
from zlib import crc32

from skep.embedding.calibration import Calibration
from skep.embedding.wordpiece import split_words
from skep.errors import ConfigError

if TYPE_CHECKING:
    from skep.embedding.base import Vectors

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
        """Always."""
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
