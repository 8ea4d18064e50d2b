"""
Makes the file of a large workspace's vectors in lists, as a process of its own: `python -m rookery.engines.vectors.building`.

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
from rookery.engines.vectors.clustering import Floats, assigned, clustered, lists_for
from rookery.engines.vectors.file import VectorFile
from rookery.engines.vectors.masks import Facets
from rookery.engines.vectors.sealed import NEVER, Columns, Longs, Sealed, Unusable, named, remove, seal, there
from rookery.engines.vectors.trust import compare
from rookery.memory.ports import Generation

BUSY = 3
"""The exit code of one that found another at work."""

_NICE = 5
_BATCH = 2000
_WRITTEN_AT_ONCE = 8192
_SPARE_BYTES = 1024**3
"""So much of the disk is left free: D-17 refuses writes under half of it."""

_RETRAINED = 2
"""Centroids serve until there are so many times the rows they were found for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What to make; *known*: up to which change the file that is there already knows, as far as the asker knows."""

    database: Path
    folder: Path
    workspace_id: int
    generation: Generation
    known: int

    def words(self) -> bytes:
        """Return it as a line for the process that carries it out."""
        return orjson.dumps(
            {
                "database": str(self.database),
                "folder": str(self.folder),
                "workspace_id": self.workspace_id,
                "model": self.generation.model,
                "dimension": self.generation.dimension,
                "known": self.known,
            }
        )


def main() -> int:
    """Carry out the order on the first line of stdin, which stays open as long as it is wanted."""
    words = orjson.loads(sys.stdin.buffer.readline())
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    os.nice(_NICE)
    order = Order(
        database=Path(words["database"]),
        folder=Path(words["folder"]),
        workspace_id=words["workspace_id"],
        generation=Generation(model=words["model"], dimension=words["dimension"]),
        known=words["known"],
    )
    with alone(order.folder) as is_ours:
        if not is_ours:
            return BUSY
        done = there(order.folder, workspace_id=order.workspace_id, generation=order.generation)
        if not done or done[0][0] <= order.known:
            build(order)
    return 0


@contextlib.contextmanager
def alone(folder: Path) -> Generator[bool]:
    """Keep others from building in *folder*; false: another does."""
    folder.mkdir(mode=0o700, exist_ok=True)
    with (folder / "building").open("w", encoding="ascii") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True


def build(order: Order) -> None:
    """Make a file that knows all that is in the database now, from the last one as far as that goes."""
    for left in order.folder.glob("*.new"):
        left.unlink(missing_ok=True)
    file = VectorFile(order.database, model=order.generation.model, dimension=order.generation.dimension)
    # The size of what is there is the only bound that is known before it is read.
    needed = order.database.stat().st_size * 2 + _SPARE_BYTES
    if shutil.disk_usage(order.folder).free < needed:
        raise OSError(f"{order.folder.name}: {needed:,} bytes of the disk must be free to build")
    with contextlib.closing(file), tempfile.TemporaryFile(dir=order.folder) as raw:
        upto = file.bounds().last
        former = _former(order, file)
        gathering = _Gathering(order, former, file)
        for points in _points(file, order.workspace_id, after=0 if former is None else former.upto, upto=upto):
            gathering.take(points)
            raw.write(b"".join(vector for point in points for vector in point.vectors))
        raw.flush()
        shape = (gathering.fresh, order.generation.dimension)
        if gathering.count:
            fresh: Floats = (
                np.memmap(raw, dtype=np.float32, mode="r", shape=shape) if gathering.fresh else np.empty(shape, dtype=np.float32)
            )
            gathering.write(fresh, upto)
        if not file.has_any(order.workspace_id):  # all of it was forgotten meanwhile, and what it had of lists was deleted
            remove(order.folder, workspace_id=order.workspace_id)
    for each, path in there(order.folder, workspace_id=order.workspace_id, generation=order.generation):
        if each < upto or not gathering.count:
            path.unlink(missing_ok=True)


class _Gathering:
    """The rows of the new file: first those of the former one that are still alive, then those that the database has since."""

    def __init__(self, order: Order, former: Sealed | None, file: VectorFile) -> None:
        self._order = order
        self._former = former
        self._facets = Facets()
        self._kept: Longs = np.empty(0, dtype=np.int64)
        self._change = array("q")
        self._ids: list[bytes] = []
        self._group = array("i")
        self._tagset = array("i")
        self._confidence = array("d")
        self._created_at = array("q")
        self._expires_at = array("q")
        if former is not None:
            living = file.living(order.workspace_id, upto=former.upto)
            self._kept = np.flatnonzero(np.isin(former.columns.change, living))

    @property
    def fresh(self) -> int:
        """How many rows the database had."""
        return len(self._change)

    @property
    def count(self) -> int:
        """How many rows there will be."""
        return len(self._kept) + self.fresh

    def take(self, points: list[Point]) -> None:
        """Add the rows of *points*."""
        for point in points:
            count = len(point.vectors)
            self._ids += [point.memory_id.encode()] * count
            self._change.extend([point.change] * count)
            self._group.extend([self._facets.group(point.space)] * count)
            self._tagset.extend([self._facets.tagset(point.tags)] * count)
            self._confidence.extend([point.confidence] * count)
            self._created_at.extend([point.created_at] * count)
            self._expires_at.extend([NEVER if point.expires_at is None else point.expires_at] * count)

    def write(self, fresh: Floats, upto: int) -> None:
        """Put them in lists and seal them."""
        columns, kept = self._columns(), len(self._kept)
        count = len(columns.change)
        centroids, lists, trained = self._lists(fresh, count)
        order = np.lexsort((columns.group, lists))
        columns = Columns(
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
            for start in range(0, count, _WRITTEN_AT_ONCE):
                some = order[start : start + _WRITTEN_AT_ONCE]
                rows = np.empty((len(some), self._order.generation.dimension), dtype=np.float32)
                old = some < kept
                if self._former is not None:
                    rows[old] = self._former.vectors[self._kept[some[old]]]
                rows[~old] = fresh[some[~old] - kept]
                yield rows

        order_of = self._order
        seal(
            named(order_of.folder, workspace_id=order_of.workspace_id, generation=order_of.generation, upto=upto),
            columns,
            batches=batches(),
            dimension=order_of.generation.dimension,
            centroids=centroids,
            ends=np.cumsum(np.bincount(lists, minlength=len(centroids))).astype(np.int64),
            upto=upto,
            trained=trained,
            workspace_id=order_of.workspace_id,
            generation=order_of.generation,
        )

    def _lists(self, fresh: Floats, count: int) -> tuple[Floats, npt.NDArray[np.int32], int]:
        """Return centroids, the list of each row, and how many rows the centroids were found for."""
        former, kept = self._former, self._kept
        if former is not None and count <= _RETRAINED * former.trained and count * _RETRAINED >= former.trained:
            old = np.searchsorted(former.ends, kept, side="right").astype(np.int32)
            return former.centroids, np.concatenate([old, assigned(fresh, former.centroids)]), former.trained
        number = lists_for(count)
        dice = np.random.default_rng(number)
        chosen = np.sort(dice.choice(count, min(count, number * 40), replace=False))
        sample = fresh[chosen[chosen >= len(kept)] - len(kept)]
        if former is not None:
            sample = np.concatenate([former.vectors[kept[chosen[chosen < len(kept)]]], sample])
        centroids = clustered(sample, count=number)
        lists = assigned(fresh, centroids)
        if former is not None:
            lists = np.concatenate([assigned(former.vectors, centroids)[kept], lists])
        return centroids, lists, count

    def _columns(self) -> Columns:
        """Return what is known of all rows, with groups and sets of tags numbered anew, as those of the former file have lost some."""
        change = np.array(self._change, dtype=np.int64)
        ids = np.array(self._ids, dtype=np.bytes_) if self._ids else np.empty(0, dtype="S1")
        group, tagset = np.array(self._group, dtype=np.int32), np.array(self._tagset, dtype=np.int32)
        confidence = np.array(self._confidence, dtype=np.float64)
        created_at, expires_at = np.array(self._created_at, dtype=np.int64), np.array(self._expires_at, dtype=np.int64)
        former = self._former
        if former is not None:
            old, kept = former.columns, self._kept
            groups, old_group = np.unique(old.group[kept], return_inverse=True)
            tagsets, old_tagset = np.unique(old.tagset[kept], return_inverse=True)
            used_groups: list[int] = groups.tolist()
            used_tagsets: list[int] = tagsets.tolist()
            now_group = np.array([self._facets.group(old.spaces[number - 1]) for number in used_groups], dtype=np.int32)
            now_tagset = np.array([self._facets.tagset(old.tagsets[number]) for number in used_tagsets], dtype=np.int32)
            change = np.concatenate([old.change[kept], change])
            ids = np.concatenate([old.ids[kept], ids])
            group = np.concatenate([now_group[old_group], group])
            tagset = np.concatenate([now_tagset[old_tagset], tagset])
            confidence = np.concatenate([old.confidence[kept], confidence])
            created_at = np.concatenate([old.created_at[kept], created_at])
            expires_at = np.concatenate([old.expires_at[kept], expires_at])
        return Columns(
            change=change,
            ids=ids,
            group=group,
            tagset=tagset,
            confidence=confidence,
            created_at=created_at,
            expires_at=expires_at,
            spaces=self._facets.spaces(),
            tagsets=self._facets.tagsets(),
        )


def _former(order: Order, file: VectorFile) -> Sealed | None:
    for upto, path in there(order.folder, workspace_id=order.workspace_id, generation=order.generation):
        with contextlib.suppress(Unusable):
            sealed = Sealed(path, workspace_id=order.workspace_id, generation=order.generation)
            # What is wrong in it would be handed on, file after file.
            compare(sealed, file, workspace_id=order.workspace_id, living=file.living(order.workspace_id, upto=upto))
            return sealed
    return None


def _points(file: VectorFile, workspace_id: int, *, after: int, upto: int) -> Iterator[list[Point]]:
    """Yield what the database has, but for what came after the beginning."""
    while True:
        changes = file.changes(workspace_id, after=after, limit=_BATCH)
        yield [point for point in changes.points if point.change <= upto]
        after = changes.last
        if changes.is_all or after >= upto:
            return


def _leave_with_parent() -> None:
    """Wait for the end of stdin, which is that of whoever wants the file."""
    while os.read(sys.stdin.fileno(), 4096):  # past Python's own buffer, whose lock an ending interpreter could not take
        pass
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
