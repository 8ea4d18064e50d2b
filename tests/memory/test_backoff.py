"""Indexing waits for requests in progress, for a bounded time, so that it always goes on."""

from __future__ import annotations

import asyncio
from itertools import count

from hypothesis import given
from hypothesis import strategies as st

from rookery.kernel.jobs import JobWorker
from rookery.memory.concurrency import ForegroundBackoff
from rookery.memory.jobs import MemoryJobs
from tests.conftest import eventually
from tests.memory.makers import MemoryRig

_IDLE_GAP_S, _MAX_WAIT_S = 0.004, 0.15


class _SimulatedLoad:
    """A clock that only sleeping advances, with simulated requests: each has a start and a duration."""

    def __init__(self, requests: list[tuple[float, float]]) -> None:
        self.now = 100.0
        self.backoff = ForegroundBackoff(idle_gap_s=_IDLE_GAP_S, max_wait_s=_MAX_WAIT_S, monotonic=lambda: self.now, sleep=self.sleep)
        start = 100.0
        self.due = list[tuple[float, bool]]()
        for pause, duration in requests:
            start += pause
            self.due += [(start, True), (start + duration, False)]
        self.due.sort(key=lambda entry: (entry[0], not entry[1]))
        self.served = 0
        self.last_end = float("-inf")

    async def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.advance_to(self.now + seconds)

    def advance_to(self, end: float) -> None:
        while self.due and self.due[0][0] <= end:
            at, is_start = self.due.pop(0)
            self.now = max(self.now, at)
            if is_start:
                self.served += 1
                self.backoff.begin_request()
            else:
                self.served -= 1
                self.last_end = self.now
                self.backoff.end_request()
        self.now = end


@given(
    requests=st.lists(st.tuples(st.floats(0, 0.02), st.floats(0.0001, 0.05)), max_size=60),
    before=st.floats(0, 0.3),
)
def test_it_waits_for_an_idle_gap_but_never_longer_than_the_maximum(requests: list[tuple[float, float]], before: float) -> None:
    """Stored memories are indexed under any load, and immediately without load."""
    load = _SimulatedLoad(requests)
    load.advance_to(load.now + before)
    was_quiet = not load.served and load.now - load.last_end >= _IDLE_GAP_S
    started = load.now

    asyncio.run(load.backoff.wait_for_idle())

    waited = load.now - started
    assert waited <= _MAX_WAIT_S + 1e-9
    assert not was_quiet or waited == 0
    if waited < _MAX_WAIT_S - 1e-9:
        assert load.served == 0
        assert load.now - load.last_end >= _IDLE_GAP_S - 1e-9


async def test_memories_are_indexed_while_others_are_stored_without_a_pause(rig: MemoryRig) -> None:
    """Clients that store memories without a pause do not stop indexing."""
    worker = JobWorker(rig.jobs, MemoryJobs(db=rig.db, queue=rig.jobs, indexer=rig.services.indexer, clock=rig.clock).kinds(), lease_s=30)
    stop_writers = asyncio.Event()

    async def store(name: str) -> None:
        for number in count():
            await rig.remember(f"{name} saw heron number {number}")
            if stop_writers.is_set():
                return

    first = await rig.remember()
    writers = [asyncio.create_task(store(name)) for name in ("Kim", "Lee", "Ann")]
    await worker.start()

    async def is_indexed() -> bool:
        return (await rig.reload(first)).indexed_at is not None

    try:
        await eventually(is_indexed)
    finally:
        stop_writers.set()
        await asyncio.gather(*writers)
        await worker.stop()
