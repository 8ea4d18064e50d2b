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

_NAME = "records"
_STATE = select(sealing).where(sealing.c.name == bindparam("of_name"))
# A change of keys waits for those who seal at this moment, and they for it; others who seal do not wait. SQLite has one writer.
_HELD = _STATE.with_for_update(read=True)
_BEGIN = upsert(sealing, index_elements=["name"])
_SWITCH = (
    update(sealing)
    .where(sealing.c.name == bindparam("of_name"), sealing.c.key_id == bindparam("was"))
    .values(key_id=bindparam("to"), previous_id=bindparam("was"), since=bindparam("at"))
)
_SETTLE = update(sealing).where(sealing.c.name == bindparam("of_name"), sealing.c.key_id == bindparam("key")).values(previous_id=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """
    Which key seals.

    Attributes:
        previous_id: The key before it, while something may still be sealed by that.
    """

    key_id: str
    previous_id: str | None


def state(tx: Tx) -> State | None:
    """Return the state; None: nothing was ever sealed here."""
    return _state(tx.one(_STATE, {"of_name": _NAME}))


def held(tx: Tx) -> State | None:
    """Return the state, which stays as it is until this transaction ends."""
    return _state(tx.one(_HELD, {"of_name": _NAME}))


def begin(tx: Tx, key_id: str, *, at: int) -> None:
    """Let *key_id* be the first key, unless there was one."""
    tx.run(_BEGIN, {"name": _NAME, "key_id": key_id, "previous_id": None, "since": at})


def switch(tx: Tx, *, was: str, to: str, at: int) -> bool:
    """Let *to* seal from now on; false if *was* is not the key that seals, so that nothing is done."""
    return tx.run(_SWITCH, {"of_name": _NAME, "was": was, "to": to, "at": at}) == 1


def settle(tx: Tx, key_id: str) -> None:
    """Note that everything is sealed by *key_id*, if that is still the key."""
    tx.run(_SETTLE, {"of_name": _NAME, "key": key_id})


def _state(row: Row | None) -> State | None:
    return None if row is None else State(key_id=row.text("key_id"), previous_id=row.maybe_text("previous_id"))
