"""The types of content generation: generations, batches, prompt templates, budgets and usage. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Annotated, Literal, Self, TypeAlias, get_args

import orjson
from pydantic import AfterValidator, Field

from rookery.access.models import TEST, Actor, Caller, Tenant
from rookery.content.chat import ChatMessage, ChatRequest, SchemaMode, TokenUsage
from rookery.kernel.clock import to_micros
from rookery.kernel.placeholders import TemplateVariable
from rookery.kernel.preconditions import compute_version
from rookery.kernel.schema import NotBlank

JsonObject = Mapping[str, object]

_MAX_TOKENS = 1_000_000
_MAX_METADATA_BYTES = 16 * 1024
_MAX_SCHEMA_BYTES = 64 * 1024
_MONTH_CHARS = 7

WORKSPACE_BUDGET = ""
"""The key of a budget or of a sum that covers the whole workspace."""


def _require_size(value: JsonObject, limit: int) -> JsonObject:
    if len(orjson.dumps(value)) > limit:
        msg = f"must have at most {limit:,} bytes as JSON"
        raise ValueError(msg)
    return value


PromptTemplateSlug = Annotated[
    str,
    Field(
        pattern=r"^[a-z0-9](?:[a-z0-9-]{0,62}[a-z0-9])?$",
        description="The name of the template in URLs: lower-case letters, digits and hyphens.",
        examples=["release-note"],
    ),
]
TemplateVersionNumber = Annotated[int, Field(ge=1, le=2**53, description="A version of the template. Default: the current one.")]
PromptVariables = Annotated[
    JsonObject,
    Field(max_length=200, description="Values by variable name. Variables with a default can be omitted.", examples=[{"product": "tea"}]),
]
PromptModel = Annotated[
    str,
    Field(
        min_length=1, max_length=200, pattern=r"^[!-~]+$", description="The model, by its name at the provider.", examples=["gpt-5-mini"]
    ),
]
MaxTokens = Annotated[int, Field(ge=1, le=_MAX_TOKENS, description="Maximum tokens of the answer. Default: 1,024.")]
Temperature = Annotated[float, Field(ge=0, le=2, description="0 for the most likely words, higher for more variety.")]
AnswerSchema = Annotated[
    JsonObject,
    Field(description="A JSON schema. The answer is JSON that matches it."),
    AfterValidator(lambda schema: _require_size(schema, _MAX_SCHEMA_BYTES)),
]
GenerationMetadata = Annotated[
    JsonObject,
    Field(description="Your own data about the request, as JSON of at most 16 KiB."),
    AfterValidator(lambda metadata: _require_size(metadata, _MAX_METADATA_BYTES)),
]


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
        model, max_tokens, temperature, response_schema: None for those of the template, then for the defaults.
    """

    messages: tuple[ChatMessage, ...] | None = None
    template: PromptTemplateSlug | None = None
    template_version: TemplateVersionNumber | None = None
    variables: PromptVariables = field(default_factory=dict[str, object])
    model: PromptModel | None = None
    max_tokens: MaxTokens | None = None
    temperature: Temperature | None = None
    response_schema: Annotated[AnswerSchema | None, Field(alias="schema")] = None
    metadata: GenerationMetadata = field(default_factory=dict[str, object])
    wants_score: Annotated[
        bool, Field(alias="score", description="Score the output as the answer to the messages, offline. Needs the scope score:read.")
    ] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationSummary:
    """
    A generation without its texts.

    Attributes:
        key_id: The key that pays; empty for the command line.
        is_canned: The answer is a fixed text, because a test key asked for it.
        batch_index: The position in the batch, from 0.
        reasoning_tokens, cached_tokens: The parts of the output that is reasoning, and of the input that the provider had in its cache.
        cost_nanos: The cost in billionths of the currency; None: the model has no price, or nothing was used.
        reserved_nanos: The part of the budgets that is reserved while the call runs, on the day *reserved_on* and in its month.
        run_count: Number of times that a process started the call. It bounds the repetitions of queued work.
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
    retry_of: Annotated[str | None, Field(description="The generation that this one repeats.")] = None
    model: str
    provider_model: Annotated[str | None, Field(description="The model as the provider names it.")] = None
    template: str | None = None
    template_version: int | None = None
    max_tokens: int
    temperature: float | None = None
    metadata: JsonObject = field(default_factory=dict[str, object])
    schema_mode: str | None = None
    finish_reason: Annotated[str | None, Field(description="The provider's reason, such as stop or length.")] = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    reasoning_tokens: int = 0
    cached_tokens: int = 0
    is_estimated: bool = False
    cost_nanos: int | None = None
    currency: Annotated[
        str | None, Field(description="The currency of the cost, a code of ISO 4217; null before the call has run.", examples=["USD"])
    ] = None
    reserved_nanos: int = 0
    reserved_on: str | None = None
    attempts: Annotated[int, Field(description="Answers that were requested from the provider.")] = 0
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
class PromptTemplateDraft:
    """
    The input for a version of a prompt template. The texts of its messages contain placeholders.

    Attributes:
        model, max_tokens, temperature, response_schema: Defaults of requests that name none.
    """

    slug: PromptTemplateSlug
    name: Annotated[str, Field(min_length=1, max_length=200, description="The name of the template.", examples=["Release note"]), NotBlank]
    description: Annotated[str, Field(max_length=2_000, description="When to use it.")] = ""
    variables: Mapping[str, TemplateVariable] = field(default_factory=dict[str, TemplateVariable])
    messages: tuple[ChatMessage, ...]
    model: PromptModel | None = None
    max_tokens: MaxTokens | None = None
    temperature: Temperature | None = None
    response_schema: Annotated[AnswerSchema | None, Field(alias="schema")] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptTemplate(PromptTemplateDraft):
    """A prompt template in one version: 1 for the first one, then one more for each change."""

    version: int
    created_at: datetime
    updated_at: Annotated[datetime, Field(description="The time at which this version was created.")]


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
