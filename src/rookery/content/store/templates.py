"""Queries of prompt templates and their versions."""

from __future__ import annotations

from sqlalchemy import Text, bindparam, delete, func, or_, select, update

from rookery.content.models import PromptTemplate, PromptTemplateVersion
from rookery.content.store.tables import TEMPLATES, template_versions, templates
from rookery.kernel.clock import from_micros
from rookery.kernel.db import KeysetList, Tx, fetch_count, match_part, purge_tables, upsert
from rookery.kernel.pages import ListPage, PageSlice

_OF_WORKSPACE = templates.c.workspace_id == bindparam("workspace_id")
_IS_ONE = (_OF_WORKSPACE, templates.c.slug == bindparam("slug"))
_OF_TEMPLATE = (template_versions.c.workspace_id == bindparam("workspace_id"), template_versions.c.slug == bindparam("slug"))
_IS_CURRENT = (
    template_versions.c.workspace_id == templates.c.workspace_id,
    template_versions.c.slug == templates.c.slug,
    template_versions.c.version == templates.c.version,
)
_ADD = upsert(templates, index_elements=["workspace_id", "slug"])
_LOCK = select(templates.c.version).where(*_IS_ONE).with_for_update()
_SELECT_CURRENT = select(template_versions).where(*_IS_CURRENT, *_IS_ONE)
_PATTERN = bindparam("pattern", type_=Text())
_HAS_WORDS = or_(*(func.lower(column).like(_PATTERN, escape="\\") for column in (template_versions.c.slug, template_versions.c.name)))
_MATCHES = (*_IS_CURRENT, _OF_WORKSPACE, _HAS_WORDS)
_LIST = KeysetList(select(template_versions).where(*_MATCHES), template_versions.c.slug)
_COUNT = select(func.count().label("n")).select_from(templates).where(_OF_WORKSPACE)
_VERSIONS = (
    select(template_versions.c.version, template_versions.c.updated_at).where(*_OF_TEMPLATE).order_by(template_versions.c.version.desc())
)
_ADD_VERSION = upsert(template_versions, index_elements=["workspace_id", "slug", "version"])
_SET_CURRENT = (
    update(templates)
    .where(templates.c.workspace_id == bindparam("of_workspace_id"), templates.c.slug == bindparam("of_slug"))
    .values(version=bindparam("new_version"))
)
_DELETE_OLD_VERSIONS = delete(template_versions).where(*_OF_TEMPLATE, template_versions.c.version <= bindparam("last_deleted"))
_DELETE = delete(templates).where(*_IS_ONE)


def find(tx: Tx, workspace_id: int, slug: str, *, version: int | None = None) -> PromptTemplate | None:
    """Return a template in its current version, or in *version*."""
    if version is None:
        return TEMPLATES.fetch_one(tx, _SELECT_CURRENT, {"workspace_id": workspace_id, "slug": slug})
    return TEMPLATES.find(tx, workspace_id, slug=slug, version=version)


def lock(tx: Tx, workspace_id: int, slug: str) -> bool:
    """Lock a template until the transaction ends; return False if it does not exist."""
    return tx.fetch_one(_LOCK, {"workspace_id": workspace_id, "slug": slug}) is not None


def list_page(tx: Tx, workspace_id: int, *, page: PageSlice, text: str = "") -> ListPage[PromptTemplate]:
    """
    Return a page of a workspace's templates in their current versions, by slug, and the total.

    Args:
        text: A part of the slug or the name, in upper or lower case.
    """
    params = {"workspace_id": workspace_id, "pattern": match_part(text)}
    return TEMPLATES.fetch_page(tx, _LIST, page, params)


def count(tx: Tx, workspace_id: int) -> int:
    """Return the number of templates of a workspace."""
    return fetch_count(tx, _COUNT, {"workspace_id": workspace_id})


def list_versions(tx: Tx, workspace_id: int, slug: str) -> list[PromptTemplateVersion]:
    """Return the stored versions of a template, newest first."""
    return [
        PromptTemplateVersion(version=row.integer("version"), created_at=from_micros(row.integer("updated_at")))
        for row in tx.fetch_all(_VERSIONS, {"workspace_id": workspace_id, "slug": slug})
    ]


def add(tx: Tx, workspace_id: int, template: PromptTemplate) -> bool:
    """Store a new template; return False if the slug is in use."""
    if tx.execute(_ADD, {"workspace_id": workspace_id, "slug": template.slug, "version": template.version}) != 1:
        return False
    tx.execute(_ADD_VERSION, {"workspace_id": workspace_id, **TEMPLATES.to_row(template)})
    return True


def add_version(tx: Tx, workspace_id: int, template: PromptTemplate, *, keep_count: int) -> None:
    """Store a new version of a locked template as the current one, and delete all but the newest *keep_count*."""
    params = {"workspace_id": workspace_id, "slug": template.slug}
    tx.execute(_ADD_VERSION, {"workspace_id": workspace_id, **TEMPLATES.to_row(template)})
    tx.execute(_SET_CURRENT, {"of_workspace_id": workspace_id, "of_slug": template.slug, "new_version": template.version})
    tx.execute(_DELETE_OLD_VERSIONS, {**params, "last_deleted": template.version - keep_count})


def remove(tx: Tx, workspace_id: int, slug: str) -> None:
    """Delete a template with all its versions."""
    TEMPLATES.delete(tx, workspace_id, slug=slug)
    tx.execute(_DELETE, {"workspace_id": workspace_id, "slug": slug})


purge = purge_tables(template_versions, templates)
