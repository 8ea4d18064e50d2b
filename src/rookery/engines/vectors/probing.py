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

from rookery.engines.vectors.masks import Mask, Sieve
from rookery.engines.vectors.sealed import Floats, Ints, Longs, Sealed
from rookery.engines.vectors.views import clamped
from rookery.memory.models import Within

S = TypeVar("S", bound=np.generic)

_ALIVE = int(np.iinfo(np.int32).max)

_WANTED = 10_000
_SHARE = 50
"""
So many rows, or one of so many, are scored. Measured with `benchmarks.large_store`: of the ten nearest 99.1 % are found at 100,000;
at a million 96.2 % among 10,000 rows, 96.9 among 16,700, 97.8 among 20,000.
"""

_FILTERED = 3_000
"""
At least so many within a filter. It is met by more lists, which reach farther, so that fewer rows in them find as many:
measured, 98 of 100 among 2,000 where a tenth is seen.
"""

_ALL = 6_000
_ALL_ROOTS = 16
"""
Where no more than so many can be seen, or so many times the root of what there is, all of them are scored, wherever they lie:
to go through the lists that hold a few of them each would cost as much.
"""

_TIMES_LIMIT = 16
"""Who asks for many gets as many times more scored."""

_PIECE_ROWS = 4096
"""What a thread does at a time: half a millisecond."""

_GATHERED_AT_ONCE = 512
"""Rows copied out before they are scored: they stay in the cache."""

_GATHERING = 2
"""Copying a row out makes it about twice as dear as one that is scored where it lies."""


class Part(Protocol):
    """Takes the same rows of any column."""

    def __call__(self, column: npt.NDArray[S]) -> npt.NDArray[S]: ...


class Attached:
    """A sealed file as one process follows it. The caller locks `bury` and `view` against each other."""

    def __init__(self, sealed: Sealed) -> None:
        self.sealed = sealed
        self._starts: Longs = np.concatenate([np.zeros(1, dtype=np.int64), sealed.ends[:-1]])
        self._sizes: Longs = sealed.ends - self._starts
        self._buried_at: Ints = np.full(len(sealed), _ALIVE, dtype=np.int32)
        self._epoch = 0
        self.dead = 0

    @property
    def living(self) -> int:
        """How many rows a query may see."""
        return len(self.sealed) - self.dead

    def keep(self, changes: Longs) -> None:
        """Take out all rows but those of *changes*, which are sorted."""
        own = self.sealed.columns.change
        places = np.searchsorted(changes, own)
        known = np.zeros(len(own), dtype=np.bool_)
        inside = places < len(changes)
        known[inside] = changes[places[inside]] == own[inside]
        self._take_out(np.flatnonzero(~known))

    def bury(self, memory_ids: Collection[str]) -> None:
        """Take *memory_ids* out of every later view; those that are in use go on seeing them."""
        if memory_ids:
            self._take_out_all(self.sealed.rows_of(memory_ids).values())

    def view(self, within: Within) -> Probing:
        """Return what a query of *within* sees now."""
        return Probing(
            sealed=self.sealed,
            starts=self._starts,
            sizes=self._sizes,
            buried_at=self._buried_at if self.dead else None,
            epoch=self._epoch,
            sieve=self.sealed.facets.sieve(within),
        )

    def similarities(self, vector: Floats, memory_ids: Collection[str]) -> dict[str, float]:
        """Return the best product of each of *memory_ids* that is here."""
        there = self.sealed.rows_of(memory_ids)
        if not there:
            return {}
        rows = np.concatenate(list(there.values()))
        # All at once: a call of numpy for each costs more than the products do.
        products = np.vecdot(self.sealed.vectors[rows], vector)
        products[self._buried_at[rows] != _ALIVE] = -np.inf
        starts = np.cumsum([0, *map(len, there.values())])[:-1]
        best: list[float] = np.maximum.reduceat(products, starts).tolist()
        return {memory_id: clamped(each) for memory_id, each in zip(there, best, strict=True) if each > -np.inf}

    def _take_out_all(self, rows: Iterable[Ints]) -> None:
        each = [one for one in rows if len(one)]
        if each:
            self._take_out(np.concatenate(each))

    def _take_out(self, rows: Ints | Longs) -> None:
        fresh = rows[self._buried_at[rows] == _ALIVE]
        if len(fresh):
            self._epoch += 1
            self._buried_at[fresh] = self._epoch
            self.dead += len(fresh)


@dataclass(frozen=True, slots=True, kw_only=True)
class Probing:
    """
    A sealed file at one moment, as far as a query may see it; any thread may use it while rows go on being buried.

    Attributes:
        buried_at: In which epoch a row was taken out; None: none was. A row that was in a later one than *epoch* is still seen.
    """

    sealed: Sealed
    starts: Longs
    sizes: Longs
    buried_at: Ints | None
    epoch: int
    sieve: Sieve

    def search(self, vector: Floats, *, limit: int) -> Search:
        """Begin to look for the *limit* rows nearest to *vector*."""
        groups = self.sieve.groups
        ends = self.sealed.group_ends
        sizes = np.diff(ends, prepend=0)
        at_most = int(sizes[groups[: len(sizes)]].sum())
        share = at_most / max(1, len(self.sealed))
        filtered = max(_FILTERED, int(max(_WANTED, len(self.sealed) // _SHARE) * share**0.5))
        return Search(self, vector, at_most=at_most, wanted=max(filtered, limit * _TIMES_LIMIT))

    def of_groups(self) -> Longs:
        """Return the rows of all groups that may be seen, in order."""
        ends = self.sealed.group_ends
        seen = np.flatnonzero(self.sieve.groups[: len(ends)]).tolist()
        slices = [self.sealed.by_group[int(ends[group - 1]) : int(ends[group])] for group in seen]
        return np.sort(np.concatenate(slices)).astype(np.int64) if slices else np.empty(0, dtype=np.int64)

    def visible(self, part: Part) -> Mask:
        """Tell which rows of a *part* of the columns may be seen."""
        sieve, columns = self.sieve, self.sealed.columns
        keep: Mask = sieve.groups.take(part(columns.group))
        if sieve.tagsets is not None:
            keep &= sieve.tagsets.take(part(columns.tagset))
        if self.buried_at is not None:
            keep &= part(self.buried_at) > self.epoch
        if self.sealed.earliest_expiry <= sieve.at:
            keep &= part(columns.expires_at) > sieve.at
        if sieve.since is not None:
            keep &= part(columns.created_at) >= sieve.since
        if sieve.until is not None:
            keep &= part(columns.created_at) < sieve.until
        if sieve.min_confidence is not None:
            keep &= part(columns.confidence) >= sieve.min_confidence
        return keep


class Search:
    """What of a file is scored for one question, and how far that has come; one thread's."""

    def __init__(self, probing: Probing, vector: Floats, *, at_most: int, wanted: int) -> None:
        self._probing = probing
        self._wanted = wanted
        self._seen = 0
        self._asked = 0
        self._is_whole = at_most <= max(_ALL, wanted, round(_ALL_ROOTS * len(probing.sealed) ** 0.5))
        self._share = at_most / max(1, len(probing.sealed))
        nearest = np.empty(0, dtype=np.intp) if self._is_whole else np.argsort(-np.vecdot(probing.sealed.centroids, vector))
        self._starts: Longs = probing.starts[nearest]
        self._sizes: Longs = probing.sizes[nearest]
        self._reach: Longs = np.cumsum(self._sizes)

    def first(self) -> list[Lists | Chosen]:
        """Return what is to be scored at once."""
        if self._is_whole:
            rows = self._probing.of_groups()
            return [Chosen(probing=self._probing, rows=rows[at : at + _PIECE_ROWS]) for at in range(0, len(rows), _PIECE_ROWS)]
        return self._nearest(self._wanted / self._share)

    def further(self, scored: int, *, is_enough: bool) -> list[Lists | Chosen]:
        """Return what is to be scored next, once *scored* rows were; nothing: that was all, or enough."""
        self._seen += scored
        if self._asked >= len(self._starts) or (is_enough and self._seen * 4 >= self._wanted * 3):
            return []
        if not is_enough:
            self._wanted *= 2
        rows = float(self._reach[self._asked - 1])
        return self._nearest(min(4 * rows, rows * max(1.3, self._wanted / max(1, self._seen))))

    def _nearest(self, rows: float) -> list[Lists | Chosen]:
        """Return the next lists, until those taken hold *rows*."""
        upto = min(len(self._starts), int(np.searchsorted(self._reach, rows)) + 1)
        starts, sizes = self._starts[self._asked : upto].tolist(), self._sizes[self._asked : upto].tolist()
        self._asked = upto
        pieces: list[Lists | Chosen] = []
        held: list[tuple[int, int]] = []
        count = 0
        for start, size in zip(starts, sizes, strict=True):
            held.append((start, start + size))
            count += size
            if count >= _PIECE_ROWS:
                pieces.append(Lists(probing=self._probing, spans=tuple(held)))
                held, count = [], 0
        if count:
            pieces.append(Lists(probing=self._probing, spans=tuple(held)))
        return pieces


@dataclass(frozen=True, slots=True, kw_only=True)
class Lists:
    """Some lists as a piece of work: from which row to which."""

    probing: Probing
    spans: tuple[tuple[int, int], ...]

    def score(self, vector: Floats) -> Found:
        """Score what may be seen of them."""
        spans = self.spans

        def part(column: npt.NDArray[S]) -> npt.NDArray[S]:
            return np.concatenate([column[start:stop] for start, stop in spans])

        seen = np.flatnonzero(self.probing.visible(part))
        rows = np.concatenate([np.arange(start, stop) for start, stop in spans])
        if len(seen) * _GATHERING < len(rows):
            rows = rows[seen]
            return Found(sealed=self.probing.sealed, rows=rows, scores=_gathered(self.probing.sealed.vectors, rows, vector))
        vectors = self.probing.sealed.vectors
        scores = np.empty(len(rows), dtype=np.float32)
        at = 0
        for start, stop in spans:
            np.vecdot(vectors[start:stop], vector, out=scores[at : at + stop - start])
            at += stop - start
        if len(seen) < len(rows):
            rows, scores = rows[seen], scores[seen]
        return Found(sealed=self.probing.sealed, rows=rows, scores=scores)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """Rows here and there as a piece of work."""

    probing: Probing
    rows: Longs

    def score(self, vector: Floats) -> Found:
        """Score what may be seen of them."""

        def part(column: npt.NDArray[S]) -> npt.NDArray[S]:
            return column[self.rows]

        rows = self.rows[self.probing.visible(part)]
        return Found(sealed=self.probing.sealed, rows=rows, scores=_gathered(self.probing.sealed.vectors, rows, vector))


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Rows that a query sees, with their scores."""

    sealed: Sealed
    rows: Longs
    scores: Floats

    def ids(self, places: npt.NDArray[np.intp]) -> list[str]:
        """Return whose rows lie at *places*."""
        return self.sealed.names(self.rows[places])


def _gathered(vectors: Floats, rows: Longs, vector: Floats) -> Floats:
    scores = np.empty(len(rows), dtype=np.float32)
    for start in range(0, len(rows), _GATHERED_AT_ONCE):
        some = rows[start : start + _GATHERED_AT_ONCE]
        np.vecdot(vectors.take(some, axis=0), vector, out=scores[start : start + len(some)])
    return scores
