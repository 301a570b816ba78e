"""A small file of named arrays, packed.

::

    compressed as a whole: header length (8) | header, JSON | arrays, each at a multiple of 8

The header names every array with its type and shape. `numpy.load` would read an archive of arrays through `zipfile`,
which takes longer to import than such a file to read, and what stands before each array as a piece of Python.

The learnt part of the pair comparison: boosted trees, read from one small file.

`scripts/train_conflicts.py` makes the file. It holds three sets of trees (one per class), a calibration, the weights
of common words, and the mean of the word vectors it was trained with.
"""

from __future__ import annotations

import math
import os
import threading
import zlib
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import msgspec

from skep import runtime
from skep.embedding.static_table import StaticEmbedder
from skep.semantics.pair_features import NAMES

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


if TYPE_CHECKING:
    Array = NDArray[Any]

ALIGN = 8


def write_arrays(path: str, arrays: Mapping[str, Array]) -> None:
    """Write arrays, in the order of their names."""
    import numpy as np

    header = msgspec.json.encode([(name, each.dtype.str, each.shape) for name, each in arrays.items()])
    parts = [len(header).to_bytes(ALIGN, "little"), _padded(header)]
    parts += [_padded(np.ascontiguousarray(each).tobytes()) for each in arrays.values()]
    with open(path, "wb") as file:
        file.write(zlib.compress(b"".join(parts), 9))


def read_arrays(path: str) -> dict[str, Array]:
    """Every array of the file, by name; they cannot be written to.

    Raises:
        ValueError: It is damaged, or no such file.
    """
    import numpy as np

    with open(path, "rb") as file:
        packed = file.read()
    found: dict[str, Array] = {}
    try:
        data = zlib.decompress(packed)
        length = int.from_bytes(data[:ALIGN], "little")
        listed: Any = msgspec.json.decode(data[ALIGN : ALIGN + length])
        at = ALIGN + _room(length)
        for name, dtype, shape in listed:
            flat = np.frombuffer(data, dtype=dtype, count=math.prod(shape), offset=at)
            found[name] = flat.reshape(shape)
            at += _room(flat.nbytes)
    except (zlib.error, msgspec.DecodeError, ValueError, TypeError) as error:
        raise ValueError(f"{path} is damaged ({error})") from error
    return found


def _room(size: int) -> int:
    """The bytes that so many take with what keeps the next ones aligned."""
    return -(-size // ALIGN) * ALIGN


def _padded(data: bytes) -> bytes:
    return data.ljust(_room(len(data)), b"\0")


if TYPE_CHECKING:
    Rows = NDArray[np.float32]

CLASSES: tuple[str, str, str] = ("duplicate", "contradiction", "neutral")
MODEL_FILE = os.path.join(os.path.dirname(__file__), "data", "conflicts.trees")
MAX_REMEMBERED = 20_000
"""How many word vectors are kept before the memory starts anew."""
LEVELS = 6
"""The greatest depth of a tree: its leaves are the bits of one machine word."""
AT_ONCE = 64
"""Rows of features that are scored at once, and words that are embedded; what is made of them stays in a processor's
cache."""


class WordTable:
    """Word vectors of the bundled table, centred, and how much each word tells."""

    def __init__(self, weights: dict[str, float], rare: float, mean: Rows, embedder: StaticEmbedder) -> None:
        self._weights = weights
        self._rare = rare
        self._mean = mean
        self._embedder = embedder
        self._places: dict[str, int] = {}
        self._vectors: Rows = mean[None, :][:0]
        self._lock = threading.RLock()
        """The table is one for the whole process."""
        runtime.hold(self._lock)

    def weigh(self, stems: Iterable[str]) -> tuple[float, ...]:
        """Near 0 for the commonest words, 1 for the rarest; a word never seen counts as rare."""
        weight, rare = self._weights.get, self._rare
        return tuple([weight(stem, rare) for stem in stems])

    def known(self, stem: str) -> bool:
        """Whether a word is among the common ones."""
        return stem in self._weights

    def rows(self, words: Sequence[str]) -> Rows:
        """One centred unit row per word."""
        at, table = self.located(words)
        return table.take(at, axis=0)

    def located(self, words: Sequence[str]) -> tuple[list[int], Rows]:
        """Which row of a table is the centred unit vector of each word, and the table, of which only those are read."""
        with self._lock:
            try:
                at = [*map(self._places.__getitem__, words)]
            except KeyError:
                self.learn(words)
                at = [*map(self._places.__getitem__, words)]
            return at, self._vectors

    def learn(self, words: Iterable[str]) -> None:
        """Make the vectors of many words at once, so that asking for them later costs little."""
        import numpy as np

        wanted = dict.fromkeys(words)
        with self._lock:
            missing = [word for word in wanted if word not in self._places]
            if len(self._places) + len(missing) > MAX_REMEMBERED:
                missing = list(wanted)
                self._places, self._vectors = {}, self._vectors[:0]
            if missing:
                fresh = self._embedded(missing) - self._mean
                fresh /= np.sqrt(np.einsum("ij,ij->i", fresh, fresh))[:, None] + 1e-9
                known = len(self._places)  # places come last: an interrupt in between must not shift them
                room = known + len(missing)
                if room > len(self._vectors):
                    grown = np.empty((max(room, 2 * known), fresh.shape[1]), np.float32)
                    grown[:known] = self._vectors[:known]
                    self._vectors = grown
                self._vectors[known:room] = fresh
                self._places |= {word: place for place, word in enumerate(missing, known)}

    def _embedded(self, words: Sequence[str]) -> Rows:
        """What the embedder makes of words; most are one piece, so all pieces are looked up at once."""
        import numpy as np

        out: Rows = np.zeros((len(words), len(self._mean)), np.float32)
        for start in range(0, len(words), AT_ONCE):
            here = out[start : start + AT_ONCE]
            flat, counts = self._embedder.wordpiece.cut([*words[start : start + AT_ONCE]])
            found = self._embedder.weighed_tokens(flat)
            sizes = np.array(counts, dtype=np.intp)
            starts = np.cumsum(sizes) - sizes
            for number in range(int(sizes.max())):
                there = np.flatnonzero(sizes > number)
                here[there] += found.take(starts[there] + number, axis=0)
            norms = np.sqrt(np.vecdot(here, here))
            here /= np.where(norms > 0, norms, 1)[:, None]
        return out


class Scorer:
    """Trees for every class, evaluated together, and the map from their scores to probabilities.

    Every condition that some node asks stands there once, and with it which leaves its nodes rule out where it is met:
    what is left of a tree then begins with the leaf that it ends in.
    """

    def __init__(self, arrays: dict[str, Any]) -> None:
        if tuple(bytes(arrays["names"]).decode().split()) != NAMES:
            raise ValueError(
                "the conflict model was trained with other features; run scripts/train_conflicts.py"
            )
        self._feature: NDArray[np.int64] = arrays["feature"].astype("i8")
        self._threshold: Rows = arrays["threshold"]
        """Of each condition; it is met by more than that."""
        self._ends: NDArray[np.int64] = arrays["ends"].astype("i8")
        """Where the nodes of each condition end."""
        self._tree: NDArray[np.uint16] = arrays["tree"]
        self._stays: NDArray[np.uint64] = arrays["stays"]
        """Per node: its tree, and a bit for every leaf that it leaves."""
        self._leaves: Rows = arrays["leaves"]
        """Those of each tree, filled up to one depth."""
        self._bounds: list[int] = arrays["bounds"].tolist()
        self._calibration: list[list[float]] = arrays["calibration"].T.tolist()

    @cached_property
    def _levels(self) -> list[NDArray[np.int64]]:
        """Level by level, the condition of each node, so that the children of node n are nodes 2n and 2n + 1.

        Where a tree ends before, any condition will do: both ways lead to the same value.
        """
        import numpy as np

        conditions = np.repeat(np.arange(len(self._ends)), np.diff(self._ends, prepend=0))
        gone = ~self._stays
        half = np.bitwise_count(gone).astype(np.int64)
        first = np.bitwise_count((gone & -gone) - np.uint64(1)).astype(np.int64)
        levels: list[NDArray[np.int64]] = []
        for level in range(LEVELS):
            here = np.flatnonzero(half == 1 << (LEVELS - 1 - level))
            nodes = (self._tree[here].astype(np.int64) << level) + first[here] // (2 * half[here])
            levels.append(np.zeros(len(self._leaves) << level, dtype=np.int64))
            levels[-1][nodes] = conditions[here]
        return levels

    def scores(self, rows: Sequence[Sequence[float]]) -> Rows:
        """The raw score of each class (column) for each row of features."""
        import numpy as np

        values: Rows = np.asarray(rows, np.float32)
        out: Rows = np.empty((len(values), len(self._bounds)), np.float32)
        trees: NDArray[np.intp] = np.arange(len(self._leaves))
        for start in range(0, len(values), AT_ONCE):
            met: NDArray[np.bool_] = (
                values[start : start + AT_ONCE].take(self._feature, axis=1) > self._threshold
            )
            first: NDArray[np.intp] = np.arange(len(met))[:, None] * met.shape[1]
            node: NDArray[np.intp] = 2 * trees + met.take(self._levels[0], axis=1)
            for condition in self._levels[1:]:
                more = met.take(condition.take(node) + first)
                node += node
                node += more
            np.add.reduceat(self._leaves.take(node), self._bounds, axis=1, out=out[start : start + AT_ONCE])
        return out

    def probabilities(self, rows: Sequence[Sequence[float]]) -> list[tuple[float, float, float]]:
        """Calibrated probabilities in the order of `CLASSES`, for each row of features."""
        return [self._calibrated(*scores) for scores in self.scores(rows).tolist()] if rows else []

    def _calibrated(self, same: float, against: float, apart: float) -> tuple[float, float, float]:
        logits = [same * a + against * b + apart * c + d for a, b, c, d in self._calibration]
        highest = max(logits)
        odds = [math.exp(logit - highest) for logit in logits]
        total = sum(odds)
        return odds[0] / total, odds[1] / total, odds[2] / total


def word_table(arrays: dict[str, Any]) -> WordTable:
    """The word weights and vectors a model file was trained with."""
    stems = bytes(arrays["stems"]).decode().split("\n")
    weights = dict(zip(stems, (arrays["weights"] / 255).tolist(), strict=True))
    return WordTable(weights, float(arrays["rare"]), arrays["mean"], StaticEmbedder())


@lru_cache(maxsize=1)
def load() -> tuple[Scorer, WordTable]:
    """The shipped model; read once per process."""
    found = read_arrays(MODEL_FILE)
    return Scorer(found), word_table(found)
