"""
The marker of a field that a change leaves out, and functions that apply changes. Pure: no I/O.

`UNSET` is pydantic's own marker, a sentinel of PEP 661, under the name of its meaning here. Both the body of a PATCH and the change of a
domain have fields of the type `T | UNSET`, with the default `UNSET`. The other ways that were tried are worse: with an enumeration of
our own, pydantic puts a second branch into the schema and into each error of the field, and reports an unusable default. With its own
marker, the JSON schema has neither a default nor a further branch, no JSON value means UNSET, and `null` is only accepted beside `None`.
Type checkers narrow `x is UNSET`. In a body, constraints belong to the type beside the marker: `Annotated[int, Field(ge=1)] | UNSET`.
"""

from __future__ import annotations

from dataclasses import Field, fields, replace
from typing import Any, ClassVar, Protocol, TypeVar

from pydantic_core import MISSING as UNSET

__all__ = ["UNSET", "apply_changes", "get_set_fields", "or_unset", "value_or"]


class _Dataclass(Protocol):
    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]


T = TypeVar("T")
Record = TypeVar("Record", bound=_Dataclass)


def value_or(value: T | UNSET, other: T) -> T:
    """Return *value*, or *other* if it is unset."""
    return other if value is UNSET else value


def or_unset(value: T | None) -> T | UNSET:
    """Return the value of an option of a command, which is None if it was not given."""
    return UNSET if value is None else value


def get_set_fields(changes: _Dataclass) -> dict[str, Any]:
    """Return the fields of *changes* that are set, by name."""
    values = {field.name: getattr(changes, field.name) for field in fields(changes)}
    return {name: value for name, value in values.items() if value is not UNSET}


def apply_changes(current: Record, changes: _Dataclass) -> Record:
    """Return *current* with the fields of *changes* that are set. Each is a field of *current* of the same name."""
    return replace(current, **get_set_fields(changes))
