"""The cross-encoder: a tiny ONNX model, built here, runs the real code path."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from skep import Bank
from skep.cli.memories import search
from skep.errors import ConfigError, MissingExtraError
from skep.model import Recalled
from skep.retrieval.rerankers import CrossEncoder, in_two_passes
from skep.retrieval.sources import Reranker

VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "tea", "coffee", "likes", "ana", "rome"]
WORTH = np.array([0, 0, 0, 0, 1, -2, 0.5, 0, 3], np.float32)


def write_model(folder: Path, *, columns: int = 1, kinds: bool = True) -> Path:
    """A model whose logit is the summed worth of the tokens of the text, the second of the pair."""
    onnx: Any = pytest.importorskip("onnx", reason="needs onnx to build a model")
    pytest.importorskip("onnxruntime", reason="needs the extra 'quality'")
    make = onnx.helper
    table = np.zeros((len(VOCABULARY), columns), np.float32)
    table[:, -1] = WORTH
    counted = "token_type_ids" if kinds else "attention_mask"
    nodes = [
        make.make_node("Gather", ["table", "input_ids"], ["states"]),
        make.make_node("Cast", [counted], ["counted"], to=onnx.TensorProto.FLOAT),
        make.make_node("Unsqueeze", ["counted", "axis"], ["wide"]),
        make.make_node("Mul", ["states", "wide"], ["second"]),
        make.make_node("ReduceSum", ["second", "one"], ["logits"], keepdims=0),
    ]
    ports = [
        make.make_tensor_value_info(n, onnx.TensorProto.INT64, ["b", "n"]) for n in ("input_ids", counted)
    ]
    output = make.make_tensor_value_info("logits", onnx.TensorProto.FLOAT, ["b", columns])
    given = {"table": table, "axis": np.array([2], np.int64), "one": np.array([1], np.int64)}
    weights = [onnx.numpy_helper.from_array(value, name) for name, value in given.items()]
    graph = make.make_graph(nodes, "tiny", ports, [output], weights)
    folder.mkdir(parents=True, exist_ok=True)
    model = make.make_model(graph, opset_imports=[make.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, folder / "model.onnx")
    (folder / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n")
    return folder


def sigmoid(value: float) -> float:
    return float(1 / (1 + np.exp(-value)))


@pytest.mark.parametrize("columns", [1, 2])
def test_a_text_is_scored_by_what_the_model_makes_of_the_pair(tmp_path: Path, columns: int) -> None:
    score = CrossEncoder(write_model(tmp_path, columns=columns))

    found = score("rome rome", ["Ana likes tea", "coffee", ""])

    assert found == pytest.approx([sigmoid(1.5), sigmoid(-2), 0.5], abs=1e-6)


def test_batches_and_padding_do_not_change_a_score(tmp_path: Path) -> None:
    texts = ["tea", "Ana likes coffee and tea", "rome", "likes", "coffee coffee"]
    folder = write_model(tmp_path)

    together = CrossEncoder(folder, batch=2)("ana", texts)

    assert together == pytest.approx([CrossEncoder(folder)("ana", [text])[0] for text in texts])


def test_a_long_query_leaves_room_for_the_text(tmp_path: Path) -> None:
    score = CrossEncoder(write_model(tmp_path))

    assert score("ana " * 2000, ["rome"]) == pytest.approx([sigmoid(3)])


def test_a_tokenizer_file_serves_where_there_is_no_vocabulary(tmp_path: Path) -> None:
    tokenizers: Any = pytest.importorskip("tokenizers")
    folder = write_model(tmp_path)
    (folder / "vocab.txt").unlink()
    words = {word: number for number, word in enumerate(VOCABULARY)}
    made = tokenizers.Tokenizer(tokenizers.models.WordPiece(words, unk_token="[UNK]"))
    made.normalizer = tokenizers.normalizers.Lowercase()
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.post_processor = tokenizers.processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    made.save(str(folder / "tokenizer.json"))

    assert CrossEncoder(folder)("rome", ["likes tea"]) == pytest.approx([sigmoid(1.5)])


def test_a_recall_is_ordered_by_it(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "model")
    with Bank.open(tmp_path / "bank.skep") as bank:
        bank.remember("Ana likes coffee")
        bank.remember("Ana likes rome")
        bank.remember("Ana likes tea")
        found = bank.recall("What does Ana like?", reranker=CrossEncoder(folder))

    assert [hit.memory.text for hit in found] == ["Ana likes rome", "Ana likes tea", "Ana likes coffee"]
    assert found.hits[0].signals["reranker"] == pytest.approx(sigmoid(3.5))


def test_the_command_line_takes_a_folder(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "model")
    with Bank.open(tmp_path / "bank.skep") as bank:
        bank.remember("Ana likes tea")
        bank.remember("Ana likes rome")
    arguments = ["likes", "--bank", str(tmp_path / "bank.skep"), "--reranker", str(folder), "--json"]

    done = CliRunner().invoke(search, arguments, catch_exceptions=False)

    assert [hit["memory"]["text"] for hit in json.loads(done.stdout)["hits"]] == [
        "Ana likes rome",
        "Ana likes tea",
    ]


def test_in_two_passes_the_model_runs_while_nothing_is_held(tmp_path: Path) -> None:
    held, seen = [False], list[bool]()

    def by_length(_query: str, texts: Sequence[str]) -> list[float]:
        seen.append(held[0])
        return [1 / len(text) for text in texts]

    with Bank.open(tmp_path / "bank.skep") as bank:
        bank.remember("Ana likes tea in the morning")
        bank.remember("Ana likes tea")

        def answer(reranker: Reranker) -> Recalled:
            held[0] = True
            try:
                return bank.recall("what does Ana like", reranker=reranker)
            finally:
                held[0] = False

        found = in_two_passes(answer, "what does Ana like", by_length)
        directly = bank.recall("what does Ana like", reranker=by_length)
        nothing = in_two_passes(lambda _: Recalled(hits=()), "what does Ana like", by_length)

    assert seen == [False, False]
    assert [hit.memory.text for hit in found] == ["Ana likes tea", "Ana likes tea in the morning"]
    assert [(hit.memory.id, hit.score) for hit in found] == [(hit.memory.id, hit.score) for hit in directly]
    assert not nothing


def test_what_is_missing_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="give the folder of a cross-encoder"):
        CrossEncoder(tmp_path)
    folder = write_model(tmp_path / "three", columns=3)
    with pytest.raises(ConfigError, match="3 figures per pair"):
        CrossEncoder(folder)("ana", ["tea"])
    (folder / "model.onnx").write_bytes(b"not a model")
    with pytest.raises(ConfigError, match="not a readable ONNX model"):
        CrossEncoder(folder)("ana", ["tea"])
    (folder / "vocab.txt").unlink()
    with pytest.raises(ConfigError, match=r"neither an uncased vocab.txt nor tokenizer.json"):
        CrossEncoder(folder)("ana", ["tea"])
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(MissingExtraError, match=r"skep\[quality\]"):
        CrossEncoder(write_model_file(folder))("ana", ["tea"])


def write_model_file(folder: Path) -> Path:
    (folder / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n")
    return folder
