"""
Vectors of one workspace in memory. Each query scores all of them exactly.

Vectors are stored in blocks of fixed capacity, so growth copies nothing, and queries can read during writes: new rows are appended after
those that the query sees, deletions replace the column of groups, and compaction creates a new block.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from rookery.engines.vectors.blocks import Block, Floats, Point
from rookery.engines.vectors.filter_mask import DEAD_GROUP, ColumnDict
from rookery.engines.vectors.snapshot import SearchableSnapshot, WorkspaceSnapshot, clamp_similarity
from rookery.memory.models import AccessFilter

MAX_BLOCK_ROWS = 8192
"""12.6 MB with 384 floats per row."""

_FIRST_BLOCK_ROWS = 256
"""Rows of a small workspace's first block. numpy requests huge pages (2 MB) for arrays above 4 MB, and there may be many small workspaces.
"""

_ROW_BITS = 32


class Segment:
    """The rows of one workspace. The caller locks `apply`, `take_snapshot` and `compute_similarities` against each other."""

    def __init__(self, dimension: int) -> None:
        self._dimension = dimension
        self._column_dict = ColumnDict()
        self._blocks: dict[int, Block] = {}
        self._last_block_number = 0
        self._current_block_number = 0
        self._positions: dict[str, int] = {}
        """Memory id to block number and first row in one integer; 6 MB less than tuples at 100,000 memories."""

    def __len__(self) -> int:
        return len(self._positions)

    @property
    def row_count(self) -> int:
        """Number of rows that a query scores."""
        return sum(len(block.ids) for block in self._blocks.values())

    @property
    def has_stale_dictionaries(self) -> bool:
        """True if the dictionaries contain far more entries than there are memories."""
        return self._column_dict.entry_count > 1024 + 2 * len(self._positions)

    def apply(self, *, deleted_ids: Iterable[str], points: Sequence[Point]) -> None:
        """Remove *deleted_ids* and earlier rows of *points*, then add *points*. Of several points with the same id, the last one counts."""
        points = list({point.memory_id: point for point in points}.values())
        self._delete([*deleted_ids, *(point.memory_id for point in points)])
        for point in points:
            serial, block = self._get_writable_block(len(point.vectors))
            self._positions[point.memory_id] = serial << _ROW_BITS | len(block.ids)
            block.append(point, group=self._column_dict.get_group(point.space), tagset=self._column_dict.get_tagset(point.tags))
        self._compact()

    def take_snapshot(self, access_filter: AccessFilter, *, ivf_snapshot: SearchableSnapshot | None = None) -> WorkspaceSnapshot:
        """Return a snapshot for a query with *access_filter*, combined with *ivf_snapshot*."""
        blocks = tuple(block.take_snapshot() for block in self._blocks.values() if block.ids)
        return WorkspaceSnapshot(blocks=blocks, mask=self._column_dict.build_mask(access_filter), ivf_snapshot=ivf_snapshot)

    def compute_similarities(self, vector: Floats, ids: Iterable[str]) -> dict[str, float]:
        """Return the highest similarity of each of *ids* in the segment."""
        rows_by_block: dict[int, tuple[list[str], list[int]]] = {}
        for memory_id in ids:
            position = self._positions.get(memory_id)
            if position is not None:
                row_ids, rows = rows_by_block.setdefault(position >> _ROW_BITS, ([], []))
                memory_rows = self._find_rows(memory_id, position)[1]
                row_ids += [memory_id] * len(memory_rows)
                rows += memory_rows
        similarities: dict[str, float] = {}
        for block_number, (row_ids, rows) in rows_by_block.items():
            scores: list[float] = np.vecdot(self._blocks[block_number].vectors.take(rows, axis=0), vector).tolist()
            for memory_id, score in zip(row_ids, scores, strict=True):
                similarities[memory_id] = max(similarities.get(memory_id, -1.0), clamp_similarity(score))
        return similarities

    def _find_rows(self, memory_id: str, position: int) -> tuple[Block, range]:
        block = self._blocks[position >> _ROW_BITS]
        start = stop = position & (1 << _ROW_BITS) - 1
        while stop < len(block.ids) and block.ids[stop] == memory_id and block.group[stop] != DEAD_GROUP:
            stop += 1
        return block, range(start, stop)

    def _delete(self, ids: Iterable[str]) -> None:
        dead_rows: dict[int, list[int]] = {}
        for memory_id in ids:
            position = self._positions.pop(memory_id, None)
            if position is not None:
                dead_rows.setdefault(position >> _ROW_BITS, []).extend(self._find_rows(memory_id, position)[1])
        for block_number, rows in dead_rows.items():
            self._blocks[block_number].mark_dead(rows)

    def _get_writable_block(self, rows: int) -> tuple[int, Block]:
        current = self._blocks.get(self._current_block_number)
        if current is not None and current.free_rows >= rows:
            return self._current_block_number, current
        for block_number, block in self._blocks.items():
            if block.free_rows >= rows:
                self._current_block_number = block_number
                return block_number, block
        self._last_block_number += 1
        capacity = max(rows, min(MAX_BLOCK_ROWS, max(_FIRST_BLOCK_ROWS, self.row_count)))
        block = Block(capacity=capacity, dimension=self._dimension)
        self._blocks[self._last_block_number] = block
        self._current_block_number = self._last_block_number
        return self._last_block_number, block

    def _compact(self) -> None:
        for block_number, block in list(self._blocks.items()):
            if block.dead == len(block.ids):
                del self._blocks[block_number]
            elif block.dead * 4 > len(block.ids):
                fresh = block.compact()
                self._blocks[block_number] = fresh
                for row in range(len(fresh.ids) - 1, -1, -1):  # in reverse, so that the first row of a memory is written last
                    self._positions[fresh.ids[row]] = block_number << _ROW_BITS | row
