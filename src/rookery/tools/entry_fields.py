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
    A field of an entry. `list_entry_fields` completes it by the attribute that it annotates.

    Attributes:
        name: The name in the entry, if it is not that of the attribute.
        minimum: The least number, also of the values of a mapping.
        maximum: The largest number, likewise.
        max_length: Maximum characters of a text over HTTP. The file has no such limit.
        takes_list: The text may be written as a list of texts, which are joined by spaces.
        has_variables: `${NAME}` is replaced by an environment variable, or over HTTP by a secret of the server.
        in_file_only: The HTTP API does not accept it.
        http_description: The description in the HTTP API, if it differs.
        type: The type of the attribute, without None.
        is_nullable: null stands for None. In other fields null means absent.
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
    attribute: str = ""
    type: Any = None
    is_nullable: bool = False
    is_required: bool = False
    default: Any = None

    @property
    def keeps_null(self) -> bool:
        """True if null differs from a missing field."""
        return self.is_nullable and self.default is not None


@cache
def list_entry_fields(model: type) -> Mapping[str, EntryField]:
    """Return the fields that the dataclass *model* declares, by their names in the entry."""
    hints, fields = get_type_hints(model, include_extras=True), dict[str, EntryField]()
    for attribute in dataclasses.fields(cast("Any", model)):
        declared_type, *annotations = get_args(hints[attribute.name]) or (None,)
        for declaration in (item for item in annotations if isinstance(item, EntryField)):
            types = get_args(declared_type)
            default = attribute.default if attribute.default_factory is MISSING else attribute.default_factory()
            field = dataclasses.replace(
                declaration,
                name=declaration.name or attribute.name,
                attribute=attribute.name,
                type=next(item for item in types if item is not NoneType) if NoneType in types else declared_type,
                is_nullable=NoneType in types,
                is_required=default is MISSING,
                default=None if default is MISSING else default,
            )
            fields[field.name] = field
    return fields
