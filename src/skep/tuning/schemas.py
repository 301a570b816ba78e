"""The JSON Schemas of the three kinds of file in a workspace.

They are written beside the files, where editors use them to complete and check, and `schema_check` reads
the same values, so that an editor and `skep tune validate` never disagree.

Checks a value against the part of JSON Schema that `schemas` uses, and reports every problem at once.
"""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from skep.retrieval.recall_config import SIGNALS
from skep.tuning.findings import Finding, did_you_mean

Schema = dict[str, Any]

NAME = r"^[A-Za-z0-9]+([._-][A-Za-z0-9]+)*$"
COLLECTION_NAME = rf"{NAME}|^\*$"
FIELD = r"^[a-z][a-z0-9_]*$"
DRAFT = "https://json-schema.org/draft/2020-12/schema"
MANY = 1000
EVERYTHING = "*"
"""In place of a collection: every memory of the bank."""
RESERVED = "collection"
"""The field every chunk has; no collection may define it."""


def _object(properties: Schema, *, required: Sequence[str] = (), about: str = "") -> Schema:
    made: Schema = {"type": "object", "properties": properties, "additionalProperties": False}
    if required:
        made["required"] = list(required)
    if about:
        made["description"] = about
    return made


def _name(about: str) -> Schema:
    return {"type": "string", "pattern": NAME, "maxLength": 64, "description": about}


def _text(about: str) -> Schema:
    return {"type": "string", "maxLength": 4000, "description": about}


def _flag(about: str) -> Schema:
    return {"type": "boolean", "description": about}


def _whole(low: int, high: int, about: str) -> Schema:
    return {"type": "integer", "minimum": low, "maximum": high, "description": about}


def _number(low: float, high: float, about: str) -> Schema:
    return {"type": "number", "minimum": low, "maximum": high, "description": about}


def _choice(values: Sequence[str], about: str) -> Schema:
    return {"type": "string", "enum": list(values), "description": about}


COLLECTION: Schema = {
    "$schema": DRAFT,
    "title": "A collection: which documents, which fields, and how they are cut",
    **_object(
        {
            "$schema": {"type": "string"},
            "name": _name("The name of this file without .json."),
            "description": _text("What is in it, for whoever writes configs."),
            "folder": _text("The folder below documents/ that belongs to it; empty means all of them."),
            "fields": {
                "type": "object",
                "description": "What the front matter of its documents may state.",
                "propertyNames": {"pattern": FIELD, "maxLength": 64},
                "additionalProperties": _object(
                    {
                        "type": _choice(
                            ("text", "keyword", "number", "boolean", "date"), "What its values look like."
                        ),
                        "filterable": _flag("Whether configs may filter on it."),
                        "description": _text("What it means."),
                    },
                    required=("type",),
                ),
            },
            "chunking": _object(
                {
                    "strategy": _choice(("by_heading", "by_paragraph", "fixed"), "Where documents are cut."),
                    "max_tokens": _whole(16, 8192, "No chunk is longer than about this many tokens."),
                    "heading_level": _whole(1, 6, "by_heading cuts at headings of this level and above."),
                }
            ),
        },
        required=("name",),
    ),
}

CONFIG: Schema = {
    "$schema": DRAFT,
    "title": "A search config: how a query is answered",
    **_object(
        {
            "$schema": {"type": "string"},
            "name": _name("The name of this file without .json."),
            "note": _text("What this config tries, and why."),
            "extends": _name("Another config that supplies everything not stated here."),
            "collection": {
                "type": "string",
                "pattern": COLLECTION_NAME,
                "maxLength": 64,
                "description": "The collection it searches; * searches every memory of the bank.",
            },
            "retrieval": _object(
                {
                    "method": _choice(("keyword", "vector", "hybrid"), "Words, meaning, or both."),
                    "top_k": _whole(1, MANY, "At most this many results."),
                    "fusion": _choice(("rrf", "weighted", "minmax"), "How words and meaning are combined."),
                    "rrf_k": _whole(
                        1, 100_000, "With rrf: larger values flatten the advantage of the first ranks."
                    ),
                    "weights": {
                        "type": "object",
                        "description": "Weight per signal; only their proportions count.",
                        "properties": {
                            signal: _number(0, 1000, f"Weight of {signal}.") for signal in SIGNALS
                        },
                        "additionalProperties": False,
                    },
                    "pool": _whole(1, 100_000, "How many candidates each of words and meaning may bring."),
                    "late": _number(0, 10, "Weight of late interaction on the short list; 0 leaves it out."),
                    "close": _number(0, 10, "Weight of words of the query standing close together."),
                    "coverage": _number(0, 10, "Weight of how much of the query a result holds at all."),
                    "numbers": _number(0, 10, "Weight of holding what the query gives in digits."),
                    "contrast": _number(0, 10, "Weight of what sets a result apart from the short list."),
                    "peers": _number(0, 10, "Weight of being close to another result that ranks high."),
                    "subject": _number(0, 10, "Weight of a name of the query at the head of a result."),
                    "another": _number(0, 10, "Weight against opening with another than the query names."),
                    "author": _number(0, 10, "Weight of the query naming the agent that wrote a result."),
                    "title": _number(0, 10, "Weight of the query naming what a result is headed with."),
                    "bridge": _number(0, 10, "Weight of being headed with what the first results name."),
                    "wanted": _number(0, 10, "Weight of holding the kind of answer that is asked for."),
                    "guidance": _number(0, 10, "Weight of saying how such a question is to be answered."),
                    "thread": _number(0, 10, "Weight of following a better result in one session."),
                    "home": _number(0, 10, "Weight of belonging where most of the first results belong."),
                    "echo": _number(0, 10, "Weight of holding words that the first results share."),
                    "context": _number(0, 10, "Weight of the words of neighbours in time; 0 leaves it out."),
                    "temporal": _choice(("off", "boost", "filter"), "What times named in a query do."),
                    "currency": _flag("Newest first among results that give different values."),
                }
            ),
            "filters": {
                "type": "object",
                "description": "Per filterable field the values that are let in; applied before scoring.",
                "propertyNames": {"pattern": FIELD, "maxLength": 64},
                "additionalProperties": {
                    "type": "array",
                    "minItems": 1,
                    "maxItems": 200,
                    "items": {"type": ["string", "number", "boolean"], "maxLength": 150},
                },
            },
            "dynamic_k": _object(
                {
                    "enabled": _flag("Stop where quality falls off a cliff, instead of always at top_k."),
                    "gap_threshold_factor": _number(1, 1000, "How many times the usual gap is a cliff."),
                    "min_results": _whole(1, MANY, "Never stop before this many."),
                    "max_results": _whole(1, MANY, "Never return more than this many."),
                }
            ),
            "distraction_detection": _object(
                {
                    "enabled": _flag("Flag results that words and meaning place far apart; needs hybrid."),
                    "disagreement_threshold": _number(0, 1, "How far apart the two ranks may lie."),
                }
            ),
            "abstention": _object(
                {
                    "enabled": _flag("Return nothing where nothing answers."),
                    "floor": _number(0, 1, "Results with less evidence than this are withheld."),
                    "relative_floor": _number(
                        0, 1, "Results scoring less than this share of the best are withheld."
                    ),
                }
            ),
            "selection": _object(
                {
                    "strategy": _choice(
                        ("none", "mmr", "diversity"), "Whether near-equal results are thinned out."
                    ),
                    "mmr_lambda": _number(0, 1, "With mmr: 1 looks at relevance alone."),
                    "similarity": _number(0, 1, "With diversity: from where two results count as the same."),
                }
            ),
        },
        required=("name",),
    ),
}

EVALS: Schema = {
    "$schema": DRAFT,
    "title": "An eval set: queries, what answers them, and what would mislead",
    **_object(
        {
            "$schema": {"type": "string"},
            "name": _name("The name of this file without .json."),
            "note": _text("Where the labels come from."),
            "collection": {
                "type": "string",
                "pattern": COLLECTION_NAME,
                "maxLength": 64,
                "description": "The collection it is about; * is every memory of the bank.",
            },
            "k": _whole(1, MANY, "How many results are looked at; the same for every config."),
            "latency_budget_ms": _number(
                0.001, 600_000, "The 95th percentile a deployed config may take per query."
            ),
            "queries": {
                "type": "array",
                "minItems": 1,
                "maxItems": 100_000,
                "items": _object(
                    {
                        "id": _name("Unique over all eval sets."),
                        "query": {"type": "string", "minLength": 1, "maxLength": 4000},
                        "relevant": {
                            "type": "array",
                            "description": "Documents that answer it; empty when nothing should be returned.",
                            "items": {"type": "string", "minLength": 1, "maxLength": 1000},
                        },
                        "distractors": {
                            "type": "array",
                            "description": "Documents that look right and mislead.",
                            "items": {"type": "string", "minLength": 1, "maxLength": 1000},
                        },
                        "grades": {
                            "type": "object",
                            "description": "What a relevant document is worth; 1 unless stated.",
                            "additionalProperties": _number(0.01, 100, "Its grade."),
                        },
                        "split": _choice(("tune", "holdout"), "Tuned on, or kept for the gate."),
                        "note": _text("Why it is labelled so."),
                    },
                    required=("id", "query", "relevant"),
                ),
            },
        },
        required=("name", "queries"),
    ),
}

FILES: dict[str, tuple[str, Schema]] = {
    "collections": ("collection.schema.json", COLLECTION),
    "configs": ("config.schema.json", CONFIG),
    "evals": ("evals.schema.json", EVALS),
}
"""Per folder of a workspace: the name of the schema file written there, and its content."""


def config_schema(values: Mapping[str, Sequence[str]]) -> Schema:
    """The config schema with the filterable fields and their values, so that an editor can offer them."""
    made = copy.deepcopy(CONFIG)
    filters = made["properties"]["filters"]
    filters["properties"] = {
        field: {"type": "array", "minItems": 1, "items": {"enum": list(known)}}
        for field, known in values.items()
    }
    return made


_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
}
_ARTICLES = {"object": "an object", "array": "a list", "integer": "a whole number"}


def check(value: object, schema: Mapping[str, Any], file: str) -> list[Finding]:
    """Everything in `value` that `schema` does not allow, as findings about `file`."""
    return list(_check(value, schema, file, ""))


def _check(value: object, schema: Mapping[str, Any], file: str, path: str) -> Iterator[Finding]:
    wanted: str | list[str] | None = schema.get("type")
    if wanted is not None:
        types = [wanted] if isinstance(wanted, str) else wanted
        if not any(_is(value, name) for name in types):
            expected = " or ".join(_ARTICLES.get(name, f"a {name}") for name in types)
            yield _found(
                "wrong-type", file, path, f"{_shown(value)} is not {expected}", f"write {expected} here"
            )
            return
    if isinstance(value, dict):
        yield from _check_object(cast("dict[str, object]", value), schema, file, path)
    elif isinstance(value, list):
        yield from _check_list(cast("list[object]", value), schema, file, path)
    elif isinstance(value, str):
        yield from _check_text(value, schema, file, path)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield from _check_number(value, schema, file, path)


def _check_object(
    value: Mapping[str, object], schema: Mapping[str, Any], file: str, path: str
) -> Iterator[Finding]:
    properties: Mapping[str, Any] = schema.get("properties", {})
    others: Any = schema.get("additionalProperties", True)
    for key in schema.get("required", ()):
        if key not in value:
            yield _found("missing-key", file, _join(path, key), f"{key!r} is missing", f"add {key!r}")
    for key, inner in value.items():
        place = _join(path, key)
        if key in properties:
            yield from _check(inner, properties[key], file, place)
        elif others is False:
            hint = did_you_mean(key, (name for name in properties if not name.startswith("$")))
            yield _found("unknown-key", file, place, f"nothing reads the key {key[:80]!r}", hint)
        else:
            yield from _check_key(key, schema.get("propertyNames", {}), file, place)
            if isinstance(others, dict):
                yield from _check(inner, cast("dict[str, Any]", others), file, place)


def _check_key(key: str, names: Mapping[str, Any], file: str, path: str) -> Iterator[Finding]:
    pattern = names.get("pattern")
    if pattern and (not re.fullmatch(pattern, key) or len(key) > names.get("maxLength", len(key))):
        what = f"{key[:80]!r} is not a field name"
        yield _found("bad-name", file, path, what, "use lower-case letters, digits and underscores")


def _check_list(
    value: Sequence[object], schema: Mapping[str, Any], file: str, path: str
) -> Iterator[Finding]:
    low, high = schema.get("minItems", 0), schema.get("maxItems", math.inf)
    if len(value) < low:
        code = "empty-evals" if path == "queries" else "out-of-range"
        yield _found(code, file, path, f"the list has {len(value)} entries", f"give it at least {low}")
    if len(value) > high:
        yield _found("out-of-range", file, path, f"the list has {len(value)} entries", f"keep it to {high}")
        return
    for at, inner in enumerate(value):
        yield from _check(inner, schema.get("items", {}), file, f"{path}[{at}]")


def _check_text(value: str, schema: Mapping[str, Any], file: str, path: str) -> Iterator[Finding]:
    choices: list[str] | None = schema.get("enum")
    if choices is not None and value not in choices:
        yield _found(
            "not-a-choice", file, path, f"{_shown(value)} is not allowed", did_you_mean(value, choices)
        )
        return
    pattern: str | None = schema.get("pattern")
    if pattern and not re.fullmatch(pattern, value):
        fix = "use letters and digits, with single dots, dashes or underscores between them"
        yield _found("bad-name", file, path, f"{_shown(value)} is not a name", fix)
    low, high = schema.get("minLength", 0), schema.get("maxLength", math.inf)
    if not low <= len(value) <= high or (low and not value.strip()):
        limits = f"between {low} and {high} characters" if high < math.inf else f"at least {low} characters"
        yield _found(
            "out-of-range", file, path, f"{_shown(value)} has {len(value)} characters", f"use {limits}"
        )


def _check_number(value: float, schema: Mapping[str, Any], file: str, path: str) -> Iterator[Finding]:
    low, high = schema.get("minimum", -math.inf), schema.get("maximum", math.inf)
    if not low <= value <= high:
        yield _found("out-of-range", file, path, f"{value!r} is out of range", f"use {low:g} to {high:g}")


def _is(value: object, name: str) -> bool:
    if isinstance(value, bool):
        return name == "boolean"
    return isinstance(value, _TYPES[name])


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "…"


def _join(path: str, key: str) -> str:
    key = key[:80]
    return f"{path}.{key}" if path else key


def _found(code: str, file: str, path: str, what: str, fix: str) -> Finding:
    return Finding(code=code, file=file, path=path, what=what, fix=fix)
