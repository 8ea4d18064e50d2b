"""The controls of a form: which control shows which part of a value."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from rookery.console.schema_form.schemas import (
    MISSING,
    Missing,
    Schema,
    SchemaReader,
    as_list,
    get_properties,
    get_type,
    has_type,
    is_array,
    is_object,
    is_same,
)

MAX_DEPTH = 4
"""Levels of objects and lists that become controls. What is deeper is a field of JSON."""
MAX_CONTROLS = 400
MAX_ROWS = 50
MAX_TEXT_LENGTH = 20_000
"""A longer text is left to the JSON, so that the page stays small."""

NodeKind = Literal["text", "number", "boolean", "choice", "constant", "json", "object", "list", "hidden"]
Choices = Mapping[str, int]
"""The branches that a person chose, by the JSON pointer of their union."""

_NUMBERS = frozenset({"integer", "number"})
_NOTHING: Schema = {"not": {}}
_UNSHOWABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ufffe\uffff\ud800-\udfff]")
"""Characters that a browser does not send back as they were."""


@dataclass(slots=True)
class FormNode:
    """
    One control, or a group of them.

    Attributes:
        pointer: The JSON pointer of its value (RFC 6901).
        name: The property's name, or the number of the row.
        value: Its value, or MISSING.
        text: The text that its control shows.
        options: The texts of a choice. Its control sends the number of one, or `other` for a value that is not among them.
        values: The values of a choice, in the order of *options*. A constant has one, which its object gets with its first other property.
        branches: The branches of a union, each merged with what they share; one element if it is no union.
        branch_names: The names of the branches.
        branch: The index of the branch that is shown.
        others: The keys of an object that the form does not show.
        item: The schema of the rows of a list.
        is_row: It is a row of a list, and cannot be absent.
        is_filled_in: It is an argument with a default. A call that requires it fills in the default.
    """

    pointer: str
    name: str
    kind: NodeKind = "json"
    value: object = MISSING
    text: str = ""
    description: str = ""
    note: str = ""
    is_required: bool = False
    is_nullable: bool = False
    is_row: bool = False
    is_filled_in: bool = False
    options: list[str] = field(default_factory=list[str])
    values: list[object] = field(default_factory=list[object])
    branches: list[Schema] = field(default_factory=list[Schema])
    branch_names: list[str] = field(default_factory=list[str])
    branch: int = 0
    children: list[FormNode] = field(default_factory=list["FormNode"])
    others: list[str] = field(default_factory=list[str])
    item: object = True

    @property
    def is_null(self) -> bool:
        """True if its value is null."""
        return self.value is None

    @property
    def is_present(self) -> bool:
        """True if its value is not absent."""
        return not isinstance(self.value, Missing)

    def find(self, pointer: str) -> FormNode | None:
        """Return the node at *pointer*; None if the form has none."""
        if self.pointer == pointer:
            return self
        inside = (child for child in self.children if pointer == child.pointer or pointer.startswith(f"{child.pointer}/"))
        return next((match for child in inside if (match := child.find(pointer)) is not None), None)


def build_form(schema: object, value: object, choices: Choices | None = None) -> FormNode:
    """Return the form of *value*. *choices*: the branches to show where several describe the value."""
    root = schema if is_object(schema) else {}
    return _FormBuilder(SchemaReader(root), choices or {}).build(root, value, FormNode("", "", is_required=True))


def escape_pointer(name: str) -> str:
    """Return a key as a part of a JSON pointer."""
    return name.replace("~", "~0").replace("/", "~1")


def to_json_text(value: object, indent: int | None = 2) -> str:
    """Return a value as JSON that a browser sends back unchanged."""
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    return json.dumps(value, indent=indent) if _UNSHOWABLE.search(text) else text


class _FormBuilder:
    def __init__(self, reader: SchemaReader, choices: Choices) -> None:
        self._reader = reader
        self._choices = choices
        self._count = 0

    def build(self, schema: object, value: object, node: FormNode, depth: int = 0) -> FormNode:
        """Complete *node*, which has its pointer and name, as the control of *value*."""
        self._count += 1
        rules = self._reader.flatten(schema)
        node.value, node.is_nullable = value, self._reader.is_nullable(rules)
        node.description, node.note = _get_text(rules, "description"), _describe_limits(rules)
        shown_value = MISSING if node.is_nullable and value is None else value
        branches = self._reader.list_branches(rules)
        if all("const" in branch for branch in branches):
            self._fill_choice(node, shown_value, [(_name_constant(branch), branch["const"]) for branch in branches])
            return node
        node.branches = branches
        if len(branches) > 1:
            node.branch = self._reader.find_branch(branches, shown_value, self._choices.get(node.pointer))
            node.branch_names = [self._name_branch(branch, number) for number, branch in enumerate(branches)]
        elif branches[0] is not rules:
            node.description = node.description or _get_text(branches[0], "description")
            node.note = node.note or _describe_limits(branches[0])
        self._fill(node, branches[node.branch], shown_value, depth)
        return node

    def _fill(self, node: FormNode, rules: Schema, value: object, depth: int) -> None:
        """Set the control for a flat schema. A value of another type is a field of JSON."""
        is_absent, is_deep = isinstance(value, Missing), depth >= MAX_DEPTH
        kind = get_type(rules)
        if rules == _NOTHING and is_absent:
            node.kind = "hidden"
        elif "anyOf" in rules or "oneOf" in rules or self._count > MAX_CONTROLS or rules == _NOTHING:
            self._fill_json(node, value)
        elif is_array(rules.get("enum")):
            self._fill_choice(node, value, [(_name_option(option), option) for option in as_list(rules["enum"])])
        elif (
            kind == "object"
            and (is_object(value) or isinstance(value, Missing))
            and depth < MAX_DEPTH
            and (get_properties(rules) or depth == 0)
        ):
            self._fill_object(node, rules, value, depth)
        elif kind == "array" and (is_absent or is_array(value)) and not is_deep and _has_equal_rows(rules):
            self._fill_list(node, rules, value, depth)
        elif kind == "boolean" and isinstance(value, bool | Missing):
            self._fill_choice(node, value, [("true", True), ("false", False)])
        elif kind == "string" and isinstance(value, str | Missing) and _is_showable(value):
            node.kind, node.text = "text", "" if is_absent else str(value)
        elif kind in _NUMBERS and (is_absent or has_type(value, "number")):
            node.kind, node.text = "number", "" if is_absent else json.dumps(value)
        else:
            self._fill_json(node, value)

    def _fill_json(self, node: FormNode, value: object) -> None:
        node.kind, node.text = "json", "" if isinstance(value, Missing) else to_json_text(value)
        if len(node.text) > MAX_TEXT_LENGTH:
            node.kind, node.text = "hidden", ""

    def _fill_choice(self, node: FormNode, value: object, options: list[tuple[str, object]]) -> None:
        node.kind, node.options, node.values = "choice", [text for text, _ in options], [option for _, option in options]
        index = next((number for number, option in enumerate(node.values) if is_same(option, value)), None)
        node.text = "" if isinstance(value, Missing) else "other" if index is None else str(index)
        if len(options) == 1 and node.is_required and not node.is_row and node.text != "other":
            node.kind = "constant"

    def _fill_object(self, node: FormNode, rules: Schema, value: object, depth: int) -> None:
        fields = value if is_object(value) else {}
        properties, required = get_properties(rules), as_list(rules.get("required"))
        node.kind = "object"
        for name, part in properties.items():
            child = FormNode(f"{node.pointer}/{escape_pointer(name)}", name, is_required=name in required)
            child.is_filled_in = depth == 0 and "default" in self._reader.flatten(part)
            node.children.append(self.build(part, fields.get(name, MISSING), child, depth + 1))
        node.others = [name for name in fields if name not in properties]

    def _fill_list(self, node: FormNode, rules: Schema, value: object, depth: int) -> None:
        rows = value if is_array(value) else []
        if len(rows) > MAX_ROWS:
            self._fill_json(node, value)
            return
        node.kind, node.item = "list", rules.get("items", True)
        for number, row in enumerate(rows):
            child = FormNode(f"{node.pointer}/{number}", str(number + 1), is_required=True, is_row=True)
            node.children.append(self.build(node.item, row, child, depth + 1))

    def _name_branch(self, branch: Schema, number: int) -> str:
        """Return the name of a branch: its title, the constant that distinguishes it, its type, what it requires, or its number."""
        if title := _get_text(branch, "title"):
            return title
        if constants := self._reader.get_constants(branch):
            return ", ".join(f"{name}: {_name_option(constant)}" for name, constant in constants.items())
        if "const" in branch:
            return _name_option(branch["const"])
        kind = get_type(branch)
        if kind == "object" and (required := as_list(branch.get("required"))):
            return "with " + ", ".join(str(name) for name in required)
        return kind or f"variant {number + 1}"


def _has_equal_rows(rules: Schema) -> bool:
    """Return whether one schema describes all rows of a list."""
    return "prefixItems" not in rules and not is_array(rules.get("items"))


def _is_showable(value: object) -> bool:
    return not isinstance(value, str) or (len(value) <= MAX_TEXT_LENGTH and not _UNSHOWABLE.search(value))


def _name_option(value: object) -> str:
    return value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False)


def _name_constant(branch: Schema) -> str:
    return _get_text(branch, "title") or _name_option(branch["const"])


def _get_text(rules: Schema, keyword: str) -> str:
    text = rules.get(keyword)
    return text if isinstance(text, str) else ""


def _describe_limits(rules: Schema) -> str:
    """Return the default and the limits of a value, as a person reads them."""
    names = {
        "minimum": "at least {}", "maximum": "at most {}", "exclusiveMinimum": "more than {}", "exclusiveMaximum": "less than {}",
        "multipleOf": "a multiple of {}", "minLength": "at least {} characters", "maxLength": "at most {} characters",
        "minItems": "at least {} rows", "maxItems": "at most {} rows", "pattern": "matches {}", "format": "{}",
    }  # fmt: skip
    parts = [text.format(rules[name]) for name, text in names.items() if isinstance(rules.get(name), str | int | float)]
    if "default" in rules and rules["default"] is not None:
        parts.append(f"default {json.dumps(rules['default'], ensure_ascii=False)[:80]}")
    return ", ".join(parts)
