"""Workspaces: the tenants, each with a sandbox twin for its test keys once it has some (D-25)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from rookery.access.errors import NameTaken
from rookery.access.models import Workspace
from rookery.access.settings import Check
from rookery.access.store import keys, usage
from rookery.access.store import workspaces as store
from rookery.kernel.clock import Clock, to_micros
from rookery.kernel.db import Database, Tx
from rookery.kernel.errors import NotFound, ValidationFailed

Purger = Callable[[Tx, int], int]
"""Deletes all that one domain has of a tenant (a workspace, or a twin) in this transaction; returns how many rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deletion:
    """What deleting a workspace takes with it: its keys and remembered calls; *rows*: of the other domains."""

    workspace: Workspace
    keys: int
    calls: int
    rows: int | None
    """None in a dry run: only deleting tells."""


class Workspaces:
    """All workspaces; for operators."""

    def __init__(self, db: Database, clock: Clock, *, purgers: Sequence[Purger] = ()) -> None:
        self._db = db
        self._clock = clock
        self._purgers = tuple(purgers)

    async def create(self, name: str) -> Workspace:
        """
        Make a workspace.

        Raises:
            ValidationFailed: The name is not 1 to 100 printable characters without a slash.
            NameTaken: Another workspace has it.
        """
        check = Check()
        name = check.name(name)
        check.done()
        if "/" in name:
            raise ValidationFailed({"name": ["must not contain a slash"]})
        now = self._clock()
        return await self._db.write(lambda tx: add(tx, name, now))

    async def list(self) -> list[Workspace]:
        """Return all of them, oldest first, without the twins."""
        return await self._db.read(store.list_workspaces)

    async def get(self, workspace_id: int) -> Workspace:
        """Return one, or raise NotFound."""
        return await self._db.read(lambda tx: must_exist(tx, workspace_id, lock=False))

    async def delete(self, workspace_id: int, *, dry_run: bool = False) -> Deletion:
        """
        Delete a workspace, its twin and everything in them, in one transaction; from then on none of its keys opens anything.

        Raises:
            NotFound: There is no such workspace; a twin goes with its parent only.
        """

        def work(tx: Tx) -> Deletion:
            workspace = must_exist(tx, workspace_id, lock=not dry_run)
            twin = store.find_twin(tx, workspace_id)
            counts = keys.count_keys(tx, workspace_id), usage.count_calls(tx, workspace_id)
            rows = None if dry_run else self._purge(tx, workspace_id, twin)
            return Deletion(workspace=workspace, keys=counts[0], calls=counts[1], rows=rows)

        return await (self._db.read(work) if dry_run else self._db.write(work))

    def _purge(self, tx: Tx, workspace_id: int, twin: int | None) -> int:
        tenants = [workspace_id] if twin is None else [workspace_id, twin]
        rows = sum(purge(tx, tenant) for purge in self._purgers for tenant in tenants)
        usage.delete_calls(tx, workspace_id)
        keys.delete_keys(tx, workspace_id)
        store.delete_workspace(tx, workspace_id)
        return rows


def add(tx: Tx, name: str, now: datetime) -> Workspace:
    """Store a workspace in this transaction, or raise NameTaken."""
    added = store.add_workspace(tx, name, parent_id=None, at=to_micros(now))
    if added is None:
        raise NameTaken("workspace", name)
    return Workspace(id=added, name=name, parent_id=None, created_at=now)


def must_exist(tx: Tx, workspace_id: int, *, lock: bool = True) -> Workspace:
    """Return a workspace or raise NotFound; *lock*, in a write only, keeps it from being deleted while the transaction lasts."""
    workspace = store.find_workspace(tx, workspace_id, lock=lock)
    if workspace is None:
        raise NotFound("workspace", str(workspace_id))
    return workspace


def twin_of(tx: Tx, workspace: Workspace, now: datetime) -> int:
    """Return the id of the sandbox twin, made now if there was none. The workspace is locked, so there is only one maker."""
    known = store.find_twin(tx, workspace.id)
    if known is not None:
        return known
    made = store.add_workspace(tx, f"{workspace.name}/test", parent_id=workspace.id, at=to_micros(now))
    if made is None:
        raise NameTaken("workspace", f"{workspace.name}/test")
    return made
