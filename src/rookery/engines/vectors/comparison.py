"""
The memories of a workspace compared with each other, exactly: a matrix product for each block of what lies in one space (D-52).

A product of two matrices scores many times as many pairs a second as questions one by one, and numpy lets go of the interpreter's
lock meanwhile. It rounds otherwise than a product of two vectors: what it puts close to the threshold is computed again in doubles.

OpenBLAS gets one thread: its others wait spinning for each other, at the end of each product. Measured at 100,000 memories of 200
spaces beside other work on two cores: 129 s and 56 s of CPU with two of them, 31 and 10 with one.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Collection, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

import numpy as np
import numpy.typing as npt
from threadpoolctl import ThreadpoolController

from rookery.engines.vectors.temp_matrix import Floats, Longs, TempMatrix, VectorStack
from rookery.engines.vectors.vector_file import VectorFile, WorkspacePart
from rookery.kernel.errors import EngineUnavailable

T = TypeVar("T")

_QUERY_BLOCK_ROWS = 1024
_BLOCK_ROWS = 2048
"""At most so many rows against so many: 8 MB of products, and 1.6 GFLOP at 384 dimensions, some hundredths of a second."""

_PRODUCTS_PER_STEP = 2_000_000
"""So many products, at least, are a piece of work for a thread: small spaces go together."""

_NO_SIMILARITY = -2.0
"""Less than any similarity."""

_MAX_PAIRS = 262_144
"""More pairs than this are cut down to those that will be told."""


class EmbeddedComparison:
    """A `rookery.memory.ports.Comparing` of a copy; all of it runs on one event loop, a question at a time."""

    def __init__(self, matrix: TempMatrix, *, dimension: int, pool: ThreadPoolExecutor) -> None:
        self._matrix = matrix
        self._pool = pool
        self._lock = threading.Lock()
        self._rounding_error = dimension * 2.0**-23
        """By so much at most a sum of so many floats is wrong, of vectors about as long as one."""
        self._excluded: npt.NDArray[np.bool_] = np.empty(0, dtype=np.bool_)
        self._is_closed = False
        self._blas_limit = ThreadpoolController().limit(limits=1, user_api="blas")  # pyright: ignore[reportUnknownMemberType] - it has no types

    async def fill(self, file: VectorFile, workspace_part: WorkspacePart) -> None:
        """Make the copy."""
        await self._run_steps(self._matrix.fill(file, workspace_part))
        self._excluded = np.zeros(len(self._matrix), dtype=np.bool_)

    async def close(self) -> None:
        """Let go of the copy, once no thread reads it any more."""
        await asyncio.get_running_loop().run_in_executor(self._pool, self._close)

    async def find_similar(self, ids: Collection[str], *, threshold: float, limit: int) -> Mapping[str, Sequence[str]]:
        return await self._run_steps(self._find_similar(tuple(ids), threshold, limit))

    def exclude(self, ids: Collection[str]) -> None:
        self._excluded[self._matrix.get_numbers(ids)] = True

    async def _run_steps(self, steps: Generator[None, None, T]) -> T:
        """Go through *steps*, each in a thread: between two of them the caller may be cancelled."""
        loop = asyncio.get_running_loop()
        try:
            while True:
                end = await loop.run_in_executor(self._pool, partial(self._run_step, steps))
                if end is not None:
                    return end[0]
        except OSError as error:
            raise EngineUnavailable("vectors", f"a copy of the vectors to compare: {error.strerror or error}") from error

    def _run_step(self, steps: Generator[None, None, T]) -> tuple[T] | None:
        with self._lock:
            if self._is_closed:
                raise sqlite3.ProgrammingError("the copy of the vectors is closed")
            try:
                next(steps)
            except StopIteration as end:
                return (end.value,)
            return None

    def _close(self) -> None:
        with self._lock:
            self._is_closed = True
            self._matrix.close()
            self._blas_limit.restore_original_limits()

    def _find_similar(self, ids: Sequence[str], threshold: float, limit: int) -> Generator[None, None, dict[str, list[str]]]:
        found = dict[str, list[str]]()
        products = 0
        for first, stop, asked in self._matrix.group_by_space(self._matrix.get_numbers(ids)):
            for piece in self._matrix.split_numbers(asked, max_rows=_QUERY_BLOCK_ROWS):
                mine, best = self._matrix.read_stack(piece), _BestPairs(limit)
                for block in self._matrix.split_numbers(np.arange(first, stop), max_rows=_BLOCK_ROWS):
                    theirs = self._matrix.read_stack(block)
                    best.add(*self._compare_stacks(mine, theirs, threshold, limit))
                    products += len(mine.vectors) * len(theirs.vectors)
                    if products >= _PRODUCTS_PER_STEP:
                        products = 0
                        yield
                found |= self._names_by_memory(best)
        return found

    def _compare_stacks(self, mine: VectorStack, theirs: VectorStack, threshold: float, limit: int) -> tuple[Longs, Longs, Floats]:
        """Return who of *mine* is like whom of *theirs*, and how much; at least the *limit* of each that are most so."""
        scores: Floats = np.matmul(mine.vectors, theirs.vectors.T)
        if not theirs.is_single:
            scores = np.maximum.reduceat(scores, theirs.starts, axis=1)
        if not mine.is_single:
            scores = np.maximum.reduceat(scores, mine.starts, axis=0)
        first, width = int(theirs.memory_numbers[0]), scores.shape[1]
        own = mine.memory_numbers - first
        inside = np.flatnonzero((own >= 0) & (own < width))
        scores[inside, own[inside]] = _NO_SIMILARITY
        hits = scores > threshold - self._rounding_error
        out = self._excluded[first : first + width]
        if out.any():
            hits &= ~out
        if np.count_nonzero(hits) > _MAX_PAIRS and width > limit:
            scores[~hits] = _NO_SIMILARITY
            places = np.argpartition(scores, width - limit, axis=1)[:, width - limit :]
            chosen = np.zeros_like(hits)
            np.put_along_axis(chosen, places, values=True, axis=1)
            hits &= chosen
        rows, columns = np.divmod(np.flatnonzero(hits), width)
        values = scores[rows, columns]
        close = np.flatnonzero(values <= threshold + self._rounding_error)
        if len(close):
            keep = np.ones(len(values), dtype=np.bool_)
            for at in close.tolist():
                keep[at] = _max_similarity(mine.get_vectors(int(rows[at])), theirs.get_vectors(int(columns[at]))) > threshold
            rows, columns, values = rows[keep], columns[keep], values[keep]
        return mine.memory_numbers[rows], theirs.memory_numbers[columns], values

    def _names_by_memory(self, best: _BestPairs) -> dict[str, list[str]]:
        asked, others = best.pairs()
        told = dict[str, list[str]]()
        for name, other in zip(self._matrix.get_names(asked), self._matrix.get_names(others), strict=True):
            told.setdefault(name, []).append(other)
        return told


class _BestPairs:
    """Pairs of memories that are alike, as many of each as are wanted: the most similar, of equals those of the lowest number."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._parts = list[tuple[Longs, Longs, Floats]]()
        self._count = 0

    def add(self, numbers: Longs, others: Longs, values: Floats) -> None:
        if len(numbers):
            self._parts.append((numbers, others, values))
            self._count += len(numbers)
        if self._count > _MAX_PAIRS:
            self._truncate()

    def pairs(self) -> tuple[Longs, Longs]:
        """Return who is like whom."""
        if not self._parts:
            return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
        self._truncate()
        asked, others, _ = self._parts[0]
        return asked, others

    def _truncate(self) -> None:
        asked, others, values = (np.concatenate(each) for each in zip(*self._parts, strict=True))
        order = np.lexsort((others, -values, asked))
        asked, others, values = asked[order], others[order], values[order]
        starts = np.flatnonzero(np.append(True, asked[1:] != asked[:-1]))
        rank = np.arange(len(asked)) - np.repeat(starts, np.diff(np.append(starts, len(asked))))
        keep = rank < self._limit
        self._parts = [(asked[keep], others[keep], values[keep])]
        self._count = len(self._parts[0][0])


def _max_similarity(mine: Floats, theirs: Floats) -> float:
    """Return the similarity of the two most similar of *mine* and *theirs*, in doubles."""
    return min(1.0, float((mine.astype(np.float64) @ theirs.astype(np.float64).T).max()))
