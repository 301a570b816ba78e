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
)
from skep.embedding.static_table import bundled_wordpiece
from skep.filters import Filter
from skep.model import CURRENT, Scope
from skep.semantics.find_conflicts import STATED, older_first
from skep.semantics.pair_judge import OUTPUTS, update_scores

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from skep.engine.engine import Engine
    from skep.model import Memory

    Floats = NDArray[np.float32]

WEIGHTS = os.path.join(os.path.dirname(__file__), "data", "reader.bin")
MODEL = "reader-1"
"""Names the weights: readings of others do not count."""
LONGEST = 62
"""Word pieces of each text that are read."""


def layout() -> list[Tensor]:
    """The tensors in the order in which they lie in the file."""
    return [
        Tensor("side", (2, WIDTH), False),
        *layers_layout(),
        Tensor("head.weight", (WIDTH, 2 * WIDTH), True),
        Tensor("head.bias", (WIDTH,), False),
        Tensor("out.weight", (OUTPUTS, WIDTH), False),
        Tensor("out.bias", (OUTPUTS,), False),
    ]


class _Model(NamedTuple):
    """All weights but those of words and positions, which are the encoder's."""

    side: Floats
    """Added to the pieces of the earlier text, and to those of the later one."""
    norm: Norm
    layers: Sequence[Layer]
    head: Dense
    out: Floats
    bias: Floats

    def read(self, x: Floats, spans: Sequence[tuple[int, int]], cuts: Sequence[int]) -> Floats:
        """The outputs for pairs, given the vectors of their pieces and where the later text of each begins."""
        import numpy as np

        for (start, end), cut in zip(spans, cuts, strict=True):
            x[start : start + cut] += self.side[0]
            x[start + cut : end] += self.side[1]
        x = self.norm(x)
        for layer in self.layers:
            x = layer(x, spans)
        pooled = np.stack([np.concatenate([x[start:end].mean(axis=0), x[start]]) for start, end in spans])
        return np.tanh(self.head(pooled)) @ self.out.T + self.bias


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
    cuts = [len(pieces[one]) + 2 for one, _other in pairs]

    def read(batch: Sequence[int], x: Floats, spans: Sequence[tuple[int, int]]) -> Floats:
        return _model().read(x, spans, [cuts[at] for at in batch])

    return in_passes(rows, read, OUTPUTS)


WORTH = 0.05
"""The probability of the linear model, that a pair is more than two memories that both hold, from which it is read."""
AT_ONCE = 8
"""Pairs that one write reads while its caller waits."""
NEIGHBOURS = 10
"""Memories that a new one is read together with at most: those nearest in meaning."""
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
            if not updatable(memory):
                continue
            pairs = self._pairs_of(row, memory, BEHIND if behind else LIKELY)
            if behind:
                pairs = pairs[:FEW]
            if pairs:
                import numpy as np

                self(pairs, np.ones(len(pairs), np.float32), len(pairs))
        self.store()

    def store(self) -> None:
        """Put what was read into the bank. Where somebody else writes, it waits for the next time."""
        if self._fresh and self._engine.keep_readings(self._fresh):
            self._fresh = {}

    def _pairs_of(self, row: int, memory: Memory, least: float) -> list[tuple[str, str]]:
        """The texts of a memory and of its nearest neighbours, as pairs that may be updates by the linear model."""
        import numpy as np

        engine = self._engine
        where = Filter(
            scope=memory.scope if not memory.scope.shared else Scope(),
            include_shared=True,
            kinds=STATED,
            statuses=CURRENT,
        )
        with engine.snapshot():
            engine.index.refresh()
            vector = engine.index.vectors(np.array([row], np.int64))[0]
            if not vector.any():
                return []
            pool = engine.index.search([], vector, where, k_words=0, k_vectors=NEIGHBOURS + 1)
            others = {
                each: other for each, other in engine.memories(pool.rows.tolist()).items() if each != row
            }
            rows = [each for each, other in others.items() if updatable(other)]
            vectors = engine.index.vectors(np.array(rows, np.int64)) if rows else None
        if vectors is None:
            return []
        now = engine.now()
        ordered = [older_first(memory, others[each], now) for each in rows]
        later = np.array([newer is memory for _older, newer in ordered])
        mine = np.broadcast_to(vector, vectors.shape)
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
