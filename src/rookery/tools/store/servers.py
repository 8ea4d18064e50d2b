"""The servers that workspaces added, and the stops of servers and tools."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import BigInteger, Column, Index, Table, Text, bindparam, select

from rookery.kernel.db import Tx, map_table, metadata, upsert
from rookery.kernel.sealing import SealedColumn
from rookery.tools.models import StoredServer, ToolStop

tool_servers, SERVERS = map_table(
    "tool_servers",
    StoredServer,
    Index("uq_tool_servers_workspace_id_server_id", "workspace_id", "server_id", unique=True),
    columns={"row_id": "id", "sealed": "secrets"},
    fixed=("server_id", "created_at"),
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

_REVISION = select(tool_revisions.c.revision).where(tool_revisions.c.name == bindparam("name"))
_INCREMENT_REVISION = upsert(tool_revisions, index_elements=["name"], set_=lambda _: {"revision": tool_revisions.c.revision + 1})

_STAMPS = select(tool_servers.c.id, tool_servers.c.updated_at)
_BY_IDS = select(tool_servers).where(tool_servers.c.id.in_(bindparam("ids", expanding=True)))
_MAX_IDS_PER_STATEMENT = 200

_STOPS = select(tool_stops).order_by(tool_stops.c.workspace_id, tool_stops.c.server_id, tool_stops.c.tool)


def get_revision(tx: Tx, name: str) -> int:
    """Return the revision of a table. Processes compare it to detect changes of other processes."""
    row = tx.fetch_one(_REVISION, {"name": name})
    return 0 if row is None else row.integer("revision")


def increment_revision(tx: Tx, name: str) -> None:
    """Increment the revision of a table, which other processes see once this transaction is committed."""
    tx.execute(_INCREMENT_REVISION, {"name": name, "revision": 1})


def list_change_times(tx: Tx) -> dict[str, int]:
    """Return the time of the last change of every server, by row id."""
    return {row.text("id"): row.integer("updated_at") for row in tx.fetch_all(_STAMPS)}


def find_by_ids(tx: Tx, ids: Sequence[str]) -> list[StoredServer]:
    stored_servers: list[StoredServer] = []
    for start in range(0, len(ids), _MAX_IDS_PER_STATEMENT):
        stored_servers += SERVERS.fetch_all(tx, _BY_IDS, {"ids": ids[start : start + _MAX_IDS_PER_STATEMENT]})
    return stored_servers


def list_stops(tx: Tx) -> list[ToolStop]:
    return STOPS.fetch_all(tx, _STOPS)


def purge(tx: Tx, workspace_id: int) -> int:
    """Delete all rows of a deleted workspace; return the number."""
    removed_count, removed_stop_count = SERVERS.delete(tx, workspace_id), STOPS.delete(tx, workspace_id)
    if removed_count:
        increment_revision(tx, SERVERS_REVISION)
    if removed_stop_count:
        increment_revision(tx, STOPS_REVISION)
    return removed_count + removed_stop_count
