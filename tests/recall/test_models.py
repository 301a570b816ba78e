"""Banks whose vectors come from a model instead of the bundled table."""

from __future__ import annotations

from pathlib import Path

import pytest

from skep import Bank
from skep.embedding.static_table import HashingEmbedder
from skep.errors import ConfigError
from skep.recall.recaller import Recaller
from skep.retrieval.recall_config import PRESETS, preset


class Model(HashingEmbedder):
    """Slow, as models are, and without word pieces of its own."""

    @property
    def instant(self) -> bool:
        return False


def test_meaning_counts_for_more_in_default_where_a_model_reads_whole_texts(tmp_path: Path) -> None:
    table, model = (PRESETS["default"].weights, preset("default", model=True).weights)
    assert model["semantic"] > table["semantic"]
    assert {**model, "semantic": 0} == {**table, "semantic": 0}

    with Bank.open(tmp_path / "bank.skep", embedder=Model(64)) as bank:
        config = Recaller(bank.engine).config
        assert config().weights == model
        assert config("hybrid") == PRESETS["hybrid"]
        assert config(config={"weights": {"lexical": 1.0}}).weights == {"lexical": 1.0}

    with Bank.open(tmp_path / "other.skep") as bank:
        assert Recaller(bank.engine).config().weights == table


def test_an_unknown_preset_is_named_for_a_model_too() -> None:
    with pytest.raises(ConfigError, match="default"):
        preset("defualt", model=True)
