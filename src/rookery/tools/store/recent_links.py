"""
The links that tool servers recently gave to each key, with the servers that gave them.

A link is stored as a digest, because an address may contain a secret. The caller who reads a link sends the link itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Index, bindparam, delete, select

from rookery.kernel.clock import to_micros
from rookery.kernel.db import Tx, map_table, purge_tables


@dataclass(frozen=True, slots=True, kw_only=True)
class RecentLink:
    """A link that a server gave to a key, the latest time."""

    workspace_id: int
    key_id: str
    digest: str
    server_key: str
    given_at: datetime


tool_recent_links, LINKS = map_table(
    "tool_recent_links",
    RecentLink,
    Index("ix_tool_recent_links_workspace_id_given_at", "workspace_id", "given_at"),
    Index("ix_tool_recent_links_given_at", "given_at"),
    key=("workspace_id", "key_id", "digest", "server_id"),
    columns={"server_key": "server_id"},
    sqlite_with_rowid=False,
)

_c = tool_recent_links.c
_NEWEST_FIRST = (_c.given_at.desc(), _c.key_id.desc(), _c.digest.desc(), _c.server_id.desc())
"""The reverse order of the index, so that no rows are sorted."""
_OF_WORKSPACE = select(tool_recent_links).where(_c.workspace_id == bindparam("workspace_id")).order_by(*_NEWEST_FIRST)
_SURPLUS_OF_KEY = _OF_WORKSPACE.where(_c.key_id == bindparam("key_id")).offset(bindparam("offset"))
_SURPLUS_OF_WORKSPACE = _OF_WORKSPACE.offset(bindparam("offset"))
_DELETE = delete(tool_recent_links).where(*(column == bindparam(column.name) for column in _c))
"""A link that was given again meanwhile stays."""
_DELETE_BEFORE = delete(tool_recent_links).where(_c.given_at < bindparam("before"))


def save_links(tx: Tx, links: Sequence[RecentLink], *, max_per_key: int, max_per_workspace: int) -> None:
    """Insert or renew *links*, each once. Beyond the limits, delete the links that were given first."""
    keys = sorted({(link.workspace_id, link.key_id) for link in links})
    LINKS.save(tx, *links)
    for workspace_id, key_id in keys:
        _delete_links(tx, LINKS.fetch_all(tx, _SURPLUS_OF_KEY, {"workspace_id": workspace_id, "key_id": key_id, "offset": max_per_key}))
    for workspace_id in sorted({workspace_id for workspace_id, _ in keys}):
        _delete_links(tx, LINKS.fetch_all(tx, _SURPLUS_OF_WORKSPACE, {"workspace_id": workspace_id, "offset": max_per_workspace}))


def find_servers(tx: Tx, workspace_id: int, key_id: str, digests: Sequence[str]) -> dict[str, frozenset[str]]:
    """Return the keys of the servers that gave a key the links with *digests*, by digest. Unknown ones are omitted."""
    links = LINKS.find_all(tx, workspace_id, key_id=key_id, digest=digests)
    return {link.digest: frozenset(other.server_key for other in links if other.digest == link.digest) for link in links}


def delete_links_of_server(tx: Tx, workspace_id: int, server_key: str) -> int:
    """Delete the links that a server gave to the keys of a workspace; return the number."""
    return LINKS.delete(tx, workspace_id, server_id=server_key)


def delete_old_links(tx: Tx, *, given_before: datetime) -> int:
    """Delete the links that were last given before *given_before*; return the number."""
    return tx.execute(_DELETE_BEFORE, {"before": to_micros(given_before)})


purge = purge_tables(tool_recent_links)


def _delete_links(tx: Tx, links: Sequence[RecentLink]) -> None:
    tx.execute_many(_DELETE, [LINKS.to_row(link) for link in links])
