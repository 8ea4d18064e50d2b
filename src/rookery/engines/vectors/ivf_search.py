"""
Search an IVF file: score the lists nearest to a vector, one after another, until enough visible rows are scored.

Filters do not reduce recall, since hidden rows do not count as scored. If a filter selects no more rows than would be scored anyway, all of
them are scored, and the result is exact.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from rookery.engines.vectors.filter_mask import FilterMask, Mask
from rookery.engines.vectors.ivf_file import Floats, Ints, IvfFile, Longs
from rookery.engines.vectors.snapshot import clamp_similarity
from rookery.memory.models import AccessFilter

S = TypeVar("S", bound=np.generic)

_ALIVE_EPOCH = int(np.iinfo(np.int32).max)

_MIN_SCORED_ROWS = 10_000
_SCORED_SHARE_DIVISOR = 50
"""
Minimum number of scored rows, absolute and as a fraction of all rows.

Measured with `benchmarks.large_store`: 99.1 % of the ten nearest are found at 100,000 rows. At a million, 96.2 % with 10,000 scored rows,
96.9 with 16,700, 97.8 with 20,000.
"""

_MIN_FILTERED_ROWS = 3_000
"""
Minimum number of scored rows with a filter. A filtered search visits more lists, which reach farther, so fewer rows in them find as many:
98 of 100 with 2,000 rows if a tenth is visible (measured).
"""

_MAX_EXHAUSTIVE_ROWS = 6_000
_EXHAUSTIVE_ROOT_FACTOR = 16
"""
Number of visible rows up to which all of them are scored, absolute and per square root of the number of all rows. Visiting the lists that
contain a few of them each would cost as much.
"""

_SCORED_PER_RESULT = 16
"""Scored rows per requested result."""

_TASK_ROWS = 4096
"""Rows of one task of a thread; half a millisecond."""

_GATHER_BATCH_ROWS = 512
"""Rows that are copied before they are scored; they stay in the CPU cache."""

_GATHER_COST = 2
"""Copying a row before it is scored doubles its cost."""


class ColumnSelector(Protocol):
    """A function that selects the same rows of any column."""

    def __call__(self, column: npt.NDArray[S]) -> npt.NDArray[S]: ...


class LiveIvfFile:
    """An IVF file with the deletions that this process has seen. The caller locks `delete` and `take_snapshot` against each other."""

    def __init__(self, file: IvfFile) -> None:
        self.file = file
        self._starts: Longs = np.concatenate([np.zeros(1, dtype=np.int64), file.list_ends[:-1]])
        self._sizes: Longs = file.list_ends - self._starts
        self._deleted_epoch: Ints = np.full(len(file), _ALIVE_EPOCH, dtype=np.int32)
        self._epoch = 0
        self.dead = 0

    @property
    def live_count(self) -> int:
        """Number of live rows."""
        return len(self.file) - self.dead

    def keep_only(self, changes: Longs) -> None:
        """Delete all rows except those of *changes*, which are sorted."""
        file_changes = self.file.columns.change
        places = np.searchsorted(changes, file_changes)
        is_kept = np.zeros(len(file_changes), dtype=np.bool_)
        in_range = places < len(changes)
        is_kept[in_range] = changes[places[in_range]] == file_changes[in_range]
        self._delete_rows(np.flatnonzero(~is_kept))

    def delete(self, memory_ids: Collection[str]) -> None:
        """Hide *memory_ids* from later snapshots. Existing snapshots still see them."""
        if memory_ids:
            self._delete_all_rows(self.file.find_rows(memory_ids).values())

    def take_snapshot(self, access_filter: AccessFilter) -> IvfSnapshot:
        """Return a snapshot for a query with *access_filter*."""
        return IvfSnapshot(
            file=self.file,
            starts=self._starts,
            sizes=self._sizes,
            deleted_epoch=self._deleted_epoch if self.dead else None,
            epoch=self._epoch,
            mask=self.file.column_dict.build_mask(access_filter),
        )

    def compute_similarities(self, vector: Floats, memory_ids: Collection[str]) -> dict[str, float]:
        """Return the highest dot product of each of *memory_ids* in the file."""
        rows_by_id = self.file.find_rows(memory_ids)
        if not rows_by_id:
            return {}
        rows = np.concatenate(list(rows_by_id.values()))
        # One call for all rows: a numpy call per memory costs more than the products.
        products = np.vecdot(self.file.vectors[rows], vector)
        products[self._deleted_epoch[rows] != _ALIVE_EPOCH] = -np.inf
        starts = np.cumsum([0, *map(len, rows_by_id.values())])[:-1]
        best: list[float] = np.maximum.reduceat(products, starts).tolist()
        return {
            memory_id: clamp_similarity(similarity) for memory_id, similarity in zip(rows_by_id, best, strict=True) if similarity > -np.inf
        }

    def _delete_all_rows(self, rows: Iterable[Ints]) -> None:
        parts = [part for part in rows if len(part)]
        if parts:
            self._delete_rows(np.concatenate(parts))

    def _delete_rows(self, rows: Ints | Longs) -> None:
        newly_deleted = rows[self._deleted_epoch[rows] == _ALIVE_EPOCH]
        if len(newly_deleted):
            self._epoch += 1
            self._deleted_epoch[newly_deleted] = self._epoch
            self.dead += len(newly_deleted)


@dataclass(frozen=True, slots=True, kw_only=True)
class IvfSnapshot:
    """
    An IVF file at one moment, for one query. Any thread may use it while rows are deleted.

    Attributes:
        deleted_epoch: The epoch in which each row was deleted; None without deletions. Rows deleted after *epoch* are still visible.
    """

    file: IvfFile
    starts: Longs
    sizes: Longs
    deleted_epoch: Ints | None
    epoch: int
    mask: FilterMask

    def start_search(self, vector: Floats, *, limit: int) -> IvfSearch:
        """Start a search for the *limit* rows nearest to *vector*."""
        groups = self.mask.groups
        ends = self.file.group_ends
        sizes = np.diff(ends, prepend=0)
        max_visible = int(sizes[groups[: len(sizes)]].sum())
        share = max_visible / max(1, len(self.file))
        min_filtered = max(_MIN_FILTERED_ROWS, int(max(_MIN_SCORED_ROWS, len(self.file) // _SCORED_SHARE_DIVISOR) * share**0.5))
        return IvfSearch(self, vector, max_visible=max_visible, min_scored=max(min_filtered, limit * _SCORED_PER_RESULT))

    def list_visible_rows(self) -> Longs:
        """Return the rows of all visible groups, in order."""
        ends = self.file.group_ends
        visible = np.flatnonzero(self.mask.groups[: len(ends)]).tolist()
        slices = [self.file.by_group[int(ends[group - 1]) : int(ends[group])] for group in visible]
        return np.sort(np.concatenate(slices)).astype(np.int64) if slices else np.empty(0, dtype=np.int64)

    def compute_visible(self, select: ColumnSelector) -> Mask:
        """Return which of the rows that *select* selects are visible."""
        mask, columns = self.mask, self.file.columns
        keep: Mask = mask.groups.take(select(columns.group))
        if mask.tagsets is not None:
            keep &= mask.tagsets.take(select(columns.tagset))
        if self.deleted_epoch is not None:
            keep &= select(self.deleted_epoch) > self.epoch
        if self.file.earliest_expiry <= mask.at:
            keep &= select(columns.expires_at) > mask.at
        if mask.since is not None:
            keep &= select(columns.created_at) >= mask.since
        if mask.until is not None:
            keep &= select(columns.created_at) < mask.until
        if mask.min_confidence is not None:
            keep &= select(columns.confidence) >= mask.min_confidence
        return keep


class IvfSearch:
    """The state of one search in an IVF file. Used by one thread."""

    def __init__(self, snapshot: IvfSnapshot, vector: Floats, *, max_visible: int, min_scored: int) -> None:
        self._snapshot = snapshot
        self._min_scored = min_scored
        self._scored_count = 0
        self._list_position = 0
        self._is_exhaustive = max_visible <= max(
            _MAX_EXHAUSTIVE_ROWS, min_scored, round(_EXHAUSTIVE_ROOT_FACTOR * len(snapshot.file) ** 0.5)
        )
        self._share = max_visible / max(1, len(snapshot.file))
        nearest = np.empty(0, dtype=np.intp) if self._is_exhaustive else np.argsort(-np.vecdot(snapshot.file.centroids, vector))
        self._starts: Longs = snapshot.starts[nearest]
        self._sizes: Longs = snapshot.sizes[nearest]
        self._cumulative_sizes: Longs = np.cumsum(self._sizes)

    def first_tasks(self) -> list[ListsTask | RowsTask]:
        """Return the first tasks."""
        if self._is_exhaustive:
            rows = self._snapshot.list_visible_rows()
            return [RowsTask(snapshot=self._snapshot, rows=rows[start : start + _TASK_ROWS]) for start in range(0, len(rows), _TASK_ROWS)]
        return self._next_lists(self._min_scored / self._share)

    def next_tasks(self, scored_count: int, *, is_enough: bool) -> list[ListsTask | RowsTask]:
        """
        Return the tasks of the next round; empty when all lists or enough rows are scored.

        Args:
            scored_count: Visible rows of the last round.
            is_enough: There are as many memories as requested.
        """
        self._scored_count += scored_count
        if self._list_position >= len(self._starts) or (is_enough and self._scored_count * 4 >= self._min_scored * 3):
            return []
        if not is_enough:
            self._min_scored *= 2
        rows = float(self._cumulative_sizes[self._list_position - 1])
        return self._next_lists(min(4 * rows, rows * max(1.3, self._min_scored / max(1, self._scored_count))))

    def _next_lists(self, rows: float) -> list[ListsTask | RowsTask]:
        """Return tasks for the next lists, up to *rows* rows in all rounds."""
        stop = min(len(self._starts), int(np.searchsorted(self._cumulative_sizes, rows)) + 1)
        starts, sizes = self._starts[self._list_position : stop].tolist(), self._sizes[self._list_position : stop].tolist()
        self._list_position = stop
        tasks: list[ListsTask | RowsTask] = []
        spans: list[tuple[int, int]] = []
        count = 0
        for start, size in zip(starts, sizes, strict=True):
            spans.append((start, start + size))
            count += size
            if count >= _TASK_ROWS:
                tasks.append(ListsTask(snapshot=self._snapshot, spans=tuple(spans)))
                spans, count = [], 0
        if count:
            tasks.append(ListsTask(snapshot=self._snapshot, spans=tuple(spans)))
        return tasks


@dataclass(frozen=True, slots=True, kw_only=True)
class ListsTask:
    """A task that scores some lists, given as (start, stop) rows."""

    snapshot: IvfSnapshot
    spans: tuple[tuple[int, int], ...]

    def score(self, vector: Floats) -> IvfScoredRows:
        """Score the visible rows."""
        spans = self.spans

        def select(column: npt.NDArray[S]) -> npt.NDArray[S]:
            return np.concatenate([column[start:stop] for start, stop in spans])

        visible = np.flatnonzero(self.snapshot.compute_visible(select))
        rows = np.concatenate([np.arange(start, stop) for start, stop in spans])
        if len(visible) * _GATHER_COST < len(rows):
            rows = rows[visible]
            return IvfScoredRows(file=self.snapshot.file, rows=rows, scores=_score_rows(self.snapshot.file.vectors, rows, vector))
        vectors = self.snapshot.file.vectors
        scores = np.empty(len(rows), dtype=np.float32)
        offset = 0
        for start, stop in spans:
            np.vecdot(vectors[start:stop], vector, out=scores[offset : offset + stop - start])
            offset += stop - start
        if len(visible) < len(rows):
            rows, scores = rows[visible], scores[visible]
        return IvfScoredRows(file=self.snapshot.file, rows=rows, scores=scores)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsTask:
    """A task that scores single rows."""

    snapshot: IvfSnapshot
    rows: Longs

    def score(self, vector: Floats) -> IvfScoredRows:
        """Score the visible rows."""

        def select(column: npt.NDArray[S]) -> npt.NDArray[S]:
            return column[self.rows]

        rows = self.rows[self.snapshot.compute_visible(select)]
        return IvfScoredRows(file=self.snapshot.file, rows=rows, scores=_score_rows(self.snapshot.file.vectors, rows, vector))


@dataclass(frozen=True, slots=True, kw_only=True)
class IvfScoredRows:
    """Visible rows with their scores."""

    file: IvfFile
    rows: Longs
    scores: Floats

    def ids(self, places: npt.NDArray[np.intp]) -> list[str]:
        """Return the memory ids of *places*, which are indexes into `rows`."""
        return self.file.get_memory_ids(self.rows[places])


def _score_rows(vectors: Floats, rows: Longs, vector: Floats) -> Floats:
    scores = np.empty(len(rows), dtype=np.float32)
    for start in range(0, len(rows), _GATHER_BATCH_ROWS):
        batch = rows[start : start + _GATHER_BATCH_ROWS]
        np.vecdot(vectors.take(batch, axis=0), vector, out=scores[start : start + len(batch)])
    return scores
