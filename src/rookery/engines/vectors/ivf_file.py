"""
The file format of inverted lists (IVF): vectors of a large workspace around centroids. A mapped, immutable cache of `vectors.db`.

Rows are ordered by list and then by group, so that a query reads contiguous rows. Every other field of a row has a column. A file contains
the changes of `vectors.db` up to a number. Later changes and deletions are tracked by the process that opens it.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import zlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar, cast

import numpy as np
import numpy.typing as npt
import orjson

from rookery.engines.vectors.filter_mask import ColumnDict, Space
from rookery.memory.ports import ModelVersion

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int32]
Keys = npt.NDArray[np.uint32]
Longs = npt.NDArray[np.int64]
Doubles = npt.NDArray[np.float64]
Names = npt.NDArray[np.bytes_]
S = TypeVar("S", bound=np.generic)

FORMAT_VERSION: Final = 3
NEVER_MICROS: Final = int(np.iinfo(np.int64).max)
SUFFIX: Final = ".lists"
_MAGIC: Final = b"rookery lists\n\0\0"
_ALIGNMENT_BYTES: Final = 4096
_PREFIX_BYTES: Final = len(_MAGIC) + 8 + 32


class IvfFileError(Exception):
    """The file is invalid; the message contains the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowColumns:
    """
    Columns of all rows, in order, without the vectors. Times are in microseconds.

    Attributes:
        change: Number of the entry in `vectors.db` that the row is a chunk of.
        ids: Memory ids in UTF-8.
        group: Number of the row's space in *spaces*, from 1 on, as in `ColumnDict`.
        tagset: Index of the row's tag set in *tagsets*.
    """

    change: Longs
    ids: Names
    group: Ints
    tagset: Ints
    confidence: Doubles
    created_at: Longs
    expires_at: Longs
    spaces: Sequence[Space]
    tagsets: Sequence[tuple[str, ...]]


class IvfFile:
    """
    An open, mapped file. Raises `IvfFileError`.

    Attributes:
        last_change: Last change that the file contains.
        made_at_s: Time of creation, by the clock of the machine.
        trained_row_count: Number of rows for which the centroids were computed.
        list_ends: End row of each list.
        by_group: Rows ordered by group; *group_ends* has the end of each group.
        by_id: Rows ordered by *keys*, which are checksums of memory ids with a tenth of their length.
        earliest_expiry: Earliest expiry of all rows; `NEVER_MICROS` without one.
    """

    def __init__(self, path: Path, *, workspace_id: int, model_version: ModelVersion) -> None:
        self.path = path
        try:
            with path.open("rb") as file:
                self._mmap = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
                self.made_at_s = os.fstat(file.fileno()).st_mtime
        except (OSError, ValueError) as error:
            raise IvfFileError(str(error)) from error
        header = _read_header(self._mmap)
        if header["of"] != _owner_header(workspace_id, model_version):
            raise IvfFileError("it belongs to another workspace or model")
        self._arrays = cast("Mapping[str, tuple[str, list[int], int]]", header["arrays"])
        self._checksums = cast("Mapping[str, int]", header["sums"])
        self.last_change = cast("int", header["upto"])
        self.trained_row_count = cast("int", header["trained"])
        self.earliest_expiry = cast("int", header["earliest_expiry"])
        self.vectors: Floats = self._read_array("vectors", np.float32)
        self.centroids: Floats = self._read_array("centroids", np.float32)
        self.list_ends: Longs = self._read_array("ends", np.int64)
        self.by_group: Ints = self._read_array("by_group", np.int32)
        self.group_ends: Longs = self._read_array("group_ends", np.int64)
        self.by_id: Ints = self._read_array("by_id", np.int32)
        self.keys: Keys = self._read_array("keys", np.uint32)
        self.columns = RowColumns(
            change=self._read_array("change", np.int64),
            ids=self._read_array("ids", np.bytes_),
            group=self._read_array("group", np.int32),
            tagset=self._read_array("tagset", np.int32),
            confidence=self._read_array("confidence", np.float64),
            created_at=self._read_array("created_at", np.int64),
            expires_at=self._read_array("expires_at", np.int64),
            spaces=[_to_space(values) for values in cast("list[list[str | None]]", header["spaces"])],
            tagsets=[tuple(values) for values in cast("list[list[str]]", header["tagsets"])],
        )
        self.column_dict = ColumnDict()
        for space in self.columns.spaces:
            self.column_dict.get_group(space)
        for tags in self.columns.tagsets:
            self.column_dict.get_tagset(tags)

    def __len__(self) -> int:
        return len(self.columns.change)

    def prefetch(self) -> None:
        """Request the system to read the file in advance. The pages are cached in free memory and released when needed."""
        self._mmap.madvise(mmap.MADV_WILLNEED)

    def find_rows(self, memory_ids: Collection[str]) -> dict[str, Ints]:
        """Return the rows of *memory_ids* by id, including dead ones. Ids without rows are omitted."""
        width = self.columns.ids.dtype.itemsize
        ids_by_key = {name: memory_id for memory_id in memory_ids if len(name := memory_id.encode()) <= width}
        keys = np.fromiter(map(zlib.crc32, ids_by_key), dtype=np.uint32, count=len(ids_by_key))
        firsts, lasts = np.searchsorted(self.keys, keys, side="left"), np.searchsorted(self.keys, keys, side="right")
        counts = lasts - firsts
        offsets = np.cumsum(counts) - counts
        rows = self.by_id[np.arange(int(counts.sum())) + np.repeat(firsts - offsets, counts)]
        # Use the column's exact width; otherwise numpy would widen the column for the comparison.
        is_match = self.columns.ids[rows] == np.repeat(np.array(list(ids_by_key), dtype=self.columns.ids.dtype), counts)
        ends: list[int] = np.cumsum(
            np.bincount(np.repeat(np.arange(len(ids_by_key)), counts)[is_match], minlength=len(ids_by_key))
        ).tolist()
        rows = rows[is_match]
        return {
            memory_id: rows[first:last]
            for memory_id, first, last in zip(ids_by_key.values(), [0, *ends], ends, strict=False)
            if last > first
        }

    def get_memory_ids(self, rows: Longs | Sequence[int]) -> list[str]:
        """Return the memory ids of *rows*."""
        ids: list[bytes] = self.columns.ids[rows].tolist()
        return [memory_id.decode() for memory_id in ids]

    def _read_array(self, name: str, dtype: type[S]) -> npt.NDArray[S]:
        kind, shape, offset = self._arrays[name]
        if not np.issubdtype(np.dtype(kind), dtype):
            raise IvfFileError(f"its array {name} has the type {kind}")
        try:
            array = cast("npt.NDArray[S]", np.ndarray(shape, dtype=kind, buffer=self._mmap, offset=offset))
        except (TypeError, ValueError) as error:
            raise IvfFileError(str(error)) from error
        # A wrong number in a column would let a query read beyond the end of another one.
        if name in self._checksums and zlib.crc32(array.data) != self._checksums[name]:
            raise IvfFileError(f"its array {name} is damaged")
        return array


def write_ivf_file(
    path: Path,
    columns: RowColumns,
    *,
    batches: Iterable[Floats],
    dimension: int,
    centroids: Floats,
    list_ends: Longs,
    last_change: int,
    trained_row_count: int,
    workspace_id: int,
    model_version: ModelVersion,
) -> None:
    """
    Write the file under a temporary name, sync it to disk and rename it to *path*.

    Args:
        batches: The vectors of all rows, in order.
    """
    groups = len(columns.spaces) + 1
    names: list[bytes] = columns.ids.tolist()
    keys = np.fromiter(map(zlib.crc32, names), dtype=np.uint32, count=len(names))
    by_id = np.argsort(keys, kind="stable").astype(np.int32)
    arrays: dict[str, npt.NDArray[np.generic]] = {
        "centroids": centroids,
        "ends": list_ends,
        "by_group": np.argsort(columns.group, kind="stable").astype(np.int32),
        "group_ends": np.cumsum(np.bincount(columns.group, minlength=groups)).astype(np.int64),
        "by_id": by_id,
        "keys": keys[by_id],
        "change": columns.change,
        "ids": columns.ids,
        "group": columns.group,
        "tagset": columns.tagset,
        "confidence": columns.confidence,
        "created_at": columns.created_at,
        "expires_at": columns.expires_at,
    }
    count = len(columns.change)
    shapes = [(name, array.dtype.str, array.shape) for name, array in arrays.items()]
    header: dict[str, object] = {
        "of": _owner_header(workspace_id, model_version),
        "upto": last_change,
        "trained": trained_row_count,
        "earliest_expiry": int(columns.expires_at.min(initial=NEVER_MICROS)),
        "spaces": columns.spaces,
        "tagsets": columns.tagsets,
        "sums": {name: zlib.crc32(np.ascontiguousarray(array).data) for name, array in arrays.items()},
    }
    # The offsets of arrays depend on the header's length, which depends on the offsets' digits; reserve enough for both.
    start = _align(_PREFIX_BYTES + len(orjson.dumps(header)) + 128 * (len(shapes) + 2))
    layout: dict[str, tuple[str, Sequence[int], int]] = {}
    offset = start
    for name, kind, shape in [*shapes, ("vectors", "<f4", (count, dimension))]:
        layout[name] = (kind, shape, offset)
        offset = _align(offset + int(np.dtype(kind).itemsize * np.prod(shape, dtype=np.int64)))
    header |= {"arrays": layout, "size": offset}
    header_bytes = orjson.dumps(header)
    new = path.with_suffix(".new")
    with new.open("wb") as file:
        file.write(_MAGIC + len(header_bytes).to_bytes(8, "little") + hashlib.sha256(header_bytes).digest() + header_bytes)
        for name, array in arrays.items():
            file.seek(layout[name][2])
            file.write(np.ascontiguousarray(array).data)
        file.seek(layout["vectors"][2])
        for batch in batches:
            file.write(np.ascontiguousarray(batch).data)
        file.truncate(offset)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)


def file_path(folder: Path, *, workspace_id: int, model_version: ModelVersion, last_change: int) -> Path:
    """Return the path of a file with the changes up to *last_change*."""
    return folder / f"{_file_prefix(workspace_id, model_version)}{last_change}{SUFFIX}"


def list_files(folder: Path, *, workspace_id: int, model_version: ModelVersion) -> list[tuple[int, Path]]:
    """Return (last change, path) of each file of a workspace and model, newest first."""
    prefix = _file_prefix(workspace_id, model_version)
    files = list[tuple[int, Path]]()
    for path in folder.glob(f"{prefix}*{SUFFIX}"):
        last_change = path.name.removeprefix(prefix).removesuffix(SUFFIX)
        if last_change.isdecimal():
            files.append((int(last_change), path))
    return sorted(files, reverse=True)


def remove_files(folder: Path, *, workspace_id: int, except_version: ModelVersion | None = None) -> None:
    """Delete the files of a workspace, except those of one model. Open files stay readable for their process."""
    for path in folder.glob(f"{workspace_id}-*{SUFFIX}"):
        if except_version is None or not path.name.startswith(_file_prefix(workspace_id, except_version)):
            path.unlink(missing_ok=True)


def list_workspaces(folder: Path) -> set[int]:
    """Return the ids of all workspaces with files."""
    owners = (path.name.partition("-")[0] for path in folder.glob(f"*{SUFFIX}"))
    return {int(owner) for owner in owners if owner.isdecimal()}


def _file_prefix(workspace_id: int, model_version: ModelVersion) -> str:
    model = hashlib.sha256(f"{model_version.model}\0{model_version.dimension}".encode()).hexdigest()[:12]
    return f"{workspace_id}-{model}-"


def _owner_header(workspace_id: int, model_version: ModelVersion) -> list[object]:
    return [FORMAT_VERSION, workspace_id, model_version.model, model_version.dimension]


def _read_header(mapped: mmap.mmap) -> dict[str, object]:
    """Return the header, after a check of its digest and of the file's size."""
    length = int.from_bytes(mapped[len(_MAGIC) : len(_MAGIC) + 8], "little")
    header_bytes = mapped[_PREFIX_BYTES : _PREFIX_BYTES + length]
    if mapped[: len(_MAGIC)] != _MAGIC or hashlib.sha256(header_bytes).digest() != mapped[_PREFIX_BYTES - 32 : _PREFIX_BYTES]:
        raise IvfFileError("it is damaged")
    header = cast("dict[str, object]", orjson.loads(header_bytes))
    if header.get("size") != len(mapped):
        raise IvfFileError("it is incomplete")
    return header


def _to_space(values: list[str | None]) -> Space:
    org, project, agent_id, session_id, scope, type_, source = values
    return org, project, agent_id, session_id, scope, type_, source


def _align(place: int) -> int:
    return -(-place // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES
