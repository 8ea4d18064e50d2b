"""
Session events per second of eight concurrent agents; each response follows the commit on disk.

    python -m benchmarks.agent_events [--count N] [--database postgresql://…] [--secret-key …]

Eight writers send events over real sockets to a server in its own process, each after the response to the previous one: first each
to its own session, then all to one session, whose event numbers must have no gap.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import tempfile
from pathlib import Path

from benchmarks.load import Connection, measure
from benchmarks.servers import Running, run_server

_WRITERS = 8
_SESSIONS = "/api/agent/sessions"
_EVENT = {"type": "action", "message": "Ran the tests: 214 passed, 1 failed.", "data": {"command": "make test", "exit": 1}}


async def _started(running: Running) -> str:
    connection = Connection(running.url, running.api_key)
    status, body = await connection.send("POST", _SESSIONS, {"agent_type": "bench"})
    await connection.close()
    assert status == 201, body
    return str(json.loads(body)["session"]["id"])


async def _list_events(running: Running, session: str) -> int:
    connection = Connection(running.url, running.api_key)
    _, body = await connection.send("GET", f"{_SESSIONS}/{session}")
    await connection.close()
    return int(json.loads(body)["stats"]["events"])


def _cpu_s(pid: int) -> float:
    """Return the CPU seconds of the server so far, which hardly depend on other load of the machine."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def _measure(running: Running, count: int) -> None:
    for name, sessions in (("eight sessions", _WRITERS), ("one session", 1)):
        ids = [await _started(running) for _ in range(sessions)]
        before_s = _cpu_s(running.pid)
        timed = await measure(
            running.url,
            running.api_key,
            lambda number, ids=ids: ("POST", f"{_SESSIONS}/{ids[number % len(ids)]}/events", _EVENT),
            count=count,
            clients=_WRITERS,
            expect=201,
        )
        cpu_ms = (_cpu_s(running.pid) - before_s) * 1000 / count
        event_counts = [await _list_events(running, session_id) for session_id in ids]
        assert sum(event_counts) >= count, event_counts
        print(f"{name:<16} {json.dumps({**timed.as_json(), 'server_cpu_ms': round(cpu_ms, 3)})}")


def main() -> None:
    """Measure and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=5_000)
    parser.add_argument("--database", default="embedded:")
    parser.add_argument("--secret-key", default="a secret key of the benchmark: 0123")
    options = parser.parse_args()
    settings = {} if options.database == "embedded:" else {"database_url": options.database, "secret_key": options.secret_key}
    with tempfile.TemporaryDirectory() as folder, run_server(Path(folder) / "data", **settings) as running:
        asyncio.run(_measure(running, options.count))


if __name__ == "__main__":
    main()
