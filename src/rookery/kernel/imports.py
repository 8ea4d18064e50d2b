"""Imports of large libraries in a thread on first use, so that the event loop is not blocked."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

_IMPORT_LOCK = threading.Lock()


async def import_in_thread(load: Callable[[], T]) -> T:
    """
    Return the result of *load*, which runs in a thread and may import.

    Loads run one at a time. If two threads import modules that import each other, Python raises a deadlock error in one of them.
    """

    def run() -> T:
        with _IMPORT_LOCK:
            return load()

    return await asyncio.to_thread(run)
