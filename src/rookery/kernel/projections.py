"""
Models of bodies and responses whose fields are those of a domain's dataclass.

A field of a resource is declared once, in the dataclass that is stored: its type, default, bounds and description. The models are
projections of it:

| Model           | Fields                                                                                              |
|-----------------|-----------------------------------------------------------------------------------------------------|
| `Body[D]`       | those of D, with their bounds and defaults                                                          |
| `Patch[D]`      | those of D, each UNSET if it is left out                                                            |
| `Projection[D]` | those of D without bounds, `workspace_id` being the public one; never bytes, which are sealed values |

A subclass names the model for the OpenAPI document. A field that it declares itself replaces the one of D, or is added to them. The
fields of D in its `hidden` are left out. With `resets_by_null`, null stands for the default of a field that has one; a patch may name the
fields for which it does.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Iterator, Mapping
from dataclasses import MISSING as NO_DEFAULT
from dataclasses import Field as DataclassField
from dataclasses import fields, replace
from datetime import datetime
from enum import Enum
from functools import cache
from typing import Annotated, Any, ClassVar, Generic, Protocol, Self, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from pydantic import AfterValidator, AliasPath, BaseModel, Field, ValidationInfo, field_validator
from pydantic.fields import FieldInfo

from rookery.kernel.schema import PatchModel, RequestModel, ResponseModel, Timestamp, parse_model
from rookery.kernel.unset import UNSET


class _Dataclass(Protocol):
    __dataclass_fields__: ClassVar[dict[str, DataclassField[Any]]]


D = TypeVar("D", bound=_Dataclass)
Record = TypeVar("Record", bound=_Dataclass)

_LEADING_FIELDS = ("id", "workspace_id")
_PUBLIC_NAMES = {"public_workspace_id": "workspace_id"}
_LENIENT = Field(strict=False)
"""The values of an enumeration are texts in JSON, and those of a tuple or set are arrays. A strict model would reject both."""
_TO_TUPLE = AfterValidator(tuple)


class Body(RequestModel, Generic[D]):
    """A JSON body with the fields of D."""

    hidden: ClassVar[frozenset[str]] = frozenset()
    resets_by_null: ClassVar[bool] = False

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: object) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        listed = [item for item in _iter_fields(_find_source(cls, Body)) if item[0] not in cls.hidden]
        resets = cls.resets_by_null
        _add_fields(cls, Body, {name: _to_field(_accept_json(hint), field, resets_by_null=resets) for name, hint, field in listed})

    def to_model(self, **others: object) -> D:
        """Return the object with the values of the body and of *others*, which the body hides or has in another form."""
        source, resettable = _describe_body(type(self))
        values = dict(others)
        for name, resets_by_null in resettable.items():
            if name not in others and ((value := getattr(self, name)) is not None or not resets_by_null):
                values[name] = _to_value(value)
        return source(**values)


class Patch(PatchModel, Generic[D]):
    """A partial update of the fields of D. Bodies in it are objects of the domain after validation."""

    hidden: ClassVar[frozenset[str]] = frozenset()
    resets_by_null: ClassVar[bool | frozenset[str]] = False
    _defaults: ClassVar[dict[str, DataclassField[Any]]] = {}

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: object) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        listed = [item for item in _iter_fields(_find_source(cls, Patch)) if item[0] not in cls.hidden]
        resets = cls.resets_by_null
        resettable = resets if isinstance(resets, frozenset) else {name for name, _, _ in listed if resets}
        cls._defaults = {name: field for name, _, field in listed if name in resettable and _has_default(field)}
        _add_fields(cls, Patch, {name: _make_optional(_accept_json(hint), is_nullable=name in cls._defaults) for name, hint, _ in listed})

    @field_validator("*", mode="after")
    @classmethod
    def _to_value(cls, value: object, info: ValidationInfo) -> object:
        field = cls._defaults.get(str(info.field_name)) if value is None else None
        return _to_value(value) if field is None else _get_default(field)

    @classmethod
    def of(cls, **changes: object) -> Self:
        """
        Return the update with *changes*. UNSET leaves a field out.

        Raises:
            ValidationFailed: A value is invalid.
        """
        return parse_model(cls, changes)

    def get(self, name: str) -> Any:  # noqa: ANN401 - the type of the field
        """Return the new value of a field, or UNSET."""
        return getattr(self, name)

    def apply_to(self, current: Record) -> Record:
        """Return *current*, which has the fields of D, with the fields that were sent."""
        return replace(current, **self.get_set_fields())


class Projection(ResponseModel, Generic[D]):
    """
    A response with the fields of D.

    Attributes:
        hidden: The fields of D that no response has.
        part: The attribute of the source object that holds the D; empty: the source object is a D.
    """

    hidden: ClassVar[frozenset[str]] = frozenset()
    part: ClassVar[str] = ""

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: object) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        source = _find_source(cls, Projection)
        shown_again = {name for base in cls.__mro__ if issubclass(base, Projection) for name in base.hidden} - cls.hidden
        if shown_again:
            msg = f"{cls.__name__} must hide {', '.join(sorted(shown_again))}, as its base does"
            raise TypeError(msg)
        _add_fields(cls, Projection, dict(_iter_published(source, cls.hidden)))
        for name, _, _ in _iter_fields(source) if cls.part else ():
            info = cls.model_fields.get(name)
            if info is not None and info.validation_alias is None:
                info.validation_alias = AliasPath(cls.part, name)


def copy_fields(source: type[_Dataclass], record: object) -> dict[str, Any]:
    """Return the fields of *source*, with their values in *record*."""
    return {field.name: getattr(record, field.name) for field in fields(source)}


@cache
def _describe_body(model: type[Body[Any]]) -> tuple[type[Any], dict[str, bool]]:
    """Return D, and of each field that the body has, whether null stands for its default."""
    source = cast("type[Any]", _find_source(model, Body))
    listed = [field for field in fields(source) if field.name not in model.hidden]
    return source, {field.name: model.resets_by_null and _has_default(field) for field in listed}


def _to_value(value: object) -> object:
    """Return *value* with an object of the domain for each body, alone or in a tuple."""
    if isinstance(value, Body):
        return cast("Body[Any]", value).to_model()
    return tuple(map(_to_value, cast("tuple[object, ...]", value))) if isinstance(value, tuple) else value


def _find_source(model: type[BaseModel], projection: type[BaseModel]) -> type[Any] | None:
    """Return D of a subclass of `projection[D]`; None for that class itself."""
    for base in model.__mro__:
        metadata = base.__dict__.get("__pydantic_generic_metadata__")
        if metadata is not None and metadata["origin"] is projection and not isinstance(metadata["args"][0], TypeVar):
            return cast("type[Any]", metadata["args"][0])
    return None


@cache
def get_field_types(source: type[Any]) -> Mapping[str, Any]:
    """Return the types of the fields, with bounds and descriptions. Reading them takes 0.7 ms for a class of 20 fields."""
    return get_type_hints(source, include_extras=True)


def _iter_fields(source: type[Any] | None) -> Iterator[tuple[str, Any, DataclassField[Any]]]:
    if source is not None:
        hints = get_field_types(source)
        yield from ((field.name, hints[field.name], field) for field in fields(source))


def _add_fields(model: type[BaseModel], projection: type[BaseModel], derived: dict[str, FieldInfo]) -> None:
    """Put the fields of D before those that the model declares itself. `id` and the workspace are first."""
    own = {name: info for name, info in model.model_fields.items() if name in _list_declared(model, projection)}
    merged = {**derived, **own}
    model.__pydantic_fields__ = {name: merged[name] for name in sorted(merged, key=_get_rank)}


def _list_declared(model: type[BaseModel], projection: type[BaseModel]) -> frozenset[str]:
    """Return the fields that the model or a base of it declares itself."""
    classes = model.__mro__[: model.__mro__.index(projection)]
    return frozenset(name for base in classes for name in inspect.get_annotations(base))


def _get_rank(name: str) -> int:
    return _LEADING_FIELDS.index(name) if name in _LEADING_FIELDS else len(_LEADING_FIELDS)


def _to_field(hint: Any, field: DataclassField[Any], *, resets_by_null: bool) -> FieldInfo:  # noqa: ANN401 - a type form
    if resets_by_null and _has_default(field):
        nullable: Any = hint | None
        return FieldInfo.from_annotated_attribute(nullable, None)
    if field.default is not NO_DEFAULT:
        return FieldInfo.from_annotated_attribute(hint, field.default)
    if field.default_factory is not NO_DEFAULT:
        return FieldInfo.from_annotated_attribute(hint, Field(default_factory=field.default_factory))
    return FieldInfo.from_annotation(hint)


def _make_optional(hint: Any, *, is_nullable: bool) -> FieldInfo:  # noqa: ANN401 - a type form
    return FieldInfo.from_annotated_attribute(hint | UNSET | None if is_nullable else hint | UNSET, UNSET)


def _has_default(field: DataclassField[Any]) -> bool:
    return field.default is not NO_DEFAULT or field.default_factory is not NO_DEFAULT


def _get_default(field: DataclassField[Any]) -> object:
    return field.default if field.default_factory is NO_DEFAULT else field.default_factory()


def _iter_published(source: type[Any] | None, hidden: frozenset[str]) -> Iterator[tuple[str, FieldInfo]]:
    public = [name for name, _, _ in _iter_fields(source) if name in _PUBLIC_NAMES]
    replaced = {_PUBLIC_NAMES[name] for name in public}
    for name, hint, _ in _iter_fields(source):
        if name in hidden or name in replaced or _is_sealed(hint):
            continue
        info = FieldInfo.from_annotation(_drop_bounds(hint))
        if name in _PUBLIC_NAMES:
            info = FieldInfo.from_annotation(_annotate(int, [Field(validation_alias=name)]))
        yield _PUBLIC_NAMES.get(name, name), info


def _is_sealed(hint: Any) -> bool:  # noqa: ANN401 - a type form
    return hint is bytes or any(_is_sealed(part) for part in get_args(hint))


def _accept_json(hint: Any) -> Any:  # noqa: ANN401 - a type form
    """Return the type of a field with the types of its values in JSON accepted."""
    inner, *metadata = get_args(hint) if get_origin(hint) is Annotated else (hint,)
    origin = get_origin(inner)
    if origin is tuple:  # a list has no error of its length beside those of its items, and reads no items beyond its maximum
        return _annotate(list[_accept_json(get_args(inner)[0])], [_LENIENT, *metadata, _TO_TUPLE])
    if metadata:
        return _annotate(_accept_json(inner), metadata)
    if origin in (Union, types.UnionType):
        return Union[tuple(_accept_json(part) for part in get_args(hint))]  # noqa: UP007 - the parts are only known at run time
    if hint is datetime:
        return Timestamp
    is_lenient = origin is frozenset or (inspect.isclass(hint) and issubclass(hint, Enum))
    return _annotate(hint, [_LENIENT]) if is_lenient else hint


def _drop_bounds(hint: Any) -> Any:  # noqa: ANN401 - a type form
    """Return the type of a field without bounds, which hold for what is sent, and with its description and its name in JSON."""
    origin = get_origin(hint)
    if origin is Annotated:
        inner, *metadata = get_args(hint)
        infos = [part for part in metadata if isinstance(part, FieldInfo)]
        description = next((info.description for info in infos if info.description), None)
        alias = next((info.alias for info in infos if info.alias), None)
        public = [] if description is None and alias is None else [Field(description=description, serialization_alias=alias)]
        return _annotate(_drop_bounds(inner), public) if public else _drop_bounds(inner)
    if origin in (Union, types.UnionType):
        return Union[tuple(_drop_bounds(part) for part in get_args(hint))]  # noqa: UP007 - the parts are only known at run time
    if hint is datetime:
        return Timestamp
    if origin in (tuple, frozenset, list, dict):
        generic: Any = origin
        return generic[tuple(part if part is Ellipsis else _drop_bounds(part) for part in get_args(hint))]
    return hint


def _annotate(hint: Any, metadata: list[Any]) -> Any:  # noqa: ANN401 - a type form
    return Annotated[(hint, *metadata)]
