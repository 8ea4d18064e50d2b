"""One supervised upstream session: opened on demand, monitored, reopened after failures, closed when idle (D-32)."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Generator

import structlog

from rookery.kernel.cancellation import wait_until_set
from rookery.tools.errors import ConnectFailed, ServerBusy, UpstreamError
from rookery.tools.models import Server, SessionLifecycle
from rookery.tools.ports import Connector, UpstreamConnection
from rookery.tools.supervision.circuit_breaker import CircuitBreaker, SupervisionTimeouts
from rookery.tools.supervision.health import SessionHealth, SessionState

__all__ = ["SupervisionTimeouts", "UpstreamSession"]

_log = structlog.stdlib.get_logger("rookery.tools")

_DRAIN_TIMEOUT_S = 60.0
"""Time that the running calls of a retired session may still take."""
_MAX_QUEUED_PER_SLOT = 4
"""Queued calls per slot. Further calls are rejected (D-34, server_busy)."""
_MAX_SILENT_PROBES = 2
"""Unanswered probes that are tolerated while calls run, because the server may be busy with them."""
MAX_STDERR_LINES = 10
"""Lines of a server's standard error that are kept to explain a failure."""
_MAX_RECORDED_DURATIONS = 256
"""The number of last calls whose durations are kept."""


class UpstreamSession:
    """
    One session. `run` is its owner task; any task of the event loop may use the other methods.

    Attributes:
        workspace_id: The workspace whose login it uses and that may see its health. None: no single workspace.
        breaker: The back-off and circuit breaker, shared by the replicas of one holder.
        last_error: The reason of the last failure or end; empty after the session was opened.
        stderr: The last lines that the server's process wrote to standard error since its last start.
        restarts: The number of times it was reopened after a failure.
        in_flight: The number of running calls.
        used_at: The time of the last use, of a monotonic clock.
    """

    def __init__(
        self,
        server: Server,
        connector: Connector,
        *,
        timeouts: SupervisionTimeouts,
        breaker: CircuitBreaker,
        on_opened: Callable[[UpstreamSession, UpstreamConnection], None],
        on_down: Callable[[UpstreamSession, ConnectFailed], None],
        on_changed: Callable[[UpstreamSession], None],
        workspace_id: int | None = None,
    ) -> None:
        self.server = server
        self.workspace_id = workspace_id
        self.breaker = breaker
        self.last_error = ""
        self.stderr: deque[str] = deque(maxlen=MAX_STDERR_LINES)
        self.restarts = 0
        self.in_flight = 0
        self.opened_at: float | None = None
        self._connector = connector
        self._timeouts = timeouts
        self._on_opened = on_opened
        self._on_down = on_down
        self._on_changed = on_changed
        self._connection: UpstreamConnection | None = None
        self._pending_open: asyncio.Future[UpstreamConnection | ConnectFailed] | None = None
        self._open_requested = asyncio.Event()
        self._stopping = asyncio.Event()
        self._draining: asyncio.TimerHandle | None = None
        self._reopen_requested = asyncio.Event()
        self._is_suspect = asyncio.Event()
        self._has_failed = False
        self.used_at = time.monotonic()
        self._hold_count = 0
        self._silent_probes = 0
        self._durations_ms: deque[float] = deque(maxlen=_MAX_RECORDED_DURATIONS)
        self._connect_timeout: asyncio.Timeout | None = None
        self._queue: deque[asyncio.Future[None]] = deque()

    @property
    def current_connection(self) -> UpstreamConnection | None:
        """The open connection, or None."""
        return self._connection

    @property
    def is_open(self) -> bool:
        """True if the session is open."""
        return self._connection is not None

    @property
    def is_stopping(self) -> bool:
        """True if it rejects new calls. Accepted calls may still run."""
        return self._stopping.is_set() or self._draining is not None

    @property
    def is_idle(self) -> bool:
        """True if no call runs and none waits for the session to open."""
        return self.in_flight == self._hold_count == 0 and self._pending_open is None

    @property
    def load(self) -> int:
        """The number of running and queued calls."""
        return self.in_flight + len(self._queue)

    def get_health(self) -> SessionHealth:
        """Return the health of the session."""
        now = time.monotonic()
        connection, info = self._connection, None if self._connection is None else self._connection.info
        remaining_s = self.breaker.not_before - now if self.last_error else 0.0
        state: SessionState = (
            "open"
            if connection is not None
            else "opening"
            if self._connect_timeout is not None
            else "waiting"
            if remaining_s > 0
            else "closed"
        )
        return SessionHealth(
            state=state,
            pid=None if info is None else info.pid,
            protocol_version=None if info is None else info.protocol_version,
            software="" if info is None else info.software,
            uptime_s=None if connection is None or self.opened_at is None else now - self.opened_at,
            restarts=self.restarts,
            last_error=self.last_error,
            in_flight=self.in_flight,
            queued=len(self._queue),
            retry_s=remaining_s if state == "waiting" else None,
            durations_ms=tuple(self._durations_ms),
        )

    def request_open(self) -> None:
        """Request that the session is opened in the background."""
        self.used_at = time.monotonic()
        self._open_requested.set()

    async def get_connection(self) -> UpstreamConnection:
        """
        Return the open connection, opening it first if necessary.

        Raises:
            ConnectFailed: This attempt failed, or the session is in back-off after a failed attempt.
        """
        self.used_at = time.monotonic()
        if self._connection is not None:
            return self._connection
        if self._stopping.is_set():
            raise ConnectFailed("The server is being stopped.")
        now = time.monotonic()
        if self.breaker.not_before - now > self._timeouts.max_caller_wait_s:
            raise ConnectFailed(f"{self.last_error} {self.breaker.describe_retry(now)}".lstrip())
        if self._pending_open is None:
            self._pending_open = asyncio.get_running_loop().create_future()
        self._open_requested.set()
        outcome = await asyncio.shield(self._pending_open)
        if isinstance(outcome, ConnectFailed):
            raise ConnectFailed(str(outcome), needs_login=outcome.needs_login)
        return outcome

    @contextlib.asynccontextmanager
    async def slot(self) -> AsyncGenerator[None]:
        """
        Hold one of the server's call slots; wait in a queue if none is free.

        Raises:
            ServerBusy: The queue is full, or no slot became free in time.
        """
        if self.in_flight >= self.server.max_concurrency:
            if len(self._queue) >= self.server.max_concurrency * _MAX_QUEUED_PER_SLOT:
                raise ServerBusy(self.server.id)
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._queue.append(waiter)
            try:
                async with asyncio.timeout(self._timeouts.queue_timeout_s):
                    await waiter
            except BaseException as error:
                if waiter.done() and not waiter.cancelled():
                    self._release_slot()
                with contextlib.suppress(ValueError):
                    self._queue.remove(waiter)
                if isinstance(error, TimeoutError):
                    raise ServerBusy(self.server.id) from None
                raise
        else:
            self.in_flight += 1
        started = time.perf_counter()
        try:
            yield
        finally:
            self._durations_ms.append((time.perf_counter() - started) * 1000)
            self.used_at = time.monotonic()
            self._release_slot()
            self._stop_if_drained()

    @contextlib.contextmanager
    def keep_open(self) -> Generator[None]:
        """Prevent the session from being closed as idle, without taking a call slot."""
        self._hold_count += 1
        try:
            yield
        finally:
            self._hold_count -= 1
            self.used_at = time.monotonic()
            self._stop_if_drained()

    def mark_healthy(self) -> None:
        """Record an answered call, which ends a series of failures."""
        self._silent_probes = 0
        self.breaker.record_success()

    def mark_suspect(self) -> None:
        """Probe whether the server still answers, because a call timed out."""
        self._is_suspect.set()

    def mark_failed(self, connection: UpstreamConnection) -> None:
        """Discard *connection*; further calls wait for a new one. Reports about an older connection have no effect."""
        if self._connection is connection:
            self._connection = None
            self._reopen_requested.set()

    def drain(self) -> None:
        """Reject new calls, and stop when the accepted ones have finished, after a minute at the latest."""
        if self._draining is None and not self._stopping.is_set():
            self._draining = asyncio.get_running_loop().call_later(_DRAIN_TIMEOUT_S, self.stop)
            self._stop_if_drained()

    def stop(self) -> None:
        """Request the end of the session. `run` returns once everything is closed."""
        if self._draining is not None:
            self._draining.cancel()
        self._stopping.set()
        self._open_requested.set()
        if self._connect_timeout is not None and not self._connect_timeout.expired():
            self._connect_timeout.reschedule(0)

    async def run(self) -> None:
        """Own the session until it is stopped or idle. The connection is opened and closed in this task only."""
        if self.server.lifecycle is SessionLifecycle.EAGER:
            self._open_requested.set()
        try:
            # `stop` is checked first: an attempt stopped at its very end may have cleared the event that `stop` set.
            while not self._stopping.is_set() and await self._wait_wanted():
                await self._open_and_serve()
        finally:
            self._stopping.set()
            self._resolve_pending_open(ConnectFailed("The server is being stopped."))

    def _stop_if_drained(self) -> None:
        if self._draining is not None and self.in_flight == self._hold_count == 0:
            self.stop()

    def _release_slot(self) -> None:
        """Pass the slot to the first waiter, or free it."""
        while self._queue:
            waiter = self._queue.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
        self.in_flight -= 1

    def _resolve_pending_open(self, outcome: UpstreamConnection | ConnectFailed) -> None:
        attempt, self._pending_open = self._pending_open, None
        if attempt is not None and not attempt.done():
            attempt.set_result(outcome)

    async def _wait_wanted(self) -> bool:
        """Wait for a request to open and for the end of the back-off. Return False if the session is to end instead."""
        if self.server.lifecycle is SessionLifecycle.LAZY and not await wait_until_set(self._open_requested, timeout_s=self.server.idle_s):
            return False
        while (delay := self.breaker.not_before - time.monotonic()) > 0 and not self._stopping.is_set():
            await wait_until_set(self._stopping, timeout_s=delay)
        return not self._stopping.is_set()

    async def _open_and_serve(self) -> None:
        """Open the connection, keep it while it is usable, and close it."""
        started = time.monotonic()
        limit_s = self.server.effective_start_timeout_s or self._timeouts.connect_timeout_s
        self._reopen_requested.clear()
        self.stderr.clear()
        try:
            async with contextlib.AsyncExitStack() as stack:
                try:
                    async with asyncio.timeout(limit_s) as self._connect_timeout:
                        context = self._connector.connect(
                            self.server,
                            on_changed=lambda: self._on_changed(self),
                            workspace_id=self.workspace_id,
                            on_stderr=self.stderr.append,
                        )
                        connection = await stack.enter_async_context(context)
                except TimeoutError:
                    if self._stopping.is_set():
                        return
                    raise ConnectFailed(
                        f"The server did not answer within {limit_s:g} s of its start (`start_timeout_s` in its entry)."
                    ) from None
                finally:
                    self._connect_timeout = None
                started = time.monotonic()
                self._on_open(connection)
                reason = await self._wait_end(connection)
                self._connection = None
        except UpstreamError as error:
            self._on_failure(error, started)
        except Exception as error:  # noqa: BLE001 - no upstream may stop the platform
            _log.exception("tools.session_failed", server=self.server.id)
            self._on_failure(ConnectFailed(f"The session failed: {type(error).__name__}."), started)
        else:
            if reason:
                self._on_failure(ConnectFailed(reason), started)
        finally:
            self._connection = None
            self.opened_at = None

    def _on_open(self, connection: UpstreamConnection) -> None:
        self._connection = connection
        self.opened_at = time.monotonic()
        self.restarts += self._has_failed
        self.last_error, self._has_failed = "", False
        self._open_requested.clear()
        self._resolve_pending_open(connection)
        self._on_opened(self, connection)

    async def _wait_end(self, connection: UpstreamConnection) -> str:
        """Wait for the end of the session, and return the reason; empty if it was stopped or idle, which is not a failure."""
        closed = asyncio.ensure_future(connection.wait_closed())
        reopening = asyncio.ensure_future(self._reopen_requested.wait())
        stopping = asyncio.ensure_future(self._stopping.wait())
        silent = asyncio.ensure_future(self._wait_silent(connection))
        try:
            while True:
                idle_s = self.server.idle_s
                timeout_s = None if idle_s is None else max(self.used_at + idle_s - time.monotonic(), 0.01)
                done, _ = await asyncio.wait({closed, reopening, stopping, silent}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
                if closed in done:
                    return closed.result()
                if reopening in done:
                    return "The session was closed after a failure."
                if stopping in done:
                    return ""
                if silent in done:
                    return "The server stopped answering, so its session was closed."
                if idle_s is not None and self.in_flight == self._hold_count == 0 and time.monotonic() - self.used_at >= idle_s:
                    self.stop()
                    return ""
        finally:
            for task in (closed, reopening, stopping, silent):
                task.cancel()

    async def _wait_silent(self, connection: UpstreamConnection) -> None:
        """
        Return once the server does not answer a probe that follows a timed-out call.

        A server that is busy with other calls is probed up to two more times.
        """
        self._silent_probes = 0
        while True:
            self._is_suspect.clear()
            await self._is_suspect.wait()
            try:
                async with asyncio.timeout(self._timeouts.probe_timeout_s):
                    await connection.list_features()
                self._silent_probes = 0
            except TimeoutError:
                self._silent_probes += 1
                if self.in_flight == 0 or self._silent_probes > _MAX_SILENT_PROBES:
                    return
            except UpstreamError:
                self._silent_probes = 0  # the server answered, or the session ended and is handled elsewhere

    def _on_failure(self, error: UpstreamError, started: float) -> None:
        now, was_opened = time.monotonic(), self.opened_at is not None
        delay = self.breaker.record_failure(now, now - started if was_opened else None)
        self._has_failed = self._has_failed or was_opened
        self.last_error = str(error)
        _log.warning(
            "tools.session_down",
            server=self.server.id,
            error=self.last_error,
            retry_s=round(delay, 1),
            trips=self.breaker.trip_count,
            stderr=list(self.stderr),
        )
        failed = error if isinstance(error, ConnectFailed) else ConnectFailed(self.last_error)
        if not was_opened or delay > self._timeouts.max_caller_wait_s:
            # Callers that waited for this attempt receive its error. After a crash, callers wait for the next attempt if it is soon.
            self._open_requested.clear()
            message = f"{self.last_error} {self.breaker.describe_retry(now)}" if was_opened else self.last_error
            self._resolve_pending_open(ConnectFailed(message, needs_login=failed.needs_login))
        self._on_down(self, failed)
