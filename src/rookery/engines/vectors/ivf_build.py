"""
Makes the file of a large workspace's vectors in lists, as a process of its own: `python -m rookery.engines.vectors.ivf_build`.

So what it takes, a minute and some hundred megabytes for a million rows, is taken from nobody's questions: it has no
part in the interpreter's lock, less priority and one thread. It ends with who started it, and one at a time works in a folder.
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
"""The exit code of one that found another at work."""

_NICE_INCREMENT = 5
_READ_BATCH_SIZE = 2000
_WRITE_BATCH_ROWS = 8192
_MIN_FREE_BYTES = 1024**3
"""So much of the disk is left free: D-17 refuses writes under half of it."""

_RETRAIN_FACTOR = 2
"""Centroids serve until there are so many times the rows they were found for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildRequest:
    """What to make; *known_change*: up to which change the file that is there already knows, as far as the asker knows."""

    database: Path
    folder: Path
    workspace_id: int
    generation: ModelVersion
    known_change: int

    def to_json_line(self) -> bytes:
        """Return it as a line for the process that carries it out."""
        return orjson.dumps(
            {
                "database": str(self.database),
                "folder": str(self.folder),
                "workspace_id": self.workspace_id,
                "model": self.generation.model,
                "dimension": self.generation.dimension,
                "known": self.known_change,
            }
        )


def main() -> int:
    """Carry out the order on the first line of stdin, which stays open as long as it is wanted."""
    words = orjson.loads(sys.stdin.buffer.readline())
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    os.nice(_NICE_INCREMENT)
    order = BuildRequest(
        database=Path(words["database"]),
        folder=Path(words["folder"]),
        workspace_id=words["workspace_id"],
        generation=ModelVersion(model=words["model"], dimension=words["dimension"]),
        known_change=words["known"],
    )
    with lock_folder(order.folder) as is_ours:
        if not is_ours:
            return EXIT_BUSY
        done = list_files(order.folder, workspace_id=order.workspace_id, model_version=order.generation)
        if not done or done[0][0] <= order.known_change:
            build(order)
    return 0


@contextlib.contextmanager
def lock_folder(folder: Path) -> Generator[bool]:
    """Keep others from building in *folder*; false: another does."""
    folder.mkdir(mode=0o700, exist_ok=True)
    with (folder / "building").open("w", encoding="ascii") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True


def build(order: BuildRequest) -> None:
    """Make a file that knows all that is in the database now, from the last one as far as that goes."""
    for left in order.folder.glob("*.new"):
        left.unlink(missing_ok=True)
    file = VectorFile(order.database, model=order.generation.model, dimension=order.generation.dimension)
    # The size of what is there is the only bound that is known before it is read.
    needed = order.database.stat().st_size * 2 + _MIN_FREE_BYTES
    if shutil.disk_usage(order.folder).free < needed:
        raise OSError(f"{order.folder.name}: {needed:,} bytes of the disk must be free to build")
    with contextlib.closing(file), tempfile.TemporaryFile(dir=order.folder) as raw:
        upto = file.get_bounds().last
        former = _open_previous(order, file)
        gathering = _RowCollector(order, former, file)
        for points in _iter_points(file, order.workspace_id, after=0 if former is None else former.last_change, upto=upto):
            gathering.add(points)
            raw.write(b"".join(vector for point in points for vector in point.vectors))
        raw.flush()
        shape = (gathering.new_row_count, order.generation.dimension)
        if gathering.row_count:
            fresh: Floats = (
                np.memmap(raw, dtype=np.float32, mode="r", shape=shape) if gathering.new_row_count else np.empty(shape, dtype=np.float32)
            )
            gathering.write(fresh, upto)
        if not file.has_any(order.workspace_id):  # all of it was forgotten meanwhile, and what it had of lists was deleted
            remove_files(order.folder, workspace_id=order.workspace_id)
    for each, path in list_files(order.folder, workspace_id=order.workspace_id, model_version=order.generation):
        if each < upto or not gathering.row_count:
            path.unlink(missing_ok=True)


class _RowCollector:
    """The rows of the new file: first those of the former one that are still alive, then those that the database has since."""

    def __init__(self, order: BuildRequest, former: IvfFile | None, file: VectorFile) -> None:
        self._request = order
        self._previous = former
        self._columns_dict = ColumnDict()
        self._kept_rows: Longs = np.empty(0, dtype=np.int64)
        self._change = array("q")
        self._ids: list[bytes] = []
        self._group = array("i")
        self._tagset = array("i")
        self._confidence = array("d")
        self._created_at = array("q")
        self._expires_at = array("q")
        if former is not None:
            living = file.list_live(order.workspace_id, last_change=former.last_change)
            self._kept_rows = np.flatnonzero(np.isin(former.columns.change, living))

    @property
    def new_row_count(self) -> int:
        """How many rows the database had."""
        return len(self._change)

    @property
    def row_count(self) -> int:
        """How many rows there will be."""
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

    def write(self, fresh: Floats, upto: int) -> None:
        """Put them in lists and seal them."""
        columns, kept = self._build_columns(), len(self._kept_rows)
        count = len(columns.change)
        centroids, lists, trained = self._assign_lists(fresh, count)
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
                some = order[start : start + _WRITE_BATCH_ROWS]
                rows = np.empty((len(some), self._request.generation.dimension), dtype=np.float32)
                old = some < kept
                if self._previous is not None:
                    rows[old] = self._previous.vectors[self._kept_rows[some[old]]]
                rows[~old] = fresh[some[~old] - kept]
                yield rows

        order_of = self._request
        write_ivf_file(
            file_path(order_of.folder, workspace_id=order_of.workspace_id, model_version=order_of.generation, last_change=upto),
            columns,
            batches=batches(),
            dimension=order_of.generation.dimension,
            centroids=centroids,
            list_ends=np.cumsum(np.bincount(lists, minlength=len(centroids))).astype(np.int64),
            last_change=upto,
            trained_row_count=trained,
            workspace_id=order_of.workspace_id,
            model_version=order_of.generation,
        )

    def _assign_lists(self, fresh: Floats, count: int) -> tuple[Floats, npt.NDArray[np.int32], int]:
        """Return centroids, the list of each row, and how many rows the centroids were found for."""
        former, kept = self._previous, self._kept_rows
        if (
            former is not None
            and count <= _RETRAIN_FACTOR * former.trained_row_count
            and count * _RETRAIN_FACTOR >= former.trained_row_count
        ):
            old = np.searchsorted(former.list_ends, kept, side="right").astype(np.int32)
            return former.centroids, np.concatenate([old, assign_lists(fresh, former.centroids)]), former.trained_row_count
        number = choose_list_count(count)
        dice = np.random.default_rng(number)
        chosen = np.sort(dice.choice(count, min(count, number * 40), replace=False))
        sample = fresh[chosen[chosen >= len(kept)] - len(kept)]
        if former is not None:
            sample = np.concatenate([former.vectors[kept[chosen[chosen < len(kept)]]], sample])
        centroids = compute_centroids(sample, count=number)
        lists = assign_lists(fresh, centroids)
        if former is not None:
            lists = np.concatenate([assign_lists(former.vectors, centroids)[kept], lists])
        return centroids, lists, count

    def _build_columns(self) -> RowColumns:
        """Return what is known of all rows, with groups and sets of tags numbered anew, as those of the former file have lost some."""
        change = np.array(self._change, dtype=np.int64)
        ids = np.array(self._ids, dtype=np.bytes_) if self._ids else np.empty(0, dtype="S1")
        group, tagset = np.array(self._group, dtype=np.int32), np.array(self._tagset, dtype=np.int32)
        confidence = np.array(self._confidence, dtype=np.float64)
        created_at, expires_at = np.array(self._created_at, dtype=np.int64), np.array(self._expires_at, dtype=np.int64)
        former = self._previous
        if former is not None:
            old, kept = former.columns, self._kept_rows
            groups, old_group = np.unique(old.group[kept], return_inverse=True)
            tagsets, old_tagset = np.unique(old.tagset[kept], return_inverse=True)
            used_groups: list[int] = groups.tolist()
            used_tagsets: list[int] = tagsets.tolist()
            now_group = np.array([self._columns_dict.get_group(old.spaces[number - 1]) for number in used_groups], dtype=np.int32)
            now_tagset = np.array([self._columns_dict.get_tagset(old.tagsets[number]) for number in used_tagsets], dtype=np.int32)
            change = np.concatenate([old.change[kept], change])
            ids = np.concatenate([old.ids[kept], ids])
            group = np.concatenate([now_group[old_group], group])
            tagset = np.concatenate([now_tagset[old_tagset], tagset])
            confidence = np.concatenate([old.confidence[kept], confidence])
            created_at = np.concatenate([old.created_at[kept], created_at])
            expires_at = np.concatenate([old.expires_at[kept], expires_at])
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


def _open_previous(order: BuildRequest, file: VectorFile) -> IvfFile | None:
    for upto, path in list_files(order.folder, workspace_id=order.workspace_id, model_version=order.generation):
        with contextlib.suppress(IvfFileError):
            sealed = IvfFile(path, workspace_id=order.workspace_id, model_version=order.generation)
            # What is wrong in it would be handed on, file after file.
            verify_ivf_file(
                sealed, file, workspace_id=order.workspace_id, live_changes=file.list_live(order.workspace_id, last_change=upto)
            )
            return sealed
    return None


def _iter_points(file: VectorFile, workspace_id: int, *, after: int, upto: int) -> Iterator[list[Point]]:
    """Yield what the database has, but for what came after the beginning."""
    while True:
        changes = file.get_changes(workspace_id, after=after, limit=_READ_BATCH_SIZE)
        yield [point for point in changes.points if point.change <= upto]
        after = changes.last
        if changes.is_complete or after >= upto:
            return


def _exit_with_parent() -> None:
    """Wait for the end of stdin, which is that of whoever wants the file."""
    while os.read(sys.stdin.fileno(), 4096):  # past Python's own buffer, whose lock an ending interpreter could not take
        pass
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
