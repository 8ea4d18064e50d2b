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
from rookery.engines.vectors.masks import DEAD, Facets
from rookery.engines.vectors.views import Probing, View, clamped
from rookery.memory.models import Within

BLOCK_ROWS = 8192
"""12.6 MB of 384 floats."""

_FIRST_ROWS = 256
"""A small workspace's first block: numpy asks for huge pages (2 MB) for arrays above 4 MB, and there may be many small ones."""

_ROW_BITS = 32


class Slab:
    """What is known of one workspace. The caller locks `apply`, `view` and `similarities` against each other."""

    def __init__(self, dimension: int) -> None:
        self._dimension = dimension
        self._facets = Facets()
        self._blocks: dict[int, Block] = {}
        self._serial = 0
        self._filling = 0
        self._places: dict[str, int] = {}
        """Memory id to block and first row in one number: at 100,000 memories 6 MB less than a tuple each."""

    def __len__(self) -> int:
        return len(self._places)

    @property
    def rows(self) -> int:
        """How many rows a query scores."""
        return sum(len(block.ids) for block in self._blocks.values())

    @property
    def is_bloated(self) -> bool:
        """Tell whether the dictionaries of what once was weigh more than what is."""
        return self._facets.size > 1024 + 2 * len(self._places)

    def apply(self, *, forgotten: Iterable[str], points: Sequence[Point]) -> None:
        """Take out *forgotten* and the earlier rows of *points*, then add *points*; the last one of an id counts."""
        points = list({point.memory_id: point for point in points}.values())
        self._bury([*forgotten, *(point.memory_id for point in points)])
        for point in points:
            serial, block = self._block_with_room(len(point.vectors))
            self._places[point.memory_id] = serial << _ROW_BITS | len(block.ids)
            block.append(point, group=self._facets.group(point.space), tagset=self._facets.tagset(point.tags))
        self._compact()

    def view(self, within: Within, *, beside: Probing | None = None) -> View:
        """Return what a query of *within* sees now, here and in what is *beside*."""
        pages = tuple(block.frozen() for block in self._blocks.values() if block.ids)
        return View(pages=pages, sieve=self._facets.sieve(within), beside=beside)

    def similarities(self, vector: Floats, ids: Iterable[str]) -> dict[str, float]:
        """Return the best similarity of each of *ids* that is here."""
        wanted: dict[int, tuple[list[str], list[int]]] = {}
        for memory_id in ids:
            place = self._places.get(memory_id)
            if place is not None:
                whose, rows = wanted.setdefault(place >> _ROW_BITS, ([], []))
                of_memory = self._rows(memory_id, place)[1]
                whose += [memory_id] * len(of_memory)
                rows += of_memory
        found: dict[str, float] = {}
        for serial, (whose, rows) in wanted.items():
            scores: list[float] = np.vecdot(self._blocks[serial].vectors.take(rows, axis=0), vector).tolist()
            for memory_id, score in zip(whose, scores, strict=True):
                found[memory_id] = max(found.get(memory_id, -1.0), clamped(score))
        return found

    def _rows(self, memory_id: str, place: int) -> tuple[Block, range]:
        block = self._blocks[place >> _ROW_BITS]
        start = stop = place & (1 << _ROW_BITS) - 1
        while stop < len(block.ids) and block.ids[stop] == memory_id and block.group[stop] != DEAD:
            stop += 1
        return block, range(start, stop)

    def _bury(self, ids: Iterable[str]) -> None:
        dead: dict[int, list[int]] = {}
        for memory_id in ids:
            place = self._places.pop(memory_id, None)
            if place is not None:
                dead.setdefault(place >> _ROW_BITS, []).extend(self._rows(memory_id, place)[1])
        for serial, rows in dead.items():
            self._blocks[serial].bury(rows)

    def _block_with_room(self, rows: int) -> tuple[int, Block]:
        current = self._blocks.get(self._filling)
        if current is not None and current.room >= rows:
            return self._filling, current
        for serial, block in self._blocks.items():
            if block.room >= rows:
                self._filling = serial
                return serial, block
        self._serial += 1
        capacity = max(rows, min(BLOCK_ROWS, max(_FIRST_ROWS, self.rows)))
        block = Block(capacity=capacity, dimension=self._dimension)
        self._blocks[self._serial] = block
        self._filling = self._serial
        return self._serial, block

    def _compact(self) -> None:
        for serial, block in list(self._blocks.items()):
            if block.dead == len(block.ids):
                del self._blocks[serial]
            elif block.dead * 4 > len(block.ids):
                fresh = block.compacted()
                self._blocks[serial] = fresh
                for row in range(len(fresh.ids) - 1, -1, -1):  # backwards: the first row of a memory is written last
                    self._places[fresh.ids[row]] = serial << _ROW_BITS | row
