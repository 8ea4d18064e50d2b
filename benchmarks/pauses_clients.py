"""The clients of `benchmarks.pauses`. Each is a separate process, so that none waits for another, and returns its samples."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection as Pipe
from multiprocessing.synchronize import Event
from pathlib import Path
from urllib.parse import urlsplit

from rich.console import Console

from benchmarks.large_store import insert_memories
from benchmarks.load import Connection
from benchmarks.texts import questions, texts
from rookery.engines import embedders
from rookery.engines import texts as text_engines
from rookery.engines import vectors as vector_engines
from rookery.kernel.clock import utc_now
from rookery.kernel.db import Tx, open_database
from rookery.kernel.sqlite import connect
from rookery.memory.store import records

_EVERY_S = 0.005
_REMEMBER_EVERY_S = 0.5
_SPY_S = 0.06
_REQUEST_TIMEOUT_S = 120.0
_NICE = 10
_BATCH = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestSample:
    """
    One request.

    Attributes:
        at_s: Time of sending, by the monotonic clock, which all processes share.
        took_s: Seconds until the response was complete.
        late_s: Delay of the client itself, which the machine caused and not the server.
        on_core_s: CPU seconds of the server's event loop during the request.
        queued_s: How long it could have, but the machine had no core for it; the rest it waited: for the interpreter's lock, a disk,
            or work.
        said: A description of the response: an error, or that it was by words only.
    """

    kind: str
    at_s: float
    took_s: float
    late_s: float = 0.0
    on_core_s: float = 0.0
    queued_s: float = 0.0
    description: str = ""


def probe(url: str, pid: int, spy: str | None, stop: Event, pipe: Pipe) -> None:
    """Send a cheap GET every 5 ms; *spy*: where py-spy is, which is asked what the server does when an answer is late."""
    parts = urlsplit(url)
    request = f"GET /healthz HTTP/1.1\r\nHost: {parts.netloc}\r\n\r\n".encode()
    samples = list[RequestSample]()
    with socket.create_connection((parts.hostname or "", parts.port or 80)) as server:
        while not stop.is_set():
            wanted_s = time.monotonic() + _EVERY_S
            time.sleep(_EVERY_S)
            before, at_s = _read_schedstat(pid), time.monotonic()
            server.sendall(request)
            server.settimeout(_SPY_S)
            try:
                server.recv(65536)
            except TimeoutError:
                description = _sample_threads(spy, pid) if spy else ""
                server.settimeout(_REQUEST_TIMEOUT_S)
                server.recv(65536)
            else:
                description = ""
            took_s, now = time.monotonic() - at_s, _read_schedstat(pid)
            on_core_s, queued_s = now[0] - before[0], now[1] - before[1]
            samples.append(
                RequestSample(
                    kind="GET",
                    at_s=at_s,
                    took_s=took_s,
                    late_s=at_s - wanted_s,
                    on_core_s=on_core_s,
                    queued_s=queued_s,
                    description=description,
                )
            )
    pipe.send(samples)


def _read_schedstat(pid: int) -> tuple[float, float]:
    """Return how many seconds a process's first thread ran, and waited for a core."""
    ran, waited, _ = Path(f"/proc/{pid}/schedstat").read_text(encoding="ascii").split()
    return int(ran) / 1e9, int(waited) / 1e9


def _sample_threads(spy: str, pid: int) -> str:
    """Return the stacks of active threads."""
    dumped = subprocess.run([spy, "dump", "--nonblocking", "--pid", str(pid)], capture_output=True, text=True, check=False, timeout=20)
    threads = dumped.stdout.split("\nThread ")[1:]
    return "\n".join(f"{time.monotonic():.3f} {thread}" for thread in threads if "(active" in thread.splitlines()[0])


def run_client(url: str, key: str, stop: Event, pipe: Pipe) -> None:
    """Send recalls without a pause, semantic and hybrid in turn, and a `remember` now and then."""
    pipe.send(asyncio.run(_run_client(url, key, stop)))


async def _run_client(url: str, key: str, stop: Event) -> list[RequestSample]:
    samples = list[RequestSample]()

    async def recall() -> None:
        connection = Connection(url, key)
        for number, query in enumerate(questions(seed=int(time.time()))):
            mode = ("semantic", "hybrid")[number % 2]
            if stop.is_set():
                return
            at_s = time.monotonic()
            try:
                status, response = await connection.send("POST", "/v1/brain/recall", {"query": query, "top_k": 5, "mode": mode})
            except (TimeoutError, OSError) as error:
                description = type(error).__name__
                connection = Connection(url, key)
            else:
                description = str(status) if status != 200 else "by words" if json.loads(response).get("notice") else ""
            samples.append(RequestSample(kind=mode, at_s=at_s, took_s=time.monotonic() - at_s, description=description))

    async def remember() -> None:
        connection = Connection(url, key)
        for content in texts(seed=int(time.time())):
            if stop.is_set():
                return
            at_s = time.monotonic()
            body = {"content": content, "type": "observation", "org": "org1", "project": "p1"}
            status, _ = await connection.send("POST", "/v1/brain/remember", body)
            samples.append(
                RequestSample(kind="remember", at_s=at_s, took_s=time.monotonic() - at_s, description="" if status == 201 else str(status))
            )
            await asyncio.sleep(_REMEMBER_EVERY_S)

    await asyncio.gather(recall(), remember())
    return samples


def grow(folder: Path, workspace_id: int, number: int) -> None:
    """Add memories as an import by another process does."""
    os.nice(_NICE)
    asyncio.run(insert_memories(folder, workspace_id, number, Console(quiet=True)))


def forget(folder: Path, workspace_id: int, number: int) -> None:
    """Delete the oldest memories, as a command does."""
    os.nice(_NICE)
    asyncio.run(_forget(folder, workspace_id, number))


async def _forget(folder: Path, workspace_id: int, number: int) -> None:
    embedder = embedders.open("embedded:", data_dir=folder)
    db = open_database("embedded:", data_dir=folder)
    by_meaning = vector_engines.open("embedded:", data_dir=folder, model=embedder.model, dimension=embedder.dimension)
    by_words = text_engines.open("embedded:", data_dir=folder)
    for ids in _oldest(folder, workspace_id, number):

        def bury(tx: Tx, ids: list[str] = ids) -> None:
            for memory in records.get_memories(tx, workspace_id, ids):
                records.delete_memory(tx, memory, at=utc_now())

        await db.write(bury)
        await by_words.drop(workspace_id, ids)
        await by_meaning.drop(workspace_id, ids)
    await by_words.close()
    await by_meaning.close()
    await embedder.close()
    await db.close()


def _oldest(folder: Path, workspace_id: int, number: int) -> Iterator[list[str]]:
    with contextlib.closing(connect(folder / "texts.db", read_only=True)) as connection:
        rows = connection.execute("SELECT memory_id FROM document WHERE workspace_id = ? ORDER BY id LIMIT ?", (workspace_id, number))
        ids = [memory_id for (memory_id,) in rows.fetchall()]
    for start in range(0, len(ids), _BATCH):
        yield ids[start : start + _BATCH]
