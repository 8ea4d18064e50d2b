"""Texts of forms and URLs as arguments of the client."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from datetime import date, timedelta
from typing import TypeVar, cast

from rookery_client import ApiError
from rookery_client.calls import UNSET, Unset

T = TypeVar("T")
Name = TypeVar("Name", bound=str)

_BOOLEANS = {"true": True, "false": False}
_MAX_SHOWN_CHARS = 40


def refuse_field(name: str, problem: str) -> ApiError:
    """Return the error of a form whose field *name* has a problem, in the form of the API's own."""
    return ApiError(f"{name}: {problem}", status=422, code="validation_error", detail={"errors": {name: [problem]}})


def parse_number(name: str, text: str) -> float | None:
    """
    Return the number in *text*, which the field or parameter *name* has; None if it is empty.

    Raises:
        ApiError: The text is not a finite number.
    """
    try:
        number = float(text) if text else None
    except ValueError:
        number = math.nan
    if number is not None and not math.isfinite(number):
        raise refuse_field(name, f"must be a number; got {text[:_MAX_SHOWN_CHARS]!r}")
    return number


def parse_integer(name: str, text: str) -> int | None:
    """
    Return the integer in *text*, which the field or parameter *name* has; None if it is empty.

    Raises:
        ApiError: The text is not an integer.
    """
    try:
        return int(text) if text else None
    except ValueError:
        raise refuse_field(name, f"must be an integer; got {text[:_MAX_SHOWN_CHARS]!r}") from None


def parse_json(name: str, text: str) -> object:
    """
    Return the JSON value in *text*, which the field *name* has; None if it is empty.

    Raises:
        ApiError: The text is not JSON.
    """
    try:
        return json.loads(text) if text else None
    except (ValueError, RecursionError) as error:
        raise refuse_field(name, f"is not JSON: {error}") from None


def parse_json_object(name: str, text: str) -> dict[str, object] | None:
    """
    Return the JSON object in *text*, which the field *name* has; None if it is empty.

    Raises:
        ApiError: The text is something else.
    """
    value = parse_json(name, text)
    if value is None and not text:
        return None
    if not isinstance(value, dict):
        raise refuse_field(name, 'must be a JSON object, such as {"ticket": 4211}')
    return cast("dict[str, object]", value)


def parse_variable(kind: str, text: str) -> object:
    """Return the value of a template's variable of the type *kind*. Other text stays text, and the API names the variable."""
    try:
        match kind:
            case "integer":
                return int(text)
            case "number":
                return float(text)
            case "boolean":
                return _BOOLEANS.get(text.strip().lower(), text)
            case _:
                return text
    except ValueError:
        return text


def choose(text: str, allowed: Iterable[Name]) -> Name | Unset:
    """Return the one of *allowed* that equals *text*. Any other text counts as missing, as the list then shows."""
    return next((name for name in allowed if name == text), UNSET)


def end_of_day(text: str) -> str | Unset:
    """Return the end of a day in UTC, for a filter that includes it. Another text is passed on, so that the API says what is wrong."""
    try:
        return (date.fromisoformat(text) + timedelta(days=1)).isoformat()
    except (ValueError, OverflowError):
        return text or UNSET


def or_unset(value: T | None) -> T | Unset:
    """Return *value*; unset for None."""
    return UNSET if value is None else value
