"""Routes of plans (D-65)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import Query
from starlette.requests import Request
from starlette.responses import Response

from rookery.access.guard import get_caller
from rookery.agents.api.route_table import READ_SCOPE, WRITE_SCOPE, make_route, require_unconditional, serialize_view
from rookery.agents.errors import PlanArchived, PlanHasOpenPhases, SlugTaken, WrongTransition
from rookery.agents.models.views import PlanView
from rookery.agents.plans.plans import Plans
from rookery.agents.plans.render import render_markdown, render_mermaid
from rookery.agents.schemas.plan_responses import (
    EventsResponse,
    GraphResponse,
    PlanResponse,
    PlansResponse,
    to_graph_response,
    to_plan_event_response,
    to_plan_response,
)
from rookery.agents.schemas.plans import ArchiveBody, PlanBody, PlanPatch, PlanStatusBody
from rookery.agents.schemas.queries import GraphQuery, IncludeQuery, PlanEventsQuery, PlansQuery
from rookery.kernel.http import Route, document_route, json_response, page_response, respond_with
from rookery.kernel.http.conditional_requests import by_etag, json_with_etag, read_if_match, with_etag


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRoutes:
    """Handlers that parse a request, call one service method and build the response."""

    plans: Plans

    def routes(self) -> list[Route]:
        """Return the routes."""
        plan_path = "/plans/{plan}"
        return [
            make_route("GET /plans", self.get_plans, READ_SCOPE, PlansResponse, "list_plans", summary="List plans, newest first"),
            make_route(
                "POST /plans",
                self.post_plan,
                WRITE_SCOPE,
                PlanResponse,
                "create_plan",
                summary="Create a plan",
                status=201,
                idempotent=True,
            ),
            make_route(f"GET {plan_path}.md", self.get_markdown, READ_SCOPE, None, "get_plan_markdown", summary="Show a plan as Markdown"),
            make_route(
                f"GET {plan_path}", self.get_plan, READ_SCOPE, PlanResponse, "get_plan", summary="Show a plan with its phases and tasks"
            ),
            make_route(f"PATCH {plan_path}", self.patch_plan, WRITE_SCOPE, PlanResponse, "update_plan", summary="Change a plan"),
            make_route(f"DELETE {plan_path}", self.delete_plan, WRITE_SCOPE, None, "delete_plan", summary="Archive a plan", status=204),
            make_route(
                f"PATCH {plan_path}/status",
                self.patch_status,
                WRITE_SCOPE,
                PlanResponse,
                "set_plan_status",
                summary="Start, pause, resume, complete or reopen a plan",
            ),
            make_route(
                f"POST {plan_path}/archive",
                self.post_archive,
                WRITE_SCOPE,
                PlanResponse,
                "archive_plan",
                summary="Archive a plan with a reason",
                idempotent=True,
                body_optional=True,
            ),
            make_route(
                f"POST {plan_path}/restore",
                self.post_restore,
                WRITE_SCOPE,
                PlanResponse,
                "restore_plan",
                summary="Restore an archived plan",
                idempotent=True,
            ),
            make_route(
                f"GET {plan_path}/graph",
                self.get_graph,
                READ_SCOPE,
                GraphResponse,
                "get_plan_graph",
                summary="Show the dependencies in a plan",
            ),
            make_route(
                f"GET {plan_path}/events",
                self.get_events,
                READ_SCOPE,
                EventsResponse,
                "list_plan_events",
                summary="List the changes of a plan",
            ),
        ]

    async def get_plans(self, request: Request, query: Annotated[PlansQuery, Query()]) -> Response:
        """List plans without their phases, newest first."""
        caller = get_caller(request)
        views, total = await self.plans.list_page(caller, query.to_filter(), limit=query.per_page, offset=query.offset)
        return page_response(request, [to_plan_response(caller, view) for view in views], query=query, total=total)

    @with_etag
    @by_etag
    @document_route(errors=(SlugTaken,))
    async def post_plan(self, request: Request, body: PlanBody) -> Response:
        """Create a plan with its phases and tasks, in one transaction."""
        require_unconditional(request)
        caller = get_caller(request)
        respond = respond_with(PlanView, lambda view: json_with_etag(to_plan_response(caller, view), view.plan.version, status=201))
        view = await self.plans.create(caller, body.to_draft())
        return await serialize_view(view, lambda: respond(view))

    @with_etag
    async def get_plan(self, request: Request, plan: str, query: Annotated[IncludeQuery, Query()]) -> Response:
        """Return a plan with its phases and tasks, even if it is archived."""
        with_tasks = "tasks" in query.include
        view = await self.plans.get(get_caller(request), plan, with_phases=with_tasks or "phases" in query.include, with_tasks=with_tasks)
        return await self._reply(request, view)

    @document_route(media_types=("text/markdown",))
    async def get_markdown(self, request: Request, plan: str) -> Response:
        """Return a plan with its phases and tasks as a Markdown document."""
        view = await self.plans.get(get_caller(request), plan)
        return Response(await serialize_view(view, lambda: render_markdown(view)), media_type="text/markdown")

    @with_etag
    @by_etag
    @document_route(errors=(PlanArchived, SlugTaken))
    async def patch_plan(self, request: Request, plan: str, body: PlanPatch) -> Response:
        """Change the title, description and other fields of a plan. Fields that are left out keep their value."""
        return await self._reply(
            request, await self.plans.change(get_caller(request), plan, body.to_change(), expected=read_if_match(request))
        )

    @by_etag
    async def delete_plan(self, request: Request, plan: str) -> Response:
        """Archive a plan. It is not deleted and can be restored."""
        await self.plans.archive(get_caller(request), plan, expected=read_if_match(request))
        return Response(status_code=204)

    @with_etag
    @by_etag
    @document_route(errors=(PlanArchived, PlanHasOpenPhases, WrongTransition))
    async def patch_status(self, request: Request, plan: str, body: PlanStatusBody) -> Response:
        """Change the status of a plan. If the current status does not allow the change, the response is 409 with the allowed values."""
        caller, status = get_caller(request), body.to_status()
        return await self._reply(
            request,
            await self.plans.set_status(caller, plan, status, force=body.force, reason=body.reason, expected=read_if_match(request)),
        )

    @with_etag
    @by_etag
    async def post_archive(self, request: Request, plan: str, body: ArchiveBody) -> Response:
        """Archive a plan and record the reason. It becomes read-only and can be restored."""
        caller = get_caller(request)
        respond = respond_with(PlanView, lambda view: json_with_etag(to_plan_response(caller, view), view.plan.version))
        return respond(await self.plans.archive(caller, plan, reason=body.reason, expected=read_if_match(request)))

    @with_etag
    @by_etag
    @document_route(errors=(WrongTransition,))
    async def post_restore(self, request: Request, plan: str) -> Response:
        """Restore an archived plan to the status that it had before."""
        caller = get_caller(request)
        respond = respond_with(PlanView, lambda view: json_with_etag(to_plan_response(caller, view), view.plan.version))
        return respond(await self.plans.restore(caller, plan, expected=read_if_match(request)))

    @document_route(media_types=("text/plain",))
    async def get_graph(self, request: Request, plan: str, query: Annotated[GraphQuery, Query()]) -> Response:
        """Return the dependencies between phases and tasks as nodes and edges, or as a Mermaid flowchart."""
        view = await self.plans.get(get_caller(request), plan)
        if query.format == "mermaid":
            return Response(await serialize_view(view, lambda: render_mermaid(view)), media_type="text/plain")
        return await serialize_view(view, lambda: json_response(to_graph_response(view)))

    async def get_events(self, request: Request, plan: str, query: Annotated[PlanEventsQuery, Query()]) -> Response:
        """List the changes of a plan, its phases and its tasks, oldest first."""
        events, total = await self.plans.list_events(
            get_caller(request), plan, after=query.after, limit=query.per_page, offset=query.offset
        )
        return page_response(request, [to_plan_event_response(event) for event in events], query=query, total=total)

    async def _reply(self, request: Request, view: PlanView, *, status: int = 200) -> Response:
        caller = get_caller(request)
        return await serialize_view(view, lambda: json_with_etag(to_plan_response(caller, view), view.plan.version, status=status))
