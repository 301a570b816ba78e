"""A small world: memories, an embedder whose vectors a test can foresee, and their sources."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from skep.model import Memory
from skep.retrieval.sources import InMemorySources
from skep.text.terms import terms

NOW = 1_750_000_000.0
DAY = 86_400.0
DIM = 64


class Bag:
    """Vectors that are sums of a fixed random direction per word."""

    fingerprint = "bag-64"
    dim = DIM
    instant = True

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        out = np.zeros((len(texts), DIM), dtype=np.float32)
        for number, text in enumerate(texts):
            for term in terms(text):
                seed = int.from_bytes(term.encode().ljust(8, b"_")[:8], "little")
                out[number] += np.random.default_rng(seed).normal(size=DIM)
        norms = np.linalg.norm(out, axis=1, keepdims=True)
        return np.divide(out, norms, out=out, where=norms > 0)

    def calibrate(self, cosine: float) -> float:
        return cosine


def memory(number: int, text: str, **fields: Any) -> Memory:
    base: dict[str, Any] = {
        "id": f"m-{number}",
        "kind": "fact",
        "text": text,
        "created_at": NOW - DAY,
        "last_evidence_at": NOW - DAY,
    }
    return Memory(**(base | fields))


@pytest.fixture
def world() -> Callable[..., InMemorySources]:
    """Sources over texts, or over memories where a test cares for more than the text."""

    def build(*given: str | Memory, **options: Any) -> InMemorySources:
        built = [each if isinstance(each, Memory) else memory(i, each) for i, each in enumerate(given)]
        return InMemorySources(built, options.pop("embedder", Bag()), **options)

    return build
