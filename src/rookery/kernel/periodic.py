"""Periodic tasks. They must be idempotent."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import NoReturn

import structlog

from rookery.kernel.logs import FailureLog

_log = structlog.stdlib.get_logger("rookery.periodic")


@dataclass(frozen=True, slots=True, kw_only=True)
class PeriodicTask:
    """
    A task that runs every *interval_s* seconds, for the first time at the start.

    Attributes:
        needs_tool_servers: The task runs only in processes that start tool servers.
        is_single: Of the processes of one server, only the first runs the task.
    """

    name: str
    interval_s: float
    run: Callable[[], Awaitable[object]]
    needs_tool_servers: bool = False
    is_single: bool = False


async def run_periodic_tasks(tasks_to_run: Sequence[PeriodicTask]) -> None:
    """Run each task on its own schedule until cancelled. A failed run is logged and tried again at its next time."""
    async with asyncio.TaskGroup() as tasks:
        for task in tasks_to_run:
            tasks.create_task(_run_forever(task), name=f"periodic-{task.name}")


async def _run_forever(task: PeriodicTask) -> NoReturn:
    failures = FailureLog(_log, "periodic.failed")
    while True:
        try:
            await task.run()
        except Exception as error:
            failures.report(error, task=task.name)
        await asyncio.sleep(task.interval_s)
