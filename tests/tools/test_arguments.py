"""Arguments against inputSchema."""

from __future__ import annotations

from typing import cast

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
    """Arguments that match the schema pass."""
    assert errors_of(SCHEMA, {"points": [{"x": 1}], "odd/na~me": "abc"}) == {}


def test_each_invalid_argument_is_reported_by_its_json_pointer() -> None:
    """Each invalid argument is reported by its JSON Pointer (RFC 6901, JSON Schema 2020-12)."""
    errors = errors_of(SCHEMA, {"points": [{"x": 1}, {"x": "1"}, {}], "odd/na~me": "abcd", "more": 1})

    assert set(errors) == {"", "/points/1/x", "/points/2", "/odd~1na~0me"}


def test_errors_are_limited_in_number_and_length() -> None:
    """A response stays small whatever the arguments."""
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
    """Such arguments are forwarded unchecked, and no URL in a schema is fetched."""
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
    """As the fields of a body do."""
    validator = ArgumentValidator({"type": "object", "properties": {"id": {}, "content": {}}, "additionalProperties": False})

    with pytest.raises(ArgumentsInvalid) as similar:
        validator.validate({"memory_id": 1, "contents": "x"})
    with pytest.raises(ArgumentsInvalid) as dissimilar:
        validator.validate({"zzzz": 1})

    assert "'content' instead of 'contents'" in similar.value.message
    assert "Allowed: id, content." in dissimilar.value.message


def test_a_schema_whose_references_double_does_not_block_the_server() -> None:
    """A small schema of a tool server would take hours for one call, which its own server validates instead."""
    levels = 30
    definitions = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}, {"$ref": f"#/$defs/d{n + 1}"}]} for n in range(levels)}
    schema = {"properties": {"a": {"$ref": "#/$defs/d0"}}, "$defs": {**definitions, f"d{levels}": {"type": "integer"}}}
    validator = ArgumentValidator(schema)

    validator.validate({"a": "no number"})

    assert validator.fault is None


def test_a_reference_that_cannot_be_followed_is_a_fault() -> None:
    """The work of a schema with an anchor cannot be counted, so its server validates the arguments."""
    validator = ArgumentValidator({"properties": {"a": {"$ref": "#name"}}, "$defs": {"n": {"$anchor": "name", "type": "integer"}}})

    validator.validate({"a": "no number"})

    assert validator.fault == "The reference '#name' is not supported; use local pointers such as #/$defs/name."


def test_a_null_that_is_neither_accepted_nor_required_is_left_out() -> None:
    """Clients send null for each argument that was not set. One that the schema accepts is sent."""
    schema: dict[str, object] = {
        "$defs": {"name": {"type": "string"}, "maybe": {"type": ["string", "null"]}},
        "type": "object",
        "properties": {
            "plain": {"type": "string"},
            "reference": {"$ref": "#/$defs/name"},
            "any_of": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
            "one_of": {"oneOf": [{"type": "string"}, {"$ref": "#/$defs/name"}]},
            "all_of": {"allOf": [{"$ref": "#/$defs/maybe"}, {"type": "string"}]},
            "enum": {"enum": ["a"]},
            "const": {"const": 1},
            "never": False,
            "not_null": {"not": {"type": "null"}},
            "maybe": {"$ref": "#/$defs/maybe"},
            "union": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            "null_enum": {"enum": ["a", None]},
            "null_const": {"const": None},
            "always": True,
            "open_api": {"type": "string", "nullable": True},
            "open_api_enum": {"type": "string", "enum": ["a"], "nullable": True},
            "open_api_reference": {"allOf": [{"$ref": "#/$defs/name"}], "nullable": True},
            "nullable": {"type": "string"},
        },
        "patternProperties": {"^x-": {"type": "string"}},
        "additionalProperties": {"type": "integer"},
    }
    accepted = {"maybe", "union", "null_enum", "null_const", "always", "open_api", "open_api_enum", "open_api_reference"}
    names = [*cast("dict[str, object]", schema["properties"]), "x-a", "more"]

    assert ArgumentValidator(schema).validate(dict.fromkeys(names)) == dict.fromkeys(name for name in names if name in accepted)


@pytest.mark.parametrize(
    ("schema", "arguments", "sent"),
    [
        ({"properties": {"a": {}}, "additionalProperties": False}, {"a": 1, "b": None}, {"a": 1}),
        ({"additionalProperties": False}, {"b": None, "c": None}, {}),
        ({"properties": {"a": {"type": "string"}}, "unevaluatedProperties": False}, {"a": None, "b": None}, {}),
        ({"properties": {"a": {"type": "string"}}, "dependentRequired": {"a": ["b"]}}, {"a": None}, {}),
        ({"allOf": [{"properties": {"a": {"type": "string"}}}]}, {"a": None}, {}),
        ({"if": {"required": ["b"]}, "then": {"properties": {"a": {"type": "string"}}}}, {"a": None, "b": 1}, {"b": 1}),
        ({"anyOf": [{"required": ["b"]}, {"properties": {"a": {"type": "string"}}}]}, {"a": None}, {}),
        ({"properties": {"nullable": True, "a": {"type": "string"}}}, {"nullable": None, "a": None}, {"nullable": None}),
    ],
)
def test_a_null_is_left_out_wherever_the_schema_forbids_it(
    schema: dict[str, object], arguments: dict[str, object], sent: dict[str, object]
) -> None:
    """Also through keywords beside `properties`."""
    assert ArgumentValidator(schema).validate(arguments) == sent


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"a": {"type": "string"}}, "required": ["a"]},
        {"properties": {"a": {"type": "string"}}, "allOf": [{"required": ["a"]}]},
        {"$ref": "#/$defs/all", "$defs": {"all": {"properties": {"a": {"type": "string"}}, "required": ["a"]}}},
        {"properties": {"a": {"type": "string", "default": None}}, "required": ["a"]},
        {"properties": {"a": {"type": "string", "default": 5}}, "required": ["a"]},
    ],
)
def test_a_required_null_is_refused_as_it_was_sent(schema: dict[str, object]) -> None:
    """The error names the null, and not a missing argument or a default that does not fit."""
    assert errors_of(schema, {"a": None, "b": 1}) == {"/a": ['null is not of type "string"']}


def test_nulls_within_arguments_are_left_to_the_schema_unless_the_tool_is_built_in() -> None:
    """For tool servers only arguments themselves are completed; the models of built-in tools have a default for each field."""
    options: list[object] = [{"type": "string"}, {"type": "object", "properties": {"b": {"type": "string"}, "c": {}}, "required": ["c"]}]
    schema: dict[str, object] = {"properties": {"a": {"type": "array", "items": {"anyOf": options}}}}
    arguments: dict[str, object] = {"a": [{"b": None, "c": None}, "text"]}
    wrong: dict[str, object] = {"a": [{"b": None}]}

    assert set(errors_of(schema, arguments)) == {"/a/0"}
    assert ArgumentValidator(schema, is_builtin=True).validate(arguments) == {"a": [{"c": None}, "text"]}
    assert arguments == {"a": [{"b": None, "c": None}, "text"]}
    with pytest.raises(ArgumentsInvalid):
        ArgumentValidator(schema, is_builtin=True).validate(wrong)


@pytest.mark.parametrize(
    ("schema", "arguments", "sent"),
    [
        ({"properties": {"a": {"default": "css", "enum": ["css"]}}, "required": ["a"]}, {}, {"a": "css"}),
        ({"properties": {"a": {"default": "css", "enum": ["css"]}}, "required": ["a"]}, {"a": None}, {"a": "css"}),
        ({"properties": {"a": {"default": None, "type": ["string", "null"]}}, "required": ["a"]}, {}, {"a": None}),
        ({"properties": {"a": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"default": 1}}, "required": ["a"]}, {}, {"a": 1}),
        ({"allOf": [{"properties": {"a": {"default": 1}}, "required": ["a"]}]}, {}, {"a": 1}),
        ({"$ref": "#/$defs/t", "$defs": {"t": {"properties": {"a": {"default": []}}, "required": ["a"]}}}, {}, {"a": []}),
        (
            {
                "properties": {"a": {"default": 1}, "b": {"default": 2**70}},
                "required": ["a"],
                "if": {"properties": {"a": {"const": 1}}},
                "then": {"required": ["b"]},
            },
            {},
            {"a": 1, "b": 2**70},
        ),
        ({"$schema": "http://json-schema.org/draft-04/schema#", "properties": {"a": {"default": 1}}, "required": ["a"]}, {}, {"a": 1}),
    ],
)
def test_a_missing_argument_that_is_required_gets_its_default(
    schema: dict[str, object], arguments: dict[str, object], sent: dict[str, object]
) -> None:
    """Some servers list an argument with a default as required, such as `scale` of a screenshot."""
    assert ArgumentValidator(schema).validate(arguments) == sent


@pytest.mark.parametrize("default", [None, 5, ["css"]])
def test_a_default_that_does_not_match_its_own_schema_is_not_filled_in(default: object) -> None:
    """The error names what the caller has to send."""
    schema: dict[str, object] = {"properties": {"a": {"type": "string", "default": default}}, "required": ["a"]}

    assert errors_of(schema, {}) == {"": ['"a" is a required property']}


def test_valid_arguments_are_sent_as_they_are() -> None:
    """An argument that is not required is not filled in: the server has its own default."""
    schema: dict[str, object] = {"properties": {"a": {"default": 1}, "b": {"type": ["string", "null"]}}}
    arguments: dict[str, object] = {"b": None}

    assert ArgumentValidator(schema).validate(arguments) is arguments


def test_many_nulls_that_are_not_accepted_are_refused_at_once() -> None:
    """Each null that is left out takes time."""
    schema: dict[str, object] = {"additionalProperties": {"type": "string"}}

    assert ArgumentValidator(schema).validate({f"a{n}": None for n in range(900)}) == {}
    assert len(errors_of(schema, {f"a{n}": None for n in range(2000)})) == 50


@pytest.mark.parametrize(
    "dialect",
    [
        None,
        "http://json-schema.org/draft-04/schema#",
        "http://json-schema.org/draft-06/schema#",
        "http://json-schema.org/draft-07/schema#",
        "https://json-schema.org/draft-07/schema",
        "https://json-schema.org/draft/2019-09/schema",
        "https://json-schema.org/draft/2020-12/schema",
        "https://schemas.example.org/dialect",
    ],
)
def test_formats_and_contents_are_hints_in_every_draft(dialect: str | None) -> None:
    """The result does not depend on `$schema`; other keywords are validated in each."""
    properties: dict[str, object] = {
        "start": {"type": "string", "format": "date-time"},
        "id": {"type": "string", "format": "uuid"},
        "data": {"type": "string", "contentEncoding": "base64", "contentMediaType": "application/json"},
    }
    schema: dict[str, object] = {"properties": properties} if dialect is None else {"$schema": dialect, "properties": properties}
    arguments: dict[str, object] = {"start": "tomorrow", "id": "", "data": "{"}

    assert ArgumentValidator(schema).validate(arguments) is arguments
    assert set(errors_of(schema, {**arguments, "id": 5})) == {"/id"}
