from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from rookery.memory.batch_runs import RunReport
from rookery.memory.events import ReindexCompleted
from rookery.memory.maintenance.reindexing import ReindexRequest
from rookery.memory.models import MemoryChange
from rookery.memory.recall_models import RecallRequest
from tests.conftest import FakeClock
from tests.memory.command_line import Platform
from tests.memory.makers import DIMENSION, MemoryRig, StemEmbedder, build_rig, make_caller


async def _contents(rig: MemoryRig, query: str = "heron", mode: str = "hybrid") -> list[str]:
    result = await rig.services.recall.find(
        make_caller(), RecallRequest(query=query, mode="hybrid" if mode == "hybrid" else "keyword", top_k=100)
    )
    return sorted(hit.memory.content for hit in result.hits)


async def test_a_reindex_rebuilds_lost_indexes(rig: MemoryRig) -> None:
    """A re-index writes both indexes, sets indexed_at and sends an event with the counts."""
    stored = [await rig.remember(f"heron {number}") for number in range(70)]
    foreign = await rig.remember("heron of two", make_caller(workspace_id=2))
    archived = await rig.remember("heron archived")
    await rig.run_jobs()
    await rig.services.records.archive(make_caller(), archived.id)
    for workspace_id, ids in ((1, [memory.id for memory in stored]), (2, [foreign.id])):
        await rig.services.indexer.delete(workspace_id, ids)
    rig.clock.advance(days=1)
    progress = list[tuple[int, int]]()

    report = await rig.services.reindexer.reindex(ReindexRequest(), on_progress=lambda done, total: progress.append((done, total)))

    assert report == RunReport(total=71, successes=71, failures=0, duration_s=report.duration_s)
    assert (progress[-1], len(await _contents(rig)), await rig.vectors.count(2)) == ((71, 71), 70, 1)
    assert (await rig.reload(stored[0])).indexed_at == rig.clock()
    event = ReindexCompleted(org=None, project=None, count=71, by_workspace={1: 70, 2: 1}, duration_s=report.duration_s, at=rig.clock())
    assert event in rig.events


async def test_a_reindex_ends_while_others_write(rig: MemoryRig) -> None:
    """It indexes the memories that matched at its start; later ones have their own jobs."""
    for number in range(3):
        await rig.remember(f"heron {number}")

    async def remember_others() -> None:
        for number in range(70):
            await rig.remember(f"another {number} of {len(rig.embedder.embedded_contents)}")

    rig.embedder.before_embedding = remember_others

    report = await rig.services.reindexer.reindex(ReindexRequest())

    assert report == RunReport(total=3, successes=3, failures=0, duration_s=report.duration_s)


async def test_a_reindex_includes_only_matching_memories(rig: MemoryRig) -> None:
    """The options are --org, --project, --stale and --workspace."""
    await rig.remember("heron")
    await rig.remember("heron", project="api")
    await rig.remember("heron", org="zoo")
    await rig.remember("heron", make_caller(workspace_id=2))
    await rig.run_jobs()
    await rig.remember("pending heron")
    changed_memory = await rig.remember("heron before")
    await rig.run_jobs()
    await rig.services.records.change(make_caller(), changed_memory.id, MemoryChange.of(content="heron after"))
    await rig.remember("heron never indexed")

    requests = [
        ReindexRequest(),
        ReindexRequest(org="acme"),
        ReindexRequest(project="api"),
        ReindexRequest(org="zoo", project="web"),
        ReindexRequest(workspace_id=2),
        ReindexRequest(is_stale=True),
    ]
    assert [await rig.services.reindexer.count(request) for request in requests] == [7, 6, 1, 1, 1, 2]
    report = await rig.services.reindexer.reindex(ReindexRequest(is_stale=True))
    assert (report.total, report.successes, await rig.services.reindexer.count(ReindexRequest(is_stale=True))) == (2, 2, 0)
    assert "heron after" in await _contents(rig)


async def test_another_model_makes_all_stale_and_a_reindex_makes_them_current(rig: MemoryRig, data_dir: Path, clock: FakeClock) -> None:
    """Until the re-index, recall uses full text instead of mixed vectors."""
    memory = await rig.remember("heron")
    await rig.run_jobs()
    newer_rig = build_rig(rig.db, data_dir, clock, embedder=StemEmbedder(model="stems/2", dimension=DIMENSION))
    stale_before = await newer_rig.services.reindexer.count(ReindexRequest(is_stale=True))
    recall_before = await newer_rig.services.recall.find(make_caller(), RecallRequest(query="heron"))
    await newer_rig.services.reindexer.reindex(ReindexRequest(is_stale=True))
    stale_after = await newer_rig.services.reindexer.count(ReindexRequest(is_stale=True))
    recall_after = await newer_rig.services.recall.find(make_caller(), RecallRequest(query="heron"))
    await newer_rig.close()

    assert (stale_before, recall_before.notice is not None, [hit.score.similarity for hit in recall_before.hits], stale_after) == (
        1,
        True,
        [None],
        0,
    )
    assert recall_after.notice is None
    assert [hit.memory.id for hit in recall_after.hits] == [memory.id]


async def test_a_reindex_can_rebuild_only_the_full_text_index(rig: MemoryRig) -> None:
    """`--elastic-only` rebuilds the full-text index alone."""
    memory = await rig.remember("heron")
    report = await rig.services.reindexer.reindex(ReindexRequest(words_only=True))

    assert (report.successes, rig.embedder.embedded_contents) == (1, [])
    assert (await rig.reload(memory)).indexed_at is None
    assert await _contents(rig, mode="keyword") == ["heron"]


async def test_a_failing_memory_is_counted_and_does_not_stop_the_run(rig: MemoryRig) -> None:
    """The report counts successes and failures; one failure does not stop the run."""
    for content in ("heron", "arsenic", "roof"):
        await rig.remember(content)
    rig.embedder.poison = "arsenic"

    report = await rig.services.reindexer.reindex(ReindexRequest())
    assert (report.total, report.successes, report.failures, report.stopped) == (3, 2, 1, None)


async def test_an_engine_that_goes_down_ends_the_reindex(rig: MemoryRig) -> None:
    """No memory is marked that was not indexed."""
    await rig.remember("heron")
    rig.embedder.is_down = True

    report = await rig.services.reindexer.reindex(ReindexRequest())
    assert (report.total, report.successes, report.failures) == (1, 0, 0)
    assert report.stopped is not None


async def test_a_reindex_can_be_resumed(rig: MemoryRig) -> None:
    """A resumed run does not embed finished batches again; the run after it starts from the beginning."""
    for number in range(150):
        await rig.remember(f"heron {number}")

    def fail_after_the_first_batch(done: int, total: int) -> None:
        if done > 64:
            rig.embedder.is_down = True

    interrupted = await rig.services.reindexer.reindex(ReindexRequest(), on_progress=fail_after_the_first_batch)
    rig.embedder.is_down = False
    embedded_before = len(rig.embedder.embedded_contents)
    resumed = await rig.services.reindexer.reindex(ReindexRequest(resume=True))
    next_run = await rig.services.reindexer.reindex(ReindexRequest(resume=True))

    assert (interrupted.successes, embedded_before, resumed.total, resumed.successes, len(rig.embedder.embedded_contents)) == (
        128,
        128,
        150,
        150,
        150 + 150,
    )
    assert next_run.successes == 150


@pytest.fixture
def platform(data_dir: Path) -> Platform:
    """Return a platform whose folder has three memories that are not indexed."""
    platform = Platform(data_dir)
    asyncio.run(_fill(platform))
    return platform


async def _fill(platform: Platform) -> None:
    async with platform.rig() as rig:
        for number in range(3):
            await rig.remember(f"heron {number}", org="acme" if number else "zoo")


def _run(platform: Platform, *arguments: str) -> tuple[int, str]:
    result = platform.run(*arguments)
    return result.exit_code, result.output


def test_the_command_prints_a_report_without_a_progress_bar_into_a_pipe(platform: Platform) -> None:
    """The report has total, successes, failures and duration, also as JSON."""
    status, printed = _run(platform, "brain", "reindex", "--json")
    report = json.loads(printed)

    assert (status, report["total"], report["successes"], report["failures"], report["stopped"]) == (0, 3, 3, 0, None)
    assert report["duration_s"] >= 0
    assert _run(platform, "brain", "reindex", "--org", "acme")[1].startswith("total 2, successes 2, failures 0, duration ")


def test_a_dry_run_lists_the_memories_and_reasons(platform: Platform) -> None:
    """--dry-run prints what a run would index and changes nothing."""
    dry_run = json.loads(_run(platform, "brain", "reindex", "--dry-run", "--json")[1])
    assert (dry_run["total"], dry_run["dry_run"], {item["why"] for item in dry_run["items"]}) == (3, True, {"never indexed"})
    status, printed = _run(platform, "brain", "reindex", "--stale", "--dry-run")
    assert (status, len(printed.splitlines())) == (0, 5)
    assert printed.endswith("Dry run: nothing was changed.\n")
    assert platform.embedder.embedded_contents == []


def test_the_command_fails_if_a_memory_fails(platform: Platform) -> None:
    """The exit code is 0 for success and 1 for a failure."""
    platform.embedder.poison = "heron 1"
    assert _run(platform, "brain", "reindex")[0] == 1
    assert _run(platform, "brain", "reindex", "--workspace", "many")[0] == 1
    assert _run(platform, "brain", "reindex", "--workspace", "1", "--dry-run")[0] == 0


def test_the_full_text_index_can_be_set_up_repeatedly(platform: Platform) -> None:
    """`brain:elastic-setup` is idempotent."""
    assert [_run(platform, "brain", "elastic-setup") for _ in range(2)] == [(0, "The full-text index is ready.\n")] * 2
