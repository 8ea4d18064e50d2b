"""onnxruntime sessions that compute vectors of tokens: of the graphs that Rookery builds, and of graphs that users provide."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, cast

import numpy as np
import numpy.typing as npt
import onnxruntime

from rookery.engines.embedders import bert
from rookery.engines.embedders.model_files import InvalidModelError
from rookery.engines.embedders.weights import Array

Ids = npt.NDArray[np.int64]

_POOLED_OUTPUT = "sentence_embedding"
_TOKEN_OUTPUTS = ("last_hidden_state", "token_embeddings")
_INPUTS = ("input_ids", "attention_mask", "token_type_ids")


class Encoder(Protocol):
    """A model that computes the vector of a text from its tokens."""

    def encode(self, rows: Sequence[Sequence[int]]) -> Array:
        """Return a vector of unit length for each row of token ids."""
        ...


class _Node(Protocol):
    """The used part of `onnxruntime.NodeArg`."""

    name: str
    type: str
    shape: list[int | str | None]


class _Session(Protocol):
    """The used part of `onnxruntime.InferenceSession`; the package has no types."""

    def run(self, outputs: list[str], inputs: dict[str, Ids]) -> list[Array]: ...

    def get_inputs(self) -> list[_Node]: ...

    def get_outputs(self) -> list[_Node]: ...


class _Options(Protocol):
    """The used part of `onnxruntime.SessionOptions`."""

    intra_op_num_threads: int
    inter_op_num_threads: int
    enable_cpu_mem_arena: bool
    enable_mem_pattern: bool
    log_severity_level: int

    def add_session_config_entry(self, key: str, value: str) -> None: ...


class BuiltGraphEncoder:
    """The encoder of a graph that `bert` wrote."""

    def __init__(self, path: Path, *, padding_id: int) -> None:
        self._session = _open_session(path)
        self._padding_id = padding_id

    def encode(self, rows: Sequence[Sequence[int]]) -> Array:
        """Return a vector of unit length for each row of token ids. Rows are padded to the longest one."""
        ids = np.full((len(rows), max(map(len, rows))), self._padding_id, dtype=np.int64)
        for index, row in enumerate(rows):
            ids[index, : len(row)] = row
        (vectors,) = self._session.run([bert.OUTPUT_NAME], {bert.INPUT_NAME: ids})
        return vectors


class UserGraphEncoder:
    """
    The encoder of an ONNX file that a user provides, as sentence-transformers, Optimum and others export it.

    Texts are computed one by one. A quantised graph can have one scale for a whole batch, so that the vector of a text depends on the rest.
    """

    def __init__(self, path: Path, *, pooling: bert.Pooling | None, has_pooled_output: bool) -> None:
        """
        Load the graph.

        Args:
            pooling: How the vectors of tokens become one. None: unknown.
            has_pooled_output: Use the output `sentence_embedding`, if the graph has it, instead of pooling.

        Raises:
            InvalidModelError: The inputs or outputs have other names.
        """
        try:
            self._session = _open_session(path)
        except Exception as error:  # onnxruntime raises many classes for a damaged file
            raise InvalidModelError(f"{path.name} cannot be loaded: {error}") from error
        self._inputs = {node.name for node in self._session.get_inputs()}
        outputs = [node.name for node in self._session.get_outputs()]
        if not {"input_ids"} <= self._inputs <= set(_INPUTS):
            raise InvalidModelError(
                f"{path.name} has the inputs {', '.join(sorted(self._inputs))}; the known ones are {', '.join(_INPUTS)}"
            )
        has_pooled_output = has_pooled_output and _POOLED_OUTPUT in outputs
        self._pooling = None if has_pooled_output else pooling
        token_output = next((name for name in _TOKEN_OUTPUTS if name in outputs), None)
        if not has_pooled_output and token_output is None:
            allowed_names = ", ".join((_POOLED_OUTPUT, *_TOKEN_OUTPUTS))
            raise InvalidModelError(f"{path.name} has the outputs {', '.join(outputs)}; the known ones are {allowed_names}")
        if not has_pooled_output and pooling is None:
            raise InvalidModelError("the pooling is missing; set pooling=mean or pooling=cls, as the model's description says")
        self._output = _POOLED_OUTPUT if has_pooled_output or token_output is None else token_output

    def encode(self, rows: Sequence[Sequence[int]]) -> Array:
        """Return a vector of unit length for each row of token ids."""
        vectors = np.stack([self._encode_row(row) for row in rows]).astype(np.float32)
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        if not (np.isfinite(lengths).all() and (lengths > 0).all()):
            raise InvalidModelError("the model returns a vector that is zero, infinite or NaN")
        return vectors / lengths

    def _encode_row(self, row: Sequence[int]) -> Array:
        ids = np.array([row], dtype=np.int64)
        values = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
        (result,) = self._session.run([self._output], {name: values[name] for name in self._inputs})
        if result.ndim != (2 if self._pooling is None else 3) or result.shape[0] != 1:
            raise InvalidModelError(f"the output {self._output} has the shape {result.shape}")
        if self._pooling is None:
            return result[0]
        return result[0, 0] if self._pooling == "cls" else result[0].mean(axis=0)


def _open_session(path: Path) -> _Session:
    options = cast("_Options", onnxruntime.SessionOptions())  # pyright: ignore[reportUnknownMemberType] - no types in the package
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.enable_cpu_mem_arena = True  # a tenth faster than malloc; a batch's size limits the memory that it keeps
    options.enable_mem_pattern = False
    options.log_severity_level = 4  # errors are raised; nothing else is written to stderr
    return cast("_Session", onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"]))
