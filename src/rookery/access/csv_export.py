"""Usage as CSV (RFC 4180) for spreadsheets. No I/O."""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Iterable, Mapping, Sequence

from rookery.access.models import UsageField

_FORMULA_PREFIXES = (*"=+-@\t\r", *"\N{FULLWIDTH EQUALS SIGN}\N{FULLWIDTH PLUS SIGN}\N{FULLWIDTH HYPHEN-MINUS}\N{FULLWIDTH COMMERCIAL AT}")
"""First characters that spreadsheets interpret as a formula (OWASP, CSV injection), full-width forms included."""


def csv_header(columns: Sequence[str]) -> str:
    """Return the header line."""
    return csv_lines([dict(zip(columns, columns, strict=True))], columns)


def csv_lines(rows: Iterable[Mapping[str, object]], columns: Sequence[str]) -> str:
    """Return one line per row, each ending with CRLF."""
    buffer = io.StringIO()
    csv.writer(buffer).writerows([_escape_cell(row[column]) for column in columns] for row in rows)
    return buffer.getvalue()


def usage_columns(by: Collection[UsageField]) -> list[str]:
    """Return the columns of usage totals grouped by *by*."""
    columns_by_field = {"day": ["day"], "key": ["key_id", "key_name"], "method": ["method"], "route": ["route"], "status": ["status"]}
    return [*(column for field, columns in columns_by_field.items() if field in by for column in columns), "calls", "errors", "mean_ms"]


def call_columns(*, with_addresses: bool = True) -> list[str]:
    """Return the columns of single requests."""
    columns = ["at", "method", "route", "status", "duration_ms", "address", "request_id"]
    return columns if with_addresses else [column for column in columns if column != "address"]


def _escape_cell(value: object) -> object:
    """Return the value of a cell. A text that a spreadsheet would interpret as a formula gets a leading apostrophe."""
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA_PREFIXES) else value
