"""Reading the settings and state files of clients for a check. A file that does not exist counts as empty."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import cast

from rookery.connect.client_files import decode, read_file
from rookery.connect.errors import ClientFileBroken, UneditableText
from rookery.connect.jsonc import parse_jsonc
from rookery.connect.toml_edits import parse_toml


def read_json(file: Path) -> dict[str, object]:
    """
    Return the object of a JSON file with comments.

    Raises:
        ClientFileBroken: The file cannot be read, or is not JSON.
    """
    try:
        root = parse_jsonc(decode(file, read_file(file)))
    except UneditableText as error:
        raise ClientFileBroken(f"{file}: {error}.") from error
    return get_object(None if root is None else root.to_value())


def read_toml(file: Path) -> dict[str, object]:
    """
    Return the content of a TOML file.

    Raises:
        ClientFileBroken: The file cannot be read, or is not TOML.
    """
    try:
        return parse_toml(decode(file, read_file(file)))
    except UneditableText as error:
        raise ClientFileBroken(f"{file}: {error}.") from error


def get_object(value: object) -> dict[str, object]:
    """Return *value* if it is an object, or an empty one."""
    return cast("dict[str, object]", value) if isinstance(value, dict) else {}


def get_texts(settings: Mapping[str, object], name: str) -> list[str]:
    value = settings.get(name)
    return [item for item in cast("list[object]", value) if isinstance(item, str)] if isinstance(value, list) else []
