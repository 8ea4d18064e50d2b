"""The base of everything on the wire: what all bodies, queries and answers have in common (D-10, D-13, D-16)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Annotated, TypeVar, cast, get_args

import orjson
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    PlainSerializer,
    ValidationError,
    WithJsonSchema,
)
from pydantic.fields import FieldInfo
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from rookery.kernel.clock import format_iso, parse_iso
from rookery.kernel.errors import ValidationFailed
from rookery.kernel.suggestions import suggest
from rookery.kernel.validation_messages import describe_error

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)


def _parse_timestamp(value: object) -> object:
    if isinstance(value, datetime):
        return value
    if not isinstance(value, str):
        msg = "must be an ISO 8601 time such as 2026-11-21T09:30:00Z"
        raise ValueError(msg)  # noqa: TRY004 - pydantic turns ValueError alone into a field's error
    try:
        return parse_iso(value)
    except ValueError as error:
        msg = "must be an ISO 8601 time such as 2026-11-21T09:30:00Z"
        raise ValueError(msg) from error


Timestamp = Annotated[
    datetime,
    BeforeValidator(_parse_timestamp),
    PlainSerializer(format_iso, return_type=str, when_used="json"),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]
"""ISO 8601 in, a missing zone being UTC; ISO 8601 with Z and six decimals out."""


class RequestModel(BaseModel):
    """
    A JSON body: no unknown field, no silent conversion, no NaN.

    A model may declare `hints`: names that other products have for a field, each with the field that an error then suggests.
    """

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class QueryModel(BaseModel):
    """The query of an address: texts are read as what is asked for; no unknown name."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class ResponseModel(BaseModel):
    """What we send; built from our own values, so nothing is checked twice."""

    model_config = ConfigDict(frozen=True)


class JsonSchemaOf:
    """
    Says in the documentation that an object has the fields of *model*; it is sent as it is.

    For what others gave us, and we pass on with all that they said.
    """

    def __init__(self, model: type[BaseModel]) -> None:
        self._model = model

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Return the model's schema in place of *schema*."""
        del schema
        return handler(self._model.__pydantic_core_schema__)


def enum_schema(kind: type[StrEnum]) -> WithJsonSchema:
    """Return what says in the documentation that a text is one of *kind*'s; it is sent as it is."""
    return WithJsonSchema({"type": "string", "enum": [each.value for each in kind]})


def to_json(answer: ResponseModel) -> dict[str, object]:
    """Return *answer* as whoever asks by HTTP reads it."""
    return cast("dict[str, object]", orjson.loads(answer.__pydantic_serializer__.to_json(answer, by_alias=True)))


def parse_model(model: type[M], fields: Mapping[str, object]) -> M:
    """
    Return *fields* read as *model*.

    Raises:
        ValidationFailed: A field is missing, unknown or invalid.
    """
    try:
        return model.model_validate(fields)
    except ValidationError as error:
        raise map_validation_error(error, model) from error


def _is_missing(value: object) -> bool:
    return value is None


OmittedIfNone = Annotated[str | None, Field(exclude_if=_is_missing)]
"""A text of an answer that is left out where there is nothing to say."""

_MAX_ERRORS = 100
_MAX_SUGGESTIONS = 10
"""Looking for the nearest name costs some 60 µs: a body of 40,000 unknown fields took seconds, and its answer megabytes."""


def map_validation_error(error: ValidationError, model: type[BaseModel]) -> ValidationFailed:
    """Return what is wrong with something read as *model*, field by field; an unknown field with the nearest known one (D-10)."""
    errors: dict[str, list[str]] = {}
    found = error.errors(include_url=False, include_context=True, include_input=True)
    for number, each in enumerate(found[:_MAX_ERRORS]):
        location = each["loc"]
        name = ".".join(str(part) for part in location) or "body"
        if each["type"] == "extra_forbidden":
            text = _unknown_field_message(str(location[-1]), model if len(location) == 1 and number < _MAX_SUGGESTIONS else None)
        else:
            text = describe_error(each) + _field_description(each["type"], location, model)
        errors.setdefault(name[:200], []).append(text)
    if len(found) > _MAX_ERRORS:
        errors.setdefault("body", []).append(f"and {len(found) - _MAX_ERRORS} more that are not listed")
    return ValidationFailed(errors)


def resolve_alias(name: str, value: T | None, old_name: str, old_value: T | None) -> T | None:
    """
    Return the value of a parameter that has two names.

    Raises:
        ValidationFailed: Both are given, with different values.
    """
    if value is not None and old_value is not None and value != old_value:
        raise ValidationFailed({old_name: [f"is the earlier name of {name!r}, which has another value; give one of them"]})
    return old_value if value is None else value


def _field_description(kind: str, location: Sequence[int | str], model: type[BaseModel]) -> str:
    """Return what a field of *model* means, where only a pattern says what is allowed: so the usual values are named."""
    info = model.model_fields.get(str(location[0])) if len(location) == 1 and kind == "string_pattern_mismatch" else None
    if info is None:
        return ""
    inner = (each for way in get_args(info.annotation) for each in cast("tuple[object, ...]", getattr(way, "__metadata__", ())))
    described = next((each.description for each in (info, *inner) if isinstance(each, FieldInfo) and each.description), "")
    return f" ({described.partition('. ')[0].rstrip('.')})" if described else ""


def _unknown_field_message(name: str, model: type[BaseModel] | None) -> str:
    hints = cast("Mapping[str, str]", getattr(model, "hints", {}))
    if name in hints:
        return f"unknown field; did you mean {hints[name]!r}?"
    known = [info.alias or field_name for field_name, info in model.model_fields.items()] if model else []
    return f"unknown field{suggest(name, known)}"
