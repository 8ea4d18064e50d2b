"""Tasks by their ids, and leases of them (D-61, D-65)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Annotated, TypeVar

from fastapi import Query
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive

from rookery.access.guard import caller_of
from rookery.agents.api.rows import READ, WORK, require_unconditional, row
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
from rookery.agents.plans.claims import Claims, Ended, Nothing
from rookery.agents.plans.tasks import Tasks
from rookery.agents.schemas.claims import ClaimBody, ClaimNextBody, CompleteBody, FailBody, HeartbeatBody, ReleaseBody
from rookery.agents.schemas.plan_answers import (
    ClaimedAnswer,
    EndedAnswer,
    TaskAnswer,
    TasksAnswer,
    claimed_answer,
    ended_answer,
    task_answer,
)
from rookery.agents.schemas.plans import TaskPatch
from rookery.agents.schemas.queries import ForceQuery, TasksQuery
from rookery.agents.sessions.errors import SessionEnded
from rookery.kernel.errors import NotFound
from rookery.kernel.http import Described, Route, allowed_on_full_disk, describe, page, respond_with
from rookery.kernel.http.bodies import ClientLeft
from rookery.kernel.http.conditional_requests import by_etag, expected, tagged, with_etag

T = TypeVar("T")

_NOTHING = Described(
    says="There is nothing to claim, and `X-Reason` says why: `all_claimed`, `blocked`, `plan_paused`, `plan_draft` (the draft "
    "that `X-Plan` names has tasks; set its status to active, or name it) or `plan_done`. `Retry-After` is when to ask again."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRoutes:
    """Reads a request, calls one verb, shapes the answer. Decides nothing."""

    tasks: Tasks
    claims: Claims

    def routes(self) -> list[Route]:
        """Return one row per endpoint."""
        one = "/tasks/{task}"
        return [
            row("GET /tasks", self.get_tasks, READ, TasksAnswer, "list_tasks", summary="List tasks of all plans"),
            row(
                "POST /tasks/claim-next",
                self.post_claim_next,
                WORK,
                ClaimedAnswer,
                "claim_next_task",
                summary="Claim the best ready task, or wait for one",
                once=True,
                may_be_empty=True,
            ),
            row(f"GET {one}", self.get_task, READ, TaskAnswer, "get_task", summary="Show a task"),
            row(f"PATCH {one}", self.patch_task, WORK, TaskAnswer, "update_task", summary="Change a task"),
            row(f"DELETE {one}", self.delete_task, WORK, None, "delete_task", summary="Delete a task", status=204),
            row(
                f"POST {one}/claim",
                self.post_claim,
                WORK,
                ClaimedAnswer,
                "claim_task",
                summary="Claim a task",
                once=True,
                may_be_empty=True,
            ),
            row(
                f"POST {one}/heartbeat",
                self.post_heartbeat,
                WORK,
                TaskAnswer,
                "extend_task_lease",
                summary="Extend the lease of a task",
                spends=False,
            ),
            row(f"POST {one}/release", self.post_release, WORK, TaskAnswer, "release_task", summary="Release a claimed task", once=True),
            row(f"POST {one}/complete", self.post_complete, WORK, EndedAnswer, "complete_task", summary="Complete a task", once=True),
            row(f"POST {one}/fail", self.post_fail, WORK, TaskAnswer, "fail_task", summary="Mark a task as failed", once=True),
        ]

    @describe(errors=(NotFound,))
    async def get_tasks(self, request: Request, query: Annotated[TasksQuery, Query()]) -> Response:
        """List tasks of all plans. `status=ready` lists what can be claimed now, the best first."""
        found, total = await self.tasks.page(caller_of(request), query.query(), limit=query.per_page, offset=query.offset)
        return page(request, [task_answer(view) for view in found], query=query, total=total)

    @with_etag
    async def get_task(self, request: Request, task: str) -> Response:
        """Return a task with its claim, if it has one."""
        view = await self.tasks.get(caller_of(request), task)
        return tagged(task_answer(view), view.task.version)

    @with_etag
    @by_etag
    @describe(errors=(PlanArchived, PlanNotActive, PhaseBlocked, PhaseClosed, TaskBlocked, TaskClaimed, WrongTransition))
    async def patch_task(self, request: Request, task: str, body: TaskPatch) -> Response:
        """Change the name, description, priority, position or dependencies of a task, or its status while nobody holds a lease on it."""
        view = await self.tasks.change(caller_of(request), task, body.change(), expected=expected(request))
        return tagged(task_answer(view), view.task.version)

    @by_etag
    @describe(errors=(PlanArchived, TaskClaimed))
    async def delete_task(self, request: Request, task: str, query: Annotated[ForceQuery, Query()]) -> Response:
        """Delete a task. If it is claimed, `force` is needed."""
        await self.tasks.remove(caller_of(request), task, force=query.force, expected=expected(request))
        return Response(status_code=204)

    @with_etag
    @by_etag
    @describe(
        answers={204: _NOTHING}, errors=(NotFound, PlanArchived, SessionEnded, TaskClaimed), sends=("X-Reason", "X-Plan", "Retry-After")
    )
    async def post_claim_next(self, request: Request, body: ClaimNextBody) -> Response:
        """
        Claim the best ready task and return it with its `claim_token`.

        If there is none, the answer is 204 with the reason in `X-Reason`; `wait_s` waits for one.
        """
        require_unconditional(request)
        answer = respond_with(TaskView, _claimed)
        waiting = self.claims.claim_next(caller_of(request), body.plan_ref, body.wish(), any_plan=body.any_plan, wait_s=body.wait_s)
        found = await (waiting if body.wait_s <= 0 else _unless_left(waiting, request.receive))
        if isinstance(found, Nothing):
            plan = {} if found.plan is None else {"X-Plan": found.plan}
            return Response(status_code=204, headers={"X-Reason": found.reason, "Retry-After": str(found.retry_after_s), **plan})
        return answer(found)

    @with_etag
    @by_etag
    @describe(errors=(PlanArchived, SessionEnded, PlanNotActive, PhaseClosed, PhaseBlocked, TaskBlocked, TaskClaimed, WrongTransition))
    async def post_claim(self, request: Request, task: str, body: ClaimBody) -> Response:
        """Claim a task: it gets a lease, and the answer has the `claim_token` that the holder needs."""
        answer = respond_with(TaskView, _claimed)
        return answer(await self.claims.claim(caller_of(request), task, body.wish(), expected=expected(request)))

    @allowed_on_full_disk
    @with_etag
    @by_etag
    @describe(errors=(PlanArchived, LeaseLost, WrongTransition))
    async def post_heartbeat(self, request: Request, task: str, body: HeartbeatBody) -> Response:
        """Extend the lease of a claimed task."""
        view = await self.claims.heartbeat(caller_of(request), task, body.proof(), ttl_s=body.ttl_s, expected=expected(request))
        return tagged(task_answer(view), view.task.version)

    @allowed_on_full_disk
    @with_etag
    @by_etag
    @describe(errors=(PlanArchived, LeaseLost, TaskClaimed, WrongTransition))
    async def post_release(self, request: Request, task: str, body: ReleaseBody) -> Response:
        """End the lease of a task without a result. Others can claim it again."""
        answer = respond_with(Ended, _given_up)
        return answer(await self.claims.release(caller_of(request), task, body.proof(), reason=body.reason, expected=expected(request)))

    @with_etag
    @by_etag
    @describe(errors=(PlanArchived, LeaseLost, TaskClaimed, WrongTransition))
    async def post_complete(self, request: Request, task: str, body: CompleteBody) -> Response:
        """Complete a claimed task with its result. `claim_next` claims the next task in the same request."""
        answer = respond_with(Ended, lambda ended: tagged(ended_answer(ended), ended.task.task.version))
        ended = await self.claims.complete(
            caller_of(request),
            task,
            body.proof(),
            result=body.result,
            notes=body.notes,
            then=body.then(),
            expected=expected(request),
        )
        return answer(ended)

    @with_etag
    @by_etag
    @describe(errors=(PlanArchived, LeaseLost, TaskClaimed, WrongTransition))
    async def post_fail(self, request: Request, task: str, body: FailBody) -> Response:
        """End the lease of a task with the reason why it could not be done."""
        answer = respond_with(Ended, _given_up)
        return answer(
            await self.claims.fail(caller_of(request), task, body.proof(), error=body.error, result=body.result, expected=expected(request))
        )


def _claimed(view: TaskView) -> Response:
    return tagged(claimed_answer(view), view.task.version)


def _given_up(ended: Ended) -> Response:
    return tagged(task_answer(ended.task), ended.task.task.version)


async def _unless_left(waiting: Awaitable[T], receive: Receive) -> T:
    """
    Return what *waiting* returns; it is cancelled if the caller leaves first.

    Raises:
        ClientLeft: The caller left.
    """
    asked, leaving = asyncio.ensure_future(waiting), asyncio.ensure_future(_left(receive))
    try:
        await asyncio.wait({asked, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if asked.done():
            return asked.result()
        raise ClientLeft
    finally:
        leaving.cancel()
        asked.cancel()


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        continue
