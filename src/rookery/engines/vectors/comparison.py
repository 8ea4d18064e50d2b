"""
Compare the memories of a workspace exactly, with one matrix product per block of a space (D-52).

A matrix product scores many times more pairs per second than single queries, and numpy releases the GIL meanwhile. It rounds differently
from a product of two vectors, so similarities near the threshold are computed again in float64.

OpenBLAS is limited to one thread, since its threads spin while they wait for each other at the end of a product. Measured at 100,000
memories of 200 spaces beside other work on two cores: 129 s and 56 s of CPU with two threads, 31 and 10 with one.
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
"""Maximum rows of a product: 8 MB of products, and 1.6 GFLOP at 384 dimensions, some hundredths of a second."""

_PRODUCTS_PER_STEP = 2_000_000
"""Minimum products of one step in a thread; small spaces are combined."""

_NO_SIMILARITY = -2.0
"""Lower than any similarity."""

_MAX_PAIRS = 262_144
"""Number of pairs above which they are reduced to the best ones."""


class EmbeddedComparison:
    """A `memory.ports.VectorComparison` over a copy of the vectors. All calls come from one event loop, one at a time."""

    def __init__(self, matrix: TempMatrix, *, dimension: int, pool: ThreadPoolExecutor) -> None:
        self._matrix = matrix
        self._pool = pool
        self._lock = threading.Lock()
        self._rounding_error = dimension * 2.0**-23
        """Maximum rounding error of a dot product of *dimension* floats, for vectors of about unit length."""
        self._excluded: npt.NDArray[np.bool_] = np.empty(0, dtype=np.bool_)
        self._is_closed = False
        self._blas_limit = ThreadpoolController().limit(limits=1, user_api="blas")  # pyright: ignore[reportUnknownMemberType] - it has no types

    async def fill(self, file: VectorFile, workspace_part: WorkspacePart) -> None:
        """Create the copy."""
        await self._run_steps(self._matrix.fill(file, workspace_part))
        self._excluded = np.zeros(len(self._matrix), dtype=np.bool_)

    async def close(self) -> None:
        """Delete the copy once no thread reads it."""
        await asyncio.get_running_loop().run_in_executor(self._pool, self._close)

    async def find_similar(self, ids: Collection[str], *, threshold: float, limit: int) -> Mapping[str, Sequence[str]]:
        return await self._run_steps(self._find_similar(tuple(ids), threshold, limit))

    def exclude(self, ids: Collection[str]) -> None:
        self._excluded[self._matrix.get_numbers(ids)] = True

    async def _run_steps(self, steps: Generator[None, None, T]) -> T:
        """Run each of *steps* in a thread. The caller can be cancelled between two steps."""
        loop = asyncio.get_running_loop()
        try:
            while True:
                result = await loop.run_in_executor(self._pool, partial(self._run_step, steps))
                if result is not None:
                    return result[0]
        except OSError as error:
            raise EngineUnavailable("vectors", f"the vectors could not be copied for a comparison: {error.strerror or error}") from error

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
        similar = dict[str, list[str]]()
        products = 0
        for first, stop, numbers in self._matrix.group_by_space(self._matrix.get_numbers(ids)):
            for batch in self._matrix.split_numbers(numbers, max_rows=_QUERY_BLOCK_ROWS):
                batch_stack, best = self._matrix.read_stack(batch), _BestPairs(limit)
                for block in self._matrix.split_numbers(np.arange(first, stop), max_rows=_BLOCK_ROWS):
                    block_stack = self._matrix.read_stack(block)
                    best.add(*self._compare_stacks(batch_stack, block_stack, threshold, limit))
                    products += len(batch_stack.vectors) * len(block_stack.vectors)
                    if products >= _PRODUCTS_PER_STEP:
                        products = 0
                        yield
                similar |= self._names_by_memory(best)
        return similar

    def _compare_stacks(
        self, batch_stack: VectorStack, block_stack: VectorStack, threshold: float, limit: int
    ) -> tuple[Longs, Longs, Floats]:
        """Return pairs above *threshold* as (number in the batch, number in the block, similarity); at least the best *limit* of each."""
        scores: Floats = np.matmul(batch_stack.vectors, block_stack.vectors.T)
        if not block_stack.is_single:
            scores = np.maximum.reduceat(scores, block_stack.starts, axis=1)
        if not batch_stack.is_single:
            scores = np.maximum.reduceat(scores, batch_stack.starts, axis=0)
        first, width = int(block_stack.memory_numbers[0]), scores.shape[1]
        own_columns = batch_stack.memory_numbers - first
        own_rows = np.flatnonzero((own_columns >= 0) & (own_columns < width))
        scores[own_rows, own_columns[own_rows]] = _NO_SIMILARITY
        hits = scores > threshold - self._rounding_error
        excluded_mask = self._excluded[first : first + width]
        if excluded_mask.any():
            hits &= ~excluded_mask
        if np.count_nonzero(hits) > _MAX_PAIRS and width > limit:
            scores[~hits] = _NO_SIMILARITY
            places = np.argpartition(scores, width - limit, axis=1)[:, width - limit :]
            mask = np.zeros_like(hits)
            np.put_along_axis(mask, places, values=True, axis=1)
            hits &= mask
        rows, columns = np.divmod(np.flatnonzero(hits), width)
        values = scores[rows, columns]
        borderline = np.flatnonzero(values <= threshold + self._rounding_error)
        if len(borderline):
            keep = np.ones(len(values), dtype=np.bool_)
            for index in borderline.tolist():
                keep[index] = (
                    _max_similarity(batch_stack.get_vectors(int(rows[index])), block_stack.get_vectors(int(columns[index]))) > threshold
                )
            rows, columns, values = rows[keep], columns[keep], values[keep]
        return batch_stack.memory_numbers[rows], block_stack.memory_numbers[columns], values

    def _names_by_memory(self, best: _BestPairs) -> dict[str, list[str]]:
        numbers, others = best.pairs()
        names = dict[str, list[str]]()
        for name, other in zip(self._matrix.get_names(numbers), self._matrix.get_names(others), strict=True):
            names.setdefault(name, []).append(other)
        return names


class _BestPairs:
    """Pairs of similar memories, limited to the best *limit* per memory; of equal ones those with the lowest number."""

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
        """Return (numbers, numbers of their similar memories)."""
        if not self._parts:
            return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
        self._truncate()
        numbers, others, _ = self._parts[0]
        return numbers, others

    def _truncate(self) -> None:
        numbers, others, values = (np.concatenate(parts) for parts in zip(*self._parts, strict=True))
        order = np.lexsort((others, -values, numbers))
        numbers, others, values = numbers[order], others[order], values[order]
        starts = np.flatnonzero(np.append(True, numbers[1:] != numbers[:-1]))
        rank = np.arange(len(numbers)) - np.repeat(starts, np.diff(np.append(starts, len(numbers))))
        keep = rank < self._limit
        self._parts = [(numbers[keep], others[keep], values[keep])]
        self._count = len(self._parts[0][0])


def _max_similarity(first: Floats, second: Floats) -> float:
    """Return the highest similarity between *first* and *second*, in float64."""
    return min(1.0, float((first.astype(np.float64) @ second.astype(np.float64).T).max()))
