"""Blocks of vector rows in memory, and their scores in a query."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from rookery.engines.vectors.filter_mask import DEAD_GROUP, FilterMask, Mask, Space
from rookery.memory.models import Vector

Floats = npt.NDArray[np.float32]
Rows = npt.NDArray[np.intp]

_NEVER_MICROS = np.iinfo(np.int64).max
_SPAN_ROWS = 4096
"""Rows of one task of a thread; about 0.3 ms."""

_GATHER_COST = 3
"""Copying a row before it is scored doubles its cost (measured with spans that fit the CPU cache)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A memory's vectors and filter columns, with the number of its entry in `vectors.db`. Times are in microseconds."""

    change: int
    memory_id: str
    space: Space
    tags: tuple[str, ...]
    confidence: float
    created_at: int
    expires_at: int | None
    vectors: tuple[Vector, ...]


class Block:
    """Rows of vectors with their columns. Rows are only appended. `mark_dead` replaces the column that it changes."""

    __slots__ = ("confidence", "created_at", "dead", "earliest_expiry", "expires_at", "group", "ids", "tagset", "vectors")

    def __init__(self, *, capacity: int, dimension: int) -> None:
        self.vectors: Floats = np.empty((capacity, dimension), dtype=np.float32)
        self.group = np.empty(capacity, dtype=np.int32)
        self.tagset = np.empty(capacity, dtype=np.int32)
        self.confidence = np.empty(capacity, dtype=np.float64)
        self.created_at = np.empty(capacity, dtype=np.int64)
        self.expires_at = np.empty(capacity, dtype=np.int64)
        self.earliest_expiry: int = _NEVER_MICROS
        self.ids: list[str] = []
        self.dead = 0

    @property
    def free_rows(self) -> int:
        return len(self.group) - len(self.ids)

    def append(self, point: Point, *, group: int, tagset: int) -> None:
        """Add a row for each vector of *point*. The block must have room for them."""
        start = len(self.ids)
        stop = start + len(point.vectors)
        self.vectors[start:stop] = np.frombuffer(b"".join(point.vectors), dtype="<f4").reshape(stop - start, -1)
        self.group[start:stop] = group
        self.tagset[start:stop] = tagset
        self.confidence[start:stop] = point.confidence
        self.created_at[start:stop] = point.created_at
        expires_at = _NEVER_MICROS if point.expires_at is None else point.expires_at
        self.expires_at[start:stop] = expires_at
        self.earliest_expiry = min(self.earliest_expiry, expires_at)
        self.ids += [point.memory_id] * (stop - start)

    def mark_dead(self, rows: list[int]) -> None:
        """Hide *rows* from later queries. Running queries still see them."""
        self.group = self.group.copy()
        self.group[rows] = DEAD_GROUP
        self.dead += len(rows)

    def compact(self) -> Block:
        """Return a block of the same capacity with the living rows, in order."""
        used = len(self.ids)
        live = np.flatnonzero(self.group[:used] != DEAD_GROUP)
        block = Block(capacity=len(self.group), dimension=self.vectors.shape[1])
        count = len(live)
        np.take(self.vectors, live, axis=0, out=block.vectors[:count], mode="clip")
        block.group[:count] = self.group[live]
        block.tagset[:count] = self.tagset[live]
        block.confidence[:count] = self.confidence[live]
        block.created_at[:count] = self.created_at[live]
        block.expires_at[:count] = self.expires_at[live]
        block.ids = [self.ids[row] for row in live.tolist()]
        block.earliest_expiry = int(block.expires_at[:count].min(initial=_NEVER_MICROS))
        return block

    def take_snapshot(self) -> BlockSnapshot:
        """Return a snapshot of the block."""
        return BlockSnapshot(block=self, group=self.group, row_count=len(self.ids), earliest_expiry=self.earliest_expiry)


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockSnapshot:
    """The state of a block for one query."""

    block: Block
    group: npt.NDArray[np.int32]
    row_count: int
    earliest_expiry: int

    def iter_spans(self) -> Iterator[RowSpan]:
        """Split the block into spans of about equal size."""
        count = max(1, round(self.row_count / _SPAN_ROWS))
        edges = [self.row_count * number // count for number in range(count + 1)]
        return (RowSpan(block_snapshot=self, start=start, stop=stop) for start, stop in pairwise(edges))


@dataclass(frozen=True, slots=True, kw_only=True)
class RowSpan:
    """Adjacent rows of a block."""

    block_snapshot: BlockSnapshot
    start: int
    stop: int

    def score(self, vector: Floats, mask: FilterMask) -> ScoredSpan:
        """
        Score the rows that *mask* selects. If it selects many, all rows are scored and then filtered.

        `vecdot` computes row by row, so equal vectors have equal scores in any position (ties are broken by id), unlike with a matrix
        product. It also uses no threads of OpenBLAS, which would spin between queries.
        """
        selection = slice(self.start, self.stop)
        block = self.block_snapshot.block
        keep: Mask = mask.groups.take(self.block_snapshot.group[selection])
        if mask.tagsets is not None:
            keep &= mask.tagsets.take(block.tagset[selection])
        if self.block_snapshot.earliest_expiry <= mask.at:
            keep &= block.expires_at[selection] > mask.at
        if mask.since is not None:
            keep &= block.created_at[selection] >= mask.since
        if mask.until is not None:
            keep &= block.created_at[selection] < mask.until
        if mask.min_confidence is not None:
            keep &= block.confidence[selection] >= mask.min_confidence
        rows = np.flatnonzero(keep)
        span = block.vectors[selection]
        if len(rows) == 0:
            scores = NO_SCORES
        elif len(rows) * _GATHER_COST < len(span):
            scores = np.vecdot(span.take(rows, axis=0), vector)
        else:
            scores = np.vecdot(span, vector)[rows]
        return ScoredSpan(span=self, scores=scores, rows=rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredSpan:
    """The visible rows of a span, counted from its start, with their scores."""

    span: RowSpan
    scores: Floats
    rows: Rows

    def ids(self, places: Rows) -> list[str]:
        """Return the memory ids of *places*, which are indexes into `rows`."""
        ids = self.span.block_snapshot.block.ids
        return [ids[row] for row in (self.rows[places] + self.span.start).tolist()]


NO_SCORES: Floats = np.empty(0, dtype=np.float32)
