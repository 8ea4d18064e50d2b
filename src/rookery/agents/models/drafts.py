"""Drafts, changes and filters of plans, phases and tasks."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field

from rookery.agents.models.plans import (
    MAX_PHASES_PER_PLAN,
    MAX_TASKS_PER_PLAN,
    Criterion,
    JsonObject,
    PhaseSettings,
    PlanSettings,
    PlanStatus,
    Priority,
    TaskSettings,
    TaskStatus,
    require_size,
)
from rookery.agents.models.templates import StoredTemplate
from rookery.kernel.projections import Body, Patch
from rookery.kernel.schema import enum_schema
from rookery.kernel.unset import UNSET

MAX_SLUG_LENGTH = 80
_MAX_RESULT_BYTES = 64 * 1024


def _limit_result(value: object) -> object:
    require_size(_MAX_RESULT_BYTES, value)
    return value


def _from_text(value: object) -> object:
    return {"text": value} if isinstance(value, str) else value


Slug = Annotated[
    str,
    Field(
        pattern=r"^[a-z0-9](?:[a-z0-9-]*[a-z0-9])?$",
        max_length=MAX_SLUG_LENGTH,
        description="The name of the plan in URLs, unique in the workspace. Default: made from the title.",
        examples=["move-to-postgresql"],
    ),
]
Reason = Annotated[str, Field(min_length=1, max_length=2000, description="The reason, for the list of events.")]
Result = Annotated[object, AfterValidator(_limit_result), Field(description="The result of the work: any JSON, at most 64 KiB.")]
Key = Annotated[str, Field(min_length=1, max_length=100, description="A short name within this request, for use in depends_on.")]
Position = Annotated[int, Field(ge=1, le=MAX_TASKS_PER_PLAN, description="The position, from 1. Later items move down.")]
Token = Annotated[str, Field(min_length=1, max_length=100, description="The claim_token that the claim returned.")]
Force = Annotated[bool, Field(description="Skip the checks that would reject the change. The event records it.")]

Ref = Annotated[str, Field(min_length=1, max_length=255)] | Annotated[int, Field(ge=1, le=MAX_TASKS_PER_PLAN)]
PhaseRefs = Annotated[
    tuple[Ref, ...],
    Field(max_length=MAX_PHASES_PER_PLAN, description="Phases that must be done first, by id, key, name or position in the plan."),
]
TaskRefs = Annotated[
    tuple[Ref, ...],
    Field(max_length=1000, description="Tasks of the plan that must be done first, by id, key, name or position in the phase."),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskDraft(TaskSettings):
    """A task to create."""

    key: Key | None = None
    depends_on: TaskRefs = ()
    position: Position | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseDraft(PhaseSettings):
    """A phase to create, with its tasks."""

    key: Key | None = None
    depends_on: PhaseRefs = ()
    position: Position | None = None
    tasks: tuple[TaskDraft, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanDraft(PlanSettings):
    """
    A plan to create, with its phases and tasks.

    Attributes:
        slug: None derives the slug from the title.
        status: DRAFT or ACTIVE.
        template: The template that the plan is created from, or None. *variables* are its values.
        is_flat: True if the request had tasks without phases. They are in one phase here; validation errors still name `tasks`.
    """

    slug: Slug | None = None
    status: PlanStatus = PlanStatus.DRAFT
    template: StoredTemplate | None = None
    variables: JsonObject | None = None
    phases: tuple[PhaseDraft, ...] = ()
    is_flat: bool = False


CriterionText = Annotated[str, Field(min_length=1, max_length=2000)]
"""A text that stands for an unchecked criterion."""


class CriterionBody(Body[Criterion]):
    """An acceptance criterion. A string is an unchecked criterion."""


Criteria = Annotated[
    tuple[Annotated[CriterionBody, BeforeValidator(_from_text, json_schema_input_type=CriterionText | CriterionBody)], ...],
    Field(
        strict=False, max_length=100, description="Conditions that the result must meet, each as a text, or as an object with `checked`."
    ),
]


class PlanPatch(Patch[PlanSettings]):
    """A change of a plan. Omitted fields stay unchanged; null clears optional fields."""

    resets_by_null = True


class PhasePatch(Patch[PhaseDraft]):
    """A change of a phase. Omitted fields stay unchanged; null clears optional fields."""

    hidden = frozenset({"key", "tasks"})
    resets_by_null = True

    position: Position | UNSET = UNSET
    acceptance_criteria: Criteria | UNSET | None = UNSET


class TaskPatch(Patch[TaskDraft]):
    """
    A change of a task. Omitted fields stay unchanged; null clears optional fields.

    To change the status of a claimed task, send its claim_token or force.
    """

    hidden = frozenset({"key"})
    resets_by_null = True
    action_fields = frozenset({"force", "claim_token"})

    priority: Priority | UNSET = UNSET
    position: Position | UNSET = UNSET
    acceptance_criteria: Criteria | UNSET | None = UNSET
    status: Annotated[TaskStatus | UNSET, Field(strict=False, description="The new status."), enum_schema(TaskStatus)] = UNSET
    result: Result | UNSET = UNSET
    reason: Reason | UNSET | None = UNSET
    claim_token: Token | UNSET | None = UNSET
    force: Force | UNSET = UNSET


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
class TaskFilter:
    """A filter of tasks; None matches all. *plan* is a slug or an id, *phase* an id or a position."""

    state: TaskState | None = None
    plan: str | None = None
    phase: str | None = None
    session_id: str | None = None
