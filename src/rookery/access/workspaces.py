"""Workspaces: the tenants, each with a sandbox twin for its test keys once it has some (D-25)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime

from rookery.access.acting_key import require_acting_scope
from rookery.access.audit_log import PLATFORM_CHAIN, AuditLog, AuditSubject
from rookery.access.errors import NameTaken
from rookery.access.key_fields import FieldValidator
from rookery.access.models import Actor, Workspace, WorkspaceDeletion
from rookery.access.scopes import ALL_WORKSPACES_SCOPE
from rookery.access.store import keys, usage
from rookery.access.store import workspaces as store
from rookery.kernel.clock import Clock, to_micros
from rookery.kernel.db import Database, Tx
from rookery.kernel.errors import NotFound, ValidationFailed
from rookery.kernel.preconditions import ExpectedETags, require_match

Purger = Callable[[Tx, int], int]
"""Deletes all that one domain has of a tenant (a workspace, or a twin) in this transaction; returns how many rows."""


class Workspaces:
    """All workspaces; for operators."""

    def __init__(self, db: Database, audit: AuditLog, clock: Clock, *, purgers: Sequence[Purger] = ()) -> None:
        self._db = db
        self._audit = audit
        self._clock = clock
        self._purgers = tuple(purgers)

    async def create(self, name: str, *, by: Actor) -> Workspace:
        """
        Make a workspace; the platform's audit chain tells of it, and the first entry of its own.

        Raises:
            ValidationFailed: The name is not 1 to 100 printable characters without a slash.
            NameTaken: Another workspace has it.
        """
        name = _validate_name(name)
        now = self._clock()

        def work(tx: Tx) -> Workspace:
            require_acting_scope(tx, by, ALL_WORKSPACES_SCOPE, now)
            made = insert_workspace(tx, name, now)
            audit_workspace_change(tx, self._audit, by, None, made)
            return made

        return await self._db.write(work)

    async def rename(self, workspace_id: int, name: str, *, by: Actor, expected: ExpectedETags = None) -> Workspace:
        """
        Give a workspace another name.

        Raises:
            ValidationFailed: As for `create`. NameTaken: Another workspace has it.
            NotFound: There is no such workspace. PreconditionFailed: It has another version than *expected*.
        """
        name = _validate_name(name)

        def work(tx: Tx) -> Workspace:
            before = require_workspace(tx, workspace_id)
            require_acting_scope(tx, by, ALL_WORKSPACES_SCOPE, self._clock())
            require_match("workspace", before.version, expected)
            if name == before.name:
                return before
            named = store.find_workspace_by_name(tx, name)
            if named is not None:
                raise NameTaken("workspace", name)
            store.rename_workspace(tx, workspace_id, name)
            after = replace(before, name=name)
            audit_workspace_change(tx, self._audit, by, before, after)
            return after

        return await self._db.write(work)

    async def list(self) -> list[Workspace]:
        """Return all of them, oldest first, without the twins."""
        return await self._db.read(store.list_workspaces)

    async def get(self, workspace_id: int) -> Workspace:
        """Return one, or raise NotFound."""
        return await self._db.read(lambda tx: require_workspace(tx, workspace_id, lock=False))

    async def delete(self, workspace_id: int, *, by: Actor, dry_run: bool = False, expected: ExpectedETags = None) -> WorkspaceDeletion:
        """
        Delete a workspace, its twin and everything in them, in one transaction; from then on none of its keys opens anything.

        Its audit chain goes too; how that ended is kept in the platform's.

        Raises:
            NotFound: There is no such workspace; a twin goes with its parent only.
            PreconditionFailed: It has another version than *expected*.
        """

        def work(tx: Tx) -> WorkspaceDeletion:
            workspace = require_workspace(tx, workspace_id, lock=not dry_run)
            if not dry_run:
                require_acting_scope(tx, by, ALL_WORKSPACES_SCOPE, self._clock())
            require_match("workspace", workspace.version, expected)
            twin = store.find_sandbox(tx, workspace_id)
            counts = keys.count_keys(tx, workspace_id), usage.count_calls(tx, workspace_id)
            rows = None if dry_run else self._purge(tx, workspace_id, twin)
            if not dry_run:
                audit_workspace_change(tx, self._audit, by, workspace, None)
            return WorkspaceDeletion(workspace=workspace, key_count=counts[0], call_count=counts[1], row_count=rows)

        return await (self._db.read(work) if dry_run else self._db.write(work))

    def _purge(self, tx: Tx, workspace_id: int, twin: int | None) -> int:
        tenants = [workspace_id] if twin is None else [workspace_id, twin]
        rows = sum(purge(tx, tenant) for purge in self._purgers for tenant in tenants)
        usage.delete_calls(tx, workspace_id)
        keys.delete_keys(tx, workspace_id)
        store.delete_workspace(tx, workspace_id)
        return rows


def audit_workspace_change(tx: Tx, audit: AuditLog, by: Actor, before: Workspace | None, after: Workspace | None) -> None:
    """Tell the audit log of a workspace made, renamed or deleted: the platform's chain, and its own while it has one."""
    workspace = after or before
    if workspace is None:
        return
    action = "created" if before is None else "deleted" if after is None else "renamed"
    subject = AuditSubject(kind="workspace", id=str(workspace.id), name=workspace.name)
    was, now_is = ({"name": each.name} if each else None for each in (before, after))
    if after is None:
        end = audit.delete_chain(tx, workspace.id)
        was = {"name": workspace.name, "audit_entries": end.seq, "audit_hash": end.hash}
    for chain in (PLATFORM_CHAIN, workspace.id) if after is not None else (PLATFORM_CHAIN,):
        audit.record(tx, by, chain, f"workspace.{action}", subject, before=was, after=now_is)


def _validate_name(text: str) -> str:
    check = FieldValidator()
    name = check.validate_name(text)
    check.raise_errors()
    if "/" in name:
        raise ValidationFailed({"name": ["must not contain a slash"]})
    return name


def insert_workspace(tx: Tx, name: str, now: datetime) -> Workspace:
    """Store a workspace in this transaction, or raise NameTaken."""
    added = store.add_workspace(tx, name, parent_id=None, at=to_micros(now))
    if added is None:
        raise NameTaken("workspace", name)
    return Workspace(id=added, name=name, parent_id=None, created_at=now)


def require_workspace(tx: Tx, workspace_id: int, *, lock: bool = True) -> Workspace:
    """Return a workspace or raise NotFound; *lock*, in a write only, keeps it from being deleted while the transaction lasts."""
    workspace = store.find_workspace(tx, workspace_id, lock=lock)
    if workspace is None:
        raise NotFound("workspace", str(workspace_id))
    return workspace


def get_or_create_sandbox(tx: Tx, workspace: Workspace, now: datetime) -> int:
    """Return the id of the sandbox twin, made now if there was none. The workspace is locked, so there is only one maker."""
    known = store.find_sandbox(tx, workspace.id)
    if known is not None:
        return known
    made = store.add_workspace(tx, store.sandbox_name(workspace.name), parent_id=workspace.id, at=to_micros(now))
    if made is None:
        raise NameTaken("workspace", store.sandbox_name(workspace.name))
    return made
