"""The plans: the list, the board of one by phase, its dependencies, its events, and what changes its status."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Literal, cast, get_args

from starlette.responses import Response

from rookery.console.arguments import choose
from rookery.console.plan_graph import BOX_WIDTH, MAX_DRAWN_TASKS, draw_graph, list_dependencies
from rookery.console.visit import PER_PAGE, Notice, PageLinks, View, Visit
from rookery_client import ApiError
from rookery_client.calls import UNSET
from rookery_client.generated import models

PlanStatus = Literal["draft", "active", "paused", "completed", "archived"]
TaskState = Literal["pending", "in_progress", "completed", "skipped", "failed", "on_hold", "ready", "blocked"]

STATUSES: tuple[PlanStatus, ...] = get_args(PlanStatus)
TASK_STATES: tuple[TaskState, ...] = ("ready", "blocked", "in_progress", "completed", "failed", "on_hold", "skipped")
PHASES_PER_PAGE = 12
"""Columns of a board. Further phases are on its next pages."""

TASKS_PER_COLUMN = 20
"""Cards in a column. The page of the phase lists all of its tasks."""


@dataclass(frozen=True, slots=True)
class BoardColumn:
    """A phase with its first tasks, and the number of all of its tasks."""

    phase: models.Phase
    tasks: list[models.Task]
    total: int


async def list_plans(visit: Visit) -> Response:
    """Show the plans of the workspace, newest first."""
    filters = {name: visit.query(name) for name in ("q", "status", "project", "org")}
    page, problem = None, ""
    try:
        page = await visit.client.plans.list_plans(
            page=visit.page_number,
            per_page=PER_PAGE,
            q=filters["q"] or UNSET,
            status=choose(filters["status"], STATUSES),
            project=filters["project"] or UNSET,
            org=filters["org"] or UNSET,
        )
    except ApiError as error:
        if error.status != HTTPStatus.UNPROCESSABLE_ENTITY:
            raise
        problem = error.message
    return visit.render(
        "plans/list.html",
        filters=filters,
        plans=page.items if page else [],
        links=PageLinks.of(visit, page) if page else None,
        problem=problem,
        statuses=STATUSES,
    )


async def show_board(visit: Visit) -> Response:
    """Show a plan as a board: a column for each phase, a card for each task."""
    return await render_board(visit)


async def render_board(visit: Visit, *, problem: str = "", status: int = 200) -> Response:
    """Return the board of the plan of the URL, with the message of a change that was refused."""
    plan = await visit.client.plans.get_plan(visit.path("plan"), include=["phases"])
    phases = plan.phases or []
    first = (visit.page_number - 1) * PHASES_PER_PAGE
    columns = [await _read_column(visit, plan.slug, phase) for phase in phases[first : first + PHASES_PER_PAGE]]
    links = PageLinks.at(visit, visit.page_number, len(phases), PHASES_PER_PAGE)
    checkpoints = sorted(
        ((note, phase) for phase in phases for note in phase.checkpoints), key=lambda pair: pair[0].created_at, reverse=True
    )
    return visit.render(
        "plans/board.html",
        plan=plan,
        columns=columns,
        links=links,
        checkpoints=checkpoints[:PER_PAGE],
        checkpoint_count=len(checkpoints),
        actions=_list_actions(plan),
        problem=problem,
        status=status,
    )


async def _read_column(visit: Visit, plan: str, phase: models.Phase) -> BoardColumn:
    page = await visit.client.plans.list_phase_tasks(plan, phase.id, per_page=TASKS_PER_COLUMN)
    return BoardColumn(phase, page.items, page.total)


def _list_actions(plan: models.Plan) -> list[tuple[PlanStatus, str]]:
    """Return the statuses to which the plan may change, with the verb of each. Archiving asks first, so that it has a form of its own."""
    verbs: Mapping[str, list[tuple[PlanStatus, str]]] = {
        "draft": [("active", "Start")],
        "active": [("paused", "Pause"), ("completed", "Complete")],
        "paused": [("active", "Resume"), ("completed", "Complete")],
        "completed": [("active", "Reopen")],
    }
    return verbs.get(plan.status, [])


async def set_status(visit: Visit) -> Response:
    """Start, pause, resume, complete, reopen, archive or restore a plan."""
    form, plan = await visit.form(), visit.path("plan")
    status = form.get("status")
    notice: Notice = "saved"
    try:
        if status == "archived":
            await visit.client.plans.archive_plan(plan, reason=form.get("reason") or UNSET)
            notice = "archived"
        elif status == "restored":
            await visit.client.plans.restore_plan(plan)
            notice = "restored"
        else:
            await visit.client.plans.set_plan_status(plan, status=cast("PlanStatus", status))
            notice = "started" if status == "active" else "saved"
    except ApiError as error:
        if error.status not in {HTTPStatus.CONFLICT, HTTPStatus.UNPROCESSABLE_ENTITY}:
            raise
        return await render_board(visit, problem=error.message, status=error.status)
    return visit.redirect(f"plans/{plan}", done=notice)


async def show_phase(visit: Visit) -> Response:
    """Show a phase with all of its tasks, which can be selected by state."""
    plan = await visit.client.plans.get_plan(visit.path("plan"), include=["none"])
    phase = await visit.client.plans.get_phase(plan.slug, visit.path("phase"))
    state = visit.query("state")
    page = await visit.client.plans.list_phase_tasks(
        plan.slug,
        phase.id,
        page=visit.page_number,
        per_page=PER_PAGE,
        state=choose(state, TASK_STATES),
    )
    return visit.render(
        "plans/phase.html",
        plan=plan,
        phase=phase,
        tasks=page.items,
        links=PageLinks.of(visit, page),
        state=state,
        states=[(name, name.replace("_", " ")) for name in TASK_STATES],
    )


async def show_graph(visit: Visit) -> Response:
    """Show the dependencies of a plan as a drawing, and as a list."""
    plan = await visit.client.plans.get_plan(visit.path("plan"), include=["none"])
    graph = await visit.client.plans.get_plan_graph(plan.slug)
    return visit.render(
        "plans/graph.html",
        plan=plan,
        drawing=draw_graph(graph),
        box_width=BOX_WIDTH,
        dependencies=list_dependencies(graph),
        max_tasks=MAX_DRAWN_TASKS,
        task_count=sum(node.kind == "task" for node in graph.nodes),
    )


async def list_events(visit: Visit) -> Response:
    """Show the changes of a plan, oldest first."""
    plan = await visit.client.plans.get_plan(visit.path("plan"), include=["none"])
    page = await visit.client.plans.list_plan_events(plan.slug, page=visit.page_number, per_page=PER_PAGE)
    links = PageLinks.of(visit, page)
    return visit.render("plans/events.html", plan=plan, events=page.items, links=links)


VIEWS = (
    View("GET", "/plans", list_plans, "plans.read"),
    View("GET", "/plans/{plan}", show_board, "plans.read"),
    View("POST", "/plans/{plan}/status", set_status, "plans.write"),
    View("GET", "/plans/{plan}/graph", show_graph, "plans.read"),
    View("GET", "/plans/{plan}/events", list_events, "plans.read"),
    View("GET", "/plans/{plan}/phases/{phase}", show_phase, "plans.read"),
)
