"""
Build the lists of a large workspace, as a process of its own: `python -m rookery.engines.vectors.ivf_build`.

A build takes a minute and some hundred megabytes for a million rows. A separate process does not slow queries: it has its own GIL, a lower
priority and one thread. It exits with its parent. One build at a time runs per folder.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Generator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import orjson
import structlog

from rookery.engines.vectors.ivf_file import BATCH_ROWS, FaissIndex, Ids, IvfFile, IvfFolder, load_faiss, remove
from rookery.engines.vectors.search import ROW, ColumnDict, Floats, Ints, Longs, Rows
from rookery.engines.vectors.vector_file import VectorFile
from rookery.memory.ports import ModelVersion

_log = structlog.stdlib.get_logger("rookery.vectors")

_EXIT_BUSY = 3
"""Exit code if another process is building."""

_NICE_INCREMENT = 5
_MIN_FREE_BYTES = 1024**3
"""Disk space that builds leave free. Writes are rejected below half of it."""

_RETRAIN_FACTOR = 2**0.5
"""Change of the number of lists after which centroids are computed again: the row count has doubled or halved."""

_ITERATIONS = 5
"""Further iterations raise recall by less than 0.1 % (measured)."""

_ROWS_PER_LIST = 40
"""Sample rows per centroid that are enough to place it."""


@dataclass(frozen=True, slots=True)
class BuildRequest:
    """A workspace to build. *known_change* is the last change of the lists that the requester has; 0 without any."""

    database: Path
    workspace_id: int
    model_version: ModelVersion
    known_change: int

    def to_json_line(self) -> bytes:
        """Return the request as one line of JSON for the build process."""
        return orjson.dumps(asdict(self), default=str) + b"\n"

    @property
    def folder(self) -> IvfFolder:
        """The indexes of the model."""
        return IvfFolder(self.database, self.model_version)


async def run_build(request: BuildRequest, *, poll_s: float) -> bool:
    """Build the lists of *request* in a process, once no other build runs. Log a failure and return False."""
    # Without Rookery's settings, since some are secrets, and with one thread.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ROOKERY_")}
    environment |= dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    command = (sys.executable, "-m", "rookery.engines.vectors.ivf_build")
    pipe, nowhere = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    while True:
        with lock_folder(request.folder.path) as is_free:
            pass  # this is faster than the start of a process that returns `_EXIT_BUSY`
        if not is_free:
            await asyncio.sleep(poll_s)
            continue
        try:
            process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=nowhere, stderr=pipe, env=environment)
            exit_code, output = await _exchange(process, request.to_json_line())
        except OSError as error:
            exit_code, output = None, str(error)
        if exit_code == 0:
            return True
        if exit_code != _EXIT_BUSY:
            reason = (output.strip().splitlines() or [f"exit {exit_code}"])[-1]
            _log.warning("vectors.ivf_build_failed", workspace_id=request.workspace_id, reason=reason)
            return False


async def _exchange(process: asyncio.subprocess.Process, request: bytes) -> tuple[int | None, str]:
    """Send the request. Return the exit code and the errors. Kill the process if this call is cancelled."""
    if process.stdin is None or process.stderr is None:
        raise RuntimeError("the build process has no pipes")
    try:
        process.stdin.write(request)
        output = await process.stderr.read()  # its stdin stays open until it has ended
        await process.wait()
    finally:
        process.stdin.close()
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    return process.returncode, output.decode(errors="replace")


def main() -> int:
    """Execute the request on the first line of stdin. When stdin closes, the process exits."""
    fields = orjson.loads(sys.stdin.buffer.readline())
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    os.nice(_NICE_INCREMENT)
    database, model_version = Path(fields.pop("database")), ModelVersion(**fields.pop("model_version"))
    request = BuildRequest(database=database, model_version=model_version, **fields)
    with lock_folder(request.folder.path) as is_ours:
        if not is_ours:
            return _EXIT_BUSY
        if request.folder.get_newest_change(request.workspace_id) <= request.known_change:
            build(request)
    return 0


def _exit_with_parent() -> None:
    """Exit when stdin closes, which the parent does when it no longer needs the lists."""
    while os.read(sys.stdin.fileno(), 4096):  # without Python's buffer, whose lock an exiting interpreter could not take
        pass
    os._exit(1)


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
    """Build lists with all current entries of the database, based on the previous lists if they are valid."""
    folder, workspace_id = request.folder, request.workspace_id
    for path in folder.path.glob("*.new"):
        remove(path)
    # Before reading, the size of the database is the only known upper bound.
    needed_bytes = request.database.stat().st_size * 2 + _MIN_FREE_BYTES
    if shutil.disk_usage(folder.path).free < needed_bytes:
        raise OSError(f"{folder.path.name}: a build needs {needed_bytes:,} bytes of free disk space")
    with contextlib.closing(VectorFile(request.database, request.model_version)) as file, tempfile.TemporaryFile(dir=folder.path) as raw:
        last_erasure, last_change, after, is_complete = folder.last_erasure, file.get_bounds().last, 0, False
        kept_rows, column_dict, row_parts, id_parts = np.empty(0, dtype=np.int64), ColumnDict(), list[Rows](), list[Ids]()
        previous = folder.open_newest(workspace_id, file)
        if previous is not None:
            after, kept_rows = previous.last_change, np.flatnonzero(previous.alive)
            rows, column_dict = _copy_rows(previous, kept_rows)
            row_parts.append(rows)
            id_parts.append(previous.ids[kept_rows])
        while not is_complete:
            changes = file.get_changes(workspace_id, after=after)
            after, is_complete = changes.last, changes.is_complete
            rows, ids = column_dict.encode(changes.points)
            row_parts.append(rows)
            id_parts.append(np.array(ids, dtype=np.bytes_))
            raw.write(b"".join(vector for point in changes.points for vector in point.vectors))
        raw.flush()
        rows, last_change = np.concatenate(row_parts), max(last_change, after)
        shape = (len(rows) - len(kept_rows), request.model_version.dimension)
        new_vectors = np.memmap(raw, dtype=np.float32, mode="r", shape=shape) if shape[0] else np.empty(shape, dtype=np.float32)

        def read(numbers: Longs) -> Floats:
            """Return the vectors of rows. The kept rows of the previous lists come before the new ones."""
            vectors: Floats = np.empty((len(numbers), shape[1]), dtype=np.float32)
            is_kept = numbers < len(kept_rows)
            if previous is not None:
                vectors[is_kept] = previous.vectors[kept_rows[numbers[is_kept]]]
            vectors[~is_kept] = new_vectors[numbers[~is_kept] - len(kept_rows)]
            return vectors

        if len(rows):
            trained, lists = _assign_lists(len(rows), read, previous, kept_rows)
            folder.write(
                workspace_id,
                last_change=last_change,
                trained=trained,
                lists=lists,
                rows=rows,
                ids=np.concatenate(id_parts),
                read_vectors=read,
                column_dict=column_dict,
            )
        folder.repeat_erasure(file, since=last_erasure)
        is_empty = not file.has_more_than(workspace_id, 0)  # everything may have been deleted meanwhile, and with it the lists
    for file_change, path in folder.list_files(workspace_id):
        if file_change < last_change or is_empty:
            remove(path)


def _copy_rows(previous: IvfFile, kept_rows: Longs) -> tuple[Rows, ColumnDict]:
    """Return the kept rows of the previous lists, and a dictionary that contains only what they use."""
    rows = np.empty(len(kept_rows), dtype=ROW)
    for name in ROW.names or ():
        rows[name] = previous.columns[name][kept_rows]
    groups, rows["group"] = np.unique(rows["group"], return_inverse=True)
    tagsets, rows["tagset"] = np.unique(rows["tagset"], return_inverse=True)
    used_groups, used_tagsets = set[int](groups.tolist()), set[int](tagsets.tolist())
    spaces = [space for space, number in previous.column_dict.spaces.items() if number in used_groups]
    return rows, ColumnDict(spaces, [tags for tags, number in previous.column_dict.tagsets.items() if number in used_tagsets])


def _assign_lists(count: int, read: Callable[[Longs], Floats], previous: IvfFile | None, kept_rows: Longs) -> tuple[FaissIndex, Ints]:
    """Return an empty index of faiss with centroids and byte ranges, and the list of each row. Deterministic."""
    # Comparing centroids costs less than comparing rows.
    list_count = min(count, max(16, round(4 * count**0.5)))
    if previous is not None and list_count / _RETRAIN_FACTOR <= previous.list_count <= list_count * _RETRAIN_FACTOR:
        index, lists = previous.copy_trained(), previous.get_lists()[kept_rows]
    else:
        sampled = np.random.default_rng(list_count).choice(count, min(count, list_count * _ROWS_PER_LIST), replace=False)
        faiss, sample, lists = load_faiss(), read(np.sort(sampled)), np.empty(0, dtype=np.int32)
        index = faiss.index_factory(sample.shape[1], f"IVF{list_count},SQ8", faiss.METRIC_INNER_PRODUCT)
        index.cp.niter = _ITERATIONS
        index.cp.min_points_per_centroid = 1  # no warnings on stderr, whose last line is the reason of a failure
        index.train(sample)
    unassigned = (np.arange(start, min(start + BATCH_ROWS, count)) for start in range(len(lists), count, BATCH_ROWS))
    return index, np.concatenate([lists, *(index.quantizer.assign(read(numbers), 1)[:, 0].astype(np.int32) for numbers in unassigned)])


if __name__ == "__main__":
    sys.exit(main())
