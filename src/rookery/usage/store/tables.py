"""The table of usage."""

from __future__ import annotations

from sqlalchemy import Column, Index, Text

from rookery.kernel.db import Mapper, map_table, purge_tables
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
