"""
Search the rows of one workspace: filters, exact search in memory, and an index of faiss (`ivf_file`) for large workspaces.

A row is one vector of a memory, with the columns of `ROW`. A source has rows, in memory (`Segment`) or mapped from a file (`IvfFile`).

A workspace has many memories and few distinct spaces. Each combination of the columns of `SPACE_COLUMNS` is a *group*, whose number each
row stores. A query evaluates its filter once per group and looks the result up per row. Tag sets work in the same way.

The index visits the inverted lists nearest to the vector and compares bytes instead of floats. Its candidates are scored again with whole
vectors, so similarities are exact. Filters do not reduce recall, since a query with a filter visits more lists. If a filter selects few
rows, all of them are scored, and the result is exact.
"""

from __future__ import annotations

import math
import os
from abc import ABC, abstractmethod
from array import array
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from rookery.engines.vectors.vector_file import Point, Space
from rookery.memory.models import Vector, VectorHit
from rookery.memory.visibility import AllOf, AnyOf, Conditions, Range, VectorFilter

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.void]
Columns = Rows | Mapping[str, npt.NDArray[Any]]
"""Rows by column. A mapped file has an array per column, because a filter then reads a tenth of the bytes."""

SPACE_COLUMNS = ("org", "project", "agent_id", "session_id", "memory_scope", "type", "source")
NEVER_MICROS = int(np.iinfo(np.int64).max)
ROW = np.dtype(
    [("change", "<i8"), ("created_at", "<i8"), ("expires_at", "<i8"), ("confidence", "<f8"), ("group", "<i4"), ("tagset", "<i4")]
)
"""The columns of a row; *change* is the number of its entry in `vectors.db`, and times are in microseconds."""

_UNKNOWN_CODE = -1
_MAX_COMPARED_CODES = 4
"""Codes up to which single comparisons are faster than `isin`."""

_SPAN_ROWS = 4096
"""Rows of one task of a thread; half a millisecond."""

_GATHER_COST = 3
"""Copying a row before it is scored doubles its cost (measured with spans that fit the CPU cache)."""

_GATHERED_ROWS = 512
"""Rows that are copied before they are scored; they stay in the CPU cache."""

_MAX_HELPERS = min(7, (os.cpu_count() or 1) - 1)

_STOP_MASK = (1 << 32) - 1
"""The bits of a span that are the row after its last; the others are its first row."""

_MIN_CAPACITY = 256
"""Rows for which a segment has room at first. numpy requests huge pages (2 MB) for arrays above 4 MB, and there may be many small
workspaces."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexLimits:
    """
    Sizes and times of the index. Those of a search in lists are measured with `benchmarks.vector_libraries`.

    Attributes:
        max_exact_floats: Size above which lists are built. A segment of this size is scored in 2 to 4 ms.
        max_new_floats: Size of the segment beside lists above which lists are built again; a 32nd of the lists if that is more. One or
            two milliseconds of a query.
        max_warmup_s: Maximum wait of the first queries. Within it, lists of a million rows are opened, and those of 40,000 are built.
        build_poll_s: Interval of checks while another process builds.
        list_check_interval_s: Interval of checks for lists that are due, and delay after a failed build.
        max_tombstones: A process that missed more deletions reads the workspace again.
        min_visited: Minimum number of visible rows whose bytes are compared by a search in lists.
        visited_divisor: The same, as a divisor of the number of all rows. A search with a filter compares fewer rows, by the square root of
            the visible share, since its lists reach farther.
        candidates_per_result: Rows that are scored again with whole vectors, per requested result.
        max_exhaustive: Number of visible rows up to which all are scored with whole vectors.
        exhaustive_root_factor: The same, per square root of the number of all rows.
    """

    max_exact_floats: int = 32_768 * 384
    max_new_floats: int = 16_384 * 384
    max_warmup_s: float = 2.0
    build_poll_s: float = 1.0
    list_check_interval_s: float = 60.0
    max_tombstones: int = 65_536
    min_visited: int = 16_000
    visited_divisor: int = 25
    candidates_per_result: int = 2
    max_exhaustive: int = 6_000
    exhaustive_root_factor: int = 16


class FilterMask(NamedTuple):
    """A filter, evaluated per group and tag set; *tagsets* is None if any matches."""

    groups: Mask
    admits_all_groups: bool
    tagsets: Mask | None
    ranges: Mapping[str, Range]


class ColumnDict:
    """Dictionaries of one source: spaces to groups, tags to tag sets. They only grow. The caller locks them."""

    def __init__(self, spaces: Iterable[Space] = (), tagsets: Iterable[tuple[str, ...]] = ()) -> None:
        self.spaces: dict[Space, int] = {}
        self.tagsets: dict[tuple[str, ...], int] = {}
        self._codes: list[dict[str | None, int]] = [{} for _ in SPACE_COLUMNS]
        self._columns = [array("i") for _ in SPACE_COLUMNS]
        self._tagged: dict[str, array[int]] = {}
        self._admitted: tuple[object, tuple[Mask, bool]] | None = None
        for space in spaces:
            self.get_group(space)
        for tags in tagsets:
            self.get_tagset(tags)

    def get_group(self, space: Space) -> int:
        """Return the number of *space*. An unknown one gets the next number."""
        group = self.spaces.get(space)
        if group is None:
            group = self.spaces[space] = len(self.spaces)
            for codes, column, value in zip(self._codes, self._columns, space, strict=True):
                column.append(codes.setdefault(value, len(codes)))
        return group

    def get_tagset(self, tags: tuple[str, ...]) -> int:
        """Return the number of the tag set *tags*. An unknown one gets the next number."""
        number = self.tagsets.get(tags)
        if number is None:
            number = self.tagsets[tags] = len(self.tagsets)
            for tag in set(tags):
                self._tagged.setdefault(tag, array("q")).append(number)
        return number

    def encode(self, points: Iterable[Point]) -> tuple[Rows, list[bytes]]:
        """Return the rows of *points*, one per vector, and the memory id of each in UTF-8."""
        values, ids = list[tuple[int, int, int, float, int, int]](), list[bytes]()
        for point in points:
            expires_at = NEVER_MICROS if point.expires_at is None else point.expires_at
            group, tagset = self.get_group(point.space), self.get_tagset(point.tags)
            row = (point.change, point.created_at, expires_at, point.confidence, group, tagset)
            values += [row] * len(point.vectors)
            ids += [point.memory_id.encode()] * len(point.vectors)
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
        groups, admits_all_groups = self._admit_groups(equal, where.alternatives)
        return FilterMask(groups=groups, admits_all_groups=admits_all_groups, tagsets=tagsets, ranges=ranges)

    def _admit_groups(self, equal: Conditions, alternatives: Sequence[Conditions] | None) -> tuple[Mask, bool]:
        """
        Return which groups the conditions admit, and whether all of them.

        The last result is kept. Most queries of a caller have the same conditions, and a workspace with many sessions has many groups:
        100,000 take 0.1 to 0.4 ms.
        """
        key = (equal, alternatives, len(self.spaces))
        if self._admitted is None or self._admitted[0] != key:
            groups = self._match_groups(equal)
            if alternatives is not None:
                matches = np.zeros(len(groups), dtype=np.bool_)
                for alternative in alternatives:
                    matches |= self._match_groups(alternative)
                groups &= matches
            self._admitted = key, (groups, bool(groups.all()))
        return self._admitted[1]

    def _match_groups(self, conditions: Conditions) -> Mask:
        matches = np.ones(len(self.spaces), dtype=np.bool_)
        for column, condition in conditions.items():
            if not isinstance(condition, AnyOf):
                raise TypeError(f"the column {column} has one text, and a filter on it needs AnyOf")
            place = SPACE_COLUMNS.index(column)
            values = np.asarray(self._columns[place])
            codes = [self._codes[place].get(value, _UNKNOWN_CODE) for value in condition.values]
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


class ScoredRows(NamedTuple):
    """Visible rows of a source with their scores; *ids* has the memory of each row of the source."""

    ids: npt.NDArray[Any]
    numbers: Longs
    scores: Floats


def rank(scored: Sequence[ScoredRows], limit: int) -> list[VectorHit]:
    """Return the best memories, most similar first, ties ordered by id."""
    scores = np.concatenate([part.scores for part in scored]) if scored else np.empty(0, dtype=np.float32)
    row_count = limit
    while True:
        cutoff = np.partition(scores, -row_count)[-row_count] if row_count < len(scores) else np.float32(-np.inf)
        rows = list[tuple[float, bytes]]()
        for part in scored:
            places = np.flatnonzero(part.scores >= cutoff)
            rows += zip((-part.scores[places]).tolist(), part.ids[part.numbers[places]].tolist(), strict=True)
        best: dict[bytes, float] = {}
        for distance, memory_id in sorted(rows):
            best.setdefault(memory_id, distance)
        if len(best) >= limit or row_count >= len(scores):
            break
        row_count *= 4  # some memories have several rows among the best
    # A rounding error could exceed the range of a cosine.
    return [
        VectorHit(memory_id.decode(), -distance if -1.0 <= distance <= 1.0 else math.copysign(1.0, -distance))
        for memory_id, distance in islice(best.items(), limit)
    ]


def expand_ranges(firsts: Longs, stops: Longs) -> Longs:
    """Return the numbers in all ranges, one range after the other. Most ranges have one number."""
    counts = stops - firsts
    if (counts == 1).all():
        return firsts
    return np.arange(int(counts.sum())) + np.repeat(firsts - (np.cumsum(counts) - counts), counts)


class RowSource(ABC):
    """
    Rows of a workspace with their vectors. The caller locks `find_rows`, `take_snapshot` and changes against each other.

    Attributes:
        ids: The memory of each row, in UTF-8.
        alive: Which rows are not deleted.
        count: Number of rows, including the *dead* ones.
        earliest_expiry: Earliest expiry of all rows; `NEVER_MICROS` without one.
        mask: The filter of a snapshot.
    """

    vectors: Floats
    columns: Columns
    ids: npt.NDArray[Any]
    alive: Mask
    column_dict: ColumnDict
    count: int
    dead = 0
    earliest_expiry = NEVER_MICROS
    mask: FilterMask

    @abstractmethod
    def find_rows(self, ids: Collection[bytes]) -> Longs:
        """Return the row numbers of the memories *ids*. Deleted rows may be among them."""

    def take_snapshot(self, where: VectorFilter) -> Self:
        """
        Return the rows of this moment, for a query with the filter *where*.

        It is a shallow copy. Any thread may use it, because later changes replace arrays, or append to them.
        """
        snapshot = object.__new__(type(self))
        vars(snapshot).update(vars(self))  # `copy.copy` takes 4 µs more
        snapshot.mask = self.column_dict.build_mask(where)
        return snapshot

    def delete(self, ids: Collection[bytes]) -> None:
        """Hide the memories *ids* from later snapshots."""
        self.hide(self.find_rows(ids))

    def hide(self, numbers: Longs) -> None:
        """Hide rows from later snapshots. Existing snapshots still see them."""
        numbers = np.unique(numbers[self.alive[numbers]])
        if len(numbers):
            self.alive = self.alive.copy()
            self.alive[numbers] = False
            self.dead += len(numbers)

    def score_span(self, start: int, stop: int, vector: Floats) -> ScoredRows:
        """
        Score the visible rows between *start* and *stop*. If many are visible, all rows are scored and then filtered.

        `vecdot` computes row by row, so equal vectors have equal scores in any position (ties are broken by id), unlike with a matrix
        product. It also uses no threads of OpenBLAS, which would spin between queries.
        """
        visible = np.flatnonzero(self.find_visible(slice(start, stop)))
        if len(visible) * _GATHER_COST < stop - start:
            return self.score(visible + start, vector)
        scores: Floats = np.vecdot(self.vectors[start:stop], vector)
        return ScoredRows(ids=self.ids, numbers=visible + start, scores=scores[visible])

    def score_rows(self, numbers: Longs, vector: Floats) -> ScoredRows:
        """Score those of single rows that the query sees."""
        return self.score(numbers[self.find_visible(numbers)], vector)

    def score(self, numbers: Longs, vector: Floats) -> ScoredRows:
        """Score single rows."""
        scores = np.empty(len(numbers), dtype=np.float32)
        for start in range(0, len(numbers), _GATHERED_ROWS):
            batch = numbers[start : start + _GATHERED_ROWS]
            np.vecdot(self.vectors.take(batch, axis=0), vector, out=scores[start : start + len(batch)])
        return ScoredRows(ids=self.ids, numbers=numbers, scores=scores)

    def find_visible(self, rows: slice | Longs) -> Mask:
        """Return which of *rows* the query sees."""
        columns, mask = self.columns, self.mask
        visible: Mask = self.alive[rows].copy()
        if not mask.admits_all_groups:
            visible &= mask.groups.take(columns["group"][rows])
        if mask.tagsets is not None:
            visible &= mask.tagsets.take(columns["tagset"][rows])
        for column, limits in mask.ranges.items():
            if column == "expires_at":
                if not limits.or_missing:
                    visible &= columns[column][rows] != NEVER_MICROS
                elif limits.end is not None:
                    raise ValueError("a filter of memories without an expiry has no end")
                elif limits.minimum is None or limits.minimum <= self.earliest_expiry:
                    continue
            if limits.minimum is not None:
                visible &= columns[column][rows] >= limits.minimum
            if limits.end is not None:
                visible &= columns[column][rows] < limits.end
        return visible


class Segment(RowSource):
    """Rows in memory, all scored by each query. Rows are only appended; at most a quarter of them are dead."""

    def __init__(self, dimension: int) -> None:
        self.column_dict = ColumnDict()
        self._allocate(0, dimension)

    def _allocate(self, capacity: int, dimension: int) -> None:
        self.vectors = np.empty((capacity, dimension), dtype=np.float32)
        self._rows: Rows = np.empty(capacity, dtype=ROW)
        self.columns = self._rows
        self.ids, self.alive = np.empty(capacity, dtype=np.object_), np.zeros(capacity, dtype=np.bool_)
        self.count, self.dead, self.earliest_expiry = 0, 0, NEVER_MICROS
        self._spans: dict[bytes, int] = {}
        """Memory to its first row and the row after its last, in one integer; less memory than a tuple."""

    @property
    def has_stale_dictionaries(self) -> bool:
        """True if the dictionaries contain far more entries than there are memories."""
        return len(self.column_dict.spaces) + len(self.column_dict.tagsets) > 1024 + 2 * len(self._spans)

    def find_rows(self, ids: Collection[bytes]) -> Longs:
        spans = np.array([span for memory_id in ids if (span := self._spans.get(memory_id))], dtype=np.int64)
        return expand_ranges(spans >> 32, spans & _STOP_MASK)

    def delete(self, ids: Collection[bytes]) -> None:
        super().delete(ids)
        for memory_id in ids:
            self._spans.pop(memory_id, None)
        self._make_room(0)

    def add(self, points: Sequence[Point]) -> None:
        """Append the rows of *points*, of which the segment has none."""
        rows, ids = self.column_dict.encode(points)
        self._make_room(len(ids))
        content = b"".join(vector for point in points for vector in point.vectors)
        self.vectors[self.count : self.count + len(ids)] = np.frombuffer(content, dtype="<f4").reshape(-1, self.vectors.shape[1])
        self._append(rows, ids)

    def score_all(self, vector: Floats, *, helpers: ThreadPoolExecutor | None) -> list[ScoredRows]:
        """Score all visible rows, in this thread and in idle threads of *helpers*. numpy releases the GIL."""
        starts = list(range(0, self.count, _SPAN_ROWS))
        scored = list[ScoredRows]()

        def work() -> None:
            while True:
                try:
                    start = starts.pop()
                except IndexError:
                    return
                scored.append(self.score_span(start, min(start + _SPAN_ROWS, self.count), vector))

        helping = [helpers.submit(work) for _ in range(min(_MAX_HELPERS, len(starts) - 1))] if helpers else []
        work()
        for helper in helping:
            if not helper.cancel():
                helper.result()
        return scored

    def _append(self, rows: Rows, ids: Sequence[bytes]) -> None:
        """Append rows whose vectors are in place."""
        start, stop = self.count, self.count + len(ids)
        self._rows[start:stop], self.ids[start:stop], self.alive[start:stop] = rows, ids, True
        self.earliest_expiry = min(self.earliest_expiry, int(rows["expires_at"].min(initial=NEVER_MICROS)))
        for row, memory_id in enumerate(ids, start):
            self._spans[memory_id] = self._spans.get(memory_id, row << 32 | row) + 1
        self.count = stop

    def _make_room(self, count: int) -> None:
        """Copy the live rows to new arrays if *count* more do not fit, or if many are dead. Running queries still see the old arrays."""
        if self.count + count <= len(self.vectors) and self.dead * 4 <= self.count:
            return
        live = np.flatnonzero(self.alive[: self.count])
        vectors, rows, ids = self.vectors, self._rows[live], self.ids[live].tolist()
        self._allocate(max(_MIN_CAPACITY, 2 * (len(live) + count)), vectors.shape[1])
        vectors.take(live, axis=0, out=self.vectors[: len(live)], mode="clip")
        self._append(rows, ids)


def validate_vectors(vectors: Sequence[Vector], *, dimension: int) -> None:
    """Raise `ValueError` if there is no vector, or one that cannot be compared with others of *dimension*."""
    if not vectors:
        raise ValueError("a memory needs at least one vector")
    for vector in vectors:
        if len(vector) != dimension * 4:
            raise ValueError(f"a vector has {len(vector)} bytes instead of {dimension} floats of 4 bytes")
    if not np.isfinite(np.frombuffer(b"".join(vectors), dtype="<f4")).all():
        raise ValueError("a vector contains a number that is not finite")
