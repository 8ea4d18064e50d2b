"""How much a workspace may store, and slowing down in time (D-17). What it knows is counted seldom and added to in between."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

from rookery.kernel.db import Database
from rookery.kernel.disk_space import DiskSpace
from rookery.kernel.jobs import Jobs
from rookery.memory.errors import BacklogFull, MemoriesFull
from rookery.memory.indexing import EMBED
from rookery.memory.store import records

_RECOUNT_S = 1.0
_REFUSE_S = 0.1
"""Nobody is refused on a number older than this, but a full workspace is not counted for each attempt."""

_SURE_S = 600.0
_SLOWEST_S = 1.0
_BACKLOG_STEP = 50
"""The backlog is counted again after a fiftieth of its limit was accepted: then it is never far from what we think."""

_MEMORIES_STEP = 8
"""Memories are counted again after an eighth of the room left was used: up to eight processes may fill the rest unseen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
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
class _Known:
    """A number as last counted, and how many were accepted since."""

    counted: int = 0
    accepted: int = 0
    at_s: float = float("-inf")
    counting: asyncio.Lock = field(default_factory=asyncio.Lock, repr=False)

    @property
    def now(self) -> int:
        return self.counted + self.accepted


class Capacity:
    """
    Lets drafts in, or says why not.

    Args:
        monotonic: Seconds of a clock that never goes back; tests pass their own.
    """

    def __init__(self, *, db: Database, jobs: Jobs, limits: Limits, monotonic: Callable[[], float]) -> None:
        self._db = db
        self._jobs = jobs
        self._limits = limits
        self._monotonic = monotonic
        self._memories: dict[int, _Known] = {}
        self._backlogs: dict[int, _Known] = {}
        self._disk = DiskSpace(limits.folder, min_free_bytes=limits.min_free_bytes, monotonic=monotonic)

    async def admit(self, workspace_id: int, number: int) -> None:
        """
        Let *number* drafts in, the later the fuller the backlog is beyond its half: back-pressure before refusal.

        Raises:
            StorageFull: The disk has less than the free room required.
            MemoriesFull: The workspace would have more memories than it may.
            BacklogFull: More would wait for indexing than may.
        """
        self.must_have_room()
        await self._count_memories(workspace_id, number)
        backlog = await self._count_backlog(workspace_id, number)
        limit = self._limits.max_backlog
        if backlog + number > limit:
            raise BacklogFull(limit)
        pressure = (2 * backlog - limit) / limit
        if pressure > 0:
            await asyncio.sleep(_SLOWEST_S * pressure)

    async def room(self, workspace_id: int, wanted: int) -> int:
        """
        Return how many of *wanted* memories may be stored whose indexing is no part of the backlog, as an import's.

        Raises:
            StorageFull: As `admit`.
        """
        self.must_have_room()
        try:
            await self._count_memories(workspace_id, wanted)
        except MemoriesFull:
            return max(0, self._limits.max_memories - self._memories[workspace_id].now)
        return wanted

    @property
    def most_memories(self) -> int:
        """How many a workspace may have."""
        return self._limits.max_memories

    def moved_in(self, workspace_id: int, number: int) -> None:
        """Take note that *number* memories were let in by `room` and stored."""
        known = self._memories.get(workspace_id)
        if known is not None:
            known.accepted += number

    def accepted(self, workspace_id: int, number: int) -> None:
        """Take note that *number* memories were stored."""
        for known in (self._memories.get(workspace_id), self._backlogs.get(workspace_id)):
            if known is not None:
                known.accepted += number

    def must_have_room(self) -> None:
        """
        Do nothing if the disk has room; it is asked once a second at most.

        Raises:
            StorageFull: It has not.
        """
        self._disk.require()

    async def _count_memories(self, workspace_id: int, number: int) -> None:
        known = self._memories.setdefault(workspace_id, _Known())
        limit = self._limits.max_memories
        age_s = self._monotonic() - known.at_s
        used_much = known.accepted * _MEMORIES_STEP >= limit - known.counted
        would_refuse = known.now + number > limit
        if age_s >= _SURE_S or (age_s >= _RECOUNT_S and used_much) or (age_s >= _REFUSE_S and would_refuse):
            await self._recount(known, lambda: self._db.read(lambda tx: records.count(tx, workspace_id)))
        if known.now + number > limit:
            raise MemoriesFull(limit)

    async def _count_backlog(self, workspace_id: int, number: int) -> int:
        known = self._backlogs.setdefault(workspace_id, _Known())
        limit = self._limits.max_backlog
        age_s = self._monotonic() - known.at_s
        accepted_many = known.accepted * _BACKLOG_STEP >= limit
        is_half_full = age_s >= _RECOUNT_S and 2 * known.now >= limit
        would_refuse = age_s >= _REFUSE_S and known.now + number > limit
        if age_s >= _SURE_S or accepted_many or is_half_full or would_refuse:
            await self._recount(known, lambda: self._jobs.backlog(EMBED, workspace_id))
        return known.now

    async def _recount(self, known: _Known, count: Callable[[], Awaitable[int]]) -> None:
        """Count once for all who ask meanwhile; what is accepted during the count is added to it."""
        asked_at_s = known.at_s
        async with known.counting:
            if known.at_s != asked_at_s:
                return
            before, at_s = known.accepted, self._monotonic()
            known.counted = await count()
            known.accepted -= before
            known.at_s = at_s
