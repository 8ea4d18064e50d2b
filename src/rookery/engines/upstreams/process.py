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

from rookery.engines.upstreams.jsonrpc_dispatcher import JsonRpcDispatcher
from rookery.engines.upstreams.mcp_session import MAX_MESSAGE_BYTES, TOO_LARGE_CODE, UNREADABLE_CODE, UnsentError
from rookery.tools.errors import ConnectFailed
from rookery.tools.models import CommandTarget

_GUARD_SCRIPT = Path(__file__).with_name("process_guard.py")
_EXIT_GRACE_S = 1.0
"""How long a server may take to end by itself once its stdin is closed."""
_TERM_GRACE_S = 1.0
"""How long it may take after SIGTERM; the warden then kills it."""
_INSTALL_TERM_GRACE_S = 10.0
"""How long a program that fetches the server may take after SIGTERM while it starts: killed in mid-install, it leaves half a package."""
_KILL_GRACE_S = 2.0
_EXIT_CODE_WAIT_S = 0.3
"""How long after the end of its stdout we wait for its exit code."""
_MAX_UNREAD_MESSAGES = 1000
"""Messages read but not yet taken; beyond, the pipe is left full until they are."""
_MAX_UNSENT_BYTES = 64 * 1024 * 1024
"""Bytes that wait for a server to read them: as many calls as it takes at once, each as large as may be."""
_MESSAGES_PER_TURN = 10
"""Messages taken before anybody else's turn comes: nothing else would make a reader of a flood wait."""
_MAX_LOG_LINES = 40
_MAX_LOG_LINE_CHARS = 500
_ID_NEAR_EDGE = re.compile(rb'"id"\s*:\s*("?)([A-Za-z0-9_.-]+)\1')
_EDGE_BYTES = 200
_EXCEPTION = re.compile(r"(?:Uncaught )?[\w.$]*(?:Error|Exception)(?: \[\w+\])?(?::|$)")
"""The line that names an uncaught exception, in Python and JavaScript."""
_NPM_ERROR = re.compile(r"npm (?:error|ERR!) (?!code|errno|syscall|path|A complete log)\S")
_ERROR_WORD = re.compile(r"Error|Exception|\berror\b|\bfatal\b", re.IGNORECASE)
_STACK_LINE = re.compile(r"at |throw |npm (?:error|ERR!) A complete log")
"""Lines that mention an error and do not name it."""


class ServerProcess(asyncio.SubprocessProtocol):
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
        self.has_sent_message = False
        self.pid: int | None = None
        self.messages: deque[SessionMessage] = deque()
        self.dispatcher = JsonRpcDispatcher(self)
        self._secrets = secrets
        self._waiter: asyncio.Future[None] | None = None
        self._eof = asyncio.Event()
        self._partial_line = bytearray()
        self._skipped_start: bytes | None = None
        self._log: deque[str] = deque(maxlen=_MAX_LOG_LINES)
        self._partial_log_line = b""
        self._writable = asyncio.Event()
        self._writable.set()
        self._paused = False
        self._taken_count = 0
        self._failure = ""
        self._process: asyncio.SubprocessTransport | None = None

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._process = cast("asyncio.SubprocessTransport", transport)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == 1:
            self._read(data)
        else:
            self._log_stderr(data)

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
    def exit_code(self) -> int | None:
        """How the server ended, as a shell would say it; None while it runs."""
        return None if self._process is None else self._process.get_returncode()

    def get_error_line(self) -> str:
        """Return the line of its stderr that says most likely what went wrong; empty if it wrote none."""
        return find_error_line(self._log)

    def get_end_reason(self) -> str:
        """Return how the server ended and its last words; see `Wire`."""
        if self._failure:
            return self._failure
        code, words = self.exit_code, self.get_error_line()
        if code is None:
            return words and f"The server closed the connection: {words}"
        how = f"was killed by signal {code - 128}" if code > 128 else f"ended with code {code}"
        return f"The server {how}{words and f': {words}'}"

    def is_ended(self) -> bool:
        """Tell whether its stdout is closed; see `Wire`."""
        return self._eof.is_set()

    async def wait_ended(self) -> None:
        """Wait until its stdout is closed and, shortly, for its exit; see `Wire`."""
        await self._eof.wait()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.ended.wait(), _EXIT_CODE_WAIT_S)

    def write_line(self, data: bytes) -> None:
        """Send one line; see `Pipe`."""
        stdin = self._pipe(0)
        if stdin is None or stdin.is_closing() or self.ended.is_set():
            raise anyio.ClosedResourceError
        if stdin.get_write_buffer_size() > _MAX_UNSENT_BYTES:
            self._failure = "The server does not read what it is sent."
            self._end()
            raise anyio.ClosedResourceError
        stdin.write(data)
        if stdin.is_closing():
            # Nobody holds the other end any more: not a byte of it was taken.
            raise anyio.ClosedResourceError

    async def wait_writable(self) -> None:
        """Wait while the pipe is full."""
        if not self._writable.is_set():
            await self._writable.wait()

    async def next_message(self) -> SessionMessage:
        """Return the next message that is for the SDK; raises EndOfStream after the last."""
        while self.dispatcher.handle((message := await self._next_message()).message):
            continue
        return message

    async def _next_message(self) -> SessionMessage:
        while not self.messages:
            if self._eof.is_set():
                self.dispatcher.end()
                raise anyio.EndOfStream
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        self._taken_count += 1
        if self._taken_count % _MESSAGES_PER_TURN == 0:
            await asyncio.sleep(0)
        if self._paused and len(self.messages) < _MAX_UNREAD_MESSAGES // 2:
            self._set_reading(is_paused=False)
        if self.pid is None and not self.read_pid():
            # It has answered, so its warden is about to say who it is.
            with contextlib.suppress(OSError, ValueError):
                self.pid = int(await asyncio.get_running_loop().sock_recv(self._lifeline, 64))
        if not self.messages:  # given up meanwhile
            raise anyio.EndOfStream
        return self.messages.popleft()

    def read_pid(self) -> bool:
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
        self.dispatcher.end()
        self._end()
        if self._paused:
            self._set_reading(is_paused=False)

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

    def _set_reading(self, *, is_paused: bool) -> None:
        stdout = None if self._process is None else cast("asyncio.ReadTransport | None", self._process.get_pipe_transport(1))
        if stdout is not None and not stdout.is_closing():
            self._paused = is_paused
            if is_paused:
                stdout.pause_reading()
            else:
                stdout.resume_reading()

    def _read(self, data: bytes) -> None:
        if self._eof.is_set():
            return
        lines = data.split(b"\n")
        for piece in lines[:-1]:
            self._append_to_line(piece)
            self._finish_line()
        self._append_to_line(lines[-1])
        if len(self.messages) > _MAX_UNREAD_MESSAGES and not self._paused:
            self._set_reading(is_paused=True)

    def _append_to_line(self, piece: bytes) -> None:
        if self._skipped_start is not None:
            self._partial_line[:] = (self._partial_line + piece)[-_EDGE_BYTES:]
        elif len(self._partial_line) + len(piece) > MAX_MESSAGE_BYTES:
            self._skipped_start = bytes((self._partial_line + piece[:_EDGE_BYTES])[:_EDGE_BYTES])
            self._partial_line[:] = (self._partial_line[-_EDGE_BYTES:] + piece)[-_EDGE_BYTES:]
        else:
            self._partial_line += piece

    def _finish_line(self) -> None:
        line = bytes(self._partial_line)
        self._partial_line.clear()
        if self._skipped_start is not None:
            beginning, self._skipped_start = self._skipped_start, None
            self._put_error(beginning, line, TOO_LARGE_CODE, "The result is larger than 10 MiB.")
            return
        if not line.strip():
            return
        try:
            self._put_message(SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False)))
        except ValueError:
            # A print() on stdout is the commonest fault of stdio servers; it must not cost the session. An answer that cannot
            # be read (nested too deep, lone surrogates, not UTF-8) is told to whoever waits for it, or they would for a minute.
            if line.lstrip()[:1] == b"{" and b'"jsonrpc"' in line and (b'"result"' in line or b'"error"' in line):
                self._put_error(
                    line[:_EDGE_BYTES], line[-_EDGE_BYTES:], UNREADABLE_CODE, "The server answered with JSON that cannot be read."
                )

    def _put_error(self, beginning: bytes, end: bytes, code: int, text: str) -> None:
        """Tell the request whose id stands near either edge of a line that its answer came to nothing."""
        found = _ID_NEAR_EDGE.search(beginning) or _ID_NEAR_EDGE.search(end)
        if found is not None:
            name = found.group(2).decode()
            number: str | int = name if found.group(1) or not name.isdigit() else int(name)
            self._put_message(SessionMessage(JSONRPCError(jsonrpc="2.0", id=number, error=ErrorData(code=code, message=text))))

    def _put_message(self, message: SessionMessage) -> None:
        self.has_sent_message = True
        # What came before comes first: a log line must not find its caller gone. A flood of anything but answers waits its turn.
        if self.messages or not self.dispatcher.handle_response(message.message):
            self.messages.append(message)
            self._wake()

    def _end(self) -> None:
        self._eof.set()
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _log_stderr(self, data: bytes) -> None:
        *lines, rest = (self._partial_log_line + data).split(b"\n")
        self._partial_log_line = rest[-_MAX_LOG_LINE_CHARS:]
        for line in lines:
            text = self._redact(line[:_MAX_LOG_LINE_CHARS].decode(errors="replace").rstrip())
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
    mentioned = [line for line in written if _ERROR_WORD.search(line) and not _STACK_LINE.match(line)]
    found = npm[:1] or named[-1:] or mentioned[-1:] or written[-1:]
    return found[0] if found else ""


class ProcessReadStream:
    """The read stream of the SDK's contract over a `ServerProcess`."""

    def __init__(self, process: ServerProcess) -> None:
        self._process = process

    async def receive(self) -> SessionMessage | Exception:
        """Return the next message."""
        return await self._process.next_message()

    async def aclose(self) -> None:
        """Take no more."""
        self._process.stop_reading()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self._process.next_message()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None) -> None:
        await self.aclose()


class ProcessWriteStream:
    """The write stream of the SDK's contract over a `ServerProcess`."""

    def __init__(self, process: ServerProcess) -> None:
        self._process = process

    async def send(self, item: SessionMessage, /) -> None:
        """Write one message as one line."""
        line = item.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
        try:
            self._process.write_line(line)
        except anyio.ClosedResourceError:
            if isinstance(item.message, JSONRPCRequest):
                raise UnsentError from None
            raise
        await self._process.wait_writable()

    async def aclose(self) -> None:
        """Close the server's stdin, which asks it to end."""
        self._process.close_stdin()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None) -> None:
        await self.aclose()


@contextlib.asynccontextmanager
async def run_process(
    command: CommandTarget, on_stderr: Callable[[str], None] | None = None
) -> AsyncGenerator[tuple[ServerProcess, ProcessReadStream, ProcessWriteStream]]:
    """
    Start *command* under a warden and stop all of it on leaving, within 5 seconds.

    Raises:
        ConnectFailed: There is no such program or directory, or the system starts no more processes.
    """
    environment = get_default_environment() | dict(command.env)
    program = _find_program(command, environment)
    hidden = {*command.env.values(), *command.secrets}
    secrets = tuple(sorted({value for value in hidden if len(value) >= 6}, key=len, reverse=True))
    ours, theirs = socket.socketpair()
    loop = asyncio.get_running_loop()
    ours.setblocking(False)
    with ours:
        with theirs:
            try:
                _, child = await loop.subprocess_exec(
                    lambda: ServerProcess(secrets, ours, on_stderr),
                    sys.executable,
                    "-I",
                    "-S",
                    str(_GUARD_SCRIPT),
                    str(theirs.fileno()),
                    str(_TERM_GRACE_S),
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
            yield child, ProcessReadStream(child), ProcessWriteStream(child)
        finally:
            with anyio.CancelScope(shield=True):
                await _stop(child, ours, has_installer=command.is_downloader)


async def _stop(process: ServerProcess, lifeline: socket.socket, *, has_installer: bool) -> None:
    """End the server: by its stdin, then by the warden; should we be cut short, the lifeline's end still does it."""
    try:
        process.stop_reading()
        process.close_stdin()
        if has_installer and not process.has_sent_message and not await _wait_for_exit(process, _EXIT_GRACE_S):
            with contextlib.suppress(OSError):
                lifeline.send(b"\n")  # SIGTERM, and no SIGKILL yet
            await _wait_for_exit(process, _INSTALL_TERM_GRACE_S)
        if not await _wait_for_exit(process, _EXIT_GRACE_S):
            lifeline.shutdown(socket.SHUT_RDWR)
            if not await _wait_for_exit(process, _TERM_GRACE_S + _KILL_GRACE_S):
                process.kill()
                await _wait_for_exit(process, _KILL_GRACE_S / 2)
        if process.exit_code is not None and process.exit_code < 0:
            _kill_orphan(process)
    finally:
        lifeline.close()
        process.close()


async def _wait_for_exit(process: ServerProcess, seconds: float) -> bool:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(process.ended.wait(), seconds)
    return process.ended.is_set()


def _kill_orphan(process: ServerProcess) -> None:
    """Kill the server of a warden that was itself killed."""
    process.read_pid()
    if process.pid is not None:
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)


def _find_program(command: CommandTarget, environment: Mapping[str, str]) -> str:
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
