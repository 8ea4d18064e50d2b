"""A plan with all its phases and tasks, out of a draft, in one transaction (D-60, D-65)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import count

from rookery.access.models import Caller
from rookery.agents.errors import SlugTaken
from rookery.agents.models.drafts import PhaseDraft, PlanDraft, TaskDraft
from rookery.agents.models.plans import (
    MAX_PHASES_PER_PLAN,
    MAX_TASKS_PER_PLAN,
    EventActor,
    Phase,
    PhaseStatus,
    Plan,
    PlanStatus,
    Task,
    TaskStatus,
)
from rookery.agents.models.views import PlanView
from rookery.agents.plans.dependency_graph import find_cycle
from rookery.agents.plans.event_log import PlanEventRecorder
from rookery.agents.plans.locking import require_plan_access
from rookery.agents.plans.slugs import ANY_PLAN, RefIndex, make_unique_slug, slugify
from rookery.agents.plans.view_builder import build_plan_view
from rookery.agents.store import dependencies, phases, plans, tasks
from rookery.kernel.db import Tx
from rookery.kernel.errors import ValidationFailed
from rookery.kernel.ids import IdFactory, is_uuid


def create_plan(tx: Tx, caller: Caller, draft: PlanDraft, *, recorder: PlanEventRecorder, ids: IdFactory, now: datetime) -> PlanView:
    """
    Store the plan that *draft* describes, with all that is in it, and return it.

    Raises:
        ValidationFailed: A dependency names nothing, or waits for itself in the end; or there is too much of something.
        SlugTaken: The slug that the draft asks for is.
        PermissionDenied: It would lie outside of the key's orgs or projects.
    """
    plan = Plan(
        id=ids(),
        workspace_id=caller.workspace_id,
        slug=_choose_slug(tx, caller.workspace_id, draft),
        title=draft.title,
        description=draft.description,
        status=draft.status,
        org=draft.org,
        project=draft.project,
        template=draft.template,
        template_version=draft.template_version,
        variables=draft.variables,
        metadata=draft.metadata,
        created_by=caller.key_id,
        created_at=now,
        updated_at=now,
        started_at=now if draft.status is PlanStatus.ACTIVE else None,
    )
    require_plan_access(caller, plan)
    made = [build_phase(plan, each, position, ids=ids, now=now) for position, each in enumerate(draft.phases, 1)]
    inside = [
        [build_task(phase, each, position, ids=ids, now=now) for position, each in enumerate(of.tasks, 1)]
        for phase, of in zip(made, draft.phases, strict=True)
    ]
    depends = _resolve_dependencies(draft, made, inside)
    plans.add(tx, plan)
    phases.add(tx, made)
    tasks.add(tx, [task for each in inside for task in each])
    dependencies.add(tx, plan.workspace_id, plan.id, ((item, other) for item, others in depends.items() for other in others))
    data: dict[str, object] = {"title": plan.title, "status": plan.status.value, "phases": len(made), "tasks": sum(map(len, inside))}
    if plan.template is not None:
        data |= {"template": plan.template, "template_version": plan.template_version}
    recorder.record_plan(tx, plan, "created", actor=EventActor.from_caller(caller), at=now, data=data)
    # Shown out of what was just made: reading a thousand tasks back costs as much as writing them.
    counts = {phase.id: {TaskStatus.PENDING.value: len(each)} for phase, each in zip(made, inside, strict=True) if each}
    theirs = {phase.id: each for phase, each in zip(made, inside, strict=True)}
    return build_plan_view(replace(plan, event_seq=1), made, counts, now, depends_on=depends, tasks_by_phase=theirs, checkpoints={})


def validate_size(draft: PlanDraft) -> None:
    """
    Do nothing if *draft* has no more in it than a plan may have.

    Raises:
        ValidationFailed: It has.
    """
    if len(draft.phases) > MAX_PHASES_PER_PLAN:
        raise ValidationFailed({"phases": [f"must be at most {MAX_PHASES_PER_PLAN}"]})
    if sum(len(phase.tasks) for phase in draft.phases) > MAX_TASKS_PER_PLAN:
        raise ValidationFailed({"phases": [f"must have at most {MAX_TASKS_PER_PLAN:,} tasks together"]})


def validate_dependencies(draft: PlanDraft) -> None:
    """
    Do nothing if every dependency in *draft* names one thing of it, and none waits for itself in the end; nothing is stored.

    Raises:
        ValidationFailed: One does.
    """
    ids, now = map(str, count(1)), datetime.min.replace(tzinfo=UTC)
    none = Plan(
        id="0",
        workspace_id=0,
        slug="",
        title=draft.title,
        description="",
        status=draft.status,
        org=None,
        project=None,
        metadata={},
        created_by="",
        created_at=now,
        updated_at=now,
    )
    made = [build_phase(none, each, position, ids=ids.__next__, now=now) for position, each in enumerate(draft.phases, 1)]
    inside = [
        [build_task(phase, each, position, ids=ids.__next__, now=now) for position, each in enumerate(of.tasks, 1)]
        for phase, of in zip(made, draft.phases, strict=True)
    ]
    _resolve_dependencies(draft, made, inside)


def build_phase(plan: Plan, draft: PhaseDraft, position: int, *, ids: IdFactory, now: datetime) -> Phase:
    """Return the phase of *record_plan* that *draft* describes."""
    return Phase(
        id=ids(),
        workspace_id=plan.workspace_id,
        plan_id=plan.id,
        position=position,
        name=draft.name,
        description=draft.description,
        status=PhaseStatus.PENDING,
        acceptance_criteria=draft.acceptance_criteria,
        metadata=draft.metadata,
        created_at=now,
        updated_at=now,
    )


def build_task(phase: Phase, draft: TaskDraft, position: int, *, ids: IdFactory, now: datetime) -> Task:
    """Return the task of *phase* that *draft* describes."""
    return Task(
        id=ids(),
        workspace_id=phase.workspace_id,
        plan_id=phase.plan_id,
        phase_id=phase.id,
        position=position,
        name=draft.name,
        description=draft.description,
        status=TaskStatus.PENDING,
        priority=draft.priority,
        notes=draft.notes,
        acceptance_criteria=draft.acceptance_criteria,
        metadata=draft.metadata,
        created_at=now,
        updated_at=now,
    )


def resolve_refs(refs: Sequence[str | int], *indexes: RefIndex, field: str) -> list[str]:
    """
    Return the ids that *refs* name, each once, looked for in *indexes* one after the other.

    Raises:
        ValidationFailed: One names nothing, or several things.
    """
    found = dict[str, None]()
    for ref in refs:
        id = next((each for names in indexes if (each := names.find(ref)) is not None), None)
        if id is None:
            raise ValidationFailed({field: [f"{_shorten(ref)}: there is no such thing in this plan, or more than one of that name"]})
        found[id] = None
    return list(found)


def require_acyclic(
    names_by_id: Mapping[str, str], phase_ids: Mapping[str, str], depends_on: Mapping[str, Sequence[str]], *, field: str
) -> None:
    """
    Do nothing if everything could be done in some order.

    Args:
        names_by_id: The names of phases and tasks by their ids.
        phase_ids: The phase of each task.

    Raises:
        ValidationFailed: Some wait for each other for ever; it names them.
    """
    circle = find_cycle([id for id in names_by_id if id not in phase_ids], phase_ids, depends_on)
    if circle is not None:
        names = " → ".join(
            _shorten(names_by_id[id]) for id in [*circle[:8], *(["…"] if len(circle) > 8 else []), circle[0]] if id in names_by_id
        )
        raise ValidationFailed({field: [f"would wait for itself: {names}"]})


def _resolve_dependencies(plan: PlanDraft, plan_phases: Sequence[Phase], tasks_by_phase: Sequence[Sequence[Task]]) -> dict[str, list[str]]:
    drafts = plan.phases
    among, everywhere, here = RefIndex(), RefIndex(), list[RefIndex]()
    for draft, phase, listed in zip(drafts, plan_phases, tasks_by_phase, strict=True):
        among.add(phase.id, phase.position, [draft.key, draft.name])
        names = RefIndex()
        for of, task in zip(draft.tasks, listed, strict=True):
            names.add(task.id, task.position, [of.key, of.name])
            everywhere.add(task.id, -1, [of.key, of.name])
        here.append(names)
    depends = dict[str, list[str]]()
    for index, (draft, phase, listed) in enumerate(zip(drafts, plan_phases, tasks_by_phase, strict=True)):
        if draft.depends_on:
            depends[phase.id] = resolve_refs(draft.depends_on, among, field=f"phases.{index}.depends_on")
        for number, (of, task) in enumerate(zip(draft.tasks, listed, strict=True)):
            if of.depends_on:
                field = f"tasks.{number}.depends_on" if plan.is_flat else f"phases.{index}.tasks.{number}.depends_on"
                depends[task.id] = resolve_refs(of.depends_on, here[index], everywhere, field=field)
    if depends:
        of_phase = {task.id: task.phase_id for each in tasks_by_phase for task in each}
        require_acyclic(dict(_iter_names(plan_phases, tasks_by_phase)), of_phase, depends, field="depends_on")
    return depends


def _iter_names(plan_phases: Sequence[Phase], tasks_by_phase: Sequence[Sequence[Task]]) -> Iterator[tuple[str, str]]:
    for phase, listed in zip(plan_phases, tasks_by_phase, strict=True):
        yield phase.id, phase.name
        yield from ((task.id, task.name) for task in listed)


def _choose_slug(tx: Tx, workspace_id: int, draft: PlanDraft) -> str:
    wanted = draft.slug or slugify(draft.title)
    if is_uuid(wanted):
        raise ValidationFailed({"slug": ["must not look like an id"]})
    taken = plans.lock_similar_slugs(tx, workspace_id, wanted)
    if draft.slug is not None and wanted in taken:
        raise SlugTaken("plan", wanted)
    return wanted if draft.slug is not None else make_unique_slug(wanted, {*taken, ANY_PLAN})


def _shorten(ref: str | int) -> str:
    text = str(ref)
    return repr(text if len(text) <= 64 else f"{text[:64]}…")
