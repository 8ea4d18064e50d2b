"""A row of a query result, read by column name and expected type."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NoReturn

Value = str | int | float | bytes | None
"""The types that a column holds in both dialects."""


class Row:
    """One row. Each accessor raises TypeError if the column holds another type, and KeyError if the column is missing."""

    __slots__ = ("index", "values")

    def __init__(self, values: Sequence[object], index: Mapping[str, int]) -> None:
        self.values = values
        self.index = index

    def text(self, name: str) -> str:
        """Return a text that is not null."""
        value = self.values[self.index[name]]
        return value if isinstance(value, str) else self._raise_wrong_type(name, "text")

    def maybe_text(self, name: str) -> str | None:
        """Return a text or None."""
        value = self.values[self.index[name]]
        return value if value is None or isinstance(value, str) else self._raise_wrong_type(name, "text or null")

    def integer(self, name: str) -> int:
        """Return an integer that is not null."""
        value = self.values[self.index[name]]
        return value if isinstance(value, int) else self._raise_wrong_type(name, "an integer")

    def maybe_integer(self, name: str) -> int | None:
        """Return an integer or None."""
        value = self.values[self.index[name]]
        return value if value is None or isinstance(value, int) else self._raise_wrong_type(name, "an integer or null")

    def number(self, name: str) -> float:
        """Return a number that is not null."""
        value = self.values[self.index[name]]
        return float(value) if isinstance(value, (float, int)) else self._raise_wrong_type(name, "a number")

    def blob(self, name: str) -> bytes:
        """Return bytes that are not null."""
        value = self.values[self.index[name]]
        return value if isinstance(value, bytes) else self._raise_wrong_type(name, "bytes")

    def flag(self, name: str) -> bool:
        """Return whether an integer column is not 0."""
        return self.integer(name) != 0

    def _raise_wrong_type(self, name: str, expected: str) -> NoReturn:
        actual = type(self.values[self.index[name]]).__name__
        msg = f"column {name!r} holds {actual}, not {expected}"
        raise TypeError(msg)
