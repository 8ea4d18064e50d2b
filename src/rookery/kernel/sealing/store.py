"""Which key seals: one row, which whoever seals reads in the same transaction."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import BigInteger, Column, Table, Text, bindparam, select, update

from rookery.kernel.db import Row, Tx, metadata, upsert

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
# A change of keys waits for those who seal at this moment, and they for it; others who seal do not wait. SQLite has one writer.
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
    Which key seals.

    Attributes:
        previous_id: The key before it, while something may still be sealed by that.
    """

    key_id: str
    previous_id: str | None


def get_state(tx: Tx) -> SealingState | None:
    """Return the state; None: nothing was ever sealed here."""
    return _state_from_row(tx.fetch_one(_SELECT_STATE, {"of_name": _ROW_NAME}))


def lock_state(tx: Tx) -> SealingState | None:
    """Return the state, which stays as it is until this transaction ends."""
    return _state_from_row(tx.fetch_one(_SELECT_STATE_LOCKED, {"of_name": _ROW_NAME}))


def insert_state(tx: Tx, key_id: str, *, now_us: int) -> None:
    """Let *key_id* be the first key, unless there was one."""
    tx.execute(_INSERT_STATE, {"name": _ROW_NAME, "key_id": key_id, "previous_id": None, "since": now_us})


def switch_key(tx: Tx, *, old_key_id: str, new_key_id: str, now_us: int) -> bool:
    """Let *new_key_id* seal from now on; false if *old_key_id* is not the key that seals, so that nothing is done."""
    return tx.execute(_SWITCH, {"of_name": _ROW_NAME, "was": old_key_id, "to": new_key_id, "at": now_us}) == 1


def clear_previous_key(tx: Tx, key_id: str) -> None:
    """Note that everything is sealed by *key_id*, if that is still the key."""
    tx.execute(_CLEAR_PREVIOUS, {"of_name": _ROW_NAME, "key": key_id})


def _state_from_row(row: Row | None) -> SealingState | None:
    return None if row is None else SealingState(key_id=row.text("key_id"), previous_id=row.maybe_text("previous_id"))
