"""A change of the embedding model: recall uses the old vectors or full text until all new vectors exist."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from rookery.doctor import DoctorFinding, examine
from rookery.engines import vectors as vector_engines
from rookery.engines.embedders import model_files
from rookery.kernel.config import Settings
from rookery.kernel.secret import Secret
from rookery.memory.embedding_migration import IndexVersion
from rookery.memory.maintenance.reindexing import ReindexRequest, RunReport
from rookery.memory.models import MemoryChange, RecallMode
from rookery.memory.ports import ModelVersion
from rookery.memory.recall_models import RecallRequest, RecallResult
from tests.conftest import Caller, FakeClock, Instance, eventually, run_instance
from tests.embedding_service import KEY, EmbeddingService, run_embedding_service
from tests.memory.makers import DIMENSION, MemoryRig, StemEmbedder, build_rig, make_caller
from tests.processes import run_server


class MigratedPlatform:
    """The memory domain after a change of the embedder: *rig* has the new one, and can read the index of the previous one."""

    def __init__(self, original_rig: MemoryRig, data_dir: Path, clock: FakeClock) -> None:
        self.previous_embedder = original_rig.embedder
        self.index = vector_engines.open("embedded:", data_dir=data_dir, model=self.previous_embedder.model, dimension=DIMENSION)
        self.rig = build_rig(
            original_rig.db, data_dir, clock, embedder=StemEmbedder(model="stems/2", dimension=DIMENSION), find_previous=self._find_previous
        )

    def _find_previous(self, version: ModelVersion) -> IndexVersion | None:
        if version != ModelVersion(model=self.previous_embedder.model, dimension=self.previous_embedder.dimension):
            return None
        return IndexVersion(embedder=self.previous_embedder, vectors=self.index, is_previous=True)

    async def recall(self, query: str, mode: RecallMode = "semantic") -> RecallResult:
        """Recall in workspace 1."""
        return await self.rig.services.recall.find(make_caller(), RecallRequest(query=query, mode=mode, top_k=100))

    async def find_contents(self, query: str, mode: RecallMode = "semantic") -> list[str]:
        """Return the contents that semantic recall finds. Fail if recall used full text instead."""
        result = await self.recall(query, mode)
        assert result.notice is None
        return sorted(hit.memory.content for hit in result.hits if hit.score.similarity is not None and hit.score.similarity > 0.5)

    async def reindex(self, **changes: object) -> RunReport:
        """Run `brain:reindex --stale`."""
        return await self.rig.services.reindexer.reindex(replace(ReindexRequest(is_stale=True), **changes))

    async def active_model(self, workspace_id: int = 1) -> str | None:
        """Return the model whose vectors recall uses."""
        version = await self.rig.services.migration.get_active_version(workspace_id)
        return None if version is None else version.model

    async def close(self) -> None:
        """Close the rig and the index of the previous model."""
        await self.rig.close()
        await self.index.close()


@pytest.fixture
async def platform(rig: MemoryRig, data_dir: Path, clock: FakeClock) -> AsyncIterator[MigratedPlatform]:
    """Yield a platform with three memories that are embedded with the previous model."""
    for content in ("heron roof", "heron boat", "swallow bridge"):
        await rig.remember(content)
    await rig.run_jobs()
    rig.embedder.embedded_contents.clear()
    platform = MigratedPlatform(rig, data_dir, clock)
    yield platform
    await platform.close()


async def test_recall_uses_the_old_vectors_until_all_are_rebuilt(platform: MigratedPlatform) -> None:
    """`brain:reindex --stale` builds a new index beside the old one and switches when it is complete."""
    found_before = [await platform.find_contents("heron"), await platform.find_contents("heron", "hybrid")]
    embed = platform.rig.embedder.embed_passages
    recalled_meanwhile = list[tuple[str | None, list[str]]]()

    async def embed_during_recall(passages: object) -> object:
        recalled_meanwhile.append((await platform.active_model(), await platform.find_contents("heron")))
        return await embed(passages)  # pyright: ignore[reportArgumentType] - passed on unchanged

    platform.rig.embedder.embed_passages = embed_during_recall  # pyright: ignore[reportAttributeAccessIssue]
    report = await platform.reindex()

    assert found_before == [["heron boat", "heron roof"]] * 2
    assert recalled_meanwhile == [("stems/1", ["heron boat", "heron roof"])]
    assert (report.successes, await platform.active_model()) == (3, "stems/2")
    platform.previous_embedder.is_down = True
    assert await platform.find_contents("heron") == ["heron boat", "heron roof"]


async def test_memories_stored_or_changed_during_the_migration_are_found_by_meaning(platform: MigratedPlatform) -> None:
    """Both models embed new contents; existing vectors are not computed again."""
    memory = await platform.rig.remember("heron nest")
    (swallow,) = (await platform.recall("swallow")).hits[:1]
    await platform.rig.services.records.change(make_caller(), swallow.memory.id, MemoryChange.of(content="heron bridge"))
    await platform.rig.run_jobs()

    assert await platform.find_contents("heron") == ["heron boat", "heron bridge", "heron nest", "heron roof"]
    assert (await platform.active_model(), sorted(platform.previous_embedder.embedded_contents)) == (
        "stems/1",
        ["heron bridge", "heron nest"],
    )
    await platform.rig.services.records.delete(make_caller(), memory.id)
    await platform.rig.run_jobs()
    await platform.reindex()
    assert (await platform.active_model(), sorted(platform.previous_embedder.embedded_contents)) == (
        "stems/2",
        ["heron bridge", "heron nest"],
    )
    assert await platform.find_contents("heron") == ["heron boat", "heron bridge", "heron roof"]


async def test_a_partial_rebuild_does_not_switch_the_model(platform: MigratedPlatform) -> None:
    """Vectors of two models are never mixed, not even for different orgs; each workspace switches on its own."""
    await platform.rig.remember("heron zoo", org="zoo")
    await platform.rig.remember("heron two", make_caller(workspace_id=2))
    await platform.rig.run_jobs()
    await platform.reindex(org="zoo")
    await platform.rig.services.migration.run_periodic()

    assert [await platform.active_model(workspace_id) for workspace_id in (1, 2)] == ["stems/1", "stems/2"]
    assert await platform.find_contents("heron") == ["heron boat", "heron roof", "heron zoo"]


async def test_without_the_previous_embedder_recall_uses_full_text_with_a_notice(
    platform: MigratedPlatform, clock: FakeClock, data_dir: Path
) -> None:
    """Without the old model its vectors cannot be searched, and a part of the new vectors would hide the other memories."""
    rig = build_rig(platform.rig.db, data_dir, clock, embedder=StemEmbedder(model="stems/2", dimension=DIMENSION))
    await rig.remember("heron nest")
    await rig.run_jobs()
    results = [
        await rig.services.recall.find(make_caller(), RecallRequest(query="heron", mode=mode)) for mode in ("semantic", "hybrid", "keyword")
    ]
    events = [event.mode for event in rig.events if hasattr(event, "mode")]  # pyright: ignore[reportUnknownMemberType, reportAttributeAccessIssue, reportUnknownVariableType]
    responses = [rig.services.serializer.serialize_recall(result, explain=explain) for result in results for explain in (False, True)]
    await rig.close()

    assert [sorted(hit.memory.content for hit in result.hits) for result in results] == [["heron boat", "heron nest", "heron roof"]] * 3
    assert [result.notice is not None for result in results] == [True, True, False]
    assert events == ["keyword"] * 3
    assert ["by keywords" in str(response.notice) for response in responses] == [True] * 4 + [False] * 2
    assert "notice" not in json.loads(responses[-1].model_dump_json())


async def test_recall_uses_full_text_while_the_previous_embedder_is_down(platform: MigratedPlatform) -> None:
    """Recall still works, and new memories are indexed."""
    platform.previous_embedder.is_down = True
    await platform.rig.remember("heron nest")
    await platform.rig.run_jobs()
    recalled = await platform.recall("heron")

    assert (recalled.notice is not None, len(recalled.hits), await platform.rig.vectors.count(1)) == (True, 3, 1)
    assert (await platform.reindex()).successes == 3
    assert len(await platform.find_contents("heron")) == 3


async def test_a_memory_that_cannot_be_embedded_does_not_hold_up_the_others(platform: MigratedPlatform) -> None:
    """The memory stays stale, is counted as a failure, and is found by full text."""
    platform.rig.embedder.poison = "boat"
    report = await platform.reindex()

    assert (report.successes, report.failures, await platform.active_model()) == (2, 1, "stems/2")
    assert await platform.find_contents("heron") == ["heron roof"]
    assert [hit.memory.content for hit in (await platform.recall("boat", "keyword")).hits] == ["heron boat"]


async def test_an_engine_that_goes_down_during_the_rebuild_changes_nothing(platform: MigratedPlatform) -> None:
    """A second run continues with the remaining memories."""
    await platform.rig.services.reindexer.reindex(ReindexRequest(is_stale=True, org="acme", project="nothing here"))
    platform.rig.embedder.is_down = True
    report = await platform.reindex()

    assert (report.stopped is not None, await platform.active_model(), await platform.find_contents("heron")) == (
        True,
        "stems/1",
        ["heron boat", "heron roof"],
    )
    platform.rig.embedder.is_down = False
    assert ((await platform.reindex()).successes, await platform.active_model()) == (3, "stems/2")


async def test_the_server_switches_when_the_last_memory_is_indexed(platform: MigratedPlatform) -> None:
    """The command need not run again if it was killed after its last batch, or if jobs indexed the rest."""
    for memory in [hit.memory for hit in (await platform.recall("heron swallow")).hits]:
        await platform.rig.services.indexer.index([memory])
    model_before = await platform.active_model()
    switched_count = await platform.rig.services.migration.run_periodic()

    assert (model_before, switched_count, await platform.active_model()) == ("stems/1", 1, "stems/2")
    await platform.rig.services.migration.run_periodic()
    assert await platform.index.count(1) == 0, "the vectors of the previous model are deleted later"


# End to end: real services, servers and commands


@pytest.fixture
def services() -> Iterator[tuple[EmbeddingService, EmbeddingService]]:
    """Yield two embedding services with different dimensions and different vectors."""
    with (
        run_embedding_service(EmbeddingService(name="one", width=24, salt="one", key=KEY)) as one,
        run_embedding_service(EmbeddingService(name="two", width=40, salt="two", key=KEY)) as two,
    ):
        yield one, two


@asynccontextmanager
async def _open_instance(settings: Settings, first: Instance | None = None, **changes: object) -> AsyncGenerator[Instance]:
    async with run_instance(replace(settings, **changes)) as instance:
        yield instance if first is None else replace(instance, admin=Caller(instance.transport, first.admin.key))


async def _recall(instance: Instance, query: str) -> tuple[list[str], bool]:
    response = await instance.admin.post("/v1/brain/recall", {"query": query, "top_k": 1})
    assert response.status_code == 200, response.text
    body = response.json()
    return [memory["content"] for memory in body["memories"]], "notice" in body


async def test_recall_works_during_the_change_from_one_service_to_another(
    settings: Settings, services: tuple[EmbeddingService, EmbeddingService]
) -> None:
    """The settings, doctor and the command work together, and no output contains a secret."""
    one, two = services
    first, second = Secret(one.openai_url()), Secret(two.openai_url())
    async with _open_instance(settings, embedder=first, vector_dimension=24) as first_instance:
        for content in ("heron on the roof", "heron by the boat", "swallow under the bridge"):
            await first_instance.admin.post("/v1/brain/remember", {"content": content, "type": "fact", "wait_ms": 5000})
        assert await _recall(first_instance, "roof of the heron") == (["heron on the roof"], False)
    new_settings = {"embedder": second, "vector_dimension": 40}

    async with _open_instance(settings, first_instance, **new_settings) as without_previous:
        assert (await _recall(without_previous, "roof of the heron"))[1]
        (finding_without_previous,) = await _memory_findings(without_previous)
    async with _open_instance(settings, first_instance, **new_settings, embedder_previous=first) as instance:
        assert await _recall(instance, "roof of the heron") == (["heron on the roof"], False)
        await instance.admin.post("/v1/brain/remember", {"content": "heron in the reeds", "type": "fact", "wait_ms": 5000})
        assert (await _recall(instance, "reeds of the heron"))[0][0] == "heron in the reeds"
        (finding_during,) = await _memory_findings(instance)
        report = await instance.rookery.memory.reindexer.reindex(ReindexRequest(is_stale=True))
        one.key = "replaced"
        assert await _recall(instance, "roof of the heron") == (["heron on the roof"], False)
        (finding_after,) = await _memory_findings(instance)

    assert (report.successes, finding_after.grade, finding_during.grade, finding_without_previous.grade) == (3, "ok", "warning", "warning")
    assert "1 of 4 memories have vectors of openai/two/40-1" in finding_during.says
    assert "recall uses those of openai/one/24-1" in finding_during.says
    assert "recall uses full-text search" in finding_without_previous.says
    assert "ROOKERY_EMBEDDER_PREVIOUS" in str(finding_without_previous.advice)
    assert "brain:reindex --stale" in str(finding_during.advice)
    assert KEY not in f"{finding_without_previous}{finding_during}{finding_after}"


async def test_recall_works_during_the_change_to_a_model_in_a_folder_and_back(settings: Settings) -> None:
    """A model of the user has its own identity, so the built-in one answers until all memories have new vectors."""
    folder = Secret(f"embedded:{model_files.find_weights()}?passage_prefix=memory:%20&precision=f32")
    async with _open_instance(settings) as first_instance:
        for content in ("heron on the roof", "heron by the boat", "swallow under the bridge"):
            await first_instance.admin.post("/v1/brain/remember", {"content": content, "type": "fact", "wait_ms": 5000})

    async with _open_instance(settings, first_instance, embedder=folder) as instance:
        assert await _recall(instance, "a bird on top of the house") == (["heron on the roof"], False)
        (finding_during,) = await _memory_findings(instance)
        report = await instance.rookery.memory.reindexer.reindex(ReindexRequest(is_stale=True))
        assert await _recall(instance, "a bird on top of the house") == (["heron on the roof"], False)
        findings = {finding.about: finding for finding in await examine(instance.rookery)}
    async with _open_instance(settings, first_instance, embedder_previous=folder) as instance:
        assert await _recall(instance, "a bird on top of the house") == (["heron on the roof"], False)
        (finding_back,) = await _memory_findings(instance)
    async with _open_instance(settings, first_instance) as instance:
        assert (await _recall(instance, "a bird on top of the house"))[1], "without the folder, its vectors cannot be searched"

    assert report.successes == 3
    assert "recall uses those of all-MiniLM-L6-v2/int8-1" in finding_during.says
    assert (findings["memory"].grade, findings["embedder"].grade) == ("ok", "ok")
    assert "(full precision, 384 dimensions, mean pooling, 256 tokens)" in findings["embedder"].says
    assert "recall uses those of folder/model/" in finding_back.says


async def _memory_findings(instance: Instance) -> list[DoctorFinding]:
    return [finding for finding in await examine(instance.rookery) if finding.about == "memory"]


async def test_the_server_starts_while_the_embedding_service_is_down(settings: Settings) -> None:
    """Doctor reports a service that is down at the start; remember works, and recall uses full text."""
    async with _open_instance(settings, embedder=Secret("ollama://127.0.0.1:1/words")) as instance:
        await instance.rookery.require_matching_dimension()
        remember_response = await instance.admin.post("/v1/brain/remember", {"content": "heron", "type": "fact"})
        recall_response = await instance.admin.post("/v1/brain/recall", {"query": "heron"})
        findings = {finding.about: finding for finding in await examine(instance.rookery)}

    body = recall_response.json()
    assert (remember_response.status_code, recall_response.status_code, [memory["content"] for memory in body["memories"]]) == (
        201,
        200,
        ["heron"],
    )
    assert body["notice"].startswith("Results are by keywords only: the embedder is unavailable: ")
    assert findings["embedder"].grade == "problem"


def _start_command(folder: Path, *arguments: str, **settings: str) -> subprocess.Popen[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ROOKERY_")}
    environment |= {f"ROOKERY_{name.upper()}": value for name, value in settings.items()}
    command = [sys.executable, "-m", "rookery", "--data-dir", str(folder), *arguments]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


async def test_a_killed_rebuild_continues_where_it_stopped(services: tuple[EmbeddingService, EmbeddingService], tmp_path: Path) -> None:
    """The second run does not repeat finished work, and the server responds all the time."""
    one, two = services
    count = 200
    new_settings = {"embedder": two.openai_url(), "vector_dimension": "40"}
    with run_server(tmp_path / "data", embedder=one.openai_url(), vector_dimension="24") as server:
        contents = [f"heron {index} sits on roof {index}" for index in range(count)]
        body = {"memories": [{"content": content, "type": "fact"} for content in contents]}
        server.client.post("/v1/brain/remember/batch", json=body).raise_for_status()
        indexed_path = "/v1/brain/memories?per_page=1&state=indexed"
        await eventually(lambda: server.client.get(indexed_path).json()["meta"]["total"] == count)
        keys = server.keys

    def embedded() -> list[str]:
        return [text for text in two.texts if text in contents]

    def recall() -> tuple[str, bool]:
        body = server.client.post("/v1/brain/recall", json={"query": "heron roof 77", "top_k": 1}).json()
        return body["memories"][0]["content"], "notice" in body

    data = tmp_path / "data"
    with run_server(data, embedder=two.openai_url(), vector_dimension="40", embedder_previous=one.openai_url()) as server:
        server.client.headers["Authorization"] = f"Bearer {keys['api_key']}"
        two.delay_s = 0.2
        first_run = _start_command(tmp_path / "data", "brain", "reindex", "--stale", **new_settings)
        await eventually(lambda: len(embedded()) > 64)
        first_run.kill()
        await asyncio.to_thread(first_run.communicate)
        recall_during = recall()
        two.delay_s = 0.0
        embedded_before = len(embedded())
        second_run = _start_command(tmp_path / "data", "brain", "reindex", "--stale", "--json", **new_settings)
        output, _ = await asyncio.to_thread(second_run.communicate)
        report = json.loads(output)
        one.key = "replaced"
        recall_after = recall()

    assert (recall_during, recall_after) == (("heron 77 sits on roof 77", False),) * 2
    assert 0 < report["total"] <= count - 64
    assert (report["failures"], set(embedded()), len(embedded()) - embedded_before) == (0, set(contents), report["total"])


async def test_vectors_of_a_larger_dimension_stop_the_start_with_one_line(
    services: tuple[EmbeddingService, EmbeddingService], tmp_path: Path
) -> None:
    """The dimension is checked at the start; the error is one clear line without a secret."""
    one, _ = services
    process = _start_command(tmp_path / "data", "serve", "--port", "0", embedder=one.openai_url(), vector_dimension="16")
    output, error = await asyncio.to_thread(process.communicate)

    assert (process.returncode, output) == (1, "")
    assert (
        error == "error: ROOKERY_EMBEDDER: the service returns vectors with 24 dimensions, more than the 16 that are stored:"
        " set ROOKERY_VECTOR_DIMENSION=24\n"
    )
