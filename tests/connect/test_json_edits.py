"""Edits of JSON with comments: everything but the edited entry keeps every byte."""

from __future__ import annotations

import contextlib
import json
from typing import cast

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from rookery.connect.json_edits import UneditableJson, append_item, find_node, remove_value, replace_value, set_value
from rookery.connect.jsonc import MAX_DEPTH, InvalidJsonc, parse_jsonc

ENTRY = {"type": "http", "headers": {"Authorization": "Bearer ${ROOKERY_KEY}"}}
NAMES = st.text(alphabet='abc"\\/ä🙂', max_size=4)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=6)
VALUES = st.recursive(SCALARS, lambda values: st.lists(values, max_size=3) | st.dictionaries(NAMES, values, max_size=3), max_leaves=8)
OBJECTS: st.SearchStrategy[dict[str, object]] = st.dictionaries(NAMES, cast("st.SearchStrategy[object]", VALUES), max_size=4)
NEWLINES = st.sampled_from(["\n", "\r\n"])


@st.composite
def draw_trivia(draw: st.DrawFn, newline: str) -> str:
    """Return whitespace and comments as people write them, also ones that look like values."""
    parts = st.sampled_from(
        ["", "", " ", "\t", newline, newline + "  ", f'// "x": 1, {{}}{newline}', "/* , } */", f"/* {newline} */", f"//{newline}"]
    )
    return "".join(draw(st.lists(parts, max_size=3)))


@st.composite
def draw_jsonc(draw: st.DrawFn, value: object, newline: str) -> str:
    """Return *value* as JSON with comments and trailing commas."""

    def render(part: object) -> str:
        def trivia() -> str:
            return draw(draw_trivia(newline))

        if not isinstance(part, dict | list):
            return json.dumps(part, ensure_ascii=draw(st.booleans()))
        if isinstance(part, dict):
            fields = cast("dict[str, object]", part)
            items = [f"{json.dumps(name)}{trivia()}:{trivia()}{render(field)}" for name, field in fields.items()]
        else:
            items = [render(item) for item in cast("list[object]", part)]
        inner = ",".join(f"{trivia()}{item}{trivia()}" for item in items)
        last = f",{trivia()}" if items and draw(st.booleans()) else ""
        opening, closing = "{}" if isinstance(part, dict) else "[]"
        return f"{opening}{inner or trivia()}{last}{closing}"

    return draw(draw_trivia(newline)) + render(value) + draw(draw_trivia(newline))


@st.composite
def draw_document(draw: st.DrawFn) -> tuple[dict[str, object], str]:
    """Return an object and a text of it."""
    document = draw(OBJECTS)
    return document, draw(draw_jsonc(document, draw(NEWLINES)))


def read(text: str) -> object:
    """Return the value of a text."""
    root = parse_jsonc(text)
    return None if root is None else root.to_value()


def has_in_order(text: str, part: str) -> bool:
    """Return whether all characters of *part* are in *text* in their order, so that only insertions make the difference."""
    rest = iter(text)
    return all(character in rest for character in part)


def drop_blank(text: str) -> str:
    """Return the text without whitespace."""
    return "".join(text.split())


@given(case=draw_document())
def test_a_text_with_comments_has_the_value_of_its_json(case: tuple[dict[str, object], str]) -> None:
    """VS Code and Zed read comments and trailing commas; the parser reads the same value."""
    value, text = case

    assert read(text) == value


@given(value=VALUES)
def test_plain_json_is_read_as_by_the_standard_library(value: object) -> None:
    """Files of Claude Code and Codex are plain JSON."""
    for indent in (None, 2, "\t"):
        assert read(json.dumps(value, indent=indent)) == value


@given(case=draw_document())
def test_adding_an_entry_only_inserts_and_removing_it_restores_every_byte(case: tuple[dict[str, object], str]) -> None:
    """Comments, order, indentation, line ends and trailing commas around the entry stay."""
    value, text = case
    assume("rookery" not in value)

    added = set_value(text, ("rookery",), ENTRY)

    assert read(added) == {**value, "rookery": ENTRY}
    assert has_in_order(added, text if value else drop_blank(text))
    assert set_value(added, ("rookery",), ENTRY) == added
    removed = remove_value(added, ("rookery",))
    if value:
        assert removed == text
    else:
        assert drop_blank(removed) == drop_blank(text)


@given(case=draw_document(), data=st.data())
def test_removing_an_entry_keeps_the_others_and_all_comments(case: tuple[dict[str, object], str], data: st.DataObject) -> None:
    """Comments before and after the entry belong to the user."""
    value, text = case
    assume(value)
    name = data.draw(st.sampled_from(sorted(value)))

    removed = remove_value(text, (name,))

    assert read(removed) == {other: part for other, part in value.items() if other != name}
    assert has_in_order(text, removed)
    root = parse_jsonc(text)
    assert root is not None
    member = next(member for member in root.members if member.name == name)
    outside = text[: member.start] + text[member.value.end :]
    assert drop_blank(removed).replace(",", "") == drop_blank(outside).replace(",", "")


@given(case=draw_document(), data=st.data(), new=SCALARS)
def test_replacing_a_value_changes_no_other_byte(case: tuple[dict[str, object], str], data: st.DataObject, new: object) -> None:
    """An address that moved is changed where it stands."""
    value, text = case
    assume(value)
    name = data.draw(st.sampled_from(sorted(value)))
    node = find_node(text, (name,))
    assert node is not None

    replaced = replace_value(text, (name,), new)

    assert replaced == text[: node.start] + json.dumps(new, ensure_ascii=False) + text[node.end :]


@given(items=st.lists(VALUES, min_size=1, max_size=4), newline=NEWLINES, data=st.data())
def test_an_item_is_added_at_the_end_of_a_list_and_removed_again(items: list[object], newline: str, data: st.DataObject) -> None:
    """Codex trusts a hook by its position, so those of others keep theirs."""
    text = data.draw(draw_jsonc({"hooks": items}, newline))

    added = append_item(text, ("hooks",), ENTRY)

    assert read(added) == {"hooks": [*items, ENTRY]}
    assert remove_value(added, ("hooks", len(items))) == text


def test_new_lines_follow_the_indentation_and_the_line_ends_of_the_file() -> None:
    """A file with tabs and CRLF gets tabs and CRLF."""
    text = '{\r\n\t"servers": {\r\n\t\t"mine": {}, // keep\r\n\t},\r\n}\r\n'

    added = set_value(text, ("servers", "rookery"), {"url": "u"})

    assert added == ('{\r\n\t"servers": {\r\n\t\t"mine": {}, // keep\r\n\t\t"rookery": {\r\n\t\t\t"url": "u"\r\n\t\t},\r\n\t},\r\n}\r\n')


def test_a_file_without_a_value_gets_one_after_its_comments() -> None:
    """A new settings file of VS Code or Zed has only comments."""
    assert set_value("", ("a", "b"), 1) == '{\n  "a": {\n    "b": 1\n  }\n}\n'
    assert set_value("// mine", ("a",), 1) == '// mine\n{\n  "a": 1\n}\n'


def test_fields_that_the_user_added_to_an_entry_stay() -> None:
    """A second run changes the address and keeps `timeout`."""
    text = '{"mcpServers": {"rookery": {"url": "old", "timeout": 5}}}'

    assert set_value(text, ("mcpServers", "rookery"), {"url": "new"}) == '{"mcpServers": {"rookery": {"url": "new", "timeout": 5}}}'


@pytest.mark.parametrize(
    ("text", "line", "column", "reason"),
    [
        ('{"a": 1,\n "b" 2}', 2, 6, '":" is expected'),
        ('{"a": }', 1, 7, "a value is expected"),
        ('{\n"a": tru\n}', 2, 6, "a value is expected"),
        ('{"a": "x\n"}', 1, 7, "the string has no end"),
        ("{a: 1}", 1, 2, "in double quotes"),
        ("{'a': 1}", 1, 2, "in double quotes"),
        ('{"a": 1 "b": 2}', 1, 9, '"," or "}" is expected'),
        ("[1 2]", 1, 4, '"," or "]" is expected'),
        ("[1,", 1, 4, "the file ends"),
        ("[01]", 1, 2, "a value is expected"),
        ("{} x", 1, 4, "after the end"),
        ("/* open", 1, 1, "the comment has no end"),
        ("{,}", 1, 2, "in double quotes"),
        ("[" * (MAX_DEPTH + 1), 1, MAX_DEPTH + 1, "nested deeper"),
    ],
)
def test_a_syntax_error_has_its_line_and_column(text: str, line: int, column: int, reason: str) -> None:
    """A file that cannot be parsed is not edited, and the user sees where to look."""
    with pytest.raises(InvalidJsonc, match=reason) as caught:
        set_value(text, ("a",), 1)

    assert (caught.value.line, caught.value.column) == (line, column)
    assert f"line {line}, column {column}" in str(caught.value)


@given(text=st.text(alphabet='{}[]",:/*\\ab01.-+eEtrufalsn \n\r\t\ufeff', max_size=30))
def test_any_text_is_parsed_as_the_standard_library_does_or_rejected(text: str) -> None:
    """No other error occurs, and plain JSON is never rejected."""
    try:
        expected = json.loads(text, parse_constant=lambda _: pytest.fail("not JSON"))
    except (ValueError, pytest.fail.Exception):
        with contextlib.suppress(InvalidJsonc):
            parse_jsonc(text)
        return
    assert read(text) == expected


@pytest.mark.parametrize(
    ("text", "path"),
    [('{"a": []}', ("a", "b")), ("[]", ("a",)), ('{"a": {}, "a": {}}', ("a", "b")), ('{"a": 1}', ("a", "b", "c"))],
)
def test_a_value_of_another_kind_is_not_replaced(text: str, path: tuple[str, ...]) -> None:
    """A value of the user on the way to our entry is not overwritten."""
    with pytest.raises(UneditableJson):
        set_value(text, path, 1)
