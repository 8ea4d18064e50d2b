"""Arguments of prompts: texts by name."""

from __future__ import annotations

from typing import cast


def drop_nulls(arguments: object) -> object:
    """Return arguments without nulls, which clients send for what is not set. Null itself becomes an empty object."""
    if not isinstance(arguments, dict):
        return {} if arguments is None else arguments
    return {name: value for name, value in cast("dict[str, object]", arguments).items() if value is not None}
