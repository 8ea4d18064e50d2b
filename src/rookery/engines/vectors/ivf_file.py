"""
The index of a large workspace: an immutable and mapped cache of `vectors.db`, made with faiss.

An index is a folder with an array per file, and the inverted lists (IVF) of faiss with a byte per number (SQ8). The numbers that faiss
stores are those of the rows. Rows are ordered by list and then by group, so the candidates of a query are near each other. An index
contains the changes of `vectors.db` up to a number. Later changes and deletions are tracked by the process that opens it.

faiss is imported when the first index is opened: workspaces up to `IndexLimits.max_exact_floats` have none.
"""

from __future__ import annotations

import hashlib
import math
import os
import random
import shutil
import time
import zlib
from collections.abc import Callable, Collection
from dataclasses import astuple
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, Final, cast

import numpy as np
import numpy.typing as npt
import orjson
import structlog

from rookery.engines.vectors.search import ROW, ColumnDict, Floats, IndexLimits, Ints, Longs, Rows, RowSource, ScoredRows, expand_ranges
from rookery.engines.vectors.vector_file import VectorFile
from rookery.memory.ports import ModelVersion

_log = structlog.stdlib.get_logger("rookery.vectors")

Ids = npt.NDArray[np.bytes_]
FaissIndex = Any
"""An `IndexIVFScalarQuantizer` of faiss, which has no types."""

SUFFIX: Final = ".lists"
_FORMAT_VERSION: Final = 6
_META_FILE: Final = "meta.json"
_FAISS_FILE: Final = "index.faiss"
_VECTORS_FILE: Final = "vectors.npy"
_ERASURE_FILE: Final = "erasure"
_SAMPLED_ROWS: Final = 32
"""Compared rows among the newest, and among all."""

BATCH_ROWS: Final = 8192
"""Rows that a build reads and writes at once."""


def load_faiss() -> ModuleType:
    """Return faiss, which has no types. Import it at the first call, in a tenth of a second; threads wait for each other."""
    return import_module("faiss")


class IvfFileError(Exception):
    """The lists are invalid; the message contains the reason."""


class IvfFile(RowSource):
    """
    Open, mapped lists, with the deletions that this process has seen.

    Attributes:
        last_change: Last change that the lists contain.
        made_at_s: Time of creation, by the clock of the machine.
    """

    def __init__(self, path: Path, file: VectorFile, *, workspace_id: int, model_version: ModelVersion) -> None:
        """Open the lists in the folder *path*, and compare them with *file*. Raises `IvfFileError`."""
        try:
            digest, _, content = (path / _META_FILE).read_bytes().partition(b"\n")
            if hashlib.sha256(content).hexdigest().encode() != digest:
                raise IvfFileError(f"its {_META_FILE} is damaged")
            meta = cast("dict[str, Any]", orjson.loads(content))
            if meta["owner"] != [_FORMAT_VERSION, workspace_id, *astuple(model_version)]:
                raise IvfFileError("it belongs to another workspace or model")
            # A wrong number in a column would let a query read beyond the end of another one, and faiss does not check what it reads.
            checksums: dict[str, int] = meta["checksums"]
            for name, checksum in checksums.items():
                if _compute_checksum(path / name) != checksum:
                    raise IvfFileError(f"its {name} is damaged")
            files = [path / name for name in (*checksums, _VECTORS_FILE) if name != _FAISS_FILE]
            self._arrays: dict[str, npt.NDArray[Any]] = {one.stem: np.asarray(np.load(one, mmap_mode="r")) for one in files}
            self.vectors, self.ids = self._arrays["vectors"], self._arrays["ids"]
            if self.vectors.shape != (len(self.ids), model_version.dimension):
                raise IvfFileError("its vectors are damaged")
            self._faiss = load_faiss()
            self._index: FaissIndex = self._faiss.read_index(str(path / _FAISS_FILE), self._faiss.IO_FLAG_MMAP)
        # The last two: another version of faiss wrote it, or this machine has none.
        except (OSError, ValueError, EOFError, RuntimeError, ImportError) as error:
            raise IvfFileError(str(error)) from error
        self.list_count: int = self._index.nlist
        self._path = path
        self.made_at_s = path.stat().st_mtime
        self.last_change: int = meta["last_change"]
        self.earliest_expiry = meta["earliest_expiry"]
        self.column_dict = ColumnDict(map(tuple, meta["spaces"]), map(tuple, meta["tagsets"]))
        self.columns = self._arrays
        self.count = len(self.ids)
        self.alive = np.ones(self.count, dtype=np.bool_)
        # By default faiss starts threads in each search that read the lists in advance, which takes a millisecond.
        self._faiss.downcast_InvertedLists(self._index.invlists).prefetch_nthread = 0
        self._compare(file, workspace_id)

    def score_nearest(self, vector: Floats, *, limit: int, limits: IndexLimits) -> ScoredRows:
        """Score the nearest rows of a snapshot: enough for *limit* memories, or all visible ones."""
        total = self.count
        max_admitted = max(limits.max_exhaustive, round(limits.exhaustive_root_factor * total**0.5))
        # All groups together have all rows. To add up their sizes takes 0.4 ms if there are 100,000, as with many sessions.
        if not self.mask.admits_all_groups or total <= max_admitted:
            by_group, group_ends, groups = self._arrays["by_group"], self._arrays["group_ends"], np.flatnonzero(self.mask.groups)
            group_sizes = np.diff(group_ends, prepend=0)
            if group_sizes[groups].sum() <= max_admitted:
                parts = [by_group[group_ends[group] - group_sizes[group] : group_ends[group]] for group in groups.tolist()]
                return self.score_rows(np.sort(np.concatenate([*parts, np.empty(0, dtype=np.int32)])).astype(np.int64), vector)
        visible = self.find_visible(slice(None))
        visible_count = int(np.count_nonzero(visible))
        if visible_count <= limits.max_exhaustive:
            return self.score(np.flatnonzero(visible), vector)
        wanted_count = max(limits.min_visited, total / limits.visited_divisor) * (visible_count / total) ** 0.5
        visited_count = min(self.list_count, math.ceil(self.list_count * wanted_count / visible_count))
        candidate_count = max(1, limit * limits.candidates_per_result)
        selected = None if visible_count == total else np.packbits(visible, bitorder="little")
        while True:
            numbers = self._find_candidates(vector, selected, limit=candidate_count, visited_lists=visited_count)
            is_complete = len(numbers) == visible_count or (visited_count == self.list_count and len(numbers) < candidate_count)
            if is_complete or len(set(self.ids[numbers].tolist())) >= limit:
                return self.score(numbers, vector)
            if len(numbers) < candidate_count:
                visited_count = min(self.list_count, 4 * visited_count)
            else:  # some memories have several rows among the best
                candidate_count = min(visible_count, 4 * candidate_count)

    def _find_candidates(self, vector: Floats, selected: npt.NDArray[np.uint8] | None, *, limit: int, visited_lists: int) -> Longs:
        """Return the nearest rows of the nearest lists, by bytes: of those whose bit is set in *selected*, or of all if it is None."""
        selector = None if selected is None else self._faiss.IDSelectorBitmap(selected)
        parameters = self._faiss.SearchParametersIVF(nprobe=visited_lists, sel=selector)
        numbers = cast("Longs", self._index.search(vector[None], limit, params=parameters)[1][0])
        return numbers[numbers >= 0]

    def copy_trained(self) -> FaissIndex:
        """Return an empty index of faiss with the same centroids and byte ranges."""
        index = self._faiss.read_index(str(self._path / _FAISS_FILE))
        index.reset()
        return index

    def get_lists(self) -> Ints:
        sizes = [self._index.invlists.list_size(number) for number in range(self.list_count)]
        return np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)

    def find_rows(self, ids: Collection[bytes]) -> Longs:
        width = self.ids.dtype.itemsize
        # Use the column's exact width; otherwise numpy would widen the column for the comparison.
        names = np.array([memory_id for memory_id in ids if len(memory_id) <= width], dtype=self.ids.dtype)
        keys = np.fromiter(map(zlib.crc32, names.tolist()), dtype=np.uint32, count=len(names))
        firsts, stops = (np.searchsorted(self._arrays["keys"], keys, side=side) for side in ("left", "right"))
        numbers = self._arrays["by_key"][expand_ranges(firsts, stops)]
        return numbers[self.ids[numbers] == np.repeat(names, stops - firsts)].astype(np.int64)

    def _compare(self, file: VectorFile, workspace_id: int) -> None:
        """
        Check that the lists belong to the `vectors.db` beside them, and hide the rows that it no longer has.

        It may have been deleted or restored from an older copy. In that case change numbers are assigned again to other memories, the
        highest ones first. So the newest rows are compared, and all live entries up to the last change must be in the lists. Random rows
        reveal damaged vectors.
        """
        change: Longs = self.columns["change"]
        live = np.array(file.list_live(workspace_id, last_change=self.last_change), dtype=np.int64)
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
            for point in file.get_changes(workspace_id, after=int(change[number]) - 1, limit=1).points:
                is_equal = self.ids[number] == point.memory_id.encode() and self.vectors[number].tobytes() in point.vectors
                if point.change == change[number] and not is_equal:
                    raise IvfFileError("its vectors differ from those of vectors.db")
        self.hide(np.flatnonzero(~is_live))


class IvfFolder:
    """The indexes of one model, in the folder beside `vectors.db`. Their names have the workspace, the model and the last change."""

    def __init__(self, database: Path, model_version: ModelVersion) -> None:
        self.path = database.with_suffix(SUFFIX)
        self._model_version = model_version
        self._model = hashlib.sha256(f"{model_version.model}\0{model_version.dimension}".encode()).hexdigest()[:12]

    def list_files(self, workspace_id: int) -> list[tuple[int, Path]]:
        """Return (last change, path) of all indexes of a workspace, newest first."""
        paths = self.path.glob(f"{workspace_id}-{self._model}-*{SUFFIX}")
        changes = [(path.stem.rpartition("-")[2], path) for path in paths]
        return sorted(((int(change), path) for change, path in changes if change.isdecimal()), reverse=True)

    def get_newest_change(self, workspace_id: int) -> int:
        """Return the last change that the newest index contains; 0 without an index."""
        return next((change for change, _ in self.list_files(workspace_id)), 0)

    def list_workspaces(self) -> set[int]:
        """Return the workspaces with an index."""
        return {int(path.name.partition("-")[0]) for path in self.path.glob(f"*-{self._model}-*{SUFFIX}")}

    def write(
        self,
        workspace_id: int,
        *,
        last_change: int,
        trained: FaissIndex,
        lists: Ints,
        rows: Rows,
        ids: Ids,
        read_vectors: Callable[[Longs], Floats],
        column_dict: ColumnDict,
    ) -> None:
        """
        Write an index under a temporary name, sync it to disk and rename it.

        Args:
            trained: An empty index of faiss with centroids, which is filled.
            lists: The list of each row.
            read_vectors: Returns the vectors of rows.
        """
        order = np.lexsort((rows["group"], lists))
        rows, ids = rows[order], ids[order]
        keys = np.fromiter(map(zlib.crc32, ids.tolist()), dtype=np.uint32, count=len(ids))
        by_key = np.argsort(keys, kind="stable").astype(np.int32)
        arrays: dict[str, npt.NDArray[Any]] = {
            **{name: np.ascontiguousarray(rows[name]) for name in ROW.fields or ()},
            "ids": ids,
            "by_group": np.argsort(rows["group"], kind="stable").astype(np.int32),
            "group_ends": np.cumsum(np.bincount(rows["group"], minlength=len(column_dict.spaces))).astype(np.int64),
            "by_key": by_key,
            "keys": keys[by_key],
        }
        path = self.path / f"{workspace_id}-{self._model}-{last_change}{SUFFIX}"
        new = path.with_suffix(".new")
        new.mkdir()
        for name, array in arrays.items():
            np.save(new / f"{name}.npy", array)
        faiss = load_faiss()
        with (new / _VECTORS_FILE).open("wb") as file:
            header = {"descr": "<f4", "fortran_order": False, "shape": (len(rows), self._model_version.dimension)}
            np.lib.format.write_array_header_1_0(file, header)
            for start in range(0, len(order), BATCH_ROWS):
                numbers = np.arange(start, min(start + BATCH_ROWS, len(order)))
                batch, assigned = read_vectors(order[numbers]), lists[order[numbers]].astype(np.int64)
                file.write(batch.data)
                trained.add_core(len(batch), *map(faiss.swig_ptr, (batch, numbers, assigned)))
        faiss.write_index(trained, str(new / _FAISS_FILE))
        meta = orjson.dumps(
            {
                "owner": [_FORMAT_VERSION, workspace_id, *astuple(self._model_version)],
                "last_change": last_change,
                "earliest_expiry": int(rows["expires_at"].min()),
                "spaces": list(column_dict.spaces),
                "tagsets": list(column_dict.tagsets),
                "checksums": {file.name: _compute_checksum(file) for file in new.iterdir() if file.name != _VECTORS_FILE},
            }
        )
        (new / _META_FILE).write_bytes(hashlib.sha256(meta).hexdigest().encode() + b"\n" + meta)
        for path_to_sync in (*new.iterdir(), new):
            descriptor = os.open(path_to_sync, os.O_RDONLY)
            os.fsync(descriptor)
            os.close(descriptor)
        remove(path)
        new.rename(path)

    def open_newest(self, workspace_id: int, file: VectorFile) -> IvfFile | None:
        """Return the newest valid index; None without any. Newer invalid ones are deleted."""
        for _, path in self.list_files(workspace_id):
            try:
                newest = IvfFile(path, file, workspace_id=workspace_id, model_version=self._model_version)
                # Request the system to read the vectors in advance. The pages are cached in free memory and released when needed.
                with (path / _VECTORS_FILE).open("rb") as vectors:
                    os.posix_fadvise(vectors.fileno(), 0, 0, os.POSIX_FADV_WILLNEED)
                return newest
            except IvfFileError as error:
                _log.warning("vectors.ivf_file_deleted", workspace_id=workspace_id, file=path.name, reason=str(error))
                remove(path)
        return None

    def remove_files(self, workspace_id: int) -> None:
        """Delete the indexes of a workspace. Open files stay readable for their process."""
        for _, path in self.list_files(workspace_id):
            remove(path)

    def remove_unused(self, workspace_id: int, file: VectorFile) -> None:
        """Delete the indexes of a workspace without vectors, of every model."""
        if not file.has_any(workspace_id):
            for path in self.path.glob(f"{workspace_id}-*{SUFFIX}"):
                remove(path)

    @property
    def last_erasure(self) -> int:
        """When `erase_stale` was last called, in nanoseconds since 1970; 0: never."""
        path = self.path / _ERASURE_FILE
        return path.stat().st_mtime_ns if path.exists() else 0

    def erase_stale(self, file: VectorFile) -> None:
        """
        Delete the indexes of other models, and those with deleted or replaced vectors. They are built again when needed.

        A running build may have read vectors that were deleted since. It calls `repeat_erasure` at its end.
        """
        if self.path.is_dir():
            mark, now_ns = self.path / _ERASURE_FILE, time.time_ns()
            mark.touch()  # an empty file, since an erasure must also succeed on a full disk
            os.utime(mark, ns=(now_ns, now_ns))
        for path in self.path.glob(f"*{SUFFIX}"):
            try:
                workspace_id = int(path.name.partition("-")[0])
                is_stale = IvfFile(path, file, workspace_id=workspace_id, model_version=self._model_version).dead > 0
            except (IvfFileError, ValueError):
                is_stale = True
            if is_stale:
                remove(path)

    def repeat_erasure(self, file: VectorFile, *, since: int) -> None:
        """Call `erase_stale` again if somebody called it after `last_erasure` was *since*."""
        if self.last_erasure != since:
            self.erase_stale(file)


def remove(path: Path) -> None:
    """Delete an index, or whatever else has its name."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _compute_checksum(path: Path) -> int:
    return zlib.crc32(np.memmap(path, dtype=np.uint8, mode="r").data)
