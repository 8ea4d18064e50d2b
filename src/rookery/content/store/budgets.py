"""Queries of budgets, of daily spending and of usage. An amount is in billionths of the currency."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import bindparam, delete, literal, or_, select, update

from rookery.content.models import BudgetOverride, ContentUsageFilter, DailySpending, UsageRecord
from rookery.content.store.tables import BUDGETS, SPENDING, USAGE, budgets, spending, usage
from rookery.kernel.clock import to_micros
from rookery.kernel.db import KeysetList, Tx, purge_tables, upsert
from rookery.kernel.pages import ListPage, PageSlice

_MAX_NANOS = 2**62
"""The limit in the condition of a reservation without a limit."""

_IS_BUDGET = (budgets.c.workspace_id == bindparam("of_workspace"), budgets.c.key_id == bindparam("of_key"))
_SELECT_BUDGETS = select(budgets).where(
    budgets.c.workspace_id == bindparam("of_workspace"), budgets.c.key_id.in_(bindparam("keys", expanding=True))
)
_SELECT_ALL_BUDGETS = select(budgets).where(budgets.c.workspace_id == bindparam("of_workspace")).order_by(budgets.c.key_id)
_SET_BUDGET = upsert(
    budgets,
    index_elements=["workspace_id", "key_id"],
    set_=lambda new: {"daily_nanos": new["daily_nanos"], "updated_at": new["updated_at"]},
)
_DELETE_BUDGET = delete(budgets).where(*_IS_BUDGET)

_IS_DAY = (
    spending.c.workspace_id == bindparam("of_workspace"),
    spending.c.key_id == bindparam("of_key"),
    spending.c.day == bindparam("of_day"),
)
_ADD_DAY = upsert(spending, index_elements=["workspace_id", "key_id", "day"])
_RESERVE = (
    update(spending)
    .where(*_IS_DAY, spending.c.spent_nanos + spending.c.reserved_nanos + bindparam("amount") <= bindparam("max_nanos"))
    .values(reserved_nanos=spending.c.reserved_nanos + bindparam("amount"))
)
_SETTLE = (
    update(spending)
    .where(*_IS_DAY)
    .values(reserved_nanos=spending.c.reserved_nanos - bindparam("released"), spent_nanos=spending.c.spent_nanos + bindparam("spent"))
)
_SELECT_DAYS = select(spending).where(
    spending.c.workspace_id == bindparam("of_workspace"),
    spending.c.day == bindparam("of_day"),
    spending.c.key_id.in_(bindparam("keys", expanding=True)),
)
_SELECT_OLD_DAYS = (
    select(spending.c.workspace_id, spending.c.key_id, spending.c.day)
    .where(spending.c.day < bindparam("before"))
    .order_by(spending.c.day)
    .limit(bindparam("at_most"))
)
_DELETE_DAY = delete(spending).where(*_IS_DAY)

_SUMS = ("requests", "succeeded", "failed", "cancelled", "input_tokens", "output_tokens", "reasoning_tokens", "cached_tokens", "cost_nanos")
_ADD_USAGE = upsert(
    usage,
    index_elements=["workspace_id", "day", "key_id", "model"],
    set_=lambda new: {name: usage.c[name] + new[name] for name in _SUMS},
)
_USAGE_FILTERS = (
    usage.c.workspace_id == bindparam("of_workspace"),
    or_(bindparam("any_key") == literal(1), usage.c.key_id == bindparam("of_key")),
    or_(bindparam("of_model") == literal(""), usage.c.model == bindparam("of_model")),
    usage.c.day >= bindparam("since"),
    usage.c.day <= bindparam("until"),
)
_USAGE_LIST = KeysetList(select(usage).where(*_USAGE_FILTERS), usage.c.day.desc(), usage.c.key_id, usage.c.model)


def find_budgets(tx: Tx, workspace_id: int, keys: Sequence[str]) -> dict[str, BudgetOverride]:
    """Return the overrides of *keys*, by key."""
    return {budget.key_id: budget for budget in BUDGETS.fetch_all(tx, _SELECT_BUDGETS, {"of_workspace": workspace_id, "keys": keys})}


def list_budgets(tx: Tx, workspace_id: int) -> list[BudgetOverride]:
    """Return all overrides of a workspace; that of the workspace itself is first."""
    return BUDGETS.fetch_all(tx, _SELECT_ALL_BUDGETS, {"of_workspace": workspace_id})


def set_budget(tx: Tx, budget: BudgetOverride) -> None:
    """Store an override."""
    row = {
        "workspace_id": budget.workspace_id,
        "key_id": budget.key_id,
        "daily_nanos": budget.daily_nanos,
        "updated_at": to_micros(budget.updated_at),
    }
    tx.execute(_SET_BUDGET, row)


def delete_budget(tx: Tx, workspace_id: int, key_id: str) -> bool:
    """Delete an override; return False if it does not exist."""
    return tx.execute(_DELETE_BUDGET, {"of_workspace": workspace_id, "of_key": key_id}) == 1


def reserve(tx: Tx, workspace_id: int, key_id: str, day: str, amount: int, *, limit: int | None) -> bool:
    """
    Reserve *amount* if the day's spending, the reservations and *amount* stay within *limit*. Return whether it was reserved.

    The check and the reservation are one statement, so that calls at the same time cannot pass the limit together.
    """
    params = {"of_workspace": workspace_id, "of_key": key_id, "of_day": day}
    reservation = {**params, "amount": amount, "max_nanos": _MAX_NANOS if limit is None else limit}
    if tx.execute(_RESERVE, reservation) == 1:
        return True
    new_day = {"workspace_id": workspace_id, "key_id": key_id, "day": day, "reserved_nanos": 0, "spent_nanos": 0}
    tx.execute(_ADD_DAY, new_day)  # does nothing if another transaction has just added the day
    return tx.execute(_RESERVE, reservation) == 1


def settle(tx: Tx, workspace_id: int, key_id: str, day: str, *, released: int, spent: int) -> None:
    """Release a reservation and add what was spent. Nothing happens if the day was deleted."""
    tx.execute(_SETTLE, {"of_workspace": workspace_id, "of_key": key_id, "of_day": day, "released": released, "spent": spent})


def find_days(tx: Tx, workspace_id: int, day: str, keys: Sequence[str]) -> dict[str, DailySpending]:
    """Return the spending of *keys* on a day, by key."""
    rows = SPENDING.fetch_all(tx, _SELECT_DAYS, {"of_workspace": workspace_id, "of_day": day, "keys": keys})
    return {row.key_id: row for row in rows}


def delete_old_days(tx: Tx, *, before: str, limit: int) -> int:
    """Delete at most *limit* rows of spending before the day *before*; return the number."""
    rows = tx.fetch_all(_SELECT_OLD_DAYS, {"before": before, "at_most": limit})
    for row in rows:
        tx.execute(_DELETE_DAY, {"of_workspace": row.integer("workspace_id"), "of_key": row.text("key_id"), "of_day": row.text("day")})
    return len(rows)


def add_usage(tx: Tx, record: UsageRecord) -> None:
    """Add *record* to the sums of its day, key and model."""
    tx.execute(_ADD_USAGE, USAGE.to_row(record))


def list_usage(tx: Tx, workspace_id: int, filters: ContentUsageFilter, *, page: PageSlice) -> ListPage[UsageRecord]:
    """Return a page of a workspace's usage, newest day first, and the total."""
    params = {
        "of_workspace": workspace_id,
        "any_key": int(filters.key_id is None),
        "of_key": filters.key_id or "",
        "of_model": filters.model or "",
        "since": filters.since or "",
        "until": filters.until or "9999-12-31",
    }
    return USAGE.fetch_page(tx, _USAGE_LIST, page, params)


purge = purge_tables(budgets, spending, usage)
