"""Request and response models of content generation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Annotated, Any, Literal, Self

import orjson
from pydantic import Field, model_validator

from rookery.content.batches import MAX_BATCH_SIZE
from rookery.content.chat import MAX_MESSAGES, MAX_PROMPT_CHARS, ChatMessage, Role
from rookery.content.models import (
    BUDGET_PERIODS,
    BatchStatus,
    BatchView,
    BudgetPeriod,
    BudgetStatus,
    ContentTenant,
    Generation,
    GenerationDraft,
    GenerationFilter,
    GenerationMetadata,
    GenerationMode,
    GenerationStatus,
    GenerationSummary,
    PeriodBudget,
    PromptTemplate,
    PromptTemplateDraft,
    PromptVariables,
    TemplateVersionNumber,
)
from rookery.kernel.money import from_amount, to_amount
from rookery.kernel.placeholders import NAME_PATTERN, TemplateVariable, VariableType
from rookery.kernel.projections import Body, Projection
from rookery.kernel.schema import OMITTED_IF_NONE, PageQuery, PatchModel, QueryModel, RequestModel, ResponseModel, Timestamp, enum_schema
from rookery.kernel.unset import UNSET
from rookery.kernel.variables import MAX_PATTERN_LENGTH
from rookery.usage.models import LedgerFilter, NamedUsage

_MAX_DAILY = 1_000_000.0
_MAX_MONTHLY = 31 * _MAX_DAILY
_MAX_ID_LENGTH = 100

Prompt = Annotated[
    str,
    Field(
        min_length=1,
        max_length=MAX_PROMPT_CHARS,
        description="The prompt: one message of the user.",
        examples=["Write a haiku about rooks."],
    ),
]


class MessageBody(Body[ChatMessage]):
    """A message of the conversation."""

    role: Annotated[Role, Field(description="The speaker of the message.")]
    content: Annotated[str, Field(max_length=MAX_PROMPT_CHARS, description="The text.")]


Messages = Annotated[
    list[MessageBody], Field(min_length=1, max_length=MAX_MESSAGES, description="The conversation. The last message is usually the user's.")
]


def _to_messages(prompt: str | None, bodies: Sequence[MessageBody] | None) -> tuple[ChatMessage, ...] | None:
    if prompt is not None:
        return (ChatMessage(role="user", content=prompt),)
    return None if bodies is None else tuple(body.to_model() for body in bodies)


class GenerationRequestBody(Body[GenerationDraft]):
    """A generation: exactly one of `prompt`, `messages` and `template`."""

    prompt: Prompt | None = None
    messages: Messages | None = None

    @model_validator(mode="after")
    def _require_one_source(self) -> Self:
        sources = [name for name in ("prompt", "messages", "template") if getattr(self, name) is not None]
        if len(sources) != 1:
            suffix = f"; it has {' and '.join(sources)}" if sources else ""
            msg = f"must have exactly one of prompt, messages and template{suffix}"
            raise ValueError(msg)
        draft = self.to_model()
        if draft.template is None and (draft.variables or draft.template_version is not None):
            msg = "variables and template_version need a template"
            raise ValueError(msg)
        return self

    def to_model(self, **others: object) -> GenerationDraft:
        return super().to_model(messages=_to_messages(self.prompt, self.messages), **others)


class NewGenerationBody(GenerationRequestBody):
    """A generation and the way to get its answer."""

    mode: Annotated[
        GenerationMode,
        enum_schema(GenerationMode, "sync: in the response. queued: later, by the id. stream: as server-sent events."),
        Field(strict=False),
    ] = GenerationMode.SYNC


class NewBatchBody(RequestModel):
    """A batch of generations."""

    requests: Annotated[list[GenerationRequestBody], Field(min_length=1, max_length=MAX_BATCH_SIZE, description="The generations.")]
    metadata: GenerationMetadata = Field(default_factory=dict[str, object])


class GenerationsQuery(PageQuery):
    """Filters of the list of generations."""

    status: Annotated[GenerationStatus | None, Field(description="Only generations with this status.")] = None
    mode: Annotated[GenerationMode | None, Field(description="Only generations in this mode.")] = None
    model: Annotated[str | None, Field(max_length=200, description="Only generations by this model.")] = None
    template: Annotated[str | None, Field(max_length=64, description="Only generations from this template.")] = None
    key_id: Annotated[str | None, Field(max_length=_MAX_ID_LENGTH, description="Only generations of this key.")] = None
    batch_id: Annotated[str | None, Field(max_length=_MAX_ID_LENGTH, description="Only generations of this batch.")] = None
    since: Annotated[Timestamp | None, Field(description="Only generations created at this time or later.")] = None

    def to_filter(self) -> GenerationFilter:
        fields: dict[str, Any] = {name: getattr(self, name) for name in GenerationsQuery.model_fields if name not in PageQuery.model_fields}
        return GenerationFilter(**fields)


class ContentUsageQuery(PageQuery):
    """Filters of usage."""

    key_id: Annotated[str | None, Field(max_length=_MAX_ID_LENGTH, description="Only usage by this key.")] = None
    model: Annotated[str | None, Field(max_length=200, description="Only usage of this model.")] = None
    since: Annotated[date | None, Field(description="Only this day or later, in UTC.")] = None
    until: Annotated[date | None, Field(description="Only this day or earlier, in UTC.")] = None

    def to_filter(self, tenant: ContentTenant) -> LedgerFilter:
        return LedgerFilter(
            tenants=[tenant.workspace_id],
            since=self.since or date.min,
            until=self.until or date.max,
            key_id=self.key_id,
            model=self.model,
        )


class PromptTemplatesQuery(PageQuery):
    """The search in the list of prompt templates."""

    q: Annotated[str | None, Field(min_length=1, max_length=100, description="A part of the slug or the name.")] = None


class GenerationBatchesQuery(PageQuery):
    """Filters of the list of batches."""

    status: Annotated[BatchStatus | None, Field(description="Only batches in this state.")] = None


class BudgetsQuery(PageQuery):
    """The search in the list of budgets."""

    q: Annotated[str | None, Field(min_length=1, max_length=100, description="A part of the name of the key.")] = None


class BudgetPeriodQuery(QueryModel):
    """The budget to remove."""

    period: Annotated[BudgetPeriod | None, Field(description="day: the daily budget. month: the monthly one. By default both.")] = None

    def to_periods(self) -> Sequence[BudgetPeriod]:
        return BUDGET_PERIODS if self.period is None else (self.period,)


class TemplateVersionQuery(QueryModel):
    """The version of a template."""

    version: TemplateVersionNumber | None = None


class GenerationOutput(ResponseModel):
    """The answer."""

    text: Annotated[str | None, Field(description="The answer as text. With a schema: its JSON.")]
    json_: Annotated[object, Field(serialization_alias="json", description="The answer as a JSON value, if the request has a schema.")] = (
        None
    )
    reasoning: Annotated[
        str | None,
        OMITTED_IF_NONE,
        Field(description="The text that the model wrote before its answer, if it shows it, at most 100,000 characters."),
    ] = None


class GenerationTokens(ResponseModel):
    """The tokens that all calls of the generation used."""

    input_tokens: int
    output_tokens: Annotated[int, Field(description="The billed tokens of the answer and of the reasoning.")]
    reasoning_tokens: Annotated[
        int | None, OMITTED_IF_NONE, Field(description="The part of the output tokens that is reasoning, if the provider reports it.")
    ] = None
    cached_tokens: Annotated[
        int | None,
        OMITTED_IF_NONE,
        Field(description="The part of the input tokens that the provider had in its cache, if it reports it."),
    ] = None
    is_estimated: Annotated[bool, Field(description="The provider did not report all of it, so it was computed from the texts.")]


class GenerationFailure(ResponseModel):
    """The reason for a status of failed or cancelled."""

    code: Annotated[str, Field(description="A code, such as provider_unavailable, budget_exhausted or client_disconnected.")]
    message: str


class GenerationTemplate(ResponseModel):
    """The template and its version."""

    slug: str
    version: int


class GenerationItem(ResponseModel):
    """A generation without its messages and its output."""

    id: str
    mode: GenerationMode
    status: GenerationStatus
    canned: Annotated[bool, Field(description="True: the answer is a fixed text, because a test key asked for it.")]
    model: str
    provider_model: Annotated[str | None, Field(description="The model as the provider names it.")]
    template: GenerationTemplate | None
    max_tokens: int
    temperature: float | None
    schema_mode: Annotated[
        Literal["json_schema", "json_object", "prompt"] | None,
        Field(description="The way in which JSON was requested from the provider; null without a schema."),
    ]
    finish_reason: Annotated[str | None, Field(description="The provider's reason, such as stop or length.")]
    usage: GenerationTokens | None
    cost: Annotated[float | None, Field(description="The cost in `currency`; null: the model has no price.")]
    currency: Annotated[
        str | None, Field(description="The currency of the cost, a code of ISO 4217; null before the call has run.", examples=["USD"])
    ]
    attempts: Annotated[int, Field(description="Answers that were requested from the provider.")]
    error: GenerationFailure | None
    latency_ms: Annotated[float | None, Field(description="Duration of the last call at the provider.")]
    metadata: dict[str, object]
    key_id: Annotated[str | None, Field(description="The key that pays; null: the command line.")]
    batch_id: str | None
    index: Annotated[int | None, Field(description="The position in the batch, from 0.")]
    retry_of: Annotated[str | None, Field(description="The generation that this one repeats.")]
    created_at: Timestamp
    started_at: Timestamp | None
    ended_at: Timestamp | None


class MessageResponse(Projection[ChatMessage]):
    """A message of the conversation."""

    role: str


class GenerationResponse(GenerationItem):
    """A generation with its messages and its output."""

    messages: list[MessageResponse]
    response_schema: Annotated[dict[str, object] | None, Field(serialization_alias="schema")]
    output: Annotated[GenerationOutput | None, Field(description="The answer, as far as there is one.")]
    score: Annotated[
        dict[str, object] | None,
        OMITTED_IF_NONE,
        Field(description="The scores of the output, if the request had `score`, as POST /v1/score/content returns them."),
    ] = None


class BatchCounts(ResponseModel):
    """The number of generations by status."""

    queued: int
    running: int
    succeeded: int
    failed: int
    cancelled: int


class GenerationBatchResponse(ResponseModel):
    """A batch."""

    id: str
    status: Annotated[BatchStatus, Field(description="finished: every generation has ended.")]
    total: int
    counts: BatchCounts
    usage: GenerationTokens
    cost: Annotated[float, Field(description="The cost so far in `currency`.")]
    currency: Annotated[str | None, Field(description="The currency of the cost; null before a call has run.", examples=["USD"])]
    metadata: dict[str, object]
    key_id: str | None
    created_at: Timestamp
    ended_at: Timestamp | None


class PromptVariableBody(Body[TemplateVariable]):
    """A variable of a template. Without a default it is required, unless `required` is false."""

    description: Annotated[str, Field(max_length=1_000, description="What value to give.")] = ""
    type: Annotated[VariableType, Field(description="The type of the value.")] = "string"
    required: Annotated[bool | None, Field(description="Whether a value is required. Default: true if there is no default.")] = None
    default: Annotated[object, Field(description="The value if none is given.")] = None
    enum: Annotated[list[object] | None, Field(min_length=1, max_length=100, description="The allowed values.")] = None
    pattern: (
        Annotated[str, Field(min_length=1, max_length=MAX_PATTERN_LENGTH, description="An RE2 pattern that the whole string must match.")]
        | None
    ) = None

    def to_model(self, **others: object) -> TemplateVariable:
        required = self.default is None if self.required is None else self.required
        return super().to_model(required=required, enum=None if self.enum is None else tuple(self.enum), **others)


class PromptTemplateFields(Body[PromptTemplateDraft]):
    """A template without its slug. `{{ name }}` in a message is replaced by the variable `name`."""

    hidden = frozenset({"slug"})

    variables: Annotated[
        dict[Annotated[str, Field(pattern=f"^{NAME_PATTERN}$")], PromptVariableBody],
        Field(max_length=50, description="The variables by name."),
    ] = Field(default_factory=dict[str, PromptVariableBody])
    prompt: Annotated[Prompt | None, Field(description="The message of the user, in place of `messages`.")] = None
    messages: Messages | None = None

    @model_validator(mode="after")
    def _require_one_text(self) -> Self:
        if (self.prompt is None) == (self.messages is None):
            msg = "must have exactly one of prompt and messages"
            raise ValueError(msg)
        return self

    def to_model(self, **others: object) -> PromptTemplateDraft:
        variables = {name: variable.to_model() for name, variable in self.variables.items()}
        return super().to_model(messages=_to_messages(self.prompt, self.messages), variables=variables, **others)


class NewPromptTemplateBody(PromptTemplateFields):
    """A new template."""

    hidden = frozenset()


class PromptPreviewBody(RequestModel):
    """The values to fill in."""

    variables: PromptVariables = Field(default_factory=dict[str, object])
    version: TemplateVersionNumber | None = None


class PromptVariableResponse(Projection[TemplateVariable]):
    """A variable of a template."""

    default: object
    enum: list[object] | None


class PromptTemplateResponse(Projection[PromptTemplate]):
    """A template in one version."""

    variables: dict[str, PromptVariableResponse]
    messages: list[MessageResponse]


class PromptTemplateVersionResponse(ResponseModel):
    """A version of a template."""

    version: int
    created_at: Timestamp


class RenderedPromptResponse(ResponseModel):
    """The messages of a template with its variables filled in."""

    slug: str
    version: int
    messages: list[MessageResponse]
    estimated_input_tokens: int


DailyLimit = Annotated[float, Field(ge=0, le=_MAX_DAILY, description="The limit per day in `currency`; null: no limit.")]
MonthlyLimit = Annotated[float, Field(ge=0, le=_MAX_MONTHLY, description="The limit per calendar month in `currency`; null: no limit.")]


class BudgetBody(PatchModel):
    """The budgets to set, one or both. The other one stays as it is."""

    daily: DailyLimit | UNSET | None = UNSET
    monthly: MonthlyLimit | UNSET | None = UNSET

    @model_validator(mode="after")
    def _require_one(self) -> Self:
        if self.daily is UNSET and self.monthly is UNSET:
            msg = "must have daily, monthly or both"
            raise ValueError(msg)
        return self

    def to_limits(self) -> dict[BudgetPeriod, int | None]:
        """Return the limits that the body has, in billionths."""
        limits: dict[BudgetPeriod, float | UNSET | None] = {"day": self.daily, "month": self.monthly}
        return {period: None if limit is None else from_amount(limit) for period, limit in limits.items() if limit is not UNSET}


BudgetSource = Annotated[Literal["setting", "override"], Field(description="setting: the operator's default. override: set for this one.")]


class MonthBudgetResponse(ResponseModel):
    """A monthly budget in the present month."""

    source: BudgetSource
    spent: Annotated[float, Field(description="The cost of the finished calls of this month.")]
    reserved: Annotated[float, Field(description="The highest possible cost of the calls in progress.")]
    left: Annotated[float | None, Field(description="The rest that new calls can use; null: no limit.")]
    resets_at: Annotated[Timestamp, Field(description="The first midnight of the next month in UTC.")]


class BudgetResponse(ResponseModel):
    """The daily and the monthly budget of the workspace or of a key, and what is used of them. All amounts are in `currency`."""

    scope: Literal["workspace", "key"]
    key_id: str | None
    key_name: Annotated[str | None, Field(description="The name of the key; null for the workspace, or if the key was deleted.")]
    currency: Annotated[str, Field(description="The currency of the amounts, a code of ISO 4217.", examples=["USD"])]
    source: BudgetSource
    daily: Annotated[float | None, Field(description="The limit per day; null: no limit.")]
    spent: Annotated[float, Field(description="The cost of today's finished calls.")]
    reserved: Annotated[float, Field(description="The highest possible cost of the calls in progress.")]
    left: Annotated[float | None, Field(description="The rest that new calls can use; null: no limit.")]
    resets_at: Annotated[Timestamp, Field(description="The next midnight in UTC.")]
    monthly: Annotated[float | None, Field(description="The limit per calendar month; null: no limit.")]
    month: MonthBudgetResponse


class ContentUsageResponse(ResponseModel):
    """The usage of one model by one key on one day."""

    day: date
    key_id: str | None
    key_name: Annotated[str | None, Field(description="The name of the key, also if it was deleted.")]
    model: str
    requests: Annotated[int, Field(description="Generations and judge calls that ended.")]
    succeeded: int
    failed: int
    cancelled: int
    input_tokens: int
    output_tokens: Annotated[int, Field(description="The billed tokens of answers and of reasoning.")]
    reasoning_tokens: Annotated[int, Field(description="The part of the output tokens that is reasoning, as far as providers report it.")]
    cached_tokens: Annotated[int, Field(description="The part of the input tokens from caches of providers, as far as they report it.")]
    cost: float
    currency: Annotated[str, Field(description="The currency of the cost.", examples=["USD"])]


class DeltaEvent(ResponseModel):
    """A piece of the answer, or of the reasoning."""

    text: str


def serialize_summary(generation: GenerationSummary) -> GenerationItem:
    """Return a generation without its texts."""
    return GenerationItem.from_parts(generation, **_common_fields(generation))


class ScoredGenerationResponse(ResponseModel):
    """The scores of the output of a generation."""

    generation_id: str
    score: Annotated[dict[str, object], Field(description="The scores, as POST /v1/score/content returns them.")]


def serialize_generation(generation: Generation) -> GenerationResponse:
    return GenerationResponse.from_parts(
        generation,
        **_common_fields(generation),
        output=None if generation.output is None else _serialize_output(generation),
    )


def serialize_batch(view: BatchView) -> GenerationBatchResponse:
    """Return a batch with its counts."""
    tokens = _serialize_tokens(view, view.input_tokens, view.output_tokens)
    return GenerationBatchResponse.from_parts(
        view.batch,
        status="running" if view.batch.ended_at is None else "finished",
        counts=view.counts,
        usage=tokens,
        cost=to_amount(view.cost_nanos),
        currency=view.currency,
        key_id=view.batch.key_id or None,
    )


def serialize_budget(status: BudgetStatus) -> BudgetResponse:
    """Return the budgets of a workspace or of a key."""
    day, month = (_to_budget_fields(status.periods[period]) for period in BUDGET_PERIODS)
    return BudgetResponse.from_parts(
        status,
        scope="workspace" if status.key_id is None else "key",
        **{"daily" if name == "limit" else name: value for name, value in day.items()},
        monthly=month["limit"],
        month=MonthBudgetResponse.from_parts(**{name: value for name, value in month.items() if name != "limit"}),
    )


def serialize_usage(usage: NamedUsage) -> ContentUsageResponse:
    """Return the usage of a day, a key and a model."""
    group, sums = usage.group, usage.group.sums
    return ContentUsageResponse.from_parts(
        group,
        sums,
        key_id=group.key_id or None,
        key_name=usage.key_name,
        requests=sums.calls,
        cached_tokens=sums.cached_input_tokens,
        succeeded=sums.calls - sums.failed - sums.cancelled,
        cost=to_amount(sums.cost_nanos),
    )


def _to_budget_fields(budget: PeriodBudget) -> Mapping[str, object]:
    return {
        "source": budget.source,
        "limit": _to_optional_amount(budget.limit_nanos),
        "spent": to_amount(budget.spent_nanos),
        "reserved": to_amount(budget.reserved_nanos),
        "left": _to_optional_amount(budget.left_nanos),
        "resets_at": budget.resets_at,
    }


def _common_fields(generation: GenerationSummary) -> Mapping[str, object]:
    input_tokens, output_tokens, code = generation.input_tokens, generation.output_tokens, generation.error_code
    usage = None
    if input_tokens is not None and output_tokens is not None:
        usage = _serialize_tokens(generation, input_tokens, output_tokens)
    template = None
    if generation.template is not None and generation.template_version is not None:
        template = GenerationTemplate(slug=generation.template, version=generation.template_version)
    return {
        "canned": generation.is_canned,
        "template": template,
        "usage": usage,
        "cost": _to_optional_amount(generation.cost_nanos),
        "error": None if code is None else GenerationFailure(code=code, message=generation.error_message or ""),
        "latency_ms": None if generation.latency_ms is None else round(generation.latency_ms, 1),
        "key_id": generation.key_id or None,
        "index": generation.batch_index,
    }


def _serialize_tokens(source: GenerationSummary | BatchView, input_tokens: int, output_tokens: int) -> GenerationTokens:
    return GenerationTokens(
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        reasoning_tokens=source.reasoning_tokens or None,
        cached_tokens=source.cached_tokens or None,
        is_estimated=source.is_estimated,
    )


def _serialize_output(generation: Generation) -> GenerationOutput:
    text = generation.output or ""
    is_json = generation.response_schema is not None and generation.status is GenerationStatus.SUCCEEDED
    return GenerationOutput(text=text, json_=orjson.loads(text) if is_json else None, reasoning=generation.reasoning)


def _to_optional_amount(nanos: int | None) -> float | None:
    return None if nanos is None else to_amount(nanos)
