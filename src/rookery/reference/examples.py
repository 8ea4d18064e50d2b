"""
Recorded requests and responses of the test suite, shown with their operations.

A file in `examples/` is an object by operation:

    {"POST /v1/brain/recall": {"path": {…}, "query": {…}, "body": …, "status": 200, "answer": …}}

The path is that of the document. Parts that an operation does not have are left out. A response that is not JSON is cut to its first lines.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from typing import cast

import orjson

from rookery.reference.downgrade import Schema, is_null_disputed
from rookery.reference.response_docs import JSON_MEDIA_TYPE

Examples = Mapping[str, Schema]


def load_packaged_examples() -> Examples:
    """Return the examples of the package; empty if the package has none."""
    folder = resources.files("rookery.reference") / "examples"
    if not folder.is_dir():
        return {}
    examples: dict[str, Schema] = {}
    for file in sorted(folder.iterdir(), key=lambda file: file.name):
        if file.name.endswith(".json"):
            examples |= cast("dict[str, Schema]", orjson.loads(file.read_bytes()))
    return examples


def add_example(operation: Schema, names: Sequence[str], examples: Examples, schemas: Mapping[str, Schema]) -> None:
    """
    Add the recorded example to an operation. Members whose null validators dispute are left out.

    Args:
        names: The method of the operation with each of its paths.
        schemas: The named schemas of the document.
    """
    example = next((examples[name] for name in names if name in examples), None)
    if example is None:
        return
    for parameter in cast("list[Schema]", operation.get("parameters", [])):
        values = cast("Schema", example.get(cast("str", parameter.get("in", "")), {}))
        if (name := parameter.get("name")) in values:
            parameter["example"] = _to_type(values[cast("str", name)], cast("Schema", parameter["schema"]))
    if "body" in example and "requestBody" in operation:
        _add_content_example(cast("Schema", operation["requestBody"]), example["body"], schemas)
    response = cast("dict[str, Schema]", operation["responses"]).get(str(example.get("status")))
    if response is not None and "answer" in example:
        _add_content_example(response, example["answer"], schemas)


def _to_type(value: object, schema: Schema) -> object:
    """Return a part of a path or a query in the type that its schema has; a recorded query is text."""
    match schema.get("type"), value:
        case "array", list():
            return cast("list[object]", value)
        case "array", _:
            items = cast("Schema", schema.get("items", {}))
            return [_to_type(text, items) for text in str(value).split(",")]
        case "integer", str():
            return int(value)
        case "boolean", str():
            return value == "true"
        case "string", _:
            return str(value)
        case _:
            return value


def _add_content_example(target: Schema, value: object, schemas: Mapping[str, Schema]) -> None:
    content = cast("dict[str, Schema]", target.get("content", {}))
    is_text = isinstance(value, str)
    fitting = [kind for kind in content if (kind == JSON_MEDIA_TYPE) != is_text] or ([] if is_text else list(content))
    for kind in fitting[:1]:
        schema = cast("Schema", content[kind].get("schema", {}))
        content[kind] = {**content[kind], "example": _omit_disputed_nulls(value, schema, schemas)}


def _omit_disputed_nulls(value: object, schema: Schema, schemas: Mapping[str, Schema]) -> object:
    parts = list(iter_parts(schema, schemas))
    if isinstance(value, list):
        items = next((cast("Schema", part["items"]) for part in parts if "items" in part), Schema())
        return [_omit_disputed_nulls(item, items, schemas) for item in cast("list[object]", value)]
    if not isinstance(value, dict):
        return value
    fields = {name: field for part in parts for name, field in cast("dict[str, Schema]", part.get("properties", {})).items()}
    others = next((part["additionalProperties"] for part in parts if isinstance(part.get("additionalProperties"), dict)), Schema())
    result = dict[str, object]()
    for name, member in cast("dict[str, object]", value).items():
        field = fields.get(name, cast("Schema", others))
        if member is not None or not is_null_disputed(field):
            result[name] = _omit_disputed_nulls(member, field, schemas)
    return result


def iter_parts(schema: Schema, schemas: Mapping[str, Schema]) -> Iterator[Schema]:
    """Yield a schema, what it refers to, and its alternatives."""
    yield schema
    reference = schema.get("$ref")
    if isinstance(reference, str):
        yield from iter_parts(schemas.get(reference.rpartition("/")[2], {}), schemas)
    for keyword in ("allOf", "anyOf", "oneOf"):
        for part in cast("list[Schema]", schema.get(keyword, [])):
            yield from iter_parts(part, schemas)
