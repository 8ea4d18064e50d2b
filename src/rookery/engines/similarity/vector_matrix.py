"""Vectors of texts in one matrix, compared with a question's in one product."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
import numpy.typing as npt

from rookery.memory.models import Vector


class VectorMatrix:
    """Texts and their vectors; it grows by half, and forgets all at once."""

    def __init__(self, dimension: int) -> None:
        self._dimension = dimension
        self._row_numbers: dict[str, int] = {}
        self._matrix: npt.NDArray[np.float32] = np.zeros((64, dimension), dtype=np.float32)

    def __contains__(self, text: str) -> bool:
        """Tell whether the vector of *text* is known."""
        return text in self._row_numbers

    def __len__(self) -> int:
        """Return how many texts are known."""
        return len(self._row_numbers)

    def add(self, texts: Sequence[str], vectors: Sequence[Vector]) -> None:
        """Keep the vectors of texts that are not known yet."""
        for text, vector in zip(texts, vectors, strict=True):
            place = self._row_numbers.setdefault(text, len(self._row_numbers))
            if place >= len(self._matrix):
                more = np.zeros((len(self._matrix) // 2, self._dimension), dtype=np.float32)
                self._matrix = np.concatenate([self._matrix, more])
            self._matrix[place] = np.frombuffer(vector, dtype="<f4")

    def clear(self) -> None:
        """Forget all."""
        self._row_numbers.clear()

    def compute_similarities(self, question: Vector, texts: Sequence[str]) -> list[float | None]:
        """Return the cosine of *question* with each of *texts*; None for one that is not known."""
        asked = np.frombuffer(question, dtype="<f4")
        cosines = cast("list[float]", (self._matrix[: len(self._row_numbers)] @ asked).tolist())
        places = self._row_numbers
        return [None if (place := places.get(text)) is None else cosines[place] for text in texts]
