"""Use as CSV (RFC 4180), for spreadsheets. Pure: no I/O."""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Iterable, Mapping, Sequence

from rookery.access.models import UsageField

_FORMULA_PREFIXES = (*"=+-@\t\r", *"\N{FULLWIDTH EQUALS SIGN}\N{FULLWIDTH PLUS SIGN}\N{FULLWIDTH HYPHEN-MINUS}\N{FULLWIDTH COMMERCIAL AT}")
"""OWASP, CSV injection; some spreadsheets read the full-width forms as the others."""


def csv_header(columns: Sequence[str]) -> str:
    """Return the first line of a sheet."""
    return csv_lines([dict(zip(columns, columns, strict=True))], columns)


def csv_lines(rows: Iterable[Mapping[str, object]], columns: Sequence[str]) -> str:
    """Return a line for each row, with CRLF at its end."""
    buffer = io.StringIO()
    csv.writer(buffer).writerows([_escape_cell(row[column]) for column in columns] for row in rows)
    return buffer.getvalue()


def usage_columns(by: Collection[UsageField]) -> list[str]:
    """Return the columns of calls added up."""
    named = {"day": ["day"], "key": ["key_id", "key_name"], "method": ["method"], "route": ["route"], "status": ["status"]}
    return [*(column for field, columns in named.items() if field in by for column in columns), "calls", "errors", "mean_ms"]


def call_columns(*, with_addresses: bool = True) -> list[str]:
    """Return the columns of single calls."""
    columns = ["at", "method", "route", "status", "duration_ms", "address", "request_id"]
    return columns if with_addresses else [column for column in columns if column != "address"]


def _escape_cell(value: object) -> object:
    """Return what a cell holds; a text that a spreadsheet would take for a formula is marked as a text."""
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA_PREFIXES) else value
