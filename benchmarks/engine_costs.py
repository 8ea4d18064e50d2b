"""
Measure the cost of a memory and of a recall in each engine: `python -m benchmarks.engine_costs --n 20000`.

Fills a store with memories of about 460 characters, one chunk each, and prints bytes per memory in records, vectors and texts, and the
seconds of CPU of each process for a recall, and for a memory from the request until it is indexed. First with the embedded engines, then,
with `--servers`, with PostgreSQL, pgvector and OpenSearch, which the command starts itself (`mvn` and a JDK 21 are needed).

The vectors are synthetic (`large_store_vectors`), for embedding does not change their size. The memories and questions over HTTP are
embedded by the real model. CPU time hardly depends on other work of the machine, unlike time by the clock.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import cast
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import numpy as np
import psycopg

from benchmarks.large_store_vectors import DIMENSION, Mixture
from benchmarks.load import Connection, measure
from benchmarks.servers import Running, run_server
from benchmarks.texts import TYPES, questions, texts
from rookery.engines import embedders
from rookery.engines import texts as text_engines
from rookery.engines import vectors as vector_engines
from rookery.kernel.db import Tx, open_database
from rookery.kernel.ids import uuid7
from rookery.memory.indexing import build_document
from rookery.memory.models import EmbeddedDocument, Memory, MemoryScope
from rookery.memory.store import records
from tests.postgres import create_database, start_postgres
from tests.search_servers import make_data_folder, run_search_node

_BATCH = 500
_SENTENCES = 4
_MIN_INDEXED = 10_000
"""The size of a workspace beyond which pgvector builds an index."""
_DEADLINE_S = 1200.0
_NOW = datetime(2026, 11, 21, tzinfo=UTC)
_TICKS = os.sysconf("SC_CLK_TCK")
_SECRET_KEY = "only of this benchmark: 5e0f1c7a9d"  # noqa: S105 - of a store that is deleted at the end


@dataclass(frozen=True, slots=True, kw_only=True)
class Engines:
    """The engines of one measurement: settings of the server, and what it needs to be measured."""

    settings: Mapping[str, str]
    sizes: Callable[[], Mapping[str, int]]
    cpu: Callable[[], Mapping[str, float]]
    is_indexed: Callable[[], bool]


def main() -> None:
    """Measure and print."""
    arguments = argparse.ArgumentParser(description=(__doc__ or "").strip().splitlines()[0])
    arguments.add_argument("--n", type=int, default=20_000)
    arguments.add_argument("--requests", type=int, default=400)
    arguments.add_argument("--servers", action="store_true", help="also PostgreSQL, pgvector and OpenSearch")
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory(prefix="rookery-costs-") as name, ExitStack() as stack:
        folder = Path(name)
        folder.chmod(0o755)  # PostgreSQL runs as another user
        variants = {"embedded": _embedded(folder / "embedded")}
        if options.servers:
            variants["servers"] = _start_servers(stack, folder)
        for variant, engines in variants.items():
            print(json.dumps({variant: measure_engines(folder / variant, engines, options.n, options.requests)}, indent=1))


def _embedded(folder: Path) -> Engines:
    files = {"records": "records.db*", "vectors": "vectors.db*", "texts": "texts.db*", "lists": "vectors.lists/*"}

    def sizes() -> dict[str, int]:
        return {part: sum(path.stat().st_size for path in folder.glob(pattern)) for part, pattern in files.items()}

    return Engines(settings={}, sizes=sizes, cpu=dict, is_indexed=lambda: True)


def _start_servers(stack: ExitStack, folder: Path) -> Engines:
    directory = folder / "postgres"
    directory.mkdir()
    server = stack.enter_context(start_postgres(directory))
    database = create_database(server, "rookery")
    node = stack.enter_context(run_search_node("opensearch", stack.enter_context(make_data_folder())))
    postmaster = int((directory / "data" / "postmaster.pid").read_text(encoding="ascii").split()[0])
    texts_url = f"opensearch://{urlsplit(node.url).netloc}/rookery-memories"

    def sizes() -> dict[str, int]:
        with psycopg.connect(database, autocommit=True) as connection:
            connection.execute("VACUUM ANALYZE")  # the test's server has no autovacuum, and without statistics it plans badly
            tables = connection.execute(
                "SELECT relname, pg_table_size(oid), pg_indexes_size(oid) FROM pg_class WHERE relkind = 'r' AND relnamespace = "
                "'public'::regnamespace"
            ).fetchall()
        vectors = [(heap, index) for name, heap, index in tables if str(name).startswith("rookery_vectors_")]
        return {
            "records": sum(heap + index for name, heap, index in tables if not str(name).startswith("rookery_vector")),
            "vectors": sum(heap for heap, _ in vectors),
            "vector indexes": sum(index for _, index in vectors),
            "texts": _store_bytes(node.url),
        }

    def is_indexed() -> bool:
        with psycopg.connect(database) as connection:
            rows = connection.execute(
                "SELECT 1 FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid WHERE relname LIKE '%hnsw' AND indisvalid"
            ).fetchall()
        return bool(rows)

    return Engines(
        settings={"database_url": database, "vectors": database, "texts": texts_url, "secret_key": _SECRET_KEY},
        sizes=sizes,
        cpu=lambda: {"PostgreSQL": _cpu_of(postmaster, with_children=True), "OpenSearch": _cpu_of(node.process.pid)},
        is_indexed=is_indexed,
    )


def _store_bytes(url: str) -> int:
    """Return the bytes of all shards, after merging what deletions and small segments leave."""
    for path in ("_forcemerge?max_num_segments=1", "_flush?wait_if_ongoing=true"):
        urlopen(Request(f"{url}/{path}", method="POST"), timeout=_DEADLINE_S).close()  # noqa: S310 - our own server's address
    with urlopen(f"{url}/_stats/store", timeout=_DEADLINE_S) as answer:  # noqa: S310
        return int(json.loads(answer.read())["_all"]["primaries"].get("store", {"size_in_bytes": 0})["size_in_bytes"])


def _cpu_of(pid: int, *, with_children: bool = False) -> float:
    """Return the seconds of CPU of a process; with those of its children, ended or not."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    ticks = sum(map(int, fields[11 : 15 if with_children else 13]))
    if with_children:
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split():
            try:
                ticks += round(_cpu_of(int(child)) * _TICKS)
            except FileNotFoundError:
                continue
    return ticks / _TICKS


def measure_engines(folder: Path, engines: Engines, size: int, requests: int) -> Mapping[str, object]:
    """Fill the engines with *size* memories, and return bytes and seconds of CPU."""
    with run_server(folder, **engines.settings) as running:
        workspace_id = running.workspace_id
    empty = engines.sizes()
    started = time.perf_counter()
    characters = asyncio.run(_fill(folder, engines.settings, workspace_id, size))
    figures: dict[str, object] = {"memories": size, "characters": round(characters), "filled_s": round(time.perf_counter() - started, 1)}
    with run_server(folder, **engines.settings) as running:
        if size > _MIN_INDEXED:
            asyncio.run(_remember(running, 1))  # a write begins the index of vectors
            _wait_until(engines.is_indexed)
        figures["bytes_per_memory"] = {part: round((count - empty[part]) / size, 1) for part, count in engines.sizes().items()}
        asyncio.run(_recall(running, 50))
        figures["recall_cpu_ms"] = _measure_cpu(running, engines, requests, lambda: asyncio.run(_recall(running, requests)))
        figures["remember_cpu_ms"] = _measure_cpu(running, engines, requests, lambda: asyncio.run(_remember(running, requests)))
        figures["resident_mb"] = round(running.rss_mb(), 1)
    return figures


def _wait_until(claim: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _DEADLINE_S
    while not claim():
        if time.monotonic() > deadline:
            raise TimeoutError
        time.sleep(0.5)


def _measure_cpu(running: Running, engines: Engines, requests: int, run: Callable[[], object]) -> dict[str, float]:
    before = {"Rookery": _cpu_of(running.pid), **engines.cpu()}
    run()
    after = {"Rookery": _cpu_of(running.pid), **engines.cpu()}
    return {name: round((after[name] - before[name]) / requests * 1000, 2) for name in after}


async def _recall(running: Running, count: int) -> None:
    asked = list(islice(questions(seed=random.SystemRandom().randrange(10**9)), count))
    await measure(
        running.url,
        running.api_key,
        lambda number: ("POST", "/v1/brain/recall", {"query": f"{asked[number]} {time.time_ns()}", "mode": "hybrid", "top_k": 5}),
        count=count,
        warm=0,
    )


async def _remember(running: Running, count: int) -> None:
    """Store memories by eight writers, and return when all of them are indexed."""
    contents = list(islice(_contents(seed=time.time_ns()), count))
    await measure(
        running.url,
        running.api_key,
        lambda number: ("POST", "/v1/brain/remember", {"type": "fact", "content": contents[number]}),
        count=count,
        clients=8,
        expect=201,
        warm=0,
    )
    connection = Connection(running.url, running.api_key)
    last = {"type": "fact", "content": f"The last of all. {time.time_ns()}"}
    _, body = await connection.send("POST", "/v1/brain/remember", last)
    path = f"/v1/brain/memories/{json.loads(body)['id']}"
    deadline = time.monotonic() + _DEADLINE_S
    while not json.loads((await connection.send("GET", path))[1])["indexed"]:
        if time.monotonic() > deadline:
            raise TimeoutError
        await asyncio.sleep(0.5)
    await connection.close()


def _contents(seed: int) -> Iterator[str]:
    sentences = texts(seed=seed)
    while True:
        yield " ".join(islice(sentences, _SENTENCES))


async def _fill(folder: Path, settings: Mapping[str, str], workspace_id: int, size: int) -> float:
    """Store *size* memories in all three engines, and return the characters of one."""
    embedder = embedders.open("embedded:", data_dir=folder)
    db = open_database(settings.get("database_url", "embedded:"), data_dir=folder)
    by_meaning = vector_engines.open(settings.get("vectors", "embedded:"), data_dir=folder, model=embedder.model, dimension=DIMENSION)
    by_words = text_engines.open(settings.get("texts", "embedded:"), data_dir=folder)
    rows = np.concatenate(list(Mixture().memories(size)))
    memories = list(islice(_memories(workspace_id, embedder.model), size))
    for start in range(0, size, _BATCH):
        some = memories[start : start + _BATCH]
        documents = [build_document(memory) for memory in some]

        def add(tx: Tx, some: list[Memory] = some) -> None:
            for memory in some:
                records.add(tx, memory)

        await db.write(add)
        await by_words.put(documents)
        await by_meaning.put(
            [EmbeddedDocument(document=document, vectors=(row.tobytes(),)) for document, row in zip(documents, rows[start:], strict=False)]
        )
    for engine in (by_words, by_meaning, embedder, db):
        await engine.close()
    return cast("float", np.mean([len(memory.content) for memory in memories]))


def _memories(workspace_id: int, model: str) -> Iterator[Memory]:
    dice = random.Random(6)
    for number, content in enumerate(_contents(seed=31)):
        at = _NOW - timedelta(seconds=number)
        yield Memory(
            id=uuid7(), workspace_id=workspace_id, org=f"org{dice.randrange(10)}", project=f"p{dice.randrange(10)}", agent_id=None,
            session_id=None, memory_scope=MemoryScope.PROJECT, type=dice.choice(TYPES), tags=(f"t{number % 7}",), confidence=0.8,
            base_confidence=0.8, source="manual", content=content, indexed_at=at, content_at=at, created_at=at, updated_at=at,
            indexed_model=model,
        )  # fmt: skip


if __name__ == "__main__":
    main()
