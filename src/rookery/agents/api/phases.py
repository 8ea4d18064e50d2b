"""Routes of phases, their checkpoints and their tasks (D-65)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import Query
from starlette.requests import Request
from starlette.responses import Response

from rookery.access.guard import get_caller
from rookery.agents.api.route_table import READ_SCOPE, WORK_SCOPE, make_route
from rookery.agents.errors import (
    PhaseBlocked,
    PhaseClosed,
    PhaseHasOpenTasks,
    PlanArchived,
    PlanNotActive,
    TaskClaimed,
    TooManyItems,
    WrongTransition,
)
from rookery.agents.models.plans import Checkpoint
from rookery.agents.models.views import PhaseView, TaskView
from rookery.agents.plans.phases import Phases
from rookery.agents.plans.tasks import Tasks
from rookery.agents.schemas.plan_responses import (
    CheckpointResponse,
    PhaseResponse,
    PhasesResponse,
    TaskResponse,
    TasksResponse,
    to_checkpoint_response,
    to_phase_response,
    to_task_response,
)
from rookery.agents.schemas.plans import CheckpointBody, NewPhaseBody, NewTaskBody, PhasePatch, PhaseStatusBody
from rookery.agents.schemas.queries import ForceQuery, PhaseTasksQuery
from rookery.kernel.http import Route, document_route, json_response, page_response, respond_with
from rookery.kernel.http.conditional_requests import by_etag, json_with_etag, read_if_match, with_etag
from rookery.kernel.schema import PageQuery


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseRoutes:
    """Handlers that parse a request, call one service method and build the response."""

    phases: Phases
    tasks: Tasks

    def routes(self) -> list[Route]:
        """Return the routes."""
        all_, phase_path = "/plans/{plan}/phases", "/plans/{plan}/phases/{phase}"
        return [
            make_route(
                f"GET {all_}",
                self.get_phases,
                READ_SCOPE,
                PhasesResponse,
                "list_phases",
                summary="List the phases of a plan, in their order",
            ),
            make_route(
                f"POST {all_}",
                self.post_phase,
                WORK_SCOPE,
                PhaseResponse,
                "create_phase",
                summary="Add a phase with its tasks",
                status=201,
                idempotent=True,
            ),
            make_route(f"GET {phase_path}", self.get_phase, READ_SCOPE, PhaseResponse, "get_phase", summary="Show a phase with its tasks"),
            make_route(
                f"PATCH {phase_path}", self.patch_phase, WORK_SCOPE, PhaseResponse, "update_phase", summary="Change or move a phase"
            ),
            make_route(
                f"DELETE {phase_path}",
                self.delete_phase,
                WORK_SCOPE,
                None,
                "delete_phase",
                summary="Delete a phase with its tasks",
                status=204,
            ),
            make_route(
                f"PATCH {phase_path}/status",
                self.patch_status,
                WORK_SCOPE,
                PhaseResponse,
                "set_phase_status",
                summary="Start, complete, skip, hold or reopen a phase",
            ),
            make_route(
                f"POST {phase_path}/checkpoints",
                self.post_checkpoint,
                WORK_SCOPE,
                CheckpointResponse,
                "create_checkpoint",
                summary="Add a checkpoint to a phase",
                status=201,
                idempotent=True,
            ),
            make_route(
                f"GET {phase_path}/tasks",
                self.get_tasks,
                READ_SCOPE,
                TasksResponse,
                "list_phase_tasks",
                summary="List the tasks of a phase",
            ),
            make_route(
                f"POST {phase_path}/tasks",
                self.post_task,
                WORK_SCOPE,
                TaskResponse,
                "create_task",
                summary="Add a task to a phase",
                status=201,
                idempotent=True,
            ),
        ]

    async def get_phases(self, request: Request, plan: str, query: Annotated[PageQuery, Query()]) -> Response:
        """List the phases of a plan without their tasks, in their order."""
        views = await self.phases.list_phases(get_caller(request), plan, with_tasks=False)
        page = views[query.offset : query.offset + query.per_page]
        return page_response(request, [to_phase_response(view) for view in page], query=query, total=len(views))

    @with_etag
    @by_etag
    @document_route(errors=(PlanArchived, PlanNotActive, TooManyItems))
    async def post_phase(self, request: Request, plan: str, body: NewPhaseBody) -> Response:
        """Add a phase to a plan, with its tasks."""
        respond = respond_with(PhaseView, lambda view: json_with_etag(to_phase_response(view), view.phase.version, status=201))
        return respond(await self.phases.add(get_caller(request), plan, body.to_draft(body.position), expected=read_if_match(request)))

    @with_etag
    async def get_phase(self, request: Request, plan: str, phase: str) -> Response:
        """Return a phase with its tasks. The path contains its id or its position."""
        view = await self.phases.get(get_caller(request), plan, phase)
        return json_with_etag(to_phase_response(view), view.phase.version)

    @with_etag
    @by_etag
    @document_route(errors=(PlanArchived,))
    async def patch_phase(self, request: Request, plan: str, phase: str, body: PhasePatch) -> Response:
        """Change the name, description, position or dependencies of a phase. Fields that are left out keep their value."""
        view = await self.phases.change(get_caller(request), plan, phase, body.to_change(), expected=read_if_match(request))
        return json_with_etag(to_phase_response(view), view.phase.version)

    @by_etag
    @document_route(errors=(PlanArchived, TaskClaimed))
    async def delete_phase(self, request: Request, plan: str, phase: str, query: Annotated[ForceQuery, Query()]) -> Response:
        """Delete a phase with its tasks. If one of its tasks is claimed, `force` is needed."""
        await self.phases.remove(get_caller(request), plan, phase, force=query.force, expected=read_if_match(request))
        return Response(status_code=204)

    @with_etag
    @by_etag
    @document_route(errors=(PlanArchived, PlanNotActive, PhaseBlocked, PhaseHasOpenTasks, TaskClaimed, WrongTransition))
    async def patch_status(self, request: Request, plan: str, phase: str, body: PhaseStatusBody) -> Response:
        """Change the status of a phase. If the current status does not allow the change, the response is 409 with the allowed values."""
        view = await self.phases.set_status(get_caller(request), plan, phase, body.to_change(), expected=read_if_match(request))
        return json_with_etag(to_phase_response(view), view.phase.version)

    @by_etag
    @document_route(errors=(PlanArchived, TooManyItems))
    async def post_checkpoint(self, request: Request, plan: str, phase: str, body: CheckpointBody) -> Response:
        """Add a note to a phase. It is shown with the phase."""
        respond = respond_with(Checkpoint, lambda checkpoint: json_response(to_checkpoint_response(checkpoint), status=201))
        checkpoint = await self.phases.add_checkpoint(
            get_caller(request), plan, phase, note=body.note, context=body.context or {}, expected=read_if_match(request)
        )
        return respond(checkpoint)

    async def get_tasks(self, request: Request, plan: str, phase: str, query: Annotated[PhaseTasksQuery, Query()]) -> Response:
        """List the tasks of a phase, in their order."""
        views, total = await self.tasks.list_page(
            get_caller(request), query.to_filter(plan, phase), limit=query.per_page, offset=query.offset
        )
        return page_response(request, [to_task_response(view) for view in views], query=query, total=total)

    @with_etag
    @by_etag
    @document_route(errors=(PlanArchived, PlanNotActive, PhaseClosed, TooManyItems))
    async def post_task(self, request: Request, plan: str, phase: str, body: NewTaskBody) -> Response:
        """Add a task to a phase."""
        respond = respond_with(TaskView, lambda view: json_with_etag(to_task_response(view), view.task.version, status=201))
        return respond(
            await self.tasks.add(get_caller(request), plan, phase, body.to_draft(body.position), expected=read_if_match(request))
        )
