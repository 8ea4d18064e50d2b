"""JSON files that a command reads, such as the fields of something to create."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, cast

import orjson
import typer

from rookery.terminal.options import raise_usage_error, read_text_file

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
