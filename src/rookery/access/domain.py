"""The registration of the access domain: keys, workspaces and the audit log."""

from __future__ import annotations

from rookery.access.api import AccessApi
from rookery.access.first_run import FirstKeysFile
from rookery.access.wiring import AccessServices
from rookery.kernel.domain import Domain
from rookery.kernel.errors import EngineUnavailable
from rookery.kernel.runtime import PeriodicTask, Runtime


def build(runtime: Runtime) -> Domain:
    """Return the domain. Nothing is started. The other domains delete the data of a workspace, so this one has no purgers."""
    services = runtime.use(AccessServices)
    api = AccessApi(
        guard=services.guard,
        api_keys=services.api_keys,
        agent_keys=services.agent_keys,
        workspaces=services.workspaces,
        usage=services.usage,
        audit=services.audit,
        clock=runtime.clock,
    )
    first_keys = FirstKeysFile(runtime.settings.data_dir, runtime.db, runtime.clock)

    async def probe_counters() -> str:
        try:
            await services.counter.peek("readyz", window_us=1, now_us=0)
        except EngineUnavailable:
            return "counting locally"
        return "counting locally" if services.limiter.is_local else "ok"

    return Domain(
        operations=[("/api/v1", api.platform_operations()), ("/api/agent", api.agent_operations())],
        periodic_tasks=[
            PeriodicTask(name="API keys past their grace", interval_s=60, run=services.api_keys.delete_past_grace),
            PeriodicTask(name="agent keys past their grace", interval_s=60, run=services.agent_keys.delete_past_grace),
            PeriodicTask(name="expired API keys", interval_s=60, run=services.api_keys.announce_expired),
            PeriodicTask(name="expired agent keys", interval_s=60, run=services.agent_keys.announce_expired),
            PeriodicTask(name="old usage rows", interval_s=3600, run=services.usage.delete_old_calls),
            PeriodicTask(name="file with the first keys", interval_s=600, run=first_keys.delete_if_unneeded),
        ],
        probes={"counters": probe_counters},
    )
