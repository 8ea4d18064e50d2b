"""The in-memory index of one workspace: lists, if it is large, and a segment with newer rows."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from rookery.engines.vectors.ivf_file import IvfFile, IvfFolder
from rookery.engines.vectors.search import Floats, ScoredRows, SearchLimits, Segment, rank
from rookery.engines.vectors.vector_file import VectorFile
from rookery.memory.models import VectorHit
from rookery.memory.vector_filter import AnyOf, VectorFilter

_MAX_INLINE_FLOATS = 12_288 * 384
"""
Size of a segment that is scored on the event loop: 0.3 ms, and twice that if it is not in the CPU's caches.

With two more changes of threads, a recall among 10,000 memories takes 0.2 to 0.4 ms more and its CPU time is 0.6 ms higher.
"""

_CHANGES_PER_READ = 512
"""Changes per read; about a megabyte."""

_NEW_SHARE_DIVISOR = 32
_DEAD_SHARE_DIVISOR = 4
_MAX_DEAD_AGE_S = 24 * 3600.0
"""Maximum age of lists that contain deleted memories. Older ones are built again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexLimits:
    """
    Sizes and times of the index.

    Attributes:
        max_exact_floats: Size above which lists are built. A segment of this size is scored in 2 to 4 ms.
        max_new_floats: Size of the segment beside lists above which lists are built again; a 32nd of the lists if that is more. One or
            two milliseconds of a query.
        max_warmup_s: Maximum wait of the first queries. Within it, lists of a million rows are opened, and those of 40,000 are built.
        build_poll_s: Interval of checks while another process builds.
        build_retry_s: Delay after a failed build.
        list_check_interval_s: Interval of checks for lists to build, and for those that contain deleted memories.
        max_tombstones: A process that missed more deletions reads the workspace again.
    """

    max_exact_floats: int = 32_768 * 384
    max_new_floats: int = 16_384 * 384
    max_warmup_s: float = 2.0
    build_poll_s: float = 1.0
    build_retry_s: float = 60.0
    list_check_interval_s: float = 60.0
    max_tombstones: int = 65_536
    search: SearchLimits = field(default_factory=SearchLimits)


@dataclass(frozen=True, slots=True, kw_only=True)
class _State:
    """The state up to the change *last_change*."""

    segment: Segment
    lists: IvfFile | None = None
    last_change: int = 0

    @property
    def sources(self) -> tuple[Segment | IvfFile, ...]:
        """The segment and the lists, without those that have no rows."""
        return tuple(source for source in (self.segment, self.lists) if source is not None and source.count)


class WorkspaceIndex:
    """
    A workspace's vectors, up to a change of the file.

    Attributes:
        change_count: The engine's change counter at the last update. Used by the event loop only, as the next four are.
        build_task: Loads lists, and builds them before that if needed; *build_started_s* is when it began.
        next_build_s: Time before which no build begins, because the last one failed.
        is_loaded: True after the first update; later changes are read fast.
    """

    def __init__(self, workspace_id: int, folder: IvfFolder, *, dimension: int, limits: IndexLimits) -> None:
        self.change_count = 0
        self.update_task: asyncio.Task[None] | None = None
        self.build_task: asyncio.Task[None] | None = None
        self.build_started_s = self.next_build_s = 0.0
        self.is_loaded = False
        self.workspace_id = workspace_id
        self._dimension = dimension
        self._folder = folder
        self._limits = limits
        self._lock = threading.Lock()
        self._state = self._create_empty()
        self._next_state: _State | None = None

    def update(self, file: VectorFile) -> None:
        """Read changes of the file. Blocks. Call it from one thread at a time; queries continue with the previous state."""
        floor = file.get_bounds().floor
        next_, self._next_state = self._next_state, None
        if next_ is not None and next_.last_change >= floor:
            state = next_
        elif not self.is_loaded or self._state.segment.has_stale_dictionaries or self._state.last_change < floor:
            state = self._open_lists(file) or self._create_empty()
        else:
            state = self._state
        state = self._apply_changes(file, state)
        with self._lock:
            self._state, self.is_loaded = state, True

    def load_lists(self, file: VectorFile) -> bool:
        """Open the newest lists and read later changes, for the next `update`. Blocks. Return False if there are no valid lists."""
        state = self._open_lists(file)
        if state is not None:
            self._next_state = self._apply_changes(file, state)
        return state is not None

    def _create_empty(self) -> _State:
        return _State(segment=Segment(self._dimension))

    def _open_lists(self, file: VectorFile) -> _State | None:
        lists = self._folder.open_newest(self.workspace_id, file)
        return None if lists is None else _State(segment=Segment(self._dimension), lists=lists, last_change=lists.last_change)

    def _apply_changes(self, file: VectorFile, state: _State) -> _State:
        last_known, last_change = file.get_bounds().last, state.last_change
        while True:
            changes = file.get_changes(self.workspace_id, after=last_change, limit=_CHANGES_PER_READ)
            last_change = changes.last
            stale_ids = {memory_id.encode() for memory_id in (*changes.deleted_ids, *(point.memory_id for point in changes.points))}
            with self._lock:
                for source in state.sources:
                    source.delete(stale_ids)
                state.segment.add(changes.points)
            if changes.is_complete:
                return _State(segment=state.segment, lists=state.lists, last_change=max(last_change, last_known))

    @property
    def row_count(self) -> int:
        """Number of rows: those that a query scores, and the live ones of the lists."""
        return self._state.segment.count + self.listed_row_count

    @property
    def listed_row_count(self) -> int:
        """Number of live rows in lists."""
        lists = self._state.lists
        return 0 if lists is None else lists.count - lists.dead

    @property
    def lists_last_change(self) -> int:
        """Last change that the lists contain; 0 without lists."""
        lists = self._state.lists
        return 0 if lists is None else lists.last_change

    @property
    def needs_lists(self) -> bool:
        """True if lists should be built, or built again, now."""
        state, dimension = self._state, self._dimension
        if time.monotonic() < self.next_build_s:
            return False
        new_floats, lists = state.segment.count * dimension, state.lists
        if lists is None:
            return new_floats > self._limits.max_exact_floats
        return (
            (lists.dead > 0 and time.time() - lists.made_at_s > _MAX_DEAD_AGE_S)
            or new_floats > max(self._limits.max_new_floats, lists.count * dimension // _NEW_SHARE_DIVISOR)
            or lists.dead * _DEAD_SHARE_DIVISOR > lists.count
        )

    @property
    def is_small(self) -> bool:
        """True if a search takes less time than the change to another thread."""
        return self.is_in_memory and self._state.segment.count * self._dimension <= _MAX_INLINE_FLOATS

    @property
    def is_in_memory(self) -> bool:
        """True if a search reads no file and does not wait."""
        return self._state.lists is None and not self._lock.locked()

    def search(self, vector: Floats, where: VectorFilter, *, limit: int, helpers: ThreadPoolExecutor | None) -> list[VectorHit]:
        """Return the nearest memories that *where* admits. Waits briefly while changes are applied."""
        condition = where.required.get("memory_id")
        with self._lock:
            if isinstance(condition, AnyOf):
                ids = [memory_id.encode() for memory_id in condition.values if memory_id is not None]
                found = [(source, numbers) for source in self._state.sources if len(numbers := source.find_rows(ids))]
                return rank([source.take_snapshot(where).score_rows(numbers, vector) for source, numbers in found], limit)
            snapshots = [source.take_snapshot(where) for source in self._state.sources]
        scored = list[ScoredRows]()
        for rows in snapshots:
            if isinstance(rows, IvfFile):
                scored.append(rows.score_nearest(vector, limit=limit, limits=self._limits.search))
            else:
                scored += rows.score_all(vector, helpers=helpers)
        return rank(scored, limit)
