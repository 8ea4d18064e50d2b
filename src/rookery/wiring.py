"""Where everything is put together: `build` is the only function that knows all of it."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta

import structlog
from sqlalchemy import literal, select

from rookery.access.agent_keys import AgentKeys
from rookery.access.api_keys import ApiKeys
from rookery.access.audit import Audit
from rookery.access.first_run import FirstRun, first_run
from rookery.access.guard import Guard
from rookery.access.hashing import Bcrypt
from rookery.access.limits import Limiter, ToolLimits
from rookery.access.networks import proxies
from rookery.access.ports import Counter
from rookery.access.proofs import Proofs
from rookery.access.usage import Usage
from rookery.access.workspaces import Workspaces
from rookery.engines import counters, embedders, texts, upstreams, vectors
from rookery.kernel import kept_answers
from rookery.kernel.chores import Chore, run_chores
from rookery.kernel.clock import Clock, utc_now
from rookery.kernel.config import Settings
from rookery.kernel.db import Database, open_database
from rookery.kernel.db.observed import ObservedDatabase
from rookery.kernel.errors import EngineUnavailable, NotFound
from rookery.kernel.events import Bus
from rookery.kernel.ids import Ids, uuid7
from rookery.kernel.jobs import Jobs, Worker
from rookery.kernel.metrics import Metrics
from rookery.kernel.sealing import KeySource, Rotation, Sealer
from rookery.memory.answers import Answers
from rookery.memory.capacity import Capacity, Limits
from rookery.memory.indexing import Indexer
from rookery.memory.jobs import MemoryJobs
from rookery.memory.journal import Journal
from rookery.memory.lifecycle import Lifecycle
from rookery.memory.listing import Listing
from rookery.memory.mcp_tools import BrainServer
from rookery.memory.purge import Purge
from rookery.memory.recall import Recall
from rookery.memory.records import Records
from rookery.memory.remember import Remember
from rookery.memory.search import Search
from rookery.memory.store import records as memory_records
from rookery.memory.upkeep import Upkeep
from rookery.observation import Observation, Watched, observe
from rookery.tools.calls import Calls
from rookery.tools.catalogue import Catalogue
from rookery.tools.resources import Resources
from rookery.tools.roster import Roster
from rookery.tools.sessions import Sessions
from rookery.tools.store import calls as tool_calls

_log = structlog.stdlib.get_logger("rookery.wiring")

_ALIVE = select(literal(1).label("one"))
_MIB = 1024 * 1024
_CLOSE_S = 10.0
_TOOL_CALLS_KEPT = timedelta(days=90)
"""D-17."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Keys and workspaces, and what admits by them."""

    guard: Guard
    workspaces: Workspaces
    api_keys: ApiKeys
    agent_keys: AgentKeys
    bcrypt: Bcrypt
    proofs: Proofs
    usage: Usage
    audit: Audit


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryServices:
    """The shared memory."""

    remember: Remember
    records: Records
    recall: Recall
    search: Search
    listing: Listing
    answers: Answers
    lifecycle: Lifecycle
    indexer: Indexer
    journal: Journal
    upkeep: Upkeep


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolServices:
    """The tool servers."""

    sessions: Sessions
    catalogue: Catalogue
    calls: Calls
    resources: Resources


@dataclass(frozen=True, slots=True, kw_only=True)
class Sealing:
    """What must not be read in the record store, and what is kept there so."""

    sealer: Sealer
    rotation: Rotation
    kept_answers: kept_answers.KeptAnswers


@dataclass(slots=True, kw_only=True, repr=False)
class Rookery:
    """
    The platform, put together; nothing is opened before `start` or `for_command`.

    Attributes:
        probes: For each engine, what tells its state: `ok`, or a word of why not.
    """

    settings: Settings
    clock: Clock
    db: Database
    bus: Bus
    jobs: Jobs
    worker: Worker
    access: Access
    sealing: Sealing
    memory: MemoryServices
    tools: ToolServices
    embedder: embedders.Engine
    vectors: vectors.Engine
    texts: texts.Engine
    counter: Counter
    observation: Observation
    probes: Mapping[str, Callable[[], Awaitable[str]]]
    chores: Sequence[Chore]
    _running: AsyncExitStack = field(default_factory=AsyncExitStack)
    _tasks: list[asyncio.Task[None]] = field(default_factory=list[asyncio.Task[None]])

    @property
    def lifecycle(self) -> Lifecycle:
        """What operators' commands on memory call."""
        return self.memory.lifecycle

    async def workspace_id(self, name: str) -> int:
        """
        Return the number of the workspace of that name or number.

        Raises:
            NotFound: There is none.
        """
        for workspace in await self.access.workspaces.list():
            if name in {workspace.name, str(workspace.id)}:
                return workspace.id
        raise NotFound("workspace", name)

    async def start(self) -> None:
        """Open everything and begin to work; `close` must follow, also when this raises."""
        await self.observation.start(self._running)
        await self._open()
        await self.sealing.sealer.start()
        await self.worker.start()
        self._running.push_async_callback(self.worker.stop)
        await self.tools.sessions.start()
        self._running.push_async_callback(self.tools.sessions.aclose)
        await self.tools.catalogue.start()
        self._running.push_async_callback(self.tools.catalogue.aclose)
        lasting = (self.memory.journal.run(), self.memory.upkeep.run(), run_chores(self.chores), self.observation.figures.run())
        for work in (*lasting, self._warm()):
            self._tasks.append(asyncio.create_task(work))
        self._running.push_async_callback(self._end_tasks)

    async def close(self) -> None:
        """Stop what runs, write what is buffered, let go of everything; each step within its bound."""
        await self._running.aclose()

    @asynccontextmanager
    async def for_command(self) -> AsyncGenerator[Rookery]:
        """Open the stores for one command: no worker runs here, and no tool server."""
        try:
            await self._open()
            yield self
        finally:
            await self.close()

    async def first_run(self) -> FirstRun:
        """Make the secret key, the first workspace and its keys, once in the life of a store."""
        await self.sealing.sealer.start()
        return await first_run(self.db, self.access.bcrypt, self.access.audit, self.clock)

    async def _open(self) -> None:
        closing = self._running.push_async_callback
        closing(self.db.close)
        closing(self.counter.close)
        closing(asyncio.to_thread, self.embedder.close)
        closing(self.texts.close)
        closing(self.vectors.close)
        self._running.callback(self.access.bcrypt.close)
        self._running.callback(self.access.proofs.close)
        closing(self.access.usage.close)
        closing(self.memory.journal.flush)
        await self.db.quick(lambda tx: tx.one(_ALIVE))

    async def _end_tasks(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks, timeout=_CLOSE_S)

    async def _warm(self) -> None:
        """Get the engines ready before the first question."""
        await asyncio.gather(
            _ready("embedder", self.embedder.warm()), _ready("vectors", self.vectors.start()), _ready("texts", self.texts.start())
        )


async def _ready(name: str, starting: Awaitable[None]) -> None:
    try:
        await starting
    except Exception as error:  # noqa: BLE001 - the same error answers whoever needs the engine
        _log.warning(f"{name}.not_ready", reason=str(error))


def build(settings: Settings, *, clock: Clock = utc_now, ids: Ids = uuid7, environment: Mapping[str, str] | None = None) -> Rookery:
    """
    Put the platform together as *settings* say; no file and no connection is opened yet.

    Args:
        environment: What `${NAME}` in servers.json stands for; None: this process's.

    Raises:
        WrongSettings: An engine's address that cannot be, or a combination that cannot work.
    """
    metrics = Metrics()
    db = ObservedDatabase(open_database(settings.database_url.reveal(), data_dir=settings.data_dir), metrics)
    settings.must_have_secret_key()
    bus, jobs = Bus(), Jobs(db, clock, ids)
    counter = counters.open_counter(settings.counters.reveal(), data_dir=settings.data_dir)
    embedder = embedders.open(settings.embedder.reveal(), data_dir=settings.data_dir)
    vector_index = vectors.open(settings.vectors.reveal(), data_dir=settings.data_dir, model=embedder.model, dimension=embedder.dimension)
    text_index = texts.open(settings.texts.reveal(), data_dir=settings.data_dir)
    indexes = _Indexes(embedder, vector_index, text_index)
    access, limiter = _access(settings, db, counter, clock, jobs)
    sealing = _sealing(settings, db, clock, ids)
    memory = _memory(settings, _Base(db, jobs, bus, clock, ids), indexes)
    tools = _tools(settings, _Base(db, jobs, bus, clock, ids), memory, limiter, os.environ if environment is None else environment)
    work = MemoryJobs(db=db, indexer=memory.indexer, clock=clock)
    probes, observation = _probes(db, indexes, limiter, counter, tools.catalogue), observe(settings, metrics, bus)
    observation.figures.watch(Watched(jobs, access.bcrypt, limiter, access.usage, tools.catalogue, tools.sessions, probes))
    return Rookery(
        settings=settings,
        clock=clock,
        db=db,
        bus=bus,
        jobs=jobs,
        worker=Worker(jobs, [observation.figures.observed(kind) for kind in work.kinds()], lease_s=settings.job_lease_s),
        access=access,
        sealing=sealing,
        memory=memory,
        tools=tools,
        embedder=embedder,
        vectors=vector_index,
        texts=text_index,
        counter=counter,
        observation=observation,
        probes=probes,
        chores=_chores(db, access, sealing, clock),
    )


@dataclass(frozen=True, slots=True)
class _Base:
    db: Database
    jobs: Jobs
    bus: Bus
    clock: Clock
    ids: Ids


@dataclass(frozen=True, slots=True)
class _Indexes:
    embedder: embedders.Engine
    vectors: vectors.Engine
    texts: texts.Engine


def _access(settings: Settings, db: Database, counter: Counter, clock: Clock, jobs: Jobs) -> tuple[Access, Limiter]:
    bcrypt, usage, limiter = Bcrypt(cost=settings.bcrypt_cost), Usage(db, clock), Limiter(counter)
    proofs, audit = Proofs(db, bcrypt), Audit(db, clock)
    guard = Guard(db=db, proofs=proofs, limiter=limiter, usage=usage, clock=clock, trusted_proxies=proxies(settings.trusted_proxies))
    access = Access(
        guard=guard,
        workspaces=Workspaces(db, audit, clock, purgers=[Purge(jobs), tool_calls.purge, kept_answers.purge]),
        api_keys=ApiKeys(db, bcrypt, usage, audit, clock),
        agent_keys=AgentKeys(db, usage, audit, clock, is_known_agent=memory_records.knows_agent),
        bcrypt=bcrypt,
        proofs=proofs,
        usage=usage,
        audit=audit,
    )
    return access, limiter


def _sealing(settings: Settings, db: Database, clock: Clock, ids: Ids) -> Sealing:
    source = KeySource(settings.data_dir, given=settings.secret_key, previous=settings.secret_key_previous)
    columns = [kept_answers.SEALED]
    sealer = Sealer(db, source, columns, clock)
    return Sealing(
        sealer=sealer,
        rotation=Rotation(db, source, columns, clock),
        kept_answers=kept_answers.KeptAnswers(db, sealer, clock, ids),
    )


def _memory(settings: Settings, base: _Base, indexes: _Indexes) -> MemoryServices:
    db, jobs, bus, clock, ids = base.db, base.jobs, base.bus, base.clock, base.ids
    limits = Limits(
        max_memories=settings.max_memories,
        max_backlog=settings.max_backlog,
        min_free_bytes=settings.min_free_disk_mb * _MIB,
        folder=settings.data_dir if db.dialect == "sqlite" else None,
    )
    indexer = Indexer(db=db, embedder=indexes.embedder, vectors=indexes.vectors, texts=indexes.texts, clock=clock)
    capacity, journal = Capacity(db=db, jobs=jobs, limits=limits, monotonic=time.monotonic), Journal(db=db)
    return MemoryServices(
        remember=Remember(
            db=db,
            jobs=jobs,
            indexer=indexer,
            capacity=capacity,
            bus=bus,
            clock=clock,
            ids=ids,
            index_first=not settings.async_embedding,
        ),
        records=Records(db=db, jobs=jobs, bus=bus, clock=clock),
        recall=Recall(
            db=db,
            embedder=indexes.embedder,
            vectors=indexes.vectors,
            texts=indexes.texts,
            journal=journal,
            bus=bus,
            clock=clock,
            ids=ids,
            half_lives_days=dict(settings.half_lives),
        ),
        search=Search(db=db, texts=indexes.texts, clock=clock),
        listing=Listing(db=db, clock=clock, model=indexes.embedder.model),
        answers=Answers(clock=clock, model=indexes.embedder.model, half_lives_days=dict(settings.half_lives)),
        lifecycle=Lifecycle(db=db, indexer=indexer, texts=indexes.texts, bus=bus, clock=clock),
        indexer=indexer,
        journal=journal,
        upkeep=Upkeep(db=db, jobs=jobs, bus=bus, clock=clock),
    )


def _tools(settings: Settings, base: _Base, memory: MemoryServices, limiter: Limiter, environment: Mapping[str, str]) -> ToolServices:
    db, bus, clock, ids = base.db, base.bus, base.clock, base.ids
    brain = BrainServer(
        remember=memory.remember, records=memory.records, recall=memory.recall, search=memory.search, answers=memory.answers
    )
    sessions = Sessions(upstreams.open([brain]), clock=clock, bus=bus)
    roster = Roster(builtins=[upstreams.entry_of(brain)], path=settings.servers_file, environment=environment, clock=clock)
    catalogue = Catalogue(db, sessions, roster, clock=clock)
    calls = Calls(db, catalogue, sessions, ToolLimits(limiter, clock), bus=bus, clock=clock, ids=ids)
    return ToolServices(sessions=sessions, catalogue=catalogue, calls=calls, resources=Resources(catalogue, sessions))


def _chores(db: Database, access: Access, sealing: Sealing, clock: Clock) -> list[Chore]:
    async def forget_tool_calls() -> int:
        before = clock() - _TOOL_CALLS_KEPT
        return await db.write(lambda tx: tool_calls.forget_calls(tx, before=before))

    return [
        Chore(name="API keys past their grace", every_s=60, work=access.api_keys.sweep),
        Chore(name="agent keys past their grace", every_s=60, work=access.agent_keys.sweep),
        Chore(name="old usage rows", every_s=3600, work=access.usage.forget_old),
        Chore(name="old tool rows", every_s=3600, work=forget_tool_calls),
        Chore(name="old kept answers", every_s=600, work=sealing.kept_answers.forget_old),
    ]


def _probes(
    db: Database, indexes: _Indexes, limiter: Limiter, counter: Counter, catalogue: Catalogue
) -> Mapping[str, Callable[[], Awaitable[str]]]:
    async def database() -> str:
        await db.quick(lambda tx: tx.one(_ALIVE))
        return "ok"

    async def vector_index() -> str:
        await indexes.vectors.count(0)
        return "ok"

    async def text_index() -> str:
        await indexes.texts.setup()
        return "ok"

    async def embedder() -> str:
        await indexes.embedder.warm()
        return "ok"

    async def counters() -> str:
        try:
            await counter.peek("readyz", window=1, now=0)
        except EngineUnavailable:
            return "counting locally"
        return "counting locally" if limiter.is_local else "ok"

    async def servers() -> str:
        # Why not is in the log alone: this answer needs no key, and the reason names files and variables.
        return "ok" if catalogue.file_state.error is None else "servers.json is broken; the servers read before are kept"

    return {
        "database": database,
        "vectors": vector_index,
        "texts": text_index,
        "embedder": embedder,
        "counters": counters,
        "servers": servers,
    }
