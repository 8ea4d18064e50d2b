"""
Compare the memories of a workspace exactly, with one matrix product per block of a space.

A matrix product scores many times more pairs per second than single queries, and numpy releases the GIL meanwhile. It rounds differently
from a product of two vectors, so similarities near the threshold are computed again in float64. The vectors are read once, space by space,
into an unlinked file, so nothing is left however the process ends.

OpenBLAS is limited to one thread, since its threads spin while they wait for each other at the end of a product. Measured at 100,000
memories of 200 spaces beside other work on two cores: 129 s and 56 s of CPU with two threads, 31 and 10 with one.
"""

from __future__ import annotations

import asyncio
import tempfile
import threading
from collections.abc import AsyncGenerator, AsyncIterable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO, TypeVar

import numpy as np
import numpy.typing as npt
from threadpoolctl import ThreadpoolController

from rookery.kernel.errors import EngineUnavailable
from rookery.memory.ports import SpaceRow, VectorIndex

T = TypeVar("T")
Floats = npt.NDArray[np.float32]
Longs = npt.NDArray[np.int64]

_FETCHED_MEMORIES = 256
"""Memories per read of the index; some milliseconds, between which a run can be cancelled."""

_NO_SIMILARITY = -2.0
"""Lower than any similarity."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonLimits:
    """
    The sizes of the steps of a comparison.

    Attributes:
        query_rows: Maximum rows of the queries of a product.
        block_rows: Maximum rows that they are compared with: 8 MB of products, and 1.6 GFLOP at 384 dimensions.
        step_products: Minimum products of one step in a thread; small spaces are combined.
        max_pairs: Number of pairs above which they are reduced to the best ones.
    """

    query_rows: int = 1024
    block_rows: int = 2048
    step_products: int = 2_000_000
    max_pairs: int = 262_144


class MemoryComparison:
    """
    The vectors of some memories; a `memory.ports.VectorComparison`. All calls come from one event loop, one at a time.

    Memories are numbered in the order of their spaces. Those without vectors, or alone in their space, are left out.
    """

    def __init__(self, folder: Path | None, limits: ComparisonLimits) -> None:
        self._file: BinaryIO = tempfile.TemporaryFile(prefix="vectors-copy-", dir=folder, buffering=0)  # noqa: SIM115 - `close` closes it
        self._limits = limits
        self._lock = threading.Lock()
        self._names: npt.NDArray[np.bytes_] = np.empty(0, dtype="S1")
        self._sorted_numbers: Longs = np.empty(0, dtype=np.int64)
        self._first_rows: Longs = np.zeros(1, dtype=np.int64)
        """First row of each memory, and the total number of rows."""
        self._space_bounds: Longs = np.zeros(1, dtype=np.int64)
        """First memory of each space, and the total number of memories."""
        self._vectors: Floats = np.empty((0, 0), dtype=np.float32)
        self._excluded: npt.NDArray[np.bool_] = np.empty(0, dtype=np.bool_)
        self._blas_limit = ThreadpoolController().limit(limits=1, user_api="blas")  # pyright: ignore[reportUnknownMemberType] - it has no types

    async def fill(self, index: VectorIndex, workspace_id: int, batches: AsyncIterable[Sequence[SpaceRow]]) -> None:
        """Copy the vectors of the memories in *batches*."""
        names, spaces = list[bytes](), list[int]()
        numbers_by_space = dict[tuple[str | None, ...], int]()
        async for batch in batches:
            names += [memory_id.encode() for memory_id, _ in batch]
            spaces += [numbers_by_space.setdefault(space, len(numbers_by_space)) for _, space in batch]
        all_names, all_spaces = np.array(names or [b""]), np.array(spaces or [0])
        order = np.lexsort((all_names, all_spaces))
        order = order[np.bincount(all_spaces)[all_spaces[order]] > 1]
        sizes = list[int]()
        for start in range(0, len(order), _FETCHED_MEMORIES):
            ids = [name.decode() for name in all_names[order[start : start + _FETCHED_MEMORIES]].tolist()]
            vectors_by_id = await index.fetch(workspace_id, ids)
            content = b"".join(vector for memory_id in ids for vector in vectors_by_id.get(memory_id, ()))
            if await asyncio.to_thread(self._file.write, content) != len(content):
                raise OSError("no disk space for a copy of the vectors")
            sizes += [len(vectors_by_id.get(memory_id, ())) for memory_id in ids]
        counts = np.array(sizes, dtype=np.int64)
        order, counts = order[counts > 0], counts[counts > 0]
        self._names, spaces_in_order = all_names[order], all_spaces[order]
        self._sorted_numbers = np.argsort(self._names)
        self._first_rows = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(counts)])
        edges = np.flatnonzero(np.diff(spaces_in_order)) + 1
        self._space_bounds = np.concatenate([[0], edges, [len(order)]])
        self._excluded = np.zeros(len(order), dtype=np.bool_)
        if len(order):
            self._vectors = np.memmap(self._file, dtype=np.float32, mode="r").reshape(int(self._first_rows[-1]), -1)

    async def close(self) -> None:
        """Delete the copy once no thread reads it."""
        await asyncio.to_thread(self._close)

    async def find_similar(self, ids: Collection[str], *, threshold: float, limit: int) -> Mapping[str, Sequence[str]]:
        steps = self._find_similar(self._get_numbers(ids), threshold, limit)
        while True:  # the caller can be cancelled between two steps
            result = await asyncio.to_thread(self._run_step, steps)
            if result is not None:
                return result[0]

    def exclude(self, ids: Collection[str]) -> None:
        self._excluded[self._get_numbers(ids)] = True

    def _run_step(self, steps: Generator[None, None, T]) -> tuple[T] | None:
        with self._lock:
            try:
                next(steps)
            except StopIteration as end:
                return (end.value,)
            return None

    def _close(self) -> None:
        with self._lock:
            self._vectors = np.empty((0, 0), dtype=np.float32)
            self._file.close()
            self._blas_limit.restore_original_limits()

    def _get_numbers(self, ids: Collection[str]) -> Longs:
        """Return the numbers of *ids* that are in the copy, in order."""
        if not ids or not len(self._names):
            return np.empty(0, dtype=np.int64)
        sorted_names = np.unique(np.array([memory_id.encode() for memory_id in ids]))
        places = np.searchsorted(self._names, sorted_names, sorter=self._sorted_numbers)
        numbers = self._sorted_numbers[np.minimum(places, len(self._names) - 1)]
        return np.sort(numbers[self._names[numbers] == sorted_names])

    def _get_names(self, numbers: Longs) -> list[str]:
        names: list[bytes] = self._names[numbers].tolist()
        return [name.decode() for name in names]

    def _find_similar(self, numbers: Longs, threshold: float, limit: int) -> Generator[None, None, dict[str, list[str]]]:
        similar = dict[str, list[str]]()
        products = 0
        for first, stop, numbers_of_space in self._group_by_space(numbers):
            for batch in self._split(numbers_of_space, max_rows=self._limits.query_rows):
                best = _BestPairs(limit, max_pairs=self._limits.max_pairs)
                for block in self._split(np.arange(first, stop), max_rows=self._limits.block_rows):
                    pairs, product_count = self._compare(batch, block, threshold, limit)
                    best.add(*pairs)
                    products += product_count
                    if products >= self._limits.step_products:
                        products = 0
                        yield
                for name, other in zip(*map(self._get_names, best.pairs()), strict=True):
                    similar.setdefault(name, []).append(other)
        return similar

    def _group_by_space(self, numbers: Longs) -> Iterator[tuple[int, int, Longs]]:
        """Split ordered *numbers* by space. Yield (first number of the space, number after its last, numbers)."""
        spaces = np.searchsorted(self._space_bounds, numbers, side="right") - 1
        for start, stop in pairwise([0, *(np.flatnonzero(np.diff(spaces)) + 1).tolist(), len(numbers)] if len(numbers) else []):
            space = int(spaces[start])
            yield int(self._space_bounds[space]), int(self._space_bounds[space + 1]), numbers[start:stop]

    def _split(self, numbers: Longs, *, max_rows: int) -> Iterator[Longs]:
        """Split *numbers* into batches of at most *max_rows* rows, or of one memory."""
        ends = np.cumsum(self._first_rows[numbers + 1] - self._first_rows[numbers])
        start = 0
        while start < len(numbers):
            before = 0 if start == 0 else int(ends[start - 1])
            stop = max(start + 1, int(np.searchsorted(ends, before + max_rows, side="right")))
            yield numbers[start:stop]
            start = stop

    def _read(self, numbers: Longs) -> tuple[Floats, Longs]:
        """Return the vectors of *numbers*, and the first row of each."""
        first_rows = self._first_rows[numbers]
        sizes = self._first_rows[numbers + 1] - first_rows
        starts = np.cumsum(sizes) - sizes
        return self._vectors[np.arange(int(sizes.sum())) + np.repeat(first_rows - starts, sizes)], starts

    def _compare(self, batch: Longs, block: Longs, threshold: float, limit: int) -> tuple[tuple[Longs, Longs, Floats], int]:
        """Return pairs above *threshold* as (number in *batch*, number in *block*, similarity), and the number of products."""
        batch_vectors, batch_starts = self._read(batch)
        block_vectors, block_starts = self._read(block)
        rounding_error = self._vectors.shape[1] * 2.0**-23  # of a dot product of vectors of about unit length
        scores: Floats = np.matmul(batch_vectors, block_vectors.T)
        if len(block_starts) < len(block_vectors):
            scores = np.maximum.reduceat(scores, block_starts, axis=1)
        if len(batch_starts) < len(batch_vectors):
            scores = np.maximum.reduceat(scores, batch_starts, axis=0)
        first, width = int(block[0]), len(block)
        own_columns = batch - first
        own_rows = np.flatnonzero((own_columns >= 0) & (own_columns < width))
        scores[own_rows, own_columns[own_rows]] = _NO_SIMILARITY
        hits = (scores > threshold - rounding_error) & ~self._excluded[first : first + width]
        if np.count_nonzero(hits) > self._limits.max_pairs and width > limit:
            scores[~hits] = _NO_SIMILARITY
            mask = np.zeros_like(hits)
            np.put_along_axis(mask, np.argsort(-scores, axis=1, kind="stable")[:, :limit], values=True, axis=1)
            hits &= mask
        rows, columns = np.nonzero(hits)
        values = scores[rows, columns]
        keep = np.ones(len(values), dtype=np.bool_)
        for index in np.flatnonzero(values <= threshold + rounding_error).tolist():
            one, _ = self._read(batch[rows[index : index + 1]])
            other, _ = self._read(block[columns[index : index + 1]])
            keep[index] = min(1.0, float((one.astype(np.float64) @ other.astype(np.float64).T).max())) > threshold
        return (batch[rows[keep]], block[columns[keep]], values[keep]), len(batch_vectors) * len(block_vectors)


class _BestPairs:
    """Pairs of similar memories, limited to the best *limit* per memory; of equal ones those with the lowest number."""

    def __init__(self, limit: int, *, max_pairs: int) -> None:
        self._limit = limit
        self._max_pairs = max_pairs
        self._parts = [(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64), np.empty(0, dtype=np.float32))]
        self._count = 0

    def add(self, numbers: Longs, others: Longs, values: Floats) -> None:
        self._parts.append((numbers, others, values))
        self._count += len(numbers)
        if self._count > self._max_pairs:
            self._truncate()

    def pairs(self) -> tuple[Longs, Longs]:
        """Return (numbers, numbers of their similar memories)."""
        self._truncate()
        return self._parts[0][:2]

    def _truncate(self) -> None:
        numbers, others, values = (np.concatenate(parts) for parts in zip(*self._parts, strict=True))
        order = np.lexsort((others, -values, numbers))
        numbers, others, values = numbers[order], others[order], values[order]
        starts = np.flatnonzero(np.append(True, numbers[1:] != numbers[:-1]))[: len(numbers)]
        rank = np.arange(len(numbers)) - np.repeat(starts, np.diff(np.append(starts, len(numbers))))
        keep = rank < self._limit
        self._parts = [(numbers[keep], others[keep], values[keep])]
        self._count = len(self._parts[0][0])


@asynccontextmanager
async def open_comparison(
    index: VectorIndex,
    workspace_id: int,
    batches: AsyncIterable[Sequence[SpaceRow]],
    *,
    folder: Path | None = None,
    limits: ComparisonLimits | None = None,
) -> AsyncGenerator[MemoryComparison]:
    """
    Open a comparison of the memories in *batches*, with a temporary copy of their vectors in *folder*.

    Raises:
        EngineUnavailable: The index is down, or the copy could not be written.
    """
    comparison: MemoryComparison | None = None
    try:
        try:
            comparison = MemoryComparison(folder, limits or ComparisonLimits())
            await comparison.fill(index, workspace_id, batches)
        except OSError as error:
            reason = f"the vectors could not be copied for a comparison: {error.strerror or error}"
            raise EngineUnavailable("vectors", reason) from error
        yield comparison
    finally:
        if comparison is not None:
            await comparison.close()
