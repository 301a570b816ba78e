"""Gibberish: a text that tells nothing ("asdf asdf", "stuff idk maybe whatever"), by a small learnt model. Pure.

The model is linear over hashed trigrams of letters, words and pairs of words. `training/fit_gibberish.py` fits it, and
`training/GIBBERISH.md` says how well. It knows Latin letters: a text mostly in another script is never gibberish.
The gateway of a hive asks it before a memory is shared.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

from skep.runtime import lazy

BUCKETS: Final = 4096
SCALE: Final = 16.0
"""Weights are kept as whole numbers from -127 to 127 of this many to one."""
LONGEST: Final = 2_000
"""Characters that are looked at."""
FEWEST: Final = 3
"""Letters below which nothing is said."""
_FILE: Final = os.path.join(os.path.dirname(__file__), "data", "gibberish.bin")
_WORD: Final = lazy(r"[^\W_]+(?:['\u2019][^\W_]+)*|[^\w\s]+")
LATIN: Final = 0.8
"""The share of a text's letters that must be Latin for the model to say anything."""


def chance_of_gibberish(text: str) -> float:
    """The probability that a text tells nothing, 0 to 1.

    >>> chance_of_gibberish("asdf asdf jkl") > GIBBERISH > chance_of_gibberish("The relay runs in Oslo")
    True
    """
    letters = [character for character in text[:LONGEST] if character.isalpha()]
    if len(letters) < FEWEST or sum(character < "\u0250" for character in letters) < LATIN * len(letters):
        return 0.0
    weights, bias = _model()
    found = list(features(text))
    score = bias + sum(weights[bucket] for bucket in found) / len(found)
    return 1 / (1 + 2.718281828459045 ** -max(-60.0, min(60.0, score)))


GIBBERISH: Final = 0.9
"""The chance from which a text counts as gibberish."""


def features(text: str) -> Iterator[int]:
    """The buckets of a text: trigrams of its words, the words and pairs of them; at least one."""
    before = ""
    yield zlib.crc32(b"any") % BUCKETS
    for match in _WORD.finditer(text[:LONGEST].casefold()):
        word = match.group()[:40]
        shaped = f"^{''.join('0' if c.isdigit() else c for c in word)}$"
        for at in range(len(shaped) - 2):
            yield zlib.crc32(shaped[at : at + 3].encode()) % BUCKETS
        yield zlib.crc32(f"w {word}".encode()) % BUCKETS
        yield zlib.crc32(f"p {before} {word}".encode() if word != before else b"twice") % BUCKETS
        before = word


@lru_cache(maxsize=1)
def _model() -> tuple[list[float], float]:
    """The weights of the buckets, and the bias, which is written last, in two bytes."""
    with open(_FILE, "rb") as file:
        data = file.read()
    weights = [(byte - 256 if byte > 127 else byte) * SCALE / 127 for byte in data[:BUCKETS]]
    return weights, int.from_bytes(data[BUCKETS:], "big", signed=True) / 256
