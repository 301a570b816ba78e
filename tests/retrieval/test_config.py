from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from skep.errors import ConfigError
from skep.retrieval.recall_config import (
    PRESETS,
    RETIRED,
    SIGNALS,
    Expand,
    RecallConfig,
    content_hash,
    from_dict,
    merge,
    preset,
    to_dict,
)


@pytest.mark.parametrize("name", list(PRESETS))
def test_every_preset_survives_a_round_trip_through_json(name: str) -> None:
    config = PRESETS[name]

    assert config == from_dict(json.loads(json.dumps(to_dict(config))))


def test_the_presets_of_the_design_ship() -> None:
    assert list(PRESETS) == ["semantic", "hybrid", "rrf", "hive", "patterns", "stream", "default"]
    assert preset("hybrid").weights == {
        "semantic": 0.55,
        "lexical": 0.20,
        "recency": 0.15,
        "importance": 0.10,
    }
    assert preset("hive").weights == {"semantic": 0.5, "confirmations": 0.3, "trust": 0.2}
    assert preset("stream").weights == {"semantic": 0.6, "confidence": 0.3, "recency": 0.1}
    assert preset("rrf").rrf_k == 60


def test_an_unknown_preset_names_the_one_that_was_meant() -> None:
    with pytest.raises(ConfigError, match="did you mean 'hybrid'"):
        preset("hybird")


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ({"fussion": "rrf"}, "did you mean 'fusion'"),
        ({"weights": {"semantics": 1.0}}, "did you mean 'semantic'"),
        ({"expand": {"dept": 2}}, "did you mean 'depth'"),
        ({"weights": {"semantic": -0.1}}, "at least 0"),
        ({"weights": {"semantic": math.nan}}, "at least 0"),
        ({"weights": {"semantic": math.inf}}, "at least 0"),
        ({"weights": {"semantic": 0.0, "lexical": 0.0}}, "all weights are 0"),
        ({"weights": {}}, "all weights are 0"),
        ({"min_results": 9, "max_results": 3}, "above max_results"),
        ({"mmr_lambda": 1.5}, "between 0 and 1"),
        ({"coverage": math.nan}, "between 0 and 10"),
        ({"k_words": 0, "k_vectors": 0}, "nothing can be found"),
        ({"fusion": "median"}, "Invalid enum value"),
        ({"limit": 3}, "unknown key 'limit'"),
        ({"rrf_k": "many"}, "Expected `int`"),
        ({"fusion": "rrf", "weights": {"lexical": 1, "confidence": 1}}, "depend on the query"),
        ({"expand": {"decay": 0}}, "above 0"),
        ({"expand": {"depth": 0}}, "at least 1"),
    ],
)
def test_a_config_that_cannot_work_is_refused_with_a_reason(raw: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        from_dict(raw)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"weights": {"semantics": 1.0}}, "did you mean 'semantic'"),
        ({"weights": {"semantic": "1"}}, "at least 0"),
        ({"weights": {}}, "all weights are 0"),
        ({"k_words": -5}, "between 0 and"),
        ({"k_words": "5"}, "between 0 and"),
        ({"k_words": 0, "k_vectors": 0}, "nothing can be found"),
        ({"fusion": "median"}, "weighted, rrf, product"),
        ({"temporal": "always"}, "off, boost, filter"),
    ],
)
def test_a_config_that_is_built_in_python_is_checked_as_well(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        RecallConfig(**fields)
    with pytest.raises(ConfigError, match=message):
        replace(preset("default"), **fields)


@pytest.mark.parametrize("fields", [{"depth": 0}, {"cap": 0}, {"decay": math.nan}, {"direction": "up"}])
def test_so_is_how_far_it_walks(fields: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"expand\."):
        Expand(**fields)


def test_the_call_overrides_the_bank_and_the_bank_the_preset() -> None:
    merged = merge(preset("hybrid"), {"cliff": 2.0, "coverage": 0.2}, {"coverage": 0.4})

    assert (2.0, 0.4, preset("hybrid").weights) == (merged.cliff, merged.coverage, merged.weights)


def test_weights_are_replaced_as_a_whole() -> None:
    assert merge(preset("hybrid"), None, {"weights": {"lexical": 1.0}}).weights == {"lexical": 1.0}


@pytest.mark.parametrize("name", sorted(RETIRED))
def test_a_field_of_an_earlier_version_is_left_out_of_what_a_bank_holds_and_refused_in_a_call(
    name: str,
) -> None:
    assert merge(preset("default"), {name: 0.5, "cliff": 2.0}) == replace(preset("default"), cliff=2.0)
    with pytest.raises(ConfigError, match=f"unknown key '{name}'"):
        merge(preset("default"), None, {name: 0.5})
    with pytest.raises(ConfigError, match=f"unknown key '{name}'"):
        from_dict({name: 0.5})


def test_a_fusion_that_is_gone_falls_back_to_that_of_the_preset() -> None:
    assert merge(preset("default"), {"fusion": "minmax"}) == preset("default")
    with pytest.raises(ConfigError):
        merge(preset("default"), None, {"fusion": "minmax"})


def test_a_model_of_meaning_weighs_more_than_a_table_of_words_and_in_default_alone() -> None:
    assert preset("default", model=True).weights["semantic"] > preset("default").weights["semantic"]
    for name in set(PRESETS) - {"default"}:
        assert preset(name, model=True) == preset(name)


def test_the_hash_follows_the_content_and_not_the_name() -> None:
    config = preset("hybrid")

    assert content_hash(config) == content_hash(merge(config, {"name": "mine"}))
    assert content_hash(config) != content_hash(merge(config, {"cliff": 9.0}))


@given(st.dictionaries(st.sampled_from(SIGNALS), st.floats(0, 10), min_size=1))
def test_any_weights_with_a_positive_sum_round_trip(weights: dict[str, float]) -> None:
    if not any(weights.values()):
        weights["semantic"] = 1.0

    config = from_dict({"weights": weights})

    assert config == from_dict(to_dict(config))
    assert isinstance(config, RecallConfig)


@pytest.mark.parametrize(
    "given",
    [
        {"coverage": 0.4, "k_words": 7, "select": "mmr", "updates": True},
        {"coverage": 1, "weights": {"lexical": 1}},
    ],
)
def test_a_merged_config_is_the_one_read_from_all_of_its_fields(given: dict[str, object]) -> None:
    merged, read = merge(preset("hybrid"), None, given), from_dict(to_dict(preset("hybrid")) | given)

    assert merged == read
    assert to_dict(merged) == to_dict(read)
    assert [type(value) for value in to_dict(merged).values()] == [
        type(value) for value in to_dict(read).values()
    ]


@pytest.mark.parametrize(
    "given",
    [
        {"k_words": True},
        {"k_words": "7"},
        {"similarity": 2.0},
        {"bar": "sure"},
        {"select": "all"},
        {"name": 3},
    ],
)
def test_a_merge_refuses_what_a_config_refuses(given: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        merge(preset("hybrid"), None, given)
