"""Workspaces and their sandboxes, and the tasks that run once per installation."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Integer,
    Table,
    Text,
    UniqueConstraint,
    bindparam,
    case,
    delete,
    func,
    select,
    update,
)

from rookery.access.models import Workspace
from rookery.kernel.db import Tx, map_table, metadata, upsert

SERIAL_TYPE = BigInteger().with_variant(Integer(), "sqlite")
"""SQLite auto-increments only an INTEGER. AUTOINCREMENT never reuses a number, so no tenant inherits another's rows."""

workspaces, WORKSPACES = map_table(
    "workspaces",
    Workspace,
    Column("id", SERIAL_TYPE, primary_key=True, autoincrement=True),
    UniqueConstraint("name"),
    UniqueConstraint("parent_id"),
    sqlite_autoincrement=True,
)


one_time_tasks = Table("access_once", metadata, Column("name", Text, primary_key=True), Column("at", BigInteger, nullable=False))
"""Tasks that run once per installation, and when they ran."""

_SELECT_WORKSPACES = select(workspaces).where(workspaces.c.parent_id.is_(None)).order_by(workspaces.c.id)
_SELECT_WORKSPACE = select(workspaces).where(workspaces.c.id == bindparam("id"), workspaces.c.parent_id.is_(None))
_SELECT_WORKSPACE_LOCKED = _SELECT_WORKSPACE.with_for_update()
_SELECT_WORKSPACE_BY_NAME = select(workspaces).where(workspaces.c.name == bindparam("name"), workspaces.c.parent_id.is_(None))
_SELECT_SANDBOX = select(workspaces).where(workspaces.c.parent_id == bindparam("parent_id"))
_ADD_WORKSPACE = upsert(workspaces, index_elements=["name"], returning=[cast("ColumnElement[object]", workspaces.c.id)])
_RENAME = (
    update(workspaces)
    .where((workspaces.c.id == bindparam("of_id")) | (workspaces.c.parent_id == bindparam("of_id")))
    .values(
        name=case((workspaces.c.parent_id.is_(None), bindparam("new_name", type_=Text())), else_=bindparam("sandbox_name", type_=Text()))
    )
)
_SELECT_PUBLIC_ID = select(func.coalesce(workspaces.c.parent_id, workspaces.c.id).label("public_id")).where(
    workspaces.c.id == bindparam("id")
)
_SELECT_TENANTS = select(workspaces).where(workspaces.c.id.in_(bindparam("ids", expanding=True))).order_by(workspaces.c.id)
_LOCK_TENANTS = _SELECT_TENANTS.with_for_update(read=True, key_share=True)
_DELETE_WORKSPACE = delete(workspaces).where((workspaces.c.id == bindparam("id")) | (workspaces.c.parent_id == bindparam("id")))
_INSERT_ONE_TIME_TASK = upsert(one_time_tasks, index_elements=["name"], returning=[cast("ColumnElement[object]", one_time_tasks.c.name)])
_SELECT_ONE_TIME_TASK = select(one_time_tasks.c.at).where(one_time_tasks.c.name == bindparam("name"))


def list_workspaces(tx: Tx) -> list[Workspace]:
    """Return all workspaces without sandboxes, oldest first."""
    return WORKSPACES.fetch_all(tx, _SELECT_WORKSPACES)


def find_workspace(tx: Tx, workspace_id: int, *, lock: bool = False) -> Workspace | None:
    """Return a workspace that is not a sandbox; *lock* prevents its deletion until the transaction ends."""
    return WORKSPACES.fetch_one(tx, _SELECT_WORKSPACE_LOCKED if lock else _SELECT_WORKSPACE, {"id": workspace_id})


def find_workspace_by_name(tx: Tx, name: str) -> Workspace | None:
    """Return the workspace with this name, unless it is a sandbox."""
    return WORKSPACES.fetch_one(tx, _SELECT_WORKSPACE_BY_NAME, {"name": name})


def find_sandbox(tx: Tx, workspace_id: int) -> int | None:
    """Return the id of the workspace's sandbox, if it exists."""
    row = tx.fetch_one(_SELECT_SANDBOX, {"parent_id": workspace_id})
    return None if row is None else row.integer("id")


def get_public_id(tx: Tx, workspace_id: int) -> int:
    """Return the public id of a tenant: the parent's id of a sandbox, else its own."""
    row = tx.fetch_one(_SELECT_PUBLIC_ID, {"id": workspace_id})
    return workspace_id if row is None else row.integer("public_id")


def list_tenants(tx: Tx, ids: Iterable[int], *, lock: bool = False) -> list[Workspace]:
    """Return the workspaces and sandboxes of *ids* that exist; *lock* prevents their deletion until the transaction ends."""
    ids = sorted(set(ids))
    return WORKSPACES.fetch_all(tx, _LOCK_TENANTS if lock else _SELECT_TENANTS, {"ids": ids}) if ids else []


def add_workspace(tx: Tx, name: str, *, parent_id: int | None, at: int) -> int | None:
    """Store a workspace and return its id, or None if the name is taken."""
    row = tx.fetch_one(_ADD_WORKSPACE, {"name": name, "parent_id": parent_id, "created_at": at})
    return None if row is None else row.integer("id")


def rename_workspace(tx: Tx, workspace_id: int, name: str) -> None:
    """Rename a workspace, and its sandbox accordingly."""
    tx.execute(_RENAME, {"of_id": workspace_id, "new_name": name, "sandbox_name": sandbox_name(name)})


def sandbox_name(name: str) -> str:
    """Return the name of a workspace's sandbox. It has a slash, which names of workspaces cannot have."""
    return f"{name}/test"


def delete_workspace(tx: Tx, workspace_id: int) -> None:
    """Delete a workspace and its sandbox, but not their keys and calls."""
    tx.execute(_DELETE_WORKSPACE, {"id": workspace_id})


def mark_done(tx: Tx, name: str, at: int) -> bool:
    """Mark *name* as done; return False if it already was. A concurrent transaction waits for this one to end."""
    return tx.fetch_one(_INSERT_ONE_TIME_TASK, {"name": name, "at": at}) is not None


def is_done(tx: Tx, name: str) -> bool:
    """Return whether *name* was done."""
    return tx.fetch_one(_SELECT_ONE_TIME_TASK, {"name": name}) is not None
