"""
Recorded requests and responses of the test suite, shown with their operations.

A file in `examples/` is an object by operation:

    {"POST /v1/brain/recall": {"path": {…}, "query": {…}, "body": …, "status": 200, "answer": …}}

The path is that of the document. Parts that an operation does not have are left out. A response that is not JSON is cut to its first lines.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import resources
from typing import cast

import orjson

from rookery.reference.downgrade import Schema
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


def add_example(operation: Schema, names: Sequence[str], examples: Examples) -> None:
    """Add the recorded example to an operation. *names* are its method with each of its paths."""
    example = next((examples[name] for name in names if name in examples), None)
    if example is None:
        return
    for parameter in cast("list[Schema]", operation.get("parameters", [])):
        values = cast("Schema", example.get(cast("str", parameter.get("in", "")), {}))
        if (name := parameter.get("name")) in values:
            parameter["example"] = _to_type(values[cast("str", name)], cast("Schema", parameter["schema"]))
    if "body" in example and "requestBody" in operation:
        _add_content_example(cast("Schema", operation["requestBody"]), example["body"])
    response = cast("dict[str, Schema]", operation["responses"]).get(str(example.get("status")))
    if response is not None and "answer" in example:
        _add_content_example(response, example["answer"])


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


def _add_content_example(target: Schema, value: object) -> None:
    content = cast("dict[str, Schema]", target.get("content", {}))
    is_text = isinstance(value, str)
    fitting = [kind for kind in content if (kind == JSON_MEDIA_TYPE) != is_text] or ([] if is_text else list(content))
    for kind in fitting[:1]:
        content[kind] = {**content[kind], "example": value}
