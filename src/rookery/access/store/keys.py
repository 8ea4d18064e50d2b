"""Keys of both kinds in one table, since the guard reads both alike. Only the guard sees keys past their grace period."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import cast

import orjson
from sqlalchemy import BigInteger, Column, Index, Table, Text, bindparam, case, delete, func, insert, select, update

from rookery.access.models import Environment, Key, KeyKind, KeyRestrictions, KeyStatus, KeyUsage, KeyWithUsage, Tier
from rookery.kernel.clock import from_micros, to_micros
from rookery.kernel.db import Row, Tx, Value, metadata, upsert

MAX_CANDIDATES = 4
"""Maximum keys with the same lookup that are verified. Each costs one bcrypt run."""

keys = Table(
    "access_keys",
    metadata,
    Column("id", Text, primary_key=True),
    Column("kind", Text, nullable=False),
    Column("lookup", Text, nullable=False),
    Column("key_hash", Text),
    Column("workspace_id", BigInteger, nullable=False),
    Column("acts_in", BigInteger, nullable=False),
    Column("name", Text, nullable=False),
    Column("hint", Text, nullable=False),
    Column("environment", Text, nullable=False),
    Column("scopes", Text, nullable=False),
    Column("tier", Text),
    Column("rate_limit", BigInteger),
    Column("agent_id", Text),
    Column("servers", Text),
    Column("tools", Text),
    Column("orgs", Text),
    Column("projects", Text),
    Column("tool_limits", Text, nullable=False),
    Column("ip_restriction", BigInteger, nullable=False),
    Column("ip_list", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("expires_at", BigInteger),
    Column("suspended_at", BigInteger),
    Column("revoked_at", BigInteger),
    Column("delete_after", BigInteger),
    Column("call_count", BigInteger, nullable=False, server_default="0"),
    Column("last_used_at", BigInteger),
    Column("last_used_ip", Text),
    Column("expiry_due", BigInteger),
)
Index("ix_access_keys_lookup", keys.c.lookup)
Index("ix_access_keys_workspace_id_kind_id", keys.c.workspace_id, keys.c.kind, keys.c.id)
Index("ix_access_keys_delete_after", keys.c.delete_after)
Index("ix_access_keys_expiry_due", keys.c.expiry_due)

former_keys = Table(
    "access_former_keys",
    metadata,
    Column("id", Text, primary_key=True),
    Column("workspace_id", BigInteger, nullable=False),
    Column("kind", Text, nullable=False),
    Column("environment", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("deleted_at", BigInteger, nullable=False),
)
"""The names of deleted keys, whose calls and totals are still listed."""
Index("ix_access_former_keys_workspace_id", former_keys.c.workspace_id)

# `lookup` is the SHA-256 of an agent key, or the first 8 random characters of an API key. `key_hash` is an API key's bcrypt hash.
# `expiry_due` is the expiry whose event is still to be sent (D-80), else null.
# The usage columns are not part of the settings: the guard compares whole rows, and these columns change with each request.
_USAGE_COLUMNS = ("call_count", "last_used_at", "last_used_ip", "expiry_due")
_SETTINGS = tuple(column for column in keys.c if column.name not in _USAGE_COLUMNS)
_IMMUTABLE_COLUMNS = ("id", "kind", "workspace_id", "created_at", *_USAGE_COLUMNS)

_BY_ID = select(*_SETTINGS).where(keys.c.id == bindparam("id"))
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
_PAGE = select(keys).where(*_IN_WORKSPACE, _IN_STATUS).order_by(keys.c.id.desc()).limit(bindparam("limit")).offset(bindparam("offset"))
_COUNT = select(func.count().label("n")).select_from(keys).where(*_IN_WORKSPACE, _IN_STATUS)
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
    .where(keys.c.id == bindparam("at_id"), keys.c.workspace_id == bindparam("at_workspace"))
    .values({column.name: bindparam(column.name) for column in keys.c if column.name not in {*_IMMUTABLE_COLUMNS, "lookup", "key_hash"}})
    .values(
        expiry_due=case(
            (keys.c.expires_at.is_distinct_from(bindparam("expires_at", type_=BigInteger())), bindparam("expires_at", type_=BigInteger())),
            else_=keys.c.expiry_due,
        )
    )
)
_DELETE = delete(keys).where(*_IS_OF_WORKSPACE)
_ADD_FORMER = upsert(former_keys, index_elements=["id"])
_DELETE_FORMER_KEYS = delete(former_keys).where(former_keys.c.workspace_id == bindparam("workspace_id"))
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
_COUNT_KEYS = select(func.count().label("n")).select_from(keys).where(keys.c.workspace_id == bindparam("workspace_id"))
_DELETE_KEYS = delete(keys).where(keys.c.workspace_id == bindparam("workspace_id"))


def find_row_by_id(tx: Tx, key_id: str) -> Row | None:
    """Return the settings of a key of any workspace; only for the guard."""
    return tx.fetch_one(_BY_ID, {"id": key_id})


def find_row_by_id_share_locked(tx: Tx, key_id: str) -> Row | None:
    """Return the settings of a key of any workspace, with a shared lock until the transaction ends."""
    return tx.fetch_one(_BY_ID_SHARE_LOCKED, {"id": key_id})


def list_rows_by_lookup(tx: Tx, kind: KeyKind, lookup: str) -> list[Row]:
    """Return the settings of the keys with *lookup* in any workspace; only for the guard."""
    return tx.fetch_all(_BY_LOOKUP, {"lookup": lookup, "kind": kind})


def add_key(tx: Tx, key: Key, *, lookup: str, key_hash: str | None) -> None:
    """Store a new key."""
    tx.execute(_ADD, {**_key_to_row(key), "id": key.id, "kind": key.kind, "lookup": lookup, "key_hash": key_hash,
                  "workspace_id": key.workspace_id, "created_at": to_micros(key.created_at),
                  "expiry_due": None if key.expires_at is None else to_micros(key.expires_at)})  # fmt: skip


def find_key(tx: Tx, kind: KeyKind, workspace_id: int, key_id: str, *, at: int, lock: bool = False) -> KeyWithUsage | None:
    """Return a key of the workspace; *lock* locks it until the transaction ends."""
    row = tx.fetch_one(_SELECT_ONE_LOCKED if lock else _SELECT_ONE, {"id": key_id, "kind": kind, "workspace_id": workspace_id, "at": at})
    return None if row is None else key_with_usage_from_row(row)


def list_key_page(
    tx: Tx,
    kind: KeyKind,
    workspace_id: int,
    *,
    at: int,
    environment: Environment | None,
    limit: int,
    offset: int,
    status: KeyStatus | None = None,
) -> tuple[list[KeyWithUsage], int]:
    """Return a page of the workspace's keys, newest first, and the total; *environment* and *status* None: no filter."""
    params: dict[str, Value] = {
        "kind": kind,
        "workspace_id": workspace_id,
        "at": at,
        "environment": environment or "",
        "status": status.value if status else "",
    }
    rows = tx.fetch_all(_PAGE, {**params, "limit": limit, "offset": offset})
    return [key_with_usage_from_row(row) for row in rows], _count_from_row(tx.fetch_one(_COUNT, params))


def list_keys_before(
    tx: Tx, kind: KeyKind, workspace_id: int, *, at: int, environment: Environment | None, before: str, limit: int
) -> list[KeyWithUsage]:
    """Return the workspace's keys older than the key with the id *before*, newest first."""
    params: dict[str, Value] = {"kind": kind, "workspace_id": workspace_id, "at": at, "environment": environment or ""}
    return [key_with_usage_from_row(row) for row in tx.fetch_all(_BEFORE, {**params, "before": before, "limit": limit})]


def list_expiring(tx: Tx, kind: KeyKind, *, at: int, expires_by: int, limit: int) -> list[KeyWithUsage]:
    """Return active keys of all workspaces that expire by *expires_by*, the first to expire first."""
    return [
        key_with_usage_from_row(row) for row in tx.fetch_all(_EXPIRING, {"kind": kind, "at": at, "expires_by": expires_by, "limit": limit})
    ]


def list_unused(tx: Tx, kind: KeyKind, grant: str, *, at: int, unused_since: int, limit: int) -> list[KeyWithUsage]:
    """Return active keys of all workspaces with *grant* that were neither used nor created after *unused_since*."""
    params: dict[str, Value] = {"kind": kind, "at": at, "grant": f'%"{grant}"%', "idle_since": unused_since, "limit": limit}
    return [key_with_usage_from_row(row) for row in tx.fetch_all(_UNUSED, params)]


def update_key(tx: Tx, key: Key) -> None:
    """Store the settings of *key*. Its secret, kind, workspace and creation time do not change."""
    tx.execute(_CHANGE, {**_key_to_row(key), "at_id": key.id, "at_workspace": key.workspace_id})


def delete_key(tx: Tx, key: Key, *, at: int) -> bool:
    """Delete a key and store its name as a former key; return False if it was already deleted."""
    if not tx.execute(_DELETE, {"id": key.id, "kind": key.kind, "workspace_id": key.workspace_id}):
        return False
    tx.execute(
        _ADD_FORMER,
        {
            "id": key.id,
            "workspace_id": key.workspace_id,
            "kind": key.kind,
            "environment": key.environment,
            "name": key.name,
            "deleted_at": at,
        },
    )
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
    return [key_with_usage_from_row(row) for row in tx.fetch_all(_PRUNABLE_LOCKED if lock else _PRUNABLE, params)]


def list_past_grace(tx: Tx, kind: KeyKind, *, at: int, lock: bool) -> list[KeyWithUsage]:
    """Return the keys of all workspaces past their grace period."""
    return [key_with_usage_from_row(row) for row in tx.fetch_all(_PAST_GRACE_LOCKED if lock else _PAST_GRACE, {"kind": kind, "at": at})]


def list_expired_unannounced(tx: Tx, kind: KeyKind, *, at: int, lock: bool) -> list[KeyWithUsage]:
    """Return the expired keys of all workspaces whose expiry event was not sent yet."""
    rows = tx.fetch_all(_EXPIRED_UNANNOUNCED_LOCKED if lock else _EXPIRED_UNANNOUNCED, {"kind": kind, "at": at})
    return [key_with_usage_from_row(row) for row in rows]


def mark_expiry_announced(tx: Tx, ids: Sequence[str]) -> None:
    """Mark the expiry events of these keys as sent. A new expiry of a key gets an event of its own."""
    tx.execute_many(_MARK_ANNOUNCED, [{"of_id": key_id} for key_id in ids])


def delete_keys(tx: Tx, workspace_id: int) -> None:
    """Delete all keys of the workspace; they are invalid from the commit on."""
    tx.execute(_DELETE_KEYS, {"workspace_id": workspace_id})
    tx.execute(_DELETE_FORMER_KEYS, {"workspace_id": workspace_id})


def count_keys(tx: Tx, workspace_id: int) -> int:
    """Return the number of keys of both kinds in the workspace."""
    return _count_from_row(tx.fetch_one(_COUNT_KEYS, {"workspace_id": workspace_id}))


def key_with_usage_from_row(row: Row) -> KeyWithUsage:
    """Return the key and the usage of a full row."""
    usage = KeyUsage(
        call_count=row.integer("call_count"), last_used_at=_optional_time(row, "last_used_at"), last_used_ip=row.maybe_text("last_used_ip")
    )
    return KeyWithUsage(key=key_from_row(row), usage=usage, digest=row.maybe_text("key_hash") or row.text("lookup"))


def key_from_row(row: Row) -> Key:
    """Return the key of a row with the settings columns."""
    tier = row.maybe_text("tier")
    return Key(
        id=row.text("id"),
        kind=cast("KeyKind", row.text("kind")),
        name=row.text("name"),
        workspace_id=row.integer("workspace_id"),
        tenant_id=row.integer("acts_in"),
        environment=cast("Environment", row.text("environment")),
        scopes=tuple(_decode_list(row.text("scopes"))),
        tier=None if tier is None else Tier(tier),
        rate_limit=row.maybe_integer("rate_limit"),
        agent_id=row.maybe_text("agent_id"),
        restrictions=KeyRestrictions(
            servers=_decode_name_set(row.maybe_text("servers")),
            tools=None if (tools := row.maybe_text("tools")) is None else tuple(_decode_list(tools)),
            orgs=_decode_name_set(row.maybe_text("orgs")),
            projects=_decode_name_set(row.maybe_text("projects")),
            tool_limits=cast("dict[str, int]", orjson.loads(row.text("tool_limits"))),
        ),
        hint=row.text("hint"),
        ip_restriction=row.flag("ip_restriction"),
        ip_list=tuple(_decode_list(row.text("ip_list"))),
        created_at=from_micros(row.integer("created_at")),
        expires_at=_optional_time(row, "expires_at"),
        suspended_at=_optional_time(row, "suspended_at"),
        revoked_at=_optional_time(row, "revoked_at"),
        delete_after=_optional_time(row, "delete_after"),
    )


def _key_to_row(key: Key) -> dict[str, Value]:
    restrictions = key.restrictions
    times = {"expires_at": key.expires_at, "suspended_at": key.suspended_at, "revoked_at": key.revoked_at, "delete_after": key.delete_after}
    return {
        "acts_in": key.tenant_id,
        "name": key.name,
        "hint": key.hint,
        "environment": key.environment,
        "scopes": _encode_list(key.scopes),
        "tier": key.tier and key.tier.value,
        "rate_limit": key.rate_limit,
        "agent_id": key.agent_id,
        "servers": None if restrictions.servers is None else _encode_list(sorted(restrictions.servers)),
        "tools": None if restrictions.tools is None else _encode_list(restrictions.tools),
        "orgs": None if restrictions.orgs is None else _encode_list(sorted(restrictions.orgs)),
        "projects": None if restrictions.projects is None else _encode_list(sorted(restrictions.projects)),
        "tool_limits": orjson.dumps(dict(restrictions.tool_limits)).decode(),
        "ip_restriction": int(key.ip_restriction),
        "ip_list": _encode_list(key.ip_list),
        **{name: None if time is None else to_micros(time) for name, time in times.items()},
    }


def _optional_time(row: Row, name: str) -> datetime | None:
    micros = row.maybe_integer(name)
    return None if micros is None else from_micros(micros)


def _count_from_row(row: Row | None) -> int:
    return 0 if row is None else row.integer("n")


def _encode_list(texts: Sequence[str]) -> str:
    return orjson.dumps(list(texts)).decode()


def _decode_list(text: str) -> list[str]:
    return cast("list[str]", orjson.loads(text))


def _decode_name_set(text: str | None) -> frozenset[str] | None:
    return None if text is None else frozenset(_decode_list(text))
