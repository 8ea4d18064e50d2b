"""The composition root: it builds the platform from the engines and from the domains that `domains` lists."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import cast

import structlog
from sqlalchemy import func, literal, select

from rookery.access.build import AccessServices
from rookery.access.first_run import FirstRunResult, create_first_keys
from rookery.access.models import SYSTEM_ACTOR, Caller
from rookery.access.ports import AccessPorts
from rookery.access.store import keys
from rookery.agents.build import AgentPorts, AgentServices
from rookery.agents.events import AgentSessionEnded
from rookery.agents.models.sessions import TokenReport
from rookery.agents.sessions.access import SessionFinder
from rookery.agents.store.tables import SESSIONS
from rookery.content.build import ContentServices
from rookery.content.chat import TokenUsage
from rookery.content.models import ContentTenant
from rookery.content.ports import ContentPorts
from rookery.content.prices import PriceList, compute_cost
from rookery.domains import load_builders, load_events, load_state_renderers, record_events
from rookery.engines import counters, detection, notification_channels, similarity, text_generators, upstreams, webhook_client
from rookery.engines.judge_models import GeneratorJudge
from rookery.engines.text_generators.canned import CannedGenerator
from rookery.kernel import idempotency_store
from rookery.kernel.clock import Clock, utc_now
from rookery.kernel.config import Settings
from rookery.kernel.data_folder import DiskSpace
from rookery.kernel.db import Database, Tx, open_channel, open_database
from rookery.kernel.db.instrumented import InstrumentedDatabase
from rookery.kernel.domain import Domain, Probe
from rookery.kernel.egress import EgressGuard
from rookery.kernel.engine_breakers import READS_ONLY, EngineBreakers
from rookery.kernel.errors import OUTAGES, EngineUnavailable, StorageFull
from rookery.kernel.events import EventBus, EventCatalogue
from rookery.kernel.http import Operation
from rookery.kernel.http.operation_tools import OperationServer
from rookery.kernel.ids import IdFactory, uuid7
from rookery.kernel.jobs import JobWorker
from rookery.kernel.metrics import Metrics
from rookery.kernel.process_registry import EngineLocation, ProcessRegistry, strip_address
from rookery.kernel.process_resources import count_available_cores
from rookery.kernel.runtime import PeriodicTask, Purger, Runtime, run_periodic_tasks
from rookery.kernel.sealing import KeyRotation, KeySource, SealedColumn, Sealer
from rookery.kernel.server_group import ServerGroup
from rookery.kernel.wakeups import Wakeups
from rookery.kernel.working_context import CallSession, WorkingContext, WorkingContextFinder
from rookery.kernel.workspace_shares import WorkspaceShares
from rookery.memory.build import MemoryServices
from rookery.memory.indexing import DELETE_JOB
from rookery.memory.store import records as memory_records
from rookery.memory_engines import MemoryEngines, open_memory_engines, provide_memory_ports
from rookery.notifications.build import NotificationPorts, NotificationServices
from rookery.observability import MetricTargets, Observability, build_observability
from rookery.scoring.build import ScoringPorts, ScoringServices
from rookery.tools.build import ToolPorts, ToolServices
from rookery.tools.store import calls as tool_calls
from rookery.usage.build import UsageServices
from rookery.usage.ports import UsagePorts, UsedBudget
from rookery.webhooks.build import WebhookPorts, WebhookServices
from rookery.webhooks.event_recorder import StateEventPublisher

STATUS_STARTING = "starting"
"""The state of an engine that is starting, as /readyz shows it."""

_log = structlog.stdlib.get_logger("rookery.wiring")

_SELECT_ONE = select(literal(1).label("one"))
_SELECT_READ_ONLY = select(func.current_setting("transaction_read_only").label("value"))
_MIB = 1024 * 1024
_CLOSE_TIMEOUT_S = 10.0
_SHARED_BY_HOSTS = "shared by hosts"
"""The feature of each port whose engines are not in the data folder."""


class SealingServices:
    """The encryption of values in the record store, and the encrypted store of responses."""

    def __init__(self, runtime: Runtime) -> None:
        settings = runtime.settings
        self.columns: list[SealedColumn] = [idempotency_store.SEALED_COLUMN]
        self.keys = KeySource(settings.data_dir, configured=settings.secret_key, previous=settings.secret_key_previous)
        self.sealer = Sealer(runtime.db, self.keys, self.columns, runtime.clock)
        self.rotation = KeyRotation(runtime.db, self.keys, self.columns, runtime.clock)
        self.idempotency_store = idempotency_store.IdempotencyStore(runtime.db, self.sealer, runtime.clock, runtime.ids)
        runtime.on_close(self.idempotency_store.close)


class Rookery:
    """
    The platform. Nothing is opened before `start`, `start_worker` or `open_for_command`.

    Attributes:
        domains: The registrations of all domains.
        probes: Functions that return the state of each engine: `ok`, or what is wrong.
    """

    def __init__(self, runtime: Runtime, domains: Sequence[Domain], probes: Mapping[str, Probe], observability: Observability) -> None:
        self.runtime = runtime
        self.domains = domains
        self.probes = probes
        self.observability = observability
        self.periodic_tasks: Sequence[PeriodicTask] = [
            *(task for domain in domains for task in domain.periodic_tasks),
            PeriodicTask(name="expired idempotent responses", interval_s=600, run=self.sealing.idempotency_store.delete_expired),
        ]
        job_kinds = [observability.platform_metrics.instrument_kind(kind) for domain in domains for kind in domain.job_kinds]
        self.worker = JobWorker(runtime.jobs, job_kinds, lease_s=runtime.settings.job_lease_s)
        outbox = self.webhooks.outbox
        record_events(runtime, outbox)
        self._state_events = StateEventPublisher(runtime, outbox, load_events(), load_state_renderers())
        self._exit_stack = AsyncExitStack()
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def settings(self) -> Settings:
        return self.runtime.settings

    @property
    def clock(self) -> Clock:
        return self.runtime.clock

    @property
    def db(self) -> Database:
        return self.runtime.db

    @property
    def access(self) -> AccessServices:
        return self.runtime.use(AccessServices)

    @property
    def memory(self) -> MemoryServices:
        return self.runtime.use(MemoryServices)

    @property
    def agents(self) -> AgentServices:
        return self.runtime.use(AgentServices)

    @property
    def tools(self) -> ToolServices:
        return self.runtime.use(ToolServices)

    @property
    def content(self) -> ContentServices:
        return self.runtime.use(ContentServices)

    @property
    def usage(self) -> UsageServices:
        return self.runtime.use(UsageServices)

    @property
    def webhooks(self) -> WebhookServices:
        return self.runtime.use(WebhookServices)

    @property
    def notifications(self) -> NotificationServices:
        return self.runtime.use(NotificationServices)

    @property
    def sealing(self) -> SealingServices:
        return self.runtime.use(SealingServices)

    @property
    def engines(self) -> MemoryEngines:
        """The engines of the shared memory."""
        return self.runtime.use(open_memory_engines)

    @property
    def tool_servers(self) -> list[OperationServer]:
        """The built-in tool servers, whose tools are operations of the domains."""
        return [server for domain in self.domains for server in domain.tool_servers]

    @property
    def operations(self) -> list[Operation]:
        """The operations of all domains, each once for each of its prefixes."""
        return [operation for domain in self.domains for _, operations in domain.operations for operation in operations]

    async def workspaces(self) -> dict[int, str]:
        """Return the names of all workspaces by id, without their sandboxes."""
        return {workspace.id: workspace.name for workspace in await self.access.workspaces.list()}

    async def erase_deleted(self) -> str | None:
        """Remove deleted memories from the indexes and all traces of them from files; return the reason if some remain."""
        while await self.worker.run_ready(DELETE_JOB):
            pass
        return await self.memory.erasure.run()

    async def start(self) -> None:
        """Open everything and start to work. Call `close` afterwards, even if this raises."""
        await self._start(serves=True)

    async def start_worker(self) -> None:
        """
        Open everything and run jobs, webhooks and periodic tasks without HTTP. Call `close` afterwards, even if this raises.

        No tool server is started, so tasks that need tool servers are left to processes that serve.
        """
        await self._start(serves=False)

    async def _start(self, *, serves: bool) -> None:
        await self.observability.start(self._exit_stack)
        await self._open()
        processes = self.runtime.use(ProcessRegistry)
        self._exit_stack.push_async_callback(processes.close)
        await processes.register("server" if serves else "worker")
        await self.sealing.sealer.start()
        await self.worker.start()
        self._exit_stack.push_async_callback(self.worker.stop)
        self._exit_stack.push_async_callback(self.runtime.use(open_similarity).aclose)
        for domain in self.domains:
            if domain.start is not None:
                await domain.start(self._exit_stack, serves=serves)
        is_first = self.runtime.use(ServerGroup).number == 1
        tasks = [task for task in self.periodic_tasks if (serves or not task.needs_tool_servers) and (is_first or not task.is_single)]
        work = [run_periodic_tasks(tasks), self._warm_up_engines(), self.runtime.wakeups.run()]
        if serves:
            work += [self.observability.platform_metrics.measure_loop_lag(), self._state_events.run()]
        self._tasks += [asyncio.create_task(coroutine) for coroutine in work]
        self._exit_stack.push_async_callback(self._stop_tasks)

    def close_streams(self) -> None:
        """Close long-running requests, because the server is stopping. Safe in any thread and in signal handlers."""
        for domain in self.domains:
            if domain.close_streams is not None:
                domain.close_streams()

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
        self._exit_stack.push_async_callback(self.runtime.close)
        await self.db.lookup(lambda tx: tx.fetch_one(_SELECT_ONE))

    async def require_matching_dimension(self) -> None:
        """
        Check that the embedder's vectors have the configured dimension, unless the embedder is unavailable.

        Raises:
            WrongSettings: The dimension differs.
        """
        try:
            await self.engines.embedder.check()
        except EngineUnavailable as error:
            _log.warning("embedder.not_ready", reason=error.reason)

    async def _stop_tasks(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks, timeout=_CLOSE_TIMEOUT_S)

    async def _warm_up_engines(self) -> None:
        """
        Start the engines before the first request needs them.

        The model of the embedder is loaded by the first text. It takes a third of the server's memory, and many servers never need it.
        """
        embedder = self.engines.embedder
        await asyncio.gather(
            _log_failure("embedder", embedder.warm() if self.settings.preload_embedder else embedder.probe()),
            _log_failure("vectors", self.engines.vectors.start()),
            _log_failure("texts", self.engines.texts.start()),
        )


async def _log_failure(name: str, starting: Awaitable[None]) -> None:
    try:
        await starting
    except Exception as error:  # noqa: BLE001 - requests that need the engine get the same error
        _log.warning(f"{name}.not_ready", reason=str(error))


def build_platform(
    settings: Settings,
    *,
    clock: Clock = utc_now,
    ids: IdFactory = uuid7,
    environment: Mapping[str, str] | None = None,
    group: ServerGroup | None = None,
) -> Rookery:
    """
    Build the platform according to *settings*. No file and no connection is opened.

    Args:
        environment: The variables that `${NAME}` in servers.json refers to. None: those of this process.
        group: The server processes that share the address, by default this one alone.

    Raises:
        WrongSettings: The URL of an engine is invalid, or settings contradict each other.
    """
    group = ServerGroup() if group is None else group
    metrics = Metrics(group=group)
    breakers = EngineBreakers(settings)
    store = open_database(
        settings.database_url.reveal(),
        data_dir=settings.data_dir,
        replica_url=settings.database_replica.reveal() if settings.database_replica is not None else None,
        max_replica_lag_s=settings.database_replica_max_lag_s,
    )
    db = InstrumentedDatabase(store, metrics, breaker=breakers.database)
    settings.require_secret_key()
    wakeups = Wakeups(open_channel(settings.database_url.reveal(), db) if settings.postgres_notify else None)
    shares = WorkspaceShares(group.folder, number=group.number, count=group.count, cores=count_available_cores())
    runtime = Runtime(settings, db=db, bus=EventBus(), clock=clock, ids=ids, wakeups=wakeups, breakers=breakers, shares=shares)
    runtime.on_close(db.close)
    runtime.on_close(wakeups.close)
    counter = counters.open(settings.counters.reveal(), data_dir=settings.data_dir, verify_ssl=settings.verify_ssl)
    purgers: list[Purger] = []
    disk_folder = settings.data_dir if db.dialect == "sqlite" else None
    runtime.provide(Metrics, lambda _: metrics)
    runtime.provide(ServerGroup, lambda _: group)
    runtime.provide(ProcessRegistry, _build_process_registry)
    runtime.provide(AccessPorts, lambda _: AccessPorts(counter=counter, is_agent_in_use=_is_agent_in_use, purgers=purgers))
    runtime.provide(AgentPorts, _build_agent_ports)
    runtime.provide(DiskSpace, lambda _: DiskSpace(disk_folder, min_free_bytes=settings.min_free_disk_mb * _MIB))
    runtime.provide(EgressGuard, lambda _: EgressGuard(allow=settings.egress_allow, allow_private=settings.egress_private))
    runtime.provide(EventCatalogue, lambda _: EventCatalogue(load_events()))
    runtime.provide(NotificationPorts, _build_notification_ports)
    runtime.provide(Sealer, lambda runtime: runtime.use(SealingServices).sealer)
    runtime.provide(WebhookPorts, lambda runtime: WebhookPorts(open_client=lambda: webhook_client.open(runtime.use(EgressGuard))))
    runtime.provide(ContentPorts, _build_content_ports)
    runtime.provide(UsagePorts, _build_usage_ports)
    runtime.provide(ScoringPorts, _build_scoring_ports)
    runtime.provide(WorkingContextFinder, lambda runtime: WorkingContextFinder(partial(_find_working_context, runtime)))
    runtime.provide(ToolPorts, lambda runtime: _build_tool_ports(runtime, environment))
    provide_memory_ports(runtime)
    runtime.bus.subscribe(
        AgentSessionEnded, lambda event: runtime.use(ToolServices).sessions.close_agent_session(event.workspace_id, event.session_id)
    )
    observability = build_observability(settings, metrics, runtime.bus, group)
    domains = [runtime.use(build) for build in load_builders()]
    purgers += [purge for domain in domains for purge in domain.purgers]
    purgers.append(idempotency_store.purge)
    runtime.use(SealingServices).columns += [column for domain in domains for column in domain.sealed_columns]
    probes = _collect_probes(runtime, domains)
    rookery = Rookery(runtime, domains, probes, observability)
    observability.platform_metrics.add_sources(
        MetricTargets(
            jobs=runtime.jobs,
            bcrypt=rookery.access.bcrypt,
            limiter=rookery.access.limiter,
            usage=rookery.access.usage,
            catalogue=rookery.tools.catalogue,
            sessions=rookery.tools.sessions,
            tool_calls=rookery.tools.call_log,
            probes=probes,
            breakers=runtime.breakers,
        )
    )
    return rookery


def _build_agent_ports(runtime: Runtime) -> AgentPorts:
    memory = runtime.use(MemoryServices)
    prices = PriceList(runtime.settings.generation_prices)
    return AgentPorts(
        memories=memory.sessions,
        memory_finder=memory.related,
        disk=runtime.use(DiskSpace),
        tool_calls=tool_calls,
        price_tokens=lambda tokens: _price_tokens(prices, tokens),
    )


def _price_tokens(prices: PriceList, tokens: TokenReport) -> int | None:
    """Return the cost of the tokens that an agent reports, at the prices of generations."""
    price = None if tokens.model is None else prices.find(tokens.model)
    usage = TokenUsage(input_tokens=tokens.input, output_tokens=tokens.output, cached_tokens=tokens.cached_input)
    return None if price is None else compute_cost(price, usage)


async def _find_working_context(runtime: Runtime, caller: object, session: CallSession) -> WorkingContext | None:
    contexts = runtime.use(AgentServices).working_contexts
    return await contexts.find(cast("Caller", caller), session)


def _is_agent_in_use(tx: Tx, workspace_id: int, agent_id: str) -> bool:
    """Return whether an agent has memories or sessions of its own."""
    return memory_records.has_agent(tx, workspace_id, agent_id) or SESSIONS.has(tx, workspace_id, agent_id=agent_id)


def _build_process_registry(runtime: Runtime) -> ProcessRegistry:
    settings, engines, counter = runtime.settings, runtime.use(open_memory_engines), runtime.use(AccessPorts).counter
    locations = [
        EngineLocation(
            setting=setting,
            address=strip_address(address.reveal()),
            is_shared_by_hosts=_SHARED_BY_HOSTS not in getattr(engine, "lacks", frozenset[str]()),
        )
        for setting, address, engine in (
            ("ROOKERY_VECTORS", settings.vectors, engines.vectors),
            ("ROOKERY_TEXTS", settings.texts, engines.texts),
            ("ROOKERY_COUNTERS", settings.counters, counter),
        )
    ]
    return ProcessRegistry(runtime.db, runtime.clock, runtime.ids, folder=settings.data_dir, url=settings.listening_url, engines=locations)


def open_similarity(runtime: Runtime) -> similarity.SimilarityCache:
    """Return the similarity of texts for the search of tools."""
    embedder = runtime.use(open_memory_engines).embedder
    return similarity.open(embedder, is_loaded=lambda: embedder.is_loaded)


def _build_content_ports(runtime: Runtime) -> ContentPorts:
    settings = runtime.settings
    address = settings.generation
    # The address is checked now. The generator connects on its first use.
    provider = None if address is None else text_generators.open(address.reveal(), verify_ssl=settings.verify_ssl)
    return ContentPorts(
        provider=provider, canned=CannedGenerator(), find_key_names=keys.find_names, open_output_scorer=lambda: runtime.use(ScoringServices)
    )


def _build_usage_ports(runtime: Runtime) -> UsagePorts:
    async def list_budgets(workspace_id: int) -> list[UsedBudget]:
        tenant = ContentTenant.for_operator(workspace_id, SYSTEM_ACTOR)
        statuses = await runtime.use(ContentServices).budgets.list_budgets(tenant)
        return [
            UsedBudget(
                name=f"{'workspace' if status.key_id is None else status.key_name or status.key_id}, {words}",
                currency=status.currency,
                limit_nanos=budget.limit_nanos,
                used_nanos=budget.spent_nanos + budget.reserved_nanos,
                resets_at=budget.resets_at,
            )
            for status in statuses
            for words, budget in (("today", status.periods["day"]), ("this month", status.periods["month"]))
            if budget.limit_nanos is not None
        ]

    return UsagePorts(find_key_names=keys.find_former_and_current_names, list_budgets=list_budgets)


def _build_notification_ports(runtime: Runtime) -> NotificationPorts:
    settings, egress, clock = runtime.settings, runtime.use(EgressGuard), runtime.clock
    return NotificationPorts(open_channels=lambda keys, own_keys: notification_channels.open(settings, egress, keys, own_keys, clock=clock))


def _build_scoring_ports(runtime: Runtime) -> ScoringPorts:
    def find_language_model() -> GeneratorJudge | None:
        content = runtime.use(ContentServices)
        return None if content.generators.provider is None else GeneratorJudge(content.metered_calls)

    return ScoringPorts(open_detector=detection.open, find_language_model=find_language_model, judge_errors=GeneratorJudge.errors)


def _build_tool_ports(runtime: Runtime, environment: Mapping[str, str] | None) -> ToolPorts:
    clock = runtime.clock
    builders = load_builders(without="tools")  # it serves the tools of the others
    return ToolPorts(
        list_tool_servers=lambda: [server for build in builders for server in runtime.use(build).tool_servers],
        build_entry=upstreams.build_builtin_entry,
        open_connectors=upstreams.open,
        authorities=upstreams.authorities(runtime.use(EgressGuard), clock=lambda: clock().timestamp()),
        similarity=runtime.use(open_similarity),
        agent_sessions=SessionFinder(db=runtime.db, clock=clock),
        environment=environment,
    )


def _collect_probes(runtime: Runtime, domains: Sequence[Domain]) -> dict[str, Probe]:
    engines = runtime.use(open_memory_engines)

    async def probe_database() -> str:
        if runtime.db.dialect == "sqlite":
            await runtime.db.lookup(lambda tx: tx.fetch_one(_SELECT_ONE))
            try:
                runtime.use(DiskSpace).require()
            except StorageFull as error:
                return f"{READS_ONLY}: {error.message}"
            return "ok"
        row = await runtime.db.lookup(lambda tx: tx.fetch_one(_SELECT_READ_ONLY))
        return "ok" if row is None or row.text("value") != "on" else f"{READS_ONLY}: PostgreSQL accepts only reads"

    async def probe_embedder() -> str:
        if engines.embedder.is_starting:
            return STATUS_STARTING
        await engines.embedder.probe()
        return "ok"

    async def probe_processes() -> str:
        answering = await group.count_answering()
        return "ok" if answering == group.count else f"{answering} of {group.count} server processes answer"

    group = runtime.use(ServerGroup)
    probes: dict[str, Probe] = {"database": probe_database, "embedder": probe_embedder}
    if group.count > 1:
        probes["processes"] = probe_processes
    for domain in domains:
        probes.update(domain.probes)
    breakers = runtime.breakers
    return {name: partial(_probe_with_breaker, name, probe, breakers) for name, probe in probes.items()}


async def _probe_with_breaker(name: str, probe: Probe, breakers: EngineBreakers) -> str:
    return breakers.describe(name, await probe())
