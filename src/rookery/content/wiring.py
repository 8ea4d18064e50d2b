"""The services of content generation, each built on first use."""

from __future__ import annotations

from functools import cached_property

from rookery.access.wiring import AccessServices
from rookery.content.active_calls import ActiveCalls
from rookery.content.batches import GenerationBatches
from rookery.content.budgets import Budgets, DefaultBudgets
from rookery.content.execution import GenerationRunner
from rookery.content.generation_metrics import GenerationMetrics
from rookery.content.generations import Generations, GenerationServices
from rookery.content.metered_calls import MeteredCalls
from rookery.content.ports import ContentPorts, OutputScorer
from rookery.content.prices import PriceList
from rookery.content.prompt_templates import PromptTemplates
from rookery.content.queued_work import QueuedGenerations
from rookery.content.requests import Generators
from rookery.kernel.db.leases import make_worker_id
from rookery.kernel.metrics import Metrics
from rookery.kernel.runtime import Runtime
from rookery.usage.wiring import UsageServices


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
