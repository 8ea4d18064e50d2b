"""Arguments against inputSchema (D-34)."""

from __future__ import annotations

import pytest

from rookery.tools.arguments import ArgumentValidator
from rookery.tools.errors import ArgumentsInvalid

SCHEMA: dict[str, object] = {
    "$defs": {"point": {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}},
    "type": "object",
    "properties": {"points": {"type": "array", "items": {"$ref": "#/$defs/point"}}, "odd/na~me": {"type": "string", "maxLength": 3}},
    "unevaluatedProperties": False,
}


def errors_of(schema: dict[str, object], arguments: dict[str, object]) -> dict[str, list[str]]:
    """Return what is wrong with *arguments*; nothing if they fit."""
    try:
        ArgumentValidator(schema).validate(arguments)
    except ArgumentsInvalid as refused:
        found = refused.detail["errors"]
        assert isinstance(found, dict)
        return found  # pyright: ignore[reportUnknownVariableType] - as the answer shows it
    return {}


def test_what_fits_passes() -> None:
    """Arguments that match the schema pass (D-34)."""
    assert errors_of(SCHEMA, {"points": [{"x": 1}], "odd/na~me": "abc"}) == {}


def test_each_misfit_is_told_by_its_json_pointer() -> None:
    """Each invalid argument is reported by its JSON Pointer (D-34; RFC 6901, JSON Schema 2020-12)."""
    found = errors_of(SCHEMA, {"points": [{"x": 1}, {"x": "1"}, {}], "odd/na~me": "abcd", "more": 1})

    assert set(found) == {"", "/points/1/x", "/points/2", "/odd~1na~0me"}


def test_errors_are_many_at_most() -> None:
    """D-16: an answer stays small whatever was sent."""
    found = errors_of(SCHEMA, {"points": [{"x": "1" * 1000} for _ in range(200)]})

    assert len(found) == 50
    assert max(len(text) for texts in found.values() for text in texts) <= 300


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"a": {"$ref": "http://127.0.0.1:9/schema"}}},
        {"type": "object", "properties": {"a": {"$ref": "file:///etc/passwd"}}},
        {"type": "nonsense"},
        {"properties": {"a": {"pattern": "("}}},
    ],
)
def test_a_schema_that_cannot_be_compiled_lets_the_upstream_judge(schema: dict[str, object]) -> None:
    """D-34: a gateway relays; and it fetches nothing that an upstream names."""
    compiled = ArgumentValidator(schema)

    assert compiled.fault
    compiled.validate({"a": 1})


def test_a_schema_may_name_its_dialect() -> None:
    """Tools of older servers."""
    schema: dict[str, object] = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "definitions": {"name": {"type": "string"}},
        "properties": {"a": {"$ref": "#/definitions/name"}},
    }

    assert set(errors_of(schema, {"a": 1})) == {"/a"}


def test_an_unknown_argument_names_the_nearest_known_one() -> None:
    """Issue 14: as the fields of a body do; D-34, D-10."""
    arguments = ArgumentValidator({"type": "object", "properties": {"id": {}, "content": {}}, "additionalProperties": False})

    with pytest.raises(ArgumentsInvalid) as near:
        arguments.validate({"memory_id": 1, "contents": "x"})
    with pytest.raises(ArgumentsInvalid) as far:
        arguments.validate({"zzzz": 1})

    assert "'content' instead of 'contents'" in near.value.message
    assert "Allowed: id, content." in far.value.message
