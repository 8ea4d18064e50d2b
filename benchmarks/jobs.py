"""
Jobs run per second by several processes that share a record store.

    python -m benchmarks.jobs --jobs 20000 --processes 4 --batch 32
    python -m benchmarks.jobs --database postgresql://postgres@127.0.0.1:5432/postgres

The jobs do nothing, so what is measured is the queue: a claim and a completion of each batch are one transaction each. Without
`--database`, it measures SQLite, and a PostgreSQL that it starts itself with its usual durability. Every job must run exactly once.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from rookery.kernel.clock import utc_now
from rookery.kernel.db import open_database
from rookery.kernel.ids import uuid7
from rookery.kernel.jobs import Job, JobKind, JobOutcome, JobQueue, JobWorker
from rookery.migrations import migrate

_KIND = "Benchmark"
_DEADLINE_S = 600.0
_MAX_ENQUEUED_AT_ONCE = 500


async def fill(url: str, folder: Path, count: int) -> None:
    """Add *count* jobs."""
    db = open_database(url, data_dir=folder)
    queue = JobQueue(db, utc_now, uuid7)
    for first in range(0, count, _MAX_ENQUEUED_AT_ONCE):
        new_jobs = [(1, {"n": number}) for number in range(first, min(first + _MAX_ENQUEUED_AT_ONCE, count))]
        await db.write(lambda tx, new_jobs=new_jobs: queue.enqueue_many(tx, _KIND, new_jobs))
    await db.close()


async def work(url: str, folder: Path, *, batch_size: int) -> list[int]:
    """Run jobs until none is left; return the numbers of those that this process ran."""
    db = open_database(url, data_dir=folder)
    numbers = list[int]()

    async def handle(batch: Sequence[Job]) -> Mapping[str, JobOutcome]:
        numbers.extend(int(str(job.payload["n"])) for job in batch)
        return {}

    worker = JobWorker(JobQueue(db, utc_now, uuid7), [JobKind(name=_KIND, handler=handle, batch_size=batch_size)], lease_s=60)
    while await worker.run_ready(_KIND):
        pass
    await db.close()
    return numbers


def run_workers(url: str, folder: Path, *, processes: int, batch_size: int) -> tuple[list[list[int]], float]:
    """Run all jobs with *processes* workers. Return the jobs of each, and the seconds from the common start to the last end."""
    command = [sys.executable, "-m", "benchmarks.jobs", "--worker", "--database", url, "--folder", str(folder), "--batch", str(batch_size)]
    with ExitStack() as stack:
        workers = [
            stack.enter_context(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
            for _ in range(processes)
        ]
        try:
            for worker in workers:
                assert worker.stdout is not None
                assert worker.stdout.readline() == "ready\n"
            started = time.perf_counter()
            for worker in workers:
                assert worker.stdin is not None
                worker.stdin.close()
                worker.stdin = None
            outputs = [worker.communicate(timeout=_DEADLINE_S)[0] for worker in workers]
            elapsed_s = time.perf_counter() - started
        finally:
            for worker in workers:
                worker.kill()
    return [[int(number) for number in output.split()] for output in outputs], elapsed_s


def _run_worker(url: str, folder: Path, batch_size: int) -> None:
    print("ready", flush=True)
    sys.stdin.read()
    print(*asyncio.run(work(url, folder, batch_size=batch_size)))


def _measure(name: str, url: str, folder: Path, options: argparse.Namespace) -> None:
    migrate(url, data_dir=folder)
    started = time.perf_counter()
    asyncio.run(fill(url, folder, options.jobs))
    filled_s = time.perf_counter() - started
    ran, elapsed_s = run_workers(url, folder, processes=options.processes, batch_size=options.batch)
    assert sorted(number for numbers in ran for number in numbers) == list(range(options.jobs)), "a job was lost or ran twice"
    shares = "/".join(str(len(numbers)) for numbers in ran)
    print(f"{name}: {options.jobs / filled_s:,.0f} jobs/s enqueued, {options.jobs / elapsed_s:,.0f} jobs/s run ({shares} by process)")


@contextmanager
def _start_postgres() -> Generator[str]:
    """Run the PostgreSQL of the tests, but with the durability that a user has."""
    from tests.postgres import DURABLE_OPTIONS, start_postgres  # noqa: PLC0415 - needs the packages of `make dev`

    with tempfile.TemporaryDirectory(prefix="rookery-jobs-") as folder:
        Path(folder).chmod(0o755)
        with start_postgres(Path(folder), DURABLE_OPTIONS) as server:
            yield f"{server}/postgres"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--database")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        _run_worker(options.database, options.folder, options.batch)
        return
    with tempfile.TemporaryDirectory() as folder:
        if options.database:
            _measure("record store", options.database, Path(folder), options)
            return
        _measure("SQLite", "embedded:", Path(folder), options)
        with _start_postgres() as url:
            _measure("PostgreSQL", url, Path(folder), options)


if __name__ == "__main__":
    main()
