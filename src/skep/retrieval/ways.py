"""What follows from a recall config alone, whatever is asked."""

from __future__ import annotations

from operator import attrgetter

import msgspec

from skep.confidence import DECAY_PER_DAY
from skep.retrieval.config import RecallConfig
from skep.retrieval.fusion import by_query_alone
from skep.storage.base import Filter
from skep.tuples import NamedTuple

AT_FIRST = (
    *("name", "fusion", "weights", "k_words", "k_vectors", "rrf_k", "matched_terms"),
    *("recency_rate", "recency_basis", "reach", "shortlist", "window", "temporal_boost"),
    *("select", "mmr_lambda", "similarity", "dynamic_k", "cliff", "min_results", "max_results"),
    *("floor", "relative_floor", "short_floor", "brief_floor", "meaning_floor"),
    *("min_confidence", "min_importance", "disagreement", "expand"),
)
"""Fields of a config that ask nothing of the second look by themselves."""
_again = attrgetter(*(name for name in RecallConfig.__struct_fields__ if name not in AT_FIRST))
"""Every other field of a config."""
IDLE = _again(RecallConfig())
"""The values with which they ask nothing."""
ROOM = ("k_words", "k_vectors", "reach", "shortlist")
"""How many candidates each step takes."""
WAYS = 64
"""So many ways to answer are kept."""


class Way(NamedTuple):
    """What follows from a config and a limit, whatever is asked."""

    asked: RecallConfig
    """The config as it was given; held, so that no other one is taken for it."""
    config: RecallConfig
    """With room for as many hits as are asked for."""
    reads: bool
    """Whether anything looks at more of a query than its words."""
    again: bool
    """Whether there is a second look."""
    barred: bool
    """Whether something is asked of what is returned."""
    fusing: tuple[tuple[float, float], int] | None
    """How scores are made where words and meaning alone decide; see `fusion.by_query_alone`."""


_ways: dict[tuple[int, int, bool], Way] = {}


def way_of(config: RecallConfig, limit: int, *, read_less: bool) -> Way:
    """How a config answers; the same few are asked with again and again, so that is worked out once."""
    key = id(config), limit, read_less
    known = _ways.get(key)
    if known is None:
        reaching = _reaching(config, limit, read_less=read_less)
        bars = (
            config.floor,
            config.relative_floor,
            config.short_floor,
            config.brief_floor,
            config.meaning_floor,
            config.elsewhere,
        )
        fusing = by_query_alone(config.fusion, config.weights, config.rrf_k)
        known = Way(config, reaching, _reads(config), _again(config) != IDLE, max(bars) > 0, fusing)
        if len(_ways) >= WAYS:
            _ways.clear()
        _ways[key] = known
    return known


def _reaching(config: RecallConfig, limit: int, *, read_less: bool) -> RecallConfig:
    """The config with room for as many hits as are asked for, all of them judged alike.

    A reranker is asked about no more texts than the config says: it may cost money.
    """
    most = min(limit, config.max_results)
    narrow = [name for name in ROOM if 0 < getattr(config, name) < most]
    if read_less and "shortlist" in narrow:
        narrow.remove("shortlist")
    return msgspec.structs.replace(config, **dict.fromkeys(narrow, most)) if narrow else config


def _reads(config: RecallConfig) -> bool:
    """Whether anything in the config looks at more of a query than its words."""
    return (
        config.temporal != "off"
        or config.currency
        or config.subject > 0
        or config.another > 0
        or config.elsewhere > 0
        or config.wanted > 0
        or config.phrase > 0
    )


def narrowed(where: Filter, config: RecallConfig) -> Filter:
    """A filter that lets in no more than the config does; done twice, it is the same."""
    changes: dict[str, float] = {}
    if where.min_confidence is None and config.min_confidence > 0:
        changes["min_confidence"] = config.min_confidence
        if where.decay_per_day == DECAY_PER_DAY:  # time alone takes nothing out, unless somebody says how
            changes["decay_per_day"] = 0.0
    if where.min_importance is None and config.min_importance > 0:
        changes["min_importance"] = config.min_importance
    return msgspec.structs.replace(where, **changes) if changes else where
