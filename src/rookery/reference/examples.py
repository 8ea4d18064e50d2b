"""
Requests and answers that the test suite really sent, shown with the operations that they belong to.

A file of `examples/` is an object of them by operation:

    {"POST /v1/brain/recall": {"path": {…}, "query": {…}, "body": …, "status": 200, "answer": …}}

The path is the document's own; what an operation does not have is left out. Of an answer that is no JSON there are the first lines.
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
    """Return the examples that come with the package; none, where they were not made."""
    folder = resources.files("rookery.reference") / "examples"
    if not folder.is_dir():
        return {}
    found: dict[str, Schema] = {}
    for each in sorted(folder.iterdir(), key=lambda each: each.name):
        if each.name.endswith(".json"):
            found |= cast("dict[str, Schema]", orjson.loads(each.read_bytes()))
    return found


def add_example(operation: Schema, names: Sequence[str], examples: Examples) -> None:
    """Add the example of an operation; *names* are its method with its path and with each alias."""
    example = next((examples[name] for name in names if name in examples), None)
    if example is None:
        return
    for parameter in cast("list[Schema]", operation.get("parameters", [])):
        values = cast("Schema", example.get(cast("str", parameter.get("in", "")), {}))
        if (name := parameter.get("name")) in values:
            parameter["example"] = values[cast("str", name)]
    if "body" in example and "requestBody" in operation:
        _add_content_example(cast("Schema", operation["requestBody"]), example["body"])
    answer = cast("dict[str, Schema]", operation["responses"]).get(str(example.get("status")))
    if answer is not None and "answer" in example:
        _add_content_example(answer, example["answer"])


def _add_content_example(described: Schema, value: object) -> None:
    content = cast("dict[str, Schema]", described.get("content", {}))
    is_text = isinstance(value, str)
    fitting = [kind for kind in content if (kind == JSON_MEDIA_TYPE) != is_text] or ([] if is_text else list(content))
    for kind in fitting[:1]:
        content[kind] = {**content[kind], "example": value}
