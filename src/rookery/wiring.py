"""Where everything is put together: `build` is the only function that knows all of it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta

import structlog
from sqlalchemy import literal, select

from rookery.access.first_run import FirstKeysFile, FirstRun, first_run
from rookery.access.limits import Limiter, ToolLimits
from rookery.access.ports import Counter
from rookery.access.workspaces import Purger
from rookery.access_wiring import Access, build_access
from rookery.agent_wiring import AgentServices, build_agents
from rookery.agents.mcp_tools import AgentsServer
from rookery.agents.sessions.open import OpenSessions
from rookery.agents.store import purging as agent_work
from rookery.agents.store import templates as plan_templates
from rookery.engines import counters, embedders, texts, vectors
from rookery.event_wiring import ServerNews, connect
from rookery.kernel import kept_answers
from rookery.kernel.chores import Chore, run_chores
from rookery.kernel.clock import Clock, utc_now
from rookery.kernel.config import Settings
from rookery.kernel.db import Database, open_database
from rookery.kernel.db.observed import ObservedDatabase
from rookery.kernel.disk_space import DiskSpace
from rookery.kernel.errors import OUTAGES, EngineUnavailable
from rookery.kernel.events import Bus
from rookery.kernel.ids import Ids, uuid7
from rookery.kernel.jobs import Jobs, Worker
from rookery.kernel.metrics import Metrics
from rookery.kernel.sealing import KeySource, Rotation, Sealer
from rookery.memory.indexing import DELETE
from rookery.memory.jobs import MemoryJobs
from rookery.memory.maintenance.lifecycle import Lifecycle
from rookery.memory.maintenance.tidying import Tidying
from rookery.memory.mcp_tools import BrainServer
from rookery.memory.purge import Purge
from rookery.memory.store import records as memory_records
from rookery.memory.training import Training
from rookery.memory.transfer.moving import Moving
from rookery.memory_wiring import Indexes, MemoryServices, build_memory
from rookery.observation import Observation, Watched, observe
from rookery.tool_wiring import ToolServices, build_tools
from rookery.tools.catalogue import Catalogue
from rookery.tools.store import calls as tool_calls
from rookery.tools.store import catalogue as tool_catalogue
from rookery.tools.store import logins as tool_logins
from rookery.tools.store import servers as tool_servers
from rookery.webhook_wiring import PURGERS as WEBHOOK_PURGERS
from rookery.webhook_wiring import WebhookServices, build_webhooks
from rookery.webhooks.store.tables import SEALED as WEBHOOK_SECRETS

STARTING = "starting"
"""The state of an engine that is being made ready, as /readyz shows it."""

_log = structlog.stdlib.get_logger("rookery.wiring")

_ALIVE = select(literal(1).label("one"))
_MIB = 1024 * 1024
_CLOSE_S = 10.0


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
    agents: AgentServices
    tools: ToolServices
    webhooks: WebhookServices
    server_news: ServerNews
    embedder: embedders.Engine
    vectors: vectors.Engine
    texts: texts.Engine
    counter: Counter
    observation: Observation
    disk_space: DiskSpace
    probes: Mapping[str, Callable[[], Awaitable[str]]]
    chores: Sequence[Chore]
    _running: AsyncExitStack = field(default_factory=AsyncExitStack)
    _tasks: list[asyncio.Task[None]] = field(default_factory=list[asyncio.Task[None]])

    @property
    def lifecycle(self) -> Lifecycle:
        """What operators' commands on memory call."""
        return self.memory.lifecycle

    @property
    def tidying(self) -> Tidying:
        """What operators' commands that change memory call."""
        return self.memory.tidying

    @property
    def training(self) -> Training:
        """What operators' commands on training rows call."""
        return self.memory.training

    @property
    def moving(self) -> Moving:
        """What operators' commands that move memories call."""
        return self.memory.moving

    async def workspaces(self) -> dict[int, str]:
        """Return all workspaces, without the twins: their names by their numbers."""
        return {workspace.id: workspace.name for workspace in await self.access.workspaces.list()}

    async def clear_away(self) -> str | None:
        """Take what was deleted out of the indexes now, and leave no trace of it in files; return why there are some."""
        while await self.worker.run_ready(DELETE):
            pass
        return await self.memory.tidying.erasing.settle()

    async def start(self) -> None:
        """Open everything and begin to work; `close` must follow, also when this raises."""
        await self.observation.start(self._running)
        await self._open()
        await self._start_jobs()
        await self.tools.sessions.start()
        self._running.push_async_callback(self.tools.sessions.aclose)
        await self.tools.catalogue.start()
        self._running.push_async_callback(self.tools.catalogue.aclose)
        self._running.push_async_callback(self.tools.logins.aclose)
        self._running.push_async_callback(self.tools.gateway.aclose)
        self._running.push_async_callback(self.tools.nearness.aclose)
        await self._start_webhooks()
        brain = (self.memory.journal.run(), self.memory.training.run(), self.memory.upkeep.run())
        rest = (self.observation.figures.run(), self.tools.logins.run(), self.server_news.run(), self._warm())
        for work in (*brain, run_chores(self.chores), *rest):
            self._tasks.append(asyncio.create_task(work))
        self._running.push_async_callback(self.agents.sessions.following.aclose)
        self._running.push_async_callback(self._end_tasks)

    async def start_worker(self) -> None:
        """
        Open everything and run jobs, webhooks and periodic tasks, without HTTP; `close` must follow, also when this raises.

        No tool server is started, so what is learned from tool servers is left to processes that serve.
        """
        await self.observation.start(self._running)
        await self._open()
        await self._start_jobs()
        self._running.push_async_callback(self.tools.nearness.aclose)
        await self._start_webhooks()
        chores = [chore for chore in self.chores if chore.work != self.tools.search.learn]
        brain = (self.memory.journal.run(), self.memory.training.run(), self.memory.upkeep.run())
        for work in (*brain, run_chores(chores), self._warm()):
            self._tasks.append(asyncio.create_task(work))
        self._running.push_async_callback(self._end_tasks)

    async def _start_jobs(self) -> None:
        await self.sealing.sealer.start()
        await self.worker.start()
        self._running.push_async_callback(self.worker.stop)

    async def _start_webhooks(self) -> None:
        await self.webhooks.dispatcher.start()
        self._running.push_async_callback(self.webhooks.dispatcher.stop)

    def hang_up(self) -> None:
        """End what would keep requests in work for long: the server stops. From any thread or signal."""
        self.tools.gateway.hang_up()
        self.agents.bell.close()
        self.agents.sessions.following.hang_up()

    async def close(self) -> None:
        """Stop what runs, write what is buffered, let go of everything; each step within its bound. A store that is down does not raise."""
        try:
            await self._running.aclose()
        except OUTAGES as error:  # every step was taken; what could not be written is lost
            _log.error("stopped.not_all_written", reason=error.message)

    @asynccontextmanager
    async def for_command(self, *, must_answer: bool = True) -> AsyncGenerator[Rookery]:
        """
        Open the stores for one command: no worker runs here, and no tool server.

        Args:
            must_answer: Raise EngineUnavailable if the record store is down; a diagnosis goes on.
        """
        try:
            try:
                await self._open()
            except OUTAGES:
                if must_answer:
                    raise
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
        closing(self.embedder.close)
        closing(self.memory.formers.close)
        closing(self.texts.close)
        closing(self.vectors.close)
        self._running.callback(self.access.bcrypt.close)
        self._running.callback(self.access.proofs.close)
        closing(self.access.usage.close)
        closing(self.memory.journal.flush)
        closing(self.memory.training.flush)
        closing(self.tools.journal.aclose)
        closing(self.webhooks.receiver.close)
        await self.db.quick(lambda tx: tx.one(_ALIVE))

    async def must_fit(self) -> None:
        """
        Do nothing if the embedder's vectors are as wide as they must be, or if that cannot be known now.

        Raises:
            WrongSettings: They are not.
        """
        try:
            await self.embedder.check()
        except EngineUnavailable as error:
            _log.warning("embedder.not_ready", reason=error.reason)

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
    embedder = embedders.open(
        settings.embedder.reveal(), data_dir=settings.data_dir, width=settings.vector_dimension, verify_ssl=settings.verify_ssl
    )
    vector_index = vectors.open(settings.vectors.reveal(), data_dir=settings.data_dir, model=embedder.model, dimension=embedder.dimension)
    text_index = texts.open(settings.texts.reveal(), data_dir=settings.data_dir)
    indexes = Indexes(embedder, vector_index, text_index)
    access = build_access(
        settings, db=db, counter=counter, bus=bus, clock=clock, is_known_agent=memory_records.knows_agent, purgers=_purgers(jobs, clock)
    )
    sealing = _sealing(settings, db, clock, ids)
    open_sessions = OpenSessions(db=db, clock=clock)
    memory = build_memory(settings, indexes, db=db, jobs=jobs, bus=bus, clock=clock, ids=ids, sessions=open_sessions)
    agents = build_agents(
        db=db,
        audit=access.audit,
        bus=bus,
        clock=clock,
        ids=ids,
        memories=memory.sessions,
        tool_calls=tool_calls,
        keys=access.guard,
    )
    brain = BrainServer(
        remember=memory.remember,
        records=memory.records,
        recall=memory.recall,
        search=memory.search,
        listing=memory.listing,
        feedback=memory.feedback,
        context=memory.context,
        answers=memory.answers,
    )
    disk_space = DiskSpace(settings.data_dir if db.dialect == "sqlite" else None, min_free_bytes=settings.min_free_disk_mb * _MIB)
    tools = build_tools(
        settings,
        builtins=[brain, AgentsServer.of(agents)],
        db=db,
        bus=bus,
        clock=clock,
        ids=ids,
        limits=ToolLimits(access.limiter, clock),
        embedder=embedder,
        audit=access.audit,
        keys=access.guard,
        sealer=sealing.sealer,
        agent_sessions=open_sessions,
        disk_space=disk_space,
        environment=os.environ if environment is None else environment,
    )
    webhooks = build_webhooks(
        settings,
        db=db,
        audit=access.audit,
        sealer=sealing.sealer,
        egress=tools.egress,
        bus=bus,
        metrics=metrics,
        clock=clock,
        ids=ids,
    )
    work = MemoryJobs(db=db, indexer=memory.indexer, clock=clock)
    probes, observation = _probes(db, indexes, access.limiter, counter, tools.catalogue), observe(settings, metrics, bus)
    observation.figures.watch(
        Watched(jobs, access.bcrypt, access.limiter, access.usage, tools.catalogue, tools.sessions, tools.journal, probes)
    )
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
        agents=agents,
        tools=tools,
        webhooks=webhooks,
        server_news=connect(bus, webhooks.recorder, db=db, clock=clock, memory=memory, agents=agents, tools=tools),
        embedder=embedder,
        vectors=vector_index,
        texts=text_index,
        counter=counter,
        observation=observation,
        disk_space=disk_space,
        probes=probes,
        chores=[
            *_chores(settings, db, access, sealing=sealing, tools=tools, clock=clock),
            Chore(name="vectors of a changed embedder", every_s=30, work=memory.rebuild.tend),
            Chore(name="leases of tasks that ran out", every_s=5, work=agents.claims.sweep),
            *webhooks.chores,
            Chore(name="agent sessions left behind", every_s=60, work=agents.sessions.upkeep.sweep),
        ],
    )


def _purgers(jobs: Jobs, clock: Clock) -> list[Purger]:
    """Return what takes out a workspace that is deleted, from every table that is not access' own."""
    return [
        Purge(jobs, clock),
        tool_calls.purge,
        tool_servers.purge,
        tool_logins.purge,
        tool_catalogue.purge,
        agent_work.purge,
        plan_templates.purge,
        kept_answers.purge,
        *WEBHOOK_PURGERS,
    ]


def _sealing(settings: Settings, db: Database, clock: Clock, ids: Ids) -> Sealing:
    source = KeySource(settings.data_dir, given=settings.secret_key, previous=settings.secret_key_previous)
    columns = [kept_answers.SEALED, tool_servers.SEALED, tool_logins.SEALED, *WEBHOOK_SECRETS]
    sealer = Sealer(db, source, columns, clock)
    return Sealing(
        sealer=sealer,
        rotation=Rotation(db, source, columns, clock),
        kept_answers=kept_answers.KeptAnswers(db, sealer, clock, ids),
    )


def _chores(settings: Settings, db: Database, access: Access, *, sealing: Sealing, tools: ToolServices, clock: Clock) -> list[Chore]:
    kept = timedelta(days=settings.tool_calls_days)

    async def forget_tool_calls() -> int:
        before = clock() - kept
        return await db.write(lambda tx: tool_calls.forget_calls(tx, before=before))

    return [
        Chore(name="API keys past their grace", every_s=60, work=access.api_keys.sweep),
        Chore(name="agent keys past their grace", every_s=60, work=access.agent_keys.sweep),
        Chore(name="API keys that expired", every_s=60, work=access.api_keys.tell_expired),
        Chore(name="agent keys that expired", every_s=60, work=access.agent_keys.tell_expired),
        Chore(name="old usage rows", every_s=3600, work=access.usage.forget_old),
        Chore(name="old tool rows", every_s=3600, work=forget_tool_calls),
        Chore(name="meanings of new tools", every_s=10, work=tools.search.learn),
        Chore(name="file with the first keys", every_s=600, work=FirstKeysFile(settings.data_dir, db, clock).expire),
        Chore(name="old kept answers", every_s=600, work=sealing.kept_answers.forget_old),
    ]


def _probes(
    db: Database, indexes: Indexes, limiter: Limiter, counter: Counter, catalogue: Catalogue
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
        if indexes.embedder.is_starting:
            return STARTING
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
