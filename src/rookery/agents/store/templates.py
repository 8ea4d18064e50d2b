"""The templates that workspaces wrote: which version of each is in use, and every version that is kept (D-63)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import cast

import orjson
from sqlalchemy import BigInteger, Column, Table, Text, bindparam, delete, func, select, update

from rookery.agents.models.templates import JsonObject, KeptTemplate, Template, TemplateSource, TemplateVersion
from rookery.kernel.clock import from_micros, to_micros
from rookery.kernel.db import Row, Tx, metadata, upsert

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

_OF_WORKSPACE = plan_templates.c.workspace_id == bindparam("workspace")
_IS_ONE = (_OF_WORKSPACE, plan_templates.c.slug == bindparam("of_slug"))
_VERSION_OF = (
    plan_template_versions.c.workspace_id == bindparam("workspace"),
    plan_template_versions.c.slug == bindparam("of_slug"),
)
_IS_VERSION = (*_VERSION_OF, plan_template_versions.c.version == bindparam("of_version"))

_ADD = upsert(plan_templates, index_elements=["workspace_id", "slug"], returning=[plan_templates.c.slug])
_ADD_VERSION = upsert(
    plan_template_versions,
    index_elements=["workspace_id", "slug", "version"],
    set_=lambda new: {"created_at": new["created_at"]},
)
_HEADS = (
    select(plan_templates.c.slug, plan_templates.c.name, plan_templates.c.description, plan_templates.c.category)
    .where(_OF_WORKSPACE)
    .order_by(plan_templates.c.slug)
)
_COUNT = select(func.count().label("n")).select_from(plan_templates).where(_OF_WORKSPACE)
_HEAD = select(plan_templates).where(*_IS_ONE)
_HEAD_TO_CHANGE = _HEAD.with_for_update()
_IN_USE = (
    plan_template_versions.c.workspace_id == plan_templates.c.workspace_id,
    plan_template_versions.c.slug == plan_templates.c.slug,
    plan_template_versions.c.version == plan_templates.c.version,
)
_WHOLE = select(plan_templates, plan_template_versions.c.document).where(*_IN_USE)
_FOUND = _WHOLE.where(*_IS_ONE)
_SOME = _WHOLE.where(_OF_WORKSPACE, plan_templates.c.slug.in_(bindparam("slugs", expanding=True)))
_ONE_VERSION = select(plan_template_versions).where(*_IS_VERSION)
_VERSIONS = (
    select(plan_template_versions.c.version, plan_template_versions.c.created_at)
    .where(*_VERSION_OF)
    .order_by(plan_template_versions.c.created_at.desc(), plan_template_versions.c.version)
)
_CHANGE = (
    update(plan_templates)
    .where(*_IS_ONE)
    .values(
        version=bindparam("now_version"),
        name=bindparam("now_name"),
        description=bindparam("now_description"),
        category=bindparam("now_category"),
        updated_at=bindparam("at"),
    )
)
_DROP_VERSION = delete(plan_template_versions).where(*_IS_VERSION)
_DROP_VERSIONS = delete(plan_template_versions).where(*_VERSION_OF)
_DROP = delete(plan_templates).where(*_IS_ONE)
_PURGE = delete(plan_templates).where(_OF_WORKSPACE)
_PURGE_VERSIONS = delete(plan_template_versions).where(plan_template_versions.c.workspace_id == bindparam("workspace"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """What a template is chosen by."""

    slug: str
    name: str
    description: str
    category: str


def add(tx: Tx, workspace_id: int, kept: KeptTemplate, at: datetime) -> bool:
    """Keep a new template; false if the workspace has one of its slug."""
    template = kept.template
    row = tx.one(
        _ADD,
        {
            "workspace_id": workspace_id,
            "slug": template.slug,
            "version": kept.version,
            "name": template.name,
            "description": template.description,
            "category": template.category,
            "created_at": to_micros(at),
            "updated_at": to_micros(at),
        },
    )
    if row is None:
        return False
    _add_version(tx, workspace_id, kept, at)
    return True


def change(tx: Tx, workspace_id: int, kept: KeptTemplate, at: datetime, *, keep: int) -> None:
    """Put another version in use; of those before, *keep* stay with it, the latest."""
    template = kept.template
    tx.run(
        _CHANGE,
        {
            "workspace": workspace_id,
            "of_slug": template.slug,
            "now_version": kept.version,
            "now_name": template.name,
            "now_description": template.description,
            "now_category": template.category,
            "at": to_micros(at),
        },
    )
    _add_version(tx, workspace_id, kept, at)
    for old in [each for each in versions(tx, workspace_id, template.slug) if each.version != kept.version][keep:]:
        tx.run(_DROP_VERSION, {"workspace": workspace_id, "of_slug": template.slug, "of_version": old.version})


def heads(tx: Tx, workspace_id: int) -> list[Head]:
    """Return what all templates of a workspace are chosen by, by slug."""
    return [
        Head(slug=row.text("slug"), name=row.text("name"), description=row.text("description"), category=row.text("category"))
        for row in tx.all(_HEADS, {"workspace": workspace_id})
    ]


def count(tx: Tx, workspace_id: int) -> int:
    """Return how many templates a workspace has."""
    row = tx.one(_COUNT, {"workspace": workspace_id})
    return 0 if row is None else row.integer("n")


def some(tx: Tx, workspace_id: int, slugs: Sequence[str]) -> list[KeptTemplate]:
    """Return these templates of a workspace, each in the version in use; unknown ones are left out."""
    return [_kept(row, row) for row in tx.all(_SOME, {"workspace": workspace_id, "slugs": slugs})] if slugs else []


def find(tx: Tx, workspace_id: int, slug: str, *, version: str | None = None, to_change: bool = False) -> KeptTemplate | None:
    """
    Return a template of a workspace, in *version* or the one in use; None: there is none, or no such version is kept.

    Args:
        to_change: Nobody else changes it before this transaction ends.
    """
    head = tx.one(_HEAD_TO_CHANGE if to_change else _HEAD, {"workspace": workspace_id, "of_slug": slug})
    if head is None:
        return None
    wanted = head.text("version") if version is None else version
    row = tx.one(_ONE_VERSION, {"workspace": workspace_id, "of_slug": slug, "of_version": wanted})
    return None if row is None else _kept(head, row, version=wanted)


def versions(tx: Tx, workspace_id: int, slug: str) -> list[TemplateVersion]:
    """Return all versions that are kept, the one last put in use first."""
    found = tx.all(_VERSIONS, {"workspace": workspace_id, "of_slug": slug})
    return [TemplateVersion(version=row.text("version"), created_at=from_micros(row.integer("created_at"))) for row in found]


def remove(tx: Tx, workspace_id: int, slug: str) -> bool:
    """Forget a template with all its versions; false if there is none."""
    tx.run(_DROP_VERSIONS, {"workspace": workspace_id, "of_slug": slug})
    return tx.run(_DROP, {"workspace": workspace_id, "of_slug": slug}) == 1


def purge(tx: Tx, workspace_id: int) -> int:
    """Delete every row of a workspace that is being deleted; return how many."""
    gone = tx.run(_PURGE_VERSIONS, {"workspace": workspace_id})
    return gone + tx.run(_PURGE, {"workspace": workspace_id})


def _add_version(tx: Tx, workspace_id: int, kept: KeptTemplate, at: datetime) -> None:
    tx.run(
        _ADD_VERSION,
        {
            "workspace_id": workspace_id,
            "slug": kept.template.slug,
            "version": kept.version,
            "document": orjson.dumps(kept.template.document).decode(),
            "created_at": to_micros(at),
        },
    )


def _kept(head: Row, row: Row, *, version: str | None = None) -> KeptTemplate:
    document = cast("JsonObject", orjson.loads(row.text("document")))
    return KeptTemplate(
        template=Template.of(head.text("slug"), document),
        version=version or head.text("version"),
        source=TemplateSource.WORKSPACE,
        created_at=from_micros(head.integer("created_at")),
        updated_at=from_micros(head.integer("updated_at")),
    )
