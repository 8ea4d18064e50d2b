"""What one process has of a workspace: the lists of a sealed file, if it is large, and a slab of what is newer than that."""

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
"""So many rows are scored (0.13 ms) about as fast as another thread is woken to do it (0.05 to 0.1 ms)."""

_CHANGES_PER_READ = 512
"""Changes read at once: about a megabyte."""

MAX_EXACT_FLOATS = 32_768 * 384
"""A slab of so many is scored whole in 2 to 4 ms; above, lists are built."""

_MAX_NEW_FLOATS = 16_384 * 384
_NEW_SHARE_DIVISOR = 32
"""Beside lists the slab may have so many, or one of so many, before they are built anew: a millisecond or two for a query."""

_DEAD_SHARE_DIVISOR = 4

_MAX_DEAD_AGE_S = 24 * 3600.0
"""At the latest so long after it was forgotten a memory leaves the lists too: older ones with any such are built anew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _IndexState:
    """Up to the change *last_change*."""

    segment: Segment
    ivf_file: LiveIvfFile | None
    last_change: int


class WorkspaceIndex:
    """
    A workspace's vectors and how far they have followed the file.

    Attributes:
        age: Of the index's changes when it last followed; the loop's alone, as *update_task* and *build_task* are.
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
        """Read what changed; blocks. One thread at a time; queries go on meanwhile, with what they may see already."""
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
        Open the newest file and read what is newer than that, for the next `update` to go on from; blocks, but nobody else.

        Returns False if there is none that holds what the database does.
        """
        bounds = file.get_bounds()
        state = self._open_newest(file, bounds)
        if state is not None:
            self._next_state = self._apply_changes(file, state, bounds)
        return state is not None

    def _apply_changes(self, file: VectorFile, state: _IndexState, bounds: ChangeBounds) -> _IndexState:
        slab, attached, seen = state.segment, state.ivf_file, state.last_change
        while True:
            changes = file.get_changes(self.workspace_id, after=seen, limit=_CHANGES_PER_READ)
            seen = changes.last
            if changes.deleted_ids or changes.points:
                with self._lock:
                    if attached is not None:
                        attached.delete([*changes.deleted_ids, *(point.memory_id for point in changes.points)])
                    slab.apply(deleted_ids=changes.deleted_ids, points=changes.points)
            if changes.is_complete:
                return _IndexState(segment=slab, ivf_file=attached, last_change=max(seen, bounds.last))

    @property
    def is_loaded(self) -> bool:
        """Tell whether it ever followed: what came since is soon read."""
        return self._is_loaded

    @property
    def row_count(self) -> int:
        """How many rows there are to be seen."""
        state = self._state
        attached = state.ivf_file
        return state.segment.row_count + (0 if attached is None else attached.live_count)

    @property
    def listed_row_count(self) -> int:
        """How many of them are in lists."""
        attached = self._state.ivf_file
        return 0 if attached is None else attached.live_count

    @property
    def lists_last_change(self) -> int:
        """Up to which change the lists know; 0 without lists."""
        attached = self._state.ivf_file
        return 0 if attached is None else attached.file.last_change

    @property
    def needs_lists(self) -> bool:
        """Tell whether it is time to build them, or to build them anew."""
        state = self._state
        news, attached = state.segment.row_count * self._model_version.dimension, state.ivf_file
        if attached is None:
            return news > MAX_EXACT_FLOATS
        if attached.dead and _is_expired(attached.file.made_at_s):
            return True
        size = len(attached.file)
        return (
            news > max(_MAX_NEW_FLOATS, size * self._model_version.dimension // _NEW_SHARE_DIVISOR)
            or attached.dead * _DEAD_SHARE_DIVISOR > size
        )

    def try_snapshot(self, access_filter: AccessFilter) -> WorkspaceSnapshot | None:
        """Return what *access_filter* sees if that is little and needs no waiting."""
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
        """Return what *access_filter* sees; blocks for a moment while changes are taken in."""
        with self._lock:
            state = self._state
            return state.segment.take_snapshot(
                access_filter, ivf_snapshot=None if state.ivf_file is None else state.ivf_file.take_snapshot(access_filter)
            )

    def compute_similarities(self, vector: Floats, ids: Collection[str]) -> dict[str, float]:
        """Return the similarity of those of *ids* that are here."""
        with self._lock:
            state = self._state
            found = state.segment.compute_similarities(vector, ids)
            if state.ivf_file is not None:
                found |= state.ivf_file.compute_similarities(vector, [each for each in ids if each not in found])
            return found

    def _open_newest(self, file: VectorFile, bounds: ChangeBounds) -> _IndexState | None:
        """Return the newest file that holds what the database does, to begin at; None: there is none."""
        for upto, path in list_files(self._folder, workspace_id=self.workspace_id, model_version=self._model_version):
            try:
                if upto > bounds.last and upto > file.get_bounds().last:
                    raise IvfFileError("it knows more than vectors.db, which must be another one")  # noqa: TRY301 - as the others below
                attached = LiveIvfFile(IvfFile(path, workspace_id=self.workspace_id, model_version=self._model_version))
                living = file.list_live(self.workspace_id, last_change=upto)
                verify_ivf_file(attached.file, file, workspace_id=self.workspace_id, live_changes=living)
                attached.keep_only(living)
            except IvfFileError as error:
                _log.warning("lists of vectors left aside", workspace_id=self.workspace_id, file=path.name, reason=str(error))
                path.unlink(missing_ok=True)
                continue
            attached.file.prefetch()
            return _IndexState(segment=Segment(self._model_version.dimension), ivf_file=attached, last_change=upto)
        return None


def are_lists_old(folder: Path, *, workspace_id: int, model_version: ModelVersion) -> bool:
    """Tell whether the lists of a workspace are so old that what was forgotten since should leave them."""
    for _, path in list_files(folder, workspace_id=workspace_id, model_version=model_version):
        with contextlib.suppress(OSError):
            return _is_expired(path.stat().st_mtime)
    return False


def _is_expired(made_at_s: float) -> bool:
    return time.time() - made_at_s > _MAX_DEAD_AGE_S
