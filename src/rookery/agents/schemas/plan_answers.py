"""What is answered of plans, phases and tasks (D-60, D-61)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

from pydantic import Field

from rookery.access.models import Caller
from rookery.agents.models.plans import Checkpoint, Claim, Criterion, Phase, PhaseStatus, PlanEvent, PlanStatus, Progress, TaskStatus
from rookery.agents.models.views import PhaseView, PlanView, TaskView
from rookery.agents.plans.claims import Ended
from rookery.kernel.http.pages import Links, Meta
from rookery.kernel.wire import Answer, Moment, one_of


class ProgressAnswer(Answer):
    """How much is done; skipped tasks do not count, and a phase without tasks counts as one."""

    total: int
    completed: int
    percentage: int


class CriterionAnswer(Answer):
    """One thing that must be true of finished work."""

    text: str
    checked: bool


class CheckpointAnswer(Answer):
    """What somebody noted of a phase."""

    id: str
    note: str
    context: Mapping[str, object]
    agent_id: str | None
    created_at: Moment


class HolderAnswer(Answer):
    """Who holds a lease."""

    agent_id: str | None
    session_id: str | None
    key_id: str


class ClaimAnswer(Answer):
    """A lease of a task."""

    holder: HolderAnswer
    claimed_at: Moment
    expires_at: Moment


class TaskAnswer(Answer):
    """A task; *ready*: it may be claimed, if its plan is worked on; *blocked*: it waits for those of *blocked_by*, tasks or phases."""

    id: str
    plan_id: str
    phase_id: str
    position: int
    name: str
    description: str
    status: Annotated[str, one_of(TaskStatus)]
    hold_reason: str | None
    ready: bool
    blocked: bool
    blocked_by: Sequence[str]
    priority: int
    notes: str
    result: object
    error: str | None
    depends_on: Sequence[str]
    acceptance_criteria: list[CriterionAnswer]
    claim: ClaimAnswer | None
    attempts: int
    metadata: Mapping[str, object]
    created_at: Moment
    updated_at: Moment
    started_at: Moment | None
    completed_at: Moment | None


class ClaimedAnswer(TaskAnswer):
    """A task that was claimed just now, and the token of the lease, which nobody else is shown."""

    claim_token: str


class EndedAnswer(TaskAnswer):
    """A task that was completed, and the one that was claimed with it, if one was wanted and is there; *reason*: why there is none."""

    next: ClaimedAnswer | None
    reason: str | None


class PhaseAnswer(Answer):
    """A phase; *completable*: it is open, and nothing in it is."""

    id: str
    plan_id: str
    position: int
    name: str
    description: str
    status: Annotated[str, one_of(PhaseStatus)]
    hold_reason: str | None
    ready: bool
    blocked: bool
    blocked_by: Sequence[str]
    completable: bool
    depends_on: Sequence[str]
    acceptance_criteria: list[CriterionAnswer]
    checkpoints: list[CheckpointAnswer]
    progress: ProgressAnswer
    tasks: Annotated[list[TaskAnswer] | None, Field(description="Null where they were not asked for.")]
    metadata: Mapping[str, object]
    created_at: Moment
    updated_at: Moment
    started_at: Moment | None
    completed_at: Moment | None


class CurrentPhase(Answer):
    """The phase that work is in."""

    id: str
    position: int
    name: str
    status: Annotated[str, one_of(PhaseStatus)]


class TemplateUsed(Answer):
    """What a plan was made of."""

    slug: str
    version: str | None


class PlanAnswer(Answer):
    """A plan; *completable*: nothing in it is open any more but the plan itself, and perhaps the phases."""

    id: str
    workspace_id: int
    slug: str
    title: str
    description: str
    status: Annotated[str, one_of(PlanStatus)]
    org: str | None
    project: str | None
    current_phase: CurrentPhase | None
    progress: ProgressAnswer
    completable: bool
    template: TemplateUsed | None
    variables: Mapping[str, object] | None
    metadata: Mapping[str, object]
    created_by: str
    archive_reason: str | None
    phases: Annotated[list[PhaseAnswer] | None, Field(description="Null where they were not asked for.")]
    created_at: Moment
    updated_at: Moment
    started_at: Moment | None
    completed_at: Moment | None
    archived_at: Moment | None


class PlansAnswer(Answer):
    """A page of plans (D-12)."""

    data: list[PlanAnswer]
    links: Links
    meta: Meta


class PhasesAnswer(Answer):
    """The phases of a plan, in their order; there are never so many that they need pages, and still it is one (D-12)."""

    data: list[PhaseAnswer]
    links: Links
    meta: Meta


class TasksAnswer(Answer):
    """A page of tasks (D-12)."""

    data: list[TaskAnswer]
    links: Links
    meta: Meta


class EventAnswer(Answer):
    """One change of a plan."""

    seq: int
    type: str
    at: Moment
    key_id: str | None
    agent_id: str | None
    session_id: str | None
    phase_id: str | None
    task_id: str | None
    data: Mapping[str, object]


class EventsAnswer(Answer):
    """A page of a plan's events (D-12)."""

    data: list[EventAnswer]
    links: Links
    meta: Meta


class NodeAnswer(Answer):
    """A phase or a task of a graph."""

    id: str
    kind: str
    name: str
    status: str
    phase_id: str | None


class EdgeAnswer(Answer):
    """*source* must be done before *target*."""

    source: str
    target: str


class BlockedAnswer(Answer):
    """What waits, and for what."""

    id: str
    by: Sequence[str]


class GraphAnswer(Answer):
    """A plan as a graph."""

    plan_id: str
    nodes: list[NodeAnswer]
    edges: list[EdgeAnswer]
    ready: list[str]
    blocked: list[BlockedAnswer]


def plan_answer(caller: Caller, view: PlanView) -> PlanAnswer:
    """Return the answer on a plan."""
    plan, current = view.plan, view.current_phase
    return PlanAnswer.model_construct(
        id=plan.id,
        workspace_id=caller.shown_workspace_id,
        slug=plan.slug,
        title=plan.title,
        description=plan.description,
        status=plan.status.value,
        org=plan.org,
        project=plan.project,
        current_phase=None if current is None else _current(current),
        progress=_progress(view.progress),
        completable=view.is_completable,
        template=None if plan.template is None else TemplateUsed.model_construct(slug=plan.template, version=plan.template_version),
        variables=plan.variables,
        metadata=plan.metadata,
        created_by=plan.created_by,
        archive_reason=plan.archive_reason,
        phases=None if view.phases is None else [phase_answer(phase) for phase in view.phases],
        created_at=plan.created_at,
        updated_at=plan.updated_at,
        started_at=plan.started_at,
        completed_at=plan.completed_at,
        archived_at=plan.archived_at,
    )


def phase_answer(view: PhaseView) -> PhaseAnswer:
    """Return the answer on a phase."""
    phase = view.phase
    return PhaseAnswer.model_construct(
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
        acceptance_criteria=_criteria(phase.acceptance_criteria),
        checkpoints=[checkpoint_answer(each) for each in view.checkpoints],
        progress=_progress(view.progress),
        tasks=None if view.tasks is None else [task_answer(task) for task in view.tasks],
        metadata=phase.metadata,
        created_at=phase.created_at,
        updated_at=phase.updated_at,
        started_at=phase.started_at,
        completed_at=phase.completed_at,
    )


def task_answer(view: TaskView) -> TaskAnswer:
    """Return the answer on a task."""
    return TaskAnswer.model_construct(None, **_task(view))


def claimed_answer(view: TaskView) -> ClaimedAnswer:
    """Return the answer on a task that its asker has claimed."""
    claim = view.task.claim
    return ClaimedAnswer.model_construct(None, **_task(view), claim_token="" if claim is None else claim.token)


def ended_answer(ended: Ended) -> EndedAnswer:
    """Return the answer on a task that was completed."""
    following = None if ended.next is None else claimed_answer(ended.next)
    return EndedAnswer.model_construct(None, **_task(ended.task), next=following, reason=None if ended.left is None else ended.left.reason)


def checkpoint_answer(checkpoint: Checkpoint) -> CheckpointAnswer:
    """Return the answer on a checkpoint."""
    return CheckpointAnswer.model_construct(
        id=checkpoint.id,
        note=checkpoint.note,
        context=checkpoint.context,
        agent_id=checkpoint.agent_id,
        created_at=checkpoint.created_at,
    )


def event_answer(event: PlanEvent) -> EventAnswer:
    """Return the answer on an event."""
    return EventAnswer.model_construct(
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


def graph_answer(view: PlanView) -> GraphAnswer:
    """Return a plan as nodes and edges; phases that a task lies in are no edges."""
    nodes, edges, ready, blocked = list[NodeAnswer](), list[EdgeAnswer](), list[str](), list[BlockedAnswer]()

    def add(node: NodeAnswer, each: PhaseView | TaskView) -> None:
        nodes.append(node)
        edges.extend(EdgeAnswer.model_construct(source=other, target=node.id) for other in each.depends_on)
        if each.is_ready:
            ready.append(node.id)
        if each.blocked_by:
            blocked.append(BlockedAnswer.model_construct(id=node.id, by=each.blocked_by))

    for phase in view.phases or ():
        of = phase.phase
        add(NodeAnswer.model_construct(id=of.id, kind="phase", name=of.name, status=of.status.value, phase_id=None), phase)
        for each in phase.tasks or ():
            task = each.task
            add(NodeAnswer.model_construct(id=task.id, kind="task", name=task.name, status=task.status.value, phase_id=of.id), each)
    return GraphAnswer.model_construct(plan_id=view.plan.id, nodes=nodes, edges=edges, ready=ready, blocked=blocked)


def _task(view: TaskView) -> dict[str, object]:
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
        "acceptance_criteria": _criteria(task.acceptance_criteria),
        "claim": None if task.claim is None else _claim(task.claim),
        "attempts": task.attempts,
        "metadata": task.metadata,
        "created_at": task.created_at,
        "updated_at": task.updated_at,
        "started_at": task.started_at,
        "completed_at": task.completed_at,
    }


def _claim(claim: Claim) -> ClaimAnswer:
    holder = HolderAnswer.model_construct(agent_id=claim.agent_id, session_id=claim.session_id, key_id=claim.key_id)
    return ClaimAnswer.model_construct(holder=holder, claimed_at=claim.claimed_at, expires_at=claim.expires_at)


def _current(phase: Phase) -> CurrentPhase:
    return CurrentPhase.model_construct(id=phase.id, position=phase.position, name=phase.name, status=phase.status.value)


def _progress(progress: Progress) -> ProgressAnswer:
    return ProgressAnswer.model_construct(total=progress.total, completed=progress.completed, percentage=progress.percentage)


def _criteria(criteria: Sequence[Criterion]) -> list[CriterionAnswer]:
    return [CriterionAnswer.model_construct(text=each.text, checked=each.checked) for each in criteria]
