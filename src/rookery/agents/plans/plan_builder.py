"""Phases and tasks built from drafts, and the checks of a draft. No store is needed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import count

from rookery.agents.models.drafts import PhaseDraft, PlanDraft, TaskDraft
from rookery.agents.models.plans import (
    MAX_PHASES_PER_PLAN,
    MAX_TASKS_PER_PLAN,
    Phase,
    PhaseStatus,
    Plan,
    Task,
    TaskStatus,
)
from rookery.agents.plans.dependency_graph import find_cycle
from rookery.agents.plans.slugs import RefIndex
from rookery.kernel.errors import ValidationFailed
from rookery.kernel.ids import IdFactory


def validate_size(draft: PlanDraft) -> None:
    """
    Check that *draft* is within the limits of a plan.

    Raises:
        ValidationFailed: The draft has too many phases or tasks.
    """
    if len(draft.phases) > MAX_PHASES_PER_PLAN:
        raise ValidationFailed({"phases": [f"must have at most {MAX_PHASES_PER_PLAN} items, not {len(draft.phases)}"]})
    task_count = sum(len(phase.tasks) for phase in draft.phases)
    if task_count > MAX_TASKS_PER_PLAN:
        raise ValidationFailed({"phases": [f"must have at most {MAX_TASKS_PER_PLAN:,} tasks in total, not {task_count:,}"]})


def validate_dependencies(draft: PlanDraft) -> None:
    """
    Check the dependencies of *draft* without storing anything.

    Raises:
        ValidationFailed: A dependency is unknown, ambiguous or part of a cycle.
    """
    ids, now = map(str, count(1)), datetime.min.replace(tzinfo=UTC)
    placeholder = Plan(
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
    new_phases = [
        build_phase(placeholder, phase_draft, position, ids=ids.__next__, now=now) for position, phase_draft in enumerate(draft.phases, 1)
    ]
    inside = [
        [build_task(phase, task_draft, position, ids=ids.__next__, now=now) for position, task_draft in enumerate(phase_draft.tasks, 1)]
        for phase, phase_draft in zip(new_phases, draft.phases, strict=True)
    ]
    resolve_dependencies(draft, new_phases, inside)


def build_phase(plan: Plan, draft: PhaseDraft, position: int, *, ids: IdFactory, now: datetime) -> Phase:
    """Return the phase of *plan* that *draft* describes."""
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
    Return the ids that *refs* name, without duplicates. The first of *indexes* that finds a reference wins.

    Raises:
        ValidationFailed: A reference is unknown or ambiguous.
    """
    ids = dict[str, None]()
    for ref in refs:
        id = next((match for names in indexes if (match := names.find(ref)) is not None), None)
        if id is None:
            raise ValidationFailed(
                {field: [f"{_shorten(ref)}: not found in this plan, or the name is ambiguous; use an id, key, unique name or position"]}
            )
        ids[id] = None
    return list(ids)


def require_acyclic(
    names_by_id: Mapping[str, str], phase_ids: Mapping[str, str], depends_on: Mapping[str, Sequence[str]], *, field: str
) -> None:
    """
    Check that the dependencies have no cycle.

    Args:
        names_by_id: The names of phases and tasks by id.
        phase_ids: The phase id of each task id.

    Raises:
        ValidationFailed: There is a cycle. The message names its members.
    """
    cycle = find_cycle([id for id in names_by_id if id not in phase_ids], phase_ids, depends_on)
    if cycle is not None:
        names = " → ".join(
            _shorten(names_by_id[id]) for id in [*cycle[:8], *(["…"] if len(cycle) > 8 else []), cycle[0]] if id in names_by_id
        )
        raise ValidationFailed({field: [f"must not form a cycle: {names}"]})


def resolve_dependencies(plan: PlanDraft, plan_phases: Sequence[Phase], tasks_by_phase: Sequence[Sequence[Task]]) -> dict[str, list[str]]:
    """Return the ids that each phase and task depends on, by its id. Raise ValidationFailed for an unknown one or a cycle."""
    drafts = plan.phases
    phase_index, plan_task_index, task_indexes = RefIndex(), RefIndex(), list[RefIndex]()
    for draft, phase, listed in zip(drafts, plan_phases, tasks_by_phase, strict=True):
        phase_index.add(phase.id, phase.position, [draft.key, draft.name])
        task_index = RefIndex()
        for task_draft, task in zip(draft.tasks, listed, strict=True):
            task_index.add(task.id, task.position, [task_draft.key, task_draft.name])
            plan_task_index.add(task.id, -1, [task_draft.key, task_draft.name])
        task_indexes.append(task_index)
    depends = dict[str, list[str]]()
    for index, (draft, phase, listed) in enumerate(zip(drafts, plan_phases, tasks_by_phase, strict=True)):
        if draft.depends_on:
            depends[phase.id] = resolve_refs(draft.depends_on, phase_index, field=f"phases.{index}.depends_on")
        for number, (task_draft, task) in enumerate(zip(draft.tasks, listed, strict=True)):
            if task_draft.depends_on:
                field = f"tasks.{number}.depends_on" if plan.is_flat else f"phases.{index}.tasks.{number}.depends_on"
                depends[task.id] = resolve_refs(task_draft.depends_on, task_indexes[index], plan_task_index, field=field)
    if depends:
        phase_ids = {task.id: task.phase_id for phase_tasks in tasks_by_phase for task in phase_tasks}
        require_acyclic(dict(_iter_names(plan_phases, tasks_by_phase)), phase_ids, depends, field="depends_on")
    return depends


def _iter_names(plan_phases: Sequence[Phase], tasks_by_phase: Sequence[Sequence[Task]]) -> Iterator[tuple[str, str]]:
    for phase, listed in zip(plan_phases, tasks_by_phase, strict=True):
        yield phase.id, phase.name
        yield from ((task.id, task.name) for task in listed)


def _shorten(ref: str | int) -> str:
    text = str(ref)
    return repr(text if len(text) <= 64 else f"{text[:64]}…")
