"""The services of content generation, each built on first use, and the registration of the domain."""

from __future__ import annotations

from contextlib import AsyncExitStack
from datetime import timedelta
from functools import cached_property

from rookery.access.build import AccessServices
from rookery.content import tool_declarations
from rookery.content.active_calls import ActiveCalls
from rookery.content.api.batches import BatchApi
from rookery.content.api.budgets import BudgetApi
from rookery.content.api.generations import GenerationApi
from rookery.content.api.prompt_templates import PromptTemplateApi
from rookery.content.batches import GenerationBatches
from rookery.content.budgets import Budgets, DefaultBudgets
from rookery.content.execution import GenerationRunner
from rookery.content.generation_metrics import GenerationMetrics
from rookery.content.generations import Generations, GenerationServices
from rookery.content.metered_calls import MeteredCalls
from rookery.content.ports import ContentPorts, OutputScorer
from rookery.content.prices import PriceList
from rookery.content.prompt_templates import PromptTemplates
from rookery.content.queued_work import GENERATE_JOB, QueuedGenerations
from rookery.content.requests import Generators
from rookery.content.store import batches, budgets, generations, overruns, reservations, templates
from rookery.kernel.db.leases import make_worker_id
from rookery.kernel.domain import Domain
from rookery.kernel.http.operation_tools import OperationServer
from rookery.kernel.jobs import JobKind
from rookery.kernel.metrics import Metrics
from rookery.kernel.runtime import PeriodicTask, Runtime
from rookery.usage.build import UsageServices


class ContentServices:
    """Generations, batches, prompt templates and budgets."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._access = runtime.use(AccessServices)
        self._ports = runtime.use(ContentPorts)

    @cached_property
    def generators(self) -> Generators:
        ports, max_tokens = self._ports, self._runtime.settings.generation_max_tokens
        for generator in (ports.provider, ports.canned):
            if generator is not None:
                self._runtime.on_close(generator.close)
        return Generators(provider=ports.provider, canned=ports.canned, max_tokens=max_tokens)

    @cached_property
    def output_scorer(self) -> OutputScorer:
        return self._ports.open_output_scorer()

    @cached_property
    def calls(self) -> ActiveCalls:
        return ActiveCalls(self._runtime.db, self._runtime.wakeups)

    @cached_property
    def budgets(self) -> Budgets:
        runtime, settings = self._runtime, self._runtime.settings
        defaults = DefaultBudgets(
            workspace_nanos={"day": settings.generation_daily_budget, "month": settings.generation_monthly_budget},
            key_nanos={"day": settings.generation_key_daily_budget, "month": settings.generation_key_monthly_budget},
        )
        prices, usage = PriceList(settings.generation_prices), runtime.use(UsageServices)
        return Budgets(runtime.db, self._access.audit, prices, defaults, self._ports.find_key_names, usage=usage, clock=runtime.clock)

    @cached_property
    def metrics(self) -> GenerationMetrics:
        return GenerationMetrics(self._runtime.use(Metrics))

    @cached_property
    def metered_calls(self) -> MeteredCalls:
        runtime = self._runtime
        return MeteredCalls(
            db=runtime.db,
            budgets=self.budgets,
            generators=self.generators,
            metrics=self.metrics,
            clock=runtime.clock,
            ids=runtime.ids,
            worker_id=make_worker_id(runtime.ids()),
        )

    @cached_property
    def runner(self) -> GenerationRunner:
        runtime = self._runtime
        return GenerationRunner(
            runtime.db,
            budgets=self.budgets,
            calls=self.calls,
            bus=runtime.bus,
            metrics=self.metrics,
            get_generator=self.generators.find,
            get_scorer=lambda: self.output_scorer,
            clock=runtime.clock,
            worker_id=make_worker_id(runtime.ids()),
            timeout_s=runtime.settings.generation_timeout_s,
            stores_reasoning=runtime.settings.generation_reasoning,
        )

    @cached_property
    def queue(self) -> QueuedGenerations:
        return QueuedGenerations(self._runtime.db, self.runner, self.budgets, self._runtime.jobs, clock=self._runtime.clock)

    @cached_property
    def generation_services(self) -> GenerationServices:
        runtime = self._runtime
        return GenerationServices(
            db=runtime.db,
            runner=self.runner,
            calls=self.calls,
            budgets=self.budgets,
            generators=self.generators,
            jobs=runtime.jobs,
            clock=runtime.clock,
            ids=runtime.ids,
        )

    @cached_property
    def generations(self) -> Generations:
        return Generations(self.generation_services)

    @cached_property
    def batches(self) -> GenerationBatches:
        return GenerationBatches(self.generation_services)

    @cached_property
    def templates(self) -> PromptTemplates:
        return PromptTemplates(self._runtime.db, self._access.audit, self._runtime.clock)


PREFIXES = ("/api/agent", "/v1")


def build(runtime: Runtime) -> Domain:
    """Return the domain. Nothing is started."""
    services = runtime.use(ContentServices)
    generating = GenerationApi(generations=services.generations, scorer=services.output_scorer).operations()
    operations = [
        *generating,
        *BatchApi(batches=services.batches).operations(),
        *PromptTemplateApi(templates=services.templates).operations(),
        *BudgetApi(budgets=services.budgets).operations(),
    ]
    server = OperationServer(
        generating, tool_declarations.SERVER, compact=tool_declarations.compact_output, render_text=tool_declarations.render_text
    )
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
        operations=[(prefix, operations) for prefix in PREFIXES],
        tool_servers=[server],
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
