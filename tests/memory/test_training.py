"""Training rows: what was stored, and what was of use to which question (D-57)."""

from __future__ import annotations

import asyncio
import json
import stat
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import cast

import pytest
import typer
from typer.testing import CliRunner, Result

from rookery.cli import add_commands
from rookery.kernel.db import open_database
from rookery.memory.models import Memory, MemoryFilter, RecallMode, RecallRequest
from rookery.memory.purge import MemoryPurge
from rookery.memory.recall_records import LabelledMemory, TrainingStatus
from rookery.memory.store import recalls
from rookery.memory.training import BATCH_SIZE, Training
from tests.conftest import FakeClock
from tests.memory.makers import MemoryRig, StemEmbedder, build_rig, make_caller


async def list_rows(rig: MemoryRig, workspace_id: int = 1) -> list[LabelledMemory]:
    """Return all training rows of a workspace."""
    await rig.services.recall_buffer.flush()
    await rig.services.training.flush()
    return [each async for page in rig.services.training.iter_pages(workspace_id) for each in page]


async def list_examples(rig: MemoryRig, workspace_id: int = 1) -> list[tuple[str, str, str | None]]:
    """Return of each row what it says, of which content, to which question."""
    return [(each.example.label, each.memory.content, each.example.query) for each in await list_rows(rig, workspace_id)]


async def recall(rig: MemoryRig, query: str = "heron", mode: RecallMode = "hybrid") -> str:
    """Ask, and return the recall's id."""
    return (
        await rig.services.recall.find(make_caller(), RecallRequest(query=query, top_k=50, filters=MemoryFilter(), mode=mode))
    ).recall_id


async def give_feedback(rig: MemoryRig, recall_id: str, *used: Memory, ignored: Memory | None = None) -> None:
    """Give feedback."""
    given = [] if ignored is None else [ignored.id]
    await rig.services.feedback.record(make_caller(), recall_id, used=[each.id for each in used], ignored=given)


async def test_a_workspace_that_did_not_ask_for_rows_has_none(rig: MemoryRig) -> None:
    """D-57: off by default; not even what a recall was asked is written."""
    memory = await rig.remember("The heron sleeps.")
    await rig.run_jobs()
    recall_id = await recall(rig)
    await give_feedback(rig, recall_id, memory)

    assert await list_rows(rig) == []
    assert await rig.services.training.get_status(1) == TrainingStatus(enabled_since=None, example_count=0)
    past = await rig.db.read(lambda tx: recalls.get_recall(tx, 1, recall_id))
    assert past is not None
    assert past.query_record is None


async def test_what_is_stored_used_and_ignored_leaves_rows(rig: MemoryRig, clock: FakeClock) -> None:
    """Spec 6.1, D-57: MemoryStored and feedback; a used and an ignored one with the question, its mode and their ranks."""
    await rig.services.training.set_enabled(1, is_enabled=True)
    best = await rig.remember("The heron sleeps on the roof.")
    other = await rig.remember("The heron dreams.")
    await rig.run_jobs()
    recall_id = await recall(rig, "heron on the roof")
    await give_feedback(rig, recall_id, best, ignored=other)

    rows = [each.example for each in await list_rows(rig)]

    assert [(row.label, row.memory_id, row.query, row.mode, row.place, row.at) for row in rows] == [
        ("stored", best.id, None, None, None, best.created_at),
        ("used", best.id, "heron on the roof", "hybrid", 1, clock()),
        ("stored", other.id, None, None, None, other.created_at),
        ("ignored", other.id, "heron on the roof", "hybrid", 2, clock()),
    ]
    assert [(row.recall_id, row.semantic_rank, row.keyword_rank) for row in rows if row.query] == [(recall_id, 1, 1), (recall_id, 2, 2)]


async def test_feedback_on_a_recall_of_another_process_teaches_too(rig: MemoryRig) -> None:
    """D-57: what was asked is in the store for 30 days, so it does not matter who takes the feedback, nor when."""
    await rig.services.training.set_enabled(1, is_enabled=True)
    memory = await rig.remember("The heron sleeps.")
    await rig.run_jobs()
    recall_id = await recall(rig, mode="keyword")
    await rig.services.recall_buffer.flush()
    await give_feedback(rig, recall_id, memory)

    used = [each.example for each in await list_rows(rig) if each.example.label == "used"]

    assert [(row.query, row.mode, row.place, row.semantic_rank, row.keyword_rank) for row in used] == [("heron", "keyword", 1, None, 1)]


async def test_the_first_word_on_a_memory_and_a_recall_stays(rig: MemoryRig) -> None:
    """D-57: repeating feedback adds no row; another question is another lesson, even where confidence counts it once a day."""
    await rig.services.training.set_enabled(1, is_enabled=True)
    memory = await rig.remember("The heron sleeps on the roof.")
    await rig.run_jobs()
    first, second = await recall(rig, "heron"), await recall(rig, "roof")
    await give_feedback(rig, first, memory)
    await give_feedback(rig, first, ignored=memory)
    await give_feedback(rig, second, memory)

    found = {(lesson, query) for lesson, _, query in await list_examples(rig)}

    assert found == {("stored", None), ("used", "heron"), ("used", "roof")}


async def test_rows_go_with_their_memory(rig: MemoryRig, clock: FakeClock) -> None:
    """D-57, D-41: deleted, superseded or expired, a memory leaves no row; archived, it keeps them and says so."""
    await rig.services.training.set_enabled(1, is_enabled=True)
    deleted, old, brief = (
        await rig.remember("heron one"),
        await rig.remember("heron two"),
        await rig.remember("heron three", expires_in_h=1.0),
    )
    kept = await rig.remember("heron four")
    await rig.run_jobs()
    await give_feedback(rig, await recall(rig), deleted, old, brief, kept)
    assert len(await list_rows(rig)) == 8
    await rig.services.records.delete(make_caller(), deleted.id)
    new = await rig.remember("heron five", supersedes_id=old.id)
    await rig.services.records.archive(make_caller(), kept.id)
    clock.advance(hours=2)
    await rig.services.retention.sweep()

    left = await list_rows(rig)

    assert [(each.example.label, each.memory.id) for each in left] == [("stored", kept.id), ("used", kept.id), ("stored", new.id)]
    assert [each.memory.archived_at is not None for each in left] == [True, True, False]


async def test_a_memory_that_is_gone_before_its_row_is_written_has_none(rig: MemoryRig) -> None:
    """D-57: what was stored is written a moment later, and by then it may be deleted."""
    await rig.services.training.set_enabled(1, is_enabled=True)
    gone = await rig.remember("heron one")
    await rig.services.records.delete(make_caller(), gone.id)
    left = await rig.remember("heron two")

    assert [each.example.memory_id for each in await list_rows(rig)] == [left.id]


async def test_each_workspace_decides_for_itself(rig: MemoryRig) -> None:
    """D-57: per workspace; another one keeps none and sees none."""
    await rig.services.training.set_enabled(1, is_enabled=True)
    await rig.remember("heron one")
    await rig.remember("heron two", make_caller(workspace_id=2))

    assert [content for _, content, _ in await list_examples(rig)] == ["heron one"]
    assert await list_examples(rig, 2) == []


async def test_switched_off_it_keeps_what_is_there_and_no_question_any_more(rig: MemoryRig) -> None:
    """D-57: the rows stay until they are forgotten; what recalls of the last days were asked is not kept for later."""
    await rig.services.training.set_enabled(1, is_enabled=True)
    memory = await rig.remember("The heron sleeps.")
    await rig.run_jobs()
    recall_id = await recall(rig)
    await list_rows(rig)
    await rig.services.training.set_enabled(1, is_enabled=False)
    await give_feedback(rig, recall_id, memory)
    await rig.remember("The heron dreams.")

    past = await rig.db.read(lambda tx: recalls.get_recall(tx, 1, recall_id))
    assert [lesson for lesson, _, _ in await list_examples(rig)] == ["stored"]
    assert past is not None
    assert past.query_record is None
    assert await rig.services.training.delete_all(1) == 1
    assert await list_rows(rig) == []


async def test_switched_on_twice_it_began_once(rig: MemoryRig, clock: FakeClock) -> None:
    """D-57: the second time changes nothing."""
    began = await rig.services.training.set_enabled(1, is_enabled=True)
    clock.advance(days=1)

    assert (
        await rig.services.training.set_enabled(1, is_enabled=True)
        == began
        == TrainingStatus(enabled_since=clock() - timedelta(days=1), example_count=0)
    )


async def test_more_rows_than_a_stretch_are_all_read_out(rig: MemoryRig) -> None:
    """D-57: in stretches, none twice and none left out, several of one memory among them."""
    await rig.services.training.set_enabled(1, is_enabled=True)
    for start in range(0, BATCH_SIZE + 10, 50):
        await asked_about(rig, start)
    rows = await list_rows(rig)

    assert len(rows) == len({(each.example.memory_id, each.example.recall_id) for each in rows})
    assert len([each for each in rows if each.example.label == "stored"]) == BATCH_SIZE + 50


async def asked_about(rig: MemoryRig, start: int) -> None:
    """Remember fifty, and say of the first ten that they were of use."""
    stored = [await rig.remember(f"heron number {number}", agent_id="kim") for number in range(start, start + 50)]
    await rig.run_jobs()
    recall_id = await recall(rig, f"heron number {start}", mode="keyword")
    past = await rig.services.recall_buffer.find(1, recall_id)
    assert past is not None
    here = [memory for memory in stored if memory.id in past.memory_ids][:10]
    await give_feedback(rig, recall_id, *here)


async def test_a_workspace_that_is_deleted_takes_its_rows_along(rig: MemoryRig) -> None:
    """D-57: with the workspace all is gone, also that it wanted rows."""
    await rig.services.training.set_enabled(1, is_enabled=True)
    await rig.remember("heron one")
    await list_rows(rig)
    await rig.db.write(lambda tx: MemoryPurge(rig.jobs, rig.clock)(tx, 1))

    assert await list_rows(rig) == []
    assert await rig.services.training.get_status(1) == TrainingStatus(enabled_since=None, example_count=0)


@dataclass
class _OpenPlatform:
    training: Training

    async def workspaces(self) -> Mapping[int, str]:
        """Return one workspace."""
        return {1: "main"}


@dataclass
class _Platform:
    """The platform object that commands receive."""

    folder: Path

    @asynccontextmanager
    async def rig(self) -> AsyncGenerator[MemoryRig]:
        """Open memory on the folder, as another process than the server would."""
        db = open_database("embedded:", data_dir=self.folder)
        rig = build_rig(db, self.folder, FakeClock(), embedder=StemEmbedder())
        try:
            yield rig
        finally:
            await rig.close()
            await db.close()

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[_OpenPlatform]:
        """Return the platform as the commands see it."""
        async with self.rig() as rig:
            yield _OpenPlatform(rig.services.training)


@pytest.fixture
def opens(data_dir: Path) -> _Platform:
    """An empty folder."""
    return _Platform(data_dir)


def _run(opens: _Platform, *words: str) -> Result:
    app = typer.Typer()
    add_commands(app, "brain", "export")
    return CliRunner().invoke(app, ["brain", *words], obj=opens)


async def _teach(opens: _Platform) -> None:
    async with opens.rig() as rig:
        memory = await rig.remember("Ask kim@example.org about the heron.", tags=("birds",))
        await rig.run_jobs()
        await give_feedback(rig, await recall(rig, "who knows lee@example.org, or the heron?"), memory)
        await list_rows(rig)


def test_an_operator_switches_it_on_and_exports(opens: _Platform, tmp_path: Path) -> None:
    """D-57, D-04: `brain training --on`, then `brain export-training`: JSON lines with the memory as it is now."""
    assert "not recorded" in _run(opens, "training").output
    assert json.loads(_run(opens, "training", "--on", "--json").output)["on"] is True
    asyncio.run(_teach(opens))
    file = tmp_path / "rows.jsonl"

    told = _run(opens, "export-training", "--out", str(file))

    assert told.exit_code == 0, told.output
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
    assert _run(opens, "export-training", "--out", str(file)).exit_code == 2, "a file that is there is never written over"


def test_an_export_can_leave_personal_data_out(opens: _Platform) -> None:
    """D-52, D-57: with --strip-pii, of questions and contents alike; what is kept stays as it is."""
    _run(opens, "training", "--on")
    asyncio.run(_teach(opens))

    stripped = _run(opens, "export-training", "--strip-pii").stdout

    assert "example.org" not in stripped
    assert stripped.count("[email]") == 3
    assert "kim@example.org" in _run(opens, "export-training").stdout


def test_rows_are_not_deleted_unasked(opens: _Platform) -> None:
    """D-04: what cannot be brought back asks first, and off a terminal needs --yes."""
    _run(opens, "training", "--on")
    asyncio.run(_teach(opens))

    assert _run(opens, "training", "--forget").exit_code == 2
    assert _run(opens, "training", "--on", "--off").exit_code == 2
    told = json.loads(_run(opens, "training", "--off", "--forget", "--yes", "--json").output)
    assert told == {"on": False, "since": None, "rows": 0, "forgotten": 2}
    assert _run(opens, "export-training").stdout == ""
