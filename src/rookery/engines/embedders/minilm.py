"""
Build an ONNX graph of all-MiniLM-L6-v2 (six BERT layers, masked mean, unit length) from safetensors weights.

The int8 graph quantises activations per token, scaled by the token's largest value. onnxruntime's own DynamicQuantizeMatMul uses one scale
for a whole batch: the vector of a text then depends on its neighbours in the batch (by 0.03 in a component, measured), and is further from
the f32 vector (mean cosine 0.994; this graph 0.996).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

import numpy as np
import numpy.typing as npt

from rookery.engines.embedders.onnx_graph import MICROSOFT_DOMAIN, ElementType, Graph

Precision = Literal["int8", "f32"]
Array = npt.NDArray[np.float32]
Weights = Mapping[str, Array]

DIMENSION = 384
WINDOW_TOKENS = 256
"""Maximum tokens of the model's input, special ones included; as in its sentence_bert_config.json."""
PADDING_ID, CLS_ID, SEP_ID = 0, 101, 102
"""Ids of [PAD], which the graph masks, [CLS] and [SEP] in the model's vocabulary."""

INPUT_NAME, OUTPUT_NAME = "ids", "vectors"
"""Names in the graph: ids int64 (texts, tokens), vectors float32 (texts, 384) of unit length."""

_LAYERS = 6
_HEADS = 12
_HEAD_WIDTH = DIMENSION // _HEADS
_EPSILON = 1e-12
_MASK_BIAS = -1e4

_ACTIVATION_STEPS = 127
_ZERO_POINT = 128
"""Zero point of activations. They are unsigned, which has the fastest kernels in onnxruntime."""
_WEIGHT_STEPS = 64
"""Seven bits. With eight, CPUs without VNNI overflow 16-bit sums of two products (255 * 127 * 2) and return wrong results."""

Linear = Callable[[str, str, Array, Array], str]


def read_weights(path: Path) -> dict[str, Array]:
    """
    Return the float32 tensors of a safetensors file by name, as views of the mapped file.

    The format is little-endian: 8 bytes with the length of the header, the header (JSON: dtype, shape, data_offsets), the data.

    Raises:
        OSError: The file cannot be read.
        ValueError: The file does not have this format.
    """
    raw = np.memmap(path, dtype=np.uint8, mode="r")
    start = 8 + int.from_bytes(raw[:8].tobytes(), "little")
    header = cast("dict[str, dict[str, object]]", json.loads(raw[8:start].tobytes()))
    weights: dict[str, Array] = {}
    for name, entry in header.items():
        if entry.get("dtype") == "F32":
            begin, end = cast("list[int]", entry["data_offsets"])
            weights[name] = raw[start + begin : start + end].view("<f4").reshape(cast("list[int]", entry["shape"]))
    return weights


def write_graph(weights: Weights, precision: Precision) -> bytes:
    """
    Return the bytes of the model's ONNX file.

    Raises:
        KeyError: *weights* lacks a tensor of the model.
    """
    graph = Graph(name="all-MiniLM-L6-v2")
    network = _Network(graph=graph, weights=weights, linear=_Int8(graph) if precision == "int8" else _Float32(graph))
    ids = graph.input(INPUT_NAME, ElementType.INT64, ["texts", "tokens"])
    is_text = graph.node("Cast", graph.node("Not", graph.node("Equal", ids, _integers(graph))), to=ElementType.FLOAT)
    mask = graph.node(
        "Unsqueeze", graph.node("Mul", graph.node("Sub", is_text, _number(graph, 1)), _number(graph, -_MASK_BIAS)), _integers(graph, 1, 2)
    )
    hidden = network.embeddings(ids, quantise=precision == "int8")
    for layer in range(_LAYERS):
        hidden = network.layer(hidden, mask, f"encoder.layer.{layer}")
    # The sum has the direction of the mean, and normalisation removes the length.
    masked = graph.node("Mul", hidden, graph.node("Unsqueeze", is_text, _integers(graph, -1)))
    total = graph.node("ReduceSum", masked, _integers(graph, 1), keepdims=0)
    unit = graph.node("LpNormalization", total, axis=-1, p=2)
    graph.output(unit, OUTPUT_NAME, ElementType.FLOAT, ["texts", DIMENSION])
    return graph.serialize()


@dataclass(frozen=True, slots=True)
class _Network:
    """A builder of the layers. Each method adds nodes to the graph and returns the name of their result."""

    graph: Graph
    weights: Weights
    linear: Linear

    def embeddings(self, ids: str, *, quantise: bool) -> str:
        """Return (texts, tokens, 384): word + position + token type 0, normalised."""
        graph = self.graph
        table = self.weights["embeddings.word_embeddings.weight"]
        if quantise:
            scale = _scale(table, axis=1, steps=127)
            rows = graph.node("Gather", graph.tensor("words", np.rint(table / scale).astype(np.int8)), ids)
            scales = graph.node("Gather", graph.tensor("words.scale", scale), ids)
            words = graph.node("Mul", graph.node("Cast", rows, to=ElementType.FLOAT), scales)
        else:
            words = graph.node("Gather", graph.tensor("words", table), ids)
        positions = (
            self.weights["embeddings.position_embeddings.weight"][:WINDOW_TOKENS]
            + self.weights["embeddings.token_type_embeddings.weight"][0]
        )
        tokens = graph.node("Gather", graph.node("Shape", ids), _integers(graph, 1))
        offsets = graph.node("Slice", graph.tensor("places", positions), _integers(graph, 0), tokens, _integers(graph, 0))
        return self.normalize(graph.node("Add", words, offsets), "embeddings.LayerNorm")

    def layer(self, hidden: str, mask: str, name: str) -> str:
        """Return *hidden* after one encoder layer: self-attention and feed-forward, each added and normalised."""
        attended = self.dense(self.attention(hidden, mask, f"{name}.attention.self"), f"{name}.attention.output.dense")
        hidden = self.normalize(self.graph.node("Add", hidden, attended), f"{name}.attention.output.LayerNorm")
        wide = self.graph.node("Gelu", self.dense(hidden, f"{name}.intermediate.dense"))
        return self.normalize(self.graph.node("Add", hidden, self.dense(wide, f"{name}.output.dense")), f"{name}.output.LayerNorm")

    def attention(self, hidden: str, mask: str, name: str) -> str:
        """Return the self-attention of each token. One multiplication computes query, key and value."""
        graph = self.graph
        scales = {"query": 1 / math.sqrt(_HEAD_WIDTH), "key": 1.0, "value": 1.0}
        weight = np.concatenate([self.weights[f"{name}.{part}.weight"] * np.float32(factor) for part, factor in scales.items()])
        bias = np.concatenate([self.weights[f"{name}.{part}.bias"] * np.float32(factor) for part, factor in scales.items()])
        query, key, value = graph.nodes("Split", self.linear(hidden, name, weight, bias), axis=-1, num_outputs=3, outputs=3)
        scores = graph.node("MatMul", self.heads(query, (0, 2, 1, 3)), self.heads(key, (0, 2, 3, 1)))
        attention_weights = graph.node("Softmax", graph.node("Add", scores, mask), axis=-1)
        attended = graph.node("Transpose", graph.node("MatMul", attention_weights, self.heads(value, (0, 2, 1, 3))), perm=(0, 2, 1, 3))
        return graph.node("Reshape", attended, _integers(graph, 0, 0, DIMENSION))

    def heads(self, value: str, order: tuple[int, ...]) -> str:
        """Split (texts, tokens, 384) into (texts, tokens, 12, 32), with the axes in *order*."""
        split = self.graph.node("Reshape", value, _integers(self.graph, 0, 0, _HEADS, _HEAD_WIDTH))
        return self.graph.node("Transpose", split, perm=order)

    def dense(self, value: str, name: str) -> str:
        return self.linear(value, name, self.weights[f"{name}.weight"], self.weights[f"{name}.bias"])

    def normalize(self, value: str, name: str) -> str:
        scale = self.graph.tensor(f"{name}.weight", self.weights[f"{name}.weight"])
        shift = self.graph.tensor(f"{name}.bias", self.weights[f"{name}.bias"])
        return self.graph.node("LayerNormalization", value, scale, shift, axis=-1, epsilon=_EPSILON)


@dataclass(frozen=True, slots=True)
class _Float32:
    """`value @ weight.T + bias` in float32."""

    graph: Graph

    def __call__(self, value: str, name: str, weight: Array, bias: Array) -> str:
        product = self.graph.node("MatMul", value, self.graph.tensor(f"{name}.weight", weight.T))
        return self.graph.node("Add", product, self.graph.tensor(f"{name}.bias", bias))


@dataclass(frozen=True, slots=True)
class _Int8:
    """`value @ weight.T + bias` in integers: weights symmetric per output channel, activations per token."""

    graph: Graph

    def __call__(self, value: str, name: str, weight: Array, bias: Array) -> str:
        graph = self.graph
        scale = _scale(weight, axis=1, steps=_WEIGHT_STEPS)
        # MatMulIntegerToFloat requires weights as (in, out), with a scale and a zero point per output.
        steps = graph.tensor(f"{name}.weight", np.rint(weight / scale).astype(np.int8).T)
        scales = graph.tensor(f"{name}.scale", scale.reshape(-1))
        zeros = graph.constant(np.zeros(len(weight), dtype=np.int8))

        largest = graph.node("Max", graph.node("ReduceMax", graph.node("Abs", value), _integers(graph, -1)), _number(graph, _EPSILON))
        step = _number(graph, 1 / _ACTIVATION_STEPS)
        middle = graph.constant(np.array(_ZERO_POINT, dtype=np.uint8))
        within_one = graph.node("Mul", value, graph.node("Reciprocal", largest))
        unsigned = graph.node("QuantizeLinear", within_one, step, middle)
        product = graph.node("MatMulIntegerToFloat", unsigned, steps, step, scales, middle, zeros, domain=MICROSOFT_DOMAIN)
        return graph.node("Add", graph.node("Mul", product, largest), graph.tensor(f"{name}.bias", bias))


def _scale(weight: Array, *, axis: int, steps: int) -> Array:
    """Return the step size with which *steps* steps reach the largest value along *axis*; the axis is kept."""
    largest = np.abs(weight).max(axis=axis, keepdims=True)
    return np.where(largest > 0, largest / np.float32(steps), np.float32(1)).astype(np.float32)


def _number(graph: Graph, value: float) -> str:
    return graph.constant(np.array(value, dtype=np.float32))


def _integers(graph: Graph, *values: int) -> str:
    """Return a constant list of *values*; the scalar 0 without values."""
    return graph.constant(np.array(values or 0, dtype=np.int64))
