"""The interface of a transaction, the same on both stores."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, Literal, Protocol

from sqlalchemy import Table, bindparam, delete

from rookery.kernel.db.statements import Row, Statement, Value

Dialect = Literal["sqlite", "postgresql"]


class Tx(Protocol):
    """
    One transaction, passed to a plain function.

    The parameters of a statement are its `bindparam` names. For `insert(table)` and `update(table)` without values, those that are names
    of columns are the values to write; the condition of such an update needs other names.
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
        """Execute the statement; return the number of affected rows."""
        ...

    def execute_many(self, statement: Statement, params: Sequence[Mapping[str, Value]]) -> int:
        """Execute the statement once for each of *params*, which all have the same names; return the total of affected rows."""
        ...

    def before_commit(self, work: Callable[[Tx, list[object]], None], item: object) -> None:
        """
        Call *work* once at the end of this transaction, with every item passed for it, in order.

        It sees the final rows and can query for all items at once. An exception in it rolls the transaction back.
        """
        ...

    def after_commit(self, callback: Callable[[], None]) -> None:
        """Call *callback* on the event loop after the commit of this transaction, before its caller continues."""
        ...


class TxCallbacks:
    """The part of a `Tx` that both dialects share: the work at its end, and the callbacks after its commit."""

    __slots__ = ("_before_commit", "callbacks")

    def __init__(self) -> None:
        self._before_commit: dict[Callable[[Any, list[object]], None], list[object]] = {}
        self.callbacks: list[Callable[[], None]] = []

    def before_commit(self, work: Callable[[Any, list[object]], None], item: object) -> None:
        self._before_commit.setdefault(work, []).append(item)

    def after_commit(self, callback: Callable[[], None]) -> None:
        self.callbacks.append(callback)

    def run_before_commit(self) -> None:
        """Run the functions registered by `before_commit`."""
        for work, items in self._before_commit.items():
            work(self, items)


def fetch_count(tx: Tx, statement: Statement, params: Mapping[str, Value | Sequence[Value]] | None = None) -> int:
    """Return the integer in the first column of the first row, or 0 if there is no row or it is null."""
    row = tx.fetch_one(statement, params)
    value = 0 if row is None else row.values[0] or 0
    if not isinstance(value, int):
        msg = f"the first column holds {type(value).__name__}, not an integer"
        raise TypeError(msg)
    return value


def purge_tables(*tables: Table) -> Callable[[Tx, int], int]:
    """Return a function that deletes the rows of a workspace from *tables*, in this order, and returns their number."""
    statements = [delete(table).where(table.c.workspace_id == bindparam("of_workspace")) for table in tables]

    def purge(tx: Tx, workspace_id: int) -> int:
        return sum(tx.execute(statement, {"of_workspace": workspace_id}) for statement in statements)

    return purge


TransactionHook = Callable[[Tx, object], None]
"""
A function that a write transaction calls last, with the result of its work. An exception in it rolls the transaction back.

The response to a request with an Idempotency-Key is stored this way.
"""

TRANSACTION_HOOKS: ContextVar[Callable[[], TransactionHook | None] | None] = ContextVar("rookery_transaction_hooks", default=None)
"""A function that returns the hook of a write transaction of this context that begins now, or None."""


def get_transaction_hook() -> TransactionHook | None:
    """Return the hook of a write transaction that begins now. The transaction keeps it, also if its caller does not wait for its end."""
    get_hook = TRANSACTION_HOOKS.get()
    return None if get_hook is None else get_hook()
