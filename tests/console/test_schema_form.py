"""The form of a tool's arguments: a lossless view of JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rookery.console.schema_form.edits import BRANCH, FIELD, NULL, SHOWN_BRANCH, SHOWN_NULL, InvalidJsonText, apply_form, parse_json
from rookery.console.schema_form.nodes import MAX_DEPTH, FormNode, build_form

POINT = {"type": "object", "properties": {"x": {"type": "integer"}, "y": {"type": ["integer", "null"]}}, "required": ["x"]}
CARD = {"title": "Card", "type": "object", "properties": {"kind": {"const": "card"}, "number": {"type": "string"}}, "required": ["kind"]}
CASH = {"title": "Cash", "type": "object", "properties": {"kind": {"const": "cash"}, "coins": {"type": "integer"}}, "required": ["kind"]}
TREE = {
    "$defs": {"node": {"type": "object", "properties": {"name": {"type": "string"}, "children": {"items": {"$ref": "#/$defs/node"}}}}},
    "$ref": "#/$defs/node",
}
CORPUS: Mapping[str, object] = {
    "no properties at all": {"type": "object"},
    "empty schema": {},
    "true": True,
    "false": False,
    "not an object": [],
    "texts, numbers and choices": {
        "type": "object",
        "properties": {
            "text": {"type": "string", "default": "a"},
            "count": {"type": "integer", "minimum": 0},
            "share": {"type": "number"},
            "flag": {"type": "boolean"},
            "level": {"enum": ["low", "high", 1, None, True]},
            "a/b~c": {"type": "string"},
            "anything": True,
            "never": False,
        },
        "required": ["text", "flag"],
    },
    "root anyOf (inspector#2123)": {"type": "object", "anyOf": [CARD, CASH]},
    "root oneOf of references (inspector#2123)": {
        "$defs": {"card": CARD, "cash": CASH},
        "oneOf": [{"$ref": "#/$defs/card"}, {"$ref": "#/$defs/cash"}],
    },
    "root anyOf of required names": {
        "type": "object",
        "properties": {"id": {"type": "string"}, "url": {"type": "string"}},
        "anyOf": [{"required": ["id"]}, {"required": ["url"]}],
    },
    "nested anyOf with null (fastmcp#1871)": {
        "type": "object",
        "properties": {"filter": {"anyOf": [{"anyOf": [POINT, {"type": "string"}]}, {"type": "null"}], "default": None}},
    },
    "recursion by $ref": TREE,
    "recursion without an end": {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"},
    "union that contains itself": {
        "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}, {"type": "string"}]}},
        "properties": {"a": {"$ref": "#/$defs/a"}},
    },
    "references elsewhere": {"properties": {"a": {"$ref": "https://example.com/schema"}, "b": {"$ref": "#/nowhere"}}},
    "lists of objects": {
        "properties": {"points": {"type": "array", "items": POINT}, "names": {"type": "array", "items": {"type": "string"}}}
    },
    "lists of other kinds": {
        "properties": {
            "pair": {"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}]},
            "old": {"type": "array", "items": [{"type": "string"}]},
            "any": {"type": "array"},
            "lists": {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}},
            "optional": {"type": ["array", "null"], "items": {"type": ["number", "null"]}},
        }
    },
    "allOf": {
        "allOf": [
            {"properties": {"a": {"type": "string"}, "b": {"type": "number"}}, "required": ["a"]},
            {"properties": {"b": {"type": "integer", "minimum": 1}, "c": {"type": "boolean"}}, "required": ["b"]},
        ]
    },
    "additionalProperties": {
        "properties": {"known": {"type": "string"}, "map": {"type": "object", "additionalProperties": {"type": "integer"}}},
        "additionalProperties": {"type": "string"},
    },
    "several types": {"properties": {"id": {"type": ["string", "integer", "null"]}, "value": {"type": ["object", "array", "boolean"]}}},
    "constants with titles": {
        "properties": {"mode": {"oneOf": [{"const": 1, "title": "One"}, {"const": "1", "title": "Text"}, {"type": "null"}]}}
    },
}

_scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
_names = st.text(max_size=5) | st.sampled_from([
    "text", "count", "share", "flag", "level", "a/b~c", "anything", "never", "kind", "number", "coins", "id", "url", "filter", "name",
    "children", "points", "names", "pair", "any", "lists", "map", "known", "x", "y", "mode", "a", "b", "c", "value",
])  # fmt: skip
_values = st.recursive(
    _scalars | st.sampled_from(["card", "cash", "low", "a\r\nb", "\n\nlead", "\ud800", "\x00", " padded "]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_names, inner, max_size=5),
    max_leaves=20,
)
_objects = st.dictionaries(_names, _values, max_size=8)


def submit(node: FormNode) -> dict[str, str]:
    """Return the fields that a browser submits for an unchanged form, with the line ends that it sends."""
    fields: dict[str, str] = {}
    if len(node.branches) > 1:
        fields |= {BRANCH + node.pointer: str(node.branch), SHOWN_BRANCH + node.pointer: str(node.branch)}
    if node.is_nullable:
        fields[SHOWN_NULL + node.pointer] = "1"
        if node.is_null:
            return fields | {NULL + node.pointer: "1"}
    if node.kind not in {"constant", "object", "list", "hidden"}:
        fields[FIELD + node.pointer] = node.text.replace("\n", "\r\n")
    for child in node.children:
        fields |= submit(child)
    return fields


def change(schema: object, value: object, edit: str = "", **fields: str) -> object:
    """Return the value after a person changed *fields*, whose names are pointers without the first slash; `__` is a slash."""
    submitted = submit(build_form(schema, value))
    for name, text in fields.items():
        submitted[f"{FIELD}/{name.replace('__', '/')}"] = text
    return apply_form(schema, value, submitted, edit).value


def get(schema: object, value: object, pointer: str) -> FormNode:
    """Return the control of a pointer."""
    node = build_form(schema, value).find(pointer)
    assert node is not None, pointer
    return node


@pytest.mark.parametrize("schema", CORPUS.values(), ids=CORPUS)
@settings(max_examples=25)
@given(value=_objects)
def test_an_unchanged_form_changes_nothing(schema: object, value: dict[str, object]) -> None:
    """Form(JSON) → JSON is the identity, for what the schema shows and for everything else, with the types of all values."""
    applied = apply_form(schema, value, submit(build_form(schema, value)))
    assert json.dumps(applied.value) == json.dumps(value)
    assert applied.errors == {}


@pytest.mark.parametrize("schema", CORPUS.values(), ids=CORPUS)
@settings(max_examples=15)
@given(value=_objects, data=st.data())
def test_a_changed_control_changes_its_value_alone(schema: object, value: dict[str, object], data: st.DataObject) -> None:
    """Fields that the form cannot show stay in the JSON when another one is changed."""
    form = build_form(schema, value)
    texts = [child for child in form.children if child.kind == "text" and not child.is_null]  # beside a ticked null no control is shown
    if not texts or len(form.branches) > 1:
        return
    node = data.draw(st.sampled_from(texts))
    applied = cast("dict[str, object]", apply_form(schema, value, submit(form) | {FIELD + node.pointer: "changed"}).value)
    assert applied == {**value, node.name: "changed"}


@given(value=_values)
def test_json_texts_are_read_as_they_are_written(value: object) -> None:
    """The text of the arguments is their value."""
    assert json.dumps(parse_json(json.dumps(value))) == json.dumps(value)


@pytest.mark.parametrize("text", ["", "{", "NaN", "[1e999]", "Infinity", "[" * 100_000])
def test_invalid_json_is_refused(text: str) -> None:
    """A text that is not JSON changes nothing."""
    with pytest.raises(InvalidJsonText):
        parse_json(text)


def test_emptied_optional_fields_are_absent() -> None:
    """An empty optional field is an absent key; a required text may be empty."""
    schema = CORPUS["texts, numbers and choices"]
    value = {"text": "a", "count": 1, "share": 0.5, "flag": True, "level": "low", "anything": [1], "a/b~c": "x"}
    assert change(schema, value, text="", count="", share="", flag="", level="", anything="") == {"text": "", "a/b~c": "x"}
    assert change(schema, {}, **{"a~1b~0c": "x", "count": "7"}) == {"a/b~c": "x", "count": 7}


def test_numbers_keep_their_kind() -> None:
    """A text that is no number stays in the JSON, so that the server says what is wrong with it."""
    schema = CORPUS["texts, numbers and choices"]
    assert change(schema, {}, count="12345678901234567890", share="1.50") == {"count": 12345678901234567890, "share": 1.5}
    assert change(schema, {}, count="many", share="true") == {"count": "many", "share": "true"}
    assert get(schema, {"count": "many"}, "/count").kind == "json"


def test_choices_have_any_value() -> None:
    """Null and enum. Values that look alike are different options, and a value that is not allowed is still shown."""
    schema = CORPUS["texts, numbers and choices"]
    assert get(schema, {}, "/level").options == ["low", "high", "1", "null", "true"]
    assert [change(schema, {}, level=text) for text in "0234"] == [{"level": "low"}, {"level": 1}, {"level": None}, {"level": True}]
    assert get(schema, {"level": "other"}, "/level").text == "other"
    titles = CORPUS["constants with titles"]
    assert get(titles, {"mode": "1"}, "/mode").options == ["One", "Text"]
    assert change(titles, {}, mode="1") == {"mode": "1"}


def test_null_is_chosen_explicitly() -> None:
    """An explicit null choice for nullable fields, and back to an absent key."""
    schema = CORPUS["several types"]
    assert get(schema, {}, "/id").is_nullable
    fields = submit(build_form(schema, {"id": "a"}))
    assert apply_form(schema, {"id": "a"}, fields | {NULL + "/id": "1"}).value == {"id": None}
    fields = submit(build_form(schema, {"id": None}))
    del fields[NULL + "/id"]
    assert apply_form(schema, {"id": None}, fields).value == {}


def test_nullable_of_openapi_is_a_choice_of_null() -> None:
    """A call accepts null there, too."""
    schema: dict[str, object] = {"properties": {"a": {"type": "string", "nullable": True}, "b": {"enum": ["x", None], "nullable": True}}}

    assert get(schema, {}, "/a").is_nullable
    assert not get(schema, {}, "/b").is_nullable


def test_an_argument_with_a_default_may_stay_unset() -> None:
    """An unset argument is absent, and a call fills in its default. Within an argument nothing is filled in."""
    inner: dict[str, object] = {"type": "object", "properties": {"c": {"type": "string", "default": "x"}}, "required": ["c"]}
    schema: dict[str, object] = {"properties": {"a": {"enum": ["css"], "default": "css"}, "b": {}, "inner": inner}, "required": ["a", "b"]}
    form = build_form(schema, {})

    assert [(node.name, node.is_filled_in) for node in form.children] == [("a", True), ("b", False), ("inner", False)]
    assert not get(schema, {}, "/inner/c").is_filled_in
    assert apply_form(schema, {}, submit(form)).value == {}


def test_unions_are_selected_by_title_constant_or_type() -> None:
    """The branches of a union, also at the root, are named and recognised."""
    root = build_form(CORPUS["root oneOf of references (inspector#2123)"], {"kind": "cash", "coins": 3})
    assert (root.branch_names, root.branch, [child.name for child in root.children]) == (["Card", "Cash"], 1, ["kind", "coins"])
    nested = get(CORPUS["nested anyOf with null (fastmcp#1871)"], {"filter": "x"}, "/filter")
    assert (nested.branch_names, nested.branch, nested.is_nullable, nested.kind) == (["with x", "string"], 1, True, "text")
    several = get(CORPUS["several types"], {"id": 7}, "/id")
    assert (several.branch_names, several.branch, several.kind) == (["string", "integer"], 1, "number")
    required = build_form(CORPUS["root anyOf of required names"], {"url": "x"})
    assert (required.branch_names, required.branch, len(required.children)) == (["with id", "with url"], 1, 2)


def test_another_branch_keeps_what_it_shares() -> None:
    """Changing the branch sets its constants, removes what only the other branch has, and leaves unknown keys alone."""
    schema = CORPUS["root anyOf (inspector#2123)"]
    value = {"kind": "card", "number": "42", "note": "kept"}
    fields = submit(build_form(schema, value)) | {BRANCH: "1"}
    assert apply_form(schema, value, fields).value == {"kind": "cash", "note": "kept"}
    by_type = CORPUS["several types"]
    fields = submit(build_form(by_type, {"id": "a"})) | {f"{BRANCH}/id": "1"}
    assert apply_form(by_type, {"id": "a"}, fields).value == {"id": 0}


def test_a_chosen_branch_is_shown_before_it_has_a_value() -> None:
    """A choice that the value does not show yet is kept by the form."""
    schema = CORPUS["nested anyOf with null (fastmcp#1871)"]
    assert build_form(schema, {}, {"/filter": 1}).children[0].kind == "text"
    assert build_form(schema, {"filter": {"x": 1}}, {"/filter": 1}).children[0].branch == 0


def test_rows_are_added_and_removed() -> None:
    """Lists with add and remove; an optional list disappears with its last row."""
    schema = CORPUS["lists of objects"]
    assert change(schema, {}, "add:/points") == {"points": [{}]}
    assert change(schema, {"names": ["a"]}, "add:/names") == {"names": ["a", ""]}
    assert change(schema, {"points": [{"x": 1}, {"x": 2}]}, "remove:/points/0", points__1__y="5") == {"points": [{"x": 2, "y": 5}]}
    assert change(schema, {"names": ["a"]}, "remove:/names/0") == {}
    for edit in ("remove:/names/7", "add:/nowhere", "add:", "remove:", "burn:/names/0"):
        assert change(schema, {"names": ["a"]}, edit) == {"names": ["a"]}


def test_parts_of_allof_are_one_form() -> None:
    """`allOf` is merged, with the narrower type of a property that several parts describe."""
    form = build_form(CORPUS["allOf"], {})
    assert [(child.name, child.kind, child.is_required) for child in form.children] == [
        ("a", "text", True), ("b", "number", True), ("c", "choice", False),
    ]  # fmt: skip
    assert "at least 1" in form.children[1].note


def test_deep_values_become_json() -> None:
    """A cap on the depth, then a field of JSON."""
    value: dict[str, object] = {"name": "leaf"}
    for _ in range(MAX_DEPTH):
        value = {"name": "n", "children": [value]}
    deepest = get(TREE, value, "/children/0/children/0")
    assert deepest.kind == "json"
    assert '"leaf"' in deepest.text
    assert change(TREE, {"name": "a"}, children="[]") == {"name": "a"}, "a list has no field of its own"


def test_fields_of_json_report_what_they_cannot_read() -> None:
    """A text that is not JSON stays in its field, and the value is unchanged."""
    schema = CORPUS["texts, numbers and choices"]
    applied = apply_form(schema, {"anything": 1}, submit(build_form(schema, {"anything": 1})) | {f"{FIELD}/anything": "{"})
    assert (applied.value, applied.texts, list(applied.errors)) == ({"anything": 1}, {"/anything": "{"}, ["/anything"])


def test_unknown_keys_are_named() -> None:
    """The form says which keys it does not show."""
    assert build_form(CORPUS["additionalProperties"], {"known": "a", "more": "b"}).others == ["more"]
    assert get(CORPUS["additionalProperties"], {"map": {"a": 1}}, "/map").kind == "json"


def test_huge_schemas_and_values_stay_small() -> None:
    """The number of controls has a limit; what is beyond it is a field of JSON, and a very long text is left to the JSON."""
    many = {"properties": {f"p{number}": POINT for number in range(500)}}
    kinds = [child.kind for child in build_form(many, {}).children]
    assert (kinds[0], kinds[-1], len(kinds)) == ("object", "json", 500)
    assert get(CORPUS["allOf"], {"a": "x" * 100_000}, "/a").kind == "hidden"


def test_an_object_gets_its_constant_with_its_first_property() -> None:
    """The discriminator of a branch needs no choice. It comes with what a person enters, and goes with what is emptied."""
    schema = {"type": "object", "properties": {"payment": {"anyOf": [CARD, CASH]}, "tip": CASH}}
    assert get(schema, {}, "/payment/kind").kind == "constant"
    assert json.dumps(change(schema, {}, payment__number="7")) == '{"payment": {"kind": "card", "number": "7"}}'
    assert change(schema, {"tip": {"kind": "cash", "coins": 3}}, tip__coins="") == {}
    assert change(schema, {"tip": {"kind": "cash"}}) == {"tip": {"kind": "cash"}}
    assert change(schema, {"tip": {"coins": 3}}, tip__coins="4") == {"tip": {"kind": "cash", "coins": 4}}
    assert get(schema, {"tip": {"kind": "card"}}, "/tip/kind").text == "other"


@settings(max_examples=25)
@given(value=_objects)
def test_an_unchanged_form_with_a_constant_changes_nothing(value: dict[str, object]) -> None:
    """A constant is only added with another change."""
    schema = {
        "type": "object",
        "properties": {"kind": {"const": "card"}, "a": CARD, "b": {"enum": ["one"]}},
        "required": ["kind", "a", "b"],
    }
    assert json.dumps(apply_form(schema, value, submit(build_form(schema, value))).value) == json.dumps(value)
