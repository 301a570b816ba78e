"""The search config of a workspace, and what it becomes in a bank.

A config file speaks of what its author can see (method, top_k, filters on fields). `recall_settings`
translates it into the dictionary that `Bank.recall(config=…)` takes and that a deployment writes into the
bank. Nothing else decides how a deployed config behaves:

===========================================  ===============================================================
file                                         recall settings
===========================================  ===============================================================
`retrieval.method`                           `k_words`, `k_vectors`, and which weights count
`retrieval.pool`                             `k_words` and `k_vectors` where they are used
`retrieval.fusion`, `weights`, `rrf_k`       the same names
`retrieval.coverage`, `title`, `guidance`;   the same names
`temporal`, `updates`
`retrieval.top_k`, `dynamic_k.max_results`   `limit` and `max_results`: the smaller of the two that apply
`dynamic_k.enabled`, `gap_threshold_factor`  `dynamic_k`, `cliff`
`dynamic_k.min_results`                      `min_results`
`collection`                                 `tags`: its tag, `kinds`: `document`; nothing for `*`
`filters`                                    `tags`: one group of `field:value` per field
`distraction_detection`                      `disagreement`; 1, which never flags, when not enabled
`abstention`                                 `bar`; `weak`, which withholds nothing, when not enabled
`selection`                                  `select`, `mmr_lambda`, `similarity`
===========================================  ===============================================================
"""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, cast

import msgspec
from msgspec import Meta

from skep.retrieval.recall_config import QUERY_SIGNALS, SIGNALS, RecallConfig, to_dict
from skep.tuning.schemas import (
    EVERYTHING,
    NAME,
    RESERVED,
    CollectionName,
    Count,
    FieldName,
    Many,
    Name,
    Schema,
    Share,
    Text,
    Weight,
    json_schema,
)

Scalar = str | int | float | bool
FilterValue = Annotated[str, Meta(max_length=150)] | int | float | bool
SECOND_LOOK = ("coverage", "title", "guidance")
"""Weights of features besides words and meaning; the same names in a config file and in a recall config."""
OUTSIDE_RECALL_CONFIG = ("limit", "tags", "kinds")
"""Keys of the recall settings that narrow a recall rather than rank it; `RecallConfig` does not have them."""


class _Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Shared options of all sections."""


class Retrieval(_Section, frozen=True, kw_only=True):
    """The sources of candidates and their order."""

    method: Annotated[
        Literal["keyword", "vector", "hybrid"], Meta(description="Words, meaning, or both.")
    ] = "hybrid"
    top_k: Annotated[Count, Meta(description="At most this many results.")] = 10
    fusion: Annotated[Literal["rrf", "weighted"], Meta(description="How words and meaning are combined.")] = (
        "rrf"
    )
    rrf_k: Annotated[
        Many, Meta(description="With rrf: larger values flatten the advantage of the first ranks.")
    ] = 60
    weights: Annotated[
        dict[str, Annotated[float, Meta(ge=0, le=1000)]],
        Meta(description="Weight per signal; only their proportions count."),
    ] = msgspec.field(default_factory=lambda: {"semantic": 1.0, "lexical": 1.0})
    pool: Annotated[Many, Meta(description="How many candidates each of words and meaning may bring.")] = 100
    coverage: Annotated[
        Weight, Meta(description="Weight of how much of the query a result holds at all.")
    ] = 0.0
    title: Annotated[Weight, Meta(description="Weight of the query naming what a result is headed with.")] = (
        0.0
    )
    guidance: Annotated[
        Weight, Meta(description="Weight of saying how such a question is to be answered.")
    ] = 0.0
    temporal: Annotated[
        Literal["off", "boost", "filter"], Meta(description="What times named in a query do.")
    ] = "off"
    updates: Annotated[bool, Meta(description="A memory that another one updates stands behind it.")] = False


class DynamicK(_Section, frozen=True, kw_only=True):
    """Stopping at the cliff."""

    enabled: Annotated[
        bool, Meta(description="Stop where quality falls off a cliff, instead of always at top_k.")
    ] = False
    gap_threshold_factor: Annotated[
        float, Meta(ge=1, le=1000, description="How many times the mean of the other gaps is a cliff.")
    ] = 2.0
    min_results: Annotated[Count, Meta(description="Never stop before this many.")] = 1
    max_results: Annotated[Count, Meta(description="Never return more than this many.")] = 10


class Detection(_Section, frozen=True, kw_only=True):
    """Flagging what shares words with the query and means something else."""

    enabled: Annotated[
        bool, Meta(description="Flag results that share words and lie far behind in meaning; needs hybrid.")
    ] = False
    disagreement_threshold: Annotated[
        Share, Meta(description="How far behind the nearest in meaning, as a share, before the flag.")
    ] = 0.4


class Abstention(_Section, frozen=True, kw_only=True):
    """Returning nothing where nothing answers."""

    enabled: Annotated[bool, Meta(description="Return nothing where nothing answers.")] = False
    bar: Annotated[
        Literal["weak", "likely", "strong"], Meta(description="Results below this level are withheld.")
    ] = "likely"


class Selection(_Section, frozen=True, kw_only=True):
    """Thinning out near-equal results."""

    strategy: Annotated[
        Literal["none", "mmr", "diversity"], Meta(description="Whether near-equal results are thinned out.")
    ] = "none"
    mmr_lambda: Annotated[Share, Meta(description="With mmr: 1 looks at relevance alone.")] = 0.7
    similarity: Annotated[
        Share, Meta(description="With diversity: from where two results count as the same.")
    ] = 0.8


class SearchConfig(_Section, frozen=True, kw_only=True):
    """One config, with everything it extends filled in."""

    name: Annotated[Name, Meta(description="The name of this file without .json.")]
    note: Annotated[Text, Meta(description="What this config tries, and why.")] = ""
    collection: Annotated[
        CollectionName, Meta(description="The collection it searches; * searches every memory of the bank.")
    ] = ""
    retrieval: Retrieval = Retrieval()
    filters: Annotated[
        dict[FieldName, Annotated[tuple[FilterValue, ...], Meta(min_length=1, max_length=200)]],
        Meta(description="Per filterable field the values that are let in; applied before scoring."),
    ] = msgspec.field(default_factory=dict[str, tuple[Scalar, ...]])
    dynamic_k: DynamicK = DynamicK()
    distraction_detection: Detection = Detection()
    abstention: Abstention = Abstention()
    selection: Selection = Selection()


CONFIG: Schema = json_schema(
    SearchConfig,
    "A search config: how a query is answered",
    extends={
        "type": "string",
        "pattern": NAME,
        "maxLength": 64,
        "description": "Another config that supplies everything not stated here.",
    },
)
CONFIG["properties"]["retrieval"]["properties"]["weights"]["propertyNames"] = {"enum": list(SIGNALS)}


def config_schema(values: Mapping[str, Sequence[str]]) -> Schema:
    """The schema of configs with the filterable fields and their values, so that an editor can offer them."""
    made = copy.deepcopy(CONFIG)
    made["properties"]["filters"]["properties"] = {
        field: {"type": "array", "minItems": 1, "items": {"enum": list(known)}}
        for field, known in values.items()
    }
    return made


def from_raw(raw: Mapping[str, Any]) -> SearchConfig:
    """A config from the JSON of a file that has passed the schema, `extends` already merged in."""
    kept = {key: value for key, value in raw.items() if key not in ("$schema", "extends")}
    return msgspec.convert(kept, SearchConfig)


def without_retired(raw: Mapping[str, Any]) -> dict[str, Any]:
    """A config that a bank holds, without the keys and the fusion that only earlier versions had."""
    kept = {key: value for key, value in raw.items() if key in SearchConfig.__struct_fields__}
    for name, section in (("retrieval", Retrieval), ("abstention", Abstention)):
        stated = cast("Mapping[str, Any]", kept.get(name, {}))
        known = section.__struct_fields__
        kept[name] = {key: value for key, value in stated.items() if key in known and value != "minmax"}
    if cast("Mapping[str, Any]", raw.get("retrieval", {})).get("fusion") == "minmax":
        kept["retrieval"]["fusion"] = "weighted"
    return kept


def to_raw(config: SearchConfig) -> dict[str, Any]:
    """The config as the JSON of a file, every key stated; `from_raw` reads it back to an equal config."""
    return cast("dict[str, Any]", msgspec.to_builtins(config))


def merged(parent: Mapping[str, Any], child: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of a file on top of those of the file it extends.

    Sections are merged key by key; weights and filters are replaced as a whole, because half of one and
    half of another mean nothing.
    """
    made = {key: value for key, value in parent.items() if key not in ("name", "note", "extends", "$schema")}
    for key, value in child.items():
        earlier = made.get(key)
        if key != "filters" and isinstance(value, Mapping) and isinstance(earlier, Mapping):
            made[key] = {**cast("dict[str, Any]", earlier), **cast("dict[str, Any]", value)}
        else:
            made[key] = value
    return made


def field_tag(field: str, value: Scalar) -> str:
    """The tag that a document with this field value carries.

    >>> field_tag("category", "faqs"), field_tag("public", True), field_tag("version", 2.0)
    ('category:faqs', 'public:true', 'version:2')
    """
    if isinstance(value, bool):
        return f"{field}:{'true' if value else 'false'}"
    if isinstance(value, float):
        return f"{field}:{value:.15g}"
    return f"{field}:{value}"


def recall_settings(config: SearchConfig) -> dict[str, Any]:
    """The settings that `Bank.recall(config=…)` takes: every key of `RecallConfig`, and `limit`, `tags` and `kinds`.

    Keys that a config file cannot state have their defaults, so that no preset shows through.
    """
    return to_dict(RecallConfig()) | _stated(config)


def _stated(config: SearchConfig) -> dict[str, Any]:
    found, cut = config.retrieval, config.dynamic_k
    limit = min(found.top_k, cut.max_results) if cut.enabled else found.top_k
    abstains = config.abstention.enabled
    return {
        "name": config.name,
        "k_words": 0 if found.method == "vector" else found.pool,
        "k_vectors": 0 if found.method == "keyword" else found.pool,
        "fusion": found.fusion,
        "weights": effective_weights(found),
        "rrf_k": found.rrf_k,
        **{name: getattr(found, name) for name in SECOND_LOOK},
        "temporal": found.temporal,
        "updates": found.updates,
        "select": config.selection.strategy,
        "mmr_lambda": config.selection.mmr_lambda,
        "similarity": config.selection.similarity,
        "dynamic_k": cut.enabled,
        "cliff": cut.gap_threshold_factor,
        "min_results": min(cut.min_results, limit),
        "max_results": limit,
        "bar": config.abstention.bar if abstains else "weak",
        "disagreement": config.distraction_detection.disagreement_threshold
        if config.distraction_detection.enabled
        else 1.0,
        "limit": limit,
        **_narrowing(config),
    }


def _narrowing(config: SearchConfig) -> dict[str, Any]:
    tags = [[field_tag(field, value) for value in values] for field, values in sorted(config.filters.items())]
    if config.collection == EVERYTHING:
        return {"tags": tags}
    tags.append([field_tag(RESERVED, config.collection)])
    return {"tags": tags, "kinds": ["document"], "min_confidence": 0.0}


def effective_weights(found: Retrieval) -> dict[str, float]:
    """The weights that the method lets count.

    With one method alone the other's weight is dropped; the one that is left must not be 0, so it is 1 then.
    """
    unused = {"keyword": "semantic", "vector": "lexical"}.get(found.method, "")
    kept = {signal: weight for signal, weight in found.weights.items() if signal != unused}
    if unused:
        used = next(signal for signal in QUERY_SIGNALS if signal != unused)
        kept[used] = kept.get(used) or 1.0
    return kept


def config_hash(config: SearchConfig) -> str:
    """The same for configs that search alike, whatever they are called and whatever their note says."""
    settings = _stated(config) | {"name": ""}
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One key that differs between two configs."""

    key: str
    before: Any
    after: Any

    def line(self) -> str:
        """The change in one readable line."""
        return f"{self.key}: {_shown(self.before)} → {_shown(self.after)}"


def difference(before: SearchConfig, after: SearchConfig) -> tuple[Change, ...]:
    """The changes from one config to another, names and notes aside."""
    left, right = _flat(to_raw(before)), _flat(to_raw(after))
    keys = [key for key in {**left, **right} if key not in ("name", "note")]
    return tuple(
        Change(key=key, before=left.get(key), after=right.get(key))
        for key in keys
        if left.get(key) != right.get(key)
    )


def _flat(raw: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    made: dict[str, Any] = {}
    for key, value in raw.items():
        if isinstance(value, Mapping):
            made |= _flat(cast("Mapping[str, Any]", value), f"{prefix}{key}.")
        else:
            made[prefix + key] = value
    return made


def _shown(value: object) -> str:
    if value is None:
        return "–"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(str(item) for item in cast("list[object]", value)) + "]"
    return (
        json.dumps(value)
        if isinstance(value, bool)
        else f"{value:g}"
        if isinstance(value, float)
        else str(value)
    )
