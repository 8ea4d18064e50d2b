"""Queries of budgets and of spending. An amount is in billionths of the currency."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sqlalchemy import bindparam, delete, func, select, update

from rookery.content.models import BudgetOverride, BudgetPeriod, Spending, span_of
from rookery.content.store.tables import BUDGETS, SPENDING, budgets, spending
from rookery.kernel.db import Tx, purge_tables, upsert

_MAX_NANOS = 2**62
"""The limit in the condition of a reservation without a limit."""

_OF_WORKSPACE = budgets.c.workspace_id == bindparam("of_workspace")
_SELECT_BUDGETS = select(budgets).where(_OF_WORKSPACE, budgets.c.holder.in_(bindparam("holders", expanding=True)))
_SELECT_ALL_BUDGETS = select(budgets).where(_OF_WORKSPACE).order_by(budgets.c.holder, budgets.c.period)
_SET_BUDGET = upsert(
    budgets,
    index_elements=["workspace_id", "holder", "period"],
    set_=lambda new: {"limit_nanos": new["limit_nanos"], "updated_at": new["updated_at"]},
)
_DELETE_BUDGET = delete(budgets).where(
    _OF_WORKSPACE, budgets.c.holder == bindparam("of_holder"), budgets.c.period == bindparam("of_period")
)

_IS_SPAN = (
    spending.c.workspace_id == bindparam("of_workspace"),
    spending.c.holder == bindparam("of_holder"),
    spending.c.span == bindparam("of_span"),
)
_ADD_SPAN = upsert(spending, index_elements=["workspace_id", "holder", "span"])
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
_SELECT_SPENDING = select(spending).where(
    spending.c.workspace_id == bindparam("of_workspace"),
    spending.c.span.in_(bindparam("spans", expanding=True)),
    spending.c.holder.in_(bindparam("holders", expanding=True)),
)
_SELECT_OLD = (
    select(spending.c.workspace_id, spending.c.holder, spending.c.span)
    .where(func.length(spending.c.span) == func.length(bindparam("before")), spending.c.span < bindparam("before"))
    .order_by(spending.c.span)
    .limit(bindparam("at_most"))
)
_DELETE_SPAN = delete(spending).where(*_IS_SPAN)


def find_budgets(tx: Tx, workspace_id: int, holders: Sequence[str]) -> dict[tuple[str, BudgetPeriod], BudgetOverride]:
    rows = BUDGETS.fetch_all(tx, _SELECT_BUDGETS, {"of_workspace": workspace_id, "holders": holders})
    return {(budget.holder, budget.period): budget for budget in rows}


def list_budgets(tx: Tx, workspace_id: int) -> list[BudgetOverride]:
    """Return all overrides of a workspace; those of the workspace itself are first."""
    return BUDGETS.fetch_all(tx, _SELECT_ALL_BUDGETS, {"of_workspace": workspace_id})


def set_budget(tx: Tx, budget: BudgetOverride) -> None:
    tx.execute(_SET_BUDGET, BUDGETS.to_row(budget))


def delete_budget(tx: Tx, workspace_id: int, holder: str, period: BudgetPeriod) -> None:
    """Delete an override, if it exists."""
    tx.execute(_DELETE_BUDGET, {"of_workspace": workspace_id, "of_holder": holder, "of_period": period})


def reserve(tx: Tx, workspace_id: int, holder: str, span: str, amount: int, *, limit: int | None) -> bool:
    """
    Reserve *amount* if the spending of the span, its reservations and *amount* stay within *limit*. Return whether it was reserved.

    The check and the reservation are one statement, so that calls at the same time cannot pass the limit together.
    """
    params = {"of_workspace": workspace_id, "of_holder": holder, "of_span": span}
    reservation = {**params, "amount": amount, "max_nanos": _MAX_NANOS if limit is None else limit}
    if tx.execute(_RESERVE, reservation) == 1:
        return True
    new_span = Spending(workspace_id=workspace_id, holder=holder, span=span)
    tx.execute(_ADD_SPAN, SPENDING.to_row(new_span))  # does nothing if another transaction has just added the span
    return tx.execute(_RESERVE, reservation) == 1


def settle(tx: Tx, workspace_id: int, holder: str, span: str, *, released: int, spent: int) -> None:
    """Release a reservation and add what was spent. Nothing happens if the span was deleted."""
    tx.execute(_SETTLE, {"of_workspace": workspace_id, "of_holder": holder, "of_span": span, "released": released, "spent": spent})


def find_spending(tx: Tx, workspace_id: int, spans: Sequence[str], holders: Iterable[str]) -> dict[tuple[str, str], Spending]:
    """Return the spending of *holders* in *spans*, by holder and span."""
    params = {"of_workspace": workspace_id, "spans": spans, "holders": list(holders)}
    return {(row.holder, row.span): row for row in SPENDING.fetch_all(tx, _SELECT_SPENDING, params)}


def delete_old_spans(tx: Tx, *, before: str, limit: int) -> int:
    """Delete at most *limit* rows of spending in days before the day *before*, and as many in earlier months; return the number."""
    rows = [row for span in (before, span_of("month", before)) for row in tx.fetch_all(_SELECT_OLD, {"before": span, "at_most": limit})]
    for row in rows:
        tx.execute(
            _DELETE_SPAN, {"of_workspace": row.integer("workspace_id"), "of_holder": row.text("holder"), "of_span": row.text("span")}
        )
    return len(rows)


purge = purge_tables(budgets, spending)
