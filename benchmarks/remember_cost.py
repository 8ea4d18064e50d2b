"""
Cost of one `remember`: CPU time and wake-ups by thread, for one or several source trees in turns.

    python -m benchmarks.remember_cost --trees . /tmp/old --writers 1 --rounds 6

CPU time depends less on other load of the machine than elapsed time. While the server of one tree is measured, the others are
suspended, so that their indexing has no effect. Lines that run before the server name its threads.

With `--alone` the servers use an embedding service that does not respond, so that only the requests themselves are measured.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from benchmarks.load import Connection, Timings, measure
from benchmarks.servers import stop_process
from benchmarks.texts import TYPES, texts

_THREAD_NAMING_SCRIPT = """
import runpy, sys, threading
run = threading.Thread.run
def named(thread):
    with open(f"/proc/self/task/{threading.get_native_id()}/comm", "w") as comm:
        comm.write(thread.name.split("_")[0][:15])
    run(thread)
threading.Thread.run = named
sys.argv[0] = "rookery"
runpy.run_module("rookery", run_name="__main__")
"""
_NOBODY = "openai://127.0.0.1:9/v1?model=none&dimensions=384"
_START_S = 60.0
_LOOK_S, _MOST_LOOKS = 0.2, 600

Costs = Mapping[str, float]
"""Microseconds of CPU by thread; unnamed threads are summed up."""


@dataclass(slots=True, kw_only=True)
class _Tree:
    """A server on one source tree, and its measurements."""

    name: str
    pid: int
    url: str
    key: str
    number: int = 0
    p50_ms: list[float] = field(default_factory=list[float])
    per_s: list[float] = field(default_factory=list[float])
    answering_us: list[Costs] = field(default_factory=list[Costs])
    whole_us: list[float] = field(default_factory=list[float])
    switches: list[float] = field(default_factory=list[float])


@contextmanager
def _server(tree: Path, folder: Path, *, alone: bool) -> Generator[_Tree]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ROOKERY_")}
    environment["PYTHONPATH"] = str(tree / "src")
    if alone:
        environment["ROOKERY_EMBEDDER"] = _NOBODY
    folder.mkdir(parents=True)
    base = [sys.executable, "-c", _THREAD_NAMING_SCRIPT, "--data-dir", str(folder)]
    initialized = subprocess.run([*base, "init", "--json"], env=environment, capture_output=True, check=True, timeout=_START_S)
    with (folder / "server.log").open("ab") as log:
        process = subprocess.Popen([*base, "serve", "--port", "0"], env=environment, stdout=subprocess.PIPE, stderr=log)
    try:
        assert process.stdout is not None
        line = process.stdout.readline().decode()
        url = next(word.rstrip(",;") for word in line.split() if word.startswith("http"))
        yield _Tree(name=str(tree), pid=process.pid, url=url, key=json.loads(initialized.stdout)["api_key"])
    finally:
        process.send_signal(signal.SIGCONT)
        stop_process(process)


def _cpu_us(pid: int) -> Counter[str]:
    """Return the CPU microseconds of the threads so far, summed up by name."""
    used = Counter[str]()
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            name, spent = (task / "comm").read_text().strip(), (task / "schedstat").read_text().split()[0]
        except OSError:  # a thread that ended meanwhile
            continue
        used["loop" if task.name == str(pid) else name] += int(spent) // 1000
    return used


def _switches(pid: int) -> int:
    """Return the number of voluntary context switches of the process's threads."""
    switches = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            status = (task / "status").read_text()
        except OSError:
            continue
        switches += sum(int(line.split()[1]) for line in status.splitlines() if line.startswith("voluntary_ctxt"))
    return switches


async def _pending(tree: _Tree) -> int:
    connection = Connection(tree.url, tree.key)
    _, body = await connection.send("GET", "/v1/brain/memories?per_page=1&state=pending_embed")
    await connection.close()
    return int(json.loads(body)["meta"]["total"])


async def _round(tree: _Tree, *, count: int, writers: int, batch: int, alone: bool) -> None:
    contents = list(islice(texts(seed=tree.number + 5), count * batch + 20))
    tree.number += 1

    def draft(number: int) -> dict[str, object]:
        return {
            "content": contents[number],
            "type": TYPES[number % len(TYPES)],
            "org": "acme",
            "project": f"p{number % 10}",
            "tags": [f"t{number % 7}"],
        }

    def request(number: int) -> tuple[str, str, Mapping[str, object]]:
        number = max(number, 0)
        if batch == 1:
            return ("POST", "/v1/brain/remember", draft(number))
        return ("POST", "/v1/brain/remember/batch", {"memories": [draft(number * batch + offset) for offset in range(batch)]})

    before, switches = _cpu_us(tree.pid), _switches(tree.pid)
    timed: Timings = await measure(tree.url, tree.key, request, count=count, clients=writers, expect=201 if batch == 1 else 200, warm=0)
    spent = _cpu_us(tree.pid) - before
    memories = count * batch
    tree.p50_ms.append(timed.p50)
    tree.per_s.append(timed.rate * batch)
    tree.switches.append((_switches(tree.pid) - switches) / memories)
    tree.answering_us.append({name: value / memories for name, value in spent.items()})
    if alone:
        return
    for _ in range(_MOST_LOOKS):
        if not await _pending(tree):
            break
        await asyncio.sleep(_LOOK_S)
    tree.whole_us.append(sum((_cpu_us(tree.pid) - before).values()) / memories)


async def _take(options: argparse.Namespace, folder: Path) -> None:
    with ExitStack() as stack:
        trees = [
            stack.enter_context(_server(tree.resolve(), folder / str(index), alone=options.alone))
            for index, tree in enumerate(options.trees)
        ]
        for tree in trees:
            await _round(tree, count=100, writers=options.writers, batch=options.batch, alone=options.alone)
            for values in (tree.p50_ms, tree.per_s, tree.switches, tree.answering_us, tree.whole_us):
                values.clear()
            os.kill(tree.pid, signal.SIGSTOP)
        for number in range(options.rounds):
            for tree in trees if number % 2 else reversed(trees):
                os.kill(tree.pid, signal.SIGCONT)
                await _round(tree, count=options.count, writers=options.writers, batch=options.batch, alone=options.alone)
                os.kill(tree.pid, signal.SIGSTOP)
        for tree in trees:
            _print_tree(tree)


def _print_tree(tree: _Tree) -> None:
    middle = statistics.median
    names = sorted({name for costs in tree.answering_us for name in costs})
    by_thread = {name: middle(costs.get(name, 0.0) for costs in tree.answering_us) for name in names}
    figures = {
        "tree": tree.name,
        "p50_ms": round(middle(tree.p50_ms), 3),
        "best_p50_ms": round(min(tree.p50_ms), 3),
        "per_s": round(middle(tree.per_s)),
        "cpu_us_until_answered": round(sum(by_thread.values())),
        "least_cpu_us_until_answered": round(min(sum(costs.values()) for costs in tree.answering_us)),
        "by_thread": {name: round(value) for name, value in by_thread.items() if value >= 1},
        "waits": round(middle(tree.switches), 1),
        "cpu_us_until_indexed": round(middle(tree.whole_us)) if tree.whole_us else None,
    }
    print(json.dumps(figures, indent=1))


def main() -> None:
    """Measure and print the figures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.remember_cost", description=__doc__)
    parser.add_argument("--trees", nargs="+", type=Path, default=[Path()], help="source trees, each with a folder src")
    parser.add_argument("--writers", type=int, default=1)
    parser.add_argument("--batch", type=int, default=1, help="memories per request; above 1 it is POST /remember/batch")
    parser.add_argument("--count", type=int, default=300, help="requests per round")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--alone", action="store_true", help="without indexing")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="rookery-remembering-"))
    try:
        asyncio.run(_take(options, folder))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
