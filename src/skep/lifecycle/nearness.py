"""The memories near another one, within its own scope, with their similarity on the common scale."""

from __future__ import annotations

import math
from collections.abc import Sequence

from skep.engine import Engine
from skep.model import CURRENT, Memory
from skep.storage.base import Filter
from skep.storage.rows import searched_text


def near(
    engine: Engine, memory: Memory, *, kinds: Sequence[str], threshold: float, limit: int = 16
) -> list[tuple[Memory, float]]:
    """Current memories of some kinds at least this similar, nearest first, without the memory itself."""
    import numpy as np

    row = engine.store.rows_of([memory.id]).get(memory.id)
    stored = engine.store.vectors_of([row]) if row is not None else {}
    if row in stored:
        vector = np.frombuffer(stored[row], dtype="<f4")
    else:
        made = engine.embeddings.query_vector(searched_text(memory.title, memory.text))
        if made is None:
            return []
        vector = made
    where = Filter(scope=memory.scope, kinds=tuple(kinds), statuses=CURRENT)
    pool = engine.index.similar(vector, where, limit + 1)
    calibrate = engine.embeddings.calibrate
    close = [
        (int(other), similarity)
        for other, cosine in zip(pool.rows.tolist(), pool.cosine.tolist(), strict=True)
        if other != row and not math.isnan(cosine) and (similarity := calibrate(cosine)) >= threshold
    ]
    found = engine.store.memories([other for other, _ in close])
    pairs = [(found[other], similarity) for other, similarity in close if other in found]
    return sorted(pairs, key=lambda pair: (-pair[1], pair[0].id))[:limit]
