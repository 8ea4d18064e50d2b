"""
Consolidation and pruning of a large store: `python -m benchmarks.maintenance --n 100000 --projects 200`.

Memories are short texts with synthetic vectors, inserted directly into the stores. A tenth are near-duplicates of another one
in the project (cosine 0.96), and a twentieth are exact duplicates. It prints the time, the highest resident memory and the result.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import tempfile
import time
from collections.abc import Coroutine, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from rookery.kernel.config import Settings
from rookery.kernel.ids import uuid7
from rookery.memory.batch_runs import RunReport
from rookery.memory.indexing import build_document
from rookery.memory.maintenance import consolidation, pruning
from rookery.memory.models import EmbeddedDocument, Memory, MemoryScope
from rookery.memory.store import records
from rookery.migrations import migrate
from rookery.wiring import Rookery, build_platform

_BATCH_SIZE = 500
_ALIKE, _SAME = 0.10, 0.05
_SIMILARITY = 0.96


def memories(number: int, *, projects: int, model: str, width: int, seed: int = 1) -> Iterator[tuple[Memory, bytes]]:
    """Generate *number* memories with vectors: a tenth are near-duplicates, a twentieth exact duplicates."""
    chance = np.random.default_rng(seed)
    now = datetime.now(UTC) - timedelta(days=10)
    last: dict[int, tuple[str, np.ndarray]] = {}
    for index in range(number):
        project, draw = int(chance.integers(projects)), float(chance.random())
        vector = chance.normal(size=width)
        vector /= np.linalg.norm(vector)
        text = f"Note {index}: the {index % 97}th heron of roof {index % 1009} was seen by watcher {index % 31}."
        if project in last and draw < _SAME:
            text, vector = last[project]
        elif project in last and draw < _SAME + _ALIKE:
            vector = _SIMILARITY * last[project][1] + np.sqrt(1 - _SIMILARITY**2) * vector
            vector /= np.linalg.norm(vector)
        last[project] = (text, vector)
        memory = Memory(
            id=uuid7(),
            workspace_id=1,
            org="bench",
            project=f"project {project}",
            agent_id=None,
            session_id=None,
            memory_scope=MemoryScope.PROJECT,
            type="observation",
            tags=(),
            confidence=0.8,
            base_confidence=0.8,
            source="benchmark",
            content=text,
            indexed_at=now,
            indexed_model=model,
            content_at=now,
            created_at=now,
            updated_at=now,
        )
        yield memory, vector.astype("<f4").tobytes()


async def fill(rookery: Rookery, number: int, *, projects: int) -> None:
    """Write the memories into records, vectors and full text."""
    batch: list[tuple[Memory, bytes]] = []
    generated = memories(number, projects=projects, model=rookery.engines.embedder.model, width=rookery.engines.embedder.dimension)
    for index, item in enumerate(generated, start=1):
        batch.append(item)
        if len(batch) == _BATCH_SIZE or index == number:
            stored = [memory for memory, _ in batch]
            await rookery.db.write(lambda tx, stored=stored: [records.add(tx, memory) for memory in stored])
            await rookery.engines.vectors.put(
                [EmbeddedDocument(document=build_document(memory), vectors=(vector,)) for memory, vector in batch]
            )
            await rookery.engines.texts.put([build_document(memory) for memory in stored])
            batch = []


async def measure(folder: Path, number: int, *, projects: int) -> list[dict[str, object]]:
    """Fill a store on *folder*, then consolidate and prune it; return a row for each."""
    settings = Settings(data_dir=folder)
    migrate("embedded:", data_dir=folder)
    rows: list[dict[str, object]] = []
    async with build_platform(settings).open_for_command() as rookery:
        started_s = time.perf_counter()
        await fill(rookery, number, projects=projects)
        rows.append({"what": "filled", "s": time.perf_counter() - started_s, "cpu_s": time.process_time(), "rss_mb": _rss_mb()})
        maintenance = rookery.memory.maintenance
        prune = pruning.PruneRequest(workspace_id=1, deduplicate=True, min_effective_confidence=0.1)
        rows.append(await _row("prune --deduplicate", maintenance.pruning.run(prune)))
        dry = consolidation.ConsolidationRequest(workspace_id=1, dry_run=True)
        rows.append(await _row("consolidate --dry-run", maintenance.consolidation.run(dry)))
        rows.append(await _row("consolidate", maintenance.consolidation.run(consolidation.ConsolidationRequest(workspace_id=1))))
    return rows


async def _row(what: str, run: Coroutine[object, object, RunReport]) -> dict[str, object]:
    before_s = time.process_time()
    report = await run
    cpu_s, per_s = time.process_time() - before_s, report.total / report.duration_s
    figures = {"s": report.duration_s, "cpu_s": cpu_s, "rss_mb": _rss_mb()}
    return {"what": what, **figures, "total": report.total, "per_s": round(per_s), **report.counts}


def _rss_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6


def main() -> None:
    """Measure and print the figures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.maintenance", description="Measure consolidation and pruning.")
    parser.add_argument("--n", type=int, default=100_000)
    parser.add_argument("--projects", type=int, default=200)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = asyncio.run(measure(Path(folder), options.n, projects=options.projects))
    if options.json:
        print(json.dumps(rows, indent=2))
        return
    table = Table("", "seconds", "of CPU", "highest RSS, MB", "came of it", title=f"{options.n:,} memories of {options.projects} projects")
    for row in rows:
        rest = {name: value for name, value in row.items() if name not in {"what", "s", "cpu_s", "rss_mb"}}
        figures = (f"{row['s']:,.1f}", f"{row['cpu_s']:,.1f}", f"{row['rss_mb']:,.0f}")
        table.add_row(str(row["what"]), *figures, ", ".join(f"{k} {v}" for k, v in rest.items()))
    Console().print(table)


if __name__ == "__main__":
    main()
