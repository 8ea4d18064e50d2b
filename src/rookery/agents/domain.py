"""The registration of the agents domain: plans, sessions and templates."""

from __future__ import annotations

from contextlib import AsyncExitStack

from rookery.agents.api import AgentsApi
from rookery.agents.api.hooks import HookApi
from rookery.agents.plans.server_pulse import BEAT_INTERVAL_S
from rookery.agents.store import sessions, templates
from rookery.agents.wiring import AgentServices
from rookery.kernel.domain import Domain
from rookery.kernel.runtime import PeriodicTask, Runtime
from rookery.kernel.working_context import WorkingContextFinder

AGENT_PREFIX, V1_PREFIX = "/api/agent", "/v1"


def build(runtime: Runtime) -> Domain:
    """Return the domain. Nothing is started."""
    services = runtime.use(AgentServices)
    api = AgentsApi(services, runtime.use(WorkingContextFinder))
    hooks = HookApi(hooks=services.hooks, metrics=services.hook_metrics, is_on=runtime.settings.hooks, deadline_s=services.hooks.deadline_s)

    async def start(stack: AsyncExitStack, *, serves: bool) -> None:
        if serves:
            stack.push_async_callback(services.sessions.streams.aclose)

    def close_streams() -> None:
        services.notifier.close()
        services.sessions.streams.close_streams()

    return Domain(
        operations=[(AGENT_PREFIX, api.operations()), (AGENT_PREFIX, hooks.operations()), (V1_PREFIX, api.operations())],
        tool_servers=[api.server()],
        periodic_tasks=[
            PeriodicTask(name="beats of the server", interval_s=BEAT_INTERVAL_S, run=services.pulse.beat),
            PeriodicTask(name="expired task leases", interval_s=5, run=services.claims.expire_leases),
            PeriodicTask(name="old records of hooks", interval_s=3600, run=services.hooks.delete_old),
            PeriodicTask(name="abandoned agent sessions", interval_s=60, run=services.sessions.sweeper.sweep),
        ],
        purgers=[sessions.purge, templates.purge],
        start=start,
        close_streams=close_streams,
    )
