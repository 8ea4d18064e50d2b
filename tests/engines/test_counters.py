"""One suite for every engine of `RateLimitCounter` (D-27)."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rookery.access.ports import RateLimitCounter, WindowCount
from rookery.access.rate_limits import LocalCounter
from rookery.engines.counters import open_counter
from rookery.kernel.errors import EngineUnavailable, WrongSettings
from rookery.kernel.sqlite import connect

WINDOW = 60_000_000
START = 1_764_000_000_000_000


@pytest.fixture
async def counter(tmp_path: Path) -> AsyncIterator[RateLimitCounter]:
    """Yield an empty counter of each engine in turn."""
    counter = open_counter("embedded:", data_dir=tmp_path)
    yield counter
    await counter.close()


class Model:
    """A reference model of a rate limit counter."""

    def __init__(self) -> None:
        self.windows: dict[str, tuple[int, int]] = {}

    def hit(self, key: str, limit: int, now: int) -> WindowCount:
        used, start = self.peek(key, now)
        self.windows[key] = (min(used + 1, max(used, limit + 1)), start)
        return WindowCount(*self.windows[key])

    def peek(self, key: str, now: int) -> WindowCount:
        used, start = self.windows.get(key, (0, now))
        return WindowCount(used, start) if abs(now - start) < WINDOW else WindowCount(0, now)


steps = st.lists(
    st.tuples(
        st.sampled_from(["hit", "hit", "peek"]),
        st.sampled_from(["a", "b"]),
        st.integers(1, 4),
        st.one_of(st.integers(0, WINDOW // 3), st.sampled_from([WINDOW, WINDOW - 1, WINDOW + 1, -WINDOW, -1, -WINDOW - 1])),
    ),
    max_size=40,
)


@given(steps=steps)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)
def test_a_counter_equals_the_reference_model(tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, str, int, int]]) -> None:
    """Windows begin with their first request, counts stop at limit + 1, and clocks may step back (D-27)."""

    async def run() -> None:
        counter = open_counter("embedded:", data_dir=tmp_path_factory.mktemp("counter"))
        local, model, now = LocalCounter(), Model(), START
        for operation, key, limit, offset_us in steps:
            now += offset_us
            if operation == "hit":
                expected = model.hit(key, limit, now)
                result = await counter.hit(key, limit=limit, window_us=WINDOW, now_us=now)
                local_result = local.hit(key, limit=limit, window_us=WINDOW, now_us=now)
            else:
                expected = model.peek(key, now)
                result = await counter.peek(key, window_us=WINDOW, now_us=now)
                local_result = local.peek(key, window_us=WINDOW, now_us=now)
            assert result == local_result == expected
        await counter.close()

    asyncio.run(run())


async def test_a_rejected_request_does_not_extend_the_window(counter: RateLimitCounter) -> None:
    """A client that keeps sending requests is admitted again when its window ends (D-27)."""
    for offset_us in range(5):
        await counter.hit("key", limit=2, window_us=WINDOW, now_us=START + offset_us)

    assert await counter.peek("key", window_us=WINDOW, now_us=START + 5) == WindowCount(3, START)
    assert await counter.hit("key", limit=2, window_us=WINDOW, now_us=START + WINDOW) == WindowCount(1, START + WINDOW)


async def test_a_lowered_limit_keeps_the_count(counter: RateLimitCounter) -> None:
    """The count belongs to the window, not to the current limit (D-27)."""
    for _ in range(5):
        await counter.hit("key", limit=10, window_us=WINDOW, now_us=START)

    assert await counter.hit("key", limit=2, window_us=WINDOW, now_us=START) == WindowCount(5, START)
    assert await counter.hit("key", limit=10, window_us=WINDOW, now_us=START) == WindowCount(6, START)


async def test_peek_counts_nothing(counter: RateLimitCounter) -> None:
    """Reading the status uses no request (D-27)."""
    for _ in range(3):
        assert await counter.peek("key", window_us=WINDOW, now_us=START) == WindowCount(0, START)

    assert await counter.hit("key", limit=1, window_us=WINDOW, now_us=START) == WindowCount(1, START)


_PROCESS = """
import asyncio, sys
from pathlib import Path
from rookery.engines.counters import open_counter

async def main(folder, hits, limit, now):
    counter = open_counter("embedded:", data_dir=Path(folder))
    passed = 0
    for _ in range(hits):
        passed += (await counter.hit("shared", limit=limit, window_us=3_600_000_000, now_us=now)).used <= limit
    await counter.close()
    print(passed)

asyncio.run(main(sys.argv[1], *map(int, sys.argv[2:])))
"""


def test_exactly_the_limit_passes_in_three_processes(tmp_path: Path) -> None:
    """With N processes on one counter store, exactly L of N × M requests pass (D-27)."""
    hits, limit = 500, 700
    command = [sys.executable, "-c", _PROCESS, str(tmp_path), str(hits), str(limit), str(time.time_ns() // 1000)]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]

    passed = [int(process.communicate(timeout=50)[0]) for process in processes]

    assert sum(passed) == limit
    assert [process.returncode for process in processes] == [0, 0, 0]


async def test_counts_outlive_the_process(tmp_path: Path) -> None:
    """A restart does not reset a window (D-27)."""
    first = open_counter("embedded:", data_dir=tmp_path)
    now = time.time_ns() // 1000  # opening the file deletes counts of past days
    await first.hit("key", limit=9, window_us=WINDOW, now_us=now)
    await first.close()
    second = open_counter("embedded:", data_dir=tmp_path)

    assert await second.hit("key", limit=9, window_us=WINDOW, now_us=now) == WindowCount(2, now)
    await second.close()


async def test_a_counter_without_its_folder_is_unavailable(tmp_path: Path) -> None:
    """Every engine maps its own errors to the error of the port (house rules 6)."""
    counter = open_counter("embedded:", data_dir=tmp_path / "missing")

    with pytest.raises(EngineUnavailable):
        await counter.hit("key", limit=1, window_us=WINDOW, now_us=START)
    with pytest.raises(EngineUnavailable):
        await counter.peek("key", window_us=WINDOW, now_us=START)
    await counter.close()


async def test_a_counter_with_a_damaged_file_recovers_when_it_is_deleted(tmp_path: Path) -> None:
    """The counter is unavailable while the file is damaged (D-27)."""
    (tmp_path / "counters.db").write_bytes(b"this is not a database" * 1000)
    counter = open_counter("embedded:", data_dir=tmp_path)
    with pytest.raises(EngineUnavailable):
        await counter.hit("key", limit=9, window_us=WINDOW, now_us=START)
    (tmp_path / "counters.db").unlink()

    assert (await counter.hit("key", limit=9, window_us=WINDOW, now_us=START)).used == 1
    await counter.close()


async def test_a_counter_locked_by_another_process_is_unavailable_until_it_is_released(tmp_path: Path, counter: RateLimitCounter) -> None:
    """A request waits a bounded time, and the count continues afterwards (D-27)."""
    await counter.hit("key", limit=9, window_us=WINDOW, now_us=START)
    other = connect(tmp_path / "counters.db")
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(EngineUnavailable):
        await counter.hit("key", limit=9, window_us=WINDOW, now_us=START)
    other.execute("ROLLBACK")
    other.close()

    assert (await counter.peek("key", window_us=WINDOW, now_us=START)).used == 1


async def test_a_closed_counter_opens_again(counter: RateLimitCounter) -> None:
    """A counter may be closed twice (house rules 6)."""
    await counter.hit("key", limit=9, window_us=WINDOW, now_us=START)
    await counter.close()
    await counter.close()

    assert (await counter.hit("other", limit=9, window_us=WINDOW, now_us=START)).used == 1


def test_an_unknown_url_is_rejected(tmp_path: Path) -> None:
    """The error is one clear line without the password (D-02)."""
    with pytest.raises(WrongSettings) as error:
        open_counter("memcached://user:password@host", data_dir=tmp_path)

    assert "password" not in str(error.value)
