"""Request and response models of session events and hand-offs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, Self, cast

from pydantic import AfterValidator, AliasPath, BeforeValidator, Field, model_validator

from rookery.agents.models.plans import require_size
from rookery.agents.models.sessions import (
    MAX_SUMMARY_LENGTH,
    Handoff,
    NewSessionEvent,
    Object,
    PreviousSessionState,
    SessionEvent,
    SessionEventType,
    SessionNotes,
    TokenReport,
)
from rookery.kernel.errors import ValidationFailed
from rookery.kernel.money import from_amount, to_amount
from rookery.kernel.projections import Body, Projection
from rookery.kernel.schema import OMITTED_IF_NONE, PageQuery, QueryModel, RequestModel, ResponseModel, Timestamp, enum_schema

MAX_STATE_BYTES = 256 * 1024
"""Maximum size of the state of a checkpoint as JSON, in bytes."""

_MAX_TOKENS = 1_000_000_000
_MAX_COST = 1_000_000.0


def _limit_state(value: dict[str, object]) -> dict[str, object]:
    require_size(MAX_STATE_BYTES, value)
    return value


State = Annotated[
    dict[str, object],
    AfterValidator(_limit_state),
    Field(description="The state of a checkpoint, from which the work can continue: any JSON object, at most 256 KiB."),
]


SessionEventName = Annotated[SessionEventType, enum_schema(SessionEventType), Field(strict=False)]


class TokensBody(RequestModel):
    """The model tokens used since the last report. The report of usage adds them up by agent and model."""

    input: Annotated[int, Field(ge=0, le=_MAX_TOKENS, description="Input tokens, with those from a cache.")] = 0
    output: Annotated[int, Field(ge=0, le=_MAX_TOKENS, description="Output tokens, with those of reasoning.")] = 0
    cached_input: Annotated[int, Field(ge=0, le=_MAX_TOKENS, description="The part of `input` that came from a cache.")] = 0
    model: Annotated[str, Field(min_length=1, max_length=200, description="The model that used them.")] | None = None
    cost: Annotated[float | None, Field(ge=0, le=_MAX_COST, description="The cost, if you know it. Default: the price of the model.")] = (
        None
    )
    currency: Annotated[str | None, Field(pattern=r"^[A-Z]{3}$", description="The currency of the cost: that of the server.")] = None

    @model_validator(mode="after")
    def _require_consistent(self) -> Self:
        if self.cached_input > self.input:
            msg = f"cached_input is a part of input, so it must be at most {self.input}"
            raise ValueError(msg)
        if self.currency is not None and self.cost is None:
            msg = "currency needs a cost"
            raise ValueError(msg)
        return self

    def to_report(self) -> TokenReport:
        return TokenReport(
            input=self.input,
            output=self.output,
            cached_input=self.cached_input,
            model=self.model,
            cost_nanos=None if self.cost is None else from_amount(self.cost),
            currency=self.currency,
        )


class EventBody(RequestModel):
    """An event to append to a session."""

    type: Annotated[SessionEventName, Field(description="The type of the event.")] = SessionEventType.NOTE
    message: Annotated[str, Field(max_length=50_000, description="A description in words.")] = ""
    data: Annotated[Object, Field(description="Structured data of the event: a JSON object, at most 64 KiB.")] | None = None
    state: State | None = None
    task_id: Annotated[str, Field(min_length=1, max_length=100, description="The task that the event is about.")] | None = None
    tokens: TokensBody | None = None

    def to_new_event(self) -> NewSessionEvent:
        """
        Return the event.

        Raises:
            ValidationFailed: A checkpoint has no state, another type has one, or the event has no message, data, state or tokens.
        """
        errors: dict[str, list[str]] = {}
        if self.type is SessionEventType.CHECKPOINT and self.state is None:
            errors["state"] = ["is required for events of type checkpoint"]
        if self.type is not SessionEventType.CHECKPOINT and self.state is not None:
            errors["state"] = ["is only allowed for events of type checkpoint"]
        if not self.message and not self.data and self.state is None and self.tokens is None:
            errors["message"] = ["is required if there is no data and no tokens"]
        if errors:
            raise ValidationFailed(errors)
        return NewSessionEvent(
            type=self.type,
            message=self.message,
            data=self.data or {},
            state=self.state,
            task_id=self.task_id,
            tokens=TokenReport() if self.tokens is None else self.tokens.to_report(),
        )


class SessionEventsQuery(PageQuery):
    """Filters of the list of session events."""

    after: Annotated[int, Field(ge=0, le=2**53, description="Only events with a greater seq.")] = 0
    type: Annotated[SessionEventName | None, Field(description="Only events of this type.")] = None


class SessionStreamQuery(QueryModel):
    """The start of a stream."""

    after: Annotated[
        int, Field(ge=0, le=2**53, description="Start after the event with this seq. The header Last-Event-ID takes precedence.")
    ] = 0


class TokensResponse(ResponseModel):
    """The model tokens that the agent reported. Fields that it did not report are omitted."""

    input: int
    output: int
    cached_input: Annotated[int | None, OMITTED_IF_NONE, Field(description="The part of `input` that came from a cache.")] = None
    model: Annotated[str | None, OMITTED_IF_NONE] = None
    cost: Annotated[float | None, OMITTED_IF_NONE, Field(description="The cost that the agent reported.")] = None
    currency: Annotated[str | None, OMITTED_IF_NONE, Field(description="The currency of the cost.")] = None


def _to_tokens(value: object) -> object:
    if not isinstance(value, TokenReport):
        return value
    return TokensResponse(
        input=value.input,
        output=value.output,
        cached_input=value.cached_input or None,
        model=value.model,
        cost=None if value.cost_nanos is None else to_amount(value.cost_nanos),
        currency=value.currency,
    )


class SessionEventResponse(Projection[SessionEvent]):
    """An event of a session."""

    hidden = frozenset({"workspace_id"})

    type: SessionEventName
    tokens: Annotated[TokensResponse, BeforeValidator(_to_tokens)]


class LastCheckpointResponse(SessionEventResponse):
    """The last checkpoint of all sessions on the plan, or of the resumed session."""

    agent_id: str | None
    age_s: Annotated[float, Field(description="Seconds since it was created.")]


def to_session_event_response(event: SessionEvent) -> SessionEventResponse:
    return SessionEventResponse.model_validate(event, from_attributes=True)


def to_session_checkpoint_response(previous: PreviousSessionState) -> LastCheckpointResponse | None:
    """Return the response for the checkpoint to continue from, or None."""
    if previous.checkpoint is None:
        return None
    fields = dict(to_session_event_response(previous.checkpoint))
    return LastCheckpointResponse.model_construct(None, **fields, agent_id=previous.checkpoint_agent_id, age_s=previous.checkpoint_age_s)


def _has_content(value: object) -> bool:
    if isinstance(value, str):
        return bool(value.strip())
    if isinstance(value, tuple):
        return any(_has_content(item) for item in cast("tuple[object, ...]", value))
    return bool(value)


def _to_notes(value: object) -> object:
    """Convert a string to a hand-off with only a summary."""
    return {"summary": value} if isinstance(value, str) else value


class NotesBody(Body[SessionNotes]):
    """A hand-off: the information for the next session, in at least one field. A list of one sentence can be sent as a string."""

    resets_by_null = True

    @model_validator(mode="after")
    def _has_content(self) -> Self:
        fields = type(self).model_fields
        if not any(_has_content(getattr(self, name)) for name in fields):
            msg = f"must not be empty; fill at least one of {', '.join(fields)}"
            raise ValueError(msg)
        return self


_SummaryText = Annotated[str, Field(min_length=1, max_length=MAX_SUMMARY_LENGTH)]
HandoffNotesInput = Annotated[NotesBody, BeforeValidator(_to_notes, json_schema_input_type=_SummaryText | NotesBody)]
"""A hand-off in a request: an object, or only its summary as a string."""


def _from_notes(name: str) -> object:
    """Return the annotation of a field that is read from the notes of the hand-off."""
    return Field(validation_alias=AliasPath("notes", name))


class HandoffResponse(ResponseModel):
    """A hand-off with its delivery."""

    session_id: str
    agent_id: str
    summary: Annotated[str | None, _from_notes("summary")]
    completed: Annotated[list[str], _from_notes("completed")]
    remaining: Annotated[list[str], _from_notes("remaining")]
    blockers: Annotated[list[str], _from_notes("blockers")]
    decisions: Annotated[list[str], _from_notes("decisions")]
    next_steps: Annotated[list[str], _from_notes("next_steps")]
    refs: Annotated[Mapping[str, object], _from_notes("refs")]
    written_at: Timestamp
    delivery: Annotated[
        Literal["pending", "loaded", "ignored_stale", "task_completed", "own_handoff"],
        Field(description="pending: it is offered to later sessions; otherwise the reason why it is no longer offered."),
    ]
    taken_by: str | None
    taken_at: Timestamp | None


class OfferedResponse(HandoffResponse):
    """An offered hand-off with its age."""

    age_s: Annotated[float, Field(description="Seconds since it was written.")]


def to_handoff_response(handoff: Handoff) -> HandoffResponse:
    """Return the response for a hand-off."""
    return HandoffResponse.model_validate(handoff, from_attributes=True)


def to_offered_handoff_response(previous: PreviousSessionState) -> OfferedResponse | None:
    """Return the response for the offered hand-off, or None."""
    if previous.handoff is None:
        return None
    return OfferedResponse.model_construct(None, **dict(to_handoff_response(previous.handoff)), age_s=previous.handoff_age_s)
