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
    """Return the errors of *arguments* by JSON Pointer; none if they are valid."""
    try:
        ArgumentValidator(schema).validate(arguments)
    except ArgumentsInvalid as error:
        errors = error.detail["errors"]
        assert isinstance(errors, dict)
        return errors  # pyright: ignore[reportUnknownVariableType] - as the response contains it
    return {}


def test_valid_arguments_pass() -> None:
    """Arguments that match the schema pass (D-34)."""
    assert errors_of(SCHEMA, {"points": [{"x": 1}], "odd/na~me": "abc"}) == {}


def test_each_invalid_argument_is_reported_by_its_json_pointer() -> None:
    """Each invalid argument is reported by its JSON Pointer (D-34; RFC 6901, JSON Schema 2020-12)."""
    errors = errors_of(SCHEMA, {"points": [{"x": 1}, {"x": "1"}, {}], "odd/na~me": "abcd", "more": 1})

    assert set(errors) == {"", "/points/1/x", "/points/2", "/odd~1na~0me"}


def test_errors_are_limited_in_number_and_length() -> None:
    """D-16: a response stays small whatever the arguments."""
    errors = errors_of(SCHEMA, {"points": [{"x": "1" * 1000} for _ in range(200)]})

    assert len(errors) == 50
    assert max(len(text) for texts in errors.values() for text in texts) <= 300


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"a": {"$ref": "http://127.0.0.1:9/schema"}}},
        {"type": "object", "properties": {"a": {"$ref": "file:///etc/passwd"}}},
        {"type": "nonsense"},
        {"properties": {"a": {"pattern": "("}}},
    ],
)
def test_a_schema_that_cannot_be_compiled_is_left_to_the_tool_server(schema: dict[str, object]) -> None:
    """Such arguments are forwarded unchecked, and no URL in a schema is fetched (D-34)."""
    validator = ArgumentValidator(schema)

    assert validator.fault
    validator.validate({"a": 1})


def test_a_schema_may_name_its_dialect() -> None:
    """Older servers use JSON Schema draft 7."""
    schema: dict[str, object] = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "definitions": {"name": {"type": "string"}},
        "properties": {"a": {"$ref": "#/definitions/name"}},
    }

    assert set(errors_of(schema, {"a": 1})) == {"/a"}


def test_an_unknown_argument_names_the_nearest_known_one() -> None:
    """Issue 14: as the fields of a body do; D-34, D-10."""
    validator = ArgumentValidator({"type": "object", "properties": {"id": {}, "content": {}}, "additionalProperties": False})

    with pytest.raises(ArgumentsInvalid) as similar:
        validator.validate({"memory_id": 1, "contents": "x"})
    with pytest.raises(ArgumentsInvalid) as dissimilar:
        validator.validate({"zzzz": 1})

    assert "'content' instead of 'contents'" in similar.value.message
    assert "Allowed: id, content." in dissimilar.value.message


def test_a_schema_whose_references_double_does_not_block_the_server() -> None:
    """A small schema of a tool server would take hours for one call, which its own server validates instead (D-34)."""
    levels = 30
    definitions = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}, {"$ref": f"#/$defs/d{n + 1}"}]} for n in range(levels)}
    schema = {"properties": {"a": {"$ref": "#/$defs/d0"}}, "$defs": {**definitions, f"d{levels}": {"type": "integer"}}}
    validator = ArgumentValidator(schema)

    validator.validate({"a": "no number"})

    assert validator.fault is None


def test_a_reference_that_cannot_be_followed_is_a_fault() -> None:
    """The work of a schema with an anchor cannot be counted, so its server validates the arguments (D-34)."""
    validator = ArgumentValidator({"properties": {"a": {"$ref": "#name"}}, "$defs": {"n": {"$anchor": "name", "type": "integer"}}})

    validator.validate({"a": "no number"})

    assert validator.fault == "The reference '#name' is not supported; use local pointers such as #/$defs/name."
