"""
Every fact that the platform announces, a frozen class each, and the bus that carries it.

Two kinds of hearer: a recorder writes down, in the very transaction of the fact, what must follow from it (a webhook's delivery);
a listener of this process hears of it once that transaction is committed.
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
    """The memory that an event carries, for listeners that know no more of memory than this."""

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
    """A memory was stored (spec 6.1); raised once its transaction is committed."""

    workspace_id: int
    memory: MemoryView
    at: datetime

    @property
    def memory_id(self) -> str:
        """The id of the memory."""
        return self.memory.id


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySuperseded:
    """A memory was replaced by another and left every store (D-41)."""

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
    """A memory left active recall, kept for audit; *restored*: it came back."""

    workspace_id: int
    memory_id: str
    at: datetime
    restored: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRedacted:
    """Personal data or secrets were taken out of a stored memory; what was written down of it elsewhere is to lose them too."""

    workspace_id: int
    memory_id: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRecalled:
    """A recall ran (spec 6.1): the query, what it returned in order, how long it took in milliseconds."""

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
        by_workspace: How many of them were each workspace's; who had none among those gone through is not in it.
    """

    org: str | None
    project: str | None
    count: int
    by_workspace: Mapping[int, int]
    duration_s: float
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCalled:
    """A tool call ended, well or badly (D-38); *call_id* is its row's."""

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
        key: Tells it from another workspace's of the same id.
        workspace_id: None: all, but those of *excluded_workspaces*.
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
    """An agent began to work (spec 6.1, D-62)."""

    workspace_id: int
    session_id: str
    agent_id: str
    org: str | None
    project: str | None
    plan_id: str | None
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSessionUpdated:
    """Something happened in a session, or it was paused or went on; *seq* is the number of its newest event (D-62)."""

    workspace_id: int
    session_id: str
    seq: int
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSessionEnded:
    """A session came to its end, with this *status* (D-62)."""

    workspace_id: int
    session_id: str
    agent_id: str
    plan_id: str | None
    status: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanChanged:
    """Something was done with a plan (D-64); *name* says what, such as `plan.paused`, *seq* is its number in the plan's events."""

    name: str
    workspace_id: int
    plan_id: str
    seq: int
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseChanged:
    """Something was done with a phase of a plan; *name* is such as `phase.completed`."""

    name: str
    workspace_id: int
    plan_id: str
    phase_id: str
    seq: int
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskChanged:
    """Something was done with a task of a plan; *name* is such as `task.claimed`."""

    name: str
    workspace_id: int
    plan_id: str
    task_id: str
    seq: int
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyChanged:
    """
    A key was made, rotated, taken away, or came to its end by time (D-26, D-29).

    Attributes:
        name: Such as `key.rotated`.
        workspace_id: The workspace that owns it.
        tenant_id: The tenant that it acts in: the sandbox twin, of a test key (D-25).
        last_snapshot: What was shown of it last, if it is no more.
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
    """A webhook is told nothing any more, for this *reason* (D-81)."""

    workspace_id: int
    endpoint_id: str
    reason: str
    at: datetime


@dataclass(slots=True)
class EventBus:
    """
    Hands each event to those who asked for its class, in the order in which they did, at once.

    A listener is a quick plain function: what takes long or must not be lost is a job, or a recorder's. One that raises is
    logged, and the others still hear the event.
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
        """Call *recorder* in the transaction of every later event of exactly this class; what it raises undoes that."""
        self._recorders.setdefault(event, []).append(cast("Callable[[Tx, object], None]", recorder))

    def publish_on_commit(self, tx: Tx, event: object) -> None:
        """Have *event*, which *tx* makes true, written down in it, and tell the listeners once it is committed."""
        for recorder in self._recorders.get(type(event), ()):
            recorder(tx, event)
        tx.after_commit(lambda: self.publish(event))

    def publish(self, event: object) -> None:
        """Tell all who subscribed, of a fact that no transaction made; never raises."""
        for listener in self._listeners.get(type(event), ()):
            try:
                listener(event)
            except Exception:
                _log.exception("event.listener_failed", event_class=type(event).__name__)
