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

from rookery.engines.vectors.copies import Copy, Floats, Longs, Stack
from rookery.engines.vectors.file import Part, VectorFile
from rookery.kernel.errors import EngineUnavailable

T = TypeVar("T")

_ASKED_ROWS = 1024
_BLOCK_ROWS = 2048
"""At most so many rows against so many: 8 MB of products, and 1.6 GFLOP at 384 dimensions, some hundredths of a second."""

_STEP = 2_000_000
"""So many products, at least, are a piece of work for a thread: small spaces go together."""

_NONE = -2.0
"""Less than any similarity."""

_KEPT = 262_144
"""More pairs than this are cut down to those that will be told."""


class Copied:
    """A `rookery.memory.ports.Comparing` of a copy; all of it runs on one event loop, a question at a time."""

    def __init__(self, copy: Copy, *, dimension: int, pool: ThreadPoolExecutor) -> None:
        self._copy = copy
        self._pool = pool
        self._lock = threading.Lock()
        self._slack = dimension * 2.0**-23
        """By so much at most a sum of so many floats is wrong, of vectors about as long as one."""
        self._left_out: npt.NDArray[np.bool_] = np.empty(0, dtype=np.bool_)
        self._is_closed = False
        self._limit = ThreadpoolController().limit(limits=1, user_api="blas")  # pyright: ignore[reportUnknownMemberType] - it has no types

    async def fill(self, file: VectorFile, of: Part) -> None:
        """Make the copy."""
        await self._through(self._copy.fill(file, of))
        self._left_out = np.zeros(len(self._copy), dtype=np.bool_)

    async def close(self) -> None:
        """Let go of the copy, once no thread reads it any more."""
        await asyncio.get_running_loop().run_in_executor(self._pool, self._close)

    async def alike(self, ids: Collection[str], *, above: float, most: int) -> Mapping[str, Sequence[str]]:
        return await self._through(self._alike(tuple(ids), above, most))

    def leave_out(self, ids: Collection[str]) -> None:
        self._left_out[self._copy.numbers(ids)] = True

    async def _through(self, steps: Generator[None, None, T]) -> T:
        """Go through *steps*, each in a thread: between two of them the caller may be cancelled."""
        loop = asyncio.get_running_loop()
        try:
            while True:
                end = await loop.run_in_executor(self._pool, partial(self._step, steps))
                if end is not None:
                    return end[0]
        except OSError as error:
            raise EngineUnavailable("vectors", f"a copy of the vectors to compare: {error.strerror or error}") from error

    def _step(self, steps: Generator[None, None, T]) -> tuple[T] | None:
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
            self._copy.close()
            self._limit.restore_original_limits()

    def _alike(self, ids: Sequence[str], above: float, most: int) -> Generator[None, None, dict[str, list[str]]]:
        found = dict[str, list[str]]()
        products = 0
        for first, stop, asked in self._copy.by_space(self._copy.numbers(ids)):
            for piece in self._copy.pieces(asked, rows=_ASKED_ROWS):
                mine, best = self._copy.stack(piece), _Best(most)
                for block in self._copy.pieces(np.arange(first, stop), rows=_BLOCK_ROWS):
                    theirs = self._copy.stack(block)
                    best.add(*self._compared(mine, theirs, above, most))
                    products += len(mine.vectors) * len(theirs.vectors)
                    if products >= _STEP:
                        products = 0
                        yield
                found |= self._told(best)
        return found

    def _compared(self, mine: Stack, theirs: Stack, above: float, most: int) -> tuple[Longs, Longs, Floats]:
        """Return who of *mine* is like whom of *theirs*, and how much; at least the *most* of each that are most so."""
        scores: Floats = np.matmul(mine.vectors, theirs.vectors.T)
        if not theirs.is_single:
            scores = np.maximum.reduceat(scores, theirs.starts, axis=1)
        if not mine.is_single:
            scores = np.maximum.reduceat(scores, mine.starts, axis=0)
        first, width = int(theirs.numbers[0]), scores.shape[1]
        own = mine.numbers - first
        inside = np.flatnonzero((own >= 0) & (own < width))
        scores[inside, own[inside]] = _NONE
        hits = scores > above - self._slack
        out = self._left_out[first : first + width]
        if out.any():
            hits &= ~out
        if np.count_nonzero(hits) > _KEPT and width > most:
            scores[~hits] = _NONE
            places = np.argpartition(scores, width - most, axis=1)[:, width - most :]
            chosen = np.zeros_like(hits)
            np.put_along_axis(chosen, places, values=True, axis=1)
            hits &= chosen
        rows, columns = np.divmod(np.flatnonzero(hits), width)
        values = scores[rows, columns]
        close = np.flatnonzero(values <= above + self._slack)
        if len(close):
            keep = np.ones(len(values), dtype=np.bool_)
            for at in close.tolist():
                keep[at] = _similarity(mine.of(int(rows[at])), theirs.of(int(columns[at]))) > above
            rows, columns, values = rows[keep], columns[keep], values[keep]
        return mine.numbers[rows], theirs.numbers[columns], values

    def _told(self, best: _Best) -> dict[str, list[str]]:
        asked, others = best.pairs()
        told = dict[str, list[str]]()
        for name, other in zip(self._copy.names(asked), self._copy.names(others), strict=True):
            told.setdefault(name, []).append(other)
        return told


class _Best:
    """Pairs of memories that are alike, as many of each as are wanted: the most similar, of equals those of the lowest number."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._parts = list[tuple[Longs, Longs, Floats]]()
        self._count = 0

    def add(self, asked: Longs, others: Longs, values: Floats) -> None:
        if len(asked):
            self._parts.append((asked, others, values))
            self._count += len(asked)
        if self._count > _KEPT:
            self._cut()

    def pairs(self) -> tuple[Longs, Longs]:
        """Return who is like whom."""
        if not self._parts:
            return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
        self._cut()
        asked, others, _ = self._parts[0]
        return asked, others

    def _cut(self) -> None:
        asked, others, values = (np.concatenate(each) for each in zip(*self._parts, strict=True))
        order = np.lexsort((others, -values, asked))
        asked, others, values = asked[order], others[order], values[order]
        starts = np.flatnonzero(np.append(True, asked[1:] != asked[:-1]))
        rank = np.arange(len(asked)) - np.repeat(starts, np.diff(np.append(starts, len(asked))))
        keep = rank < self._most
        self._parts = [(asked[keep], others[keep], values[keep])]
        self._count = len(self._parts[0][0])


def _similarity(mine: Floats, theirs: Floats) -> float:
    """Return the similarity of the two most similar of *mine* and *theirs*, in doubles."""
    return min(1.0, float((mine.astype(np.float64) @ theirs.astype(np.float64).T).max()))
