"""What callers say and are told of what happens in sessions (D-62)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field

from rookery.agents.models.sessions import NewSessionEvent, PreviousSessionState, SessionEvent, SessionEventType
from rookery.agents.schemas.json_objects import Object, State
from rookery.kernel.errors import ValidationFailed
from rookery.kernel.http.pagination import PageQuery
from rookery.kernel.schema import QueryModel, RequestModel, ResponseModel, Timestamp

SessionEventName = Literal["note", "action", "decision", "checkpoint", "question", "answer", "artifact", "error"]


class TokensBody(RequestModel):
    """Tokens that a model took for it."""

    input: Annotated[int, Field(ge=0, le=1_000_000_000)] = 0
    output: Annotated[int, Field(ge=0, le=1_000_000_000)] = 0


class EventBody(RequestModel):
    """Something that happened."""

    type: Annotated[SessionEventName, Field(description="What kind of thing.")] = "note"
    message: Annotated[str, Field(max_length=50_000, description="What happened, in words.")] = ""
    data: Annotated[Object, Field(description="The same for machines.")] | None = None
    state: State | None = None
    task_id: Annotated[str, Field(min_length=1, max_length=100, description="The task that it is about.")] | None = None
    tokens: TokensBody | None = None

    def to_new_event(self) -> NewSessionEvent:
        """
        Return it.

        Raises:
            ValidationFailed: A checkpoint without a state, a state without a checkpoint, or nothing said at all.
        """
        errors: dict[str, list[str]] = {}
        if self.type == "checkpoint" and self.state is None:
            errors["state"] = ["is required of a checkpoint"]
        if self.type != "checkpoint" and self.state is not None:
            errors["state"] = ["belongs to events of type checkpoint"]
        if not self.message and not self.data and self.state is None:
            errors["message"] = ["is required, unless there is data"]
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
    """Which events to list."""

    after: Annotated[int, Field(ge=0, le=2**53, description="Only those with a greater number.")] = 0
    type: SessionEventName | None = None

    def to_event_type(self) -> SessionEventType | None:
        """Return the type asked for."""
        return None if self.type is None else SessionEventType(self.type)


class SessionStreamQuery(QueryModel):
    """From where on to follow."""

    after: Annotated[
        int, Field(ge=0, le=2**53, description="Begin after this event; the header Last-Event-ID says the same, and wins.")
    ] = 0


class SessionEventResponse(ResponseModel):
    """Something that happened."""

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
    """The last checkpoint, of whichever session on the plan."""

    agent_id: str | None
    age_s: Annotated[float, Field(description="How long ago it was made, in seconds.")]


def to_session_event_response(event: SessionEvent) -> SessionEventResponse:
    """Return an event."""
    return SessionEventResponse.model_construct(None, **_event_fields(event))


def to_session_checkpoint_response(previous: PreviousSessionState) -> LastCheckpointResponse | None:
    """Return the checkpoint to go on from."""
    if previous.checkpoint is None:
        return None
    return LastCheckpointResponse.model_construct(
        None, **_event_fields(previous.checkpoint), agent_id=previous.checkpoint_agent_id, age_s=previous.checkpoint_age_s
    )


def _event_fields(event: SessionEvent) -> dict[str, object]:
    return {
        "seq": event.seq,
        "session_id": event.session_id,
        "type": event.type.value,
        "message": event.message,
        "data": event.data,
        "state": event.state,
        "task_id": event.task_id,
        "tokens": {"input": event.tokens_in, "output": event.tokens_out},
        "created_at": event.created_at,
    }
