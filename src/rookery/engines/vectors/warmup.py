"""
Gets large workspaces ready whose first question would wait for long: lists are opened, or built first by a process of its own.

Without lists a question reads all vectors into this process, a second for each 50,000, and each later one scores them all.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine

MAX_WAIT_S = 2.0
"""So long the first questions wait: lists of a million that are there are opened within it, those of 40,000 built."""


class Warmups:
    """What is being got ready, by workspace; all of it runs on one event loop. Args: *warm_up*: does it, however long it takes."""

    def __init__(self, warm_up: Callable[[int], Coroutine[None, None, None]]) -> None:
        self._warm_up = warm_up
        self._running: dict[int, tuple[float, asyncio.Task[None]]] = {}

    def __contains__(self, workspace_id: int) -> bool:
        return workspace_id in self._running

    async def wait_briefly(self, workspace_id: int) -> bool:
        """Begin, or go on, and tell whether it ended while it could be waited for; that it failed, who asks next meets itself."""
        begun_s, task = self._get_or_start(workspace_id)
        await asyncio.wait({task}, timeout=max(0.0, begun_s + MAX_WAIT_S - time.monotonic()))
        return task.done()

    async def wait_done(self, workspace_id: int) -> None:
        """Begin, or go on, until it ended."""
        await asyncio.wait({self._get_or_start(workspace_id)[1]})

    def cancel(self) -> list[asyncio.Task[None]]:
        """Stop all, and return what is to be waited for."""
        tasks = [task for _, task in self._running.values()]
        for task in tasks:
            task.cancel()
        return tasks

    def _get_or_start(self, workspace_id: int) -> tuple[float, asyncio.Task[None]]:
        begun = self._running.get(workspace_id)
        if begun is None:
            begun = self._running[workspace_id] = (time.monotonic(), asyncio.create_task(self._warm_up(workspace_id)))
            begun[1].add_done_callback(lambda task: self._on_done(workspace_id, task))
        return begun

    def _on_done(self, workspace_id: int, task: asyncio.Task[None]) -> None:
        del self._running[workspace_id]
        if not task.cancelled():
            task.exception()
