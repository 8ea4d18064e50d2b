"""
A temporary copy of a workspace's vectors, ordered by space for comparisons (D-52).

In `vectors.db` they are in order of insertion, with all spaces mixed, and reading them again for each comparison would cost more than the
comparison. The copy is an unlinked file beside the database, so nothing is left however the process ends.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Collection, Generator, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from rookery.engines.vectors.vector_file import VectorFile, WorkspacePart

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]
Names = npt.NDArray[np.bytes_]

_ENTRIES_PER_READ = 4096
_VECTORS_PER_COPY = 512
"""Vectors per step; some milliseconds of reading, between which a run can be cancelled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorStack:
    """
    Vectors of some memories.

    Attributes:
        memory_numbers: Numbers of the memories, in order.
        starts: First row of each memory.
    """

    memory_numbers: Longs
    vectors: Floats
    starts: Longs

    @property
    def is_single(self) -> bool:
        """True if each memory has one row."""
        return len(self.starts) == len(self.vectors)

    def get_vectors(self, index: int) -> Floats:
        """Return the vectors of the memory at *index*."""
        stop = self.starts[index + 1] if index + 1 < len(self.starts) else len(self.vectors)
        return self.vectors[self.starts[index] : stop]


class TempMatrix:
    """
    Memories by number, with those of a space adjacent. A memory that is alone in its space is omitted.

    Methods block. Call `fill` first. The caller must not read after `close`. Raises `OSError` and `sqlite3.Error`.
    """

    def __init__(self, folder: Path, *, dimension: int) -> None:
        self._dimension = dimension
        self._row_bytes = dimension * 4
        self._folder = folder
        self._file: BinaryIO | None = None
        self._sorted_names: Names = np.empty(0, dtype="S1")
        self._number_by_name: Longs = np.empty(0, dtype=np.int64)
        """Number of the memory of each sorted name; `_name_by_number` is the inverse."""
        self._name_by_number: Longs = np.empty(0, dtype=np.int64)
        self._first_rows: Longs = np.zeros(1, dtype=np.int64)
        """First row of each memory, and the total number of rows."""
        self._space_bounds: Longs = np.zeros(1, dtype=np.int64)
        """First memory of each space, and the total number of memories."""

    def __len__(self) -> int:
        return len(self._sorted_names)

    def close(self) -> None:
        """Delete the file."""
        if self._file is not None:
            self._file.close()

    def fill(self, file: VectorFile, workspace_part: WorkspacePart) -> Generator[None]:
        """Copy the vectors in steps. Entries that change meanwhile are copied in their old or new state, or omitted."""
        self._file = tempfile.TemporaryFile(prefix="vectors-copy-", dir=self._folder, buffering=0)  # noqa: SIM115 - `close` does
        changes, names, spaces, sizes = yield from _read_entries(file, workspace_part)
        order = np.lexsort((changes, names))
        names_in_order = names[order]
        order = order[np.append(names_in_order[1:] != names_in_order[:-1], np.ones(min(1, len(order)), dtype=np.bool_))]
        space_sizes = np.bincount(spaces[order])
        order = order[space_sizes[spaces[order]] > 1]
        self._sorted_names = names[order]
        self._name_by_number = np.argsort(spaces[order], kind="stable")
        self._number_by_name = np.empty(len(order), dtype=np.int64)
        self._number_by_name[self._name_by_number] = np.arange(len(order))
        order = order[self._name_by_number]
        self._first_rows = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(sizes[order])])
        spaces = spaces[order]
        self._space_bounds = (
            np.concatenate([[0], np.flatnonzero(spaces[1:] != spaces[:-1]) + 1, [len(order)]]) if len(order) else self._space_bounds
        )
        os.ftruncate(self._descriptor, int(self._first_rows[-1]) * self._row_bytes)
        yield
        yield from self._copy_vectors(file, changes[order])

    def get_numbers(self, memory_ids: Collection[str]) -> Longs:
        """Return the numbers of *memory_ids* that are in the matrix, in order."""
        if not memory_ids or not len(self):
            return np.empty(0, dtype=np.int64)
        names: Names = np.unique(np.array([memory_id.encode() for memory_id in memory_ids]))
        places = np.searchsorted(self._sorted_names, names)
        in_range = places < len(self)
        places, names = places[in_range], names[in_range]
        return np.sort(self._number_by_name[places[self._sorted_names[places] == names]])

    def get_names(self, numbers: Longs) -> list[str]:
        """Return the memory ids of *numbers*."""
        names: list[bytes] = self._sorted_names[self._name_by_number[numbers]].tolist()
        return [name.decode() for name in names]

    def group_by_space(self, numbers: Longs) -> Iterator[tuple[int, int, Longs]]:
        """Split ordered *numbers* by space. Yield (first number of the space, number after its last, numbers)."""
        spaces = np.searchsorted(self._space_bounds, numbers, side="right") - 1
        edges = [0, *(np.flatnonzero(spaces[1:] != spaces[:-1]) + 1).tolist(), len(numbers)] if len(numbers) else []
        for start, stop in pairwise(edges):
            space = int(spaces[start])
            yield int(self._space_bounds[space]), int(self._space_bounds[space + 1]), numbers[start:stop]

    def split_numbers(self, numbers: Longs, *, max_rows: int) -> Iterator[Longs]:
        """Split *numbers* into batches of at most *max_rows* rows, or of one memory."""
        ends = np.cumsum(self._first_rows[numbers + 1] - self._first_rows[numbers])
        start = 0
        while start < len(numbers):
            before = 0 if start == 0 else int(ends[start - 1])
            stop = max(start + 1, int(np.searchsorted(ends, before + max_rows, side="right")))
            yield numbers[start:stop]
            start = stop

    def read_stack(self, numbers: Longs) -> VectorStack:
        """Read the vectors of *numbers*, which are in order."""
        sizes = self._first_rows[numbers + 1] - self._first_rows[numbers]
        ends = np.cumsum(sizes)
        vectors: Floats = np.empty((int(ends[-1]), self._dimension), dtype=np.float32)
        edges = [0, *(np.flatnonzero(np.diff(numbers) != 1) + 1).tolist(), len(numbers)]
        offset = 0
        for start, stop in pairwise(edges):
            end = int(ends[stop - 1])
            self._read(int(self._first_rows[numbers[start]]), vectors[offset:end])
            offset = end
        return VectorStack(memory_numbers=numbers, vectors=vectors, starts=ends - sizes)

    @property
    def _descriptor(self) -> int:
        if self._file is None:
            raise OSError("the copy of the vectors does not exist yet")
        return self._file.fileno()

    def _read(self, row: int, into: Floats) -> None:
        view, at = into.data.cast("B"), row * self._row_bytes
        while view:
            read = os.preadv(self._descriptor, [view], at)
            if read == 0:
                raise OSError("the copy of the vectors is truncated")
            view, at = view[read:], at + read

    def _copy_vectors(self, file: VectorFile, changes: Longs) -> Generator[None]:
        """Write the vectors of the entries *changes* to their rows, reading them in the order of the database."""
        order = np.argsort(changes)
        ordered, first, stop = changes[order], self._first_rows[:-1][order], self._first_rows[1:][order]
        for start in range(0, len(ordered), _VECTORS_PER_COPY):
            batch: list[int] = ordered[start : start + _VECTORS_PER_COPY].tolist()
            rows_by_change = {change: (int(first[start + index]), int(stop[start + index])) for index, change in enumerate(batch)}
            for change, ordinal, vector in file.get_vectors_by_change(batch):
                row = rows_by_change[change][0] + ordinal
                if row < rows_by_change[change][1] and os.pwrite(self._descriptor, vector, row * self._row_bytes) != self._row_bytes:
                    raise OSError("no disk space for a copy of the vectors")
            yield


def _read_entries(file: VectorFile, workspace_part: WorkspacePart) -> Generator[None, None, tuple[Longs, Names, Ints, Longs]]:
    """Return (change, memory id, space number, row count) of all entries, as arrays."""
    space_numbers = dict[Sequence[str | None], int]()
    changes, names = [np.empty(0, dtype=np.int64)], [np.empty(0, dtype="S1")]
    spaces, sizes = [np.empty(0, dtype=np.int32)], [np.empty(0, dtype=np.int64)]
    after = 0
    while rows := file.list_spaces(workspace_part, after=after, limit=_ENTRIES_PER_READ):
        after = rows[-1][0]
        changes.append(np.array([change for change, _, _, _ in rows], dtype=np.int64))
        names.append(np.array([name.encode() for _, name, _, _ in rows]))
        spaces.append(np.array([space_numbers.setdefault(space, len(space_numbers)) for _, _, space, _ in rows], dtype=np.int32))
        sizes.append(np.array([size for _, _, _, size in rows], dtype=np.int64))
        yield
    return np.concatenate(changes), np.concatenate(names), np.concatenate(spaces), np.concatenate(sizes)
