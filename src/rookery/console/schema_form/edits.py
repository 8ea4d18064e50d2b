"""Applies a submitted form to the value that it shows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from rookery.console.schema_form.nodes import FormNode, build_form
from rookery.console.schema_form.schemas import MISSING, JsonObject, Missing, SchemaReader, has_type, is_array, is_object

FIELD, NULL, SHOWN_NULL, BRANCH, SHOWN_BRANCH = "f", "n", "s", "u", "o"
"""Prefixes of the names of controls; the JSON pointer follows. The shown ones say what the form showed before it was changed."""

Fields = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class AppliedForm:
    """
    The value after a form was applied.

    Attributes:
        texts: The texts of fields of JSON that could not be read, by pointer. Their values are unchanged.
        errors: What is wrong with these texts.
    """

    value: object
    texts: dict[str, str] = field(default_factory=dict[str, str])
    errors: dict[str, list[str]] = field(default_factory=dict[str, list[str]])


class InvalidJsonText(ValueError):
    """A text that is not JSON. The message names the line and column."""


def parse_json(text: str) -> object:
    """
    Return the value of a JSON text.

    Raises:
        InvalidJsonText: The text is not JSON, has a number beyond the range of a double, or is nested too deeply.
    """
    try:
        return json.loads(text, parse_constant=_refuse_constant, parse_float=_parse_float)
    except json.JSONDecodeError as error:
        raise InvalidJsonText(f"{error.msg} at line {error.lineno}, column {error.colno}") from None
    except RecursionError:
        raise InvalidJsonText("is nested too deeply") from None


def read_choices(fields: Fields) -> dict[str, int]:
    """Return the branches that are chosen in a form, by pointer."""
    return _read_numbers(fields, BRANCH)


def apply_form(schema: object, value: object, fields: Fields, edit: str = "") -> AppliedForm:
    """
    Return *value* with the changes of a submitted form. Controls that show what they showed before change nothing.

    Args:
        value: The value that the form showed.
        edit: `add:POINTER` adds a row to a list, `remove:POINTER` removes a row. Others are ignored.
    """
    reader = SchemaReader(schema if is_object(schema) else {})
    form_reader = _FormReader(reader, fields)
    changed = form_reader.read(build_form(schema, value, _read_numbers(fields, SHOWN_BRANCH)))
    action, _, pointer = edit.partition(":")
    form = build_form(schema, changed, read_choices(fields))
    if action == "add":
        changed = _add_row(reader, form, changed, pointer)
    elif action == "remove":
        changed = _remove_row(form, changed, pointer)
    return AppliedForm(changed, form_reader.texts, form_reader.errors)


class _FormReader:
    def __init__(self, reader: SchemaReader, fields: Fields) -> None:
        self._reader = reader
        self._fields = fields
        self.texts: dict[str, str] = {}
        self.errors: dict[str, list[str]] = {}

    def read(self, node: FormNode) -> object:
        """Return the value of *node* and of all below it."""
        value = node.value
        if node.is_nullable:
            if NULL + node.pointer in self._fields:
                return None
            if value is None and SHOWN_NULL + node.pointer in self._fields:
                return self._reader.make_value(node.branches[node.branch] if node.branches else True) if node.is_row else MISSING
        choice = _read_numbers(self._fields, BRANCH).get(node.pointer, node.branch) if len(node.branches) > 1 else node.branch
        if choice != node.branch and choice < len(node.branches):
            return self._reader.change_branch(node.branches[node.branch], node.branches[choice], value)
        if node.kind == "object":
            return self._read_object(node, value)
        if node.kind == "list" and is_array(value):
            return [self._read_row(row) for row in node.children]
        return value if node.kind in {"constant", "hidden", "list"} else self._read_control(node, value)

    def _read_object(self, node: FormNode, value: object) -> object:
        before: JsonObject = dict(value) if is_object(value) else {}
        fields = dict(before)
        for child in node.children:
            item = self.read(child)
            if isinstance(item, Missing):
                fields.pop(child.name, None)
            else:
                fields[child.name] = item
        if is_object(value) and fields == before:
            return fields
        constants: JsonObject = {child.name: child.values[0] for child in node.children if child.kind == "constant"}
        if fields.keys() - constants.keys():
            return {name: item for name, item in constants.items() if name not in fields} | fields
        # An optional object whose last field was emptied disappears.
        return fields if is_object(value) and node.is_required else MISSING

    def _read_row(self, row: FormNode) -> object:
        value = self.read(row)
        return "" if isinstance(value, Missing) else value

    def _read_control(self, node: FormNode, value: object) -> object:
        text = self._fields.get(FIELD + node.pointer)
        if text is None or _normalize(text) == _normalize(node.text):
            return value
        if node.kind == "choice":
            return _choose(node, text, value)
        if node.kind == "text":
            return _normalize(text) if text or (node.is_required and not node.is_nullable) else MISSING
        if not text.strip():
            return MISSING
        if node.kind == "number":
            return _parse_number(text)
        try:
            return parse_json(text)
        except InvalidJsonText as error:
            self.texts[node.pointer] = text
            self.errors[node.pointer] = [f"This is not JSON: {error}."]
            return value


def _choose(node: FormNode, text: str, value: object) -> object:
    if not text:
        return MISSING
    return node.values[int(text)] if text.isdecimal() and len(text) < 6 and int(text) < len(node.values) else value


def _parse_number(text: str) -> object:
    """Return the number of a text. Another text stays one, so that the server says what is wrong with it."""
    try:
        number = parse_json(text)
    except InvalidJsonText:
        return text
    return number if has_type(number, "number") else text


def _add_row(reader: SchemaReader, form: FormNode, value: object, pointer: str) -> object:
    """Return *value* with one more row in the list at *pointer*. Without such a list, it is unchanged."""
    node = form.find(pointer)
    if node is None or node.kind != "list":
        return value
    rows = node.value if is_array(node.value) else []
    return _replace(value, pointer, [*rows, reader.make_value(node.item)])


def _remove_row(form: FormNode, value: object, pointer: str) -> object:
    """Return *value* without the row at *pointer*. An optional list disappears with its last row."""
    parent = form.find(pointer.rpartition("/")[0])
    if parent is None or parent.kind != "list" or all(row.pointer != pointer for row in parent.children):
        return value
    rows = [row.value for row in parent.children if row.pointer != pointer]
    return _replace(value, parent.pointer, rows if rows or parent.is_required else MISSING)


def _replace(value: object, pointer: str, new: object) -> object:
    """Return *value* with another value at a pointer. Missing objects on the way are created."""
    if not pointer:
        return new
    first, _, rest = pointer[1:].partition("/")
    rest = f"/{rest}" if rest else ""
    if is_array(value):
        rows = list(value)
        rows[int(first)] = _replace(rows[int(first)], rest, new)
        return rows
    fields: JsonObject = dict(value) if is_object(value) else {}
    name = first.replace("~1", "/").replace("~0", "~")
    item = _replace(fields.get(name, MISSING), rest, new)
    if isinstance(item, Missing):
        fields.pop(name, None)
    else:
        fields[name] = item
    return fields


def _read_numbers(fields: Fields, prefix: str) -> dict[str, int]:
    texts = {name[len(prefix) :]: text for name, text in fields.items() if name == prefix or name.startswith(f"{prefix}/")}
    return {pointer: int(text) for pointer, text in texts.items() if text.isdecimal() and len(text) < 4}


def _normalize(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _refuse_constant(name: str) -> object:
    raise InvalidJsonText(f"{name} is not a number of JSON")


def _parse_float(text: str) -> float:
    number = float(text)
    if number in {float("inf"), float("-inf")}:
        raise InvalidJsonText(f"{text[:40]} is too large for a number")
    return number
