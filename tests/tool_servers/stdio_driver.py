"""Writes JSON-RPC messages to a tool server by hand, over its standard input, and measures how it ends."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

Json = dict[str, object]

END_LIMIT_S = 10.0
"""A server that still runs this long after it should have ended is killed."""

_CAPABILITIES: Json = {"sampling": {}, "elicitation": {"form": {}, "url": {}}}
"""The capabilities that Rookery announces too: some servers list tools only to clients that have these."""

_MAX_LINE_BYTES = 64 * 1024 * 1024
_MAX_STDERR_LINES = 200


class ServerFailed(Exception):
    """The server cannot be used."""


class ServerExited(ServerFailed):
    """The server ended before it answered; the text has its exit code."""


class SessionRefused(ServerFailed):
    """The server answered `initialize` with an error."""


class ServerSilent(ServerFailed):
    """The server did not answer in time."""


class StdioServer:
    """A tool server in a process group of its own."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.stderr = list[str]()
        self.stray_lines = 0
        self._answers = dict[int, asyncio.Future[Json]]()
        self._number = 0
        self._readers = [asyncio.create_task(self._read_messages()), asyncio.create_task(self._read_stderr())]

    async def request(self, method: str, params: Mapping[str, object] | None = None, *, timeout_s: float = 30.0) -> Json:
        """
        Return the complete response to a request: its `result` or its `error`.

        Raises:
            ServerExited: The server ended.
            ServerSilent: It did not answer within *timeout_s*.
        """
        self._number += 1
        answer = self._answers[self._number] = asyncio.get_running_loop().create_future()
        if self._readers[0].done():
            answer.set_exception(ServerExited)
        self._write({"jsonrpc": "2.0", "id": self._number, "method": method, "params": dict(params or {})})
        try:
            async with asyncio.timeout(timeout_s):
                return await answer
        except TimeoutError:
            msg = f"{method} was not answered within {timeout_s:.0f} s"
            raise ServerSilent(msg) from None
        except ServerExited:
            code = await self._wait_exit(END_LIMIT_S)
            msg = f"exit {code}" if code is not None else "it closed its standard output"
            raise ServerExited(msg) from None

    def notify(self, method: str) -> None:
        """Send a notification."""
        self._write({"jsonrpc": "2.0", "method": method})

    async def close_stdin(self) -> float | None:
        """Close its standard input; return the seconds until it ended, or None if it did not end in time."""
        start = time.monotonic()
        if self.process.stdin is not None:
            self.process.stdin.close()
        return None if await self._wait_exit(END_LIMIT_S) is None else time.monotonic() - start

    async def terminate(self) -> float | None:
        """Send SIGTERM; return the seconds until it ended, or None if it did not end in time."""
        start = time.monotonic()
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGTERM)
        return None if await self._wait_exit(END_LIMIT_S) is None else time.monotonic() - start

    async def aclose(self) -> None:
        """Kill it with its children."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        await self._wait_exit(END_LIMIT_S)
        for reader in self._readers:
            reader.cancel()
        await asyncio.gather(*self._readers, return_exceptions=True)

    async def wait_stderr(self) -> None:
        """Wait until its standard error is read to the end, for as long as a server may take to end."""
        await asyncio.wait([self._readers[1]], timeout=END_LIMIT_S)

    async def _wait_exit(self, timeout_s: float) -> int | None:
        try:
            async with asyncio.timeout(timeout_s):
                return await self.process.wait()
        except TimeoutError:
            return None

    def _write(self, message: Json) -> None:
        if self.process.stdin is not None and not self.process.stdin.is_closing():
            self.process.stdin.write(json.dumps(message).encode() + b"\n")

    async def _read_messages(self) -> None:
        assert self.process.stdout is not None
        try:
            while line := await self.process.stdout.readline():
                try:
                    message = json.loads(line)
                except ValueError:
                    self.stray_lines += bool(line.strip())
                    continue
                if isinstance(message, dict):
                    self._handle(cast("Json", message))
        finally:
            for answer in self._answers.values():
                if not answer.done():
                    answer.set_exception(ServerExited)

    def _handle(self, message: Json) -> None:
        number = message.get("id")
        if "method" not in message:
            answer = self._answers.get(number) if isinstance(number, int) else None
            if answer is not None and not answer.done():
                answer.set_result(message)
        elif number is not None:
            known = message["method"] == "ping"
            reply: Json = {"result": {}} if known else {"error": {"code": -32601, "message": "not supported by this client"}}
            self._write({"jsonrpc": "2.0", "id": number, **reply})

    async def _read_stderr(self) -> None:
        assert self.process.stderr is not None
        while line := await self.process.stderr.readline():
            if len(self.stderr) < _MAX_STDERR_LINES:
                self.stderr.append(line.decode(errors="replace").rstrip())


@asynccontextmanager
async def start_server(command: Sequence[str], variables: Mapping[str, str], folder: Path) -> AsyncGenerator[StdioServer]:
    """Start a server, and kill it with its children at the end of the block."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL", "SHELL", "TERM", "USER", "LOGNAME") if name in os.environ}
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=pipe,
        stdout=pipe,
        stderr=pipe,
        cwd=folder,
        env={**kept, **variables},
        start_new_session=True,
        limit=_MAX_LINE_BYTES,
    )
    server = StdioServer(process)
    try:
        yield server
    finally:
        await server.aclose()


async def initialize(server: StdioServer, version: str, *, timeout_s: float = 60.0) -> Json:
    """
    Open a session in *version*; return the result.

    Raises:
        SessionRefused: The server answered with an error.
        ServerExited: The server ended.
        ServerSilent: It did not answer.
    """
    client: Json = {"protocolVersion": version, "capabilities": _CAPABILITIES, "clientInfo": {"name": "tool-servers", "version": "1"}}
    answer = await server.request("initialize", client, timeout_s=timeout_s)
    if "error" in answer:
        msg = f"initialize: {cast('Json', answer['error']).get('message')}"
        raise SessionRefused(msg)
    server.notify("notifications/initialized")
    return cast("Json", answer["result"])
