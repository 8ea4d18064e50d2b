"""One session with an upstream, supervised: opened when wanted, watched, opened again, stopped when idle (D-32)."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Generator

import structlog

from rookery.tools.errors import ConnectFailed, ServerBusy, UpstreamError
from rookery.tools.models import Server, SessionLifecycle
from rookery.tools.ports import Connector, UpstreamConnection
from rookery.tools.supervision.circuit_breaker import CircuitBreaker, SupervisionTimeouts
from rookery.tools.supervision.health import SessionHealth, SessionState

__all__ = ["SupervisionTimeouts", "UpstreamSession"]

_log = structlog.stdlib.get_logger("rookery.tools")

_DRAIN_TIMEOUT_S = 60.0
"""How long the calls of a session that was retired may still take."""
_MAX_QUEUED_PER_SLOT = 4
"""So many calls wait for each that may run; one more is refused (D-34, server_busy)."""
_MAX_SILENT_PROBES = 2
"""So often a server that is silent while calls run may merely be busy with them."""
MAX_STDERR_LINES = 10
"""The end of a server's standard error, kept to explain a failure."""
_MAX_RECORDED_DURATIONS = 256
"""Of so many last calls it is kept how long they took."""


class UpstreamSession:
    """
    One session; `run` is its owner task, everything else may be called by any task of the loop.

    Attributes:
        workspace_id: Whose login it uses, and who alone is told how it does; None: nobody in particular, or everybody.
        breaker: When it may be opened again; the replicas of one holder have one in common.
        last_error: Why it last failed or ended; empty after an opening.
        stderr: The last lines that the server's process wrote to its standard error, of the current or the last start.
        restarts: How often it was opened again after it had fallen.
        in_flight: Calls running now.
        used_at: When it was last wanted, by a monotonic clock.
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
        """The open connection, if there is one now."""
        return self._connection

    @property
    def is_open(self) -> bool:
        """Return whether a call would find it ready."""
        return self._connection is not None

    @property
    def is_stopping(self) -> bool:
        """Return whether it takes no more calls; those that it has taken may still be running."""
        return self._stopping.is_set() or self._draining is not None

    @property
    def is_idle(self) -> bool:
        """Return whether nothing runs in it, or waits to."""
        return self.in_flight == self._hold_count == 0 and self._pending_open is None

    @property
    def load(self) -> int:
        """Calls that run or wait in line."""
        return self.in_flight + len(self._queue)

    def get_health(self) -> SessionHealth:
        """Return how it does."""
        now = time.monotonic()
        connection, facts = self._connection, None if self._connection is None else self._connection.info
        left = self.breaker.not_before - now if self.last_error else 0.0
        state: SessionState = (
            "open" if connection is not None else "opening" if self._connect_timeout is not None else "waiting" if left > 0 else "closed"
        )
        return SessionHealth(
            state=state,
            pid=None if facts is None else facts.pid,
            protocol_version=None if facts is None else facts.protocol_version,
            software="" if facts is None else facts.software,
            uptime_s=None if connection is None or self.opened_at is None else now - self.opened_at,
            restarts=self.restarts,
            last_error=self.last_error,
            in_flight=self.in_flight,
            queued=len(self._queue),
            retry_s=left if state == "waiting" else None,
            durations_ms=tuple(self._durations_ms),
        )

    def request_open(self) -> None:
        """Have it opened soon, for calls to come."""
        self.used_at = time.monotonic()
        self._open_requested.set()

    async def get_connection(self) -> UpstreamConnection:
        """
        Return the open connection, opening it first if need be.

        Raises:
            ConnectFailed: This attempt failed, or the last one did and its back-off is not over.
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
        Hold one of the server's places for calls, after waiting for it in line.

        Raises:
            ServerBusy: The line is as long as it may be, or no place came free in time.
        """
        if self.in_flight >= self.server.max_concurrency:
            if len(self._queue) >= self.server.max_concurrency * _MAX_QUEUED_PER_SLOT:
                raise ServerBusy(self.server.id)
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._queue.append(turn)
            try:
                async with asyncio.timeout(self._timeouts.queue_timeout_s):
                    await turn
            except BaseException as error:
                if turn.done() and not turn.cancelled():
                    self._release_slot()
                with contextlib.suppress(ValueError):
                    self._queue.remove(turn)
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
        """Keep it from being closed as idle, without taking a place from calls."""
        self._hold_count += 1
        try:
            yield
        finally:
            self._hold_count -= 1
            self.used_at = time.monotonic()
            self._stop_if_drained()

    def mark_healthy(self) -> None:
        """Note that it answered a call, which ends a row of failures."""
        self._silent_probes = 0
        self.breaker.record_success()

    def mark_suspect(self) -> None:
        """Have it found out whether the server still answers anything: a call has waited in vain."""
        self._is_suspect.set()

    def mark_failed(self, connection: UpstreamConnection) -> None:
        """Give up *get_connection*: calls from now on wait for a new one. Reports about an older one change nothing."""
        if self._connection is connection:
            self._connection = None
            self._reopen_requested.set()

    def drain(self) -> None:
        """Take no new calls, and end once those that were taken are done, in line or running; after a minute at the latest."""
        if self._draining is None and not self._stopping.is_set():
            self._draining = asyncio.get_running_loop().call_later(_DRAIN_TIMEOUT_S, self.stop)
            self._stop_if_drained()

    def stop(self) -> None:
        """End soon; `run` returns once everything is closed."""
        if self._draining is not None:
            self._draining.cancel()
        self._stopping.set()
        self._open_requested.set()
        if self._connect_timeout is not None and not self._connect_timeout.expired():
            self._connect_timeout.reschedule(0)

    async def run(self) -> None:
        """Own the session until it is stopped or idle: every opening and closing happens in this one task."""
        if self.server.lifecycle is SessionLifecycle.EAGER:
            self._open_requested.set()
        try:
            # Asked first: an opening that was stopped at its very end has taken the wish of `stop` for its own.
            while not self._stopping.is_set() and await self._wait_wanted():
                await self._open_and_serve()
        finally:
            self._stopping.set()
            self._resolve_pending_open(ConnectFailed("The server is being stopped."))

    def _stop_if_drained(self) -> None:
        if self._draining is not None and self.in_flight == self._hold_count == 0:
            self.stop()

    def _release_slot(self) -> None:
        """Hand this place to the first in line, or free it."""
        while self._queue:
            turn = self._queue.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self.in_flight -= 1

    def _resolve_pending_open(self, outcome: UpstreamConnection | ConnectFailed) -> None:
        attempt, self._pending_open = self._pending_open, None
        if attempt is not None and not attempt.done():
            attempt.set_result(outcome)

    async def _wait_wanted(self) -> bool:
        """Wait for a caller, and for the end of the back-off; False if it is to end instead."""
        if self.server.lifecycle is SessionLifecycle.LAZY and not self._open_requested.is_set():
            try:
                await asyncio.wait_for(self._open_requested.wait(), self.server.idle_s)
            except TimeoutError:
                if not self._open_requested.is_set():
                    return False
        while (delay := self.breaker.not_before - time.monotonic()) > 0 and not self._stopping.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), delay)
        return not self._stopping.is_set()

    async def _open_and_serve(self) -> None:
        """Open the connection, keep it while it is of use, close it."""
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
                        f"The server did not answer within {limit_s:g} s of its start (start_timeout_s of its entry)."
                    ) from None
                finally:
                    self._connect_timeout = None
                started = time.monotonic()
                self._on_open(connection)
                reason = await self._wait_end(connection)
                self._connection = None
        except UpstreamError as error:
            self._on_failure(error, started)
        except Exception as error:  # noqa: BLE001 - one upstream, whatever it does, must not end the platform
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
        """Wait for the end, and return why; empty if it was stopped or idle, which is no failure."""
        closed = asyncio.ensure_future(connection.wait_closed())
        renewing = asyncio.ensure_future(self._reopen_requested.wait())
        stopping = asyncio.ensure_future(self._stopping.wait())
        silent = asyncio.ensure_future(self._wait_silent(connection))
        try:
            while True:
                idle_s = self.server.idle_s
                left = None if idle_s is None else max(self.used_at + idle_s - time.monotonic(), 0.01)
                done, _ = await asyncio.wait({closed, renewing, stopping, silent}, timeout=left, return_when=asyncio.FIRST_COMPLETED)
                if closed in done:
                    return closed.result()
                if renewing in done:
                    return "The session was given up."
                if stopping in done:
                    return ""
                if silent in done:
                    return "The server answers nothing any more, so it was given up."
                if idle_s is not None and self.in_flight == self._hold_count == 0 and time.monotonic() - self.used_at >= idle_s:
                    self.stop()
                    return ""
        finally:
            for each in (closed, renewing, stopping, silent):
                each.cancel()

    async def _wait_silent(self, connection: UpstreamConnection) -> None:
        """
        Return once the server gives no answer at all, to a question asked after a call has waited in vain.

        One that is busy with other calls, and with those alone, is given the benefit of the doubt twice.
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
                self._silent_probes = 0  # an answer, or an end of which others tell

    def _on_failure(self, error: UpstreamError, started: float) -> None:
        now, opened = time.monotonic(), self.opened_at is not None
        delay = self.breaker.record_failure(now, now - started if opened else None)
        self._has_failed = self._has_failed or opened
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
        if not opened or delay > self._timeouts.max_caller_wait_s:
            # Who asked while it was opening hears of it; who asks for it after a crash gets the next attempt, if that is soon.
            self._open_requested.clear()
            told = f"{self.last_error} {self.breaker.describe_retry(now)}" if opened else self.last_error
            self._resolve_pending_open(ConnectFailed(told, needs_login=failed.needs_login))
        self._on_down(self, failed)
