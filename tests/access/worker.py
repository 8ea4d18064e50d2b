"""
A worker process with the access domain of a server. It reads requests from its parent, one JSON object per line.

Times come from the parent, so that windows and expiries are the same in all processes. `python -m tests.access.worker
FOLDER DATABASE_URL` reads {"tokens", "required_scope", "at", "address", "times"} and writes
{"outcomes": {outcome: count}, "remaining", "runs"}.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import IO, TypedDict, cast

from rookery.engines.counters import open as open_counter
from rookery.kernel.db import open_database
from rookery.kernel.errors import RookeryError
from tests.access.makers import Access, build_access
from tests.conftest import FakeClock
from tests.deadlines import HANG_S


class WorkerRequest(TypedDict):
    """A request to a worker: present each token *times* times, a few at once."""

    tokens: list[str]
    required_scope: str | None
    at: str
    address: str
    times: int


class WorkerResponse(TypedDict):
    """The result: the count of each outcome (`ok`, or an error's code), and of all bcrypt runs so far."""

    outcomes: dict[str, int]
    remaining: int | None
    runs: int


@dataclass
class Worker:
    """The parent's connection to a worker process."""

    process: subprocess.Popen[str]

    def send_request(
        self, *tokens: str, at: datetime, required_scope: str | None = None, address: str = "192.0.2.1", times: int = 1
    ) -> None:
        """Send a request without waiting for the response."""
        request: WorkerRequest = {
            "tokens": list(tokens),
            "required_scope": required_scope,
            "at": at.isoformat(),
            "address": address,
            "times": times,
        }
        stdin = cast("IO[str]", self.process.stdin)
        stdin.write(json.dumps(request) + "\n")
        stdin.flush()

    def read_response(self) -> WorkerResponse:
        """Wait for the response and return it."""
        line = cast("IO[str]", self.process.stdout).readline()
        assert line, "the worker has ended"
        return cast("WorkerResponse", json.loads(line))

    def admit(self, token: str, *, at: datetime, required_scope: str | None = None, address: str = "192.0.2.1") -> str:
        """Present a token once; return `ok` or the error's code."""
        self.send_request(token, at=at, required_scope=required_scope, address=address)
        (outcome,) = self.read_response()["outcomes"]
        return outcome

    def kill(self) -> None:
        """Kill it with SIGKILL."""
        self.process.kill()
        self.process.wait(HANG_S)


@contextmanager
def run_workers(number: int, folder: Path, database_url: str) -> Generator[list[Worker]]:
    """Run *number* workers until the block ends."""
    command = [sys.executable, "-m", "tests.access.worker", str(folder), database_url]
    with ExitStack() as stack:
        running = [
            stack.enter_context(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)) for _ in range(number)
        ]
        stack.callback(_stop, running)
        yield [Worker(process) for process in running]


def _stop(running: Sequence[subprocess.Popen[str]]) -> None:
    for process in running:
        cast("IO[str]", process.stdin).close()
        try:
            process.wait(HANG_S)
        except subprocess.TimeoutExpired:
            process.kill()


async def _serve_requests(folder: Path, database_url: str) -> None:
    clock, loop = FakeClock(), asyncio.get_running_loop()
    db, counter = open_database(database_url, data_dir=folder), open_counter("embedded:", data_dir=folder)
    access = build_access(db, counter, clock)
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        request = cast("WorkerRequest", json.loads(line))
        clock.at = datetime.fromisoformat(request["at"])
        print(json.dumps(await _handle(access, request)), flush=True)  # noqa: T201 - to the parent
    for resource in (access, db, counter):
        await resource.close()


async def _handle(access: Access, request: WorkerRequest) -> WorkerResponse:
    outcomes, remaining = Counter[str](), None

    async def present(token: str) -> None:
        nonlocal remaining
        try:
            admission = await access.admit(token, required_scope=request["required_scope"], address=request["address"])
        except RookeryError as error:
            outcomes[error.code] += 1
        else:
            outcomes["ok"] += 1
            remaining = int(dict(admission.headers)[b"x-ratelimit-remaining"])

    for _ in range(request["times"]):
        await asyncio.gather(*(present(token) for token in request["tokens"]))
    return {"outcomes": dict(outcomes), "remaining": remaining, "runs": access.bcrypt.run_count}


if __name__ == "__main__":
    asyncio.run(_serve_requests(Path(sys.argv[1]), sys.argv[2]))
