"""Makers of the tests of moving memories: the verbs on a rig, a workspace's lines, what a reading holds."""

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
from rookery.memory.transfer.exporting import ExportRequest as Out
from rookery.memory.transfer.exporting import MemoryExport
from rookery.memory.transfer.import_source import ImportSource
from rookery.memory.transfer.importing import ImportRequest as In
from rookery.memory.transfer.importing import MemoryImport
from rookery.memory.transfer.items import ImportedMemory, RejectedItem
from rookery.memory.transfer.jsonl import JsonlDestination
from rookery.memory.transfer.sources import open_source
from tests.memory.makers import Rig

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
EVERYTHING = Out(workspace_id=1, includes_archived=True)


@dataclass(frozen=True)
class Moves:
    """Both verbs on a rig's store."""

    rig: Rig
    limits: StorageLimits = field(default_factory=StorageLimits)

    async def out(self, wanted: Out = EVERYTHING) -> bytes:
        """Return what an export writes."""
        stream = io.BytesIO()
        await MemoryExport(db=self.rig.db, clock=self.rig.clock).run(wanted, JsonlDestination(stream, self.rig.clock))
        return stream.getvalue()

    async def into(self, source: bytes | Path, wanted: In | None = None, **asked: object) -> tuple[RunReport, list[RunItem]]:
        """Import lines, a file or a folder; return the report and what the watch heard."""
        clock = self.rig.clock
        capacity = Capacity(db=self.rig.db, jobs=self.rig.jobs, limits=self.limits, monotonic=lambda: clock().timestamp())
        verb = MemoryImport(
            db=self.rig.db, jobs=self.rig.jobs, indexer=self.rig.brain.indexer, capacity=capacity, bus=self.rig.bus, clock=clock
        )
        heard = list[RunItem]()
        with open_source(made(source, **asked)) as parcels:
            report = await verb.run(
                wanted or In(workspace_id=1), parcels, observer=RunObserver(on_item=heard.append, on_progress=lambda done, total: None)
            )
        return report, heard

    async def index(self) -> int:
        """Do the jobs of what was moved in, and all others; return how many of the former there were."""
        moved = 0
        while done := await self.rig.worker.run_ready(EMBED_IMPORTED_JOB):
            moved += done
        await self.rig.index()
        return moved


def made(source: bytes | Path, **asked: object) -> ImportSource:
    """Return what asks for *source*; bytes come by standard input."""
    stream = io.BufferedReader(io.BytesIO(source if isinstance(source, bytes) else b""))
    fields: dict[str, object] = {
        "path": source if isinstance(source, Path) else None,
        "standard_input": stream,
        "default_time": NOON,
        **asked,
    }
    return ImportSource(**fields)  # pyright: ignore[reportArgumentType] - each test names fields that there are


def held(source: bytes | Path, **asked: object) -> list[Memory]:
    """Return the memories that a reading holds, and fail if it refused one."""
    with open_source(made(source, **asked)) as parcels:
        found = [parcel.content for parcel in parcels]
    assert [each for each in found if isinstance(each, RejectedItem)] == []
    return [each.memory for each in found if isinstance(each, ImportedMemory)]


def refused(source: bytes | Path, **asked: object) -> list[str]:
    """Return where a reading refused something, and why."""
    with open_source(made(source, **asked)) as parcels:
        return [f"{parcel.location}: {parcel.content.reason}" for parcel in parcels if isinstance(parcel.content, RejectedItem)]


def things(lines: bytes) -> list[Mapping[str, object]]:
    """Return the lines of an export but the first, which says when it was written."""
    return [cast("dict[str, object]", orjson.loads(line)) for line in lines.splitlines()[1:]]


def of_kind(lines: bytes, kind: str) -> Sequence[Mapping[str, object]]:
    """Return the lines of one kind."""
    return [thing for thing in things(lines) if thing["kind"] == kind]
