"""
`make bench`: measure and print the figures of this folder's README on this machine.

`python -m benchmarks --quick` measures small numbers to check that everything runs; `--only recall tools` measures only these.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import platform
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from itertools import count, islice
from pathlib import Path

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from benchmarks.baseline import time_calls
from benchmarks.load import Connection, Timings, measure
from benchmarks.servers import Running, run_server
from benchmarks.start import THIS_TREE, measure_starts
from benchmarks.texts import TYPES, questions, texts

Figures = dict[str, Mapping[str, object]]
Request = tuple[str, str, Mapping[str, object] | None]

_TIME_SERVER = {"mcpServers": {"time": {"command": sys.executable, "args": ["-m", "mcp_server_time", "--local-timezone", "UTC"]}}}
_CALL: Request = ("POST", "/api/v1/mcp/tools/call", {"server": "time", "tool": "get_current_time", "arguments": {"timezone": "UTC"}})
_INDEX_DEADLINE_S = 1800.0


def _remember(content: str, number: int) -> Request:
    chance = random.Random(number)
    body = {"content": content, "type": chance.choice(TYPES), "org": "acme", "project": f"p{number % 10}", "tags": [f"t{number % 7}"]}
    return ("POST", "/v1/brain/remember", body)


def _recall(question: str, **options: object) -> Request:
    return ("POST", "/v1/brain/recall", {"query": question, "top_k": 5, **options})


async def _fill(running: Running, total: int, console: Console) -> Mapping[str, object]:
    """Store memories up to *total* with 16 concurrent writers, wait until all are indexed, and return both rates."""
    before = await _stored(running)
    contents = list(islice(texts(seed=8400 + before), total - before))
    timed = await measure(
        running.url,
        running.api_key,
        lambda number: _remember(contents[max(number, 0)], number),
        count=len(contents),
        clients=16,
        expect=201,
        warm=0,
    )
    connection = Connection(running.url, running.api_key)
    started, pending = time.perf_counter(), await _pending(connection)
    pending_at_start = pending
    with Progress(console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task(f"indexing to {total:,}", total=pending_at_start)
        while pending and time.perf_counter() - started < _INDEX_DEADLINE_S:
            await asyncio.sleep(0.5)
            pending = await _pending(connection)
            progress.update(task, completed=pending_at_start - pending)
    took_s = time.perf_counter() - started
    await connection.close()
    return {"remember": timed.as_json(), "indexed_per_s_idle": round(pending_at_start / took_s, 1) if took_s > 1 else None}


async def _stored(running: Running) -> int:
    connection = Connection(running.url, running.api_key)
    status, body = await connection.send("GET", "/v1/brain/memories?per_page=1")
    await connection.close()
    assert status == 200, body
    return int(json.loads(body)["meta"]["total"])


async def _pending(connection: Connection) -> int:
    status, body = await connection.send("GET", "/v1/brain/memories?per_page=1&state=pending_embed")
    assert status == 200, body
    return int(json.loads(body)["meta"]["total"])


async def _recalls(running: Running, number: int) -> Mapping[str, object]:
    recall_questions = questions(seed=number)
    unique_questions = [next(recall_questions) for _ in range(2000)]
    figures: dict[str, object] = {}
    for mode in ("semantic", "hybrid"):
        timed = await measure(running.url, running.api_key, lambda n, mode=mode: _recall(unique_questions[n + 500], mode=mode), count=300)
        figures[mode] = timed.as_json()
    filtered = await measure(
        running.url, running.api_key, lambda n: _recall(unique_questions[n + 900], org="acme", project="p3"), count=200
    )
    figures["semantic_one_project"] = filtered.as_json()
    sixteen = await measure(running.url, running.api_key, lambda n: _recall(unique_questions[n + 1200]), count=500, clients=16)
    figures["semantic_16_clients"] = sixteen.as_json()
    return figures


async def _remembers(running: Running, *, quick: bool) -> Mapping[str, object]:
    contents = texts(seed=77)
    unique_texts = [next(contents) for _ in range(8000)]
    single = await measure(
        running.url, running.api_key, lambda n: _remember(unique_texts[n + 50], n + 50), count=200 if quick else 1000, expect=201
    )
    sixteen = await measure(
        running.url, running.api_key, lambda n: _remember(unique_texts[n + 2000], n), count=1000 if quick else 5000, clients=16, expect=201
    )
    return {"one_writer": single.as_json(), "16_writers": sixteen.as_json()}


async def _indexing_while_reading(running: Running) -> Mapping[str, object]:
    """With a backlog to index, let 4 readers recall for 15 seconds and count the memories indexed meanwhile."""
    connection = Connection(running.url, running.api_key)
    contents = list(islice(texts(seed=991), 6000))
    await measure(running.url, running.api_key, lambda n: _remember(contents[n], n), count=6000, clients=16, expect=201, warm=0)
    numbers, recall_questions, times_ms = count(), questions(seed=99), list[float]()
    before, started = await _pending(connection), time.perf_counter()
    until = started + 15

    async def reader() -> None:
        connection_ = Connection(running.url, running.api_key)
        while time.perf_counter() < until:
            next(numbers)
            method, path, body = _recall(next(recall_questions))
            started_ = time.perf_counter()
            status, response = await connection_.send(method, path, body)
            assert status == 200, response
            times_ms.append((time.perf_counter() - started_) * 1000)
        await connection_.close()

    await asyncio.gather(*(reader() for _ in range(4)))
    took_s = time.perf_counter() - started
    after = await _pending(connection)
    await connection.close()
    read = Timings(each_ms=times_ms, took_s=took_s)
    return {"indexed_per_s": round((before - after) / took_s, 1), "backlog_left": after, "recalls": read.as_json()}


async def _tools(running: Running, *, quick: bool) -> Mapping[str, object]:
    rounds = 1 if quick else 5
    single, sixteen, bare = list[Timings](), list[Timings](), list[Timings]()
    for _ in range(rounds):
        bare.append(await asyncio.to_thread(time_calls, 300))
        single.append(await measure(running.url, running.api_key, lambda _: _CALL, count=300))
        sixteen.append(await measure(running.url, running.api_key, lambda _: _CALL, count=1000, clients=16))
    return {
        "one_client_p50_ms": round(statistics.median(timed.p50 for timed in single), 3),
        "16_clients_per_s": round(statistics.median(timed.rate for timed in sixteen), 1),
        "bare_pipe_p50_ms": round(statistics.median(timed.p50 for timed in bare), 3),
        "each_p50_ms": [round(timed.p50, 3) for timed in single],
        "each_bare_p50_ms": [round(timed.p50, 3) for timed in bare],
        "each_per_s": [round(timed.rate, 1) for timed in sixteen],
    }


async def _measure_all(folder: Path, *, quick: bool, only: set[str], sizes: list[int], console: Console) -> Figures:
    figures: Figures = {}

    def is_selected(name: str) -> bool:
        return not only or name in only

    if is_selected("tools"):
        with run_server(folder / "tools", servers=str(_servers_file(folder))) as running:
            figures["tools"] = await _tools(running, quick=quick)
            figures["tools_rss"] = {"mb": round(running.rss_mb(), 1)}
    if is_selected("remember"):
        with run_server(folder / "remember") as running:
            figures["remember"] = await _remembers(running, quick=quick)
            if is_selected("indexing"):
                figures["indexing"] = await _indexing_while_reading(running)
    if is_selected("recall"):
        for size in sizes:
            with run_server(folder / "recall") as running:
                filled = await _fill(running, size, console)
            with run_server(folder / "recall") as running:
                figures[f"recall_{size}"] = {
                    **await _recalls(running, size),
                    "filled": filled,
                    "start_s": round(running.started_s, 2),
                    "rss_mb": round(running.rss_mb(), 1),
                    "disk_mb": round(sum(file.stat().st_size for file in (folder / "recall").glob("*.db*")) / 1e6, 1),
                }
            console.print(f"recall_{size}", figures[f"recall_{size}"])
    if is_selected("start"):
        figures["start"] = measure_starts(folder / "starts", {"this": THIS_TREE}, rounds=2 if quick else 7)["this"]
    return figures


def _servers_file(folder: Path) -> Path:
    path = folder / "servers.json"
    path.write_text(json.dumps(_TIME_SERVER), encoding="utf-8")
    return path


def main() -> None:
    """Measure the figures, print them, and write them as JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small numbers, to check that everything runs")
    parser.add_argument(
        "--only", nargs="*", default=[], choices=["tools", "remember", "indexing", "recall", "start", "guard", "flood", "tool_catalogue"]
    )
    parser.add_argument("--sizes", nargs="*", type=int, default=None, help="numbers of memories at which recall is measured")
    parser.add_argument("--out", type=Path, default=None, help="output file of the figures, as JSON")
    options = parser.parse_args()
    console = Console()
    sizes = options.sizes or ([1000] if options.quick else [10_000, 100_000])
    folder = Path(tempfile.mkdtemp(prefix="rookery-bench-"))
    try:
        figures = asyncio.run(_measure_all(folder, quick=options.quick, only=set(options.only), sizes=sizes, console=console))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if not options.only or "guard" in options.only:
        subprocess.run([sys.executable, "-m", "benchmarks.guard"], check=True)
    if not options.only or "flood" in options.only:
        short = ["--rounds", "1", "--seconds", "2"] if options.quick else []
        subprocess.run([sys.executable, "-m", "benchmarks.flood", *short], check=True)
    if not options.only or "tool_catalogue" in options.only:
        subprocess.run([sys.executable, "-m", "benchmarks.tool_catalogue"], check=True)
    table = Table("figure", "value", title=f"{platform.processor() or platform.machine()}, Python {platform.python_version()}")
    for name, values in figures.items():
        for key, value in values.items():
            table.add_row(f"{name}.{key}", json.dumps(value))
    console.print(table)
    if options.out is not None:
        options.out.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
