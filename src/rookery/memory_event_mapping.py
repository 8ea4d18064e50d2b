"""The mapping of memory events to webhook events, apart from other domains for commands on memories (D-80, D-81)."""

from __future__ import annotations

from collections.abc import Mapping

from rookery.access.models import Caller
from rookery.event_mapping import EventMappings, MappedEvent, RenderPayload, make_mapping
from rookery.kernel.clock import format_iso
from rookery.kernel.db import Tx
from rookery.kernel.events import (
    EventBus,
    MemoryArchived,
    MemoryDeleted,
    MemoryRedacted,
    MemoryStored,
    MemorySuperseded,
    ReindexCompleted,
)
from rookery.memory.event_payloads import MemoryEventPayloads
from rookery.memory.schemas.responses import MemorySerializer
from rookery.webhooks.outbox import Outbox


def redact_deliveries(bus: EventBus, outbox: Outbox) -> None:
    """Remove the content of a memory from stored deliveries when the memory is deleted, superseded or redacted."""

    def redact(tx: Tx, event: MemorySuperseded | MemoryDeleted | MemoryRedacted) -> None:
        outbox.redact_memory(tx, event.workspace_id, event.memory_id)

    bus.add_recorder(MemorySuperseded, redact)
    bus.add_recorder(MemoryDeleted, redact)
    bus.add_recorder(MemoryRedacted, redact)


def memory_event_mappings(serializer: MemorySerializer) -> EventMappings:
    """Return the mapping of memory events."""
    memories = MemoryEventPayloads(serializer)

    def map_memory(name: str, event: MemoryStored | MemoryArchived) -> list[MappedEvent]:
        def render(tx: Tx, viewer: Caller, with_content: bool) -> Mapping[str, object]:  # noqa: FBT001 - called by position
            return memories.render_memory(tx, viewer, event.memory_id, with_content=with_content)

        return [MappedEvent(name, event.at, render, memory_id=event.memory_id)]

    def ended(name: str, event: MemorySuperseded | MemoryDeleted) -> list[MappedEvent]:
        return [MappedEvent(name, event.at, lambda tx, viewer, _: memories.render_deleted(tx, viewer, event.memory_id, at=event.at))]

    def reindexed(event: ReindexCompleted) -> list[MappedEvent]:
        base = {"org": event.org, "project": event.project, "duration_s": round(event.duration_s, 3), "completed_at": format_iso(event.at)}
        render: RenderPayload = lambda _, viewer, __: {**base, "count": event.by_workspace[viewer.workspace_id]}  # noqa: E731 - as the others
        return [MappedEvent("memory.reindexed", event.at, render)]

    return {
        MemoryStored: make_mapping(MemoryStored, lambda event: map_memory("memory.stored", event)),
        MemoryArchived: make_mapping(
            MemoryArchived, lambda event: map_memory(f"memory.{'restored' if event.restored else 'archived'}", event)
        ),
        MemorySuperseded: make_mapping(MemorySuperseded, lambda event: ended("memory.superseded", event)),
        MemoryDeleted: make_mapping(MemoryDeleted, lambda event: ended("memory.deleted", event)),
        ReindexCompleted: make_mapping(ReindexCompleted, reindexed, lambda event: [(tenant, "") for tenant in event.by_workspace]),
    }
