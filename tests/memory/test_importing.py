"""Imports of memories: storage limits, events, and invalid lines (D-04, D-17, D-41, spec 6.1)."""

from __future__ import annotations

from dataclasses import replace

import orjson

from rookery.kernel.events import MemoryStored, MemorySuperseded
from rookery.kernel.ids import uuid7
from rookery.memory.batch_runs import RunReport
from rookery.memory.capacity import StorageLimits
from rookery.memory.store import transfer
from rookery.memory.store.transfer import TransferRecord
from rookery.memory.transfer.importing import BATCH_SIZE
from rookery.memory.transfer.importing import ImportRequest as In
from rookery.memory.transfer.items import copy_id
from tests.memory.makers import MemoryRig, make_caller, make_memory
from tests.memory.transfers import Transfers, lines_of_kind

HEADER = b'{"kind":"rookery-memories","version":1}'


def _counts(report: RunReport) -> dict[str, int]:
    return {name: number for name, number in report.counts.items() if number}


async def test_a_full_workspace_stops_an_import_where_its_room_ends(rig: MemoryRig) -> None:
    """D-17: max_memories holds for an import too, to the last one; it says from where on nothing was stored, and goes on from there."""
    moves, full = Transfers(rig), Transfers(rig, StorageLimits(max_memories=BATCH_SIZE + 5, min_free_bytes=0))
    memories = [make_memory(rig.clock, content=f"say {number}") for number in range(BATCH_SIZE + 10)]
    await rig.db.write(lambda tx: transfer.add(tx, [TransferRecord(memory=memory) for memory in memories]))
    lines = await moves.export_lines()
    wanted = In(workspace_id=2, new_ids=True, run="import 2 a file")

    dry, _ = await full.import_source(lines, replace(wanted, dry_run=True))
    report, _ = await full.import_source(lines, wanted)
    again, _ = await full.import_source(lines, wanted)
    rest, _ = await moves.import_source(lines, replace(wanted, resume=True))

    assert report.stopped is not None
    assert f"Nothing was stored from line {BATCH_SIZE + 7} on" in report.stopped
    assert (_counts(report), _counts(dry), dry.stopped) == ({"imported": BATCH_SIZE + 5}, {"imported": BATCH_SIZE + 5}, report.stopped)
    assert (_counts(again), again.stopped) == ({"unchanged": BATCH_SIZE + 5}, report.stopped)
    assert (_counts(rest), rest.stopped) == ({"earlier": BATCH_SIZE + 5, "imported": 5}, None)


async def test_what_was_moved_in_is_announced_unless_quiet(rig: MemoryRig) -> None:
    """Spec 6.1: MemoryStored is raised when a memory is stored, however it came; what ends by an import is announced as well (D-41)."""
    moves = Transfers(rig)
    old = (await rig.remember("we deploy on Monday")).id
    before = await moves.export_lines()
    new = (await rig.remember("we deploy on Friday", supersedes_id=old)).id
    rig.events.clear()

    await moves.import_source(before, In(workspace_id=2, new_ids=True, is_quiet=True))
    quiet = list(rig.events)
    await moves.import_source(await moves.export_lines(), In(workspace_id=2, new_ids=True))
    await moves.import_source(await moves.export_lines(), In(workspace_id=2, new_ids=True))

    copies = [copy_id(2, each) for each in (old, new)]
    assert quiet == []
    assert [(type(each).__name__, each.memory_id) for each in rig.events if isinstance(each, MemoryStored | MemorySuperseded)] == [
        ("MemoryStored", copies[1]),
        ("MemorySuperseded", copies[0]),
    ]


async def test_a_lineage_that_runs_in_a_circle_and_a_time_to_come_are_refused(rig: MemoryRig) -> None:
    """D-41: history has an end; issue 5: a bad line is refused in words, by whatever order it comes, also in a dry run."""
    moves = Transfers(rig)
    first = (await rig.remember("first")).id
    (line,) = lines_of_kind(await moves.export_lines(), "memory")
    ids = [uuid7() for _ in range(4)]
    later = "2999-01-01T00:00:00Z"
    rows = [
        {**line, "id": ids[0], "superseded_by": ids[1]},
        {**line, "id": ids[1], "superseded_by": ids[0]},
        {**line, "id": ids[2], "supersedes_id": ids[2]},
        {**line, "id": ids[3], "created_at": later, "updated_at": later},
    ]

    written = b"\n".join([HEADER, *map(orjson.dumps, rows)])

    dry, _ = await moves.import_source(written, In(workspace_id=1, dry_run=True))
    report, heard = await moves.import_source(written)

    assert _counts(dry) == _counts(report) == {"imported": 1, "refused": 4}
    assert [each.why.partition(":")[0] for each in heard] == ["line 3", "line 4", "line 5", "the end"]
    assert len(await rig.services.records.history(make_caller(), first)) == 1


async def test_a_circle_that_is_there_already_ends_in_a_history(rig: MemoryRig) -> None:
    """D-41: a store that was damaged, or filled by an older version, is shown once round."""
    one, other = (make_memory(rig.clock, content=word) for word in ("one", "other"))
    circle = [replace(one, superseded_by=other.id), replace(other, superseded_by=one.id)]
    await rig.db.write(lambda tx: transfer.add(tx, [TransferRecord(memory=memory) for memory in circle]))

    history = await rig.services.records.history(make_caller(), one.id)

    assert [each.id for each in history] == [one.id, other.id]


async def test_a_byte_order_mark_says_nothing(rig: MemoryRig) -> None:
    """Issue 5: what an editor of another system put before the first line keeps nothing from being read."""
    moves = Transfers(rig)
    await rig.remember("first")
    lines = (await moves.export_lines()).replace(b"\n", b"\r\n")

    report, heard = await moves.import_source(b"\xef\xbb\xbf" + lines, In(workspace_id=2, new_ids=True))
    mem0, _ = await moves.import_source(b'\xef\xbb\xbf[{"memory": "kim likes tea"}]', In(workspace_id=2))

    assert (_counts(report), heard, _counts(mem0)) == ({"imported": 1}, [], {"imported": 1})
