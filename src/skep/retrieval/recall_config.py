"""The recall config: how one recall ranks, chooses and flags. A frozen value that is also plain JSON.

A config is checked as it is built, and then only read: negative or not-a-number weights, weights that are all zero and
intervals that are upside down are refused. `from_dict` also names unknown keys, with the key that was probably meant.

Named recall configs: one pipeline, every ranker. `default` is the one the quality benchmark chose.
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


Fusion = Literal["weighted", "minmax", "rrf", "product"]
Choice = Literal["none", "mmr", "diversity"]
Temporal = Literal["off", "boost", "filter"]
Basis = Literal["created_at", "last_used_at"]
Direction = Literal["out", "in", "both"]

SIGNALS: tuple[str, ...] = (
    "semantic",
    "lexical",
    "recency",
    "importance",
    "confidence",
    "confirmations",
    "trust",
    "usage",
)
"""The signals a weight may be given to."""
QUERY_SIGNALS: tuple[str, ...] = ("semantic", "lexical")
"""Those that depend on the query; only these may be fused by rank."""


class Expand(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How far a recall walks along links from its hits."""

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
    late: float = 0.0
    """Weight of late interaction (each query word against its closest word of the text); 0 leaves it out."""
    close: float = 0.0
    """Weight of the words of the query, or their relatives, standing close together in a memory."""
    coverage: float = 0.0
    """Weight of how much of the query a memory holds, rare words counting more."""
    numbers: float = 0.0
    """Weight of holding the numbers, dates and versions that the query names."""
    contrast: float = 0.0
    """Weight of the cosine once what the whole short list has in common is taken away."""
    peers: float = 0.0
    """Weight of being like another memory that ranks high."""
    subject: float = 0.0
    """Weight of the query's names standing at the head of a memory."""
    another: float = 0.0
    """Weight against opening with somebody else than the query asks about, where several are spoken of."""
    author: float = 0.0
    """Weight of the query naming the agent that wrote a memory."""
    title: float = 0.0
    """Weight of the query naming what a memory is headed with."""
    phrase: float = 0.0
    """Weight of holding word for word what stands in quotes in the query."""
    bridge: float = 0.0
    """Weight of being headed with what the first hits name and the query does not: the second hop."""
    wanted: float = 0.0
    """Weight of holding what the question is for: a time for "when", a number for "how many"."""
    thread: float = 0.0
    """Weight of following, in the same session, a memory that ranks higher; needs `context`."""
    home: float = 0.0
    """Weight of belonging to the user, project and session that most of the first hits belong to."""
    echo: float = 0.0
    """Weight of holding words that the first hits share and the query has not."""
    guidance: float = 0.0
    """Weight of saying how to answer: a standing instruction for such questions, or a preference where advice is
    asked."""
    reach: int = 200
    """How many of the best candidates are scored again by words: context, coverage. At least as many as hits are asked
    for."""
    shortlist: int = 50
    """How many of the best candidates have their texts read: late interaction, peers, subject, a reranker. At least as
    many as hits are asked for, but for the reranker."""
    context: float = 0.0
    """Weight of the words of the neighbours in time within the same scope; 0 leaves it out."""
    window: int = 2
    """How many neighbours on either side `context` reads."""
    temporal: Temporal = "off"
    """What the times named in a query do: nothing, lift memories of that time, or admit only those."""
    temporal_boost: float = 0.15

    # Choice
    select: Choice = "none"
    mmr_lambda: float = 0.7
    similarity: float = 0.8
    """Calibrated cosine from which two memories count as the same for `diversity`."""
    dynamic_k: bool = False
    cliff: float = 3.0
    """How many times the usual gap is a cliff."""
    min_results: int = 1
    max_results: int = 1000
    floor: float = 0.0
    """Nothing is returned where the best evidence for the query (0..1) is below this; 0 never abstains."""
    relative_floor: float = 0.0
    """Hits scoring below this share of the best are withheld."""
    short_floor: float = 0.0
    """The same for short questions, which one memory often answers alone: hits below this share of the best are
    withheld if they are not half as near by meaning either."""
    brief_floor: float = 0.0
    """The same for the shortest questions, outside conversations, where hits do not explain one another."""
    meaning_floor: float = 0.0
    """Hits that hold no word of the query and no relative of one are withheld if their cosine (calibrated) is below
    this; they are there for the words of their neighbours. Needs `context`, `coverage` or `numbers`."""
    elsewhere: float = 0.0
    """What is told of others than the query asks about is withheld where it holds so much more of it (0..1) than
    everything else; 0 never looks. Needs `late`, and `context`, `coverage` or `numbers`."""
    min_confidence: float = 0.3
    """Stored confidence below which nothing is recalled; what has faded is, until maintenance sets it aside."""
    min_importance: float = 0.0

    # Marks
    disagreement: float = 0.7
    """How far the ranks by words and by meaning may lie apart before a hit is flagged; 1 never flags."""
    currency: bool = False
    """Newest first among hits that give different values for the same thing."""
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
    if not bank and not call:
        return preset
    given: dict[str, Any] = {}
    for layer in (bank, call):
        if layer:
            _known(layer, RecallConfig.__struct_fields__, "recall config")
            given |= {"brief_floor": 0.0, **layer} if "short_floor" in layer else layer
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
        priors = [key for key, value in config.weights.items() if value and key not in QUERY_SIGNALS]
        if priors:
            raise ConfigError(
                f"rrf fuses only rankings that depend on the query ({', '.join(QUERY_SIGNALS)}); "
                f"{', '.join(priors)} would drown them: use fusion 'weighted' for priors"
            )
    if config.fusion == "product" and not config.weights.get("semantic"):
        raise ConfigError("fusion 'product' needs a weight for semantic, the base that the others boost")


def _within(value: object, low: float, high: float) -> bool:
    """Whether it is a number between two others; `True` is none."""
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
)
_MANY = 1_000_000
_RANGES: tuple[tuple[str, float, float], ...] = (
    ("k_words", 0, _MANY),
    ("k_vectors", 0, _MANY),
    ("rrf_k", 1, _MANY),
    ("recency_rate", 0, 1000),
    ("late", 0, 10),
    ("close", 0, 10),
    ("coverage", 0, 10),
    ("numbers", 0, 10),
    ("contrast", 0, 10),
    ("peers", 0, 10),
    ("subject", 0, 10),
    ("another", 0, 10),
    ("author", 0, 10),
    ("title", 0, 10),
    ("phrase", 0, 10),
    ("bridge", 0, 10),
    ("wanted", 0, 10),
    ("thread", 0, 10),
    ("home", 0, 10),
    ("echo", 0, 10),
    ("guidance", 0, 10),
    ("reach", 1, 10_000),
    ("shortlist", 1, 10_000),
    ("context", 0, 10),
    ("window", 1, 50),
    ("temporal_boost", 0, 10),
    ("mmr_lambda", 0, 1),
    ("similarity", 0, 1),
    ("cliff", 0, _MANY),
    ("min_results", 0, _MANY),
    ("max_results", 1, _MANY),
    ("floor", 0, 1),
    ("relative_floor", 0, 1),
    ("short_floor", 0, 1),
    ("brief_floor", 0, 1),
    ("meaning_floor", 0, 1),
    ("elsewhere", 0, 1),
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
            fusion="minmax",
            weights={"lexical": 1.0, "semantic": 0.4, "recency": 0.1},
            context=0.6,
            reach=150,
            coverage=0.3,
            late=0.5,
            close=0.4,
            numbers=0.4,
            contrast=0.4,
            peers=0.4,
            subject=0.3,
            another=0.3,
            author=0.5,
            title=0.5,
            phrase=1.0,
            bridge=0.5,
            wanted=0.2,
            guidance=1.0,
            thread=0.4,
            home=0.6,
            echo=0.1,
            temporal="boost",
            temporal_boost=0.4,
            currency=True,
            floor=0.2,
            relative_floor=0.25,
            short_floor=0.4,
            brief_floor=0.6,
            meaning_floor=0.2,
            elsewhere=0.2,
        ),
    )
}
"""Every preset by name."""


BY_MODEL = {"default": {"semantic": 0.8}}
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
