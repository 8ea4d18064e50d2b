"""The audit log: an append-only chain of entries for each workspace, and the end of each chain."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import orjson
from sqlalchemy import BigInteger, Column, Index, PrimaryKeyConstraint, Table, Text, bindparam, delete, func, insert, select, update

from rookery.access.models import ActorKind, AuditEntry, AuditFilter, ChainEnd, Environment
from rookery.kernel.clock import from_micros, to_micros
from rookery.kernel.db import Row, Tx, Value, metadata, upsert

entries = Table(
    "access_audit",
    metadata,
    Column("workspace_id", BigInteger, nullable=False),
    Column("seq", BigInteger, nullable=False),
    Column("at", BigInteger, nullable=False),
    Column("actor_kind", Text, nullable=False),
    Column("actor_id", Text),
    Column("actor_name", Text, nullable=False),
    Column("address", Text),
    Column("request_id", Text),
    Column("action", Text, nullable=False),
    Column("subject_kind", Text, nullable=False),
    Column("subject_id", Text, nullable=False),
    Column("subject_name", Text, nullable=False),
    Column("environment", Text, nullable=False),
    Column("before", Text),
    Column("after", Text),
    Column("previous", Text, nullable=False),
    Column("hash", Text, nullable=False),
    PrimaryKeyConstraint("workspace_id", "seq"),
)
Index("ix_access_audit_workspace_id_subject_id", entries.c.workspace_id, entries.c.subject_id)

chain_end_rows = Table(
    "access_audit_ends",
    metadata,
    Column("workspace_id", BigInteger, primary_key=True, autoincrement=False),
    Column("seq", BigInteger, nullable=False),
    Column("hash", Text, nullable=False),
)
"""The last entry of each chain. Writers lock its row, and it reveals a truncated chain."""

_INSERT_END = upsert(chain_end_rows, index_elements=["workspace_id"])
_SELECT_END = select(chain_end_rows).where(chain_end_rows.c.workspace_id == bindparam("workspace_id"))
_SELECT_END_LOCKED = _SELECT_END.with_for_update()
_UPDATE_END = (
    update(chain_end_rows)
    .where(chain_end_rows.c.workspace_id == bindparam("of_workspace"))
    .values(seq=bindparam("seq", type_=BigInteger()), hash=bindparam("hash", type_=Text()))
)
_ADD = insert(entries)
_SELECT_ENDS = select(chain_end_rows).order_by(chain_end_rows.c.workspace_id)
_SELECT_LAST_ENTRIES = (
    select(
        chain_end_rows.c.workspace_id.label("of_workspace"),
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
_PAGE = (
    select(entries)
    .where(*_FILTERS)  # pyright: ignore[reportArgumentType] - each is a condition
    .order_by(entries.c.seq.desc())
    .limit(bindparam("limit"))
    .offset(bindparam("offset"))
)
_COUNT = select(func.count().label("n")).select_from(entries).where(*_FILTERS)  # pyright: ignore[reportArgumentType] - as above
_DELETE = delete(entries).where(entries.c.workspace_id == bindparam("workspace_id"))
_DELETE_END = delete(chain_end_rows).where(chain_end_rows.c.workspace_id == bindparam("workspace_id"))

_TIME_BOUNDS_US = (0, 2**62)


def lock_end(tx: Tx, workspace_id: int, *, genesis: str) -> ChainEnd:
    """Return the end of the workspace's chain, locked until the transaction ends. Create it with *genesis* if missing."""
    row = tx.fetch_one(_SELECT_END_LOCKED, {"workspace_id": workspace_id})
    if row is None:
        tx.execute(_INSERT_END, {"workspace_id": workspace_id, "seq": 0, "hash": genesis})
        row = tx.fetch_one(_SELECT_END_LOCKED, {"workspace_id": workspace_id})
    if row is None:
        msg = "the row of a new audit chain is missing"
        raise AssertionError(msg)
    return _chain_end_from_row(row)


def add_entry(tx: Tx, entry: AuditEntry) -> None:
    """Append *entry* to its chain, which this transaction must have locked."""
    tx.execute(
        _ADD,
        {
            "workspace_id": entry.workspace_id,
            "seq": entry.seq,
            "at": to_micros(entry.at),
            "actor_kind": entry.actor_kind,
            "actor_id": entry.actor_id,
            "actor_name": entry.actor_name,
            "address": entry.address,
            "request_id": entry.request_id,
            "action": entry.action,
            "subject_kind": entry.subject_kind,
            "subject_id": entry.subject_id,
            "subject_name": entry.subject_name,
            "environment": entry.environment,
            "before": _encode_json(entry.before),
            "after": _encode_json(entry.after),
            "previous": entry.previous,
            "hash": entry.hash,
        },
    )
    tx.execute(_UPDATE_END, {"of_workspace": entry.workspace_id, "seq": entry.seq, "hash": entry.hash})


def list_chain_ends(tx: Tx) -> list[ChainEnd]:
    """Return the end of each chain of all workspaces."""
    return [_chain_end_from_row(row) for row in tx.fetch_all(_SELECT_ENDS)]


def list_last_entries(tx: Tx) -> list[tuple[ChainEnd, AuditEntry | None]]:
    """Return the end of each chain with its last entry; None if that is missing or invalid."""
    ends = list[tuple[ChainEnd, AuditEntry | None]]()
    for row in tx.fetch_all(_SELECT_LAST_ENTRIES):
        end = ChainEnd(workspace_id=row.integer("of_workspace"), seq=row.integer("end_seq"), hash=row.text("end_hash"))
        ends.append((end, _try_entry_from_row(row)))
    return ends


def find_end(tx: Tx, workspace_id: int) -> ChainEnd | None:
    """Return the end of the workspace's chain, if it has one."""
    row = tx.fetch_one(_SELECT_END, {"workspace_id": workspace_id})
    return None if row is None else _chain_end_from_row(row)


def list_entries_from(tx: Tx, workspace_id: int, *, after_seq: int, limit: int) -> list[AuditEntry | None]:
    """Return the entries after *after_seq*, oldest first; None for an invalid row."""
    return [
        _try_entry_from_row(row)
        for row in tx.fetch_all(_SELECT_FROM, {"workspace_id": workspace_id, "after_seq": after_seq, "limit": limit})
    ]


def list_entry_page(tx: Tx, workspace_id: int, filters: AuditFilter, *, limit: int, offset: int) -> tuple[list[AuditEntry], int]:
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
    count_row = tx.fetch_one(_COUNT, params)
    rows = tx.fetch_all(_PAGE, {**params, "limit": limit, "offset": offset})
    return [_entry_from_row(row) for row in rows], 0 if count_row is None else count_row.integer("n")


def delete_chain(tx: Tx, workspace_id: int) -> None:
    """Delete the chain of a workspace that is being deleted."""
    tx.execute(_DELETE, {"workspace_id": workspace_id})
    tx.execute(_DELETE_END, {"workspace_id": workspace_id})


def _chain_end_from_row(row: Row) -> ChainEnd:
    return ChainEnd(workspace_id=row.integer("workspace_id"), seq=row.integer("seq"), hash=row.text("hash"))


def _try_entry_from_row(row: Row) -> AuditEntry | None:
    try:
        return _entry_from_row(row)
    except (TypeError, ValueError, OverflowError):  # A wrong type, a time out of range or invalid JSON: SQLite stores any value.
        return None


def _entry_from_row(row: Row) -> AuditEntry:
    return AuditEntry(
        workspace_id=row.integer("workspace_id"),
        seq=row.integer("seq"),
        at=from_micros(row.integer("at")),
        actor_kind=cast("ActorKind", row.text("actor_kind")),
        actor_id=row.maybe_text("actor_id"),
        actor_name=row.text("actor_name"),
        address=row.maybe_text("address"),
        request_id=row.maybe_text("request_id"),
        action=row.text("action"),
        subject_kind=row.text("subject_kind"),
        subject_id=row.text("subject_id"),
        subject_name=row.text("subject_name"),
        environment=cast("Environment", row.text("environment")),
        before=_decode_json(row.maybe_text("before")),
        after=_decode_json(row.maybe_text("after")),
        previous=row.text("previous"),
        hash=row.text("hash"),
    )


def _encode_json(value: Mapping[str, object] | None) -> str | None:
    return None if value is None else orjson.dumps(dict(value), option=orjson.OPT_SORT_KEYS).decode()


def _decode_json(text: str | None) -> Mapping[str, object] | None:
    value: object = None if text is None else orjson.loads(text)
    if value is not None and not isinstance(value, dict):
        msg = "the fields of an entry are not a JSON object"
        raise TypeError(msg)
    return cast("dict[str, object] | None", value)
