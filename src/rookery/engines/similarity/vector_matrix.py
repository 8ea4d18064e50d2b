"""Vectors of texts in one matrix, compared with a query by one product."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
import numpy.typing as npt

from rookery.memory.models import Vector


class VectorMatrix:
    """A growing matrix with one row per text. Capacity grows by half; `clear` removes all rows."""

    def __init__(self, dimension: int) -> None:
        self._dimension = dimension
        self._row_numbers: dict[str, int] = {}
        self._matrix: npt.NDArray[np.float32] = np.zeros((64, dimension), dtype=np.float32)

    def __contains__(self, text: str) -> bool:
        """Return whether *text* has a vector."""
        return text in self._row_numbers

    def __len__(self) -> int:
        """Return the number of texts."""
        return len(self._row_numbers)

    def add(self, texts: Sequence[str], vectors: Sequence[Vector]) -> None:
        for text, vector in zip(texts, vectors, strict=True):
            row = self._row_numbers.setdefault(text, len(self._row_numbers))
            if row >= len(self._matrix):
                new_rows = np.zeros((len(self._matrix) // 2, self._dimension), dtype=np.float32)
                self._matrix = np.concatenate([self._matrix, new_rows])
            self._matrix[row] = np.frombuffer(vector, dtype="<f4")

    def clear(self) -> None:
        """Remove all texts."""
        self._row_numbers.clear()

    def compute_similarities(self, question: Vector, texts: Sequence[str]) -> list[float | None]:
        """Return the cosine of *question* and each of *texts*; None for a text without a vector."""
        query = np.frombuffer(question, dtype="<f4")
        cosines = cast("list[float]", (self._matrix[: len(self._row_numbers)] @ query).tolist())
        row_numbers = self._row_numbers
        return [None if (row := row_numbers.get(text)) is None else cosines[row] for text in texts]
