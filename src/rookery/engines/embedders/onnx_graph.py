"""
Write ONNX files, with the small part of protobuf that a graph of nodes and constant tensors needs.

The `onnx` package has 18 MB and depends on protobuf. A graph is built once per machine and needs six message types. Field numbers are from
onnx.proto (https://github.com/onnx/onnx/blob/main/onnx/onnx.proto).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
import numpy.typing as npt

MICROSOFT_DOMAIN = "com.microsoft"
"""The domain of onnxruntime's own operators."""

_IR_VERSION = 10
_OPSETS = {"": 20, MICROSOFT_DOMAIN: 1}


class ElementType(IntEnum):
    """Element types of tensors (TensorProto.DataType), as far as they are used here."""

    FLOAT = 1
    UINT8 = 2
    INT8 = 3
    INT32 = 6
    INT64 = 7


Attribute = int | float | Sequence[int]
Tensor = npt.NDArray[np.float32] | npt.NDArray[np.uint8] | npt.NDArray[np.int8] | npt.NDArray[np.int64]

_ELEMENT_TYPES = {"float32": ElementType.FLOAT, "uint8": ElementType.UINT8, "int8": ElementType.INT8, "int64": ElementType.INT64}


@dataclass(slots=True)
class Graph:
    """
    A graph under construction. Values have string names, and methods that add a value return its name.

    Add nodes in the order in which they run.
    """

    name: str
    _nodes: list[bytes] = field(default_factory=list[bytes])
    _tensors: list[bytes] = field(default_factory=list[bytes])
    _inputs: list[bytes] = field(default_factory=list[bytes])
    _outputs: list[bytes] = field(default_factory=list[bytes])
    _constants: dict[tuple[str, bytes], str] = field(default_factory=dict[tuple[str, bytes], str])

    def input(self, name: str, element: ElementType, shape: Sequence[int | str]) -> str:
        """Declare an input. A dimension given as text may have any size."""
        self._inputs.append(_value(name, element, shape))
        return name

    def output(self, value: str, name: str, element: ElementType, shape: Sequence[int | str]) -> None:
        """Declare *value* as output *name*."""
        self._nodes.append(_text(1, value) + _text(2, name) + _text(3, name) + _text(4, "Identity"))
        self._outputs.append(_value(name, element, shape))

    def tensor(self, name: str, value: Tensor) -> str:
        """Add a named constant."""
        element = _ELEMENT_TYPES[value.dtype.name]
        raw = np.ascontiguousarray(value).astype(value.dtype.newbyteorder("<"), copy=False).tobytes()
        self._tensors.append(_integers(1, value.shape) + _integer(2, element) + _text(8, name) + _bytes(9, raw))
        return name

    def constant(self, value: Tensor) -> str:
        """Add a small constant without a name of its own. Equal constants are stored once."""
        key = (f"{value.dtype.name}{value.shape}", value.tobytes())
        if key not in self._constants:
            self._constants[key] = self.tensor(f"constant.{len(self._constants)}", value)
        return self._constants[key]

    def node(self, operator: str, *inputs: str, domain: str = "", **attributes: Attribute) -> str:
        """Add a node with one output and return its name."""
        return self.nodes(operator, *inputs, domain=domain, outputs=1, **attributes)[0]

    def nodes(self, operator: str, *inputs: str, domain: str = "", outputs: int, **attributes: Attribute) -> tuple[str, ...]:
        """Add a node and return the names of its *outputs*, in order."""
        number = len(self._nodes)
        names = tuple(f"{operator}.{number}.{index}" for index in range(outputs))
        self._nodes.append(
            b"".join(_text(1, name) for name in inputs)
            + b"".join(_text(2, name) for name in names)
            + _text(3, f"{operator}.{number}")
            + _text(4, operator)
            + b"".join(_bytes(5, _attribute(name, value)) for name, value in attributes.items())
            + _text(7, domain)
        )
        return names

    def serialize(self) -> bytes:
        """
        Return the bytes of the model file.

        The graph is the last field, so a truncated file cannot be parsed.
        """
        opsets = b"".join(_bytes(8, _text(1, domain) + _integer(2, version)) for domain, version in _OPSETS.items())
        graph = b"".join(
            [
                *(_bytes(1, node) for node in self._nodes),
                _text(2, self.name),
                *(_bytes(11, value) for value in self._inputs),
                *(_bytes(12, value) for value in self._outputs),
                *(_bytes(5, tensor) for tensor in self._tensors),
            ]
        )
        return _integer(1, _IR_VERSION) + _text(2, "rookery") + opsets + _bytes(7, graph)


def _value(name: str, element: ElementType, shape: Sequence[int | str]) -> bytes:
    """Encode a ValueInfoProto: a name and a tensor type."""
    dimensions = b"".join(_bytes(1, _text(2, size) if isinstance(size, str) else _integer(1, size)) for size in shape)
    tensor_type = _integer(1, element) + _bytes(2, dimensions)
    return _text(1, name) + _bytes(2, _bytes(1, tensor_type))


def _attribute(name: str, value: Attribute) -> bytes:
    """Encode an AttributeProto; its `type` field identifies the field that is set."""
    if isinstance(value, int):
        return _text(1, name) + _integer(3, value) + _integer(20, 2)
    if isinstance(value, float):
        return _text(1, name) + _key(2, 5) + struct.pack("<f", value) + _integer(20, 1)
    return _text(1, name) + _integers(8, value) + _integer(20, 7)


def _varint(value: int) -> bytes:
    """Encode in base 128, least significant group first. A negative number is encoded as 64-bit two's complement."""
    value &= (1 << 64) - 1
    groups = bytearray()
    while value > 0x7F:
        groups.append((value & 0x7F) | 0x80)
        value >>= 7
    groups.append(value)
    return bytes(groups)


def _key(number: int, wire_type: int) -> bytes:
    return _varint(number << 3 | wire_type)


def _integer(number: int, value: int) -> bytes:
    return _key(number, 0) + _varint(value)


def _integers(number: int, values: Iterable[int]) -> bytes:
    return b"".join(_integer(number, value) for value in values)


def _bytes(number: int, value: bytes) -> bytes:
    return _key(number, 2) + _varint(len(value)) + value


def _text(number: int, value: str) -> bytes:
    return _bytes(number, value.encode())
