"""
Cost and gain of each full-text engine: `python -m benchmarks.large_texts --n 1000 100000 1000000`.

What ships (SQLite's FTS5, and above 20,000 memories a cache of it in tantivy) beside FTS5 alone, on the same texts and questions: searches,
one `put`, the start of a filled store, and resident memory. Each engine runs in a separate process. Texts are 12 to 40 words drawn from
200,000 by Zipf's law, all in one workspace of 10 orgs with 5 projects each; 30 % are 20 agents' own. A question is 1, 3 or
8 words of one of the texts, side by side where they stood so; the 20 commonest words are in no query, as stop words
are not. Times are of one caller on the event loop; `cpu_ms` is the processor time of all threads. `agrees` is the share of
FTS5's first 10 that is among the first 10.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from rookery.engines import texts
from rookery.engines.texts.embedded import EmbeddedTextIndex
from rookery.memory.models import AccessFilter, IndexDocument, MemoryScope, TextHit, TextQuery

VOCABULARY = 200_000
BATCH = 2_000
LIMIT = 100
NOW = datetime(2026, 11, 21, tzinfo=UTC)
LENGTHS = (1, 3, 8)
EXACT = 20
"""Questions that are compared with those of FTS5."""

EVERYTHING = AccessFilter(workspace_id=1, at=NOW)
WITHIN = {
    "workspace": EVERYTHING,
    "org": replace(EVERYTHING, org="org3"),
    "project": replace(EVERYTHING, org="org3", project="project2"),
    "agent": replace(EVERYTHING, agent_id="agent7"),
    "agent's own": replace(EVERYTHING, agent_id="agent7", scopes=frozenset({MemoryScope.AGENT})),
}

Match = Callable[[TextQuery, AccessFilter], Awaitable[Sequence[TextHit]]]


def contents(count: int, *, seed: int = 1) -> Iterator[str]:
    """Yield texts, the same in each run."""
    dice = np.random.default_rng(seed)
    shares = 1 / (np.arange(VOCABULARY) + 3)
    cumulated = np.cumsum(shares / shares.sum())
    for first in range(0, count, BATCH):
        lengths = dice.integers(12, 41, min(BATCH, count - first))
        words = np.searchsorted(cumulated, dice.random(int(lengths.sum())))
        ends = np.cumsum(lengths)
        for start, end in zip(ends - lengths, ends, strict=True):
            yield " ".join(f"w{word:x}q" for word in words[start:end])


def documents(count: int, *, first: int = 0, seed: int = 1) -> Iterator[IndexDocument]:
    """Yield the texts as documents of the index."""
    dice = random.Random(seed)
    for number, content in enumerate(contents(count, seed=seed), first):
        agent = None if dice.random() < 0.7 else f"agent{dice.randrange(20)}"
        yield IndexDocument(
            memory_id=f"memory-{number:08}",
            workspace_id=1,
            org=f"org{dice.randrange(10)}",
            project=f"project{dice.randrange(5)}",
            agent_id=agent,
            session_id=None,
            memory_scope=MemoryScope.AGENT if agent else MemoryScope.PROJECT,
            type=dice.choice(["observation", "decision", "context", "procedure"]),
            tags=(),
            confidence=0.8,
            source="manual",
            content=content,
            created_at=NOW,
            updated_at=NOW,
            expires_at=None,
        )


def questions(count: int, length: int, *, seed: int = 2) -> list[TextQuery]:
    """Return questions of *length* words."""
    dice = random.Random(seed)
    queries: list[TextQuery] = []
    common = {f"w{number:x}q" for number in range(20)}
    for content in contents(4 * count + 20, seed=1000 + seed):
        words = [word for word in dict.fromkeys(content.split()) if word not in common]
        if len(words) >= length and len(queries) < count:
            start = dice.randrange(len(words) - length + 1)
            queries.append(TextQuery(any_of=tuple(words[start : start + length]), is_question=True))
    return queries


async def fill(folder: Path, count: int) -> dict[str, object]:
    """Insert *count* documents into the index of *folder* unless they exist."""
    index = texts.open("embedded:", data_dir=folder)
    spent = 0.0
    source = documents(count)
    while batch := list(itertools.islice(source, BATCH)):
        started = time.perf_counter()
        await index.put(batch)
        spent += time.perf_counter() - started
    await index.close()
    return {"put_per_s": round(count / spent), "mb": size_mb(folder, "texts.db*")}


def size_mb(folder: Path, pattern: str) -> float:
    """Return the size of the files."""
    return round(sum(file.stat().st_size for file in folder.rglob(pattern) if file.is_file()) / 1e6, 1)


async def timed(match: Match, queries: Sequence[TextQuery], within: AccessFilter) -> tuple[dict[str, float], list[list[TextHit]]]:
    """Run all queries, the first twice to warm up; return times and results."""
    await match(queries[0], within)
    times: list[float] = []
    results: list[list[TextHit]] = []
    for words in queries:
        started = time.perf_counter()
        results.append(list(await match(words, within)))
        times.append((time.perf_counter() - started) * 1000)
    times.sort()
    return {"p50_ms": round(times[len(times) // 2], 2), "p95_ms": round(times[int(len(times) * 0.95)], 2)}, results


def agreement(exact: Sequence[Sequence[TextHit]], other: Sequence[Sequence[TextHit]], *, first: int = 10) -> float:
    """Return the mean share of the first ones of *exact* that *other* has among its first; equals at the border count as found."""
    shares: list[float] = []
    for right, tried in zip(exact, other, strict=True):
        if not right:
            continue
        top = right[:first]
        worst = top[-1].score - 1e-9
        scores = {hit.memory_id: hit.score for hit in right}
        good = sum(1 for hit in tried[:first] if scores.get(hit.memory_id, -1.0) >= worst)
        shares.append(min(good, len(top)) / len(top))
    return round(sum(shares) / len(shares), 4) if shares else 1.0


async def measure(folder: Path, *, number: int, has_cache: bool) -> None:
    """Print the figures of one engine."""
    started = time.perf_counter()
    index = EmbeddedTextIndex(folder / "texts.db", timeout_s=60.0)
    await (index.start() if has_cache else index.setup())
    start_s = time.perf_counter() - started
    built = time.perf_counter()
    while has_cache and not await index.is_cached():  # noqa: ASYNC110 - the thread that builds it is not of this loop
        await asyncio.sleep(0.05)
    print(
        f"start {start_s * 1000:.0f} ms, cache built in {time.perf_counter() - built:.1f} s, {size_mb(folder, '*')} MB on the disk",
        flush=True,
    )
    for length, (name, within) in itertools.product(LENGTHS, WITHIN.items()):
        queries = questions(number, length)
        cpu_s = time.process_time()
        times, results = await timed(lambda words, inside: index.search(words, access_filter=inside, limit=LIMIT), queries, within)
        times["cpu_ms"] = round((time.process_time() - cpu_s) / (len(queries) + 1) * 1000, 2)
        row: dict[str, object] = {"words": length, "filter": name, **times}
        if has_cache:
            plain = [replace(words, is_question=False) for words in queries[:EXACT]]
            _, exact = await timed(lambda words, inside: index.search(words, access_filter=inside, limit=LIMIT), plain, within)
            row["agrees"] = agreement(exact, results[:EXACT])
        print(json.dumps(row), flush=True)
    puts: list[float] = []
    for document in documents(number, first=10**7, seed=5):
        started = time.perf_counter()
        await index.put([document])
        puts.append((time.perf_counter() - started) * 1000)
    await index.drop(1, [document.memory_id for document in documents(number, first=10**7, seed=5)])
    rss_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"put p50 {sorted(puts)[number // 2]:.2f} ms, {rss_mb:.0f} MB resident (with mapped pages)", flush=True)
    await index.close()


def main() -> None:
    """Measure each engine at each size."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.large_texts", description=__doc__)
    parser.add_argument("--n", type=int, nargs="+", default=[1_000, 100_000, 1_000_000], help="numbers of memories")
    parser.add_argument("--questions", type=int, default=100)
    parser.add_argument("--folder", type=Path, help="folder of the stores, which are kept and used again")
    parser.add_argument("--only", choices=["fts5", "shipped"], help="measure only this engine, in this process")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        for count in options.n:
            folder = (options.folder or Path(temporary)) / str(count)
            if not (folder / "texts.db").exists():
                folder.mkdir(parents=True)
                print(f"{count:,} memories, {asyncio.run(fill(folder, count))}", flush=True)
            for engine in [options.only] if options.only else ["fts5", "shipped"]:
                if options.only:
                    asyncio.run(measure(folder, number=options.questions, has_cache=engine == "shipped"))
                    continue
                print(f"{count:,} memories, {engine}", flush=True)
                arguments = ["--n", str(count), "--questions", str(options.questions), "--folder", str(folder.parent), "--only", engine]
                subprocess.run([sys.executable, "-m", "benchmarks.large_texts", *arguments], check=True)


if __name__ == "__main__":
    main()
