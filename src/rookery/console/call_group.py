"""Calls of the API that a page makes at the same time."""

from __future__ import annotations

from asyncio import TaskGroup
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager


@asynccontextmanager
async def open_call_group() -> AsyncGenerator[TaskGroup]:
    """
    Yield a group for the calls of a page. All have ended when the block ends. The first that fails cancels the others.

    Its error leaves the block as it is, and not as an `ExceptionGroup`, so that it becomes the page of one failed call.
    """
    try:
        async with TaskGroup() as group:
            yield group
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None
