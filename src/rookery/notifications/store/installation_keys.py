"""The table of keys that the whole installation has, and its queries."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, LargeBinary, Table, Text, bindparam, select

from rookery.kernel.db import Tx, metadata, upsert
from rookery.kernel.sealing import SealedColumn

INSTALLATION = 0
"""The `workspace_id` of the keys, which belong to no workspace."""

installation_keys = Table(
    "installation_keys",
    metadata,
    Column("id", Text, primary_key=True),
    Column("workspace_id", BigInteger, nullable=False),
    Column("sealed", LargeBinary, nullable=False),
    Column("created_at", BigInteger, nullable=False),
)
KEY_PURPOSE = "key of the installation"
SEALED_COLUMNS = (SealedColumn(installation_keys, "sealed", purpose=KEY_PURPOSE),)
"""A key that was lost with its sealing key is deleted, and a new one is created at the next use."""

_SELECT = select(installation_keys.c.sealed).where(installation_keys.c.id == bindparam("of_id"))
_INSERT = upsert(installation_keys, index_elements=["id"])


def find(tx: Tx, key_id: str) -> bytes | None:
    """Return an encrypted key, or None if it was never created."""
    row = tx.fetch_one(_SELECT, {"of_id": key_id})
    return None if row is None else row.blob("sealed")


def insert_key(tx: Tx, key_id: str, sealed: bytes, *, now_us: int) -> None:
    """Store a new key. Does nothing if another process was faster."""
    tx.execute(_INSERT, {"id": key_id, "workspace_id": INSTALLATION, "sealed": sealed, "created_at": now_us})
