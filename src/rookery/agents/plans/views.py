"""Views of plans, phases and tasks: built from the store, and rendered as Markdown and as a Mermaid flowchart."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

from rookery.agents.models.plans import (
    OPEN_PHASE_STATUSES,
    OPEN_TASK_STATUSES,
    Checkpoint,
    Criterion,
    Phase,
    PhaseStatus,
    Plan,
    Progress,
    Task,
    TaskStatus,
)
from rookery.agents.models.views import PhaseView, PlanView, TaskView
from rookery.agents.store import dependencies, phases, tasks
from rookery.agents.store.tables import PHASES
from rookery.kernel.clock import format_iso
from rookery.kernel.db import Tx

StatusCounts = Mapping[str, int]
"""The number of tasks in each status."""

_WORKABLE_STATUSES = frozenset({PhaseStatus.PENDING, PhaseStatus.IN_PROGRESS})
_NO_COUNTS: StatusCounts = {}


def load_plan_view(tx: Tx, plan: Plan, now: datetime, *, with_phases: bool, with_tasks: bool) -> PlanView:
    plan_phases = phases.list_by_plan(tx, plan)
    counts = dependencies.count_tasks_by_status(tx, [plan.id]).get(plan.id, {})
    if not with_phases:
        return _build_plan_view(plan, plan_phases, counts, None)
    plan_tasks = tasks.list_by_plan(tx, plan) if with_tasks else None
    return build_plan_view(
        plan,
        plan_phases,
        counts,
        now,
        depends_on=dependencies.list_by_plan(tx, plan.id),
        tasks_by_phase=plan_tasks,
        checkpoints=phases.list_checkpoints(tx, plan.workspace_id, plan.id),
    )


def build_plan_view(
    plan: Plan,
    plan_phases: Sequence[Phase],
    counts: Mapping[str, StatusCounts],
    now: datetime,
    *,
    depends_on: Mapping[str, Sequence[str]],
    tasks_by_phase: Mapping[str, Sequence[Task]] | None,
    checkpoints: Mapping[str, tuple[Checkpoint, ...]],
) -> PlanView:
    """
    Return the view of *plan* from data that is already loaded.

    Args:
        counts: The number of tasks in each status, for each phase id. Phases without tasks may be missing.
        depends_on: The dependencies of tasks and phases.
        tasks_by_phase: The tasks of each phase id. None leaves them out of the view.
    """
    unfinished_ids = {phase.id for phase in plan_phases if not is_finished(phase, counts.get(phase.id, _NO_COUNTS))}
    open_phases = {phase.id for phase in plan_phases if phase.status in OPEN_PHASE_STATUSES}
    open_tasks = {
        task.id for phase_id in open_phases for task in (tasks_by_phase or {}).get(phase_id, ()) if task.status in OPEN_TASK_STATUSES
    }
    phase_views = list[PhaseView]()
    for phase in plan_phases:
        blocked_by = _filter_ids(depends_on.get(phase.id, ()), unfinished_ids)
        task_views = None
        if tasks_by_phase is not None:
            task_views = tuple(
                _build_task_view(task.as_of(now), phase, depends_on.get(task.id, ()), open_tasks, blocked_by)
                for task in tasks_by_phase.get(phase.id, ())
            )
        phase_views.append(
            _build_phase_view(
                phase,
                depends_on.get(phase.id, ()),
                blocked_by,
                counts.get(phase.id, _NO_COUNTS),
                checkpoints=checkpoints.get(phase.id, ()),
                tasks=task_views,
            )
        )
    return _build_plan_view(plan, plan_phases, counts, tuple(phase_views))


def load_plan_views(tx: Tx, plans: Sequence[Plan]) -> list[PlanView]:
    """Return the views of *plans* without their phases."""
    if not plans:
        return []
    ids = [plan.id for plan in plans]
    phases_by_plan, counts = phases.list_by_plans(tx, plans[0].workspace_id, ids), dependencies.count_tasks_by_status(tx, ids)
    return [_build_plan_view(plan, phases_by_plan[plan.id], counts.get(plan.id, {}), None) for plan in plans]


def load_phase_view(tx: Tx, phase: Phase, now: datetime, *, with_tasks: bool) -> PhaseView:
    depends = dependencies.list_by_items(tx, [phase.id]).get(phase.id, [])
    blocked_by = _filter_ids(depends, dependencies.filter_unfinished_phases(tx, depends))
    task_views = tuple(load_task_views(tx, tasks.list_by_phase(tx, phase), now)) if with_tasks else None
    checkpoints = phases.list_checkpoints(tx, phase.workspace_id, phase.plan_id).get(phase.id, ())
    return _build_phase_view(
        phase, depends, blocked_by, dependencies.count_phase_tasks_by_status(tx, phase.id), checkpoints=checkpoints, tasks=task_views
    )


def load_task_view(tx: Tx, task: Task, now: datetime) -> TaskView:
    return load_task_views(tx, [task], now)[0]


def load_task_views(tx: Tx, plan_tasks: Sequence[Task], now: datetime) -> list[TaskView]:
    """Return the views of *plan_tasks*, which may belong to several plans of one workspace."""
    if not plan_tasks:
        return []
    phase_ids = sorted({task.phase_id for task in plan_tasks})
    task_phases = {phase.id: phase for phase in PHASES.find_all(tx, plan_tasks[0].workspace_id, id=phase_ids)}
    depends = dependencies.list_by_items(tx, [*(task.id for task in plan_tasks), *phase_ids])
    required_tasks = {other for task in plan_tasks for other in depends.get(task.id, ())}
    open_tasks = dependencies.filter_open_tasks(tx, sorted(required_tasks))
    required_phases = {other for task in plan_tasks for other in depends.get(task.phase_id, ())}
    unfinished_ids = dependencies.filter_unfinished_phases(tx, sorted(required_phases))
    return [
        _build_task_view(
            task.as_of(now),
            task_phases[task.phase_id],
            depends.get(task.id, ()),
            open_tasks,
            _filter_ids(depends.get(task.phase_id, ()), unfinished_ids),
        )
        for task in plan_tasks
    ]


def is_finished(phase: Phase, counts: StatusCounts) -> bool:
    """Return True if *phase* no longer blocks others: it is closed, or has tasks and all are closed (`is_unfinished` in SQL)."""
    return phase.status not in OPEN_PHASE_STATUSES or (bool(counts) and not _count_open(counts))


def is_completable(phase: Phase, counts: StatusCounts) -> bool:
    """Return True if *phase* is open and has tasks, all of them closed. A phase without tasks must be completed by its status."""
    return phase.status in OPEN_PHASE_STATUSES and bool(counts) and not _count_open(counts)


def _count_open(counts: StatusCounts) -> int:
    return sum(number for status, number in counts.items() if status in OPEN_TASK_STATUSES)


def _build_plan_view(
    plan: Plan, plan_phases: Sequence[Phase], counts: Mapping[str, StatusCounts], phase_views: tuple[PhaseView, ...] | None
) -> PlanView:
    parts = [_compute_progress(phase, counts.get(phase.id, _NO_COUNTS)) for phase in plan_phases]
    total, completed_count = sum(part.total for part in parts), sum(part.completed for part in parts)
    return PlanView(
        plan=plan,
        progress=Progress(total=total, completed=completed_count),
        current_phase=_find_current_phase(plan_phases, counts),
        is_completable=bool(plan_phases) and all(is_finished(phase, counts.get(phase.id, _NO_COUNTS)) for phase in plan_phases),
        phases=phase_views,
    )


def _find_current_phase(plan_phases: Sequence[Phase], counts: Mapping[str, StatusCounts]) -> Phase | None:
    """Return the current phase: the first unfinished one in progress, else the first unfinished one."""
    unfinished_phases = [phase for phase in plan_phases if not is_finished(phase, counts.get(phase.id, _NO_COUNTS))]
    return next(
        (phase for phase in unfinished_phases if phase.status is PhaseStatus.IN_PROGRESS),
        unfinished_phases[0] if unfinished_phases else None,
    )


def _compute_progress(phase: Phase, counts: StatusCounts) -> Progress:
    """Return the progress of *phase*. Skipped tasks do not count; a phase without tasks counts as one item."""
    if phase.status is PhaseStatus.SKIPPED:
        return Progress()
    if not counts:
        return Progress(total=1, completed=int(phase.status is PhaseStatus.COMPLETED))
    skipped = counts.get(TaskStatus.SKIPPED, 0)
    return Progress(total=sum(counts.values()) - skipped, completed=counts.get(TaskStatus.COMPLETED, 0))


def _build_phase_view(
    phase: Phase,
    depends_on: Sequence[str],
    blocked_by: tuple[str, ...],
    counts: StatusCounts,
    *,
    checkpoints: tuple[Checkpoint, ...],
    tasks: tuple[TaskView, ...] | None,
) -> PhaseView:
    return PhaseView(
        phase=phase,
        depends_on=tuple(sorted(depends_on)),
        blocked_by=blocked_by,
        is_ready=phase.status in _WORKABLE_STATUSES and not blocked_by,
        is_completable=is_completable(phase, counts),
        progress=_compute_progress(phase, counts),
        checkpoints=checkpoints,
        tasks=tasks,
    )


def _build_task_view(
    task: Task, phase: Phase, depends_on: Sequence[str], open_tasks: set[str], phase_blocked_by: tuple[str, ...]
) -> TaskView:
    is_open = task.status in OPEN_TASK_STATUSES
    blocked_by = (*_filter_ids(depends_on, open_tasks), *phase_blocked_by) if is_open else ()
    return TaskView(
        task=task,
        depends_on=tuple(sorted(depends_on)),
        blocked_by=blocked_by,
        is_ready=task.status is TaskStatus.PENDING and not blocked_by and phase.status in _WORKABLE_STATUSES,
    )


def _filter_ids(ids: Sequence[str], allowed: set[str]) -> tuple[str, ...]:
    return tuple(sorted(id for id in ids if id in allowed))


_MARKDOWN_SPECIAL = re.compile(r"([\\`*_\[\]<>#|~])")
_LINE_BREAKS = re.compile(r"\s*\n\s*")
_MERMAID_SPECIAL = frozenset('#&;"<>`[]{}|')
_CHECKBOX_MARKS = {
    TaskStatus.COMPLETED: "x",
    TaskStatus.IN_PROGRESS: "~",
    TaskStatus.SKIPPED: "-",
    TaskStatus.FAILED: "!",
    TaskStatus.ON_HOLD: "?",
}


def render_markdown(view: PlanView) -> str:
    """Return the plan as a Markdown page. Names and one-line texts are escaped; descriptions keep their own Markdown."""
    plan, progress = view.plan, view.progress
    lines = [f"# {_escape_inline(plan.title)}", ""]
    facts = [f"`{plan.slug}`", plan.status.value, f"{progress.completed} of {progress.total} done ({progress.percentage} %)"]
    facts += [_escape_inline(part) for part in (plan.org, plan.project) if part]
    lines += [" · ".join(facts), ""]
    if plan.description:
        lines += [plan.description.strip(), ""]
    for phase in view.phases or ():
        lines += _render_phase(phase, view)
    lines += [f"Updated {format_iso(plan.updated_at)}", ""]
    return "\n".join(lines)


def render_mermaid(view: PlanView) -> str:
    """Return the plan as a flowchart, with a box around the tasks of each phase and an arrow from each dependency."""
    ids = dict[str, str]()
    lines, arrows = ["flowchart LR"], list[str]()
    for number, phase in enumerate(view.phases or (), 1):
        ids[phase.phase.id] = f"p{number}"
        for place, task_view in enumerate(phase.tasks or (), 1):
            ids[task_view.task.id] = f"p{number}t{place}"
    for phase in view.phases or ():
        lines.append(
            f'  subgraph {ids[phase.phase.id]}["{phase.phase.position}. {_escape_label(phase.phase.name)} ({phase.phase.status.value})"]'
        )
        for task_view in phase.tasks or ():
            lines.append(f'    {ids[task_view.task.id]}["{_escape_label(task_view.task.name)}"]:::{task_view.task.status.value}')
            arrows += [f"  {ids[other]} --> {ids[task_view.task.id]}" for other in task_view.depends_on if other in ids]
        lines.append("  end")
        arrows += [f"  {ids[other]} ==> {ids[phase.phase.id]}" for other in phase.depends_on if other in ids]
    colours = {"completed": "#c8e6c9", "in_progress": "#bbdefb", "failed": "#ffcdd2", "skipped": "#eeeeee", "on_hold": "#fff9c4"}
    lines += [*arrows, *(f"  classDef {name} fill:{colour},color:#000" for name, colour in colours.items())]
    return "\n".join([*lines, ""])


def _render_phase(phase: PhaseView, view: PlanView) -> Iterator[str]:
    item, progress = phase.phase, phase.progress
    yield f"## {item.position}. {_escape_inline(item.name)}"
    yield ""
    facts = [item.status.value, f"{progress.completed} of {progress.total} done"]
    if item.hold_reason:
        facts.append(_escape_inline(item.hold_reason))
    if phase.blocked_by:
        facts.append("waits for " + ", ".join(_list_phase_labels(phase.blocked_by, view)))
    yield " · ".join(facts)
    yield ""
    if item.description:
        yield item.description.strip()
        yield ""
    for task_view in phase.tasks or ():
        yield from _render_task(task_view)
    if phase.tasks:
        yield ""
    if item.acceptance_criteria:
        yield "Accepted when:"
        yield ""
        yield from _render_criteria(item.acceptance_criteria, "")
        yield ""
    for checkpoint in phase.checkpoints:
        yield f"> {format_iso(checkpoint.created_at)} {_escape_inline(checkpoint.note)}"
        yield ">"
    if phase.checkpoints:
        yield ""


def _render_task(task_view: TaskView) -> Iterator[str]:
    task = task_view.task
    facts = [] if task.priority == 2 else [f"priority {task.priority}"]
    if task.claim is not None:
        facts.append(f"claimed by {_escape_inline(task.claim.agent_id or task.claim.key_id)} until {format_iso(task.claim.expires_at)}")
    if task_view.blocked_by:
        facts.append("blocked")
    facts += [_escape_inline(text) for text in (task.hold_reason, task.error) if text]
    yield f"- [{_CHECKBOX_MARKS.get(task.status, ' ')}] {_escape_inline(task.name)}" + (f" ({'; '.join(facts)})" if facts else "")
    yield from _render_criteria(task.acceptance_criteria, "  ")


def _render_criteria(criteria: tuple[Criterion, ...], indent: str) -> Iterator[str]:
    return (f"{indent}- [{'x' if criterion.checked else ' '}] {_escape_inline(criterion.text)}" for criterion in criteria)


def _list_phase_labels(ids: tuple[str, ...], view: PlanView) -> list[str]:
    return [
        f"{phase_view.phase.position}. {_escape_inline(phase_view.phase.name)}"
        for phase_view in view.phases or ()
        if phase_view.phase.id in ids
    ]


def _escape_inline(text: str) -> str:
    return _MARKDOWN_SPECIAL.sub(r"\\\1", _LINE_BREAKS.sub(" ", text.strip()))


def _escape_label(text: str) -> str:
    """Return *text* for a quoted label, cut to 80 characters, with special characters as entities. Labels have no other escapes."""
    flat = _LINE_BREAKS.sub(" ", text.strip())[:80]
    return "".join(f"#{ord(char)};" if char in _MERMAID_SPECIAL else char for char in flat)
