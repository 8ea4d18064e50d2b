"""
Response models of plans, phases and tasks.

They read the views of `models.views`. Their `part` is the plan, phase or task of the view.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import AliasPath, BeforeValidator, Field

from rookery.access.models import Caller
from rookery.agents.models.plans import Checkpoint, Criterion, Phase, PhaseStatus, Plan, PlanEvent, PlanStatus, Task, TaskStatus
from rookery.agents.models.views import PhaseView, PlanView, TaskView
from rookery.agents.plans.claims import LeaseEndResult
from rookery.kernel.projections import Projection
from rookery.kernel.schema import Links, Meta, ResponseModel, Timestamp, enum_schema


class ProgressResponse(ResponseModel):
    """The progress. Skipped tasks do not count; a phase without tasks counts as one item."""

    total: int
    completed: int
    percentage: int


class CriterionResponse(Projection[Criterion]):
    """An acceptance criterion."""


class CheckpointResponse(Projection[Checkpoint]):
    """A note on the progress of a phase."""

    hidden = frozenset({"workspace_id", "plan_id", "phase_id", "key_id"})


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


class TaskResponse(Projection[Task]):
    """
    A task.

    `ready`: it can be claimed if its plan is active. `blocked`: the tasks and phases in `blocked_by` must be done first.
    """

    part = "task"
    hidden = frozenset({"workspace_id", "version"})

    status: Annotated[str, enum_schema(TaskStatus)]
    ready: Annotated[bool, Field(validation_alias="is_ready")]
    blocked: Annotated[bool, Field(validation_alias="is_blocked")]
    blocked_by: Sequence[str]
    depends_on: Sequence[str]
    acceptance_criteria: list[CriterionResponse]
    claim: ClaimResponse | None


class ClaimedResponse(TaskResponse):
    """A newly claimed task with the token of the lease. No other response contains the token."""

    claim_token: Annotated[str, Field(validation_alias=AliasPath("task", "claim", "token"))]


class EndedResponse(TaskResponse):
    """A completed task, and the next task if `claim_next` was set and one was ready. `reason` explains why no task was claimed."""

    next: ClaimedResponse | None
    reason: str | None


class PhaseResponse(Projection[Phase]):
    """A phase. `completable`: it is open and has tasks, all of them closed."""

    part = "phase"
    hidden = frozenset({"workspace_id", "version"})

    status: Annotated[str, enum_schema(PhaseStatus)]
    ready: Annotated[bool, Field(validation_alias="is_ready")]
    blocked: Annotated[bool, Field(validation_alias="is_blocked")]
    blocked_by: Sequence[str]
    completable: Annotated[bool, Field(validation_alias="is_completable")]
    depends_on: Sequence[str]
    acceptance_criteria: list[CriterionResponse]
    checkpoints: list[CheckpointResponse]
    progress: ProgressResponse
    tasks: Annotated[list[TaskResponse] | None, Field(description="Null if they were not requested.")]


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


class PlanResponse(Projection[Plan]):
    """A plan. `completable`: all phases are finished, that is closed or with all of their tasks closed."""

    part = "plan"
    hidden = frozenset({"template_version", "archived_from", "event_seq", "version"})

    status: Annotated[str, enum_schema(PlanStatus)]
    current_phase: CurrentPhase | None
    progress: ProgressResponse
    completable: Annotated[bool, Field(validation_alias="is_completable")]
    template: Annotated[TemplateUsed | None, Field(validation_alias=AliasPath("plan", "template_used"))]
    phases: Annotated[list[PhaseResponse] | None, Field(description="Null if they were not requested.")]


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


class EventResponse(Projection[PlanEvent]):
    """One change of a plan."""

    hidden = frozenset({"workspace_id", "plan_id"})

    key_id: Annotated[str | None, BeforeValidator(lambda key_id: key_id or None)]


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
