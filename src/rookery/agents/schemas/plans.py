"""
Request models of plans, phases and tasks.

In a PATCH, null clears a field. In other requests, null means the default.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, cast

import orjson
from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, field_validator

from rookery.agents.models.drafts import (
    PhaseChange,
    PhaseDraft,
    PhaseStatusChange,
    PlanChange,
    PlanDraft,
    TaskChange,
    TaskDraft,
)
from rookery.agents.models.plans import MAX_PHASES_PER_PLAN, MAX_TASKS_PER_PLAN, Criterion, PhaseStatus, PlanStatus, TaskStatus
from rookery.agents.plans.plan_builder import MAX_SLUG_LENGTH
from rookery.kernel.schema import NotBlank, PatchModel, RequestModel
from rookery.kernel.unset import UNSET

MAX_TEXT_LENGTH = 20_000
MAX_METADATA_BYTES = 16 * 1024
MAX_RESULT_BYTES = 64 * 1024
MAX_TTL_S = 24 * 60 * 60

_BYTES_PER_KIB = 1024


def _require_size(max_bytes: int, value: object) -> None:
    size = len(orjson.dumps(value))
    if size > max_bytes:
        msg = f"must take at most {max_bytes // _BYTES_PER_KIB} KiB as JSON; it takes {size:,} bytes"
        raise ValueError(msg)


def _limit_metadata(value: dict[str, object]) -> dict[str, object]:
    _require_size(MAX_METADATA_BYTES, value)
    return value


def _limit_result(value: object) -> object:
    _require_size(MAX_RESULT_BYTES, value)
    return value


def _from_name(value: object) -> object:
    """Convert a string to an object with only a name."""
    return {"name": value} if isinstance(value, str) else value


def _from_text(value: object) -> object:
    return {"text": value} if isinstance(value, str) else value


Title = Annotated[str, Field(min_length=1, max_length=255, description="The name, for people."), NotBlank]
Slug = Annotated[
    str,
    Field(
        pattern=r"^[a-z0-9](?:[a-z0-9-]*[a-z0-9])?$",
        max_length=MAX_SLUG_LENGTH,
        description="The name of the plan in URLs, unique in the workspace. Default: made from the title.",
        examples=["move-to-postgresql"],
    ),
]
Text = Annotated[str, Field(max_length=MAX_TEXT_LENGTH, description="A text in Markdown.")]
Reason = Annotated[str, Field(min_length=1, max_length=2000, description="The reason, for the list of events.")]
Org = Annotated[str, Field(min_length=1, max_length=100, description="The organisation namespace.", examples=["acme"]), NotBlank]
Project = Annotated[str, Field(min_length=1, max_length=255, description="The project within the org.", examples=["web"]), NotBlank]
Metadata = Annotated[dict[str, object], AfterValidator(_limit_metadata), Field(description="A JSON object of your own, at most 16 KiB.")]
Result = Annotated[object, AfterValidator(_limit_result), Field(description="The result of the work: any JSON, at most 64 KiB.")]
Key = Annotated[str, Field(min_length=1, max_length=100, description="A short name within this request, for use in depends_on.")]
Ref = Annotated[str, Field(min_length=1, max_length=255)] | Annotated[int, Field(ge=1, le=MAX_TASKS_PER_PLAN)]
ErrorText = Annotated[str, Field(min_length=1, max_length=MAX_TEXT_LENGTH, description="What went wrong."), NotBlank]
Priority = Annotated[int, Field(ge=0, le=4, description="From 0, the most urgent, to 4, the least urgent.")]
Position = Annotated[int, Field(ge=1, le=MAX_TASKS_PER_PLAN, description="The position, from 1. Later items move down.")]
SessionId = Annotated[str, Field(min_length=1, max_length=100, description="The session in which the work is done."), NotBlank]
Token = Annotated[str, Field(min_length=1, max_length=100, description="The claim_token that the claim returned.")]
Ttl = Annotated[int, Field(ge=1, le=MAX_TTL_S, description="The duration of the lease in seconds, from now.")]
Force = Annotated[bool, Field(description="Skip the checks that would reject the change. The event records it.")]
PlanRef = Annotated[str, Field(min_length=1, max_length=100, description="The slug or id of a plan.")]

PhaseRefs = Annotated[
    list[Ref],
    Field(max_length=MAX_PHASES_PER_PLAN, description="Phases that must be done first, by id, key, name or position in the plan."),
]
TaskRefs = Annotated[
    list[Ref], Field(max_length=1000, description="Tasks of the plan that must be done first, by id, key, name or position in the phase.")
]


def read_fields(body: RequestModel) -> dict[str, Any]:
    """Return the fields of *body* for its draft or change, which has defaults for those that are null."""
    values = {name: getattr(body, name) for name in type(body).model_fields}
    return {name: _to_model(value) for name, value in values.items() if value is not None}


def _to_model(value: object) -> object:
    if isinstance(value, list):
        return tuple(_to_model(item) for item in cast("list[object]", value))
    if isinstance(value, CriterionBody):
        return Criterion(text=value.text, checked=value.checked)
    return value.to_draft() if isinstance(value, (TaskBody, PhaseBody)) else value


NameText = Annotated[str, Field(min_length=1, max_length=255)]
"""A text that stands for an object with this name alone."""

CriterionText = Annotated[str, Field(min_length=1, max_length=2000)]
"""A text that stands for an unchecked criterion."""


class CriterionBody(RequestModel):
    """An acceptance criterion. A string is an unchecked criterion."""

    text: Annotated[str, Field(min_length=1, max_length=2000), NotBlank]
    checked: bool = False


Criteria = Annotated[
    list[Annotated[CriterionBody, BeforeValidator(_from_text, json_schema_input_type=CriterionText | CriterionBody)]],
    Field(max_length=100, description="Conditions that the result must meet, each as a text, or as an object with `checked`."),
]


class TaskBody(RequestModel):
    """A task to create. In a list, a string is the name of a task."""

    name: Title
    description: Text | None = None
    priority: Priority | None = None
    notes: Text | None = None
    key: Key | None = None
    depends_on: TaskRefs | None = None
    acceptance_criteria: Criteria | None = None
    metadata: Metadata | None = None

    def to_draft(self) -> TaskDraft:
        """Return the draft, with defaults filled in."""
        return TaskDraft(**read_fields(self))


class NewTaskBody(TaskBody):
    """A task to add to a phase."""

    position: Position | None = None


Tasks = Annotated[
    list[Annotated[TaskBody, BeforeValidator(_from_name, json_schema_input_type=NameText | TaskBody)]],
    Field(max_length=MAX_TASKS_PER_PLAN, description="The tasks, each as a name or an object."),
]


class PhaseBody(RequestModel):
    """A phase to create, with its tasks."""

    name: Title
    description: Text | None = None
    key: Key | None = None
    depends_on: PhaseRefs | None = None
    acceptance_criteria: Criteria | None = None
    metadata: Metadata | None = None
    tasks: Tasks | None = None

    def to_draft(self) -> PhaseDraft:
        """Return the draft, with defaults filled in."""
        return PhaseDraft(**read_fields(self))


class NewPhaseBody(PhaseBody):
    """A phase to add to a plan."""

    position: Position | None = None


DEFAULT_PHASE_NAME = "Tasks"
"""The name of the phase of a plan that is created with `tasks` instead of `phases`."""


class PlanBody(RequestModel):
    """A plan to create, with phases and tasks, or only with tasks."""

    title: Title
    description: Text | None = None
    slug: Slug | None = None
    status: Annotated[
        Literal["draft", "active"],
        Field(description="Tasks of a draft are claimed only on requests for the plan, one of its tasks or its session."),
    ] = "draft"
    org: Org | None = None
    project: Project | None = None
    metadata: Metadata | None = None
    phases: (
        Annotated[
            list[Annotated[PhaseBody, BeforeValidator(_from_name, json_schema_input_type=NameText | PhaseBody)]],
            Field(max_length=MAX_PHASES_PER_PLAN, description="The phases in their order, each as a name or an object with its tasks."),
        ]
        | None
    ) = None
    tasks: Annotated[Tasks, Field(description=f"Instead of phases: the tasks of one phase with the name {DEFAULT_PHASE_NAME}.")] | None = (
        None
    )

    @field_validator("tasks")
    @classmethod
    def _require_no_phases(cls, tasks: list[TaskBody] | None, info: ValidationInfo) -> list[TaskBody] | None:
        if tasks and info.data.get("phases"):
            msg = "must not be combined with phases; put the tasks into one of the phases"
            raise ValueError(msg)
        return tasks

    def to_draft(self) -> PlanDraft:
        """Return the draft, with defaults filled in."""
        fields: dict[str, Any] = {**read_fields(self), "status": PlanStatus(self.status)}
        if tasks := fields.pop("tasks", ()):
            fields["phases"] = (PhaseDraft(name=DEFAULT_PHASE_NAME, tasks=tasks),)
        return PlanDraft(**fields, is_flat=bool(tasks))


def read_changes(body: PatchModel) -> dict[str, Any]:
    """Return the fields that were sent for the change of *body*. A null becomes the empty value of its field."""
    empty: dict[str, object] = {"description": "", "notes": "", "depends_on": (), "acceptance_criteria": (), "metadata": {}}
    return {name: empty.get(name) if value is None else _to_model(value) for name, value in body.get_set_fields().items()}


class PlanPatch(PatchModel):
    """A change of a plan. Omitted fields stay unchanged; null clears optional fields."""

    title: Title | UNSET = UNSET
    description: Text | UNSET | None = UNSET
    org: Org | UNSET | None = UNSET
    project: Project | UNSET | None = UNSET
    metadata: Metadata | UNSET | None = UNSET

    def to_change(self) -> PlanChange:
        return PlanChange(**read_changes(self))


class PlanStatusBody(PatchModel):
    """The new status of a plan."""

    action_fields = frozenset({"force"})

    status: Annotated[Literal["draft", "active", "paused", "completed", "archived"], Field(description="The new status.")]
    reason: Reason | UNSET | None = UNSET
    force: Force | UNSET = UNSET

    def to_status(self) -> PlanStatus:
        return PlanStatus(self.status)


class ArchiveBody(RequestModel):
    """The reason for archiving a plan."""

    reason: Reason | None = None


class PhasePatch(PatchModel):
    """A change of a phase. Omitted fields stay unchanged; null clears optional fields."""

    name: Title | UNSET = UNSET
    description: Text | UNSET | None = UNSET
    position: Position | UNSET = UNSET
    depends_on: PhaseRefs | UNSET | None = UNSET
    acceptance_criteria: Criteria | UNSET | None = UNSET
    metadata: Metadata | UNSET | None = UNSET

    def to_change(self) -> PhaseChange:
        return PhaseChange(**read_changes(self))


class PhaseStatusBody(PatchModel):
    """The new status of a phase."""

    action_fields = frozenset({"force"})

    status: Annotated[Literal["pending", "in_progress", "completed", "skipped", "on_hold"], Field(description="The new status.")]
    reason: Reason | UNSET | None = UNSET
    force: Force | UNSET = UNSET

    def to_change(self) -> PhaseStatusChange:
        fields: dict[str, Any] = {**self.get_set_fields(), "status": PhaseStatus(self.status)}
        return PhaseStatusChange(**fields)


class CheckpointBody(RequestModel):
    """A note on the progress of a phase."""

    note: Annotated[str, Field(min_length=1, max_length=MAX_TEXT_LENGTH, description="What has been reached."), NotBlank]
    context: Metadata | None = None


class TaskPatch(PatchModel):
    """
    A change of a task. Omitted fields stay unchanged; null clears optional fields.

    To change the status of a claimed task, send its claim_token or force.
    """

    action_fields = frozenset({"force", "claim_token"})

    name: Title | UNSET = UNSET
    description: Text | UNSET | None = UNSET
    notes: Text | UNSET | None = UNSET
    priority: Priority | UNSET = UNSET
    position: Position | UNSET = UNSET
    depends_on: TaskRefs | UNSET | None = UNSET
    acceptance_criteria: Criteria | UNSET | None = UNSET
    metadata: Metadata | UNSET | None = UNSET
    status: Annotated[
        Literal["pending", "in_progress", "completed", "skipped", "failed", "on_hold"] | UNSET, Field(description="The new status.")
    ] = UNSET
    result: Result | UNSET = UNSET
    reason: Reason | UNSET | None = UNSET
    claim_token: Token | UNSET | None = UNSET
    force: Force | UNSET = UNSET

    def to_change(self) -> TaskChange:
        status = UNSET if self.status is UNSET else TaskStatus(self.status)
        fields: dict[str, Any] = {**read_changes(self), "result": self.result, "status": status}
        return TaskChange(**fields)
