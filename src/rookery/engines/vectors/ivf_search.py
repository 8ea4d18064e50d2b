"""
Questions to a sealed file: the lists nearest to a vector are scored, one after the other, until enough of the rows that may be seen were.

A filter thins nothing: rows that it hides do not count as scored. Where a filter shows no more than would be scored anyway, all
of what it shows is, and the answer is exact.
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
So many rows, or one of so many, are scored. Measured with `benchmarks.large_store`: of the ten nearest 99.1 % are found at 100,000;
at a million 96.2 % among 10,000 rows, 96.9 among 16,700, 97.8 among 20,000.
"""

_MIN_FILTERED_ROWS = 3_000
"""
At least so many within a filter. It is met by more lists, which reach farther, so that fewer rows in them find as many:
measured, 98 of 100 among 2,000 where a tenth is seen.
"""

_MAX_EXHAUSTIVE_ROWS = 6_000
_EXHAUSTIVE_ROOT_FACTOR = 16
"""
Where no more than so many can be seen, or so many times the root of what there is, all of them are scored, wherever they lie:
to go through the lists that hold a few of them each would cost as much.
"""

_SCORED_PER_RESULT = 16
"""Who asks for many gets as many times more scored."""

_TASK_ROWS = 4096
"""What a thread does at a time: half a millisecond."""

_GATHER_BATCH_ROWS = 512
"""Rows copied out before they are scored: they stay in the cache."""

_GATHER_COST = 2
"""Copying a row out makes it about twice as dear as one that is scored where it lies."""


class ColumnSelector(Protocol):
    """Takes the same rows of any column."""

    def __call__(self, column: npt.NDArray[S]) -> npt.NDArray[S]: ...


class LiveIvfFile:
    """A sealed file as one process follows it. The caller locks `delete` and `take_snapshot` against each other."""

    def __init__(self, file: IvfFile) -> None:
        self.file = file
        self._starts: Longs = np.concatenate([np.zeros(1, dtype=np.int64), file.list_ends[:-1]])
        self._sizes: Longs = file.list_ends - self._starts
        self._deleted_epoch: Ints = np.full(len(file), _ALIVE_EPOCH, dtype=np.int32)
        self._epoch = 0
        self.dead = 0

    @property
    def live_count(self) -> int:
        """How many rows a query may see."""
        return len(self.file) - self.dead

    def keep_only(self, changes: Longs) -> None:
        """Take out all rows but those of *changes*, which are sorted."""
        own = self.file.columns.change
        places = np.searchsorted(changes, own)
        known = np.zeros(len(own), dtype=np.bool_)
        inside = places < len(changes)
        known[inside] = changes[places[inside]] == own[inside]
        self._delete_rows(np.flatnonzero(~known))

    def delete(self, memory_ids: Collection[str]) -> None:
        """Take *memory_ids* out of every later view; those that are in use go on seeing them."""
        if memory_ids:
            self._delete_all_rows(self.file.find_rows(memory_ids).values())

    def take_snapshot(self, access_filter: AccessFilter) -> IvfSnapshot:
        """Return what a query of *access_filter* sees now."""
        return IvfSnapshot(
            file=self.file,
            starts=self._starts,
            sizes=self._sizes,
            deleted_epoch=self._deleted_epoch if self.dead else None,
            epoch=self._epoch,
            mask=self.file.column_dict.build_mask(access_filter),
        )

    def compute_similarities(self, vector: Floats, memory_ids: Collection[str]) -> dict[str, float]:
        """Return the best product of each of *memory_ids* that is here."""
        there = self.file.find_rows(memory_ids)
        if not there:
            return {}
        rows = np.concatenate(list(there.values()))
        # All at once: a call of numpy for each costs more than the products do.
        products = np.vecdot(self.file.vectors[rows], vector)
        products[self._deleted_epoch[rows] != _ALIVE_EPOCH] = -np.inf
        starts = np.cumsum([0, *map(len, there.values())])[:-1]
        best: list[float] = np.maximum.reduceat(products, starts).tolist()
        return {memory_id: clamp_similarity(each) for memory_id, each in zip(there, best, strict=True) if each > -np.inf}

    def _delete_all_rows(self, rows: Iterable[Ints]) -> None:
        each = [one for one in rows if len(one)]
        if each:
            self._delete_rows(np.concatenate(each))

    def _delete_rows(self, rows: Ints | Longs) -> None:
        fresh = rows[self._deleted_epoch[rows] == _ALIVE_EPOCH]
        if len(fresh):
            self._epoch += 1
            self._deleted_epoch[fresh] = self._epoch
            self.dead += len(fresh)


@dataclass(frozen=True, slots=True, kw_only=True)
class IvfSnapshot:
    """
    A sealed file at one moment, as far as a query may see it; any thread may use it while rows go on being buried.

    Attributes:
        deleted_epoch: In which epoch a row was taken out; None: none was. A row that was in a later one than *epoch* is still seen.
    """

    file: IvfFile
    starts: Longs
    sizes: Longs
    deleted_epoch: Ints | None
    epoch: int
    mask: FilterMask

    def start_search(self, vector: Floats, *, limit: int) -> IvfSearch:
        """Begin to look for the *limit* rows nearest to *vector*."""
        groups = self.mask.groups
        ends = self.file.group_ends
        sizes = np.diff(ends, prepend=0)
        at_most = int(sizes[groups[: len(sizes)]].sum())
        share = at_most / max(1, len(self.file))
        filtered = max(_MIN_FILTERED_ROWS, int(max(_MIN_SCORED_ROWS, len(self.file) // _SCORED_SHARE_DIVISOR) * share**0.5))
        return IvfSearch(self, vector, max_visible=at_most, min_scored=max(filtered, limit * _SCORED_PER_RESULT))

    def list_visible_rows(self) -> Longs:
        """Return the rows of all groups that may be seen, in order."""
        ends = self.file.group_ends
        seen = np.flatnonzero(self.mask.groups[: len(ends)]).tolist()
        slices = [self.file.by_group[int(ends[group - 1]) : int(ends[group])] for group in seen]
        return np.sort(np.concatenate(slices)).astype(np.int64) if slices else np.empty(0, dtype=np.int64)

    def compute_visible(self, select: ColumnSelector) -> Mask:
        """Tell which rows of a *select* of the columns may be seen."""
        sieve, columns = self.mask, self.file.columns
        keep: Mask = sieve.groups.take(select(columns.group))
        if sieve.tagsets is not None:
            keep &= sieve.tagsets.take(select(columns.tagset))
        if self.deleted_epoch is not None:
            keep &= select(self.deleted_epoch) > self.epoch
        if self.file.earliest_expiry <= sieve.at:
            keep &= select(columns.expires_at) > sieve.at
        if sieve.since is not None:
            keep &= select(columns.created_at) >= sieve.since
        if sieve.until is not None:
            keep &= select(columns.created_at) < sieve.until
        if sieve.min_confidence is not None:
            keep &= select(columns.confidence) >= sieve.min_confidence
        return keep


class IvfSearch:
    """What of a file is scored for one question, and how far that has come; one thread's."""

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
        """Return what is to be scored at once."""
        if self._is_exhaustive:
            rows = self._snapshot.list_visible_rows()
            return [RowsTask(snapshot=self._snapshot, rows=rows[at : at + _TASK_ROWS]) for at in range(0, len(rows), _TASK_ROWS)]
        return self._next_lists(self._min_scored / self._share)

    def next_tasks(self, scored_count: int, *, is_enough: bool) -> list[ListsTask | RowsTask]:
        """Return what is to be scored next, once *scored_count* rows were; nothing: that was all, or enough."""
        self._scored_count += scored_count
        if self._list_position >= len(self._starts) or (is_enough and self._scored_count * 4 >= self._min_scored * 3):
            return []
        if not is_enough:
            self._min_scored *= 2
        rows = float(self._cumulative_sizes[self._list_position - 1])
        return self._next_lists(min(4 * rows, rows * max(1.3, self._min_scored / max(1, self._scored_count))))

    def _next_lists(self, rows: float) -> list[ListsTask | RowsTask]:
        """Return the next lists, until those taken hold *rows*."""
        upto = min(len(self._starts), int(np.searchsorted(self._cumulative_sizes, rows)) + 1)
        starts, sizes = self._starts[self._list_position : upto].tolist(), self._sizes[self._list_position : upto].tolist()
        self._list_position = upto
        pieces: list[ListsTask | RowsTask] = []
        held: list[tuple[int, int]] = []
        count = 0
        for start, size in zip(starts, sizes, strict=True):
            held.append((start, start + size))
            count += size
            if count >= _TASK_ROWS:
                pieces.append(ListsTask(snapshot=self._snapshot, spans=tuple(held)))
                held, count = [], 0
        if count:
            pieces.append(ListsTask(snapshot=self._snapshot, spans=tuple(held)))
        return pieces


@dataclass(frozen=True, slots=True, kw_only=True)
class ListsTask:
    """Some lists as a piece of work: from which row to which."""

    snapshot: IvfSnapshot
    spans: tuple[tuple[int, int], ...]

    def score(self, vector: Floats) -> IvfScoredRows:
        """Score what may be seen of them."""
        spans = self.spans

        def part(column: npt.NDArray[S]) -> npt.NDArray[S]:
            return np.concatenate([column[start:stop] for start, stop in spans])

        seen = np.flatnonzero(self.snapshot.compute_visible(part))
        rows = np.concatenate([np.arange(start, stop) for start, stop in spans])
        if len(seen) * _GATHER_COST < len(rows):
            rows = rows[seen]
            return IvfScoredRows(file=self.snapshot.file, rows=rows, scores=_score_rows(self.snapshot.file.vectors, rows, vector))
        vectors = self.snapshot.file.vectors
        scores = np.empty(len(rows), dtype=np.float32)
        at = 0
        for start, stop in spans:
            np.vecdot(vectors[start:stop], vector, out=scores[at : at + stop - start])
            at += stop - start
        if len(seen) < len(rows):
            rows, scores = rows[seen], scores[seen]
        return IvfScoredRows(file=self.snapshot.file, rows=rows, scores=scores)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsTask:
    """Rows here and there as a piece of work."""

    snapshot: IvfSnapshot
    rows: Longs

    def score(self, vector: Floats) -> IvfScoredRows:
        """Score what may be seen of them."""

        def part(column: npt.NDArray[S]) -> npt.NDArray[S]:
            return column[self.rows]

        rows = self.rows[self.snapshot.compute_visible(part)]
        return IvfScoredRows(file=self.snapshot.file, rows=rows, scores=_score_rows(self.snapshot.file.vectors, rows, vector))


@dataclass(frozen=True, slots=True, kw_only=True)
class IvfScoredRows:
    """Rows that a query sees, with their scores."""

    file: IvfFile
    rows: Longs
    scores: Floats

    def ids(self, places: npt.NDArray[np.intp]) -> list[str]:
        """Return whose rows lie at *places*."""
        return self.file.get_memory_ids(self.rows[places])


def _score_rows(vectors: Floats, rows: Longs, vector: Floats) -> Floats:
    scores = np.empty(len(rows), dtype=np.float32)
    for start in range(0, len(rows), _GATHER_BATCH_ROWS):
        some = rows[start : start + _GATHER_BATCH_ROWS]
        np.vecdot(vectors.take(some, axis=0), vector, out=scores[start : start + len(some)])
    return scores
