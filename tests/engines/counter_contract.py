"""
The contract of `RateLimitCounter` as tests. The test class of an engine inherits `CounterContract`.

    class TestMyCounter(CounterContract):
        lacks = MyCounter.lacks

        @staticmethod
        def open_engine(folder: Path) -> RateLimitCounter:
            return MyCounter(...)
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rookery.access.ports import CounterFeature, RateLimitCounter, WindowCount
from rookery.access.rate_limits import LocalCounter
from tests.deadlines import HANG_S
from tests.engines.engine_contracts import EngineContract, needs

WINDOW = 60_000_000
START = 1_764_000_000_000_000


class _Model:
    """A reference model of a rate limit counter."""

    def __init__(self) -> None:
        self.windows: dict[str, tuple[int, int]] = {}

    def spend(self, key: str, limit: int, now: int) -> WindowCount:
        used, start = self.peek(key, now)
        self.windows[key] = (min(used + 1, max(used, limit + 1)), start)
        return WindowCount(*self.windows[key])

    def peek(self, key: str, now: int) -> WindowCount:
        used, start = self.windows.get(key, (0, now))
        return WindowCount(used, start) if abs(now - start) < WINDOW else WindowCount(0, now)


_steps = st.lists(
    st.tuples(
        st.sampled_from(["spend", "spend", "peek"]),
        st.sampled_from(["a", "b"]),
        st.integers(1, 4),
        st.one_of(st.integers(0, WINDOW // 3), st.sampled_from([WINDOW, WINDOW - 1, WINDOW + 1, -WINDOW, -1, -WINDOW - 1])),
    ),
    max_size=40,
)

_PROCESS = """
import asyncio, importlib, sys
from pathlib import Path

async def main(module, test, folder, requests, limit, now):
    counter = getattr(importlib.import_module(module), test).open_engine(Path(folder))
    passed = 0
    for _ in range(int(requests)):
        passed += (await counter.spend("shared", limit=int(limit), window_us=3_600_000_000, now_us=int(now))).used <= int(limit)
    await counter.close()
    print(passed)

asyncio.run(main(*sys.argv[1:]))
"""


class CounterContract(EngineContract, ABC):
    """Tests of every engine of `RateLimitCounter`."""

    port = "RateLimitCounter"

    @staticmethod
    @abstractmethod
    def open_engine(folder: Path) -> RateLimitCounter:
        """Return the counter with its data in *folder*. Opened again, it has the same counts."""
        ...

    @pytest.fixture
    async def counter(self, tmp_path: Path) -> AsyncIterator[RateLimitCounter]:
        """Yield an empty counter."""
        counter = self.open_engine(tmp_path)
        yield counter
        await counter.close()

    @given(steps=_steps)
    @settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.differing_executors], deadline=None, max_examples=60)
    def test_a_counter_equals_the_reference_model(
        self, tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, str, int, int]]
    ) -> None:
        """Windows begin with their first request, counts stop at limit + 1, and clocks may step back."""

        async def run() -> None:
            counter = self.open_engine(tmp_path_factory.mktemp("counter"))
            local, model, now = LocalCounter(), _Model(), START
            for operation, key, limit, offset_us in steps:
                now += offset_us
                if operation == "spend":
                    expected = model.spend(key, limit, now)
                    result = await counter.spend(key, limit=limit, window_us=WINDOW, now_us=now)
                    local_result = local.spend(key, limit=limit, window_us=WINDOW, now_us=now)
                else:
                    expected = model.peek(key, now)
                    result = await counter.peek(key, window_us=WINDOW, now_us=now)
                    local_result = local.peek(key, window_us=WINDOW, now_us=now)
                assert result == local_result == expected
            await counter.close()

        asyncio.run(run())

    async def test_a_rejected_request_does_not_extend_the_window(self, counter: RateLimitCounter) -> None:
        """A client that keeps sending requests is admitted again when its window ends."""
        for offset_us in range(5):
            await counter.spend("key", limit=2, window_us=WINDOW, now_us=START + offset_us)

        assert await counter.peek("key", window_us=WINDOW, now_us=START + 5) == WindowCount(3, START)
        assert await counter.spend("key", limit=2, window_us=WINDOW, now_us=START + WINDOW) == WindowCount(1, START + WINDOW)

    async def test_a_lowered_limit_keeps_the_count(self, counter: RateLimitCounter) -> None:
        """The count belongs to the window, not to the current limit."""
        for _ in range(5):
            await counter.spend("key", limit=10, window_us=WINDOW, now_us=START)

        assert await counter.spend("key", limit=2, window_us=WINDOW, now_us=START) == WindowCount(5, START)
        assert await counter.spend("key", limit=10, window_us=WINDOW, now_us=START) == WindowCount(6, START)

    async def test_peek_counts_nothing(self, counter: RateLimitCounter) -> None:
        """Reading the status uses no request."""
        for _ in range(3):
            assert await counter.peek("key", window_us=WINDOW, now_us=START) == WindowCount(0, START)

        assert await counter.spend("key", limit=1, window_us=WINDOW, now_us=START) == WindowCount(1, START)

    async def test_a_refund_gives_back_one_request_of_its_window(self, counter: RateLimitCounter) -> None:
        """A rejected request does not keep the place of one that was given back. A refund of a past window changes nothing."""
        for _ in range(4):
            await counter.spend("key", limit=3, window_us=WINDOW, now_us=START)
        await counter.refund("key", limit=3, started_at_us=START)
        assert await counter.spend("key", limit=3, window_us=WINDOW, now_us=START) == WindowCount(3, START)
        assert await counter.spend("key", limit=3, window_us=WINDOW, now_us=START) == WindowCount(4, START)
        await counter.refund("key", limit=3, started_at_us=START - 1)
        await counter.refund("never spent", limit=3, started_at_us=START)

        assert await counter.peek("key", window_us=WINDOW, now_us=START) == WindowCount(4, START)

    @needs(CounterFeature.SHARED_BY_PROCESSES)
    def test_exactly_the_limit_passes_in_three_processes(self, tmp_path: Path) -> None:
        """With N processes on one counter store, exactly L of N × M requests pass."""
        requests, limit = 500, 700
        arguments = [type(self).__module__, type(self).__qualname__, str(tmp_path), str(requests), str(limit), str(time.time_ns() // 1000)]
        command = [sys.executable, "-c", _PROCESS, *arguments]
        processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]

        passed = [int(process.communicate(timeout=HANG_S)[0]) for process in processes]

        assert sum(passed) == limit
        assert [process.returncode for process in processes] == [0, 0, 0]

    @needs(CounterFeature.OUTLIVES_PROCESS)
    async def test_counts_outlive_the_process(self, tmp_path: Path) -> None:
        """A restart does not reset a window."""
        first = self.open_engine(tmp_path)
        now = time.time_ns() // 1000  # an engine may delete counts of past days when it opens
        await first.spend("key", limit=9, window_us=WINDOW, now_us=now)
        await first.close()
        second = self.open_engine(tmp_path)

        assert await second.spend("key", limit=9, window_us=WINDOW, now_us=now) == WindowCount(2, now)
        await second.close()

    async def test_a_closed_counter_opens_again(self, counter: RateLimitCounter) -> None:
        """A counter may be closed twice."""
        await counter.spend("key", limit=9, window_us=WINDOW, now_us=START)
        await counter.close()
        await counter.close()

        assert (await counter.spend("other", limit=9, window_us=WINDOW, now_us=START)).used == 1
