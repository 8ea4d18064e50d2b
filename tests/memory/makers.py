"""The memory domain as wiring builds it, on real engines, with a fast embedder that can be made to fail."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Collection, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from pathlib import Path
from typing import TypeVar, cast

import numpy as np

from rookery.access.models import Caller, missing_scope_error
from rookery.engines import texts as text_engines
from rookery.engines import vectors as vector_engines
from rookery.engines.similarity.comparison import open_comparison
from rookery.engines.vectors.embedded import EmbeddedVectorIndex
from rookery.kernel.clock import Clock
from rookery.kernel.db import Database, Dialect, Tx
from rookery.kernel.errors import EngineUnavailable
from rookery.kernel.events import EventBus
from rookery.kernel.ids import IdFactory, uuid7
from rookery.kernel.jobs import JobQueue, JobWorker
from rookery.memory.agent_context import AgentContext
from rookery.memory.api import MemoryApi
from rookery.memory.candidates import CandidateSearch
from rookery.memory.capacity import Capacity, StorageLimits
from rookery.memory.embedding_migration import EmbeddingMigration, IndexVersion
from rookery.memory.events import MemoryArchived, MemoryDeleted, MemoryRecalled, MemoryStored, MemorySuperseded, ReindexCompleted
from rookery.memory.feedback import Feedback, RecallBuffer
from rookery.memory.indexing import DELETE_JOB, EMBED_JOB, Indexer
from rookery.memory.jobs import MemoryJobs
from rookery.memory.maintenance.erasure import Erasure
from rookery.memory.maintenance.operations import MaintenanceServices, build_maintenance
from rookery.memory.maintenance.reindexing import Reindexer
from rookery.memory.models import Draft, EmbeddedDocument, Memory, MemoryScope, Passage, Vector
from rookery.memory.ports import Embedder, ModelVersion
from rookery.memory.recall import Recall
from rookery.memory.records import Records
from rookery.memory.remember import Remember
from rookery.memory.retention import RetentionTask
from rookery.memory.schemas.responses import MemorySerializer
from rookery.memory.search import Listing, MemorySearch
from rookery.memory.similarity_scales import SimilarityScales
from rookery.memory.text_queries import stem_words
from rookery.memory.training import Training
from rookery.memory.transfer.exporting import MemoryExport
from rookery.memory.transfer.importing import MemoryImport, TransferServices
from tests.conftest import FakeClock

DIMENSION = 64
MODEL = "stems/1"
HERON = "The heron nests on the roof."
_MAX_BATCHES = 200


T = TypeVar("T")
Hook = Callable[[], Awaitable[object]]


@dataclass
class StemEmbedder:
    """
    An embedder without a model: the vector of a text is the sum of its stems' vectors.

    Attributes:
        full_similarity: The scale of the built-in model, so that relevances are those of the default.
        offset: The size of a common part of all vectors, which raises all cosines, as in models such as e5.
        is_down: Whether it fails like an engine that is not reachable.
        poison: A passage with this word raises an unexpected error.
        before_embedding: Runs before each batch of passages.
    """

    model: str = MODEL
    dimension: int = DIMENSION
    full_similarity: float | None = 0.7
    offset: float = 0.0
    is_down: bool = False
    poison: str | None = None
    before_embedding: Hook | None = None
    embedded_contents: list[str] = field(default_factory=list[str])

    async def embed_query(self, text: str) -> Vector:
        """Return the vector of the text."""
        self._raise_if_down()
        return text_vector(text, offset=self.offset)

    async def embed_passages(self, passages: Sequence[Passage]) -> list[tuple[Vector, ...]]:
        """Return the vector of each content; the context is ignored, so that similarities are simple."""
        self._raise_if_down()
        await _run_hook(self.before_embedding)
        for passage in passages:
            if self.poison is not None and self.poison in passage.content:
                msg = f"cannot embed {self.poison}"
                raise ValueError(msg)
            self.embedded_contents.append(passage.content)
        return [(text_vector(passage.content, offset=self.offset),) for passage in passages]

    def _raise_if_down(self) -> None:
        if self.is_down:
            raise EngineUnavailable("embedder", "it is switched off")


async def _run_hook(hook: Hook | None) -> None:
    await (asyncio.sleep(0) if hook is None else hook())


@dataclass
class Hooks:
    """
    Steps of another process, or faults, that occur at each call of a store until the hook is reset.

    Attributes:
        before_write: Runs before a transaction that writes records.
        before_lookup: Runs before a lookup of records.
        before_put: Runs before vectors are written.
        after_put: Runs after vectors were written.
        before_fetch: Runs before vectors are fetched, with their ids.
    """

    before_write: Hook | None = None
    before_lookup: Callable[[], None] | None = None
    before_put: Hook | None = None
    after_put: Hook | None = None
    before_fetch: Callable[[Collection[str]], None] | None = None


class HookedDatabase:
    """A record store with hooks."""

    def __init__(self, db: Database, hooks: Hooks) -> None:
        self._db = db
        self._hooks = hooks

    @property
    def dialect(self) -> Dialect:
        """The dialect of the store."""
        return self._db.dialect

    async def write(self, work: Callable[[Tx], T]) -> T:
        """Run the hook, then *work* in one transaction."""
        if self._hooks.before_write is not None:
            await self._hooks.before_write()
        return await self._db.write(work)

    async def read(self, work: Callable[[Tx], T]) -> T:
        """Run *work*, which only reads."""
        return await self._db.read(work)

    async def lookup(self, work: Callable[[Tx], T]) -> T:
        """Run the hook, then *work*, which reads by key."""
        if self._hooks.before_lookup is not None:
            self._hooks.before_lookup()
        return await self._db.lookup(work)

    async def close(self) -> None:
        """Close the store."""
        await self._db.close()


class HookedVectors(EmbeddedVectorIndex):
    """The embedded vector index with hooks."""

    def __init__(self, path: Path, *, model: str, dimension: int, hooks: Hooks) -> None:
        super().__init__(path, model=model, dimension=dimension)
        self._hooks = hooks

    async def put(self, items: Sequence[EmbeddedDocument]) -> None:
        """Run the hooks before and after the write."""
        if self._hooks.before_put is not None:
            await self._hooks.before_put()
        await super().put(items)
        if self._hooks.after_put is not None:
            await self._hooks.after_put()

    async def fetch(self, workspace_id: int, ids: Collection[str]) -> Mapping[str, tuple[Vector, ...]]:
        """Run the hook, then fetch the vectors."""
        if self._hooks.before_fetch is not None:
            self._hooks.before_fetch(ids)
        return await super().fetch(workspace_id, ids)


def text_vector(text: str, *, offset: float = 0.0) -> Vector:
    """Return the normalized sum of the stems' vectors, and of *offset* in one direction."""
    total = np.zeros(DIMENSION)
    for stem in stem_words(text):
        seed = int.from_bytes(blake2b(stem.encode(), digest_size=8).digest(), "big")
        total += np.random.default_rng(seed).normal(size=DIMENSION)
    length = float(np.linalg.norm(total))
    unit = total / length if length > 0 else np.full(DIMENSION, 1 / math.sqrt(DIMENSION))
    if offset:
        unit = unit + np.full(DIMENSION, offset / math.sqrt(DIMENSION))
        unit /= np.linalg.norm(unit)
    return unit.astype("<f4").tobytes()


def make_caller(**fields: object) -> Caller:
    """Return the caller of an API key of workspace 1 with all permissions."""
    caller = Caller(
        key_id="key",
        key_kind="api",
        key_name="key",
        workspace_id=1,
        public_workspace_id=1,
        scopes=frozenset({"*"}),
        agent_id=None,
        environment="live",
        servers=None,
        tools=None,
        orgs=None,
        projects=None,
        tool_limits={},
        address="192.0.2.1",
        request_id="req_test",
    )
    return replace(caller, **fields)


def make_agent(agent_id: str = "kim", **fields: object) -> Caller:
    """Return the caller of an agent's key, with an agent's permissions."""
    scopes = frozenset({"brain:read", "brain:write", "brain:delete"})
    return make_caller(**{"key_kind": "agent", "agent_id": agent_id, "scopes": scopes, **fields})


def make_draft(content: str = HERON, **fields: object) -> Draft:
    """Return a draft of an observation in acme/web."""
    return replace(Draft(content=content, type="observation", org="acme", project="web"), **fields)


def make_memory(clock: FakeClock, **fields: object) -> Memory:
    """Return a memory in workspace 1 and acme/web that was stored now."""
    now = clock()
    memory = Memory(
        id=uuid7(),
        workspace_id=1,
        org="acme",
        project="web",
        agent_id=None,
        session_id=None,
        memory_scope=MemoryScope.PROJECT,
        type="observation",
        tags=(),
        confidence=0.8,
        base_confidence=0.8,
        source="manual",
        content=HERON,
        content_at=now,
        created_at=now,
        updated_at=now,
    )
    return replace(memory, **fields)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryServices:
    """The services of the memory domain."""

    remember: Remember
    records: Records
    recall: Recall
    search: MemorySearch
    listing: Listing
    feedback: Feedback
    context: AgentContext
    serializer: MemorySerializer
    reindexer: Reindexer
    maintenance: MaintenanceServices
    migration: EmbeddingMigration
    indexer: Indexer
    recall_buffer: RecallBuffer
    training: Training
    retention: RetentionTask
    transfer: TransferServices


def _assemble(
    *,
    db: Database,
    jobs: JobQueue,
    embedder: Embedder,
    vectors: vector_engines.VectorEngine,
    find_previous: Callable[[ModelVersion], IndexVersion | None],
    texts: text_engines.TextEngine,
    bus: EventBus,
    clock: Clock,
    ids: IdFactory,
    limits: StorageLimits,
    index_first: bool,
    monotonic: Callable[[], float],
) -> MemoryServices:
    """Build the services, as `wiring` does."""
    migration = EmbeddingMigration(
        current=IndexVersion(embedder=embedder, vectors=vectors), model_versions=vectors, find_previous=find_previous
    )
    indexer = Indexer(db=db, embedder=embedder, vectors=vectors, texts=texts, clock=clock, migration=migration)
    capacity = Capacity(db=db, jobs=jobs, limits=limits, monotonic=monotonic)
    recall_buffer, erasure = RecallBuffer(db=db), Erasure(db=db, stores=[texts, vectors], clock=clock)
    return MemoryServices(
        remember=Remember(db=db, jobs=jobs, indexer=indexer, capacity=capacity, bus=bus, clock=clock, ids=ids, index_first=index_first),
        records=Records(db=db, jobs=jobs, indexer=indexer, bus=bus, clock=clock),
        recall=Recall(
            db=db,
            migration=migration,
            candidates=CandidateSearch(db=db, texts=texts, scales=SimilarityScales(db=db)),
            buffer=recall_buffer,
            bus=bus,
            clock=clock,
            ids=ids,
        ),
        search=MemorySearch(db=db, texts=texts, clock=clock),
        listing=Listing(db=db, clock=clock, model=embedder.model),
        feedback=Feedback(db=db, jobs=jobs, recalls=recall_buffer, clock=clock),
        context=AgentContext(db=db, clock=clock),
        serializer=MemorySerializer(clock=clock, model=embedder.model),
        reindexer=Reindexer(db=db, indexer=indexer, texts=texts, bus=bus, clock=clock, migration=migration, erasure=erasure),
        maintenance=build_maintenance(
            db=db,
            indexer=indexer,
            vectors=vectors,
            open_comparison=open_comparison,
            jobs=jobs,
            bus=bus,
            clock=clock,
            ids=ids,
            erasure=erasure,
        ),
        migration=migration,
        indexer=indexer,
        recall_buffer=recall_buffer,
        training=Training(db=db, bus=bus, clock=clock),
        retention=RetentionTask(db=db, jobs=jobs, bus=bus, clock=clock),
        transfer=TransferServices(
            exporter=MemoryExport(db=db, clock=clock),
            importer=MemoryImport(db=db, jobs=jobs, indexer=indexer, capacity=capacity, bus=bus, clock=clock),
        ),
    )


@dataclass
class MemoryRig:
    """The memory domain of one process, with its engines and recorded events."""

    db: Database
    clock: FakeClock
    jobs: JobQueue
    bus: EventBus
    embedder: StemEmbedder
    vectors: vector_engines.VectorEngine
    texts: text_engines.TextEngine
    services: MemoryServices
    worker: JobWorker
    hooks: Hooks
    events: list[object] = field(default_factory=list[object])

    async def remember(self, content: str = HERON, by: Caller | None = None, **fields: object) -> Memory:
        """Store a memory as the caller *by*, by default an API key of workspace 1."""
        return (await self.services.remember.store(by or make_caller(), make_draft(content, **fields))).memory

    async def run_jobs(self) -> int:
        """Run every ready job and return their number."""
        count = 0
        for _ in range(_MAX_BATCHES):
            jobs_run = await self.worker.run_ready(DELETE_JOB) + await self.worker.run_ready(EMBED_JOB)
            count += jobs_run
            if not jobs_run:
                break
        return count

    async def reload(self, memory: Memory) -> Memory:
        """Return the current state of the memory."""
        return await self.services.records.get(make_caller(workspace_id=memory.workspace_id, scopes=frozenset({"*"})), memory.id)

    async def close(self) -> None:
        """Close the engines. The store stays open."""
        await self.vectors.close()
        await self.texts.close()


def build_rig(
    db: Database,
    folder: Path,
    clock: FakeClock,
    *,
    limits: StorageLimits | None = None,
    index_first: bool = False,
    embedder: StemEmbedder | None = None,
    find_previous: Callable[[ModelVersion], IndexVersion | None] = lambda _: None,
    vectors: vector_engines.VectorEngine | None = None,
    texts: text_engines.TextEngine | None = None,
) -> MemoryRig:
    """Build the memory domain on *db*, as a separate process would."""
    hooks = Hooks()
    db = HookedDatabase(db, hooks)
    embedder = embedder or StemEmbedder()
    vectors = vectors or HookedVectors(folder / "vectors.db", model=embedder.model, dimension=DIMENSION, hooks=hooks)
    texts = texts or text_engines.open("embedded:", data_dir=folder)
    jobs, bus = JobQueue(db, clock, uuid7), EventBus()
    services = _assemble(
        db=db,
        jobs=jobs,
        embedder=embedder,
        vectors=vectors,
        find_previous=find_previous,
        texts=texts,
        bus=bus,
        clock=clock,
        ids=uuid7,
        limits=limits or StorageLimits(),
        index_first=index_first,
        monotonic=lambda: clock().timestamp(),
    )
    worker = JobWorker(jobs, MemoryJobs(db=db, indexer=services.indexer, clock=clock).kinds(), lease_s=30)
    rig = MemoryRig(
        db=db,
        clock=clock,
        jobs=jobs,
        bus=bus,
        embedder=embedder,
        vectors=vectors,
        texts=texts,
        services=services,
        worker=worker,
        hooks=hooks,
    )
    for event in (MemoryStored, MemorySuperseded, MemoryDeleted, MemoryArchived, MemoryRecalled, ReindexCompleted):
        bus.subscribe(event, rig.events.append)
    return rig


@dataclass
class FakeAdmission:
    """The admission of a caller that the test defines."""

    caller: Caller
    headers: tuple[tuple[bytes, bytes], ...] = ()

    def record(self, *, method: str, route: str, status: int, duration_ms: float) -> None:
        """Do nothing; the request is not recorded."""


@dataclass
class FakeGuard:
    """A guard that admits the caller named by the X-Test-Caller header, if it has the route's scope."""

    callers: dict[str, Caller]

    async def admit(self, scope: MutableMapping[str, object], *, required_scope: str | None, rate_limited: bool = True) -> FakeAdmission:
        """Admit the caller, or raise as the real guard does."""
        headers = cast("list[tuple[bytes, bytes]]", scope["headers"])
        name = next((value.decode() for key, value in headers if key == b"x-test-caller"), "admin")
        caller = self.callers[name]
        if required_scope is not None and not caller.has_scope(required_scope):
            raise missing_scope_error(caller.key_kind, required_scope)
        return FakeAdmission(caller)


def make_memory_api(rig: MemoryRig) -> MemoryApi:
    """Return the operations of the rig's memory."""
    services = rig.services
    return MemoryApi(
        remember=services.remember,
        records=services.records,
        recall=services.recall,
        search=services.search,
        listing=services.listing,
        feedback=services.feedback,
        context=services.context,
        serializer=services.serializer,
    )
