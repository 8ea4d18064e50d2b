"""Turns of workspaces at work that is done one piece at a time, so that many requests of one workspace delay only that workspace."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from weakref import WeakValueDictionary


class WorkspaceTurns:
    """
    Admits one piece of work of each workspace at a time.

    A thread or a limit that all workspaces share is a queue in the order of arrival: a hundred requests of one workspace would delay the
    next one of another by a hundred pieces. With turns, each workspace has at most one piece in that queue.
    """

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[int, asyncio.Lock] = WeakValueDictionary()

    @asynccontextmanager
    async def take(self, workspace_id: int, resource: AbstractAsyncContextManager[object] | None = None) -> AsyncGenerator[None]:
        """
        Wait for the turn of *workspace_id*, then for *resource*, and hold both in the block.

        Args:
            resource: A lock or a semaphore that all workspaces share. None: the block has a queue of its own, such as that of a thread.
        """
        lock = self._locks.setdefault(workspace_id, asyncio.Lock())
        async with lock, resource or nullcontext():
            yield
