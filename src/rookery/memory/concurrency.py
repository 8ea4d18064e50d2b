"""Concurrent execution of two coroutines."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TypeVar

A = TypeVar("A")
B = TypeVar("B")


async def gather_pair(first: Coroutine[None, None, A], second: Coroutine[None, None, B]) -> tuple[A, B]:
    """Await both coroutines at once and return their results. If one fails, cancel the other and discard its error."""
    other = asyncio.ensure_future(second)
    try:
        return await first, await other
    finally:
        if not other.cancel() and not other.cancelled():
            other.exception()
