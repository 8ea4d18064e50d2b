"""
Search the rows of one workspace: filters, exact search in memory, and an index of faiss (`ivf_file`) for large workspaces.

A row is one vector of a memory, with the columns of `ROW`. A source has rows, in memory (`Segment`) or mapped from a file (`IvfFile`),
and marks deleted ones in `alive`, which is replaced when it changes: a running query keeps the state that it began with.

A workspace has many memories and few distinct spaces. Each combination of the columns of `SPACE_COLUMNS` is a *group*, whose number each
row stores. A query evaluates its filter once per group and looks the result up per row. Tag sets work in the same way.

The index visits the inverted lists nearest to the vector and compares bytes instead of floats. Its candidates are scored again with whole
vectors, so similarities are exact. Filters do not reduce recall, since a query with a filter visits more lists. If a filter selects few
rows, all of them are scored, and the result is exact.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from rookery.memory.models import Vector, VectorHit
from rookery.memory.vector_filter import AllOf, AnyOf, Conditions, Range, VectorFilter

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.void]
Columns = Rows | Mapping[str, npt.NDArray[Any]]
"""Rows by column. A mapped file has an array per column, because a filter then reads a tenth of the bytes."""
Space = tuple[str | None, ...]

SPACE_COLUMNS = ("org", "project", "agent_id", "session_id", "memory_scope", "type", "source")
NEVER_MICROS = int(np.iinfo(np.int64).max)
ROW = np.dtype(
    [("change", "<i8"), ("created_at", "<i8"), ("expires_at", "<i8"), ("confidence", "<f8"), ("group", "<i4"), ("tagset", "<i4")]
)
"""The columns of a row; *change* is the number of its entry in `vectors.db`, and times are in microseconds."""

_NULL_CODE, _UNKNOWN_CODE = 0, -1
_MAX_COMPARED_CODES = 4
"""Codes up to which single comparisons are faster than `isin`."""

_SPAN_ROWS = 4096
"""Rows of one task of a thread; half a millisecond."""

_GATHER_COST = 3
"""Copying a row before it is scored doubles its cost (measured with spans that fit the CPU cache)."""

_GATHERED_ROWS = 512
"""Rows that are copied before they are scored; they stay in the CPU cache."""

_BLOCK_ROWS = 8192
"""12.6 MB with 384 floats per row."""

_ROW_MASK = (1 << 32) - 1
"""The bits of a position that are the row; the others are the number of the block."""

_FIRST_BLOCK_ROWS = 256
"""Rows of a small workspace's first block. numpy requests huge pages (2 MB) for arrays above 4 MB, and there may be many small workspaces.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchLimits:
    """
    Limits on the rows that a search in the index of a large workspace visits, measured with `benchmarks.vector_libraries`.

    Attributes:
        min_visited: Minimum number of visible rows whose bytes are compared.
        visited_divisor: The same, as a divisor of the number of all rows. A search with a filter compares fewer rows, by the square root of
            the visible share, since its lists reach farther.
        candidates_per_result: Rows that are scored again with whole vectors, per requested result.
        max_exhaustive: Number of visible rows up to which all are scored with whole vectors.
        exhaustive_root_factor: The same, per square root of the number of all rows.
    """

    min_visited: int = 16_000
    visited_divisor: int = 25
    candidates_per_result: int = 2
    max_exhaustive: int = 6_000
    exhaustive_root_factor: int = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A memory's vectors and filter columns, with the number of its entry in `vectors.db`."""

    change: int
    memory_id: str
    space: Space
    tags: tuple[str, ...]
    confidence: float
    created_at: int
    expires_at: int | None
    vectors: tuple[Vector, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterMask:
    """A filter, evaluated per group and tag set; *tagsets* is None if any matches."""

    groups: Mask
    admits_all_groups: bool
    tagsets: Mask | None
    ranges: Mapping[str, Range]

    def find_visible(self, columns: Columns, rows: slice | Longs, alive: Mask, *, earliest_expiry: int) -> Mask:
        """Return which of *rows* the filter admits. No row expires before *earliest_expiry*."""
        visible: Mask = alive[rows].copy()
        if not self.admits_all_groups:
            visible &= self.groups.take(columns["group"][rows])
        if self.tagsets is not None:
            visible &= self.tagsets.take(columns["tagset"][rows])
        for column, limits in self.ranges.items():
            if column == "expires_at":
                if not limits.or_missing:
                    visible &= columns[column][rows] != NEVER_MICROS
                elif limits.end is not None:
                    raise ValueError("a filter of memories without an expiry has no end")
                elif limits.minimum is None or limits.minimum <= earliest_expiry:
                    continue
            if limits.minimum is not None:
                visible &= columns[column][rows] >= limits.minimum
            if limits.end is not None:
                visible &= columns[column][rows] < limits.end
        return visible


class ColumnDict:
    """Dictionaries of one source: spaces to groups, tags to tag sets. They only grow. The caller locks them."""

    def __init__(self, spaces: Iterable[Space] = (), tagsets: Iterable[tuple[str, ...]] = ()) -> None:
        self._codes: tuple[dict[str, int], ...] = tuple({} for _ in SPACE_COLUMNS)
        self.spaces: dict[Space, int] = {}
        self.tagsets: dict[tuple[str, ...], int] = {}
        self._columns: Ints = np.full((len(SPACE_COLUMNS), 64), _UNKNOWN_CODE, dtype=np.int32)
        self._tagged: dict[str, array[int]] = {}
        for space in spaces:
            self.get_group(space)
        for tags in tagsets:
            self.get_tagset(tags)

    def get_group(self, space: Space) -> int:
        """Return the number of *space*. An unknown one gets the next number."""
        group = self.spaces.setdefault(space, len(self.spaces))
        if group == len(self.spaces) - 1:
            if group >= self._columns.shape[1]:
                self._columns = np.concatenate([self._columns, np.full_like(self._columns, _UNKNOWN_CODE)], axis=1)
            for place, value in enumerate(space):
                codes = self._codes[place]
                self._columns[place, group] = _NULL_CODE if value is None else codes.setdefault(value, len(codes) + 1)
        return group

    def get_tagset(self, tags: tuple[str, ...]) -> int:
        """Return the number of the tag set *tags*. An unknown one gets the next number."""
        number = self.tagsets.get(tags)
        if number is None:
            number = self.tagsets[tags] = len(self.tagsets)
            for tag in set(tags):
                self._tagged.setdefault(tag, array("q")).append(number)
        return number

    def encode(self, points: Iterable[Point]) -> tuple[Rows, list[str]]:
        """Return the rows of *points*, one per vector, and the memory id of each."""
        values, ids = list[tuple[int, int, int, float, int, int]](), list[str]()
        for point in points:
            expires_at = NEVER_MICROS if point.expires_at is None else point.expires_at
            group, tagset = self.get_group(point.space), self.get_tagset(point.tags)
            row = (point.change, point.created_at, expires_at, point.confidence, group, tagset)
            values += [row] * len(point.vectors)
            ids += [point.memory_id] * len(point.vectors)
        return np.array(values, dtype=ROW), ids

    def build_mask(self, where: VectorFilter) -> FilterMask:
        """Evaluate *where* for all groups and tag sets. The condition on `memory_id` is left to the caller."""
        equal: dict[str, AnyOf] = {}
        ranges: dict[str, Range] = {}
        tagsets: Mask | None = None
        for column, condition in where.required.items():
            if isinstance(condition, Range):
                ranges[column] = condition
            elif isinstance(condition, AllOf):
                tagsets = self._match_tagsets(condition.values)
            elif column != "memory_id":
                equal[column] = condition
        groups = self._match_groups(equal)
        if where.alternatives is not None:
            matches = np.zeros(len(groups), dtype=np.bool_)
            for alternative in where.alternatives:
                matches |= self._match_groups(alternative)
            groups &= matches
        return FilterMask(groups=groups, admits_all_groups=bool(groups.all()), tagsets=tagsets, ranges=ranges)

    def _match_groups(self, conditions: Conditions) -> Mask:
        matches = np.ones(len(self.spaces), dtype=np.bool_)
        for column, condition in conditions.items():
            if not isinstance(condition, AnyOf):
                raise TypeError(f"the column {column} has one text, and a filter on it needs AnyOf")
            place = SPACE_COLUMNS.index(column)
            values = self._columns[place, : len(self.spaces)]
            codes = [_NULL_CODE if value is None else self._codes[place].get(value, _UNKNOWN_CODE) for value in condition.values]
            if len(codes) > _MAX_COMPARED_CODES:
                matches &= np.isin(values, codes)
            else:
                any_match = np.zeros(len(values), dtype=np.bool_)
                for code in codes:
                    any_match |= values == code
                matches &= any_match
        return matches

    def _match_tagsets(self, tags: Collection[str]) -> Mask:
        counts = np.zeros(len(self.tagsets), dtype=np.int32)
        for tag in tags:
            counts[np.array(self._tagged.get(tag, ()), dtype=np.int64)] += 1
        return counts == len(tags)


class RowSource(Protocol):
    """Rows with their vectors, in memory or mapped."""

    vectors: Floats
    columns: Columns
    alive: Mask
    earliest_expiry: int

    def get_ids(self, numbers: Longs) -> list[str]:
        """Return the memory ids of rows."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredRows:
    """Visible rows of a source with their scores."""

    source: RowSource
    numbers: Longs
    scores: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSnapshot:
    """The first *count* rows of a source at one moment, for one query. Any thread may use it while rows are added and deleted."""

    source: RowSource
    alive: Mask
    count: int
    mask: FilterMask

    def score_span(self, start: int, stop: int, vector: Floats) -> ScoredRows:
        """
        Score the visible rows between *start* and *stop*. If many are visible, all rows are scored and then filtered.

        `vecdot` computes row by row, so equal vectors have equal scores in any position (ties are broken by id), unlike with a matrix
        product. It also uses no threads of OpenBLAS, which would spin between queries.
        """
        visible = np.flatnonzero(self.find_visible(slice(start, stop)))
        if len(visible) * _GATHER_COST < stop - start:
            return self.score(visible + start, vector)
        scores: Floats = np.vecdot(self.source.vectors[start:stop], vector)
        return ScoredRows(source=self.source, numbers=visible + start, scores=scores[visible])

    def score_rows(self, numbers: Longs, vector: Floats) -> ScoredRows:
        """Score the visible ones of single rows."""
        return self.score(numbers[self.find_visible(numbers)], vector)

    def find_visible(self, rows: slice | Longs) -> Mask:
        """Return which of *rows* this query sees."""
        return self.mask.find_visible(self.source.columns, rows, self.alive, earliest_expiry=self.source.earliest_expiry)

    def score(self, numbers: Longs, vector: Floats) -> ScoredRows:
        """Score single rows."""
        scores = np.empty(len(numbers), dtype=np.float32)
        for start in range(0, len(numbers), _GATHERED_ROWS):
            batch = numbers[start : start + _GATHERED_ROWS]
            np.vecdot(self.source.vectors.take(batch, axis=0), vector, out=scores[start : start + len(batch)])
        return ScoredRows(source=self.source, numbers=numbers, scores=scores)


@dataclass(frozen=True, slots=True, kw_only=True)
class HelperThreads:
    """Threads that help a query with a large segment when they are idle."""

    pool: ThreadPoolExecutor
    size: int


def score_all(blocks: Sequence[SourceSnapshot], vector: Floats, *, helpers: HelperThreads | None) -> list[ScoredRows]:
    """Score all visible rows of *blocks*, in this thread and in idle helper threads. numpy releases the GIL."""
    pending = [
        (block, start, stop)
        for block in blocks
        for start, stop in pairwise(np.linspace(0, block.count, max(1, round(block.count / _SPAN_ROWS)) + 1, dtype=np.int64).tolist())
    ]
    scored = list[ScoredRows]()

    def work() -> None:
        while True:
            try:
                block, start, stop = pending.pop()
            except IndexError:
                return
            scored.append(block.score_span(start, stop, vector))

    helping = [helpers.pool.submit(work) for _ in range(min(helpers.size, len(pending) - 1))] if helpers else []
    work()
    for helper in helping:
        if not helper.cancel():
            helper.result()
    return scored


def rank(scored: Sequence[ScoredRows], limit: int) -> list[VectorHit]:
    """Return the best memories, most similar first, ties ordered by id."""
    order = sorted((-score, memory_id) for memory_id, score in _select_best(scored, limit).items())
    # A rounding error could exceed the range of a cosine.
    return [VectorHit(memory_id, max(-1.0, min(-distance, 1.0))) for distance, memory_id in order[:limit]]


def _select_best(scored: Sequence[ScoredRows], limit: int) -> dict[str, float]:
    """Return the best scores of memories: at least *limit*, the best among them, or all."""
    scores = np.concatenate([part.scores for part in scored]) if scored else np.empty(0, dtype=np.float32)
    row_count = limit
    while row_count < len(scores):
        best = _best_above(scored, np.partition(scores, -row_count)[-row_count])
        if len(best) >= limit:
            return best
        row_count *= 4  # some memories have several rows among the best
    return _best_above(scored, np.float32(-np.inf))


def _best_above(scored: Sequence[ScoredRows], cutoff: np.float32) -> dict[str, float]:
    best: dict[str, float] = {}
    for part in scored:
        places = np.flatnonzero(part.scores >= cutoff)
        if len(places):
            for memory_id, score in zip(part.source.get_ids(part.numbers[places]), part.scores[places].tolist(), strict=True):
                if score > best.get(memory_id, -2.0):
                    best[memory_id] = score
    return best


class Block:
    """
    Rows in memory, of fixed capacity. Rows are only appended.

    Attributes:
        has_chunks: A memory may have several rows, one after the other.
    """

    def __init__(self, *, capacity: int, dimension: int) -> None:
        self.vectors: Floats = np.empty((capacity, dimension), dtype=np.float32)
        self.rows: Rows = np.empty(capacity, dtype=ROW)
        self.columns: Columns = self.rows
        self.alive: Mask = np.zeros(capacity, dtype=np.bool_)
        self.earliest_expiry = NEVER_MICROS
        self.ids: list[str] = []
        self.has_chunks = False
        self.dead = 0

    def get_ids(self, numbers: Longs) -> list[str]:
        return [self.ids[number] for number in numbers.tolist()]

    def append(self, rows: Rows, ids: Sequence[str], vectors: Floats) -> None:
        """Add rows, for which the block must have room."""
        start, stop = len(self.ids), len(self.ids) + len(ids)
        self.vectors[start:stop] = vectors
        self.rows[start:stop] = rows
        self.alive[start:stop] = True
        self.earliest_expiry = min(self.earliest_expiry, int(rows["expires_at"].min(initial=NEVER_MICROS)))
        self.ids += ids

    def mark_dead(self, numbers: Sequence[int]) -> None:
        """Hide rows from later queries. Running queries still see them."""
        self.alive = self.alive.copy()
        self.alive[list(numbers)] = False
        self.dead += len(numbers)


class Segment:
    """The rows of one workspace in memory, all scored by each query. The caller locks its methods against each other."""

    def __init__(self, dimension: int) -> None:
        self._dimension = dimension
        self._column_dict = ColumnDict()
        self._blocks: dict[int, Block] = {}
        self._next_block = 1
        self._positions: dict[str, int] = {}
        """Memory id to block number and first row in one integer; 6 MB less than tuples at 100,000 memories."""

    @property
    def row_count(self) -> int:
        """Number of rows that a query scores."""
        return sum(len(block.ids) for block in self._blocks.values())

    @property
    def has_stale_dictionaries(self) -> bool:
        """True if the dictionaries contain far more entries than there are memories."""
        return len(self._column_dict.spaces) + len(self._column_dict.tagsets) > 1024 + 2 * len(self._positions)

    def apply(self, *, deleted_ids: Iterable[str], points: Sequence[Point]) -> None:
        """Remove *deleted_ids* and earlier rows of *points*, then add *points*. Of several points with the same id, the last one counts."""
        points = list({point.memory_id: point for point in points}.values())
        self._delete([*deleted_ids, *(point.memory_id for point in points)])
        rows, ids = self._column_dict.encode(points)
        vectors = np.frombuffer(b"".join(vector for point in points for vector in point.vectors), dtype="<f4").reshape(-1, self._dimension)
        first = 0
        for point in points:
            stop = first + len(point.vectors)
            number, block = self._get_writable_block(stop - first)
            self._positions[point.memory_id] = number << 32 | len(block.ids)
            block.has_chunks = block.has_chunks or stop - first > 1
            block.append(rows[first:stop], ids[first:stop], vectors[first:stop])
            first = stop
        self._compact()

    def take_snapshots(self, where: VectorFilter) -> tuple[SourceSnapshot, ...]:
        """Return the blocks for a query with the filter *where*."""
        mask = self._column_dict.build_mask(where)
        blocks = [block for block in self._blocks.values() if block.ids]
        return tuple(SourceSnapshot(source=block, alive=block.alive, count=len(block.ids), mask=mask) for block in blocks)

    def score_ids(self, ids: Iterable[str], vector: Floats, where: VectorFilter) -> list[ScoredRows]:
        """Score the memories *ids* that *where* admits."""
        numbers_by_block: dict[int, list[int]] = {number: [] for number in self._blocks}
        for memory_id in ids:
            position = self._positions.get(memory_id)
            if position is not None:
                numbers = numbers_by_block[position >> 32]
                numbers.append(position & _ROW_MASK)
                numbers += self._list_further_rows(memory_id, position)
        mask = self._column_dict.build_mask(where)
        return [
            SourceSnapshot(source=block, alive=block.alive, count=len(block.ids), mask=mask).score_rows(np.array(numbers), vector)
            for block, numbers in ((self._blocks[number], numbers) for number, numbers in numbers_by_block.items() if numbers)
        ]

    def _list_further_rows(self, memory_id: str, position: int) -> Sequence[int]:
        """Return the rows of a memory after its first one. Most memories have none."""
        block = self._blocks[position >> 32]
        if not block.has_chunks:
            return ()
        start = stop = (position & _ROW_MASK) + 1
        while stop < len(block.ids) and block.ids[stop] == memory_id and block.alive[stop]:
            stop += 1
        return range(start, stop) if stop > start else ()

    def _delete(self, ids: Iterable[str]) -> None:
        dead: dict[int, list[int]] = {}
        for memory_id in ids:
            position = self._positions.pop(memory_id, None)
            if position is not None:
                rows = dead.setdefault(position >> 32, [])
                rows.append(position & _ROW_MASK)
                rows += self._list_further_rows(memory_id, position)
        for number, rows in dead.items():
            self._blocks[number].mark_dead(rows)

    def _get_writable_block(self, rows: int) -> tuple[int, Block]:
        for number, block in reversed(self._blocks.items()):
            if len(block.vectors) - len(block.ids) >= rows:
                return number, block
        # One block of up to `_BLOCK_ROWS` grows by copying, because a query takes some time for each block.
        for number, block in self._blocks.items():
            needed = len(block.ids) + rows
            if needed <= _BLOCK_ROWS and len(block.vectors) < _BLOCK_ROWS:
                return number, self._copy_block(number, block, capacity=min(_BLOCK_ROWS, max(2 * len(block.vectors), needed)))
        number, self._next_block = self._next_block, self._next_block + 1
        block = self._blocks[number] = Block(
            capacity=max(rows, _BLOCK_ROWS if self._blocks else _FIRST_BLOCK_ROWS), dimension=self._dimension
        )
        return number, block

    def _compact(self) -> None:
        for number, block in list(self._blocks.items()):
            if block.dead == len(block.ids):
                del self._blocks[number]
            elif block.dead * 4 > len(block.ids):
                self._copy_block(number, block, capacity=len(block.vectors))

    def _copy_block(self, number: int, block: Block, *, capacity: int) -> Block:
        """Replace *block* by one with its live rows alone. Running queries still see the old one."""
        live = np.flatnonzero(block.alive[: len(block.ids)])
        fresh = self._blocks[number] = Block(capacity=capacity, dimension=self._dimension)
        fresh.append(block.rows[live], block.get_ids(live), block.vectors[live])
        fresh.has_chunks = block.has_chunks
        for row in range(len(live) - 1, -1, -1):  # in reverse, so that the first row of a memory is written last
            self._positions[fresh.ids[row]] = number << 32 | row
        return fresh


def validate_vectors(vectors: Sequence[Vector], *, dimension: int) -> None:
    """Raise `ValueError` if there is no vector, or one that cannot be compared with others of *dimension*."""
    if not vectors:
        raise ValueError("a memory needs at least one vector")
    for vector in vectors:
        if len(vector) != dimension * 4:
            raise ValueError(f"a vector has {len(vector)} bytes instead of {dimension} floats of 4 bytes")
    if not np.isfinite(np.frombuffer(b"".join(vectors), dtype="<f4")).all():
        raise ValueError("a vector contains a number that is not finite")
