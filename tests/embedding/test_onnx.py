"""Local ONNX models: a tiny random one, built here, runs the real code path."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from skep.embedding.embedder import open_embedder
from skep.embedding.onnx import OnnxEmbedder, digest_of, models_folder, open_minilm
from skep.errors import EmbedderMismatchError, EmbedderUnavailableError, MissingExtraError

DIM = 6
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "red", "green", "blue", "sky", "##s"]


def write_model(
    folder: Path, *, inputs: tuple[str, ...] = ("input_ids", "attention_mask"), seed: int = 0
) -> Path:
    """A model whose token states are rows of a random table."""
    onnx: Any = pytest.importorskip("onnx", reason="needs onnx to build a model")
    pytest.importorskip("onnxruntime", reason="needs the extra 'quality'")
    table = np.random.default_rng(seed).normal(size=(len(VOCABULARY), DIM)).astype(np.float32)
    make = onnx.helper
    nodes = [make.make_node("Gather", ["table", inputs[0]], ["last_hidden_state"])]
    ports = [make.make_tensor_value_info(name, onnx.TensorProto.INT64, ["b", "n"]) for name in inputs]
    output = make.make_tensor_value_info("last_hidden_state", onnx.TensorProto.FLOAT, ["b", "n", DIM])
    graph = make.make_graph(nodes, "tiny", ports, [output], [onnx.numpy_helper.from_array(table, "table")])
    folder.mkdir(parents=True, exist_ok=True)
    model = make.make_model(graph, opset_imports=[make.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, folder / "model.onnx")
    (folder / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n")
    return folder


def table_of(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(len(VOCABULARY), DIM)).astype(np.float32)


def unit(row: np.ndarray) -> np.ndarray:
    return row / np.linalg.norm(row)


def test_a_text_is_the_unit_mean_of_its_token_states(tmp_path: Path) -> None:
    embedder = open_embedder(f"onnx:{write_model(tmp_path)}")
    table = table_of()

    np.testing.assert_allclose(
        embedder.embed(["Red skys"])[0], unit(table[[2, 4, 7, 8, 3]].mean(axis=0)), rtol=1e-5
    )


def test_padding_and_company_do_not_change_a_row(tmp_path: Path) -> None:
    embedder = OnnxEmbedder(write_model(tmp_path), batch=2)
    texts = ["red", "green blue sky red", "", "blue blue", "sky"]
    together = embedder.embed(texts)

    np.testing.assert_allclose(together, np.vstack([embedder.embed([text]) for text in texts]), atol=1e-6)
    assert not together[2].any()


def test_the_settings_beside_the_model_are_obeyed(tmp_path: Path) -> None:
    write_model(tmp_path)
    (tmp_path / "1_Pooling").mkdir()
    (tmp_path / "1_Pooling" / "config.json").write_text('{"pooling_mode_cls_token": true}')
    (tmp_path / "sentence_bert_config.json").write_text('{"max_seq_length": 4}')
    (tmp_path / "skep.json").write_text('{"knots": [[0.25, 0.0]]}')
    embedder = OnnxEmbedder(tmp_path)

    np.testing.assert_allclose(embedder.embed(["red green blue"])[0], unit(table_of()[2]), rtol=1e-5)
    assert embedder.calibrate(0.25) == 0.0
    assert "first4" in embedder.fingerprint


def test_long_texts_are_cut_to_the_limit_of_the_model(tmp_path: Path) -> None:
    write_model(tmp_path)
    (tmp_path / "sentence_bert_config.json").write_text('{"max_seq_length": 4}')
    rows = OnnxEmbedder(tmp_path).embed(["red green", "red green blue sky"])

    np.testing.assert_allclose(rows[0], rows[1], atol=1e-6)


def test_fingerprints_tell_weights_pooling_and_limits_apart(tmp_path: Path) -> None:
    one = OnnxEmbedder(write_model(tmp_path / "a" / "model"))
    same = OnnxEmbedder(write_model(tmp_path / "b" / "model"))
    other = OnnxEmbedder(write_model(tmp_path / "c" / "model", seed=1))

    assert one.fingerprint == same.fingerprint != other.fingerprint
    assert (one.dim, one.instant) == (DIM, False)


def test_an_unmeasured_model_is_calibrated_by_probes(tmp_path: Path) -> None:
    embedder = OnnxEmbedder(write_model(tmp_path))

    assert (embedder.calibrate(-1.0), embedder.calibrate(1.0)) == (-1.0, 1.0)


def test_the_usual_third_input_is_supplied(tmp_path: Path) -> None:
    write_model(tmp_path, inputs=("input_ids", "attention_mask", "token_type_ids"))

    assert OnnxEmbedder(tmp_path / "model.onnx").embed(["red"]).any()


def test_a_model_that_is_no_text_encoder_is_refused(tmp_path: Path) -> None:
    write_model(tmp_path, inputs=("pixels",))

    with pytest.raises(EmbedderUnavailableError, match="pixels"):
        OnnxEmbedder(tmp_path).embed(["red"])


def test_a_wrong_dimension_in_the_settings_is_caught(tmp_path: Path) -> None:
    write_model(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"hidden_size": 7}))

    with pytest.raises(EmbedderMismatchError, match="hidden_size 7"):
        OnnxEmbedder(tmp_path).embed(["red"])


def test_a_damaged_model_is_a_named_error(tmp_path: Path) -> None:
    write_model(tmp_path)
    (tmp_path / "model.onnx").write_bytes(b"not a model")

    with pytest.raises(EmbedderUnavailableError, match="not a readable"):
        OnnxEmbedder(tmp_path).embed(["red"])


def test_a_missing_model_says_how_to_get_one(tmp_path: Path) -> None:
    with pytest.raises(EmbedderUnavailableError, match="build_minilm_int8"):
        open_minilm(tmp_path)


def test_without_a_vocabulary_another_tokenizer_is_needed(tmp_path: Path) -> None:
    write_model(tmp_path)
    (tmp_path / "vocab.txt").unlink()

    with pytest.raises(EmbedderUnavailableError, match=r"tokenizer\.json"):
        OnnxEmbedder(tmp_path).embed(["red"])


def test_a_vocabulary_that_is_not_berts_is_refused(tmp_path: Path) -> None:
    write_model(tmp_path)
    (tmp_path / "vocab.txt").write_text("[UNK]\nred\n")

    with pytest.raises(EmbedderUnavailableError, match=r"\[CLS\]"):
        OnnxEmbedder(tmp_path).embed(["red"])


@pytest.mark.parametrize("module", ["onnxruntime", "tokenizers"])
def test_an_absent_dependency_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str
) -> None:
    (tmp_path / "model.onnx").write_bytes(b"")
    (tmp_path / "config.json").write_text('{"hidden_size": 4}')
    if module == "tokenizers":
        (tmp_path / "tokenizer.json").write_text("{}")
    else:
        (tmp_path / "vocab.txt").write_text("\n".join(VOCABULARY))
    monkeypatch.setitem(sys.modules, module, None)

    with pytest.raises(MissingExtraError, match="quality"):
        OnnxEmbedder(tmp_path).embed(["red"])


def test_a_sampled_digest_sees_a_change_anywhere_it_looks(tmp_path: Path) -> None:
    file = tmp_path / "weights"
    file.write_bytes(bytes(3_000_000))
    before = digest_of(file)
    for place in (0, (3_000_000 - 16_384) * 31 // 63 + 5, 2_999_999):
        content = bytearray(3_000_000)
        content[place] = 1
        file.write_bytes(bytes(content))
        assert before != digest_of(file)


@pytest.mark.parametrize(
    ("platform", "part"),
    [("linux", ".local/share/skep"), ("darwin", "Application Support/skep"), ("win32", "AppData/Local/skep")],
)
def test_models_lie_where_the_platform_keeps_data(platform: str, part: str) -> None:
    assert part in models_folder(platform, Path("home")).as_posix()


NOT_CLOSED = """
import sys
from pathlib import Path
from skep import Bank
from skep.embedding.onnx import OnnxEmbedder

bank = Bank.open(sys.argv[1], embedder=OnnxEmbedder(Path(sys.argv[2])))
bank.remember("red sky")
bank.remember_many(f"blue {number} green" for number in range(int(sys.argv[3])))
bank.recall("sky")
print("done", flush=True)
"""


@pytest.mark.parametrize("many", [1, 3000])
def test_a_process_that_closes_nothing_ends_quietly(tmp_path: Path, many: int) -> None:
    model = write_model(tmp_path / "tiny")
    ended = subprocess.run(
        [sys.executable, "-c", NOT_CLOSED, str(tmp_path / "bank.skep"), str(model), str(many)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "done\n", "")
