"""
Speed of the embedded indexes: `python -m benchmarks.engines --n 10000 100000`.

Vectors are synthetic: unit vectors of 384 floats around 64 random topics, one per memory, in one workspace. Texts are
12 to 40 words drawn from 50,000 by Zipf's law; a query is a common, a middling and a rare word, joined by OR. Of the
memories 80 % are open to all and the rest 20 agents' own; there are 10 orgs of 5 projects. Each size runs in a
separate process, so that its memory can be measured; times are of a caller on the event loop, one query after the other.
"""

from __future__ import annotations

import argparse
import asyncio
import bisect
import itertools
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from rookery.engines import texts, vectors
from rookery.memory.models import AccessFilter, EmbeddedDocument, IndexDocument, MemoryScope, TextQuery, Vector
from rookery.memory.visibility import build_vector_filter, filter_ids

DIMENSION = 384
BATCH = 500
VOCABULARY = 50_000
NOW = datetime(2026, 11, 21, tzinfo=UTC)

FILTERS = {
    "no filter": AccessFilter(workspace_id=1, at=NOW),
    "org": AccessFilter(workspace_id=1, at=NOW, org="org3"),
    "org, project": AccessFilter(workspace_id=1, at=NOW, org="org3", project="project2"),
    "org, agent, type": AccessFilter(workspace_id=1, at=NOW, org="org3", agent_id="agent7", type="decision"),
}


def main() -> None:
    """Measure each size in a separate process."""
    arguments = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0] if __doc__ else None)
    arguments.add_argument("--n", type=int, nargs="+", default=[10_000, 100_000], help="numbers of memories")
    arguments.add_argument("--only", choices=["vectors", "texts"], help="measure only this index")
    arguments.add_argument("--queries", type=int, default=200)
    arguments.add_argument("--texts", default="embedded:", help="address of the full-text engine; a server needs an empty index")
    arguments.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    parsed = arguments.parse_args()
    for count in parsed.n:
        if parsed.here:
            with tempfile.TemporaryDirectory() as folder:
                asyncio.run(measure(count, parsed.queries, Path(folder), only=parsed.only, texts_address=parsed.texts))
            continue
        for port in [parsed.only] if parsed.only else ["vectors", "texts"]:
            options = ["--n", str(count), "--only", port, "--queries", str(parsed.queries), "--texts", parsed.texts, "--here"]
            subprocess.run([sys.executable, "-m", "benchmarks.engines", *options], check=True)


async def measure(count: int, queries: int, folder: Path, *, only: str, texts_address: str) -> None:
    """Print the figures of one port at one size."""
    print(f"\n{only}, {count:,} memories" + (f" of {DIMENSION} floats" if only == "vectors" else ""))
    if only == "vectors":
        await measure_vectors(count, queries, folder)
    else:
        await measure_texts(count, queries, folder, texts_address)


async def measure_vectors(count: int, queries: int, folder: Path) -> None:
    """Fill, reopen, load and query the vector index."""
    dice = np.random.default_rng(1)
    topics = dice.standard_normal((64, DIMENSION), dtype=np.float32)

    def some(number: int) -> list[Vector]:
        rows = topics[dice.integers(0, 64, number)] + dice.standard_normal((number, DIMENSION), dtype=np.float32)
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        return [row.tobytes() for row in rows.astype("<f4")]

    index = vectors.open("embedded:", data_dir=folder, model="synthetic", dimension=DIMENSION)
    spent = 0.0
    for documents in batches(count):
        items = [
            EmbeddedDocument(document=document, vectors=(vector,)) for document, vector in zip(documents, some(len(documents)), strict=True)
        ]
        started = time.perf_counter()
        await index.put(items)
        spent += time.perf_counter() - started
    print(f"  put in batches of {BATCH}: {count / spent:,.0f} memories/s")
    await index.close()

    index = vectors.open("embedded:", data_dir=folder, model="synthetic", dimension=DIMENSION)
    await index.start()
    before = resident_mb()
    started = time.perf_counter()
    await index.search(some(1)[0], where=build_vector_filter(FILTERS["no filter"]), limit=10)
    print(
        f"  first query (loads files): {time.perf_counter() - started:.2f} s, +{resident_mb() - before:.0f} MB, now {resident_mb():.0f} MB"
    )
    query_vectors = iter(itertools.cycle(some(queries)))
    for name, within in FILTERS.items():
        await report(
            f"near, {name}", queries, lambda within=within: index.search(next(query_vectors), where=build_vector_filter(within), limit=30)
        )
    ids = [f"memory-{number:08}" for number in random.Random(3).sample(range(count), 30)]
    await report("similarities of 30", queries, lambda: index.search(next(query_vectors), where=filter_ids(1, ids), limit=30))
    documents_ = iter([EmbeddedDocument(document=next(documents_of(1)), vectors=(vector,)) for vector in some(queries + 1)])
    await report("put one", queries, lambda: index.put([next(documents_)]))
    documents_ = iter([EmbeddedDocument(document=next(documents_of(1)), vectors=(vector,)) for vector in some(queries + 1)])

    async def put_and_search() -> None:
        await index.put([next(documents_)])
        await index.search(next(query_vectors), where=build_vector_filter(FILTERS["no filter"]), limit=30)

    await report("put one, then near", queries, put_and_search)
    started, busy = time.perf_counter(), time.process_time()
    await asyncio.gather(*(index.search(next(query_vectors), where=build_vector_filter(FILTERS["org"]), limit=30) for _ in range(queries)))
    rate = queries / (time.perf_counter() - started)
    print(f"  near, all at once: {rate:,.0f}/s, {(time.process_time() - busy) / queries * 1e3:.2f} ms of CPU each; {resident_mb():.0f} MB")
    await index.close()
    print(f"  file: {(folder / 'vectors.db').stat().st_size / 1e6:.0f} MB")


async def measure_texts(count: int, queries: int, folder: Path, address: str) -> None:
    """Fill and query the full-text index."""
    index = texts.open(address, data_dir=folder)
    spent = 0.0
    for documents in batches(count):
        started = time.perf_counter()
        await index.put(documents)
        spent += time.perf_counter() - started
    print(f"  put in batches of {BATCH}: {count / spent:,.0f} memories/s")
    dice = random.Random(2)
    ranks = (range(20, 60), range(100, 1000), range(2000, 20_000))
    text_queries = iter(itertools.cycle([TextQuery(any_of=tuple(f"word{dice.choice(rank):x}q" for rank in ranks)) for _ in range(queries)]))
    for name, within in FILTERS.items():
        await report(f"match, {name}", queries, lambda within=within: index.search(next(text_queries), access_filter=within, limit=30))
        await report(
            f"question, {name}",
            queries,
            lambda within=within: index.search(replace(next(text_queries), is_question=True), access_filter=within, limit=30),
        )
    since = AccessFilter(workspace_id=1, at=NOW, org="org3", since=NOW)
    common_queries = iter(
        itertools.cycle([TextQuery(any_of=tuple(f"word{dice.choice(range(60)):x}q" for _ in range(3))) for _ in range(queries)])
    )
    tagged = AccessFilter(workspace_id=1, at=NOW, tags=frozenset({"tag7"}))
    await report("match of common words, a tag of 1 %", queries, lambda: index.search(next(common_queries), access_filter=tagged, limit=30))
    await report("match, org, since", queries, lambda: index.search(next(text_queries), access_filter=since, limit=30))
    await report("total, no filter", queries, lambda: index.count(1, query=next(text_queries), access_filter=FILTERS["no filter"]))
    documents_ = itertools.cycle(list(documents_of(queries, seed=9)))
    await report("put one", queries, lambda: index.put([next(documents_)]))
    await index.close()
    print(f"  {resident_mb():.0f} MB" + (f"; file: {(folder / 'texts.db').stat().st_size / 1e6:.0f} MB" if address == "embedded:" else ""))


async def report(name: str, times: int, work: Callable[[], Awaitable[object]]) -> None:
    """Repeat *work* and print its times."""
    await work()
    times_s: list[float] = []
    for _ in range(times):
        started = time.perf_counter()
        await work()
        times_s.append(time.perf_counter() - started)
    times_s.sort()
    print(f"  {name}: p50 {times_s[times // 2] * 1e3:.2f} ms, p95 {times_s[int(times * 0.95)] * 1e3:.2f} ms")


def documents_of(count: int, *, seed: int = 1) -> Iterator[IndexDocument]:
    """Yield documents, the same in each run."""
    dice = random.Random(seed)
    cumulated = list(itertools.accumulate(1 / (rank + 3) for rank in range(VOCABULARY)))
    for number in range(count):
        words = (bisect.bisect(cumulated, dice.random() * cumulated[-1]) for _ in range(dice.randint(12, 40)))
        agent = None if dice.random() < 0.8 else f"agent{dice.randrange(20)}"
        yield IndexDocument(
            memory_id=f"memory-{number:08}",
            workspace_id=1,
            org=f"org{dice.randrange(10)}",
            project=f"project{dice.randrange(5)}",
            agent_id=agent,
            session_id=None,
            memory_scope=MemoryScope.AGENT if agent else MemoryScope.PROJECT,
            type=dice.choice(["observation", "decision", "context", "procedure"]),
            tags=tuple(f"tag{dice.randrange(200)}" for _ in range(dice.randrange(4))),
            confidence=dice.random(),
            source="manual",
            content=" ".join(f"word{word:x}q" for word in words),
            created_at=NOW,
            updated_at=NOW,
            expires_at=None,
        )


def batches(count: int) -> Iterator[Sequence[IndexDocument]]:
    """Yield *count* documents in batches."""
    documents = documents_of(count)
    while batch := list(itertools.islice(documents, BATCH)):
        yield batch


def resident_mb() -> float:
    """Return the resident memory of this process in MB."""
    with Path("/proc/self/statm").open(encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


if __name__ == "__main__":
    main()
