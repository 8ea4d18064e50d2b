"""The audit log: an append-only chain of entries for each workspace, and the end of each chain."""

from __future__ import annotations

from collections.abc import Mapping

import orjson
from sqlalchemy import Column, Index, Text, bindparam, column, func, literal_column, select, table

from rookery.access.models import AuditEntry, AuditFilter, ChainEnd
from rookery.kernel.clock import to_micros
from rookery.kernel.db import KeysetList, Row, Tx, Value, codec_for, map_table
from rookery.kernel.pages import ListPage, PageSlice


def _encode_sorted(value: Mapping[str, object]) -> str:
    return orjson.dumps(dict(value), option=orjson.OPT_SORT_KEYS).decode()


_SORTED_JSON = codec_for(Mapping[str, object])._replace(encode=_encode_sorted)
entries, ENTRIES = map_table(
    "access_audit", AuditEntry, key=("workspace_id", "seq"), codecs={"before": _SORTED_JSON, "after": _SORTED_JSON}
)
Index("ix_access_audit_workspace_id_subject_id", entries.c.workspace_id, entries.c.subject_id)

chain_end_rows, CHAIN_ENDS = map_table("access_audit_ends", ChainEnd, key=("workspace_id",))
"""The last entry of each chain. Writers lock its row, and it reveals a truncated chain."""


_SELECT_ENDS = select(chain_end_rows).order_by(chain_end_rows.c.workspace_id)
_SELECT_LAST_ENTRIES = (
    select(
        chain_end_rows.c.workspace_id.label("end_workspace_id"),
        chain_end_rows.c.seq.label("end_seq"),
        chain_end_rows.c.hash.label("end_hash"),
        entries,
    )
    .select_from(
        chain_end_rows.outerjoin(
            entries, (entries.c.workspace_id == chain_end_rows.c.workspace_id) & (entries.c.seq == chain_end_rows.c.seq)
        )
    )
    .order_by(chain_end_rows.c.workspace_id)
)
_SELECT_FROM = (
    select(entries)
    .where(entries.c.workspace_id == bindparam("workspace_id"), entries.c.seq > bindparam("after_seq"))
    .order_by(entries.c.seq)
    .limit(bindparam("limit"))
)


def _optional_filter(name: str, column: Column[str]) -> object:
    return (bindparam(name, type_=Text()) == "") | (column == bindparam(name))


_FILTERS = (
    entries.c.workspace_id == bindparam("workspace_id"),
    _optional_filter("environment", entries.c.environment),
    _optional_filter("action", entries.c.action),
    _optional_filter("subject_id", entries.c.subject_id),
    _optional_filter("actor_id", entries.c.actor_id),
    entries.c.at >= bindparam("since"),
    entries.c.at < bindparam("until"),
)
_LIST = KeysetList(select(entries).where(*_FILTERS), entries.c.seq.desc())  # pyright: ignore[reportArgumentType] - each is a condition
_SQLITE_TABLE = (
    select(column("name", Text)).select_from(table("sqlite_master")).where(column("name", Text) == literal_column("'access_audit_ends'"))
)
_POSTGRES_TABLE = (
    select(column("tablename", Text))
    .select_from(table("pg_tables"))
    .where(column("tablename", Text) == literal_column("'access_audit_ends'"), column("schemaname", Text) == func.current_schema())
)

_TIME_BOUNDS_US = (0, 2**62)


def has_tables(tx: Tx) -> bool:
    """Return whether the record store has an audit log. A store of another program has none."""
    return tx.fetch_one(_SQLITE_TABLE if tx.dialect == "sqlite" else _POSTGRES_TABLE) is not None


def lock_end(tx: Tx, workspace_id: int, *, genesis: str) -> ChainEnd:
    """Return the end of the workspace's chain, locked until the transaction ends. Create it with *genesis* if missing."""
    end = CHAIN_ENDS.find(tx, workspace_id, lock=True)
    if end is None:
        CHAIN_ENDS.add(tx, ChainEnd(workspace_id=workspace_id, seq=0, hash=genesis))
        end = CHAIN_ENDS.get(tx, workspace_id, lock=True)
    return end


def add_entry(tx: Tx, entry: AuditEntry) -> None:
    """Append *entry* to its chain, which this transaction must have locked."""
    ENTRIES.insert(tx, entry)
    CHAIN_ENDS.update(tx, ChainEnd(workspace_id=entry.workspace_id, seq=entry.seq, hash=entry.hash))


def list_chain_ends(tx: Tx) -> list[ChainEnd]:
    return CHAIN_ENDS.fetch_all(tx, _SELECT_ENDS)


def list_last_entries(tx: Tx) -> list[tuple[ChainEnd, AuditEntry | None]]:
    """Return the end of each chain with its last entry; None if that is missing or invalid."""
    ends = list[tuple[ChainEnd, AuditEntry | None]]()
    for row in tx.fetch_all(_SELECT_LAST_ENTRIES):
        end = ChainEnd(workspace_id=row.integer("end_workspace_id"), seq=row.integer("end_seq"), hash=row.text("end_hash"))
        ends.append((end, _try_entry_from_row(row)))
    return ends


def list_entries_from(tx: Tx, workspace_id: int, *, after_seq: int, limit: int) -> list[AuditEntry | None]:
    """Return the entries after *after_seq*, oldest first; None for an invalid row."""
    return [
        _try_entry_from_row(row)
        for row in tx.fetch_all(_SELECT_FROM, {"workspace_id": workspace_id, "after_seq": after_seq, "limit": limit})
    ]


def list_entry_page(tx: Tx, workspace_id: int, filters: AuditFilter, *, page: PageSlice) -> ListPage[AuditEntry]:
    """Return a page of the workspace's chain, newest first, and the total."""
    params: dict[str, Value] = {
        "workspace_id": workspace_id,
        "environment": filters.environment or "",
        "action": filters.action or "",
        "subject_id": filters.subject_id or "",
        "actor_id": filters.actor_id or "",
        "since": _TIME_BOUNDS_US[0] if filters.since is None else to_micros(filters.since),
        "until": _TIME_BOUNDS_US[1] if filters.until is None else to_micros(filters.until),
    }
    return ENTRIES.fetch_page(tx, _LIST, page, params)


def delete_chain(tx: Tx, workspace_id: int) -> None:
    """Delete the chain of a workspace that is being deleted."""
    ENTRIES.delete(tx, workspace_id)
    CHAIN_ENDS.delete(tx, workspace_id)


def _try_entry_from_row(row: Row) -> AuditEntry | None:
    try:
        return ENTRIES.from_row(row)
    except (TypeError, ValueError, OverflowError):  # A wrong type, a time out of range or invalid JSON: SQLite stores any value.
        return None
