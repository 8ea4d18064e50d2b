"""Makers of the tests of moving memories: the verbs on a rig, a workspace's lines, what a reading holds."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

import orjson

from rookery.memory.capacity import Capacity, Limits
from rookery.memory.indexing import EMBED_MOVED
from rookery.memory.models import Memory
from rookery.memory.runs import Item, Report, Watch
from rookery.memory.transfer.asked import Asked
from rookery.memory.transfer.exporting import Export
from rookery.memory.transfer.exporting import Wanted as Out
from rookery.memory.transfer.importing import Import
from rookery.memory.transfer.importing import Wanted as In
from rookery.memory.transfer.parcels import Arrived, Refused
from rookery.memory.transfer.sources import reading
from rookery.memory.transfer.targets import Lines
from tests.memory.makers import Rig

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
EVERYTHING = Out(workspace_id=1, archived_too=True)


@dataclass(frozen=True)
class Moves:
    """Both verbs on a rig's store."""

    rig: Rig
    limits: Limits = field(default_factory=Limits)

    async def out(self, wanted: Out = EVERYTHING) -> bytes:
        """Return what an export writes."""
        stream = io.BytesIO()
        await Export(db=self.rig.db, clock=self.rig.clock).run(wanted, Lines(stream, self.rig.clock))
        return stream.getvalue()

    async def into(self, source: bytes | Path, wanted: In | None = None, **asked: object) -> tuple[Report, list[Item]]:
        """Import lines, a file or a folder; return the report and what the watch heard."""
        clock = self.rig.clock
        capacity = Capacity(db=self.rig.db, jobs=self.rig.jobs, limits=self.limits, monotonic=lambda: clock().timestamp())
        verb = Import(db=self.rig.db, jobs=self.rig.jobs, indexer=self.rig.brain.indexer, capacity=capacity, bus=self.rig.bus, clock=clock)
        heard = list[Item]()
        with reading(made(source, **asked)) as parcels:
            report = await verb.run(
                wanted or In(workspace_id=1), parcels, watch=Watch(item=heard.append, progress=lambda done, total: None)
            )
        return report, heard

    async def index(self) -> int:
        """Do the jobs of what was moved in, and all others; return how many of the former there were."""
        moved = 0
        while done := await self.rig.worker.run_ready(EMBED_MOVED):
            moved += done
        await self.rig.index()
        return moved


def made(source: bytes | Path, **asked: object) -> Asked:
    """Return what asks for *source*; bytes come by standard input."""
    stream = io.BufferedReader(io.BytesIO(source if isinstance(source, bytes) else b""))
    fields: dict[str, object] = {"path": source if isinstance(source, Path) else None, "standard_input": stream, "at": NOON, **asked}
    return Asked(**fields)  # pyright: ignore[reportArgumentType] - each test names fields that there are


def held(source: bytes | Path, **asked: object) -> list[Memory]:
    """Return the memories that a reading holds, and fail if it refused one."""
    with reading(made(source, **asked)) as parcels:
        found = [parcel.holds for parcel in parcels]
    assert [each for each in found if isinstance(each, Refused)] == []
    return [each.memory for each in found if isinstance(each, Arrived)]


def refused(source: bytes | Path, **asked: object) -> list[str]:
    """Return where a reading refused something, and why."""
    with reading(made(source, **asked)) as parcels:
        return [f"{parcel.where}: {parcel.holds.why}" for parcel in parcels if isinstance(parcel.holds, Refused)]


def things(lines: bytes) -> list[Mapping[str, object]]:
    """Return the lines of an export but the first, which says when it was written."""
    return [cast("dict[str, object]", orjson.loads(line)) for line in lines.splitlines()[1:]]


def of_kind(lines: bytes, kind: str) -> Sequence[Mapping[str, object]]:
    """Return the lines of one kind."""
    return [thing for thing in things(lines) if thing["kind"] == kind]
