"""
The storage of inverted lists (IVF): vectors of a large workspace around centroids, an immutable and mapped cache of `vectors.db`.

Lists are a folder with an array per file. Rows are ordered by list and then by group, so that a query reads contiguous rows. They contain
the changes of `vectors.db` up to a number. Later changes and deletions are tracked by the process that opens them.

Own lists instead of a library: faiss is faster, but it would replace only the clustering and the visits of the lists. Filters, ids, the
exact pass, deletions, the check against `vectors.db` and the build in a process of its own would stay, beside a package of 19 MB. See the
measurements in benchmarks/README.md, and D-46.
"""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import zlib
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any, Final, cast

import numpy as np
import numpy.typing as npt
import orjson
import structlog

from rookery.engines.vectors.search import NEVER_MICROS, ROW, ColumnDict, Floats, Ints, Longs, Mask, Rows
from rookery.engines.vectors.vector_file import VectorFile
from rookery.memory.ports import ModelVersion

_log = structlog.stdlib.get_logger("rookery.vectors")

SUFFIX: Final = ".lists"
_FORMAT_VERSION: Final = 4
_META_FILE: Final = "meta.json"
_SAMPLED_ROWS: Final = 32
"""Compared rows among the newest, and among all."""


class IvfFileError(Exception):
    """The lists are invalid; the message contains the reason."""


class IvfFile:
    """
    Open, mapped lists, with the deletions that this process has seen. The caller locks `delete` against snapshots.

    Attributes:
        last_change: Last change that the lists contain.
        made_at_s: Time of creation, by the clock of the machine.
        trained_row_count: Number of rows for which the centroids were computed.
        list_ends: End row of each list.
        by_group: Rows ordered by group; *group_ends* has the end of each group.
        earliest_expiry: Earliest expiry of all rows; `NEVER_MICROS` without one.
    """

    def __init__(self, path: Path, *, workspace_id: int, model_version: ModelVersion) -> None:
        """Open the lists in the folder *path*. Raises `IvfFileError`."""
        try:
            digest, _, content = (path / _META_FILE).read_bytes().partition(b"\n")
            self.made_at_s = path.stat().st_mtime
            meta = cast("dict[str, Any]", orjson.loads(content)) if hashlib.sha256(content).hexdigest().encode() == digest else {}
            if not meta:
                raise IvfFileError("it is damaged")
            if meta["owner"] != _owner(workspace_id, model_version):
                raise IvfFileError("it belongs to another workspace or model")
            arrays = {name: np.asarray(np.load(path / f"{name}.npy", mmap_mode="r")) for name in (*meta["checksums"], "vectors")}
        except (OSError, ValueError, EOFError) as error:
            raise IvfFileError(str(error)) from error
        # A wrong number in a column would let a query read beyond the end of another one.
        damaged = [name for name, checksum in meta["checksums"].items() if zlib.crc32(arrays[name].data) != checksum]
        if damaged or arrays["rows"].dtype != ROW or arrays["vectors"].shape != (len(arrays["rows"]), model_version.dimension):
            raise IvfFileError(f"its array {(damaged or ['vectors'])[0]} is damaged")
        self.path = path
        self.last_change: int = meta["last_change"]
        self.trained_row_count: int = meta["trained_row_count"]
        self.earliest_expiry: int = meta["earliest_expiry"]
        self.column_dict = ColumnDict(map(tuple, meta["spaces"]), map(tuple, meta["tagsets"]))
        self.vectors: Floats = arrays["vectors"]
        self.rows: Rows = arrays["rows"]
        self.ids: npt.NDArray[np.bytes_] = arrays["ids"]
        self.centroids: Floats = arrays["centroids"]
        self.list_ends: Longs = arrays["list_ends"]
        self.by_group: Ints = arrays["by_group"]
        self.group_ends: Longs = arrays["group_ends"]
        self._by_key: Ints = arrays["by_key"]
        self._keys: npt.NDArray[np.uint32] = arrays["keys"]
        self.alive: Mask = np.ones(len(self.rows), dtype=np.bool_)
        self.dead = 0

    def prefetch(self) -> None:
        """Request the system to read the vectors in advance. The pages are cached in free memory and released when needed."""
        with (self.path / "vectors.npy").open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_WILLNEED)

    def get_ids(self, numbers: Longs) -> list[str]:
        """Return the memory ids of rows."""
        ids: list[bytes] = self.ids[numbers].tolist()
        return [memory_id.decode() for memory_id in ids]

    def find_rows(self, memory_ids: Collection[str]) -> Longs:
        """Return the row numbers of *memory_ids*, including deleted rows."""
        width = self.ids.dtype.itemsize
        # Use the column's exact width; otherwise numpy would widen the column for the comparison.
        names = np.array([name for memory_id in memory_ids if len(name := memory_id.encode()) <= width], dtype=self.ids.dtype)
        keys = np.fromiter(map(zlib.crc32, names.tolist()), dtype=np.uint32, count=len(names))
        firsts, lasts = np.searchsorted(self._keys, keys, side="left"), np.searchsorted(self._keys, keys, side="right")
        counts = lasts - firsts
        offsets = np.cumsum(counts) - counts
        numbers = self._by_key[np.arange(int(counts.sum())) + np.repeat(firsts - offsets, counts)]
        return numbers[self.ids[numbers] == np.repeat(names, counts)].astype(np.int64)

    def delete(self, memory_ids: Collection[str]) -> None:
        """Hide *memory_ids* from later snapshots. Existing snapshots still see them."""
        if memory_ids:
            self._hide(self.find_rows(memory_ids))

    def verify(self, file: VectorFile, workspace_id: int) -> None:
        """
        Check that the lists belong to the `vectors.db` beside them, and hide the rows that it no longer has.

        It may have been deleted or restored from an older copy. In that case change numbers are assigned again to other memories, the
        highest ones first. So the newest rows are compared, and all live entries up to the last change must be in the lists. Random rows
        reveal damaged vectors.

        Raises:
            IvfFileError: They do not match.
        """
        change: Longs = self.rows["change"]
        live = file.list_live(workspace_id, last_change=self.last_change)
        if self.last_change > file.get_bounds().last:
            raise IvfFileError("it contains changes that vectors.db does not have, so it belongs to another vectors.db")
        if not np.isin(live, change).all():
            raise IvfFileError("it lacks entries of vectors.db")
        is_live = np.isin(change, live)
        numbers = np.flatnonzero(is_live)
        if not len(numbers):
            raise IvfFileError("all of its rows are deleted")
        newest: list[int] = numbers[np.argpartition(change[numbers], -min(_SAMPLED_ROWS, len(numbers)))[-_SAMPLED_ROWS:]].tolist()
        sample: list[int] = numbers[random.sample(range(len(numbers)), min(_SAMPLED_ROWS, len(numbers)))].tolist()
        for number in newest + sample:
            entry = file.get_entry(workspace_id, int(change[number]))
            if entry is not None and (self.ids[number] != entry[0].encode() or self.vectors[number].tobytes() not in entry[1]):
                raise IvfFileError("its vectors differ from those of vectors.db")
        self._hide(np.flatnonzero(~is_live))

    def _hide(self, numbers: Longs) -> None:
        numbers = numbers[self.alive[numbers]]
        if len(numbers):
            self.alive = self.alive.copy()
            self.alive[numbers] = False
            self.dead += len(numbers)


def write_ivf_file(
    path: Path,
    *,
    workspace_id: int,
    model_version: ModelVersion,
    last_change: int,
    trained_row_count: int,
    rows: Rows,
    ids: npt.NDArray[np.bytes_],
    column_dict: ColumnDict,
    centroids: Floats,
    list_ends: Longs,
    batches: Iterable[Floats],
) -> None:
    """
    Write lists under a temporary name, sync them to disk and rename them to *path*.

    Args:
        batches: The vectors of all rows, in order.
    """
    keys = np.fromiter(map(zlib.crc32, ids.tolist()), dtype=np.uint32, count=len(ids))
    by_key = np.argsort(keys, kind="stable").astype(np.int32)
    arrays: dict[str, npt.NDArray[Any]] = {
        "rows": rows,
        "ids": ids,
        "centroids": centroids,
        "list_ends": list_ends,
        "by_group": np.argsort(rows["group"], kind="stable").astype(np.int32),
        "group_ends": np.cumsum(np.bincount(rows["group"], minlength=len(column_dict.spaces))).astype(np.int64),
        "by_key": by_key,
        "keys": keys[by_key],
    }
    meta = orjson.dumps(
        {
            "owner": _owner(workspace_id, model_version),
            "last_change": last_change,
            "trained_row_count": trained_row_count,
            "earliest_expiry": int(rows["expires_at"].min(initial=NEVER_MICROS)),
            "spaces": list(column_dict.spaces),
            "tagsets": list(column_dict.tagsets),
            "checksums": {name: zlib.crc32(np.ascontiguousarray(array).data) for name, array in arrays.items()},
        }
    )
    new = path.with_suffix(".new")
    new.mkdir()
    (new / _META_FILE).write_bytes(hashlib.sha256(meta).hexdigest().encode() + b"\n" + meta)
    for name, array in arrays.items():
        np.save(new / f"{name}.npy", array)
    with (new / "vectors.npy").open("wb") as file:
        shape = (len(rows), model_version.dimension)
        np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": shape})
        for batch in batches:
            file.write(np.ascontiguousarray(batch).data)
    for path_to_sync in (*new.iterdir(), new):
        descriptor = os.open(path_to_sync, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)
    remove(path)
    new.rename(path)


def list_files(folder: Path, *, workspace_id: int, model_version: ModelVersion) -> list[tuple[int, Path]]:
    """Return (last change, path) of all lists of a workspace and model, newest first."""
    prefix = _prefix(workspace_id, model_version)
    changes = [(path.name.removeprefix(prefix).removesuffix(SUFFIX), path) for path in folder.glob(f"{prefix}*{SUFFIX}")]
    return sorted(((int(change), path) for change, path in changes if change.isdecimal()), reverse=True)


def file_path(folder: Path, *, workspace_id: int, model_version: ModelVersion, last_change: int) -> Path:
    """Return the path of lists with the changes up to *last_change*."""
    return folder / f"{_prefix(workspace_id, model_version)}{last_change}{SUFFIX}"


def remove_files(folder: Path, *, workspace_id: int, except_version: ModelVersion | None = None) -> None:
    """Delete the lists of a workspace, except those of one model. Open files stay readable for their process."""
    for path in folder.glob(f"{workspace_id}-*{SUFFIX}"):
        if except_version is None or not path.name.startswith(_prefix(workspace_id, except_version)):
            remove(path)


def remove(path: Path) -> None:
    """Delete lists, which earlier versions wrote as one file."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def list_workspaces(folder: Path) -> set[int]:
    """Return the ids of all workspaces with lists."""
    owners = (path.name.partition("-")[0] for path in folder.glob(f"*{SUFFIX}"))
    return {int(owner) for owner in owners if owner.isdecimal()}


def erase_stale(folder: Path, file: VectorFile, model_version: ModelVersion) -> None:
    """Delete the lists with deleted or replaced vectors. They are a cache, and built again when needed."""
    for workspace_id in sorted(list_workspaces(folder)):
        current = {path for _, path in list_files(folder, workspace_id=workspace_id, model_version=model_version)}
        for path in folder.glob(f"{workspace_id}-*{SUFFIX}"):
            try:
                # Lists of other models are deleted without a check.
                is_stale = path not in current or bool(_open_verified(path, file, workspace_id, model_version).dead)
            except IvfFileError:
                is_stale = True
            if is_stale:
                remove(path)


def open_newest(folder: Path, file: VectorFile, workspace_id: int, model_version: ModelVersion) -> IvfFile | None:
    """Return the newest valid lists; None without any. Newer invalid ones are deleted."""
    for _, path in list_files(folder, workspace_id=workspace_id, model_version=model_version):
        try:
            return _open_verified(path, file, workspace_id, model_version)
        except IvfFileError as error:
            _log.warning("vectors.ivf_file_deleted", workspace_id=workspace_id, file=path.name, reason=str(error))
            remove(path)
    return None


def _open_verified(path: Path, file: VectorFile, workspace_id: int, model_version: ModelVersion) -> IvfFile:
    ivf_file = IvfFile(path, workspace_id=workspace_id, model_version=model_version)
    ivf_file.verify(file, workspace_id)
    return ivf_file


def _prefix(workspace_id: int, model_version: ModelVersion) -> str:
    model = hashlib.sha256(f"{model_version.model}\0{model_version.dimension}".encode()).hexdigest()[:12]
    return f"{workspace_id}-{model}-"


def _owner(workspace_id: int, model_version: ModelVersion) -> list[object]:
    return [_FORMAT_VERSION, workspace_id, model_version.model, model_version.dimension]
