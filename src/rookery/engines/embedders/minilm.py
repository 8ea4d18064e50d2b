"""
Build an ONNX graph of all-MiniLM-L6-v2 (six BERT layers, masked mean, unit length) from safetensors weights.

The int8 graph quantises activations per token, scaled by the token's largest value. onnxruntime's own DynamicQuantizeMatMul uses one scale
for a whole batch: the vector of a text then depends on its neighbours in the batch (by 0.03 in a component, measured), and is further from
the f32 vector (mean cosine 0.994; this graph 0.996). Ready-made int8 graphs on PyPI have that scale too, and other vectors.

The graph is written here, without the `onnx` package: that has 18 MB and depends on protobuf, and `embedded:f32` and clones build their
graph on the machine of the user. A graph needs six message types of protobuf. Field numbers are from onnx.proto
(https://github.com/onnx/onnx/blob/main/onnx/onnx.proto). The reader of safetensors needs ten lines.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, cast

import numpy as np
import numpy.typing as npt

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

_IR_VERSION = 10
_MICROSOFT_DOMAIN = "com.microsoft"
"""The domain of onnxruntime's own operators."""

_OPSETS = {"": 20, _MICROSOFT_DOMAIN: 1}
_FLOAT, _INT64 = 1, 7
_ELEMENT_TYPES = {"float32": _FLOAT, "uint8": 2, "int8": 3, "int64": _INT64}
"""Values of TensorProto.DataType, by the name of numpy's type."""

Tensor = Array | npt.NDArray[np.uint8] | npt.NDArray[np.int8] | npt.NDArray[np.int64]
Field = tuple[int, int | float | str | bytes | Sequence[int]]
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
    graph = _Graph(name="all-MiniLM-L6-v2")
    network = _Network(graph=graph, weights=weights, linear=_Int8(graph) if precision == "int8" else _Float32(graph))
    ids = graph.input(INPUT_NAME, _INT64, ["texts", "tokens"])
    is_text = graph.node("Cast", graph.node("Not", graph.node("Equal", ids, _integers(graph))), to=_FLOAT)
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
    graph.output(unit, OUTPUT_NAME, _FLOAT, ["texts", DIMENSION])
    return graph.serialize()


@dataclass(frozen=True, slots=True)
class _Network:
    """A builder of the layers. Each method adds nodes to the graph and returns the name of their result."""

    graph: _Graph
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
            words = graph.node("Mul", graph.node("Cast", rows, to=_FLOAT), scales)
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

    graph: _Graph

    def __call__(self, value: str, name: str, weight: Array, bias: Array) -> str:
        product = self.graph.node("MatMul", value, self.graph.tensor(f"{name}.weight", weight.T))
        return self.graph.node("Add", product, self.graph.tensor(f"{name}.bias", bias))


@dataclass(frozen=True, slots=True)
class _Int8:
    """`value @ weight.T + bias` in integers: weights symmetric per output channel, activations per token."""

    graph: _Graph

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
        product = graph.node("MatMulIntegerToFloat", unsigned, steps, step, scales, middle, zeros, domain=_MICROSOFT_DOMAIN)
        return graph.node("Add", graph.node("Mul", product, largest), graph.tensor(f"{name}.bias", bias))


def _scale(weight: Array, *, axis: int, steps: int) -> Array:
    """Return the step size with which *steps* steps reach the largest value along *axis*; the axis is kept."""
    largest = np.abs(weight).max(axis=axis, keepdims=True)
    return np.where(largest > 0, largest / np.float32(steps), np.float32(1)).astype(np.float32)


def _number(graph: _Graph, value: float) -> str:
    return graph.constant(np.array(value, dtype=np.float32))


def _integers(graph: _Graph, *values: int) -> str:
    """Return a constant list of *values*; the scalar 0 without values."""
    return graph.constant(np.array(values or 0, dtype=np.int64))


@dataclass(slots=True)
class _Graph:
    """A graph under construction, with nodes in the order in which they run. Methods that add a value return its name."""

    name: str
    _nodes: list[bytes] = field(default_factory=list[bytes])
    _tensors: list[bytes] = field(default_factory=list[bytes])
    _inputs: list[bytes] = field(default_factory=list[bytes])
    _outputs: list[bytes] = field(default_factory=list[bytes])
    _constants: dict[tuple[str, bytes], str] = field(default_factory=dict[tuple[str, bytes], str])

    def input(self, name: str, element: int, shape: Sequence[int | str]) -> str:
        """Declare an input. A dimension given as text may have any size."""
        self._inputs.append(_value_info(name, element, shape))
        return name

    def output(self, value: str, name: str, element: int, shape: Sequence[int | str]) -> None:
        """Declare *value* as output *name*."""
        self._nodes.append(_encode((1, value), (2, name), (3, name), (4, "Identity")))
        self._outputs.append(_value_info(name, element, shape))

    def tensor(self, name: str, value: Tensor) -> str:
        """Add a named constant."""
        raw = np.ascontiguousarray(value).astype(value.dtype.newbyteorder("<"), copy=False).tobytes()
        self._tensors.append(_encode((1, value.shape), (2, _ELEMENT_TYPES[value.dtype.name]), (8, name), (9, raw)))
        return name

    def constant(self, value: Tensor) -> str:
        """Add a small constant without a name of its own. Equal constants are stored once."""
        key = (f"{value.dtype.name}{value.shape}", value.tobytes())
        if key not in self._constants:
            self._constants[key] = self.tensor(f"constant.{len(self._constants)}", value)
        return self._constants[key]

    def node(self, operator: str, *inputs: str, domain: str = "", **attributes: float | Sequence[int]) -> str:
        """Add a node with one output and return its name."""
        return self.nodes(operator, *inputs, domain=domain, outputs=1, **attributes)[0]

    def nodes(self, operator: str, *inputs: str, domain: str = "", outputs: int, **attributes: float | Sequence[int]) -> tuple[str, ...]:
        """Add a node and return the names of its *outputs*, in order."""
        name = f"{operator}.{len(self._nodes)}"
        names = tuple(f"{name}.{index}" for index in range(outputs))
        fields: list[Field] = [*((1, value) for value in inputs), *((2, value) for value in names), (3, name), (4, operator)]
        self._nodes.append(_encode(*fields, *((5, _attribute(key, value)) for key, value in attributes.items()), (7, domain)))
        return names

    def serialize(self) -> bytes:
        """Return the bytes of the model file. The graph is the last field, so a truncated file cannot be parsed."""
        opsets: list[Field] = [(8, _encode((1, domain), (2, version))) for domain, version in _OPSETS.items()]
        groups = {1: self._nodes, 2: [self.name], 11: self._inputs, 12: self._outputs, 5: self._tensors}
        graph = b"".join(_encode((number, value)) for number, values in groups.items() for value in values)
        return _encode((1, _IR_VERSION), (2, "rookery"), *opsets, (7, graph))


def _value_info(name: str, element: int, shape: Sequence[int | str]) -> bytes:
    dimensions = _encode(*((1, _encode((2 if isinstance(size, str) else 1, size))) for size in shape))
    return _encode((1, name), (2, _encode((1, _encode((1, element), (2, dimensions))))))


def _attribute(name: str, value: float | Sequence[int]) -> bytes:
    """Encode an AttributeProto; its field 20 identifies the field that is set."""
    if isinstance(value, int):
        return _encode((1, name), (3, value), (20, 2))
    if isinstance(value, float):
        return _encode((1, name), (2, value), (20, 1))
    return _encode((1, name), (8, value), (20, 7))


def _encode(*fields: Field) -> bytes:
    """Encode a protobuf message: integers as varints, text and bytes with their length, sequences as repeated fields."""
    message = bytearray()
    for number, value in fields:
        if isinstance(value, int):
            message += _varint(number << 3) + _varint(value)
        elif isinstance(value, float):
            message += _varint(number << 3 | 5) + struct.pack("<f", value)
        elif isinstance(value, str | bytes):
            raw = value.encode() if isinstance(value, str) else value
            message += _varint(number << 3 | 2) + _varint(len(raw)) + raw
        else:
            message += b"".join(_encode((number, item)) for item in value)
    return bytes(message)


def _varint(value: int) -> bytes:
    """Encode in base 128, least significant group first. A negative number is encoded as 64-bit two's complement."""
    value &= (1 << 64) - 1
    groups = bytearray()
    while value > 0x7F:
        groups.append((value & 0x7F) | 0x80)
        value >>= 7
    groups.append(value)
    return bytes(groups)
