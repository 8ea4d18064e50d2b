"""Queries for the templates of workspaces and their versions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import cast

import orjson
from sqlalchemy import BigInteger, Column, Table, Text, bindparam, delete, func, select, update

from rookery.agents.models.templates import JsonObject, StoredTemplate, Template, TemplateSource, TemplateVersion
from rookery.kernel.clock import from_micros, to_micros
from rookery.kernel.db import Mapper, Row, Tx, Value, encode_json, fetch_count, metadata, purge_tables, upsert

plan_templates = Table(
    "plan_templates",
    metadata,
    Column("workspace_id", BigInteger, primary_key=True, autoincrement=False),
    Column("slug", Text, primary_key=True),
    Column("version", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("description", Text, nullable=False),
    Column("category", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
)

plan_template_versions = Table(
    "plan_template_versions",
    metadata,
    Column("workspace_id", BigInteger, primary_key=True, autoincrement=False),
    Column("slug", Text, primary_key=True),
    Column("version", Text, primary_key=True),
    Column("document", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
)

# Versions of shipped templates belong to no workspace. Ids of workspaces begin at 1.
_SHIPPED_WORKSPACE_ID = 0

_IN_WORKSPACE = plan_templates.c.workspace_id == bindparam("workspace")
_IS_TEMPLATE = (_IN_WORKSPACE, plan_templates.c.slug == bindparam("of_slug"))
_IS_VERSION_OF_TEMPLATE = (
    plan_template_versions.c.workspace_id == bindparam("workspace"),
    plan_template_versions.c.slug == bindparam("of_slug"),
)
_IS_VERSION = (*_IS_VERSION_OF_TEMPLATE, plan_template_versions.c.version == bindparam("of_version"))

_ADD = upsert(plan_templates, index_elements=["workspace_id", "slug"], returning=[plan_templates.c.slug])
_ADD_VERSION = upsert(
    plan_template_versions,
    index_elements=["workspace_id", "slug", "version"],
    set_=lambda new: {"created_at": new["created_at"]},
)
_RECORD_VERSION = upsert(plan_template_versions, index_elements=["workspace_id", "slug", "version"])
_HEADERS = (
    select(plan_templates.c.slug, plan_templates.c.name, plan_templates.c.description, plan_templates.c.category)
    .where(_IN_WORKSPACE)
    .order_by(plan_templates.c.slug)
)
_COUNT = select(func.count().label("n")).select_from(plan_templates).where(_IN_WORKSPACE)
_HEADER = select(plan_templates).where(*_IS_TEMPLATE)
_HEADER_LOCKED = _HEADER.with_for_update()
_IS_CURRENT_VERSION = (
    plan_template_versions.c.workspace_id == plan_templates.c.workspace_id,
    plan_template_versions.c.slug == plan_templates.c.slug,
    plan_template_versions.c.version == plan_templates.c.version,
)
_CURRENT_VERSIONS = select(plan_templates, plan_template_versions.c.document).where(*_IS_CURRENT_VERSION)
_CURRENT_VERSIONS_BY_SLUG = _CURRENT_VERSIONS.where(_IN_WORKSPACE, plan_templates.c.slug.in_(bindparam("slugs", expanding=True)))
_ONE_VERSION = select(plan_template_versions).where(*_IS_VERSION)
_VERSIONS = (
    select(plan_template_versions.c.version, plan_template_versions.c.created_at)
    .where(*_IS_VERSION_OF_TEMPLATE)
    .order_by(plan_template_versions.c.created_at.desc(), plan_template_versions.c.version)
)
_CHANGE = (
    update(plan_templates)
    .where(*_IS_TEMPLATE)
    .values(
        version=bindparam("now_version"),
        name=bindparam("now_name"),
        description=bindparam("now_description"),
        category=bindparam("now_category"),
        updated_at=bindparam("at"),
    )
)
_DELETE_VERSION = delete(plan_template_versions).where(*_IS_VERSION)
_DELETE_VERSIONS = delete(plan_template_versions).where(*_IS_VERSION_OF_TEMPLATE)
_DELETE = delete(plan_templates).where(*_IS_TEMPLATE)


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateHeader:
    """The fields of a template that lists are filtered by."""

    slug: str
    name: str
    description: str
    category: str


_HEADER_MAPPER = Mapper(TemplateHeader, plan_templates)


def add(tx: Tx, workspace_id: int, stored_template: StoredTemplate, at: datetime) -> bool:
    """Store a new template. Return False if the slug is in use."""
    template = stored_template.template
    row = tx.fetch_one(
        _ADD,
        {
            "workspace_id": workspace_id,
            "slug": template.slug,
            "version": stored_template.version,
            "name": template.name,
            "description": template.description,
            "category": template.category,
            "created_at": to_micros(at),
            "updated_at": to_micros(at),
        },
    )
    if row is None:
        return False
    _add_version(tx, workspace_id, stored_template, at)
    return True


def change(tx: Tx, workspace_id: int, stored_template: StoredTemplate, at: datetime, *, keep_count: int) -> None:
    """Make *stored_template* the current version, and delete earlier versions except the latest *keep_count*."""
    template = stored_template.template
    tx.execute(
        _CHANGE,
        {
            "workspace": workspace_id,
            "of_slug": template.slug,
            "now_version": stored_template.version,
            "now_name": template.name,
            "now_description": template.description,
            "now_category": template.category,
            "at": to_micros(at),
        },
    )
    _add_version(tx, workspace_id, stored_template, at)
    for old in [version for version in list_versions(tx, workspace_id, template.slug) if version.version != stored_template.version][
        keep_count:
    ]:
        tx.execute(_DELETE_VERSION, {"workspace": workspace_id, "of_slug": template.slug, "of_version": old.version})


def list_headers(tx: Tx, workspace_id: int) -> list[TemplateHeader]:
    """Return the headers of all templates of a workspace, ordered by slug."""
    return _HEADER_MAPPER.fetch_all(tx, _HEADERS, {"workspace": workspace_id})


def count(tx: Tx, workspace_id: int) -> int:
    """Return the number of templates of a workspace."""
    return fetch_count(tx, _COUNT, {"workspace": workspace_id})


def find_by_slugs(tx: Tx, workspace_id: int, slugs: Sequence[str]) -> list[StoredTemplate]:
    """Return the templates with the given slugs, each in its current version. Unknown slugs are left out."""
    return (
        [_from_rows(row, row) for row in tx.fetch_all(_CURRENT_VERSIONS_BY_SLUG, {"workspace": workspace_id, "slugs": slugs})]
        if slugs
        else []
    )


def find(tx: Tx, workspace_id: int, slug: str, *, version: str | None = None, for_update: bool = False) -> StoredTemplate | None:
    """
    Return a template of a workspace, in *version* or the current one, or None if there is no such template or version.

    Args:
        for_update: Lock the template until this transaction ends.
    """
    head = tx.fetch_one(_HEADER_LOCKED if for_update else _HEADER, {"workspace": workspace_id, "of_slug": slug})
    if head is None:
        return None
    chosen_version = head.text("version") if version is None else version
    row = tx.fetch_one(_ONE_VERSION, {"workspace": workspace_id, "of_slug": slug, "of_version": chosen_version})
    return None if row is None else _from_rows(head, row, version=chosen_version)


def list_versions(tx: Tx, workspace_id: int, slug: str) -> list[TemplateVersion]:
    """Return the stored versions of a template, the latest first."""
    rows = tx.fetch_all(_VERSIONS, {"workspace": workspace_id, "of_slug": slug})
    return [TemplateVersion(version=row.text("version"), created_at=from_micros(row.integer("created_at"))) for row in rows]


def record_shipped(tx: Tx, shipped_template: StoredTemplate, at: datetime) -> None:
    """Store the content of a shipped template, so that it can be read after an upgrade. A version is stored once for all workspaces."""
    tx.execute(_RECORD_VERSION, _version_values(_SHIPPED_WORKSPACE_ID, shipped_template, at))


def find_shipped(tx: Tx, slug: str, version: str) -> StoredTemplate | None:
    """Return a version of a shipped template that `record_shipped` stored, or None."""
    row = tx.fetch_one(_ONE_VERSION, {"workspace": _SHIPPED_WORKSPACE_ID, "of_slug": slug, "of_version": version})
    if row is None:
        return None
    template = Template.from_document(slug, _read_document(row))
    return StoredTemplate(template=template, version=version, source=TemplateSource.SHIPPED)


def list_shipped_versions(tx: Tx, slug: str) -> list[str]:
    """Return the versions of a shipped template that `record_shipped` stored, the latest first."""
    return [version.version for version in list_versions(tx, _SHIPPED_WORKSPACE_ID, slug)]


def remove(tx: Tx, workspace_id: int, slug: str) -> bool:
    """Delete a template with all its versions. Return False if it does not exist."""
    tx.execute(_DELETE_VERSIONS, {"workspace": workspace_id, "of_slug": slug})
    return tx.execute(_DELETE, {"workspace": workspace_id, "of_slug": slug}) == 1


purge = purge_tables(plan_template_versions, plan_templates)


def _add_version(tx: Tx, workspace_id: int, stored_template: StoredTemplate, at: datetime) -> None:
    tx.execute(_ADD_VERSION, _version_values(workspace_id, stored_template, at))


def _version_values(workspace_id: int, stored_template: StoredTemplate, at: datetime) -> dict[str, Value]:
    return {
        "workspace_id": workspace_id,
        "slug": stored_template.template.slug,
        "version": stored_template.version,
        "document": encode_json(stored_template.template.document),
        "created_at": to_micros(at),
    }


def _read_document(row: Row) -> JsonObject:
    return cast("JsonObject", orjson.loads(row.text("document")))


def _from_rows(head: Row, row: Row, *, version: str | None = None) -> StoredTemplate:
    return StoredTemplate(
        template=Template.from_document(head.text("slug"), _read_document(row)),
        version=version or head.text("version"),
        source=TemplateSource.WORKSPACE,
        created_at=from_micros(head.integer("created_at")),
        updated_at=from_micros(head.integer("updated_at")),
    )
