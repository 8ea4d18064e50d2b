"""Drafts, changes and filters of plans, phases and tasks, as requests describe them."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from rookery.agents.models.plans import Criterion, JsonObject, PhaseStatus, PlanStatus, TaskStatus
from rookery.agents.models.templates import StoredTemplate
from rookery.kernel.unset import UNSET


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskDraft:
    """A task to create. *depends_on* refers to tasks by id, key, name, or position in the phase."""

    name: str
    description: str = ""
    priority: int = 2
    notes: str = ""
    key: str | None = None
    depends_on: tuple[str | int, ...] = ()
    acceptance_criteria: tuple[Criterion, ...] = ()
    metadata: JsonObject = field(default_factory=dict[str, object])
    position: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseDraft:
    """A phase to create. *depends_on* refers to phases by id, key, name, or position in the plan."""

    name: str
    description: str = ""
    key: str | None = None
    depends_on: tuple[str | int, ...] = ()
    acceptance_criteria: tuple[Criterion, ...] = ()
    metadata: JsonObject = field(default_factory=dict[str, object])
    tasks: tuple[TaskDraft, ...] = ()
    position: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanDraft:
    """
    A plan to create, with its phases and tasks.

    Attributes:
        slug: None derives the slug from the title.
        status: DRAFT or ACTIVE.
        template: The template that the plan is created from, or None. *variables* are its values.
        is_flat: True if the request had tasks without phases. They are in one phase here; validation errors still name `tasks`.
    """

    title: str
    description: str = ""
    slug: str | None = None
    status: PlanStatus = PlanStatus.DRAFT
    org: str | None = None
    project: str | None = None
    template: StoredTemplate | None = None
    variables: JsonObject | None = None
    metadata: JsonObject = field(default_factory=dict[str, object])
    phases: tuple[PhaseDraft, ...] = ()
    is_flat: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFilter:
    """A filter of plans. None matches all, but without a *status* archived plans are left out. *q* searches title, slug, description."""

    status: PlanStatus | None = None
    org: str | None = None
    project: str | None = None
    q: str | None = None


class TaskState(StrEnum):
    """A state that tasks can be filtered by: a stored status, or READY or BLOCKED, which are derived."""

    PENDING = "pending"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    SKIPPED = "skipped"
    FAILED = "failed"
    ON_HOLD = "on_hold"
    READY = "ready"
    BLOCKED = "blocked"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanChange:
    """A change of a plan. Fields that are not set keep their value."""

    title: str | UNSET = UNSET
    description: str | UNSET = UNSET
    org: str | UNSET | None = UNSET
    project: str | UNSET | None = UNSET
    metadata: JsonObject | UNSET = UNSET


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseChange:
    """A change of a phase. Fields that are not set keep their value. A new *position* shifts the phases in between."""

    name: str | UNSET = UNSET
    description: str | UNSET = UNSET
    position: int | UNSET = UNSET
    depends_on: tuple[str | int, ...] | UNSET = UNSET
    acceptance_criteria: tuple[Criterion, ...] | UNSET = UNSET
    metadata: JsonObject | UNSET = UNSET


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskChange:
    """
    A change of a task. Fields that are not set keep their value.

    Attributes:
        reason: The reason for the status on_hold or failed.
        claim_token: The token of the lease, required to change the status of a claimed task.
        force: Change the status although the task is claimed or blocked. The event records it.
    """

    name: str | UNSET = UNSET
    description: str | UNSET = UNSET
    notes: str | UNSET = UNSET
    priority: int | UNSET = UNSET
    position: int | UNSET = UNSET
    depends_on: tuple[str | int, ...] | UNSET = UNSET
    acceptance_criteria: tuple[Criterion, ...] | UNSET = UNSET
    metadata: JsonObject | UNSET = UNSET
    status: TaskStatus | UNSET = UNSET
    result: object = UNSET
    reason: str | None = None
    claim_token: str | None = None
    force: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFilter:
    """A filter of tasks; None matches all. *plan* is a slug or an id, *phase* an id or a position."""

    state: TaskState | None = None
    plan: str | None = None
    phase: str | None = None
    session_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseStatusChange:
    """A new status of a phase. *reason* is stored for on_hold; *force* ignores open tasks and unfinished dependencies."""

    status: PhaseStatus
    reason: str | None = None
    force: bool = False
