"""Notification of requests that wait for a ready task."""

from __future__ import annotations

import asyncio
from collections import defaultdict

from rookery.kernel.events import EventBus, PhaseChanged, PlanChanged, TaskChanged

_IRRELEVANT_EVENTS = frozenset({"task.claimed", "plan.archived", "plan.paused", "phase.checkpoint"})
"""Events that never make a task ready."""


class ReadyTaskNotifier:
    """
    Wakes the waiting requests of a workspace after each change there that may have made a task ready.

    Only changes that this process commits are seen. Waiting requests poll for the changes of other processes.
    """

    def __init__(self, bus: EventBus) -> None:
        self._waiters: dict[int, set[asyncio.Future[None]]] = defaultdict(set)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_closed = False
        bus.subscribe(PlanChanged, self._on_change)
        bus.subscribe(PhaseChanged, self._on_change)
        bus.subscribe(TaskChanged, self._on_change)

    def subscribe(self, workspace_id: int) -> asyncio.Future[None]:
        """Return a future that the next relevant change resolves. Subscribe before reading, so that no change is missed in between."""
        self._loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = self._loop.create_future()
        if self._is_closed:
            future.set_result(None)
            return future
        waiters = self._waiters[workspace_id]
        waiters.add(future)

        def forget(done: asyncio.Future[None]) -> None:
            waiters.discard(done)
            if not waiters and self._waiters.get(workspace_id) is waiters:
                del self._waiters[workspace_id]

        future.add_done_callback(forget)
        return future

    def count_waiters(self, workspace_id: int) -> int:
        """Return the number of waiting requests in the workspace."""
        return len(self._waiters.get(workspace_id, ()))

    @property
    def is_closed(self) -> bool:
        """True while the server stops: no request should wait."""
        return self._is_closed

    def close(self) -> None:
        """Wake all waiting requests and let later ones return at once. Safe to call from any thread or signal handler."""
        self._is_closed = True
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wake_all)

    def _wake_all(self) -> None:
        for waiters in list(self._waiters.values()):
            _resolve_all(waiters)

    def _on_change(self, event: PlanChanged | PhaseChanged | TaskChanged) -> None:
        if event.name not in _IRRELEVANT_EVENTS and event.workspace_id in self._waiters:
            _resolve_all(self._waiters[event.workspace_id])


def _resolve_all(waiters: set[asyncio.Future[None]]) -> None:
    for future in list(waiters):
        if not future.done():
            future.set_result(None)
