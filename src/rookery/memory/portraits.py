"""How memories look to the outside (D-81): as their GET gives them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from rookery.access.models import Caller
from rookery.kernel.clock import iso
from rookery.kernel.db import Tx
from rookery.kernel.wire import plain
from rookery.memory.answers import AUTHORS_TEXT, Answers
from rookery.memory.store import records


@dataclass(frozen=True, slots=True)
class MemoryPortraits:
    """Each as it is at the end of the transaction that announces it."""

    answers: Answers

    def kept(self, tx: Tx, viewer: Caller, memory_id: str, *, with_content: bool) -> Mapping[str, object]:
        """Return a memory; one that the same transaction replaced or deleted again as `ended` does."""
        memory = records.by_id(tx, viewer.workspace_id, memory_id)
        if memory is None:
            return self.ended(tx, viewer, memory_id, at=None)
        fields = plain(self.answers.memory(viewer, memory))
        return fields if with_content else {name: value for name, value in fields.items() if name not in AUTHORS_TEXT}

    def ended(self, tx: Tx, viewer: Caller, memory_id: str, *, at: datetime | None) -> Mapping[str, object]:
        """Return what stays of a memory that is nowhere any more: its place in its lineage, as its history tells it (D-41)."""
        grave = records.tombstone(tx, viewer.workspace_id, memory_id)
        if grave is not None:
            return plain(self.answers.version(viewer, grave))
        return {"id": memory_id, "superseded_by": None, "ended_at": None if at is None else iso(at), "memory": None}
