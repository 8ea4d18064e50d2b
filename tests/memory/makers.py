"""The memory domain as wiring builds it, on real engines, with a fast embedder that can be made to fail."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from pathlib import Path
from typing import TypeVar

import numpy as np

from rookery.access.models import Caller
from rookery.engines import texts as text_engines
from rookery.engines import vectors as vector_engines
from rookery.engines.similarity.comparison import open_comparison
from rookery.engines.similarity.projection import project_vectors
from rookery.engines.vectors.embedded import EmbeddedVectorIndex
from rookery.kernel.config import Settings
from rookery.kernel.db import Database, Dialect, Tx
from rookery.kernel.errors import EngineUnavailable
from rookery.kernel.events import EventBus
from rookery.kernel.ids import uuid7
from rookery.kernel.jobs import JobQueue, JobWorker
from rookery.kernel.runtime import Runtime
from rookery.memory.api import MemoryApi
from rookery.memory.build import MemoryPorts, MemoryServices
from rookery.memory.capacity import Capacity, StorageLimits
from rookery.memory.embedding_migration import IndexVersion
from rookery.memory.events import MemoryArchived, MemoryDeleted, MemoryRecalled, MemoryStored, MemorySuperseded, ReindexCompleted
from rookery.memory.indexing import DELETE_JOB, EMBED_JOB, WORDS_JOB
from rookery.memory.jobs import MemoryJobs
from rookery.memory.models import Draft, EmbeddedDocument, Memory, MemoryScope, Passage, Vector
from rookery.memory.ports import ModelVersion
from rookery.memory.text_queries import stem_words
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

    async def write(self, work: Callable[[Tx], T], *, is_synced: bool = True) -> T:
        """Run the hook, then *work* in one transaction."""
        if self._hooks.before_write is not None:
            await self._hooks.before_write()
        return await self._db.write(work, is_synced=is_synced)

    async def read(self, work: Callable[[Tx], T]) -> T:
        """Run *work*, which only reads."""
        return await self._db.read(work)

    async def read_from_replica(self, work: Callable[[Tx], T]) -> T:
        """Run *work* as `read` does."""
        return await self.read(work)

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


class NoSessions:
    """A lookup of agent sessions that finds none."""

    async def is_open(self, workspace_id: int, session_id: str) -> bool:
        """Return False."""
        del workspace_id, session_id
        return False

    async def list_predecessors(self, workspace_id: int, session_id: str) -> tuple[str, ...]:
        """Return none."""
        del workspace_id, session_id
        return ()


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
            jobs_run = sum([await self.worker.run_ready(kind) for kind in (DELETE_JOB, EMBED_JOB, WORDS_JOB)])
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


async def _close_nothing() -> None:
    """Close no engine: tests close those that they open."""


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
    bus = EventBus()
    runtime = Runtime(Settings(data_dir=folder, async_embedding=not index_first), db=db, bus=bus, clock=clock, ids=uuid7)
    ports = MemoryPorts(
        embedder=embedder,
        vectors=vectors,
        project_vectors=project_vectors,
        open_comparison=open_comparison,
        texts=texts,
        erasable_stores=[texts, vectors],
        find_previous=find_previous,
        close_previous=_close_nothing,
        sessions=NoSessions(),
    )
    runtime.provide(MemoryPorts, lambda _: ports)
    services, jobs = runtime.use(MemoryServices), runtime.jobs
    assert services.training  # it subscribes to the bus when it is built
    services.capacity = Capacity(db=db, jobs=jobs, limits=limits or StorageLimits(), monotonic=lambda: clock().timestamp())
    worker = JobWorker(jobs, MemoryJobs(db=db, queue=jobs, indexer=services.indexer, clock=clock).kinds(), lease_s=30)
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


def make_memory_api(rig: MemoryRig) -> MemoryApi:
    """Return the operations of the rig's memory."""
    services = rig.services
    return MemoryApi(
        remember=services.remember,
        records=services.records,
        recall=services.recall,
        search=services.search,
        listing=services.listing,
        map=services.map,
        feedback=services.feedback,
        recall_log=services.recall_log,
        context=services.context,
        serializer=services.serializer,
    )
