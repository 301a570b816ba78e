"""The Embedder protocol, the ways to open an embedder by name, and the check of what an embedder gives.

The engine holds one embedder per open bank and calls it through `guarded` and `checked`. Importing this module imports
neither numpy nor any optional dependency; each opener imports its provider when it is called.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

from skep.errors import ConfigError, EmbedderFailedError, EmbedderMismatchError, EmbeddingError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Vectors = NDArray[np.float32]


@runtime_checkable
class Embedder(Protocol):
    """Anything that maps texts to unit-length rows.

    Invariants: the same text gives the same row (up to rounding), whatever stands beside it in a call and in whatever
    process; rows of one fingerprint may be compared with each other and with no others; `calibrate` is monotone.

    An implementation must not keep state that a bank depends on, must not touch the bank, must not return fewer rows
    than texts, and must not change its fingerprint while it is in use. `embed` is called from several threads.

    Four optional members are used where they are there:

    - `spec: str`: the name under which `open_embedder` finds it again; the bank remembers it.
    - `at_once(texts) -> bool`: True where this write is small enough to be embedded while its caller waits. Without it
      everything is left to the queue, unless the embedder is instant.
    - `draft(texts) -> Vectors`: rough rows of the same space in next to no time. They stand in for texts that are left
      to the queue, so that those are found by meaning at once.
    - `embed_once(texts, seconds=None) -> Vectors`: for services: `embed` without retries, and waiting no longer than
      `seconds`. It is used where something else is waiting.
    """

    @property
    def fingerprint(self) -> str:
        """Names model, version and dimension: vectors may be compared only where this is equal."""
        ...

    @property
    def dim(self) -> int:
        """The length of every row."""
        ...

    @property
    def instant(self) -> bool:
        """True where a text costs well under a millisecond, so that every write embeds in place.

        False for every model; ranking takes that as the mark of one and trusts its cosines more.
        """
        ...

    def embed(self, texts: Sequence[str]) -> Vectors:
        """One float32 row of length 1 per text; a text with nothing to embed gives a zero row."""
        ...

    def calibrate(self, cosine: float) -> float:
        """Map a raw cosine of this embedder to the common scale on which thresholds are written.

        Monotone; about 0 for random pairs, 0.80 for close paraphrases, 0.95 for near-identical texts, 1 for equal.
        """
        ...


DEFAULT = "minilm"
"""The spec of a bank that names none."""
VARIABLE = "SKEP_EMBEDDER"
"""The environment variable that names another default."""


def default_spec(environ: Mapping[str, str] = os.environ) -> str:
    """The spec of the embedder that a bank uses unless told otherwise."""
    return environ.get(VARIABLE) or DEFAULT


def default_embedder(environ: Mapping[str, str] = os.environ) -> Embedder:
    """The embedder that a bank uses unless told otherwise: the bundled MiniLM, or what `SKEP_EMBEDDER` names."""
    return open_embedder(default_spec(environ))


def spec_of(spec: str | None, fingerprint: str) -> str | None:
    """The spec that opens the embedder of stored vectors today; None where only its owner can bring it.

    Before the transformer was bundled, `minilm` was an ONNX file; and a bank that was given a bundled embedder as an
    object knows its fingerprint alone.
    """
    if spec == "minilm" and fingerprint.startswith("onnx-"):
        return "minilm-onnx"
    prefixes = {"static-": "static", "skep-minilm-": "minilm"}
    return spec or next((known for prefix, known in prefixes.items() if fingerprint.startswith(prefix)), None)


def _static(rest: str, **_: object) -> Embedder:
    from skep.embedding.static_table import DATA, StaticEmbedder

    return StaticEmbedder(rest or DATA)


def _hash(rest: str, **_: object) -> Embedder:
    from skep.embedding.static_table import HashingEmbedder

    if rest and not rest.isdigit():
        raise ConfigError(f"'hash:{rest}' is not a dimension; write for example 'hash:256'")
    return HashingEmbedder(int(rest)) if rest else HashingEmbedder()


def _minilm(rest: str, **options: object) -> Embedder:
    if rest:  # as it was written before the transformer was bundled
        return _minilm_onnx(rest, **options)
    from skep.embedding.minilm import bundled_minilm

    return bundled_minilm()


def _minilm_onnx(rest: str, **_: object) -> Embedder:
    from pathlib import Path

    from skep.embedding.onnx import open_minilm

    return open_minilm(Path(rest).expanduser() if rest else None)


def _onnx(rest: str, **_: object) -> Embedder:
    from pathlib import Path

    from skep.embedding.onnx import OnnxEmbedder

    if not rest:
        raise ConfigError("'onnx' needs the folder of a model; write for example 'onnx:models/bge-small'")
    return OnnxEmbedder(Path(rest).expanduser())


def _library(rest: str, *, name: str, known_dim: int | None, **_: object) -> Embedder:
    from skep.embedding.library_models import LibraryEmbedder

    return LibraryEmbedder(name, rest, known_dim=known_dim)


def _remote(
    rest: str, *, name: str, known_dim: int | None, api_key: str | None, base_url: str | None
) -> Embedder:
    from skep.embedding.remote import SERVICES, RemoteEmbedder

    model, _, dim = rest.partition("@")
    if dim and not dim.isdigit():
        raise ConfigError(f"'@{dim}' is not a dimension; write for example '{name}:{model}@512'")
    return RemoteEmbedder(
        SERVICES[name],
        model,
        dim=int(dim) if dim else None,
        known_dim=known_dim,
        api_key=api_key,
        base_url=base_url,
    )


_OPENERS: dict[str, Callable[..., Embedder]] = {
    "static": _static,
    "hash": _hash,
    "minilm": _minilm,
    "minilm-onnx": _minilm_onnx,
    "onnx": _onnx,
    "fastembed": _library,
    "sentence-transformers": _library,
    "openai": _remote,
    "gemini": _remote,
    "voyage": _remote,
    "cohere": _remote,
    "ollama": _remote,
}


class Opener(Protocol):
    """A function that opens a spec: `open_embedder`, or the same with keys and addresses at hand."""

    def __call__(self, spec: str, *, known_dim: int | None = None) -> Embedder:
        """Open an embedder by name."""
        ...


def open_embedder(
    spec: str, *, known_dim: int | None = None, api_key: str | None = None, base_url: str | None = None
) -> Embedder:
    """Open an embedder by name.

    | spec | embedder |
    |---|---|
    | `minilm` | the bundled transformer (the default) |
    | `static` | the bundled table of word vectors |
    | `hash:256` | feature hashing, for tests |
    | `minilm-onnx`, `minilm-onnx:FOLDER` | the original MiniLM int8 on onnxruntime, extra `quality` |
    | `onnx:FOLDER` | any local sentence-transformers-style ONNX model, extra `quality` |
    | `fastembed:MODEL`, `sentence-transformers:MODEL` | a model of that library, extra of the same name |
    | `openai:MODEL`, `gemini:MODEL`, `ollama:MODEL` | a remote service; `MODEL@512` names the dimension |
    | `voyage:MODEL`, `cohere:MODEL` | the same |

    Args:
        spec: A name, or a name, a colon and what it needs.
        known_dim: For remote services: the length of its vectors, where it was asked before.
        api_key: For remote services. Environment variables are the caller's business.
        base_url: For remote services, if not the usual address.
    """
    name, _, rest = spec.partition(":")
    opener = _OPENERS.get(name)
    if opener is None:
        raise ConfigError(f"unknown embedder {spec!r}; choose one of {', '.join(_OPENERS)}")
    return opener(rest, name=name, known_dim=known_dim, api_key=api_key, base_url=base_url)


T = TypeVar("T")


def checked(given: Any, count: int, dim: int, name: str) -> Vectors:
    """One float32 row of finite numbers per text, or an error that names the embedder and what it did.

    Args:
        given: The answer of the embedder; lists of numbers will do.
        count: The number of texts it was given.
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
