"""The construction of the platform from its services. Only `build_platform` imports all domains."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta

import structlog
from sqlalchemy import literal, select

from rookery.access.first_run import FirstKeysFile, FirstRunResult, create_first_keys
from rookery.access.ports import RateLimitCounter
from rookery.access.rate_limits import RateLimiter, ToolRateLimiter
from rookery.access.workspaces import Purger
from rookery.access_wiring import AccessServices, build_access
from rookery.agent_wiring import AgentServices, build_agents
from rookery.agents.api import AgentsApi
from rookery.agents.sessions.access import OpenSessionChecker
from rookery.agents.store import purge as agent_work
from rookery.agents.store import templates as plan_templates
from rookery.engines import counters, embedders, texts, vectors
from rookery.event_wiring import ServerHealthPublisher, connect_events
from rookery.kernel import idempotency_store
from rookery.kernel.clock import Clock, utc_now
from rookery.kernel.config import Settings
from rookery.kernel.db import Database, open_database
from rookery.kernel.db.instrumented import InstrumentedDatabase
from rookery.kernel.disk_space import DiskSpace
from rookery.kernel.errors import OUTAGES, EngineUnavailable
from rookery.kernel.events import EventBus
from rookery.kernel.ids import IdFactory, uuid7
from rookery.kernel.jobs import JobQueue, JobWorker
from rookery.kernel.metrics import Metrics
from rookery.kernel.periodic import PeriodicTask, run_periodic_tasks
from rookery.kernel.sealing import KeyRotation, KeySource, Sealer
from rookery.memory.api import MemoryApi
from rookery.memory.indexing import DELETE_JOB
from rookery.memory.jobs import MemoryJobs
from rookery.memory.maintenance.operations import MaintenanceServices
from rookery.memory.maintenance.reindexing import Reindexer
from rookery.memory.retention import MemoryPurge
from rookery.memory.store import records as memory_records
from rookery.memory.training import Training
from rookery.memory.transfer.importing import TransferServices
from rookery.memory_wiring import Indexes, MemoryServices, build_memory
from rookery.observability import MetricTargets, Observability, build_observability
from rookery.tool_wiring import ToolServices, build_tools
from rookery.tools.catalogue import Catalogue
from rookery.tools.ports import BuiltinServer
from rookery.tools.store import calls as tool_calls
from rookery.tools.store import catalogue as tool_catalogue
from rookery.tools.store import logins as tool_logins
from rookery.tools.store import servers as tool_servers
from rookery.webhook_wiring import PURGERS as WEBHOOK_PURGERS
from rookery.webhook_wiring import WebhookServices, build_webhooks
from rookery.webhooks.store.tables import SEALED_COLUMNS as WEBHOOK_SECRETS

STATUS_STARTING = "starting"
"""The state of an engine that is starting, as /readyz shows it."""

_log = structlog.stdlib.get_logger("rookery.wiring")

_SELECT_ONE = select(literal(1).label("one"))
_MIB = 1024 * 1024
_CLOSE_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SealingServices:
    """The encryption of values in the record store, and the encrypted store of responses."""

    sealer: Sealer
    rotation: KeyRotation
    idempotency_store: idempotency_store.IdempotencyStore


@dataclass(slots=True, kw_only=True, repr=False)
class Rookery:
    """
    The platform. Nothing is opened before `start` or `open_for_command`.

    Attributes:
        probes: Functions that return the state of each engine: `ok`, or what is wrong.
    """

    settings: Settings
    clock: Clock
    db: Database
    bus: EventBus
    jobs: JobQueue
    worker: JobWorker
    access: AccessServices
    sealing: SealingServices
    memory: MemoryServices
    memory_api: MemoryApi
    builtin_servers: Sequence[BuiltinServer]
    agents: AgentServices
    agents_api: AgentsApi
    tools: ToolServices
    webhooks: WebhookServices
    server_health_publisher: ServerHealthPublisher
    embedder: embedders.EmbedderEngine
    vectors: vectors.VectorEngine
    texts: texts.TextEngine
    counter: RateLimitCounter
    observability: Observability
    disk_space: DiskSpace
    probes: Mapping[str, Callable[[], Awaitable[str]]]
    periodic_tasks: Sequence[PeriodicTask]
    _exit_stack: AsyncExitStack = field(default_factory=AsyncExitStack)
    _tasks: list[asyncio.Task[None]] = field(default_factory=list[asyncio.Task[None]])

    @property
    def reindexer(self) -> Reindexer:
        """The re-indexing service, for operators' commands."""
        return self.memory.reindexer

    @property
    def maintenance(self) -> MaintenanceServices:
        """The maintenance services, for operators' commands that change memory."""
        return self.memory.maintenance

    @property
    def training(self) -> Training:
        """The training service, for operators' commands."""
        return self.memory.training

    @property
    def transfer(self) -> TransferServices:
        """The import and export of memories, for operators' commands."""
        return self.memory.transfer

    async def workspaces(self) -> dict[int, str]:
        """Return the names of all workspaces by id, without their sandboxes."""
        return {workspace.id: workspace.name for workspace in await self.access.workspaces.list()}

    async def erase_deleted(self) -> str | None:
        """Remove deleted memories from the indexes and all traces of them from files; return the reason if some remain."""
        while await self.worker.run_ready(DELETE_JOB):
            pass
        return await self.memory.maintenance.erasure.run()

    async def start(self) -> None:
        """Open everything and start to work. Call `close` afterwards, even if this raises."""
        await self.observability.start(self._exit_stack)
        await self._open()
        await self._start_jobs()
        await self.tools.sessions.start()
        self._exit_stack.push_async_callback(self.tools.sessions.aclose)
        await self.tools.catalogue.start()
        self._exit_stack.push_async_callback(self.tools.catalogue.aclose)
        self._exit_stack.push_async_callback(self.tools.logins.aclose)
        self._exit_stack.push_async_callback(self.tools.gateway.aclose)
        self._exit_stack.push_async_callback(self.tools.similarity_cache.aclose)
        await self._start_webhooks()
        for work in (
            run_periodic_tasks(self.periodic_tasks),
            self.observability.platform_metrics.measure_loop_lag(),
            self.server_health_publisher.run(),
            self._warm_up_engines(),
        ):
            self._tasks.append(asyncio.create_task(work))
        self._exit_stack.push_async_callback(self.agents.sessions.streams.aclose)
        self._exit_stack.push_async_callback(self._stop_tasks)

    async def start_worker(self) -> None:
        """
        Open everything and run jobs, webhooks and periodic tasks without HTTP. Call `close` afterwards, even if this raises.

        No tool server is started, so tasks that need tool servers are left to processes that serve.
        """
        await self.observability.start(self._exit_stack)
        await self._open()
        await self._start_jobs()
        self._exit_stack.push_async_callback(self.tools.similarity_cache.aclose)
        await self._start_webhooks()
        periodic_tasks = [task for task in self.periodic_tasks if not task.needs_tool_servers]
        for work in (run_periodic_tasks(periodic_tasks), self._warm_up_engines()):
            self._tasks.append(asyncio.create_task(work))
        self._exit_stack.push_async_callback(self._stop_tasks)

    async def _start_jobs(self) -> None:
        await self.sealing.sealer.start()
        await self.worker.start()
        self._exit_stack.push_async_callback(self.worker.stop)

    async def _start_webhooks(self) -> None:
        await self.webhooks.dispatcher.start()
        self._exit_stack.push_async_callback(self.webhooks.dispatcher.stop)

    def close_streams(self) -> None:
        """Close long-running requests, because the server is stopping. Safe in any thread and in signal handlers."""
        self.tools.gateway.close_streams()
        self.agents.notifier.close()
        self.agents.sessions.streams.close_streams()

    async def close(self) -> None:
        """Stop all tasks, write buffered data and release all resources, each within a time limit. An unavailable store does not raise."""
        try:
            await self._exit_stack.aclose()
        except OUTAGES as error:  # every step was tried; unwritten data is lost
            _log.error("stopped.data_lost", reason=error.message)

    @asynccontextmanager
    async def open_for_command(self, *, require_database: bool = True) -> AsyncGenerator[Rookery]:
        """
        Open the stores for one command, without jobs and tool servers.

        Args:
            require_database: Raise EngineUnavailable if the record store is unavailable. False for a diagnosis.
        """
        try:
            try:
                await self._open()
            except OUTAGES:
                if require_database:
                    raise
            yield self
        finally:
            await self.close()

    async def create_first_keys(self) -> FirstRunResult:
        """Create the secret key, the first workspace and its keys, once per store."""
        await self.sealing.sealer.start()
        return await create_first_keys(self.db, self.access.bcrypt, self.access.audit, self.clock)

    async def _open(self) -> None:
        on_close = self._exit_stack.push_async_callback
        on_close(self.db.close)
        on_close(self.counter.close)
        on_close(self.embedder.close)
        on_close(self.memory.previous_engines.close)
        on_close(self.texts.close)
        on_close(self.vectors.close)
        self._exit_stack.callback(self.access.bcrypt.close)
        self._exit_stack.callback(self.access.key_cache.close)
        on_close(self.access.usage.close)
        on_close(self.memory.recall_buffer.flush)
        on_close(self.memory.training.flush)
        on_close(self.tools.journal.aclose)
        on_close(self.webhooks.client.close)
        await self.db.lookup(lambda tx: tx.fetch_one(_SELECT_ONE))

    async def require_matching_dimension(self) -> None:
        """
        Check that the embedder's vectors have the configured dimension, unless the embedder is unavailable.

        Raises:
            WrongSettings: The dimension differs.
        """
        try:
            await self.embedder.check()
        except EngineUnavailable as error:
            _log.warning("embedder.not_ready", reason=error.reason)

    async def _stop_tasks(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks, timeout=_CLOSE_TIMEOUT_S)

    async def _warm_up_engines(self) -> None:
        """Start the engines before the first request needs them."""
        await asyncio.gather(
            _log_failure("embedder", self.embedder.warm()),
            _log_failure("vectors", self.vectors.start()),
            _log_failure("texts", self.texts.start()),
        )


async def _log_failure(name: str, starting: Awaitable[None]) -> None:
    try:
        await starting
    except Exception as error:  # noqa: BLE001 - requests that need the engine get the same error
        _log.warning(f"{name}.not_ready", reason=str(error))


def build_platform(
    settings: Settings, *, clock: Clock = utc_now, ids: IdFactory = uuid7, environment: Mapping[str, str] | None = None
) -> Rookery:
    """
    Build the platform according to *settings*. No file and no connection is opened.

    Args:
        environment: The variables that `${NAME}` in servers.json refers to. None: those of this process.

    Raises:
        WrongSettings: The URL of an engine is invalid, or settings contradict each other.
    """
    metrics = Metrics()
    db = InstrumentedDatabase(open_database(settings.database_url.reveal(), data_dir=settings.data_dir), metrics)
    settings.require_secret_key()
    bus, jobs = EventBus(), JobQueue(db, clock, ids)
    counter = counters.open_counter(settings.counters.reveal(), data_dir=settings.data_dir)
    embedder = embedders.open(
        settings.embedder.reveal(), data_dir=settings.data_dir, dimension=settings.vector_dimension, verify_ssl=settings.verify_ssl
    )
    vector_index = vectors.open(settings.vectors.reveal(), data_dir=settings.data_dir, model=embedder.model, dimension=embedder.dimension)
    text_index = texts.open(settings.texts.reveal(), data_dir=settings.data_dir)
    indexes = Indexes(embedder, vector_index, text_index)
    access = build_access(
        settings, db=db, counter=counter, bus=bus, clock=clock, is_agent_in_use=memory_records.has_agent, purgers=_list_purgers(jobs, clock)
    )
    sealing = _build_sealing(settings, db, clock, ids)
    open_sessions = OpenSessionChecker(db=db, clock=clock)
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
    memory_api = MemoryApi(
        remember=memory.remember,
        records=memory.records,
        recall=memory.recall,
        search=memory.search,
        listing=memory.listing,
        feedback=memory.feedback,
        context=memory.context,
        serializer=memory.serializer,
        mode=settings.recall_mode,
    )
    agents_api = AgentsApi(agents)
    builtin_servers = [memory_api.server(), agents_api.server()]
    disk_space = DiskSpace(settings.data_dir if db.dialect == "sqlite" else None, min_free_bytes=settings.min_free_disk_mb * _MIB)
    tools = build_tools(
        settings,
        builtins=builtin_servers,
        db=db,
        bus=bus,
        clock=clock,
        ids=ids,
        limits=ToolRateLimiter(access.limiter, clock),
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
    memory_jobs = MemoryJobs(db=db, indexer=memory.indexer, clock=clock)
    probes, observability = (
        _build_probes(db, indexes, access.limiter, counter, tools.catalogue),
        build_observability(settings, metrics, bus),
    )
    observability.platform_metrics.add_sources(
        MetricTargets(jobs, access.bcrypt, access.limiter, access.usage, tools.catalogue, tools.sessions, tools.journal, probes)
    )
    return Rookery(
        settings=settings,
        clock=clock,
        db=db,
        bus=bus,
        jobs=jobs,
        worker=JobWorker(
            jobs, [observability.platform_metrics.instrument_kind(kind) for kind in memory_jobs.kinds()], lease_s=settings.job_lease_s
        ),
        access=access,
        sealing=sealing,
        memory=memory,
        memory_api=memory_api,
        builtin_servers=builtin_servers,
        agents=agents,
        agents_api=agents_api,
        tools=tools,
        webhooks=webhooks,
        server_health_publisher=connect_events(bus, webhooks.outbox, db=db, clock=clock, memory=memory, agents=agents, tools=tools),
        embedder=embedder,
        vectors=vector_index,
        texts=text_index,
        counter=counter,
        observability=observability,
        disk_space=disk_space,
        probes=probes,
        periodic_tasks=[
            *_list_periodic_tasks(settings, db, access, sealing=sealing, tools=tools, clock=clock),
            PeriodicTask(name="results of recalls", interval_s=0.5, run=memory.recall_buffer.flush),
            PeriodicTask(name="training examples", interval_s=0.5, run=memory.training.flush),
            PeriodicTask(name="expired memories", interval_s=60, run=memory.retention.sweep),
            PeriodicTask(name="embedding migration", interval_s=30, run=memory.migration.run_periodic),
            PeriodicTask(name="expired task leases", interval_s=5, run=agents.claims.expire_leases),
            *webhooks.periodic_tasks,
            PeriodicTask(name="abandoned agent sessions", interval_s=60, run=agents.sessions.sweeper.sweep),
        ],
    )


def _list_purgers(jobs: JobQueue, clock: Clock) -> list[Purger]:
    """Return the functions that delete a workspace's rows from all tables of other domains than access."""
    return [
        MemoryPurge(jobs, clock),
        tool_calls.purge,
        tool_servers.purge,
        tool_logins.purge,
        tool_catalogue.purge,
        agent_work.purge,
        plan_templates.purge,
        idempotency_store.purge,
        *WEBHOOK_PURGERS,
    ]


def _build_sealing(settings: Settings, db: Database, clock: Clock, ids: IdFactory) -> SealingServices:
    source = KeySource(settings.data_dir, configured=settings.secret_key, previous=settings.secret_key_previous)
    columns = [idempotency_store.SEALED_COLUMN, tool_servers.SEALED_COLUMN, tool_logins.SEALED_COLUMN, *WEBHOOK_SECRETS]
    sealer = Sealer(db, source, columns, clock)
    return SealingServices(
        sealer=sealer,
        rotation=KeyRotation(db, source, columns, clock),
        idempotency_store=idempotency_store.IdempotencyStore(db, sealer, clock, ids),
    )


def _list_periodic_tasks(
    settings: Settings, db: Database, access: AccessServices, *, sealing: SealingServices, tools: ToolServices, clock: Clock
) -> list[PeriodicTask]:
    retention = timedelta(days=settings.tool_calls_days)

    async def delete_old_tool_calls() -> int:
        before = clock() - retention
        return await db.write(lambda tx: tool_calls.delete_calls(tx, called_before=before))

    return [
        PeriodicTask(name="API keys past their grace", interval_s=60, run=access.api_keys.delete_past_grace),
        PeriodicTask(name="agent keys past their grace", interval_s=60, run=access.agent_keys.delete_past_grace),
        PeriodicTask(name="expired API keys", interval_s=60, run=access.api_keys.announce_expired),
        PeriodicTask(name="expired agent keys", interval_s=60, run=access.agent_keys.announce_expired),
        PeriodicTask(name="old usage rows", interval_s=3600, run=access.usage.delete_old_calls),
        PeriodicTask(name="old tool rows", interval_s=3600, run=delete_old_tool_calls),
        PeriodicTask(name="embeddings of new tools", interval_s=10, run=tools.search.preload_embeddings, needs_tool_servers=True),
        PeriodicTask(name="changed logins", interval_s=1, run=tools.logins.refresh, needs_tool_servers=True),
        PeriodicTask(name="file with the first keys", interval_s=600, run=FirstKeysFile(settings.data_dir, db, clock).delete_if_unneeded),
        PeriodicTask(name="expired idempotent responses", interval_s=600, run=sealing.idempotency_store.delete_expired),
    ]


def _build_probes(
    db: Database, indexes: Indexes, limiter: RateLimiter, counter: RateLimitCounter, catalogue: Catalogue
) -> Mapping[str, Callable[[], Awaitable[str]]]:
    async def database() -> str:
        await db.lookup(lambda tx: tx.fetch_one(_SELECT_ONE))
        return "ok"

    async def vector_index() -> str:
        await indexes.vectors.count(0)
        return "ok"

    async def text_index() -> str:
        await indexes.texts.setup()
        return "ok"

    async def embedder() -> str:
        if indexes.embedder.is_starting:
            return STATUS_STARTING
        await indexes.embedder.warm()
        return "ok"

    async def counters() -> str:
        try:
            await counter.peek("readyz", window_us=1, now_us=0)
        except EngineUnavailable:
            return "counting locally"
        return "counting locally" if limiter.is_local else "ok"

    async def servers() -> str:
        # The reason is only logged. This response needs no key, and the reason contains names of files and variables.
        return "ok" if catalogue.file_state.error is None else "servers.json is invalid; the last valid version is in use"

    return {
        "database": database,
        "vectors": vector_index,
        "texts": text_index,
        "embedder": embedder,
        "counters": counters,
        "servers": servers,
    }
