"""The servers that workspaces added, and the stops of servers and tools."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import BigInteger, Column, Index, Table, Text, bindparam, delete, func, select, update

from rookery.kernel.db import Tx, fetch_count, map_table, metadata, purge_tables, upsert
from rookery.kernel.sealing import SealedColumn
from rookery.tools.models import StoredServer, ToolStop

tool_servers, SERVERS = map_table(
    "tool_servers",
    StoredServer,
    Index("uq_tool_servers_workspace_id_server_id", "workspace_id", "server_id", unique=True),
    columns={"row_id": "id", "sealed": "secrets"},
)
SEALED_PURPOSE = "tool server's secrets"
SEALED_COLUMN = SealedColumn(tool_servers, "secrets", purpose=SEALED_PURPOSE)
"""The encrypted column. If it is cleared because the encryption key was lost, the server stays and reports missing secrets."""

tool_stops, STOPS = map_table("tool_stops", ToolStop, key=("workspace_id", "server_id", "tool"))

tool_revisions = Table(
    "tool_revisions",
    metadata,
    Column("name", Text, primary_key=True),
    Column("revision", BigInteger, nullable=False),
)


SERVERS_REVISION = "servers"
STOPS_REVISION = "stops"

_REVISION = select(tool_revisions.c.revision).where(tool_revisions.c.name == bindparam("of_name"))
_INCREMENT_REVISION = upsert(tool_revisions, index_elements=["name"], set_=lambda _: {"revision": tool_revisions.c.revision + 1})

_IN_WORKSPACE = tool_servers.c.workspace_id == bindparam("workspace")
_IS_SERVER = (_IN_WORKSPACE, tool_servers.c.server_id == bindparam("server"))
_ADD = upsert(tool_servers, index_elements=["workspace_id", "server_id"], returning=[tool_servers.c.id])
_COUNT = select(func.count()).select_from(tool_servers).where(_IN_WORKSPACE)
_STAMPS = select(tool_servers.c.id, tool_servers.c.updated_at)
_BY_IDS = select(tool_servers).where(tool_servers.c.id.in_(bindparam("ids", expanding=True)))
_BY_WORKSPACE = select(tool_servers).where(_IN_WORKSPACE).order_by(tool_servers.c.server_id)
_FIND = select(tool_servers).where(*_IS_SERVER)
_FIND_LOCKED = _FIND.with_for_update()
_CHANGE = (
    update(tool_servers)
    .where(tool_servers.c.id == bindparam("of_id"))
    .values(entry=bindparam("written"), secrets=bindparam("sealed"), updated_at=bindparam("at"))
)
_REMOVE = delete(tool_servers).where(*_IS_SERVER)
_delete_servers, _delete_stops = purge_tables(tool_servers), purge_tables(tool_stops)
_MAX_IDS_PER_STATEMENT = 200

_STOPS = select(tool_stops).order_by(tool_stops.c.workspace_id, tool_stops.c.server_id, tool_stops.c.tool)
_SAVE_STOP = upsert(
    tool_stops,
    index_elements=["workspace_id", "server_id", "tool"],
    set_=lambda new: {"reason": new["reason"], "stopped_at": new["stopped_at"]},
)
_DELETE_STOP = delete(tool_stops).where(
    tool_stops.c.workspace_id == bindparam("workspace"),
    tool_stops.c.server_id == bindparam("server"),
    tool_stops.c.tool == bindparam("of_tool"),
)


def get_revision(tx: Tx, name: str) -> int:
    """Return the revision of a table. Processes compare it to detect changes of other processes."""
    row = tx.fetch_one(_REVISION, {"of_name": name})
    return 0 if row is None else row.integer("revision")


def increment_revision(tx: Tx, name: str) -> None:
    """Increment the revision of a table, which other processes see once this transaction is committed."""
    tx.execute(_INCREMENT_REVISION, {"name": name, "revision": 1})


def add(tx: Tx, stored_server: StoredServer) -> bool:
    """Insert a new server. Return False if the workspace already has one with this id."""
    return tx.fetch_one(_ADD, SERVERS.to_row(stored_server)) is not None


def count(tx: Tx, workspace_id: int) -> int:
    """Return the number of servers that a workspace added."""
    return fetch_count(tx, _COUNT, {"workspace": workspace_id})


def list_change_times(tx: Tx) -> dict[str, int]:
    """Return the time of the last change of every server, by row id."""
    return {row.text("id"): row.integer("updated_at") for row in tx.fetch_all(_STAMPS)}


def find_by_ids(tx: Tx, ids: Sequence[str]) -> list[StoredServer]:
    stored_servers: list[StoredServer] = []
    for start in range(0, len(ids), _MAX_IDS_PER_STATEMENT):
        stored_servers += SERVERS.fetch_all(tx, _BY_IDS, {"ids": ids[start : start + _MAX_IDS_PER_STATEMENT]})
    return stored_servers


def list_by_workspace(tx: Tx, workspace_id: int) -> list[StoredServer]:
    """Return the servers of a workspace, ordered by id."""
    return SERVERS.fetch_all(tx, _BY_WORKSPACE, {"workspace": workspace_id})


def find(tx: Tx, workspace_id: int, server_id: str, *, for_update: bool = False) -> StoredServer | None:
    """Return a server of a workspace. *for_update* locks the row until the transaction ends."""
    return SERVERS.fetch_one(tx, _FIND_LOCKED if for_update else _FIND, {"workspace": workspace_id, "server": server_id})


def change(tx: Tx, stored_server: StoredServer) -> None:
    """Save the changed entry and secrets of a server."""
    row = SERVERS.to_row(stored_server)
    tx.execute(_CHANGE, {"of_id": row["id"], "written": row["entry"], "sealed": row["secrets"], "at": row["updated_at"]})


def remove(tx: Tx, workspace_id: int, server_id: str) -> bool:
    """Delete a server. Return False if it does not exist."""
    return tx.execute(_REMOVE, {"workspace": workspace_id, "server": server_id}) == 1


def list_stops(tx: Tx) -> list[ToolStop]:
    return STOPS.fetch_all(tx, _STOPS)


def save_stop(tx: Tx, stop: ToolStop) -> None:
    """Save a stop. An existing stop gets the new reason."""
    tx.execute(_SAVE_STOP, STOPS.to_row(stop))


def delete_stop(tx: Tx, stop: ToolStop) -> bool:
    """Delete a stop. Return False if it does not exist."""
    return tx.execute(_DELETE_STOP, {"workspace": stop.workspace_id, "server": stop.server_id, "of_tool": stop.tool}) == 1


def purge(tx: Tx, workspace_id: int) -> int:
    """Delete all rows of a deleted workspace; return the number."""
    removed_count, removed_stop_count = _delete_servers(tx, workspace_id), _delete_stops(tx, workspace_id)
    if removed_count:
        increment_revision(tx, SERVERS_REVISION)
    if removed_stop_count:
        increment_revision(tx, STOPS_REVISION)
    return removed_count + removed_stop_count
