"""The events of content generation."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from rookery.kernel.events import Event, EventType, NamedEvent

READ_SCOPE = "content.read"

_SUMMARY = "the generation without its messages and its output, as in the list"


def _generation_event(name: str, description: str) -> EventType:
    return EventType(name=f"generation.{name}", description=description, data=_SUMMARY, scope=READ_SCOPE)


COMPLETED_EVENT = _generation_event("completed", "A generation succeeded.")
FAILED_EVENT = _generation_event("failed", "A generation failed; `error` has the reason.")
CANCELLED_EVENT = _generation_event("cancelled", "A generation was cancelled, or its client left.")
BATCH_FINISHED_EVENT = EventType(
    name="generation.batch_finished",
    description="The last generation of a batch ended.",
    data="the batch with its counts",
    scope=READ_SCOPE,
    resource="/api/agent/content/batches/{batch_id}",
)

EVENT_NAMES = {"succeeded": COMPLETED_EVENT.name, "failed": FAILED_EVENT.name, "cancelled": CANCELLED_EVENT.name}
"""The names of the events by the final status of a generation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationEnded(NamedEvent):
    """A generation has a final status. `name` is that of the webhook event, such as `generation.completed`."""

    types = (COMPLETED_EVENT, FAILED_EVENT, CANCELLED_EVENT)

    workspace_id: int
    generation_id: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchFinished(Event):
    """The last generation of a batch ended."""

    types = (BATCH_FINISHED_EVENT,)

    workspace_id: int
    batch_id: str
    at: datetime
