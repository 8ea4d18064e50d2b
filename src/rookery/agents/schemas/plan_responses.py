"""Response models of plans, phases and tasks (D-60, D-61)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

from pydantic import Field

from rookery.access.models import Caller
from rookery.agents.models.plans import Checkpoint, Criterion, Phase, PhaseStatus, PlanEvent, PlanStatus, Progress, TaskClaim, TaskStatus
from rookery.agents.models.views import PhaseView, PlanView, TaskView
from rookery.agents.plans.claims import LeaseEndResult
from rookery.kernel.schema import Links, Meta, ResponseModel, Timestamp, enum_schema


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

    id: str
    plan_id: str
    phase_id: str
    position: int
    name: str
    description: str
    status: Annotated[str, enum_schema(TaskStatus)]
    hold_reason: str | None
    ready: bool
    blocked: bool
    blocked_by: Sequence[str]
    priority: int
    notes: str
    result: object
    error: str | None
    depends_on: Sequence[str]
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

    claim_token: str


class EndedResponse(TaskResponse):
    """A completed task, and the next task if `claim_next` was set and one was ready. `reason` explains why no task was claimed."""

    next: ClaimedResponse | None
    reason: str | None


class PhaseResponse(ResponseModel):
    """A phase. `completable`: it is open and has tasks, all of them closed."""

    id: str
    plan_id: str
    position: int
    name: str
    description: str
    status: Annotated[str, enum_schema(PhaseStatus)]
    hold_reason: str | None
    ready: bool
    blocked: bool
    blocked_by: Sequence[str]
    completable: bool
    depends_on: Sequence[str]
    acceptance_criteria: list[CriterionResponse]
    checkpoints: list[CheckpointResponse]
    progress: ProgressResponse
    tasks: Annotated[list[TaskResponse] | None, Field(description="Null if they were not requested.")]
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

    id: str
    workspace_id: int
    slug: str
    title: str
    description: str
    status: Annotated[str, enum_schema(PlanStatus)]
    org: str | None
    project: str | None
    current_phase: CurrentPhase | None
    progress: ProgressResponse
    completable: bool
    template: TemplateUsed | None
    variables: Mapping[str, object] | None
    metadata: Mapping[str, object]
    created_by: str
    archive_reason: str | None
    phases: Annotated[list[PhaseResponse] | None, Field(description="Null if they were not requested.")]
    created_at: Timestamp
    updated_at: Timestamp
    started_at: Timestamp | None
    completed_at: Timestamp | None
    archived_at: Timestamp | None


class PlansResponse(ResponseModel):
    """A page of plans (D-12)."""

    data: list[PlanResponse]
    links: Links
    meta: Meta


class PhasesResponse(ResponseModel):
    """A page of the phases of a plan, ordered by position (D-12)."""

    data: list[PhaseResponse]
    links: Links
    meta: Meta


class TasksResponse(ResponseModel):
    """A page of tasks (D-12)."""

    data: list[TaskResponse]
    links: Links
    meta: Meta


class EventResponse(ResponseModel):
    """One change of a plan."""

    seq: int
    type: str
    at: Timestamp
    key_id: str | None
    agent_id: str | None
    session_id: str | None
    phase_id: str | None
    task_id: str | None
    data: Mapping[str, object]


class EventsResponse(ResponseModel):
    """A page of a plan's events (D-12)."""

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
    """Return the response for a plan."""
    plan, current = view.plan, view.current_phase
    return PlanResponse.model_construct(
        id=plan.id,
        workspace_id=caller.public_workspace_id,
        slug=plan.slug,
        title=plan.title,
        description=plan.description,
        status=plan.status.value,
        org=plan.org,
        project=plan.project,
        current_phase=None if current is None else _to_current_phase(current),
        progress=_to_progress_response(view.progress),
        completable=view.is_completable,
        template=None if plan.template is None else TemplateUsed.model_construct(slug=plan.template, version=plan.template_version),
        variables=plan.variables,
        metadata=plan.metadata,
        created_by=plan.created_by,
        archive_reason=plan.archive_reason,
        phases=None if view.phases is None else [to_phase_response(phase) for phase in view.phases],
        created_at=plan.created_at,
        updated_at=plan.updated_at,
        started_at=plan.started_at,
        completed_at=plan.completed_at,
        archived_at=plan.archived_at,
    )


def to_phase_response(view: PhaseView) -> PhaseResponse:
    """Return the response for a phase."""
    phase = view.phase
    return PhaseResponse.model_construct(
        id=phase.id,
        plan_id=phase.plan_id,
        position=phase.position,
        name=phase.name,
        description=phase.description,
        status=phase.status.value,
        hold_reason=phase.hold_reason,
        ready=view.is_ready,
        blocked=bool(view.blocked_by),
        blocked_by=view.blocked_by,
        completable=view.is_completable,
        depends_on=view.depends_on,
        acceptance_criteria=_to_criterion_responses(phase.acceptance_criteria),
        checkpoints=[to_checkpoint_response(checkpoint) for checkpoint in view.checkpoints],
        progress=_to_progress_response(view.progress),
        tasks=None if view.tasks is None else [to_task_response(task) for task in view.tasks],
        metadata=phase.metadata,
        created_at=phase.created_at,
        updated_at=phase.updated_at,
        started_at=phase.started_at,
        completed_at=phase.completed_at,
    )


def to_task_response(view: TaskView) -> TaskResponse:
    """Return the response for a task."""
    return TaskResponse.model_construct(None, **_task_fields(view))


def to_claimed_task_response(view: TaskView) -> ClaimedResponse:
    """Return the response for a newly claimed task, with its token."""
    claim = view.task.claim
    return ClaimedResponse.model_construct(None, **_task_fields(view), claim_token="" if claim is None else claim.token)


def to_completed_task_response(result: LeaseEndResult) -> EndedResponse:
    """Return the response for a completed task."""
    next_task = None if result.next_task is None else to_claimed_task_response(result.next_task)
    return EndedResponse.model_construct(
        None, **_task_fields(result.task), next=next_task, reason=None if result.no_task is None else result.no_task.reason
    )


def to_checkpoint_response(checkpoint: Checkpoint) -> CheckpointResponse:
    """Return the response for a checkpoint."""
    return CheckpointResponse.model_construct(
        id=checkpoint.id,
        note=checkpoint.note,
        context=checkpoint.context,
        agent_id=checkpoint.agent_id,
        created_at=checkpoint.created_at,
    )


def to_plan_event_response(event: PlanEvent) -> EventResponse:
    """Return the response for a plan event."""
    return EventResponse.model_construct(
        seq=event.seq,
        type=event.type,
        at=event.at,
        key_id=event.key_id or None,
        agent_id=event.agent_id,
        session_id=event.session_id,
        phase_id=event.phase_id,
        task_id=event.task_id,
        data=event.data,
    )


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


def _task_fields(view: TaskView) -> dict[str, object]:
    task = view.task
    return {
        "id": task.id,
        "plan_id": task.plan_id,
        "phase_id": task.phase_id,
        "position": task.position,
        "name": task.name,
        "description": task.description,
        "status": task.status.value,
        "hold_reason": task.hold_reason,
        "ready": view.is_ready,
        "blocked": bool(view.blocked_by),
        "blocked_by": view.blocked_by,
        "priority": task.priority,
        "notes": task.notes,
        "result": task.result,
        "error": task.error,
        "depends_on": view.depends_on,
        "acceptance_criteria": _to_criterion_responses(task.acceptance_criteria),
        "claim": None if task.claim is None else _to_claim_response(task.claim),
        "attempts": task.attempts,
        "metadata": task.metadata,
        "created_at": task.created_at,
        "updated_at": task.updated_at,
        "started_at": task.started_at,
        "completed_at": task.completed_at,
    }


def _to_claim_response(claim: TaskClaim) -> ClaimResponse:
    holder = HolderResponse.model_construct(agent_id=claim.agent_id, session_id=claim.session_id, key_id=claim.key_id)
    return ClaimResponse.model_construct(holder=holder, claimed_at=claim.claimed_at, expires_at=claim.expires_at)


def _to_current_phase(phase: Phase) -> CurrentPhase:
    return CurrentPhase.model_construct(id=phase.id, position=phase.position, name=phase.name, status=phase.status.value)


def _to_progress_response(progress: Progress) -> ProgressResponse:
    return ProgressResponse.model_construct(total=progress.total, completed=progress.completed, percentage=progress.percentage)


def _to_criterion_responses(criteria: Sequence[Criterion]) -> list[CriterionResponse]:
    return [CriterionResponse.model_construct(text=criterion.text, checked=criterion.checked) for criterion in criteria]
