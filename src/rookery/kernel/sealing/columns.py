"""What is sealed: the columns that domains register, so that a change of keys finds every one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Column, LargeBinary, Table, bindparam, delete, func, literal_column, select, update

from rookery.kernel.db import Statement, Tx
from rookery.kernel.sealing.keys import HEAD_BYTES, SealContext


@dataclass(frozen=True, slots=True)
class SealedText:
    """A sealed text and where it is."""

    context: SealContext
    sealed: bytes


class SealedColumn:
    """
    A column of sealed texts, in a table with the columns `id` (text, its key) and `workspace_id`.

    A text that can never be opened again is forgotten: where the column may be null it becomes that, else its row goes.

    Args:
        purpose: What a text of it is, in words; part of what it is bound to, so it never changes.
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
        """Return how many texts each key sealed, by the head of what it seals."""
        return {row.blob("head"): row.integer("n") for row in tx.fetch_all(self._count_heads)}

    def list_others(self, tx: Tx, *, heads: Sequence[bytes], after: str, limit: int) -> list[SealedText]:
        """Return texts that begin with none of *count_by_head*, in the order of their rows' ids, from past *after* on."""
        rows = tx.fetch_all(self._select_others, {"heads": heads, "after": after, "at_most": limit})
        return [SealedText(SealContext(self.purpose, row.integer("workspace_id"), row.text("id")), row.blob("sealed")) for row in rows]

    def replace(self, tx: Tx, old: SealedText, sealed: bytes) -> bool:
        """Replace a text; false if it has changed since it was read."""
        return tx.execute(self._put, {"of_id": old.context.id, "was": old.sealed, "sealed": sealed}) == 1

    def remove(self, tx: Tx, old: SealedText) -> int:
        """Forget one text, unless it has changed since it was read; return how many that is."""
        return tx.execute(self._forget, {"of_id": old.context.id, "was": old.sealed})
