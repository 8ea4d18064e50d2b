"""
The vectors of a workspace copied aside, so that those which may be compared with each other lie side by side (D-52).

They lie in `vectors.db` as they came, those of all spaces mixed, and to read them again for each comparison would cost more than
the comparison. The copy is a file without a name beside it: however its process ends, nothing of it stays.
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
"""Some milliseconds of reading, between which a run can be ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorStack:
    """
    The vectors of some memories.

    Attributes:
        memory_numbers: Of the memories, in order.
        starts: The first row of each.
    """

    memory_numbers: Longs
    vectors: Floats
    starts: Longs

    @property
    def is_single(self) -> bool:
        """Tell whether each has one row."""
        return len(self.starts) == len(self.vectors)

    def get_vectors(self, place: int) -> Floats:
        """Return the vectors of the memory at *place*."""
        stop = self.starts[place + 1] if place + 1 < len(self.starts) else len(self.vectors)
        return self.vectors[self.starts[place] : stop]


class TempMatrix:
    """
    Memories by number, those of a space side by side; one that is alone in its space is not here.

    Blocks. `fill` comes first; whoever calls sees to it that nothing is read while it is closed. Raises `OSError` and `sqlite3.Error`.
    """

    def __init__(self, folder: Path, *, dimension: int) -> None:
        self._dimension = dimension
        self._row_bytes = dimension * 4
        self._folder = folder
        self._file: BinaryIO | None = None
        self._sorted_names: Names = np.empty(0, dtype="S1")
        self._number_by_name: Longs = np.empty(0, dtype=np.int64)
        """Of each in *sorted*, and the other way round in *place*."""
        self._name_by_number: Longs = np.empty(0, dtype=np.int64)
        self._first_rows: Longs = np.zeros(1, dtype=np.int64)
        """The first row of each memory, and how many rows there are."""
        self._space_bounds: Longs = np.zeros(1, dtype=np.int64)
        """The first memory of each space, and how many memories there are."""

    def __len__(self) -> int:
        return len(self._sorted_names)

    def close(self) -> None:
        """Give the disk its room back."""
        if self._file is not None:
            self._file.close()

    def fill(self, file: VectorFile, workspace_part: WorkspacePart) -> Generator[None]:
        """Copy, a piece at a time; what changes in *file* meanwhile is as it was, or as it is, or not here."""
        self._file = tempfile.TemporaryFile(prefix="vectors-copy-", dir=self._folder, buffering=0)  # noqa: SIM115 - `close` does
        changes, names, spaces, sizes = yield from _read_entries(file, workspace_part)
        order = np.lexsort((changes, names))
        names_in_order = names[order]
        order = order[np.append(names_in_order[1:] != names_in_order[:-1], np.ones(min(1, len(order)), dtype=np.bool_))]
        in_space = np.bincount(spaces[order])
        order = order[in_space[spaces[order]] > 1]
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
        """Return the numbers of those of *memory_ids* that are here, in order."""
        if not memory_ids or not len(self):
            return np.empty(0, dtype=np.int64)
        wanted: Names = np.unique(np.array([each.encode() for each in memory_ids]))
        places = np.searchsorted(self._sorted_names, wanted)
        inside = places < len(self)
        places, wanted = places[inside], wanted[inside]
        return np.sort(self._number_by_name[places[self._sorted_names[places] == wanted]])

    def get_names(self, numbers: Longs) -> list[str]:
        """Return whose *numbers* are."""
        names: list[bytes] = self._sorted_names[self._name_by_number[numbers]].tolist()
        return [each.decode() for each in names]

    def group_by_space(self, numbers: Longs) -> Iterator[tuple[int, int, Longs]]:
        """Split *numbers*, in order, by space: each after the first number of its space, and that after its last."""
        spaces = np.searchsorted(self._space_bounds, numbers, side="right") - 1
        edges = [0, *(np.flatnonzero(spaces[1:] != spaces[:-1]) + 1).tolist(), len(numbers)] if len(numbers) else []
        for start, stop in pairwise(edges):
            space = int(spaces[start])
            yield int(self._space_bounds[space]), int(self._space_bounds[space + 1]), numbers[start:stop]

    def split_numbers(self, numbers: Longs, *, max_rows: int) -> Iterator[Longs]:
        """Cut *numbers* into pieces of at most so many rows, or of one memory."""
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
        at = 0
        for start, stop in pairwise(edges):
            end = int(ends[stop - 1])
            self._read(int(self._first_rows[numbers[start]]), vectors[at:end])
            at = end
        return VectorStack(memory_numbers=numbers, vectors=vectors, starts=ends - sizes)

    @property
    def _descriptor(self) -> int:
        if self._file is None:
            raise OSError("there is no copy of the vectors yet")
        return self._file.fileno()

    def _read(self, row: int, into: Floats) -> None:
        view, at = into.data.cast("B"), row * self._row_bytes
        while view:
            read = os.preadv(self._descriptor, [view], at)
            if read == 0:
                raise OSError("the copy of the vectors ended early")
            view, at = view[read:], at + read

    def _copy_vectors(self, file: VectorFile, changes: Longs) -> Generator[None]:
        """Write the vectors of the entries *changes* where they belong, reading them as they lie."""
        order = np.argsort(changes)
        ordered, first, stop = changes[order], self._first_rows[:-1][order], self._first_rows[1:][order]
        for start in range(0, len(ordered), _VECTORS_PER_COPY):
            some: list[int] = ordered[start : start + _VECTORS_PER_COPY].tolist()
            places = {change: (int(first[start + at]), int(stop[start + at])) for at, change in enumerate(some)}
            for change, ordinal, vector in file.get_vectors_by_change(some):
                row = places[change][0] + ordinal
                if row < places[change][1] and os.pwrite(self._descriptor, vector, row * self._row_bytes) != self._row_bytes:
                    raise OSError("no room for a copy of the vectors")
            yield


def _read_entries(file: VectorFile, workspace_part: WorkspacePart) -> Generator[None, None, tuple[Longs, Names, Ints, Longs]]:
    """Read of each entry its change, whose it is, the number of its space, and how many rows it has."""
    known = dict[Sequence[str | None], int]()
    changes, names = [np.empty(0, dtype=np.int64)], [np.empty(0, dtype="S1")]
    spaces, sizes = [np.empty(0, dtype=np.int32)], [np.empty(0, dtype=np.int64)]
    after = 0
    while rows := file.list_spaces(workspace_part, after=after, limit=_ENTRIES_PER_READ):
        after = rows[-1][0]
        changes.append(np.array([change for change, _, _, _ in rows], dtype=np.int64))
        names.append(np.array([name.encode() for _, name, _, _ in rows]))
        spaces.append(np.array([known.setdefault(space, len(known)) for _, _, space, _ in rows], dtype=np.int32))
        sizes.append(np.array([size for _, _, _, size in rows], dtype=np.int64))
        yield
    return np.concatenate(changes), np.concatenate(names), np.concatenate(spaces), np.concatenate(sizes)
