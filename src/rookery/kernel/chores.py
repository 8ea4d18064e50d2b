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
class Chore:
    """What is done every so many seconds, the first time soon after the start."""

    name: str
    every_s: float
    work: Callable[[], Awaitable[object]]


async def run_chores(chores: Sequence[Chore]) -> None:
    """Do each on its own schedule until cancelled; one that fails is logged and tried again in its turn."""
    async with asyncio.TaskGroup() as tasks:
        for chore in chores:
            tasks.create_task(_repeat(chore), name=f"chore-{chore.name}")


async def _repeat(chore: Chore) -> NoReturn:
    failures = FailureLog(_log, "chores.failed")
    while True:
        try:
            await chore.work()
        except Exception as error:
            failures.report(error, chore=chore.name)
        await asyncio.sleep(chore.every_s)
