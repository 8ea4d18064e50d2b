"""Plans (D-65)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import Query
from starlette.requests import Request
from starlette.responses import Response

from rookery.access.guard import caller_of
from rookery.agents.api.rows import READ, WRITE, require_unconditional, row, shaped
from rookery.agents.errors import PlanArchived, PlanHasOpenPhases, SlugTaken, WrongTransition
from rookery.agents.models.views import PlanView
from rookery.agents.plans.drawing import markdown, mermaid
from rookery.agents.plans.plans import Plans
from rookery.agents.schemas.plan_answers import EventsAnswer, GraphAnswer, PlanAnswer, PlansAnswer, event_answer, graph_answer, plan_answer
from rookery.agents.schemas.plans import ArchiveBody, PlanBody, PlanPatch, PlanStatusBody
from rookery.agents.schemas.queries import EventsAfterQuery, GraphQuery, IncludeQuery, PlansQuery
from rookery.kernel.http import Route, describe, page, reply, respond_with
from rookery.kernel.http.conditional_requests import by_etag, expected, tagged, with_etag


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRoutes:
    """Reads a request, calls one verb, shapes the answer. Decides nothing."""

    plans: Plans

    def routes(self) -> list[Route]:
        """Return one row per endpoint."""
        one = "/plans/{plan}"
        return [
            row("GET /plans", self.get_plans, READ, PlansAnswer, "list_plans", summary="List plans, newest first"),
            row("POST /plans", self.post_plan, WRITE, PlanAnswer, "create_plan", summary="Create a plan", status=201, once=True),
            row(f"GET {one}.md", self.get_markdown, READ, None, "get_plan_markdown", summary="Show a plan as Markdown"),
            row(f"GET {one}", self.get_plan, READ, PlanAnswer, "get_plan", summary="Show a plan with its phases and tasks"),
            row(f"PATCH {one}", self.patch_plan, WRITE, PlanAnswer, "update_plan", summary="Change a plan"),
            row(f"DELETE {one}", self.delete_plan, WRITE, None, "delete_plan", summary="Archive a plan", status=204),
            row(
                f"PATCH {one}/status",
                self.patch_status,
                WRITE,
                PlanAnswer,
                "set_plan_status",
                summary="Start, pause, resume, complete or reopen a plan",
            ),
            row(
                f"POST {one}/archive",
                self.post_archive,
                WRITE,
                PlanAnswer,
                "archive_plan",
                summary="Archive a plan with a reason",
                once=True,
                may_be_empty=True,
            ),
            row(f"POST {one}/restore", self.post_restore, WRITE, PlanAnswer, "restore_plan", summary="Restore an archived plan", once=True),
            row(f"GET {one}/graph", self.get_graph, READ, GraphAnswer, "get_plan_graph", summary="Show the dependencies in a plan"),
            row(f"GET {one}/events", self.get_events, READ, EventsAnswer, "list_plan_events", summary="List the changes of a plan"),
        ]

    async def get_plans(self, request: Request, query: Annotated[PlansQuery, Query()]) -> Response:
        """List plans without their phases, newest first."""
        caller = caller_of(request)
        found, total = await self.plans.page(caller, query.filters(), limit=query.per_page, offset=query.offset)
        return page(request, [plan_answer(caller, view) for view in found], query=query, total=total)

    @with_etag
    @by_etag
    @describe(errors=(SlugTaken,))
    async def post_plan(self, request: Request, body: PlanBody) -> Response:
        """Create a plan with its phases and tasks, in one transaction."""
        require_unconditional(request)
        caller = caller_of(request)
        answer = respond_with(PlanView, lambda view: tagged(plan_answer(caller, view), view.plan.version, status=201))
        view = await self.plans.create(caller, body.draft())
        return await shaped(view, lambda: answer(view))

    @with_etag
    async def get_plan(self, request: Request, plan: str, query: Annotated[IncludeQuery, Query()]) -> Response:
        """Return a plan with its phases and tasks, also if it is archived."""
        with_tasks = "tasks" in query.include
        view = await self.plans.get(caller_of(request), plan, with_phases=with_tasks or "phases" in query.include, with_tasks=with_tasks)
        return await self._answer(request, view)

    @describe(media=("text/markdown",))
    async def get_markdown(self, request: Request, plan: str) -> Response:
        """Return a plan with its phases and tasks as a Markdown document."""
        view = await self.plans.get(caller_of(request), plan)
        return Response(await shaped(view, lambda: markdown(view)), media_type="text/markdown")

    @with_etag
    @by_etag
    @describe(errors=(PlanArchived, SlugTaken))
    async def patch_plan(self, request: Request, plan: str, body: PlanPatch) -> Response:
        """Change the title, description and other fields of a plan. Fields that are left out keep their value."""
        return await self._answer(request, await self.plans.change(caller_of(request), plan, body.change(), expected=expected(request)))

    @by_etag
    async def delete_plan(self, request: Request, plan: str) -> Response:
        """Archive a plan. It is not deleted and can be restored."""
        await self.plans.archive(caller_of(request), plan, expected=expected(request))
        return Response(status_code=204)

    @with_etag
    @by_etag
    @describe(errors=(PlanArchived, PlanHasOpenPhases, WrongTransition))
    async def patch_status(self, request: Request, plan: str, body: PlanStatusBody) -> Response:
        """Change the status of a plan. A change that the current status does not allow is 409, with the allowed ones."""
        caller, wanted = caller_of(request), body.wanted()
        return await self._answer(
            request,
            await self.plans.set_status(caller, plan, wanted, force=body.force, reason=body.reason, expected=expected(request)),
        )

    @with_etag
    @by_etag
    async def post_archive(self, request: Request, plan: str, body: ArchiveBody) -> Response:
        """Archive a plan and record the reason. It becomes read-only and can be restored."""
        caller = caller_of(request)
        answer = respond_with(PlanView, lambda view: tagged(plan_answer(caller, view), view.plan.version))
        return answer(await self.plans.archive(caller, plan, reason=body.reason, expected=expected(request)))

    @with_etag
    @by_etag
    @describe(errors=(WrongTransition,))
    async def post_restore(self, request: Request, plan: str) -> Response:
        """Restore an archived plan to the status that it had before."""
        caller = caller_of(request)
        answer = respond_with(PlanView, lambda view: tagged(plan_answer(caller, view), view.plan.version))
        return answer(await self.plans.restore(caller, plan, expected=expected(request)))

    @describe(media=("text/plain",))
    async def get_graph(self, request: Request, plan: str, query: Annotated[GraphQuery, Query()]) -> Response:
        """Return the dependencies between phases and tasks as nodes and edges, or as a Mermaid flowchart."""
        view = await self.plans.get(caller_of(request), plan)
        if query.format == "mermaid":
            return Response(await shaped(view, lambda: mermaid(view)), media_type="text/plain")
        return await shaped(view, lambda: reply(graph_answer(view)))

    async def get_events(self, request: Request, plan: str, query: Annotated[EventsAfterQuery, Query()]) -> Response:
        """List the changes of a plan, its phases and its tasks, oldest first."""
        found, total = await self.plans.events(caller_of(request), plan, after=query.after, limit=query.per_page, offset=query.offset)
        return page(request, [event_answer(each) for each in found], query=query, total=total)

    async def _answer(self, request: Request, view: PlanView, *, status: int = 200) -> Response:
        caller = caller_of(request)
        return await shaped(view, lambda: tagged(plan_answer(caller, view), view.plan.version, status=status))
