"""The table of usage. `migrations/versions/0042_usage.py` creates it too."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Index, Table, Text

from rookery.kernel.db import Mapper, metadata, purge_tables
from rookery.usage.models import UsageEntry, UsageSums

usage_days = Table(
    "usage_days",
    metadata,
    Column("workspace_id", BigInteger, primary_key=True, autoincrement=False),
    Column("day", Text, primary_key=True),
    Column("kind", Text, primary_key=True),
    Column("key_id", Text, primary_key=True),
    Column("agent_id", Text, primary_key=True),
    Column("model", Text, primary_key=True),
    Column("tool", Text, primary_key=True),
    Column("currency", Text, primary_key=True),
    Column("calls", BigInteger, nullable=False),
    Column("failed", BigInteger, nullable=False),
    Column("cancelled", BigInteger, nullable=False),
    Column("input_tokens", BigInteger, nullable=False),
    Column("cached_input_tokens", BigInteger, nullable=False),
    Column("output_tokens", BigInteger, nullable=False),
    Column("reasoning_tokens", BigInteger, nullable=False),
    Column("estimated_calls", BigInteger, nullable=False),
    Column("unpriced_calls", BigInteger, nullable=False),
    Column("cost_nanos", BigInteger, nullable=False),
    Column("duration_us", BigInteger, nullable=False),
    Index("ix_usage_days_day", "day"),
    sqlite_with_rowid=False,
)
"""
Sums by day. They are kept for ever.

An empty currency is that of the settings: rows from before currencies were recorded have it.
"""

ENTRIES = Mapper(UsageEntry, usage_days)
SUMS = Mapper(UsageSums, usage_days)

purge = purge_tables(usage_days)
