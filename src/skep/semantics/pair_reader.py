"""The reader of pairs: a transformer that reads an earlier and a later text together, and says what the later one does.

It tells updates and look-alikes apart where words and vectors of the two texts alone cannot; a pair costs some 10
milliseconds. `pair_judge` asks it about pairs that its linear model cannot dismiss, where vectors come from a model; nobody
else does. It shares the words of the bundled encoder, and keeps the answers of recent pairs.
`training/train_reader.py` makes the weights; training/READER.md says how good they are.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from skep.embedding.minilm import CLS, SEP, model_of
from skep.embedding.static_table import bundled_wordpiece
from skep.embedding.transformer import WIDTH, Dense, Layer, Norm, Tensor, layers_layout, one_thread, read_tensors

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]

WEIGHTS = os.path.join(os.path.dirname(__file__), "data", "reader.bin")
LONGEST = 62
"""Word pieces of each text that are read."""
TOKENS = 512
"""Word pieces of one pass."""
OUTPUTS = 5
"""Log odds of same, updates, contradicts and both (they compete), then of an update (which stands alone)."""
UPDATE = 4
"""The place of the log odds of an update."""


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

    def read(self, pairs: Sequence[tuple[Sequence[int], Sequence[int]]]) -> Floats:
        """The outputs for pairs of texts, given as word pieces."""
        import numpy as np

        words = model_of()
        rows = [[CLS, *one, SEP, *other, SEP] for one, other in pairs]
        ends = np.cumsum([len(row) for row in rows]).tolist()
        spans = [(end - len(row), end) for end, row in zip(ends, rows, strict=True)]
        ids = np.concatenate([np.asarray(row, np.intp) for row in rows])
        x = words.words[ids] * words.word_scales[ids, None]
        for (start, end), (one, _other) in zip(spans, pairs, strict=True):
            x[start:end] += words.positions[: end - start]
            later = start + len(one) + 2
            x[start:later] += self.side[0]
            x[later:end] += self.side[1]
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

    found = np.empty((len(pairs), OUTPUTS), np.float32)
    texts = list(dict.fromkeys(text for pair in pairs for text in pair))
    flat, sizes = bundled_wordpiece().cut(texts, None, LONGEST)
    ends = np.cumsum(sizes).tolist()
    pieces = {text: flat[end - size : end] for text, end, size in zip(texts, ends, sizes, strict=True)}
    cut = [(pieces[one], pieces[other]) for one, other in pairs]
    waiting = sorted(range(len(pairs)), key=lambda at: len(cut[at][0]) + len(cut[at][1]))
    while waiting:
        longest = len(cut[waiting[-1]][0]) + len(cut[waiting[-1]][1]) + 3
        batch = waiting[-max(1, TOKENS // longest) :]
        del waiting[-len(batch) :]
        with one_thread():
            found[batch] = _model().read([cut[at] for at in batch])
    return found
