"""The templates of a workspace and those shipped with Rookery."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from types import MappingProxyType
from typing import cast

import orjson

from rookery.access.audit_log import AuditLog, AuditSubject
from rookery.access.models import LIVE, TEST, Actor, Caller
from rookery.access.workspaces import require_workspace
from rookery.agents.errors import SlugTaken, TemplateReadOnly, TooManyItems
from rookery.agents.models.templates import JsonObject, RenderedTemplate, StoredTemplate, Template, TemplateSource, TemplateVersion
from rookery.agents.store import templates as store
from rookery.agents.store.templates import TemplateHeader
from rookery.agents.templates.render import find_faults, render_template
from rookery.agents.templates.template_files import parse_template_file
from rookery.kernel.clock import Clock
from rookery.kernel.db import Database, Tx
from rookery.kernel.errors import NotFound, ValidationFailed
from rookery.kernel.pages import ListPage, PageSlice, slice_sorted
from rookery.kernel.preconditions import ExpectedETags, require_match

MAX_TEMPLATES_PER_WORKSPACE = 200
"""Maximum number of templates in one workspace."""

MAX_VERSIONS_PER_TEMPLATE = 50
"""Maximum number of stored versions of one template, including the current one. The oldest are deleted."""

_MAX_QUERY_WORDS = 8
_SHIPPED_FOLDER_NAME = "shipped"
_VERSION_LENGTH = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateAuthor:
    """The author of a template change. For a test key, *workspace_id* is the sandbox of *shown_workspace_id*."""

    workspace_id: int
    shown_workspace_id: int
    actor: Actor

    @classmethod
    def from_caller(cls, caller: Caller) -> TemplateAuthor:
        return cls(workspace_id=caller.workspace_id, shown_workspace_id=caller.public_workspace_id, actor=Actor.from_caller(caller))


class Templates:
    """
    Reads and changes templates.

    Args:
        shipped: The shipped templates by slug. None reads those of this package when they are first needed.
    """

    def __init__(self, db: Database, audit: AuditLog, clock: Clock, *, shipped: Mapping[str, StoredTemplate] | None = None) -> None:
        self._db = db
        self._audit = audit
        self._clock = clock
        self._given_shipped = shipped

    async def list_page(
        self, workspace_id: int, *, category: str | None = None, query: str = "", page: PageSlice
    ) -> ListPage[StoredTemplate]:
        """
        Return a page of templates, ordered by slug and each in its current version, and the total count.

        Args:
            query: Words that must all occur in the slug, name or description. Only the first 8 count.
        """
        heads = await self._db.read(lambda tx: store.list_headers(tx, workspace_id))
        shipped = [
            TemplateHeader(slug=template.slug, name=template.name, description=template.description, category=template.category)
            for template in (stored_template.template for stored_template in self._shipped.values())
        ]
        words = query.lower().split()[:_MAX_QUERY_WORDS]
        slugs = sorted(
            header.slug for header in (*heads, *shipped) if (category is None or header.category == category) and _matches(header, words)
        )
        slug_page = slice_sorted(slugs, page, lambda slug: (slug,))
        stored_templates = await self._db.read(
            lambda tx: store.find_by_slugs(tx, workspace_id, [slug for slug in slug_page.items if slug not in self._shipped])
        )
        by_slug = {**self._shipped, **{stored_template.template.slug: stored_template for stored_template in stored_templates}}
        existing = [(by_slug[slug], (slug,)) for slug in slug_page.items if slug in by_slug]
        return ListPage([item for item, _ in existing], slug_page.total, [position for _, position in existing], slug_page.has_next)

    async def get(self, workspace_id: int, slug: str, *, version: str | None = None) -> StoredTemplate:
        """
        Return a template in its current version, or in the stored version *version*.

        A version of a shipped template is stored when a plan is first created from it.

        Raises:
            NotFound: The template or the version does not exist.
        """
        shipped = self._shipped.get(slug)
        if shipped is not None and version in {None, shipped.version}:
            return shipped

        def read(tx: Tx) -> StoredTemplate | None:
            own_template = None if shipped is not None else store.find(tx, workspace_id, slug, version=version)
            return store.find_shipped(tx, slug, version) if own_template is None and version is not None else own_template

        stored_template = await self._db.read(read)
        if stored_template is None:
            raise NotFound("template", slug if version is None else f"{slug}@{version}")
        return stored_template

    async def list_versions(self, workspace_id: int, slug: str) -> Sequence[TemplateVersion]:
        """
        Return the stored versions of a template, the current one first.

        Raises:
            NotFound: The template does not exist.
        """
        shipped = self._shipped.get(slug)
        if shipped is not None:
            recorded = await self._db.read(lambda tx: store.list_shipped_versions(tx, slug))
            earlier = [version for version in recorded if version != shipped.version]
            return [TemplateVersion(version=version, created_at=None) for version in (shipped.version, *earlier)]
        versions = await self._db.read(lambda tx: store.list_versions(tx, workspace_id, slug))
        if not versions:
            raise NotFound("template", slug)
        return versions

    async def add(self, author: TemplateAuthor, slug: str, document: JsonObject) -> StoredTemplate:
        """
        Store a new template in the workspace. *document* must have the structure of a template.

        Raises:
            ValidationFailed: A variable or a placeholder is invalid.
            SlugTaken: The slug is in use in the workspace or by a shipped template.
            TooManyItems: The workspace has `MAX_TEMPLATES_PER_WORKSPACE` templates.
        """
        new = _build_template(slug, document)
        if slug in self._shipped:
            raise SlugTaken("template", slug)
        now = self._clock()

        def work(tx: Tx) -> StoredTemplate:
            require_workspace(tx, author.shown_workspace_id)
            if store.count(tx, author.workspace_id) >= MAX_TEMPLATES_PER_WORKSPACE:
                raise TooManyItems("templates", MAX_TEMPLATES_PER_WORKSPACE)
            if not store.add(tx, author.workspace_id, new, now):
                raise SlugTaken("template", slug)
            self._audit_change(tx, author, "template.created", before=None, after=new)
            return _require_found(store.find(tx, author.workspace_id, slug), slug)

        return await self._db.write(work)

    async def replace(self, author: TemplateAuthor, slug: str, document: JsonObject, *, expected: ExpectedETags = None) -> StoredTemplate:
        """
        Replace a template by a new version. The same content again changes nothing.

        Args:
            expected: The ETags of If-Match. None matches any version.

        Raises:
            ValidationFailed: As for `add`.
            NotFound: The template does not exist.
            TemplateReadOnly: The template is a shipped one.
            PreconditionFailed: *expected* does not match the current version.
        """
        self._require_writable(slug)
        new = _build_template(slug, document)
        now = self._clock()

        def work(tx: Tx) -> StoredTemplate:
            require_workspace(tx, author.shown_workspace_id)
            current = _require_found(store.find(tx, author.workspace_id, slug, for_update=True), slug)
            require_match("template", current.version, expected)
            if current.version == new.version or current.template.is_equivalent_to(new.template):
                return current
            store.change(tx, author.workspace_id, new, now, keep_count=MAX_VERSIONS_PER_TEMPLATE - 1)
            self._audit_change(tx, author, "template.changed", before=current, after=new)
            return _require_found(store.find(tx, author.workspace_id, slug), slug)

        return await self._db.write(work)

    async def remove(self, author: TemplateAuthor, slug: str, *, expected: ExpectedETags = None) -> None:
        """
        Delete a template with all its versions. Plans that were created from it stay.

        Raises:
            NotFound: The template does not exist.
            TemplateReadOnly: The template is a shipped one.
            PreconditionFailed: *expected* does not match the current version.
        """
        self._require_writable(slug)

        def work(tx: Tx) -> None:
            require_workspace(tx, author.shown_workspace_id)
            current = _require_found(store.find(tx, author.workspace_id, slug, for_update=True), slug)
            require_match("template", current.version, expected)
            store.remove(tx, author.workspace_id, slug)
            self._audit_change(tx, author, "template.deleted", before=current, after=None)

        await self._db.write(work)

    async def render(
        self, workspace_id: int, slug: str, variables: Mapping[str, object], *, version: str | None = None
    ) -> RenderedTemplate:
        """
        Return the template with its variables filled in, without storing anything.

        Raises:
            NotFound: As for `get`.
            ValidationFailed: A variable is unknown, missing or invalid, or the rendered template is too long.
        """
        return render_template(await self.get(workspace_id, slug, version=version), variables)

    @property
    def _shipped(self) -> Mapping[str, StoredTemplate]:
        return load_shipped_templates() if self._given_shipped is None else self._given_shipped

    def _require_writable(self, slug: str) -> None:
        if slug in self._shipped:
            raise TemplateReadOnly(slug)

    def _audit_change(
        self, tx: Tx, author: TemplateAuthor, action: str, *, before: StoredTemplate | None, after: StoredTemplate | None
    ) -> None:
        stored_template = after or before
        if stored_template is not None:
            environment = LIVE if author.workspace_id == author.shown_workspace_id else TEST
            subject = AuditSubject(
                kind="template", id=stored_template.template.slug, name=stored_template.template.name, environment=environment
            )
            fields = [None if stored_template is None else _to_audit_fields(stored_template) for stored_template in (before, after)]
            self._audit.record(tx, author.actor, author.shown_workspace_id, action, subject, before=fields[0], after=fields[1])


@cache
def load_shipped_templates() -> Mapping[str, StoredTemplate]:
    """Return the templates shipped with Rookery by slug, in alphabetical order. The files are read on the first call."""
    return read_templates(resources.files("rookery.agents") / _SHIPPED_FOLDER_NAME)


def read_templates(folder: Traversable) -> Mapping[str, StoredTemplate]:
    """Return the templates of the YAML files in *folder* as shipped templates, by slug and in alphabetical order."""
    files = sorted((file for file in folder.iterdir() if file.name.endswith(".yaml")), key=lambda file: file.name)
    documents = [
        (file.name.removesuffix(".yaml"), _normalize_criteria(parse_template_file(file.read_text(encoding="utf-8")))) for file in files
    ]
    return MappingProxyType(
        {
            slug: StoredTemplate(
                template=Template.from_document(slug, document), version=compute_version(document), source=TemplateSource.SHIPPED
            )
            for slug, document in documents
        }
    )


def compute_version(document: JsonObject) -> str:
    """Return the version of a template: the first 16 hexadecimal digits of the SHA-256 of its document with sorted keys."""
    return hashlib.sha256(orjson.dumps(document, option=orjson.OPT_SORT_KEYS)).hexdigest()[:_VERSION_LENGTH]


def _build_template(slug: str, document: JsonObject) -> StoredTemplate:
    template = Template.from_document(slug, document)
    faults = find_faults(template)
    if faults:
        raise ValidationFailed(faults)
    return StoredTemplate(template=template, version=compute_version(document), source=TemplateSource.WORKSPACE)


def _require_found(stored_template: StoredTemplate | None, slug: str) -> StoredTemplate:
    if stored_template is None:
        raise NotFound("template", slug)
    return stored_template


def _matches(header: TemplateHeader, query_words: Sequence[str]) -> bool:
    text = f"{header.slug}\n{header.name}\n{header.description}".lower()
    return all(word in text for word in query_words)


def _to_audit_fields(stored_template: StoredTemplate) -> Mapping[str, object]:
    template = stored_template.template
    return {"name": template.name, "category": template.category, "version": stored_template.version}


def _normalize_criteria(document: JsonObject) -> JsonObject:
    """Return *document* with each criterion as an object, as workspaces store them, so that a copy gets the same version."""
    return cast("JsonObject", _expand_criteria(document))


def _expand_criteria(value: object, field: str = "") -> object:
    if isinstance(value, dict):
        return {name: _expand_criteria(item, name) for name, item in cast("dict[str, object]", value).items()}
    if isinstance(value, list):
        items = cast("list[object]", value)
        if field == "acceptance_criteria":
            return [{"text": item} for item in items]
        return [_expand_criteria(item) for item in items]
    return value
