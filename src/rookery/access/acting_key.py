"""The key that makes a change, read again inside the transaction of the change."""

from __future__ import annotations

from datetime import datetime

from rookery.access.errors import KeyExpired, KeyRevoked, KeySuspended, Unauthorised
from rookery.access.models import TEST, Actor, Key, KeyStatus, missing_scope_error
from rookery.access.scopes import grants
from rookery.access.store import keys as store
from rookery.kernel.db import Tx


def get_acting_key(tx: Tx, by: Actor, now: datetime, *, lock: bool = True) -> Key | None:
    """
    Return the key that makes the change, or None for an operator or a timer, which may change everything.

    Lock the workspace or the target key before calling this: waiting for that lock may outlast the acting key.

    Args:
        lock: Hold a shared lock on the key's row until the transaction ends.

    Raises:
        Unauthorised: The key was deleted after the guard admitted the request.
        KeyRevoked, KeyExpired: The key was revoked, was suspended or expired after the guard admitted the request.
    """
    if by.kind in {"operator", "system"}:
        return None
    row = (store.find_row_by_id_share_locked if lock else store.find_row_by_id)(tx, by.id or "")
    holder = None if row is None else store.KEYS.from_row(row)
    if holder is None or (holder.delete_after is not None and holder.delete_after <= now):
        raise Unauthorised
    if holder.suspended_at is not None and holder.revoked_at is None:
        raise KeySuspended
    status = holder.status(now)
    if status is not KeyStatus.ACTIVE:
        raise KeyExpired if status is KeyStatus.EXPIRED else KeyRevoked
    return holder


def require_acting_scope(tx: Tx, by: Actor, scope: str, now: datetime) -> None:
    """
    Raise an error unless the acting key is a live key that has *scope* now.

    Raises:
        Unauthorised, KeyRevoked, KeyExpired: As in `get_acting_key`.
        ScopeMissing, PermissionDenied: The key lacks *scope*, or is a test key.
    """
    holder = get_acting_key(tx, by, now)
    if holder is not None and (holder.environment == TEST or not grants(frozenset(holder.scopes), scope)):
        raise missing_scope_error(holder.kind, scope)
