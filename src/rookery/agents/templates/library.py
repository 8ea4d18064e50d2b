"""The templates that a workspace sees: those that come with Rookery, and its own (D-63)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rookery.access.audit import Audit, Subject
from rookery.access.models import LIVE, TEST, Actor, Caller
from rookery.access.workspaces import must_exist
from rookery.agents.errors import SlugTaken, TemplateReadOnly, TooMany
from rookery.agents.models.templates import Filled, JsonObject, KeptTemplate, Template, TemplateSource, TemplateVersion
from rookery.agents.store import templates as store
from rookery.agents.store.templates import Head
from rookery.agents.templates.filling import faults, filled
from rookery.agents.templates.shipped import shipped
from rookery.agents.templates.versions import version_of
from rookery.kernel.clock import Clock
from rookery.kernel.db import Database, Tx
from rookery.kernel.errors import NotFound, ValidationFailed
from rookery.kernel.preconditions import Expected, require_match

MAX_TEMPLATES = 200
"""Of one workspace."""

MAX_VERSIONS = 50
"""Of one template, the one in use included; the oldest go."""

_WORDS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Author:
    """Who writes templates, and whose: those of *workspace_id*, a test key's being its twin's."""

    workspace_id: int
    shown_workspace_id: int
    by: Actor

    @classmethod
    def of(cls, caller: Caller) -> Author:
        """Return *caller* as an author."""
        return cls(workspace_id=caller.workspace_id, shown_workspace_id=caller.shown_workspace_id, by=Actor.of(caller))


class Templates:
    """Reads and changes them."""

    def __init__(self, db: Database, audit: Audit, clock: Clock) -> None:
        self._db = db
        self._audit = audit
        self._clock = clock

    async def page(
        self, workspace_id: int, *, category: str | None = None, words: str = "", limit: int, offset: int
    ) -> tuple[Sequence[KeptTemplate], int]:
        """
        Return so many templates by slug, each in the version in use, and how many there are.

        Args:
            words: All of them must be in a template's slug, name or description.
        """
        heads = await self._db.read(lambda tx: store.heads(tx, workspace_id))
        ours = [Head(slug=slug, name=it.name, description=it.description, category=it.category) for slug, it in _shipped_templates()]
        asked = words.lower().split()[:_WORDS]
        found = sorted(each.slug for each in (*heads, *ours) if (category is None or each.category == category) and _has(each, asked))
        wanted = found[offset : offset + limit]
        own = await self._db.read(lambda tx: store.some(tx, workspace_id, [slug for slug in wanted if slug not in shipped()]))
        by_slug = {**shipped(), **{each.template.slug: each for each in own}}
        return [by_slug[slug] for slug in wanted if slug in by_slug], len(found)

    async def get(self, workspace_id: int, slug: str, *, version: str | None = None) -> KeptTemplate:
        """
        Return a template, in the version in use or another one that is kept.

        Raises:
            NotFound: There is none of that slug, or no such version of it.
        """
        ours = shipped().get(slug)
        if ours is not None and version in {None, ours.version}:
            return ours
        found = None
        if ours is None:
            found = await self._db.read(lambda tx: store.find(tx, workspace_id, slug, version=version))
        if found is None:
            raise NotFound("template", slug if version is None else f"{slug}@{version}")
        return found

    async def versions(self, workspace_id: int, slug: str) -> Sequence[TemplateVersion]:
        """
        Return the versions of a template that are kept, the one in use first.

        Raises:
            NotFound: There is none of that slug.
        """
        ours = shipped().get(slug)
        if ours is not None:
            return [TemplateVersion(version=ours.version, created_at=None)]
        found = await self._db.read(lambda tx: store.versions(tx, workspace_id, slug))
        if not found:
            raise NotFound("template", slug)
        return found

    async def add(self, author: Author, slug: str, document: JsonObject) -> KeptTemplate:
        """
        Keep a new template of the workspace's own; *document* has a template's form.

        Raises:
            ValidationFailed: A variable or a placeholder is not valid.
            SlugTaken: There is one of that slug, or we ship one.
            TooMany: The workspace has as many as it may.
        """
        kept = _made(slug, document)
        if slug in shipped():
            raise SlugTaken("template", slug)
        now = self._clock()

        def work(tx: Tx) -> KeptTemplate:
            must_exist(tx, author.shown_workspace_id)
            if store.count(tx, author.workspace_id) >= MAX_TEMPLATES:
                raise TooMany("templates", MAX_TEMPLATES)
            if not store.add(tx, author.workspace_id, kept, now):
                raise SlugTaken("template", slug)
            self._note(tx, author, "template.created", before=None, after=kept)
            return _found(store.find(tx, author.workspace_id, slug), slug)

        return await self._db.write(work)

    async def replace(self, author: Author, slug: str, document: JsonObject, *, expected: Expected = None) -> KeptTemplate:
        """
        Put another version of a template in use; the same again changes nothing.

        Args:
            expected: The ETags of If-Match; None: any will do.

        Raises:
            ValidationFailed: As for `add`. NotFound: There is none of that slug.
            TemplateReadOnly: It is one that we ship.
            PreconditionFailed: Another version is in use.
        """
        _must_be_writable(slug)
        kept = _made(slug, document)
        now = self._clock()

        def work(tx: Tx) -> KeptTemplate:
            must_exist(tx, author.shown_workspace_id)
            was = _found(store.find(tx, author.workspace_id, slug, to_change=True), slug)
            require_match("template", was.version, expected)
            if was.version == kept.version or was.template.says_as(kept.template):
                return was
            store.change(tx, author.workspace_id, kept, now, keep=MAX_VERSIONS - 1)
            self._note(tx, author, "template.changed", before=was, after=kept)
            return _found(store.find(tx, author.workspace_id, slug), slug)

        return await self._db.write(work)

    async def remove(self, author: Author, slug: str, *, expected: Expected = None) -> None:
        """
        Forget a template with all its versions; the plans made of it stay.

        Raises:
            NotFound: There is none of that slug. TemplateReadOnly: It is one that we ship.
            PreconditionFailed: Another version is in use.
        """
        _must_be_writable(slug)

        def work(tx: Tx) -> None:
            must_exist(tx, author.shown_workspace_id)
            was = _found(store.find(tx, author.workspace_id, slug, to_change=True), slug)
            require_match("template", was.version, expected)
            store.remove(tx, author.workspace_id, slug)
            self._note(tx, author, "template.deleted", before=was, after=None)

        await self._db.write(work)

    async def fill(self, workspace_id: int, slug: str, variables: Mapping[str, object], *, version: str | None = None) -> Filled:
        """
        Return what a new plan would be made of; nothing is kept.

        Raises:
            NotFound: As for `get`.
            ValidationFailed: A variable is unknown, missing, or not what it may be; or the whole would be too long.
        """
        return filled(await self.get(workspace_id, slug, version=version), variables)

    def _note(self, tx: Tx, author: Author, action: str, *, before: KeptTemplate | None, after: KeptTemplate | None) -> None:
        about = after or before
        if about is not None:
            environment = LIVE if author.workspace_id == author.shown_workspace_id else TEST
            subject = Subject(kind="template", id=about.template.slug, name=about.template.name, environment=environment)
            told = [None if each is None else _audited(each) for each in (before, after)]
            self._audit.note(tx, author.by, author.shown_workspace_id, action, subject, before=told[0], after=told[1])


def _made(slug: str, document: JsonObject) -> KeptTemplate:
    template = Template.of(slug, document)
    wrong = faults(template)
    if wrong:
        raise ValidationFailed(wrong)
    return KeptTemplate(template=template, version=version_of(document), source=TemplateSource.WORKSPACE)


def _must_be_writable(slug: str) -> None:
    if slug in shipped():
        raise TemplateReadOnly(slug)


def _found(kept: KeptTemplate | None, slug: str) -> KeptTemplate:
    if kept is None:
        raise NotFound("template", slug)
    return kept


def _shipped_templates() -> list[tuple[str, Template]]:
    return [(slug, kept.template) for slug, kept in shipped().items()]


def _has(head: Head, words: Sequence[str]) -> bool:
    text = f"{head.slug}\n{head.name}\n{head.description}".lower()
    return all(word in text for word in words)


def _audited(kept: KeptTemplate) -> Mapping[str, object]:
    template = kept.template
    return {"name": template.name, "category": template.category, "version": kept.version}
