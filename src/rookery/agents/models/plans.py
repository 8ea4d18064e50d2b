"""Plans, phases and tasks, task claims and plan events."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Annotated

import orjson
from pydantic import AfterValidator, Field

from rookery.access.models import Caller
from rookery.kernel.schema import NotBlank
from rookery.kernel.sentences import format_count

MAX_PHASES_PER_PLAN = 200
"""Maximum number of phases in a plan."""

MAX_TASKS_PER_PLAN = 10_000
"""Maximum number of tasks in a plan, over all its phases."""

MAX_TASK_ATTEMPTS = 5
"""Attempts after which a task fails when its lease expires once more: the task itself probably stops its workers."""

MAX_TEXT_LENGTH = 20_000

_MAX_METADATA_BYTES = 16 * 1024
_BYTES_PER_KIB = 1024

JsonObject = Mapping[str, object]
"""A JSON object with content of the caller's choice."""


def require_size(max_bytes: int, value: object) -> None:
    """Raise ValueError if *value* takes more than *max_bytes* as JSON."""
    size = len(orjson.dumps(value))
    if size > max_bytes:
        msg = f"must take at most {max_bytes // _BYTES_PER_KIB} KiB as JSON; it takes {size:,} bytes"
        raise ValueError(msg)


def _limit_metadata(value: dict[str, object]) -> dict[str, object]:
    require_size(_MAX_METADATA_BYTES, value)
    return value


Title = Annotated[str, Field(min_length=1, max_length=255, description="The name, for people."), NotBlank]
Text = Annotated[str, Field(max_length=MAX_TEXT_LENGTH, description="A text in Markdown.")]
Org = Annotated[str, Field(min_length=1, max_length=100, description="The organisation namespace.", examples=["acme"]), NotBlank]
Project = Annotated[str, Field(min_length=1, max_length=255, description="The project within the org.", examples=["web"]), NotBlank]
Metadata = Annotated[dict[str, object], AfterValidator(_limit_metadata), Field(description="A JSON object of your own, at most 16 KiB.")]
Priority = Annotated[int, Field(ge=0, le=4, description="From 0, the most urgent, to 4, the least urgent.")]


class PlanStatus(StrEnum):
    DRAFT = "draft"
    ACTIVE = "active"
    PAUSED = "paused"
    COMPLETED = "completed"
    ARCHIVED = "archived"


class PhaseStatus(StrEnum):
    """The stored status of a phase. Blocked and ready are derived."""

    PENDING = "pending"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    SKIPPED = "skipped"
    ON_HOLD = "on_hold"


class TaskStatus(StrEnum):
    """The stored status of a task. Blocked and ready are derived."""

    PENDING = "pending"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    SKIPPED = "skipped"
    FAILED = "failed"
    ON_HOLD = "on_hold"


OPEN_TASK_STATUSES = frozenset({TaskStatus.PENDING, TaskStatus.IN_PROGRESS, TaskStatus.FAILED, TaskStatus.ON_HOLD})
OPEN_PHASE_STATUSES = frozenset({PhaseStatus.PENDING, PhaseStatus.IN_PROGRESS, PhaseStatus.ON_HOLD})


@dataclass(frozen=True, slots=True, kw_only=True)
class Criterion:
    """One acceptance criterion, and whether it is met."""

    text: Annotated[str, Field(min_length=1, max_length=2000), NotBlank]
    checked: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The number of items and of completed items."""

    total: int = 0
    completed: int = 0

    @property
    def percentage(self) -> int:
        """The completed share in whole percent, rounded down; 0 if there are no items."""
        return self.completed * 100 // self.total if self.total else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSettings:
    """The fields of a plan that can be changed."""

    title: Title
    description: Text = ""
    org: Org | None = None
    project: Project | None = None
    metadata: Metadata = field(default_factory=dict[str, object])


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan(PlanSettings):
    """
    A plan as stored. Times are UTC.

    Attributes:
        template: The slug of the template that the plan was created from, or None. *template_version* is the version of it.
        created_by: The id of the key that created the plan.
        archived_from: The status before archiving, which restoring brings back.
        event_seq: The seq of the newest event.
        version: The ETag of the plan. It grows with changes of the plan's own fields and status, not with work in the plan.
    """

    id: str
    workspace_id: int
    slug: str
    status: PlanStatus
    template: str | None = None
    template_version: str | None = None
    variables: JsonObject | None = None
    created_by: str
    archived_from: PlanStatus | None = None
    archive_reason: str | None = None
    event_seq: int = 0
    version: int = 1
    created_at: datetime
    updated_at: datetime
    started_at: datetime | None = None
    completed_at: datetime | None = None
    archived_at: datetime | None = None

    @property
    def template_used(self) -> dict[str, object] | None:
        """The slug and the version of the template, or None."""
        return None if self.template is None else {"slug": self.template, "version": self.template_version}


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseSettings:
    """The fields of a phase that can be changed."""

    name: Title
    description: Text = ""
    acceptance_criteria: tuple[Criterion, ...] = ()
    metadata: Metadata = field(default_factory=dict[str, object])


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase(PhaseSettings):
    """A phase as stored. *position* counts from 1 within the plan, without gaps."""

    id: str
    workspace_id: int
    plan_id: str
    position: int
    status: PhaseStatus
    hold_reason: str | None = None
    version: int = 1
    created_at: datetime
    updated_at: datetime
    started_at: datetime | None = None
    completed_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A note on the progress of a phase. It is never changed."""

    id: str
    workspace_id: int
    plan_id: str
    phase_id: str
    note: str
    context: JsonObject
    key_id: str
    agent_id: str | None
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskClaim:
    """
    A lease on a task that ends at *expires_at*. A heartbeat extends it.

    Attributes:
        token: A secret that only the claiming client receives. It proves that a client holds the lease.
    """

    token: str
    key_id: str
    agent_id: str | None
    session_id: str | None
    claimed_at: datetime
    expires_at: datetime

    @property
    def holder(self) -> dict[str, object]:
        """Return the public description of the holder, without the token."""
        return {"agent_id": self.agent_id, "session_id": self.session_id, "key_id": self.key_id}


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSettings(PhaseSettings):
    """The fields of a task that can be changed."""

    priority: Priority = 2
    notes: Text = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task(TaskSettings):
    """
    A task as stored. *position* counts from 1 within the phase, without gaps.

    Attributes:
        result: The result of the work, any JSON value, or None.
        error: The reason of the failure, as the worker reported it.
        attempts: The number of attempts without success: expired leases and failures.
    """

    id: str
    workspace_id: int
    plan_id: str
    phase_id: str
    position: int
    status: TaskStatus
    hold_reason: str | None = None
    result: object = None
    error: str | None = None
    attempts: int = 0
    claim: TaskClaim | None = None
    version: int = 1
    created_at: datetime
    updated_at: datetime
    started_at: datetime | None = None
    completed_at: datetime | None = None

    def as_of(self, now: datetime) -> Task:
        """
        Return the task as of *now*, without its lease if that has expired.

        The stored row keeps an expired lease until the next write to the task.
        """
        if self.claim is None or self.claim.expires_at > now:
            return self
        return with_expired_lease(self, now)


@dataclass(frozen=True, slots=True, kw_only=True)
class EventActor:
    """The author of a change, as its event stores it. *session_id* is set if the change was made in a session."""

    key_id: str
    agent_id: str | None
    session_id: str | None = None

    @classmethod
    def from_caller(cls, caller: Caller, session_id: str | None = None) -> EventActor:
        """Return the actor for a change made by *caller*."""
        return cls(key_id=caller.key_id, agent_id=caller.agent_id, session_id=session_id)


SYSTEM_ACTOR = EventActor(key_id="", agent_id=None)
"""The actor of changes without a caller, such as the expiry of a lease."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanEvent:
    """
    One change of a plan, a phase or a task. It is written in the transaction of the change and never updated.

    Attributes:
        seq: The number of the event in the plan, from 1, without gaps.
        type: The type, such as `task.claimed`.
        key_id: The key that made the change. Empty for changes by the system, such as the expiry of a lease.
        data: Details of the change, such as changed fields, a reason or `forced`. Its field names are stable.
    """

    plan_id: str
    workspace_id: int
    seq: int
    type: str
    at: datetime
    key_id: str
    agent_id: str | None
    session_id: str | None
    phase_id: str | None
    task_id: str | None
    data: JsonObject


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanAccessFilter:
    """
    The plans that a caller has access to: those of its workspace, in the orgs and projects of its key.

    Attributes:
        orgs: The allowed orgs. None allows all plans, including those without an org.
        projects: The allowed projects. None allows all plans, including those without a project.
    """

    workspace_id: int
    orgs: frozenset[str] | None = None
    projects: frozenset[str] | None = None

    @classmethod
    def from_caller(cls, caller: Caller) -> PlanAccessFilter:
        return cls(workspace_id=caller.workspace_id, orgs=caller.orgs, projects=caller.projects)

    def allows(self, plan: Plan) -> bool:
        """Return True if the filter includes *plan*."""
        return (
            plan.workspace_id == self.workspace_id
            and (self.orgs is None or plan.org in self.orgs)
            and (self.projects is None or plan.project in self.projects)
        )


def with_expired_lease(task: Task, now: datetime) -> Task:
    """Return *task* after its lease expired: pending, or failed after more than `MAX_TASK_ATTEMPTS` attempts."""
    attempts = task.attempts + 1
    if attempts > MAX_TASK_ATTEMPTS:
        return replace(
            task,
            status=TaskStatus.FAILED,
            attempts=attempts,
            claim=None,
            error=f"The lease expired {format_count(attempts, 'time')}.",
            updated_at=now,
        )
    return replace(task, status=TaskStatus.PENDING, attempts=attempts, claim=None, updated_at=now)
