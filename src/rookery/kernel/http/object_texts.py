"""
Objects with any fields, which a tool also accepts as their JSON text.

Some providers of models accept only objects with listed fields, so such an argument is published as an object or a text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

import orjson

from rookery.kernel.errors import ValidationFailed
from rookery.kernel.http.operations import JsonSchema

_NULL: JsonSchema = {"type": "null"}
OBJECT_OR_TEXT: JsonSchema = {"anyOf": [{"type": "object"}, {"type": "string"}]}
"""The schema of such an argument."""

_NO_RULES: Mapping[str, JsonSchema] = {}


def parse_object_texts(schema: JsonSchema, value: object, path: str = "") -> object:
    """
    Return *value* with objects in place of their JSON texts, at any depth of *schema*.

    Raises:
        ValidationFailed: Where an object belongs, a text is not the JSON of one.
    """
    options = [option for option in cast("Sequence[JsonSchema]", schema.get("anyOf", ())) if option != _NULL]
    if isinstance(value, str):
        return _parse_object(path, value) if options == OBJECT_OR_TEXT["anyOf"] else value
    if isinstance(value, dict):
        rules = _find_rules("properties", schema, options)
        fields = cast("Mapping[str, object]", value)
        return {name: parse_object_texts(rules.get(name, {}), field, f"{path}.{name}" if path else name) for name, field in fields.items()}
    if isinstance(value, list):
        rules = _find_rules("items", schema, options)
        return [parse_object_texts(rules, item, f"{path}.{place}") for place, item in enumerate(cast("list[object]", value))]
    return value


def _find_rules(keyword: str, schema: JsonSchema, options: Sequence[JsonSchema]) -> Mapping[str, JsonSchema]:
    return next((cast("Mapping[str, JsonSchema]", option[keyword]) for option in (schema, *options) if keyword in option), _NO_RULES)


def _parse_object(path: str, text: str) -> dict[str, object]:
    try:
        value = cast("object", orjson.loads(text))
    except orjson.JSONDecodeError:
        value = None
    if not isinstance(value, dict):
        raise ValidationFailed({path: ["must be a JSON object, or a string with the JSON of an object"]})
    return cast("dict[str, object]", value)
