"""Imports of large libraries on first use, so that processes start quickly and the event loop is not blocked."""

from __future__ import annotations

import asyncio
import importlib.util
import sys
import threading
from collections.abc import Callable
from types import ModuleType
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


def import_lazily(name: str) -> ModuleType:
    """Return a module that is executed when an attribute of it is first read. Commands that do not need it start faster."""
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.find_spec(name)
    if spec is None or spec.loader is None:
        raise ModuleNotFoundError(name=name)
    spec.loader = importlib.util.LazyLoader(spec.loader)
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
