"""The Embedder protocol, the ways to open an embedder by name, the check of what it gives, and its calibration.

The engine holds one embedder per open bank and calls it through `guarded` and `checked`. A *calibration* is a monotone
map from the raw cosines of one embedder to the scale on which thresholds are written: there random pairs lie around 0,
close paraphrases around 0.80, near-identical texts around 0.95 and equal texts at 1. `measure` makes one for an
embedder that nobody has calibrated, from `PROBES`. Importing this module imports neither numpy nor any optional
dependency; each opener imports its provider when it is called.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

from skep.errors import ConfigError, EmbedderFailedError, EmbedderMismatchError, EmbeddingError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Vectors = NDArray[np.float32]

    class Embeds(Protocol):
        """The part of an embedder that makes vectors."""

        def embed(self, texts: Sequence[str], /) -> Vectors:
            """One row per text."""
            ...


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


Knot = tuple[float, float]


class Calibration:
    """A monotone, piecewise linear map of [-1, 1] into itself; its ends stay where they are unless a knot moves them.

    >>> Calibration([(0.4, 0.0), (0.9, 0.8)])(0.65)
    0.4
    """

    def __init__(self, knots: Iterable[Sequence[float]] = ()) -> None:
        given = {float(raw): float(common) for raw, common in knots if -1 <= raw <= 1}
        self.knots: tuple[Knot, ...] = tuple(sorted(({-1.0: -1.0, 1.0: 1.0} | given).items()))
        for (raw, common), (next_raw, next_common) in zip(self.knots, self.knots[1:], strict=False):
            if not (raw < next_raw and common <= next_common):
                raise ConfigError(
                    f"calibration knots must rise; {(raw, common)} is followed by {(next_raw, next_common)}"
                )
        self._raw = [raw for raw, _ in self.knots]

    @cached_property
    def _arrays(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Both sides of the knots, once many are asked for."""
        import numpy as np

        return np.array(self._raw), np.array([common for _, common in self.knots])

    def __call__(self, cosine: float) -> float:
        """The common-scale value of one raw cosine."""
        from bisect import bisect_right

        right = min(max(bisect_right(self._raw, cosine), 1), len(self.knots) - 1)
        (x0, y0), (x1, y1) = self.knots[right - 1], self.knots[right]
        return min(max(y0 + (cosine - x0) * (y1 - y0) / (x1 - x0), -1.0), 1.0)

    def many(self, cosines: NDArray[np.float32]) -> NDArray[np.float32]:
        """The common-scale values of an array of raw cosines."""
        import numpy as np

        return np.interp(cosines, *self._arrays).astype(np.float32)

    def inverse(self, common: float) -> float:
        """The smallest raw cosine that reaches a value on the common scale."""
        for (x0, y0), (x1, y1) in zip(self.knots, self.knots[1:], strict=False):
            if common <= y1:
                return x1 if y1 == y0 else min(max(x0 + (common - y0) * (x1 - x0) / (y1 - y0), -1.0), 1.0)
        return 1.0


IDENTITY = Calibration()
"""Raw cosines as they are: for embedders whose scale is the common one, or unknown."""


SAMPLES = 1001


def sampled(calibrate: Callable[[float], float]) -> Calibration:
    """A map that is read off a function at evenly spaced cosines, and follows straight lines between them."""
    points = [-1 + 2 * step / (SAMPLES - 1) for step in range(SAMPLES)]
    return Calibration(zip(points, accumulate(map(calibrate, points), max), strict=True))


def knots_from(
    unrelated: Sequence[float], paraphrased: Sequence[float], retyped: Sequence[float]
) -> list[Knot]:
    """The knots of an embedder from its raw cosines for three kinds of pairs.

    Half of the unrelated pairs come to lie below 0, three quarters of the paraphrases above 0.80, and three
    quarters of the retyped texts above 0.95.
    """
    import numpy as np

    raw = [
        float(np.median(unrelated)),
        float(np.quantile(paraphrased, 0.25)),
        float(np.quantile(retyped, 0.25)),
    ]
    raw = [max(-0.9, min(value, limit)) for value, limit in zip(raw, (0.90, 0.95, 0.995), strict=True)]
    for place in (1, 2):
        raw[place] = max(raw[place], raw[place - 1] + 0.004)
    return list(zip(raw, (0.0, 0.80, 0.95), strict=True))


def measure(embedder: Embeds) -> Calibration:
    """A map for an embedder nobody has calibrated yet, from how it sees some fifty short texts."""
    import numpy as np

    count = len(PROBES)
    rows = embedder.embed([text for triple in PROBES for text in triple]).reshape(count, 3, -1)
    said, paraphrased, retyped = rows[:, 0], rows[:, 1], rows[:, 2]
    unrelated = (said @ paraphrased.T)[~np.eye(count, dtype=bool)]
    same = [(said * other).sum(axis=1).tolist() for other in (paraphrased, retyped)]
    return Calibration(knots_from(unrelated.tolist(), *same))


PROBES: tuple[tuple[str, str, str], ...] = (
    (
        "The deploy failed on Tuesday night.",
        "On Tuesday night the deployment broke.",
        "the deploy failed on tuesday night",
    ),
    (
        "Anna is allergic to peanuts.",
        "Anna can't eat peanuts because of an allergy.",
        "Anna is allergic to peanuts!",
    ),
    (
        "We store sessions in Redis.",
        "Redis is where our sessions are kept.",
        "We store the sessions in Redis.",
    ),
    (
        "The meeting was moved to Friday.",
        "They rescheduled the meeting for Friday.",
        "The meeting has moved to Friday.",
    ),
    (
        "He grew up in a small fishing village.",
        "His childhood was spent in a little village of fishermen.",
        "He grew up in a small fishing village",
    ),
    (
        "How do I reset my password?",
        "What is the way to change a forgotten password?",
        "How do I reset my password",
    ),
    (
        "The tests take ten minutes to run.",
        "Running the test suite needs ten minutes.",
        "The tests take ten minutes to run!",
    ),
    (
        "She bought a used bicycle last spring.",
        "Last spring she purchased a second-hand bike.",
        "She bought a used bicycle last spring.",
    ),
    (
        "Never push directly to the main branch.",
        "Direct pushes to main are forbidden.",
        "Never push directly to main branch.",
    ),
    (
        "The restaurant closes at nine in the evening.",
        "At 9 pm the restaurant shuts.",
        "The restaurant closes at nine in the evenings.",
    ),
    (
        "Their daughter plays the violin.",
        "The violin is played by their daughter.",
        "Their daughter plays violin.",
    ),
    (
        "Memory use grows until the worker is killed.",
        "The worker leaks memory and dies in the end.",
        "Memory use grows until the worker gets killed.",
    ),
    (
        "The invoice for March is still unpaid.",
        "Nobody has paid the March invoice yet.",
        "The invoice for March is still not paid.",
    ),
    (
        "It rained for the whole holiday.",
        "We had rain during our entire vacation.",
        "It rained the whole holiday.",
    ),
    (
        "Use four spaces to indent Python code.",
        "Python files are indented with four spaces.",
        "Use four spaces to indent python code",
    ),
    (
        "The old bridge was repaired in 1987.",
        "In 1987 they fixed the old bridge.",
        "The old bridge was repaired in 1987!",
    ),
)
"""Short texts that show how an embedder spreads its cosines: a statement, its paraphrase, and the statement retyped."""
