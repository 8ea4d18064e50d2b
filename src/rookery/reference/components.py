"""The named schemas of OpenAPI 3.0.3 for all bodies, queries and responses."""

from __future__ import annotations

import inspect
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import takewhile
from typing import Literal, cast

import orjson
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from rookery.kernel.schema import SchemaGenerator
from rookery.reference.downgrade import Schema, downgrade, is_null_disputed

Mode = Literal["validation", "serialization"]

_REFERENCE_PREFIX = "#/components/schemas/"
_PAGE_NAME = re.compile(r"Page_(\w+?)_")
_WORD_START = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_NOT_IN_NAME = re.compile(r"\W+")
_NEW_NAME = re.compile(r"^New(\w+?)(Body)?$")
_FIELDS_HEADING = "Attributes:\n"
_FIELD_LINE = re.compile(r"^    (\w+): (.+(?:\n {8}.+)*)", re.MULTILINE)

_PUBLISHED_NAMES = {
    "ToolCallResponse": "ToolCallResponse",
    "ResourceResponse": "ResourceResponse",
    "CallRecordResponse": "CallShown",
    "SessionHealthResponse": "SessionShown",
    "ServerHealthResponse": "StandingShown",
    "ToolSearchResponse": "FoundTools",
    "LoginStartResponse": "LoginBegun",
    "CallStatsGroup": "FigureGroup",
}
"""Models whose published name is not the class's without "Response". Generated clients use these names, so they stay."""


_GENERATOR_NAMES: Mapping[str, Schema] = {"Server": {"x-ogen-name": "ToolServer"}}
"""The name of a schema in the code of one generator, which has a type of the schema's own name: ogen 1.25.0 makes a client and a server."""


class Components:
    """The schemas of *models*, generated together so that they refer to each other."""

    def __init__(self, models: Iterable[tuple[type[BaseModel], Mode]]) -> None:
        pairs = list(dict.fromkeys(models))
        references, whole = models_json_schema(pairs, ref_template=_REFERENCE_PREFIX + "{model}", schema_generator=SchemaGenerator)
        raw = _lift_nested_models(cast("Mapping[str, object]", whole.get("$defs", {})))
        self._names = _public_names(raw)
        self._refs = {pair: cast("str", schema["$ref"]).removeprefix(_REFERENCE_PREFIX) for pair, schema in references.items()}
        self.schemas: dict[str, Schema] = {}
        self._with_defaults: dict[str, Schema] = {}
        for name, schema in raw.items():
            public_name = self._names[name]
            whole = _name_values(
                {
                    **_distribute_descriptions(downgrade(schema, self._names.__getitem__)),
                    "title": public_name,
                    **_GENERATOR_NAMES.get(public_name, {}),
                }
            )
            self._with_defaults[public_name] = whole
            self.schemas[public_name] = cast("Schema", _move_defaults(whole))
        types = {name: schema.get("type", "object") for name, schema in self.schemas.items()}
        for schema in (*self.schemas.values(), *self._with_defaults.values()):
            _add_types(schema, types)
        answers = {self._names[reference] for (_, mode), reference in self._refs.items() if mode == "serialization"}
        _name_nullable_objects(
            self.schemas, frozenset(self._names[name] for name in self._refs.values()), _list_parts(self.schemas, answers)
        )
        _name_json_objects(self.schemas)
        for schema in self.schemas.values():
            _relax_required(schema)

    def reference(self, model: type[BaseModel], mode: Mode) -> Schema:
        return {"$ref": _REFERENCE_PREFIX + self.name(model, mode)}

    def name(self, model: type[BaseModel], mode: Mode) -> str:
        """Return the published name of *model*."""
        return self._names[self._refs[model, mode]]

    def fields(self, model: type[BaseModel], mode: Mode) -> tuple[Mapping[str, Schema], frozenset[str]]:
        """Return the schemas of the fields of *model*, and the names of the required fields."""
        schema = self._with_defaults[self.name(model, mode)]
        return cast("Mapping[str, Schema]", schema.get("properties", {})), frozenset(cast("list[str]", schema.get("required", [])))


OR_NULL: Schema = {"description": "Or null."}
"""The second part of an enumeration that may be null."""

OR_NULL_SUFFIX = "OrNull"

_JSON_OBJECT = "JsonObject"
"""The schema of an object with any members."""

_DATA_KEYWORDS = frozenset({"default", "example", "examples", "enum", "const"})


def _lift_nested_models(raw: Mapping[str, object]) -> dict[str, object]:
    """Return *raw* with nested models moved to components of their own. Only schemas of models have a title."""
    lifted = dict[str, object]()

    def step(value: object, *, is_inside: bool = True) -> object:
        if isinstance(value, list):
            return [step(item) for item in cast("list[object]", value)]
        if not isinstance(value, dict):
            return value
        out = {key: item if key in _DATA_KEYWORDS else step(item) for key, item in cast("Schema", value).items()}
        title = out.get("title")
        if not is_inside or not isinstance(title, str) or out.get("type") != "object" or lifted.get(title, out) != out:
            return out
        if title not in raw:
            lifted[title] = out
        elif raw[title] != value:  # another model of this name
            return out
        return {"$ref": _REFERENCE_PREFIX + title}

    return {name: step(schema, is_inside=False) for name, schema in raw.items()} | lifted


def _add_types(value: object, types: Mapping[str, object]) -> None:
    """Add the type of the component to each reference that may be null: in 3.0.3, `nullable` only has a meaning beside a type."""
    if isinstance(value, list):
        for item in cast("list[object]", value):
            _add_types(item, types)
    elif isinstance(value, dict):
        schema = cast("Schema", value)
        parts = cast("list[Schema]", schema.get("allOf", []))
        if schema.get("nullable") is True and "type" not in schema and len(parts) == 1 and "$ref" in parts[0]:
            schema["type"] = types[str(parts[0]["$ref"]).removeprefix(_REFERENCE_PREFIX)]
        for name, item in schema.items():
            if name not in _DATA_KEYWORDS:
                _add_types(item, types)


def _name_nullable_objects(schemas: dict[str, Schema], models: Collection[str], answers: Collection[str]) -> None:
    """
    Let each field of an answer that may be null refer to a schema that allows null.

    openapi-python-client 0.29.1 reads `nullable` neither beside a reference nor beside an enum, and fails on an answer with null. An object
    that is used without null, too, gets a second schema with the suffix OrNull. An enumeration gets a second part, so it becomes a text.

    Args:
        models: Names of the schemas that bodies and responses are.
        answers: Names of the schemas that occur in responses.
    """
    fields = [field for name in answers for field in cast("dict[str, Schema]", schemas[name].get("properties", {})).values()]
    nullable_fields = [field for field in fields if is_null_disputed(field)]
    plain_uses = {reference for schema in schemas.values() for reference in _iter_references(schema, nullable_fields)}
    for field in nullable_fields:
        if "enum" in field:
            field["allOf"] = [{"type": field["type"], "enum": field.pop("enum")}]
        parts = cast("list[Schema]", field["allOf"])
        if field["type"] == "object" and len(parts) == 1 and "$ref" in parts[0]:
            name = str(parts[0]["$ref"]).removeprefix(_REFERENCE_PREFIX)
            own_name = f"{name}{OR_NULL_SUFFIX}" if name in models or parts[0]["$ref"] in plain_uses else name
            schemas[own_name] = {**schemas[name], "title": own_name, "nullable": True}
            field["allOf"] = [{"$ref": _REFERENCE_PREFIX + own_name}]
        else:
            field["allOf"] = [*parts, dict(OR_NULL)]


def _name_json_objects(schemas: dict[str, Schema]) -> None:
    """
    Let the JSON objects in each schema that allows null refer to a schema of their own.

    openapi-python-client 0.29.1 reads the fields of a schema that allows null twice. At an object without a name it reports a duplicate and
    leaves out the model, which the models that refer to it then fail to import.
    """
    for schema in [schema for schema in schemas.values() if schema.get("nullable") is True]:
        fields = dict(cast("Mapping[str, Schema]", schema.get("properties", {})))
        for field_name, field in fields.items():
            if field.get("type") == "object" and field.get("additionalProperties") is True and "properties" not in field:
                null: Schema = {"nullable": True} if field.get("nullable") is True else {}
                name = f"{_JSON_OBJECT}{OR_NULL_SUFFIX if null else ''}"
                schemas[name] = {"title": name, "type": "object", "additionalProperties": True, **null}
                fields[field_name] = {"$ref": _REFERENCE_PREFIX + name}
        if fields:
            schema["properties"] = fields


def _list_parts(schemas: Mapping[str, Schema], names: Iterable[str]) -> list[str]:
    """Return the names, and those of all schemas to which these refer."""
    reachable, pending = dict[str, None](), sorted(names)
    while pending:
        name = pending.pop()
        if name not in reachable:
            reachable[name] = None
            pending += [reference.removeprefix(_REFERENCE_PREFIX) for reference in _iter_references(schemas[name])]
    return list(reachable)


def _iter_references(value: object, skipped: Collection[Schema] = ()) -> Iterator[str]:
    """Yield the references in a schema, without those in some of its fields."""
    if isinstance(value, list):
        for item in cast("list[object]", value):
            yield from _iter_references(item, skipped)
    elif isinstance(value, dict) and not any(value is field for field in skipped):
        schema = cast("Schema", value)
        if isinstance(schema.get("$ref"), str):
            yield str(schema["$ref"])
        for name, item in schema.items():
            if name not in _DATA_KEYWORDS:
                yield from _iter_references(item, skipped)


def _relax_required(schema: Schema) -> None:
    """
    Stop requiring the fields whose null validators dispute, so that an example may leave them out.

    The server always sends them. Clients lose nothing by it: such a field may be null anyway.
    """
    fields = cast("dict[str, Schema]", schema.get("properties", {}))
    disputed = {name for name, field in fields.items() if is_null_disputed(field)}
    required = [name for name in cast("list[str]", schema.get("required", [])) if name not in disputed]
    if required:
        schema["required"] = required
    else:
        schema.pop("required", None)


def _name_values(schema: Schema) -> Schema:
    """
    Return the schema of an enumeration with a name for each value that occurs in no other one.

    In languages whose enumerations share a namespace, such as Go, clients of openapi-generator 7.25.0 do not compile otherwise.
    """
    values = schema.get("enum")
    if schema.get("type") != "string" or not isinstance(values, list):
        return schema
    prefix = _WORD_START.sub("_", str(schema["title"])).upper()
    names = [f"{prefix}_{_NOT_IN_NAME.sub('_', str(value)).upper()}" for value in cast("list[object]", values)]
    return {**schema, "x-enum-varnames": names}


def _move_defaults(value: object) -> object:
    """
    Return a schema whose field defaults are in the description and in `x-default`.

    Some client generators treat a field with a `default` as always present, so that callers have to send it: openapi-typescript required
    all 16 fields of a recall. A default of null only means that the field is optional, and is left out.
    """
    if isinstance(value, list):
        return [_move_defaults(item) for item in cast("list[object]", value)]
    if not isinstance(value, dict):
        return value
    out = {key: item if key in _DATA_KEYWORDS else _move_defaults(item) for key, item in cast("Schema", value).items()}
    fields = out.get("properties")
    if isinstance(fields, dict):
        out["properties"] = {name: _describe_default(field) for name, field in cast("dict[str, Schema]", fields).items()}
    return out


def _describe_default(schema: Schema) -> Schema:
    if "default" not in schema:
        return schema
    out = {key: item for key, item in schema.items() if key != "default"}
    default = schema["default"]
    if default is None or default in ([], {}):
        return out
    words = f"Default: `{orjson.dumps(default).decode()}`."
    description = out.get("description")
    return {**out, "description": f"{description} {words}" if isinstance(description, str) else words, "x-default": default}


def first_paragraph(text: str) -> str:
    """Return the first paragraph of a docstring."""
    return " ".join(text.strip().split("\n\n")[0].split())


def handler_description(docstring: str | None) -> str:
    """Return the paragraphs of a handler's docstring before its first section."""
    paragraphs = [" ".join(part.split()) for part in inspect.cleandoc(docstring or "").split("\n\n")]
    public = takewhile(lambda part: not part.startswith(("Args:", "Raises:", "Returns:", "Yields:")), paragraphs)
    return "\n\n".join(public).strip()


def _distribute_descriptions(schema: Schema) -> Schema:
    """Return *schema* with the field descriptions of the class docstring moved to the fields."""
    text = schema.get("description")
    if not isinstance(text, str):
        return schema
    words, _, fields = text.partition(_FIELDS_HEADING)
    out: Schema = {**schema, "description": words.strip()}
    properties = cast("dict[str, Schema]", schema.get("properties", {}))
    descriptions = {match[1]: " ".join(match[2].split()) for match in _FIELD_LINE.finditer(fields)}
    if properties:
        out["properties"] = {
            name: _with_description(property_schema, descriptions.get(name)) for name, property_schema in properties.items()
        }
    return out


def _with_description(schema: Schema, words: str | None) -> Schema:
    if words is None or "description" in schema:
        return schema
    return {**({"allOf": [schema]} if "$ref" in schema else schema), "description": words}


def _public_names(raw: Mapping[str, object]) -> dict[str, str]:
    """
    Return the published name of each component.

    `TaskResponse` becomes Task, a page of tasks TaskPage, and models of the same name get their domain as a prefix. A name keeps its suffix
    if it would not be unique without it.
    """
    plain = {name: _PAGE_NAME.sub(lambda match: match[1] + "Page", name) for name in raw}
    owned = {name: _prefix_domain(public_name) for name, public_name in plain.items()}
    short = {name: _NEW_NAME.sub(_rename_new, _remove_suffix(public_name)) for name, public_name in owned.items()}
    short_names = list(short.values())
    names = {name: public_name if short_names.count(public_name) == 1 else owned[name] for name, public_name in short.items()}
    if len(set(names.values())) < len(names):
        twice = sorted({name for name in names.values() if list(names.values()).count(name) > 1})
        msg = f"two schemas have the same name: {', '.join(twice)}"
        raise ValueError(msg)
    return names


def _remove_suffix(name: str) -> str:
    """Return *name* without "Response", except for the models in `_PUBLISHED_NAMES`."""
    return _PUBLISHED_NAMES.get(name) or name.replace("Response", "") or name


def _rename_new(match: re.Match[str]) -> str:
    """Return PlanCreateBody for `NewPlanBody`, and ApiKeyWithSecret for `NewApiKey`: in Go, `NewPlan` is the constructor of Plan."""
    return f"{match[1]}Create{match[2]}" if match[2] else f"{match[1]}WithSecret"


def _prefix_domain(name: str) -> str:
    """Return MemoryBootResponse for `rookery__memory__schemas__responses__BootResponse`, pydantic's name for a repeated class name."""
    parts = name.split("__")
    if len(parts) < 3:
        return name
    return parts[1].title().replace("_", "") + parts[-1]
