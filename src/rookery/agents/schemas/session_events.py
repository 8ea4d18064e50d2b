"""What callers say and are told of what happens in sessions (D-62)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field

from rookery.agents.models.sessions import EventType, Happening, Offered, SessionEvent
from rookery.agents.schemas.objects import Object, State
from rookery.kernel.errors import ValidationFailed
from rookery.kernel.http.pages import PageQuery
from rookery.kernel.wire import Answer, Body, Moment, Query

EventName = Literal["note", "action", "decision", "checkpoint", "question", "answer", "artifact", "error"]


class TokensBody(Body):
    """Tokens that a model took for it."""

    input: Annotated[int, Field(ge=0, le=1_000_000_000)] = 0
    output: Annotated[int, Field(ge=0, le=1_000_000_000)] = 0


class EventBody(Body):
    """Something that happened."""

    type: Annotated[EventName, Field(description="What kind of thing.")] = "note"
    message: Annotated[str, Field(max_length=50_000, description="What happened, in words.")] = ""
    data: Annotated[Object, Field(description="The same for machines.")] | None = None
    state: State | None = None
    task_id: Annotated[str, Field(min_length=1, max_length=100, description="The task that it is about.")] | None = None
    tokens: TokensBody | None = None

    def happening(self) -> Happening:
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
        return Happening(
            type=EventType(self.type),
            message=self.message,
            data=self.data or {},
            state=self.state,
            task_id=self.task_id,
            tokens_in=0 if self.tokens is None else self.tokens.input,
            tokens_out=0 if self.tokens is None else self.tokens.output,
        )


class EventsQuery(PageQuery):
    """Which events to list."""

    after: Annotated[int, Field(ge=0, le=2**53, description="Only those with a greater number.")] = 0
    type: EventName | None = None

    def kind(self) -> EventType | None:
        """Return the type asked for."""
        return None if self.type is None else EventType(self.type)


class StreamQuery(Query):
    """From where on to follow."""

    after: Annotated[
        int, Field(ge=0, le=2**53, description="Begin after this event; the header Last-Event-ID says the same, and wins.")
    ] = 0


class SessionEventAnswer(Answer):
    """Something that happened."""

    seq: int
    session_id: str
    type: EventName
    message: str
    data: Mapping[str, object]
    state: Mapping[str, object] | None
    task_id: str | None
    tokens: Mapping[str, int]
    created_at: Moment


class LastCheckpointAnswer(SessionEventAnswer):
    """The last checkpoint, of whichever session on the plan."""

    agent_id: str | None
    age_s: Annotated[float, Field(description="How long ago it was made, in seconds.")]


def event_answer(event: SessionEvent) -> SessionEventAnswer:
    """Return an event."""
    return SessionEventAnswer.model_construct(None, **_event(event))


def checkpoint_answer(offered: Offered) -> LastCheckpointAnswer | None:
    """Return the checkpoint to go on from."""
    if offered.checkpoint is None:
        return None
    return LastCheckpointAnswer.model_construct(
        None, **_event(offered.checkpoint), agent_id=offered.checkpoint_agent, age_s=offered.checkpoint_age_s
    )


def _event(event: SessionEvent) -> dict[str, object]:
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
