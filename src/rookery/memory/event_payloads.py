"""The webhook events of memories: the same JSON as the GET of the memory (D-81)."""

from __future__ import annotations

from datetime import datetime

from rookery.access.event_sources import AnyEventSource, EventData, EventSource, EventType
from rookery.access.models import Caller
from rookery.kernel.clock import format_iso
from rookery.kernel.db import Tx
from rookery.kernel.events import MemoryArchived, MemoryDeleted, MemoryRedacted, MemoryStored, MemorySuperseded, ReindexCompleted
from rookery.kernel.runtime import Runtime
from rookery.kernel.schema import to_json
from rookery.memory.core_wiring import MemoryCore
from rookery.memory.schemas.responses import TEXT_FIELDS
from rookery.memory.store import records


def _render_memory(runtime: Runtime, tx: Tx, viewer: Caller, event: MemoryStored | MemoryArchived, with_content: bool) -> EventData:  # noqa: FBT001
    memory = records.get_memory(tx, viewer.workspace_id, event.memory_id)
    if memory is None:  # the same transaction replaced or deleted it
        return _render_remains(runtime, tx, viewer, event.memory_id, at=None)
    fields = to_json(runtime.use(MemoryCore).serializer.serialize_memory(viewer, memory))
    return fields if with_content else {name: value for name, value in fields.items() if name not in TEXT_FIELDS}


def _render_deleted(runtime: Runtime, tx: Tx, viewer: Caller, event: MemorySuperseded | MemoryDeleted, _: bool) -> EventData:  # noqa: FBT001
    return _render_remains(runtime, tx, viewer, event.memory_id, at=event.at)


def _render_remains(runtime: Runtime, tx: Tx, viewer: Caller, memory_id: str, *, at: datetime | None) -> EventData:
    """Return the remains of a deleted memory: its position in its lineage, as its history shows it (D-41)."""
    tombstone = records.get_tombstone(tx, viewer.workspace_id, memory_id)
    if tombstone is not None:
        return to_json(runtime.use(MemoryCore).serializer.serialize_version(viewer, tombstone))
    return {"id": memory_id, "superseded_by": None, "ended_at": None if at is None else format_iso(at), "memory": None}


def _render_reindex(_: Runtime, __: Tx, viewer: Caller, event: ReindexCompleted, ___: bool) -> EventData:  # noqa: FBT001
    return {
        "org": event.org,
        "project": event.project,
        "duration_s": round(event.duration_s, 3),
        "completed_at": format_iso(event.at),
        "count": event.by_workspace[viewer.workspace_id],
    }


def _memory_type(name: str, description: str) -> EventType:
    return EventType(
        name=name,
        description=description,
        data="the memory",
        scope="brain:read",
        resource="/v1/brain/memories/{memory_id}",
    )


def _end_type(name: str, description: str) -> EventType:
    data = "the id of the memory and its place in its lineage, without its content"
    return EventType(name=name, description=description, data=data, scope="brain:read")


EVENTS: tuple[AnyEventSource, ...] = (
    EventSource(
        event=MemoryStored,
        types=[_memory_type("memory.stored", "A memory was stored.")],
        select=lambda _: ["memory.stored"],
        render=_render_memory,
        memory_id=lambda event: event.memory_id,
    ),
    EventSource(
        event=MemorySuperseded,
        types=[_end_type("memory.superseded", "A memory was replaced by `superseded_by` and deleted from every store.")],
        select=lambda _: ["memory.superseded"],
        render=_render_deleted,
        erased_memory_id=lambda event: event.memory_id,
    ),
    EventSource(
        event=MemoryDeleted,
        types=[_end_type("memory.deleted", "A memory was deleted from every store.")],
        select=lambda _: ["memory.deleted"],
        render=_render_deleted,
        erased_memory_id=lambda event: event.memory_id,
    ),
    EventSource(
        event=MemoryArchived,
        types=[
            _memory_type("memory.archived", "A memory was archived: it is kept, but recall skips it."),
            _memory_type("memory.restored", "An archived memory was restored."),
        ],
        select=lambda event: ["memory.restored" if event.restored else "memory.archived"],
        render=_render_memory,
        memory_id=lambda event: event.memory_id,
    ),
    EventSource(
        event=ReindexCompleted,
        types=[
            EventType(
                name="memory.reindexed",
                description="A re-index ended.",
                data="the scope of the re-index, the number of memories, and the seconds it took",
                scope="brain:read",
            )
        ],
        select=lambda _: ["memory.reindexed"],
        recipients=lambda event: [(tenant, "") for tenant in event.by_workspace],
        render=_render_reindex,
    ),
    EventSource(event=MemoryRedacted, erased_memory_id=lambda event: event.memory_id),
)
"""The events of memories."""
