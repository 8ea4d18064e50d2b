"""D-54: another embedder. Recall goes on, by the old vectors or by words, until the new ones are all there."""

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
from rookery.kernel.config import Settings
from rookery.kernel.secret import Secret
from rookery.memory.embedding_migration import IndexVersion
from rookery.memory.maintenance.reindexing import ReindexRequest, RunReport
from rookery.memory.models import MemoryChange, RecallMode, RecallRequest, RecallResult
from rookery.memory.ports import ModelVersion
from tests.conftest import Caller, FakeClock, Instance, eventually, run_instance
from tests.embedding_service import KEY, EmbeddingService, run_embedding_service
from tests.memory.makers import DIMENSION, MemoryRig, StemEmbedder, build_rig, make_caller
from tests.processes import run_server


class MigratedPlatform:
    """Memory after its embedder was changed: *rig* has the new one, and knows the former one."""

    def __init__(self, before: MemoryRig, data_dir: Path, clock: FakeClock) -> None:
        self.former = before.embedder
        self.index = vector_engines.open("embedded:", data_dir=data_dir, model=self.former.model, dimension=DIMENSION)
        self.rig = build_rig(
            before.db, data_dir, clock, embedder=StemEmbedder(model="stems/2", dimension=DIMENSION), find_previous=self._side
        )

    def _side(self, generation: ModelVersion) -> IndexVersion | None:
        if generation != ModelVersion(model=self.former.model, dimension=self.former.dimension):
            return None
        return IndexVersion(embedder=self.former, vectors=self.index, is_previous=True)

    async def ask(self, query: str, mode: RecallMode = "semantic") -> RecallResult:
        """Recall in workspace 1."""
        return await self.rig.services.recall.find(make_caller(), RecallRequest(query=query, mode=mode, top_k=100))

    async def found(self, query: str, mode: RecallMode = "semantic") -> list[str]:
        """Return what is recalled by meaning, and fail if it was by words."""
        recalled = await self.ask(query, mode)
        assert recalled.notice is None
        return sorted(hit.memory.content for hit in recalled.hits if hit.similarity is not None and hit.similarity > 0.5)

    async def reindex(self, **wanted: object) -> RunReport:
        """Do as `brain:reindex --stale`."""
        return await self.rig.services.reindexer.reindex(replace(ReindexRequest(is_stale=True), **wanted))

    async def serving(self, workspace_id: int = 1) -> str | None:
        """Return whose vectors answer."""
        serving = await self.rig.vectors.get_active_version(workspace_id)
        return None if serving is None else serving.model

    async def close(self) -> None:
        """End what this has opened."""
        await self.rig.close()
        await self.index.close()


@pytest.fixture
async def changed(rig: MemoryRig, data_dir: Path, clock: FakeClock) -> AsyncIterator[MigratedPlatform]:
    """Three memories embedded with a previous model."""
    for content in ("heron roof", "heron boat", "swallow bridge"):
        await rig.remember(content)
    await rig.run_jobs()
    rig.embedder.embedded_contents.clear()
    other = MigratedPlatform(rig, data_dir, clock)
    yield other
    await other.close()


async def test_recall_goes_on_by_the_old_vectors_until_all_are_rebuilt(changed: MigratedPlatform) -> None:
    """Issue: brain:reindex --stale rebuilds beside the old index and switches when complete; recall works throughout."""
    seen = [await changed.found("heron"), await changed.found("heron", "hybrid")]
    embed = changed.rig.embedder.embed_passages
    asked = list[tuple[str | None, list[str]]]()

    async def embed_while_others_ask(passages: object) -> object:
        asked.append((await changed.serving(), await changed.found("heron")))
        return await embed(passages)  # pyright: ignore[reportArgumentType] - handed on as it came

    changed.rig.embedder.embed_passages = embed_while_others_ask  # pyright: ignore[reportAttributeAccessIssue]
    report = await changed.reindex()

    assert seen == [["heron boat", "heron roof"]] * 2
    assert asked == [("stems/1", ["heron boat", "heron roof"])]
    assert (report.successes, await changed.serving()) == (3, "stems/2")
    changed.former.is_down = True
    assert await changed.found("heron") == ["heron boat", "heron roof"]


async def test_what_is_remembered_and_changed_meanwhile_is_found_by_meaning(changed: MigratedPlatform) -> None:
    """New contents are embedded by both models; a vector that exists is not computed again."""
    memory = await changed.rig.remember("heron nest")
    (old,) = (await changed.ask("swallow")).hits[:1]
    await changed.rig.services.records.change(
        make_caller(), old.memory.id, MemoryChange(changed_fields=frozenset({"content"}), content="heron bridge")
    )
    await changed.rig.run_jobs()

    assert await changed.found("heron") == ["heron boat", "heron bridge", "heron nest", "heron roof"]
    assert (await changed.serving(), sorted(changed.former.embedded_contents)) == ("stems/1", ["heron bridge", "heron nest"])
    await changed.rig.services.records.delete(make_caller(), memory.id)
    await changed.rig.run_jobs()
    await changed.reindex()
    assert (await changed.serving(), sorted(changed.former.embedded_contents)) == ("stems/2", ["heron bridge", "heron nest"])
    assert await changed.found("heron") == ["heron boat", "heron bridge", "heron roof"]


async def test_a_part_that_is_rebuilt_switches_nothing(changed: MigratedPlatform) -> None:
    """D-54: never mixed vectors, also not of one org and another; other workspaces go on by themselves."""
    await changed.rig.remember("heron zoo", org="zoo")
    await changed.rig.remember("heron two", make_caller(workspace_id=2))
    await changed.rig.run_jobs()
    await changed.reindex(org="zoo")
    await changed.rig.services.migration.run_periodic()

    assert [await changed.serving(each) for each in (1, 2)] == ["stems/1", "stems/2"]
    assert await changed.found("heron") == ["heron boat", "heron roof", "heron zoo"]


async def test_without_the_former_embedder_recall_goes_by_words_and_says_so(
    changed: MigratedPlatform, clock: FakeClock, data_dir: Path
) -> None:
    """D-54: without the old model its vectors cannot be searched, and half of the new ones would hide the other half."""
    alone = build_rig(changed.rig.db, data_dir, clock, embedder=StemEmbedder(model="stems/2", dimension=DIMENSION))
    await alone.remember("heron nest")
    await alone.run_jobs()
    found = [
        await alone.services.recall.find(make_caller(), RecallRequest(query="heron", mode=mode))
        for mode in ("semantic", "hybrid", "keyword")
    ]
    events = [event.mode for event in alone.events if hasattr(event, "mode")]  # pyright: ignore[reportUnknownMemberType, reportAttributeAccessIssue, reportUnknownVariableType]
    answers = [alone.services.serializer.serialize_recall(each, explain=explain) for each in found for explain in (False, True)]
    await alone.close()

    assert [sorted(hit.memory.content for hit in each.hits) for each in found] == [["heron boat", "heron nest", "heron roof"]] * 3
    assert [each.notice is not None for each in found] == [True, True, False]
    assert events == ["keyword"] * 3
    assert ["by keywords" in str(answer.notice) for answer in answers] == [True] * 4 + [False] * 2
    assert "notice" not in json.loads(answers[-1].model_dump_json())


async def test_a_former_embedder_that_is_down_is_as_one_that_is_gone(changed: MigratedPlatform) -> None:
    """Recall works throughout; new memories are indexed all the same."""
    changed.former.is_down = True
    await changed.rig.remember("heron nest")
    await changed.rig.run_jobs()
    recalled = await changed.ask("heron")

    assert (recalled.notice is not None, len(recalled.hits), await changed.rig.vectors.count(1)) == (True, 3, 1)
    assert (await changed.reindex()).successes == 3
    assert len(await changed.found("heron")) == 3


async def test_a_memory_that_cannot_be_embedded_does_not_hold_up_the_others(changed: MigratedPlatform) -> None:
    """It stays stale, is counted as a failure, and is found by its words."""
    changed.rig.embedder.poison = "boat"
    report = await changed.reindex()

    assert (report.successes, report.failures, await changed.serving()) == (2, 1, "stems/2")
    assert await changed.found("heron") == ["heron roof"]
    assert [hit.memory.content for hit in (await changed.ask("boat", "keyword")).hits] == ["heron boat"]


async def test_an_engine_that_goes_down_in_the_middle_leaves_all_as_it_was(changed: MigratedPlatform) -> None:
    """It is run again, and goes on with what is left."""
    await changed.rig.services.reindexer.reindex(ReindexRequest(is_stale=True, org="acme", project="nothing here"))
    changed.rig.embedder.is_down = True
    report = await changed.reindex()

    assert (report.stopped is not None, await changed.serving(), await changed.found("heron")) == (
        True,
        "stems/1",
        ["heron boat", "heron roof"],
    )
    changed.rig.embedder.is_down = False
    assert ((await changed.reindex()).successes, await changed.serving()) == (3, "stems/2")


async def test_the_server_switches_by_itself_when_the_last_is_indexed(changed: MigratedPlatform) -> None:
    """If the command was killed after its last batch, or jobs did the rest, it need not run again."""
    for memory in [hit.memory for hit in (await changed.ask("heron swallow")).hits]:
        await changed.rig.services.indexer.index([memory])
    before = await changed.serving()
    switched = await changed.rig.services.migration.run_periodic()

    assert (before, switched, await changed.serving()) == ("stems/1", 1, "stems/2")
    await changed.rig.services.migration.run_periodic()
    assert await changed.index.count(1) == 0, "what the former one had is cleared away later"


# On the whole: real services, servers and commands


@pytest.fixture
def services() -> Iterator[tuple[EmbeddingService, EmbeddingService]]:
    """Two embedding services, of different widths and of other vectors."""
    with (
        run_embedding_service(EmbeddingService(name="one", width=24, salt="one", key=KEY)) as one,
        run_embedding_service(EmbeddingService(name="two", width=40, salt="two", key=KEY)) as two,
    ):
        yield one, two


@asynccontextmanager
async def _reopened(settings: Settings, like: Instance | None = None, **changes: object) -> AsyncGenerator[Instance]:
    async with run_instance(replace(settings, **changes)) as instance:
        yield instance if like is None else replace(instance, admin=Caller(instance.transport, like.admin.key))


async def _recalled(instance: Instance, query: str) -> tuple[list[str], bool]:
    answer = await instance.admin.post("/v1/brain/recall", {"query": query, "top_k": 1})
    assert answer.status_code == 200, answer.text
    found = answer.json()
    return [memory["content"] for memory in found["memories"]], "notice" in found


async def test_from_one_service_to_another_without_an_hour_of_bad_recall(
    settings: Settings, services: tuple[EmbeddingService, EmbeddingService]
) -> None:
    """D-54 as an operator meets it: settings, doctor, the command, and no secret anywhere."""
    one, two = services
    first, second = Secret(one.openai_url()), Secret(two.openai_url())
    async with _reopened(settings, embedder=first, vector_dimension=24) as before:
        for content in ("heron on the roof", "heron by the boat", "swallow under the bridge"):
            await before.admin.post("/v1/brain/remember", {"content": content, "type": "fact", "wait_ms": 5000})
        assert await _recalled(before, "roof of the heron") == (["heron on the roof"], False)
    new = {"embedder": second, "vector_dimension": 40}

    async with _reopened(settings, before, **new) as unnamed:
        assert (await _recalled(unnamed, "roof of the heron"))[1]
        (blind,) = await _memory(unnamed)
    async with _reopened(settings, before, **new, embedder_previous=first) as instance:
        assert await _recalled(instance, "roof of the heron") == (["heron on the roof"], False)
        await instance.admin.post("/v1/brain/remember", {"content": "heron in the reeds", "type": "fact", "wait_ms": 5000})
        assert (await _recalled(instance, "reeds of the heron"))[0][0] == "heron in the reeds"
        (lagging,) = await _memory(instance)
        report = await instance.rookery.reindexer.reindex(ReindexRequest(is_stale=True))
        one.key = "nobody has it any more"
        assert await _recalled(instance, "roof of the heron") == (["heron on the roof"], False)
        (well,) = await _memory(instance)

    assert (report.successes, well.grade, lagging.grade, blind.grade) == (3, "ok", "warning", "warning")
    assert "1 of 4 memories have vectors of openai/two/40-1" in lagging.says
    assert "recall uses those of openai/one/24-1" in lagging.says
    assert "recall uses full-text search" in blind.says
    assert "ROOKERY_EMBEDDER_PREVIOUS" in str(blind.advice)
    assert "brain:reindex --stale" in str(lagging.advice)
    assert KEY not in f"{blind}{lagging}{well}"


async def _memory(instance: Instance) -> list[DoctorFinding]:
    return [finding for finding in await examine(instance.rookery) if finding.about == "memory"]


async def test_a_service_that_is_down_is_a_finding_and_no_reason_not_to_start(settings: Settings) -> None:
    """Issue: the dimension is checked at start; a service that is down then is told by doctor; remember goes on, recall by words."""
    async with _reopened(settings, embedder=Secret("ollama://127.0.0.1:1/words")) as instance:
        await instance.rookery.require_matching_dimension()
        stored = await instance.admin.post("/v1/brain/remember", {"content": "heron", "type": "fact"})
        recalled = await instance.admin.post("/v1/brain/recall", {"query": "heron"})
        findings = {finding.about: finding for finding in await examine(instance.rookery)}

    body = recalled.json()
    assert (stored.status_code, recalled.status_code, [each["content"] for each in body["memories"]]) == (201, 200, ["heron"])
    assert body["notice"].startswith("Results are by keywords only: the embedder is unavailable: ")
    assert findings["embedder"].grade == "problem"


def _command(folder: Path, *arguments: str, **settings: str) -> subprocess.Popen[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ROOKERY_")}
    environment |= {f"ROOKERY_{name.upper()}": value for name, value in settings.items()}
    command = [sys.executable, "-m", "rookery", "--data-dir", str(folder), *arguments]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


async def test_a_rebuild_that_is_killed_goes_on_where_it_was(services: tuple[EmbeddingService, EmbeddingService], tmp_path: Path) -> None:
    """Issue: killed in the middle it goes on; the server answers throughout, and what was done is not done again."""
    one, two = services
    number = 200
    before = {"embedder": one.openai_url(), "vector_dimension": "24"}
    after = {"embedder": two.openai_url(), "vector_dimension": "40"}
    with run_server(tmp_path / "data", **before) as server:
        contents = [f"heron {index} sits on roof {index}" for index in range(number)]
        body = {"memories": [{"content": content, "type": "fact"} for content in contents]}
        server.client.post("/v1/brain/remember/batch", json=body).raise_for_status()
        listed = "/v1/brain/memories?per_page=1&state=indexed"
        await eventually(lambda: server.client.get(listed).json()["meta"]["total"] == number, within_s=60)
        keys = server.keys

    def embedded() -> list[str]:
        return [text for text in two.texts if text in contents]

    def ask() -> tuple[str, bool]:
        found = server.client.post("/v1/brain/recall", json={"query": "heron roof 77", "top_k": 1}).json()
        return found["memories"][0]["content"], "notice" in found

    with run_server(tmp_path / "data", **after, embedder_previous=one.openai_url()) as server:
        server.client.headers["Authorization"] = f"Bearer {keys['api_key']}"
        two.delay_s = 0.2
        killed = _command(tmp_path / "data", "brain", "reindex", "--stale", **after)
        await eventually(lambda: len(embedded()) > 64, within_s=60)
        killed.kill()
        await asyncio.to_thread(killed.communicate)
        middle = ask()
        two.delay_s = 0.0
        asked = len(embedded())
        again = _command(tmp_path / "data", "brain", "reindex", "--stale", "--json", **after)
        said, _ = await asyncio.to_thread(again.communicate)
        report = json.loads(said)
        one.key = "nobody has it any more"
        final = ask()

    assert (middle, final) == (("heron 77 sits on roof 77", False),) * 2
    assert 0 < report["total"] <= number - 64
    assert (report["failures"], set(embedded()), len(embedded()) - asked) == (0, set(contents), report["total"])


async def test_vectors_that_do_not_fit_refuse_the_start_in_one_line(
    services: tuple[EmbeddingService, EmbeddingService], tmp_path: Path
) -> None:
    """Issue: dimension check at start; D-02: one clear line, and no secret in it."""
    one, _ = services
    refused = _command(tmp_path / "data", "serve", "--port", "0", embedder=one.openai_url(), vector_dimension="16")
    said, line = await asyncio.to_thread(refused.communicate)

    assert (refused.returncode, said) == (1, "")
    assert (
        line == "error: ROOKERY_EMBEDDER: the service returns vectors with 24 dimensions, more than the 16 that are stored:"
        " set ROOKERY_VECTOR_DIMENSION=24\n"
    )
