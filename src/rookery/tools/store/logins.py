"""
Logins at upstreams, and those that somebody has begun (D-31); all of it sealed.

A row's id says which of the two it is, and is what its text is sealed for. Of a login there is one for each server and workspace,
`EVERYBODY` standing for all of them. `busy_until` is the lease of the process that renews it.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from sqlalchemy import BigInteger, Column, Index, LargeBinary, Table, Text, bindparam, delete, or_, select, update

from rookery.kernel.db import Row, Tx, metadata, upsert
from rookery.kernel.sealing import Place, SealedColumn
from rookery.tools.models import EVERYBODY

_LOGIN = "login "
_START = "start "

tool_logins = Table(
    "tool_logins",
    metadata,
    Column("id", Text, primary_key=True),
    Column("workspace_id", BigInteger, nullable=False),
    Column("server_key", Text, nullable=False),
    Column("sealed", LargeBinary, nullable=False),
    Column("busy_until", BigInteger),
    Column("changed_at", BigInteger, nullable=False),
    Index("ix_tool_logins_workspace_id_server_key", "workspace_id", "server_key"),
)
WHAT = "login at a tool server"
SEALED = SealedColumn(tool_logins, "sealed", what=WHAT)
"""Forgotten with a lost key, it is as if nobody had logged in."""

_OF_ID = tool_logins.c.id == bindparam("of_id")
_PUT = upsert(
    tool_logins,
    index_elements=["id"],
    set_=lambda new: {"sealed": new["sealed"], "busy_until": new["busy_until"], "changed_at": new["changed_at"]},
)
_ONE = select(tool_logins).where(_OF_ID)
_TO_CHANGE = _ONE.with_for_update()
_CLAIM = (
    update(tool_logins)
    .where(_OF_ID, or_(tool_logins.c.busy_until.is_(None), tool_logins.c.busy_until < bindparam("now")))
    .values(busy_until=bindparam("lease_end"))
)
_RENEWED = (
    update(tool_logins)
    .where(_OF_ID, tool_logins.c.busy_until == bindparam("lease"), tool_logins.c.changed_at == bindparam("of_change"))
    .values(sealed=bindparam("text"), busy_until=None)
)
_RELEASE = update(tool_logins).where(_OF_ID, tool_logins.c.busy_until == bindparam("lease")).values(busy_until=None)
_STAMPS = select(tool_logins.c.workspace_id, tool_logins.c.server_key, tool_logins.c.changed_at).where(
    tool_logins.c.id.startswith(_LOGIN, autoescape=True)
)
_OF_SERVER = (
    select(tool_logins)
    .where(tool_logins.c.server_key == bindparam("of_key"), tool_logins.c.id.startswith(_LOGIN, autoescape=True))
    .order_by(tool_logins.c.workspace_id)
    .limit(1)
)
_DELETE = delete(tool_logins).where(_OF_ID)
_FORGET = delete(tool_logins).where(
    tool_logins.c.workspace_id == bindparam("workspace"),
    tool_logins.c.server_key == bindparam("of_key"),
    tool_logins.c.id.startswith(_LOGIN, autoescape=True),
)
_FORGET_STARTS = delete(tool_logins).where(
    tool_logins.c.id.startswith(_START, autoescape=True), tool_logins.c.changed_at < bindparam("before")
)
_PURGE = delete(tool_logins).where(tool_logins.c.workspace_id == bindparam("workspace"))


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedLogin:
    """A row as it is kept; *changed_at* moves with each login, not when one is renewed."""

    place: Place
    server_key: str
    sealed: bytes
    changed_at: int


def place_of(server_key: str, workspace_id: int) -> Place:
    """Return where the login of a workspace at a server is kept."""
    return Place(WHAT, workspace_id, f"{_LOGIN}{workspace_id} {server_key}")


def place_of_start(state: str, workspace_id: int) -> Place:
    """Return where a login that was begun is kept; its mark is as good as a password, so its digest is its id."""
    return Place(WHAT, workspace_id, _START + hashlib.sha256(state.encode("utf-8", "surrogatepass")).hexdigest())


def put(tx: Tx, place: Place, server_key: str, sealed: bytes, *, at: int) -> None:
    """Keep a text in the place of what was there."""
    row = {"id": place.id, "workspace_id": place.workspace_id, "server_key": server_key}
    tx.run(_PUT, {**row, "sealed": sealed, "busy_until": None, "changed_at": at})


def find(tx: Tx, place: Place) -> SealedLogin | None:
    """Return what is kept at *place*."""
    row = tx.one(_ONE, {"of_id": place.id})
    return None if row is None else _read(row)


def any_of(tx: Tx, server_key: str) -> SealedLogin | None:
    """Return a login at a server, that of all workspaces if there is one."""
    row = tx.one(_OF_SERVER, {"of_key": server_key})
    return None if row is None else _read(row)


def claim(tx: Tx, place: Place, *, now: int, until: int) -> SealedLogin | None:
    """Take the right to renew what is at *place* until then, and return it as it is now; None: somebody else has it, or it is gone."""
    if tx.run(_CLAIM, {"of_id": place.id, "now": now, "lease_end": until}) != 1:
        return None
    return find(tx, place)


def keep_renewed(tx: Tx, was: SealedLogin, sealed: bytes, *, lease: int) -> bool:
    """Keep what was renewed under *lease*; false if somebody has logged in anew meanwhile, or the lease is somebody else's."""
    return tx.run(_RENEWED, {"of_id": was.place.id, "lease": lease, "of_change": was.changed_at, "text": sealed}) == 1


def release(tx: Tx, place: Place, *, lease: int) -> None:
    """Give the right to renew back."""
    tx.run(_RELEASE, {"of_id": place.id, "lease": lease})


def stamps(tx: Tx) -> dict[tuple[str, int], int]:
    """Return when somebody last logged in, by server and workspace."""
    return {(row.text("server_key"), row.integer("workspace_id")): row.integer("changed_at") for row in tx.all(_STAMPS)}


def take_start(tx: Tx, state: str, *, since: int) -> SealedLogin | None:
    """Return a login that was begun, no longer ago than *since*, and forget it: its answer counts once."""
    place = place_of_start(state, EVERYBODY)
    row = tx.one(_TO_CHANGE, {"of_id": place.id})
    if row is None:
        return None
    tx.run(_DELETE, {"of_id": place.id})
    return _read(row) if row.integer("changed_at") >= since else None


def find_start(tx: Tx, state: str, *, since: int) -> SealedLogin | None:
    """Return a login that was begun, no longer ago than *since*."""
    found = find(tx, place_of_start(state, EVERYBODY))
    return found if found is not None and found.changed_at >= since else None


def forget(tx: Tx, workspace_id: int, server_key: str) -> int:
    """Forget a workspace's login at a server; return how many rows. Those begun, which are kept as everybody's, it leaves alone."""
    return tx.run(_FORGET, {"workspace": workspace_id, "of_key": server_key})


def forget_starts(tx: Tx, *, before: int) -> int:
    """Forget the logins that nobody finished."""
    return tx.run(_FORGET_STARTS, {"before": before})


def purge(tx: Tx, workspace_id: int) -> int:
    """Delete every login of a workspace; return how many."""
    return tx.run(_PURGE, {"workspace": workspace_id})


def _read(row: Row) -> SealedLogin:
    return SealedLogin(
        place=Place(WHAT, row.integer("workspace_id"), row.text("id")),
        server_key=row.text("server_key"),
        sealed=row.blob("sealed"),
        changed_at=row.integer("changed_at"),
    )
