"""
Response models of plans, phases and tasks.

They read the views of `models.views`. A field without an alias of its own is a field of the view's plan, phase or task.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

from pydantic import AliasGenerator, AliasPath, BeforeValidator, ConfigDict, Field

from rookery.access.models import Caller
from rookery.agents.models.plans import PhaseStatus, PlanStatus, TaskStatus
from rookery.agents.models.views import PhaseView, PlanView, TaskView
from rookery.agents.plans.claims import LeaseEndResult
from rookery.kernel.schema import Links, Meta, ResponseModel, Timestamp, enum_schema


def _read_from(attribute: str) -> ConfigDict:
    """Return the configuration of a model that reads its fields from *attribute* of a view."""
    return ConfigDict(alias_generator=AliasGenerator(validation_alias=lambda name: AliasPath(attribute, name)))


class ProgressResponse(ResponseModel):
    """The progress. Skipped tasks do not count; a phase without tasks counts as one item."""

    total: int
    completed: int
    percentage: int


class CriterionResponse(ResponseModel):
    """An acceptance criterion."""

    text: str
    checked: bool


class CheckpointResponse(ResponseModel):
    """A note on the progress of a phase."""

    id: str
    note: str
    context: Mapping[str, object]
    agent_id: str | None
    created_at: Timestamp


class HolderResponse(ResponseModel):
    """The holder of a lease."""

    agent_id: str | None
    session_id: str | None
    key_id: str


class ClaimResponse(ResponseModel):
    """The lease of a task."""

    holder: HolderResponse
    claimed_at: Timestamp
    expires_at: Timestamp


class TaskResponse(ResponseModel):
    """
    A task.

    `ready`: it can be claimed if its plan is active. `blocked`: the tasks and phases in `blocked_by` must be done first.
    """

    model_config = _read_from("task")

    id: str
    plan_id: str
    phase_id: str
    position: int
    name: str
    description: str
    status: Annotated[str, enum_schema(TaskStatus)]
    hold_reason: str | None
    ready: Annotated[bool, Field(validation_alias="is_ready")]
    blocked: Annotated[bool, Field(validation_alias="is_blocked")]
    blocked_by: Annotated[Sequence[str], Field(validation_alias="blocked_by")]
    priority: int
    notes: str
    result: object
    error: str | None
    depends_on: Annotated[Sequence[str], Field(validation_alias="depends_on")]
    acceptance_criteria: list[CriterionResponse]
    claim: ClaimResponse | None
    attempts: int
    metadata: Mapping[str, object]
    created_at: Timestamp
    updated_at: Timestamp
    started_at: Timestamp | None
    completed_at: Timestamp | None


class ClaimedResponse(TaskResponse):
    """A newly claimed task with the token of the lease. No other response contains the token."""

    claim_token: Annotated[str, Field(validation_alias=AliasPath("task", "claim", "token"))]


class EndedResponse(TaskResponse):
    """A completed task, and the next task if `claim_next` was set and one was ready. `reason` explains why no task was claimed."""

    next: ClaimedResponse | None
    reason: str | None


class PhaseResponse(ResponseModel):
    """A phase. `completable`: it is open and has tasks, all of them closed."""

    model_config = _read_from("phase")

    id: str
    plan_id: str
    position: int
    name: str
    description: str
    status: Annotated[str, enum_schema(PhaseStatus)]
    hold_reason: str | None
    ready: Annotated[bool, Field(validation_alias="is_ready")]
    blocked: Annotated[bool, Field(validation_alias="is_blocked")]
    blocked_by: Annotated[Sequence[str], Field(validation_alias="blocked_by")]
    completable: Annotated[bool, Field(validation_alias="is_completable")]
    depends_on: Annotated[Sequence[str], Field(validation_alias="depends_on")]
    acceptance_criteria: list[CriterionResponse]
    checkpoints: Annotated[list[CheckpointResponse], Field(validation_alias="checkpoints")]
    progress: Annotated[ProgressResponse, Field(validation_alias="progress")]
    tasks: Annotated[list[TaskResponse] | None, Field(validation_alias="tasks", description="Null if they were not requested.")]
    metadata: Mapping[str, object]
    created_at: Timestamp
    updated_at: Timestamp
    started_at: Timestamp | None
    completed_at: Timestamp | None


class CurrentPhase(ResponseModel):
    """The current phase of a plan."""

    id: str
    position: int
    name: str
    status: Annotated[str, enum_schema(PhaseStatus)]


class TemplateUsed(ResponseModel):
    """The template that a plan was created from."""

    slug: str
    version: str | None


class PlanResponse(ResponseModel):
    """A plan. `completable`: all phases are finished, that is closed or with all of their tasks closed."""

    model_config = _read_from("plan")

    id: str
    workspace_id: int
    slug: str
    title: str
    description: str
    status: Annotated[str, enum_schema(PlanStatus)]
    org: str | None
    project: str | None
    current_phase: Annotated[CurrentPhase | None, Field(validation_alias="current_phase")]
    progress: Annotated[ProgressResponse, Field(validation_alias="progress")]
    completable: Annotated[bool, Field(validation_alias="is_completable")]
    template: Annotated[TemplateUsed | None, Field(validation_alias=AliasPath("plan", "template_used"))]
    variables: Mapping[str, object] | None
    metadata: Mapping[str, object]
    created_by: str
    archive_reason: str | None
    phases: Annotated[list[PhaseResponse] | None, Field(validation_alias="phases", description="Null if they were not requested.")]
    created_at: Timestamp
    updated_at: Timestamp
    started_at: Timestamp | None
    completed_at: Timestamp | None
    archived_at: Timestamp | None


class PlansResponse(ResponseModel):
    """A page of plans."""

    data: list[PlanResponse]
    links: Links
    meta: Meta


class PhasesResponse(ResponseModel):
    """A page of the phases of a plan, ordered by position."""

    data: list[PhaseResponse]
    links: Links
    meta: Meta


class TasksResponse(ResponseModel):
    """A page of tasks."""

    data: list[TaskResponse]
    links: Links
    meta: Meta


class EventResponse(ResponseModel):
    """One change of a plan."""

    seq: int
    type: str
    at: Timestamp
    key_id: Annotated[str | None, BeforeValidator(lambda key_id: key_id or None)]
    agent_id: str | None
    session_id: str | None
    phase_id: str | None
    task_id: str | None
    data: Mapping[str, object]


class EventsResponse(ResponseModel):
    """A page of a plan's events."""

    data: list[EventResponse]
    links: Links
    meta: Meta


class NodeResponse(ResponseModel):
    """A phase or a task in the dependency graph."""

    id: str
    kind: str
    name: str
    status: str
    phase_id: str | None


class EdgeResponse(ResponseModel):
    """A dependency: `source` must be done before `target`."""

    source: str
    target: str


class BlockedResponse(ResponseModel):
    """A blocked phase or task, and the ids of the phases and tasks that block it."""

    id: str
    by: Sequence[str]


class GraphResponse(ResponseModel):
    """The dependency graph of a plan."""

    plan_id: str
    nodes: list[NodeResponse]
    edges: list[EdgeResponse]
    ready: list[str]
    blocked: list[BlockedResponse]


def to_plan_response(caller: Caller, view: PlanView) -> PlanResponse:
    response = PlanResponse.model_validate(view, from_attributes=True)
    return response.model_copy(update={"workspace_id": caller.public_workspace_id})


def to_phase_response(view: PhaseView) -> PhaseResponse:
    return PhaseResponse.model_validate(view, from_attributes=True)


def to_task_response(view: TaskView) -> TaskResponse:
    return TaskResponse.model_validate(view, from_attributes=True)


def to_claimed_task_response(view: TaskView) -> ClaimedResponse:
    """Return the response for a newly claimed task, with its token."""
    return ClaimedResponse.model_validate(view, from_attributes=True)


def to_completed_task_response(result: LeaseEndResult) -> EndedResponse:
    next_task = None if result.next_task is None else to_claimed_task_response(result.next_task)
    reason = None if result.no_task is None else result.no_task.reason
    return EndedResponse.model_construct(None, **dict(to_task_response(result.task)), next=next_task, reason=reason)


def to_graph_response(view: PlanView) -> GraphResponse:
    """Return the dependency graph of a plan. The phase of a task is a field of its node, not an edge."""
    nodes, edges, ready, blocked = list[NodeResponse](), list[EdgeResponse](), list[str](), list[BlockedResponse]()

    def add(node: NodeResponse, view: PhaseView | TaskView) -> None:
        nodes.append(node)
        edges.extend(EdgeResponse.model_construct(source=other, target=node.id) for other in view.depends_on)
        if view.is_ready:
            ready.append(node.id)
        if view.blocked_by:
            blocked.append(BlockedResponse.model_construct(id=node.id, by=view.blocked_by))

    for phase in view.phases or ():
        item = phase.phase
        add(NodeResponse.model_construct(id=item.id, kind="phase", name=item.name, status=item.status.value, phase_id=None), phase)
        for task_view in phase.tasks or ():
            task = task_view.task
            add(
                NodeResponse.model_construct(id=task.id, kind="task", name=task.name, status=task.status.value, phase_id=item.id), task_view
            )
    return GraphResponse.model_construct(plan_id=view.plan.id, nodes=nodes, edges=edges, ready=ready, blocked=blocked)
