"""The payloads of memory events: the same JSON as the GET of the memory (D-81)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from rookery.access.models import Caller
from rookery.kernel.clock import format_iso
from rookery.kernel.db import Tx
from rookery.kernel.schema import to_json
from rookery.memory.schemas.responses import TEXT_FIELDS, MemorySerializer
from rookery.memory.store import records


@dataclass(frozen=True, slots=True)
class MemoryEventPayloads:
    """A serializer of memories as they are at the end of the transaction that records the event."""

    serializer: MemorySerializer

    def render_memory(self, tx: Tx, viewer: Caller, memory_id: str, *, with_content: bool) -> Mapping[str, object]:
        """Return a memory as JSON. If the same transaction replaced or deleted it, return the result of `render_deleted`."""
        memory = records.get_memory(tx, viewer.workspace_id, memory_id)
        if memory is None:
            return self.render_deleted(tx, viewer, memory_id, at=None)
        fields = to_json(self.serializer.serialize_memory(viewer, memory))
        return fields if with_content else {name: value for name, value in fields.items() if name not in TEXT_FIELDS}

    def render_deleted(self, tx: Tx, viewer: Caller, memory_id: str, *, at: datetime | None) -> Mapping[str, object]:
        """Return the remains of a deleted memory: its position in its lineage, as its history shows it (D-41)."""
        tombstone = records.get_tombstone(tx, viewer.workspace_id, memory_id)
        if tombstone is not None:
            return to_json(self.serializer.serialize_version(viewer, tombstone))
        return {"id": memory_id, "superseded_by": None, "ended_at": None if at is None else format_iso(at), "memory": None}
