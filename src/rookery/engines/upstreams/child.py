"""
A stdio server as a child process: its pipes as the SDK's message streams, its errors in a short log, its end certain.

The SDK's own stdio client does not fit: its child outlives a killed parent, one line of any length is read into memory, and
two tasks with a queue each stand between the pipe and the session. Here the pipe's data becomes messages where it arrives.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import signal
import socket
import sys
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self, cast

import anyio
from mcp.client.stdio import get_default_environment
from mcp.shared.message import SessionMessage
from mcp_types import ErrorData, JSONRPCError, JSONRPCRequest, jsonrpc_message_adapter

from rookery.engines.upstreams.direct import Direct
from rookery.engines.upstreams.relay import MAX_MESSAGE, TOO_LARGE, UNREADABLE, Unsent
from rookery.tools.errors import ConnectFailed
from rookery.tools.models import Command

_WARDEN = Path(__file__).with_name("warden.py")
_LEAVE_S = 1.0
"""How long a server may take to end by itself once its stdin is closed."""
_TERM_S = 1.0
"""How long it may take after SIGTERM; the warden then kills it."""
_INSTALL_LEAVE_S = 10.0
"""How long a program that fetches the server may take after SIGTERM while it starts: killed in mid-install, it leaves half a package."""
_KILL_S = 2.0
_EXIT_S = 0.3
"""How long after the end of its stdout we wait for its exit code."""
_MAX_WAITING = 1000
"""Messages read but not yet taken; beyond, the pipe is left full until they are."""
_MOST_UNSENT = 64 * 1024 * 1024
"""Bytes that wait for a server to read them: as many calls as it takes at once, each as large as may be."""
_AT_A_TIME = 10
"""Messages taken before anybody else's turn comes: nothing else would make a reader of a flood wait."""
_LOG_LINES = 40
_LOG_LINE = 500
_ID_NEAR_EDGE = re.compile(rb'"id"\s*:\s*("?)([A-Za-z0-9_.-]+)\1')
_EDGE = 200
_EXCEPTION = re.compile(r"(?:Uncaught )?[\w.$]*(?:Error|Exception)(?: \[\w+\])?(?::|$)")
"""The line that names an uncaught exception, in Python and JavaScript."""
_NPM_ERROR = re.compile(r"npm (?:error|ERR!) (?!code|errno|syscall|path|A complete log)\S")
_ERROR_WORD = re.compile(r"Error|Exception|\berror\b|\bfatal\b", re.IGNORECASE)
_STACK = re.compile(r"at |throw |npm (?:error|ERR!) A complete log")
"""Lines that mention an error and do not name it."""


class Child(asyncio.SubprocessProtocol):
    """
    One running server: reads its stdout as messages, keeps the end of its stderr.

    Attributes:
        has_spoken: It has sent a message, so its start is over.
        pid: The server's own process, not its warden's; see `Wire`.
        direct: Our own requests to it.
    """

    def __init__(self, secrets: tuple[str, ...], lifeline: socket.socket, on_stderr: Callable[[str], None] | None = None) -> None:
        self._on_stderr = on_stderr
        self._lifeline = lifeline
        self.ended = asyncio.Event()
        self.has_spoken = False
        self.pid: int | None = None
        self.messages: deque[SessionMessage] = deque()
        self.direct = Direct(self)
        self._secrets = secrets
        self._waiter: asyncio.Future[None] | None = None
        self._eof = asyncio.Event()
        self._part = bytearray()
        self._skipping: bytes | None = None
        self._log: deque[str] = deque(maxlen=_LOG_LINES)
        self._log_part = b""
        self._writable = asyncio.Event()
        self._writable.set()
        self._paused = False
        self._taken = 0
        self._fault = ""
        self._process: asyncio.SubprocessTransport | None = None

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._process = cast("asyncio.SubprocessTransport", transport)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == 1:
            self._read(data)
        else:
            self._note(data)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        del exc
        if fd == 1:
            self._end()

    def process_exited(self) -> None:
        self.ended.set()
        self._writable.set()
        self._end()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    # What the streams and the connector call.

    @property
    def code(self) -> int | None:
        """How the server ended, as a shell would say it; None while it runs."""
        return None if self._process is None else self._process.get_returncode()

    def last_words(self) -> str:
        """Return the line of its stderr that says most likely what went wrong; empty if it wrote none."""
        return find_error_line(self._log)

    def why(self) -> str:
        """Return how the server ended and its last words; see `Wire`."""
        if self._fault:
            return self._fault
        code, words = self.code, self.last_words()
        if code is None:
            return words and f"The server closed the connection: {words}"
        how = f"was killed by signal {code - 128}" if code > 128 else f"ended with code {code}"
        return f"The server {how}{words and f': {words}'}"

    def is_over(self) -> bool:
        """Tell whether its stdout is closed; see `Wire`."""
        return self._eof.is_set()

    async def wait_ended(self) -> None:
        """Wait until its stdout is closed and, shortly, for its exit; see `Wire`."""
        await self._eof.wait()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.ended.wait(), _EXIT_S)

    def put(self, data: bytes) -> None:
        """Send one line; see `Pipe`."""
        stdin = self._pipe(0)
        if stdin is None or stdin.is_closing() or self.ended.is_set():
            raise anyio.ClosedResourceError
        if stdin.get_write_buffer_size() > _MOST_UNSENT:
            self._fault = "The server does not read what it is sent."
            self._end()
            raise anyio.ClosedResourceError
        stdin.write(data)
        if stdin.is_closing():
            # Nobody holds the other end any more: not a byte of it was taken.
            raise anyio.ClosedResourceError

    async def drained(self) -> None:
        """Wait while the pipe is full."""
        if not self._writable.is_set():
            await self._writable.wait()

    async def next_message(self) -> SessionMessage:
        """Return the next message that is for the SDK; raises EndOfStream after the last."""
        while self.direct.takes((message := await self._next_message()).message):
            continue
        return message

    async def _next_message(self) -> SessionMessage:
        while not self.messages:
            if self._eof.is_set():
                self.direct.end()
                raise anyio.EndOfStream
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        self._taken += 1
        if self._taken % _AT_A_TIME == 0:
            await asyncio.sleep(0)
        if self._paused and len(self.messages) < _MAX_WAITING // 2:
            self._flow(paused=False)
        if self.pid is None and not self.hear_pid():
            # It has answered, so its warden is about to say who it is.
            with contextlib.suppress(OSError, ValueError):
                self.pid = int(await asyncio.get_running_loop().sock_recv(self._lifeline, 64))
        if not self.messages:  # given up meanwhile
            raise anyio.EndOfStream
        return self.messages.popleft()

    def hear_pid(self) -> bool:
        """Read what the warden says of the server, unless it said nothing yet; return whether it did."""
        with contextlib.suppress(OSError, ValueError):
            self.pid = int(self._lifeline.recv(64))
        return self.pid is not None

    def close_stdin(self) -> None:
        """Tell the server to end."""
        stdin = self._pipe(0)
        if stdin is not None:
            stdin.close()

    def stop_reading(self) -> None:
        """Give up what is still to come, so that a server that writes while it ends is not held up by us."""
        self.messages.clear()
        self.direct.end()
        self._end()
        if self._paused:
            self._flow(paused=False)

    def kill(self) -> None:
        """Kill the warden; the last resort."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()

    def close(self) -> None:
        """Close what is left of the pipes."""
        if self._process is not None:
            self._process.close()

    def _pipe(self, fd: int) -> asyncio.WriteTransport | None:
        return None if self._process is None else cast("asyncio.WriteTransport | None", self._process.get_pipe_transport(fd))

    def _flow(self, *, paused: bool) -> None:
        stdout = None if self._process is None else cast("asyncio.ReadTransport | None", self._process.get_pipe_transport(1))
        if stdout is not None and not stdout.is_closing():
            self._paused = paused
            if paused:
                stdout.pause_reading()
            else:
                stdout.resume_reading()

    def _read(self, data: bytes) -> None:
        if self._eof.is_set():
            return
        lines = data.split(b"\n")
        for piece in lines[:-1]:
            self._grow(piece)
            self._finish_line()
        self._grow(lines[-1])
        if len(self.messages) > _MAX_WAITING and not self._paused:
            self._flow(paused=True)

    def _grow(self, piece: bytes) -> None:
        if self._skipping is not None:
            self._part[:] = (self._part + piece)[-_EDGE:]
        elif len(self._part) + len(piece) > MAX_MESSAGE:
            self._skipping = bytes((self._part + piece[:_EDGE])[:_EDGE])
            self._part[:] = (self._part[-_EDGE:] + piece)[-_EDGE:]
        else:
            self._part += piece

    def _finish_line(self) -> None:
        line = bytes(self._part)
        self._part.clear()
        if self._skipping is not None:
            beginning, self._skipping = self._skipping, None
            self._answer_instead(beginning, line, TOO_LARGE, "The result is larger than 10 MiB.")
            return
        if not line.strip():
            return
        try:
            self._put(SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False)))
        except ValueError:
            # A print() on stdout is the commonest fault of stdio servers; it must not cost the session. An answer that cannot
            # be read (nested too deep, lone surrogates, not UTF-8) is told to whoever waits for it, or they would for a minute.
            if line.lstrip()[:1] == b"{" and b'"jsonrpc"' in line and (b'"result"' in line or b'"error"' in line):
                self._answer_instead(line[:_EDGE], line[-_EDGE:], UNREADABLE, "The server answered with JSON that cannot be read.")

    def _answer_instead(self, beginning: bytes, end: bytes, code: int, text: str) -> None:
        """Tell the request whose id stands near either edge of a line that its answer came to nothing."""
        found = _ID_NEAR_EDGE.search(beginning) or _ID_NEAR_EDGE.search(end)
        if found is not None:
            name = found.group(2).decode()
            number: str | int = name if found.group(1) or not name.isdigit() else int(name)
            self._put(SessionMessage(JSONRPCError(jsonrpc="2.0", id=number, error=ErrorData(code=code, message=text))))

    def _put(self, message: SessionMessage) -> None:
        self.has_spoken = True
        # What came before comes first: a log line must not find its caller gone. A flood of anything but answers waits its turn.
        if self.messages or not self.direct.answers(message.message):
            self.messages.append(message)
            self._wake()

    def _end(self) -> None:
        self._eof.set()
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _note(self, data: bytes) -> None:
        *lines, rest = (self._log_part + data).split(b"\n")
        self._log_part = rest[-_LOG_LINE:]
        for line in lines:
            text = self._redact(line[:_LOG_LINE].decode(errors="replace").rstrip())
            self._log.append(text.strip())
            if self._on_stderr is not None and text:
                self._on_stderr(text)

    def _redact(self, line: str) -> str:
        """Return *line* without the values of the server's environment."""
        for secret in self._secrets:
            line = line.replace(secret, "***")
        return line


def find_error_line(lines: Iterable[str]) -> str:
    """
    Return the line of *lines*, the end of a program's stderr, that names its error; else the last one; "" if there is none.

    The last line is seldom it: Node.js ends each uncaught exception with its version, npm with the path of a log.
    """
    written = [line for line in lines if line]
    npm = [line for line in written if _NPM_ERROR.match(line)]
    named = [line for line in written if _EXCEPTION.match(line)]
    mentioned = [line for line in written if _ERROR_WORD.search(line) and not _STACK.match(line)]
    found = npm[:1] or named[-1:] or mentioned[-1:] or written[-1:]
    return found[0] if found else ""


class Incoming:
    """The read stream of the SDK's contract over a `Child`."""

    def __init__(self, child: Child) -> None:
        self._child = child

    async def receive(self) -> SessionMessage | Exception:
        """Return the next message."""
        return await self._child.next_message()

    async def aclose(self) -> None:
        """Take no more."""
        self._child.stop_reading()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self._child.next_message()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None) -> None:
        await self.aclose()


class Outgoing:
    """The write stream of the SDK's contract over a `Child`."""

    def __init__(self, child: Child) -> None:
        self._child = child

    async def send(self, item: SessionMessage, /) -> None:
        """Write one message as one line."""
        line = item.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
        try:
            self._child.put(line)
        except anyio.ClosedResourceError:
            if isinstance(item.message, JSONRPCRequest):
                raise Unsent from None
            raise
        await self._child.drained()

    async def aclose(self) -> None:
        """Close the server's stdin, which asks it to end."""
        self._child.close_stdin()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None) -> None:
        await self.aclose()


@contextlib.asynccontextmanager
async def run_child(command: Command, on_stderr: Callable[[str], None] | None = None) -> AsyncGenerator[tuple[Child, Incoming, Outgoing]]:
    """
    Start *command* under a warden and stop all of it on leaving, within 5 seconds.

    Raises:
        ConnectFailed: There is no such program or directory, or the system starts no more processes.
    """
    environment = get_default_environment() | dict(command.env)
    program = _find(command, environment)
    hidden = {*command.env.values(), *command.secrets}
    secrets = tuple(sorted({value for value in hidden if len(value) >= 6}, key=len, reverse=True))
    ours, theirs = socket.socketpair()
    loop = asyncio.get_running_loop()
    ours.setblocking(False)
    with ours:
        with theirs:
            try:
                _, child = await loop.subprocess_exec(
                    lambda: Child(secrets, ours, on_stderr),
                    sys.executable,
                    "-I",
                    "-S",
                    str(_WARDEN),
                    str(theirs.fileno()),
                    str(_TERM_S),
                    "--",
                    program,
                    *command.args,
                    env=environment,
                    cwd=command.cwd,
                    start_new_session=True,
                    pass_fds=(theirs.fileno(),),
                )
            except (OSError, ValueError) as error:
                raise ConnectFailed(f"{command.command!r} could not be started: {error}") from error
        try:
            yield child, Incoming(child), Outgoing(child)
        finally:
            with anyio.CancelScope(shield=True):
                await _stop(child, ours, has_installer=command.fetches)


async def _stop(child: Child, lifeline: socket.socket, *, has_installer: bool) -> None:
    """End the server: by its stdin, then by the warden; should we be cut short, the lifeline's end still does it."""
    try:
        child.stop_reading()
        child.close_stdin()
        if has_installer and not child.has_spoken and not await _ends_within(child, _LEAVE_S):
            with contextlib.suppress(OSError):
                lifeline.send(b"\n")  # SIGTERM, and no SIGKILL yet
            await _ends_within(child, _INSTALL_LEAVE_S)
        if not await _ends_within(child, _LEAVE_S):
            lifeline.shutdown(socket.SHUT_RDWR)
            if not await _ends_within(child, _TERM_S + _KILL_S):
                child.kill()
                await _ends_within(child, _KILL_S / 2)
        if child.code is not None and child.code < 0:
            _kill_abandoned(child)
    finally:
        lifeline.close()
        child.close()


async def _ends_within(child: Child, seconds: float) -> bool:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(child.ended.wait(), seconds)
    return child.ended.is_set()


def _kill_abandoned(child: Child) -> None:
    """Kill the server of a warden that was itself killed."""
    child.hear_pid()
    if child.pid is not None:
        with contextlib.suppress(OSError):
            os.killpg(child.pid, signal.SIGKILL)


def _find(command: Command, environment: Mapping[str, str]) -> str:
    """Return the program's path, so that a missing one is told from one that fails."""
    if command.cwd is not None and not Path(command.cwd).is_dir():
        raise ConnectFailed(f"The directory {command.cwd!r} does not exist.")
    if os.sep in command.command:
        candidate = Path(command.cwd or ".", command.command)
        found = str(candidate) if candidate.is_file() else None
    else:
        found = shutil.which(command.command, path=environment.get("PATH"))
    if found is None:
        raise ConnectFailed(f"There is no program {command.command!r}.")
    return str(Path(found).absolute())
