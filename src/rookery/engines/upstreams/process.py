"""
Servers that run as child processes: the process, and its pipes as the SDK's message streams.

The SDK's own stdio client is not used: its child outlives a killed parent, it reads lines of any length into memory, and it has two tasks
with a queue each between pipe and session. Here data becomes messages where it arrives.
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
from collections.abc import AsyncGenerator, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import cast

import anyio
import structlog
from mcp.client.stdio import get_default_environment
from mcp.shared.message import SessionMessage
from mcp_types import ErrorData, JSONRPCError, JSONRPCRequest, jsonrpc_message_adapter

from rookery.engines.upstreams.input_pipe import InputPipe, open_input_pipe
from rookery.engines.upstreams.jsonrpc_dispatcher import JsonRpcDispatcher
from rookery.engines.upstreams.mcp_session import McpSession, find_extensions, open_session
from rookery.engines.upstreams.negotiation import Negotiation, find_negotiated, save_negotiated
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
from rookery.engines.upstreams.start_failures import StartFailures, Symptom
from rookery.kernel.cancellation import wait_until_set
from rookery.tools.errors import ConnectFailed
from rookery.tools.models import CommandTarget, JsonObject, Roots, Server
from rookery.tools.ports import NegotiatedProtocols, RequestOptions
from rookery.tools.process_output import ProcessOutput

_log = structlog.stdlib.get_logger("rookery.tools")

_GUARD_SCRIPT = Path(__file__).with_name("process_guard.py")
_EXIT_GRACE_S = 1.0
"""Time for a server to exit after its stdin is closed."""
_TERM_GRACE_S = 1.0
"""Time for it to exit after SIGTERM. Then the guard process kills it."""
_INSTALL_TERM_GRACE_S = 10.0
"""Time after SIGTERM for a program that downloads the server and is still starting. If it is killed earlier, half a package is left."""
_KILL_GRACE_S = 2.0
_EXIT_CODE_WAIT_S = 1.0
"""Wait for the exit code after the end of stdout. It comes within milliseconds, but on a busy machine later."""
_STDERR_WAIT_S = 0.1
"""Wait for the end of stderr after the exit."""
_MAX_UNSENT_BYTES = 64 * 1024 * 1024
"""Maximum bytes that wait to be written: the largest requests of as many concurrent calls as a server accepts."""
_MESSAGES_PER_TURN = 10
"""Messages after which other tasks run. Otherwise the reader of a flood would never yield."""
_MAX_OUTPUT_LINE_CHARS = 500
_MAX_OUTPUT_LINE_BYTES = 64 * 1024
"""Limit on an unfinished line of standard error, and on a line of standard output that is no message."""
_TERMINAL_SEQUENCE = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
"""Pattern of the colours that some programs write."""
_ID_NEAR_EDGE = re.compile(rb'"id"\s*:\s*("?)([A-Za-z0-9_.-]+)\1')
_EDGE_BYTES = 200


class StdioConnector:
    """A `Connector` that starts a child process for each session; see `start_failures` for how often it starts one that fails."""

    def __init__(self, protocols: NegotiatedProtocols | None = None) -> None:
        self._protocols = protocols
        self._failures = StartFailures()

    @contextlib.asynccontextmanager
    async def connect(
        self,
        server: Server,
        *,
        on_changed: Callable[[], None],
        workspace_id: int | None = None,
        on_output: Callable[[str], None] | None = None,
        on_process: Callable[[int], None] | None = None,
        opener: RequestOptions | None = None,
    ) -> AsyncGenerator[McpSession]:
        """Start the server and open a session with it."""
        del workspace_id
        if not isinstance(server.target, CommandTarget):
            msg = f"{server.id} has no command"
            raise TypeError(msg)
        stored_protocol = await find_negotiated(self._protocols, server)
        planned = Negotiation.plan(server, stored_protocol)
        negotiation = first = self._failures.choose(server, planned)
        async with contextlib.AsyncExitStack() as stack:
            start = partial(
                _start,
                server.target,
                server.roots,
                on_changed=on_changed,
                on_output=on_output,
                on_process=on_process,
                extensions=find_extensions(server, opener),
            )
            try:
                session = await stack.enter_async_context(start(first))
            except _ExitedAtStart as first_failure:
                second = first.after_exit()
                if second is None or not first_failure.has_read_input or self._failures.is_known(server, first_failure.symptom):
                    raise
                if on_output is not None:
                    on_output(f"[Rookery: started again with `{second.first}` as the first message]")
                try:
                    session = await stack.enter_async_context(start(second))
                except ConnectFailed as second_failure:
                    if isinstance(second_failure, _ExitedAtStart) and second.first != first.first:
                        self._failures.record(server, {first.first: first_failure.symptom, second.first: second_failure.symptom})
                    if stored_protocol is None and second.first == "initialize":
                        raise
                    raise first_failure from None  # the first message was most likely the right one
                negotiation = second
            self._failures.forget(server)
            was_probed = first.has_probed or negotiation.has_probed
            if was_probed or first is planned:  # else nothing shows which revision is the newest that it supports
                negotiated = negotiation.describe(session.info)
                await save_negotiated(self._protocols, server, stored_protocol, negotiated, was_probed=was_probed)
            yield session


class _ExitedAtStart(ConnectFailed):
    """The process ended before the session was open. `has_read_input`: it may have ended because of what Rookery sent."""

    def __init__(self, message: str, symptom: Symptom, *, has_read_input: bool) -> None:
        super().__init__(message)
        self.symptom = symptom
        self.has_read_input = has_read_input


@contextlib.asynccontextmanager
async def _start(
    command: CommandTarget,
    roots: Roots,
    negotiation: Negotiation,
    *,
    on_changed: Callable[[], None],
    on_output: Callable[[str], None] | None,
    on_process: Callable[[int], None] | None,
    extensions: Mapping[str, JsonObject],
) -> AsyncGenerator[McpSession]:
    """
    Start *command* and open a session with it.

    Raises:
        _ExitedAtStart: The process ended before the session was open.
        ConnectFailed: The program could not be started, or is not a server.
    """
    async with run_process(command, on_output) as (process, incoming, outgoing):
        if on_process is not None and process.guard_pid is not None:
            on_process(process.guard_pid)
        streams, is_open = _pipes(incoming, outgoing), False
        try:
            async with open_session(
                streams,
                process,
                on_changed=on_changed,
                requests=process.dispatcher,
                roots=roots,
                negotiation=negotiation,
                extensions=extensions,
            ) as session:
                process.mark_started()
                is_open = True
                yield session
        except ConnectFailed as error:
            if is_open or not process.has_closed_stdout:
                raise
            symptom = Symptom.describe(process.exit_code, str(error))
            raise _ExitedAtStart(str(error), symptom, has_read_input=process.has_read_input) from error


@contextlib.asynccontextmanager
async def _pipes(incoming: ProcessReadStream, outgoing: ProcessWriteStream) -> AsyncGenerator[TransportStreams]:
    yield incoming, outgoing


class ServerProcess(asyncio.SubprocessProtocol):
    """
    One running server. It parses stdout into messages, and stores what the server writes besides.

    Attributes:
        has_sent_message: The server has sent a message, so its start is complete.
        has_closed_stdout: The server closed its stdout or exited. Rookery did not end the connection.
        has_read_input: False if the server ended before it read anything that was sent to it. True if that is not certain.
        pid: The process id of the server itself, not of the guard process; see `TransportState`.
        dispatcher: Dispatcher of the requests that callers send.
    """

    def __init__(
        self, secrets: tuple[str, ...], lifeline: socket.socket, stdin: InputPipe, on_output: Callable[[str], None] | None = None
    ) -> None:
        self._on_output = on_output
        self._lifeline = lifeline
        self._stdin = stdin
        self.has_read_input = True
        self.ended = asyncio.Event()
        self.has_sent_message = False
        self.has_closed_stdout = False
        self.pid: int | None = None
        self.messages: deque[SessionMessage] = deque()
        self.dispatcher = JsonRpcDispatcher(self)
        self._secrets = secrets
        self._waiter: asyncio.Future[None] | None = None
        self._eof = asyncio.Event()
        self._partial_line = bytearray()
        self._skipped_start: bytes | None = None
        self._output = ProcessOutput()
        self._partial_error_line = b""
        self._stderr_closed = asyncio.Event()
        self._paused = False
        self._taken_count = 0
        self._failure = ""
        self._process: asyncio.SubprocessTransport | None = None

    @property
    def guard_pid(self) -> int | None:
        """The process id of the guard process, of which the server is a descendant."""
        return None if self._process is None else self._process.get_pid()

    # Methods that asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._process = cast("asyncio.SubprocessTransport", transport)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == 1:
            self._read(data)
        else:
            self._read_stderr(data)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        del exc
        if fd == 1:
            self._note_end()
            if not self._eof.is_set() and self._skipped_start is None:
                self._add_stray_line(bytes(self._partial_line))
            self._end()
        elif fd == 2:
            self._read_stderr(b"\n")
            self._stderr_closed.set()

    def process_exited(self) -> None:
        self._note_end()
        self.ended.set()
        self._stdin.writable.set()
        self._end()

    # Methods that the streams and the connector call.

    @property
    def exit_code(self) -> int | None:
        """The exit code, 128 + n for signal n; None while the server runs."""
        return None if self._process is None else self._process.get_returncode()

    def get_error_line(self) -> str:
        """Return the line that most likely names the error; empty if nothing was written."""
        return self._output.find_error_line()

    def get_end_reason(self) -> str:
        """Return the exit code and the error line; see `TransportState`."""
        if self._failure:
            return self._failure
        code, error_line = self.exit_code, self.get_error_line()
        if code is None:
            return f"The server closed the connection: {error_line}" if error_line and self.has_closed_stdout else ""
        outcome = f"was killed by signal {code - 128}" if code > 128 else f"exited with code {code}"
        return f"The server {outcome}{error_line and f': {error_line}'}"

    def mark_started(self) -> None:
        """Record that the start has succeeded."""
        self._output.mark_started()
        self._stdin.stop_observing()

    def is_ended(self) -> bool:
        """Return whether stdout is closed; see `TransportState`."""
        return self._eof.is_set()

    async def wait_ended(self) -> None:
        """Wait until stdout is closed and, briefly, for the exit and the end of stderr; see `TransportState`."""
        await self._eof.wait()
        await wait_until_set(self.ended, timeout_s=_EXIT_CODE_WAIT_S)
        await wait_until_set(self._stderr_closed, timeout_s=_STDERR_WAIT_S)

    def write_line(self, data: bytes) -> None:
        """Send one line; see `LineWriter`."""
        if self.ended.is_set():
            raise anyio.ClosedResourceError
        if self._stdin.unsent_bytes > _MAX_UNSENT_BYTES:
            self._failure = "The server does not read its stdin."
            self._end()
            raise anyio.ClosedResourceError
        self._stdin.write(data)

    async def wait_writable(self) -> None:
        """Wait while the pipe is full."""
        if not self._stdin.writable.is_set():
            await self._stdin.writable.wait()

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
        self._stdin.close()

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
            else:
                self._add_stray_line(line)

    def _add_stray_line(self, line: bytes) -> None:
        """Add a line of stdout that is no protocol message to the output. Unreadable messages are data, and so are long lines."""
        if line.strip() and b'"jsonrpc"' not in line and len(line) <= _MAX_OUTPUT_LINE_BYTES:
            self._add_output(line)

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

    def _note_end(self) -> None:
        self.has_closed_stdout = True
        self.has_read_input = self.has_read_input and self._stdin.may_have_been_read()

    def _end(self) -> None:
        self._eof.set()
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _read_stderr(self, data: bytes) -> None:
        *lines, rest = (self._partial_error_line + data).split(b"\n")
        self._partial_error_line = rest[:_MAX_OUTPUT_LINE_BYTES]  # the start: the rest of a secret would not be recognised
        for line in lines:
            self._add_output(line)

    def _add_output(self, line: bytes) -> None:
        # Redacted before it is cut: the start of a secret would stay otherwise.
        text = self._redact(_TERMINAL_SEQUENCE.sub("", line.decode(errors="replace")).rstrip())[:_MAX_OUTPUT_LINE_CHARS]
        self._output.append(text.strip())
        if self._on_output is not None and text:
            self._on_output(text)

    def _redact(self, line: str) -> str:
        """Return *line* with the values of the server's environment replaced."""
        for secret in self._secrets:
            line = line.replace(secret, "***")
        return line


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
    command: CommandTarget, on_output: Callable[[str], None] | None = None
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
    stdin, stdin_end = await open_input_pipe()
    lifeline, guard_lifeline = socket.socketpair()
    loop = asyncio.get_running_loop()
    lifeline.setblocking(False)
    with lifeline, contextlib.closing(stdin):
        with guard_lifeline, stdin_end:
            try:
                _, process = await loop.subprocess_exec(
                    lambda: ServerProcess(secrets, lifeline, stdin, on_output),
                    sys.executable,
                    "-I",
                    "-S",
                    str(_GUARD_SCRIPT),
                    str(guard_lifeline.fileno()),
                    str(_TERM_GRACE_S),
                    "--",
                    program,
                    *command.args,
                    stdin=stdin_end.fileno(),
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
