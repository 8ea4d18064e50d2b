"""
The supervisor of `rookery serve --workers N`: it forks the server processes, replaces those that die, and stops them together.

It serves nothing itself and starts no thread, because a fork copies only the thread that forks. Each process watches a pipe that only
the supervisor can write to, so that all of them stop if the supervisor is killed.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import structlog

from rookery.kernel.errors import WrongSettings
from rookery.kernel.server_group import ServerGroup

_log = structlog.stdlib.get_logger("rookery.supervisor")

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD)
_STOP_TIMEOUT_S = 30.0
"""A server process stops within 5 s for its requests and 10 s for each of its parts."""
_FIRST_DELAY_S = 0.5
_MAX_DELAY_S = 30.0
_STABLE_AFTER_S = 60.0
"""A process that ran for this long is replaced at once when it dies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisedProcess:
    """
    A forked server process: its place in the group, and its pipes to the supervisor.

    Attributes:
        group: The group and the number of this process.
        alive_pipe: A descriptor that reaches its end when the supervisor ends.
    """

    group: ServerGroup
    alive_pipe: int
    ready_pipe: int

    def report_ready(self) -> None:
        """Report to the supervisor that this process answers. Call this once."""
        with contextlib.suppress(OSError):  # the supervisor has ended
            os.write(self.ready_pipe, b"1")
        os.close(self.ready_pipe)


@dataclass(slots=True)
class _Child:
    """
    A number of the group: its process, if it runs, and when it is started again.

    Attributes:
        next_delay_s: The delay after the next failure.
    """

    number: int
    pid: int | None = None
    ready_pipe: int | None = None
    is_ready: bool = False
    started_at: float = 0.0
    restart_at: float = 0.0
    next_delay_s: float = 0.0


class ServerSupervisor:
    """
    Runs *count* server processes until a signal.

    Args:
        on_ready: Called once, when all processes answer.
        metrics_socket: The socket that the processes share for metrics without a key.
    """

    def __init__(self, count: int, *, on_ready: Callable[[], None], metrics_socket: socket.socket | None = None) -> None:
        self._count = count
        self._on_ready = on_ready
        self._metrics_socket = metrics_socket
        self._children = [_Child(number) for number in range(1, count + 1)]
        self._is_announced = False
        self._is_stopping = False
        self._kill_at: float | None = None
        self._alive_reader, self._alive_writer = os.pipe()
        self._wakeup_reader, self._wakeup_writer = socket.socketpair()
        self._folder = Path(tempfile.mkdtemp(prefix="rookery-"))

    def run(self) -> SupervisedProcess | None:
        """
        Fork the processes and watch them. Return in each of them what it needs; return None in the supervisor after all have stopped.

        Raises:
            WrongSettings: The first process ended before it answered.
        """
        self._wakeup_reader.setblocking(False)
        self._wakeup_writer.setblocking(False)
        signal.set_wakeup_fd(self._wakeup_writer.fileno(), warn_on_full_buffer=False)
        for number in _SIGNALS:
            signal.signal(number, _note_signal)
        process: SupervisedProcess | None = None
        try:
            process = self._run()
        finally:
            if process is None:
                signal.set_wakeup_fd(-1)
                shutil.rmtree(self._folder, ignore_errors=True)
        return process

    def _run(self) -> SupervisedProcess | None:
        while True:
            now = time.monotonic()
            self._reap(now)
            if self._is_stopping and all(child.pid is None for child in self._children):
                return None
            if self._kill_at is not None and now >= self._kill_at:
                self._kill()
            if not self._is_stopping:
                child = self._find_due(now)
                if child is not None:
                    process = self._fork(child, now)
                    if process is not None:
                        return process
                    continue
            self._wait(now)

    def _is_waiting_for_first(self) -> bool:
        """Return whether the first process has yet to answer. The others start later, so that a wrong setting is reported once."""
        return not self._is_announced and self._children[0].pid is not None and not self._children[0].is_ready

    def _find_due(self, now: float) -> _Child | None:
        """Return a process to start now."""
        if self._is_waiting_for_first():
            return None
        return next((child for child in self._children if child.pid is None and child.restart_at <= now), None)

    def _fork(self, child: _Child, now: float) -> SupervisedProcess | None:
        reader, writer = os.pipe()
        child.pid = os.fork()
        if child.pid == 0:
            return self._become_child(child, reader, writer)
        os.close(writer)
        child.ready_pipe, child.is_ready, child.started_at = reader, False, now
        return None

    def _become_child(self, child: _Child, ready_reader: int, ready_writer: int) -> SupervisedProcess:
        """Give back what belongs to the supervisor, and return what this process needs."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        # Ctrl-C goes to every process of the terminal's group. Only the supervisor may act on it, or a signal would arrive twice.
        os.setpgid(0, 0)
        for descriptor in (ready_reader, self._alive_writer, *(other.ready_pipe for other in self._children)):
            if descriptor is not None:
                os.close(descriptor)
        self._wakeup_reader.close()
        self._wakeup_writer.close()
        group = ServerGroup(number=child.number, count=self._count, folder=self._folder, metrics_socket=self._metrics_socket)
        return SupervisedProcess(group=group, alive_pipe=self._alive_reader, ready_pipe=ready_writer)

    def _wait(self, now: float) -> None:
        """Wait for a signal, a process that is ready, or the next time that something is due."""
        is_starting = not self._is_stopping and not self._is_waiting_for_first()
        due = [child.restart_at for child in self._children if child.pid is None and is_starting]
        if self._kill_at is not None:
            due.append(self._kill_at)
        pipes = [child.ready_pipe for child in self._children if child.ready_pipe is not None]
        timeout_s = max(0.0, min(due) - now) if due else None
        readable, _, _ = select.select([self._wakeup_reader, *pipes], [], [], timeout_s)
        for child in self._children:
            if child.ready_pipe in readable:
                self._read_ready(child)
        if self._wakeup_reader in readable:
            self._read_signals()

    def _read_ready(self, child: _Child) -> None:
        assert child.ready_pipe is not None  # noqa: S101 - the caller has selected it
        child.is_ready = os.read(child.ready_pipe, 1) != b""
        os.close(child.ready_pipe)
        child.ready_pipe = None
        if not self._is_announced and all(other.is_ready for other in self._children):
            self._is_announced = True
            _log.info("server_processes.ready", count=self._count)
            self._on_ready()

    def _read_signals(self) -> None:
        with contextlib.suppress(BlockingIOError):
            for number in self._wakeup_reader.recv(4096):
                if number in {signal.SIGINT, signal.SIGTERM}:
                    self._stop()

    def _stop(self) -> None:
        """Let all processes finish their requests; after a second signal, kill them."""
        if self._is_stopping:
            self._kill()
            return
        _log.info("stopping")
        self._is_stopping = True
        self._kill_at = time.monotonic() + _STOP_TIMEOUT_S
        self._send(signal.SIGTERM)

    def _kill(self) -> None:
        self._kill_at = None
        _log.warning("server_processes.killed", numbers=[child.number for child in self._children if child.pid is not None])
        self._send(signal.SIGKILL)

    def _send(self, number: signal.Signals) -> None:
        for child in self._children:
            if child.pid is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child.pid, number)

    def _reap(self, now: float) -> None:
        """Note the processes that have ended, and when they are started again."""
        for child in self._children:
            if child.pid is None:
                continue
            pid, status = os.waitpid(child.pid, os.WNOHANG)
            if pid == 0:
                continue
            child.pid = None
            if child.ready_pipe is not None:
                self._read_ready(child)
            if not self._is_stopping:
                self._plan_restart(child, os.waitstatus_to_exitcode(status), now)

    def _plan_restart(self, child: _Child, exit_code: int, now: float) -> None:
        """
        Set when a process is started again: at once after the first failure, then after a delay that doubles with each further one.

        Raises:
            WrongSettings: None of the processes has answered yet.
        """
        if not self._is_announced and not child.is_ready:
            self._is_stopping = True
            self._send(signal.SIGTERM)
            for other in self._children:
                if other.pid is not None:
                    os.waitpid(other.pid, 0)
            raise WrongSettings("A server process did not start. The lines above have the reason.")
        if child.is_ready and (exit_code == 0 or now - child.started_at >= _STABLE_AFTER_S):
            child.next_delay_s = 0.0
        delay_s = child.next_delay_s
        child.next_delay_s = min(_MAX_DELAY_S, max(_FIRST_DELAY_S, 2 * delay_s))
        child.restart_at = now + delay_s
        _log.warning("server_process.ended", number=child.number, exit_code=exit_code, restart_in_s=delay_s)


def _note_signal(number: int, frame: FrameType | None) -> None:
    """Do nothing. The number arrives at the wakeup socket, and the default action must not happen."""
    del number, frame
