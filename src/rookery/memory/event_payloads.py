"""The data of the webhook events of memories: the same JSON as the GET of the memory."""

from __future__ import annotations

from datetime import datetime

from rookery.access.event_rendering import EventContext, EventData, Renderers
from rookery.kernel.clock import format_iso
from rookery.kernel.schema import to_json
from rookery.memory.build import MemoryServices
from rookery.memory.events import MemoryArchived, MemoryDeleted, MemoryStored, MemorySuperseded, ReindexCompleted
from rookery.memory.schemas.responses import TEXT_FIELDS
from rookery.memory.store.tables import MEMORIES, TOMBSTONES


def _render_memory(context: EventContext, event: MemoryStored | MemoryArchived) -> EventData:
    memory = MEMORIES.find(context.tx, context.viewer.workspace_id, id=event.memory_id)
    if memory is None:  # the same transaction replaced or deleted it
        return _render_remains(context, event.memory_id, at=None)
    fields = to_json(context.runtime.use(MemoryServices).serializer.serialize_memory(context.viewer, memory))
    return fields if context.with_content else {name: value for name, value in fields.items() if name not in TEXT_FIELDS}


def _render_deleted(context: EventContext, event: MemorySuperseded | MemoryDeleted) -> EventData:
    return _render_remains(context, event.memory_id, at=event.at)


def _render_remains(context: EventContext, memory_id: str, *, at: datetime | None) -> EventData:
    """Return the remains of a deleted memory: its position in its lineage, as its history shows it."""
    tombstone = TOMBSTONES.find(context.tx, context.viewer.workspace_id, id=memory_id)
    if tombstone is not None:
        return to_json(context.runtime.use(MemoryServices).serializer.serialize_version(context.viewer, tombstone))
    return {"id": memory_id, "superseded_by": None, "ended_at": None if at is None else format_iso(at), "memory": None}


def _render_reindex(context: EventContext, event: ReindexCompleted) -> EventData:
    return {
        "org": event.org,
        "project": event.project,
        "duration_s": round(event.duration_s, 3),
        "completed_at": format_iso(event.at),
        "count": event.by_workspace[context.viewer.workspace_id],
    }


RENDERERS: Renderers = {
    MemoryStored: _render_memory,
    MemoryArchived: _render_memory,
    MemorySuperseded: _render_deleted,
    MemoryDeleted: _render_deleted,
    ReindexCompleted: _render_reindex,
}
