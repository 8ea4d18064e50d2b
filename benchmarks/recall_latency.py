"""
Times of a recall in one process, beside that of its embedder: `python -m benchmarks.recall_latency --folder FOLDER`.

Two stores have the same memories and vectors. One has no sessions, the other has sessions of 20 memories. Each round sends a new question
to the embedder alone, and to recall by meaning and hybrid recall in each store, in rotating order. The ratios are those of the medians.
`--folder` keeps the stores for another run; they are filled in a minute. Run different versions by turns on one folder to compare them.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import resource
import shutil
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path

import uvloop

from benchmarks.texts import TYPES, questions, texts
from rookery.access.models import Caller
from rookery.cli.store import prepare_store
from rookery.kernel.config import Settings
from rookery.kernel.db import Tx
from rookery.kernel.ids import uuid7
from rookery.memory.indexing import build_document
from rookery.memory.models import EmbeddedDocument, Memory, MemoryScope, Passage, RecallMode, Vector
from rookery.memory.recall_models import RecallRequest
from rookery.memory.store import records
from rookery.wiring import Rookery, build_platform

_BATCH = 500
_SESSION_SIZE = 20
_STARTED_AT = datetime(2026, 11, 21, tzinfo=UTC)
_WARM_ROUNDS = 20
_READY_TIMEOUT_S = 600.0
_STORES: Mapping[str, bool] = {"without sessions": False, "with sessions": True}
"""The stores, and whether their memories have sessions."""

Measure = Callable[[str], Awaitable[object]]


@dataclass(slots=True)
class _Times:
    """The times of one measure, in seconds: elapsed, and of the CPU of this process."""

    elapsed_s: list[float] = field(default_factory=list[float])
    cpu_s: list[float] = field(default_factory=list[float])


async def fill(rookery: Rookery, workspace_id: int, vectors: Sequence[Vector], *, has_sessions: bool) -> None:
    """Store one memory for each of *vectors*, in all three stores."""
    memories = _make_memories(workspace_id, rookery.engines.embedder.model, has_sessions=has_sessions)
    for start in range(0, len(vectors), _BATCH):
        batch = list(zip(memories, vectors[start : start + _BATCH], strict=False))
        documents = [build_document(memory) for memory, _ in batch]

        def add(tx: Tx, batch: Sequence[tuple[Memory, Vector]] = batch) -> None:
            records.add(tx, *(memory for memory, _ in batch))

        embedded = [EmbeddedDocument(document=document, vectors=(vector,)) for document, (_, vector) in zip(documents, batch, strict=True)]
        await asyncio.gather(rookery.db.write(add), rookery.engines.texts.put(documents), rookery.engines.vectors.put(embedded))


def _make_memories(workspace_id: int, model: str, *, has_sessions: bool) -> Iterator[Memory]:
    for number, content in enumerate(texts()):
        at = _STARTED_AT + timedelta(seconds=number)
        yield Memory(
            id=uuid7(),
            workspace_id=workspace_id,
            org="acme",
            project=f"p{number % 10}",
            agent_id=None,
            session_id=f"session-{number // _SESSION_SIZE}" if has_sessions else None,
            memory_scope=MemoryScope.PROJECT,
            type=TYPES[number % len(TYPES)],
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


def _build_caller(workspace_id: int) -> Caller:
    return Caller(
        key_id="key",
        key_kind="api",
        key_name="benchmark",
        workspace_id=workspace_id,
        public_workspace_id=workspace_id,
        scopes=frozenset({"*"}),
        agent_id=None,
        environment="live",
        servers=None,
        tools=None,
        orgs=None,
        projects=None,
        tool_limits={},
        address="127.0.0.1",
        request_id="benchmark",
    )


async def open_store(stack: AsyncExitStack, folder: Path) -> tuple[Rookery, Caller]:
    """Open the platform of a store for one command, and create it if it is missing."""
    settings = Settings(data_dir=folder, min_free_disk_mb=0)
    prepare_store(settings)
    rookery = await stack.enter_async_context(build_platform(settings).open_for_command())
    result = await rookery.create_first_keys()
    return rookery, _build_caller(result.workspace_id or 1)


async def embed_texts(rookery: Rookery, count: int) -> list[Vector]:
    """Return the vectors of the first *count* texts."""
    vectors = list[Vector]()
    contents = texts()
    while len(vectors) < count:
        passages = [Passage(context="", content=content) for content in islice(contents, min(_BATCH, count - len(vectors)))]
        vectors += [chunks[0] for chunks in await rookery.engines.embedder.embed_passages(passages)]
    return vectors


def _build_measures(stores: Mapping[str, tuple[Rookery, Caller]]) -> dict[str, Measure]:
    def measure_recall(rookery: Rookery, caller: Caller, mode: RecallMode) -> Measure:
        return lambda question: rookery.memory.recall.find(caller, RecallRequest(query=question, mode=mode))

    plain, _ = stores["without sessions"]
    measures: dict[str, Measure] = {"embedder": plain.engines.embedder.embed_query}
    for name, (rookery, caller) in stores.items():
        measures[f"semantic, {name}"] = measure_recall(rookery, caller, "semantic")
        measures[f"hybrid, {name}"] = measure_recall(rookery, caller, "hybrid")
    return measures


async def measure(folder: Path, *, size: int, rounds: int) -> dict[str, dict[str, float]]:
    """Fill the stores in *folder* unless they exist, and return the times of each measure."""
    async with AsyncExitStack() as stack:
        stores = {name: await open_store(stack, folder / name.replace(" ", "-")) for name in _STORES}
        vectors: list[Vector] = []
        for name, (rookery, caller) in stores.items():
            marker = folder / f"{name} {size}"
            if not marker.exists():
                vectors = vectors or await embed_texts(rookery, size)
                await fill(rookery, caller.workspace_id, vectors, has_sessions=_STORES[name])
                marker.touch()
            await rookery.engines.texts.start()
            await rookery.engines.vectors.start()
            await rookery.engines.embedder.warm()
            await _wait_until_ready(rookery, caller)
        measures, asked = _build_measures(stores), questions()
        times = {name: _Times() for name in measures}
        gc.collect()
        gc.freeze()
        for number in range(_WARM_ROUNDS + rounds):
            names = list(measures)
            for name in names[number % len(names) :] + names[: number % len(names)]:
                question, cpu_s, started_s = next(asked), _get_cpu_s(), time.perf_counter()
                await measures[name](question)
                if number >= _WARM_ROUNDS:
                    times[name].elapsed_s.append(time.perf_counter() - started_s)
                    times[name].cpu_s.append(_get_cpu_s() - cpu_s)
    embedder_s = statistics.median(times["embedder"].elapsed_s)
    return {
        name: {
            "p50_ms": round(statistics.median(of_one.elapsed_s) * 1000, 2),
            "p90_ms": round(statistics.quantiles(of_one.elapsed_s, n=10)[8] * 1000, 2),
            "mean_cpu_ms": round(statistics.fmean(of_one.cpu_s) * 1000, 2),
            "ratio": round(statistics.median(of_one.elapsed_s) / embedder_s, 2),
        }
        for name, of_one in times.items()
    }


async def _wait_until_ready(rookery: Rookery, caller: Caller) -> None:
    """Wait until the vectors of a large workspace are loaded. Until then recall answers by keywords alone."""
    async with asyncio.timeout(_READY_TIMEOUT_S):
        while not await rookery.engines.vectors.is_ready(caller.workspace_id):  # noqa: ASYNC110 - the engine has no event for it
            await asyncio.sleep(0.1)


def _get_cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    """Print the times of each measure as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, help="folder of the stores, which are kept (default: a temporary folder)")
    parser.add_argument("--size", type=int, default=10_000, help="memories in each store")
    parser.add_argument("--rounds", type=int, default=400)
    options = parser.parse_args()
    folder: Path = options.folder or Path(tempfile.mkdtemp(prefix="rookery-bench-"))
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            for name, figures in runner.run(measure(folder, size=options.size, rounds=options.rounds)).items():
                print(f"{name:26} {json.dumps(figures)}", flush=True)
    finally:
        if options.folder is None:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
