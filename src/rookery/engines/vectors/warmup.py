"""
Warm up large workspaces: open their list files, or build them first in a child process.

Without lists, the first query reads all vectors into memory, one second per 50,000, and each later query scores all of them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine

MAX_WAIT_S = 2.0
"""Maximum wait of the first queries. Within it, existing lists of a million rows are opened, and those of 40,000 are built."""


class Warmups:
    """
    Running warm-ups by workspace. All calls come from one event loop.

    Args:
        warm_up: Warms up one workspace, however long it takes.
    """

    def __init__(self, warm_up: Callable[[int], Coroutine[None, None, None]]) -> None:
        self._warm_up = warm_up
        self._running: dict[int, tuple[float, asyncio.Task[None]]] = {}

    def __contains__(self, workspace_id: int) -> bool:
        return workspace_id in self._running

    async def wait_briefly(self, workspace_id: int) -> bool:
        """
        Start or join the warm-up and wait for it, at most `MAX_WAIT_S` from its start. Return whether it ended.

        The errors of a failed warm-up appear in the next query.
        """
        started_s, task = self._get_or_start(workspace_id)
        await asyncio.wait({task}, timeout=max(0.0, started_s + MAX_WAIT_S - time.monotonic()))
        return task.done()

    async def wait_done(self, workspace_id: int) -> None:
        """Start or join the warm-up and wait until it ends."""
        await asyncio.wait({self._get_or_start(workspace_id)[1]})

    def cancel(self) -> list[asyncio.Task[None]]:
        """Cancel all warm-ups and return their tasks, to be awaited."""
        tasks = [task for _, task in self._running.values()]
        for task in tasks:
            task.cancel()
        return tasks

    def _get_or_start(self, workspace_id: int) -> tuple[float, asyncio.Task[None]]:
        entry = self._running.get(workspace_id)
        if entry is None:
            entry = self._running[workspace_id] = (time.monotonic(), asyncio.create_task(self._warm_up(workspace_id)))
            entry[1].add_done_callback(lambda task: self._on_done(workspace_id, task))
        return entry

    def _on_done(self, workspace_id: int, task: asyncio.Task[None]) -> None:
        del self._running[workspace_id]
        if not task.cancelled():
            task.exception()
