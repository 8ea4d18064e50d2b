"""Exports and imports on a rig, and the lines of their files."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

import orjson

from rookery.memory.batch_runs import RunItem, RunObserver, RunReport
from rookery.memory.capacity import Capacity, StorageLimits
from rookery.memory.indexing import EMBED_IMPORTED_JOB
from rookery.memory.models import Memory
from rookery.memory.transfer.exporting import ExportRequest, MemoryExport
from rookery.memory.transfer.formats import ImportSource, open_source
from rookery.memory.transfer.importing import ImportRequest, MemoryImport
from rookery.memory.transfer.items import ImportedMemory, RejectedItem
from rookery.memory.transfer.jsonl import JsonlDestination
from tests.memory.makers import MemoryRig

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
EVERYTHING = ExportRequest(workspace_id=1, includes_archived=True)


@dataclass(frozen=True)
class Transfers:
    """Exports and imports on a rig's store."""

    rig: MemoryRig
    limits: StorageLimits = field(default_factory=StorageLimits)

    async def export_lines(self, request: ExportRequest = EVERYTHING) -> bytes:
        """Return the lines of an export."""
        stream = io.BytesIO()
        await MemoryExport(db=self.rig.db, clock=self.rig.clock).run(request, JsonlDestination(stream, self.rig.clock))
        return stream.getvalue()

    async def import_source(
        self, source: bytes | Path, request: ImportRequest | None = None, **options: object
    ) -> tuple[RunReport, list[RunItem]]:
        """Import lines, a file or a folder; return the report and the items that the observer received."""
        clock = self.rig.clock
        capacity = Capacity(db=self.rig.db, jobs=self.rig.jobs, limits=self.limits, monotonic=lambda: clock().timestamp())
        importer = MemoryImport(
            db=self.rig.db, jobs=self.rig.jobs, indexer=self.rig.services.indexer, capacity=capacity, bus=self.rig.bus, clock=clock
        )
        items = list[RunItem]()
        with open_source(make_source(source, **options)) as entries:
            report = await importer.run(
                request or ImportRequest(workspace_id=1),
                entries,
                observer=RunObserver(on_item=items.append, on_progress=lambda done, total: None),
            )
        return report, items

    async def run_jobs(self) -> int:
        """Run the jobs of imported memories, then all others; return the number of the former."""
        imported_count = 0
        while count := await self.rig.worker.run_ready(EMBED_IMPORTED_JOB):
            imported_count += count
        await self.rig.run_jobs()
        return imported_count


def make_source(source: bytes | Path, **options: object) -> ImportSource:
    """Return an import source for *source*; bytes are read from standard input."""
    stream = io.BufferedReader(io.BytesIO(source if isinstance(source, bytes) else b""))
    fields: dict[str, object] = {
        "path": source if isinstance(source, Path) else None,
        "standard_input": stream,
        "default_time": NOON,
        **options,
    }
    return ImportSource(**fields)  # pyright: ignore[reportArgumentType] - each test passes existing fields


def read_memories(source: bytes | Path, **options: object) -> list[Memory]:
    """Return the memories that *source* contains; fail if an item was rejected."""
    with open_source(make_source(source, **options)) as entries:
        contents = [entry.content for entry in entries]
    assert [content for content in contents if isinstance(content, RejectedItem)] == []
    return [content.memory for content in contents if isinstance(content, ImportedMemory)]


def read_rejections(source: bytes | Path, **options: object) -> list[str]:
    """Return the location and reason of each rejected item."""
    with open_source(make_source(source, **options)) as entries:
        return [f"{entry.location}: {entry.content.reason}" for entry in entries if isinstance(entry.content, RejectedItem)]


def read_warnings(source: bytes | Path, **options: object) -> Sequence[str]:
    """Return the warnings of reading *source*."""
    with open_source(make_source(source, **options)) as entries:
        for _ in entries:
            pass
    return entries.progress.warnings


def parse_lines(lines: bytes) -> list[Mapping[str, object]]:
    """Return the lines of an export without the header."""
    return [cast("dict[str, object]", orjson.loads(line)) for line in lines.splitlines()[1:]]


def lines_of_kind(lines: bytes, kind: str) -> Sequence[Mapping[str, object]]:
    """Return the lines of one kind."""
    return [row for row in parse_lines(lines) if row["kind"] == kind]


def nonzero_counts(report: RunReport) -> dict[str, int]:
    """Return the counts of a run that are not zero."""
    return {name: number for name, number in report.counts.items() if number}
