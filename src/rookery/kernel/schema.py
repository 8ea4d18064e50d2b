"""
The base classes of all request bodies, queries and responses.

Each model is built by its first use (`defer_build`), under a lock of pydantic. A start would otherwise build 200 models in 0.1 s.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from datetime import datetime
from enum import StrEnum
from functools import cache
from typing import Annotated, Any, ClassVar, Generic, Self, TypeGuard, TypeVar, cast, get_args
from unicodedata import category

import orjson
from pydantic import (
    AfterValidator,
    AliasPath,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    PlainSerializer,
    ValidationError,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    WithJsonSchema,
    field_validator,
)
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import CoreSchema, ErrorDetails, core_schema

from rookery.kernel.clock import format_iso, parse_iso
from rookery.kernel.errors import ValidationFailed
from rookery.kernel.pages import CURSOR_FIELD, MAX_CURSOR_CHARS, Cursor, PageSlice, Position, decode_cursor, digest_list, encode_cursor
from rookery.kernel.sentences import suggest
from rookery.kernel.unset import UNSET
from rookery.kernel.validation_messages import WORD_PATTERN, describe_error

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)

_MAX_PAGE_NUMBER = 10_000_000
_MISSING = object()


_INVISIBLE_CATEGORIES = frozenset({"Cc", "Cf", "Zl", "Zp", "Zs"})
"""Unicode categories of white space, controls and characters without width. A text of only these is blank."""


def require_not_blank(text: str) -> str:
    """Return *text*. Raise ValueError if all its characters are invisible."""
    if all(category(char) in _INVISIBLE_CATEGORIES for char in text):
        msg = "must not be blank"
        raise ValueError(msg)
    return text


NotBlank = AfterValidator(require_not_blank)
"""Rejects a text without a visible character, where the text is content or names something."""


def _parse_timestamp(value: object) -> object:
    if isinstance(value, datetime):
        return value
    if not isinstance(value, str):
        msg = "must be an ISO 8601 time such as 2026-11-21T09:30:00Z"
        raise ValueError(msg)  # noqa: TRY004 - pydantic reports only ValueError as an error of the field
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
"""Parses ISO 8601, in UTC if there is no zone; serialises as ISO 8601 with Z and six decimals."""


def split_names(value: object) -> object:
    """Return the names of a list, of which each item may hold several, separated by commas."""
    if not isinstance(value, list):
        return value
    return [name.strip() for item in cast("list[object]", value) for name in str(item).split(",") if name.strip()]


class RequestModel(BaseModel):
    """
    A JSON body without unknown fields, type coercion, NaN or Infinity.

    A model may declare `hints`: field names of other products, each with the field that the error message suggests.
    """

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, defer_build=True)


class PatchModel(RequestModel):
    """
    A partial update. A field that is left out is UNSET and keeps its value, so the model documents no default.

    A field without `None` in its type rejects null. In the others, null clears the value.

    Attributes:
        action_fields: The fields that say how to change, and so have no current value.
    """

    action_fields: ClassVar[frozenset[str]] = frozenset()

    @field_validator("*", mode="wrap")
    @classmethod
    def _explain_null(cls, value: object, validate: ValidatorFunctionWrapHandler, info: ValidationInfo) -> object:
        try:
            return validate(value)
        except ValidationError as error:
            name = str(info.field_name)
            if value is not None or name in cls.action_fields or cls.model_fields[name].is_required():
                raise
            details = error.errors(include_url=False)
            problem = describe_error(details[0]) if len(details) == 1 else "must not be null"
            msg = f"{problem}; omit it to keep the current value"
            raise ValueError(msg) from None

    def get_set_fields(self) -> dict[str, Any]:
        """Return the fields that were sent, by name."""
        return {name: value for name, value in self if value is not UNSET}


class QueryModel(BaseModel):
    """The query of a request. Values are converted from text; unknown names are rejected."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, defer_build=True)


class ResponseModel(BaseModel):
    """A response body. It is built from Rookery's own values, so it is not validated again."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    @classmethod
    def from_parts(cls, *parts: object, **fields: object) -> Self:
        """
        Return the model with the attributes of *parts*.

        Args:
            parts: Objects of a domain. The first one with an attribute of a field's name or alias gives the value.
            fields: Values in place of attributes, by the same names.
        """
        names = [name for name in _list_attribute_names(cls) if name not in fields]
        return cls.model_validate(_Parts(names, parts, fields), from_attributes=True)


class _Parts:
    """An object with the attributes of several others. Pydantic reads them a third faster than through `__getattr__`."""

    def __init__(self, names: Iterable[str], parts: Sequence[object], fields: Mapping[str, object]) -> None:
        for name in names:
            for part in parts:
                value = getattr(part, name, _MISSING)
                if value is not _MISSING:
                    self.__dict__[name] = value
                    break
        self.__dict__.update(fields)


@cache
def _list_attribute_names(model: type[BaseModel]) -> Sequence[str]:
    """Return the names of attributes that fields of *model* may be read from."""
    names = list[str]()
    for name, info in model.model_fields.items():
        alias = info.validation_alias
        first = alias.path[0] if isinstance(alias, AliasPath) else alias
        names += [name, first] if isinstance(first, str) else [name]
    return tuple(dict.fromkeys(names))


class CursorQuery(QueryModel):
    """The query parameter that lists with cursors have."""

    offset_fields: ClassVar[frozenset[str]] = frozenset()
    """The parameters that count items from the beginning of the list. A cursor replaces them."""

    size_field: ClassVar[str] = ""
    """The parameter with the number of items."""

    _digest: bytes = b""
    _cursor: Cursor | None = None

    cursor: Annotated[
        str | None,
        Field(
            min_length=1,
            max_length=MAX_CURSOR_CHARS,
            description="`next_cursor` of the page before: the page after it, however the list changed meanwhile.",
        ),
    ] = None

    def bind(self, name: str, parameters: Mapping[str, object]) -> None:
        """
        Bind the cursors of the request to the list *name* and to the parameters that are not about pages.

        Raises:
            ValidationFailed: The cursor is not one of this list, or stands beside a number of a page.
        """
        own = {CURSOR_FIELD, self.size_field, *self.offset_fields}
        self._digest = digest_list(name, {name: value for name, value in parameters.items() if name not in own})
        if self.cursor is not None:
            for field in self.offset_fields & self.model_fields_set:
                raise ValidationFailed({CURSOR_FIELD: [f"cannot be combined with {field}"]})
            self._cursor = decode_cursor(self._digest, self.cursor)

    @property
    def position(self) -> Position | None:
        return None if self._cursor is None else self._cursor.position

    @property
    def number(self) -> int:
        """The number of the page, from 1, in a walk by cursors."""
        return 1 if self._cursor is None else self._cursor.page

    def encode_cursor(self, position: Position | None) -> str | None:
        """Return the cursor of the page after *position*, or None if there is no such page."""
        return None if position is None else encode_cursor(self._digest, Cursor(min(self.number + 1, _MAX_PAGE_NUMBER), position))


class PageQuery(CursorQuery):
    """The query parameters that every list has."""

    offset_fields: ClassVar[frozenset[str]] = frozenset({"page"})
    size_field: ClassVar[str] = "per_page"

    page: Annotated[int, Field(ge=1, le=_MAX_PAGE_NUMBER, description="The number of the page, from 1.")] = 1
    per_page: Annotated[int, Field(ge=1, le=100, description="The number of items on a page.")] = 15

    @property
    def slice(self) -> PageSlice:
        """The part of the list that the page has."""
        return PageSlice(self.per_page, (self.page - 1) * self.per_page, self.position)

    @property
    def number(self) -> int:
        """The number of the page, from 1."""
        return self.page if self._cursor is None else self._cursor.page


class Links(BaseModel):
    """URLs of the neighbouring pages; null if there is no such page."""

    first: str
    last: str
    prev: str | None
    next: str | None


class Meta(BaseModel):
    """The position of the page in the list."""

    current_page: int
    per_page: int
    total: int
    next_cursor: Annotated[str | None, Field(description="The `cursor` of the next page; null on the last page.")] = None


class Page(BaseModel, Generic[T]):
    """One page of a list, as `kernel.http.page_response` sends it."""

    data: list[T]
    links: Links
    meta: Meta


class SchemaGenerator(GenerateJsonSchema):
    """A generator without titles that repeat field names, and with fields that responses may omit marked as optional."""

    def field_title_should_be_set(self, schema: object) -> bool:
        """Return false, because no field needs a title."""
        del schema
        return False

    def field_is_required(
        self,
        field: core_schema.ModelField | core_schema.DataclassField | core_schema.TypedDictField,
        total: bool,  # noqa: FBT001 - the library's signature
    ) -> bool:
        """Return whether every value has the field. A field with `exclude_if` may be missing in a response."""
        if self.mode == "serialization" and "serialization_exclude_if" in field:
            return False
        return super().field_is_required(field, total)


class JsonSchemaOf:
    """
    An annotation that documents an object with the schema of *model*, although it is sent unchanged.

    Use it for objects of third parties that are passed on with all their fields.
    """

    def __init__(self, model: type[BaseModel]) -> None:
        self._model = model

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Return the model's schema in place of *schema*."""
        del schema
        return handler(self._model.__pydantic_core_schema__)


class ItemsOf:
    """
    An annotation that documents the form of the items of a list as `x-items`, and does not require it.

    Use it if each item is validated on its own, so that the list is accepted with invalid ones.
    """

    def __init__(self, model: type[BaseModel]) -> None:
        self._model = model

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Return the schema of the list with a reference to that of the model."""
        return {**handler(schema), "x-items": handler(self._model.__pydantic_core_schema__)}


def enum_schema(kind: type[StrEnum], description: str | None = None) -> WithJsonSchema:
    """Return an annotation that documents a text as one of the values of *kind*, although it is sent unchanged."""
    described = {} if description is None else {"description": description}
    return WithJsonSchema({"type": "string", "enum": [member.value for member in kind], **described})


def to_json(response: ResponseModel) -> dict[str, object]:
    """Return *response* as the JSON object that HTTP clients receive."""
    return cast("dict[str, object]", orjson.loads(response.__pydantic_serializer__.to_json(response, by_alias=True)))


def parse_model(model: type[M], fields: object) -> M:
    """
    Validate *fields* as *model*. A number without a fraction, such as 3.0, is an integer, as in JSON Schema (draft 6 and later).

    Raises:
        ValidationFailed: A field is missing, unknown or invalid.
    """
    validator = model.__pydantic_validator__
    try:
        return validator.validate_python(fields)
    except ValidationError as error:
        places = [detail["loc"] for detail in error.errors(include_url=False) if detail["type"] == "int_type" and is_whole(detail["input"])]
        if not places:
            raise map_validation_error(error, model) from error
    completed_fields = deepcopy(fields)
    for place in places:
        _make_integer(completed_fields, place)
    try:
        return validator.validate_python(completed_fields)
    except ValidationError as error:
        raise map_validation_error(error, model) from error


def is_whole(value: object) -> TypeGuard[float]:
    """Return whether *value* is a float without a fraction."""
    return isinstance(value, float) and value.is_integer()


def _make_integer(fields: object, place: Sequence[int | str]) -> None:
    """Replace the whole number at *place* by an integer. Parts of *place* that only name a choice of a union are skipped."""
    container = fields
    for key in place:
        value = _get_item(container, key)
        if is_whole(value):
            cast("dict[int | str, object]", container)[key] = int(value)
            return
        container = container if value is None else value


def _get_item(container: object, key: int | str) -> object:
    if isinstance(container, dict):
        return cast("dict[int | str, object]", container).get(key)
    if isinstance(container, list) and isinstance(key, int) and key < len(cast("list[object]", container)):
        return cast("list[object]", container)[key]
    return None


def _is_missing(value: object) -> bool:
    return value is None


OMITTED_IF_NONE = Field(exclude_if=_is_missing)
"""The marker of a field of a response that is omitted if it is None."""

OmittedIfNone = Annotated[str | None, OMITTED_IF_NONE]
"""A text of a response that is omitted if it is None."""

_SENTENCE_END = re.compile(r"\.\s+(?=[A-Z{`])")

_MAX_ERRORS = 100
_MAX_SUGGESTIONS = 10
"""Maximum unknown fields with a suggestion. A suggestion takes 60 µs, so 40,000 unknown fields would take seconds."""


def map_validation_error(error: ValidationError, model: type[BaseModel]) -> ValidationFailed:
    """Return the errors of each field of *model*. For an unknown field, the nearest known field is suggested."""
    errors: dict[str, list[str]] = {}
    details = error.errors(include_url=False, include_context=True, include_input=True)
    for number, detail in enumerate(details[:_MAX_ERRORS]):
        location = detail["loc"]
        name = ".".join(str(part) for part in location) or "body"
        if detail["type"] == "extra_forbidden":
            text = _unknown_field_message(str(location[-1]), model if len(location) == 1 and number < _MAX_SUGGESTIONS else None)
        else:
            text = describe_error(detail) + _list_usual_values(detail, model)
        errors.setdefault(name[:200], []).append(text)
    if len(details) > _MAX_ERRORS:
        errors.setdefault("body", []).append(f"and {len(details) - _MAX_ERRORS} more errors that are not listed")
    return ValidationFailed(errors)


def _list_usual_values(error: ErrorDetails, model: type[BaseModel]) -> str:
    """Return the description of a field for words that users choose, which has the usual ones. Others would repeat the rule."""
    location = error["loc"]
    is_word = error["type"] == "string_pattern_mismatch" and error.get("ctx", {}).get("pattern") == WORD_PATTERN
    info = model.model_fields.get(str(location[0])) if len(location) == 1 and is_word else None
    if info is None:
        return ""
    inner = (
        item for alternative in get_args(info.annotation) for item in cast("tuple[object, ...]", getattr(alternative, "__metadata__", ()))
    )
    description = next((part.description for part in (info, *inner) if isinstance(part, FieldInfo) and part.description), "")
    return f" ({_SENTENCE_END.split(description, 1)[0].rstrip('.')})" if description else ""


def _unknown_field_message(name: str, model: type[BaseModel] | None) -> str:
    hints = cast("Mapping[str, str]", getattr(model, "hints", {}))
    if name in hints:
        return f"unknown field; did you mean {hints[name]!r}?"
    field_names = [info.alias or field_name for field_name, info in model.model_fields.items()] if model else []
    return f"unknown field{suggest(name, field_names)}"
