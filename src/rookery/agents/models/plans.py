"""Plans, their phases and tasks (D-60), and who works on them (D-61)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from rookery.access.models import Caller

MAX_PHASES_PER_PLAN = 200
"""Phases of a plan."""

MAX_TASKS_PER_PLAN = 10_000
"""Tasks of a plan, in all its phases together."""

MAX_TASK_ATTEMPTS = 5
"""A task whose lease ran out more often fails: something in it stops whoever takes it (D-61)."""

JsonObject = Mapping[str, object]
"""A JSON object of the caller's own."""


class PlanStatus(StrEnum):
    """Where a plan stands."""

    DRAFT = "draft"
    ACTIVE = "active"
    PAUSED = "paused"
    COMPLETED = "completed"
    ARCHIVED = "archived"


class PhaseStatus(StrEnum):
    """Where a phase stands, as stored; blocked and ready are derived."""

    PENDING = "pending"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    SKIPPED = "skipped"
    ON_HOLD = "on_hold"


class TaskStatus(StrEnum):
    """Where a task stands, as stored; blocked and ready are derived."""

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
    """One thing that must be true of finished work."""

    text: str
    checked: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How much is done: *percentage* is whole, and 100 only of all of it."""

    total: int = 0
    completed: int = 0

    @property
    def percentage(self) -> int:
        """Return the share that is done, in percent; of nothing, 0."""
        return self.completed * 100 // self.total if self.total else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """
    A plan as stored; times are UTC.

    Attributes:
        template: The slug of the template that it was made of, if any; *template_version* the hash of that.
        created_by: The id of the key that made it.
        archived_from: The status that restoring brings back.
        event_seq: The number of its newest event.
        version: Counts the changes of its own fields and status: what an ETag says (D-64). Work in it does not count.
    """

    id: str
    workspace_id: int
    slug: str
    title: str
    description: str
    status: PlanStatus
    org: str | None
    project: str | None
    template: str | None = None
    template_version: str | None = None
    variables: JsonObject | None = None
    metadata: JsonObject
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """A phase as stored; *position* counts from 1 within the plan, without gaps."""

    id: str
    workspace_id: int
    plan_id: str
    position: int
    name: str
    description: str
    status: PhaseStatus
    hold_reason: str | None = None
    acceptance_criteria: tuple[Criterion, ...]
    metadata: JsonObject
    version: int = 1
    created_at: datetime
    updated_at: datetime
    started_at: datetime | None = None
    completed_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """What somebody noted of a phase on the way; never changed."""

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
    A lease of a task: until *expires_at*, and longer with each heartbeat.

    Attributes:
        token: Known to who claimed it alone; whoever shows it is the holder.
    """

    token: str
    key_id: str
    agent_id: str | None
    session_id: str | None
    claimed_at: datetime
    expires_at: datetime

    def holder(self) -> dict[str, object]:
        """Return who it is, for others to see."""
        return {"agent_id": self.agent_id, "session_id": self.session_id, "key_id": self.key_id}


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """
    A task as stored; *position* counts from 1 within the phase, without gaps.

    Attributes:
        priority: 0 is the most urgent, 4 the least.
        result: What came of it: JSON of any kind; None: nothing was said.
        error: Why it failed, in the words of who did it.
        attempts: How often work on it ended without a result: a lease that ran out, or a failure.
    """

    id: str
    workspace_id: int
    plan_id: str
    phase_id: str
    position: int
    name: str
    description: str
    status: TaskStatus
    hold_reason: str | None = None
    priority: int
    notes: str
    result: object = None
    error: str | None = None
    acceptance_criteria: tuple[Criterion, ...]
    metadata: JsonObject
    attempts: int = 0
    claim: TaskClaim | None = None
    version: int = 1
    created_at: datetime
    updated_at: datetime
    started_at: datetime | None = None
    completed_at: datetime | None = None

    def as_of(self, now: datetime) -> Task:
        """
        Return the task as it is at *now*: a lease that has run out is none, whoever notes it first.

        Whoever writes next keeps it so; until then the row still has the lease.
        """
        if self.claim is None or self.claim.expires_at > now:
            return self
        return with_expired_lease(self, now)


@dataclass(frozen=True, slots=True, kw_only=True)
class EventActor:
    """Who makes a change, as its event keeps it: *session_id* where the change was made in one."""

    key_id: str
    agent_id: str | None
    session_id: str | None = None

    @classmethod
    def from_caller(cls, caller: Caller, session_id: str | None = None) -> EventActor:
        """Return who acts when *caller* makes a change."""
        return cls(key_id=caller.key_id, agent_id=caller.agent_id, session_id=session_id)


SYSTEM_ACTOR = EventActor(key_id="", agent_id=None)
"""Who notes that a lease has run out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanEvent:
    """
    One change of a plan or of something in it, written with the change and never after (D-64).

    Attributes:
        seq: Its number in the plan, from 1, without gaps.
        type: Such as `task.claimed`.
        key_id: Empty where no key acted, as when a lease runs out.
        data: What else there is to say, in words that stay: changed fields, a reason, `forced`.
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
    Which plans somebody may see at all: those of their workspace, and of the orgs and projects that their key names (D-23).

    Attributes:
        orgs: A plan of one of these; None: any plan, one without an org too. So too *projects*.
    """

    workspace_id: int
    orgs: frozenset[str] | None = None
    projects: frozenset[str] | None = None

    @classmethod
    def from_caller(cls, caller: Caller) -> PlanAccessFilter:
        """Return what *caller* may see."""
        return cls(workspace_id=caller.workspace_id, orgs=caller.orgs, projects=caller.projects)

    def allows(self, plan: Plan) -> bool:
        """Tell whether *plan* is among them."""
        return (
            plan.workspace_id == self.workspace_id
            and (self.orgs is None or plan.org in self.orgs)
            and (self.projects is None or plan.project in self.projects)
        )


def with_expired_lease(task: Task, now: datetime) -> Task:
    """Return *task* after its lease ran out: to be taken again, or failed when that happened too often (D-61)."""
    attempts = task.attempts + 1
    if attempts > MAX_TASK_ATTEMPTS:
        return replace(
            task, status=TaskStatus.FAILED, attempts=attempts, claim=None, error=f"Its lease ran out {attempts} times.", updated_at=now
        )
    return replace(task, status=TaskStatus.PENDING, attempts=attempts, claim=None, updated_at=now)
