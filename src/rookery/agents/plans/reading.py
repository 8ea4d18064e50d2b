"""From rows to what is shown: what is derived of a plan, a phase or a task is derived here, in one place (D-60)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from rookery.agents.models.plans import OPEN_PHASE, OPEN_TASK, Checkpoint, Phase, PhaseStatus, Plan, Progress, Task, TaskStatus
from rookery.agents.models.views import PhaseView, PlanView, TaskView
from rookery.agents.store import needs, phases, tasks
from rookery.kernel.db import Tx

Counts = Mapping[str, int]
"""How many tasks there are in each status."""

_WORKABLE = frozenset({PhaseStatus.PENDING, PhaseStatus.IN_PROGRESS})
_NONE: Counts = {}


def plan_view(tx: Tx, plan: Plan, now: datetime, *, with_phases: bool, with_tasks: bool) -> PlanView:
    """Return *plan* as it is shown."""
    listed = phases.of_plan(tx, plan.id)
    counts = needs.counts(tx, [plan.id]).get(plan.id, {})
    if not with_phases:
        return _plan(plan, listed, counts, None)
    inside = tasks.of_plan(tx, plan.id) if with_tasks else None
    return whole(
        plan, listed, counts, now, depends=needs.of_plan(tx, plan.id), inside=inside, checkpoints=phases.checkpoints_of(tx, plan.id)
    )


def whole(
    plan: Plan,
    listed: Sequence[Phase],
    counts: Mapping[str, Counts],
    now: datetime,
    *,
    depends: Mapping[str, Sequence[str]],
    inside: Mapping[str, Sequence[Task]] | None,
    checkpoints: Mapping[str, tuple[Checkpoint, ...]],
) -> PlanView:
    """
    Return *plan* as it is shown, out of all that is in it.

    Args:
        counts: Of each phase that has tasks, how many in each status; *inside*: the tasks themselves, if they are to be shown.
        depends: Of tasks and phases.
    """
    undone = {phase.id for phase in listed if not is_done(phase, counts.get(phase.id, _NONE))}
    going = {phase.id for phase in listed if phase.status in OPEN_PHASE}
    open_tasks = {task.id for phase_id in going for task in (inside or {}).get(phase_id, ()) if task.status in OPEN_TASK}
    shown = list[PhaseView]()
    for phase in listed:
        blocked_by = _among(depends.get(phase.id, ()), undone)
        within = None
        if inside is not None:
            within = tuple(
                _task(task.at(now), phase, depends.get(task.id, ()), open_tasks, blocked_by) for task in inside.get(phase.id, ())
            )
        shown.append(
            _phase(
                phase,
                depends.get(phase.id, ()),
                blocked_by,
                counts.get(phase.id, _NONE),
                checkpoints=checkpoints.get(phase.id, ()),
                tasks=within,
            )
        )
    return _plan(plan, listed, counts, tuple(shown))


def plan_views(tx: Tx, plans: Sequence[Plan]) -> list[PlanView]:
    """Return *plans* as a list shows them: without their phases."""
    ids = [plan.id for plan in plans]
    listed, counts = phases.of_plans(tx, ids), needs.counts(tx, ids)
    return [_plan(plan, listed[plan.id], counts.get(plan.id, {}), None) for plan in plans]


def phase_view(tx: Tx, phase: Phase, now: datetime, *, with_tasks: bool) -> PhaseView:
    """Return *phase* as it is shown by itself."""
    depends = needs.of_items(tx, [phase.id]).get(phase.id, [])
    blocked_by = _among(depends, needs.undone_phases(tx, depends))
    within = tuple(task_views(tx, tasks.of_phase(tx, phase.id), now)) if with_tasks else None
    checkpoints = phases.checkpoints_of(tx, phase.plan_id).get(phase.id, ())
    return _phase(phase, depends, blocked_by, needs.counts_of_phase(tx, phase.id), checkpoints=checkpoints, tasks=within)


def task_view(tx: Tx, task: Task, now: datetime) -> TaskView:
    """Return *task* as it is shown by itself."""
    return task_views(tx, [task], now)[0]


def task_views(tx: Tx, listed: Sequence[Task], now: datetime) -> list[TaskView]:
    """Return *listed*, of whatever plans, as they are shown."""
    theirs = phases.by_ids(tx, sorted({task.phase_id for task in listed}))
    depends = needs.of_items(tx, [*(task.id for task in listed), *sorted({task.phase_id for task in listed})])
    ahead = {other for task in listed for other in depends.get(task.id, ())}
    open_tasks = needs.open_tasks(tx, sorted(ahead))
    before = {other for task in listed for other in depends.get(task.phase_id, ())}
    undone = needs.undone_phases(tx, sorted(before))
    return [
        _task(task.at(now), theirs[task.phase_id], depends.get(task.id, ()), open_tasks, _among(depends.get(task.phase_id, ()), undone))
        for task in listed
    ]


def is_done(phase: Phase, counts: Counts) -> bool:
    """Tell whether those that depend on *phase* may go on: it is closed, or has tasks and all of them are (`needs.is_undone` in SQL)."""
    return phase.status not in OPEN_PHASE or (bool(counts) and not _open(counts))


def is_completable(phase: Phase, counts: Counts) -> bool:
    """Tell whether *phase* is open, and nothing in it is; one without tasks is only done when somebody says so."""
    return phase.status in OPEN_PHASE and bool(counts) and not _open(counts)


def _open(counts: Counts) -> int:
    return sum(number for status, number in counts.items() if status in OPEN_TASK)


def _plan(plan: Plan, listed: Sequence[Phase], counts: Mapping[str, Counts], shown: tuple[PhaseView, ...] | None) -> PlanView:
    parts = [_progress(phase, counts.get(phase.id, _NONE)) for phase in listed]
    total, completed = sum(each.total for each in parts), sum(each.completed for each in parts)
    return PlanView(
        plan=plan,
        progress=Progress(total=total, completed=completed),
        current_phase=_current(listed, counts),
        is_completable=bool(listed) and all(is_done(phase, counts.get(phase.id, _NONE)) for phase in listed),
        phases=shown,
    )


def _current(listed: Sequence[Phase], counts: Mapping[str, Counts]) -> Phase | None:
    """Return the phase that work is in: the first that has begun and is not done, else the first that is not done."""
    undone = [phase for phase in listed if not is_done(phase, counts.get(phase.id, _NONE))]
    return next((phase for phase in undone if phase.status is PhaseStatus.IN_PROGRESS), undone[0] if undone else None)


def _progress(phase: Phase, counts: Counts) -> Progress:
    """Return the progress of *phase*: of its tasks, without those that are skipped; without tasks it counts as one itself."""
    if phase.status is PhaseStatus.SKIPPED:
        return Progress()
    if not counts:
        return Progress(total=1, completed=int(phase.status is PhaseStatus.COMPLETED))
    skipped = counts.get(TaskStatus.SKIPPED, 0)
    return Progress(total=sum(counts.values()) - skipped, completed=counts.get(TaskStatus.COMPLETED, 0))


def _phase(
    phase: Phase,
    depends: Sequence[str],
    blocked_by: tuple[str, ...],
    counts: Counts,
    *,
    checkpoints: tuple[Checkpoint, ...],
    tasks: tuple[TaskView, ...] | None,
) -> PhaseView:
    return PhaseView(
        phase=phase,
        depends_on=tuple(sorted(depends)),
        blocked_by=blocked_by,
        is_ready=phase.status in _WORKABLE and not blocked_by,
        is_completable=is_completable(phase, counts),
        progress=_progress(phase, counts),
        checkpoints=checkpoints,
        tasks=tasks,
    )


def _task(task: Task, phase: Phase, depends: Sequence[str], open_tasks: set[str], before: tuple[str, ...]) -> TaskView:
    is_open = task.status in OPEN_TASK
    blocked_by = (*_among(depends, open_tasks), *before) if is_open else ()
    return TaskView(
        task=task,
        depends_on=tuple(sorted(depends)),
        blocked_by=blocked_by,
        is_ready=task.status is TaskStatus.PENDING and not blocked_by and phase.status in _WORKABLE,
    )


def _among(depends: Sequence[str], waiting: set[str]) -> tuple[str, ...]:
    return tuple(sorted(each for each in depends if each in waiting))
