"""Request and response models of hand-offs (D-62)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, Self, cast

from pydantic import AliasPath, BeforeValidator, Field, model_validator

from rookery.agents.models.sessions import Handoff, PreviousSessionState, SessionNotes
from rookery.agents.schemas.json_objects import Object
from rookery.kernel.schema import RequestModel, ResponseModel, Timestamp


def _to_list(value: object) -> object:
    return [value] if isinstance(value, str) else value


def _to_refs(value: object) -> object:
    """Convert a list of names to `{"files": […]}`, and an empty list to no refs."""
    if isinstance(value, list):
        return {"files": cast("list[object]", value)} if value else {}
    return value


def _has_content(value: object) -> bool:
    if isinstance(value, str):
        return bool(value.strip())
    if isinstance(value, list):
        return any(_has_content(item) for item in cast("list[object]", value))
    return bool(value)


def _to_notes(value: object) -> object:
    """Convert a string to a hand-off with only a summary."""
    return {"summary": value} if isinstance(value, str) else value


Line = Annotated[str, Field(min_length=1, max_length=10_000)]
Lines = Annotated[list[Line], BeforeValidator(_to_list, json_schema_input_type=str | list[Line]), Field(max_length=200)]


class NotesBody(RequestModel):
    """A hand-off: the information for the next session, in at least one field. A list of one sentence can be sent as a string."""

    summary: Annotated[str, Field(max_length=50_000, description="The current state of the work.")] | None = None
    completed: Annotated[Lines, Field(description="Finished work.")] | None = None
    remaining: Annotated[Lines, Field(description="Unfinished work.")] | None = None
    blockers: Annotated[Lines, Field(description="Obstacles.")] | None = None
    decisions: Annotated[Lines, Field(description="Decisions and their reasons.")] | None = None
    next_steps: Annotated[Lines, Field(description="What to do next, most important first.")] | None = None
    refs: Annotated[Object, BeforeValidator(_to_refs), Field(description="References such as branch, commit and files.")] | None = None

    @model_validator(mode="after")
    def _has_content(self) -> Self:
        fields = type(self).model_fields
        if not any(_has_content(getattr(self, name)) for name in fields):
            msg = f"must not be empty; fill at least one of {', '.join(fields)}"
            raise ValueError(msg)
        return self

    def to_notes(self) -> SessionNotes:
        """Return the notes."""
        return SessionNotes(
            summary=self.summary,
            completed=tuple(self.completed or ()),
            remaining=tuple(self.remaining or ()),
            blockers=tuple(self.blockers or ()),
            decisions=tuple(self.decisions or ()),
            next_steps=tuple(self.next_steps or ()),
            refs=self.refs or {},
        )


HandoffNotesInput = Annotated[NotesBody, BeforeValidator(_to_notes, json_schema_input_type=str | NotesBody)]
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
