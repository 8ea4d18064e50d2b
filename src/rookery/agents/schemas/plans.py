"""What callers send of plans, phases and tasks (D-60, D-61, D-65), with its bounds. Null clears in a change; else it is as not given."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

import orjson
from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, field_validator

from rookery.agents.models.drafts import (
    PhaseChange,
    PhaseDraft,
    PlanChange,
    PlanDraft,
    TaskChange,
    TaskDraft,
)
from rookery.agents.models.plans import MAX_PHASES_PER_PLAN, MAX_TASKS_PER_PLAN, Criterion, PhaseStatus, PlanStatus, TaskStatus
from rookery.agents.plans.phases import PhaseStatusChange
from rookery.agents.plans.slugs import MAX_SLUG_LENGTH
from rookery.kernel.schema import RequestModel

MAX_TEXT_LENGTH = 20_000
MAX_METADATA_BYTES = 16 * 1024
MAX_RESULT_BYTES = 64 * 1024
MAX_TTL_S = 24 * 60 * 60

_NON_BLANK = re.compile(r"\S")
_BYTES_PER_KIB = 1024


def _require_not_blank(text: str) -> str:
    if _NON_BLANK.search(text) is None:
        msg = "must not be blank"
        raise ValueError(msg)
    return text


def _require_size(max_bytes: int, value: object) -> None:
    size = len(orjson.dumps(value))
    if size > max_bytes:
        msg = f"takes {size:,} bytes as JSON; at most {max_bytes // _BYTES_PER_KIB} KiB are kept"
        raise ValueError(msg)


def _limit_metadata(value: dict[str, object]) -> dict[str, object]:
    _require_size(MAX_METADATA_BYTES, value)
    return value


def _limit_result(value: object) -> object:
    _require_size(MAX_RESULT_BYTES, value)
    return value


def _from_name(value: object) -> object:
    """Take a text alone for something that has nothing but a name."""
    return {"name": value} if isinstance(value, str) else value


def _from_text(value: object) -> object:
    return {"text": value} if isinstance(value, str) else value


Title = Annotated[str, Field(min_length=1, max_length=255), AfterValidator(_require_not_blank)]
Slug = Annotated[
    str,
    Field(
        pattern=r"^[a-z0-9](?:[a-z0-9-]*[a-z0-9])?$",
        max_length=MAX_SLUG_LENGTH,
        description="The plan's name in addresses, unique in the workspace; by default made of the title.",
        examples=["move-to-postgresql"],
    ),
]
Text = Annotated[str, Field(max_length=MAX_TEXT_LENGTH)]
Reason = Annotated[str, Field(min_length=1, max_length=2000)]
Org = Annotated[str, Field(min_length=1, max_length=100, description="The organisation namespace.", examples=["acme"])]
Project = Annotated[str, Field(min_length=1, max_length=255, description="The project within the org.", examples=["web"])]
Metadata = Annotated[dict[str, object], AfterValidator(_limit_metadata), Field(description="A JSON object of your own, at most 16 KiB.")]
Result = Annotated[object, AfterValidator(_limit_result), Field(description="What came of it: any JSON, at most 64 KiB.")]
Key = Annotated[str, Field(min_length=1, max_length=100, description="A name within this request, for depends_on.")]
Ref = Annotated[str, Field(min_length=1, max_length=255)] | Annotated[int, Field(ge=1, le=MAX_TASKS_PER_PLAN)]
ErrorText = Annotated[str, Field(min_length=1, max_length=MAX_TEXT_LENGTH), AfterValidator(_require_not_blank)]
Priority = Annotated[int, Field(ge=0, le=4, description="0 is the most urgent, 4 the least.")]
Position = Annotated[int, Field(ge=1, le=MAX_TASKS_PER_PLAN, description="Where it stands, from 1; those behind it move.")]
SessionId = Annotated[str, Field(min_length=1, max_length=100, description="The session that the work is done in.")]
Token = Annotated[str, Field(min_length=1, max_length=100, description="What the claim returned.")]
Ttl = Annotated[int, Field(ge=1, le=MAX_TTL_S, description="How many seconds the lease lasts, from now.")]
Force = Annotated[bool, Field(description="Do it all the same; the event says so.")]
PlanRef = Annotated[str, Field(min_length=1, max_length=100, description="A plan, by slug or id.")]

PhaseRefs = Annotated[
    list[Ref],
    Field(max_length=MAX_PHASES_PER_PLAN, description="Phases that must be done first, by id, key, name or position in the plan."),
]
TaskRefs = Annotated[
    list[Ref], Field(max_length=1000, description="Tasks of the plan that must be done first, by id, key, name or position in the phase.")
]


class CriterionBody(RequestModel):
    """One thing that must be true of finished work; a text alone is one that is not checked."""

    text: Annotated[str, Field(min_length=1, max_length=2000), AfterValidator(_require_not_blank)]
    checked: bool = False


Criteria = Annotated[
    list[Annotated[CriterionBody, BeforeValidator(_from_text, json_schema_input_type=str | CriterionBody)]], Field(max_length=100)
]


class TaskBody(RequestModel):
    """A task to be; in a list, a text alone is its name."""

    name: Title
    description: Text | None = None
    priority: Priority | None = None
    notes: Text | None = None
    key: Key | None = None
    depends_on: TaskRefs | None = None
    acceptance_criteria: Criteria | None = None
    metadata: Metadata | None = None

    def to_draft(self, position: int | None = None) -> TaskDraft:
        """Return the draft, with its defaults."""
        return TaskDraft(
            name=self.name,
            description=self.description or "",
            priority=2 if self.priority is None else self.priority,
            notes=self.notes or "",
            key=self.key,
            depends_on=tuple(self.depends_on or ()),
            acceptance_criteria=to_criteria(self.acceptance_criteria),
            metadata=self.metadata or {},
            position=position,
        )


class NewTaskBody(TaskBody):
    """A task to add to a phase."""

    position: Position | None = None


Tasks = Annotated[
    list[Annotated[TaskBody, BeforeValidator(_from_name, json_schema_input_type=str | TaskBody)]], Field(max_length=MAX_TASKS_PER_PLAN)
]


class PhaseBody(RequestModel):
    """A phase to be, with its tasks."""

    name: Title
    description: Text | None = None
    key: Key | None = None
    depends_on: PhaseRefs | None = None
    acceptance_criteria: Criteria | None = None
    metadata: Metadata | None = None
    tasks: Tasks | None = None

    def to_draft(self, position: int | None = None) -> PhaseDraft:
        """Return the draft, with its defaults."""
        return PhaseDraft(
            name=self.name,
            description=self.description or "",
            key=self.key,
            depends_on=tuple(self.depends_on or ()),
            acceptance_criteria=to_criteria(self.acceptance_criteria),
            metadata=self.metadata or {},
            tasks=tuple(task.to_draft() for task in self.tasks or ()),
            position=position,
        )


class NewPhaseBody(PhaseBody):
    """A phase to add to a plan."""

    position: Position | None = None


DEFAULT_PHASE_NAME = "Tasks"
"""The name of the phase of a plan that is made of tasks alone."""


class PlanBody(RequestModel):
    """A plan to be, with its phases and their tasks, or with tasks alone."""

    title: Title
    description: Text | None = None
    slug: Slug | None = None
    status: Annotated[Literal["draft", "active"], Field(description="A draft is worked on only by who names it.")] = "draft"
    org: Org | None = None
    project: Project | None = None
    metadata: Metadata | None = None
    phases: (
        Annotated[
            list[Annotated[PhaseBody, BeforeValidator(_from_name, json_schema_input_type=str | PhaseBody)]],
            Field(max_length=MAX_PHASES_PER_PLAN),
        ]
        | None
    ) = None
    tasks: (
        Annotated[Tasks, Field(description=f"In place of phases: the tasks of one phase, which is called {DEFAULT_PHASE_NAME}.")] | None
    ) = None

    @field_validator("tasks")
    @classmethod
    def _require_no_phases(cls, tasks: list[TaskBody] | None, info: ValidationInfo) -> list[TaskBody] | None:
        if tasks and info.data.get("phases"):
            msg = "must not be given beside phases; put them into one of the phases"
            raise ValueError(msg)
        return tasks

    def to_draft(self) -> PlanDraft:
        """Return the draft, with its defaults."""
        phases = tuple(phase.to_draft() for phase in self.phases or ())
        if self.tasks:
            phases = (PhaseDraft(name=DEFAULT_PHASE_NAME, tasks=tuple(task.to_draft() for task in self.tasks)),)
        return PlanDraft(
            title=self.title,
            description=self.description or "",
            slug=self.slug,
            status=PlanStatus(self.status),
            org=self.org,
            project=self.project,
            metadata=self.metadata or {},
            phases=phases,
            is_flat=bool(self.tasks),
        )


def _require_not_null(value: object) -> object:
    if value is None:
        msg = "must not be null; leave it out to keep what is there"
        raise ValueError(msg)
    return value


NotNull = BeforeValidator(_require_not_null)
"""Of a field of a change that the resource always has: left out it stays, and null is refused."""


def optional_field() -> Any:  # noqa: ANN401 - the default of a field of any type
    """Return the default of such a field, which is never read: `model_fields_set` says whether the field was given."""
    return Field(default_factory=lambda: None)


class PlanPatch(RequestModel):
    """What to change of a plan; what is left out stays, null clears what may be empty."""

    title: Annotated[Title, NotNull] = optional_field()
    description: Text | None = None
    org: Org | None = None
    project: Project | None = None
    metadata: Metadata | None = None

    def to_change(self) -> PlanChange:
        """Return the change."""
        return PlanChange(
            fields_set=frozenset(self.model_fields_set),
            title=self.title or "",
            description=self.description or "",
            org=self.org,
            project=self.project,
            metadata=self.metadata or {},
        )


class PlanStatusBody(RequestModel):
    """The status that a plan is to have."""

    status: Literal["draft", "active", "paused", "completed", "archived"]
    reason: Reason | None = None
    force: Force = False

    def to_status(self) -> PlanStatus:
        """Return the status."""
        return PlanStatus(self.status)


class ArchiveBody(RequestModel):
    """Why a plan is put away."""

    reason: Reason | None = None


class PhasePatch(RequestModel):
    """What to change of a phase; what is left out stays, null clears what may be empty."""

    name: Annotated[Title, NotNull] = optional_field()
    description: Text | None = None
    position: Annotated[Position, NotNull] = optional_field()
    depends_on: PhaseRefs | None = None
    acceptance_criteria: Criteria | None = None
    metadata: Metadata | None = None

    def to_change(self) -> PhaseChange:
        """Return the change."""
        return PhaseChange(
            fields_set=frozenset(self.model_fields_set),
            name=self.name or "",
            description=self.description or "",
            position=self.position or 1,
            depends_on=tuple(self.depends_on or ()),
            acceptance_criteria=to_criteria(self.acceptance_criteria),
            metadata=self.metadata or {},
        )


class PhaseStatusBody(RequestModel):
    """The status that a phase is to have."""

    status: Literal["pending", "in_progress", "completed", "skipped", "on_hold"]
    reason: Reason | None = None
    force: Force = False

    def to_change(self) -> PhaseStatusChange:
        """Return what is asked for."""
        return PhaseStatusChange(status=PhaseStatus(self.status), reason=self.reason, force=self.force)


class CheckpointBody(RequestModel):
    """What to note of a phase."""

    note: Annotated[str, Field(min_length=1, max_length=MAX_TEXT_LENGTH), AfterValidator(_require_not_blank)]
    context: Metadata | None = None


class TaskPatch(RequestModel):
    """
    What to change of a task; what is left out stays, null clears what may be empty.

    The status of a claimed task is changed with its token, or by force.
    """

    name: Annotated[Title, NotNull] = optional_field()
    description: Text | None = None
    notes: Text | None = None
    priority: Annotated[Priority, NotNull] = optional_field()
    position: Annotated[Position, NotNull] = optional_field()
    depends_on: TaskRefs | None = None
    acceptance_criteria: Criteria | None = None
    metadata: Metadata | None = None
    status: Annotated[Literal["pending", "in_progress", "completed", "skipped", "failed", "on_hold"], NotNull] = optional_field()
    result: Result = None
    reason: Reason | None = None
    claim_token: Token | None = None
    force: Force = False

    def to_change(self) -> TaskChange:
        """Return the change."""
        return TaskChange(
            fields_set=frozenset(self.model_fields_set),
            name=self.name or "",
            description=self.description or "",
            notes=self.notes or "",
            priority=self.priority if "priority" in self.model_fields_set else 2,
            position=self.position or 1,
            depends_on=tuple(self.depends_on or ()),
            acceptance_criteria=to_criteria(self.acceptance_criteria),
            metadata=self.metadata or {},
            status=TaskStatus(self.status or "pending"),
            result=self.result,
            reason=self.reason,
            claim_token=self.claim_token,
            force=self.force,
        )


def to_criteria(bodies: list[CriterionBody] | None) -> tuple[Criterion, ...]:
    """Return the criteria that were sent."""
    return tuple(Criterion(text=each.text, checked=each.checked) for each in bodies or ())
