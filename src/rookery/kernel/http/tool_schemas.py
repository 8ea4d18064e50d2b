"""
Input and output schemas of MCP tools, from the models of their operations.

Providers of models accept different subsets of JSON Schema. The schemas use only the keywords that the strict mode of OpenAI, the tools of
Anthropic and the Schema object of Gemini have in common.

Some providers of models accept only objects with listed fields, so an object with any fields is published as an object or a text, and
accepted as its JSON text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import cast

import orjson
from pydantic import BaseModel
from pydantic.json_schema import JsonSchemaMode

from rookery.kernel.errors import ValidationFailed
from rookery.kernel.http.operations import JsonSchema, Operation, ToolDeclaration
from rookery.kernel.http.result_budgets import BUDGET_ARGUMENT, NEXT_CURSOR_FIELD
from rookery.kernel.schema import SchemaGenerator

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


_MAX_PUBLISHED_NUMBER = 1_000
"""A larger maximum, such as that of a page number, is technical and does not help a model."""

_MAX_OUTPUT_LEVELS = 2
"""
Levels of objects with listed fields in an output schema. Deeper objects are published without their fields.

Plans contain phases, which contain tasks. With all levels, the output schemas of the built-in tools take 100 KB.
"""

_OBJECT: JsonSchema = {"type": "object"}
_TEXT: JsonSchema = {"type": "string"}
_INTEGER: JsonSchema = {"type": "integer"}
_NULL: JsonSchema = {"type": "null"}
_SIMPLE_TYPES: Sequence[JsonSchema] = (_OBJECT, _TEXT, {"type": "number"}, {"type": "boolean"})
_ANY_VALUE: JsonSchema = {"anyOf": [*_SIMPLE_TYPES, {"type": "array", "items": {"anyOf": [*_SIMPLE_TYPES[:3]]}}]}
"""
The schema of any JSON value.

Some providers reject a schema without a type, so it lists the types. Calls may send more, such as null and lists of lists:
`tools.catalogue_tool` does not restrict them.
"""


def build_input_schema(tool: ToolDeclaration, models: Sequence[type[BaseModel]], path_parameters: Mapping[str, bool]) -> JsonSchema:
    """
    Return the schema of the published arguments of *tool*.

    Lengths and patterns are left out: the models check them, with errors that name the field and the limit. The models also reject
    unknown arguments, and suggest the nearest known one.

    Raises:
        KeyError: The operation has no parameter for a published argument.
    """
    fields: dict[str, JsonSchema] = dict.fromkeys(path_parameters, _TEXT)
    required = {name for name, is_required in path_parameters.items() if is_required}
    for model in models:
        fields |= _read_input(model)
        required |= set(cast("list[str]", _model_schema(model, "validation").get("required", [])))
    if tool.budget is not None:
        fields = {**fields, BUDGET_ARGUMENT: _INTEGER}
    published = [name for name in tool.arguments if "." not in name]
    properties = {name: tool.schemas.get(name) or fields[tool.renames.get(name, name)] for name in published}
    properties = {name: schema if name in tool.nullable else _without_null(schema) for name, schema in properties.items()}
    for name, description in tool.arguments.items():
        first, *rest = name.split(".")
        properties[first] = _describe(properties[first], rest, description)
    names = [name for name in published if name in tool.required or tool.renames.get(name, name) in required]
    return {"type": "object", "properties": properties, **({"required": names} if names else {})}


def build_output_schema(operation: Operation, tool: ToolDeclaration) -> JsonSchema:
    """
    Return the schema of the structured content of *tool*'s result.

    No field is required, because the structured content of a failed call is an error body, and some clients validate it too.
    """
    if tool.items:
        model = operation.item_model
        items = _OBJECT if model is None else _read_output(model, _MAX_OUTPUT_LEVELS - 1)
        fields = {tool.items: {"type": "array", "items": items}, "page": _INTEGER, "total": _INTEGER, NEXT_CURSOR_FIELD: _TEXT}
        return {"type": "object", "properties": fields}
    model = tool.output or (operation.response_model if tool.present is None else None)
    return _OBJECT if model is None else {"type": "object", "properties": _read_output(model, _MAX_OUTPUT_LEVELS).get("properties", {})}


def add_unpublished(schema: JsonSchema, tool: ToolDeclaration, models: Sequence[type[BaseModel]]) -> JsonSchema:
    """Return the input schema of *tool* with the arguments that its models accept too. They are not published, to keep the list short."""
    published = cast("Mapping[str, JsonSchema]", schema["properties"])
    published_fields = {tool.renames.get(name, name) for name in published} | tool.fixed.keys()
    others = {name: _without_null(field) for model in models for name, field in _read_input(model).items() if name not in published_fields}
    return {**schema, "properties": {**published, **others}}


@cache
def _read_input(model: type[BaseModel]) -> Mapping[str, JsonSchema]:
    schema = _model_schema(model, "validation")
    reader = _SchemaReader(schema, is_input=True)
    return {name: reader.read(field) for name, field in cast("Mapping[str, JsonSchema]", schema.get("properties", {})).items()}


@cache
def _read_output(model: type[BaseModel], levels: int) -> JsonSchema:
    schema = _model_schema(model, "serialization")
    return _SchemaReader(schema, is_input=False, levels=levels).read(schema)


@cache  # takes 6 ms for a large model, and several tools have the same one
def _model_schema(model: type[BaseModel], mode: JsonSchemaMode) -> JsonSchema:
    return model.model_json_schema(mode=mode, schema_generator=SchemaGenerator)


class _SchemaReader:
    """Reduces a schema of pydantic: references replaced by their schemas, unions merged, only common keywords kept."""

    def __init__(self, schema: JsonSchema, *, is_input: bool, levels: int = 0) -> None:
        self._definitions = cast("Mapping[str, JsonSchema]", schema.get("$defs", {}))
        self._is_input = is_input
        self._levels_left = levels

    def read(self, schema: JsonSchema) -> JsonSchema:
        """Return the reduced form of *schema*."""
        if "$ref" in schema:
            return self.read(self._definitions[str(schema["$ref"]).rpartition("/")[2]])
        if "allOf" in schema:
            return self.read(cast("Sequence[JsonSchema]", schema["allOf"])[0])
        for union in ("anyOf", "oneOf"):
            if union in schema:
                return self._read_union([self.read(option) for option in cast("Sequence[JsonSchema]", schema[union])])
        if "const" in schema:
            return {"type": schema.get("type", "string"), "enum": [schema["const"]]}
        kind = schema.get("type")
        if kind == "object":
            return self._read_object(schema)
        if kind == "array":
            return {"type": "array", "items": self.read(cast("JsonSchema", schema.get("items", {})))}
        if kind is None:
            return _ANY_VALUE if self._is_input else {}
        return {"type": kind, **({"enum": schema["enum"]} if "enum" in schema else {}), **(_range(schema) if self._is_input else {})}

    def _read_object(self, schema: JsonSchema) -> JsonSchema:
        properties = cast("Mapping[str, JsonSchema]", schema.get("properties", {}))
        if not properties:
            return OBJECT_OR_TEXT if self._is_input else _OBJECT
        if not self._is_input:
            return self._read_output_object(properties)
        fields = {name: self.read(field) for name, field in properties.items()}
        required = cast("list[str]", schema.get("required", []))
        fields = {name: _without_null(field) for name, field in fields.items()}
        return {"type": "object", "properties": fields, **({"required": required} if required else {})}

    def _read_output_object(self, properties: Mapping[str, JsonSchema]) -> JsonSchema:
        if self._levels_left == 0:
            return _OBJECT
        self._levels_left -= 1
        fields = {name: self.read(field) for name, field in properties.items()}
        self._levels_left += 1
        return {"type": "object", "properties": fields}

    def _read_union(self, options: Sequence[JsonSchema]) -> JsonSchema:
        """Return the union without nested unions and repeated options. Enums of one type become one."""
        merged = list[JsonSchema]()
        for option in options:
            for inner in cast("Sequence[JsonSchema]", option.get("anyOf", [option])):
                if inner and inner not in merged:
                    merged.append(inner)
        if not self._is_input and {} in options:
            return {}
        return merged[0] if len(merged) == 1 else {"anyOf": merged}


def _range(schema: JsonSchema) -> JsonSchema:
    """Return the range of a number, if it is one that a model should know."""
    maximum = schema.get("maximum")
    if not isinstance(maximum, (int, float)) or maximum > _MAX_PUBLISHED_NUMBER:
        return {}
    return {name: schema[name] for name in ("minimum", "maximum") if name in schema}


def _without_null(schema: JsonSchema) -> JsonSchema:
    options = [option for option in cast("Sequence[JsonSchema]", schema.get("anyOf", [])) if option != _NULL]
    if "anyOf" not in schema or len(options) == len(cast("Sequence[JsonSchema]", schema["anyOf"])):
        return schema
    return options[0] if len(options) == 1 else {**schema, "anyOf": options}


def _describe(schema: JsonSchema, path: Sequence[str], description: str) -> JsonSchema:
    """Return *schema* with the description at *path*, the names of nested fields."""
    if not path:
        return {**schema, "description": description} if description else schema
    if "items" in schema:
        return {**schema, "items": _describe(cast("JsonSchema", schema["items"]), path, description)}
    if "anyOf" in schema:
        options = [
            _describe(option, path, description) if option.get("type") == "object" else option
            for option in cast("Sequence[JsonSchema]", schema["anyOf"])
        ]
        return {**schema, "anyOf": options}
    properties = cast("Mapping[str, JsonSchema]", schema["properties"])
    return {**schema, "properties": {**properties, path[0]: _describe(properties[path[0]], path[1:], description)}}
