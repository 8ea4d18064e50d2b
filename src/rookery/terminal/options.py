"""Options of commands and their values: times, days, names, files. Invalid values are usage errors (exit code 2)."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Annotated, BinaryIO, NoReturn, TextIO, cast

import orjson
import typer

from rookery.kernel.clock import parse_iso, utc_now
from rookery.kernel.errors import RookeryError

_DAYS_PATTERN = re.compile(r"([1-9]\d{0,4})d")

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
YesOption = Annotated[bool, typer.Option("--yes", help="Skip the confirmation.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Show what would be done, without doing it.")]
WorkspaceOption = Annotated[
    str | None, typer.Option("--workspace", help="The workspace, by name or number; required if there are several.", show_default=False)
]
OUTPUT_HELP = "Write to this new file (mode 0600) instead of the terminal; - is standard output."
OutputOption = Annotated[Path | None, typer.Option("--out", help=OUTPUT_HELP, show_default=False)]


def raise_usage_error(message: str) -> NoReturn:
    """End the command with exit code 2."""
    raise typer.BadParameter(message)


def confirm(question: str, *, yes: bool, can_preview: bool = False) -> None:
    """Ask the operator to confirm. Without a terminal, --yes is required."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise_usage_error(f"{question} Confirm with --yes{', or use --dry-run to see what would be done' if can_preview else ''}.")
    typer.confirm(question, abort=True, err=True)


def parse_expiry(text: str | None) -> datetime | None:
    """Parse a time, or a number of days from now."""
    return None if text is None else _parse_time(text, in_future=True)


def parse_time(text: str | None) -> datetime | None:
    """Parse a time, or a number of days before now."""
    return None if text is None else _parse_time(text, in_future=False)


def parse_day(text: str | None) -> date | None:
    """Parse a day in UTC: a date, or a number of days before today."""
    moment = parse_time(text)
    return None if moment is None else moment.date()


def split_names(values: Sequence[str] | None) -> tuple[str, ...]:
    """Return the names of repeated or comma-separated options."""
    return tuple(name.strip() for part in values or () for name in part.split(",") if name.strip())


def parse_pairs(texts: Sequence[str], separator: str, option: str) -> dict[str, str]:
    """Return the values of a repeated NAME=VALUE option by name."""
    pairs: dict[str, str] = {}
    for text in texts:
        name, found_separator, value = text.partition(separator)
        if not found_separator or not name.strip():
            raise_usage_error(f"{option} takes NAME{separator}VALUE.")
        pairs[name.strip()] = value.strip() if separator == ":" else value
    return pairs


@contextmanager
def open_new_file(path: Path | None, *, keep_partial: bool = False) -> Generator[TextIO | None]:
    """
    Create a new file that only its owner can read, or yield standard output for `-` and None for None.

    Args:
        path: The path; an existing file is never overwritten.
        keep_partial: Keep a partly written file after an error, unless it is empty. By default it is deleted, since it
            could be mistaken for a complete one.
    """
    if path is None or str(path) == "-":
        yield None if path is None else sys.stdout
        return
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise_usage_error(f"Cannot create {path}: {error.strerror}")
    is_whole = False
    try:
        # No newline translation: CSV has its own line ends.
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as file:
            yield file
        is_whole = True
    except OSError as error:
        raise RookeryError(f"Cannot write {path}: {error.strerror}") from error
    finally:
        if not is_whole and not (keep_partial and path.stat().st_size):
            path.unlink(missing_ok=True)


@contextmanager
def open_existing_file(path: Path) -> Generator[BinaryIO]:
    """Open a file for reading, or yield standard input for `-`."""
    if str(path) == "-":
        yield sys.stdin.buffer
        return
    try:
        file = path.open("rb")
    except OSError as error:
        raise_usage_error(f"Cannot read {path}: {error.strerror}")
    with file:
        yield file


def read_text_file(path: Path) -> str:
    """Return the text of a file, or of standard input for `-`."""
    with open_existing_file(path) as file:
        try:
            return file.read().decode("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise_usage_error(f"Cannot read {path}: {error}")


def _parse_time(text: str, *, in_future: bool) -> datetime:
    days = _DAYS_PATTERN.fullmatch(text)
    try:
        if days is not None:
            distance = timedelta(days=int(days[1]))
            return utc_now() + distance if in_future else utc_now() - distance
        return parse_iso(text)
    except (ValueError, OverflowError):
        raise_usage_error(f"{text!r} is neither an ISO 8601 time nor a number of days such as 90d.")


FieldsFile = Annotated[Path, typer.Argument(help="A JSON file with the fields of the request in the API; - reads standard input.")]
"""The argument of a command that creates something. `read_json_object` returns its content."""


def read_json_file(path: Path) -> object:
    """
    Return the JSON value in a file, or in standard input for `-`.

    A file that cannot be read or is not JSON ends the command with exit code 2.
    """
    try:
        return orjson.loads(read_text_file(path))
    except orjson.JSONDecodeError as error:
        raise_usage_error(f"{path} is not JSON: {error.msg} (line {error.lineno}).")


def read_json_object(path: Path) -> dict[str, object]:
    """
    Return the JSON object in a file, or in standard input for `-`.

    Another value ends the command as in `read_json_file`.
    """
    value = read_json_file(path)
    if not isinstance(value, dict):
        raise_usage_error(f"{path} must contain a JSON object.")
    return cast("dict[str, object]", value)
