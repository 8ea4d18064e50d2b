"""The same call without Rookery: mcp-server-time over its pipes, one request after another. What a machine can do at best."""

from __future__ import annotations

import json
import subprocess
import sys
import time

from benchmarks.load import Timed

_CALL = {"name": "get_current_time", "arguments": {"timezone": "UTC"}}
_HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}


def bare_calls(count: int, *, warm: int = 30) -> Timed:
    """Time *count* calls of the tool by a client that does nothing but write and read lines of JSON."""
    command = [sys.executable, "-m", "mcp_server_time", "--local-timezone", "UTC"]
    each_ms = list[float]()
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None

        def send(message: dict[str, object]) -> None:
            assert process.stdin is not None
            process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
            process.stdin.flush()

        send({"id": 0, "method": "initialize", "params": _HELLO})
        process.stdout.readline()
        send({"method": "notifications/initialized"})
        for number in range(1, warm + count + 1):
            begun = time.perf_counter()
            send({"id": number, "method": "tools/call", "params": _CALL})
            assert b'"isError":false' in process.stdout.readline()
            each_ms.append((time.perf_counter() - begun) * 1000)
        process.stdin.close()
        process.wait(10)
    counted = each_ms[warm:]
    return Timed(each_ms=counted, took_s=sum(counted) / 1000)
