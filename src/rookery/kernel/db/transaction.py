"""What work in a transaction is given, whichever the store."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import Literal, Protocol

from rookery.kernel.db.rows import Row, Value
from rookery.kernel.db.statements import Statement

Dialect = Literal["sqlite", "postgresql"]


class Tx(Protocol):
    """
    One transaction, for a plain function to work in.

    Parameters of a statement are its `bindparam` names, or, for `insert(table)` without values, column names.
    """

    @property
    def dialect(self) -> Dialect: ...

    def fetch_all(self, statement: Statement, params: Mapping[str, Value | Sequence[Value]] | None = None) -> list[Row]:
        """Return every row, in the statement's order."""
        ...

    def fetch_one(self, statement: Statement, params: Mapping[str, Value | Sequence[Value]] | None = None) -> Row | None:
        """Return the first row, or None."""
        ...

    def execute(self, statement: Statement, params: Mapping[str, Value | Sequence[Value]] | None = None) -> int:
        """Do it; return how many rows it touched."""
        ...

    def execute_many(self, statement: Statement, params: Sequence[Mapping[str, Value]]) -> int:
        """Do it once for each of *params*, which all have the same names; return how many rows it touched in all."""
        ...

    def before_commit(self, work: Callable[[Tx, list[object]], None], item: object) -> None:
        """
        Call *work* last of all in this transaction, once, with every item that was given for it, in their order.

        So it sees what the transaction makes of the rows, and asks once for many; what it raises undoes all.
        """
        ...

    def after_commit(self, callback: Callable[[], None]) -> None:
        """Call *callback* on the event loop once this transaction has been committed, before its caller goes on."""
        ...


TransactionHook = Callable[[Tx, object], None]

TRANSACTION_HOOK: ContextVar[TransactionHook | None] = ContextVar("rookery_completion", default=None)
"""
A function that each write transaction of this context calls last, with the result of its work.

What it raises undoes the transaction. The response to a request with an Idempotency-Key is stored this way (D-14).
"""
