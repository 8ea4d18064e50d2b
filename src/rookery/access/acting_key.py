"""The key that makes a change, as it is at the very moment of the change (D-24)."""

from __future__ import annotations

from datetime import datetime

from rookery.access.errors import KeyExpired, KeyRevoked, Unauthorised
from rookery.access.models import TEST, Actor, Key, KeyStatus, missing_scope_error
from rookery.access.scopes import grants
from rookery.access.store import keys as store
from rookery.kernel.db import Tx


def get_acting_key(tx: Tx, by: Actor, now: datetime, *, lock: bool = True) -> Key | None:
    """
    Return the key that acts; None: no key does, and all is allowed. *lock*: nobody changes it before this transaction ends.

    Whoever locks a workspace or another key here does so first: what they waited for may have been the end of this key.

    Raises:
        Unauthorised: It was deleted since the guard let it in; KeyRevoked, KeyExpired: or that.
    """
    if by.kind in {"operator", "system"}:
        return None
    row = (store.find_row_by_id_share_locked if lock else store.find_row_by_id)(tx, by.id or "")
    holder = None if row is None else store.key_from_row(row)
    if holder is None or (holder.delete_after is not None and holder.delete_after <= now):
        raise Unauthorised
    status = holder.status(now)
    if status is not KeyStatus.ACTIVE:
        raise KeyExpired if status is KeyStatus.EXPIRED else KeyRevoked
    return holder


def require_acting_scope(tx: Tx, by: Actor, scope: str, now: datetime) -> None:
    """
    Do nothing if who acts has *scope* now, as a live key (D-25).

    Raises:
        Unauthorised, KeyRevoked, KeyExpired: As `get_acting_key`.
        ScopeMissing, PermissionDenied: It has not; a test key never has.
    """
    holder = get_acting_key(tx, by, now)
    if holder is not None and (holder.environment == TEST or not grants(frozenset(holder.scopes), scope)):
        raise missing_scope_error(holder.kind, scope)
