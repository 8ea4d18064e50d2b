"""The registration of the content domain: generations, batches, prompt templates and budgets."""

from __future__ import annotations

from contextlib import AsyncExitStack
from datetime import timedelta

from rookery.content.api import ContentApi
from rookery.content.queued_work import GENERATE_JOB
from rookery.content.store import batches, budgets, generations, overruns, reservations, templates
from rookery.content.wiring import ContentServices
from rookery.kernel.domain import Domain
from rookery.kernel.jobs import JobKind
from rookery.kernel.runtime import PeriodicTask, Runtime

PREFIXES = ("/api/agent", "/v1")


def build(runtime: Runtime) -> Domain:
    """Return the domain. Nothing is started."""
    services = runtime.use(ContentServices)
    api = ContentApi(services)
    retention = timedelta(days=runtime.settings.generation_days)

    async def delete_old_generations() -> int:
        return await services.generations.delete_old(before=runtime.clock() - retention)

    async def probe_provider() -> str:
        await services.generators.get(is_canned=False).probe()
        return "ok"

    async def start(stack: AsyncExitStack, *, serves: bool) -> None:
        del serves  # workers run queued generations too
        stack.push_async_callback(services.calls.aclose)

    return Domain(
        operations=[(prefix, api.operations()) for prefix in PREFIXES],
        tool_servers=[api.server()],
        job_kinds=[
            JobKind(
                name=GENERATE_JOB,
                handler=services.queue.handle,
                worker_count=runtime.settings.generation_concurrency,
                on_failed=services.queue.fail_job,
            )
        ],
        periodic_tasks=[
            PeriodicTask(name="abandoned generations", interval_s=5, run=services.generations.fail_abandoned),
            PeriodicTask(name="abandoned calls without a generation", interval_s=5, run=services.metered_calls.release_abandoned),
            PeriodicTask(name="old generations", interval_s=3600, run=delete_old_generations),
        ],
        purgers=[generations.purge, batches.purge, templates.purge, budgets.purge, overruns.purge, reservations.purge],
        probes={"generation": probe_provider} if services.generators.provider else {},
        start=start,
    )
