"""Shares of workspaces in the cores: the load of one workspace does not slow the others."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from contextvars import Context
from pathlib import Path

import pytest

from rookery.kernel.workspace_shares import WorkspaceShares
from tests.conftest import FakeClock
from tests.deadlines import HANG_S

_BUSY, _QUIET = 7, 8

_HOLDER = """
import asyncio, sys
from pathlib import Path
from rookery.kernel.workspace_shares import WorkspaceShares

async def main():
    shares = WorkspaceShares(Path(sys.argv[1]), number=2, count=2, cores=2)
    for workspace in (7, 8):
        shares.record_request(workspace)
    async with shares.take(7):
        with shares.try_indexing() as is_taken:
            print(is_taken, flush=True)
            sys.stdin.readline()

asyncio.run(main())
"""


def _make_shares(clock: FakeClock, *, cores: int = 2) -> WorkspaceShares:
    return WorkspaceShares(cores=cores, monotonic=lambda: clock().timestamp())


async def _count_parallel(shares: WorkspaceShares, workspace_id: int, count: int = 8) -> int:
    """Return how many of *count* pieces of work of a workspace run at the same time at most."""
    running, most = 0, 0

    async def work() -> None:
        nonlocal running, most
        async with shares.take(workspace_id):
            running += 1
            most = max(most, running)
            await asyncio.sleep(0)
            running -= 1

    await asyncio.gather(*(work() for _ in range(count)))
    return most


async def test_a_workspace_alone_is_not_limited(clock: FakeClock) -> None:
    """Its throughput is that of all cores, and it waits for nothing."""
    shares = _make_shares(clock)
    shares.record_request(_BUSY)

    assert await _count_parallel(shares, _BUSY) == 8
    assert not shares.is_contended()


@pytest.mark.parametrize(("cores", "most"), [(1, 1), (2, 1), (8, 4)])
async def test_beside_others_a_workspace_computes_on_its_share_of_the_cores(clock: FakeClock, cores: int, most: int) -> None:
    """The others find a free core, however many requests a workspace sends."""
    shares = _make_shares(clock, cores=cores)
    for workspace in (_BUSY, _QUIET):
        shares.record_request(workspace)

    assert await _count_parallel(shares, _BUSY) == most


async def test_a_quiet_workspace_does_not_wait_for_the_queue_of_another(clock: FakeClock) -> None:
    """Each workspace has a queue of its own."""
    shares = _make_shares(clock)
    for workspace in (_BUSY, _QUIET):
        shares.record_request(workspace)
    async with shares.take(_BUSY):
        waiting = asyncio.create_task(_count_parallel(shares, _BUSY, 50), context=Context())
        await asyncio.sleep(0)
        async with asyncio.timeout(HANG_S), shares.take(_QUIET):
            assert not waiting.done()
    await waiting


async def test_the_limit_ends_when_the_others_are_silent(clock: FakeClock) -> None:
    """A workspace that is alone again uses all cores."""
    shares = _make_shares(clock)
    for workspace in (_BUSY, _QUIET):
        shares.record_request(workspace)
    assert shares.is_contended(_BUSY)
    clock.advance(seconds=6)
    shares.record_request(_BUSY)

    assert await _count_parallel(shares, _BUSY) == 8


async def test_work_does_not_wait_for_a_holder_that_computes_nothing(clock: FakeClock) -> None:
    """A holder may wait for an engine for a long time. The others of its workspace then start without a slot."""
    shares = _make_shares(clock)
    for workspace in (_BUSY, _QUIET):
        shares.record_request(workspace)
    async with shares.take(_BUSY):
        waiting = asyncio.create_task(_count_parallel(shares, _BUSY, 1), context=Context())
        await asyncio.sleep(0)
        clock.advance(seconds=3)
        shares.record_request(_QUIET)
        assert await asyncio.wait_for(waiting, HANG_S) == 1


async def test_a_sandbox_has_a_share_of_its_own(tmp_path: Path) -> None:
    """The numbers of sandboxes are negative."""
    shares = WorkspaceShares(tmp_path, cores=2)
    for workspace in (-_BUSY, _BUSY):
        shares.record_request(workspace)
    async with shares.take(_BUSY):
        assert await _count_parallel(shares, -_BUSY) == 1
    shares.close()


async def test_a_block_within_a_block_needs_no_further_slot(clock: FakeClock) -> None:
    """A tool that recalls would otherwise wait for itself."""
    shares = _make_shares(clock)
    for workspace in (_BUSY, _QUIET):
        shares.record_request(workspace)
    async with asyncio.timeout(HANG_S), shares.take(_BUSY), shares.take(_BUSY):
        pass

    assert await _count_parallel(shares, _BUSY) == 1


async def test_a_block_that_waits_for_something_else_frees_its_slot(clock: FakeClock) -> None:
    """A call of a slow tool server does not stop the other calls of its workspace."""
    shares = _make_shares(clock)
    for workspace in (_BUSY, _QUIET):
        shares.record_request(workspace)
    async with shares.take(_BUSY, max_hold_s=0.01):
        assert await asyncio.wait_for(asyncio.create_task(_count_parallel(shares, _BUSY, 2), context=Context()), HANG_S) == 1


async def test_the_slot_rests_after_exclusive_work(clock: FakeClock) -> None:
    """A file with one writer is free for the others as long as the work took, for each of them."""
    shares = _make_shares(clock)
    for workspace in (_BUSY, _QUIET):
        shares.record_request(workspace)
    loop = asyncio.get_running_loop()

    async with shares.take(_BUSY, is_exclusive=True):
        clock.advance(seconds=0.1)
    ended_s = loop.time()
    async with shares.take(_QUIET, is_exclusive=True):
        assert loop.time() - ended_s < 0.1
    async with shares.take(_BUSY):
        assert loop.time() - ended_s >= 0.1


async def test_a_cancelled_wait_frees_its_place(clock: FakeClock) -> None:
    """A client that disconnects while its request waits does not block the next ones."""
    shares = _make_shares(clock)
    for workspace in (_BUSY, _QUIET):
        shares.record_request(workspace)
    async with shares.take(_BUSY):
        waiting = asyncio.create_task(_count_parallel(shares, _BUSY, 1), context=Context())
        await asyncio.sleep(0.01)
        waiting.cancel()
        await asyncio.wait({waiting})

    assert await _count_parallel(shares, _BUSY, 2) == 1


async def test_processes_share_the_cores_until_one_is_killed(tmp_path: Path) -> None:
    """All processes of a server see each other's requests. The share of a process that was killed is free."""
    command = [sys.executable, "-c", _HOLDER, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert await asyncio.to_thread(holder.stdout.readline) == "True\n"
        shares = WorkspaceShares(tmp_path, number=1, count=2, cores=2)
        assert shares.is_contended(_BUSY), "by the requests of the other process"
        waiting = asyncio.create_task(_count_parallel(shares, _BUSY, 1), context=Context())
        await asyncio.sleep(0.05)
        with shares.try_indexing() as is_taken:
            assert (waiting.done(), is_taken) == (False, False)
        holder.kill()
    assert await waiting == 1
    with shares.try_indexing() as is_taken:
        assert is_taken
    shares.close()


def test_the_longest_silent_workspace_leaves_the_table(clock: FakeClock) -> None:
    """With many workspaces, memory is bounded, and those with requests are known."""
    shares = _make_shares(clock)
    for workspace in range(1, 200):
        shares.record_request(workspace)
        clock.advance(seconds=1)
    assert shares.is_contended(199)
    clock.advance(seconds=6)
    shares.record_request(199)

    assert not shares.is_contended(199)
