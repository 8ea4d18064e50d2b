"""Queries of the secrets that sign webhook messages."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import bindparam, select, update

from rookery.kernel.clock import to_micros
from rookery.kernel.db import Mapper, Tx, purge_tables, upsert
from rookery.notifications.store.tables import signing_secrets


@dataclass(frozen=True, slots=True, kw_only=True)
class SigningSecretRow:
    """The encrypted secrets of a tenant; *secret* None: it was lost with its key."""

    id: str
    workspace_id: int
    secret: bytes | None
    previous_secret: bytes | None
    previous_until: datetime | None
    created_at: datetime


_SECRETS = Mapper(SigningSecretRow, signing_secrets)
_SELECT = select(signing_secrets).where(signing_secrets.c.workspace_id == bindparam("of_workspace"))
_SELECT_LOCKED = _SELECT.with_for_update()
_INSERT = upsert(signing_secrets, index_elements=["workspace_id"])
_UPDATE = update(signing_secrets).where(signing_secrets.c.id == bindparam("of_id"))
_DELETE_EXPIRED = (
    update(signing_secrets).where(signing_secrets.c.previous_until <= bindparam("now")).values(previous_secret=None, previous_until=None)
)


def find(tx: Tx, workspace_id: int, *, lock: bool = False) -> SigningSecretRow | None:
    """Return the secrets of a tenant; *lock* locks them until the transaction ends."""
    return _SECRETS.fetch_one(tx, _SELECT_LOCKED if lock else _SELECT, {"of_workspace": workspace_id})


def add(tx: Tx, row: SigningSecretRow) -> None:
    """Insert the first secret of a tenant, unless another transaction has inserted one."""
    tx.execute(_INSERT, _SECRETS.to_row(row))


def replace_secret(tx: Tx, row: SigningSecretRow) -> None:
    """Store new secrets of a tenant."""
    tx.execute(_UPDATE, {"of_id": row.id, **_SECRETS.to_row(row, ("secret", "previous_secret", "previous_until", "created_at"))})


def delete_expired(tx: Tx, now: datetime) -> int:
    """Delete previous secrets whose grace period has ended; return the number."""
    return tx.execute(_DELETE_EXPIRED, {"now": to_micros(now)})


purge = purge_tables(signing_secrets)
