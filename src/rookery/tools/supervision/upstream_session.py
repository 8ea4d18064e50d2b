"""One supervised upstream session: opened on demand, monitored, reopened after failures, closed when idle."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Generator

import structlog

from rookery.kernel.cancellation import wait_until_set
from rookery.tools.errors import ConnectFailed, StartTimedOut, UpstreamError
from rookery.tools.models import CommandTarget, Server, SessionIsolation, SessionLifecycle
from rookery.tools.ports import Connector, RequestOptions, UpstreamConnection
from rookery.tools.process_output import ProcessOutput, describe_start, describe_start_timeout
from rookery.tools.session_sharing import find_state_folder
from rookery.tools.supervision.call_queue import CallQueue, CallSlot
from rookery.tools.supervision.circuit_breaker import CircuitBreaker, SupervisionTimeouts
from rookery.tools.supervision.health import SessionHealth, SessionState
from rookery.tools.supervision.start_limit import PendingStart, StartLimit
from rookery.tools.supervision.state_lock import CallLocks, StateLock

__all__ = ["SupervisionTimeouts", "UpstreamSession"]

_log = structlog.stdlib.get_logger("rookery.tools")

_DRAIN_TIMEOUT_S = 60.0
"""Time that the running calls of a retired session may still take."""
_MIN_IDLE_CHECK_S = 0.1
"""Minimum seconds between checks whether a session in use is idle."""
_MAX_SILENT_PROBES = 2
"""Unanswered probes that are tolerated while calls run, because the server may be busy with them."""
_MIN_SHOWN_START_S = 2.0
"""Time after which a start is shown with what the server wrote. Most servers are ready before."""
_MAX_RECORDED_DURATIONS = 256
"""The number of last calls whose durations are kept."""


def _find_lock(server: Server, holder: str | None, call_locks: CallLocks | None) -> StateLock | None:
    """Return the lock that a call which may change something holds among processes; None if other processes do not matter."""
    if server.change_limit > 1 or not isinstance(server.target, CommandTarget):
        return None
    folder = find_state_folder(server)
    if folder is not None:
        return StateLock(folder)
    # A session of a client stays in one process.
    is_in_one_process = server.isolation is SessionIsolation.PER_SESSION
    return None if call_locks is None or is_in_one_process else call_locks.create_lock(server.key, holder)


class UpstreamSession:
    """
    One session. `run` is its owner task; any task of the event loop may use the other methods.

    Attributes:
        workspace_id: The workspace whose login it uses and that may see its health. None: no single workspace.
        holder: The holder that it belongs to, by the server's isolation. None: no caller has used it yet.
        breaker: The back-off and circuit breaker, shared by the replicas of one holder.
        last_error: The reason of the last failure or end; empty after the session was opened.
        output: What the server's process wrote since its last start, besides protocol messages.
        restarts: The number of times it was reopened after a failure.
        used_at: The time of the last use, of a monotonic clock.
        opener: The last caller whose forwarded headers the server accepted. None: it was opened without a caller.
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
        start_limit: StartLimit,
        call_locks: CallLocks | None = None,
        workspace_id: int | None = None,
        holder: str | None = None,
    ) -> None:
        self.server = server
        self.workspace_id = workspace_id
        self.holder = holder
        self.breaker = breaker
        self.last_error = ""
        self.output = ProcessOutput()
        self.restarts = 0
        self.opened_at: float | None = None
        self._connector = connector
        self._start_limit = start_limit
        self._awaits_start = False
        self._timeouts = timeouts
        self._on_opened = on_opened
        self._on_down = on_down
        self._on_changed = on_changed
        self._connection: UpstreamConnection | None = None
        self._pending_open: asyncio.Future[UpstreamConnection | ConnectFailed] | None = None
        self.opener: RequestOptions | None = None
        self._next_opener: RequestOptions | None = None
        self._awaits_caller = False
        self._open_requested = asyncio.Event()
        self._stopping = asyncio.Event()
        self._draining: asyncio.TimerHandle | None = None
        self._reopen_requested = asyncio.Event()
        self._reopen_reason = ""
        self._is_suspect = asyncio.Event()
        self._has_failed = False
        self.used_at = time.monotonic()
        self._hold_count = 0
        self._silent_probes = 0
        self._durations_ms: deque[float] = deque(maxlen=_MAX_RECORDED_DURATIONS)
        self._connect_timeout: asyncio.Timeout | None = None
        self._connecting_since = 0.0
        self._changes = CallQueue(server.id, server.change_limit, _find_lock(server, holder, call_locks))
        self._reads = self._changes if server.change_limit == server.call_limit else CallQueue(server.id, server.call_limit)
        self._queues = (self._reads,) if self._changes is self._reads else (self._reads, self._changes)

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
        return self.load == self._hold_count == 0 and self._pending_open is None

    @property
    def in_flight(self) -> int:
        """The number of running calls."""
        return sum(queue.in_flight for queue in self._queues)

    @property
    def queued(self) -> int:
        """The number of calls that wait for a slot."""
        return sum(queue.queued for queue in self._queues)

    @property
    def load(self) -> int:
        """The number of running and queued calls."""
        return self.in_flight + self.queued

    def get_health(self) -> SessionHealth:
        now = time.monotonic()
        connection, info = self._connection, None if self._connection is None else self._connection.info
        remaining_s = self.breaker.not_before - now if self.last_error else 0.0
        state: SessionState = (
            "open"
            if connection is not None
            else "opening"
            if self._connect_timeout is not None or self._awaits_start
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
            queued=self.queued,
            retry_s=remaining_s if state == "waiting" else None,
            durations_ms=tuple(self._durations_ms),
        )

    def describe_start(self) -> str:
        """Return a note on a start that takes longer than two seconds, else an empty text."""
        elapsed_s = 0.0 if self._connect_timeout is None else time.monotonic() - self._connecting_since
        if elapsed_s < _MIN_SHOWN_START_S:
            return ""
        return describe_start(elapsed_s, self.output, is_process=self.server.kind == "stdio")

    def request_open(self) -> None:
        """Request that the session is opened in the background."""
        self.used_at = time.monotonic()
        self._open_requested.set()

    async def get_connection(self, opener: RequestOptions | None = None) -> UpstreamConnection:
        """
        Return the open connection, opening it first if necessary.

        Args:
            opener: The caller who needs it, whose forwarded headers open the session. None: it is opened without a caller.

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
            raise self._pause(ConnectFailed(self.last_error), now)
        is_own_attempt = self._pending_open is None
        outcome = await self._wait_opened(opener)
        if isinstance(outcome, ConnectFailed) and outcome.concerns_caller and not is_own_attempt:
            outcome = await self._wait_opened(opener)  # the login of another caller, or none, was rejected
        if isinstance(outcome, ConnectFailed):
            raise outcome.with_message(str(outcome))
        return outcome

    async def _wait_opened(self, opener: RequestOptions | None) -> UpstreamConnection | ConnectFailed:
        """Join the attempt to open the session, or request one in the name of *opener*."""
        if self._pending_open is None:
            self._pending_open = asyncio.get_running_loop().create_future()
            self._next_opener = opener
        self._open_requested.set()
        with contextlib.nullcontext() if opener is None else self._start_limit.prefer_for_call(self.server.key):
            return await asyncio.shield(self._pending_open)

    @contextlib.asynccontextmanager
    async def slot(self, owner: str = "", *, is_read_only: bool = False, timeout_s: float | None = None) -> AsyncGenerator[CallSlot]:
        """
        Hold one of the session's call slots; wait in a queue if none is free.

        Args:
            owner: The key of the caller. Keys take turns.
            is_read_only: The call changes nothing. If the session runs changing calls one at a time, it runs beside them.
            timeout_s: How long the call may wait. None: the server's time-out of a call.

        Raises:
            ServerBusy: The queue is full, or no slot became free in time.
        """
        queue = self._reads if is_read_only else self._changes
        try:
            slot = await queue.acquire(owner, self.server.timeout_s if timeout_s is None else timeout_s)
        except BaseException:
            self._stop_if_drained()
            raise
        try:
            yield slot
        finally:
            self._durations_ms.append((time.monotonic() - slot.started) * 1000)
            self.used_at = time.monotonic()
            slot.close()
            self._stop_if_drained()

    @contextlib.contextmanager
    def keep_open(self) -> Generator[None]:
        """Keep the session open while it is listed. That takes no call slot, and is no use of the session."""
        self._hold_count += 1
        try:
            yield
        finally:
            self._hold_count -= 1
            self._stop_if_drained()

    def mark_healthy(self) -> None:
        """Record an answered call, which ends a series of failures."""
        self._silent_probes = 0
        self.breaker.record_success()

    def mark_suspect(self) -> None:
        """Probe whether the server still answers, because a call timed out."""
        self._is_suspect.set()

    def mark_failed(self, connection: UpstreamConnection, reason: str) -> None:
        """Discard *connection* because of *reason*; further calls wait for a new one. Reports about an older connection have no effect."""
        if self._connection is connection:
            self._connection = None
            self._reopen_reason = reason
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
        if self._draining is not None and self.load == self._hold_count == 0:
            self.stop()

    def _resolve_pending_open(self, outcome: UpstreamConnection | ConnectFailed) -> None:
        attempt, self._pending_open = self._pending_open, None
        if attempt is not None and not attempt.done():
            attempt.set_result(outcome)

    async def _wait_wanted(self) -> bool:
        """Wait for a request to open and for the end of the back-off. Return False if the session is to end instead."""
        is_lazy = self.server.lifecycle is SessionLifecycle.LAZY
        if (is_lazy or self._awaits_caller) and not await wait_until_set(
            self._open_requested, timeout_s=self.server.idle_s if is_lazy else None
        ):
            return False
        while (delay := self.breaker.not_before - time.monotonic()) > 0 and not self._stopping.is_set():
            await wait_until_set(self._stopping, timeout_s=delay)
        return not self._stopping.is_set()

    async def _open_and_serve(self) -> None:
        """Open the connection, keep it while it is usable, and close it."""
        start = self._start_limit.request(self.server.key) if self.server.kind == "stdio" else None
        if start is not None and not await self._wait_admitted(start):
            return
        started = time.monotonic()
        opener, self._next_opener = self._next_opener, None
        limit_s = self.server.effective_start_timeout_s or self._timeouts.connect_timeout_s
        self._connecting_since = started
        self._reopen_requested.clear()
        self.output.clear()
        try:
            async with contextlib.AsyncExitStack() as stack:
                try:
                    async with asyncio.timeout(limit_s) as self._connect_timeout:
                        context = self._connector.connect(
                            self.server,
                            on_changed=lambda: self._on_changed(self),
                            workspace_id=self.workspace_id,
                            on_output=self.output.append,
                            on_process=None if start is None else start.set_pid,
                            opener=opener,
                        )
                        connection = await stack.enter_async_context(context)
                except TimeoutError:
                    if self._stopping.is_set():
                        return
                    raise StartTimedOut(describe_start_timeout(limit_s, self.output)) from None
                finally:
                    self._connect_timeout = None
                    if start is not None:
                        start.end()
                started = time.monotonic()
                self._on_open(connection, opener)
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

    async def _wait_admitted(self, start: PendingStart) -> bool:
        """Wait until the server's process may start. Return False if the session was stopped meanwhile."""
        stopping = asyncio.ensure_future(self._stopping.wait())
        self._awaits_start = True
        try:
            await asyncio.wait({start.admitted, stopping}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            start.end()
            raise
        finally:
            self._awaits_start = False
            stopping.cancel()
        if self._stopping.is_set():
            start.end()
        return not self._stopping.is_set()

    def note_caller(self, opener: RequestOptions) -> None:
        """Record a caller whose request the server accepted: lists without a caller have the headers of the last one."""
        if self.server.forward_headers and opener.headers:
            self.opener = RequestOptions(caller=opener.caller, headers=opener.headers, capabilities=opener.capabilities)

    def _on_open(self, connection: UpstreamConnection, opener: RequestOptions | None) -> None:
        self._connection = connection
        self._awaits_caller, self.opener = False, None
        if opener is not None:
            self.note_caller(opener)
        self.opened_at = time.monotonic()
        self.output.mark_started()
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
                timeout_s = None if idle_s is None else max(self.used_at + idle_s - time.monotonic(), _MIN_IDLE_CHECK_S)
                done, _ = await asyncio.wait({closed, reopening, stopping, silent}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
                if closed in done:
                    return closed.result()
                if reopening in done:
                    return self._reopen_reason
                if stopping in done:
                    return ""
                if silent in done:
                    return "The server stopped answering, so its session was closed."
                is_used = self.load > 0 or self._hold_count > 0 or connection.has_subscribers
                if idle_s is not None and not is_used and time.monotonic() - self.used_at >= idle_s:
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

    def _pause(self, failed: ConnectFailed, now: float) -> ConnectFailed:
        """Return the error of a call that does not wait for the next attempt, with the time until then."""
        retry_after_s = max(self.breaker.compute_retry_s(now), failed.retry_after_s or 0)
        return failed.with_message(self.breaker.describe_retry(str(failed), now), retry_after_s=retry_after_s)

    def _on_failure(self, error: UpstreamError, started: float) -> None:
        now, was_opened = time.monotonic(), self.opened_at is not None
        if error.concerns_caller and not was_opened:
            self._open_requested.clear()
            self._awaits_caller = True
            self._resolve_pending_open(ConnectFailed(str(error), concerns_caller=True))
            return
        delay = self.breaker.record_failure(
            now,
            now - started if was_opened else None,
            is_timeout=isinstance(error, StartTimedOut),
            retry_after_s=error.retry_after_s,
        )
        self._has_failed = self._has_failed or was_opened
        self.last_error = str(error)
        _log.warning(
            "tools.session_down",
            server=self.server.id,
            error=self.last_error,
            retry_s=round(delay, 1),
            trips=self.breaker.trip_count,
            stderr=list(self.output),
        )
        failed = error if isinstance(error, ConnectFailed) else ConnectFailed(self.last_error)
        if not was_opened or delay > self._timeouts.max_caller_wait_s:
            # Callers that waited for this attempt receive its error. After a crash, callers wait for the next attempt if it is soon.
            self._open_requested.clear()
            self._resolve_pending_open(self._pause(failed, now) if delay > self._timeouts.max_caller_wait_s else failed)
        self._on_down(self, failed)
