"""Calls: the requests of the client as data. No I/O."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from enum import Enum
from typing import Final, Generic, Literal, Self, TypeVar, cast
from urllib.parse import quote

T = TypeVar("T")


class Unset(Enum):
    """The type of `UNSET`."""

    UNSET = "unset"

    def __repr__(self) -> str:
        """Return the short name, which stands in every signature that `help` shows."""
        return "UNSET"


UNSET: Final = Unset.UNSET
"""
The default of optional arguments. Such an argument is not sent, so that a change keeps the value of the field.

None is sent as null, which clears a field.
"""

Reader = Literal["json", "text", "bytes", "nothing"]
"""The form in which the body of a response is returned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call(Generic[T]):
    """
    One call of an operation.

    Attributes:
        operation: The id of the operation in the OpenAPI document.
        result: The type of the result; None if there is no body.
        query: Parameters of the URL, without unset ones.
        body: The JSON body, or None.
        content: A body that is not JSON, with its *content_type*.
        accept: The media type of the response.
        accepts_key: The operation accepts an Idempotency-Key, so that a retry does not act twice.
        idempotency_key: The value of that header, if it is not a new one for each call.
        repeatable: The operation is a POST without Idempotency-Key that may be sent again, because it only reads.
    """

    operation: str
    method: str
    path: str
    result: type[T]
    reader: Reader = "json"
    query: Mapping[str, object] = field(default_factory=dict[str, object])
    headers: Mapping[str, object] = field(default_factory=dict[str, object])
    body: Mapping[str, object] | None = None
    content: bytes | str | None = None
    content_type: str = "application/json"
    accept: str = "application/json"
    accepts_key: bool = False
    idempotency_key: str | Unset = UNSET
    repeatable: bool = False

    @property
    def is_repeatable(self) -> bool:
        """True if the same request may be sent again although the server may have acted on it."""
        return self.repeatable or self.method not in {"POST", "PATCH"}

    def at_page(self, parameters: Mapping[str, object]) -> Self:
        """Return the same call for another page, with the *parameters* of that page."""
        others = {name: value for name, value in self.query.items() if name not in {"page", "cursor"}}
        return replace(self, query={**others, **parameters})

    def encode_body(self) -> bytes | None:
        """Return the bytes of the body, or None without a body."""
        if self.content is not None:
            return self.content.encode() if isinstance(self.content, str) else self.content
        if self.body is None:
            return None
        try:
            return json.dumps(self.body, default=_to_json, ensure_ascii=False).encode()
        except UnicodeEncodeError:  # half of a surrogate pair, which only an escape can express; the server names the place
            return json.dumps(self.body, default=_to_json).encode()

    def encode_query(self) -> list[tuple[str, str]]:
        """
        Return the parameters of the URL.

        A list becomes one parameter for each item, and an object one for each field, such as `metadata.user_id`.
        """
        pairs = list[tuple[str, str]]()
        for name, value in self.query.items():
            if isinstance(value, Mapping):
                pairs += [(f"{name}.{field}", _to_comparable_text(item)) for field, item in cast("Mapping[str, object]", value).items()]
            elif value is not None:
                items = cast("Sequence[object]", value) if isinstance(value, (list, tuple)) else [value]
                pairs += [(name, _to_text(item)) for item in items]
        return pairs

    def encode_headers(self) -> dict[str, str]:
        """Return the headers that the operation has."""
        return {name: _to_text(value) for name, value in self.headers.items() if value is not None}


def given(**values: object) -> dict[str, object]:
    """Return *values* without unset ones. A trailing underscore of a name, which avoids a keyword of Python, is removed."""
    return {name.rstrip("_"): value for name, value in values.items() if value is not UNSET}


class InvalidPathValue(ValueError):
    """A value that cannot be one segment of a path."""


def fill_path(path: str, **values: str | int) -> str:
    """
    Return *path* with its parameters replaced. Each value is one segment: a slash in it is encoded.

    Raises:
        InvalidPathValue: A value is empty or a dot segment, so that the request would go to another route.
    """
    for name, value in values.items():
        if str(value) in {"", ".", ".."}:
            raise InvalidPathValue(f"{name} is {str(value)!r}, which cannot be a part of a path.")
        path = path.replace(f"{{{name}}}", quote(str(value), safe=""))
    return path


def _to_text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (datetime, date)):
        return value.isoformat()
    return json.dumps(value, default=_to_json) if isinstance(value, Mapping) else str(value)


def _to_comparable_text(value: object) -> str:
    """Return the text by which the server compares a value of JSON: `null` for None, `3` for 3.0."""
    if value is None:
        return "null"
    return _to_text(int(value) if isinstance(value, float) and value.is_integer() else value)


def _to_json(value: object) -> object:
    if isinstance(value, (datetime, date)):
        return value.isoformat()
    if isinstance(value, (set, frozenset, tuple)):
        return list(value)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType] - of any JSON values
    raise TypeError(f"A request body cannot contain a value of type {type(value).__name__}.")
