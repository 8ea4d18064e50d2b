"""One task of a plan: its page, and what a person may do with it."""

from __future__ import annotations

from typing import Literal, cast

from starlette.responses import Response

from rookery.console.visit import View, Visit
from rookery_client import ApiError
from rookery_client.calls import UNSET
from rookery_client.generated import models

TaskAction = Literal["complete", "fail", "skip", "hold", "reopen", "release"]

_MAX_NAMED_BLOCKERS = 20
_REFUSED = frozenset({409, 422})
_OPEN: tuple[TaskAction, ...] = ("complete", "fail", "skip", "hold")
_ACTIONS: dict[str, tuple[TaskAction, ...]] = {
    "pending": _OPEN,
    "in_progress": ("complete", "fail", "skip", "hold", "release"),
    "on_hold": ("reopen", "skip"),
    "failed": ("reopen", "skip"),
    "completed": ("reopen",),
    "skipped": ("reopen",),
}
_STATUS_OF_ACTION: dict[str, Literal["completed", "skipped", "on_hold", "pending"]] = {
    "complete": "completed",
    "skip": "skipped",
    "hold": "on_hold",
    "reopen": "pending",
}


async def show_task(visit: Visit) -> Response:
    """Show a task with its result, its lease and what it waits for."""
    return await _render(visit)


async def act(visit: Visit) -> Response:
    """
    Complete, fail, skip, hold, reopen or release a task.

    A person takes a claimed task from its holder. The events of the plan record that, as for any client that sends `force`.
    """
    form, plan = await visit.form(), visit.path("plan")
    task = await visit.client.plans.get_task(visit.path("task"))
    note, action = form.get("note"), form.get("action")
    try:
        await _change(visit, task, action, note)
    except ApiError as error:
        if error.status not in _REFUSED:
            raise
        return await _render(visit, problem=error.message, note=note, status=error.status)
    return visit.redirect(f"plans/{plan}", done="saved")


async def _change(visit: Visit, task: models.Task, action: str, note: str) -> None:
    plans = visit.client.plans
    force = True if task.claim is not None else UNSET
    if action == "fail":
        await plans.fail_task(task.id, error=note or "Marked as failed by a person.", force=True)
    elif action == "release":
        await plans.release_task(task.id, force=True, reason=note or UNSET)
    elif action in _STATUS_OF_ACTION:
        await plans.update_task(task.id, status=_STATUS_OF_ACTION[action], reason=note or UNSET, force=force)


async def _render(visit: Visit, *, problem: str = "", note: str = "", status: int = 200) -> Response:
    plan = await visit.client.plans.get_plan(visit.path("plan"), include=["none"])
    task = await visit.client.plans.get_task(visit.path("task"))
    waits_for = [await visit.client.plans.get_task(task_id) for task_id in task.depends_on[:_MAX_NAMED_BLOCKERS]]
    actions = () if plan.status == "archived" else _ACTIONS.get(cast("str", task.status), ())
    return visit.render(
        "plans/task.html",
        plan=plan,
        task=task,
        phase=await visit.client.plans.get_phase(plan.slug, task.phase_id),
        waits_for=waits_for,
        actions=actions,
        problem=problem,
        note=note,
        status=status,
    )


VIEWS = (
    View("GET", "/plans/{plan}/tasks/{task}", show_task, "plans.read"),
    View("POST", "/plans/{plan}/tasks/{task}", act, "phases.write"),
)
