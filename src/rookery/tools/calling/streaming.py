"""A call that is told of piece by piece: its progress and its log while it runs, then what it came to (D-34)."""

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
"""How long to wait for a refusal before the caller is told that the call runs."""
_MAX_PENDING_BYTES = 1024 * 1024
"""Of notices that wait for a slow reader. The upstream does not wait for it: it has other callers."""


@dataclass(frozen=True, slots=True)
class CallNotice:
    """One thing that a tool told of its work, as JSON; `dropped_count`: so many were before it that nobody read in time."""

    kind: Literal["progress", "log"]
    content: bytes
    dropped_count: int = 0


class RunningCall:
    """
    One call in a task of its own; `stop` it in the end.

    Args:
        call: Makes the call, given who takes its notices.
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
        Return once there is something to tell, or the call has been running for a second.

        Raises:
            RookeryError: It was refused before anything could be told.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_START_WAIT_S):
                await self._has_news.wait()
        if self._task.done() and not self._notices:
            self._task.result()

    def get_early_failure(self) -> CallOutcome | None:
        """Return the outcome of a call that has failed already, with nothing to be told before; None: it has not."""
        if not self._task.done() or self._notices or self._dropped_count:
            return None
        outcome = self._task.result()
        return outcome if outcome.error is not None else None

    async def iter_notices(self) -> AsyncGenerator[CallNotice]:
        """Yield each notice when it comes, until the call is over."""
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
        Return what it came to.

        Raises:
            RookeryError: It was refused.
        """
        return await self._task

    async def stop(self) -> None:
        """Cancel the call, also upstream, unless it is over."""
        self._task.cancel()
        await asyncio.wait({self._task})
        if not self._task.cancelled():
            self._task.exception()  # somebody has looked at it

    async def _on_progress(self, done: float, total: float | None, message: str | None) -> None:
        told: JsonObject = {"progress": done}
        if total is not None:
            told["total"] = total
        if message is not None:
            told["message"] = message
        self._add_notice("progress", told)

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
