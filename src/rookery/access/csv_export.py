"""The calls of keys as CSV. No I/O."""

from __future__ import annotations

from collections.abc import Collection

from rookery.access.models import UsageField
from rookery.kernel.safe_texts import csv_header, csv_lines

__all__ = ["call_columns", "csv_header", "csv_lines", "usage_columns"]


def usage_columns(by: Collection[UsageField]) -> list[str]:
    """Return the columns of usage totals grouped by *by*."""
    columns_by_field = {"day": ["day"], "key": ["key_id", "key_name"], "method": ["method"], "route": ["route"], "status": ["status"]}
    group = [column for field, columns in columns_by_field.items() if field in by for column in columns]
    return [*group, "calls", "errors", "mean_ms", "upstream_errors"]


def call_columns(*, with_addresses: bool = True) -> list[str]:
    """Return the columns of single requests."""
    columns = ["at", "method", "route", "status", "duration_ms", "address", "request_id", "is_upstream_error"]
    return columns if with_addresses else [column for column in columns if column != "address"]
