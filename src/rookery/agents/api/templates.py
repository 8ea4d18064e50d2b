"""Templates of plans (D-63, D-65)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Annotated

from fastapi import Query
from starlette.requests import Request
from starlette.responses import Response

from rookery.access.guard import caller_of
from rookery.agents.api.rows import require_unconditional, row
from rookery.agents.errors import SlugTaken, TemplateReadOnly, TooMany
from rookery.agents.models.templates import Filled, KeptTemplate
from rookery.agents.models.views import PlanView
from rookery.agents.plans.plans import Plans
from rookery.agents.schemas.plan_answers import PlanAnswer, plan_answer
from rookery.agents.schemas.templates import (
    MAX_TEMPLATE_BYTES,
    CopyBody,
    PreviewAnswer,
    PreviewBody,
    TemplateAnswer,
    TemplateBody,
    TemplatePut,
    TemplateQuery,
    TemplatesQuery,
    TemplateSummary,
    UseBody,
    VersionsAnswer,
    must_work,
    previewed,
    shown,
    summary,
    version_answers,
)
from rookery.agents.templates.library import Author, Templates
from rookery.kernel.http import Route, allowed_on_full_disk, describe, page, reply, respond_with
from rookery.kernel.http.conditional_requests import by_etag, expected, tagged, with_etag
from rookery.kernel.http.pages import Page, PageQuery
from rookery.kernel.preconditions import etag, require_match

READ, WRITE, USE = "templates.read", "templates.write", "templates.instantiate"
_route = partial(row, tag="Templates", max_body=MAX_TEMPLATE_BYTES)


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateRoutes:
    """Reads a request, calls one verb, shapes the answer. Decides nothing."""

    templates: Templates
    plans: Plans

    def routes(self) -> list[Route]:
        """Return one row per endpoint."""
        one = "/templates/{slug}"
        return [
            _route("GET /templates", self.get_templates, READ, Page[TemplateSummary], "list_templates", summary="List plan templates"),
            _route(
                "POST /templates",
                self.post_template,
                WRITE,
                TemplateAnswer,
                "create_template",
                summary="Create a template",
                status=201,
                once=True,
            ),
            _route(f"GET {one}", self.get_template, READ, TemplateAnswer, "get_template", summary="Show a template"),
            _route(f"PUT {one}", self.put_template, WRITE, TemplateAnswer, "replace_template", summary="Replace a template"),
            _route(
                f"DELETE {one}",
                self.delete_template,
                WRITE,
                None,
                "delete_template",
                summary="Delete a template with its versions",
                status=204,
            ),
            _route(
                f"GET {one}/versions",
                self.get_versions,
                READ,
                VersionsAnswer,
                "list_template_versions",
                summary="List the versions of a template",
            ),
            _route(
                f"POST {one}/copies",
                self.post_copy,
                WRITE,
                TemplateAnswer,
                "copy_template",
                summary="Copy a template",
                status=201,
                once=True,
            ),
            _route(
                f"POST {one}/plans",
                self.post_plan,
                USE,
                PlanAnswer,
                "create_plan_from_template",
                summary="Create a plan from a template",
                status=201,
                once=True,
            ),
            _route(f"POST {one}/preview", self.post_preview, READ, PreviewAnswer, "preview_template", summary="Preview a template"),
        ]

    async def get_templates(self, request: Request, query: Annotated[TemplatesQuery, Query()]) -> Response:
        """List the templates that come with Rookery and those of the workspace, by slug."""
        found, total = await self.templates.page(
            caller_of(request).workspace_id, category=query.category, words=query.q, limit=query.per_page, offset=query.offset
        )
        return page(request, [summary(each) for each in found], query=query, total=total)

    @with_etag
    @by_etag
    @describe(errors=(SlugTaken, TooMany))
    async def post_template(self, request: Request, body: TemplateBody) -> Response:
        """Create a plan template in the workspace."""
        require_unconditional(request)
        body.must_work()
        answer = respond_with(KeptTemplate, _added)
        return answer(await self.templates.add(Author.of(caller_of(request)), body.slug, body.document()))

    @with_etag
    async def get_template(self, request: Request, slug: str, query: Annotated[TemplateQuery, Query()]) -> Response:
        """Return a template, in the current version or in the one that `version` names."""
        return _answer(await self.templates.get(caller_of(request).workspace_id, slug, version=query.version))

    @with_etag
    @by_etag
    @describe(errors=(TemplateReadOnly,))
    async def put_template(self, request: Request, slug: str, body: TemplatePut) -> Response:
        """Make a new version of a template the current one. The same content again changes nothing."""
        body.must_be_of(slug)
        body.must_work()
        return _answer(await self.templates.replace(Author.of(caller_of(request)), slug, body.document(), expected=expected(request)))

    @by_etag
    @describe(errors=(TemplateReadOnly,))
    async def delete_template(self, request: Request, slug: str) -> Response:
        """Delete a template with all its versions. Plans that were created from it stay."""
        await self.templates.remove(Author.of(caller_of(request)), slug, expected=expected(request))
        return Response(status_code=204)

    async def get_versions(self, request: Request, slug: str, query: Annotated[PageQuery, Query()]) -> Response:
        """List the versions of a template, the current one first."""
        caller = caller_of(request)
        kept = await self.templates.get(caller.workspace_id, slug)
        found = version_answers(kept, await self.templates.versions(caller.workspace_id, slug))
        shown = found[query.offset : query.offset + query.per_page]
        return page(request, shown, query=query, total=len(found), aliases={"versions": found, "count": len(found)})

    @with_etag
    @by_etag
    @describe(errors=(SlugTaken, TooMany))
    async def post_copy(self, request: Request, slug: str, body: CopyBody) -> Response:
        """Copy a template to a new one of the workspace, for example one that comes with Rookery."""
        caller = caller_of(request)
        kept = await self.templates.get(caller.workspace_id, slug)
        require_match("template", kept.version, expected(request))
        named = {} if body.name is None else {"name": body.name}
        copy = {**kept.template.document, **named}
        must_work(copy)
        answer = respond_with(KeptTemplate, _added)
        return answer(await self.templates.add(Author.of(caller), body.slug, copy))

    @allowed_on_full_disk
    @by_etag
    async def post_preview(self, request: Request, slug: str, body: PreviewBody) -> Response:
        """Return the plan that a template would create, and store nothing."""
        filled = await self._filled(request, slug, body)
        return reply(previewed(filled))

    @with_etag
    @by_etag
    @describe(errors=(SlugTaken,))
    async def post_plan(self, request: Request, slug: str, body: UseBody) -> Response:
        """
        Create a plan with its phases and tasks from a template, in one transaction.

        The plan records the template, its version and the variables.
        """
        caller = caller_of(request)
        filled = await self._filled(request, slug, body)
        answer = respond_with(PlanView, lambda view: tagged(plan_answer(caller, view), view.plan.version, status=201))
        return answer(await self.plans.create(caller, body.draft(filled)))

    async def _filled(self, request: Request, slug: str, body: PreviewBody) -> Filled:
        filled = await self.templates.fill(caller_of(request).workspace_id, slug, body.variables, version=body.version)
        require_match("template", filled.kept.version, expected(request))
        return filled


def _added(kept: KeptTemplate) -> Response:
    return _answer(kept, status=201)


def _answer(kept: KeptTemplate, *, status: int = 200) -> Response:
    return reply(shown(kept), status=status, headers={"ETag": etag(kept.version)})
