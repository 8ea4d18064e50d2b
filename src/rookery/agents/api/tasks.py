"""Routes of tasks and their leases (D-61, D-65)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Annotated, TypeVar

from fastapi import Query
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive

from rookery.access.guard import get_caller
from rookery.agents.api.route_table import READ_SCOPE, WORK_SCOPE, make_route, require_unconditional
from rookery.agents.errors import (
    LeaseLost,
    PhaseBlocked,
    PhaseClosed,
    PlanArchived,
    PlanNotActive,
    TaskBlocked,
    TaskClaimed,
    WrongTransition,
)
from rookery.agents.models.views import TaskView
from rookery.agents.plans.claims import Claims, LeaseEndResult, NoTaskAvailable
from rookery.agents.plans.tasks import Tasks
from rookery.agents.schemas.claims import ClaimBody, ClaimNextBody, CompleteBody, FailBody, HeartbeatBody, ReleaseBody
from rookery.agents.schemas.plan_responses import (
    ClaimedResponse,
    EndedResponse,
    TaskResponse,
    TasksResponse,
    to_claimed_task_response,
    to_completed_task_response,
    to_task_response,
)
from rookery.agents.schemas.plans import TaskPatch
from rookery.agents.schemas.queries import ForceQuery, TasksQuery
from rookery.agents.sessions.errors import SessionEnded
from rookery.kernel.errors import NotFound
from rookery.kernel.http import DocumentedResponse, Route, allowed_on_full_disk, document_route, page_response, respond_with
from rookery.kernel.http.conditional_requests import by_etag, json_with_etag, read_if_match, with_etag
from rookery.kernel.http.request_body import ClientDisconnected

T = TypeVar("T")

_NO_TASK = DocumentedResponse(
    description="No task can be claimed. `X-Reason` is `all_claimed`, `blocked`, `plan_paused`, `plan_draft` (the draft in `X-Plan` "
    "has tasks; set its status to active, or send its slug as `plan`) or `plan_done`. `Retry-After` is the seconds until the next try."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRoutes:
    """Handlers that parse a request, call one service method and build the response."""

    tasks: Tasks
    claims: Claims

    def routes(self) -> list[Route]:
        """Return the routes."""
        task_path = "/tasks/{task}"
        return [
            make_route("GET /tasks", self.get_tasks, READ_SCOPE, TasksResponse, "list_tasks", summary="List tasks of all plans"),
            make_route(
                "POST /tasks/claim-next",
                self.post_claim_next,
                WORK_SCOPE,
                ClaimedResponse,
                "claim_next_task",
                summary="Claim the best ready task, or wait for one",
                idempotent=True,
                body_optional=True,
            ),
            make_route(f"GET {task_path}", self.get_task, READ_SCOPE, TaskResponse, "get_task", summary="Show a task"),
            make_route(f"PATCH {task_path}", self.patch_task, WORK_SCOPE, TaskResponse, "update_task", summary="Change a task"),
            make_route(f"DELETE {task_path}", self.delete_task, WORK_SCOPE, None, "delete_task", summary="Delete a task", status=204),
            make_route(
                f"POST {task_path}/claim",
                self.post_claim,
                WORK_SCOPE,
                ClaimedResponse,
                "claim_task",
                summary="Claim a task",
                idempotent=True,
                body_optional=True,
            ),
            make_route(
                f"POST {task_path}/heartbeat",
                self.post_heartbeat,
                WORK_SCOPE,
                TaskResponse,
                "extend_task_lease",
                summary="Extend the lease of a task",
                rate_limited=False,
            ),
            make_route(
                f"POST {task_path}/release",
                self.post_release,
                WORK_SCOPE,
                TaskResponse,
                "release_task",
                summary="Release a claimed task",
                idempotent=True,
            ),
            make_route(
                f"POST {task_path}/complete",
                self.post_complete,
                WORK_SCOPE,
                EndedResponse,
                "complete_task",
                summary="Complete a task",
                idempotent=True,
            ),
            make_route(
                f"POST {task_path}/fail",
                self.post_fail,
                WORK_SCOPE,
                TaskResponse,
                "fail_task",
                summary="Mark a task as failed",
                idempotent=True,
            ),
        ]

    @document_route(errors=(NotFound,))
    async def get_tasks(self, request: Request, query: Annotated[TasksQuery, Query()]) -> Response:
        """List tasks of all plans. `status=ready` lists tasks that can be claimed now, best first."""
        views, total = await self.tasks.list_page(get_caller(request), query.to_filter(), limit=query.per_page, offset=query.offset)
        return page_response(request, [to_task_response(view) for view in views], query=query, total=total)

    @with_etag
    async def get_task(self, request: Request, task: str) -> Response:
        """Return a task with its claim, if it has one."""
        view = await self.tasks.get(get_caller(request), task)
        return json_with_etag(to_task_response(view), view.task.version)

    @with_etag
    @by_etag
    @document_route(errors=(PlanArchived, PlanNotActive, PhaseBlocked, PhaseClosed, TaskBlocked, TaskClaimed, WrongTransition))
    async def patch_task(self, request: Request, task: str, body: TaskPatch) -> Response:
        """Change fields of a task or its status. To change the status of a claimed task, send its `claim_token` or `force`."""
        view = await self.tasks.change(get_caller(request), task, body.to_change(), expected=read_if_match(request))
        return json_with_etag(to_task_response(view), view.task.version)

    @by_etag
    @document_route(errors=(PlanArchived, TaskClaimed))
    async def delete_task(self, request: Request, task: str, query: Annotated[ForceQuery, Query()]) -> Response:
        """Delete a task. If it is claimed, `force` is needed."""
        await self.tasks.remove(get_caller(request), task, force=query.force, expected=read_if_match(request))
        return Response(status_code=204)

    @with_etag
    @by_etag
    @document_route(
        responses={204: _NO_TASK},
        errors=(NotFound, PlanArchived, SessionEnded, TaskClaimed),
        response_headers=("X-Reason", "X-Plan", "Retry-After"),
    )
    async def post_claim_next(self, request: Request, body: ClaimNextBody) -> Response:
        """
        Claim the best ready task and return it with its `claim_token`.

        If no task is ready, the response is 204 with the reason in `X-Reason`. `wait_s` waits for one.
        """
        require_unconditional(request)
        respond = respond_with(TaskView, _reply_claimed)
        claiming = self.claims.claim_next(
            get_caller(request), body.plan_ref, body.to_lease_request(), any_plan=body.any_plan, wait_s=body.wait_s
        )
        outcome = await (claiming if body.wait_s <= 0 else _cancel_on_disconnect(claiming, request.receive))
        if isinstance(outcome, NoTaskAvailable):
            plan = {} if outcome.plan is None else {"X-Plan": outcome.plan}
            return Response(status_code=204, headers={"X-Reason": outcome.reason, "Retry-After": str(outcome.retry_after_s), **plan})
        return respond(outcome)

    @with_etag
    @by_etag
    @document_route(
        errors=(PlanArchived, SessionEnded, PlanNotActive, PhaseClosed, PhaseBlocked, TaskBlocked, TaskClaimed, WrongTransition)
    )
    async def post_claim(self, request: Request, task: str, body: ClaimBody) -> Response:
        """Claim a task. The response contains the `claim_token` of the lease."""
        respond = respond_with(TaskView, _reply_claimed)
        return respond(await self.claims.claim(get_caller(request), task, body.to_lease_request(), expected=read_if_match(request)))

    @allowed_on_full_disk
    @with_etag
    @by_etag
    @document_route(errors=(PlanArchived, LeaseLost, WrongTransition))
    async def post_heartbeat(self, request: Request, task: str, body: HeartbeatBody) -> Response:
        """Extend the lease of a claimed task."""
        view = await self.claims.heartbeat(
            get_caller(request), task, body.to_credential(), ttl_s=body.ttl_s, expected=read_if_match(request)
        )
        return json_with_etag(to_task_response(view), view.task.version)

    @allowed_on_full_disk
    @with_etag
    @by_etag
    @document_route(errors=(PlanArchived, LeaseLost, TaskClaimed, WrongTransition))
    async def post_release(self, request: Request, task: str, body: ReleaseBody) -> Response:
        """End the lease of a task without a result. Others can claim it again."""
        respond = respond_with(LeaseEndResult, _reply_released)
        return respond(
            await self.claims.release(get_caller(request), task, body.to_credential(), reason=body.reason, expected=read_if_match(request))
        )

    @with_etag
    @by_etag
    @document_route(errors=(PlanArchived, LeaseLost, TaskClaimed, WrongTransition))
    async def post_complete(self, request: Request, task: str, body: CompleteBody) -> Response:
        """Complete a claimed task with its result. `claim_next` claims the next task in the same request."""
        respond = respond_with(LeaseEndResult, lambda result: json_with_etag(to_completed_task_response(result), result.task.task.version))
        result = await self.claims.complete(
            get_caller(request),
            task,
            body.to_credential(),
            result=body.result,
            notes=body.notes,
            next_request=body.to_next_request(),
            expected=read_if_match(request),
        )
        return respond(result)

    @with_etag
    @by_etag
    @document_route(errors=(PlanArchived, LeaseLost, TaskClaimed, WrongTransition))
    async def post_fail(self, request: Request, task: str, body: FailBody) -> Response:
        """Mark a claimed task as failed, with the reason. This ends its lease."""
        respond = respond_with(LeaseEndResult, _reply_released)
        return respond(
            await self.claims.fail(
                get_caller(request), task, body.to_credential(), error=body.error, result=body.result, expected=read_if_match(request)
            )
        )


def _reply_claimed(view: TaskView) -> Response:
    return json_with_etag(to_claimed_task_response(view), view.task.version)


def _reply_released(result: LeaseEndResult) -> Response:
    return json_with_etag(to_task_response(result.task), result.task.task.version)


async def _cancel_on_disconnect(awaitable: Awaitable[T], receive: Receive) -> T:
    """
    Return the result of *awaitable*, or cancel it if the client disconnects first.

    Raises:
        ClientDisconnected: The client disconnected.
    """
    task, disconnect = asyncio.ensure_future(awaitable), asyncio.ensure_future(_wait_for_disconnect(receive))
    try:
        await asyncio.wait({task, disconnect}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise ClientDisconnected
    finally:
        disconnect.cancel()
        task.cancel()


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        continue
