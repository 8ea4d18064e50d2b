"""What is asked for of plans, phases and tasks: those to be, what is to change, which are to be listed."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from rookery.agents.models.plans import Criterion, JsonObject, PlanStatus, TaskStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskDraft:
    """A task to be; *depends_on* names tasks as its author wrote them: by id, key, name, or position in the phase."""

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
    """A phase to be; *depends_on* names phases by id, key, name, or position in the plan."""

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
    A plan to be, with all that is in it.

    Attributes:
        slug: None: made of the title.
        status: draft, or active from the start.
        is_flat: Whether its author gave tasks without phases, which are now those of one phase; for the names of wrong fields.
    """

    title: str
    description: str = ""
    slug: str | None = None
    status: PlanStatus = PlanStatus.DRAFT
    org: str | None = None
    project: str | None = None
    template: str | None = None
    template_version: str | None = None
    variables: JsonObject | None = None
    metadata: JsonObject = field(default_factory=dict[str, object])
    phases: tuple[PhaseDraft, ...] = ()
    is_flat: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFilter:
    """Which plans are asked for; None: all, but archived ones only by their status. *q* is found in title, slug or description."""

    status: PlanStatus | None = None
    org: str | None = None
    project: str | None = None
    q: str | None = None


class TaskState(StrEnum):
    """What tasks can be asked for by: a stored status, or what is derived."""

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
    """What to change of a plan: only the fields that *fields_set* names count."""

    fields_set: frozenset[str]
    title: str = ""
    description: str = ""
    org: str | None = None
    project: str | None = None
    metadata: JsonObject = field(default_factory=dict[str, object])


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseChange:
    """The same of a phase; *position* puts it there and moves those between."""

    fields_set: frozenset[str]
    name: str = ""
    description: str = ""
    position: int = 1
    depends_on: tuple[str | int, ...] = ()
    acceptance_criteria: tuple[Criterion, ...] = ()
    metadata: JsonObject = field(default_factory=dict[str, object])


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskChange:
    """
    The same of a task.

    Attributes:
        reason: Why it is put on hold, or failed.
        claim_token: Of the lease, where the status of a claimed task changes.
        force: Change the status whoever has it, and whatever it waits for; recorded.
    """

    fields_set: frozenset[str]
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
    """Which tasks are asked for; None: all. *plan* is a slug or an id, *phase* an id or a position."""

    state: TaskState | None = None
    plan: str | None = None
    phase: str | None = None
    session_id: str | None = None
