"""Drafts, changes and filters of plans, phases and tasks, as requests describe them."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from rookery.agents.models.plans import Criterion, JsonObject, PhaseStatus, PlanStatus, TaskStatus
from rookery.agents.models.templates import StoredTemplate


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
class FieldChange:
    """The base of changes. Only the fields named in *fields_set* are applied."""

    fields_set: frozenset[str]

    def read(self, *names: str) -> dict[str, Any]:
        """Return the new values of those *names* that change."""
        return {name: getattr(self, name) for name in names if name in self.fields_set}


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanChange(FieldChange):
    title: str = ""
    description: str = ""
    org: str | None = None
    project: str | None = None
    metadata: JsonObject = field(default_factory=dict[str, object])


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseChange(FieldChange):
    """A change of a phase. A new *position* shifts the phases in between."""

    name: str = ""
    description: str = ""
    position: int = 1
    depends_on: tuple[str | int, ...] = ()
    acceptance_criteria: tuple[Criterion, ...] = ()
    metadata: JsonObject = field(default_factory=dict[str, object])


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskChange(FieldChange):
    """
    A change of a task.

    Attributes:
        reason: The reason for the status on_hold or failed.
        claim_token: The token of the lease, required to change the status of a claimed task.
        force: Change the status although the task is claimed or blocked. The event records it.
    """

    name: str = ""
    description: str = ""
    notes: str = ""
    priority: int = 2
    position: int = 1
    depends_on: tuple[str | int, ...] = ()
    acceptance_criteria: tuple[Criterion, ...] = ()
    metadata: JsonObject = field(default_factory=dict[str, object])
    status: TaskStatus = TaskStatus.PENDING
    result: object = None
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
