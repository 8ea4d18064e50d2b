"""Request and response models of session events (D-62)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field

from rookery.agents.models.sessions import NewSessionEvent, PreviousSessionState, SessionEvent, SessionEventType
from rookery.agents.schemas.json_objects import Object, State
from rookery.kernel.errors import ValidationFailed
from rookery.kernel.schema import PageQuery, QueryModel, RequestModel, ResponseModel, Timestamp

SessionEventName = Literal["note", "action", "decision", "checkpoint", "question", "answer", "artifact", "error"]


class TokensBody(RequestModel):
    """The number of model tokens used."""

    input: Annotated[int, Field(ge=0, le=1_000_000_000)] = 0
    output: Annotated[int, Field(ge=0, le=1_000_000_000)] = 0


class EventBody(RequestModel):
    """An event to append to a session."""

    type: Annotated[SessionEventName, Field(description="The type of the event.")] = "note"
    message: Annotated[str, Field(max_length=50_000, description="A description in words.")] = ""
    data: Annotated[Object, Field(description="Structured data of the event: a JSON object, at most 64 KiB.")] | None = None
    state: State | None = None
    task_id: Annotated[str, Field(min_length=1, max_length=100, description="The task that the event is about.")] | None = None
    tokens: TokensBody | None = None

    def to_new_event(self) -> NewSessionEvent:
        """
        Return the event.

        Raises:
            ValidationFailed: A checkpoint has no state, another type has one, or the event has no message, data or state.
        """
        errors: dict[str, list[str]] = {}
        if self.type == "checkpoint" and self.state is None:
            errors["state"] = ["is required for events of type checkpoint"]
        if self.type != "checkpoint" and self.state is not None:
            errors["state"] = ["is only allowed for events of type checkpoint"]
        if not self.message and not self.data and self.state is None:
            errors["message"] = ["is required if there is no data"]
        if errors:
            raise ValidationFailed(errors)
        return NewSessionEvent(
            type=SessionEventType(self.type),
            message=self.message,
            data=self.data or {},
            state=self.state,
            task_id=self.task_id,
            tokens_in=0 if self.tokens is None else self.tokens.input,
            tokens_out=0 if self.tokens is None else self.tokens.output,
        )


class SessionEventsQuery(PageQuery):
    """Filters of the list of session events."""

    after: Annotated[int, Field(ge=0, le=2**53, description="Only events with a greater seq.")] = 0
    type: SessionEventName | None = None

    def to_event_type(self) -> SessionEventType | None:
        """Return the type to filter by, or None."""
        return None if self.type is None else SessionEventType(self.type)


class SessionStreamQuery(QueryModel):
    """The start of a stream."""

    after: Annotated[
        int, Field(ge=0, le=2**53, description="Start after the event with this seq. The header Last-Event-ID takes precedence.")
    ] = 0


class SessionEventResponse(ResponseModel):
    """An event of a session."""

    seq: int
    session_id: str
    type: SessionEventName
    message: str
    data: Mapping[str, object]
    state: Mapping[str, object] | None
    task_id: str | None
    tokens: Mapping[str, int]
    created_at: Timestamp


class LastCheckpointResponse(SessionEventResponse):
    """The last checkpoint of all sessions on the plan, or of the resumed session."""

    agent_id: str | None
    age_s: Annotated[float, Field(description="Seconds since it was created.")]


def to_session_event_response(event: SessionEvent) -> SessionEventResponse:
    """Return the response for an event."""
    return SessionEventResponse.model_validate(event, from_attributes=True)


def to_session_checkpoint_response(previous: PreviousSessionState) -> LastCheckpointResponse | None:
    """Return the response for the checkpoint to continue from, or None."""
    if previous.checkpoint is None:
        return None
    fields = dict(to_session_event_response(previous.checkpoint))
    return LastCheckpointResponse.model_construct(None, **fields, agent_id=previous.checkpoint_agent_id, age_s=previous.checkpoint_age_s)
