"""Operations on plan templates."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from rookery.access.models import Caller
from rookery.agents import tool_declarations as tools
from rookery.agents.api.plans import present_plan
from rookery.agents.errors import SlugTaken, TemplateReadOnly, TooManyItems
from rookery.agents.models.templates import RenderedTemplate, StoredTemplate
from rookery.agents.models.views import PlanView
from rookery.agents.plans.plans import Plans
from rookery.agents.schemas.plan_responses import PlanResponse
from rookery.agents.schemas.templates import (
    MAX_TEMPLATE_BYTES,
    AgentsVersionResponse,
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
    to_version_responses,
    validate_document,
)
from rookery.agents.templates.library import TemplateAuthor, Templates
from rookery.kernel.http import ItemPage, Operation, Output
from rookery.kernel.pages import slice_anchored
from rookery.kernel.preconditions import ExpectedETags, require_match
from rookery.kernel.schema import Page, PageQuery

READ_SCOPE, WRITE_SCOPE, USE_SCOPE = "templates.read", "templates.write", "templates.instantiate"


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateApi:
    """The operations on templates. Each handler calls one service method."""

    templates: Templates
    plans: Plans

    def operations(self) -> list[Operation]:
        """Return the operations."""
        one = "/templates/{slug}"
        operation = partial(Operation, tags=("Templates",), max_body_bytes=MAX_TEMPLATE_BYTES)
        template = partial(operation, present=_present_template, response_model=TemplateResponse, etag=True)
        use = partial(operation, present=present_plan, required_scope=USE_SCOPE, response_model=PlanResponse)
        return [
            operation(method="GET", path="/templates", handler=self.get_templates, present=_present_summary, required_scope=READ_SCOPE,
                      response_model=Page[TemplateSummary], operation_id="list_templates", summary="List plan templates",
                      tools=(tools.TEMPLATES,)),
            template(method="POST", path="/templates", handler=self.post_template, committed=StoredTemplate, required_scope=WRITE_SCOPE,
                     status=201, idempotent=True, operation_id="create_template", summary="Create a template",
                     request_headers=("If-Match",), errors=(SlugTaken, TooManyItems)),
            template(method="GET", path=one, handler=self.get_template, required_scope=READ_SCOPE, operation_id="get_template",
                     summary="Show a template", tools=(tools.TEMPLATE_SHOW,)),
            template(method="PUT", path=one, handler=self.put_template, required_scope=WRITE_SCOPE, operation_id="replace_template",
                     summary="Replace a template", errors=(TemplateReadOnly,)),
            operation(method="DELETE", path=one, handler=self.delete_template, required_scope=WRITE_SCOPE, status=204,
                      operation_id="delete_template", summary="Delete a template with its versions", errors=(TemplateReadOnly,)),
            operation(method="GET", path=f"{one}/versions", handler=self.get_versions, required_scope=READ_SCOPE,
                      response_model=VersionsResponse, operation_id="list_template_versions", summary="List the versions of a template"),
            template(method="POST", path=f"{one}/copies", handler=self.post_copy, committed=StoredTemplate, required_scope=WRITE_SCOPE,
                     status=201, idempotent=True, operation_id="copy_template", summary="Copy a template",
                     errors=(SlugTaken, TooManyItems)),
            use(method="POST", path=f"{one}/plans", handler=self.post_plan, committed=PlanView, status=201, idempotent=True, etag=True,
                operation_id="create_plan_from_template", summary="Create a plan from a template", errors=(SlugTaken,)),
            use(handler=self.create_plan, tools=(tools.PLAN_FROM_TEMPLATE,)),
            operation(method="POST", path=f"{one}/preview", handler=self.post_preview, required_scope=READ_SCOPE,
                      response_model=PreviewResponse, operation_id="preview_template", summary="Preview a template",
                      allowed_on_full_disk=True, repeatable=True),
        ]  # fmt: skip

    async def get_templates(self, caller: Caller, query: TemplatesQuery) -> ItemPage[StoredTemplate]:
        """List the templates shipped with Rookery and those of the workspace, ordered by slug."""
        return ItemPage(*await self.templates.list_page(caller.workspace_id, category=query.category, query=query.q, page=query.slice))

    async def post_template(self, caller: Caller, body: TemplateBody) -> StoredTemplate:
        """Create a plan template in the workspace."""
        body.validate_renders()
        return await self.templates.add(TemplateAuthor.from_caller(caller), body.slug, body.to_document())

    async def get_template(self, caller: Caller, slug: str, query: TemplateQuery) -> StoredTemplate:
        """Return a template, in the current version or in the one that `version` names."""
        return await self.templates.get(caller.workspace_id, slug, version=query.version)

    async def put_template(self, caller: Caller, slug: str, body: TemplatePut, expected: ExpectedETags) -> StoredTemplate:
        """Replace a template by a new version. The same content again changes nothing."""
        body.require_slug(slug)
        body.validate_renders()
        return await self.templates.replace(TemplateAuthor.from_caller(caller), slug, body.to_document(), expected=expected)

    async def delete_template(self, caller: Caller, slug: str, expected: ExpectedETags) -> None:
        """Delete a template with all its versions. Plans that were created from it stay."""
        await self.templates.remove(TemplateAuthor.from_caller(caller), slug, expected=expected)

    async def get_versions(self, caller: Caller, slug: str, query: PageQuery) -> ItemPage[AgentsVersionResponse]:
        """List the versions of a template, the current one first."""
        stored_template = await self.templates.get(caller.workspace_id, slug)
        versions = to_version_responses(stored_template, await self.templates.list_versions(caller.workspace_id, slug))
        return ItemPage(*slice_anchored(versions, query.slice, lambda version: version.version))

    async def post_copy(self, caller: Caller, slug: str, body: CopyBody, expected: ExpectedETags) -> StoredTemplate:
        """Copy a template, for example one shipped with Rookery, to a new template of the workspace."""
        stored_template = await self.templates.get(caller.workspace_id, slug)
        require_match("template", stored_template.version, expected)
        new_name = {} if body.name is None else {"name": body.name}
        copy = {**stored_template.template.document, **new_name}
        validate_document(copy)
        return await self.templates.add(TemplateAuthor.from_caller(caller), body.slug, copy)

    async def post_preview(self, caller: Caller, slug: str, body: PreviewBody, expected: ExpectedETags) -> PreviewResponse:
        """Return the plan that a template would create, without storing it."""
        return to_preview_response(await self._render(caller, slug, body, expected))

    async def post_plan(self, caller: Caller, slug: str, body: UseBody, expected: ExpectedETags) -> PlanView:
        """
        Create a plan with its phases and tasks from a template, in one transaction.

        The plan records the template, its version and the variables.
        """
        return await self.plans.create(caller, body.to_draft(await self._render(caller, slug, body, expected)))

    async def create_plan(self, caller: Caller, template: str, body: UseBody) -> PlanView:
        """Create a plan from a template: the route `post_plan` for tools, in which `slug` is the slug of the plan."""
        return await self.post_plan(caller, template, body, None)

    async def _render(self, caller: Caller, slug: str, body: PreviewBody, expected: ExpectedETags) -> RenderedTemplate:
        rendered = await self.templates.render(caller.workspace_id, slug, body.variables, version=body.version)
        require_match("template", rendered.stored_template.version, expected)
        return rendered


def _present_summary(_: Caller, stored_template: StoredTemplate) -> TemplateSummary:
    return TemplateSummary.model_validate(stored_template, from_attributes=True)


def _present_template(_: Caller, stored_template: StoredTemplate) -> Output:
    return Output(body=TemplateResponse.model_validate(stored_template, from_attributes=True), version=stored_template.version)
