"""The calls that this process has in progress at providers, and their cancellation, also by other processes."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import contextmanager

import structlog

from rookery.content.store import generations as store
from rookery.kernel.cancellation import wait_until_set
from rookery.kernel.db import Database
from rookery.kernel.errors import OUTAGES
from rookery.kernel.logs import LimitedWarning
from rookery.kernel.wakeups import Wakeups

_WAKEUP_TOPIC = "generations"
_POLL_INTERVAL_S = 1.0
"""Longest time between two looks for calls that another process cancelled. A cancellation by this process acts at once."""

_log = structlog.stdlib.get_logger("rookery.content")


class ActiveCall:
    """
    A call in progress, which `cancel` interrupts by cancelling the task that waits for the provider.

    Attributes:
        task: The task that waits for the provider now; None: no task waits, because the reader of a stream has not asked for more.
        is_cancelled: The generation was cancelled.
    """

    __slots__ = ("is_cancelled", "task")

    def __init__(self) -> None:
        self.task = asyncio.current_task()
        self.is_cancelled = False

    def cancel(self) -> None:
        """Interrupt the call."""
        if not self.is_cancelled:
            self.is_cancelled = True
            if self.task is not None:
                self.task.cancel()

    def absorb_cancellation(self) -> bool:
        """Return whether a CancelledError in the current task came from `cancel`. If so, the task is no longer being cancelled."""
        task = asyncio.current_task()
        if not self.is_cancelled or task is None:
            return False
        return task.uncancel() == 0


class ActiveCalls:
    """The calls of this process by the ids of their generations."""

    def __init__(self, db: Database, wakeups: Wakeups) -> None:
        self._db = db
        self._wakeups = wakeups
        self._wakeup = asyncio.Event()
        self._calls: dict[str, ActiveCall] = {}
        self._watching: asyncio.Task[None] | None = None
        self._warning = LimitedWarning(_log, "content.cancellations_not_read")
        wakeups.subscribe(_WAKEUP_TOPIC, self._on_wakeup)

    def __len__(self) -> int:
        """Return the number of calls in progress."""
        return len(self._calls)

    @contextmanager
    def register(self, generation_id: str) -> Generator[ActiveCall]:
        """Register a call of the current task until the block ends."""
        call = self._calls[generation_id] = ActiveCall()
        if self._watching is None:
            self._watching = asyncio.create_task(self._watch(), name="watch-generations")
        try:
            yield call
        finally:
            if self._calls.get(generation_id) is call:
                del self._calls[generation_id]

    def cancel(self, generation_id: str) -> None:
        """Interrupt the call of a cancelled generation, in this process or another."""
        call = self._calls.get(generation_id)
        if call is not None:
            call.cancel()
        else:
            self._wakeups.send(_WAKEUP_TOPIC, generation_id)

    def _on_wakeup(self, generation_id: str | None) -> None:
        if generation_id is None or generation_id in self._calls:
            self._wakeup.set()

    async def aclose(self) -> None:
        """Stop watching."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait({self._watching})
            self._watching = None

    async def _watch(self) -> None:
        """Interrupt calls whose generations other processes cancelled. Ends with the last call."""
        while self._calls:
            await wait_until_set(self._wakeup, timeout_s=_POLL_INTERVAL_S)
            self._wakeup.clear()
            ids = list(self._calls)
            try:
                running_ids = await self._db.read(lambda tx, ids=ids: store.list_running_ids(tx, ids))
            except OUTAGES as error:
                self._warning.warn(reason=error.message)
                continue
            for generation_id in ids:
                call = self._calls.get(generation_id)
                if call is not None and generation_id not in running_ids:
                    call.cancel()
        self._watching = None
