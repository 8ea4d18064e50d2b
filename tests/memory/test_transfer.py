"""Export and import of memories."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import orjson
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rookery.kernel.clock import from_micros
from rookery.kernel.db import Database, open_database
from rookery.kernel.ids import is_uuid, uuid7
from rookery.memory.merging import Merge
from rookery.memory.models import Memory, MemoryScope, Tombstone
from rookery.memory.recall_models import RecallRequest
from rookery.memory.store import records, transfer
from rookery.memory.store.tables import TOMBSTONES
from rookery.memory.store.transfer import TransferRecord
from rookery.memory.transfer.exporting import ExportRequest
from rookery.memory.transfer.importing import BATCH_SIZE, ImportRequest
from rookery.memory.transfer.items import ImportOverrides, copy_id
from rookery.migrations import migrate
from tests.conftest import FakeClock
from tests.memory.makers import MemoryRig, build_rig, make_caller, make_memory
from tests.memory.transfers import EVERYTHING, Transfers, lines_of_kind, nonzero_counts, parse_lines


@asynccontextmanager
async def _open_empty_store(folder: Path) -> AsyncGenerator[MemoryRig]:
    """Open a separate store without memories."""
    folder.mkdir(exist_ok=True)
    migrate("embedded:", data_dir=folder)
    db = open_database("embedded:", data_dir=folder)
    rig = build_rig(db, folder, FakeClock())
    try:
        yield rig
    finally:
        await rig.close()
        await db.close()


NAMES = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), min_size=1, max_size=12).filter(
    lambda text: text.strip()
)
MOMENTS = st.integers(0, 1_790_000_000_000_000).map(from_micros)
"""Times in the past."""

SHARES = st.floats(0, 1)


@st.composite
def make_record(draw: st.DrawFn) -> TransferRecord:
    """Return a record as a store may contain it."""
    scope = draw(st.sampled_from(MemoryScope))
    memory = Memory(
        id=uuid7(),
        workspace_id=1,
        org=draw(NAMES) if scope is MemoryScope.SHARED else draw(st.none() | NAMES),
        project=draw(st.none() | NAMES),
        agent_id=draw(NAMES) if scope is MemoryScope.AGENT else draw(st.none() | NAMES),
        session_id=draw(NAMES) if scope is MemoryScope.SESSION else draw(st.none() | NAMES),
        memory_scope=scope,
        type=draw(st.sampled_from(["decision", "fact", "my-own_type2"])),
        tags=tuple(dict.fromkeys(tag.lower() for tag in draw(st.lists(NAMES, max_size=3)))),
        confidence=draw(SHARES),
        base_confidence=draw(SHARES),
        source=draw(NAMES),
        content=draw(
            st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), min_size=1).filter(lambda text: text.strip())
        ),
        supersedes_id=draw(st.none() | st.uuids().map(str)),
        superseded_by=draw(st.none() | st.uuids().map(str)),
        expires_at=draw(
            st.none() | st.integers(1, 10**15).map(lambda micros: datetime(2030, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros))
        ),
        archived_at=draw(st.none() | MOMENTS),
        content_at=draw(MOMENTS),
        created_at=draw(MOMENTS),
        updated_at=draw(MOMENTS),
    )
    return TransferRecord(memory=memory, recalled_at=draw(st.none() | MOMENTS))


@st.composite
def make_tombstone(draw: st.DrawFn) -> Tombstone:
    """Return a tombstone as a store may contain it."""
    predecessor, successor = draw(st.none() | st.uuids().map(str)), draw(st.none() | st.uuids().map(str))
    return Tombstone(
        id=uuid7(), workspace_id=1, supersedes_id=predecessor, superseded_by=successor, created_at=draw(MOMENTS), ended_at=draw(MOMENTS)
    )


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(memories=st.lists(make_record(), max_size=6), tombstones=st.lists(make_tombstone(), max_size=3), is_merged=st.booleans())
def test_an_export_and_an_import_into_an_empty_store_restore_all_records(
    memories: list[TransferRecord], tombstones: list[Tombstone], is_merged: bool
) -> None:
    """Ids, lineage, tombstones, confidence, times, tags and archived memories stay the same."""

    async def run() -> None:
        with TemporaryDirectory() as name:
            async with _open_empty_store(Path(name, "one")) as source, _open_empty_store(Path(name, "two")) as target:
                await source.db.write(lambda tx: (transfer.add(tx, memories), TOMBSTONES.insert(tx, *tombstones)))
                if is_merged and memories:
                    merge = Merge(
                        memory_id=memories[0].id, workspace_id=1, primary_id=uuid7(), run="r1", seen_at=from_micros(5), length=3,
                        digest="0" * 32, tags=("a",), is_done=True,
                    )  # fmt: skip
                    await source.db.write(lambda tx: records.add_merges(tx, [merge]))
                first = await Transfers(source).export_lines()
                report, rejections = await Transfers(target).import_source(first)
                second_report, _ = await Transfers(target).import_source(first)
                second = await Transfers(target).export_lines()

                assert parse_lines(second) == parse_lines(first)
                assert rejections == []
                assert (report.failures, report.successes) == (0, len(memories) + len(tombstones))
                assert second_report.counts["unchanged"] == len(memories) + len(tombstones)
                ids = [record.id for record in memories]
                assert await target.db.read(lambda tx: transfer.get_transfer_records(tx, ids)) == {record.id: record for record in memories}

    asyncio.run(run())


async def test_imported_memories_are_found_by_full_text_first_and_by_meaning_when_indexed(rig: MemoryRig, tmp_path: Path) -> None:
    """An import stores records and jobs in one transaction; the jobs have their own queue."""
    heron = await rig.remember("The heron nests on the roof.")
    archived = await rig.remember("The stork left.")
    await rig.services.records.archive(make_caller(), archived.id)
    lines = await Transfers(rig).export_lines()

    async with _open_empty_store(tmp_path / "other") as other:
        transfers = Transfers(other)
        report, _ = await transfers.import_source(lines)
        by_words = await other.services.recall.find(make_caller(), RecallRequest(query="heron", mode="keyword"))
        backlog = await other.jobs.count_pending("EmbedMemory", 1)
        indexed_count = await transfers.run_jobs()
        by_meaning = await other.services.recall.find(make_caller(), RecallRequest(query="where does the heron nest", mode="semantic"))

        assert nonzero_counts(report) == {"imported": 2}
        assert ([hit.memory.id for hit in by_words.hits], backlog, indexed_count) == ([heron.id], 0, 1)
        assert [hit.memory.id for hit in by_meaning.hits] == [heron.id]
        assert (await other.reload(heron)).indexed_at is not None


async def test_a_filtered_export_contains_the_lineage_of_its_memories(rig: MemoryRig) -> None:
    """The filters are --org, --project, --agent, --type and --include-archived."""
    first = await rig.remember("one", project="web")
    current_web = await rig.remember("two", project="web", supersedes_id=first.id)
    superseded_api = await rig.remember("three", project="api", type="decision")
    await rig.remember("four", project="api", supersedes_id=superseded_api.id)
    agent_memory = await rig.remember("five", agent_id="kim", memory_scope=MemoryScope.AGENT)
    archived_memory = await rig.remember("six", org="zoo", confidence=0.2)
    await rig.services.records.archive(make_caller(), archived_memory.id)
    await rig.remember("foreign", make_caller(workspace_id=2))
    transfers = Transfers(rig)

    async def list_ids(kind: str, request: ExportRequest) -> list[object]:
        return [row["id"] for row in lines_of_kind(await transfers.export_lines(request), kind)]

    everything = ExportRequest(workspace_id=1)
    assert await list_ids("memory", replace(everything, project="web", type="observation")) == [current_web.id, agent_memory.id]
    assert await list_ids("tombstone", replace(everything, project="web")) == [first.id]
    assert await list_ids("memory", replace(everything, agent_id="kim")) == [agent_memory.id]
    assert await list_ids("tombstone", replace(everything, agent_id="kim")) == []
    assert await list_ids("memory", replace(everything, org="zoo")) == []
    assert await list_ids("memory", replace(everything, org="zoo", includes_archived=True)) == [archived_memory.id]
    assert await list_ids("tombstone", everything) == [first.id, superseded_api.id]


async def test_an_import_does_not_overwrite_existing_memories(rig: MemoryRig) -> None:
    """An existing id is skipped if the memory is equal, and else reported as a conflict."""
    transfers = Transfers(rig)
    same, changed, deleted = [await rig.remember(content) for content in ("same", "changed", "gone")]
    await rig.remember("after", supersedes_id=deleted.id)
    foreign = await rig.remember("foreign", make_caller(workspace_id=2))
    lines = await transfers.export_lines() + await transfers.export_lines(replace(EVERYTHING, workspace_id=2))
    changed_export = lines.replace(b'"content":"changed"', b'"content":"as it was"').replace(b'"confidence":0.8', b'"confidence":0.7', 1)

    report, conflicts = await transfers.import_source(changed_export)

    assert nonzero_counts(report) == {"unchanged": 2, "conflicts": 3}
    assert report.failures == 3
    assert {item.id: (item.action, item.why.partition(": ")[2]) for item in conflicts} == {
        same.id: ("conflict", "it is already stored with another confidence"),
        changed.id: ("conflict", "it is already stored with another content"),
        foreign.id: ("conflict", "its id is already used; add --new-ids to store a copy with a new id"),
    }
    assert await transfers.export_lines() + await transfers.export_lines(replace(EVERYTHING, workspace_id=2)) != changed_export


async def test_copies_keep_their_lineage_and_a_second_run_adds_none(rig: MemoryRig) -> None:
    """--new-ids maps the lineage to the new ids."""
    transfers = Transfers(rig)
    first = await rig.remember("one")
    second = await rig.remember("two", supersedes_id=first.id)
    lines = await transfers.export_lines()
    request = ImportRequest(workspace_id=2, new_ids=True)

    reports = [(await transfers.import_source(lines, request))[0] for _ in range(2)]
    copy_of_first, copy_of_second = copy_id(2, first.id), copy_id(2, second.id)
    history = await rig.services.records.history(make_caller(workspace_id=2), copy_of_second)

    assert [nonzero_counts(report) for report in reports] == [{"imported": 1, "tombstones": 1}, {"unchanged": 2}]
    assert [entry.id for entry in history] == [copy_of_first, copy_of_second]
    assert (history[1].supersedes_id, history[0].superseded_by) == (copy_of_first, copy_of_second)
    assert (is_uuid(copy_of_first), copy_of_first[:13], copy_of_first < copy_of_second) == (True, first.id[:13], first.id < second.id)
    assert await rig.reload(second) == replace(second, indexed_at=None)


async def test_an_import_supersedes_older_versions_unless_they_were_changed(rig: MemoryRig, tmp_path: Path) -> None:
    """A newer export ends memories of an older one, so that two versions are never live at once."""
    unchanged, touched_later = await rig.remember("one"), await rig.remember("two")
    older_export = await Transfers(rig).export_lines()
    rig.clock.advance(hours=1)
    successors = [await rig.remember(f"new {memory.content}", supersedes_id=memory.id) for memory in (unchanged, touched_later)]
    newer_export = await Transfers(rig).export_lines()

    async with _open_empty_store(tmp_path / "other") as other:
        transfers = Transfers(other)
        await transfers.import_source(older_export)
        await transfers.run_jobs()
        stored = await other.db.read(lambda tx: transfer.get_transfer_records(tx, [touched_later.id]))
        touched = replace(stored[touched_later.id].memory, updated_at=rig.clock() + timedelta(hours=1))
        await other.db.write(lambda tx: records.update_memory(tx, stored[touched_later.id].memory, touched))
        report, conflicts = await transfers.import_source(newer_export)
        older_again, _ = await transfers.import_source(older_export)

        assert nonzero_counts(report) == {"imported": 2, "ended": 1, "conflicts": 1}
        assert {item.id for item in conflicts} == {touched_later.id}
        assert older_again.counts["imported"] == 0
        live_ids = {row["id"] for row in lines_of_kind(await transfers.export_lines(), "memory")}
        assert live_ids == {touched_later.id, *(memory.id for memory in successors)}
        recall = await other.services.recall.find(make_caller(), RecallRequest(query="one", mode="keyword"))
        assert unchanged.id not in {hit.memory.id for hit in recall.hits}


async def test_a_bad_line_does_not_stop_the_others(rig: MemoryRig) -> None:
    """Bad lines are reported with their number; the rules of `remember` apply."""
    valid = make_memory(rig.clock)
    await rig.db.write(lambda tx: transfer.add(tx, [TransferRecord(memory=valid)]))
    header, line, _ = (await Transfers(rig).export_lines()).splitlines()
    values = orjson.loads(line)
    invalid: list[tuple[dict[str, object], str]] = [
        ({"content": "x" * 50_001}, "content"), ({"content": " \n"}, "content"), ({"content": None}, "content"),
        ({"content": "a\0b"}, "content"), ({"type": "No Type"}, "type"), ({"confidence": 1.5}, "confidence"),
        ({"confidence": True}, "confidence"), ({"base_confidence": "0.5"}, "base_confidence"), ({"id": "x"}, "id"),
        ({"created_at": "yesterday"}, "created_at"), ({"updated_at": "0001-01-01T00:00:00+14:00"}, "updated_at"),
        ({"tags": "a"}, "tags"), ({"tags": ["a"] * 101}, "tags"), ({"tags": ["t" * 129]}, "tags"), ({"tags": [1]}, "tags"),
        ({"memory_scope": "all"}, "memory_scope"), ({"memory_scope": "agent"}, "agent_id"), ({"memory_scope": []}, "memory_scope"),
        ({"org": "o" * 101}, "org"), ({"org": 3}, "org"), ({"supersedes_id": "1"}, "supersedes_id"), ({"kind": "plan"}, "kind"),
    ]  # fmt: skip
    lines = [header, *(orjson.dumps({**values, "id": uuid7(), **change}) for change, _ in invalid)]
    lines += [orjson.dumps({"kind": "x" * 1_000_000, "id": "y" * 1_000_000})]
    lines += [b"{", b"[]", b"\xff", b'{"a":' * 2000, orjson.dumps({**values, "id": uuid7(), "content": "a valid one"})]

    dry_run, dry_run_items = await Transfers(rig).import_source(b"\n".join(lines), ImportRequest(workspace_id=1, dry_run=True))
    report, rejections = await Transfers(rig).import_source(b"\n".join(lines))

    reasons = [item.why for item in rejections]
    assert nonzero_counts(report) == {"imported": 1, "refused": len(invalid) + 6}
    for number, (_, field) in enumerate(invalid, start=2):
        assert reasons[number - 2].startswith(f"line {number}: {field}: ")
    assert max(len(item.why) + len(item.id) for item in rejections) < 300
    assert reasons[-1] == "the end: the file is truncated: its last line is missing; the lines before it were read"
    assert [item for item in dry_run_items if item.action == "refuse"] == rejections
    assert nonzero_counts(dry_run) == nonzero_counts(report)


async def test_missing_lines_and_newer_format_versions_are_reported(rig: MemoryRig) -> None:
    """An incomplete file is not accepted as complete."""
    for content in ("one", "two", "three"):
        await rig.remember(content)
    lines = (await Transfers(rig).export_lines()).splitlines()

    _, rejections = await Transfers(rig).import_source(
        b"\n".join([lines[0], lines[2], lines[-1]]), ImportRequest(workspace_id=2, new_ids=True)
    )
    report, version_rejections = await Transfers(rig).import_source(
        b"\n".join([lines[0].replace(b'"version":1', b'"version":2'), *lines[1:]])
    )

    assert [item.why for item in rejections] == ["line 3: 2 lines are missing from the file"]
    assert (report.total, version_rejections[0].why[:37]) == (1, "line 1: the file has format version 2")


async def test_dedupe_skips_memories_with_existing_content(rig: MemoryRig) -> None:
    """With `--dedupe` a memory with the same content in the same space is skipped."""
    transfers = Transfers(rig)
    await rig.remember("heron")
    lines = await transfers.export_lines()
    copies = ImportRequest(workspace_id=1, new_ids=True)

    copies_report, _ = await transfers.import_source(lines, copies)
    deduped_report, _ = await transfers.import_source(lines, ImportRequest(workspace_id=2, new_ids=True, dedupe=True))
    second_report, items = await transfers.import_source(
        await transfers.export_lines(),
        ImportRequest(workspace_id=2, overrides=ImportOverrides(tags=("new",)), new_ids=True, dedupe=True, dry_run=True),
    )

    assert (nonzero_counts(copies_report), nonzero_counts(deduped_report), nonzero_counts(second_report)) == (
        {"imported": 1},
        {"imported": 1},
        {"duplicates": 1, "conflicts": 1},
    )
    assert {item.action for item in items} == {"skip", "conflict"}


async def test_an_import_can_override_org_project_agent_type_and_tags(rig: MemoryRig) -> None:
    """Memories that would be invalid with the overrides are rejected."""
    transfers = Transfers(rig)
    await rig.remember("heron", tags=("bird",))
    lines = await transfers.export_lines()
    overrides = ImportOverrides(org="zoo", project="lake", agent_id="kim", type="fact", memory_scope=MemoryScope.AGENT, tags=("moved",))

    await transfers.import_source(lines, ImportRequest(workspace_id=2, new_ids=True, overrides=overrides))
    invalid_report, rejections = await transfers.import_source(
        lines, ImportRequest(workspace_id=3, new_ids=True, overrides=ImportOverrides(memory_scope=MemoryScope.SESSION))
    )
    (memory,) = lines_of_kind(await transfers.export_lines(ExportRequest(workspace_id=2)), "memory")

    assert {name: memory[name] for name in ("org", "project", "agent_id", "type", "memory_scope", "tags")} == {
        "org": "zoo", "project": "lake", "agent_id": "kim", "type": "fact", "memory_scope": "agent", "tags": ["bird", "moved"],
    }  # fmt: skip
    assert (nonzero_counts(invalid_report), rejections[0].why) == (
        {"refused": 1},
        "line 2: session_id: is required for a memory of scope session",
    )


async def test_exports_and_imports_can_redact_personal_data_and_secrets(rig: MemoryRig) -> None:
    """--strip-pii works for both; the exported store is not changed."""
    transfers = Transfers(rig)
    content = "Ask kim@example.org; password: hunter2hunter2"
    await rig.remember(content, tags=("kim@example.org",))

    exported = await transfers.export_lines(replace(EVERYTHING, strip_pii=True))
    await transfers.import_source(await transfers.export_lines(), ImportRequest(workspace_id=2, new_ids=True, strip_pii=True))
    imported = await transfers.export_lines(ExportRequest(workspace_id=2))

    for lines in (exported, imported):
        assert b"kim@" not in lines
        assert b"hunter2" not in lines
        assert b"[email]" in lines
    assert content.encode() in await transfers.export_lines()


async def test_expired_memories_are_neither_exported_nor_imported(rig: MemoryRig) -> None:
    """An expired memory counts as deleted."""
    transfers = Transfers(rig)
    await rig.remember("short", expires_in=1)
    lines = await transfers.export_lines()
    rig.clock.advance(hours=2)

    report, items = await transfers.import_source(lines, ImportRequest(workspace_id=2, new_ids=True))

    assert (nonzero_counts(report), report.failures, items) == ({"expired": 1}, 0, [])
    assert lines_of_kind(await transfers.export_lines(), "memory") == []


async def test_a_dry_run_lists_what_a_run_does_and_changes_nothing(rig: MemoryRig) -> None:
    """Its report is exact over several batches, with repeated ids and duplicates in one file."""
    transfers = Transfers(rig)
    memories = [make_memory(rig.clock, content=f"say {number % (BATCH_SIZE + 7)}") for number in range(2 * BATCH_SIZE)]
    await rig.db.write(lambda tx: transfer.add(tx, [TransferRecord(memory=memory) for memory in memories]))
    lines = await transfers.export_lines()
    lines += lines.replace(b"say 5", b"say otherwise 5")
    request = ImportRequest(workspace_id=2, new_ids=True, dedupe=True)

    dry_run, planned_items = await transfers.import_source(lines, replace(request, dry_run=True))
    export_after_dry_run = await transfers.export_lines(ExportRequest(workspace_id=2))
    report, _ = await transfers.import_source(lines, request)

    assert nonzero_counts(dry_run) == nonzero_counts(report)
    assert len(planned_items) == dry_run.total == 4 * BATCH_SIZE
    assert lines_of_kind(export_after_dry_run, "memory") == []
    assert len(lines_of_kind(await transfers.export_lines(ExportRequest(workspace_id=2)), "memory")) == report.counts["imported"]


async def test_concurrent_imports_store_each_memory_once(rig: MemoryRig, database: Database) -> None:
    """Imports can be repeated, also concurrently."""
    transfers = Transfers(rig)
    memories = [make_memory(rig.clock, content=f"say {number}") for number in range(2 * BATCH_SIZE)]
    await rig.db.write(lambda tx: transfer.add(tx, [TransferRecord(memory=memory) for memory in memories]))
    lines = await transfers.export_lines()

    reports = await asyncio.gather(*(transfers.import_source(lines, ImportRequest(workspace_id=2, new_ids=True)) for _ in range(3)))

    assert sum(report.counts["imported"] for report, _ in reports) == 2 * BATCH_SIZE
    assert {report.failures for report, _ in reports} == {0}
