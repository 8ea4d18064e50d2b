"""The in-memory index of one workspace: lists, if it is large, and a segment with newer rows."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from rookery.engines.vectors.ivf_file import IvfFile, IvfFolder
from rookery.engines.vectors.search import Floats, IndexLimits, ScoredRows, Segment, rank
from rookery.engines.vectors.vector_file import VectorFile
from rookery.memory.models import VectorHit
from rookery.memory.vector_filter import AnyOf, VectorFilter

_MAX_INLINE_FLOATS = 12_288 * 384
"""
Size of a segment that is scored on the event loop: 0.3 ms, and twice that if it is not in the CPU's caches.

With two more changes of threads, a recall among 10,000 memories takes 0.2 to 0.4 ms more and its CPU time is 0.6 ms higher.
"""

_MAX_INLINE_IDS = 400
"""Memories whose vectors are scored on the event loop: 0.6 ms (measured)."""

_CHANGES_PER_READ = 512
"""Changes per read; about a megabyte."""

_NEW_SHARE_DIVISOR = 32
_DEAD_SHARE_DIVISOR = 4
_MAX_DEAD_AGE_S = 24 * 3600.0
"""Maximum age of lists that contain deleted memories. Older ones are built again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexState:
    """The rows up to the change *last_change*; -1 if nothing was read yet."""

    segment: Segment
    lists: IvfFile | None = None
    last_change: int = -1

    @property
    def sources(self) -> tuple[Segment | IvfFile, ...]:
        """The segment and the lists, without those that have no rows."""
        return tuple(source for source in (self.segment, self.lists) if source is not None and source.count)

    @property
    def listed_rows(self) -> int:
        """Number of live rows in lists."""
        return 0 if self.lists is None else self.lists.count - self.lists.dead

    @property
    def listed_change(self) -> int:
        """Last change that the lists contain; 0 without lists."""
        return 0 if self.lists is None else self.lists.last_change


class WorkspaceIndex:
    """
    A workspace's vectors, up to a change of the file.

    Attributes:
        state: What queries read.
        next_state: Lists that were loaded, for the next update. Used by the event loop only, as the next five are.
        change_count: The engine's change counter at the last update.
        build_task: Loads lists, and builds them before that if needed; *build_started_s* is when it began.
        next_build_s: Time before which no build begins, because the last one failed.
    """

    def __init__(self, workspace_id: int, folder: IvfFolder, *, dimension: int, limits: IndexLimits) -> None:
        self.workspace_id = workspace_id
        self.state = IndexState(segment=Segment(dimension))
        self.next_state: IndexState | None = None
        self.change_count = 0
        self.update_task: asyncio.Task[None] | None = None
        self.build_task: asyncio.Task[None] | None = None
        self.build_started_s = self.next_build_s = 0.0
        self._dimension = dimension
        self._folder = folder
        self._limits = limits
        self._lock = threading.Lock()

    def update(self, file: VectorFile, state: IndexState) -> None:
        """Read the changes of the file since *state*. Blocks. One thread at a time may call it; queries read the previous state."""
        if state.last_change < file.get_bounds().floor or state.segment.has_stale_dictionaries:
            state = self.load_lists(file) or self._apply_changes(file, IndexState(segment=Segment(self._dimension), last_change=0))
        else:
            state = self._apply_changes(file, state)
        with self._lock:
            self.state = state

    def load_lists(self, file: VectorFile) -> IndexState | None:
        """Open the newest lists and read later changes. Blocks. Return None if there are no valid lists."""
        lists = self._folder.open_newest(self.workspace_id, file)
        if lists is None:
            return None
        return self._apply_changes(file, IndexState(segment=Segment(self._dimension), lists=lists, last_change=lists.last_change))

    def _apply_changes(self, file: VectorFile, state: IndexState) -> IndexState:
        last_known, last_change, is_complete = file.get_bounds().last, state.last_change, False
        while not is_complete:
            changes = file.get_changes(self.workspace_id, after=last_change, limit=_CHANGES_PER_READ)
            last_change, is_complete = changes.last, changes.is_complete
            stale_ids = {memory_id.encode() for memory_id in (*changes.deleted_ids, *(point.memory_id for point in changes.points))}
            with self._lock:
                for source in state.sources:
                    source.delete(stale_ids)
                state.segment.add(changes.points)
        return replace(state, last_change=max(last_change, last_known))

    @property
    def is_loaded(self) -> bool:
        """True after the first update; later changes are read fast."""
        return self.state.last_change >= 0

    @property
    def needs_lists(self) -> bool:
        """True if lists should be built, or built again, now."""
        lists, new_floats = self.state.lists, self.state.segment.count * self._dimension
        if time.monotonic() < self.next_build_s:
            return False
        if lists is None:
            return new_floats > self._limits.max_exact_floats
        return (
            (lists.dead > 0 and time.time() - lists.made_at_s > _MAX_DEAD_AGE_S)
            or new_floats > max(self._limits.max_new_floats, lists.count * self._dimension // _NEW_SHARE_DIVISOR)
            or lists.dead * _DEAD_SHARE_DIVISOR > lists.count
        )

    def is_fast(self, where: VectorFilter) -> bool:
        """Return whether a search takes less time than the change to another thread: it reads no file, does not wait, and has few rows."""
        condition = where.required.get("memory_id")
        has_few_ids = isinstance(condition, AnyOf) and len(condition.values) <= _MAX_INLINE_IDS
        is_small = self.state.segment.count * self._dimension <= _MAX_INLINE_FLOATS
        return self.state.lists is None and not self._lock.locked() and (has_few_ids or is_small)

    def search(self, vector: Floats, where: VectorFilter, *, limit: int, helpers: ThreadPoolExecutor | None) -> list[VectorHit]:
        """Return the nearest memories that *where* admits. Waits briefly while changes are applied."""
        condition = where.required.get("memory_id")
        with self._lock:
            if isinstance(condition, AnyOf):
                ids = [memory_id.encode() for memory_id in condition.values if memory_id is not None]
                found = [(source, numbers) for source in self.state.sources if len(numbers := source.find_rows(ids))]
                return rank([source.take_snapshot(where).score_rows(numbers, vector) for source, numbers in found], limit)
            snapshots = [source.take_snapshot(where) for source in self.state.sources]
        scored = list[ScoredRows]()
        for rows in snapshots:
            if isinstance(rows, IvfFile):
                scored.append(rows.score_nearest(vector, limit=limit, limits=self._limits))
            else:
                scored += rows.score_all(vector, helpers=helpers)
        return rank(scored, limit)
