"""The projects of repositories: the project of each repository, and the repository that first used the name of a project."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import cast

from sqlalchemy import BigInteger, Column, ColumnElement, Table, Text, bindparam, delete, select, update

from rookery.kernel.clock import to_micros
from rookery.kernel.db import Tx, Value, metadata, upsert

repositories = Table(
    "agent_repositories",
    metadata,
    Column("workspace_id", BigInteger, primary_key=True, autoincrement=False),
    Column("repository", Text, primary_key=True),
    Column("project", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    sqlite_with_rowid=False,
)
project_names = Table(
    "agent_project_names",
    metadata,
    Column("workspace_id", BigInteger, primary_key=True, autoincrement=False),
    Column("project", Text, primary_key=True),
    Column("repository", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    sqlite_with_rowid=False,
)

_r, _n = repositories.c, project_names.c
_FIND = select(repositories).where(_r.workspace_id == bindparam("workspace"), _r.repository.in_(bindparam("ids", expanding=True)))
_ADD = upsert(repositories, index_elements=["workspace_id", "repository"])
_DELETE = delete(repositories).where(_r.workspace_id == bindparam("workspace"), _r.repository == bindparam("of_repository"))
_FIND_NAME = select(_n.repository).where(_n.workspace_id == bindparam("workspace"), _n.project == bindparam("of_project"))
_ADD_NAME = upsert(
    project_names, index_elements=["workspace_id", "project"], returning=[cast("ColumnElement[object]", project_names.c.project)]
)
_SET_NAME = (
    update(project_names)
    .where(_n.workspace_id == bindparam("workspace"), _n.repository == bindparam("old"))
    .values(repository=bindparam("new"))
)


def find_projects(tx: Tx, workspace_id: int, ids: Sequence[str]) -> dict[str, str]:
    """Return the project of each of the repositories *ids*. Unknown ones are left out."""
    rows = tx.fetch_all(_FIND, {"workspace": workspace_id, "ids": ids})
    return {row.text("repository"): row.text("project") for row in rows}


def add(tx: Tx, workspace_id: int, repository: str, project: str, *, at: datetime) -> None:
    """Store the project of a repository, unless it has one."""
    tx.execute(_ADD, {"workspace_id": workspace_id, "repository": repository, "project": project, "created_at": to_micros(at)})


def rename(tx: Tx, workspace_id: int, repository: str, new_id: str) -> None:
    """Give the project names of a repository to its new id, and delete the project of the old id."""
    tx.execute(_DELETE, {"workspace": workspace_id, "of_repository": repository})
    tx.execute(_SET_NAME, {"workspace": workspace_id, "old": repository, "new": new_id})


def add_name(tx: Tx, workspace_id: int, project: str, repository: str, *, at: datetime) -> bool:
    """Store the repository that uses the name of a project first. Return False if there is one."""
    row: dict[str, Value] = {"workspace_id": workspace_id, "project": project, "repository": repository, "created_at": to_micros(at)}
    return tx.fetch_one(_ADD_NAME, row) is not None


def find_by_name(tx: Tx, workspace_id: int, project: str) -> str | None:
    """Return the repository that used the name of a project first, or None."""
    row = tx.fetch_one(_FIND_NAME, {"workspace": workspace_id, "of_project": project})
    return None if row is None else row.text("repository")
