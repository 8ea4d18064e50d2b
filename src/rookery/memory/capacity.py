"""How much a workspace may store, and slowing down in time (D-17). What it knows is counted seldom and added to in between."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

from rookery.kernel.db import Database
from rookery.kernel.disk_space import DiskSpace
from rookery.kernel.jobs import JobQueue
from rookery.memory.errors import BacklogFull, MemoriesFull
from rookery.memory.indexing import EMBED_JOB
from rookery.memory.store import records

_RECOUNT_INTERVAL_S = 1.0
_REJECT_RECOUNT_INTERVAL_S = 0.1
"""Nobody is refused on a number older than this, but a full workspace is not counted for each attempt."""

_MAX_COUNT_AGE_S = 600.0
_MAX_DELAY_S = 1.0
_BACKLOG_RECOUNT_DIVISOR = 50
"""The backlog is counted again after a fiftieth of its limit was accepted: then it is never far from what we think."""

_MEMORIES_RECOUNT_DIVISOR = 8
"""Memories are counted again after an eighth of the room left was used: up to eight processes may fill the rest unseen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageLimits:
    """
    D-17's numbers, per workspace but for the disk.

    Attributes:
        folder: Where the records are; None: not on this host's disk.
    """

    max_memories: int = 1_000_000
    max_backlog: int = 100_000
    min_free_bytes: int = 512 * 1024 * 1024
    folder: Path | None = None


@dataclass(slots=True)
class _CachedCount:
    """A number as last counted, and how many were accepted since."""

    count: int = 0
    added: int = 0
    counted_at_s: float = float("-inf")
    lock: asyncio.Lock = field(default_factory=asyncio.Lock, repr=False)

    @property
    def total(self) -> int:
        return self.count + self.added


class Capacity:
    """
    Lets drafts in, or says why not.

    Args:
        monotonic: Seconds of a clock that never goes back; tests pass their own.
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
        Let *count_memories* drafts in, the later the fuller the backlog is beyond its half: back-pressure before refusal.

        Raises:
            StorageFull: The disk has less than the free room required.
            MemoriesFull: The workspace would have more memories than it may.
            BacklogFull: More would wait for indexing than may.
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
        Return how many of *count_memories* memories may be stored whose indexing is no part of the backlog, as an import's.

        Raises:
            StorageFull: As `admit`.
        """
        self.require_disk_space()
        try:
            await self._require_memory_room(workspace_id, count)
        except MemoriesFull:
            return max(0, self._limits.max_memories - self._memories[workspace_id].total)
        return count

    @property
    def max_memories(self) -> int:
        """How many a workspace may have."""
        return self._limits.max_memories

    def add_imported(self, workspace_id: int, count: int) -> None:
        """Take note that *count_memories* memories were let in by `count_admissible` and stored."""
        known = self._memories.get(workspace_id)
        if known is not None:
            known.added += count

    def add_stored(self, workspace_id: int, count: int) -> None:
        """Take note that *count_memories* memories were stored."""
        for known in (self._memories.get(workspace_id), self._backlogs.get(workspace_id)):
            if known is not None:
                known.added += count

    def require_disk_space(self) -> None:
        """
        Do nothing if the disk has room; it is asked once a second at most.

        Raises:
            StorageFull: It has not.
        """
        self._disk.require()

    async def _require_memory_room(self, workspace_id: int, count: int) -> None:
        known = self._memories.setdefault(workspace_id, _CachedCount())
        limit = self._limits.max_memories
        age_s = self._monotonic() - known.counted_at_s
        used_much = known.added * _MEMORIES_RECOUNT_DIVISOR >= limit - known.count
        would_refuse = known.total + count > limit
        if (
            age_s >= _MAX_COUNT_AGE_S
            or (age_s >= _RECOUNT_INTERVAL_S and used_much)
            or (age_s >= _REJECT_RECOUNT_INTERVAL_S and would_refuse)
        ):
            await self._recount(known, lambda: self._db.read(lambda tx: records.count_memories(tx, workspace_id)))
        if known.total + count > limit:
            raise MemoriesFull(limit)

    async def _get_backlog(self, workspace_id: int, count: int) -> int:
        known = self._backlogs.setdefault(workspace_id, _CachedCount())
        limit = self._limits.max_backlog
        age_s = self._monotonic() - known.counted_at_s
        accepted_many = known.added * _BACKLOG_RECOUNT_DIVISOR >= limit
        is_half_full = age_s >= _RECOUNT_INTERVAL_S and 2 * known.total >= limit
        would_refuse = age_s >= _REJECT_RECOUNT_INTERVAL_S and known.total + count > limit
        if age_s >= _MAX_COUNT_AGE_S or accepted_many or is_half_full or would_refuse:
            await self._recount(known, lambda: self._jobs.count_pending(EMBED_JOB, workspace_id))
        return known.total

    async def _recount(self, cached: _CachedCount, count: Callable[[], Awaitable[int]]) -> None:
        """Count once for all who ask meanwhile; what is accepted during the count is added to it."""
        asked_at_s = cached.counted_at_s
        async with cached.lock:
            if cached.counted_at_s != asked_at_s:
                return
            before, at_s = cached.added, self._monotonic()
            cached.count = await count()
            cached.added -= before
            cached.counted_at_s = at_s
