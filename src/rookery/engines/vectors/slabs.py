"""
The vectors of one workspace in memory, scored exactly, all of them at each query.

Vectors lie in blocks of fixed capacity, so growing never copies what is there, and so that a query may go on
reading while others write: rows beyond those it saw are appended, rows that die get a fresh column of groups, and
a compacted block is a new block.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from rookery.engines.vectors.masks import DEAD, Facets, Mask, Sieve, Space
from rookery.memory.models import Near, Vector, Within

Floats = npt.NDArray[np.float32]
Rows = npt.NDArray[np.intp]

BLOCK_ROWS = 8192
"""12.6 MB of 384 floats."""

_FIRST_ROWS = 256
"""A small workspace's first block: numpy asks for huge pages (2 MB) for arrays above 4 MB, and there may be many small ones."""

_NEVER = np.iinfo(np.int64).max
_SPAN_ROWS = 4096
"""A thread's piece of work: about 0.3 ms."""

_GATHERING = 3
"""Copying a row out before it is scored makes it twice as dear, measured with spans that fit the cache."""

_ROW_BITS = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """What is to be known of a memory here; times are microseconds."""

    memory_id: str
    space: Space
    tags: tuple[str, ...]
    confidence: float
    created_at: int
    expires_at: int | None
    vectors: tuple[Vector, ...]


class Block:
    """Rows of vectors with their columns. Rows are only ever appended; `bury` replaces the column it changes."""

    __slots__ = ("confidence", "created_at", "dead", "earliest_expiry", "expires_at", "group", "ids", "tagset", "vectors")

    def __init__(self, *, capacity: int, dimension: int) -> None:
        self.vectors: Floats = np.empty((capacity, dimension), dtype=np.float32)
        self.group = np.empty(capacity, dtype=np.int32)
        self.tagset = np.empty(capacity, dtype=np.int32)
        self.confidence = np.empty(capacity, dtype=np.float64)
        self.created_at = np.empty(capacity, dtype=np.int64)
        self.expires_at = np.empty(capacity, dtype=np.int64)
        self.earliest_expiry: int = _NEVER
        self.ids: list[str] = []
        self.dead = 0

    @property
    def room(self) -> int:
        return len(self.group) - len(self.ids)

    def append(self, point: Point, *, group: int, tagset: int) -> None:
        """Add a row for each vector of *point*; there must be room."""
        start = len(self.ids)
        stop = start + len(point.vectors)
        self.vectors[start:stop] = np.frombuffer(b"".join(point.vectors), dtype="<f4").reshape(stop - start, -1)
        self.group[start:stop] = group
        self.tagset[start:stop] = tagset
        self.confidence[start:stop] = point.confidence
        self.created_at[start:stop] = point.created_at
        expires_at = _NEVER if point.expires_at is None else point.expires_at
        self.expires_at[start:stop] = expires_at
        self.earliest_expiry = min(self.earliest_expiry, expires_at)
        self.ids += [point.memory_id] * (stop - start)

    def bury(self, rows: list[int]) -> None:
        """Take *rows* out of every later query; one that runs now goes on seeing them."""
        self.group = self.group.copy()
        self.group[rows] = DEAD
        self.dead += len(rows)

    def compacted(self) -> Block:
        """Return a block of the same capacity with the living rows, in order."""
        used = len(self.ids)
        living = np.flatnonzero(self.group[:used] != DEAD)
        block = Block(capacity=len(self.group), dimension=self.vectors.shape[1])
        count = len(living)
        np.take(self.vectors, living, axis=0, out=block.vectors[:count], mode="clip")
        block.group[:count] = self.group[living]
        block.tagset[:count] = self.tagset[living]
        block.confidence[:count] = self.confidence[living]
        block.created_at[:count] = self.created_at[living]
        block.expires_at[:count] = self.expires_at[living]
        block.ids = [self.ids[row] for row in living.tolist()]
        block.earliest_expiry = int(block.expires_at[:count].min(initial=_NEVER))
        return block

    def frozen(self) -> Page:
        """Return the block as it is now."""
        return Page(block=self, group=self.group, used=len(self.ids), earliest_expiry=self.earliest_expiry)


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A block as one query sees it."""

    block: Block
    group: npt.NDArray[np.int32]
    used: int
    earliest_expiry: int

    def spans(self) -> Iterator[Span]:
        """Cut the page into pieces of work of about one size."""
        pieces = max(1, round(self.used / _SPAN_ROWS))
        edges = [self.used * piece // pieces for piece in range(pieces + 1)]
        return (Span(page=self, start=start, stop=stop) for start, stop in pairwise(edges))


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Neighbouring rows of a page."""

    page: Page
    start: int
    stop: int

    def score(self, vector: Floats, sieve: Sieve) -> Scored:
        """
        Score the rows that *sieve* lets through; unless it lets few through, by scoring all.

        `vecdot` takes row by row, so equal vectors score equal wherever they lie (ties are broken by id), unlike a
        matrix product; and OpenBLAS gives it no threads of its own, which would spin between queries.
        """
        seen = slice(self.start, self.stop)
        block = self.page.block
        keep: Mask = sieve.groups.take(self.page.group[seen])
        if sieve.tagsets is not None:
            keep &= sieve.tagsets.take(block.tagset[seen])
        if self.page.earliest_expiry <= sieve.at:
            keep &= block.expires_at[seen] > sieve.at
        if sieve.since is not None:
            keep &= block.created_at[seen] >= sieve.since
        if sieve.until is not None:
            keep &= block.created_at[seen] < sieve.until
        if sieve.min_confidence is not None:
            keep &= block.confidence[seen] >= sieve.min_confidence
        rows = np.flatnonzero(keep)
        span = block.vectors[seen]
        if len(rows) == 0:
            scores = _NO_SCORES
        elif len(rows) * _GATHERING < len(span):
            scores = np.vecdot(span.take(rows, axis=0), vector)
        else:
            scores = np.vecdot(span, vector)[rows]
        return Scored(span=self, scores=scores, rows=rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """The rows of a span that a query sees, counted from its start, with their scores."""

    span: Span
    scores: Floats
    rows: Rows

    def ids(self, places: Rows) -> list[str]:
        """Return whose rows lie at *places* of `rows`."""
        ids = self.span.page.block.ids
        return [ids[row] for row in (self.rows[places] + self.span.start).tolist()]


_NO_SCORES: Floats = np.empty(0, dtype=np.float32)


@dataclass(frozen=True, slots=True, kw_only=True)
class Crew:
    """Threads that help a query with a large slab, if they have nothing else to do."""

    pool: ThreadPoolExecutor
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A slab at one moment, as far as a query may see it; any thread may use it while the slab goes on changing."""

    pages: tuple[Page, ...]
    sieve: Sieve

    def nearest(self, vector: Floats, *, limit: int, crew: Crew | None) -> list[Near]:
        """Return at most *limit* memories by their best row, most similar first, ties by id."""
        scored = _score([span for page in self.pages for span in page.spans()], vector, self.sieve, crew)
        scores = np.concatenate([one.scores for one in scored]) if scored else _NO_SCORES
        wanted = limit
        while wanted < len(scores):
            cutoff = np.partition(scores, -wanted)[-wanted]
            best = _best_of(scored, cutoff)
            if len(best) >= limit:
                break
            wanted *= 4  # some memories took several places with their chunks
        else:
            best = _best_of(scored, np.float32(-np.inf))
        order = sorted(best.items(), key=lambda item: (-item[1], item[0]))
        return [Near(memory_id=memory_id, similarity=_clamped(score)) for memory_id, score in order[:limit]]


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

    def view(self, within: Within) -> View:
        """Return what a query of *within* sees now."""
        return View(pages=tuple(block.frozen() for block in self._blocks.values() if block.ids), sieve=self._facets.sieve(within))

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
                found[memory_id] = max(found.get(memory_id, -1.0), _clamped(score))
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


def _score(spans: Sequence[Span], vector: Floats, sieve: Sieve, crew: Crew | None) -> list[Scored]:
    """Score *spans* in this thread, and in others as far as they come to it; numpy releases the interpreter's lock."""
    todo = list(spans)
    done: list[Scored] = []

    def work() -> None:
        while True:
            try:
                span = todo.pop()
            except IndexError:
                return
            done.append(span.score(vector, sieve))

    helping = [crew.pool.submit(work) for _ in range(min(crew.size, len(spans) - 1))] if crew else []
    work()
    for helper in helping:
        if not helper.cancel():
            helper.result()
    return done


def _best_of(scored: Sequence[Scored], cutoff: np.float32) -> dict[str, float]:
    best: dict[str, float] = {}
    for one in scored:
        places = np.flatnonzero(one.scores >= cutoff)
        if len(places) == 0:
            continue
        for memory_id, score in zip(one.ids(places), one.scores[places].tolist(), strict=True):
            if score > best.get(memory_id, -2.0):
                best[memory_id] = score
    return best


def _clamped(similarity: float) -> float:
    return max(-1.0, min(1.0, similarity))
