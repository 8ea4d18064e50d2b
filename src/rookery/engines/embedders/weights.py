"""Read the weights of a model: the interface that graphs are built from, and the safetensors format."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol, cast

import numpy as np
import numpy.typing as npt

from rookery.engines.embedders.model_files import InvalidModelError

Array = npt.NDArray[np.float32]

_MAX_HEADER_BYTES = 100_000_000
"""Maximum header size that the format allows."""

_ELEMENT_SIZES = {"F32": 4, "F16": 2, "BF16": 2}


class Weights(Protocol):
    """
    The named tensors of a model. Each is converted to float32 when it is read, so that no second copy of all weights is in memory.

    Attributes:
        shapes: The shape of each tensor by name.
    """

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]: ...

    def read(self, name: str, first: int = 0, last: int | None = None) -> Array:
        """Return a tensor, or its rows from *first* to before *last*."""
        ...


class SafetensorsFile:
    """
    A safetensors file, mapped into memory.

    The format is little-endian: 8 bytes with the length of the header, the header (JSON: dtype, shape, data_offsets), the data. This reader
    has what BERT needs of it, so the `safetensors` package is not required.
    """

    def __init__(self, path: Path) -> None:
        """
        Read the header.

        Raises:
            OSError: The file cannot be read.
            InvalidModelError: The file does not have this format, or is truncated.
        """
        self._name = path.name
        if path.stat().st_size == 0:
            raise InvalidModelError(f"{self._name} is empty")
        self._raw = np.memmap(path, dtype=np.uint8, mode="r")
        length = int.from_bytes(self._raw[:8].tobytes(), "little")
        if not 2 <= length <= min(_MAX_HEADER_BYTES, len(self._raw) - 8):
            raise InvalidModelError(f"{self._name} is not a complete safetensors file")
        self._start = 8 + length
        try:
            header = cast("dict[str, dict[str, object]]", json.loads(self._raw[8 : self._start].tobytes()))
            self._entries = {
                name: (
                    str(entry["dtype"]),
                    tuple(cast("list[int]", entry["shape"])),
                    cast("tuple[int, int]", tuple(cast("list[int]", entry["data_offsets"]))),
                )
                for name, entry in header.items()
                if name != "__metadata__"
            }
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise InvalidModelError(f"the header of {self._name} cannot be read") from error
        self.shapes: Mapping[str, tuple[int, ...]] = {name: shape for name, (_, shape, _) in self._entries.items()}

    def read(self, name: str, first: int = 0, last: int | None = None) -> Array:
        """
        Return a tensor, or its rows from *first* to before *last*. F32 is a view of the file; F16 and BF16 are converted.

        Raises:
            InvalidModelError: The tensor has another type, or the file ends before it does.
        """
        dtype, shape, (begin, end) = self._entries[name]
        if dtype not in _ELEMENT_SIZES:
            raise InvalidModelError(f"{self._name}: {name} has the type {dtype[:20]}; use {', '.join(_ELEMENT_SIZES)}")
        if end - begin != math.prod(shape) * _ELEMENT_SIZES[dtype] or begin < 0 or self._start + end > len(self._raw):
            raise InvalidModelError(f"{self._name} is damaged or truncated: {name} is not complete")
        raw = self._raw[self._start + begin : self._start + end]
        if dtype == "BF16":
            return (raw.view("<u2").reshape(shape)[first:last].astype(np.uint32) << 16).view(np.float32)
        rows = raw.view("<f4" if dtype == "F32" else "<f2").reshape(shape)[first:last]
        return rows.astype(np.float32, copy=False)
