"""The in-memory index of one workspace: lists of an IVF file, if it is large, and a segment with newer rows."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import structlog

from rookery.engines.vectors.ivf_file import Floats, IvfFile, IvfFileError, list_files
from rookery.engines.vectors.ivf_search import LiveIvfFile
from rookery.engines.vectors.segment import Segment
from rookery.engines.vectors.snapshot import WorkspaceSnapshot
from rookery.engines.vectors.vector_file import ChangeBounds, VectorFile
from rookery.engines.vectors.verify import verify_ivf_file
from rookery.memory.models import AccessFilter
from rookery.memory.ports import ModelVersion

_log = structlog.stdlib.get_logger("rookery.vectors")

_MAX_INLINE_ROWS = 2000
"""Rows that are scored (0.13 ms) about as fast as another thread is woken (0.05 to 0.1 ms)."""

_CHANGES_PER_READ = 512
"""Changes per read; about a megabyte."""

MAX_EXACT_FLOATS = 32_768 * 384
"""Size above which lists are built. A segment of this size is scored in 2 to 4 ms."""

_MAX_NEW_FLOATS = 16_384 * 384
_NEW_SHARE_DIVISOR = 32
"""Limits of the segment beside lists, absolute and as a fraction of the lists, above which lists are built again; one or two milliseconds
of a query."""

_DEAD_SHARE_DIVISOR = 4

_MAX_DEAD_AGE_S = 24 * 3600.0
"""Maximum age of lists that contain deleted memories. Older ones are built again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _IndexState:
    """The state up to the change *last_change*."""

    segment: Segment
    ivf_file: LiveIvfFile | None
    last_change: int


class WorkspaceIndex:
    """
    A workspace's vectors, up to a change of the file.

    Attributes:
        change_count: The engine's change counter at the last update. Used by the event loop only, as *update_task* and *build_task* are.
    """

    def __init__(self, workspace_id: int, model_version: ModelVersion, folder: Path) -> None:
        self.change_count = 0
        self.update_task: asyncio.Task[None] | None = None
        self.build_task: asyncio.Task[None] | None = None
        self.workspace_id = workspace_id
        self._model_version = model_version
        self._folder = folder
        self._lock = threading.Lock()
        self._state = _IndexState(segment=Segment(model_version.dimension), ivf_file=None, last_change=0)
        self._next_state: _IndexState | None = None
        self._is_loaded = False

    def update(self, file: VectorFile) -> None:
        """Read changes of the file. Blocks. Call it from one thread at a time; queries continue with the previous state."""
        bounds = file.get_bounds()
        next_, self._next_state = self._next_state, None
        if next_ is not None and next_.last_change >= bounds.floor:
            state = next_
        elif not self._is_loaded or self._state.segment.has_stale_dictionaries or self._state.last_change < bounds.floor:
            state = self._open_newest(file, bounds) or _IndexState(
                segment=Segment(self._model_version.dimension), ivf_file=None, last_change=0
            )
        else:
            state = self._state
        state = self._apply_changes(file, state, bounds)
        with self._lock:
            self._state, self._is_loaded = state, True

    def load_lists(self, file: VectorFile) -> bool:
        """
        Open the newest list file and read later changes, for the next `update`. Blocks this thread only.

        Return False if there is no valid file.
        """
        bounds = file.get_bounds()
        state = self._open_newest(file, bounds)
        if state is not None:
            self._next_state = self._apply_changes(file, state, bounds)
        return state is not None

    def _apply_changes(self, file: VectorFile, state: _IndexState, bounds: ChangeBounds) -> _IndexState:
        segment, ivf_file, last_change = state.segment, state.ivf_file, state.last_change
        while True:
            changes = file.get_changes(self.workspace_id, after=last_change, limit=_CHANGES_PER_READ)
            last_change = changes.last
            if changes.deleted_ids or changes.points:
                with self._lock:
                    if ivf_file is not None:
                        ivf_file.delete([*changes.deleted_ids, *(point.memory_id for point in changes.points)])
                    segment.apply(deleted_ids=changes.deleted_ids, points=changes.points)
            if changes.is_complete:
                return _IndexState(segment=segment, ivf_file=ivf_file, last_change=max(last_change, bounds.last))

    @property
    def is_loaded(self) -> bool:
        """True after the first update; later changes are read fast."""
        return self._is_loaded

    @property
    def row_count(self) -> int:
        """Number of live rows."""
        state = self._state
        ivf_file = state.ivf_file
        return state.segment.row_count + (0 if ivf_file is None else ivf_file.live_count)

    @property
    def listed_row_count(self) -> int:
        """Number of live rows in lists."""
        ivf_file = self._state.ivf_file
        return 0 if ivf_file is None else ivf_file.live_count

    @property
    def lists_last_change(self) -> int:
        """Last change that the lists contain; 0 without lists."""
        ivf_file = self._state.ivf_file
        return 0 if ivf_file is None else ivf_file.file.last_change

    @property
    def needs_lists(self) -> bool:
        """True if lists should be built, or built again."""
        state = self._state
        new_floats, ivf_file = state.segment.row_count * self._model_version.dimension, state.ivf_file
        if ivf_file is None:
            return new_floats > MAX_EXACT_FLOATS
        if ivf_file.dead and _is_expired(ivf_file.file.made_at_s):
            return True
        size = len(ivf_file.file)
        return (
            new_floats > max(_MAX_NEW_FLOATS, size * self._model_version.dimension // _NEW_SHARE_DIVISOR)
            or ivf_file.dead * _DEAD_SHARE_DIVISOR > size
        )

    def try_snapshot(self, access_filter: AccessFilter) -> WorkspaceSnapshot | None:
        """Return a snapshot for *access_filter* if the workspace is small and not locked, or else None."""
        if not self._lock.acquire(blocking=False):
            return None
        try:
            state = self._state
            return (
                state.segment.take_snapshot(access_filter)
                if state.ivf_file is None and state.segment.row_count <= _MAX_INLINE_ROWS
                else None
            )
        finally:
            self._lock.release()

    def take_snapshot(self, access_filter: AccessFilter) -> WorkspaceSnapshot:
        """Return a snapshot for *access_filter*. Blocks briefly while changes are applied."""
        with self._lock:
            state = self._state
            return state.segment.take_snapshot(
                access_filter, ivf_snapshot=None if state.ivf_file is None else state.ivf_file.take_snapshot(access_filter)
            )

    def compute_similarities(self, vector: Floats, ids: Collection[str]) -> dict[str, float]:
        """Return the similarities of *ids* that are in the index."""
        with self._lock:
            state = self._state
            similarities = state.segment.compute_similarities(vector, ids)
            if state.ivf_file is not None:
                similarities |= state.ivf_file.compute_similarities(
                    vector, [memory_id for memory_id in ids if memory_id not in similarities]
                )
            return similarities

    def _open_newest(self, file: VectorFile, bounds: ChangeBounds) -> _IndexState | None:
        """Open the newest valid list file; None if there is no valid file."""
        for last_change, path in list_files(self._folder, workspace_id=self.workspace_id, model_version=self._model_version):
            try:
                if last_change > bounds.last and last_change > file.get_bounds().last:
                    raise IvfFileError("it contains changes that vectors.db does not have, so it belongs to another vectors.db")  # noqa: TRY301 - as below
                ivf_file = LiveIvfFile(IvfFile(path, workspace_id=self.workspace_id, model_version=self._model_version))
                live = file.list_live(self.workspace_id, last_change=last_change)
                verify_ivf_file(ivf_file.file, file, workspace_id=self.workspace_id, live_changes=live)
                ivf_file.keep_only(live)
            except IvfFileError as error:
                _log.warning("vectors.ivf_file_deleted", workspace_id=self.workspace_id, file=path.name, reason=str(error))
                path.unlink(missing_ok=True)
                continue
            ivf_file.file.prefetch()
            return _IndexState(segment=Segment(self._model_version.dimension), ivf_file=ivf_file, last_change=last_change)
        return None


def are_lists_old(folder: Path, *, workspace_id: int, model_version: ModelVersion) -> bool:
    """Return whether the lists of a workspace are so old that memories deleted since must be removed from them."""
    for _, path in list_files(folder, workspace_id=workspace_id, model_version=model_version):
        with contextlib.suppress(OSError):
            return _is_expired(path.stat().st_mtime)
    return False


def _is_expired(made_at_s: float) -> bool:
    return time.time() - made_at_s > _MAX_DEAD_AGE_S
