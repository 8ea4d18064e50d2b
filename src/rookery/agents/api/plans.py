"""Operations on plans, and the responses and scopes that other operations on their parts share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from starlette.responses import Response

from rookery.access.models import Caller
from rookery.agents import tool_declarations as tools
from rookery.agents.errors import PlanArchived, PlanHasOpenPhases, SlugTaken, WrongTransition
from rookery.agents.models.drafts import PlanPatch
from rookery.agents.models.plans import PlanEvent
from rookery.agents.models.views import PhaseView, PlanView, TaskView
from rookery.agents.plans.plans import Plans
from rookery.agents.plans.views import render_markdown, render_mermaid
from rookery.agents.schemas.plan_responses import (
    EventsResponse,
    GraphResponse,
    PlanResponse,
    PlansResponse,
    to_graph_response,
    to_phase_response,
    to_plan_response,
    to_task_response,
)
from rookery.agents.schemas.plans import ArchiveBody, PlanBody, PlanStatusBody
from rookery.agents.schemas.queries import GraphQuery, IncludeQuery, PlanEventsQuery, PlansQuery
from rookery.kernel.http import ItemPage, Operation, Output
from rookery.kernel.preconditions import ExpectedETags
from rookery.kernel.unset import value_or

T = TypeVar("T")

READ_SCOPE, WRITE_SCOPE, WORK_SCOPE = "plans.read", "plans.write", "phases.write"

_THREAD_TASK_COUNT = 500
"""
Plans with this many tasks are serialised in a thread.

500 tasks take about 30 ms and 10,000 tasks half a second, during which the event loop would serve no other request.
"""


def is_large(view: PlanView) -> bool:
    """Return True if the conversion of the plan takes so long that it runs in a thread."""
    return sum(len(phase.tasks or ()) for phase in view.phases or ()) >= _THREAD_TASK_COUNT


async def convert_view(view: PlanView, convert: Callable[[PlanView], T]) -> T:
    """Return the result of *convert*, which runs in a thread if *view* is large."""
    return await asyncio.to_thread(convert, view) if is_large(view) else convert(view)


def present_plan(caller: Caller, view: PlanView) -> Output:
    """Return a plan with its ETag."""
    return Output(body=to_plan_response(caller, view), version=view.plan.version)


def present_phase(_: Caller, view: PhaseView) -> Output:
    """Return a phase with its ETag."""
    return Output(body=to_phase_response(view), version=view.phase.version)


def present_task(_: Caller, view: TaskView) -> Output:
    """Return a task with its ETag."""
    return Output(body=to_task_response(view), version=view.task.version)


_operation = partial(Operation, tags=("Plans",))
_plan = partial(_operation, present=present_plan, is_large=is_large, response_model=PlanResponse, etag=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanApi:
    """The operations on plans. Each handler calls one service method."""

    plans: Plans

    def operations(self) -> list[Operation]:
        """Return the operations."""
        one = "/plans/{plan}"
        return [
            _operation(method="GET", path="/plans", handler=self.get_plans, present=present_plan, required_scope=READ_SCOPE,
                       response_model=PlansResponse, operation_id="list_plans", summary="List plans, newest first",
                       tools=(tools.PLAN_LIST,)),
            _plan(method="POST", path="/plans", handler=self.post_plan, committed=PlanView, required_scope=WRITE_SCOPE, status=201,
                  idempotent=True, operation_id="create_plan", summary="Create a plan", errors=(SlugTaken,),
                  request_headers=("If-Match",), tools=(tools.PLAN_CREATE,)),
            _operation(method="GET", path=f"{one}.md", handler=self.get_markdown, required_scope=READ_SCOPE,
                       operation_id="get_plan_markdown", summary="Show a plan as Markdown", media_types=("text/markdown",)),
            _plan(method="GET", path=one, handler=self.get_plan, required_scope=READ_SCOPE, operation_id="get_plan",
                  summary="Show a plan with its phases and tasks", tools=(tools.PLAN_SHOW,)),
            _plan(method="PATCH", path=one, handler=self.patch_plan, required_scope=WRITE_SCOPE, operation_id="update_plan",
                  summary="Change a plan", errors=(PlanArchived, SlugTaken)),
            _operation(method="DELETE", path=one, handler=self.delete_plan, required_scope=WRITE_SCOPE, status=204,
                       operation_id="delete_plan", summary="Archive a plan"),
            _plan(method="PATCH", path=f"{one}/status", handler=self.patch_status, required_scope=WRITE_SCOPE,
                  operation_id="set_plan_status", summary="Start, pause, resume, complete or reopen a plan",
                  errors=(PlanArchived, PlanHasOpenPhases, WrongTransition), tools=(tools.PLAN_STATUS,)),
            _plan(method="POST", path=f"{one}/archive", handler=self.post_archive, committed=PlanView, required_scope=WRITE_SCOPE,
                  idempotent=True, body_optional=True, operation_id="archive_plan", summary="Archive a plan with a reason"),
            _plan(method="POST", path=f"{one}/restore", handler=self.post_restore, committed=PlanView, required_scope=WRITE_SCOPE,
                  idempotent=True, operation_id="restore_plan", summary="Restore an archived plan", errors=(WrongTransition,),
                  tools=(tools.PLAN_RESTORE,)),
            _operation(method="GET", path=f"{one}/graph", handler=self.get_graph, present=_present_graph, is_large=is_large,
                       required_scope=READ_SCOPE, response_model=GraphResponse, operation_id="get_plan_graph",
                       summary="Show the dependencies in a plan", media_types=("text/plain",)),
            _operation(method="GET", path=f"{one}/events", handler=self.get_events, required_scope=READ_SCOPE,
                       response_model=EventsResponse, operation_id="list_plan_events", summary="List the changes of a plan"),
        ]  # fmt: skip

    async def get_plans(self, caller: Caller, query: PlansQuery) -> ItemPage[PlanView]:
        """List plans without their phases, newest first."""
        return ItemPage(*await self.plans.list_page(caller, query.to_filter(), page=query.slice))

    async def post_plan(self, caller: Caller, body: PlanBody) -> PlanView:
        """Create a plan with its phases and tasks, in one transaction."""
        return await self.plans.create(caller, body.to_draft())

    async def get_plan(self, caller: Caller, plan: str, query: IncludeQuery) -> PlanView:
        """Return a plan with its phases and tasks, even if it is archived."""
        with_tasks = "tasks" in query.include
        return await self.plans.get(caller, plan, with_phases=with_tasks or "phases" in query.include, with_tasks=with_tasks)

    async def get_markdown(self, caller: Caller, plan: str) -> Response:
        """Return a plan with its phases and tasks as a Markdown document."""
        return Response(await convert_view(await self.plans.get(caller, plan), render_markdown), media_type="text/markdown")

    async def patch_plan(self, caller: Caller, plan: str, body: PlanPatch, expected: ExpectedETags) -> PlanView:
        """Change the title, description and other fields of a plan. Fields that are left out keep their value."""
        return await self.plans.change(caller, plan, body, expected=expected)

    async def delete_plan(self, caller: Caller, plan: str, expected: ExpectedETags) -> None:
        """Archive a plan. It is not deleted and can be restored."""
        await self.plans.archive(caller, plan, expected=expected)

    async def patch_status(self, caller: Caller, plan: str, body: PlanStatusBody, expected: ExpectedETags) -> PlanView:
        """Change the status of a plan. If the current status does not allow the change, the response is 409 with the allowed values."""
        force, reason = value_or(body.force, False), value_or(body.reason, None)
        return await self.plans.set_status(caller, plan, body.status, force=force, reason=reason, expected=expected)

    async def post_archive(self, caller: Caller, plan: str, body: ArchiveBody, expected: ExpectedETags) -> PlanView:
        """Archive a plan and record the reason. It becomes read-only and can be restored."""
        return await self.plans.archive(caller, plan, reason=body.reason, expected=expected)

    async def post_restore(self, caller: Caller, plan: str, expected: ExpectedETags) -> PlanView:
        """Restore an archived plan to the status that it had before."""
        return await self.plans.restore(caller, plan, expected=expected)

    async def get_graph(self, caller: Caller, plan: str, query: GraphQuery) -> PlanView | Response:
        """Return the dependencies between phases and tasks as nodes and edges, or as a Mermaid flowchart."""
        view = await self.plans.get(caller, plan)
        if query.format == "mermaid":
            return Response(await convert_view(view, render_mermaid), media_type="text/plain")
        return view

    async def get_events(self, caller: Caller, plan: str, query: PlanEventsQuery) -> ItemPage[PlanEvent]:
        """List the changes of a plan, its phases and its tasks, oldest first."""
        return ItemPage(*await self.plans.list_events(caller, plan, after=query.after, page=query.slice))


def _present_graph(_: Caller, view: PlanView) -> GraphResponse:
    return to_graph_response(view)
