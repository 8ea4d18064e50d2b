"""
Logins at upstreams and started logins, all encrypted.

The prefix of a row's id distinguishes the two, and the id is part of the encryption context. There is one login per server and
workspace; `ALL_WORKSPACES` stands for all workspaces. `busy_until` is the lease of the process that renews the login.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

from sqlalchemy import Index, bindparam, delete, or_, select, update

from rookery.kernel.db import Tx, map_table, purge_tables
from rookery.kernel.sealing import SealContext, SealedColumn
from rookery.tools.models import ALL_WORKSPACES

_LOGIN_PREFIX = "login "
_PENDING_PREFIX = "start "

SEALED_PURPOSE = "login at a tool server"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredLogin:
    """A stored row. A new login changes *changed_at*; a renewal does not."""

    id: str
    workspace_id: int
    server_key: str
    sealed: bytes
    busy_until: int | None = None
    changed_at: int

    @property
    def place(self) -> SealContext:
        """The encryption context of the row."""
        return SealContext(SEALED_PURPOSE, self.workspace_id, self.id)


tool_logins, LOGINS = map_table("tool_logins", StoredLogin, Index("ix_tool_logins_workspace_id_server_key", "workspace_id", "server_key"))
SEALED_COLUMN = SealedColumn(tool_logins, "sealed", purpose=SEALED_PURPOSE)
"""The encrypted column. If its rows are cleared because the encryption key was lost, users must log in again."""

_BY_ID = tool_logins.c.id == bindparam("of_id")
_CLAIM = (
    update(tool_logins)
    .where(_BY_ID, or_(tool_logins.c.busy_until.is_(None), tool_logins.c.busy_until < bindparam("now")))
    .values(busy_until=bindparam("lease_end"))
)
_RELEASE = update(tool_logins).where(_BY_ID, tool_logins.c.busy_until == bindparam("lease")).values(busy_until=None)
_STAMPS = select(tool_logins.c.workspace_id, tool_logins.c.server_key, tool_logins.c.changed_at).where(
    tool_logins.c.id.startswith(_LOGIN_PREFIX, autoescape=True)
)
_BY_SERVER = (
    select(tool_logins)
    .where(tool_logins.c.server_key == bindparam("server_key"), tool_logins.c.id.startswith(_LOGIN_PREFIX, autoescape=True))
    .order_by(tool_logins.c.workspace_id)
    .limit(1)
)
_DELETE_EXPIRED_PENDING = delete(tool_logins).where(
    tool_logins.c.id.startswith(_PENDING_PREFIX, autoescape=True), tool_logins.c.changed_at < bindparam("before")
)


def get_login_place(server_key: str, workspace_id: int) -> SealContext:
    """Return the encryption context of a workspace's login at a server."""
    return SealContext(SEALED_PURPOSE, workspace_id, f"{_LOGIN_PREFIX}{workspace_id} {server_key}")


def get_pending_place(state: str, workspace_id: int) -> SealContext:
    """Return the encryption context of a started login. Its state is as sensitive as a password, so its id is a digest of it."""
    return SealContext(SEALED_PURPOSE, workspace_id, _PENDING_PREFIX + hashlib.sha256(state.encode("utf-8", "surrogatepass")).hexdigest())


def save(tx: Tx, place: SealContext, server_key: str, sealed: bytes, *, at: int) -> None:
    """Insert or replace a row."""
    LOGINS.save(tx, StoredLogin(id=place.id, workspace_id=place.workspace_id, server_key=server_key, sealed=sealed, changed_at=at))


def find(tx: Tx, place: SealContext) -> StoredLogin | None:
    """Return the row with this encryption context."""
    return LOGINS.find(tx, place.workspace_id, id=place.id)


def find_any(tx: Tx, server_key: str) -> StoredLogin | None:
    """Return a login at a server, preferably the one for all workspaces."""
    return LOGINS.fetch_one(tx, _BY_SERVER, {"server_key": server_key})


def claim_renewal(tx: Tx, place: SealContext, *, now: int, expires_at: int) -> StoredLogin | None:
    """Acquire the renewal lease of a login until *expires_at*. Return the current row. None: it is leased already or was deleted."""
    if tx.execute(_CLAIM, {"of_id": place.id, "now": now, "lease_end": expires_at}) != 1:
        return None
    return find(tx, place)


def save_renewed(tx: Tx, claimed_login: StoredLogin, sealed: bytes, *, lease_expires_at: int) -> bool:
    """Save a login renewed under a lease. Return False if a user logged in again meanwhile, or the lease was lost."""
    renewed_login = replace(claimed_login, sealed=sealed, busy_until=None)
    return LOGINS.update(tx, renewed_login, busy_until=lease_expires_at, changed_at=claimed_login.changed_at) == 1


def release_renewal(tx: Tx, place: SealContext, *, lease_expires_at: int) -> None:
    tx.execute(_RELEASE, {"of_id": place.id, "lease": lease_expires_at})


def list_change_times(tx: Tx) -> dict[tuple[str, int], int]:
    """Return the time of the last login, by server and workspace."""
    return {(row.text("server_key"), row.integer("workspace_id")): row.integer("changed_at") for row in tx.fetch_all(_STAMPS)}


def consume_pending(tx: Tx, state: str, *, since: int) -> StoredLogin | None:
    """Return and delete a started login not older than *since*, so that its response counts only once."""
    place = get_pending_place(state, ALL_WORKSPACES)
    stored_login = LOGINS.find(tx, ALL_WORKSPACES, id=place.id, lock=True)
    if stored_login is None:
        return None
    LOGINS.delete(tx, ALL_WORKSPACES, id=place.id)
    return stored_login if stored_login.changed_at >= since else None


def find_pending(tx: Tx, state: str, *, since: int) -> StoredLogin | None:
    """Return a started login not older than *since*."""
    stored_login = find(tx, get_pending_place(state, ALL_WORKSPACES))
    return stored_login if stored_login is not None and stored_login.changed_at >= since else None


def delete_logins(tx: Tx, workspace_id: int, server_key: str) -> int:
    """Delete a workspace's login at a server; return the number of rows. Started logins, stored for all workspaces, are kept."""
    return LOGINS.delete(tx, workspace_id, id=get_login_place(server_key, workspace_id).id)


def delete_expired_pending(tx: Tx, *, before: int) -> int:
    """Delete the started logins that were never finished."""
    return tx.execute(_DELETE_EXPIRED_PENDING, {"before": before})


purge = purge_tables(tool_logins)
