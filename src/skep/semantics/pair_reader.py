"""The reader of pairs: a transformer that reads an earlier and a later text together, and says what the later one does.

It tells updates and look-alikes apart where words and vectors of the two texts alone cannot; a pair costs some 10
milliseconds. `pair_judge` asks it about pairs that its linear model cannot dismiss, where vectors come from a model. It
shares the words of the bundled encoder.
`training/train_reader.py` makes the weights; training/READER.md says how good they are.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections import OrderedDict
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from skep.embedding.minilm import (
    CLS,
    SEP,
    WIDTH,
    Dense,
    Layer,
    Norm,
    Tensor,
    in_passes,
    layers_layout,
    read_tensors,
    states,
)
from skep.embedding.static_table import bundled_wordpiece
from skep.engine.engine import Nearest
from skep.filters import Filter
from skep.model import CURRENT, Scope
from skep.semantics.find_conflicts import NEIGHBOURS, STATED, in_order
from skep.semantics.pair_judge import OUTPUTS, update_scores

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from skep.engine.engine import Engine
    from skep.model import Memory

    Floats = NDArray[np.float32]

WEIGHTS = os.path.join(os.path.dirname(__file__), "data", "reader.bin")
MODEL = "reader-2"
"""Names the weights: readings of others do not count."""
LONGEST = 62
"""Word pieces of each text that are read."""


def layout() -> list[Tensor]:
    """The tensors in the order in which they lie in the file."""
    return [
        Tensor("side", (4, WIDTH), False),
        *layers_layout(),
        Tensor("head.weight", (WIDTH, 5 * WIDTH), True),
        Tensor("head.bias", (WIDTH,), False),
        Tensor("out.weight", (OUTPUTS, WIDTH), False),
        Tensor("out.bias", (OUTPUTS,), False),
    ]


class _Model(NamedTuple):
    """All weights but those of words and positions, which are the encoder's."""

    side: Floats
    """Added to the pieces of the earlier text and to those of the later one, and to those of each that both have."""
    norm: Norm
    layers: Sequence[Layer]
    head: Dense
    out: Floats
    bias: Floats

    def read(self, x: Floats, spans: Sequence[tuple[int, int]], marks: Sequence[NDArray[np.intp]]) -> Floats:
        """The outputs for pairs, given the vectors of their pieces and the `sides` of each pair."""
        import numpy as np

        for (start, end), its in zip(spans, marks, strict=True):
            x[start:end] += self.side[its]
        middles = [start + int(np.argmax(its % 2)) for (start, _end), its in zip(spans, marks, strict=True)]
        x = states(x, spans, self.norm, self.layers)
        earlier = np.stack(
            [x[start:middle].mean(0) for (start, _), middle in zip(spans, middles, strict=True)]
        )
        later = np.stack([x[middle:end].mean(0) for (_, end), middle in zip(spans, middles, strict=True)])
        first = x[[start for start, _end in spans]]
        pooled = np.concatenate([earlier, later, np.abs(earlier - later), earlier * later, first], axis=1)
        return np.tanh(self.head(pooled)) @ self.out.T + self.bias


def sides(ids: NDArray[np.integer], middle: int) -> NDArray[np.intp]:
    """Of each piece of a pair: 0 in the earlier text, 1 in the later, and 2 more where the other text has it as well.

    >>> import numpy as np
    >>> sides(np.array([CLS, 7, 8, SEP, 8, 9, SEP]), 4).tolist()
    [0, 0, 2, 0, 3, 1, 1]
    """
    import numpy as np

    later = np.arange(len(ids)) >= middle
    both = np.intersect1d(ids[1 : middle - 1], ids[middle:-1])
    return later + 2 * np.isin(ids, both)


@lru_cache(maxsize=1)
def _model() -> _Model:
    tensors = read_tensors(WEIGHTS, layout())
    plain = tensors.plain
    return _Model(
        plain["side"], *tensors.layers(), tensors.dense("head"), plain["out.weight"], plain["out.bias"]
    )


def read_pairs(pairs: Sequence[tuple[str, str]]) -> Floats:
    """The outputs of the model for pairs of texts, the earlier first; one row of `OUTPUTS` each."""
    import numpy as np

    texts = list(dict.fromkeys(text for pair in pairs for text in pair))
    flat, sizes = bundled_wordpiece().cut(texts, None, LONGEST)
    ends = np.cumsum(sizes).tolist()
    pieces = {text: flat[end - size : end] for text, end, size in zip(texts, ends, sizes, strict=True)}
    rows = [[CLS, *pieces[one], SEP, *pieces[other], SEP] for one, other in pairs]
    marks = [
        sides(np.asarray(row), len(pieces[one]) + 2) for row, (one, _other) in zip(rows, pairs, strict=True)
    ]

    def read(batch: Sequence[int], x: Floats, spans: Sequence[tuple[int, int]]) -> Floats:
        return _model().read(x, spans, [marks[at] for at in batch])

    return in_passes(rows, read, OUTPUTS)


WORTH = 0.05
"""The probability of the linear model, that a pair is more than two memories that both hold, from which it is read."""
AT_ONCE = 8
"""Pairs that one write reads while its caller waits."""
LIKELY, BEHIND = -4.5, -3.0
"""The log odds of an update, by the linear model, from which such a pair is read: at a write; and behind an import,
where that passes over nine in ten neighbours."""
FEW = 2
"""Pairs that are read for each memory of a large import."""
KEPT = 8192
"""Readings that are kept in memory."""
TEXT = 300
"""Characters of a text that may update another: a report or a page says more than one thing."""


class BankReader:
    """Reads pairs for one bank, and keeps what it read in the bank.

    The engine of a bank whose vectors come from a model holds one. Pairs are known by their texts, so that a revision
    needs no care.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._kept: OrderedDict[int, Floats] = OrderedDict()
        self._fresh: dict[int, bytes] = {}
        """Readings that are not in the bank yet."""

    def known(self, pairs: Sequence[tuple[str, str]]) -> Floats:
        """The outputs for pairs that were read, nan for the others."""
        import numpy as np

        found = np.full((len(pairs), OUTPUTS), np.nan, np.float32)
        keys = [_key(pair) for pair in pairs]
        asked = [key for key in keys if key not in self._kept]
        for key, outputs in (self._engine.readings.get(asked) if asked else {}).items():
            self._keep(key, np.frombuffer(outputs, "<f2").astype(np.float32))
        for row, key in enumerate(keys):
            if key in self._kept:
                found[row] = self._kept[key]
        return found

    def __call__(self, pairs: Sequence[tuple[str, str]], worth: Floats, most: int = AT_ONCE) -> Floats:
        """The outputs for pairs; of those that were not read yet, the `most` that are worth most are read now.

        Args:
            pairs: The texts, the earlier first.
            worth: The probability that a pair is more than two memories that both hold.
            most: Pairs to read now.
        """
        import numpy as np

        found = self.known(pairs)
        missing = np.flatnonzero(np.isnan(found[:, 0]) & (worth >= WORTH))
        chosen: list[int] = missing[np.argsort(-worth[missing], kind="stable")][:most].tolist()
        if chosen:
            found[chosen] = read_pairs([pairs[at] for at in chosen])
            for at in chosen:
                key = _key(pairs[at])
                self._fresh[key] = found[at].astype("<f2").tobytes()
                self._keep(key, found[at].copy())
        return found

    def _keep(self, key: int, outputs: Floats) -> None:
        self._kept[key] = outputs
        if len(self._kept) > KEPT:
            self._kept.popitem(last=False)

    def read_near(self, rows: Sequence[int], *, behind: bool = False) -> None:
        """Read new memories together with those near to them that they may update, or that may update them.

        Args:
            rows: The new memories.
            behind: True behind a large import, where fewer pairs are read.
        """
        engine = self._engine
        for row, memory in engine.memories(rows).items():
            nearest = self._nearest(row, memory) if updatable(memory) else None
            if nearest is not None:
                pairs = self._pairs_of(memory, nearest, BEHIND if behind else LIKELY)
                self._read(pairs[:FEW] if behind else pairs)
        self.store()

    def read_with(self, memory: Memory, nearest: Nearest) -> None:
        """Read one new memory together with the neighbours that were found before it was written."""
        if updatable(memory):
            self._read(self._pairs_of(memory, nearest, LIKELY))
        self.store()

    def _read(self, pairs: Sequence[tuple[str, str]]) -> None:
        if pairs:
            import numpy as np

            self(pairs, np.ones(len(pairs), np.float32), len(pairs))

    def store(self) -> None:
        """Put what was read into the bank. Where somebody else writes, it waits for the next time."""
        if self._fresh and self._engine.keep_readings(self._fresh):
            self._fresh = {}

    def _nearest(self, row: int, memory: Memory) -> Nearest | None:
        """The nearest neighbours of a stored memory; None where it has no vector, or none of them has."""
        import numpy as np

        engine = self._engine
        where = Filter(
            scope=memory.scope if not memory.scope.shared else Scope(),
            include_shared=True,
            kinds=STATED,
            statuses=CURRENT,
        )
        with engine.snapshot():
            head = engine.index.refresh()
            vector = engine.index.vectors(np.array([row], np.int64))[0]
            if not vector.any():
                return None
            pool = engine.index.search([], vector, where, k_words=0, k_vectors=NEIGHBOURS + 1)
            others = {
                each: other for each, other in engine.memories(pool.rows.tolist()).items() if each != row
            }
            if not others:
                return None
            vectors = engine.index.vectors(np.array(list(others), np.int64))
        return Nearest(vector, list(others.values()), vectors, head)

    def _pairs_of(self, memory: Memory, nearest: Nearest, least: float) -> list[tuple[str, str]]:
        """The texts of a memory and of its nearest neighbours, as pairs that may be updates by the linear model."""
        import numpy as np

        places = [at for at, other in enumerate(nearest.memories) if updatable(other)]
        if not places:
            return []
        ordered = in_order([(memory, nearest.memories[at]) for at in places], self._engine.now())
        later = np.array([newer is memory for _older, newer in ordered])
        vectors = nearest.vectors[places]
        mine = np.broadcast_to(nearest.vector, vectors.shape)
        one, other = np.where(later[:, None], vectors, mine), np.where(later[:, None], mine, vectors)
        pairs = [(older.text, newer.text) for older, newer in ordered]
        chances = update_scores([a for a, _ in pairs], [b for _, b in pairs], one, other)
        enough = 1 / (1 + math.exp(-least))
        order: list[int] = np.argsort(-chances, kind="stable").tolist()
        return [pairs[at] for at in order if chances[at] >= enough]


def updatable(memory: Memory) -> bool:
    """True for a memory that may update another, or be updated: no document, long text or turn of a conversation."""
    turn = memory.kind == "episode" and bool(memory.scope.session)
    return memory.kind != "document" and not turn and len(memory.text) <= TEXT


@lru_cache(maxsize=KEPT)
def _key(pair: tuple[str, str]) -> int:
    """A number made of the model and both texts."""
    told = "\0".join((MODEL, *pair)).encode(errors="replace")
    return int.from_bytes(hashlib.blake2b(told, digest_size=8).digest(), "little", signed=True)
