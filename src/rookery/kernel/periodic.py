"""Small things that must be done now and then, in every process: doing them twice does no harm."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import NoReturn

import structlog

from rookery.kernel.log_limits import FailureLog

_log = structlog.stdlib.get_logger("rookery.chores")


@dataclass(frozen=True, slots=True, kw_only=True)
class PeriodicTask:
    """What is done every so many seconds, the first time soon after the start."""

    name: str
    interval_s: float
    run: Callable[[], Awaitable[object]]


async def run_periodic_tasks(tasks_to_run: Sequence[PeriodicTask]) -> None:
    """Do each on its own schedule until cancelled; one that fails is logged and tried again in its turn."""
    async with asyncio.TaskGroup() as tasks:
        for chore in tasks_to_run:
            tasks.create_task(_run_forever(chore), name=f"chore-{chore.name}")


async def _run_forever(chore: PeriodicTask) -> NoReturn:
    failures = FailureLog(_log, "chores.failed")
    while True:
        try:
            await chore.run()
        except Exception as error:
            failures.report(error, chore=chore.name)
        await asyncio.sleep(chore.interval_s)
