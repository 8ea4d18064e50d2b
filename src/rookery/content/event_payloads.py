"""The data of the webhook events of content generation."""

from __future__ import annotations

from rookery.access.event_rendering import EventContext, EventData, Renderers
from rookery.content.batches import load_batch_view
from rookery.content.events import BatchFinished, GenerationEnded
from rookery.content.schemas import serialize_batch, serialize_summary
from rookery.content.store.tables import SUMMARIES
from rookery.kernel.errors import NotFound
from rookery.kernel.schema import to_json


def _render_generation(context: EventContext, event: GenerationEnded) -> EventData:
    generation = SUMMARIES.find(context.tx, context.viewer.workspace_id, id=event.generation_id)
    return {"id": event.generation_id} if generation is None else to_json(serialize_summary(generation))


def _render_batch(context: EventContext, event: BatchFinished) -> EventData:
    try:
        return to_json(serialize_batch(load_batch_view(context.tx, context.viewer.workspace_id, event.batch_id)))
    except NotFound:
        return {"id": event.batch_id}


RENDERERS: Renderers = {GenerationEnded: _render_generation, BatchFinished: _render_batch}
"""The functions that render the data of events, by class."""
