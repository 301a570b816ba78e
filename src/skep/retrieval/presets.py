"""Named recall configs: one pipeline, every ranker. `default` is the one the quality benchmark chose."""

from __future__ import annotations

from msgspec.structs import replace

from skep.confidence import ABOVE, STREAMED
from skep.errors import ConfigError
from skep.retrieval.config import RecallConfig, did_you_mean

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
        raise ConfigError(did_you_mean(name, tuple(PRESETS), "preset")) from None
    if not model or name not in BY_MODEL:
        return config
    return replace(config, weights=config.weights | BY_MODEL[name])
