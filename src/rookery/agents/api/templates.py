"""Routes of plan templates (D-63, D-65)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Annotated

from fastapi import Query
from starlette.requests import Request
from starlette.responses import Response

from rookery.access.guard import get_caller
from rookery.agents.api.route_table import make_route, require_unconditional
from rookery.agents.errors import SlugTaken, TemplateReadOnly, TooManyItems
from rookery.agents.models.templates import RenderedTemplate, StoredTemplate
from rookery.agents.models.views import PlanView
from rookery.agents.plans.plans import Plans
from rookery.agents.schemas.plan_responses import PlanResponse, to_plan_response
from rookery.agents.schemas.templates import (
    MAX_TEMPLATE_BYTES,
    CopyBody,
    PreviewBody,
    PreviewResponse,
    TemplateBody,
    TemplatePut,
    TemplateQuery,
    TemplateResponse,
    TemplatesQuery,
    TemplateSummary,
    UseBody,
    VersionsResponse,
    to_preview_response,
    to_template_response,
    to_template_summary,
    to_version_responses,
    validate_document,
)
from rookery.agents.templates.library import TemplateAuthor, Templates
from rookery.kernel.http import Route, allowed_on_full_disk, document_route, json_response, page_response, respond_with
from rookery.kernel.http.conditional_requests import by_etag, json_with_etag, read_if_match, with_etag
from rookery.kernel.preconditions import format_etag, require_match
from rookery.kernel.schema import Page, PageQuery

READ_SCOPE, WRITE_SCOPE, USE_SCOPE = "templates.read", "templates.write", "templates.instantiate"
_make_route = partial(make_route, tag="Templates", max_body_bytes=MAX_TEMPLATE_BYTES)


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateRoutes:
    """Handlers that parse a request, call one service method and build the response."""

    templates: Templates
    plans: Plans

    def routes(self) -> list[Route]:
        """Return the routes."""
        template_path = "/templates/{slug}"
        return [
            _make_route(
                "GET /templates", self.get_templates, READ_SCOPE, Page[TemplateSummary], "list_templates", summary="List plan templates"
            ),
            _make_route(
                "POST /templates",
                self.post_template,
                WRITE_SCOPE,
                TemplateResponse,
                "create_template",
                summary="Create a template",
                status=201,
                idempotent=True,
            ),
            _make_route(f"GET {template_path}", self.get_template, READ_SCOPE, TemplateResponse, "get_template", summary="Show a template"),
            _make_route(
                f"PUT {template_path}", self.put_template, WRITE_SCOPE, TemplateResponse, "replace_template", summary="Replace a template"
            ),
            _make_route(
                f"DELETE {template_path}",
                self.delete_template,
                WRITE_SCOPE,
                None,
                "delete_template",
                summary="Delete a template with its versions",
                status=204,
            ),
            _make_route(
                f"GET {template_path}/versions",
                self.get_versions,
                READ_SCOPE,
                VersionsResponse,
                "list_template_versions",
                summary="List the versions of a template",
            ),
            _make_route(
                f"POST {template_path}/copies",
                self.post_copy,
                WRITE_SCOPE,
                TemplateResponse,
                "copy_template",
                summary="Copy a template",
                status=201,
                idempotent=True,
            ),
            _make_route(
                f"POST {template_path}/plans",
                self.post_plan,
                USE_SCOPE,
                PlanResponse,
                "create_plan_from_template",
                summary="Create a plan from a template",
                status=201,
                idempotent=True,
            ),
            _make_route(
                f"POST {template_path}/preview",
                self.post_preview,
                READ_SCOPE,
                PreviewResponse,
                "preview_template",
                summary="Preview a template",
            ),
        ]

    async def get_templates(self, request: Request, query: Annotated[TemplatesQuery, Query()]) -> Response:
        """List the templates shipped with Rookery and those of the workspace, ordered by slug."""
        stored_templates, total = await self.templates.list_page(
            get_caller(request).workspace_id, category=query.category, query=query.q, limit=query.per_page, offset=query.offset
        )
        return page_response(
            request, [to_template_summary(stored_template) for stored_template in stored_templates], query=query, total=total
        )

    @with_etag
    @by_etag
    @document_route(errors=(SlugTaken, TooManyItems))
    async def post_template(self, request: Request, body: TemplateBody) -> Response:
        """Create a plan template in the workspace."""
        require_unconditional(request)
        body.validate_renders()
        respond = respond_with(StoredTemplate, _reply_created)
        return respond(await self.templates.add(TemplateAuthor.from_caller(get_caller(request)), body.slug, body.to_document()))

    @with_etag
    async def get_template(self, request: Request, slug: str, query: Annotated[TemplateQuery, Query()]) -> Response:
        """Return a template, in the current version or in the one that `version` names."""
        return _reply(await self.templates.get(get_caller(request).workspace_id, slug, version=query.version))

    @with_etag
    @by_etag
    @document_route(errors=(TemplateReadOnly,))
    async def put_template(self, request: Request, slug: str, body: TemplatePut) -> Response:
        """Replace a template by a new version. The same content again changes nothing."""
        body.require_slug(slug)
        body.validate_renders()
        return _reply(
            await self.templates.replace(
                TemplateAuthor.from_caller(get_caller(request)), slug, body.to_document(), expected=read_if_match(request)
            )
        )

    @by_etag
    @document_route(errors=(TemplateReadOnly,))
    async def delete_template(self, request: Request, slug: str) -> Response:
        """Delete a template with all its versions. Plans that were created from it stay."""
        await self.templates.remove(TemplateAuthor.from_caller(get_caller(request)), slug, expected=read_if_match(request))
        return Response(status_code=204)

    async def get_versions(self, request: Request, slug: str, query: Annotated[PageQuery, Query()]) -> Response:
        """List the versions of a template, the current one first."""
        caller = get_caller(request)
        stored_template = await self.templates.get(caller.workspace_id, slug)
        versions = to_version_responses(stored_template, await self.templates.list_versions(caller.workspace_id, slug))
        page = versions[query.offset : query.offset + query.per_page]
        return page_response(request, page, query=query, total=len(versions), aliases={"versions": versions, "count": len(versions)})

    @with_etag
    @by_etag
    @document_route(errors=(SlugTaken, TooManyItems))
    async def post_copy(self, request: Request, slug: str, body: CopyBody) -> Response:
        """Copy a template, for example one shipped with Rookery, to a new template of the workspace."""
        caller = get_caller(request)
        stored_template = await self.templates.get(caller.workspace_id, slug)
        require_match("template", stored_template.version, read_if_match(request))
        new_name = {} if body.name is None else {"name": body.name}
        copy = {**stored_template.template.document, **new_name}
        validate_document(copy)
        respond = respond_with(StoredTemplate, _reply_created)
        return respond(await self.templates.add(TemplateAuthor.from_caller(caller), body.slug, copy))

    @allowed_on_full_disk
    @by_etag
    async def post_preview(self, request: Request, slug: str, body: PreviewBody) -> Response:
        """Return the plan that a template would create, without storing it."""
        return json_response(to_preview_response(await self._render(request, slug, body)))

    @with_etag
    @by_etag
    @document_route(errors=(SlugTaken,))
    async def post_plan(self, request: Request, slug: str, body: UseBody) -> Response:
        """
        Create a plan with its phases and tasks from a template, in one transaction.

        The plan records the template, its version and the variables.
        """
        caller = get_caller(request)
        rendered = await self._render(request, slug, body)
        respond = respond_with(PlanView, lambda view: json_with_etag(to_plan_response(caller, view), view.plan.version, status=201))
        return respond(await self.plans.create(caller, body.to_draft(rendered)))

    async def _render(self, request: Request, slug: str, body: PreviewBody) -> RenderedTemplate:
        rendered = await self.templates.render(get_caller(request).workspace_id, slug, body.variables, version=body.version)
        require_match("template", rendered.stored_template.version, read_if_match(request))
        return rendered


def _reply_created(stored_template: StoredTemplate) -> Response:
    return _reply(stored_template, status=201)


def _reply(stored_template: StoredTemplate, *, status: int = 200) -> Response:
    return json_response(to_template_response(stored_template), status=status, headers={"ETag": format_etag(stored_template.version)})
