"""
Request models of plans, phases and tasks. Their changes are in `models.drafts`.

In a PATCH, null clears a field. In other requests, null means the default.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator

from rookery.agents.models.drafts import Criteria, Force, PhaseDraft, PlanDraft, Reason, TaskDraft
from rookery.agents.models.plans import (
    MAX_PHASES_PER_PLAN,
    MAX_TASKS_PER_PLAN,
    MAX_TEXT_LENGTH,
    Metadata,
    PhaseStatus,
    PlanStatus,
)
from rookery.kernel.projections import Body
from rookery.kernel.schema import NotBlank, PatchModel, RequestModel, enum_schema
from rookery.kernel.unset import UNSET

MAX_TTL_S = 24 * 60 * 60


def _from_name(value: object) -> object:
    """Convert a string to an object with only a name."""
    return {"name": value} if isinstance(value, str) else value


ErrorText = Annotated[str, Field(min_length=1, max_length=MAX_TEXT_LENGTH, description="What went wrong."), NotBlank]
SessionId = Annotated[str, Field(min_length=1, max_length=100, description="The session in which the work is done."), NotBlank]
Ttl = Annotated[int, Field(ge=1, le=MAX_TTL_S, description="The duration of the lease in seconds, from now.")]
PlanRef = Annotated[str, Field(min_length=1, max_length=100, description="The slug or id of a plan.")]
NameText = Annotated[str, Field(min_length=1, max_length=255)]
"""A text that stands for an object with this name alone."""


class TaskBody(Body[TaskDraft]):
    """A task to create. In a list, a string is the name of a task."""

    hidden = frozenset({"position"})
    resets_by_null = True

    acceptance_criteria: Criteria | None = None


class NewTaskBody(TaskBody):
    """A task to add to a phase."""

    hidden = frozenset[str]()


Tasks = Annotated[
    tuple[Annotated[TaskBody, BeforeValidator(_from_name, json_schema_input_type=NameText | TaskBody)], ...],
    Field(strict=False, max_length=MAX_TASKS_PER_PLAN, description="The tasks, each as a name or an object."),
]


class PhaseBody(Body[PhaseDraft]):
    """A phase to create, with its tasks."""

    hidden = frozenset({"position"})
    resets_by_null = True

    acceptance_criteria: Criteria | None = None
    tasks: Tasks | None = None


class NewPhaseBody(PhaseBody):
    """A phase to add to a plan."""

    hidden = frozenset[str]()


DEFAULT_PHASE_NAME = "Tasks"
"""The name of the phase of a plan that is created with `tasks` instead of `phases`."""


class PlanBody(Body[PlanDraft]):
    """A plan to create, with phases and tasks, or only with tasks."""

    hidden = frozenset({"template", "variables", "is_flat"})
    resets_by_null = True

    status: Annotated[
        Literal["draft", "active"],
        Field(description="Tasks of a draft are claimed only on requests for the plan, one of its tasks or its session."),
    ] = "draft"
    phases: (
        Annotated[
            tuple[Annotated[PhaseBody, BeforeValidator(_from_name, json_schema_input_type=NameText | PhaseBody)], ...],
            Field(
                strict=False,
                max_length=MAX_PHASES_PER_PLAN,
                description="The phases in their order, each as a name or an object with its tasks.",
            ),
        ]
        | None
    ) = None
    tasks: Annotated[Tasks, Field(description=f"Instead of phases: the tasks of one phase with the name {DEFAULT_PHASE_NAME}.")] | None = (
        None
    )

    @field_validator("tasks")
    @classmethod
    def _require_no_phases(cls, tasks: tuple[TaskBody, ...] | None, info: ValidationInfo) -> tuple[TaskBody, ...] | None:
        if tasks and info.data.get("phases"):
            msg = "must not be combined with phases; put the tasks into one of the phases"
            raise ValueError(msg)
        return tasks

    def to_draft(self) -> PlanDraft:
        """Return the draft, with defaults filled in."""
        others: dict[str, Any] = {"status": PlanStatus(self.status)}
        if self.tasks:
            tasks = tuple(task.to_model() for task in self.tasks)
            others |= {"phases": (PhaseDraft(name=DEFAULT_PHASE_NAME, tasks=tasks),), "is_flat": True}
        return self.to_model(**others)


class PlanStatusBody(PatchModel):
    """The new status of a plan."""

    action_fields = frozenset({"force"})

    status: Annotated[PlanStatus, Field(strict=False, description="The new status."), enum_schema(PlanStatus)]
    reason: Reason | UNSET | None = UNSET
    force: Force | UNSET = UNSET


class ArchiveBody(RequestModel):
    """The reason for archiving a plan."""

    reason: Reason | None = None


class PhaseStatusBody(PatchModel):
    """The new status of a phase."""

    action_fields = frozenset({"force"})

    status: Annotated[PhaseStatus, Field(strict=False, description="The new status."), enum_schema(PhaseStatus)]
    reason: Reason | UNSET | None = UNSET
    force: Force | UNSET = UNSET


class CheckpointBody(RequestModel):
    """A note on the progress of a phase."""

    note: Annotated[str, Field(min_length=1, max_length=MAX_TEXT_LENGTH, description="What has been reached."), NotBlank]
    context: Metadata | None = None
