"""Workspaces, the tenants. A workspace with test keys has a sandbox for them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime

from rookery.access.acting_key import require_acting_scope
from rookery.access.audit_log import PLATFORM_CHAIN, AuditLog, AuditSubject
from rookery.access.errors import NameTaken
from rookery.access.key_fields import FieldValidator
from rookery.access.models import Actor, Tenant, Workspace, WorkspaceDeletion
from rookery.access.scopes import ALL_WORKSPACES_SCOPE
from rookery.access.store import keys, usage
from rookery.access.store import workspaces as store
from rookery.kernel.clock import Clock, to_micros
from rookery.kernel.db import Database, Tx
from rookery.kernel.errors import NotFound, ValidationFailed
from rookery.kernel.preconditions import ExpectedETags, require_match
from rookery.kernel.runtime import Purger
from rookery.kernel.unset import UNSET


class Workspaces:
    """All workspaces, for operators."""

    def __init__(self, db: Database, audit: AuditLog, clock: Clock, *, purgers: Sequence[Purger] = ()) -> None:
        self._db = db
        self._audit = audit
        self._clock = clock
        self._purgers = purgers

    async def create(self, name: str, *, by: Actor) -> Workspace:
        """
        Create a workspace. Both the platform's audit chain and the workspace's own new chain record it.

        Raises:
            ValidationFailed: The name is not 1 to 100 printable characters, or it has a slash.
            NameTaken: Another workspace has this name.
        """
        name = _validate_name(name)
        now = self._clock()

        def work(tx: Tx) -> Workspace:
            require_acting_scope(tx, by, ALL_WORKSPACES_SCOPE, now)
            workspace = insert_workspace(tx, name, now)
            audit_workspace_change(tx, self._audit, by, None, workspace)
            return workspace

        return await self._db.write(work)

    async def rename(self, workspace_id: int, name: str | UNSET, *, by: Actor, expected: ExpectedETags = None) -> Workspace:
        """
        Rename a workspace. An unset name changes nothing.

        Raises:
            ValidationFailed: As for `create`.
            NameTaken: Another workspace has this name.
            NotFound: The workspace does not exist.
            PreconditionFailed: The workspace has another version than *expected*.
        """
        new_name = UNSET if name is UNSET else _validate_name(name)

        def work(tx: Tx) -> Workspace:
            before = require_workspace(tx, workspace_id)
            require_acting_scope(tx, by, ALL_WORKSPACES_SCOPE, self._clock())
            require_match("workspace", before.version, expected)
            if new_name is UNSET or new_name == before.name:
                return before
            existing = store.find_workspace_by_name(tx, new_name)
            if existing is not None:
                raise NameTaken("workspace", new_name)
            store.rename_workspace(tx, workspace_id, new_name)
            after = replace(before, name=new_name)
            audit_workspace_change(tx, self._audit, by, before, after)
            return after

        return await self._db.write(work)

    async def list(self) -> list[Workspace]:
        """Return all workspaces without sandboxes, oldest first."""
        return await self._db.read(store.list_workspaces)

    async def get(self, workspace_id: int) -> Workspace:
        """Return a workspace, or raise NotFound."""
        return await self._db.read(lambda tx: require_workspace(tx, workspace_id, lock=False))

    async def delete(self, workspace_id: int, *, by: Actor, dry_run: bool = False, expected: ExpectedETags = None) -> WorkspaceDeletion:
        """
        Delete a workspace with its sandbox and all their data in one transaction. All its keys become invalid.

        This includes its audit chain, whose last hash is recorded in the platform's chain.

        Raises:
            NotFound: The workspace does not exist, or is a sandbox, which is deleted only with its parent.
            PreconditionFailed: The workspace has another version than *expected*.
        """

        def work(tx: Tx) -> WorkspaceDeletion:
            workspace = require_workspace(tx, workspace_id, lock=not dry_run)
            if not dry_run:
                require_acting_scope(tx, by, ALL_WORKSPACES_SCOPE, self._clock())
            require_match("workspace", workspace.version, expected)
            sandbox = store.find_sandbox(tx, workspace_id)
            counts = keys.KEYS.count(tx, workspace_id), usage.CALLS.count(tx, workspace_id)
            rows = None if dry_run else self._purge(tx, workspace_id, sandbox)
            if not dry_run:
                audit_workspace_change(tx, self._audit, by, workspace, None)
            return WorkspaceDeletion(workspace=workspace, key_count=counts[0], call_count=counts[1], row_count=rows)

        return await (self._db.read(work) if dry_run else self._db.write(work))

    def _purge(self, tx: Tx, workspace_id: int, sandbox: int | None) -> int:
        tenants = [workspace_id] if sandbox is None else [workspace_id, sandbox]
        rows = sum(purge(tx, tenant) for purge in self._purgers for tenant in tenants)
        usage.delete_calls(tx, workspace_id)
        keys.delete_keys(tx, workspace_id)
        store.delete_workspace(tx, workspace_id)
        return rows


def audit_workspace_change(tx: Tx, audit: AuditLog, by: Actor, before: Workspace | None, after: Workspace | None) -> None:
    """Record that a workspace was created, renamed or deleted, in the platform's chain and, unless deleted, in its own."""
    workspace = after or before
    if workspace is None:
        return
    action = "created" if before is None else "deleted" if after is None else "renamed"
    subject = AuditSubject(kind="workspace", id=str(workspace.id), name=workspace.name)
    old_fields, new_fields = ({"name": state.name} if state else None for state in (before, after))
    if after is None:
        end = audit.delete_chain(tx, workspace.id)
        old_fields = {"name": workspace.name, "audit_entries": end.seq, "audit_hash": end.hash}
    for chain in (PLATFORM_CHAIN, workspace.id) if after is not None else (PLATFORM_CHAIN,):
        audit.record(tx, by, chain, f"workspace.{action}", subject, before=old_fields, after=new_fields)


def _validate_name(text: str) -> str:
    check = FieldValidator()
    name = check.validate_name(text)
    check.raise_errors()
    if "/" in name:
        raise ValidationFailed({"name": ["must not contain a slash"]})
    return name


def insert_workspace(tx: Tx, name: str, now: datetime) -> Workspace:
    """Store a workspace in this transaction, or raise NameTaken."""
    new_id = store.add_workspace(tx, name, parent_id=None, at=to_micros(now))
    if new_id is None:
        raise NameTaken("workspace", name)
    return Workspace(id=new_id, name=name, parent_id=None, created_at=now)


def require_workspace(tx: Tx, workspace_id: int, *, lock: bool = True) -> Workspace:
    """Return a workspace, or raise NotFound; *lock* (in writes only) prevents its deletion until the transaction ends."""
    workspace = store.find_workspace(tx, workspace_id, lock=lock)
    if workspace is None:
        raise NotFound("workspace", str(workspace_id))
    return workspace


def require_tenant(tx: Tx, workspace_id: int, by: Actor, *, lock: bool = True) -> Tenant:
    """
    Return the tenant of a workspace or a sandbox, for a writer without a key. *lock* prevents its deletion until the transaction ends.

    Raises NotFound if it does not exist.
    """
    public_id = store.get_public_id(tx, workspace_id)
    require_workspace(tx, public_id, lock=lock)
    return Tenant(workspace_id=workspace_id, public_workspace_id=public_id, by=by)


def find_tenant_names(tx: Tx, ids: Iterable[int]) -> dict[int, str]:
    """Return the names of the workspaces and sandboxes of *ids* that exist, by id."""
    return {tenant.id: tenant.name for tenant in store.list_tenants(tx, ids)}


def lock_existing_tenants(tx: Tx, ids: Iterable[int]) -> set[int]:
    """Return those of *ids* that exist, and prevent their deletion until the transaction ends. For rows that are written late."""
    return {tenant.id for tenant in store.list_tenants(tx, ids, lock=True)}


def get_or_create_sandbox(tx: Tx, workspace: Workspace, now: datetime) -> int:
    """Return the id of the sandbox; create it if missing. The caller must hold the workspace's lock, so there is no race."""
    existing = store.find_sandbox(tx, workspace.id)
    if existing is not None:
        return existing
    sandbox_id = store.add_workspace(tx, store.sandbox_name(workspace.name), parent_id=workspace.id, at=to_micros(now))
    if sandbox_id is None:
        raise NameTaken("workspace", store.sandbox_name(workspace.name))
    return sandbox_id
