"""Imports of memories: storage limits, events, and invalid lines."""

from __future__ import annotations

from dataclasses import replace

import orjson

from rookery.kernel.ids import uuid7
from rookery.memory.capacity import StorageLimits
from rookery.memory.events import MemoryStored, MemorySuperseded
from rookery.memory.store import transfer
from rookery.memory.store.transfer import TransferRecord
from rookery.memory.transfer.importing import BATCH_SIZE, ImportRequest
from rookery.memory.transfer.items import copy_id
from tests.memory.makers import MemoryRig, make_caller, make_memory
from tests.memory.transfers import Transfers, lines_of_kind, nonzero_counts

HEADER = b'{"kind":"rookery-memories","version":1}'


async def test_an_import_stops_when_the_workspace_is_full(rig: MemoryRig) -> None:
    """max_memories limits imports too; the report names the first line that was not stored, and --resume continues there."""
    transfers, limited_transfers = Transfers(rig), Transfers(rig, StorageLimits(max_memories=BATCH_SIZE + 5, min_free_bytes=0))
    memories = [make_memory(rig.clock, content=f"say {number}") for number in range(BATCH_SIZE + 10)]
    await rig.db.write(lambda tx: transfer.add(tx, [TransferRecord(memory=memory) for memory in memories]))
    lines = await transfers.export_lines()
    request = ImportRequest(workspace_id=2, new_ids=True, run="import 2 a file")

    dry_run, _ = await limited_transfers.import_source(lines, replace(request, dry_run=True))
    report, _ = await limited_transfers.import_source(lines, request)
    second_report, _ = await limited_transfers.import_source(lines, request)
    last_report, _ = await transfers.import_source(lines, replace(request, resume=True))

    assert report.stopped is not None
    assert f"Nothing was stored from line {BATCH_SIZE + 7} on" in report.stopped
    assert (nonzero_counts(report), nonzero_counts(dry_run), dry_run.stopped) == (
        {"imported": BATCH_SIZE + 5},
        {"imported": BATCH_SIZE + 5},
        report.stopped,
    )
    assert (nonzero_counts(second_report), second_report.stopped) == ({"unchanged": BATCH_SIZE + 5}, report.stopped)
    assert (nonzero_counts(last_report), last_report.stopped) == ({"earlier": BATCH_SIZE + 5, "imported": 5}, None)


async def test_an_import_sends_events_unless_quiet(rig: MemoryRig) -> None:
    """An import sends MemoryStored for new memories and MemorySuperseded for replaced ones."""
    transfers = Transfers(rig)
    old = (await rig.remember("we deploy on Monday")).id
    first_export = await transfers.export_lines()
    new = (await rig.remember("we deploy on Friday", supersedes_id=old)).id
    rig.events.clear()

    await transfers.import_source(first_export, ImportRequest(workspace_id=2, new_ids=True, is_quiet=True))
    quiet = list(rig.events)
    await transfers.import_source(await transfers.export_lines(), ImportRequest(workspace_id=2, new_ids=True))
    await transfers.import_source(await transfers.export_lines(), ImportRequest(workspace_id=2, new_ids=True))

    copies = [copy_id(2, memory_id) for memory_id in (old, new)]
    assert quiet == []
    assert [(type(event).__name__, event.memory_id) for event in rig.events if isinstance(event, MemoryStored | MemorySuperseded)] == [
        ("MemoryStored", copies[1]),
        ("MemorySuperseded", copies[0]),
    ]


async def test_a_circular_lineage_and_a_future_time_are_rejected(rig: MemoryRig) -> None:
    """Each bad line is reported with a reason, in any order of lines, also in a dry run."""
    transfers = Transfers(rig)
    first = (await rig.remember("first")).id
    (line,) = lines_of_kind(await transfers.export_lines(), "memory")
    ids = [uuid7() for _ in range(4)]
    future = "2999-01-01T00:00:00Z"
    rows = [
        {**line, "id": ids[0], "superseded_by": ids[1]},
        {**line, "id": ids[1], "superseded_by": ids[0]},
        {**line, "id": ids[2], "supersedes_id": ids[2]},
        {**line, "id": ids[3], "created_at": future, "updated_at": future},
    ]

    export = b"\n".join([HEADER, *map(orjson.dumps, rows)])

    dry_run, _ = await transfers.import_source(export, ImportRequest(workspace_id=1, dry_run=True))
    report, rejections = await transfers.import_source(export)

    assert nonzero_counts(dry_run) == nonzero_counts(report) == {"imported": 1, "refused": 4}
    assert [rejection.why.partition(":")[0] for rejection in rejections] == ["line 3", "line 4", "line 5", "the end"]
    assert len(await rig.services.records.history(make_caller(), first)) == 1


async def test_the_history_of_a_stored_circular_lineage_ends(rig: MemoryRig) -> None:
    """A damaged store, or one of an older version, lists each memory of the circle once."""
    one, other = (make_memory(rig.clock, content=word) for word in ("one", "other"))
    circle = [replace(one, superseded_by=other.id), replace(other, superseded_by=one.id)]
    await rig.db.write(lambda tx: transfer.add(tx, [TransferRecord(memory=memory) for memory in circle]))

    history = await rig.services.records.history(make_caller(), one.id)

    assert [memory.id for memory in history] == [one.id, other.id]


async def test_a_byte_order_mark_is_ignored(rig: MemoryRig) -> None:
    """Some editors write it before the first line."""
    transfers = Transfers(rig)
    await rig.remember("first")
    lines = (await transfers.export_lines()).replace(b"\n", b"\r\n")

    report, rejections = await transfers.import_source(b"\xef\xbb\xbf" + lines, ImportRequest(workspace_id=2, new_ids=True))
    mem0_report, _ = await transfers.import_source(b'\xef\xbb\xbf[{"memory": "kim likes tea"}]', ImportRequest(workspace_id=2))

    assert (nonzero_counts(report), rejections, nonzero_counts(mem0_report)) == ({"imported": 1}, [], {"imported": 1})
