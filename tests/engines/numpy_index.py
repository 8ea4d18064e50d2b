"""A vector engine of a page, which meets the contract of `VectorIndex`."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from rookery.kernel.clock import to_micros
from rookery.memory.models import EmbeddedDocument, IndexDocument, Vector, VectorHit
from rookery.memory.ports import ModelVersion
from rookery.memory.visibility import AllOf, AnyOf, Condition, Conditions, VectorFilter

Entries = dict[tuple[str, int, int, str], EmbeddedDocument]
"""Documents by model, dimension, workspace and memory."""


class NumpyVectorIndex:
    """An engine of a page: it scores all vectors. Instances of a folder share their entries."""

    def __init__(self, entries: Entries, *, model: str, dimension: int) -> None:
        self._entries = entries
        self._model, self._dimension = model, dimension

    async def start(self) -> None:
        """Do nothing."""

    async def close(self) -> None:
        """Do nothing."""

    async def is_ready(self, workspace_id: int) -> bool:
        """Return True; nothing is loaded."""
        return workspace_id > 0

    async def put(self, items: Sequence[EmbeddedDocument]) -> None:
        """Store *items*."""
        for item in items:
            if not item.vectors:
                raise ValueError("a memory needs at least one vector")
            for chunk in item.vectors:
                self._parse(chunk)
        self._entries.update({(*self._key(item.document.workspace_id), item.document.memory_id): item for item in items})

    async def search(self, vector: Vector, *, where: VectorFilter, limit: int) -> list[VectorHit]:
        """Score every document that *where* admits."""
        query = self._parse(vector)
        best = {
            memory_id: max(float(self._parse(chunk) @ query) for chunk in item.vectors)
            for (*key, memory_id), item in self._entries.items()
            if tuple(key) == self._key(where.workspace_id) and _admits(where, item.document)
        }
        order = sorted(best.items(), key=lambda entry: (-entry[1], entry[0]))
        return [VectorHit(memory_id=memory_id, similarity=max(-1.0, min(1.0, score))) for memory_id, score in order[:limit]]

    async def fetch(self, workspace_id: int, ids: Collection[str]) -> Mapping[str, tuple[Vector, ...]]:
        """Return the stored vectors."""
        entries = {memory_id: self._entries.get((*self._key(workspace_id), memory_id)) for memory_id in ids}
        return {memory_id: entry.vectors for memory_id, entry in entries.items() if entry is not None}

    async def drop(self, workspace_id: int, ids: Collection[str]) -> None:
        """Delete *ids* of every model."""
        for key in [key for key in self._entries if key[2] == workspace_id and key[3] in ids]:
            del self._entries[key]

    async def drop_version(self, workspace_id: int, version: ModelVersion) -> None:
        """Delete the documents of *version*."""
        for key in [key for key in self._entries if key[:3] == (version.model, version.dimension, workspace_id)]:
            del self._entries[key]

    async def count(self, workspace_id: int) -> int:
        """Return the number of documents."""
        return sum(1 for *key, _ in self._entries if tuple(key) == self._key(workspace_id))

    def _key(self, workspace_id: int) -> tuple[str, int, int]:
        return self._model, self._dimension, workspace_id

    def _parse(self, chunk: Vector) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
        if len(chunk) != self._dimension * 4 or not np.isfinite(row := np.frombuffer(chunk, "<f4")).all():
            raise ValueError("not a vector of this index")
        return row


def _admits(where: VectorFilter, document: IndexDocument) -> bool:
    alternatives = where.alternatives
    return _meets(where.required, document) and (alternatives is None or any(_meets(conditions, document) for conditions in alternatives))


def _meets(conditions: Conditions, document: IndexDocument) -> bool:
    return all(_is_met(condition, getattr(document, column)) for column, condition in conditions.items())


def _is_met(condition: Condition, value: object) -> bool:
    if isinstance(condition, AnyOf):
        return value in condition.values
    if isinstance(condition, AllOf):
        return condition.values <= set(value)  # pyright: ignore[reportArgumentType] - facets are several texts
    if value is None:
        return condition.or_missing
    number = value if isinstance(value, float) else to_micros(value)  # pyright: ignore[reportArgumentType] - a confidence or a time
    return (condition.minimum is None or number >= condition.minimum) and (condition.end is None or number < condition.end)
