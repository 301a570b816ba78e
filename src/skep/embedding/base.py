"""The Embedder protocol: what every source of vectors promises."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Vectors = NDArray[np.float32]

    class Embeds(Protocol):
        """The part of an embedder that does the work."""

        def embed(self, texts: Sequence[str], /) -> Vectors:
            """One row per text."""
            ...


@runtime_checkable
class Embedder(Protocol):
    """Anything that maps texts to unit-length rows.

    One that asks a service may also have `embed_once(texts, seconds=None)`: the same as `embed`, but asking once and,
    if `seconds` is given, waiting no longer than that. It is used where something else is waiting.
    """

    @property
    def fingerprint(self) -> str:
        """Vectors may be compared only where this is equal. Names model, version and dimension."""
        ...

    @property
    def dim(self) -> int:
        """The length of every row."""
        ...

    @property
    def instant(self) -> bool:
        """Whether a text costs well under a millisecond, so that `remember` embeds in place."""
        ...

    def embed(self, texts: Sequence[str]) -> Vectors:
        """One float32 row of length 1 per text; a text with nothing to embed gives a zero row."""
        ...

    def calibrate(self, cosine: float) -> float:
        """Map a raw cosine of this embedder to the common scale on which thresholds are written.

        Monotone; about 0 for random pairs, 0.80 for close paraphrases, 0.95 for near-identical texts, 1 for equal.
        """
        ...
