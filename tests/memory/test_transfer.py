"""Memories moved out of a store and into one (D-04, D-41, D-51)."""

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
from rookery.memory.batch_runs import RunReport
from rookery.memory.merging import Merge
from rookery.memory.models import Memory, MemoryScope, RecallRequest, Tombstone
from rookery.memory.store import merges, records, transfer
from rookery.memory.store.transfer import TransferRecord
from rookery.memory.transfer.exporting import ExportRequest as Out
from rookery.memory.transfer.importing import BATCH_SIZE
from rookery.memory.transfer.importing import ImportRequest as In
from rookery.memory.transfer.items import ImportOverrides, copy_id
from rookery.migrations import migrate
from tests.conftest import FakeClock
from tests.memory.makers import MemoryRig, build_rig, make_caller, make_memory
from tests.memory.transfers import EVERYTHING, Transfers, lines_of_kind, parse_lines


def _counts(report: RunReport) -> dict[str, int]:
    return {name: number for name, number in report.counts.items() if number}


@asynccontextmanager
async def _empty(folder: Path) -> AsyncGenerator[MemoryRig]:
    """Another store, with nothing in it."""
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
"""All of them past."""

SHARES = st.floats(0, 1)


@st.composite
def kept(draw: st.DrawFn) -> TransferRecord:
    """Return a memory as a store may have it."""
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
def graves(draw: st.DrawFn) -> Tombstone:
    """Return a tombstone as a store may have it."""
    before, after = draw(st.none() | st.uuids().map(str)), draw(st.none() | st.uuids().map(str))
    return Tombstone(
        id=uuid7(), workspace_id=1, supersedes_id=before, superseded_by=after, created_at=draw(MOMENTS), ended_at=draw(MOMENTS)
    )


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(memories=st.lists(kept(), max_size=6), buried=st.lists(graves(), max_size=3), is_merged=st.booleans())
def test_what_goes_out_and_in_is_what_it_was(memories: list[TransferRecord], buried: list[Tombstone], is_merged: bool) -> None:
    """Issue 6: export and import into an empty store is the identity: ids, lineage, tombstones, confidence, times, tags, archived."""

    async def story() -> None:
        with TemporaryDirectory() as name:
            async with _empty(Path(name, "one")) as one, _empty(Path(name, "two")) as two:
                await one.db.write(lambda tx: (transfer.add(tx, memories), transfer.add_tombstones(tx, buried)))
                if is_merged and memories:
                    merge = Merge(
                        memory_id=memories[0].id, workspace_id=1, primary_id=uuid7(), run="r1", seen_at=from_micros(5), length=3,
                        digest="0" * 32, tags=("a",), is_done=True,
                    )  # fmt: skip
                    await one.db.write(lambda tx: merges.add(tx, [merge]))
                first = await Transfers(one).export_lines()
                report, heard = await Transfers(two).import_source(first)
                again, _ = await Transfers(two).import_source(first)
                second = await Transfers(two).export_lines()

                assert parse_lines(second) == parse_lines(first)
                assert heard == []
                assert (report.failures, report.successes) == (0, len(memories) + len(buried))
                assert again.counts["unchanged"] == len(memories) + len(buried)
                ids = [each.id for each in memories]
                assert await two.db.read(lambda tx: transfer.get_transfer_records(tx, ids)) == {each.id: each for each in memories}

    asyncio.run(story())


async def test_what_was_moved_is_found_by_words_at_once_and_by_meaning_when_indexed(rig: MemoryRig, tmp_path: Path) -> None:
    """D-51, issue 6: vectors are made anew on import; the jobs are born with the records, in a queue of their own."""
    heron = await rig.remember("The heron nests on the roof.")
    archived = await rig.remember("The stork left.")
    await rig.services.records.archive(make_caller(), archived.id)
    lines = await Transfers(rig).export_lines()

    async with _empty(tmp_path / "other") as other:
        moves = Transfers(other)
        report, _ = await moves.import_source(lines)
        by_words = await other.services.recall.find(make_caller(), RecallRequest(query="heron", mode="keyword"))
        backlog = await other.jobs.count_pending("EmbedMemory", 1)
        indexed = await moves.run_jobs()
        by_meaning = await other.services.recall.find(make_caller(), RecallRequest(query="where does the heron nest", mode="semantic"))

        assert _counts(report) == {"imported": 2}
        assert ([hit.memory.id for hit in by_words.hits], backlog, indexed) == ([heron.id], 0, 1)
        assert [hit.memory.id for hit in by_meaning.hits] == [heron.id]
        assert (await other.reload(heron)).indexed_at is not None


async def test_a_part_is_exported_with_what_it_replaced(rig: MemoryRig) -> None:
    """Issue 6: --org, --project, --agent, --type, --include-archived; a part has the lineage of its own memories alone."""
    first = await rig.remember("one", project="web")
    web = await rig.remember("two", project="web", supersedes_id=first.id)
    other = await rig.remember("three", project="api", type="decision")
    await rig.remember("four", project="api", supersedes_id=other.id)
    kim = await rig.remember("five", agent_id="kim", memory_scope=MemoryScope.AGENT)
    old = await rig.remember("six", org="zoo", confidence=0.2)
    await rig.services.records.archive(make_caller(), old.id)
    await rig.remember("foreign", make_caller(workspace_id=2))
    moves = Transfers(rig)

    async def ids(kind: str, wanted: Out) -> list[object]:
        return [thing["id"] for thing in lines_of_kind(await moves.export_lines(wanted), kind)]

    everything = Out(workspace_id=1)
    assert await ids("memory", replace(everything, project="web", type="observation")) == [web.id, kim.id]
    assert await ids("tombstone", replace(everything, project="web")) == [first.id]
    assert await ids("memory", replace(everything, agent_id="kim")) == [kim.id]
    assert await ids("tombstone", replace(everything, agent_id="kim")) == []
    assert await ids("memory", replace(everything, org="zoo")) == []
    assert await ids("memory", replace(everything, org="zoo", includes_archived=True)) == [old.id]
    assert await ids("tombstone", everything) == [first.id, other.id]


async def test_what_is_here_as_another_is_a_conflict_and_stays(rig: MemoryRig) -> None:
    """Issue 6: ids that exist already are skipped if equal, and reported as conflicts otherwise."""
    moves = Transfers(rig)
    same, changed, gone = [await rig.remember(content) for content in ("same", "changed", "gone")]
    await rig.remember("after", supersedes_id=gone.id)
    foreign = await rig.remember("foreign", make_caller(workspace_id=2))
    lines = await moves.export_lines() + await moves.export_lines(replace(EVERYTHING, workspace_id=2))
    old = lines.replace(b'"content":"changed"', b'"content":"as it was"').replace(b'"confidence":0.8', b'"confidence":0.7', 1)

    report, heard = await moves.import_source(old)

    assert _counts(report) == {"unchanged": 2, "conflicts": 3}
    assert report.failures == 3
    assert {item.id: (item.action, item.why.partition(": ")[2]) for item in heard} == {
        same.id: ("conflict", "it is already stored with another confidence"),
        changed.id: ("conflict", "it is already stored with another content"),
        foreign.id: ("conflict", "its id is already used; add --new-ids to store a copy with a new id"),
    }
    assert await moves.export_lines() + await moves.export_lines(replace(EVERYTHING, workspace_id=2)) != old


async def test_copies_keep_their_lineage_and_a_second_run_makes_no_more(rig: MemoryRig) -> None:
    """Issue 6: --new-ids with lineage mapped: what replaced what is the same among the copies."""
    moves = Transfers(rig)
    first = await rig.remember("one")
    second = await rig.remember("two", supersedes_id=first.id)
    lines = await moves.export_lines()
    wanted = In(workspace_id=2, new_ids=True)

    reports = [(await moves.import_source(lines, wanted))[0] for _ in range(2)]
    copy_of_first, copy_of_second = copy_id(2, first.id), copy_id(2, second.id)
    chain = await rig.services.records.history(make_caller(workspace_id=2), copy_of_second)

    assert [_counts(report) for report in reports] == [{"imported": 1, "tombstones": 1}, {"unchanged": 2}]
    assert [each.id for each in chain] == [copy_of_first, copy_of_second]
    assert (chain[1].supersedes_id, chain[0].superseded_by) == (copy_of_first, copy_of_second)
    assert (is_uuid(copy_of_first), copy_of_first[:13], copy_of_first < copy_of_second) == (True, first.id[:13], first.id < second.id)
    assert await rig.reload(second) == replace(second, indexed_at=None)


async def test_what_ended_there_ends_here_unless_it_was_changed_since(rig: MemoryRig, tmp_path: Path) -> None:
    """D-41: a newer export brings the ends of what an older one brought: two versions of one thing do not stand side by side."""
    one, two = await rig.remember("one"), await rig.remember("two")
    older = await Transfers(rig).export_lines()
    rig.clock.advance(hours=1)
    successors = [await rig.remember(f"new {each.content}", supersedes_id=each.id) for each in (one, two)]
    newer = await Transfers(rig).export_lines()

    async with _empty(tmp_path / "other") as other:
        moves = Transfers(other)
        await moves.import_source(older)
        await moves.run_jobs()
        held = await other.db.read(lambda tx: transfer.get_transfer_records(tx, [two.id]))
        touched = replace(held[two.id].memory, updated_at=rig.clock() + timedelta(hours=1))
        await other.db.write(lambda tx: records.update_memory(tx, held[two.id].memory, touched))
        report, heard = await moves.import_source(newer)
        backwards, _ = await moves.import_source(older)

        assert _counts(report) == {"imported": 2, "ended": 1, "conflicts": 1}
        assert {item.id for item in heard} == {two.id}
        assert backwards.counts["imported"] == 0
        alive = {thing["id"] for thing in lines_of_kind(await moves.export_lines(), "memory")}
        assert alive == {two.id, *(each.id for each in successors)}
        found = await other.services.recall.find(make_caller(), RecallRequest(query="one", mode="keyword"))
        assert one.id not in {hit.memory.id for hit in found.hits}


async def test_a_bad_line_does_not_stop_the_others(rig: MemoryRig) -> None:
    """Issue 6: reported with its line number; D-40: what could not have been remembered is not imported."""
    good = make_memory(rig.clock)
    await rig.db.write(lambda tx: transfer.add(tx, [TransferRecord(memory=good)]))
    header, line, _ = (await Transfers(rig).export_lines()).splitlines()
    values = orjson.loads(line)
    wrong: list[tuple[dict[str, object], str]] = [
        ({"content": "x" * 50_001}, "content"), ({"content": " \n"}, "content"), ({"content": None}, "content"),
        ({"content": "a\0b"}, "content"), ({"type": "No Type"}, "type"), ({"confidence": 1.5}, "confidence"),
        ({"confidence": True}, "confidence"), ({"base_confidence": "0.5"}, "base_confidence"), ({"id": "x"}, "id"),
        ({"created_at": "yesterday"}, "created_at"), ({"updated_at": "0001-01-01T00:00:00+14:00"}, "updated_at"),
        ({"tags": "a"}, "tags"), ({"tags": ["a"] * 101}, "tags"), ({"tags": ["t" * 129]}, "tags"), ({"tags": [1]}, "tags"),
        ({"memory_scope": "all"}, "memory_scope"), ({"memory_scope": "agent"}, "agent_id"), ({"memory_scope": []}, "memory_scope"),
        ({"org": "o" * 101}, "org"), ({"org": 3}, "org"), ({"supersedes_id": "1"}, "supersedes_id"), ({"kind": "plan"}, "kind"),
    ]  # fmt: skip
    lines = [header, *(orjson.dumps({**values, "id": uuid7(), **change}) for change, _ in wrong)]
    lines += [orjson.dumps({"kind": "x" * 1_000_000, "id": "y" * 1_000_000})]
    lines += [b"{", b"[]", b"\xff", b'{"a":' * 2000, orjson.dumps({**values, "id": uuid7(), "content": "a good one"})]

    dry, told = await Transfers(rig).import_source(b"\n".join(lines), In(workspace_id=1, dry_run=True))
    report, heard = await Transfers(rig).import_source(b"\n".join(lines))

    said = [item.why for item in heard]
    assert _counts(report) == {"imported": 1, "refused": len(wrong) + 6}
    for number, (_, field) in enumerate(wrong, start=2):
        assert said[number - 2].startswith(f"line {number}: {field}: ")
    assert max(len(item.why) + len(item.id) for item in heard) < 300
    assert said[-1] == "the end: the file is truncated: its last line is missing; the lines before it were read"
    assert [item for item in told if item.action == "refuse"] == heard
    assert _counts(dry) == _counts(report)


async def test_a_file_that_lost_lines_or_is_of_a_newer_rookery_says_so(rig: MemoryRig) -> None:
    """Issue 6: a half file is not taken for a whole one."""
    for content in ("one", "two", "three"):
        await rig.remember(content)
    lines = (await Transfers(rig).export_lines()).splitlines()

    _, lost = await Transfers(rig).import_source(b"\n".join([lines[0], lines[2], lines[-1]]), In(workspace_id=2, new_ids=True))
    report, newer = await Transfers(rig).import_source(b"\n".join([lines[0].replace(b'"version":1', b'"version":2'), *lines[1:]]))

    assert [item.why for item in lost] == ["line 3: 2 lines are missing from the file"]
    assert (report.total, newer[0].why[:37]) == (1, "line 1: the file has format version 2")


async def test_what_is_said_already_is_left_out_on_request(rig: MemoryRig) -> None:
    """D-40, --dedupe: the same content in the same space, also within one file; archived ones are moved as they are."""
    moves = Transfers(rig)
    await rig.remember("heron")
    lines = await moves.export_lines()
    copies = In(workspace_id=1, new_ids=True)

    plain, _ = await moves.import_source(lines, copies)
    deduped, _ = await moves.import_source(lines, In(workspace_id=2, new_ids=True, dedupe=True))
    again, told = await moves.import_source(
        await moves.export_lines(), In(workspace_id=2, overrides=ImportOverrides(tags=("new",)), new_ids=True, dedupe=True, dry_run=True)
    )

    assert (_counts(plain), _counts(deduped), _counts(again)) == (
        {"imported": 1},
        {"imported": 1},
        {"duplicates": 1, "conflicts": 1},
    )
    assert {item.action for item in told} == {"skip", "conflict"}


async def test_all_can_be_put_into_another_place(rig: MemoryRig) -> None:
    """Issue 6: --org, --project, --agent, --type, --tag; what would not be valid there is refused."""
    moves = Transfers(rig)
    await rig.remember("heron", tags=("bird",))
    lines = await moves.export_lines()
    place = ImportOverrides(org="zoo", project="lake", agent_id="kim", type="fact", memory_scope=MemoryScope.AGENT, tags=("moved",))

    await moves.import_source(lines, In(workspace_id=2, new_ids=True, overrides=place))
    refused, heard = await moves.import_source(
        lines, In(workspace_id=3, new_ids=True, overrides=ImportOverrides(memory_scope=MemoryScope.SESSION))
    )
    (moved,) = lines_of_kind(await moves.export_lines(Out(workspace_id=2)), "memory")

    assert {name: moved[name] for name in ("org", "project", "agent_id", "type", "memory_scope", "tags")} == {
        "org": "zoo", "project": "lake", "agent_id": "kim", "type": "fact", "memory_scope": "agent", "tags": ["bird", "moved"],
    }  # fmt: skip
    assert (_counts(refused), heard[0].why) == ({"refused": 1}, "line 2: session_id: is required for a memory of scope session")


async def test_personal_data_and_secrets_stay_out_on_request(rig: MemoryRig) -> None:
    """Issue 6, D-52: --strip-pii, on the way out and on the way in; the store itself is not changed."""
    moves = Transfers(rig)
    said = "Ask kim@example.org; password: hunter2hunter2"
    await rig.remember(said, tags=("kim@example.org",))

    out = await moves.export_lines(replace(EVERYTHING, strip_pii=True))
    await moves.import_source(await moves.export_lines(), In(workspace_id=2, new_ids=True, strip_pii=True))
    within = await moves.export_lines(Out(workspace_id=2))

    for lines in (out, within):
        assert b"kim@" not in lines
        assert b"hunter2" not in lines
        assert b"[email]" in lines
    assert said.encode() in await moves.export_lines()


async def test_what_has_expired_is_not_moved(rig: MemoryRig) -> None:
    """D-43: an expired memory is not there; it neither goes out nor comes in."""
    moves = Transfers(rig)
    await rig.remember("short", expires_in_h=1)
    lines = await moves.export_lines()
    rig.clock.advance(hours=2)

    report, heard = await moves.import_source(lines, In(workspace_id=2, new_ids=True))

    assert (_counts(report), report.failures, heard) == ({"expired": 1}, 0, [])
    assert lines_of_kind(await moves.export_lines(), "memory") == []


async def test_a_dry_run_tells_what_a_run_does_and_changes_nothing(rig: MemoryRig) -> None:
    """D-04: --dry-run over several batches, with repeated ids and duplicates in one file, tells exactly what would be done."""
    moves = Transfers(rig)
    memories = [make_memory(rig.clock, content=f"say {number % (BATCH_SIZE + 7)}") for number in range(2 * BATCH_SIZE)]
    await rig.db.write(lambda tx: transfer.add(tx, [TransferRecord(memory=memory) for memory in memories]))
    lines = await moves.export_lines()
    lines += lines.replace(b"say 5", b"say otherwise 5")
    wanted = In(workspace_id=2, new_ids=True, dedupe=True)

    dry, told = await moves.import_source(lines, replace(wanted, dry_run=True))
    nothing = await moves.export_lines(Out(workspace_id=2))
    done, _ = await moves.import_source(lines, wanted)

    assert _counts(dry) == _counts(done)
    assert len(told) == dry.total == 4 * BATCH_SIZE
    assert lines_of_kind(nothing, "memory") == []
    assert len(lines_of_kind(await moves.export_lines(Out(workspace_id=2)), "memory")) == done.counts["imported"]


async def test_two_imports_at_once_store_each_memory_once(rig: MemoryRig, database: Database) -> None:
    """Issue 6: harmlessly repeatable, also side by side."""
    moves = Transfers(rig)
    memories = [make_memory(rig.clock, content=f"say {number}") for number in range(2 * BATCH_SIZE)]
    await rig.db.write(lambda tx: transfer.add(tx, [TransferRecord(memory=memory) for memory in memories]))
    lines = await moves.export_lines()

    reports = await asyncio.gather(*(moves.import_source(lines, In(workspace_id=2, new_ids=True)) for _ in range(3)))

    assert sum(report.counts["imported"] for report, _ in reports) == 2 * BATCH_SIZE
    assert {report.failures for report, _ in reports} == {0}
