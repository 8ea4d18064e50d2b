"""Output of commands: tables on a terminal, tab-separated lines in a pipe, JSON on request."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterable, Generator, Mapping, Sequence
from contextlib import contextmanager
from decimal import Decimal
from http import HTTPStatus
from typing import Protocol, cast

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from rookery.kernel.safe_texts import escape_control_characters

Fields = Mapping[str, object]

_MAX_TABLE_ROWS = 1_000
"""Maximum rows of a table. Laying out 100,000 rows takes half a minute and gigabytes of memory."""

_MAX_LIST_ITEMS = 3
_MIN_COLUMN_WIDTH = 16
_UNWRAPPED_COLUMNS = frozenset({"id", "key_id", "hint", "key", "plaintext_key", "at", "when"})
"""Columns whose values are never wrapped, because people copy them."""

_MIN_PROGRESS_TOTAL = 20

_STYLES = {"Expired": "yellow", "Revoked": "red", "Active": "green", "broken": "bold red", "whole": "green", "no": "red", "yes": "green"}


def print_json(value: object) -> None:
    """Print one JSON document."""
    print(json.dumps(value, ensure_ascii=False))  # noqa: T201 - the command's output


def print_fields(fields: Fields) -> None:
    """Print one record, one field per line."""
    width = max(map(len, fields))
    for name, value in fields.items():
        text = escape_control_characters(_to_text(value), keeps_layout=True)
        print(f"{name:{width}}  {text}")  # noqa: T201 - the command's output


def print_record(fields: Fields, *, as_json: bool) -> None:
    if as_json:
        print_json(fields)
    else:
        print_fields(fields)


async def print_rows(
    rows: AsyncIterable[Fields], columns: Sequence[str], *, as_json: bool, table_columns: Sequence[str] | None = None
) -> None:
    """
    Print rows while they are read, so that memory stays bounded. On a terminal, print a table of the first 1,000.

    Args:
        rows: The rows.
        columns: The columns of the lines.
        table_columns: The columns of the table, if they differ.
        as_json: Print a JSON array of whole rows.
    """
    if as_json:
        mark = "["
        async for row in rows:
            print(mark + json.dumps(row, ensure_ascii=False), end="")  # noqa: T201 - the command's output
            mark = ", "
        print("[]" if mark == "[" else "]")  # noqa: T201 - as above
    elif is_terminal():
        first = list[Fields]()
        async for row in rows:
            if len(first) == _MAX_TABLE_ROWS:
                print_notice(f"These are the first {_MAX_TABLE_ROWS:,} rows. Use a pipe or --json to get all.")
                break
            first.append(row)
        print_table(first, table_columns or columns)
    else:
        async for row in rows:
            _print_line(row, columns)


def print_list(rows: Sequence[Fields], columns: Sequence[str], *, table_columns: Sequence[str] | None = None) -> None:
    """Print a table on a terminal, and tab-separated lines in a pipe."""
    if is_terminal():
        print_table(rows, table_columns or columns)
        return
    for row in rows:
        _print_line(row, columns)


def print_table(rows: Sequence[Fields], columns: Sequence[str]) -> None:
    """
    Print a table. Markup in values is printed literally.

    Args:
        rows: The rows.
        columns: The columns, most important first; a narrow terminal shows only as many as fit, and a notice names the others.
    """
    console, cells = Console(), [[_table_cell(column, row[column]) for column in columns] for row in rows]
    table = Table()
    for number in range(_count_fitting_columns(console.width, columns, cells)):
        column = columns[number]
        is_number = bool(rows) and all(isinstance(row[column], int | float) and not isinstance(row[column], bool) for row in rows)
        table.add_column(Text(column), justify="right" if is_number else "left", no_wrap=column in _UNWRAPPED_COLUMNS, overflow="fold")
    for row in cells:
        table.add_row(*row[: len(table.columns)])
    console.print(table)
    if hidden := columns[len(table.columns) :]:
        print_notice(f"Columns that do not fit this terminal: {', '.join(hidden)}. Use a wider one, a pipe or --json to get them.")


def is_terminal() -> bool:
    """Return whether standard output is a terminal."""
    return Console().is_terminal


def print_notice(text: str) -> None:
    """Print a message to standard error."""
    Console(stderr=True).print(text, style="yellow", highlight=False, markup=False, soft_wrap=True)


class ProgressCallback(Protocol):
    """A function that moves a progress bar."""

    def __call__(self, done: int, /) -> None:
        """Set the number of items done."""
        ...


@contextmanager
def show_progress(label: str, total: int | None) -> Generator[ProgressCallback]:
    """Show a progress bar on a terminal, and nothing in a pipe."""
    if (total is not None and total < _MIN_PROGRESS_TOTAL) or not (sys.stdout.isatty() and sys.stderr.isatty()):
        yield _ignore_progress
        return
    columns = (TextColumn(label), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(label, total=total)

        def move(done: int, /) -> None:
            progress.update(task, completed=done)

        yield move


def format_value(value: object) -> str:
    """Return a value as one line of text without tabs. Control characters, which texts of others may have, are escaped."""
    return escape_control_characters(_to_text(value))


def print_text(text: str) -> None:
    """Print a part of a text at once, without a line end. A pipe gets it unchanged; a terminal gets no control characters."""
    sys.stdout.write(escape_control_characters(text, keeps_layout=True) if sys.stdout.isatty() else text)
    sys.stdout.flush()


def _to_text(value: object) -> str:
    if value is None or value == []:
        return "-"
    if isinstance(value, list):
        return ", ".join(str(item) for item in cast("list[object]", value))
    if isinstance(value, dict):
        return ", ".join(f"{name}={item}" for name, item in cast("dict[str, object]", value).items()) or "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{Decimal(repr(value)):f}"  # without an exponent
    return str(value)


def _print_line(row: Fields, columns: Sequence[str]) -> None:
    print("\t".join(format_value(row[column]) for column in columns))  # noqa: T201 - the command's output


def _table_cell(column: str, value: object) -> Text:
    """Return the cell of a value: times to the second, the start of a long list, errors in red."""
    text = format_value(value)
    if isinstance(value, str) and (column in {"at", "when"} or column.endswith("_at")):
        text = format_value(value[:19].replace("T", " "))
    elif isinstance(value, list) and len(items := cast("list[object]", value)) > _MAX_LIST_ITEMS:
        text = f"{format_value(items[:_MAX_LIST_ITEMS])}, {len(items) - _MAX_LIST_ITEMS} more"
    is_status = column == "status" and isinstance(value, int) and value >= HTTPStatus.BAD_REQUEST
    is_error = is_status or (column == "errors" and value != 0)
    return Text(text, style="red" if is_error else _STYLES.get(text, ""))


def _count_fitting_columns(width: int, columns: Sequence[str], cells: Sequence[Sequence[Text]]) -> int:
    """Return the number of columns that are readable within *width* characters; at least two."""
    used_width = 1
    for number, column in enumerate(columns):
        max_width = max([len(column), *(row[number].cell_len for row in cells)])
        used_width += (max_width if column in _UNWRAPPED_COLUMNS else min(max_width, _MIN_COLUMN_WIDTH)) + 3
        if used_width > width:
            return max(number, 2)
    return len(columns)


def _ignore_progress(done: int, /) -> None:
    """Show nothing."""
