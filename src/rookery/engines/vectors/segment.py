"""
The vectors of one workspace in memory, scored exactly, all of them at each query.

Vectors lie in blocks of fixed capacity, so growing never copies what is there, and so that a query may go on
reading while others write: rows beyond those it saw are appended, rows that die get a fresh column of groups, and
a compacted block is a new block.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from rookery.engines.vectors.blocks import Block, Floats, Point
from rookery.engines.vectors.filter_mask import DEAD_GROUP, ColumnDict
from rookery.engines.vectors.snapshot import SearchableSnapshot, WorkspaceSnapshot, clamp_similarity
from rookery.memory.models import AccessFilter

MAX_BLOCK_ROWS = 8192
"""12.6 MB of 384 floats."""

_FIRST_BLOCK_ROWS = 256
"""A small workspace's first block: numpy asks for huge pages (2 MB) for arrays above 4 MB, and there may be many small ones."""

_ROW_BITS = 32


class Segment:
    """What is known of one workspace. The caller locks `apply`, `take_snapshot` and `compute_similarities` against each other."""

    def __init__(self, dimension: int) -> None:
        self._dimension = dimension
        self._column_dict = ColumnDict()
        self._blocks: dict[int, Block] = {}
        self._last_block_number = 0
        self._current_block_number = 0
        self._positions: dict[str, int] = {}
        """Memory id to block and first row in one number: at 100,000 memories 6 MB less than a tuple each."""

    def __len__(self) -> int:
        return len(self._positions)

    @property
    def row_count(self) -> int:
        """How many rows a query scores."""
        return sum(len(block.ids) for block in self._blocks.values())

    @property
    def has_stale_dictionaries(self) -> bool:
        """Tell whether the dictionaries of what once was weigh more than what is."""
        return self._column_dict.entry_count > 1024 + 2 * len(self._positions)

    def apply(self, *, deleted_ids: Iterable[str], points: Sequence[Point]) -> None:
        """Take out *deleted_ids* and the earlier rows of *points*, then add *points*; the last one of an id counts."""
        points = list({point.memory_id: point for point in points}.values())
        self._delete([*deleted_ids, *(point.memory_id for point in points)])
        for point in points:
            serial, block = self._get_writable_block(len(point.vectors))
            self._positions[point.memory_id] = serial << _ROW_BITS | len(block.ids)
            block.append(point, group=self._column_dict.get_group(point.space), tagset=self._column_dict.get_tagset(point.tags))
        self._compact()

    def take_snapshot(self, access_filter: AccessFilter, *, ivf_snapshot: SearchableSnapshot | None = None) -> WorkspaceSnapshot:
        """Return what a query of *access_filter* sees now, here and in what is *ivf_snapshot*."""
        pages = tuple(block.take_snapshot() for block in self._blocks.values() if block.ids)
        return WorkspaceSnapshot(blocks=pages, mask=self._column_dict.build_mask(access_filter), ivf_snapshot=ivf_snapshot)

    def compute_similarities(self, vector: Floats, ids: Iterable[str]) -> dict[str, float]:
        """Return the best similarity of each of *ids* that is here."""
        wanted: dict[int, tuple[list[str], list[int]]] = {}
        for memory_id in ids:
            place = self._positions.get(memory_id)
            if place is not None:
                whose, rows = wanted.setdefault(place >> _ROW_BITS, ([], []))
                of_memory = self._find_rows(memory_id, place)[1]
                whose += [memory_id] * len(of_memory)
                rows += of_memory
        found: dict[str, float] = {}
        for serial, (whose, rows) in wanted.items():
            scores: list[float] = np.vecdot(self._blocks[serial].vectors.take(rows, axis=0), vector).tolist()
            for memory_id, score in zip(whose, scores, strict=True):
                found[memory_id] = max(found.get(memory_id, -1.0), clamp_similarity(score))
        return found

    def _find_rows(self, memory_id: str, place: int) -> tuple[Block, range]:
        block = self._blocks[place >> _ROW_BITS]
        start = stop = place & (1 << _ROW_BITS) - 1
        while stop < len(block.ids) and block.ids[stop] == memory_id and block.group[stop] != DEAD_GROUP:
            stop += 1
        return block, range(start, stop)

    def _delete(self, ids: Iterable[str]) -> None:
        dead: dict[int, list[int]] = {}
        for memory_id in ids:
            place = self._positions.pop(memory_id, None)
            if place is not None:
                dead.setdefault(place >> _ROW_BITS, []).extend(self._find_rows(memory_id, place)[1])
        for serial, rows in dead.items():
            self._blocks[serial].mark_dead(rows)

    def _get_writable_block(self, rows: int) -> tuple[int, Block]:
        current = self._blocks.get(self._current_block_number)
        if current is not None and current.free_rows >= rows:
            return self._current_block_number, current
        for serial, block in self._blocks.items():
            if block.free_rows >= rows:
                self._current_block_number = serial
                return serial, block
        self._last_block_number += 1
        capacity = max(rows, min(MAX_BLOCK_ROWS, max(_FIRST_BLOCK_ROWS, self.row_count)))
        block = Block(capacity=capacity, dimension=self._dimension)
        self._blocks[self._last_block_number] = block
        self._current_block_number = self._last_block_number
        return self._last_block_number, block

    def _compact(self) -> None:
        for serial, block in list(self._blocks.items()):
            if block.dead == len(block.ids):
                del self._blocks[serial]
            elif block.dead * 4 > len(block.ids):
                fresh = block.compact()
                self._blocks[serial] = fresh
                for row in range(len(fresh.ids) - 1, -1, -1):  # backwards: the first row of a memory is written last
                    self._positions[fresh.ids[row]] = serial << _ROW_BITS | row
