"""Messages for pydantic's validation errors: the problem, the value, and what is allowed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from pydantic_core import ErrorDetails

_MAX_VALUE_LENGTH = 60
_SECRET_WORDS = frozenset({"secret", "secrets", "password", "token", "key"})
"""A field whose name contains one of these words may hold a secret, so its value is not repeated."""

WORD_PATTERN = r"^[a-z][a-z0-9_-]{0,63}$"
"""The pattern of words that users choose, such as the type of a memory."""

PATTERN_TEXTS: Mapping[str, str] = {
    WORD_PATTERN: "1 to 64 lower-case letters, digits, `_` and `-`, the first one a letter",
    r"^[0-9a-f]{16}$": "16 hexadecimal digits in lower case",
    r"^[0-9a-f]{32}$": "32 hexadecimal digits in lower case",
    r"^[0-9a-f]{32}(,[0-9a-f]{32}){0,3}$": "one to four ids of 32 hexadecimal digits in lower case, separated by commas",
    r"^[a-z0-9](?:[a-z0-9-]{0,62}[a-z0-9])?$": "1 to 64 lower-case letters, digits and `-`, without `-` at either end",
    r"^[a-z0-9](?:[a-z0-9-]*[a-z0-9])?$": "lower-case letters, digits and `-`, without `-` at either end",
    r"^[!-~]+$": "printable ASCII characters without spaces",
    r"^[ -~]+$": "printable ASCII characters",
    r"^[A-Za-z_][A-Za-z0-9_]{0,127}$": "1 to 128 letters, digits and `_`, the first one not a digit",
    r"^[a-z][a-z0-9_]{0,63}$": "1 to 64 lower-case letters, digits and `_`, the first one a letter",
    r"^[A-Za-z0-9][A-Za-z0-9._@:+=~-]*$": "letters, digits and `._@:+=~-`, the first one a letter or a digit",
    r"^[A-Za-z]{2,3}([_-][A-Za-z0-9]{2,8}){0,3}$": "a language, such as de or de-AT",
    r"^[^\s,;][^,;\r\n\t]*$": "a text without commas, semicolons, tabs and line breaks, and without a space before it",
    r"^[A-Z]{3}$": "a currency of three capital letters, such as EUR",
    r"^(?:all|[0-9]{1,18})$": "`all` or a whole number of at most 18 digits",
    r"^(?:this|last|[0-9]{4}-(?:0[1-9]|1[0-2]))$": "`this`, `last` or a month such as 2026-11",
    r"^[1-9][0-9]{0,4}d$": "a number of days from 1 to 99999 and `d`, such as 30d",
    r"\S": "a text that is not blank",
}
"""Descriptions of the patterns used by request models."""

_TYPE_TEXTS: Mapping[str, str] = {
    "string_type": "a string",
    "int_type": "an integer",
    "int_parsing": "an integer",
    "int_from_float": "an integer without a fraction",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "list_type": "an array",
    "tuple_type": "an array",
    "set_type": "an array",
    "dict_type": "a JSON object",
    "model_type": "a JSON object",
    "model_attributes_type": "a JSON object",
    "none_required": "null",
}
_BOUND_TEXTS: Mapping[str, tuple[str, str]] = {
    "greater_than_equal": ("ge", "at least"),
    "less_than_equal": ("le", "at most"),
    "greater_than": ("gt", "more than"),
    "less_than": ("lt", "less than"),
}
_LENGTH_TEXTS: Mapping[str, tuple[str, str, str]] = {
    "string_too_short": ("min_length", "at least", "character"),
    "string_too_long": ("max_length", "at most", "character"),
    "too_short": ("min_length", "at least", "item"),
    "too_long": ("max_length", "at most", "item"),
}


def describe_error(error: ErrorDetails) -> str:
    """Return the problem of a value and what is allowed. Other kinds of errors keep pydantic's message."""
    kind, context = error["type"], cast("Mapping[str, object]", error.get("ctx", {}))
    value_text = _format_value(error)
    if kind == "missing":
        return "is required"
    if kind in _TYPE_TEXTS:
        return f"must be {_TYPE_TEXTS[kind]}{value_text}"
    if kind in {"literal_error", "enum"}:
        return f"must be one of {context['expected']}{value_text}"
    if kind == "string_pattern_mismatch":
        pattern = str(context["pattern"])
        return (
            f"must be {PATTERN_TEXTS[pattern]}{value_text}" if pattern in PATTERN_TEXTS else f"must match the pattern {pattern}{value_text}"
        )
    if kind in _BOUND_TEXTS:
        bound, words = _BOUND_TEXTS[kind]
        limit = context[bound]
        return f"must be {words} {f'{limit:g}' if isinstance(limit, float) else limit}{value_text}"
    if kind in _LENGTH_TEXTS:
        bound, words, noun = _LENGTH_TEXTS[kind]
        count = cast("int", context[bound])
        return f"must have {words} {count:,} {noun}{'' if count == 1 else 's'}{_format_length(error['input'])}"
    return error["msg"].removeprefix("Value error, ")


def _format_value(error: ErrorDetails) -> str:
    """Return `, not VALUE` if the value is short and cannot be a secret, otherwise an empty text."""
    value = error["input"]
    if any(not _SECRET_WORDS.isdisjoint(str(part).lower().split("_")) for part in error["loc"]):
        return ""
    if isinstance(value, bool):
        return f", not {str(value).lower()}"
    if value is None:
        return ", not null"
    if isinstance(value, (int, float)) or (isinstance(value, str) and len(value) <= _MAX_VALUE_LENGTH):
        return f", not {value!r}" if len(repr(value)) <= _MAX_VALUE_LENGTH + 2 else ""
    if isinstance(value, list):
        return ", not an array"
    if isinstance(value, dict):
        return ", not an object"
    return ""


def _format_length(value: object) -> str:
    if isinstance(value, list):
        return f", not {len(cast('list[object]', value)):,}"
    return f", not {len(value):,}" if isinstance(value, str) else ""
