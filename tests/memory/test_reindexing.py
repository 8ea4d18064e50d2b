from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from rookery.cli import add_commands
from rookery.kernel.db import open_database
from rookery.kernel.events import ReindexCompleted
from rookery.memory.batch_runs import RunReport
from rookery.memory.maintenance.operations import MaintenanceServices
from rookery.memory.maintenance.reindexing import Reindexer, ReindexRequest
from rookery.memory.models import MemoryChange, Passage, RecallRequest, Vector
from tests.conftest import FakeClock
from tests.memory.makers import DIMENSION, MemoryRig, StemEmbedder, build_rig, make_caller


async def _contents(rig: MemoryRig, query: str = "heron", mode: str = "hybrid") -> list[str]:
    recalled = await rig.services.recall.find(
        make_caller(), RecallRequest(query=query, mode="hybrid" if mode == "hybrid" else "keyword", top_k=100)
    )
    return sorted(hit.memory.content for hit in recalled.hits)


async def test_a_reindex_rebuilds_lost_indexes(rig: MemoryRig) -> None:
    """Spec 4.4 and D-46: indexes are derived; embeds, upserts, indexes full text, sets indexed_at, reports."""
    stored = [await rig.remember(f"heron {number}") for number in range(70)]
    other = await rig.remember("heron of two", make_caller(workspace_id=2))
    archived = await rig.remember("heron archived")
    await rig.run_jobs()
    await rig.services.records.archive(make_caller(), archived.id)
    for workspace_id, ids in ((1, [memory.id for memory in stored]), (2, [other.id])):
        await rig.services.indexer.delete(workspace_id, ids)
    rig.clock.advance(days=1)
    seen = list[tuple[int, int]]()

    report = await rig.services.reindexer.reindex(ReindexRequest(), on_progress=lambda done, total: seen.append((done, total)))

    assert report == RunReport(total=71, successes=71, failures=0, duration_s=report.duration_s)
    assert (seen[-1], len(await _contents(rig)), await rig.vectors.count(2)) == ((71, 71), 70, 1)
    assert (await rig.reload(stored[0])).indexed_at == rig.clock()
    event = ReindexCompleted(org=None, project=None, count=71, by_workspace={1: 70, 2: 1}, duration_s=report.duration_s, at=rig.clock())
    assert event in rig.events


async def test_a_reindex_ends_beside_writers(rig: MemoryRig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spec 4.4: it goes through what matched when it began; what is stored meanwhile has jobs of its own."""
    for number in range(3):
        await rig.remember(f"heron {number}")
    embed = rig.embedder.embed_passages

    async def embed_while_others_write(passages: Sequence[Passage]) -> list[tuple[Vector, ...]]:
        for number in range(70):
            await rig.remember(f"another {number} of {len(rig.embedder.embedded_contents)}")
        return await embed(passages)

    monkeypatch.setattr(rig.embedder, "embed_passages", embed_while_others_write)

    report = await rig.services.reindexer.reindex(ReindexRequest())

    assert report == RunReport(total=3, successes=3, failures=0, duration_s=report.duration_s)


async def test_a_reindex_takes_only_what_is_wanted(rig: MemoryRig) -> None:
    """Spec 4.4: --org, --project, --stale; D-52: --workspace."""
    await rig.remember("heron")
    await rig.remember("heron", project="api")
    await rig.remember("heron", org="zoo")
    await rig.remember("heron", make_caller(workspace_id=2))
    await rig.run_jobs()
    await rig.remember("pending heron")
    changed = await rig.remember("heron before")
    await rig.run_jobs()
    await rig.services.records.change(make_caller(), changed.id, MemoryChange(changed_fields=frozenset({"content"}), content="heron after"))
    await rig.remember("heron never indexed")

    wanted = [
        ReindexRequest(),
        ReindexRequest(org="acme"),
        ReindexRequest(project="api"),
        ReindexRequest(org="zoo", project="web"),
        ReindexRequest(workspace_id=2),
        ReindexRequest(is_stale=True),
    ]
    assert [await rig.services.reindexer.count(each) for each in wanted] == [7, 6, 1, 1, 1, 2]
    report = await rig.services.reindexer.reindex(ReindexRequest(is_stale=True))
    assert (report.total, report.successes, await rig.services.reindexer.count(ReindexRequest(is_stale=True))) == (2, 2, 0)
    assert "heron after" in await _contents(rig)


async def test_another_model_makes_all_stale_and_a_reindex_makes_them_current(rig: MemoryRig, data_dir: Path, clock: FakeClock) -> None:
    """D-54: a re-index is offered, never mixed vectors."""
    memory = await rig.remember("heron")
    await rig.run_jobs()
    newer = build_rig(rig.db, data_dir, clock, embedder=StemEmbedder(model="stems/2", dimension=DIMENSION))
    before = await newer.services.reindexer.count(ReindexRequest(is_stale=True))
    blind = await newer.services.recall.find(make_caller(), RecallRequest(query="heron"))
    await newer.services.reindexer.reindex(ReindexRequest(is_stale=True))
    after = await newer.services.reindexer.count(ReindexRequest(is_stale=True))
    found = await newer.services.recall.find(make_caller(), RecallRequest(query="heron"))
    await newer.close()

    assert (before, blind.notice is not None, [hit.similarity for hit in blind.hits], after) == (1, True, [None], 0)
    assert found.notice is None
    assert [hit.memory.id for hit in found.hits] == [memory.id]


async def test_only_words_are_indexed_when_only_they_are_asked_for(rig: MemoryRig) -> None:
    """`--elastic-only` rebuilds the full-text index alone (spec 4.4)."""
    memory = await rig.remember("heron")
    report = await rig.services.reindexer.reindex(ReindexRequest(words_only=True))

    assert (report.successes, rig.embedder.embedded_contents) == (1, [])
    assert (await rig.reload(memory)).indexed_at is None
    assert await _contents(rig, mode="keyword") == ["heron"]


async def test_a_memory_that_fails_is_counted_and_the_rest_goes_on(rig: MemoryRig) -> None:
    """The report counts successes and failures; one failure does not stop the run (spec 4.4)."""
    for content in ("heron", "arsenic", "roof"):
        await rig.remember(content)
    rig.embedder.poison = "arsenic"

    report = await rig.services.reindexer.reindex(ReindexRequest())
    assert (report.total, report.successes, report.failures, report.stopped) == (3, 2, 1, None)


async def test_an_engine_that_goes_down_ends_it(rig: MemoryRig) -> None:
    """D-51: nothing is marked that was not done."""
    await rig.remember("heron")
    rig.embedder.is_down = True

    report = await rig.services.reindexer.reindex(ReindexRequest())
    assert (report.total, report.successes, report.failures) == (1, 0, 0)
    assert report.stopped is not None


async def test_a_reindex_goes_on_where_it_was_ended(rig: MemoryRig) -> None:
    """Spec 4.4, issue: resumable; the batches that were done are not embedded again, and a run without --resume begins anew."""
    for number in range(150):
        await rig.remember(f"heron {number}")

    def end_in_the_second_batch(done: int, total: int) -> None:
        if done > 64:
            rig.embedder.is_down = True

    ended = await rig.services.reindexer.reindex(ReindexRequest(), on_progress=end_in_the_second_batch)
    rig.embedder.is_down = False
    before = len(rig.embedder.embedded_contents)
    rest = await rig.services.reindexer.reindex(ReindexRequest(resume=True))
    again = await rig.services.reindexer.reindex(ReindexRequest(resume=True))

    assert (ended.successes, before, rest.total, rest.successes, len(rig.embedder.embedded_contents)) == (128, 128, 150, 150, 150 + 150)
    assert again.successes == 150


@dataclass
class _OpenPlatform:
    reindexer: Reindexer
    maintenance: MaintenanceServices

    async def workspaces(self) -> Mapping[int, str]:
        """Know one workspace, the first."""
        return {1: "main"}


@dataclass
class _Platform:
    """The platform object that commands receive."""

    folder: Path
    embedder: StemEmbedder

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[_OpenPlatform]:
        """Open memory on the folder, as another process than the server would."""
        db = open_database("embedded:", data_dir=self.folder)
        rig = build_rig(db, self.folder, FakeClock(), embedder=self.embedder)
        try:
            yield _OpenPlatform(rig.services.reindexer, rig.services.maintenance)
        finally:
            await rig.close()
            await db.close()


@pytest.fixture
def opens(data_dir: Path, clock: FakeClock) -> _Platform:
    """A folder with three memories that are not indexed."""
    asyncio.run(_fill(data_dir, clock))
    return _Platform(data_dir, StemEmbedder())


async def _fill(folder: Path, clock: FakeClock) -> None:
    db = open_database("embedded:", data_dir=folder)
    rig = build_rig(db, folder, clock)
    for number in range(3):
        await rig.remember(f"heron {number}", org="acme" if number else "zoo")
    await rig.close()
    await db.close()


def _run(opens: _Platform, *arguments: str) -> tuple[int, str]:
    app = typer.Typer()
    add_commands(app, "brain", "export")

    @app.callback()
    def main(context: typer.Context) -> None:
        """Hand over what commands need."""
        context.obj = opens

    result = CliRunner().invoke(app, list(arguments))
    return result.exit_code, result.output


def test_the_command_reports_and_draws_no_bar_into_a_pipe(opens: _Platform) -> None:
    """Spec 4.4 and D-04: total, successes, failures, duration; JSON for scripts."""
    status, printed = _run(opens, "brain", "reindex", "--json")
    report = json.loads(printed)

    assert (status, report["total"], report["successes"], report["failures"], report["stopped"]) == (0, 3, 3, 0, None)
    assert report["duration_s"] >= 0
    assert _run(opens, "brain", "reindex", "--org", "acme")[1].startswith("total 2, successes 2, failures 0, duration ")


def test_a_dry_run_names_what_it_would_index_and_why(opens: _Platform) -> None:
    """Spec 4.4: --dry-run; issue: telling exactly what would happen."""
    told = json.loads(_run(opens, "brain", "reindex", "--dry-run", "--json")[1])
    assert (told["total"], told["dry_run"], {item["why"] for item in told["items"]}) == (3, True, {"never indexed"})
    status, printed = _run(opens, "brain", "reindex", "--stale", "--dry-run")
    assert (status, len(printed.splitlines())) == (0, 5)
    assert printed.endswith("Dry run: nothing was changed.\n")
    assert opens.embedder.embedded_contents == []


def test_the_command_fails_when_a_memory_did(opens: _Platform) -> None:
    """D-04: exit codes 0 done, 1 failed, 2 wrong usage."""
    opens.embedder.poison = "heron 1"
    assert _run(opens, "brain", "reindex")[0] == 1
    assert _run(opens, "brain", "reindex", "--workspace", "many")[0] == 1
    assert _run(opens, "brain", "reindex", "--workspace", "1", "--dry-run")[0] == 0


def test_the_full_text_index_can_be_set_up_twice(opens: _Platform) -> None:
    """`brain:elastic-setup` is idempotent (spec 4.4)."""
    assert [_run(opens, "brain", "elastic-setup") for _ in range(2)] == [(0, "The full-text index is ready.\n")] * 2
