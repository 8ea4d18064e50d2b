"""The current key: one row, which each transaction that encrypts a value reads."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import BigInteger, Column, Table, Text, bindparam, select, update

from rookery.kernel.db import Mapper, Tx, metadata, upsert

sealing = Table(
    "sealing",
    metadata,
    Column("name", Text, primary_key=True),
    Column("key_id", Text, nullable=False),
    Column("previous_id", Text),
    Column("since", BigInteger, nullable=False),
)

_ROW_NAME = "records"
_SELECT_STATE = select(sealing).where(sealing.c.name == bindparam("of_name"))
# A rotation and the transactions that encrypt values wait for each other. The latter do not block each other. SQLite has one writer.
_SELECT_STATE_LOCKED = _SELECT_STATE.with_for_update(read=True)
_INSERT_STATE = upsert(sealing, index_elements=["name"])
_SWITCH = (
    update(sealing)
    .where(sealing.c.name == bindparam("of_name"), sealing.c.key_id == bindparam("was"))
    .values(key_id=bindparam("to"), previous_id=bindparam("was"), since=bindparam("at"))
)
_CLEAR_PREVIOUS = (
    update(sealing).where(sealing.c.name == bindparam("of_name"), sealing.c.key_id == bindparam("key")).values(previous_id=None)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SealingState:
    """
    The current key.

    Attributes:
        previous_id: The previous key, as long as values may still be encrypted with it.
    """

    key_id: str
    previous_id: str | None


_STATES = Mapper(SealingState, sealing)


def get_state(tx: Tx) -> SealingState | None:
    """Return the state; None if nothing was ever encrypted."""
    return _STATES.fetch_one(tx, _SELECT_STATE, {"of_name": _ROW_NAME})


def lock_state(tx: Tx) -> SealingState | None:
    """Return the state and lock it until the end of this transaction."""
    return _STATES.fetch_one(tx, _SELECT_STATE_LOCKED, {"of_name": _ROW_NAME})


def insert_state(tx: Tx, key_id: str, *, now_us: int) -> None:
    """Store *key_id* as the first key. Does nothing if there is one already."""
    tx.execute(_INSERT_STATE, {"name": _ROW_NAME, "key_id": key_id, "previous_id": None, "since": now_us})


def switch_key(tx: Tx, *, old_key_id: str, new_key_id: str, now_us: int) -> bool:
    """Make *new_key_id* the current key. Return false, and do nothing, if *old_key_id* is not the current key."""
    return tx.execute(_SWITCH, {"of_name": _ROW_NAME, "was": old_key_id, "to": new_key_id, "at": now_us}) == 1


def clear_previous_key(tx: Tx, key_id: str) -> None:
    """Clear the previous key, if *key_id* is still the current key."""
    tx.execute(_CLEAR_PREVIOUS, {"of_name": _ROW_NAME, "key": key_id})
