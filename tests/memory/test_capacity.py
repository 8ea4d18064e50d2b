"""`remember` slows down before it rejects requests."""

from __future__ import annotations

import asyncio
import time
from functools import partial

import pytest

from rookery.kernel.db import Database, Tx
from rookery.kernel.ids import uuid7
from rookery.kernel.jobs import JobQueue
from rookery.memory.capacity import Capacity, StorageLimits
from rookery.memory.errors import BacklogFull
from rookery.memory.indexing import EMBED_JOB
from tests.conftest import FakeClock


async def test_remember_takes_longer_the_fuller_the_backlog_is(database: Database, clock: FakeClock) -> None:
    """A full backlog slows `remember` down, in this workspace only; a backlog over the limit is rejected."""
    jobs = JobQueue(database, clock, uuid7)

    def fill(tx: Tx, count: int) -> None:
        for _ in range(count):
            jobs.enqueue(tx, EMBED_JOB, workspace_id=1, payload={})

    took_s = dict[int, float]()
    for backlog, added in ((50, 50), (70, 20), (90, 20)):
        await database.write(partial(fill, count=added))
        took_s[backlog] = await _admit(Capacity(db=database, jobs=jobs, limits=StorageLimits(max_backlog=100), monotonic=time.monotonic), 1)
    capacity = Capacity(db=database, jobs=jobs, limits=StorageLimits(max_backlog=100), monotonic=time.monotonic)

    assert took_s[50] < took_s[70] < took_s[90]
    assert took_s[70] >= 0.4
    assert took_s[90] >= 0.8
    assert await _admit(capacity, 2) < took_s[90]
    with pytest.raises(BacklogFull):
        await capacity.admit(1, 11)


async def _admit(capacity: Capacity, workspace_id: int) -> float:
    loop = asyncio.get_running_loop()
    before_s = loop.time()
    await capacity.admit(workspace_id, 1)
    return loop.time() - before_s
