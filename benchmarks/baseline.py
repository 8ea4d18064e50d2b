"""The baseline without Rookery: sequential calls of mcp-server-time over its pipes."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import Self

from benchmarks.load import Timings

_CALL = {"name": "get_current_time", "arguments": {"timezone": "UTC"}}
_INITIALIZE = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}


def time_calls(count: int, *, warm: int = 30) -> Timings:
    """Time *count* calls of the tool by a client that only writes and reads lines of JSON."""
    with _StdioClient() as client:
        times_ms = [client.call() for _ in range(warm + count)]
    return Timings(each_ms=times_ms[warm:], took_s=sum(times_ms[warm:]) / 1000)


def time_start() -> float:
    """Return the milliseconds from the start of the server to its first response to a call."""
    started = time.perf_counter()
    with _StdioClient() as client:
        client.call()
        return (time.perf_counter() - started) * 1000


class _StdioClient:
    """A tool server and its only client."""

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", "mcp_server_time", "--local-timezone", "UTC"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._number = 0
        self._send({"id": 0, "method": "initialize", "params": _INITIALIZE})
        self._read()
        self._send({"method": "notifications/initialized"})
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(10)
        self._process.stdout.close()

    def call(self) -> float:
        """Call the tool and return the milliseconds."""
        self._number += 1
        started = time.perf_counter()
        self._send({"id": self._number, "method": "tools/call", "params": _CALL})
        assert b'"isError":false' in self._read()
        return (time.perf_counter() - started) * 1000

    def _send(self, message: dict[str, object]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        self._process.stdin.flush()

    def _read(self) -> bytes:
        assert self._process.stdout is not None
        return self._process.stdout.readline()
