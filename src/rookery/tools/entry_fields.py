"""
The declaration of the fields of a server entry.

An attribute of a model is a field of the entry if its annotation has an `EntryField`. Its type gives the accepted values, and its default
the value of an entry without it. The parser of servers.json, the bodies of the HTTP API and docs/reference/servers-json.md follow from it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import KW_ONLY, MISSING, dataclass
from functools import cache
from types import NoneType
from typing import Any, cast, get_args, get_type_hints


@dataclass(frozen=True, slots=True)
class EntryField:
    """
    The rules for a field beyond its type and default.

    Attributes:
        name: The name in the entry. Empty: that of the attribute.
        minimum: The least number, also of the values of a mapping.
        maximum: The largest number, likewise.
        max_length: Maximum characters of a text over HTTP. The file has no such limits.
        takes_list: The text may be written as a list of texts, which are joined by spaces.
        has_variables: `${NAME}` is replaced by an environment variable, or over HTTP by a secret of the server.
        in_file_only: The operator's own: the HTTP API does not accept it.
        http_description: The description in the HTTP API, if it differs.
    """

    description: str = ""
    _: KW_ONLY
    name: str = ""
    minimum: float | None = None
    maximum: float | None = None
    max_length: int = 500
    takes_list: bool = False
    has_variables: bool = False
    in_file_only: bool = False
    http_description: str = ""
    example: object = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredField:
    """
    A field of an entry, read from the attribute of a model.

    Attributes:
        type: Without None.
        is_nullable: null is a value, and stands for None. In other fields null means absent.
    """

    attribute: str
    name: str
    type: Any
    is_nullable: bool
    is_required: bool
    default: Any
    rules: EntryField

    @property
    def keeps_null(self) -> bool:
        """True if null differs from a missing field."""
        return self.is_nullable and self.default is not None


@cache
def list_entry_fields(model: type) -> Mapping[str, DeclaredField]:
    """Return the fields that the dataclass *model* declares, by their names in the entry."""
    hints, fields = get_type_hints(model, include_extras=True), dict[str, DeclaredField]()
    for attribute in dataclasses.fields(cast("Any", model)):
        declared_type, *rest = get_args(hints[attribute.name]) or (None,)
        rules = next((item for item in rest if isinstance(item, EntryField)), None)
        if rules is None:
            continue
        alternatives = get_args(declared_type)
        is_nullable = NoneType in alternatives
        default = attribute.default if attribute.default_factory is MISSING else attribute.default_factory()
        name = rules.name or attribute.name
        fields[name] = DeclaredField(
            attribute=attribute.name,
            name=name,
            type=next(item for item in alternatives if item is not NoneType) if is_nullable else declared_type,
            is_nullable=is_nullable,
            is_required=default is MISSING,
            default=None if default is MISSING else default,
            rules=rules,
        )
    return fields
