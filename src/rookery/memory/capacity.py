"""The storage limits of a workspace, with back-pressure before the limit. Counts are cached and updated in between."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

from rookery.kernel.data_folder import DiskSpace
from rookery.kernel.db import Database
from rookery.kernel.jobs import JobQueue
from rookery.memory.errors import BacklogFull, MemoriesFull
from rookery.memory.indexing import EMBED_JOB
from rookery.memory.store.tables import MEMORIES

_RECOUNT_INTERVAL_S = 1.0
"""Minimum interval between two counts."""
_REJECT_RECOUNT_INTERVAL_S = 0.1
"""Maximum age of a count that leads to a rejection. A full workspace is not recounted at each attempt."""

_MAX_COUNT_AGE_S = 600.0
_MAX_DELAY_S = 1.0
_BACKLOG_RECOUNT_DIVISOR = 50
"""The backlog is recounted after a fiftieth of its limit was accepted, so that the cached count stays close."""

_MEMORIES_RECOUNT_DIVISOR = 8
"""Memories are recounted after an eighth of the remaining room was used. Up to eight processes may fill the rest between counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageLimits:
    """
    The storage limits. All but the disk limit are per workspace.

    Attributes:
        folder: The folder of the records. None if they are not on a disk of this host.
    """

    max_memories: int = 1_000_000
    max_backlog: int = 100_000
    min_free_bytes: int = 512 * 1024 * 1024
    folder: Path | None = None


@dataclass(slots=True)
class _CachedCount:
    """A count and the number of items accepted since."""

    count: int = 0
    added: int = 0
    counted_at_s: float = float("-inf")
    lock: asyncio.Lock = field(default_factory=asyncio.Lock, repr=False)

    @property
    def total(self) -> int:
        return self.count + self.added


class Capacity:
    """
    The admission control of new memories.

    Args:
        monotonic: A clock in seconds that never goes back; tests pass their own.
    """

    def __init__(self, *, db: Database, jobs: JobQueue, limits: StorageLimits, monotonic: Callable[[], float]) -> None:
        self._db = db
        self._jobs = jobs
        self._limits = limits
        self._monotonic = monotonic
        self._memories: dict[int, _CachedCount] = {}
        self._backlogs: dict[int, _CachedCount] = {}
        self._disk = DiskSpace(limits.folder, min_free_bytes=limits.min_free_bytes, monotonic=monotonic)

    async def admit(self, workspace_id: int, count: int) -> None:
        """
        Admit *count* drafts. Beyond half of the backlog limit the call is delayed, up to 1 s at the limit, as back-pressure.

        Raises:
            StorageFull: The disk has less free space than required.
            MemoriesFull: The workspace would exceed its maximum number of memories.
            BacklogFull: The workspace would exceed its maximum number of memories that wait for indexing.
        """
        self.require_disk_space()
        await self._require_memory_room(workspace_id, count)
        backlog = await self._get_backlog(workspace_id, count)
        limit = self._limits.max_backlog
        if backlog + count > limit:
            raise BacklogFull(limit)
        pressure = (2 * backlog - limit) / limit
        if pressure > 0:
            await asyncio.sleep(_MAX_DELAY_S * pressure)

    async def count_admissible(self, workspace_id: int, count: int) -> int:
        """
        Return how many of *count* imported memories may be stored. Indexing of imports is not part of the backlog.

        Raises:
            StorageFull: The disk has less free space than required.
        """
        self.require_disk_space()
        try:
            await self._require_memory_room(workspace_id, count)
        except MemoriesFull:
            return max(0, self._limits.max_memories - self._memories[workspace_id].total)
        return count

    @property
    def max_memories(self) -> int:
        """The maximum number of memories per workspace."""
        return self._limits.max_memories

    def add_imported(self, workspace_id: int, count: int) -> None:
        """Record that *count* imported memories were stored. They do not add to the backlog."""
        cached = self._memories.get(workspace_id)
        if cached is not None:
            cached.added += count

    def add_stored(self, workspace_id: int, count: int) -> None:
        """Record that *count* memories were stored."""
        for cached in (self._memories.get(workspace_id), self._backlogs.get(workspace_id)):
            if cached is not None:
                cached.added += count

    def require_disk_space(self) -> None:
        """
        Check that the disk has enough free space. The disk is checked at most once per second.

        Raises:
            StorageFull: The disk has less free space than required.
        """
        self._disk.require()

    async def _require_memory_room(self, workspace_id: int, count: int) -> None:
        cached = self._memories.setdefault(workspace_id, _CachedCount())
        limit = self._limits.max_memories
        age_s = self._monotonic() - cached.counted_at_s
        used_much = cached.added * _MEMORIES_RECOUNT_DIVISOR >= limit - cached.count
        would_refuse = cached.total + count > limit
        if (
            age_s >= _MAX_COUNT_AGE_S
            or (age_s >= _RECOUNT_INTERVAL_S and used_much)
            or (age_s >= _REJECT_RECOUNT_INTERVAL_S and would_refuse)
        ):
            await self._recount(cached, lambda: self._db.read(lambda tx: MEMORIES.count(tx, workspace_id)))
        if cached.total + count > limit:
            raise MemoriesFull(limit)

    async def _get_backlog(self, workspace_id: int, count: int) -> int:
        cached = self._backlogs.setdefault(workspace_id, _CachedCount())
        limit = self._limits.max_backlog
        age_s = self._monotonic() - cached.counted_at_s
        accepted_many = cached.added * _BACKLOG_RECOUNT_DIVISOR >= limit
        is_half_full = age_s >= _RECOUNT_INTERVAL_S and 2 * cached.total >= limit
        would_refuse = age_s >= _REJECT_RECOUNT_INTERVAL_S and cached.total + count > limit
        if age_s >= _MAX_COUNT_AGE_S or accepted_many or is_half_full or would_refuse:
            await self._recount(cached, lambda: self._jobs.count_pending(EMBED_JOB, workspace_id))
        return cached.total

    async def _recount(self, cached: _CachedCount, count: Callable[[], Awaitable[int]]) -> None:
        """Refresh *cached*; concurrent callers share one count. Items accepted during the count are added to it."""
        last_counted_at_s = cached.counted_at_s
        async with cached.lock:
            if cached.counted_at_s != last_counted_at_s:
                return
            before, at_s = cached.added, self._monotonic()
            cached.count = await count()
            cached.added -= before
            cached.counted_at_s = at_s
