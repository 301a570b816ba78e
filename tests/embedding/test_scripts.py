"""The scripts that make the table and the int8 model, on small random weights."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from skep.embedding.static_table import StaticEmbedder

SCRIPTS = Path(__file__).parents[2] / "scripts"
WORDS = 40


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    return importlib.import_module


def random_weights(minilm: ModuleType) -> dict[str, np.ndarray]:
    """Weights of the right shapes for a model of one layer."""
    chance = np.random.default_rng(0)
    width = minilm.WIDTH

    def dense(name: str, size: int, inputs: int) -> dict[str, np.ndarray]:
        weight = chance.normal(0, inputs**-0.5, (size, inputs))
        return {f"{name}.weight": weight.astype(np.float32), f"{name}.bias": np.zeros(size, np.float32)}

    def norm(name: str) -> dict[str, np.ndarray]:
        return {f"{name}.weight": np.ones(width, np.float32), f"{name}.bias": np.zeros(width, np.float32)}

    layer = "encoder.layer.0"
    weights = norm("embeddings.LayerNorm") | norm(f"{layer}.attention.output.LayerNorm")
    weights |= norm(f"{layer}.output.LayerNorm")
    for name, rows in (("word", WORDS), ("position", 64), ("token_type", 2)):
        rows_of = chance.normal(size=(rows, width)).astype(np.float32)
        weights[f"embeddings.{name}_embeddings.weight"] = rows_of
    for part in ("self.query", "self.key", "self.value", "output.dense"):
        weights |= dense(f"{layer}.attention.{part}", width, width)
    weights |= dense(f"{layer}.intermediate.dense", 4 * width, width)
    return weights | dense(f"{layer}.output.dense", width, 4 * width)


def test_a_written_table_opens_and_keeps_directions(script: Any, tmp_path: Path) -> None:
    build = script("build_static_table")
    vectors = np.random.default_rng(1).normal(size=(5, 16)).astype(np.float32)
    vectors[0], vectors[2] = 0, vectors[2] * 0.01
    build.write_table(vectors, ["[UNK]", "red", "green", "blue", "sky"], tmp_path, recipe="random")
    embedder = StaticEmbedder(tmp_path)

    unit = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)
    np.testing.assert_allclose(embedder.embed(["unheard", "red", "green", "Blue"]), unit[:4], atol=0.02)


def test_rare_words_weigh_more_and_control_entries_nothing(script: Any) -> None:
    weights = script("build_static_table").sif_weights(30_522)

    assert not weights[:999].any()
    assert (np.diff(weights[999:]) > 0).all()
    assert 0 < weights[999] < 0.01
    assert 0.9 < weights[-1] < 1


def test_padding_does_not_change_a_sentence(script: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    minilm = script("minilm")
    monkeypatch.setattr(minilm, "LAYERS", 1)
    monkeypatch.setattr(minilm, "CLS", 2)
    monkeypatch.setattr(minilm, "SEP", 3)
    weights = random_weights(minilm)
    together = minilm.sentence_vectors(weights, [[5], [6, 7, 8, 9], [10, 11]])

    np.testing.assert_allclose(together[:1], minilm.sentence_vectors(weights, [[5]]), atol=1e-5)


def test_the_int8_model_agrees_with_the_one_in_numpy(
    script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("onnx", reason="needs onnx to build a model")
    onnxruntime: Any = pytest.importorskip("onnxruntime", reason="needs the extra 'quality'")
    minilm, build = script("minilm"), script("build_minilm_int8")
    monkeypatch.setattr(minilm, "LAYERS", 1)
    weights = random_weights(minilm)
    session = onnxruntime.InferenceSession(build.build(weights).SerializeToString())
    ids = np.random.default_rng(2).integers(0, WORDS, (3, 12))
    mask = np.ones_like(ids)
    mask[1, 7:] = 0
    (ours,) = session.run(None, {"input_ids": ids, "attention_mask": mask})
    reference = minilm.states(weights, ids, mask.astype(bool))

    cosines = (ours * reference).sum(-1) / np.linalg.norm(ours, axis=-1) / np.linalg.norm(reference, axis=-1)
    assert cosines[mask == 1].min() > 0.995
