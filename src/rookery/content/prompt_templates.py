"""The prompt templates of a workspace and their versions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import cast

from rookery.access.audit_log import AuditLog, AuditSubject
from rookery.access.workspaces import require_workspace
from rookery.content.chat import ChatMessage, estimate_input_tokens
from rookery.content.errors import PromptTemplateExists
from rookery.content.models import (
    ContentTenant,
    JsonObject,
    PromptTemplate,
    PromptTemplateDraft,
    PromptTemplateVersion,
    RenderedPrompt,
    template_etag,
)
from rookery.content.response_schema import ResponseSchema
from rookery.content.store import templates as store
from rookery.kernel.clock import Clock
from rookery.kernel.db import Database, Tx
from rookery.kernel.errors import Conflict, NotFound, ValidationFailed
from rookery.kernel.pages import ListPage, PageSlice
from rookery.kernel.placeholders import fill_placeholders, find_placeholder_faults
from rookery.kernel.preconditions import ExpectedETags, require_match
from rookery.kernel.projections import copy_fields
from rookery.kernel.variables import complete_values, find_variable_faults

MAX_TEMPLATES_PER_WORKSPACE = 200
"""Maximum number of prompt templates in one workspace."""

MAX_VERSIONS_PER_TEMPLATE = 50
"""Maximum number of stored versions of one template, including the current one. The oldest are deleted."""


class PromptTemplates:
    """Reads, changes and renders prompt templates."""

    def __init__(self, db: Database, audit: AuditLog, clock: Clock) -> None:
        self._db = db
        self._audit = audit
        self._clock = clock

    async def list_page(self, tenant: ContentTenant, *, page: PageSlice, text: str = "") -> ListPage[PromptTemplate]:
        """
        Return a page of templates in their current versions, by slug, and the total.

        Args:
            text: A part of the slug or the name, in upper or lower case.
        """
        return await self._db.read_from_replica(lambda tx: store.list_page(tx, tenant.workspace_id, page=page, text=text))

    async def get(self, tenant: ContentTenant, slug: str, *, version: int | None = None) -> PromptTemplate:
        """
        Return a template in its current version, or in *version*.

        Raises:
            NotFound: The template or the version does not exist.
        """
        return await self._db.read(lambda tx: require_template(tx, tenant.workspace_id, slug, version=version))

    async def list_versions(self, tenant: ContentTenant, slug: str) -> Sequence[PromptTemplateVersion]:
        """
        Return the stored versions of a template, newest first.

        Raises:
            NotFound: The template does not exist.
        """
        versions = await self._db.read(lambda tx: store.list_versions(tx, tenant.workspace_id, slug))
        if not versions:
            raise NotFound("prompt template", slug)
        return versions

    async def create(self, tenant: ContentTenant, draft: PromptTemplateDraft) -> PromptTemplate:
        """
        Store a new template as version 1.

        Raises:
            ValidationFailed: A variable, a placeholder or the schema is invalid.
            PromptTemplateExists: The slug is in use.
            Conflict: The workspace has `MAX_TEMPLATES_PER_WORKSPACE` templates.
        """
        _validate(draft)
        now = self._clock()
        template = PromptTemplate(**copy_fields(PromptTemplateDraft, draft), version=1, created_at=now, updated_at=now)

        def work(tx: Tx) -> PromptTemplate:
            require_workspace(tx, tenant.public_workspace_id)
            if store.count(tx, tenant.workspace_id) >= MAX_TEMPLATES_PER_WORKSPACE:
                raise Conflict(f"This workspace has {MAX_TEMPLATES_PER_WORKSPACE} prompt templates, the maximum. Delete one first.")
            if not store.add(tx, tenant.workspace_id, template):
                raise PromptTemplateExists(draft.slug)
            self._record_audit(tx, tenant, "created", before=None, after=template)
            return template

        return await self._db.write(work)

    async def replace(self, tenant: ContentTenant, draft: PromptTemplateDraft, *, expected: ExpectedETags = None) -> PromptTemplate:
        """
        Store a new version of a template. The same content again changes nothing.

        Raises:
            ValidationFailed: As for `create`.
            NotFound: The template does not exist.
            PreconditionFailed: *expected* does not match the current version.
        """
        _validate(draft)
        now = self._clock()

        def work(tx: Tx) -> PromptTemplate:
            require_workspace(tx, tenant.public_workspace_id)
            store.lock(tx, tenant.workspace_id, draft.slug)
            current = require_template(tx, tenant.workspace_id, draft.slug)
            require_match("prompt template", template_etag(current), expected)
            changed = replace(current, **copy_fields(PromptTemplateDraft, draft))
            if changed == current:
                return current
            new = replace(changed, version=current.version + 1, updated_at=now)
            store.add_version(tx, tenant.workspace_id, new, keep_count=MAX_VERSIONS_PER_TEMPLATE)
            self._record_audit(tx, tenant, "changed", before=current, after=new)
            return new

        return await self._db.write(work)

    async def delete(self, tenant: ContentTenant, slug: str, *, expected: ExpectedETags = None) -> None:
        """
        Delete a template with all its versions. Generations that were created from it stay.

        Raises:
            NotFound: The template does not exist.
            PreconditionFailed: *expected* does not match the current version.
        """

        def work(tx: Tx) -> None:
            require_workspace(tx, tenant.public_workspace_id)
            store.lock(tx, tenant.workspace_id, slug)
            current = require_template(tx, tenant.workspace_id, slug)
            require_match("prompt template", template_etag(current), expected)
            store.remove(tx, tenant.workspace_id, slug)
            self._record_audit(tx, tenant, "deleted", before=current, after=None)

        await self._db.write(work)

    async def render(self, tenant: ContentTenant, slug: str, variables: JsonObject, *, version: int | None = None) -> RenderedPrompt:
        """
        Return the messages of a template with its variables filled in.

        Raises:
            NotFound: As for `get`.
            ValidationFailed: A variable is unknown, missing or invalid, or the messages are too long.
        """
        return render_prompt(await self.get(tenant, slug, version=version), variables)

    def _record_audit(
        self, tx: Tx, tenant: ContentTenant, action: str, *, before: PromptTemplate | None, after: PromptTemplate | None
    ) -> None:
        template = after or before
        if template is not None:
            subject = AuditSubject(kind="prompt_template", id=template.slug, name=template.name, environment=tenant.environment)
            old, new = (None if item is None else {"name": item.name, "version": item.version} for item in (before, after))
            self._audit.record(tx, tenant.by, tenant.public_workspace_id, f"prompt_template.{action}", subject, before=old, after=new)


def require_template(tx: Tx, workspace_id: int, slug: str, *, version: int | None = None) -> PromptTemplate:
    """Return a template of the workspace in its current version or in *version*, or raise NotFound."""
    template = store.find(tx, workspace_id, slug, version=version)
    if template is None:
        raise NotFound("prompt template", slug if version is None else f"{slug}@{version}")
    return template


def render_prompt(template: PromptTemplate, variables: JsonObject) -> RenderedPrompt:
    """
    Return the messages of *template* with its variables filled in.

    Raises:
        ValidationFailed: A variable is unknown, missing or invalid, or the messages are too long.
    """
    values = complete_values(template.variables, variables)
    texts = cast("list[str]", fill_placeholders([message.content for message in template.messages], values))
    messages = tuple(ChatMessage(role=message.role, content=text) for message, text in zip(template.messages, texts, strict=True))
    return RenderedPrompt(template=template, messages=messages, estimated_input_tokens=estimate_input_tokens(messages))


def _validate(draft: PromptTemplateDraft) -> None:
    faults: dict[str, list[str]] = {
        f"variables.{name}": variable_faults
        for name, variable in draft.variables.items()
        if (variable_faults := find_variable_faults(variable))
    }
    faults |= find_placeholder_faults([asdict(message) for message in draft.messages], draft.variables, field="messages")
    if faults:
        raise ValidationFailed(faults)
    if draft.response_schema is not None:
        ResponseSchema(draft.response_schema)
