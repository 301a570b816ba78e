"""Embedders from two libraries that many have installed already: fastembed and sentence-transformers.

`open_embedder` makes one from `fastembed:MODEL` or `sentence-transformers:MODEL`. The library finds the model by its
name, in its own cache or on the network; it is loaded at the first text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any

from skep.embedding.embedder import Calibration, measure
from skep.errors import ConfigError, EmbedderUnavailableError, MissingExtraError

if TYPE_CHECKING:
    from skep.embedding.embedder import Vectors

Encode = Callable[[list[str]], Any]


def _fastembed(library: Any, model: str) -> Encode:
    loaded = library.TextEmbedding(model)
    return lambda texts: list(loaded.embed(texts))


def _sentence_transformers(library: Any, model: str) -> Encode:
    loaded = library.SentenceTransformer(model)
    return lambda texts: loaded.encode(texts, convert_to_numpy=True, show_progress_bar=False)


LIBRARIES: Mapping[str, tuple[str, Callable[[Any, str], Encode], str]] = {
    "fastembed": ("fastembed", _fastembed, "BAAI/bge-small-en-v1.5"),
    "sentence-transformers": ("sentence_transformers", _sentence_transformers, "all-MiniLM-L6-v2"),
}
"""Per library: its module, how it loads a model, and a model to name."""


class LibraryEmbedder:
    """Vectors from a model that a library runs in this process.

    Args:
        library: One of `LIBRARIES`, which is also the name of the extra.
        model: The name by which the library finds it; for sentence-transformers a folder will do.
        known_dim: The length of its vectors, where it was asked before.
    """

    def __init__(self, library: str, model: str, *, known_dim: int | None = None) -> None:
        if not model:
            raise ConfigError(f"name a model, for example '{library}:{LIBRARIES[library][2]}'")
        self._library = library
        self._model = model
        self._known_dim = known_dim

    @property
    def fingerprint(self) -> str:
        """Names the library, the model and the dimension."""
        return f"{self._library}-{self._model}-{self.dim}"

    @property
    def dim(self) -> int:
        """The length of every row; the model is asked once."""
        return self._width

    @cached_property
    def _width(self) -> int:
        return self._known_dim or len(self._encode(["dimension"])[0])

    @property
    def instant(self) -> bool:
        """Never: milliseconds per text."""
        return False

    @cached_property
    def calibration(self) -> Calibration:
        """Measured once on a few probes."""
        return measure(self)

    def calibrate(self, cosine: float) -> float:
        """Map a raw cosine of this model to the common scale."""
        return self.calibration(cosine)

    def embed(self, texts: Sequence[str]) -> Vectors:
        """One unit row per text; blank texts give zero rows."""
        import numpy as np

        out = np.zeros((len(texts), self.dim), np.float32)
        filled = [number for number, text in enumerate(texts) if text.strip()]
        if filled:
            rows = np.asarray(self._encode([texts[number] for number in filled]), np.float32)
            norms = np.linalg.norm(rows, axis=1, keepdims=True)
            out[filled] = np.divide(rows, norms, out=np.zeros_like(rows), where=norms > 0)
        return out

    @cached_property
    def _encode(self) -> Encode:
        module, load, example = LIBRARIES[self._library]
        try:
            library = import_module(module)
        except ImportError as error:
            raise MissingExtraError(f"an embedder of {self._library}", self._library) from error
        try:
            return load(library, self._model)
        except (OSError, ValueError, RuntimeError) as error:
            raise EmbedderUnavailableError(
                f"{self._library} cannot load {self._model!r} ({error}); name a model that it knows, such as"
                f" {example!r}"
            ) from error
