"""Rendering of a plan as Markdown and as a Mermaid flowchart (D-65). Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rookery.agents.models.plans import Criterion, TaskStatus
from rookery.agents.models.views import PhaseView, PlanView, TaskView
from rookery.kernel.clock import format_iso

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
