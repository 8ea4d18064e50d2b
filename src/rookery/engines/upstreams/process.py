"""
Servers that run as child processes: the process, its pipes as the SDK's message streams, and requests over them.

The SDK's own stdio client is not used: its child outlives a killed parent, it reads lines of any length into memory, and it has two tasks
with a queue each between pipe and session. Here data becomes messages where it arrives.

The SDK's dispatcher creates two streams, a cancel scope, a timer and a span for each request, and models of request and result. Those take
most of the CPU time of a call, so `JsonRpcDispatcher` sends the requests of callers. The SDK still handles its own requests and everything
that the server sends on its own.
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
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import cast

import anyio
import mcp_types as types
import orjson
import structlog
from mcp import MCPError
from mcp.client.stdio import get_default_environment
from mcp.shared.dispatcher import CallOptions, ProgressFnT, coerce_request_id
from mcp.shared.message import SessionMessage
from mcp_types import ErrorData, JSONRPCError, JSONRPCMessage, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse, jsonrpc_message_adapter

from rookery.engines.upstreams.mcp_session import McpSession, open_session
from rookery.engines.upstreams.sdk import (
    MAX_MESSAGE_BYTES,
    MAX_UNREAD_MESSAGES,
    TOO_LARGE_CODE,
    UNREADABLE_CODE,
    MessageReadStream,
    MessageWriteStream,
    TransportStreams,
    UnsentError,
)
from rookery.kernel.cancellation import wait_until_set
from rookery.kernel.tracing import propagation_headers
from rookery.tools.errors import ConnectFailed
from rookery.tools.models import CommandTarget, JsonObject, Server

_log = structlog.stdlib.get_logger("rookery.tools")

_GUARD_SCRIPT = Path(__file__).with_name("process_guard.py")
_EXIT_GRACE_S = 1.0
"""Time for a server to exit after its stdin is closed."""
_TERM_GRACE_S = 1.0
"""Time for it to exit after SIGTERM. Then the guard process kills it."""
_INSTALL_TERM_GRACE_S = 10.0
"""Time after SIGTERM for a program that downloads the server and is still starting. If it is killed earlier, half a package is left."""
_KILL_GRACE_S = 2.0
_EXIT_CODE_WAIT_S = 0.3
"""Wait for the exit code after the end of stdout."""
_MAX_UNSENT_BYTES = 64 * 1024 * 1024
"""Maximum bytes that wait to be written: the largest requests of as many concurrent calls as a server accepts."""
_MESSAGES_PER_TURN = 10
"""Messages after which other tasks run. Otherwise the reader of a flood would never yield."""
_MAX_LOG_LINES = 40
_MAX_LOG_LINE_CHARS = 500
_ID_NEAR_EDGE = re.compile(rb'"id"\s*:\s*("?)([A-Za-z0-9_.-]+)\1')
_EDGE_BYTES = 200
_EXCEPTION = re.compile(r"(?:Uncaught )?[\w.$]*(?:Error|Exception)(?: \[\w+\])?(?::|$)")
"""Pattern of the line that names an uncaught exception in Python and JavaScript."""
_NPM_ERROR = re.compile(r"npm (?:error|ERR!) (?!code|errno|syscall|path|A complete log)\S")
_ERROR_WORD = re.compile(r"Error|Exception|\berror\b|\bfatal\b", re.IGNORECASE)
_STACK_LINE = re.compile(r"at |throw |npm (?:error|ERR!) A complete log")
"""Pattern of lines that mention an error without naming it."""

_FIRST_REQUEST_ID = 1 << 30
"""The first id of requests sent here. The SDK counts its own ids from 1."""


class StdioConnector:
    """A `Connector` that starts a child process for each session."""

    @contextlib.asynccontextmanager
    async def connect(
        self,
        server: Server,
        *,
        on_changed: Callable[[], None],
        workspace_id: int | None = None,
        on_stderr: Callable[[str], None] | None = None,
    ) -> AsyncGenerator[McpSession]:
        """Start the server and open a session with it."""
        del workspace_id
        if not isinstance(server.target, CommandTarget):
            msg = f"{server.id} has no command"
            raise TypeError(msg)
        async with (
            run_process(server.target, on_stderr) as (process, incoming, outgoing),
            open_session(
                _pipes(incoming, outgoing), process, on_changed=on_changed, requests=process.dispatcher, roots=server.roots
            ) as session,
        ):
            yield session


@contextlib.asynccontextmanager
async def _pipes(incoming: ProcessReadStream, outgoing: ProcessWriteStream) -> AsyncGenerator[TransportStreams]:
    yield incoming, outgoing


class ServerProcess(asyncio.SubprocessProtocol):
    """
    One running server. It parses stdout into messages and stores the last lines of stderr.

    Attributes:
        has_sent_message: The server has sent a message, so its start is complete.
        pid: The process id of the server itself, not of the guard process; see `TransportState`.
        dispatcher: Dispatcher of the requests that callers send.
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

    # Methods that asyncio calls.

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

    # Methods that the streams and the connector call.

    @property
    def exit_code(self) -> int | None:
        """The exit code, 128 + n for signal n; None while the server runs."""
        return None if self._process is None else self._process.get_returncode()

    def get_error_line(self) -> str:
        """Return the stderr line that most likely names the error; empty if nothing was written."""
        return find_error_line(self._log)

    def get_end_reason(self) -> str:
        """Return the exit code and the error line; see `TransportState`."""
        if self._failure:
            return self._failure
        code, error_line = self.exit_code, self.get_error_line()
        if code is None:
            return error_line and f"The server closed the connection: {error_line}"
        outcome = f"was killed by signal {code - 128}" if code > 128 else f"exited with code {code}"
        return f"The server {outcome}{error_line and f': {error_line}'}"

    def is_ended(self) -> bool:
        """Return whether stdout is closed; see `TransportState`."""
        return self._eof.is_set()

    async def wait_ended(self) -> None:
        """Wait until stdout is closed and, briefly, for the exit; see `TransportState`."""
        await self._eof.wait()
        await wait_until_set(self.ended, timeout_s=_EXIT_CODE_WAIT_S)

    def write_line(self, data: bytes) -> None:
        """Send one line; see `LineWriter`."""
        stdin = self._pipe(0)
        if stdin is None or stdin.is_closing() or self.ended.is_set():
            raise anyio.ClosedResourceError
        if stdin.get_write_buffer_size() > _MAX_UNSENT_BYTES:
            self._failure = "The server does not read its stdin."
            self._end()
            raise anyio.ClosedResourceError
        stdin.write(data)
        if stdin.is_closing():
            # The other end is closed: no byte of the line was read.
            raise anyio.ClosedResourceError

    async def wait_writable(self) -> None:
        """Wait while the pipe is full."""
        if not self._writable.is_set():
            await self._writable.wait()

    async def next_message(self) -> SessionMessage:
        """Return the next message for the SDK. Raises `EndOfStream` after the last one."""
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
        if self._paused and len(self.messages) < MAX_UNREAD_MESSAGES // 2:
            self._set_reading(is_paused=False)
        if self.pid is None and not self.read_pid():
            # The server has sent a message, so the guard process is about to send its id.
            with contextlib.suppress(OSError, ValueError):
                self.pid = int(await asyncio.get_running_loop().sock_recv(self._lifeline, 64))
        if not self.messages:  # stopped meanwhile
            raise anyio.EndOfStream
        return self.messages.popleft()

    def read_pid(self) -> bool:
        """Read the server's process id from the guard process, without waiting. Return whether it is known."""
        with contextlib.suppress(OSError, ValueError):
            self.pid = int(self._lifeline.recv(64))
        return self.pid is not None

    def close_stdin(self) -> None:
        """Close stdin, which requests the server to exit."""
        stdin = self._pipe(0)
        if stdin is not None:
            stdin.close()

    def stop_reading(self) -> None:
        """Discard further output, so that a server that writes while it exits is not blocked."""
        self.messages.clear()
        self.dispatcher.end()
        self._end()
        if self._paused:
            self._set_reading(is_paused=False)

    def kill(self) -> None:
        """Kill the guard process; the last resort."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()

    def close(self) -> None:
        """Close the remaining pipes."""
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
        for part in lines[:-1]:
            self._append_to_line(part)
            self._finish_line()
        self._append_to_line(lines[-1])
        if len(self.messages) > MAX_UNREAD_MESSAGES and not self._paused:
            self._set_reading(is_paused=True)

    def _append_to_line(self, part: bytes) -> None:
        if self._skipped_start is not None:
            self._partial_line[:] = (self._partial_line + part)[-_EDGE_BYTES:]
        elif len(self._partial_line) + len(part) > MAX_MESSAGE_BYTES:
            self._skipped_start = bytes((self._partial_line + part[:_EDGE_BYTES])[:_EDGE_BYTES])
            self._partial_line[:] = (self._partial_line[-_EDGE_BYTES:] + part)[-_EDGE_BYTES:]
        else:
            self._partial_line += part

    def _finish_line(self) -> None:
        line = bytes(self._partial_line)
        self._partial_line.clear()
        if self._skipped_start is not None:
            start, self._skipped_start = self._skipped_start, None
            self._put_error(start, line, TOO_LARGE_CODE, "The result is larger than 10 MiB.")
            return
        if not line.strip():
            return
        try:
            self._put_message(SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False)))
        except ValueError:
            # A print() on stdout is the most common bug of stdio servers and must not end the session. An unreadable response (nested too
            # deep, lone surrogates, not UTF-8) fails its request, which would otherwise wait for a minute.
            if line.lstrip()[:1] == b"{" and b'"jsonrpc"' in line and (b'"result"' in line or b'"error"' in line):
                self._put_error(line[:_EDGE_BYTES], line[-_EDGE_BYTES:], UNREADABLE_CODE, "The server returned invalid JSON.")

    def _put_error(self, start: bytes, end: bytes, code: int, message: str) -> None:
        """Fail the request whose id is near the start or the end of an unreadable line."""
        match = _ID_NEAR_EDGE.search(start) or _ID_NEAR_EDGE.search(end)
        if match is not None:
            text_id = match.group(2).decode()
            request_id: str | int = text_id if match.group(1) or not text_id.isdigit() else int(text_id)
            self._put_message(SessionMessage(JSONRPCError(jsonrpc="2.0", id=request_id, error=ErrorData(code=code, message=message))))

    def _put_message(self, message: SessionMessage) -> None:
        self.has_sent_message = True
        # Keep the order: a log message must not arrive after its call has ended. Everything but responses waits in the queue.
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
        """Return *line* with the values of the server's environment replaced."""
        for secret in self._secrets:
            line = line.replace(secret, "***")
        return line


def find_error_line(lines: Iterable[str]) -> str:
    """
    Return the line of *lines* that names the error of a program, or else the last one; empty without lines.

    *lines* are the end of the program's stderr. The last line seldom names the error: Node.js ends an uncaught exception with its version,
    npm with the path of a log.
    """
    non_empty_lines = [line for line in lines if line]
    npm = [line for line in non_empty_lines if _NPM_ERROR.match(line)]
    exception_lines = [line for line in non_empty_lines if _EXCEPTION.match(line)]
    mentioned = [line for line in non_empty_lines if _ERROR_WORD.search(line) and not _STACK_LINE.match(line)]
    candidates = npm[:1] or exception_lines[-1:] or mentioned[-1:] or non_empty_lines[-1:]
    return candidates[0] if candidates else ""


class ProcessReadStream(MessageReadStream):
    """The messages of a `ServerProcess`; implements the SDK's read stream."""

    def __init__(self, process: ServerProcess) -> None:
        self._process = process

    async def receive(self) -> SessionMessage | Exception:
        """Return the next message. Raises `EndOfStream` after the last one."""
        return await self._process.next_message()

    async def aclose(self) -> None:
        """Stop reading."""
        self._process.stop_reading()


class ProcessWriteStream(MessageWriteStream):
    """The stdin of a `ServerProcess`; implements the SDK's write stream."""

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
        """Close the server's stdin, which requests it to exit."""
        self._process.close_stdin()


@contextlib.asynccontextmanager
async def run_process(
    command: CommandTarget, on_stderr: Callable[[str], None] | None = None
) -> AsyncGenerator[tuple[ServerProcess, ProcessReadStream, ProcessWriteStream]]:
    """
    Start *command* under a guard process. Stop all its processes on exit, within 5 seconds.

    Raises:
        ConnectFailed: The program or directory does not exist, or the process cannot be started.
    """
    environment = get_default_environment() | dict(command.env)
    program = _find_program(command, environment)
    hidden = {*command.env.values(), *command.secrets}
    secrets = tuple(sorted({value for value in hidden if len(value) >= 6}, key=len, reverse=True))
    lifeline, guard_lifeline = socket.socketpair()
    loop = asyncio.get_running_loop()
    lifeline.setblocking(False)
    with lifeline:
        with guard_lifeline:
            try:
                _, process = await loop.subprocess_exec(
                    lambda: ServerProcess(secrets, lifeline, on_stderr),
                    sys.executable,
                    "-I",
                    "-S",
                    str(_GUARD_SCRIPT),
                    str(guard_lifeline.fileno()),
                    str(_TERM_GRACE_S),
                    "--",
                    program,
                    *command.args,
                    env=environment,
                    cwd=command.cwd,
                    start_new_session=True,
                    pass_fds=(guard_lifeline.fileno(),),
                )
            except (OSError, ValueError) as error:
                raise ConnectFailed(f"{command.command!r} could not be started: {error}") from error
        try:
            yield process, ProcessReadStream(process), ProcessWriteStream(process)
        finally:
            with anyio.CancelScope(shield=True):
                await _stop(process, lifeline, has_installer=command.is_downloader)


async def _stop(process: ServerProcess, lifeline: socket.socket, *, has_installer: bool) -> None:
    """Stop the server by closing stdin, then through the guard process. If this is cancelled, the lifeline's end still stops it."""
    try:
        process.stop_reading()
        process.close_stdin()
        if has_installer and not process.has_sent_message and not await wait_until_set(process.ended, timeout_s=_EXIT_GRACE_S):
            with contextlib.suppress(OSError):
                lifeline.send(b"\n")  # SIGTERM, and no SIGKILL yet
            await wait_until_set(process.ended, timeout_s=_INSTALL_TERM_GRACE_S)
        if not await wait_until_set(process.ended, timeout_s=_EXIT_GRACE_S):
            lifeline.shutdown(socket.SHUT_RDWR)
            if not await wait_until_set(process.ended, timeout_s=_TERM_GRACE_S + _KILL_GRACE_S):
                process.kill()
                await wait_until_set(process.ended, timeout_s=_KILL_GRACE_S / 2)
        if process.exit_code is not None and process.exit_code < 0:
            _kill_orphan(process)
    finally:
        lifeline.close()
        process.close()


def _kill_orphan(process: ServerProcess) -> None:
    """Kill the server of a guard process that was itself killed."""
    process.read_pid()
    if process.pid is not None:
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)


def _find_program(command: CommandTarget, environment: Mapping[str, str]) -> str:
    """Return the program's path, so that a missing program and a failing one have different errors."""
    if command.cwd is not None and not Path(command.cwd).is_dir():
        raise ConnectFailed(f"The directory {command.cwd!r} does not exist. Correct `cwd` in the entry.")
    if os.sep in command.command:
        candidate = Path(command.cwd or ".", command.command)
        executable_path = str(candidate) if candidate.is_file() else None
    else:
        executable_path = shutil.which(command.command, path=environment.get("PATH"))
    if executable_path is None:
        raise ConnectFailed(f"The program {command.command!r} was not found. Install it, or correct the command.")
    return str(Path(executable_path).absolute())


class JsonRpcDispatcher:
    """
    A dispatcher of pending requests.

    `send_raw_request` has the signature of the SDK's dispatcher. Pass every incoming message to `handle`.
    """

    def __init__(self, writer: ServerProcess) -> None:
        self._writer = writer
        self._last_id = _FIRST_REQUEST_ID
        self._pending: dict[int, asyncio.Future[JsonObject | ErrorData]] = {}
        self._on_progress: dict[int, ProgressFnT] = {}
        self._progress_tasks = set[asyncio.Future[None]]()
        self._is_ended = False

    async def send_raw_request(self, method: str, params: Mapping[str, object] | None, opts: CallOptions | None = None) -> JsonObject:
        """
        Send a request and return its result. Cancelling the caller cancels the request on the server.

        Raises:
            MCPError: The server returned an error, or the connection was closed.
            UnsentError: The request was not sent.
        """
        number = self._last_id = self._last_id + 1
        on_progress = (opts or {}).get("on_progress")
        line = _request_line(number, method, dict(params or {}), has_progress=on_progress is not None)
        future = self._pending[number] = asyncio.get_running_loop().create_future()
        if on_progress is not None:
            self._on_progress[number] = on_progress
        try:
            if self._is_ended:
                raise UnsentError
            try:
                self._writer.write_line(line)
            except anyio.ClosedResourceError:
                raise UnsentError from None
            await self._writer.wait_writable()
            outcome = await future
        except asyncio.CancelledError:
            with contextlib.suppress(anyio.ClosedResourceError):
                self._writer.write_line(_CANCELLED % number)
            raise
        finally:
            del self._pending[number]
            self._on_progress.pop(number, None)
        if isinstance(outcome, ErrorData):
            raise MCPError(code=outcome.code, message=outcome.message, data=outcome.data)
        return outcome

    def handle(self, message: JSONRPCMessage) -> bool:
        """
        Process *message* if it belongs to a request sent here, even if its caller has left. Return whether it does.

        Call it in order of arrival.
        """
        if isinstance(message, JSONRPCNotification):
            return message.method == "notifications/progress" and message.params is not None and self._handle_progress(message.params)
        return self.handle_response(message)

    def handle_response(self, message: JSONRPCMessage) -> bool:
        """Process *message* like `handle`, if it is a response."""
        if isinstance(message, JSONRPCResponse):
            return self._resolve(message.id, message.result)
        return isinstance(message, JSONRPCError) and self._resolve(message.id, message.error)

    def end(self) -> None:
        """Fail all pending requests, since no message can arrive any longer."""
        self._is_ended = True
        for future in self._pending.values():
            if not future.done():
                future.set_result(_CLOSED)
        for task in self._progress_tasks:
            task.cancel()

    def _resolve(self, request_id: types.RequestId | None, outcome: JsonObject | ErrorData) -> bool:
        number = _own_request_id(request_id)
        if number is None:
            return False
        future = self._pending.get(number)
        if future is not None and not future.done():
            future.set_result(outcome)
        return True

    def _handle_progress(self, params: Mapping[str, object]) -> bool:
        number = _own_request_id(params.get("progressToken"))
        if number is None:
            return False
        on_progress, progress = self._on_progress.get(number), _to_float(params.get("progress"))
        if on_progress is not None and progress is not None:
            message = params.get("message")
            callback = on_progress(progress, _to_float(params.get("total")), message if isinstance(message, str) else None)
            # A separate task, so that the next message does not wait for this callback.
            task = asyncio.ensure_future(_run_progress_callback(callback))
            self._progress_tasks.add(task)
            task.add_done_callback(self._progress_tasks.discard)
        return True


_CLOSED = ErrorData(code=types.CONNECTION_CLOSED, message="Connection closed")
_CANCELLED = (
    b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d,"reason":"The caller left, or the call timed out."}}\n'
)


def _request_line(number: int, method: str, params: JsonObject, *, has_progress: bool) -> bytes:
    trace = propagation_headers()
    if has_progress or trace:
        value = params.get("_meta")
        meta: JsonObject = {**value} if isinstance(value, Mapping) else {}
        if has_progress:
            meta["progressToken"] = number
        meta.update(trace)
        params["_meta"] = meta
    try:
        return orjson.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}, option=orjson.OPT_APPEND_NEWLINE)
    except TypeError:  # such as integers above 64 bits, which orjson does not support
        request = JSONRPCRequest(jsonrpc="2.0", id=number, method=method, params=params)
        return request.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"


def _own_request_id(request_id: object) -> int | None:
    """Return the number of a request sent here; None for other ids. Some servers return the number as text."""
    if isinstance(request_id, bool) or not isinstance(request_id, (int, str)):
        return None
    number = coerce_request_id(request_id)
    return number if isinstance(number, int) and number > _FIRST_REQUEST_ID else None


def _to_float(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


async def _run_progress_callback(callback: Awaitable[None]) -> None:
    try:
        await callback
    except Exception:  # noqa: BLE001 - an error of a progress callback must not end the session
        _log.exception("tools.progress_failed")
