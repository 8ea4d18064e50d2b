"""
Recall in large stores: `python -m benchmarks.large_store --sizes 10000 100000 1000000 --out figures.json`.

The record store and both indexes are filled directly: embedding a million memories takes most of an hour on one core. Their
vectors are synthetic (see `large_store_vectors`), their texts are made from word lists; all are in one workspace, in 10 orgs of
10 projects, a fifth of them 20 agents' own. Then a server is started on the folder and receives one new question after the other over HTTP,
each embedded by the real model. The share of the ten nearest that is found is measured on the index alone, with questions that have
neighbours, against an exact search. `--folder` keeps a store for another run.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import platform
import random
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import Progress

from benchmarks.large_store_vectors import DIMENSION, Floats, Mixture
from benchmarks.load import Connection, Timings, measure
from benchmarks.servers import Running, run_server
from benchmarks.texts import TYPES, questions, texts
from rookery.engines import embedders
from rookery.engines import texts as text_engines
from rookery.engines import vectors as vector_engines
from rookery.kernel.db import Tx, open_database
from rookery.kernel.ids import uuid7
from rookery.memory.indexing import build_document as document_of
from rookery.memory.models import AccessFilter, EmbeddedDocument, Memory, MemoryScope
from rookery.memory.store import records
from rookery.memory.visibility import build_vector_filter

_BATCH = 2000
_NOW = datetime(2026, 11, 21, tzinfo=UTC)
_READY_S = 1800.0

FILTERS: dict[str, dict[str, object]] = {
    "workspace": {},
    "org": {"org": "org3"},
    "project": {"org": "org3", "project": "p7"},
    "agent": {"agent_id": "agent7", "include_scopes": ["agent"]},
}


OTHERS = (
    "memories",
    "memories?org=org3&project=p7",
    "memories?tags=t3",
    "scopes",
    "tags",
    "search?q=billing+service",
    "agent/agent7/context",
)


def main() -> None:
    """Fill, measure and print each size."""
    arguments = argparse.ArgumentParser(description=(__doc__ or "").strip().splitlines()[0])
    arguments.add_argument("--sizes", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    arguments.add_argument("--questions", type=int, default=300)
    arguments.add_argument("--folder", type=Path, help="folder of the stores, which are kept (default: a temporary folder)")
    arguments.add_argument("--out", type=Path, help="output file of the figures")
    arguments.add_argument("--fill", action="store_true", help="only fill the stores")
    options = arguments.parse_args()
    console = Console()
    folder: Path = options.folder or Path(tempfile.mkdtemp(prefix="rookery-large-"))
    figures: dict[str, object] = {"machine": platform.machine(), "python": platform.python_version()}
    try:
        for size in options.sizes:
            filled_s = fill(folder / str(size), size, console)
            if options.fill:
                continue
            size_figures: dict[str, object] = {"filled_s": filled_s, **asyncio.run(measure_size(folder / str(size), options.questions))}
            size_figures["found_of_ten_nearest"] = asyncio.run(measure_recall(folder / str(size), size))
            figures[str(size)] = size_figures
            console.print_json(json.dumps({str(size): size_figures}))
    finally:
        if options.folder is None:
            shutil.rmtree(folder, ignore_errors=True)
    if options.out is not None:
        options.out.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


def fill(folder: Path, size: int, console: Console) -> float | None:
    """Create a store of *size* memories unless it exists; return the seconds."""
    complete_marker = folder / "whole"
    if complete_marker.exists():
        return None
    with run_server(folder) as running:
        workspace_id = running.workspace_id
    started = time.perf_counter()
    asyncio.run(insert_memories(folder, workspace_id, size, console))
    complete_marker.touch()
    return round(time.perf_counter() - started, 1)


async def insert_memories(folder: Path, workspace_id: int, size: int, console: Console) -> None:
    """Insert *size* memories into the three stores. Another call inserts the same ones with new ids."""
    embedder = embedders.open("embedded:", data_dir=folder)
    db = open_database("embedded:", data_dir=folder)
    by_meaning = vector_engines.open("embedded:", data_dir=folder, model=embedder.model, dimension=DIMENSION)
    by_words = text_engines.open("embedded:", data_dir=folder)
    memories = _memories(workspace_id, embedder.model)
    with Progress(console=console, disable=not console.is_terminal) as progress:
        for rows in progress.track(list_of_batches(size), description=f"filling {size:,}"):
            some = list(islice(memories, len(rows)))
            documents = [document_of(memory) for memory in some]

            def add(tx: Tx, some: list[Memory] = some) -> None:
                for memory in some:
                    records.add(tx, memory)

            await asyncio.gather(
                db.write(add),
                by_words.put(documents),
                by_meaning.put(
                    [EmbeddedDocument(document=document, vectors=(row.tobytes(),)) for document, row in zip(documents, rows, strict=True)]
                ),
            )
    await by_words.close()
    await by_meaning.close()
    await embedder.close()
    await db.close()


def list_of_batches(size: int) -> Iterator[Floats]:
    """Yield the vectors of the store in batches."""
    for rows in Mixture().memories(size):
        yield from np.array_split(rows, -(-len(rows) // _BATCH))


def _memories(workspace_id: int, model: str) -> Iterator[Memory]:
    dice = random.Random(6)
    for number, content in enumerate(texts(seed=31)):
        agent = f"agent{dice.randrange(20)}" if dice.random() < 0.2 else None
        at = _NOW - timedelta(seconds=number)
        yield Memory(
            id=uuid7(),
            workspace_id=workspace_id,
            org=f"org{dice.randrange(10)}",
            project=f"p{dice.randrange(10)}",
            agent_id=agent,
            session_id=None,
            memory_scope=MemoryScope.AGENT if agent else MemoryScope.PROJECT,
            type=dice.choice(TYPES),
            tags=(f"t{number % 7}",),
            confidence=0.8,
            base_confidence=0.8,
            source="manual",
            content=content,
            indexed_at=at,
            content_at=at,
            created_at=at,
            updated_at=at,
            indexed_model=model,
        )


async def measure_size(folder: Path, number: int) -> Mapping[str, object]:
    """Start a server on the store, wait until its indexes are built, and send the questions."""
    with run_server(folder) as running:
        ready_s = await _wait_until_ready(running, folder)
    with run_server(folder) as running:
        opened = await _measure_requests(running, 1, {}, seed=2)
        figures: dict[str, object] = {
            "start_s": round(running.started_s, 2),
            "first_question_ms": round(opened.p50, 1),
            "lists_ready_s": round(ready_s, 1),
        }
        recalls: dict[str, object] = {}
        for seed, (name, inside) in enumerate(FILTERS.items()):
            for mode in ("semantic", "hybrid"):
                timed = await _measure_requests(running, number, {**inside, "mode": mode}, seed=10 + seed)
                recalls[f"{name}, {mode}"] = timed.as_json()
        figures["recall"] = recalls
        figures["recall_4_clients"] = (await _measure_requests(running, number * 2, {}, seed=40, clients=4)).as_json()
        figures["memory_mb"] = memory_of(running.pid)
        figures["others"] = {path: (await _get(running, path)).as_json() for path in OTHERS}
    figures["disk_mb"] = disk_of(folder)
    return figures


async def _measure_requests(running: Running, number: int, more: Mapping[str, object], *, seed: int, clients: int = 1) -> Timings:
    texts = list(islice(questions(seed=seed), number + 20))
    return await measure(
        running.url,
        running.api_key,
        lambda n: ("POST", "/v1/brain/recall", {"query": texts[n], "top_k": 5, **more}),
        count=number,
        clients=clients,
        warm=0 if number == 1 else 10,
    )


async def _get(running: Running, path: str) -> Timings:
    return await measure(running.url, running.api_key, lambda _: ("GET", f"/v1/brain/{path}", None), count=10, clients=1, warm=1)


async def _wait_until_ready(running: Running, folder: Path) -> float:
    """Wait until the inverted lists of the index are built, which only large stores have."""
    started = time.perf_counter()
    connection = Connection(running.url, running.api_key)
    while time.perf_counter() - started < _READY_S:
        status, body = await connection.send("GET", "/v1/brain/memories?per_page=1")
        assert status == 200, body
        if int(json.loads(body)["meta"]["total"]) < 40_000 or has_lists(folder):
            break
        await asyncio.sleep(0.5)
    await connection.close()
    return time.perf_counter() - started


async def measure_recall(folder: Path, size: int) -> Mapping[str, float]:
    """Return the share of the ten nearest that the index finds, by filter."""
    embedder = embedders.open("embedded:", data_dir=folder)
    index = vector_engines.open("embedded:", data_dir=folder, model=embedder.model, dimension=DIMENSION)
    world = Mixture()
    rows = np.concatenate(list(world.memories(size)))
    queries = world.questions(100)
    workspace_id = json.loads((folder / "keys.json").read_text(encoding="utf-8"))["workspace_id"]
    memories = list(islice(_memories(workspace_id, "-"), size))
    shares: dict[str, float] = {}
    for name in FILTERS:
        within = _within(name, workspace_id)
        visible = np.array([_is_visible(within, memory) for memory in memories])
        scores = queries @ rows[visible].T
        hits = 0
        for question, row in zip(queries, scores, strict=True):
            least = np.partition(row, -10)[-10] - 1e-6
            near = await index.search(question.tobytes(), where=build_vector_filter(within), limit=100)
            hits += sum(1 for hit in near[:10] if hit.similarity >= least)
        shares[name] = round(hits / (10 * len(queries)), 4)
    await index.close()
    await embedder.close()
    return shares


def _within(name: str, workspace_id: int) -> AccessFilter:
    """Return one of `FILTERS` as an `AccessFilter`."""
    everywhere = AccessFilter(workspace_id=workspace_id, at=_NOW)
    return {
        "workspace": everywhere,
        "org": replace(everywhere, org="org3"),
        "project": replace(everywhere, org="org3", project="p7"),
        "agent": replace(everywhere, agent_id="agent7", scopes=frozenset({MemoryScope.AGENT})),
    }[name]


def _is_visible(within: AccessFilter, memory: Memory) -> bool:
    """Return whether a filter includes a memory; a short form for the memories and filters of this benchmark."""
    if memory.agent_id is not None and memory.agent_id != within.agent_id:
        return False
    if within.scopes is not None and memory.memory_scope not in within.scopes:
        return False
    private = memory.agent_id is not None
    return (within.org is None or memory.org == within.org or (memory.org is None and private)) and (
        within.project is None or memory.project == within.project
    )


def memory_of(pid: int) -> dict[str, float]:
    """Return the memory of a process: its own, and that of mapped files, which the system can reclaim."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    values = {line.split(":")[0]: int(line.split()[1]) * 1024 / 1e6 for line in lines if line.startswith("Rss")}
    return {"own": round(values["RssAnon"], 1), "mapped": round(values["RssFile"], 1)}


def has_lists(folder: Path) -> bool:
    """Return whether the inverted lists of a large workspace are built."""
    return any(folder.glob("vectors.lists/*.lists"))


def disk_of(folder: Path) -> dict[str, float]:
    """Return the megabytes of each part of a store."""
    sizes = {path.name: sum(file.stat().st_size for file in files_of(path)) / 1e6 for path in sorted(folder.iterdir())}
    return {name: round(size, 1) for name, size in sizes.items() if size >= 0.5}


def files_of(path: Path) -> Iterator[Path]:
    """Yield the files at *path* and below."""
    yield from (file for file in ([path] if path.is_file() else path.rglob("*")) if file.is_file())


if __name__ == "__main__":
    main()
