"""Indexing gives way to who waits for an answer, for a bounded while: it is never starved (D-51)."""

from __future__ import annotations

import asyncio
from itertools import count

from hypothesis import given
from hypothesis import strategies as st

from rookery.kernel.jobs import JobWorker
from rookery.memory.backoff import ForegroundBackoff
from rookery.memory.jobs import MemoryJobs
from tests.conftest import eventually
from tests.memory.makers import MemoryRig

_LULL_S, _MOST_S = 0.004, 0.15


class _Time:
    """A clock that only sleeping turns, and the requests that come meanwhile: when each begins, and how long it takes."""

    def __init__(self, requests: list[tuple[float, float]]) -> None:
        self.now = 100.0
        self.precedence = ForegroundBackoff(idle_gap_s=_LULL_S, max_wait_s=_MOST_S, monotonic=lambda: self.now, sleep=self.sleep)
        begun = 100.0
        self.due = list[tuple[float, bool]]()
        for pause, took in requests:
            begun += pause
            self.due += [(begun, True), (begun + took, False)]
        self.due.sort(key=lambda each: (each[0], not each[1]))
        self.served = 0
        self.last_end = float("-inf")

    async def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.pass_to(self.now + seconds)

    def pass_to(self, end: float) -> None:
        while self.due and self.due[0][0] <= end:
            at, begins = self.due.pop(0)
            self.now = max(self.now, at)
            if begins:
                self.served += 1
                self.precedence.begin_request()
            else:
                self.served -= 1
                self.last_end = self.now
                self.precedence.end_request()
        self.now = end


@given(
    requests=st.lists(st.tuples(st.floats(0, 0.02), st.floats(0.0001, 0.05)), max_size=60),
    before=st.floats(0, 0.3),
)
def test_it_waits_for_a_lull_and_never_longer_than_it_may(requests: list[tuple[float, float]], before: float) -> None:
    """D-51: stored memories are indexed under any load, and at once without load."""
    time = _Time(requests)
    time.pass_to(time.now + before)
    was_quiet = not time.served and time.now - time.last_end >= _LULL_S
    started = time.now

    asyncio.run(time.precedence.wait_for_idle())

    waited = time.now - started
    assert waited <= _MOST_S + 1e-9
    assert not was_quiet or waited == 0
    if waited < _MOST_S - 1e-9:
        assert time.served == 0
        assert time.now - time.last_end >= _LULL_S - 1e-9


async def test_what_is_stored_without_a_pause_is_indexed_meanwhile(rig: MemoryRig) -> None:
    """D-51: who stores one memory after the other holds nothing up for ever."""
    worker = JobWorker(rig.jobs, MemoryJobs(db=rig.db, indexer=rig.services.indexer, clock=rig.clock).kinds(), lease_s=30)
    ended = asyncio.Event()

    async def store(name: str) -> None:
        for number in count():
            await rig.remember(f"{name} saw heron number {number}")
            if ended.is_set():
                return

    first = await rig.remember()
    writers = [asyncio.create_task(store(name)) for name in ("Kim", "Lee", "Ann")]
    await worker.start()

    async def is_indexed() -> bool:
        return (await rig.reload(first)).indexed_at is not None

    try:
        await eventually(is_indexed, within_s=30)
    finally:
        ended.set()
        await asyncio.gather(*writers)
        await worker.stop()
