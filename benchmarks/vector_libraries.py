"""
Rookery's engine in large vector stores, and libraries that could replace it: `python -m benchmarks.vector_libraries --data FOLDER`.

The libraries need `uv pip install usearch hnswlib qdrant-edge-py`; of them only faiss is a dependency of Rookery. The vectors are made
from real ones: some thousand texts of the data sets of `recall_quality` are embedded with the built-in model, and each memory is one of
them, moved in the direction of the difference between two others. The queries are the data sets' own questions, unchanged.

Each engine runs in a process of its own and returns the 100 nearest, as a recall does; the first ten are compared with an exact
search. Filters admit all memories, a tenth (an org) and a fiftieth (an org and a project). Libraries without whole vectors score
their candidates again from a mapped file, which `disk_mb` includes: ranking needs exact similarities. `left` counts the deleted
vectors whose bytes are still in files after 100 deletions and whatever the engine offers to persist them.

The settings of Rookery's engine are `IndexLimits.visited_divisor`. `--all-settings` measures each, and not only up to the first one that
finds enough. Times are in milliseconds; `cpu` is the time of all threads, which other load on the machine changes less.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol, cast

import numpy as np
import numpy.typing as npt

from benchmarks.recall_quality.data import sets
from rookery.engines import embedders
from rookery.engines.vectors.embedded import EmbeddedVectorIndex
from rookery.engines.vectors.search import IndexLimits
from rookery.memory.models import AccessFilter, EmbeddedDocument, IndexDocument, MemoryScope, Passage
from rookery.memory.visibility import build_vector_filter

Floats = npt.NDArray[np.float32]
Rows = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

DIMENSION = 384
LIMIT = 100
GOAL = 0.97
TENANTS = 50
FILTERS = ("all", "a tenth", "a fiftieth")
_NOW = datetime(2026, 11, 23, tzinfo=UTC)
_BATCH = 10_000
_MAX_TEXTS = 5000
_STEP = 0.7
"""Length of the step from a text's vector: the nearest of a text's own copies has a cosine of about 0.8."""


class Engine(Protocol):
    """An index under test."""

    settings: Sequence[int]

    def build(self, rows: Floats) -> None:
        """Index *rows*, so that every later search is fast, and persist the index."""
        ...

    def search(self, query: Floats, which: str, setting: int) -> Rows:
        """Return the nearest rows that the filter *which* admits, nearest first."""
        ...

    def delete(self, deleted: Rows) -> None:
        """Delete rows, persist, and erase if the engine can."""
        ...


class World:
    """Vectors of memories and queries, and the tenant of each memory; the same for the same files."""

    def __init__(self, folder: Path, cache: Path) -> None:
        if not cache.exists():
            np.savez(cache, **dict(zip(("texts", "queries"), asyncio.run(_embed(folder)), strict=True)))
        with np.load(cache) as stored:
            self._texts: Floats = stored["texts"]
            self.queries: Floats = stored["queries"]

    def rows(self, count: int) -> Floats:
        """Return the vectors of *count* memories."""
        dice = np.random.default_rng(5)
        texts = self._texts
        weights = 1 / np.arange(20, len(texts) + 20)
        rows = np.empty((count, DIMENSION), dtype=np.float32)
        for start in range(0, count, _BATCH):
            size = min(_BATCH, count - start)
            base = texts[dice.choice(len(texts), size, p=weights / weights.sum())]
            step = texts[dice.integers(0, len(texts), size)] - texts[dice.integers(0, len(texts), size)]
            step /= np.maximum(np.linalg.norm(step, axis=1, keepdims=True), 1e-6)
            batch = base + np.float32(_STEP) * step
            rows[start : start + size] = batch / np.linalg.norm(batch, axis=1, keepdims=True)
        return rows


async def _embed(folder: Path) -> tuple[Floats, Floats]:
    embedder = embedders.open("embedded:", data_dir=folder)
    collections = [collection for name in ("LoCoMo turns", "SciFact") for collection in sets(folder)[name]]
    texts = [text for collection in collections for text in collection.documents.values()][:_MAX_TEXTS]
    questions = [question.text for collection in collections for question in collection.questions]
    chunks: list[bytes] = []
    for start in range(0, len(texts), 16):
        for vectors_of_text in await embedder.embed_passages([Passage(context="", content=text) for text in texts[start : start + 16]]):
            chunks += vectors_of_text[:2]
        if len(chunks) >= _MAX_TEXTS:
            break
    queries = [await embedder.embed_query(question) for question in questions[:: max(1, len(questions) // 100)]]
    await embedder.close()
    return _to_matrix(chunks), _to_matrix(queries)


def _to_matrix(rows: Sequence[bytes]) -> Floats:
    return np.frombuffer(b"".join(rows), dtype="<f4").reshape(len(rows), -1)


def tenants_of(count: int) -> npt.NDArray[np.int64]:
    """Return the tenant of each memory."""
    return np.random.default_rng(7).integers(0, TENANTS, count)


def mask_of(which: str, count: int) -> Mask | None:
    """Return which memories a filter admits; None for all."""
    tenants = tenants_of(count)
    return {"all": None, "a tenth": tenants % 10 == 3, "a fiftieth": tenants == 13}[which]


class Rookery:
    """The product's engine, through its port."""

    settings = (0, 100, 50, 25, 12)

    def __init__(self, folder: Path) -> None:
        self._loop = asyncio.new_event_loop()
        self._folder = folder
        self._setting = 0
        self._index = self._open()
        everywhere = AccessFilter(workspace_id=1, at=_NOW)
        self._filters = {
            "all": everywhere,
            "a tenth": replace(everywhere, org="org3"),
            "a fiftieth": replace(everywhere, org="org3", project="p1"),
        }

    def _open(self) -> EmbeddedVectorIndex:
        # The setting 0 is the product's own.
        divisor = self._setting
        limits = IndexLimits(min_visited=500_000 // divisor, visited_divisor=divisor) if divisor else IndexLimits()
        path = self._folder / "vectors.db"
        return EmbeddedVectorIndex(path, model="benchmark", dimension=DIMENSION, limits=limits)

    def build(self, rows: Floats) -> None:
        self._loop.run_until_complete(self._build(rows))

    async def _reopen(self) -> None:
        await self._index.close()
        self._index = self._open()
        while not await self._index.is_ready(1):
            pass  # it waits two seconds

    async def _build(self, rows: Floats) -> None:
        tenants = tenants_of(len(rows)).tolist()
        for start in range(0, len(rows), 2000):
            await self._index.put(
                [
                    EmbeddedDocument(document=_document(number, tenants[number]), vectors=(rows[number].tobytes(),))
                    for number in range(start, min(start + 2000, len(rows)))
                ]
            )
        await self._index.start()
        while len(rows) > 40_000 and not any(self._folder.rglob("*.lists/meta.json")):  # noqa: ASYNC110 - another process writes it
            await asyncio.sleep(1)
        while not await self._index.is_ready(1):
            pass  # it waits two seconds

    def search(self, query: Floats, which: str, setting: int) -> Rows:
        if setting != self._setting:
            self._setting = setting
            self._loop.run_until_complete(self._reopen())
        search = self._index.search(query.tobytes(), where=build_vector_filter(self._filters[which]), limit=LIMIT)
        hits = self._loop.run_until_complete(search)
        return np.array([int(hit.memory_id) for hit in hits], dtype=np.int64)

    def delete(self, deleted: Rows) -> None:
        self._loop.run_until_complete(self._index.drop(1, [f"{number:036}" for number in deleted.tolist()]))
        self._loop.run_until_complete(self._index.erase())


def _document(number: int, tenant: int) -> IndexDocument:
    return IndexDocument(
        memory_id=f"{number:036}",
        workspace_id=1,
        org=f"org{tenant % 10}",
        project=f"p{tenant // 10}",
        agent_id=None,
        session_id=None,
        memory_scope=MemoryScope.PROJECT,
        type="fact",
        tags=(),
        confidence=0.8,
        source="manual",
        content="",
        created_at=_NOW,
        updated_at=_NOW,
        expires_at=None,
    )


class Library:
    """The base of all libraries: a mapped file of the whole vectors, to score candidates again, and masks."""

    settings: Sequence[int] = ()

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.rows: Floats = np.empty((0, DIMENSION), dtype=np.float32)
        self.masks: dict[str, Mask | None] = {}

    def store_rows(self, rows: Floats) -> None:
        """Write the whole vectors."""
        self.rows = np.memmap(self.folder / "rows", dtype=np.float32, mode="w+", shape=rows.shape)
        self.rows[:] = rows
        self.masks = {which: mask_of(which, len(rows)) for which in FILTERS}

    def erase_rows(self, deleted: Rows) -> None:
        """Overwrite deleted vectors in the mapped file, as `secure_delete` of SQLite does."""
        self.rows[deleted] = 0

    def rank(self, query: Floats, candidates: Rows) -> Rows:
        """Return the best of *candidates* by their whole vectors."""
        return candidates[np.argsort(-np.vecdot(self.rows[candidates], query))[:LIMIT]]

    def exact(self, query: Floats, mask: Mask) -> Rows:
        """Score every row that a filter admits."""
        return self.rank(query, np.flatnonzero(mask))


class Faiss(Library):
    """Inverted lists of bytes with an ID selector, and an exact pass where a filter leaves few rows."""

    settings = (8, 16, 32, 64, 128)

    def build(self, rows: Floats) -> None:
        self.store_rows(rows)
        faiss = load_library("faiss")
        faiss.omp_set_num_threads(1)
        lists = max(16, round(4 * len(rows) ** 0.5))
        self._index = faiss.index_factory(DIMENSION, f"IVF{lists},SQ8", faiss.METRIC_INNER_PRODUCT)
        self._index.cp.niter = 5
        self._index.train(rows[np.random.default_rng(1).choice(len(rows), min(len(rows), 40 * lists), replace=False)])
        self._index.add(rows)
        faiss.write_index(self._index, str(self.folder / "index.faiss"))

    def search(self, query: Floats, which: str, setting: int) -> Rows:
        faiss = load_library("faiss")
        mask = self.masks[which]
        if mask is not None and np.count_nonzero(mask) <= 16 * len(mask) ** 0.5:
            return self.exact(query, mask)
        parameters = faiss.SearchParametersIVF(nprobe=setting if mask is None else setting * 2)
        if mask is not None:
            packed = np.packbits(mask, bitorder="little")
            parameters.sel = faiss.IDSelectorBitmap(len(mask), faiss.swig_ptr(packed))
        candidates = cast("Rows", self._index.search(query[None], 2 * LIMIT, params=parameters)[1][0])
        return self.rank(query, candidates[candidates >= 0])

    def delete(self, deleted: Rows) -> None:
        faiss = load_library("faiss")
        self._index.remove_ids(deleted)
        faiss.write_index(self._index, str(self.folder / "index.faiss"))
        self.erase_rows(deleted)


class Usearch(Library):
    """A graph of half floats, without a filter: results are over-fetched, with an exact pass for few rows."""

    settings = (100, 150, 250, 400, 700)

    def build(self, rows: Floats) -> None:
        self.store_rows(rows)
        self._index = load_library("usearch.index").Index(ndim=DIMENSION, metric="ip", dtype="f16", connectivity=16, expansion_add=100)
        self._index.add(np.arange(len(rows)), rows, threads=1)
        self._index.save(str(self.folder / "index.usearch"))

    def search(self, query: Floats, which: str, setting: int) -> Rows:
        mask = self.masks[which]
        if mask is not None and np.count_nonzero(mask) <= 16 * len(mask) ** 0.5:
            return self.exact(query, mask)
        self._index.expansion_search = setting
        share = 1.0 if mask is None else max(float(mask.mean()), 0.005)
        candidates = self._index.search(query, int(LIMIT / share)).keys.astype(np.int64)
        return self.rank(query, candidates if mask is None else candidates[mask[candidates]])

    def delete(self, deleted: Rows) -> None:
        self._index.remove(deleted)
        self._index.save(str(self.folder / "index.usearch"))
        self.erase_rows(deleted)


class Hnswlib(Library):
    """A graph of whole vectors; its only filter is a Python function."""

    settings = (100, 150, 250, 400, 700)

    def build(self, rows: Floats) -> None:
        self.store_rows(rows)
        self._index = load_library("hnswlib").Index(space="ip", dim=DIMENSION)
        self._index.init_index(max_elements=len(rows), ef_construction=100, M=16)
        self._index.add_items(rows, num_threads=1)
        self._index.set_num_threads(1)
        self._index.save_index(str(self.folder / "index.hnsw"))

    def search(self, query: Floats, which: str, setting: int) -> Rows:
        mask = self.masks[which]
        if mask is not None and np.count_nonzero(mask) <= 16 * len(mask) ** 0.5:
            return self.exact(query, mask)
        self._index.set_ef(setting)

        def admits(row: int) -> bool:
            return mask is None or bool(mask[row])

        return cast("Rows", self._index.knn_query(query, k=LIMIT, filter=None if mask is None else admits)[0][0].astype(np.int64))

    def delete(self, deleted: Rows) -> None:
        for row in deleted.tolist():
            self._index.mark_deleted(row)
        self._index.save_index(str(self.folder / "index.hnsw"))
        self.erase_rows(deleted)


class QdrantEdge(Library):
    """Qdrant's engine in this process, with its own filters and files; bytes, scored again from its whole vectors."""

    settings = (64, 128, 256, 512)

    def build(self, rows: Floats) -> None:
        qdrant = load_library("qdrant_edge")
        (self.folder / "shard").mkdir()
        config = qdrant.EdgeConfig(
            vectors={"": qdrant.EdgeVectorParams(DIMENSION, qdrant.Distance.Dot, on_disk=True)},
            hnsw_config=qdrant.HnswIndexConfig(16, 100, 10_000, max_indexing_threads=1, payload_m=16),
            quantization_config=qdrant.ScalarQuantizationConfig(qdrant.ScalarType.Int8, always_ram=True),
            optimizers=qdrant.EdgeOptimizersConfig(default_segment_number=1),
        )
        self._shard = qdrant.EdgeShard.create(str(self.folder / "shard"), config)
        for field in ("org", "project"):
            self._shard.update(qdrant.UpdateOperation.create_field_index(field, qdrant.PayloadSchemaType.Keyword))
        tenants = tenants_of(len(rows)).tolist()
        for start in range(0, len(rows), 5000):
            points = [
                qdrant.Point(
                    number, {"": rows[number].tolist()}, {"org": f"o{tenants[number] % 10}", "project": f"p{tenants[number] // 10}"}
                )
                for number in range(start, min(start + 5000, len(rows)))
            ]
            self._shard.update(qdrant.UpdateOperation.upsert_points(points))
        self._shard.optimize()
        self._shard.flush()

    def search(self, query: Floats, which: str, setting: int) -> Rows:
        qdrant = load_library("qdrant_edge")
        wanted = {"all": {}, "a tenth": {"org": "o3"}, "a fiftieth": {"org": "o3", "project": "p1"}}[which]
        must = [qdrant.FieldCondition(field, match=qdrant.MatchValue(value)) for field, value in wanted.items()]
        request = qdrant.QueryRequest(
            LIMIT,
            query=qdrant.Query.Nearest(query.tolist()),
            filter=qdrant.Filter(must=must) if must else None,
            params=qdrant.SearchParams(hnsw_ef=setting),
        )
        return np.array([point.id for point in self._shard.query(request)], dtype=np.int64)

    def delete(self, deleted: Rows) -> None:
        qdrant = load_library("qdrant_edge")
        self._shard.update(qdrant.UpdateOperation.delete_points(deleted.tolist()))
        self._shard.optimize()
        self._shard.flush()


ENGINES: dict[str, type[Any]] = {
    "rookery": Rookery,
    "faiss IVF, SQ8": Faiss,
    "usearch": Usearch,
    "hnswlib": Hnswlib,
    "qdrant-edge": QdrantEdge,
}


def main() -> None:
    """Measure each engine at each size."""
    arguments = argparse.ArgumentParser(description=(__doc__ or "").strip().splitlines()[0])
    arguments.add_argument("--data", type=Path, required=True, help="folder of the data sets of recall_quality")
    arguments.add_argument("--cache", type=Path, default=Path("vectors.npz"), help="file of the embedded texts")
    arguments.add_argument("--n", type=int, nargs="+", default=[100_000])
    arguments.add_argument("--engines", nargs="+", choices=list(ENGINES), default=list(ENGINES))
    arguments.add_argument("--all-settings", action="store_true", help="measure every setting")
    arguments.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = arguments.parse_args()
    world = World(options.data, options.cache)
    for count in options.n:
        for name in options.engines:
            if options.here:
                measure(name, count, world, all_settings=options.all_settings)
                continue
            own = ["--data", str(options.data), "--cache", str(options.cache), "--n", str(count), "--engines", name, "--here"]
            own += ["--all-settings"] if options.all_settings else []
            subprocess.run([sys.executable, "-m", "benchmarks.vector_libraries", *own], check=False)


def measure(name: str, count: int, world: World, *, all_settings: bool) -> None:
    """Build one engine, query it, and delete from it."""
    rows = world.rows(count)
    exact = {which: find_exact(rows, world.queries, mask_of(which, count)) for which in FILTERS}
    with tempfile.TemporaryDirectory() as path:
        folder = Path(path)
        engine: Engine = ENGINES[name](folder)
        before_mb, started_s = own_memory_mb(), time.perf_counter()
        engine.build(rows)
        figures: dict[str, object] = {"engine": name, "memories": count, "build_s": round(time.perf_counter() - started_s, 1)}
        for setting in engine.settings:
            figures["setting"] = setting
            figures |= {which: run_queries(engine, world.queries, which, setting, exact[which]) for which in FILTERS}
            print("  ", json.dumps(figures), file=sys.stderr, flush=True)
            if cast("dict[str, float]", figures["all"])["recall"] >= GOAL and not all_settings:
                break
        figures["freeze_ms"] = round(longest_freeze_ms(engine, world.queries, cast("int", figures["setting"])), 1)
        figures["own_mb"] = round(own_memory_mb() - before_mb)
        figures["mapped_mb"] = round(own_memory_mb("RssFile"))
        figures["disk_mb"] = round(sum(file.stat().st_size for file in files_of(folder)) / 1e6)
        deleted = np.arange(0, count, count // 100)
        engine.delete(deleted)
        figures["left"] = count_left(folder, rows[deleted])
        print(json.dumps(figures), flush=True)
        os._exit(0)  # engines have threads; the folder is deleted by the system's cleaner of temporary files


def run_queries(engine: Engine, queries: Floats, which: str, setting: int, exact: Rows) -> dict[str, float]:
    """Return the times and the recall of one setting."""
    for query in queries[:5]:
        engine.search(query, which, setting)
    times: list[float] = []
    hits, cpu_started_s = 0, time.process_time()
    for query, right in zip(queries, exact, strict=True):
        started_s = time.perf_counter()
        found = engine.search(query, which, setting)
        times.append((time.perf_counter() - started_s) * 1e3)
        hits += len(np.intersect1d(found[:10], right))
    cpu_s = time.process_time() - cpu_started_s
    times.sort()
    return {
        "p50": round(times[len(times) // 2], 2),
        "p95": round(times[len(times) * 95 // 100], 2),
        "cpu": round(cpu_s / len(times) * 1e3, 2),
        "recall": round(hits / exact.size, 3),
    }


def longest_freeze_ms(engine: Engine, queries: Floats, setting: int) -> float:
    """Return the longest time in which no other Python thread could run during searches: whether the engine holds the GIL."""
    ticks: list[float] = []
    is_done = threading.Event()

    def tick() -> None:
        while not is_done.wait(0.0005):
            ticks.append(time.perf_counter())

    thread = threading.Thread(target=tick)
    thread.start()
    for query in queries:
        engine.search(query, "a tenth", setting)
    is_done.set()
    thread.join()
    return float(np.diff(ticks).max(initial=0) * 1e3)


def find_exact(rows: Floats, queries: Floats, mask: Mask | None) -> Rows:
    """Return the ten nearest of each query."""
    numbers = np.arange(len(rows)) if mask is None else np.flatnonzero(mask)
    admitted = rows if mask is None else rows[mask]
    scores = np.concatenate([queries @ admitted[start : start + 50_000].T for start in range(0, len(admitted), 50_000)], axis=1)
    return numbers[np.argsort(-scores, axis=1)[:, :10]]


def count_left(folder: Path, deleted: Floats) -> int:
    """Return how many deleted vectors are still in files, as floats or half floats."""
    halves = deleted.astype(np.float16)
    contents = [file.read_bytes() for file in files_of(folder)]
    return sum(
        any(row[:32].tobytes() in content or half[:32].tobytes() in content for content in contents)
        for row, half in zip(deleted, halves, strict=True)
    )


def files_of(folder: Path) -> Iterator[Path]:
    """Yield the files below *folder*."""
    yield from (file for file in folder.rglob("*") if file.is_file())


def load_library(name: str) -> ModuleType:
    """Import a library that most readers of this file have not installed."""
    return importlib.import_module(name)


def own_memory_mb(kind: str = "RssAnon") -> float:
    """Return the memory that the system cannot reclaim: without mapped files, which are RssFile."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(kind)) / 1e3


if __name__ == "__main__":
    main()
