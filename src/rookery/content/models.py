"""The types of content generation: generations, batches, prompt templates, budgets and usage. No I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Literal, Self, TypeAlias, get_args

from rookery.access.models import TEST, Actor, Caller, Tenant
from rookery.content.chat import ChatMessage, ChatRequest, SchemaMode, TokenUsage
from rookery.kernel.clock import to_micros
from rookery.kernel.placeholders import TemplateVariable
from rookery.kernel.preconditions import compute_version

JsonObject = Mapping[str, object]

_MONTH_CHARS = 7

WORKSPACE_BUDGET = ""
"""The key of a budget or of a sum that covers the whole workspace."""


class GenerationStatus(StrEnum):
    """The status of a generation. The last three are final."""

    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


OPEN_STATUSES = frozenset({GenerationStatus.QUEUED, GenerationStatus.RUNNING})
"""Statuses that are not final."""


class GenerationMode(StrEnum):
    """The way in which the caller gets the answer: in the response, later by the id, or as server-sent events."""

    SYNC = "sync"
    QUEUED = "queued"
    STREAM = "stream"


@dataclass(frozen=True, slots=True, kw_only=True)
class ContentTenant(Tenant):
    """
    A tenant whose content is generated.

    Attributes:
        key_id: The key that pays; empty for the command line.
    """

    key_id: str = ""

    @classmethod
    def from_caller(cls, caller: Caller) -> Self:
        """Return the tenant of *caller*, whose key pays."""
        return cls(
            workspace_id=caller.workspace_id,
            public_workspace_id=caller.public_workspace_id,
            by=Actor.from_caller(caller),
            key_id=caller.key_id,
        )

    @property
    def is_sandbox(self) -> bool:
        """True if the tenant is a sandbox, whose texts are canned."""
        return self.environment == TEST


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationDraft:
    """
    The input for a new generation. Exactly one of *messages* and *template* is set.

    Attributes:
        template_version: None for the current version.
        variables: The values for the template.
        model, max_tokens, temperature, response_schema: None for those of the template, then for the defaults.
        wants_score: The output is scored when it is complete.
    """

    messages: tuple[ChatMessage, ...] | None = None
    template: str | None = None
    template_version: int | None = None
    variables: JsonObject = field(default_factory=dict[str, object])
    model: str | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    response_schema: JsonObject | None = None
    metadata: JsonObject = field(default_factory=dict[str, object])
    wants_score: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationSummary:
    """
    A generation without its texts.

    Attributes:
        key_id: The key that pays; empty for the command line.
        is_canned: The answer is a fixed text, because a test key asked for it.
        batch_index: The position in the batch, from 0.
        retry_of: The failed generation that this one repeats.
        provider_model: The model as the provider names it.
        reasoning_tokens, cached_tokens: The parts of the output that is reasoning, and of the input that the provider had in its cache.
        cost_nanos: The cost in billionths of the currency; None: the model has no price, or nothing was used.
        currency: The currency of the cost when the call ran; None: it has not run, or it ran before currencies were recorded.
        reserved_nanos: The part of the budgets that is reserved while the call runs, on the day *reserved_on* and in its month.
        attempts: Number of answers that were requested from the provider.
        run_count: Number of times that a process started the call. It bounds the repetitions of queued work.
        latency_ms: Duration of the last call at the provider.
        owner: The worker that runs the call, until *lease_until* at most.
    """

    id: str
    workspace_id: int
    key_id: str
    mode: GenerationMode
    status: GenerationStatus
    is_canned: bool
    batch_id: str | None = None
    batch_index: int | None = None
    retry_of: str | None = None
    model: str
    provider_model: str | None = None
    template: str | None = None
    template_version: int | None = None
    max_tokens: int
    temperature: float | None = None
    metadata: JsonObject = field(default_factory=dict[str, object])
    schema_mode: str | None = None
    finish_reason: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    reasoning_tokens: int = 0
    cached_tokens: int = 0
    is_estimated: bool = False
    cost_nanos: int | None = None
    currency: str | None = None
    reserved_nanos: int = 0
    reserved_on: str | None = None
    attempts: int = 0
    run_count: int = 0
    error_code: str | None = None
    error_message: str | None = None
    latency_ms: float | None = None
    owner: str | None = None
    lease_until: datetime | None = None
    created_at: datetime
    started_at: datetime | None = None
    ended_at: datetime | None = None

    @property
    def is_open(self) -> bool:
        """True until the status is final."""
        return self.status in OPEN_STATUSES


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation(GenerationSummary):
    """
    A generation with its messages and its output. With a schema, the output is JSON.

    Attributes:
        reasoning: What the model wrote before its answer, if it shows it and the operator stores it.
        score: The scores of the output, if *wants_score* and it is complete, as `POST /v1/score/content` returns them.
    """

    messages: tuple[ChatMessage, ...]
    response_schema: JsonObject | None = None
    output: str | None = None
    reasoning: str | None = None
    wants_score: bool = False
    score: JsonObject | None = None

    def to_request(self, *, timeout_s: float) -> ChatRequest:
        """Return the request to the provider."""
        return ChatRequest(
            model=self.model,
            messages=self.messages,
            max_tokens=self.max_tokens,
            temperature=self.temperature,
            response_schema=self.response_schema,
            timeout_s=timeout_s,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationOutcome:
    """
    The end of a call.

    Attributes:
        usage: The tokens that the call used; None if nothing was sent.
    """

    status: GenerationStatus
    latency_ms: float
    usage: TokenUsage | None = None
    text: str | None = None
    reasoning: str | None = None
    finish_reason: str | None = None
    provider_model: str | None = None
    schema_mode: SchemaMode | None = None
    attempts: int = 1
    error_code: str | None = None
    error_message: str | None = None
    score: JsonObject | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationFilter:
    """A filter of generations; None: no filter. *since* is inclusive."""

    status: GenerationStatus | None = None
    mode: GenerationMode | None = None
    model: str | None = None
    template: str | None = None
    key_id: str | None = None
    batch_id: str | None = None
    since: datetime | None = None


BatchStatus: TypeAlias = Literal["running", "finished"]
"""finished: every generation of the batch has ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationBatch:
    """Generations that were queued together. *open_count* of *total* are not final."""

    id: str
    workspace_id: int
    key_id: str
    total: int
    open_count: int
    metadata: JsonObject
    created_at: datetime
    ended_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchView:
    """A batch, the number of its generations by status, and the sums of their usage."""

    batch: GenerationBatch
    counts: Mapping[str, int]
    input_tokens: int
    output_tokens: int
    reasoning_tokens: int
    cached_tokens: int
    is_estimated: bool
    cost_nanos: int
    currency: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptTemplate:
    """
    A prompt template in one version.

    Attributes:
        version: 1 for the first version, then one more for each change.
        messages: The messages, whose texts contain placeholders.
        model, max_tokens, temperature, response_schema: Defaults of requests that name none.
    """

    slug: str
    version: int
    name: str
    description: str
    variables: Mapping[str, TemplateVariable]
    messages: tuple[ChatMessage, ...]
    model: str | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    response_schema: JsonObject | None = None
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptTemplateDraft:
    """The input for a version of a prompt template."""

    name: str
    description: str = ""
    variables: Mapping[str, TemplateVariable] = field(default_factory=dict[str, TemplateVariable])
    messages: tuple[ChatMessage, ...]
    model: str | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    response_schema: JsonObject | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptTemplateVersion:
    """A version of a prompt template, and the time of its creation."""

    version: int
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderedPrompt:
    """A prompt template with its variables filled in."""

    template: PromptTemplate
    messages: tuple[ChatMessage, ...]
    estimated_input_tokens: int


BudgetPeriod: TypeAlias = Literal["day", "month"]
"""The time for which a budget holds: a day or a calendar month, both in UTC."""

BUDGET_PERIODS: tuple[BudgetPeriod, ...] = get_args(BudgetPeriod)


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetOverride:
    """
    A budget of a holder, in place of the setting.

    Attributes:
        holder: Who may spend it: a key, or `WORKSPACE_BUDGET` for all keys of the workspace together.
        limit_nanos: None: no limit.
    """

    workspace_id: int
    holder: str
    period: BudgetPeriod
    limit_nanos: int | None
    updated_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Spending:
    """The spending of a holder in one span: a day such as 2026-11-23, or a month such as 2026-11."""

    workspace_id: int
    holder: str
    span: str
    reserved_nanos: int = 0
    spent_nanos: int = 0

    @property
    def total_nanos(self) -> int:
        """The amount that new calls cannot use."""
        return self.spent_nanos + self.reserved_nanos


@dataclass(frozen=True, slots=True, kw_only=True)
class CostOverrun:
    """
    The excess of the costs of a model's calls over their estimates, because the provider bills more than their texts.

    Attributes:
        factor_millis: The greatest ratio of cost to estimate, in thousandths.
        extra_nanos: The greatest difference of cost and estimate.
    """

    workspace_id: int
    model: str
    factor_millis: int
    extra_nanos: int
    updated_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class CallReservation:
    """
    The reserved cost of a running call that is no stored generation.

    Attributes:
        day: The day of the reservation. It counts in its month too.
        amount_nanos: 0: the model has no price.
    """

    id: str
    workspace_id: int
    key_id: str
    day: str
    amount_nanos: int
    owner: str
    lease_until: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class PeriodBudget:
    """
    A budget of one period and its spending.

    Attributes:
        source: `setting` for the default of the operator, `override` for a value set for this workspace or key.
        limit_nanos: None: no limit.
    """

    source: Literal["setting", "override"]
    limit_nanos: int | None
    spent_nanos: int
    reserved_nanos: int
    resets_at: datetime

    @property
    def left_nanos(self) -> int | None:
        """The amount that calls can still use in this period; None: no limit."""
        return None if self.limit_nanos is None else max(0, self.limit_nanos - self.spent_nanos - self.reserved_nanos)


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetStatus:
    """
    The budgets of a workspace or a key, with their spending.

    Attributes:
        key_id: The key; None for the budget of the workspace.
        key_name: Its name; None for the budget of the workspace, or if the key was deleted.
    """

    key_id: str | None
    key_name: str | None
    currency: str
    periods: Mapping[BudgetPeriod, PeriodBudget]

    @property
    def version(self) -> str:
        """The version of the limits, for ETags. The spending is not part of it."""
        limits = [(period, budget.source, budget.limit_nanos) for period, budget in self.periods.items()]
        return compute_version(self.key_id, *(value for limit in limits for value in limit))


def span_of(period: BudgetPeriod, day: str) -> str:
    """Return the span of *period* that contains *day*: the day itself, or its month such as 2026-11."""
    return day if period == "day" else day[:_MONTH_CHARS]


def end_of_span(period: BudgetPeriod, moment: datetime) -> datetime:
    """Return the midnight in UTC at which the budgets of *period* start again after *moment*."""
    midnight = moment.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return midnight + timedelta(days=1) if period == "day" else (midnight.replace(day=1) + timedelta(days=32)).replace(day=1)


def template_etag(template: PromptTemplate) -> str:
    """Return the version of a template for ETags. A template that was deleted and created again differs."""
    return compute_version(template.slug, template.version, to_micros(template.created_at))


def messages_to_json(messages: Sequence[ChatMessage]) -> list[dict[str, str]]:
    return [{"role": message.role, "content": message.content} for message in messages]
