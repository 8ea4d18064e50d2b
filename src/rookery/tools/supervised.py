"""One session with an upstream, supervised: opened when wanted, watched, opened again, stopped when idle (D-32)."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Generator
from dataclasses import dataclass

import structlog

from rookery.tools.errors import ConnectFailed, ServerBusy, UpstreamError
from rookery.tools.models import Lifecycle, Server
from rookery.tools.ports import Connection, Connector

_log = structlog.stdlib.get_logger("rookery.tools")

_DRAIN_S = 60.0
"""How long the calls of a session that was retired may still take."""
_QUEUED_PER_SLOT = 4
"""So many calls wait for each that may run; one more is refused (D-34, server_busy)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """
    How patient supervision is; seconds.

    Attributes:
        connect_s: One attempt to open a session, the start of a process included.
        first_delay_s: Back-off after the second failure in a row, doubled by each further one; the first costs none.
        last_delay_s: Where the doubling stops.
        patience_s: A caller waits out a back-off that is no longer; else it is told at once.
        settled_s: A session that lived so long, or answered a call, ends a row of failures.
    """

    connect_s: float = 30.0
    first_delay_s: float = 0.2
    last_delay_s: float = 30.0
    patience_s: float = 1.0
    settled_s: float = 10.0


class Session:
    """
    One session; `run` is its owner task, everything else may be called by any task of the loop.

    Attributes:
        last_error: Why it last failed or ended; empty after an opening.
        restarts: How often it was opened again.
        in_flight: Calls running now.
    """

    def __init__(
        self,
        server: Server,
        connector: Connector,
        *,
        timing: Timing,
        on_opened: Callable[[Session, Connection], None],
        on_down: Callable[[Session, ConnectFailed], None],
        on_changed: Callable[[Session], None],
    ) -> None:
        self.server = server
        self.last_error = ""
        self.in_flight = 0
        self.opened_at: float | None = None
        self._connector = connector
        self._timing = timing
        self._on_opened = on_opened
        self._on_down = on_down
        self._on_changed = on_changed
        self._connection: Connection | None = None
        self._attempt: asyncio.Future[Connection | ConnectFailed] | None = None
        self._wanted = asyncio.Event()
        self._stopping = asyncio.Event()
        self._draining: asyncio.TimerHandle | None = None
        self._renewing = asyncio.Event()
        self._failures = 0
        self._not_before = 0.0
        self._used_at = time.monotonic()
        self._holds = 0
        self._connecting: asyncio.Timeout | None = None
        self._queue: deque[asyncio.Future[None]] = deque()

    @property
    def is_open(self) -> bool:
        """Tell whether a call would find it ready."""
        return self._connection is not None

    @property
    def is_stopping(self) -> bool:
        """Tell whether it takes no more calls; those that it has taken may still be running."""
        return self._stopping.is_set() or self._draining is not None

    async def connection(self) -> Connection:
        """
        Return the open connection, opening it first if need be.

        Raises:
            ConnectFailed: This attempt failed, or the last one did and its back-off is not over.
        """
        self._used_at = time.monotonic()
        if self._connection is not None:
            return self._connection
        if self._stopping.is_set():
            raise ConnectFailed("The server is being stopped.")
        delay = self._not_before - time.monotonic()
        if delay > self._timing.patience_s:
            raise ConnectFailed(f"{self.last_error} It is tried again in {delay:.0f} s.")
        if self._attempt is None:
            self._attempt = asyncio.get_running_loop().create_future()
        self._wanted.set()
        outcome = await asyncio.shield(self._attempt)
        if isinstance(outcome, ConnectFailed):
            raise ConnectFailed(str(outcome), needs_login=outcome.needs_login)
        return outcome

    @contextlib.asynccontextmanager
    async def slot(self) -> AsyncGenerator[None]:
        """
        Hold one of the server's places for calls, after waiting for it in line.

        Raises:
            ServerBusy: The line is as long as it may be.
        """
        if self.in_flight >= self.server.max_concurrency:
            if len(self._queue) >= self.server.max_concurrency * _QUEUED_PER_SLOT:
                raise ServerBusy(self.server.id)
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._queue.append(turn)
            try:
                await turn
            except BaseException:
                if turn.done() and not turn.cancelled():
                    self._next()
                with contextlib.suppress(ValueError):
                    self._queue.remove(turn)
                raise
        else:
            self.in_flight += 1
        try:
            yield
        finally:
            self._used_at = time.monotonic()
            self._next()
            self._stop_if_drained()

    @contextlib.contextmanager
    def hold(self) -> Generator[None]:
        """Keep it from being closed as idle, without taking a place from calls."""
        self._holds += 1
        try:
            yield
        finally:
            self._holds -= 1
            self._used_at = time.monotonic()
            self._stop_if_drained()

    def proved(self) -> None:
        """Note that it answered a call, which ends a row of failures."""
        self._failures = 0

    def broken(self, connection: Connection) -> None:
        """Give up *connection*: calls from now on wait for a new one. Reports about an older one change nothing."""
        if self._connection is connection:
            self._connection = None
            self._renewing.set()

    def retire(self) -> None:
        """Take no new calls, and end once those that were taken are done, in line or running; after a minute at the latest."""
        if self._draining is None and not self._stopping.is_set():
            self._draining = asyncio.get_running_loop().call_later(_DRAIN_S, self.stop)
            self._stop_if_drained()

    def stop(self) -> None:
        """End soon; `run` returns once everything is closed."""
        if self._draining is not None:
            self._draining.cancel()
        self._stopping.set()
        self._wanted.set()
        if self._connecting is not None and not self._connecting.expired():
            self._connecting.reschedule(0)

    async def run(self) -> None:
        """Own the session until it is stopped or idle: every opening and closing happens in this one task."""
        if self.server.lifecycle is Lifecycle.EAGER:
            self._wanted.set()
        try:
            while await self._is_wanted():
                await self._live_once()
        finally:
            self._stopping.set()
            self._settle(ConnectFailed("The server is being stopped."))

    def _stop_if_drained(self) -> None:
        if self._draining is not None and self.in_flight == self._holds == 0:
            self.stop()

    def _next(self) -> None:
        """Hand this place to the first in line, or free it."""
        while self._queue:
            turn = self._queue.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self.in_flight -= 1

    def _settle(self, outcome: Connection | ConnectFailed) -> None:
        attempt, self._attempt = self._attempt, None
        if attempt is not None and not attempt.done():
            attempt.set_result(outcome)

    async def _is_wanted(self) -> bool:
        """Wait for a caller, and for the end of the back-off; False if it is to end instead."""
        if self.server.lifecycle is Lifecycle.LAZY and not self._wanted.is_set():
            try:
                await asyncio.wait_for(self._wanted.wait(), self.server.idle_s)
            except TimeoutError:
                if not self._wanted.is_set():
                    return False
        delay = self._not_before - time.monotonic()
        if delay > 0 and not self._stopping.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), delay)
        return not self._stopping.is_set()

    async def _live_once(self) -> None:
        """Open the connection, keep it while it is of use, close it."""
        started = time.monotonic()
        self._renewing.clear()
        try:
            async with contextlib.AsyncExitStack() as stack:
                try:
                    async with asyncio.timeout(self._timing.connect_s) as self._connecting:
                        context = self._connector.connect(self.server, on_changed=lambda: self._on_changed(self))
                        connection = await stack.enter_async_context(context)
                except TimeoutError:
                    if self._stopping.is_set():
                        return
                    raise ConnectFailed(f"The server did not answer within {self._timing.connect_s:g} s of its start.") from None
                finally:
                    self._connecting = None
                started = time.monotonic()
                self._open(connection)
                reason = await self._until_over(connection)
                self._connection = None
        except UpstreamError as error:
            self._down(error, started)
        except Exception as error:  # noqa: BLE001 - one upstream, whatever it does, must not end the platform
            _log.exception("tools.session_failed", server=self.server.id)
            self._down(ConnectFailed(f"The session failed: {type(error).__name__}."), started)
        else:
            if reason:
                self._down(ConnectFailed(reason), started)
        finally:
            self._connection = None
            self.opened_at = None

    def _open(self, connection: Connection) -> None:
        self._connection = connection
        self.opened_at = time.monotonic()
        self.last_error = ""
        self._wanted.clear()
        self._settle(connection)
        self._on_opened(self, connection)

    async def _until_over(self, connection: Connection) -> str:
        """Wait for the end, and return why; empty if it was stopped or idle, which is no failure."""
        closed = asyncio.ensure_future(connection.wait_closed())
        renewing = asyncio.ensure_future(self._renewing.wait())
        stopping = asyncio.ensure_future(self._stopping.wait())
        try:
            while True:
                idle_s = self.server.idle_s
                left = None if idle_s is None else max(self._used_at + idle_s - time.monotonic(), 0.01)
                done, _ = await asyncio.wait({closed, renewing, stopping}, timeout=left, return_when=asyncio.FIRST_COMPLETED)
                if closed in done:
                    return closed.result()
                if renewing in done:
                    return "The session was given up."
                if stopping in done:
                    return ""
                if idle_s is not None and self.in_flight == self._holds == 0 and time.monotonic() - self._used_at >= idle_s:
                    self.stop()
                    return ""
        finally:
            for each in (closed, renewing, stopping):
                each.cancel()

    def _down(self, error: UpstreamError, started: float) -> None:
        timing = self._timing
        opened = self.opened_at is not None
        if opened and time.monotonic() - started >= timing.settled_s:
            self._failures = 0
        self._failures += 1
        doublings = min(self._failures - 2, 16)
        delay = min(timing.first_delay_s * 2**doublings, timing.last_delay_s) if doublings >= 0 else 0.0
        self._not_before = time.monotonic() + delay
        self.last_error = str(error)
        _log.warning("tools.session_down", server=self.server.id, error=self.last_error, failures=self._failures, retry_s=round(delay, 1))
        failed = error if isinstance(error, ConnectFailed) else ConnectFailed(self.last_error)
        if not opened:
            # Who asked while it was opening hears of it; who asks for it after a crash gets the next attempt.
            self._wanted.clear()
            self._settle(failed)
        self._on_down(self, failed)
