"""
The events of the platform, one frozen class each, and the bus that delivers them.

There are two kinds of subscribers. A recorder runs in the transaction of the event and stores what follows from it, such as a
webhook delivery. A listener in this process is called after the commit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol, TypeVar, cast

import structlog

from rookery.kernel.db import Tx

E = TypeVar("E")

_log = structlog.stdlib.get_logger("rookery.events")


class MemoryView(Protocol):
    """The fields of a memory that an event exposes to other domains."""

    @property
    def id(self) -> str: ...
    @property
    def workspace_id(self) -> int: ...
    @property
    def org(self) -> str | None: ...
    @property
    def project(self) -> str | None: ...
    @property
    def agent_id(self) -> str | None: ...
    @property
    def type(self) -> str: ...
    @property
    def tags(self) -> tuple[str, ...]: ...
    @property
    def content(self) -> str: ...
    @property
    def created_at(self) -> datetime: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryStored:
    """A memory was stored (spec 6.1). Published after the commit."""

    workspace_id: int
    memory: MemoryView
    at: datetime

    @property
    def memory_id(self) -> str:
        """The id of the memory."""
        return self.memory.id


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySuperseded:
    """A memory was replaced by another and deleted from every store (D-41)."""

    workspace_id: int
    memory_id: str
    superseded_by: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryDeleted:
    """A memory was deleted from every store."""

    workspace_id: int
    memory_id: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryArchived:
    """A memory was archived: recall no longer returns it, but it is kept for audit. If *restored*, it was brought back."""

    workspace_id: int
    memory_id: str
    at: datetime
    restored: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRedacted:
    """Personal data or secrets were removed from a stored memory. Copies elsewhere must be redacted too."""

    workspace_id: int
    memory_id: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRecalled:
    """A recall ran (spec 6.1): its query, the ids of the results in order, and its duration in milliseconds."""

    workspace_id: int
    recall_id: str
    query: str
    results: Sequence[str]
    duration_ms: float
    mode: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReindexCompleted:
    """
    A re-index finished (spec 6.1); *count* memories were indexed in *duration_s* seconds.

    Attributes:
        by_workspace: Number of memories by workspace. Workspaces without memories in this run are missing.
    """

    org: str | None
    project: str | None
    count: int
    by_workspace: Mapping[int, int]
    duration_s: float
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCalled:
    """A tool call ended, with or without success (D-38). *call_id* is the id of its record."""

    workspace_id: int
    call_id: str
    server: str
    tool: str
    success: bool
    code: str | None
    duration_ms: int
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerHealthChanged:
    """
    A tool server came online or went offline, for one workspace or for all workspaces except *excluded_workspaces*.

    Attributes:
        key: Distinguishes servers of different workspaces that have the same id.
        workspace_id: The one workspace concerned. None: all workspaces except *excluded_workspaces*.
    """

    server: str
    key: str
    health: str
    reason: str | None
    at: datetime
    workspace_id: int | None
    excluded_workspaces: frozenset[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSessionStarted:
    """An agent session started (spec 6.1, D-62)."""

    workspace_id: int
    session_id: str
    agent_id: str
    org: str | None
    project: str | None
    plan_id: str | None
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSessionUpdated:
    """A session got an event, was paused or was resumed. *seq* is the number of its newest event (D-62)."""

    workspace_id: int
    session_id: str
    seq: int
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSessionEnded:
    """A session ended with this *status* (D-62)."""

    workspace_id: int
    session_id: str
    agent_id: str
    plan_id: str | None
    status: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanChanged:
    """A plan changed (D-64). *name* is the kind of change, such as `plan.paused`; *seq* is its number among the plan's events."""

    name: str
    workspace_id: int
    plan_id: str
    seq: int
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseChanged:
    """A phase of a plan changed. *name* is the kind of change, such as `phase.completed`."""

    name: str
    workspace_id: int
    plan_id: str
    phase_id: str
    seq: int
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskChanged:
    """A task of a plan changed. *name* is the kind of change, such as `task.claimed`."""

    name: str
    workspace_id: int
    plan_id: str
    task_id: str
    seq: int
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyChanged:
    """
    A key was created, rotated or revoked, or it expired (D-26, D-29).

    Attributes:
        name: The kind of change, such as `key.rotated`.
        workspace_id: The workspace that owns the key.
        tenant_id: The tenant in which the key acts: the sandbox for a test key (D-25).
        last_snapshot: The public representation of a deleted key.
    """

    name: str
    workspace_id: int
    tenant_id: int
    kind: str
    key_id: str
    at: datetime
    last_snapshot: Mapping[str, object] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookDisabled:
    """A webhook was disabled and gets no more deliveries, for this *reason* (D-81)."""

    workspace_id: int
    endpoint_id: str
    reason: str
    at: datetime


@dataclass(slots=True)
class EventBus:
    """
    A bus that delivers each event at once to the subscribers of its class, in the order of their subscription.

    A listener is a plain function that returns quickly. Long work belongs in a job, and work that must not be lost in a recorder.
    An exception in a listener is logged, and the other listeners are still called.
    """

    _listeners: dict[type[object], list[Callable[[object], None]]] = field(
        default_factory=dict[type[object], list[Callable[[object], None]]]
    )
    _recorders: dict[type[object], list[Callable[[Tx, object], None]]] = field(
        default_factory=dict[type[object], list[Callable[[Tx, object], None]]]
    )

    def subscribe(self, event: type[E], listener: Callable[[E], None]) -> None:
        """Call *listener* with every later event of exactly this class."""
        self._listeners.setdefault(event, []).append(cast("Callable[[object], None]", listener))

    def add_recorder(self, event: type[E], recorder: Callable[[Tx, E], None]) -> None:
        """Call *recorder* in the transaction of every later event of exactly this class. An exception rolls the transaction back."""
        self._recorders.setdefault(event, []).append(cast("Callable[[Tx, object], None]", recorder))

    def publish_on_commit(self, tx: Tx, event: object) -> None:
        """Pass *event*, a result of *tx*, to the recorders now and to the listeners after the commit."""
        for recorder in self._recorders.get(type(event), ()):
            recorder(tx, event)
        tx.after_commit(lambda: self.publish(event))

    def publish(self, event: object) -> None:
        """Call the listeners of *event*, which belongs to no transaction. Never raises."""
        for listener in self._listeners.get(type(event), ()):
            try:
                listener(event)
            except Exception:
                _log.exception("event.listener_failed", event_class=type(event).__name__)
