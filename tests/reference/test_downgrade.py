"""The downgrade of schemas to OpenAPI 3.0 keeps their meaning: generated models, and each keyword that 3.0 lacks."""

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
    model_fields = {
        f"field_{name}": (kind, Field(default=None, alias=name) if may_lack else Field(alias=name))
        for name, (kind, may_lack) in fields.items()
    }
    return create_model("Made", **model_fields)  # pyright: ignore[reportCallIssue, reportArgumentType, reportUnknownVariableType]


_MODELS = st.dictionaries(_NAMES, st.tuples(st.recursive(_PLAIN, _kinds, max_leaves=4), st.booleans()), min_size=1, max_size=3).map(_model)


@settings(max_examples=40, deadline=None)
@given(model=_MODELS, values=st.lists(_JSON, min_size=3, max_size=8), fields=st.dictionaries(_NAMES, _JSON, max_size=3))
def test_a_downgraded_schema_accepts_what_the_model_accepts(
    model: type[BaseModel], values: list[object], fields: dict[str, object]
) -> None:
    """A schema may become looser where 3.0 lacks a keyword, never stricter; otherwise it stays equivalent."""
    schema = model.model_json_schema(ref_template="#/components/schemas/{model}")
    parts = cast("dict[str, object]", schema.pop("$defs", {}))
    before = jsonschema_rs.Draft202012Validator({**schema, "components": {"schemas": parts}})
    downgraded = downgrade(schema)
    after = jsonschema_rs.Draft4Validator(
        {
            **as_json_schema(downgraded),
            "components": {"schemas": {name: as_json_schema(downgrade(part)) for name, part in parts.items()}},
        }
    )
    _require_openapi_3_0([downgraded, *(downgrade(part) for part in parts.values())])
    is_exact = not ({"prefixItems", "patternProperties"} & set(_keywords([schema, parts])))
    names = cast("dict[str, object]", schema["properties"])
    for value in [*values, fields, *({**fields, **dict.fromkeys(names, value)} for value in values)]:
        if before.is_valid(value):
            assert after.is_valid(value), (value, schema, downgraded)
        elif is_exact:
            assert not after.is_valid(value), (value, schema, downgraded)


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (True, {}),
        (False, {"not": {}}),
        ({"type": ["string", "null"]}, {"type": "string", "nullable": True}),
        ({"type": ["string", "integer"]}, {"anyOf": [{"type": "string"}, {"type": "integer"}]}),
        ({"type": "null"}, null_schema()),
        ({"const": 3}, {"enum": [3]}),
        ({"anyOf": [{"type": "string", "enum": ["a"]}, {"type": "null"}]}, {"type": "string", "enum": ["a"], "nullable": True}),
        ({"enum": ["a", None]}, {"enum": ["a"], "nullable": True}),
        ({"type": "string", "enum": ["a", None]}, {"type": "string", "enum": ["a"]}),
        ({"type": ["string", "null"], "enum": ["a"]}, {"type": "string", "enum": ["a"]}),
        ({"type": "boolean", "const": True, "description": "All."}, {"type": "boolean", "description": "All. Only `true`."}),
        ({"type": ["string", "integer", "null"]}, {"anyOf": [{"type": "string", "nullable": True}, {"type": "integer"}]}),
        ({"$ref": "#/$defs/A"}, {"$ref": "#/components/schemas/A"}),
        ({"$ref": "#/$defs/A", "description": "An A."}, {"allOf": [{"$ref": "#/components/schemas/A"}], "description": "An A."}),
        (
            {"anyOf": [{"$ref": "#/$defs/A"}, {"type": "null"}]},
            {"allOf": [{"$ref": "#/components/schemas/A"}], "nullable": True},
        ),
        (
            {"anyOf": [{"$ref": "#/$defs/A"}, {"type": "string"}, {"type": "null"}]},
            {"anyOf": [{"$ref": "#/components/schemas/A"}, {"type": "string", "nullable": True}]},
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
def test_each_keyword_that_3_0_lacks_is_replaced(schema: object, expected: Schema) -> None:
    """Values such as defaults stay unchanged."""
    assert json.dumps(downgrade(schema), sort_keys=True) == json.dumps(expected, sort_keys=True)


def _require_openapi_3_0(parts: list[object]) -> None:
    """Fail on `type: null`, lists of types, keywords after 3.0, and siblings of a reference."""
    for schema in _schemas(parts):
        assert not schema.keys() & {"const", "examples", "prefixItems", "patternProperties", "propertyNames", "$defs", "if", "contains"}, (
            schema
        )
        assert isinstance(schema.get("type", ""), str), schema
        assert schema.get("type") != "null", schema
        assert schema.get("type") != "array" or "items" in schema, schema
        assert "$ref" not in schema or schema.keys() == {"$ref"}, schema
        assert None not in cast("list[object]", schema.get("enum", [])) or schema["enum"] == [None], schema
        assert schema.get("type") != "boolean" or "enum" not in schema, schema
        assert all(isinstance(schema.get(name, True), bool) for name in ("exclusiveMinimum", "exclusiveMaximum")), schema


def _schemas(parts: list[object]) -> Iterator[Schema]:
    pending = parts
    while pending:
        value = pending.pop()
        if isinstance(value, list):
            pending.extend(cast("list[object]", value))
        elif isinstance(value, dict):
            schema = cast("Schema", value)
            yield schema
            pending.extend(cast("Schema", schema.get("properties", {})).values())
            pending.extend(schema[name] for name in ("items", "additionalProperties", "anyOf", "oneOf", "allOf", "not") if name in schema)


def _keywords(parts: list[object]) -> Iterator[str]:
    pending = parts
    while pending:
        value = pending.pop()
        if isinstance(value, dict):
            mapping = cast("dict[str, object]", value)
            yield from mapping
            pending.extend(mapping.values())
        elif isinstance(value, list):
            pending.extend(cast("list[object]", value))
