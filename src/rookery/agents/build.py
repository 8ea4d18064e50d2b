"""The services of agent work, each built on first use, and the registration of the domain."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import cached_property

from rookery.access.build import AccessServices
from rookery.agents import tool_declarations
from rookery.agents.api import require_if_match
from rookery.agents.api.hooks import HookApi
from rookery.agents.api.phases import PhaseApi
from rookery.agents.api.plans import PlanApi
from rookery.agents.api.sessions import SessionApi
from rookery.agents.api.stream import SessionStreamApi
from rookery.agents.api.tasks import TaskApi
from rookery.agents.api.templates import TemplateApi
from rookery.agents.hooks.agent_hooks import AgentHooks, HookMetrics
from rookery.agents.hooks.client_sessions import ClientSessions
from rookery.agents.hooks.project_names import ProjectNames
from rookery.agents.plans.claims import Claims
from rookery.agents.plans.phases import Phases
from rookery.agents.plans.plan_events import PlanEventRecorder, ReadyTaskNotifier
from rookery.agents.plans.plans import Plans
from rookery.agents.plans.server_pulse import BEAT_INTERVAL_S, ServerPulse
from rookery.agents.plans.tasks import Tasks
from rookery.agents.ports import FreeSpace, MemoryFinder, PriceTokens, SessionMemoryStore, ToolCallCounter
from rookery.agents.sessions.records import SessionTokenMeter
from rookery.agents.sessions.session_services import SessionServices, build_session_services
from rookery.agents.sessions.working_context import WorkingContexts
from rookery.agents.store import sessions as session_store
from rookery.agents.store import templates as template_store
from rookery.agents.templates.library import Templates
from rookery.kernel.domain import Domain
from rookery.kernel.http.operation_tools import OperationServer
from rookery.kernel.metrics import Metrics
from rookery.kernel.runtime import PeriodicTask, Runtime
from rookery.kernel.working_context import WorkingContextFinder
from rookery.usage.build import UsageServices


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentPorts:
    """The implementations that agent work gets from other domains."""

    memories: SessionMemoryStore
    memory_finder: MemoryFinder
    disk: FreeSpace
    tool_calls: ToolCallCounter
    price_tokens: PriceTokens


class AgentServices:
    """The services of plans, sessions and templates."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    @cached_property
    def _recorder(self) -> PlanEventRecorder:
        return PlanEventRecorder(self._runtime.bus)

    @cached_property
    def notifier(self) -> ReadyTaskNotifier:
        return ReadyTaskNotifier(self._runtime.bus, self._runtime.wakeups)

    @cached_property
    def plans(self) -> Plans:
        runtime = self._runtime
        return Plans(db=runtime.db, recorder=self._recorder, clock=runtime.clock, ids=runtime.ids)

    @cached_property
    def phases(self) -> Phases:
        runtime = self._runtime
        return Phases(db=runtime.db, recorder=self._recorder, clock=runtime.clock, ids=runtime.ids)

    @cached_property
    def tasks(self) -> Tasks:
        runtime = self._runtime
        return Tasks(db=runtime.db, recorder=self._recorder, clock=runtime.clock, ids=runtime.ids)

    @cached_property
    def claims(self) -> Claims:
        runtime = self._runtime
        return Claims(
            db=runtime.db, recorder=self._recorder, notifier=self.notifier, pulse=self.pulse, clock=runtime.clock, ids=runtime.ids
        )

    @cached_property
    def pulse(self) -> ServerPulse:
        return ServerPulse(db=self._runtime.db)

    @cached_property
    def templates(self) -> Templates:
        return Templates(self._runtime.db, self._runtime.use(AccessServices).audit, self._runtime.clock)

    @cached_property
    def sessions(self) -> SessionServices:
        runtime = self._runtime
        ports = runtime.use(AgentPorts)
        return build_session_services(
            db=runtime.db,
            bus=runtime.bus,
            wakeups=runtime.wakeups,
            clock=runtime.clock,
            ids=runtime.ids,
            memories=ports.memories,
            tool_calls=ports.tool_calls,
            token_meter=SessionTokenMeter(ledger=runtime.use(UsageServices).ledger, price_tokens=ports.price_tokens),
            keys=runtime.use(AccessServices).guard,
            claims=self.claims,
            pulse=self.pulse,
        )

    @cached_property
    def working_contexts(self) -> WorkingContexts:
        return WorkingContexts(db=self._runtime.db)

    @cached_property
    def hooks(self) -> AgentHooks:
        runtime, sessions = self._runtime, self.sessions
        ports = runtime.use(AgentPorts)
        return AgentHooks(
            db=runtime.db,
            clock=runtime.clock,
            sessions=ClientSessions(starter=sessions.starter, records=sessions.records),
            projects=ProjectNames(db=runtime.db, clock=runtime.clock, disk=ports.disk),
            ender=sessions.ender,
            memories=ports.memory_finder,
            disk=ports.disk,
            deadline_s=runtime.settings.hook_timeout_ms / 1000,
        )

    @cached_property
    def hook_metrics(self) -> HookMetrics:
        return HookMetrics(self._runtime.use(Metrics))


AGENT_PREFIX, V1_PREFIX = "/api/agent", "/v1"


def build(runtime: Runtime) -> Domain:
    """Return the domain. Nothing is started."""
    services = runtime.use(AgentServices)
    plans = [
        *PlanApi(plans=services.plans).operations(),
        *PhaseApi(phases=services.phases, tasks=services.tasks).operations(),
    ]
    tasks = [
        *TaskApi(tasks=services.tasks, claims=services.claims).operations(),
        *TemplateApi(templates=services.templates, plans=services.plans).operations(),
    ]
    sessions = [
        *SessionApi(sessions=services.sessions).operations(),
        *SessionStreamApi(streams=services.sessions.streams).operations(),
    ]
    operations = require_if_match([*plans, *tasks, *sessions])
    server = OperationServer(
        [*sessions, *tasks, *plans],  # in the order in which an agent usually needs the tools
        tool_declarations.SERVER,
        compact=tool_declarations.compact_output,
        contexts=runtime.use(WorkingContextFinder),
    )
    hooks = HookApi(hooks=services.hooks, metrics=services.hook_metrics, is_on=runtime.settings.hooks, deadline_s=services.hooks.deadline_s)

    async def start(stack: AsyncExitStack, *, serves: bool) -> None:
        if serves:
            stack.push_async_callback(services.sessions.streams.aclose)

    def close_streams() -> None:
        services.notifier.close()
        services.sessions.streams.close_streams()

    return Domain(
        operations=[(AGENT_PREFIX, operations), (AGENT_PREFIX, hooks.operations()), (V1_PREFIX, operations)],
        tool_servers=[server],
        periodic_tasks=[
            PeriodicTask(name="beats of the server", interval_s=BEAT_INTERVAL_S, run=services.pulse.beat),
            PeriodicTask(name="expired task leases", interval_s=5, run=services.claims.expire_leases),
            PeriodicTask(name="old records of hooks", interval_s=3600, run=services.hooks.delete_old),
            PeriodicTask(name="abandoned agent sessions", interval_s=60, run=services.sessions.sweeper.sweep),
        ],
        purgers=[session_store.purge, template_store.purge],
        start=start,
        close_streams=close_streams,
    )
