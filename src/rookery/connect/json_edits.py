"""
Edits of JSON with comments in place: what is not part of an edit keeps every byte. No I/O.

A path is a sequence of names of members and indexes of items.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias, cast

from rookery.connect.errors import UneditableText
from rookery.connect.jsonc import JsoncNode, parse_jsonc

JsonPath: TypeAlias = Sequence[str | int]

_DEFAULT_INDENT = "  "
_BETWEEN_VALUES = re.compile(r"[ \t\r\n]+|//[^\r\n]*|/\*.*?\*/|,", re.DOTALL)
_BLANK = re.compile(r"[ \t]+")
_LINE_END = re.compile(r"[ \t]*\r?\n")


class UneditableJson(UneditableText):
    """The text cannot take this edit. The message states the reason."""


@dataclass(frozen=True, slots=True)
class _Style:
    """The form of new lines of a text: one step of indentation, and the end of a line."""

    indent: str
    newline: str

    @classmethod
    def detect(cls, text: str, root: JsoncNode | None) -> _Style:
        """Return the style of the first line end and of the first member that has a line of its own."""
        first_break = text.find("\n")
        newline = "\r\n" if first_break > 0 and text[first_break - 1] == "\r" else "\n"
        children = [] if root is None else _get_children(root)
        indent = "" if not children else _get_line_indent(text, children[0][0])
        return cls(indent or _DEFAULT_INDENT, newline)


def set_value(text: str, path: JsonPath, value: object) -> str:
    """
    Return *text* with *value* at *path*. Missing objects on the way are added; members of an object that *value* lacks stay.

    An equal value changes nothing, so that a repeated edit returns the same text.

    Raises:
        InvalidJsonc: The text is not JSON with comments.
        UneditableJson: A value on the way is no object, or a name on the way stands twice.
    """
    root = parse_jsonc(text)
    style = _Style.detect(text, root)
    if root is None:
        return _append_document(text, _wrap(path, value), style)
    node = root
    for depth, step in enumerate(path):
        if isinstance(step, int):
            node = _get_item(node, path[:depth], step)
            continue
        member = _get_member(node, path[:depth], step)
        if member is None:
            return _insert(text, node, style, step, _wrap(path[depth + 1 :], value))
        node = member
    return _merge(text, path, node, value, style)


def append_item(text: str, path: JsonPath, value: object) -> str:
    """
    Return *text* with *value* at the end of the array at *path*, which is added if it is missing.

    Raises:
        InvalidJsonc: The text is not JSON with comments.
        UneditableJson: There is no array at *path*.
    """
    node = find_node(text, path)
    if node is None:
        return set_value(text, path, [value])
    if node.kind != "array":
        raise UneditableJson(f"{_format_path(path)} is not a list")
    return _insert(text, node, _Style.detect(text, parse_jsonc(text)), None, value)


def replace_value(text: str, path: JsonPath, value: object) -> str:
    """
    Return *text* with exactly *value* at *path*, where there is a value already.

    Raises:
        InvalidJsonc: The text is not JSON with comments.
        UneditableJson: There is no value at *path*.
    """
    node = find_node(text, path)
    if node is None:
        raise UneditableJson(f"{_format_path(path)} does not exist")
    return _replace(text, node, value, _Style.detect(text, parse_jsonc(text)))


def remove_value(text: str, path: JsonPath) -> str:
    """
    Return *text* without the member or item at *path*, and without its comma. Comments around it stay.

    Raises:
        InvalidJsonc: The text is not JSON with comments.
        UneditableJson: There is no value at *path*.
    """
    parent, target = find_node(text, path[:-1]), find_node(text, path)
    if parent is None or target is None:
        raise UneditableJson(f"{_format_path(path)} does not exist")
    children = _get_children(parent)
    index = [node for _, node in children].index(target)
    previous_end = children[index - 1][1].end if index else parent.start + 1
    comma = _find_comma(text, target.end)
    if comma is not None:
        start, end = _find_cut(text, previous_end, children[index][0], comma + 1)
        comments = text[target.end : comma]
        text = text[:start] + ("" if comments.isspace() else comments) + text[end:]
        return _close_if_empty(text, parent.start)
    start, end = _find_cut(text, previous_end, children[index][0], target.end)
    text = text[:start] + text[end:]
    comma = _find_comma(text, previous_end) if index else None
    return _close_if_empty(text, parent.start) if comma is None else text[:comma] + text[comma + 1 :]


def find_node(text: str, path: JsonPath) -> JsoncNode | None:
    """
    Return the value at *path*, or None if nothing is there.

    Raises:
        InvalidJsonc: The text is not JSON with comments.
        UneditableJson: A value on the way is no object or no array, or a name on the way stands twice.
    """
    node = parse_jsonc(text)
    for depth, step in enumerate(path):
        if node is None:
            return None
        node = _get_item(node, path[:depth], step) if isinstance(step, int) else _get_member(node, path[:depth], step)
    return node


def _get_member(node: JsoncNode, path: JsonPath, name: str) -> JsoncNode | None:
    if node.kind != "object":
        raise UneditableJson(f"{_format_path(path)} is not an object")
    if sum(member.name == name for member in node.members) > 1:
        raise UneditableJson(f"{_format_path((*path, name))} stands twice")
    return node.get(name)


def _get_item(node: JsoncNode, path: JsonPath, index: int) -> JsoncNode:
    if node.kind != "array" or index >= len(node.items):
        raise UneditableJson(f"{_format_path((*path, index))} does not exist")
    return node.items[index]


def _get_children(node: JsoncNode) -> list[tuple[int, JsoncNode]]:
    """Return the values of an object or array, each with the offset where its member or item begins."""
    if node.kind == "object":
        return [(member.start, member.value) for member in node.members]
    return [(item.start, item) for item in node.items]


def _format_path(path: JsonPath) -> str:
    names = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return f'"{names.removeprefix(".")}"' if names else "the file"


def _wrap(path: JsonPath, value: object) -> object:
    for step in reversed(path):
        value = {str(step): value}
    return value


def _merge(text: str, path: JsonPath, node: JsoncNode, value: object, style: _Style) -> str:
    if node.to_value() == value and type(node.to_value()) is type(value):
        return text
    if node.kind != "object" or not isinstance(value, dict):
        return _replace(text, node, value, style)
    for name, part in cast("dict[str, object]", value).items():
        text = set_value(text, (*path, name), part)
    return text


def _replace(text: str, node: JsoncNode, value: object, style: _Style) -> str:
    prefix = _get_line_indent(text, node.start)
    return text[: node.start] + _render(value, style, prefix) + text[node.end :]


def _insert(text: str, node: JsoncNode, style: _Style, name: str | None, value: object) -> str:
    """Insert a member, or an item without a name, at the end of *node*."""
    label = "" if name is None else f"{json.dumps(name, ensure_ascii=False)}: "
    children = _get_children(node)
    close = node.end - 1
    if children and "\n" not in text[node.start : children[0][0]]:  # everything on one line
        last_end = children[-1][1].end
        new = label + json.dumps(value, ensure_ascii=False)
        if node.comma is None:
            return f"{text[:last_end]}, {new}{text[last_end:]}"
        return f"{text[: node.comma]}, {new}{text[node.comma :]}"
    outer = _get_line_indent(text, node.start)
    inner = _get_line_indent(text, children[0][0]) if children else outer + style.indent
    new = style.newline + inner + label + _render(value, style, inner)
    end = _skip_blank_back(text, close)
    tail = text[end:close] if children else style.newline + outer
    if not children:
        return text[:end] + new + tail + text[close:]
    if node.comma is not None:
        return text[:end] + new + "," + tail + text[close:]
    last_end = children[-1][1].end
    return text[:last_end] + "," + text[last_end:end] + new + tail + text[close:]


def _append_document(text: str, value: object, style: _Style) -> str:
    """Return *text*, which has at most comments, followed by *value*."""
    comments = text if text.strip() else ""
    separator = style.newline if comments and not comments.endswith("\n") else ""
    return comments + separator + _render(value, style, "") + style.newline


def _render(value: object, style: _Style, prefix: str) -> str:
    lines = json.dumps(value, indent=style.indent, ensure_ascii=False).split("\n")
    return (style.newline + prefix).join(lines)


def _get_line_indent(text: str, offset: int) -> str:
    """Return the whitespace at the start of the line of *offset*."""
    line = text[text.rfind("\n", 0, offset) + 1 : offset]
    return line[: len(line) - len(line.lstrip(" \t"))]


def _skip_blank_back(text: str, offset: int) -> int:
    while offset > 0 and text[offset - 1] in " \t\r\n":
        offset -= 1
    return offset


def _find_comma(text: str, offset: int) -> int | None:
    """Return the offset of the comma after a value that ends at *offset*, or None."""
    comma = offset
    while (token := _BETWEEN_VALUES.match(text, comma)) is not None and not token[0].startswith(","):
        comma = token.end()
    return None if token is None else comma


def _find_cut(text: str, previous_end: int, start: int, end: int) -> tuple[int, int]:
    """
    Return the offsets between which a member or item and the blanks before it are cut.

    Args:
        previous_end: The offset after the previous value, or after the opening bracket.
        start: The offset where the member or item begins.
        end: The offset after it, and after its comma.
    """
    last_token, offset = "", previous_end
    while offset < start and (token := _BETWEEN_VALUES.match(text, offset, start)) is not None:
        last_token, offset = (last_token if token[0].isspace() else token[0]), token.end()
    blank_start = _skip_blank_back(text, start)
    if last_token.startswith("//"):  # its line end belongs to the comment
        line_end = _LINE_END.match(text, end)
        return text.index("\n", blank_start) + 1, end if line_end is None else line_end.end()
    if blank_start == start:  # the first of a line: the next one takes its place
        blank = _BLANK.match(text, end)
        return start, end if blank is None else blank.end()
    return blank_start, end


def _close_if_empty(text: str, start: int) -> str:
    """Return *text* with `{}` or `[]` instead of an object or array at *start* that has only whitespace."""
    match = re.compile(r"([{\[])[ \t\r\n]*([}\]])").match(text, start)
    return text if match is None else text[:start] + match[1] + match[2] + text[match.end() :]
