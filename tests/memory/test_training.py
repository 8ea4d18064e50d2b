"""Training rows: stored memories, and feedback with the query of its recall."""

from __future__ import annotations

import asyncio
import json
import stat
from datetime import timedelta
from pathlib import Path
from typing import cast

import pytest
from typer.testing import Result

from rookery.memory.models import Memory, MemoryFilter, RecallMode
from rookery.memory.recall_models import LabelledMemory, RecallRequest, TrainingStatus
from rookery.memory.retention import MemoryPurge
from rookery.memory.store.tables import RECALLS
from rookery.memory.training import BATCH_SIZE
from tests.conftest import FakeClock
from tests.memory.command_line import Platform
from tests.memory.makers import MemoryRig, make_caller


async def list_rows(rig: MemoryRig, workspace_id: int = 1) -> list[LabelledMemory]:
    """Return all training rows of a workspace."""
    await rig.services.recall_buffer.flush()
    await rig.services.training.flush()
    return [row async for page in rig.services.training.iter_pages(workspace_id) for row in page]


async def list_examples(rig: MemoryRig, workspace_id: int = 1) -> list[tuple[str, str, str | None]]:
    """Return label, content and query of each training row."""
    return [(row.example.label, row.memory.content, row.example.query) for row in await list_rows(rig, workspace_id)]


async def recall(rig: MemoryRig, query: str = "heron", mode: RecallMode = "hybrid") -> str:
    """Recall, and return the id of the recall."""
    return (
        await rig.services.recall.find(make_caller(), RecallRequest(query=query, top_k=50, filters=MemoryFilter(), mode=mode))
    ).recall_id


async def give_feedback(rig: MemoryRig, recall_id: str, *used: Memory, ignored: Memory | None = None) -> None:
    """Record feedback for the recall."""
    ignored_ids = [] if ignored is None else [ignored.id]
    await rig.services.feedback.record(make_caller(), recall_id, used=[memory.id for memory in used], ignored=ignored_ids)


async def test_training_rows_are_off_by_default(rig: MemoryRig) -> None:
    """Without them, not even the query of a recall is stored."""
    memory = await rig.remember("The heron sleeps.")
    await rig.run_jobs()
    recall_id = await recall(rig)
    await give_feedback(rig, recall_id, memory)

    assert await list_rows(rig) == []
    assert await rig.services.training.get_status(1) == TrainingStatus(enabled_since=None, example_count=0)
    recall_record = await rig.db.read(lambda tx: RECALLS.find(tx, 1, id=recall_id))
    assert recall_record is not None
    assert recall_record.query_record is None


async def test_stored_used_and_ignored_memories_have_training_rows(rig: MemoryRig, clock: FakeClock) -> None:
    """Rows of used and ignored memories have the query, its mode and their ranks."""
    await rig.services.training.set_enabled(1, is_enabled=True)
    best = await rig.remember("The heron sleeps on the roof.")
    other = await rig.remember("The heron dreams.")
    await rig.run_jobs()
    recall_id = await recall(rig, "heron on the roof")
    await give_feedback(rig, recall_id, best, ignored=other)

    rows = [row.example for row in await list_rows(rig)]

    assert [(row.label, row.memory_id, row.query, row.mode, row.place, row.at) for row in rows] == [
        ("stored", best.id, None, None, None, best.created_at),
        ("used", best.id, "heron on the roof", "hybrid", 1, clock()),
        ("stored", other.id, None, None, None, other.created_at),
        ("ignored", other.id, "heron on the roof", "hybrid", 2, clock()),
    ]
    assert [(row.recall_id, row.semantic_rank, row.keyword_rank) for row in rows if row.query] == [(recall_id, 1, 1), (recall_id, 2, 2)]


async def test_feedback_on_a_recall_of_another_process_has_training_rows(rig: MemoryRig) -> None:
    """The store keeps the query for 30 days, so any process can take the feedback later."""
    await rig.services.training.set_enabled(1, is_enabled=True)
    memory = await rig.remember("The heron sleeps.")
    await rig.run_jobs()
    recall_id = await recall(rig, mode="keyword")
    await rig.services.recall_buffer.flush()
    await give_feedback(rig, recall_id, memory)

    used = [row.example for row in await list_rows(rig) if row.example.label == "used"]

    assert [(row.query, row.mode, row.place, row.semantic_rank, row.keyword_rank) for row in used] == [("heron", "keyword", 1, None, 1)]


async def test_only_the_first_feedback_on_a_recall_adds_a_row(rig: MemoryRig) -> None:
    """Feedback on another recall adds a row, although confidence counts it once a day."""
    await rig.services.training.set_enabled(1, is_enabled=True)
    memory = await rig.remember("The heron sleeps on the roof.")
    await rig.run_jobs()
    first, second = await recall(rig, "heron"), await recall(rig, "roof")
    await give_feedback(rig, first, memory)
    await give_feedback(rig, first, ignored=memory)
    await give_feedback(rig, second, memory)

    labels = {(label, query) for label, _, query in await list_examples(rig)}

    assert labels == {("stored", None), ("used", "heron"), ("used", "roof")}


async def test_training_rows_are_deleted_with_their_memory(rig: MemoryRig, clock: FakeClock) -> None:
    """Deleted, superseded and expired memories lose their rows; archived ones keep them, marked as archived."""
    await rig.services.training.set_enabled(1, is_enabled=True)
    deleted, superseded, expiring = (
        await rig.remember("heron one"),
        await rig.remember("heron two"),
        await rig.remember("heron three", expires_in=1.0),
    )
    archived = await rig.remember("heron four")
    await rig.run_jobs()
    await give_feedback(rig, await recall(rig), deleted, superseded, expiring, archived)
    assert len(await list_rows(rig)) == 8
    await rig.services.records.delete(make_caller(), deleted.id)
    current = await rig.remember("heron five", supersedes_id=superseded.id)
    await rig.services.records.archive(make_caller(), archived.id)
    clock.advance(hours=2)
    await rig.services.retention.sweep()

    remaining = await list_rows(rig)

    assert [(row.example.label, row.memory.id) for row in remaining] == [
        ("stored", archived.id),
        ("used", archived.id),
        ("stored", current.id),
    ]
    assert [row.memory.archived_at is not None for row in remaining] == [True, True, False]


async def test_a_memory_deleted_before_its_row_is_written_has_no_row(rig: MemoryRig) -> None:
    """Rows are written a moment after the memory, which may be deleted by then."""
    await rig.services.training.set_enabled(1, is_enabled=True)
    deleted = await rig.remember("heron one")
    await rig.services.records.delete(make_caller(), deleted.id)
    remaining = await rig.remember("heron two")

    assert [row.example.memory_id for row in await list_rows(rig)] == [remaining.id]


async def test_training_rows_are_enabled_per_workspace(rig: MemoryRig) -> None:
    """Another workspace has no rows and cannot read them."""
    await rig.services.training.set_enabled(1, is_enabled=True)
    await rig.remember("heron one")
    await rig.remember("heron two", make_caller(workspace_id=2))

    assert [content for _, content, _ in await list_examples(rig)] == ["heron one"]
    assert await list_examples(rig, 2) == []


async def test_disabling_training_keeps_the_rows_and_deletes_stored_queries(rig: MemoryRig) -> None:
    """Existing rows stay until they are deleted; the queries of recent recalls are removed."""
    await rig.services.training.set_enabled(1, is_enabled=True)
    memory = await rig.remember("The heron sleeps.")
    await rig.run_jobs()
    recall_id = await recall(rig)
    await list_rows(rig)
    await rig.services.training.set_enabled(1, is_enabled=False)
    await give_feedback(rig, recall_id, memory)
    await rig.remember("The heron dreams.")

    recall_record = await rig.db.read(lambda tx: RECALLS.find(tx, 1, id=recall_id))
    assert [label for label, _, _ in await list_examples(rig)] == ["stored"]
    assert recall_record is not None
    assert recall_record.query_record is None
    assert await rig.services.training.delete_all(1) == 1
    assert await list_rows(rig) == []


async def test_enabling_training_twice_keeps_the_first_date(rig: MemoryRig, clock: FakeClock) -> None:
    """The second call changes nothing."""
    first_status = await rig.services.training.set_enabled(1, is_enabled=True)
    clock.advance(days=1)

    assert (
        await rig.services.training.set_enabled(1, is_enabled=True)
        == first_status
        == TrainingStatus(enabled_since=clock() - timedelta(days=1), example_count=0)
    )


async def test_more_rows_than_a_batch_are_read_completely(rig: MemoryRig) -> None:
    """Rows are read in batches, each row exactly once."""
    await rig.services.training.set_enabled(1, is_enabled=True)
    for start in range(0, BATCH_SIZE + 10, 50):
        await recall_with_feedback(rig, start)
    rows = await list_rows(rig)

    assert len(rows) == len({(row.example.memory_id, row.example.recall_id) for row in rows})
    assert len([row for row in rows if row.example.label == "stored"]) == BATCH_SIZE + 50


async def recall_with_feedback(rig: MemoryRig, start: int) -> None:
    """Store fifty memories, recall, and give feedback for the first ten as used."""
    stored = [await rig.remember(f"heron number {number}", agent_id="kim") for number in range(start, start + 50)]
    await rig.run_jobs()
    recall_id = await recall(rig, f"heron number {start}", mode="keyword")
    recall_record = await rig.services.recall_buffer.find(1, recall_id)
    assert recall_record is not None
    returned = [memory for memory in stored if memory.id in recall_record.memory_ids][:10]
    await give_feedback(rig, recall_id, *returned)


async def test_deleting_a_workspace_deletes_its_training_rows(rig: MemoryRig) -> None:
    """The setting is deleted too."""
    await rig.services.training.set_enabled(1, is_enabled=True)
    await rig.remember("heron one")
    await list_rows(rig)
    await rig.db.write(lambda tx: MemoryPurge(rig.jobs, rig.clock)(tx, 1))

    assert await list_rows(rig) == []
    assert await rig.services.training.get_status(1) == TrainingStatus(enabled_since=None, example_count=0)


@pytest.fixture
def platform(data_dir: Path) -> Platform:
    """Return a platform on an empty folder."""
    return Platform(data_dir)


def _run(platform: Platform, *arguments: str) -> Result:
    return platform.run("brain", *arguments)


async def _record_training_rows(platform: Platform) -> None:
    async with platform.rig() as rig:
        memory = await rig.remember("Ask kim@example.org about the heron.", tags=("birds",))
        await rig.run_jobs()
        await give_feedback(rig, await recall(rig, "who knows lee@example.org, or the heron?"), memory)
        await list_rows(rig)


def test_an_operator_enables_training_and_exports_rows(platform: Platform, tmp_path: Path) -> None:
    """`brain export-training` writes JSON lines with the current state of each memory."""
    assert "not recorded" in _run(platform, "training").output
    assert json.loads(_run(platform, "training", "--on", "--json").output)["on"] is True
    asyncio.run(_record_training_rows(platform))
    file = tmp_path / "rows.jsonl"

    result = _run(platform, "export-training", "--out", str(file))

    assert result.exit_code == 0, result.output
    rows = [cast("dict[str, object]", json.loads(line)) for line in file.read_text().splitlines()]
    assert [row["verdict"] for row in rows] == ["stored", "used"]
    names = ("query", "content", "type", "tags", "place", "archived")
    assert [rows[1][name] for name in names] == [
        "who knows lee@example.org, or the heron?",
        "Ask kim@example.org about the heron.",
        "observation",
        ["birds"],
        1,
        False,
    ]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert _run(platform, "export-training", "--out", str(file)).exit_code == 2, "an existing file is never overwritten"


def test_an_export_can_redact_personal_data(platform: Platform) -> None:
    """--strip-pii redacts queries and contents in the export; the store stays unchanged."""
    _run(platform, "training", "--on")
    asyncio.run(_record_training_rows(platform))

    output = _run(platform, "export-training", "--strip-pii").stdout

    assert "example.org" not in output
    assert output.count("[email]") == 3
    assert "kim@example.org" in _run(platform, "export-training").stdout


def test_deleting_training_rows_needs_a_confirmation(platform: Platform) -> None:
    """Off a terminal, `--forget` needs --yes."""
    _run(platform, "training", "--on")
    asyncio.run(_record_training_rows(platform))

    assert _run(platform, "training", "--forget").exit_code == 2
    assert _run(platform, "training", "--on", "--off").exit_code == 2
    status = json.loads(_run(platform, "training", "--off", "--forget", "--yes", "--json").output)
    assert status == {"on": False, "since": None, "rows": 0, "forgotten": 2}
    assert _run(platform, "export-training").stdout == ""
