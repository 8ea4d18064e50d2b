"""Operations on tasks and their leases."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from starlette.requests import Request
from starlette.types import Receive

from rookery.access.models import Caller
from rookery.agents import tool_declarations as tools
from rookery.agents.api.plans import READ_SCOPE, WORK_SCOPE, present_task
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
from rookery.agents.models.drafts import TaskPatch
from rookery.agents.models.views import TaskView
from rookery.agents.plans.claims import Claims, LeaseEndResult, NoTaskAvailable
from rookery.agents.plans.tasks import Tasks
from rookery.agents.schemas.claims import ClaimBody, ClaimNextBody, CompleteBody, FailBody, HeartbeatBody, NextTaskToolResponse, ReleaseBody
from rookery.agents.schemas.plan_responses import (
    ClaimedResponse,
    EndedResponse,
    TaskResponse,
    TasksResponse,
    to_claimed_task_response,
    to_completed_task_response,
)
from rookery.agents.schemas.queries import ForceQuery, TasksQuery
from rookery.agents.sessions.errors import SessionEnded
from rookery.kernel.errors import NotFound
from rookery.kernel.http import DocumentedResponse, ItemPage, Operation, Output
from rookery.kernel.http.request_body import ClientDisconnected
from rookery.kernel.preconditions import ExpectedETags

T = TypeVar("T")

_NO_TASK = DocumentedResponse(
    description="No task can be claimed. `X-Reason` is `all_claimed`, `blocked`, `plan_paused`, `plan_draft` (the draft in `X-Plan` "
    "has tasks; set its status to active, or send its slug as `plan`) or `plan_done`. `Retry-After` is the seconds until the next try."
)

_operation = partial(Operation, tags=("Plans",))
_task = partial(_operation, present=present_task, response_model=TaskResponse, etag=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskApi:
    """The operations on tasks. Each handler calls one service method."""

    tasks: Tasks
    claims: Claims

    def operations(self) -> list[Operation]:
        """Return the operations."""
        one = "/tasks/{task}"
        lease = partial(_operation, method="POST", required_scope=WORK_SCOPE, etag=True, idempotent=True)
        return [
            _operation(method="GET", path="/tasks", handler=self.get_tasks, present=present_task, required_scope=READ_SCOPE,
                       response_model=TasksResponse, operation_id="list_tasks", summary="List tasks of all plans", errors=(NotFound,),
                       tools=(tools.TASK_READY,)),
            lease(path="/tasks/claim-next", handler=self.post_claim_next, present=_present_next, committed=TaskView, body_optional=True,
                  response_model=ClaimedResponse, operation_id="claim_next_task", summary="Claim the best ready task, or wait for one",
                  errors=(NotFound, PlanArchived, SessionEnded, TaskClaimed), request_headers=("If-Match",),
                  responses={204: _NO_TASK}, response_headers=("X-Reason", "X-Plan", "Retry-After"),
                  tools=(replace(tools.TASK_CLAIM_NEXT, present=_present_next_in_tool, output=NextTaskToolResponse),)),
            _task(method="GET", path=one, handler=self.get_task, required_scope=READ_SCOPE, operation_id="get_task",
                  summary="Show a task", tools=(tools.TASK_SHOW,)),
            _task(method="PATCH", path=one, handler=self.patch_task, required_scope=WORK_SCOPE, operation_id="update_task",
                  summary="Change a task", tools=(tools.TASK_UPDATE,),
                  errors=(PlanArchived, PlanNotActive, PhaseBlocked, PhaseClosed, TaskBlocked, TaskClaimed, WrongTransition)),
            _operation(method="DELETE", path=one, handler=self.delete_task, required_scope=WORK_SCOPE, status=204,
                       operation_id="delete_task", summary="Delete a task", errors=(PlanArchived, TaskClaimed)),
            lease(path=f"{one}/claim", handler=self.post_claim, present=_present_claimed, committed=TaskView, body_optional=True,
                  response_model=ClaimedResponse, operation_id="claim_task", summary="Claim a task", tools=(tools.TASK_CLAIM,),
                  errors=(PlanArchived, SessionEnded, PlanNotActive, PhaseClosed, PhaseBlocked, TaskBlocked, TaskClaimed,
                          WrongTransition)),
            _task(method="POST", path=f"{one}/heartbeat", handler=self.post_heartbeat, required_scope=WORK_SCOPE, rate_limited=False,
                  operation_id="extend_task_lease", summary="Extend the lease of a task",
                  errors=(PlanArchived, LeaseLost, WrongTransition), tools=(tools.TASK_HEARTBEAT,), allowed_on_full_disk=True,
                  repeatable=True),
            lease(path=f"{one}/release", handler=self.post_release, present=_present_ended, committed=LeaseEndResult,
                  response_model=TaskResponse, operation_id="release_task", summary="Release a claimed task",
                  errors=(PlanArchived, LeaseLost, TaskClaimed, WrongTransition), tools=(tools.TASK_RELEASE,), allowed_on_full_disk=True),
            lease(path=f"{one}/complete", handler=self.post_complete, present=_present_completed, committed=LeaseEndResult,
                  response_model=EndedResponse, operation_id="complete_task", summary="Complete a task",
                  errors=(PlanArchived, LeaseLost, TaskClaimed, WrongTransition), tools=(tools.TASK_COMPLETE,)),
            lease(path=f"{one}/fail", handler=self.post_fail, present=_present_ended, committed=LeaseEndResult,
                  response_model=TaskResponse, operation_id="fail_task", summary="Mark a task as failed",
                  errors=(PlanArchived, LeaseLost, TaskClaimed, WrongTransition), tools=(tools.TASK_FAIL,)),
        ]  # fmt: skip

    async def get_tasks(self, caller: Caller, query: TasksQuery) -> ItemPage[TaskView]:
        """List tasks of all plans. `state=ready` lists tasks that can be claimed now, best first."""
        return ItemPage(*await self.tasks.list_page(caller, query.to_filter(), page=query.slice))

    async def get_task(self, caller: Caller, task: str) -> TaskView:
        """Return a task with its claim, if it has one."""
        return await self.tasks.get(caller, task)

    async def patch_task(self, caller: Caller, task: str, body: TaskPatch, expected: ExpectedETags) -> TaskView:
        """Change fields of a task or its status. To change the status of a claimed task, send its `claim_token` or `force`."""
        return await self.tasks.change(caller, task, body, expected=expected)

    async def delete_task(self, caller: Caller, task: str, query: ForceQuery, expected: ExpectedETags) -> None:
        """Delete a task. If it is claimed, `force` is needed."""
        await self.tasks.remove(caller, task, force=query.force, expected=expected)

    async def post_claim_next(self, caller: Caller, body: ClaimNextBody, request: Request | None) -> TaskView | NoTaskAvailable:
        """
        Claim the best ready task and return it with its `claim_token`.

        If no task is ready, the response is 204 with the reason in `X-Reason`. `wait_s` waits for one.
        """
        claiming = self.claims.claim_next(caller, body.plan_ref, body.to_lease_request(), any_plan=body.any_plan, wait_s=body.wait_s)
        return await (claiming if body.wait_s <= 0 or request is None else _cancel_on_disconnect(claiming, request.receive))

    async def post_claim(self, caller: Caller, task: str, body: ClaimBody, expected: ExpectedETags) -> TaskView:
        """Claim a task. The response contains the `claim_token` of the lease."""
        return await self.claims.claim(caller, task, body.to_lease_request(), expected=expected)

    async def post_heartbeat(self, caller: Caller, task: str, body: HeartbeatBody, expected: ExpectedETags) -> TaskView:
        """Extend the lease of a claimed task."""
        return await self.claims.heartbeat(caller, task, body.to_credential(), ttl_s=body.ttl_s, expected=expected)

    async def post_release(self, caller: Caller, task: str, body: ReleaseBody, expected: ExpectedETags) -> LeaseEndResult:
        """End the lease of a task without a result. Others can claim it again."""
        return await self.claims.release(caller, task, body.to_credential(), reason=body.reason, expected=expected)

    async def post_complete(self, caller: Caller, task: str, body: CompleteBody, expected: ExpectedETags) -> LeaseEndResult:
        """Complete a claimed task with its result. `claim_next` claims the next task in the same request."""
        return await self.claims.complete(
            caller,
            task,
            body.to_credential(),
            result=body.result,
            notes=body.notes,
            next_request=body.to_next_request(),
            expected=expected,
        )

    async def post_fail(self, caller: Caller, task: str, body: FailBody, expected: ExpectedETags) -> LeaseEndResult:
        """Mark a claimed task as failed, with the reason. This ends its lease."""
        return await self.claims.fail(caller, task, body.to_credential(), error=body.error, result=body.result, expected=expected)


def _present_claimed(_: Caller, view: TaskView) -> Output:
    return Output(body=to_claimed_task_response(view), version=view.task.version)


def _present_next(caller: Caller, outcome: TaskView | NoTaskAvailable) -> Output:
    if isinstance(outcome, TaskView):
        return _present_claimed(caller, outcome)
    plan = {} if outcome.plan is None else {"X-Plan": outcome.plan}
    return Output(body=None, status=204, headers={"X-Reason": outcome.reason, "Retry-After": str(outcome.retry_after_s), **plan})


def _present_next_in_tool(_: Caller, outcome: TaskView | NoTaskAvailable) -> Mapping[str, object]:
    """Return the claimed task, or null with the reason, which the route sends as 204 with headers."""
    if isinstance(outcome, TaskView):
        return {"task": to_claimed_task_response(outcome).model_dump(mode="json")}
    return {"task": None, "reason": outcome.reason, "plan": outcome.plan, "retry_after_s": outcome.retry_after_s}


def _present_ended(caller: Caller, result: LeaseEndResult) -> Output:
    return present_task(caller, result.task)


def _present_completed(_: Caller, result: LeaseEndResult) -> Output:
    return Output(body=to_completed_task_response(result), version=result.task.task.version)


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
