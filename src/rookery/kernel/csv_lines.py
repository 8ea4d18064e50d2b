"""Rows as lines of CSV (RFC 4180) for spreadsheets. No I/O."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence

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


def _escape_cell(value: object) -> object:
    """Return the value of a cell. A text that a spreadsheet would interpret as a formula gets a leading apostrophe."""
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA_PREFIXES) else value
