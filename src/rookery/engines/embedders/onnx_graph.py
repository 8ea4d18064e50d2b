"""
Write ONNX graphs.

The `onnx` package is not used: it has 18 MB and depends on protobuf, and graphs are written on the machines of users. A graph needs six
message types of protobuf. Field numbers are from onnx.proto (https://github.com/onnx/onnx/blob/main/onnx/onnx.proto).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

MICROSOFT_DOMAIN = "com.microsoft"
"""The domain of onnxruntime's own operators."""

FLOAT, INT64 = 1, 7
"""Element types: values of TensorProto.DataType."""

_IR_VERSION = 10
_OPSETS = {"": 20, MICROSOFT_DOMAIN: 1}
_ELEMENT_TYPES = {"float32": FLOAT, "uint8": 2, "int8": 3, "int64": INT64}
"""Element types by the name of numpy's type."""

Tensor = npt.NDArray[np.float32] | npt.NDArray[np.uint8] | npt.NDArray[np.int8] | npt.NDArray[np.int64]
Field = tuple[int, int | float | str | bytes | Sequence[int]]
Buffer = bytes | memoryview


@dataclass(slots=True)
class OnnxGraph:
    """A graph under construction, with nodes in the order in which they run. Methods that add a value return its name."""

    name: str
    _nodes: list[bytes] = field(default_factory=list[bytes])
    _tensors: list[tuple[bytes, Buffer]] = field(default_factory=list[tuple[bytes, Buffer]])
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
        raw = _to_bytes(value)
        header = _encode((1, value.shape), (2, _ELEMENT_TYPES[value.dtype.name]), (8, name))
        self._tensors.append((header + _varint(9 << 3 | 2) + _varint(len(raw)), raw))
        return name

    def external_tensor(self, name: str, value: Tensor, *, file_name: str) -> Buffer:
        """
        Add a named constant that is stored in another file of the same folder, and return the content of that file.

        onnxruntime maps such a file into memory and reads only the rows that are used.
        """
        content = _to_bytes(value)
        place = {"location": file_name, "offset": "0", "length": str(len(content))}
        fields: list[Field] = [(13, _encode((1, key), (2, text))) for key, text in place.items()]
        self._tensors.append((_encode((1, value.shape), (2, _ELEMENT_TYPES[value.dtype.name]), (8, name), *fields, (14, 1)), b""))
        return content

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

    def number(self, value: float) -> str:
        """Add a scalar float32."""
        return self.constant(np.array(value, dtype=np.float32))

    def integers(self, *values: int) -> str:
        """Add a list of int64; the scalar 0 without values."""
        return self.constant(np.array(values or 0, dtype=np.int64))

    def serialize(self) -> list[Buffer]:
        """
        Return the model file in parts. Tensors are not copied, since a vocabulary can have 100 MB.

        The graph is the last field, so a truncated file cannot be parsed.
        """
        groups = {1: self._nodes, 2: [self.name], 11: self._inputs, 12: self._outputs}
        parts: list[Buffer] = [_encode((number, value)) for number, values in groups.items() for value in values]
        for header, raw in self._tensors:
            parts += [_varint(5 << 3 | 2) + _varint(len(header) + len(raw)) + header, raw]
        opsets: list[Field] = [(8, _encode((1, domain), (2, version))) for domain, version in _OPSETS.items()]
        length = sum(map(len, parts))
        return [_encode((1, _IR_VERSION), (2, "rookery"), *opsets) + _varint(7 << 3 | 2) + _varint(length), *parts]


def _to_bytes(value: Tensor) -> memoryview:
    """Return the content of *value* in little-endian order, without a copy where possible."""
    ordered = np.ascontiguousarray(value)
    return ordered.astype(value.dtype.newbyteorder("<"), copy=False).reshape(-1).data.cast("B")


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
