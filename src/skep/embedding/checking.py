"""The edge to embedders: the one look at what they give before it is used, and one kind of error for all they raise."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from skep.errors import EmbedderFailedError, EmbedderMismatchError, EmbeddingError

if TYPE_CHECKING:
    from skep.embedding.base import Vectors

T = TypeVar("T")


def checked(given: Any, count: int, dim: int, name: str) -> Vectors:
    """One float32 row of finite numbers per text, or an error that names the embedder and what it did.

    Args:
        given: What the embedder gave; lists of numbers will do.
        count: How many texts it was given.
        dim: The length of a row.
        name: The fingerprint of the embedder.
    """
    import numpy as np

    try:
        rows = np.asarray(given, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise EmbedderMismatchError(f"{name} gave something that is not numbers ({error})") from error
    if given is None or rows.shape != (count, dim):
        shape = (
            "nothing" if given is None else f"an array of {' x '.join(map(str, rows.shape)) or 'one number'}"
        )
        raise EmbedderMismatchError(
            f"{name} gave {shape} for {count} text{'s' * (count != 1)} of {dim} dimensions; its `embed` must give"
            " one row per text, each as long as its `dim`"
        )
    flat = rows.ravel()
    if not math.isfinite(flat.dot(flat)):
        raise EmbeddingError(f"{name} gave vectors that are not finite numbers; a row must have length 1")
    return rows


def guarded(name: str, call: Callable[[], T]) -> T:
    """Call an embedder; whatever it raises comes out as an EmbeddingError, for it may be anybody's code.

    Raises EmbedderFailedError for what is none of our errors, but EmbeddingError for a ValueError, which says that a
    text is at fault.
    """
    try:
        return call()
    except EmbeddingError:
        raise
    except ValueError as error:
        raise EmbeddingError(f"{name} refused: {error}") from error
    except Exception as error:
        raise EmbedderFailedError(f"{name} failed: {type(error).__name__}: {error}") from error
