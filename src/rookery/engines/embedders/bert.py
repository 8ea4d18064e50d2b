"""
Build ONNX graphs of BERT encoders: any number of layers, heads and dimensions, mean or CLS pooling, unit length.

The int8 graph quantises activations per token, scaled by the token's largest value. onnxruntime's own DynamicQuantizeMatMul uses one scale
for a whole batch: the vector of a text then depends on its neighbours in the batch (by 0.03 in a component, measured), and is further from
the f32 vector (mean cosine 0.994; this graph 0.996). Ready-made int8 graphs on PyPI have that scale too, and other vectors.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from rookery.engines.embedders.model_files import InvalidModelError
from rookery.engines.embedders.onnx_graph import FLOAT, INT64, MICROSOFT_DOMAIN, Buffer, OnnxGraph
from rookery.engines.embedders.weights import Array, Weights

Precision = Literal["int8", "f32"]
Pooling = Literal["mean", "cls"]
Linear = Callable[[str, str, Array, Array], str]

INPUT_NAME, OUTPUT_NAME = "ids", "vectors"
"""Names in the graph: ids int64 (texts, tokens), vectors float32 (texts, dimension) of unit length."""

GRAPH_FORMAT = 2
"""Version of the graphs that `write_graph` writes. With another version, a graph is written again and old files are removed."""

_MASK_BIAS = -1e4
_MIN_STEP = 1e-12

_ACTIVATION_STEPS = 127
_ZERO_POINT = 128
"""Zero point of activations. They are unsigned, which has the fastest kernels in onnxruntime."""
_WEIGHT_STEPS = 64
"""Seven bits. With eight, CPUs without VNNI overflow 16-bit sums of two products (255 * 127 * 2) and return wrong results."""

_WORDS = "embeddings.word_embeddings.weight"

_ROWS_AT_A_TIME = 8192
"""Rows of the vocabulary that are converted at a time, which bounds the memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BertConfig:
    """
    The shape of a BERT encoder.

    Attributes:
        name: Name in the graph file.
        intermediate: Width of the feed-forward layers.
        vocabulary: Minimum rows of the table of words.
        window_tokens: Maximum tokens of an input, special ones included.
        padding_id: Id that the graph masks.
        pooling: `mean` of all tokens, or the first token.
    """

    name: str
    dimension: int
    layers: int
    heads: int
    intermediate: int
    vocabulary: int
    window_tokens: int
    padding_id: int
    pooling: Pooling
    epsilon: float = 1e-12


def write_graph(weights: Weights, config: BertConfig, precision: Precision) -> list[Buffer]:
    """
    Return the model's ONNX file in parts.

    Raises:
        InvalidModelError: A tensor is missing, has another shape than *config* says, or contains NaN or infinity.
    """
    graph = OnnxGraph(name=config.name)
    linear = Int8Linear(graph) if precision == "int8" else Float32Linear(graph)
    network = BertNetwork(graph=graph, weights=weights, config=config, linear=linear)
    ids = network.add_input()
    words = network.quantised_words(ids) if precision == "int8" else network.words(ids)
    network.add_output(ids, words)
    return graph.serialize()


def write_split_graph(weights: Weights, config: BertConfig, *, vocabulary_file: str) -> tuple[list[Buffer], list[Buffer]]:
    """
    Return the int8 ONNX file and the file of its vocabulary, each in parts.

    Only the words in use are in memory then. For 250,000 words this halves the memory.

    Args:
        vocabulary_file: Name of the second file, which must be in the folder of the first.

    Raises:
        InvalidModelError: As `write_graph`.
    """
    graph = OnnxGraph(name=config.name)
    network = BertNetwork(graph=graph, weights=weights, config=config, linear=Int8Linear(graph))
    ids = network.add_input()
    words, vocabulary = network.external_words(ids, vocabulary_file)
    network.add_output(ids, words)
    return graph.serialize(), [vocabulary]


def _check_shapes(weights: Weights, config: BertConfig) -> None:
    """Raise `InvalidModelError` for a tensor that is missing or has another shape than *config* says."""
    width, wide = (config.dimension,), (config.intermediate,)
    square = (config.dimension, config.dimension)
    expected = {"embeddings.LayerNorm.weight": width, "embeddings.LayerNorm.bias": width}
    for layer in range(config.layers):
        name = f"encoder.layer.{layer}"
        for part in ("attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense"):
            expected |= {f"{name}.{part}.weight": square, f"{name}.{part}.bias": width}
        for part in ("attention.output.LayerNorm", "output.LayerNorm"):
            expected |= {f"{name}.{part}.weight": width, f"{name}.{part}.bias": width}
        expected |= {f"{name}.intermediate.dense.weight": wide + width, f"{name}.intermediate.dense.bias": wide}
        expected |= {f"{name}.output.dense.weight": width + wide, f"{name}.output.dense.bias": width}
    for name, shape in expected.items():
        if weights.shapes.get(name) != shape:
            raise InvalidModelError(_describe_shape(weights, name, f"{shape}"))
    tables = {"word": config.vocabulary, "position": config.window_tokens, "token_type": 1}
    for name, min_rows in tables.items():
        table = f"embeddings.{name}_embeddings.weight"
        shape = weights.shapes.get(table, ())
        if len(shape) != len(square) or shape[0] < min_rows or shape[1] != config.dimension:
            raise InvalidModelError(_describe_shape(weights, table, f"(at least {min_rows}, {config.dimension})"))
    if f"encoder.layer.{config.layers}.output.dense.weight" in weights.shapes:
        raise InvalidModelError(f"the weights have more than the {config.layers} layers of the configuration")


def _describe_shape(weights: Weights, name: str, expected: str) -> str:
    if name not in weights.shapes:
        return f"the tensor {name} is missing: these are not the weights of a BERT model of this configuration"
    return f"the tensor {name} has the shape {weights.shapes[name]}, expected {expected}"


@dataclass(frozen=True, slots=True)
class BertNetwork:
    """A builder of the layers. Each method adds nodes to the graph and returns the name of their result."""

    graph: OnnxGraph
    weights: Weights
    config: BertConfig
    linear: Linear

    def add_input(self) -> str:
        """Declare the ids, after a check of all shapes."""
        _check_shapes(self.weights, self.config)
        return self.graph.input(INPUT_NAME, INT64, ["texts", "tokens"])

    def add_output(self, ids: str, words: str) -> None:
        """Add the encoder and the pooling, and declare the vectors."""
        graph, config = self.graph, self.config
        padding_id = graph.constant(np.array(config.padding_id, dtype=np.int64))
        is_text = graph.node("Cast", graph.node("Not", graph.node("Equal", ids, padding_id)), to=FLOAT)
        hidden = self.encode(ids, words, is_text)
        if config.pooling == "cls":
            pooled = graph.node("Gather", hidden, graph.integers(), axis=1)
        else:
            # The sum has the direction of the mean, and normalisation removes the length.
            masked = graph.node("Mul", hidden, graph.node("Unsqueeze", is_text, graph.integers(-1)))
            pooled = graph.node("ReduceSum", masked, graph.integers(1), keepdims=0)
        unit = graph.node("LpNormalization", pooled, axis=-1, p=2)
        graph.output(unit, OUTPUT_NAME, FLOAT, ["texts", config.dimension])

    def encode(self, ids: str, words: str, is_text: str) -> str:
        """Return the hidden state of each token, (texts, tokens, dimension). *is_text* is 1 for tokens and 0 for padding, as float."""
        graph = self.graph
        bias = graph.node("Mul", graph.node("Sub", is_text, graph.number(1)), graph.number(-_MASK_BIAS))
        mask = graph.node("Unsqueeze", bias, graph.integers(1, 2))
        hidden = self.embeddings(ids, words)
        for layer in range(self.config.layers):
            hidden = self.layer(hidden, mask, f"encoder.layer.{layer}")
        return hidden

    def words(self, ids: str) -> str:
        """Return the vectors of words in float32."""
        return self.graph.node("Gather", self.graph.tensor("words", self._read(_WORDS)), ids)

    def quantised_words(self, ids: str) -> str:
        """Return the vectors of words, stored in 8-bit integers."""
        steps, scales = self._quantise_rows(_WORDS)
        return self._scale_words(ids, self.graph.tensor("words", steps), scales)

    def external_words(self, ids: str, file_name: str) -> tuple[str, Buffer]:
        """Return the vectors of words, stored in 8-bit integers in another file, and the content of that file."""
        steps, scales = self._quantise_rows(_WORDS)
        content = self.graph.external_tensor("words", steps, file_name=file_name)
        return self._scale_words(ids, "words", scales), content

    def _scale_words(self, ids: str, steps: str, scales: Array) -> str:
        graph = self.graph
        rows = graph.node("Gather", steps, ids)
        factors = graph.node("Gather", graph.tensor("words.scale", scales), ids)
        return graph.node("Mul", graph.node("Cast", rows, to=FLOAT), factors)

    def embeddings(self, ids: str, words: str) -> str:
        """Return (texts, tokens, dimension): word + position + token type 0, normalised."""
        graph = self.graph
        positions = (
            self._read("embeddings.position_embeddings.weight")[: self.config.window_tokens]
            + self._read("embeddings.token_type_embeddings.weight")[0]
        )
        tokens = graph.node("Gather", graph.node("Shape", ids), graph.integers(1))
        offsets = graph.node("Slice", graph.tensor("places", positions), graph.integers(0), tokens, graph.integers(0))
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
        scales = {"query": 1 / math.sqrt(self.config.dimension // self.config.heads), "key": 1.0, "value": 1.0}
        weight = np.concatenate([self._read(f"{name}.{part}.weight") * np.float32(factor) for part, factor in scales.items()])
        bias = np.concatenate([self._read(f"{name}.{part}.bias") * np.float32(factor) for part, factor in scales.items()])
        query, key, value = graph.nodes("Split", self.linear(hidden, name, weight, bias), axis=-1, num_outputs=3, outputs=3)
        scores = graph.node("MatMul", self.heads(query, (0, 2, 1, 3)), self.heads(key, (0, 2, 3, 1)))
        attention_weights = graph.node("Softmax", graph.node("Add", scores, mask), axis=-1)
        attended = graph.node("Transpose", graph.node("MatMul", attention_weights, self.heads(value, (0, 2, 1, 3))), perm=(0, 2, 1, 3))
        return graph.node("Reshape", attended, graph.integers(0, 0, self.config.dimension))

    def heads(self, value: str, order: tuple[int, ...]) -> str:
        """Split (texts, tokens, dimension) into (texts, tokens, heads, width of a head), with the axes in *order*."""
        heads = self.config.heads
        split = self.graph.node("Reshape", value, self.graph.integers(0, 0, heads, self.config.dimension // heads))
        return self.graph.node("Transpose", split, perm=order)

    def dense(self, value: str, name: str) -> str:
        return self.linear(value, name, self._read(f"{name}.weight"), self._read(f"{name}.bias"))

    def normalize(self, value: str, name: str) -> str:
        scale = self.graph.tensor(f"{name}.weight", self._read(f"{name}.weight"))
        shift = self.graph.tensor(f"{name}.bias", self._read(f"{name}.bias"))
        return self.graph.node("LayerNormalization", value, scale, shift, axis=-1, epsilon=self.config.epsilon)

    def _quantise_rows(self, name: str) -> tuple[npt.NDArray[np.int8], Array]:
        """Return a table in 8-bit integers, with the step size of each row."""
        rows, width = self.weights.shapes[name]
        steps, scales = np.empty((rows, width), dtype=np.int8), np.empty((rows, 1), dtype=np.float32)
        for first in range(0, rows, _ROWS_AT_A_TIME):
            part = self._read(name, first, min(rows, first + _ROWS_AT_A_TIME))
            scale = scales[first : first + len(part)] = _scale(part, axis=1, steps=127)
            steps[first : first + len(part)] = np.rint(part / scale)
        return steps, scales

    def _read(self, name: str, first: int = 0, last: int | None = None) -> Array:
        values = self.weights.read(name, first, last)
        if not np.isfinite(values).all():
            raise InvalidModelError(f"the tensor {name} contains NaN or infinity: the weights are damaged")
        return values


@dataclass(frozen=True, slots=True)
class Float32Linear:
    """`value @ weight.T + bias` in float32."""

    graph: OnnxGraph

    def __call__(self, value: str, name: str, weight: Array, bias: Array) -> str:
        product = self.graph.node("MatMul", value, self.graph.tensor(f"{name}.weight", weight.T))
        return self.graph.node("Add", product, self.graph.tensor(f"{name}.bias", bias))


@dataclass(frozen=True, slots=True)
class Int8Linear:
    """`value @ weight.T + bias` in integers: weights symmetric per output channel, activations per token."""

    graph: OnnxGraph

    def __call__(self, value: str, name: str, weight: Array, bias: Array) -> str:
        graph = self.graph
        scale = _scale(weight, axis=1, steps=_WEIGHT_STEPS)
        # MatMulIntegerToFloat requires weights as (in, out), with a scale and a zero point per output.
        steps = graph.tensor(f"{name}.weight", np.rint(weight / scale).astype(np.int8).T)
        scales = graph.tensor(f"{name}.scale", scale.reshape(-1))
        zeros = graph.constant(np.zeros(len(weight), dtype=np.int8))

        largest = graph.node("Max", graph.node("ReduceMax", graph.node("Abs", value), graph.integers(-1)), graph.number(_MIN_STEP))
        step = graph.number(1 / _ACTIVATION_STEPS)
        middle = graph.constant(np.array(_ZERO_POINT, dtype=np.uint8))
        within_one = graph.node("Mul", value, graph.node("Reciprocal", largest))
        unsigned = graph.node("QuantizeLinear", within_one, step, middle)
        product = graph.node("MatMulIntegerToFloat", unsigned, steps, step, scales, middle, zeros, domain=MICROSOFT_DOMAIN)
        return graph.node("Add", graph.node("Mul", product, largest), graph.tensor(f"{name}.bias", bias))


def _scale(weight: Array, *, axis: int, steps: int) -> Array:
    """Return the step size with which *steps* steps reach the largest value along *axis*; the axis is kept."""
    largest = np.abs(weight).max(axis=axis, keepdims=True)
    return np.where(largest > 0, largest / np.float32(steps), np.float32(1)).astype(np.float32)
