"""The servers that workspaces added, and which of all servers are stopped (D-31, D-33)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import orjson
from sqlalchemy import BigInteger, Column, Index, LargeBinary, Table, Text, bindparam, delete, func, select, update

from rookery.kernel.clock import from_micros, to_micros
from rookery.kernel.db import Row, Tx, metadata, upsert
from rookery.kernel.sealing import SealedColumn
from rookery.tools.models import Added, JsonObject, Stop

tool_servers = Table(
    "tool_servers",
    metadata,
    Column("id", Text, primary_key=True),
    Column("workspace_id", BigInteger, nullable=False),
    Column("server_id", Text, nullable=False),
    Column("entry", Text, nullable=False),
    Column("secrets", LargeBinary),
    Column("created_at", BigInteger, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
    Index("uq_tool_servers_workspace_id_server_id", "workspace_id", "server_id", unique=True),
)
WHAT = "tool server's secrets"
SEALED = SealedColumn(tool_servers, "secrets", what=WHAT)
"""Forgotten with a lost key, a server stays, and says that its secrets must be given again."""

tool_stops = Table(
    "tool_stops",
    metadata,
    Column("workspace_id", BigInteger, primary_key=True, autoincrement=False),
    Column("server_id", Text, primary_key=True),
    Column("tool", Text, primary_key=True),
    Column("reason", Text, nullable=False),
    Column("stopped_at", BigInteger, nullable=False),
)

tool_revisions = Table(
    "tool_revisions",
    metadata,
    Column("name", Text, primary_key=True),
    Column("revision", BigInteger, nullable=False),
)

SERVERS = "servers"
STOPS = "stops"

_REVISION = select(tool_revisions.c.revision).where(tool_revisions.c.name == bindparam("of_name"))
_MOVE_ON = upsert(tool_revisions, index_elements=["name"], set_=lambda _: {"revision": tool_revisions.c.revision + 1})

_OF_WORKSPACE = tool_servers.c.workspace_id == bindparam("workspace")
_IS_ONE = (_OF_WORKSPACE, tool_servers.c.server_id == bindparam("server"))
_ADD = upsert(tool_servers, index_elements=["workspace_id", "server_id"], returning=[tool_servers.c.id])
_COUNT = select(func.count().label("n")).select_from(tool_servers).where(_OF_WORKSPACE)
_STAMPS = select(tool_servers.c.id, tool_servers.c.updated_at)
_SOME = select(tool_servers).where(tool_servers.c.id.in_(bindparam("ids", expanding=True)))
_ALL_OF = select(tool_servers).where(_OF_WORKSPACE).order_by(tool_servers.c.server_id)
_ONE = select(tool_servers).where(*_IS_ONE)
_ONE_TO_CHANGE = _ONE.with_for_update()
_CHANGE = (
    update(tool_servers)
    .where(tool_servers.c.id == bindparam("of_id"))
    .values(entry=bindparam("written"), secrets=bindparam("sealed"), updated_at=bindparam("at"))
)
_REMOVE = delete(tool_servers).where(*_IS_ONE)
_PURGE = delete(tool_servers).where(_OF_WORKSPACE)
_IDS_AT_ONCE = 200

_STOPS = select(tool_stops).order_by(tool_stops.c.workspace_id, tool_stops.c.server_id, tool_stops.c.tool)
_STOP = upsert(
    tool_stops,
    index_elements=["workspace_id", "server_id", "tool"],
    set_=lambda new: {"reason": new["reason"], "stopped_at": new["stopped_at"]},
)
_START = delete(tool_stops).where(
    tool_stops.c.workspace_id == bindparam("workspace"),
    tool_stops.c.server_id == bindparam("server"),
    tool_stops.c.tool == bindparam("of_tool"),
)
_PURGE_STOPS = delete(tool_stops).where(tool_stops.c.workspace_id == bindparam("workspace"))


def revision(tx: Tx, name: str) -> int:
    """Return how often what *name* stands for was changed; it tells another process that it was."""
    row = tx.one(_REVISION, {"of_name": name})
    return 0 if row is None else row.integer("revision")


def move_on(tx: Tx, name: str) -> None:
    """Tell all processes that what *name* stands for has changed, once this transaction is committed."""
    tx.run(_MOVE_ON, {"name": name, "revision": 1})


def add(tx: Tx, added: Added, sealed: bytes | None) -> bool:
    """Keep a new server; false if the workspace has one of its id."""
    row = tx.one(
        _ADD,
        {
            "id": added.row_id,
            "workspace_id": added.workspace_id,
            "server_id": added.server_id,
            "entry": orjson.dumps(added.entry).decode(),
            "secrets": sealed,
            "created_at": to_micros(added.created_at),
            "updated_at": to_micros(added.updated_at),
        },
    )
    return row is not None


def count(tx: Tx, workspace_id: int) -> int:
    """Return how many servers a workspace has added."""
    row = tx.one(_COUNT, {"workspace": workspace_id})
    return 0 if row is None else row.integer("n")


def stamps(tx: Tx) -> dict[str, int]:
    """Return when each server of all workspaces was last changed, by the id of its row."""
    return {row.text("id"): row.integer("updated_at") for row in tx.all(_STAMPS)}


def some(tx: Tx, ids: Sequence[str]) -> list[Added]:
    """Return the servers of these rows."""
    found: list[Added] = []
    for first in range(0, len(ids), _IDS_AT_ONCE):
        found += [_added(row) for row in tx.all(_SOME, {"ids": ids[first : first + _IDS_AT_ONCE]})]
    return found


def all_of(tx: Tx, workspace_id: int) -> list[Added]:
    """Return the servers of a workspace, by id."""
    return [_added(row) for row in tx.all(_ALL_OF, {"workspace": workspace_id})]


def find(tx: Tx, workspace_id: int, server_id: str, *, to_change: bool = False) -> Added | None:
    """Return a server of a workspace; *to_change*: nobody else changes it before this transaction ends."""
    row = tx.one(_ONE_TO_CHANGE if to_change else _ONE, {"workspace": workspace_id, "server": server_id})
    return None if row is None else _added(row)


def change(tx: Tx, added: Added, sealed: bytes | None) -> None:
    """Keep what a server is now."""
    entry = orjson.dumps(added.entry).decode()
    tx.run(_CHANGE, {"of_id": added.row_id, "written": entry, "sealed": sealed, "at": to_micros(added.updated_at)})


def remove(tx: Tx, workspace_id: int, server_id: str) -> bool:
    """Forget a server; false if there is none."""
    return tx.run(_REMOVE, {"workspace": workspace_id, "server": server_id}) == 1


def stops(tx: Tx) -> list[Stop]:
    """Return all that is stopped, everywhere."""
    return [
        Stop(
            workspace_id=row.integer("workspace_id"),
            server_id=row.text("server_id"),
            tool=row.text("tool"),
            reason=row.text("reason"),
            stopped_at=from_micros(row.integer("stopped_at")),
        )
        for row in tx.all(_STOPS)
    ]


def stop(tx: Tx, what: Stop) -> None:
    """Keep that something is stopped; what already was gets the new reason."""
    tx.run(
        _STOP,
        {
            "workspace_id": what.workspace_id,
            "server_id": what.server_id,
            "tool": what.tool,
            "reason": what.reason,
            "stopped_at": to_micros(what.stopped_at),
        },
    )


def start(tx: Tx, what: Stop) -> bool:
    """Forget that something is stopped; false if it was not."""
    return tx.run(_START, {"workspace": what.workspace_id, "server": what.server_id, "of_tool": what.tool}) == 1


def purge(tx: Tx, workspace_id: int) -> int:
    """Delete every row of a workspace that is being deleted; return how many."""
    gone = tx.run(_PURGE, {"workspace": workspace_id})
    stopped = tx.run(_PURGE_STOPS, {"workspace": workspace_id})
    if gone:
        move_on(tx, SERVERS)
    if stopped:
        move_on(tx, STOPS)
    return gone + stopped


def _added(row: Row) -> Added:
    return Added(
        row_id=row.text("id"),
        workspace_id=row.integer("workspace_id"),
        server_id=row.text("server_id"),
        entry=cast("JsonObject", orjson.loads(row.text("entry"))),
        sealed=None if row.values[row.index["secrets"]] is None else row.blob("secrets"),
        created_at=from_micros(row.integer("created_at")),
        updated_at=from_micros(row.integer("updated_at")),
    )
