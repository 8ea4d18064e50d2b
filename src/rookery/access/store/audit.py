"""The audit log: entries that are only ever added, a chain of them for each workspace, and where each chain ends."""

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

ends = Table(
    "access_audit_ends",
    metadata,
    Column("workspace_id", BigInteger, primary_key=True, autoincrement=False),
    Column("seq", BigInteger, nullable=False),
    Column("hash", Text, nullable=False),
)
"""The last entry of each chain: locked by who adds one, and by which a chain that was cut short is told."""

_BEGIN = upsert(ends, index_elements=["workspace_id"])
_END = select(ends).where(ends.c.workspace_id == bindparam("workspace_id"))
_END_LOCKED = _END.with_for_update()
_MOVE = (
    update(ends)
    .where(ends.c.workspace_id == bindparam("of_workspace"))
    .values(seq=bindparam("seq", type_=BigInteger()), hash=bindparam("hash", type_=Text()))
)
_ADD = insert(entries)
_ENDS = select(ends).order_by(ends.c.workspace_id)
_LASTS = (
    select(ends.c.workspace_id.label("of_workspace"), ends.c.seq.label("end_seq"), ends.c.hash.label("end_hash"), entries)
    .select_from(ends.outerjoin(entries, (entries.c.workspace_id == ends.c.workspace_id) & (entries.c.seq == ends.c.seq)))
    .order_by(ends.c.workspace_id)
)
_FROM = (
    select(entries)
    .where(entries.c.workspace_id == bindparam("workspace_id"), entries.c.seq > bindparam("after_seq"))
    .order_by(entries.c.seq)
    .limit(bindparam("limit"))
)


def _unless_given(name: str, column: Column[str]) -> object:
    return (bindparam(name, type_=Text()) == "") | (column == bindparam(name))


_WHICH = (
    entries.c.workspace_id == bindparam("workspace_id"),
    _unless_given("environment", entries.c.environment),
    _unless_given("action", entries.c.action),
    _unless_given("subject_id", entries.c.subject_id),
    _unless_given("actor_id", entries.c.actor_id),
    entries.c.at >= bindparam("since"),
    entries.c.at < bindparam("until"),
)
_PAGE = (
    select(entries)
    .where(*_WHICH)  # pyright: ignore[reportArgumentType] - each is a condition
    .order_by(entries.c.seq.desc())
    .limit(bindparam("limit"))
    .offset(bindparam("offset"))
)
_COUNT = select(func.count().label("n")).select_from(entries).where(*_WHICH)  # pyright: ignore[reportArgumentType] - as above
_DELETE = delete(entries).where(entries.c.workspace_id == bindparam("workspace_id"))
_DELETE_END = delete(ends).where(ends.c.workspace_id == bindparam("workspace_id"))

_ALWAYS = (0, 2**62)


def lock_end(tx: Tx, workspace_id: int, *, genesis: str) -> ChainEnd:
    """Return where the workspace's chain ends, begun with *genesis* if there was none; nobody else adds before this transaction ends."""
    row = tx.one(_END_LOCKED, {"workspace_id": workspace_id})
    if row is None:
        tx.run(_BEGIN, {"workspace_id": workspace_id, "seq": 0, "hash": genesis})
        row = tx.one(_END_LOCKED, {"workspace_id": workspace_id})
    if row is None:
        msg = "the chain that was just begun is not there"
        raise AssertionError(msg)
    return _end_of(row)


def add_entry(tx: Tx, entry: AuditEntry) -> None:
    """Add *entry* at the end of its chain, which this transaction has locked."""
    tx.run(
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
            "before": _json(entry.before),
            "after": _json(entry.after),
            "previous": entry.previous,
            "hash": entry.hash,
        },
    )
    tx.run(_MOVE, {"of_workspace": entry.workspace_id, "seq": entry.seq, "hash": entry.hash})


def chain_ends(tx: Tx) -> list[ChainEnd]:
    """Return where each chain ends, of all workspaces."""
    return [_end_of(row) for row in tx.all(_ENDS)]


def last_entries(tx: Tx) -> list[tuple[ChainEnd, AuditEntry | None]]:
    """Return where each chain ends, with the entry that is there; None: none is, or it was altered."""
    found = list[tuple[ChainEnd, AuditEntry | None]]()
    for row in tx.all(_LASTS):
        end = ChainEnd(workspace_id=row.integer("of_workspace"), seq=row.integer("end_seq"), hash=row.text("end_hash"))
        found.append((end, _readable(row)))
    return found


def find_end(tx: Tx, workspace_id: int) -> ChainEnd | None:
    """Return where the workspace's chain ends, if it has one."""
    row = tx.one(_END, {"workspace_id": workspace_id})
    return None if row is None else _end_of(row)


def entries_from(tx: Tx, workspace_id: int, *, after_seq: int, limit: int) -> list[AuditEntry | None]:
    """Return the entries after that number, oldest first; None for a row that no entry of ours can have been."""
    return [_readable(row) for row in tx.all(_FROM, {"workspace_id": workspace_id, "after_seq": after_seq, "limit": limit})]


def page_of_entries(tx: Tx, workspace_id: int, which: AuditFilter, *, limit: int, offset: int) -> tuple[list[AuditEntry], int]:
    """Return entries of the workspace's chain, newest first, and how many there are in all."""
    params: dict[str, Value] = {
        "workspace_id": workspace_id,
        "environment": which.environment or "",
        "action": which.action or "",
        "subject_id": which.subject_id or "",
        "actor_id": which.actor_id or "",
        "since": _ALWAYS[0] if which.since is None else to_micros(which.since),
        "until": _ALWAYS[1] if which.until is None else to_micros(which.until),
    }
    counted = tx.one(_COUNT, params)
    rows = tx.all(_PAGE, {**params, "limit": limit, "offset": offset})
    return [_entry_of(row) for row in rows], 0 if counted is None else counted.integer("n")


def delete_chain(tx: Tx, workspace_id: int) -> None:
    """Delete the workspace's chain, with the workspace."""
    tx.run(_DELETE, {"workspace_id": workspace_id})
    tx.run(_DELETE_END, {"workspace_id": workspace_id})


def _end_of(row: Row) -> ChainEnd:
    return ChainEnd(workspace_id=row.integer("workspace_id"), seq=row.integer("seq"), hash=row.text("hash"))


def _readable(row: Row) -> AuditEntry | None:
    try:
        return _entry_of(row)
    except (TypeError, ValueError, OverflowError):  # another type in the column, a time past all years, no JSON: SQLite holds anything
        return None


def _entry_of(row: Row) -> AuditEntry:
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
        before=_object(row.maybe_text("before")),
        after=_object(row.maybe_text("after")),
        previous=row.text("previous"),
        hash=row.text("hash"),
    )


def _json(value: Mapping[str, object] | None) -> str | None:
    return None if value is None else orjson.dumps(dict(value), option=orjson.OPT_SORT_KEYS).decode()


def _object(text: str | None) -> Mapping[str, object] | None:
    value: object = None if text is None else orjson.loads(text)
    if value is not None and not isinstance(value, dict):
        msg = "an entry's fields are no JSON object"
        raise TypeError(msg)
    return cast("dict[str, object] | None", value)
