"""The events of memories."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from rookery.kernel.events import Event, EventType, Recipient
from rookery.memory.models import Memory


def _memory_type(name: str, description: str) -> EventType:
    resource = "/v1/brain/memories/{memory_id}"
    return EventType(name=name, description=description, data="the memory", scope="brain:read", resource=resource)


def _end_type(name: str, description: str) -> EventType:
    data = "the id of the memory and its place in its lineage, without its content"
    return EventType(name=name, description=description, data=data, scope="brain:read")


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryStored(Event):
    """A memory was stored, also by an import."""

    types = (_memory_type("memory.stored", "A memory was stored."),)

    workspace_id: int
    memory: Memory
    at: datetime

    @property
    def memory_id(self) -> str:
        return self.memory.id

    def get_content_id(self) -> str:
        return self.memory_id


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySuperseded(Event):
    """A memory was replaced by another and deleted from every store."""

    types = (_end_type("memory.superseded", "A memory was replaced by `superseded_by` and deleted from every store."),)

    workspace_id: int
    memory_id: str
    superseded_by: str
    at: datetime

    def get_erased_id(self) -> str:
        return self.memory_id


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryDeleted(Event):
    """A memory was deleted from every store, by a caller or because it expired."""

    types = (_end_type("memory.deleted", "A memory was deleted from every store."),)

    workspace_id: int
    memory_id: str
    at: datetime

    def get_erased_id(self) -> str:
        return self.memory_id


_ARCHIVED = _memory_type("memory.archived", "A memory was archived: it is kept, but recall skips it.")
_RESTORED = _memory_type("memory.restored", "An archived memory was restored.")


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryArchived(Event):
    """A memory was archived; or, with *restored* true, restored."""

    types = (_ARCHIVED, _RESTORED)

    workspace_id: int
    memory_id: str
    at: datetime
    restored: bool = False

    def select_types(self) -> Sequence[EventType]:
        return (_RESTORED,) if self.restored else (_ARCHIVED,)

    def get_content_id(self) -> str:
        return self.memory_id


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRedacted(Event):
    """Personal data or secrets were removed from a memory by `rookery brain:clean --strip-pii`. Stored webhook events lose its content."""

    workspace_id: int
    memory_id: str
    at: datetime

    def get_erased_id(self) -> str:
        return self.memory_id


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRecalled(Event):
    """
    A recall ran.

    *results* are the ids in order, *duration_ms* is in milliseconds. *is_degraded*: an index that the requested mode needs was not
    available.
    """

    workspace_id: int
    recall_id: str
    query: str
    results: Sequence[str]
    duration_ms: float
    mode: str
    is_degraded: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ReindexCompleted(Event):
    """
    A re-index finished. *count* memories were indexed in *duration_s* seconds; *by_workspace* has the number for each workspace.

    Attributes:
        by_workspace: Number of memories by workspace. Workspaces without memories in this run are missing.
    """

    types = (
        EventType(
            name="memory.reindexed",
            description="A re-index ended.",
            data="the scope of the re-index, the number of memories, and the seconds it took",
            scope="brain:read",
        ),
    )

    org: str | None
    project: str | None
    count: int
    by_workspace: Mapping[int, int]
    duration_s: float
    at: datetime

    def list_recipients(self) -> Sequence[Recipient]:
        return [(tenant, "") for tenant in self.by_workspace]
