"""Published input schemas of the built-in tools for `tools/list`: reduced to what a model needs to fill them in. No I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

_OMITTED_KEYWORDS = frozenset({"minLength", "maxLength", "minItems", "maxItems", "pattern", "format", "title"})
"""
Keywords that are omitted.

The tool validates its arguments with the models of its HTTP route, whose errors name the field and the limit. Published
bounds would duplicate these, could diverge from them, and take a tenth of the catalogue's size.
"""


_RANGE_KEYWORDS = ("minimum", "exclusiveMinimum", "maximum")
_ALL_TYPES = frozenset({"object", "array", "string", "number", "boolean"})
_MAX_PUBLISHED_MAXIMUM = 1_000
"""A larger maximum, such as that of a page number, is technical and does not help a model."""


def to_published_schema(schema: Mapping[str, object]) -> dict[str, object]:
    """
    Return *schema* without length bounds, without `additionalProperties: false`, and with type unions as `anyOf`.

    The tool itself rejects unknown names and suggests the nearest known one.
    """
    fields: dict[str, object] = {}
    maximum = schema.get("maximum")
    omitted = _RANGE_KEYWORDS if not isinstance(maximum, (int, float)) or maximum > _MAX_PUBLISHED_MAXIMUM else ()
    for name, value in schema.items():
        if name in _OMITTED_KEYWORDS or (name == "additionalProperties" and value is False) or (name == "required" and not value):
            continue
        if name in omitted:
            continue
        if name == "type" and isinstance(value, list):
            fields["anyOf"] = [{"type": type_name} for type_name in cast("Sequence[str]", value)]
        elif name == "properties":
            fields[name] = {field: _to_published_value(subschema) for field, subschema in cast("Mapping[str, object]", value).items()}
        else:
            fields[name] = _to_published_value(value)
    return fields


def to_accepted_schema(published: Mapping[str, object]) -> dict[str, object]:
    """
    Return the schema that arguments of a built-in tool are validated against.

    It is *published*, except that an argument whose `anyOf` lists every JSON type but null accepts any JSON value. Model providers
    reject a schema without a type, so such an argument is published with types, but it is not restricted by them (D-08).
    """
    properties = published.get("properties")
    if not isinstance(properties, Mapping):
        return dict(published)
    fields = cast("Mapping[str, object]", properties)
    return {**published, "properties": {name: {} if _lists_all_types(field) else field for name, field in fields.items()}}


def _lists_all_types(schema: object) -> bool:
    if not isinstance(schema, Mapping):
        return False
    options = cast("Mapping[str, object]", schema).get("anyOf")
    if not isinstance(options, Sequence):
        return False
    types = {
        cast("Mapping[str, object]", option).get("type") for option in cast("Sequence[object]", options) if isinstance(option, Mapping)
    }
    return types >= _ALL_TYPES


def _to_published_value(value: object) -> object:
    if isinstance(value, Mapping):
        return to_published_schema(cast("Mapping[str, object]", value))
    if isinstance(value, list):
        return [_to_published_value(item) for item in cast("list[object]", value)]
    return value
