"""The bound on the work of validating an answer: a schema cannot block the server."""

from __future__ import annotations

from typing import cast

import orjson
import pytest

from rookery.content.response_schema import AnswerMismatch, ResponseSchema
from rookery.kernel.errors import ValidationFailed
from tests.stopwatch import Stopwatch

Json = dict[str, object]


def refer(name: str) -> Json:
    """Return a reference to a definition."""
    return {"$ref": f"#/$defs/{name}"}


def nest(depth: int) -> object:
    """Return an object with one field, *depth* levels deep."""
    value: object = 1
    for _ in range(depth):
        value = {"x": value}
    return value


def make_doubling_schema(levels: int) -> Json:
    """Return a schema whose definitions refer to the next one twice, in different ways."""
    definitions: Json = {f"a{n}": {"anyOf": [refer(f"a{n + 1}"), refer(f"a{n + 1}"), refer(f"b{n + 1}")]} for n in range(levels)}
    definitions |= {f"b{n}": {"anyOf": [refer(f"a{n + 1}"), refer(f"b{n + 1}")]} for n in range(levels)}
    definitions |= {f"a{levels}": {"type": "string"}, f"b{levels}": {"type": "string", "minLength": 1}}
    return {"$defs": definitions, **refer("a0")}


def make_recursive_schema(keyword: str) -> Json:
    """Return a schema that refers to itself twice in each level of the value."""
    branches = [{"properties": {"x": refer("a")}, "minProperties": number} for number in (0, 1, 2)]
    return {"$defs": {"a": {keyword: branches, "type": "object"}}, **refer("a")}


@pytest.mark.parametrize("schema", [make_doubling_schema(60), *map(make_recursive_schema, ("anyOf", "oneOf", "allOf"))])
def test_a_schema_that_doubles_its_work_is_cut_off(schema: Json) -> None:
    """A validator alone takes 37 s for 22 levels, and four times as long for each further two."""
    compiled = ResponseSchema(schema)
    with Stopwatch() as watch, pytest.raises(AnswerMismatch, match="more than 50,000 evaluations"):
        compiled.extract(orjson.dumps(nest(40)).decode())

    assert watch.reference_s < 2


def test_a_reference_to_itself_ends() -> None:
    """A schema that consumes nothing of the value."""
    with pytest.raises(AnswerMismatch):
        ResponseSchema({"$ref": "#"}).extract("1")


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#name", "$defs": {"a": {"$anchor": "name"}}},
        {"$ref": "https://json-schema.org/draft/2020-12/schema"},
        {"items": {"$ref": "#name"}, "$defs": {"a": {"$anchor": "name"}}},
        {"anyOf": [{"not": {"properties": {"default": {"$ref": "#name"}}}}], "$defs": {"a": {"$anchor": "name"}}},
        {"$ref": "#/$defs/missing"},
        {"$dynamicRef": "#/$defs/a", "$defs": {"a": {}}},
        {"properties": {"a": {"$id": "other", "$ref": "#/$defs/b", "$defs": {"b": {}}}}},
    ],
)
def test_a_reference_that_cannot_be_followed_is_rejected(schema: Json) -> None:
    """Otherwise its work could not be counted."""
    with pytest.raises(ValidationFailed, match="schema: is not a valid JSON schema"):
        ResponseSchema(schema)


def test_usual_schemas_are_validated() -> None:
    """A tree, a large list, and definitions as pydantic writes them."""
    node: Json = {"type": "object", "properties": {"children": {"type": "array", "items": refer("node")}, "name": {"type": "string"}}}
    tree = ResponseSchema({"$defs": {"node": node}, **refer("node")})
    value: Json = {"name": "leaf"}
    for _ in range(100):
        value = {"name": "branch", "children": [value, {"name": "leaf"}]}
    names = ResponseSchema({"$id": "https://example.org/", "properties": {"$id": {"type": "string"}, "$ref": {"type": "string"}}})
    items = ResponseSchema({"type": "array", "items": {"anyOf": [{"type": "integer"}, {"type": "null"}]}})
    text = orjson.dumps(value).decode()

    assert tree.extract(text) == text
    assert names.extract('{"$id": "a", "$ref": "b"}')
    assert items.extract(orjson.dumps(list(range(5_000))).decode())
    cast("list[Json]", value["children"])[0]["name"] = 7
    with pytest.raises(AnswerMismatch, match="/children/0/name: 7 is not of type"):
        tree.extract(orjson.dumps(value).decode())
