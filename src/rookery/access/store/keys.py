"""Keys of both kinds in one table, since the guard reads both alike. Only the guard sees keys past their grace period."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import BigInteger, Column, Index, Text, bindparam, case, func, insert, select, union_all, update

from rookery.access.models import Environment, Key, KeyKind, KeyRestrictions, KeyStatus, KeyUsage, KeyWithUsage
from rookery.kernel.clock import from_micros
from rookery.kernel.db import KeysetList, Mapper, Nested, Row, Statement, Tx, Value, map_table, match_part
from rookery.kernel.pages import ListPage, PageSlice

MAX_CANDIDATES = 4
"""Maximum keys with the same lookup that are verified. Each costs one bcrypt run."""

keys, KEYS = map_table(
    "access_keys",
    Key,
    Column("lookup", Text, nullable=False),
    Column("key_hash", Text),
    Column("call_count", BigInteger, nullable=False, server_default="0"),
    Column("last_used_at", BigInteger),
    Column("last_used_ip", Text),
    Column("expiry_due", BigInteger),
    columns={"tenant_id": "acts_in", "rate_limit_tier": "tier"},
    nested={"restrictions": Nested(KeyRestrictions)},
)
Index("ix_access_keys_lookup", keys.c.lookup)
Index("ix_access_keys_workspace_id_kind_id", keys.c.workspace_id, keys.c.kind, keys.c.id)
Index("ix_access_keys_delete_after", keys.c.delete_after)
Index("ix_access_keys_expiry_due", keys.c.expiry_due)

_USAGE = Mapper(KeyUsage, keys)


@dataclass(frozen=True, slots=True, kw_only=True)
class FormerKey:
    """A deleted key, whose calls and totals are still listed."""

    id: str
    workspace_id: int
    kind: KeyKind
    environment: Environment
    name: str
    deleted_at: datetime


former_keys, FORMER_KEYS = map_table("access_former_keys", FormerKey)
Index("ix_access_former_keys_workspace_id", former_keys.c.workspace_id)

# `lookup` is the SHA-256 of an agent key, or the first 8 random characters of an API key. `key_hash` is an API key's bcrypt hash.
# `expiry_due` is the expiry whose event is still to be sent, else null.
# The usage columns are not part of the settings: the guard compares whole rows, and these columns change with each request.
_USAGE_COLUMNS = ("call_count", "last_used_at", "last_used_ip", "expiry_due")
_SETTINGS = tuple(column for column in keys.c if column.name not in _USAGE_COLUMNS)
_IMMUTABLE_COLUMNS = ("id", "kind", "lookup", "key_hash", "workspace_id", "created_at", *_USAGE_COLUMNS)
_MUTABLE_COLUMNS = tuple(column.name for column in keys.c if column.name not in _IMMUTABLE_COLUMNS)

_BY_ID = select(*_SETTINGS).where(keys.c.id == bindparam("id"))
_BY_IDS = select(*_SETTINGS).where(keys.c.id.in_(bindparam("ids", expanding=True)))
_NAMES = union_all(
    select(keys.c.id, keys.c.name).where(keys.c.id.in_(bindparam("ids", expanding=True))),
    select(former_keys.c.id, former_keys.c.name).where(former_keys.c.id.in_(bindparam("ids", expanding=True))),
)
_BY_LOOKUP = (
    select(*_SETTINGS)
    .where(keys.c.lookup == bindparam("lookup"), keys.c.kind == bindparam("kind"))
    .order_by(keys.c.id)
    .limit(MAX_CANDIDATES)
)
_BY_ID_SHARE_LOCKED = _BY_ID.with_for_update(read=True)
_ADD = insert(keys)
_IS_OF_WORKSPACE = (keys.c.id == bindparam("id"), keys.c.workspace_id == bindparam("workspace_id"), keys.c.kind == bindparam("kind"))
_NOT_PAST_GRACE = keys.c.delete_after.is_(None) | (keys.c.delete_after > bindparam("at"))
_IN_ENVIRONMENT = (bindparam("environment", type_=Text()) == "") | (keys.c.environment == bindparam("environment"))
_IN_WORKSPACE = (keys.c.workspace_id == bindparam("workspace_id"), keys.c.kind == bindparam("kind"), _NOT_PAST_GRACE, _IN_ENVIRONMENT)
_SELECT_ONE = select(keys).where(*_IS_OF_WORKSPACE, _NOT_PAST_GRACE)
_SELECT_ONE_LOCKED = _SELECT_ONE.with_for_update()
_STATUS = case(
    (keys.c.revoked_at.is_not(None) | keys.c.suspended_at.is_not(None), KeyStatus.REVOKED.value),
    (keys.c.expires_at <= bindparam("at"), KeyStatus.EXPIRED.value),
    else_=KeyStatus.ACTIVE.value,
)
"""The same rule as `Key.status`."""
_IN_STATUS = (bindparam("status", type_=Text()) == "") | (bindparam("status", type_=Text()) == _STATUS)
_HAS_WORDS = func.lower(keys.c.name).like(bindparam("pattern", type_=Text()), escape="\\")
_LIST = KeysetList(select(keys).where(*_IN_WORKSPACE, _IN_STATUS, _HAS_WORDS), keys.c.id.desc())
_BEFORE = select(keys).where(*_IN_WORKSPACE, keys.c.id < bindparam("before")).order_by(keys.c.id.desc()).limit(bindparam("limit"))
_ACTIVE = (
    keys.c.kind == bindparam("kind"),
    keys.c.revoked_at.is_(None),
    keys.c.suspended_at.is_(None),
    keys.c.delete_after.is_(None),
    keys.c.expires_at.is_(None) | (keys.c.expires_at > bindparam("at")),
)
_EXPIRING = (
    select(keys)
    .where(*_ACTIVE, keys.c.expires_at <= bindparam("expires_by"))
    .order_by(keys.c.expires_at, keys.c.id)
    .limit(bindparam("limit"))
)
_UNUSED = (
    select(keys)
    .where(
        *_ACTIVE, keys.c.scopes.like(bindparam("grant")), func.coalesce(keys.c.last_used_at, keys.c.created_at) <= bindparam("idle_since")
    )
    .order_by(keys.c.id)
    .limit(bindparam("limit"))
)
_CHANGE = (
    update(keys)
    .where(keys.c.id == bindparam("of_id"), keys.c.workspace_id == bindparam("of_workspace_id"))
    .values({name: bindparam(name) for name in _MUTABLE_COLUMNS})
    .values(
        expiry_due=case(
            (keys.c.expires_at.is_distinct_from(bindparam("expires_at", type_=BigInteger())), bindparam("expires_at", type_=BigInteger())),
            else_=keys.c.expiry_due,
        )
    )
)
_AGENT_IDS = select(keys.c.agent_id).where(keys.c.workspace_id == bindparam("workspace_id"), keys.c.kind == "agent")
_IS_EXPIRED = (keys.c.delete_after <= bindparam("at")) | (keys.c.expires_at <= bindparam("expired_at"))
_IN_ANY_WORKSPACE = (bindparam("any_workspace", type_=BigInteger()) == 1) | (keys.c.workspace_id == bindparam("workspace_id"))
_PRUNABLE = select(keys).where(keys.c.kind == bindparam("kind"), _IS_EXPIRED, _IN_ANY_WORKSPACE).order_by(keys.c.id)
_PRUNABLE_LOCKED = _PRUNABLE.with_for_update()
_PAST_GRACE = select(keys).where(keys.c.delete_after <= bindparam("at"), keys.c.kind == bindparam("kind")).order_by(keys.c.id)
_PAST_GRACE_LOCKED = _PAST_GRACE.with_for_update()
_EXPIRED_UNANNOUNCED = select(keys).where(keys.c.expiry_due <= bindparam("at"), keys.c.kind == bindparam("kind")).order_by(keys.c.id)
_EXPIRED_UNANNOUNCED_LOCKED = _EXPIRED_UNANNOUNCED.with_for_update()
_MARK_ANNOUNCED = update(keys).where(keys.c.id == bindparam("of_id")).values(expiry_due=None)


def find_row_by_id(tx: Tx, key_id: str) -> Row | None:
    """Return the settings of a key of any workspace; only for the guard."""
    return tx.fetch_one(_BY_ID, {"id": key_id})


def find_row_by_id_share_locked(tx: Tx, key_id: str) -> Row | None:
    """Return the settings of a key of any workspace, with a shared lock until the transaction ends."""
    return tx.fetch_one(_BY_ID_SHARE_LOCKED, {"id": key_id})


def find_names(tx: Tx, tenant_id: int, key_ids: Sequence[str]) -> dict[str, str]:
    """Return the names of those of *key_ids* whose requests belong to a tenant, by id."""
    return {key.id: key.name for key in KEYS.fetch_all(tx, _BY_IDS, {"ids": key_ids}) if key.tenant_id == tenant_id}


def find_former_and_current_names(tx: Tx, key_ids: Sequence[str]) -> dict[str, str]:
    """Return the names of *key_ids* of any workspace, deleted keys included; only for rows that the caller may see."""
    return {row.text("id"): row.text("name") for row in tx.fetch_all(_NAMES, {"ids": key_ids})} if key_ids else {}


def list_rows_by_lookup(tx: Tx, kind: KeyKind, lookup: str) -> list[Row]:
    """Return the settings of the keys with *lookup* in any workspace; only for the guard."""
    return tx.fetch_all(_BY_LOOKUP, {"lookup": lookup, "kind": kind})


def add_key(tx: Tx, key: Key, *, lookup: str, key_hash: str | None) -> None:
    row = KEYS.to_row(key)
    tx.execute(_ADD, {**row, "lookup": lookup, "key_hash": key_hash, "expiry_due": row["expires_at"]})


def find_key(tx: Tx, kind: KeyKind, workspace_id: int, key_id: str, *, at: int, lock: bool = False) -> KeyWithUsage | None:
    """Return a key of the workspace; *lock* locks it until the transaction ends."""
    statement = _SELECT_ONE_LOCKED if lock else _SELECT_ONE
    matches = _fetch_keys(tx, statement, {"id": key_id, "kind": kind, "workspace_id": workspace_id, "at": at})
    return matches[0] if matches else None


def list_key_page(
    tx: Tx,
    kind: KeyKind,
    workspace_id: int,
    *,
    at: int,
    environment: Environment | None,
    page: PageSlice,
    status: KeyStatus | None = None,
    text: str = "",
) -> ListPage[KeyWithUsage]:
    """
    Return a page of the workspace's keys, newest first, and the total; *environment* and *status* None: no filter.

    Args:
        text: A part of the name, in upper or lower case.
    """
    params: dict[str, Value] = {
        "kind": kind,
        "workspace_id": workspace_id,
        "at": at,
        "environment": environment or "",
        "status": status.value if status else "",
        "pattern": match_part(text),
    }
    return _LIST.fetch(tx, page, params, _key_from_row)


def list_keys_before(
    tx: Tx, kind: KeyKind, workspace_id: int, *, at: int, environment: Environment | None, before: str, limit: int
) -> list[KeyWithUsage]:
    """Return the workspace's keys older than the key with the id *before*, newest first."""
    params: dict[str, Value] = {"kind": kind, "workspace_id": workspace_id, "at": at, "environment": environment or ""}
    return _fetch_keys(tx, _BEFORE, {**params, "before": before, "limit": limit})


def list_expiring(tx: Tx, kind: KeyKind, *, at: int, expires_by: int, limit: int) -> list[KeyWithUsage]:
    """Return active keys of all workspaces that expire by *expires_by*, the first to expire first."""
    return _fetch_keys(tx, _EXPIRING, {"kind": kind, "at": at, "expires_by": expires_by, "limit": limit})


def list_unused(tx: Tx, kind: KeyKind, grant: str, *, at: int, unused_since: int, limit: int) -> list[KeyWithUsage]:
    """Return active keys of all workspaces with *grant* that were neither used nor created after *unused_since*."""
    params: dict[str, Value] = {"kind": kind, "at": at, "grant": f'%"{grant}"%', "idle_since": unused_since, "limit": limit}
    return _fetch_keys(tx, _UNUSED, params)


def update_key(tx: Tx, key: Key) -> None:
    """Store the settings of *key*. Its secret, kind, workspace and creation time do not change."""
    tx.execute(_CHANGE, {**KEYS.to_row(key, _MUTABLE_COLUMNS), "of_id": key.id, "of_workspace_id": key.workspace_id})


def delete_key(tx: Tx, key: Key, *, at: int) -> bool:
    """Delete a key and store its name as a former key; return False if it was already deleted."""
    if not KEYS.delete(tx, key.workspace_id, id=key.id, kind=key.kind):
        return False
    former_key = FormerKey(
        id=key.id, workspace_id=key.workspace_id, kind=key.kind, environment=key.environment, name=key.name, deleted_at=from_micros(at)
    )
    FORMER_KEYS.add(tx, former_key)
    return True


def list_agent_ids(tx: Tx, workspace_id: int) -> set[str]:
    """Return the agent_ids of the workspace's agent keys."""
    return {name for row in tx.fetch_all(_AGENT_IDS, {"workspace_id": workspace_id}) if (name := row.maybe_text("agent_id"))}


def list_prunable(tx: Tx, kind: KeyKind, *, at: int, expired_at: int, workspace_id: int | None, lock: bool) -> list[KeyWithUsage]:
    """Return the keys of one or all workspaces past their grace at *at* or expired at *expired_at*; *lock* locks them."""
    params: dict[str, Value] = {
        "kind": kind,
        "at": at,
        "expired_at": expired_at,
        "any_workspace": int(workspace_id is None),
        "workspace_id": workspace_id or 0,
    }
    return _fetch_keys(tx, _PRUNABLE_LOCKED if lock else _PRUNABLE, params)


def list_past_grace(tx: Tx, kind: KeyKind, *, at: int, lock: bool) -> list[KeyWithUsage]:
    """Return the keys of all workspaces past their grace period."""
    return _fetch_keys(tx, _PAST_GRACE_LOCKED if lock else _PAST_GRACE, {"kind": kind, "at": at})


def list_expired_unannounced(tx: Tx, kind: KeyKind, *, at: int, lock: bool) -> list[KeyWithUsage]:
    """Return the expired keys of all workspaces whose expiry event was not sent yet."""
    return _fetch_keys(tx, _EXPIRED_UNANNOUNCED_LOCKED if lock else _EXPIRED_UNANNOUNCED, {"kind": kind, "at": at})


def mark_expiry_announced(tx: Tx, ids: Sequence[str]) -> None:
    """Mark the expiry events of these keys as sent. A new expiry of a key gets an event of its own."""
    tx.execute_many(_MARK_ANNOUNCED, [{"of_id": key_id} for key_id in ids])


def delete_keys(tx: Tx, workspace_id: int) -> None:
    """Delete all keys of the workspace; they are invalid from the commit on."""
    KEYS.delete(tx, workspace_id)
    FORMER_KEYS.delete(tx, workspace_id)


def _fetch_keys(tx: Tx, statement: Statement, params: Mapping[str, Value]) -> list[KeyWithUsage]:
    return [_key_from_row(row) for row in tx.fetch_all(statement, params)]


def _key_from_row(row: Row) -> KeyWithUsage:
    return KeyWithUsage(key=KEYS.from_row(row), usage=_USAGE.from_row(row), digest=row.maybe_text("key_hash") or row.text("lookup"))
