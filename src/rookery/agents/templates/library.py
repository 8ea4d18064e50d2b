"""The templates that a workspace sees: those that come with Rookery, and its own (D-63)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rookery.access.audit_log import AuditLog, AuditSubject
from rookery.access.models import LIVE, TEST, Actor, Caller
from rookery.access.workspaces import require_workspace
from rookery.agents.errors import SlugTaken, TemplateReadOnly, TooManyItems
from rookery.agents.models.templates import JsonObject, RenderedTemplate, StoredTemplate, Template, TemplateSource, TemplateVersion
from rookery.agents.store import templates as store
from rookery.agents.store.templates import TemplateHeader
from rookery.agents.templates.render import find_faults, render_template
from rookery.agents.templates.shipped import load_shipped_templates
from rookery.agents.templates.versions import compute_version
from rookery.kernel.clock import Clock
from rookery.kernel.db import Database, Tx
from rookery.kernel.errors import NotFound, ValidationFailed
from rookery.kernel.preconditions import ExpectedETags, require_match

MAX_TEMPLATES_PER_WORKSPACE = 200
"""Of one workspace."""

MAX_VERSIONS_PER_TEMPLATE = 50
"""Of one template, the one in use included; the oldest go."""

_MAX_QUERY_WORDS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateAuthor:
    """Who writes templates, and whose: those of *workspace_id*, a test key's being its twin's."""

    workspace_id: int
    shown_workspace_id: int
    actor: Actor

    @classmethod
    def from_caller(cls, caller: Caller) -> TemplateAuthor:
        """Return *caller* as an author."""
        return cls(workspace_id=caller.workspace_id, shown_workspace_id=caller.public_workspace_id, actor=Actor.from_caller(caller))


class Templates:
    """Reads and changes them."""

    def __init__(self, db: Database, audit: AuditLog, clock: Clock) -> None:
        self._db = db
        self._audit = audit
        self._clock = clock

    async def list_page(
        self, workspace_id: int, *, category: str | None = None, query: str = "", limit: int, offset: int
    ) -> tuple[Sequence[StoredTemplate], int]:
        """
        Return so many templates by slug, each in the version in use, and how many there are.

        Args:
            query: All of them must be in a template's slug, name or description.
        """
        heads = await self._db.read(lambda tx: store.list_headers(tx, workspace_id))
        ours = [
            TemplateHeader(slug=slug, name=it.name, description=it.description, category=it.category)
            for slug, it in _list_shipped_templates()
        ]
        asked = query.lower().split()[:_MAX_QUERY_WORDS]
        found = sorted(each.slug for each in (*heads, *ours) if (category is None or each.category == category) and _matches(each, asked))
        wanted = found[offset : offset + limit]
        own = await self._db.read(
            lambda tx: store.find_by_slugs(tx, workspace_id, [slug for slug in wanted if slug not in load_shipped_templates()])
        )
        by_slug = {**load_shipped_templates(), **{each.template.slug: each for each in own}}
        return [by_slug[slug] for slug in wanted if slug in by_slug], len(found)

    async def get(self, workspace_id: int, slug: str, *, version: str | None = None) -> StoredTemplate:
        """
        Return a template, in the version in use or another one that is kept.

        Raises:
            NotFound: There is none of that slug, or no such version of it.
        """
        ours = load_shipped_templates().get(slug)
        if ours is not None and version in {None, ours.version}:
            return ours
        found = None
        if ours is None:
            found = await self._db.read(lambda tx: store.find(tx, workspace_id, slug, version=version))
        if found is None:
            raise NotFound("template", slug if version is None else f"{slug}@{version}")
        return found

    async def list_versions(self, workspace_id: int, slug: str) -> Sequence[TemplateVersion]:
        """
        Return the versions of a template that are kept, the one in use first.

        Raises:
            NotFound: There is none of that slug.
        """
        ours = load_shipped_templates().get(slug)
        if ours is not None:
            return [TemplateVersion(version=ours.version, created_at=None)]
        found = await self._db.read(lambda tx: store.list_versions(tx, workspace_id, slug))
        if not found:
            raise NotFound("template", slug)
        return found

    async def add(self, author: TemplateAuthor, slug: str, document: JsonObject) -> StoredTemplate:
        """
        Keep a new template of the workspace's own; *document* has a template's form.

        Raises:
            ValidationFailed: A variable or a placeholder is not valid.
            SlugTaken: There is one of that slug, or we ship one.
            TooMany: The workspace has as many as it may.
        """
        kept = _build_template(slug, document)
        if slug in load_shipped_templates():
            raise SlugTaken("template", slug)
        now = self._clock()

        def work(tx: Tx) -> StoredTemplate:
            require_workspace(tx, author.shown_workspace_id)
            if store.count(tx, author.workspace_id) >= MAX_TEMPLATES_PER_WORKSPACE:
                raise TooManyItems("templates", MAX_TEMPLATES_PER_WORKSPACE)
            if not store.add(tx, author.workspace_id, kept, now):
                raise SlugTaken("template", slug)
            self._audit_change(tx, author, "template.created", before=None, after=kept)
            return _require_found(store.find(tx, author.workspace_id, slug), slug)

        return await self._db.write(work)

    async def replace(self, author: TemplateAuthor, slug: str, document: JsonObject, *, expected: ExpectedETags = None) -> StoredTemplate:
        """
        Put another version of a template in use; the same again changes nothing.

        Args:
            expected: The ETags of If-Match; None: any will do.

        Raises:
            ValidationFailed: As for `add`. NotFound: There is none of that slug.
            TemplateReadOnly: It is one that we ship.
            PreconditionFailed: Another version is in use.
        """
        _require_writable(slug)
        kept = _build_template(slug, document)
        now = self._clock()

        def work(tx: Tx) -> StoredTemplate:
            require_workspace(tx, author.shown_workspace_id)
            was = _require_found(store.find(tx, author.workspace_id, slug, for_update=True), slug)
            require_match("template", was.version, expected)
            if was.version == kept.version or was.template.is_equivalent_to(kept.template):
                return was
            store.change(tx, author.workspace_id, kept, now, keep_count=MAX_VERSIONS_PER_TEMPLATE - 1)
            self._audit_change(tx, author, "template.changed", before=was, after=kept)
            return _require_found(store.find(tx, author.workspace_id, slug), slug)

        return await self._db.write(work)

    async def remove(self, author: TemplateAuthor, slug: str, *, expected: ExpectedETags = None) -> None:
        """
        Forget a template with all its versions; the plans made of it stay.

        Raises:
            NotFound: There is none of that slug. TemplateReadOnly: It is one that we ship.
            PreconditionFailed: Another version is in use.
        """
        _require_writable(slug)

        def work(tx: Tx) -> None:
            require_workspace(tx, author.shown_workspace_id)
            was = _require_found(store.find(tx, author.workspace_id, slug, for_update=True), slug)
            require_match("template", was.version, expected)
            store.remove(tx, author.workspace_id, slug)
            self._audit_change(tx, author, "template.deleted", before=was, after=None)

        await self._db.write(work)

    async def render(
        self, workspace_id: int, slug: str, variables: Mapping[str, object], *, version: str | None = None
    ) -> RenderedTemplate:
        """
        Return what a new plan would be made of; nothing is kept.

        Raises:
            NotFound: As for `get`.
            ValidationFailed: A variable is unknown, missing, or not what it may be; or the whole would be too long.
        """
        return render_template(await self.get(workspace_id, slug, version=version), variables)

    def _audit_change(
        self, tx: Tx, author: TemplateAuthor, action: str, *, before: StoredTemplate | None, after: StoredTemplate | None
    ) -> None:
        about = after or before
        if about is not None:
            environment = LIVE if author.workspace_id == author.shown_workspace_id else TEST
            subject = AuditSubject(kind="template", id=about.template.slug, name=about.template.name, environment=environment)
            told = [None if each is None else _to_audit_fields(each) for each in (before, after)]
            self._audit.record(tx, author.actor, author.shown_workspace_id, action, subject, before=told[0], after=told[1])


def _build_template(slug: str, document: JsonObject) -> StoredTemplate:
    template = Template.from_document(slug, document)
    wrong = find_faults(template)
    if wrong:
        raise ValidationFailed(wrong)
    return StoredTemplate(template=template, version=compute_version(document), source=TemplateSource.WORKSPACE)


def _require_writable(slug: str) -> None:
    if slug in load_shipped_templates():
        raise TemplateReadOnly(slug)


def _require_found(stored: StoredTemplate | None, slug: str) -> StoredTemplate:
    if stored is None:
        raise NotFound("template", slug)
    return stored


def _list_shipped_templates() -> list[tuple[str, Template]]:
    return [(slug, kept.template) for slug, kept in load_shipped_templates().items()]


def _matches(header: TemplateHeader, query_words: Sequence[str]) -> bool:
    text = f"{header.slug}\n{header.name}\n{header.description}".lower()
    return all(word in text for word in query_words)


def _to_audit_fields(stored: StoredTemplate) -> Mapping[str, object]:
    template = stored.template
    return {"name": template.name, "category": template.category, "version": stored.version}
