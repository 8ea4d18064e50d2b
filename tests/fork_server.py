"""
A process that has imported the program and forks for each command and server that a test starts.

The imports are most of the CPU time of a short command. `python -m tests.fork_server DESCRIPTOR` serves the requests on that socket.
Tests of the start itself run a new interpreter instead.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import cast

import rookery.cli

_ROOT = Path(__file__).resolve().parent.parent
_PROGRAM = Path(rookery.cli.__file__).parent.parent / "__main__.py"
_MAX_REQUEST_BYTES = 1 << 20
_OTHER_MODULES = ("rookery.app", "rookery.serving", "rookery.tools.gateway.protocol", "alembic.command", "tantivy")
"""Modules that commands import late. None of them starts a thread, which a fork would not copy."""


class ForkedProcess:
    """A process of the fork server. It has what tests need of `subprocess.Popen`."""

    def __init__(
        self, arguments: Sequence[str], environment: Mapping[str, str], *, stdin: int, stdout: int, stderr: int, umask: int = -1
    ) -> None:
        request = {"arguments": list(arguments), "environment": dict(environment), "folder": str(Path.cwd()), "umask": umask}
        self.returncode: int | None = None
        self.pid = _connect().send(request, stdin, stdout, stderr)
        self._descriptor = os.pidfd_open(self.pid)

    def poll(self) -> int | None:
        """Return the exit code, or None while the process runs."""
        return self._reap(0)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end of the process and return its exit code."""
        code = self._reap(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0)
        return code

    def send_signal(self, signal_number: signal.Signals) -> None:
        """Send a signal, unless the process has ended."""
        if self.poll() is None:
            signal.pidfd_send_signal(self._descriptor, signal_number)

    def terminate(self) -> None:
        """Ask the process to stop, with SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End the process with SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def _reap(self, timeout_s: float | None) -> int | None:
        if self.returncode is None:
            poll = select.poll()
            poll.register(self._descriptor, select.POLLIN)
            if poll.poll(None if timeout_s is None else timeout_s * 1000):
                self.returncode = _connect().send({"ended": self.pid})
                os.close(self._descriptor)
        return self.returncode


class _Connection:
    """The connection to the fork server of this process."""

    def __init__(self) -> None:
        self._socket, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._lock = threading.Lock()
        with other:
            command = [sys.executable, "-m", "tests.fork_server", str(other.fileno())]
            self._process = subprocess.Popen(command, cwd=_ROOT, pass_fds=[other.fileno()])
        atexit.register(self.close)

    def send(self, request: Mapping[str, object], *descriptors: int) -> int:
        """Return the response, which is a number."""
        with self._lock:
            socket.send_fds(self._socket, [json.dumps(request).encode()], descriptors)
            response = self._socket.recv(_MAX_REQUEST_BYTES)
        if not response:
            raise ConnectionError("the fork server has ended")
        return int(response)

    def close(self) -> None:
        """End the fork server."""
        self._socket.close()
        self._process.wait()


@cache
def _connect() -> _Connection:
    return _Connection()


def _serve(connection: socket.socket) -> None:
    """Answer requests: fork, and return in the new process; or give the exit code of an ended one. Exit when the other end is closed."""
    while True:
        content, descriptors, _, _ = socket.recv_fds(connection, _MAX_REQUEST_BYTES, 3)
        if not content:
            sys.exit()
        request = cast("dict[str, object]", json.loads(content))
        if "ended" in request:
            _, status = os.waitpid(cast("int", request["ended"]), 0)
            connection.send(str(os.waitstatus_to_exitcode(status)).encode())
            continue
        pid = os.fork()
        if pid == 0:
            connection.close()
            _prepare(request, descriptors)
            return
        for descriptor in descriptors:
            os.close(descriptor)
        connection.send(str(pid).encode())


def _prepare(request: Mapping[str, object], descriptors: Sequence[int]) -> None:
    """Give this process the arguments, environment, folder and standard streams of a request."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(cast("dict[str, str]", request["environment"]))
    os.chdir(cast("str", request["folder"]))
    umask = cast("int", request["umask"])
    if umask >= 0:
        os.umask(umask)
    time.tzset()
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - open until the process ends
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False, buffering=1 if os.isatty(1) else -1)  # noqa: SIM115 - as above
    sys.stderr = open(2, "w", encoding="utf-8", closefd=False, buffering=1, errors="backslashreplace")  # noqa: SIM115 - as above
    sys.argv = [str(_PROGRAM), *cast("list[str]", request["arguments"])]


def _import_program() -> None:
    targets = [entry.target for entry in rookery.cli.COMMANDS] + list(rookery.cli.PARTS.values())
    for name in (*(target.partition(":")[0] for target in targets), *_OTHER_MODULES):
        importlib.import_module(name)
    gc.freeze()


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _import_program()
    _serve(socket.socket(fileno=int(sys.argv[1])))
    rookery.cli.main()
