"""The table of usage, and statements that add to it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields

from sqlalchemy import Column, Index, Text

from rookery.kernel.db import Mapper, Tx, Value, map_table, purge_tables, upsert
from rookery.usage.models import UsageEntry, UsageSums

usage_days, ENTRIES = map_table(
    "usage_days",
    UsageEntry,
    Column("currency", Text, primary_key=True),
    Index("ix_usage_days_day", "day"),
    key=("workspace_id", "day", "kind", "key_id", "agent_id", "model", "tool", "currency"),
    sqlite_with_rowid=False,
)
"""
Sums by day. They are kept for ever.

An empty currency is that of the settings: rows from before currencies were recorded have it.
"""

SUMS = Mapper(UsageSums, usage_days)

purge = purge_tables(usage_days)

_SUM_NAMES = tuple(column.name for column in fields(UsageSums))
_KEY_NAMES = tuple(column.name for column in usage_days.primary_key)
_ADD = upsert(usage_days, index_elements=_KEY_NAMES, set_=lambda new: {name: usage_days.c[name] + new[name] for name in _SUM_NAMES})


def add_entries(tx: Tx, entries: Iterable[UsageEntry], *, currency: str) -> None:
    """Add *entries* to the sums of their days, in one order, so that transactions at the same time cannot deadlock."""
    sums: dict[tuple[Value, ...], dict[str, Value]] = {}
    for entry in entries:
        row: dict[str, Value] = {**ENTRIES.to_row(entry), "currency": currency}
        known_row = sums.setdefault(tuple(row[name] for name in _KEY_NAMES), row)
        if known_row is not row:
            known_row |= {name: _add(known_row[name], row[name]) for name in _SUM_NAMES}
    tx.execute_many(_ADD, [row for _, row in sorted(sums.items(), key=lambda item: tuple(map(str, item[0])))])


def _add(left: Value, right: Value) -> Value:
    if not isinstance(left, int) or not isinstance(right, int):
        msg = f"a sum of usage is {left!r} and {right!r}, not integers"
        raise TypeError(msg)
    return left + right
