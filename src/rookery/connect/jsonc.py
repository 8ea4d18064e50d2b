"""
A parser of JSON with comments and trailing commas that keeps the place of every value (the JSONC of VS Code and Zed).

It is strict otherwise: RFC 8259, one value per file. It does no I/O.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NoReturn, TypeAlias

from rookery.connect.errors import UneditableText

MAX_DEPTH = 200
"""Maximum nesting of objects and arrays. No client's file comes near it; deeper ones would exhaust the stack."""

JsoncKind: TypeAlias = Literal["object", "array", "scalar"]

_WHITESPACE = " \t\r\n"
_TRIVIA = re.compile(r"(?:[ \t\r\n]+|//[^\r\n]*|/\*.*?\*/)+", re.DOTALL)
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"')
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?(?![0-9A-Za-z_.+-])")
_LITERAL = re.compile(r"(?:true|false|null)(?![0-9A-Za-z_])")
_LITERALS = {"true": True, "false": False, "null": None}


class InvalidJsonc(UneditableText):
    """A text is not JSON with comments. The message has the line and the column, counted from 1."""

    def __init__(self, reason: str, text: str, offset: int) -> None:
        before = text[:offset]
        self.line = before.count("\n") + 1
        self.column = offset - (before.rfind("\n") + 1) + 1
        super().__init__(f"line {self.line}, column {self.column}: {reason}")


@dataclass(frozen=True, slots=True)
class JsoncNode:
    """
    A value and its place.

    Attributes:
        start: The offset of its first character.
        end: The offset after its last character.
        scalar: The value of a string, a number, a boolean or null.
        members: The members of an object, in the order of the file. A name may stand twice.
        items: The items of an array.
        comma: The offset of the comma after the last member or item. None: there is no trailing comma.
    """

    kind: JsoncKind
    start: int
    end: int
    scalar: object = None
    members: tuple[JsoncMember, ...] = ()
    items: tuple[JsoncNode, ...] = ()
    comma: int | None = None

    def get(self, name: str) -> JsoncNode | None:
        """Return the member *name* of an object; the last one counts, as for `JSON.parse`. None if it is missing."""
        return next((member.value for member in reversed(self.members) if member.name == name), None)

    def to_value(self) -> object:
        """Return the value as Python's `json` would."""
        if self.kind == "object":
            return {member.name: member.value.to_value() for member in self.members}
        if self.kind == "array":
            return [item.to_value() for item in self.items]
        return self.scalar


@dataclass(frozen=True, slots=True)
class JsoncMember:
    """A member of an object; *start* is the offset of its name."""

    name: str
    start: int
    value: JsoncNode


@lru_cache(maxsize=4)
def parse_jsonc(text: str) -> JsoncNode | None:
    """
    Return the value of *text*, or None if it has only whitespace and comments.

    An edit reads the same text several times, and Claude Code's own file has megabytes, so the last results are kept.

    Raises:
        InvalidJsonc: The text has a syntax error, or a nesting deeper than `MAX_DEPTH`.
    """
    parser = _Parser(text)
    start = parser.skip_trivia(0)
    if start == len(text):
        return None
    root = parser.parse_value(start, depth=1)
    end = parser.skip_trivia(root.end)
    if end != len(text):
        parser.fail("there is more after the end of the value", end)
    return root


class _Parser:
    """A recursive-descent parser of one text. Its methods take and return offsets."""

    def __init__(self, text: str) -> None:
        self._text = text

    def fail(self, reason: str, offset: int) -> NoReturn:
        raise InvalidJsonc(reason, self._text, offset)

    def skip_trivia(self, offset: int) -> int:
        """Return the offset after whitespace and comments."""
        match = _TRIVIA.match(self._text, offset)
        end = offset if match is None else match.end()
        if self._text.startswith("/*", end):
            self.fail("the comment has no end", end)
        return end

    def parse_value(self, start: int, *, depth: int) -> JsoncNode:
        character = self._text[start : start + 1]
        if depth > MAX_DEPTH:
            self.fail(f"it is nested deeper than {MAX_DEPTH}", start)
        if character == "{":
            return self._parse_object(start, depth)
        if character == "[":
            return self._parse_array(start, depth)
        if character == '"':
            value, end = self._parse_string(start)
            return JsoncNode("scalar", start, end, value)
        match = _NUMBER.match(self._text, start)
        if match is not None:
            try:
                return JsoncNode("scalar", start, match.end(), json.loads(match[0]))
            except ValueError:  # more digits than `sys.get_int_max_str_digits`
                self.fail("the number is too long", start)
        match = _LITERAL.match(self._text, start)
        if match is not None:
            return JsoncNode("scalar", start, match.end(), _LITERALS[match[0]])
        return self.fail("a value is expected" if character else "the file ends before a value", start)

    def _parse_string(self, start: int) -> tuple[str, int]:
        match = _STRING.match(self._text, start)
        if match is None:
            self.fail("the string has no end, or an invalid escape or control character", start)
        return json.loads(match[0]), match.end()

    def _parse_object(self, start: int, depth: int) -> JsoncNode:
        members, comma = list[JsoncMember](), None
        offset = self.skip_trivia(start + 1)
        while self._text[offset : offset + 1] != "}":
            if members and comma is None:
                self.fail('"," or "}" is expected', offset)
            if self._text[offset : offset + 1] != '"':
                self.fail("a name in double quotes is expected", offset)
            name, name_end = self._parse_string(offset)
            colon = self.skip_trivia(name_end)
            if self._text[colon : colon + 1] != ":":
                self.fail('":" is expected', colon)
            value = self.parse_value(self.skip_trivia(colon + 1), depth=depth + 1)
            members.append(JsoncMember(name, offset, value))
            comma, offset = self._parse_comma(value.end)
        return JsoncNode("object", start, offset + 1, members=tuple(members), comma=comma)

    def _parse_array(self, start: int, depth: int) -> JsoncNode:
        items, comma = list[JsoncNode](), None
        offset = self.skip_trivia(start + 1)
        while self._text[offset : offset + 1] != "]":
            if items and comma is None:
                self.fail('"," or "]" is expected', offset)
            item = self.parse_value(offset, depth=depth + 1)
            items.append(item)
            comma, offset = self._parse_comma(item.end)
        return JsoncNode("array", start, offset + 1, items=tuple(items), comma=comma)

    def _parse_comma(self, offset: int) -> tuple[int | None, int]:
        """Return the offset of a comma, or None, and the offset of what follows it."""
        offset = self.skip_trivia(offset)
        if self._text[offset : offset + 1] == ",":
            return offset, self.skip_trivia(offset + 1)
        return None, offset
