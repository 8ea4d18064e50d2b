"""Turns of workspaces at a resource that all of them share."""

from __future__ import annotations

import asyncio

from rookery.kernel.workspace_shares import WorkspaceTurns


async def test_many_requests_of_one_workspace_delay_another_by_one_piece() -> None:
    """The next piece of another workspace begins after the one that runs, not after all that came before it."""
    turns, resource, order = WorkspaceTurns(), asyncio.Lock(), list[int]()

    async def work(workspace_id: int) -> None:
        async with turns.take(workspace_id, resource):
            order.append(workspace_id)
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as group:
        for workspace_id in (1, 1, 1, 1, 2, 3, 2):
            group.create_task(work(workspace_id))

    assert order[:3] == [1, 2, 3]
    assert sorted(order) == [1, 1, 1, 1, 2, 2, 3]


async def test_a_turn_ends_with_an_error_or_a_cancellation() -> None:
    """A request that fails or is cancelled, while it waits or works, blocks no later one."""
    turns, resource = WorkspaceTurns(), asyncio.Semaphore(1)
    is_held = asyncio.Event()

    async def hold() -> None:
        async with turns.take(1, resource):
            is_held.set()
            await asyncio.Event().wait()

    async def fail() -> None:
        async with turns.take(1, resource):
            raise ValueError

    holder, waiter = asyncio.create_task(hold()), asyncio.create_task(hold())
    await is_held.wait()
    await asyncio.sleep(0)
    for task in (waiter, holder):
        task.cancel()
    outcomes = await asyncio.gather(holder, waiter, fail(), return_exceptions=True)

    assert [type(outcome) for outcome in outcomes] == [asyncio.CancelledError, asyncio.CancelledError, ValueError]
    async with turns.take(1, resource):
        assert resource.locked()
