"""The runtime: the parts that every domain is built on, the services built so far, and periodic tasks, which must be idempotent."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import cached_property
from typing import NoReturn, TypeVar, cast

import structlog

from rookery.kernel.clock import Clock
from rookery.kernel.config import Settings
from rookery.kernel.db import Database, Tx
from rookery.kernel.engine_breakers import EngineBreakers
from rookery.kernel.events import EventBus
from rookery.kernel.ids import IdFactory
from rookery.kernel.jobs import JobQueue
from rookery.kernel.logs import FailureLog
from rookery.kernel.wakeups import Wakeups
from rookery.kernel.workspace_shares import WorkspaceShares

T = TypeVar("T")

Purger = Callable[[Tx, int], int]
"""Deletes one domain's data of a tenant (a workspace or a sandbox) in this transaction; returns the number of rows."""


class Runtime:
    """
    The settings, the record store, the event bus, the clock and the job queue, with the services built on them.

    `use` builds a service on its first use and then returns the same one, so a command builds only what it uses, and the order of the
    domains does not matter. Domains do not import each other: what one needs from another, or from an engine, is a dataclass of
    ports in its `ports` module, which the composition root provides with `provide`.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        db: Database,
        bus: EventBus,
        clock: Clock,
        ids: IdFactory,
        wakeups: Wakeups | None = None,
        breakers: EngineBreakers | None = None,
        shares: WorkspaceShares | None = None,
    ) -> None:
        self.settings = settings
        self.breakers = breakers or EngineBreakers(settings)
        self.shares = shares or WorkspaceShares()
        self.db = db
        self.wakeups = wakeups or Wakeups()
        self.bus = bus
        self.clock = clock
        self.ids = ids
        self._providers: dict[object, Callable[[Runtime], object]] = {}
        self._built: dict[object, object] = {}
        self._closers: list[Callable[[], Awaitable[None] | None]] = [self.shares.close]

    @cached_property
    def jobs(self) -> JobQueue:
        """The queue of background jobs."""
        return JobQueue(self.db, self.clock, self.ids, self.wakeups)

    def provide(self, kind: type[T], build: Callable[[Runtime], T]) -> None:
        """Let `use` return what *build* returns for *kind*: the ports of a domain, or a service that the composition root builds."""
        self._providers[kind] = build

    def use(self, kind: type[T] | Callable[[Runtime], T]) -> T:
        """
        Return the one *kind* of this runtime, built on first use.

        Args:
            kind: A class with a provider, a class whose constructor takes a runtime, or a function that takes a runtime.
        """
        if kind not in self._built:
            build = self._providers.get(kind, cast("Callable[[Runtime], object]", kind))
            self._built[kind] = build(self)
        return cast("T", self._built[kind])

    def on_close(self, close: Callable[[], Awaitable[None] | None]) -> None:
        """Call *close* when the runtime closes, before what was built earlier is closed."""
        self._closers.append(close)

    async def close(self) -> None:
        """Close everything in reverse order. Each step runs; then the first exception is raised. May be called again."""
        closing = AsyncExitStack()
        for close in self._closers:
            closing.push_async_callback(_call, close)
        await closing.aclose()


async def _call(close: Callable[[], Awaitable[None] | None]) -> None:
    result = close()
    if result is not None:
        await result


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
