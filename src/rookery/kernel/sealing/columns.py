"""Encrypted columns, registered by the domains so that a key rotation finds all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Column, LargeBinary, Table, bindparam, delete, func, literal_column, select, update

from rookery.kernel.db import Statement, Tx
from rookery.kernel.sealing.keys import HEAD_BYTES, SealContext


@dataclass(frozen=True, slots=True)
class SealedText:
    """An encrypted value and the place to which it is bound."""

    context: SealContext
    sealed: bytes


class SealedColumn:
    """
    A column of encrypted values in a table with the columns `id` (text, primary key) and `workspace_id`.

    A value that can no longer be decrypted is removed: a nullable column is set to null, otherwise the row is deleted.

    Args:
        purpose: The kind of value. Part of what each value is bound to, so it must never change.
    """

    def __init__(self, table: Table, name: str, *, purpose: str) -> None:
        column: Column[Any] = table.c[name]
        head = func.substr(column, literal_column("1"), literal_column(str(HEAD_BYTES)), type_=LargeBinary())
        is_here = table.c.id == bindparam("of_id")
        is_other = column.is_not(None) & head.not_in(bindparam("heads", expanding=True, type_=LargeBinary()))
        of_place = select(table.c.id, table.c.workspace_id, column.label("sealed"))
        self.purpose = purpose
        self._count_heads: Statement = select(head.label("head"), func.count().label("n")).where(column.is_not(None)).group_by(head)
        self._select_others: Statement = (
            of_place.where(table.c.id > bindparam("after"), is_other).order_by(table.c.id).limit(bindparam("at_most"))
        )
        self._put: Statement = update(table).where(is_here, column == bindparam("was")).values({name: bindparam("sealed")})
        self._forget: Statement = (
            update(table).where(is_here, column == bindparam("was")).values({name: None})
            if column.nullable
            else delete(table).where(is_here, column == bindparam("was"))
        )

    def count_by_head(self, tx: Tx) -> dict[bytes, int]:
        """Return the number of values by key, identified by the head of the values it encrypts."""
        return {row.blob("head"): row.integer("n") for row in tx.fetch_all(self._count_heads)}

    def list_others(self, tx: Tx, *, heads: Sequence[bytes], after: str, limit: int) -> list[SealedText]:
        """Return values that begin with none of *heads*, ordered by row id, from after *after*."""
        rows = tx.fetch_all(self._select_others, {"heads": heads, "after": after, "at_most": limit})
        return [SealedText(SealContext(self.purpose, row.integer("workspace_id"), row.text("id")), row.blob("sealed")) for row in rows]

    def replace(self, tx: Tx, old: SealedText, sealed: bytes) -> bool:
        """Replace a value. Return false if it has changed since it was read."""
        return tx.execute(self._put, {"of_id": old.context.id, "was": old.sealed, "sealed": sealed}) == 1

    def remove(self, tx: Tx, old: SealedText) -> int:
        """Remove one value unless it has changed since it was read; return the number removed."""
        return tx.execute(self._forget, {"of_id": old.context.id, "was": old.sealed})
