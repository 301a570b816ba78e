"""The recall config and its named presets: how one recall ranks, chooses and flags. A frozen value, also plain JSON.

A config is checked as it is built: negative or not-a-number weights, weights that are all zero and intervals that are
upside down are refused. `from_dict` also names unknown keys, with the key that was probably meant.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, Literal, cast, get_args

import msgspec
from msgspec.structs import replace

from skep.confidence import ABOVE, STREAMED
from skep.errors import ConfigError, did_you_mean

# Annotations are evaluated as the classes are made: as texts, msgspec would compile each of them before it can read the
# first config, which took longer than the recall.


Fusion = Literal["weighted", "rrf", "product"]
Choice = Literal["none", "mmr", "diversity"]
Temporal = Literal["off", "boost", "filter"]
Basis = Literal["created_at", "last_used_at"]
Direction = Literal["out", "in", "both"]
Level = Literal["weak", "likely", "strong"]

SIGNALS: tuple[str, ...] = (
    "semantic",
    "words",
    "lexical",
    "recency",
    "importance",
    "confidence",
    "confirmations",
    "trust",
    "usage",
)
"""The signals a weight may be given to."""
QUERY_SIGNALS: tuple[str, ...] = ("semantic", "lexical", "words")
"""Those that depend on the query. `lexical` is BM25 as a share of the best candidate, `words` as a share of the most
that a text could score."""
RANKED_SIGNALS: tuple[str, ...] = ("semantic", "lexical")
"""Those that may be fused by rank."""
_RETIRED = """
    late close numbers contrast peers subject another author phrase bridge wanted thread home echo context window
    floor relative_floor short_floor brief_floor meaning_floor elsewhere currency
"""
RETIRED = frozenset(_RETIRED.split())
"""Fields of earlier versions. A config that a bank holds may still name them; they are left out."""


class Expand(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The walk of a recall along links from its hits."""

    relations: tuple[str, ...] = ()
    """Which relations to follow; none means all."""
    depth: int = 1
    cap: int = 5
    """At most this many memories are added."""
    decay: float = 0.5
    """A memory one hop away scores this share of where the walk came from."""
    direction: Direction = "both"

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        _one_of("expand.direction", self.direction, _DIRECTIONS)
        if not (_within(self.depth, 1, _MANY) and _within(self.cap, 1, _MANY)):
            raise ConfigError(
                "expand.depth and expand.cap must be at least 1; leave expand out to walk no links"
            )
        if not (_within(self.decay, 0, 1) and self.decay):
            raise ConfigError(f"expand.decay must be above 0 and at most 1, not {self.decay!r}")


class RecallConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that decides what a recall returns, apart from the query and its filters."""

    name: str = "custom"
    """The preset it came from; shown, never used."""

    # Candidates
    k_words: int = 100
    """How many candidates the words may bring; at least as many as hits are asked for, unless it is 0."""
    k_vectors: int = 100
    """How many candidates the vectors may bring; likewise."""

    # Scores
    fusion: Fusion = "weighted"
    weights: dict[str, float] = msgspec.field(default_factory=lambda: {"semantic": 1.0})
    """Per signal. With `product` a weight is the strength of the boost 1 + w * signal (semantic: the
    base)."""
    rrf_k: int = 60
    matched_terms: bool = False
    """Without an embedder: score the number of query terms matched + 0.01 * confidence instead."""
    recency_rate: float = 0.1
    """Per day: recency is exp(-rate * age)."""
    recency_basis: Basis = "created_at"
    coverage: float = 0.0
    """Weight of the share of the question that a memory holds, rare words counting more."""
    title: float = 0.0
    """Weight of the query naming the title of a memory."""
    guidance: float = 0.0
    """Weight of a standing instruction ("always … when I ask about …") for such questions, and of preferences where
    advice is asked."""
    conversation: bool = False
    """Read a turn of a conversation with its neighbours, its speaker and its order; see `retrieval.conversation`."""
    reach: int = 150
    """How many of the best candidates have their words read one by one. At least as many as hits are asked for."""
    shortlist: int = 50
    """How many of the best candidates have their texts read, by the pipeline or a reranker. At least as many as hits
    are asked for, but for the reranker."""
    temporal: Temporal = "off"
    """What the times named in a query do: nothing, lift memories of that time, or admit only those."""
    temporal_boost: float = 0.15

    # Choice
    select: Choice = "none"
    mmr_lambda: float = 0.7
    similarity: float = 0.8
    """Calibrated cosine from which two memories count as the same for `diversity`."""
    dynamic_k: bool = False
    cliff: float = 2.0
    """How many times the mean of the other gaps is a cliff."""
    min_results: int = 1
    max_results: int = 1000
    bar: Level = "weak"
    """Withhold hits below this level; nothing is withheld by default."""
    min_confidence: float = 0.3
    """Stored confidence below which nothing is recalled; what has faded is, until maintenance sets it aside."""
    min_importance: float = 0.0

    # Marks
    disagreement: float = 0.4
    """How far behind the nearest in meaning, as a share, a hit that shares words may lie before it is flagged; 1 never
    flags."""
    updates: bool = False
    """A memory that another one updates stands behind it; the other way round where the question asks for before."""
    expand: Expand | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot work, with the first reason found."""
        _weights(self)
        for key, choices in _CHOICES:
            _one_of(key, getattr(self, key), choices)
        for key, low, high in _RANGES:
            value: object = getattr(self, key)
            if not _within(value, low, high):
                raise ConfigError(f"{key} must be between {low:g} and {high:g}, not {value!r}")
        if self.min_results > self.max_results:
            raise ConfigError(
                f"min_results ({self.min_results}) is above max_results ({self.max_results}); swap them"
            )
        if self.k_words + self.k_vectors == 0:
            raise ConfigError("k_words and k_vectors are both 0, so nothing can be found; raise one of them")


def from_dict(raw: Mapping[str, Any]) -> RecallConfig:
    """A config from plain JSON values; every problem is a `ConfigError` that says what to do.

    >>> from_dict({"fusion": "rrf", "weights": {"semantic": 1, "lexical": 1}}).rrf_k
    60
    """
    _known(raw, RecallConfig.__struct_fields__, "recall config")
    expand: object = raw.get("expand")
    if isinstance(expand, Mapping):
        _known(cast("Mapping[str, Any]", expand), Expand.__struct_fields__, "expand")
    weights: object = raw.get("weights")
    if isinstance(weights, Mapping):
        _known(cast("Mapping[str, Any]", weights), SIGNALS, "weights")
    try:
        return msgspec.convert(dict(raw), RecallConfig)
    except msgspec.ValidationError as error:
        if isinstance(error.__cause__, ConfigError):
            raise error.__cause__ from None
        raise ConfigError(f"recall config: {error}") from error


def to_dict(config: RecallConfig) -> dict[str, Any]:
    """The config as plain JSON values; `from_dict` reads it back to an equal config."""
    return cast("dict[str, Any]", msgspec.to_builtins(config))


def content_hash(config: RecallConfig) -> str:
    """The same for configs that rank alike, whatever they are called."""
    import hashlib

    body = msgspec.json.encode(to_dict(msgspec.structs.replace(config, name="")), order="sorted")
    return hashlib.sha256(body).hexdigest()[:16]


def merge(
    preset: RecallConfig,
    bank: Mapping[str, Any] | None = None,
    call: Mapping[str, Any] | None = None,
) -> RecallConfig:
    """The config of one recall: what the call says, else what the bank says, else the preset.

    Only the keys that are given override. Weights are replaced as a whole, because half of one blend and
    half of another mean nothing; who says how short questions are cut, but nothing of the shortest, means those too.
    """
    if bank:
        bank = {key: value for key, value in bank.items() if key not in RETIRED and value != "minmax"}
    if not bank and not call:
        return preset
    given: dict[str, Any] = {}
    for layer in (bank, call):
        if layer:
            _known(layer, RecallConfig.__struct_fields__, "recall config")
            given |= layer
    if all(
        type(value) in _PLAIN and type(value) is type(getattr(preset, key)) for key, value in given.items()
    ):
        return msgspec.structs.replace(preset, **given)  # reading the types of all fields takes a millisecond
    return from_dict(to_dict(preset) | given)


def _weights(config: RecallConfig) -> None:
    unknown = [key for key in config.weights if key not in SIGNALS]
    if unknown:
        raise ConfigError(_refusal(unknown[0], SIGNALS, "weights"))
    for key, value in config.weights.items():
        if not _within(value, 0, sys.float_info.max):
            raise ConfigError(f"the weight of {key} must be a number of at least 0, not {value!r}")
    if not any(config.weights.values()):
        raise ConfigError(
            "all weights are 0, so every memory would score alike; give at least one signal a weight"
        )
    if config.fusion == "rrf":
        priors = [key for key, value in config.weights.items() if value and key not in RANKED_SIGNALS]
        if priors:
            raise ConfigError(
                f"rrf fuses only rankings that depend on the query ({', '.join(RANKED_SIGNALS)}); "
                f"{', '.join(priors)} would drown them: use fusion 'weighted' for priors"
            )
    if config.fusion == "product" and not config.weights.get("semantic"):
        raise ConfigError("fusion 'product' needs a weight for semantic, the base that the others boost")


def _within(value: object, low: float, high: float) -> bool:
    """True if it is a number between two others; `True` is none."""
    if not isinstance(value, _NUMBERS) or isinstance(value, bool):
        return False
    return low <= value <= high


def _one_of(key: str, value: object, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ConfigError(f"{key} must be one of {', '.join(choices)}, not {value!r}")


_NUMBERS = (int, float)
_PLAIN = (int, float, bool, str)
_DIRECTIONS: tuple[str, ...] = get_args(Direction)
_CHOICES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("fusion", get_args(Fusion)),
    ("select", get_args(Choice)),
    ("temporal", get_args(Temporal)),
    ("recency_basis", get_args(Basis)),
    ("bar", get_args(Level)),
)
_MANY = 1_000_000
_RANGES: tuple[tuple[str, float, float], ...] = (
    ("k_words", 0, _MANY),
    ("k_vectors", 0, _MANY),
    ("rrf_k", 1, _MANY),
    ("recency_rate", 0, 1000),
    ("coverage", 0, 10),
    ("title", 0, 10),
    ("guidance", 0, 10),
    ("reach", 1, 10_000),
    ("shortlist", 1, 10_000),
    ("temporal_boost", 0, 10),
    ("mmr_lambda", 0, 1),
    ("similarity", 0, 1),
    ("cliff", 0, _MANY),
    ("min_results", 0, _MANY),
    ("max_results", 1, _MANY),
    ("min_confidence", 0, 1),
    ("min_importance", 0, 1),
    ("disagreement", 0, 1),
)


def _known(raw: Mapping[str, Any], known: tuple[str, ...], where: str) -> None:
    for key in raw:
        if key not in known:
            raise ConfigError(_refusal(str(key), known, where))


def _refusal(key: str, known: tuple[str, ...], where: str) -> str:
    return f"{where}: unknown key {key!r}; {did_you_mean(key, known)}"


PRESETS: dict[str, RecallConfig] = {
    config.name: config
    for config in (
        RecallConfig(name="semantic", weights={"semantic": 1.0}, k_words=0),
        RecallConfig(
            name="hybrid",
            weights={"semantic": 0.55, "lexical": 0.20, "recency": 0.15, "importance": 0.10},
        ),
        RecallConfig(name="rrf", fusion="rrf", weights={"lexical": 1.0, "semantic": 1.0}),
        RecallConfig(
            name="hive",
            weights={"semantic": 0.5, "confirmations": 0.3, "trust": 0.2},
            matched_terms=True,
        ),
        RecallConfig(
            name="patterns",
            fusion="product",
            weights={"semantic": 1.0, "recency": 1.0, "usage": 1.0},
            min_confidence=0.3,
            select="mmr",
        ),
        RecallConfig(
            name="stream",
            weights={"semantic": 0.6, "confidence": 0.3, "recency": 0.1},
            min_confidence=STREAMED + ABOVE,
            select="diversity",
        ),
        RecallConfig(
            name="default",
            weights={"words": 1.0, "semantic": 1.0},
            coverage=0.2,
            title=0.5,
            guidance=0.5,
            conversation=True,
            temporal="boost",
            temporal_boost=0.15,
            updates=True,
        ),
    )
}
"""Every preset by name."""


BY_MODEL = {"default": {"semantic": 1.5}}
"""Weights of presets where vectors come from a model that reads whole texts: it knows more than a sum of words."""


def preset(name: str, *, model: bool = False) -> RecallConfig:
    """The preset of that name, for vectors of a table of words or of a model."""
    try:
        config = PRESETS[name]
    except KeyError:
        raise ConfigError(_refusal(name, tuple(PRESETS), "preset")) from None
    if not model or name not in BY_MODEL:
        return config
    return replace(config, weights=config.weights | BY_MODEL[name])
