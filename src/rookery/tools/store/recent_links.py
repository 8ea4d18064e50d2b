"""
The links that tool servers recently gave to each key, with the servers that gave them.

A link is stored as a digest, because an address may contain a secret. The caller who reads a link sends the link itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import cast

from sqlalchemy import BigInteger, Column, Index, PrimaryKeyConstraint, Table, Text, bindparam, delete, select

from rookery.kernel.clock import to_micros
from rookery.kernel.db import Row, Tx, Value, metadata, purge_tables, upsert

tool_recent_links = Table(
    "tool_recent_links",
    metadata,
    Column("workspace_id", BigInteger, nullable=False),
    Column("key_id", Text, nullable=False),
    Column("digest", Text, nullable=False),
    Column("server_id", Text, nullable=False),  # the server's key
    Column("given_at", BigInteger, nullable=False),
    PrimaryKeyConstraint("workspace_id", "key_id", "digest", "server_id"),
    Index("ix_tool_recent_links_workspace_id_given_at", "workspace_id", "given_at"),
    Index("ix_tool_recent_links_given_at", "given_at"),
    sqlite_with_rowid=False,
)

_c = tool_recent_links.c
NAMES = ("workspace_id", "key_id", "digest", "server_id")
_NEWEST_FIRST = (_c.given_at.desc(), _c.key_id.desc(), _c.digest.desc(), _c.server_id.desc())
"""The reverse order of the index, so that no rows are sorted."""
_IS_OF_WORKSPACE = _c.workspace_id == bindparam("of_workspace")
_IS_OF_KEY = (_IS_OF_WORKSPACE, _c.key_id == bindparam("of_key"))

_SAVE = upsert(tool_recent_links, index_elements=NAMES, set_=lambda new: {"given_at": new["given_at"]})
_FIND = select(_c.digest, _c.server_id).where(*_IS_OF_KEY, _c.digest.in_(bindparam("digests", expanding=True)))
_SURPLUS_OF_KEY = select(tool_recent_links).where(*_IS_OF_KEY).order_by(*_NEWEST_FIRST).offset(bindparam("limit"))
_SURPLUS_OF_WORKSPACE = select(tool_recent_links).where(_IS_OF_WORKSPACE).order_by(*_NEWEST_FIRST).offset(bindparam("limit"))
_DELETE = delete(tool_recent_links).where(
    *_IS_OF_KEY, _c.digest == bindparam("of_digest"), _c.server_id == bindparam("of_server"), _c.given_at == bindparam("at")
)
_DELETE_OF_KEY = delete(tool_recent_links).where(*_IS_OF_KEY)
_DELETE_OF_SERVER = delete(tool_recent_links).where(_IS_OF_WORKSPACE, _c.server_id == bindparam("of_server"))
_DELETE_BEFORE = delete(tool_recent_links).where(_c.given_at < bindparam("before"))


def save_links(tx: Tx, rows: Sequence[Mapping[str, Value]], *, max_per_key: int, max_per_workspace: int) -> None:
    """
    Insert or renew links. Beyond the limits, delete the links that were given first.

    Args:
        rows: The columns of `tool_recent_links`, each link once.
    """
    keys = sorted({(cast("int", row["workspace_id"]), cast("str", row["key_id"])) for row in rows})
    tx.execute_many(_SAVE, sorted(rows, key=lambda row: [str(row[name]) for name in NAMES]))  # one order, so that processes cannot deadlock
    for workspace_id, key_id in keys:
        _delete_rows(tx, tx.fetch_all(_SURPLUS_OF_KEY, {"of_workspace": workspace_id, "of_key": key_id, "limit": max_per_key}))
    for workspace_id in sorted({workspace_id for workspace_id, _ in keys}):
        _delete_rows(tx, tx.fetch_all(_SURPLUS_OF_WORKSPACE, {"of_workspace": workspace_id, "limit": max_per_workspace}))


def find_servers(tx: Tx, workspace_id: int, key_id: str, digests: Sequence[str]) -> dict[str, frozenset[str]]:
    """Return the keys of the servers that gave a key the links with *digests*, by digest. Unknown ones are omitted."""
    rows = tx.fetch_all(_FIND, {"of_workspace": workspace_id, "of_key": key_id, "digests": digests})
    pairs = [(row.text("digest"), row.text("server_id")) for row in rows]
    return {digest: frozenset(server_key for other, server_key in pairs if other == digest) for digest, _ in pairs}


def delete_links_of_key(tx: Tx, workspace_id: int, key_id: str) -> int:
    """Delete the links of a key; return the number."""
    return tx.execute(_DELETE_OF_KEY, {"of_workspace": workspace_id, "of_key": key_id})


def delete_links_of_server(tx: Tx, workspace_id: int, server_key: str) -> int:
    """Delete the links that a server gave to the keys of a workspace; return the number."""
    return tx.execute(_DELETE_OF_SERVER, {"of_workspace": workspace_id, "of_server": server_key})


def delete_old_links(tx: Tx, *, given_before: datetime) -> int:
    """Delete the links that were last given before *given_before*; return the number."""
    return tx.execute(_DELETE_BEFORE, {"before": to_micros(given_before)})


purge = purge_tables(tool_recent_links)


def _delete_rows(tx: Tx, rows: Sequence[Row]) -> None:
    """Delete rows, except those whose links were given again meanwhile."""
    tx.execute_many(
        _DELETE,
        [
            {
                "of_workspace": row.integer("workspace_id"),
                "of_key": row.text("key_id"),
                "of_digest": row.text("digest"),
                "of_server": row.text("server_id"),
                "at": row.integer("given_at"),
            }
            for row in rows
        ],
    )
