"""Streamed calls: progress and log notifications during the call, then its outcome."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from typing import Literal

from rookery.tools.calling.results import ToolCallFailed, to_json
from rookery.tools.models import CallOutcome, JsonObject
from rookery.tools.ports import OnLog, OnProgress

_START_WAIT_S = 1.0
"""Time to wait for an early rejection before the response starts."""
_MAX_PENDING_BYTES = 1024 * 1024
"""Limit on notifications that wait for a slow reader. The upstream does not wait for it, because it serves other callers."""


@dataclass(frozen=True, slots=True)
class CallNotice:
    """One notification of a tool, as JSON. `dropped_count`: the notifications dropped before it because the reader was slow."""

    kind: Literal["progress", "log"]
    content: bytes
    dropped_count: int = 0


class RunningCall:
    """
    One call in its own task. Call `stop` at the end.

    Args:
        call: Makes the call, with the handlers of its notifications.
    """

    def __init__(self, call: Callable[[OnProgress, OnLog], Awaitable[CallOutcome]]) -> None:
        self._notices: deque[CallNotice] = deque()
        self._pending_bytes = 0
        self._dropped_count = 0
        self._has_news = asyncio.Event()
        self._task = asyncio.ensure_future(call(self._on_progress, self._on_log))
        self._task.add_done_callback(lambda _: self._has_news.set())

    async def wait_started(self) -> None:
        """
        Wait for the first notification or the outcome, at most one second.

        Raises:
            RookeryError: The call was rejected before any notification.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_START_WAIT_S):
                await self._has_news.wait()
        if self._task.done() and not self._notices:
            self._task.result()

    def get_early_failure(self) -> CallOutcome | None:
        """Return the outcome of a call that has already failed without notifications, else None."""
        if not self._task.done() or self._notices or self._dropped_count:
            return None
        outcome = self._task.result()
        return outcome if outcome.error is not None else None

    async def iter_notices(self) -> AsyncGenerator[CallNotice]:
        """Yield each notification as it arrives, until the call ends."""
        while True:
            await self._has_news.wait()
            self._has_news.clear()
            is_over = self._task.done()
            while self._notices:
                notice = self._notices.popleft()
                self._pending_bytes -= len(notice.content)
                yield notice
            if is_over:
                return

    async def wait_outcome(self) -> CallOutcome:
        """
        Return the outcome of the call.

        Raises:
            RookeryError: The call was rejected.
        """
        return await self._task

    async def stop(self) -> None:
        """Cancel the call, also upstream, unless it has ended."""
        self._task.cancel()
        await asyncio.wait({self._task})
        if not self._task.cancelled():
            self._task.exception()  # retrieve it, so that asyncio does not log it

    async def _on_progress(self, done: float, total: float | None, message: str | None) -> None:
        progress: JsonObject = {"progress": done}
        if total is not None:
            progress["total"] = total
        if message is not None:
            progress["message"] = message
        self._add_notice("progress", progress)

    async def _on_log(self, params: JsonObject) -> None:
        self._add_notice("log", {name: value for name, value in params.items() if name != "_meta"})

    def _add_notice(self, kind: Literal["progress", "log"], payload: JsonObject) -> None:
        try:
            content = to_json(payload)
        except ToolCallFailed:
            self._dropped_count += 1
            return
        if self._pending_bytes + len(content) > _MAX_PENDING_BYTES:
            self._dropped_count += 1
            return
        self._pending_bytes += len(content)
        self._notices.append(CallNotice(kind, content, self._dropped_count))
        self._dropped_count = 0
        self._has_news.set()
