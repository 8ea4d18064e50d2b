"""The operations of prompt templates."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from rookery.access.models import Caller
from rookery.content.api.generations import CONTENT_TAG, READ_SCOPE, WRITE_SCOPE
from rookery.content.errors import PromptTemplateExists
from rookery.content.models import ContentTenant, PromptTemplate, PromptTemplateVersion, RenderedPrompt, template_etag
from rookery.content.prompt_templates import PromptTemplates
from rookery.content.schemas import (
    NewPromptTemplateBody,
    PromptPreviewBody,
    PromptTemplateFields,
    PromptTemplateResponse,
    PromptTemplatesQuery,
    PromptTemplateVersionResponse,
    RenderedPromptResponse,
    TemplateVersionQuery,
)
from rookery.kernel.errors import Conflict
from rookery.kernel.http import ItemPage, Operation, Output
from rookery.kernel.pages import slice_sorted
from rookery.kernel.preconditions import ExpectedETags
from rookery.kernel.schema import Page, PageQuery


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptTemplateApi:
    """The operations of prompt templates. Each handler calls one service."""

    templates: PromptTemplates

    def operations(self) -> list[Operation]:
        """Return the operations."""
        base, one = "/content/templates", "/content/templates/{slug}"
        operation = partial(Operation, tags=(CONTENT_TAG,))
        read = partial(operation, method="GET", required_scope=READ_SCOPE)
        change = partial(operation, present=_present, required_scope=WRITE_SCOPE, response_model=PromptTemplateResponse, etag=True)
        return [
            read(path=base, handler=self.get_templates, present=_present, response_model=Page[PromptTemplateResponse],
                 operation_id="list_prompt_templates", summary="List prompt templates"),
            change(method="POST", path=base, handler=self.post_template, committed=PromptTemplate, status=201, idempotent=True,
                   errors=(PromptTemplateExists, Conflict), operation_id="create_prompt_template", summary="Create a prompt template"),
            read(path=one, handler=self.get_template, present=_present, response_model=PromptTemplateResponse, etag=True,
                 operation_id="get_prompt_template", summary="Show a prompt template"),
            change(method="PUT", path=one, handler=self.put_template, operation_id="replace_prompt_template",
                   summary="Store a new version of a prompt template"),
            operation(method="DELETE", path=one, handler=self.delete_template, required_scope=WRITE_SCOPE, status=204,
                      operation_id="delete_prompt_template", summary="Delete a prompt template"),
            read(path=f"{one}/versions", handler=self.get_versions, response_model=Page[PromptTemplateVersionResponse],
                 operation_id="list_prompt_template_versions", summary="List the versions of a prompt template"),
            operation(method="POST", path=f"{one}/preview", handler=self.post_preview, present=_present_rendered,
                      required_scope=READ_SCOPE, response_model=RenderedPromptResponse, allowed_on_full_disk=True,
                      operation_id="preview_prompt_template", summary="Fill in a prompt template", repeatable=True),
        ]  # fmt: skip

    async def get_templates(self, caller: Caller, query: PromptTemplatesQuery) -> ItemPage[PromptTemplate]:
        """List the prompt templates of the workspace in their current versions, by slug."""
        tenant = ContentTenant.from_caller(caller)
        return ItemPage(*await self.templates.list_page(tenant, page=query.slice, text=query.q or ""))

    async def post_template(self, caller: Caller, body: NewPromptTemplateBody) -> PromptTemplate:
        """Create a prompt template as version 1. Each `{{ name }}` in its messages must be one of its variables."""
        return await self.templates.create(ContentTenant.from_caller(caller), body.to_model())

    async def get_template(self, caller: Caller, slug: str, query: TemplateVersionQuery) -> PromptTemplate:
        """Return a prompt template in its current version, or in `version`."""
        return await self.templates.get(ContentTenant.from_caller(caller), slug, version=query.version)

    async def put_template(self, caller: Caller, slug: str, body: PromptTemplateFields, expected: ExpectedETags) -> PromptTemplate:
        """Replace a prompt template by a new version. The same content again changes nothing. Earlier versions stay."""
        return await self.templates.replace(ContentTenant.from_caller(caller), body.to_model(slug=slug), expected=expected)

    async def delete_template(self, caller: Caller, slug: str, expected: ExpectedETags) -> None:
        """Delete a prompt template with all its versions. Generations that were created from it stay."""
        await self.templates.delete(ContentTenant.from_caller(caller), slug, expected=expected)

    async def get_versions(self, caller: Caller, slug: str, query: PageQuery) -> ItemPage[PromptTemplateVersion]:
        """List the versions of a prompt template, newest first. The newest 50 are stored."""
        versions = await self.templates.list_versions(ContentTenant.from_caller(caller), slug)
        return ItemPage(*slice_sorted(versions, query.slice, lambda version: (version.version,), descending=True))

    async def post_preview(self, caller: Caller, slug: str, body: PromptPreviewBody) -> RenderedPrompt:
        """Return the messages of a prompt template with its variables filled in. Nothing is sent or stored."""
        return await self.templates.render(ContentTenant.from_caller(caller), slug, body.variables, version=body.version)


def _present(_: Caller, template: PromptTemplate) -> Output:
    return Output(body=PromptTemplateResponse.from_parts(template), version=template_etag(template))


def _present_rendered(_: Caller, rendered: RenderedPrompt) -> RenderedPromptResponse:
    return RenderedPromptResponse.from_parts(rendered, rendered.template)
