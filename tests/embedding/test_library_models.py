"""Models of fastembed and sentence-transformers. Each is made here, so nothing is fetched."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from skep.bank.bank import Bank
from skep.embedding.embedder import Embedder, open_embedder
from skep.errors import ConfigError, EmbedderUnavailableError, MissingExtraError

WORDS = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "ana",
    "drinks",
    "mint",
    "tea",
    "deploys",
    "run",
    "friday",
]


def tokens(folder: Path) -> None:
    """A tokenizer of a dozen words, as models bring it."""
    tokenizers = pytest.importorskip("tokenizers")
    tokenizers.BertWordPieceTokenizer({word: n for n, word in enumerate(WORDS)}).save(
        str(folder / "tokenizer.json")
    )
    special = {name: f"[{name[:3].upper()}]" for name in ("unk_token", "sep_token", "pad_token", "cls_token")}
    (folder / "special_tokens_map.json").write_text(json.dumps({**special, "mask_token": "[MASK]"}))
    about = {"tokenizer_class": "BertTokenizer", "model_max_length": 64, **special}
    (folder / "tokenizer_config.json").write_text(json.dumps(about))
    (folder / "vocab.txt").write_text("\n".join(WORDS) + "\n")


@pytest.fixture
def fastembed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Embedder:
    """A model in fastembed's cache, under a name that it knows: a table of random vectors."""
    pytest.importorskip("fastembed", reason="fastembed is not installed")
    onnx = pytest.importorskip("onnx", reason="onnx is not installed")
    import numpy as np

    place = tmp_path / "models--Qdrant--all-MiniLM-L6-v2-onnx"
    snapshot = place / "snapshots" / "one"
    for folder in (snapshot, place / "refs"):
        folder.mkdir(parents=True)
    (place / "refs" / "main").write_text("one")
    tokens(snapshot)
    (snapshot / "config.json").write_text(json.dumps({"pad_token_id": 0, "hidden_size": 384}))
    table = np.random.default_rng(0).standard_normal((len(WORDS), 384)).astype(np.float32)
    make = onnx.helper
    ids, mask = (
        make.make_tensor_value_info(n, onnx.TensorProto.INT64, ["b", "t"])
        for n in ("input_ids", "attention_mask")
    )
    out = make.make_tensor_value_info("last_hidden_state", onnx.TensorProto.FLOAT, ["b", "t", 384])
    node = make.make_node("Gather", ["table", "input_ids"], ["last_hidden_state"])
    graph = make.make_graph(
        [node], "tiny", [ids, mask], [out], [onnx.numpy_helper.from_array(table, "table")]
    )
    model = make.make_model(graph, opset_imports=[make.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, str(snapshot / "model.onnx"))
    monkeypatch.setenv("FASTEMBED_CACHE_PATH", str(tmp_path))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    return open_embedder("fastembed:sentence-transformers/all-MiniLM-L6-v2")


@pytest.fixture
def sentence_transformers(tmp_path: Path) -> Embedder:
    """A BERT of one layer with random weights, in a folder."""
    pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed")
    from sentence_transformers import SentenceTransformer, models
    from transformers import BertConfig, BertModel

    tokens(tmp_path)
    config = BertConfig(
        vocab_size=len(WORDS), hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64
    )
    BertModel(config).save_pretrained(tmp_path)
    word = models.Transformer(str(tmp_path))
    SentenceTransformer(modules=[word, models.Pooling(word.get_word_embedding_dimension())]).save(
        str(tmp_path / "st")
    )
    return open_embedder(f"sentence-transformers:{tmp_path / 'st'}")


@pytest.mark.parametrize("library", ["fastembed", "sentence_transformers"])
def test_a_bank_remembers_and_recalls_with_a_model_of_the_library(
    library: str, request: pytest.FixtureRequest
) -> None:
    import numpy as np

    embedder: Embedder = request.getfixturevalue(library)
    rows = embedder.embed(["Ana drinks mint tea", "", "Deploys run on Friday"])
    with Bank.open(":memory:", embedder=embedder) as bank:
        bank.remember("Ana drinks mint tea")
        bank.remember("Deploys run on Friday")
        bank.reembed()
        found = bank.recall("ana drinks tea", limit=1)

    assert np.allclose(np.linalg.norm(rows, axis=1), [1, 0, 1], atol=1e-5)
    assert rows.shape == (3, embedder.dim)
    assert [hit.memory.text for hit in found] == ["Ana drinks mint tea"]


@pytest.mark.parametrize("name", ["fastembed", "sentence-transformers"])
def test_a_spec_without_a_model_says_how_to_name_one(name: str) -> None:
    with pytest.raises(ConfigError, match=f"for example '{name}:"):
        open_embedder(name)


def test_a_library_that_is_absent_or_lacks_the_model_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    embedder = open_embedder("fastembed:nobody/knows-it")
    with pytest.raises(
        (MissingExtraError, EmbedderUnavailableError), match=r"skep\[fastembed\]|name a model"
    ):
        embedder.embed(["x"])
