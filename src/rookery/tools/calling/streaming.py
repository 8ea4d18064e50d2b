"""A call that is told of piece by piece: its progress and its log while it runs, then what it came to (D-34)."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from typing import Literal

from rookery.tools.calling.results import Failed, as_json
from rookery.tools.models import JsonObject, Outcome
from rookery.tools.ports import OnLog, OnProgress

_BEGUN_S = 1.0
"""How long to wait for a refusal before the caller is told that the call runs."""
_MOST_BYTES = 1024 * 1024
"""Of notices that wait for a slow reader. The upstream does not wait for it: it has other callers."""


@dataclass(frozen=True, slots=True)
class Notice:
    """One thing that a tool told of its work, as JSON; `left_out`: so many were before it that nobody read in time."""

    kind: Literal["progress", "log"]
    content: bytes
    left_out: int = 0


class RunningCall:
    """
    One call in a task of its own; `stop` it in the end.

    Args:
        call: Makes the call, given who takes its notices.
    """

    def __init__(self, call: Callable[[OnProgress, OnLog], Awaitable[Outcome]]) -> None:
        self._notices: deque[Notice] = deque()
        self._bytes = 0
        self._left_out = 0
        self._news = asyncio.Event()
        self._task = asyncio.ensure_future(call(self._progressed, self._logged))
        self._task.add_done_callback(lambda _: self._news.set())

    async def begun(self) -> None:
        """
        Return once there is something to tell, or the call has been running for a second.

        Raises:
            RookeryError: It was refused before anything could be told.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_BEGUN_S):
                await self._news.wait()
        if self._task.done() and not self._notices:
            self._task.result()

    def failed_at_once(self) -> Outcome | None:
        """Return the outcome of a call that has failed already, with nothing to be told before; None: it has not."""
        if not self._task.done() or self._notices or self._left_out:
            return None
        outcome = self._task.result()
        return outcome if outcome.error is not None else None

    async def notices(self) -> AsyncGenerator[Notice]:
        """Yield each notice when it comes, until the call is over."""
        while True:
            await self._news.wait()
            self._news.clear()
            is_over = self._task.done()
            while self._notices:
                notice = self._notices.popleft()
                self._bytes -= len(notice.content)
                yield notice
            if is_over:
                return

    async def outcome(self) -> Outcome:
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

    async def _progressed(self, done: float, total: float | None, message: str | None) -> None:
        told: JsonObject = {"progress": done}
        if total is not None:
            told["total"] = total
        if message is not None:
            told["message"] = message
        self._take("progress", told)

    async def _logged(self, params: JsonObject) -> None:
        self._take("log", {name: value for name, value in params.items() if name != "_meta"})

    def _take(self, kind: Literal["progress", "log"], told: JsonObject) -> None:
        try:
            content = as_json(told)
        except Failed:
            self._left_out += 1
            return
        if self._bytes + len(content) > _MOST_BYTES:
            self._left_out += 1
            return
        self._bytes += len(content)
        self._notices.append(Notice(kind, content, self._left_out))
        self._left_out = 0
        self._news.set()
