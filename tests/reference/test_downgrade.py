"""Schemas as OpenAPI 3.0 says them mean what pydantic meant (D-83): made-up models and values, and each keyword that 3.0 lacks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Annotated, Literal, cast

import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field, create_model

from rookery.reference.downgrade import Schema, downgrade, null_schema
from tests.openapi_check import as_json_schema

_NAMES = st.sampled_from(["id", "name", "size", "nullable", "default", "type"])
_TEXTS = st.sampled_from(["", "a", "ab", "green"])
_PLAIN = st.sampled_from(
    [
        str,
        int,
        float,
        bool,
        None,
        object,
        Literal["green"],
        Literal["red", "green"] | None,
        Literal[1, "1"],
        Annotated[int, Field(gt=0, lt=10)],
        Annotated[int, Field(ge=0, gt=2)],
        Annotated[float, Field(ge=0, le=1, examples=[0.5])],
        Annotated[str, Field(min_length=1, max_length=2, pattern="^[a-z]+$", description="A word.", examples=["ab"])],
        dict[str, int],
        dict[Annotated[str, Field(pattern="^a")], int],
        tuple[int, str],
        tuple[int, ...],
    ]
)
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 12) | st.sampled_from([0.5, 2.5]) | _TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_NAMES | _TEXTS, inner, max_size=4),
    max_leaves=6,
)


def _kinds(inner: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    models = st.dictionaries(_NAMES, st.tuples(inner, st.booleans()), min_size=1, max_size=3).map(_model)
    return st.one_of(
        inner.map(lambda kind: cast("object", list[kind])),
        inner.filter(lambda kind: kind is not None).map(lambda kind: cast("object", kind | None)),  # pyright: ignore[reportOperatorIssue]
        models,
        models.map(lambda model: Annotated[model | None, Field(description="Perhaps.")]),
        st.tuples(models, models).map(lambda pair: pair[0] | pair[1] | None),
    )


def _model(fields: dict[str, tuple[object, bool]]) -> type[BaseModel]:
    given_fields = {
        f"field_{name}": (kind, Field(default=None, alias=name) if may_lack else Field(alias=name))
        for name, (kind, may_lack) in fields.items()
    }
    return create_model("Made", **given_fields)  # pyright: ignore[reportCallIssue, reportArgumentType, reportUnknownVariableType]


_MODELS = st.dictionaries(_NAMES, st.tuples(st.recursive(_PLAIN, _kinds, max_leaves=4), st.booleans()), min_size=1, max_size=3).map(_model)


@settings(max_examples=40, deadline=None)
@given(model=_MODELS, values=st.lists(_JSON, min_size=3, max_size=8), fields=st.dictionaries(_NAMES, _JSON, max_size=3))
def test_what_fits_a_model_fits_it_in_the_words_of_3_0(model: type[BaseModel], values: list[object], fields: dict[str, object]) -> None:
    """D-83: a schema may get looser, where 3.0 has no words for it, and never stricter; what is not lost means exactly the same."""
    schema = model.model_json_schema(ref_template="#/components/schemas/{model}")
    parts = cast("dict[str, object]", schema.pop("$defs", {}))
    before = jsonschema_rs.Draft202012Validator({**schema, "components": {"schemas": parts}})
    told = downgrade(schema)
    after = jsonschema_rs.Draft4Validator(
        {**as_json_schema(told), "components": {"schemas": {name: as_json_schema(downgrade(each)) for name, each in parts.items()}}}
    )
    _must_be_of_3_0([told, *(downgrade(each) for each in parts.values())])
    is_exact = not ({"prefixItems", "patternProperties"} & set(_keywords([schema, parts])))
    names = cast("dict[str, object]", schema["properties"])
    for value in [*values, fields, *({**fields, **dict.fromkeys(names, value)} for value in values)]:
        if before.is_valid(value):
            assert after.is_valid(value), (value, schema, told)
        elif is_exact:
            assert not after.is_valid(value), (value, schema, told)


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        (True, {}),
        (False, {"not": {}}),
        ({"type": ["string", "null"]}, {"type": "string", "nullable": True}),
        ({"type": ["string", "integer"]}, {"anyOf": [{"type": "string"}, {"type": "integer"}]}),
        ({"type": "null"}, null_schema()),
        ({"const": 3}, {"enum": [3]}),
        ({"anyOf": [{"type": "string", "enum": ["a"]}, {"type": "null"}]}, {"type": "string", "enum": ["a", None], "nullable": True}),
        ({"$ref": "#/$defs/A"}, {"$ref": "#/components/schemas/A"}),
        ({"$ref": "#/$defs/A", "description": "An A."}, {"allOf": [{"$ref": "#/components/schemas/A"}], "description": "An A."}),
        (
            {"anyOf": [{"$ref": "#/$defs/A"}, {"type": "null"}]},
            {"anyOf": [{"$ref": "#/components/schemas/A"}, null_schema()]},
        ),
        ({"type": "number", "exclusiveMinimum": 0}, {"type": "number", "minimum": 0, "exclusiveMinimum": True}),
        ({"type": "number", "minimum": 5, "exclusiveMinimum": 0}, {"type": "number", "minimum": 5}),
        ({"type": "array"}, {"type": "array", "items": {}}),
        (
            {"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}], "minItems": 2, "maxItems": 2},
            {"type": "array", "items": {"anyOf": [{"type": "string"}, {"type": "integer"}]}, "minItems": 2, "maxItems": 2},
        ),
        (
            {"type": "object", "patternProperties": {"^a": {"type": "integer"}}, "additionalProperties": False},
            {"type": "object", "additionalProperties": {"type": "integer"}},
        ),
        ({"type": "string", "examples": ["a", "b"]}, {"type": "string", "example": "a"}),
        ({"type": "string", "contentMediaType": "application/octet-stream"}, {"type": "string", "format": "binary"}),
        ({"type": "object", "default": {"const": 1, "type": ["null"]}}, {"type": "object", "default": {"const": 1, "type": ["null"]}}),
    ],
)
def test_each_word_that_3_0_lacks_has_one_that_it_knows(schema: object, told: Schema) -> None:
    """D-83, as the notes on OpenAPI 3.0.3 list them; what is data stays as it is."""
    assert json.dumps(downgrade(schema), sort_keys=True) == json.dumps(told, sort_keys=True)


def _must_be_of_3_0(parts: list[object]) -> None:
    """No `type: null`, no lists of types, none of the keywords that came later, nothing beside a reference."""
    for told in _schemas(parts):
        assert not told.keys() & {"const", "examples", "prefixItems", "patternProperties", "propertyNames", "$defs", "if", "contains"}, told
        assert isinstance(told.get("type", ""), str), told
        assert told.get("type") != "null", told
        assert told.get("type") != "array" or "items" in told, told
        assert "$ref" not in told or told.keys() == {"$ref"}, told
        assert "nullable" not in told or "type" in told, told
        assert all(isinstance(told.get(name, True), bool) for name in ("exclusiveMinimum", "exclusiveMaximum")), told


def _schemas(parts: list[object]) -> Iterator[Schema]:
    waiting = parts
    while waiting:
        each = waiting.pop()
        if isinstance(each, list):
            waiting.extend(cast("list[object]", each))
        elif isinstance(each, dict):
            schema = cast("Schema", each)
            yield schema
            waiting.extend(cast("Schema", schema.get("properties", {})).values())
            waiting.extend(schema[name] for name in ("items", "additionalProperties", "anyOf", "oneOf", "allOf", "not") if name in schema)


def _keywords(parts: list[object]) -> Iterator[str]:
    waiting = parts
    while waiting:
        each = waiting.pop()
        if isinstance(each, dict):
            inside = cast("dict[str, object]", each)
            yield from inside
            waiting.extend(inside.values())
        elif isinstance(each, list):
            waiting.extend(cast("list[object]", each))
