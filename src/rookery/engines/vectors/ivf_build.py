"""
Build the list file of a large workspace, as a process of its own: `python -m rookery.engines.vectors.ivf_build`.

A build takes a minute and some hundred megabytes for a million rows. A separate process does not slow queries: it has its own GIL, a lower
priority and one thread. It exits with its parent. One build at a time runs per folder.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import sys
import tempfile
import threading
from array import array
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import orjson

from rookery.engines.vectors.blocks import Point
from rookery.engines.vectors.clustering import Floats, assign_lists, choose_list_count, compute_centroids
from rookery.engines.vectors.filter_mask import ColumnDict
from rookery.engines.vectors.ivf_file import (
    NEVER_MICROS,
    IvfFile,
    IvfFileError,
    Longs,
    RowColumns,
    file_path,
    list_files,
    remove_files,
    write_ivf_file,
)
from rookery.engines.vectors.vector_file import VectorFile
from rookery.engines.vectors.verify import verify_ivf_file
from rookery.memory.ports import ModelVersion

EXIT_BUSY = 3
"""Exit code if another process is building."""

_NICE_INCREMENT = 5
_READ_BATCH_SIZE = 2000
_WRITE_BATCH_ROWS = 8192
_MIN_FREE_BYTES = 1024**3
"""Disk space that builds leave free. Writes are rejected below half of it (D-17)."""

_RETRAIN_FACTOR = 2
"""Growth or shrinkage of the row count after which centroids are computed again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildRequest:
    """A workspace to build. *known_change* is the last change of the list file that the requester has; 0 without one."""

    database: Path
    folder: Path
    workspace_id: int
    model_version: ModelVersion
    known_change: int

    def to_json_line(self) -> bytes:
        """Return the request as one line of JSON for the build process."""
        return orjson.dumps(
            {
                "database": str(self.database),
                "folder": str(self.folder),
                "workspace_id": self.workspace_id,
                "model": self.model_version.model,
                "dimension": self.model_version.dimension,
                "known": self.known_change,
            }
        )


def main() -> int:
    """Execute the request on the first line of stdin. When stdin closes, the process exits."""
    request_json = orjson.loads(sys.stdin.buffer.readline())
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    os.nice(_NICE_INCREMENT)
    request = BuildRequest(
        database=Path(request_json["database"]),
        folder=Path(request_json["folder"]),
        workspace_id=request_json["workspace_id"],
        model_version=ModelVersion(model=request_json["model"], dimension=request_json["dimension"]),
        known_change=request_json["known"],
    )
    with lock_folder(request.folder) as is_ours:
        if not is_ours:
            return EXIT_BUSY
        files = list_files(request.folder, workspace_id=request.workspace_id, model_version=request.model_version)
        if not files or files[0][0] <= request.known_change:
            build(request)
    return 0


@contextlib.contextmanager
def lock_folder(folder: Path) -> Generator[bool]:
    """Lock *folder* against other builds while the block runs. Yield False if another process holds the lock."""
    folder.mkdir(mode=0o700, exist_ok=True)
    with (folder / "building").open("w", encoding="ascii") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True


def build(request: BuildRequest) -> None:
    """Build a file with all current entries of the database, based on the previous file if it is valid."""
    for path in request.folder.glob("*.new"):
        path.unlink(missing_ok=True)
    file = VectorFile(request.database, model=request.model_version.model, dimension=request.model_version.dimension)
    # Before reading, the size of the database is the only known upper bound.
    needed_bytes = request.database.stat().st_size * 2 + _MIN_FREE_BYTES
    if shutil.disk_usage(request.folder).free < needed_bytes:
        raise OSError(f"{request.folder.name}: a build needs {needed_bytes:,} bytes of free disk space")
    with contextlib.closing(file), tempfile.TemporaryFile(dir=request.folder) as raw:
        last_change = file.get_bounds().last
        previous = _open_previous(request, file)
        collector = _RowCollector(request, previous, file)
        for points in _iter_points(
            file, request.workspace_id, after=0 if previous is None else previous.last_change, last_change=last_change
        ):
            collector.add(points)
            raw.write(b"".join(vector for point in points for vector in point.vectors))
        raw.flush()
        shape = (collector.new_row_count, request.model_version.dimension)
        if collector.row_count:
            fresh: Floats = (
                np.memmap(raw, dtype=np.float32, mode="r", shape=shape) if collector.new_row_count else np.empty(shape, dtype=np.float32)
            )
            collector.write(fresh, last_change)
        if not file.has_any(request.workspace_id):  # everything was deleted meanwhile, and so were its lists
            remove_files(request.folder, workspace_id=request.workspace_id)
    for file_change, path in list_files(request.folder, workspace_id=request.workspace_id, model_version=request.model_version):
        if file_change < last_change or not collector.row_count:
            path.unlink(missing_ok=True)


class _RowCollector:
    """The rows of a new file: the live rows of the previous one, then those added to the database since."""

    def __init__(self, request: BuildRequest, previous: IvfFile | None, file: VectorFile) -> None:
        self._request = request
        self._previous = previous
        self._columns_dict = ColumnDict()
        self._kept_rows: Longs = np.empty(0, dtype=np.int64)
        self._change = array("q")
        self._ids: list[bytes] = []
        self._group = array("i")
        self._tagset = array("i")
        self._confidence = array("d")
        self._created_at = array("q")
        self._expires_at = array("q")
        if previous is not None:
            live = file.list_live(request.workspace_id, last_change=previous.last_change)
            self._kept_rows = np.flatnonzero(np.isin(previous.columns.change, live))

    @property
    def new_row_count(self) -> int:
        """Number of rows from the database."""
        return len(self._change)

    @property
    def row_count(self) -> int:
        """Number of rows of the new file."""
        return len(self._kept_rows) + self.new_row_count

    def add(self, points: list[Point]) -> None:
        """Add the rows of *points*."""
        for point in points:
            count = len(point.vectors)
            self._ids += [point.memory_id.encode()] * count
            self._change.extend([point.change] * count)
            self._group.extend([self._columns_dict.get_group(point.space)] * count)
            self._tagset.extend([self._columns_dict.get_tagset(point.tags)] * count)
            self._confidence.extend([point.confidence] * count)
            self._created_at.extend([point.created_at] * count)
            self._expires_at.extend([NEVER_MICROS if point.expires_at is None else point.expires_at] * count)

    def write(self, fresh: Floats, last_change: int) -> None:
        """Assign the rows to lists and write the file."""
        columns, kept_count = self._build_columns(), len(self._kept_rows)
        count = len(columns.change)
        centroids, lists, trained_row_count = self._assign_lists(fresh, count)
        order = np.lexsort((columns.group, lists))
        columns = RowColumns(
            change=columns.change[order],
            ids=columns.ids[order],
            group=columns.group[order],
            tagset=columns.tagset[order],
            confidence=columns.confidence[order],
            created_at=columns.created_at[order],
            expires_at=columns.expires_at[order],
            spaces=columns.spaces,
            tagsets=columns.tagsets,
        )

        def batches() -> Iterator[Floats]:
            for start in range(0, count, _WRITE_BATCH_ROWS):
                batch = order[start : start + _WRITE_BATCH_ROWS]
                rows = np.empty((len(batch), self._request.model_version.dimension), dtype=np.float32)
                is_kept = batch < kept_count
                if self._previous is not None:
                    rows[is_kept] = self._previous.vectors[self._kept_rows[batch[is_kept]]]
                rows[~is_kept] = fresh[batch[~is_kept] - kept_count]
                yield rows

        request = self._request
        write_ivf_file(
            file_path(request.folder, workspace_id=request.workspace_id, model_version=request.model_version, last_change=last_change),
            columns,
            batches=batches(),
            dimension=request.model_version.dimension,
            centroids=centroids,
            list_ends=np.cumsum(np.bincount(lists, minlength=len(centroids))).astype(np.int64),
            last_change=last_change,
            trained_row_count=trained_row_count,
            workspace_id=request.workspace_id,
            model_version=request.model_version,
        )

    def _assign_lists(self, fresh: Floats, count: int) -> tuple[Floats, npt.NDArray[np.int32], int]:
        """Return the centroids, the list of each row, and the number of rows that the centroids were computed for."""
        previous, kept_rows = self._previous, self._kept_rows
        if (
            previous is not None
            and count <= _RETRAIN_FACTOR * previous.trained_row_count
            and count * _RETRAIN_FACTOR >= previous.trained_row_count
        ):
            kept_lists = np.searchsorted(previous.list_ends, kept_rows, side="right").astype(np.int32)
            return previous.centroids, np.concatenate([kept_lists, assign_lists(fresh, previous.centroids)]), previous.trained_row_count
        number = choose_list_count(count)
        random = np.random.default_rng(number)
        sampled = np.sort(random.choice(count, min(count, number * 40), replace=False))
        sample = fresh[sampled[sampled >= len(kept_rows)] - len(kept_rows)]
        if previous is not None:
            sample = np.concatenate([previous.vectors[kept_rows[sampled[sampled < len(kept_rows)]]], sample])
        centroids = compute_centroids(sample, count=number)
        lists = assign_lists(fresh, centroids)
        if previous is not None:
            lists = np.concatenate([assign_lists(previous.vectors, centroids)[kept_rows], lists])
        return centroids, lists, count

    def _build_columns(self) -> RowColumns:
        """Return the columns of all rows, with new numbers of groups and tag sets, since some of the previous file are unused."""
        change = np.array(self._change, dtype=np.int64)
        ids = np.array(self._ids, dtype=np.bytes_) if self._ids else np.empty(0, dtype="S1")
        group, tagset = np.array(self._group, dtype=np.int32), np.array(self._tagset, dtype=np.int32)
        confidence = np.array(self._confidence, dtype=np.float64)
        created_at, expires_at = np.array(self._created_at, dtype=np.int64), np.array(self._expires_at, dtype=np.int64)
        previous = self._previous
        if previous is not None:
            old, kept_rows = previous.columns, self._kept_rows
            groups, old_group = np.unique(old.group[kept_rows], return_inverse=True)
            tagsets, old_tagset = np.unique(old.tagset[kept_rows], return_inverse=True)
            used_groups: list[int] = groups.tolist()
            used_tagsets: list[int] = tagsets.tolist()
            new_groups = np.array([self._columns_dict.get_group(old.spaces[number - 1]) for number in used_groups], dtype=np.int32)
            new_tagsets = np.array([self._columns_dict.get_tagset(old.tagsets[number]) for number in used_tagsets], dtype=np.int32)
            change = np.concatenate([old.change[kept_rows], change])
            ids = np.concatenate([old.ids[kept_rows], ids])
            group = np.concatenate([new_groups[old_group], group])
            tagset = np.concatenate([new_tagsets[old_tagset], tagset])
            confidence = np.concatenate([old.confidence[kept_rows], confidence])
            created_at = np.concatenate([old.created_at[kept_rows], created_at])
            expires_at = np.concatenate([old.expires_at[kept_rows], expires_at])
        return RowColumns(
            change=change,
            ids=ids,
            group=group,
            tagset=tagset,
            confidence=confidence,
            created_at=created_at,
            expires_at=expires_at,
            spaces=self._columns_dict.list_spaces(),
            tagsets=self._columns_dict.list_tagsets(),
        )


def _open_previous(request: BuildRequest, file: VectorFile) -> IvfFile | None:
    for last_change, path in list_files(request.folder, workspace_id=request.workspace_id, model_version=request.model_version):
        with contextlib.suppress(IvfFileError):
            ivf_file = IvfFile(path, workspace_id=request.workspace_id, model_version=request.model_version)
            # An error in this file would be copied into every later one.
            verify_ivf_file(
                ivf_file,
                file,
                workspace_id=request.workspace_id,
                live_changes=file.list_live(request.workspace_id, last_change=last_change),
            )
            return ivf_file
    return None


def _iter_points(file: VectorFile, workspace_id: int, *, after: int, last_change: int) -> Iterator[list[Point]]:
    """Yield the entries between the changes *after* and *last_change*, inclusive."""
    while True:
        changes = file.get_changes(workspace_id, after=after, limit=_READ_BATCH_SIZE)
        yield [point for point in changes.points if point.change <= last_change]
        after = changes.last
        if changes.is_complete or after >= last_change:
            return


def _exit_with_parent() -> None:
    """Exit when stdin closes, which the parent does when it no longer needs the file."""
    while os.read(sys.stdin.fileno(), 4096):  # without Python's buffer, whose lock an exiting interpreter could not take
        pass
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
