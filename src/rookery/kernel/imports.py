"""Loading large libraries in a thread when they are first needed, so that the event loop does not wait."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

_IMPORT_LOCK = threading.Lock()


async def import_in_thread(load: Callable[[], T]) -> T:
    """
    Return what *load* returns; it runs in a thread and may import.

    Loads run one at a time. Two threads that import different parts of a library whose modules import each other make Python raise
    a deadlock error in one of them.
    """

    def run() -> T:
        with _IMPORT_LOCK:
            return load()

    return await asyncio.to_thread(run)
