"""Queries of budgets and of spending. An amount is in billionths of the currency."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sqlalchemy import bindparam, func, select, update

from rookery.content.models import BudgetOverride, BudgetPeriod, Spending, span_of
from rookery.content.store.tables import BUDGETS, SPENDING, budgets, spending
from rookery.kernel.db import Tx, purge_tables

_MAX_NANOS = 2**62
"""The limit in the condition of a reservation without a limit."""

_IS_SPAN = (
    spending.c.workspace_id == bindparam("of_workspace_id"),
    spending.c.holder == bindparam("of_holder"),
    spending.c.span == bindparam("of_span"),
)
_RESERVE = (
    update(spending)
    .where(*_IS_SPAN, spending.c.spent_nanos + spending.c.reserved_nanos + bindparam("amount") <= bindparam("max_nanos"))
    .values(reserved_nanos=spending.c.reserved_nanos + bindparam("amount"))
)
_SETTLE = (
    update(spending)
    .where(*_IS_SPAN)
    .values(reserved_nanos=spending.c.reserved_nanos - bindparam("released"), spent_nanos=spending.c.spent_nanos + bindparam("spent"))
)
_SELECT_OLD = (
    select(spending.c.workspace_id, spending.c.holder, spending.c.span)
    .where(func.length(spending.c.span) == func.length(bindparam("before")), spending.c.span < bindparam("before"))
    .order_by(spending.c.span)
    .limit(bindparam("limit"))
)


def find_budgets(tx: Tx, workspace_id: int, holders: Sequence[str]) -> dict[tuple[str, BudgetPeriod], BudgetOverride]:
    return {(budget.holder, budget.period): budget for budget in BUDGETS.find_all(tx, workspace_id, holder=holders)}


def reserve(tx: Tx, workspace_id: int, holder: str, span: str, amount: int, *, limit: int | None) -> bool:
    """
    Reserve *amount* if the spending of the span, its reservations and *amount* stay within *limit*. Return whether it was reserved.

    The check and the reservation are one statement, so that calls at the same time cannot pass the limit together.
    """
    params = {"of_workspace_id": workspace_id, "of_holder": holder, "of_span": span}
    reservation = {**params, "amount": amount, "max_nanos": _MAX_NANOS if limit is None else limit}
    if tx.execute(_RESERVE, reservation) == 1:
        return True
    # This does nothing if another transaction has just added the span.
    SPENDING.add(tx, Spending(workspace_id=workspace_id, holder=holder, span=span))
    return tx.execute(_RESERVE, reservation) == 1


def settle(tx: Tx, workspace_id: int, holder: str, span: str, *, released: int, spent: int) -> None:
    """Release a reservation and add what was spent. Nothing happens if the span was deleted."""
    tx.execute(_SETTLE, {"of_workspace_id": workspace_id, "of_holder": holder, "of_span": span, "released": released, "spent": spent})


def find_spending(tx: Tx, workspace_id: int, spans: Sequence[str], holders: Iterable[str]) -> dict[tuple[str, str], Spending]:
    """Return the spending of *holders* in *spans*, by holder and span."""
    return {(row.holder, row.span): row for row in SPENDING.find_all(tx, workspace_id, span=spans, holder=list(holders))}


def delete_old_spans(tx: Tx, *, before: str, limit: int) -> int:
    """Delete at most *limit* rows of spending in days before the day *before*, and as many in earlier months; return the number."""
    rows = [row for span in (before, span_of("month", before)) for row in tx.fetch_all(_SELECT_OLD, {"before": span, "limit": limit})]
    for row in rows:
        SPENDING.delete(tx, row.integer("workspace_id"), holder=row.text("holder"), span=row.text("span"))
    return len(rows)


purge = purge_tables(budgets, spending)
