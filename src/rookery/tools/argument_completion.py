"""
Completion of arguments that do not match their schema by the letter, but are complete in the sense of its author. No I/O.

Clients send null for arguments that were not set, and some schemas require arguments that have a default. Models send the text of a value.

Models and clients send texts in place of a list, an object, a number or a boolean. Only a text with one meaning is read. `pier, crane` is a
list of two words; in `Build it, and test it` the comma may belong to a sentence.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TypeAlias, cast

import jsonschema_rs
import orjson

from rookery.kernel.schema_cost import resolve_reference

UNREADABLE = object()
"""The text has no certain meaning for the expected types."""

UNSET_TEXTS = frozenset({"null", "none", "undefined"})
"""Texts that stand for an argument that is not set, where its type is not a text. They are no words of a list."""

_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")
_NUMBER = re.compile(r"[+-]?[0-9]{1,18}(?:\.[0-9]{1,18})?(?:[eE][+-]?[0-9]{1,2})?")
_BOOLEANS: Mapping[str, bool] = {"true": True, "false": False}
_JSON_STARTS = ("[", "{", '"')

MAX_ERRORS = 50
_MAX_ROUNDS = 4
"""A default may require another argument, and so on."""
_MAX_CHANGES = 1_000
"""Maximum changes of a call. Arguments with more nulls that are not accepted are refused, because each error takes about 30 µs."""
_MAX_REFERENCES = 8
_MISSING = object()


def read_text(text: str, types: Collection[str], *, takes_words: bool) -> object:
    """
    Return the value that *text* stands for, or `UNREADABLE`.

    Args:
        text: The text as it was sent.
        types: The types of JSON Schema that are accepted.
        takes_words: The items of a list are texts, and *text* may be words, with commas between them, instead of JSON.
    """
    text = text.strip()
    if "boolean" in types and text.lower() in _BOOLEANS:
        return _BOOLEANS[text.lower()]
    if "integer" in types and _INTEGER.fullmatch(text):
        return int(text)
    if "number" in types and _NUMBER.fullmatch(text):
        return int(text) if _INTEGER.fullmatch(text) else float(text)
    if "object" in types and isinstance(value := _parse_json(text), dict):
        return cast("dict[str, object]", value)
    return _read_list(text, takes_words=takes_words) if "array" in types else UNREADABLE


def _read_list(text: str, *, takes_words: bool) -> object:
    value = _parse_json(text)
    if isinstance(value, list):
        return cast("list[object]", value)
    if not takes_words or not text or "\n" in text or text.lower() in UNSET_TEXTS:
        return UNREADABLE
    if text.startswith(_JSON_STARTS):
        return [value] if isinstance(value, str) else UNREADABLE
    parts = [part.strip() for part in text.split(",")]
    return parts if len(parts) == 1 or all(part and len(part.split()) == 1 for part in parts) else UNREADABLE


def _parse_json(text: str) -> object:
    if not text.startswith(_JSON_STARTS):
        return UNREADABLE
    try:
        return cast("object", orjson.loads(text))
    except orjson.JSONDecodeError:
        return UNREADABLE


_Path: TypeAlias = tuple[str | int, ...]
_Changes: TypeAlias = dict[_Path, object]
"""New values by their place in the arguments; `_MISSING` removes one."""


@dataclass(frozen=True, slots=True, eq=False)
class ArgumentCompleter:
    """
    Completes invalid arguments, guided by the errors of their validation.

    A null that is not accepted is removed, as if the argument was not set. If the argument is required, it is refused all the same. A
    missing argument that is required gets the default of its schema, unless the schema does not accept it.

    Attributes:
        schema: The schema of *validator*.
        is_builtin: Remove nulls at any depth, and read texts. Otherwise only arguments themselves are removed.
        is_destructive: Required lists must be lists or their JSON: they name what the tool destroys. No empty text is removed.
    """

    validator: jsonschema_rs.Validator
    schema: Mapping[str, object]
    _: KW_ONLY
    is_builtin: bool
    is_destructive: bool = False

    def complete(self, arguments: Mapping[str, object]) -> tuple[Mapping[str, object], Sequence[jsonschema_rs.ValidationError]]:
        """Return the completed arguments, and the errors that remain, at most 50. *arguments* is not changed."""
        causes: dict[_Path, jsonschema_rs.ValidationError] = {}
        filled: set[_Path] = set()
        for _ in range(_MAX_ROUNDS):
            changes, errors = self._read_errors(arguments, causes, filled)
            if not changes or len(errors) == MAX_ERRORS:
                return arguments, errors
            if len(changes) >= _MAX_CHANGES:
                return arguments, list(causes.values())[:MAX_ERRORS]
            arguments = _apply(arguments, changes)
            filled |= {path for path, value in changes.items() if value is not _MISSING}
            if self.validator.is_valid(arguments):
                return arguments, []
        return arguments, self._read_errors(arguments, causes, filled, is_last=True)[1]

    def _read_errors(
        self,
        arguments: Mapping[str, object],
        causes: dict[_Path, jsonschema_rs.ValidationError],
        filled: set[_Path],
        *,
        is_last: bool = False,
    ) -> tuple[_Changes, list[jsonschema_rs.ValidationError]]:
        """
        Return the changes that errors ask for, and the other errors.

        Args:
            causes: The errors of earlier changes, and of the new ones afterwards. They replace errors that are due to a change.
        """
        changes: _Changes = {}
        remaining: dict[int, jsonschema_rs.ValidationError] = {}
        for error in self.validator.iter_errors(arguments):
            error_changes = None if is_last else self._find_changes(error, arguments, filled)
            if error_changes is None:
                cause = _find_cause(error, causes)
                remaining[id(cause)] = cause
            else:
                changes |= error_changes
                for path, value in error_changes.items():
                    if not isinstance(error.instance, str) or value is _MISSING:  # errors of a text that was read name its value
                        causes.setdefault(path, error)
            if len(remaining) == MAX_ERRORS or len(changes) >= _MAX_CHANGES:
                break
        return changes, list(remaining.values())

    def _find_changes(
        self, error: jsonschema_rs.ValidationError, arguments: Mapping[str, object], filled: set[_Path], *, is_branch: bool = False
    ) -> _Changes | None:
        """
        Return the changes that remove *error*; None if no change does.

        Args:
            is_branch: The error is one of a branch of a union, which is not chosen for the sake of a default.
        """
        kind, path = error.kind, tuple(error.instance_path)
        if isinstance(kind, jsonschema_rs.ValidationErrorKind.Required):
            if is_branch:
                return None
            default = _MISSING if path or (kind.property,) in filled else self._find_default(error.schema_path, kind.property)
            return None if default is _MISSING else {(kind.property,): default}
        is_other_type = isinstance(kind, jsonschema_rs.ValidationErrorKind.Type)
        if path and self._is_removable(path, arguments, filled, unset_texts=UNSET_TEXTS if is_other_type else frozenset()):
            return {path: _MISSING}
        if self.is_builtin and isinstance(kind, jsonschema_rs.ValidationErrorKind.Type) and isinstance(error.instance, str):
            value = read_text(error.instance, kind.types, takes_words=self._takes_words(error, path))
            return None if value is UNREADABLE else {path: value}
        if not path and (names := self._list_unexpected(error, arguments)):
            is_unset = all(arguments.get(name, _MISSING) is None for name in names)
            return {(name,): _MISSING for name in names} if is_unset else None
        if isinstance(kind, jsonschema_rs.ValidationErrorKind.AnyOf | jsonschema_rs.ValidationErrorKind.OneOfNotValid):
            branches = (self._find_branch_changes(branch, arguments, filled) for branch in kind.context)
            return next((changes for changes in branches if changes), None)
        return None

    def _find_branch_changes(
        self, errors: Iterable[jsonschema_rs.ValidationError], arguments: Mapping[str, object], filled: set[_Path]
    ) -> _Changes | None:
        """Return the changes that make a branch of a union valid; None if no changes do."""
        branch_changes: _Changes = {}
        for error in errors:
            changes = self._find_changes(error, arguments, filled, is_branch=True)
            if changes is None:
                return None
            branch_changes |= changes
        return branch_changes

    def _takes_words(self, error: jsonschema_rs.ValidationError, path: _Path) -> bool:
        """Return whether words may stand for the list that *error* misses."""
        if self.is_destructive and path[-1:] == path and path[0] in cast("Sequence[str]", self.schema.get("required", ())):
            return False
        items = cast("Mapping[str, object]", self._find_rules(error.schema_path[:-1]).get("items", {}))
        options = cast("Sequence[Mapping[str, object]]", items.get("anyOf", ()))
        if options and str(error.instance).strip().isdecimal():
            return False  # the union may have numbers too
        return any(option.get("type") == "string" for option in (items, *options))

    def _is_removable(self, path: _Path, arguments: Mapping[str, object], filled: set[_Path], *, unset_texts: Collection[str]) -> bool:
        """Return whether the value at *path* is a null of an object, an empty text, or one of *unset_texts*, and may be removed."""
        if path in filled or (len(path) > 1 and not self.is_builtin):
            return False
        parent, value = cast("object", None), cast("object", arguments)
        for part in path:
            parent, value = value, cast("Mapping[object, object]", value)[part]
        is_text = self.is_builtin and not self.is_destructive and isinstance(value, str)
        is_empty = is_text and (not str(value).strip() or str(value).strip().lower() in unset_texts)
        return (value is None or is_empty) and isinstance(parent, Mapping)

    def _list_unexpected(self, error: jsonschema_rs.ValidationError, arguments: Mapping[str, object]) -> list[str]:
        """Return the arguments that the schema does not allow at all."""
        kind = error.kind
        if isinstance(
            kind, jsonschema_rs.ValidationErrorKind.AdditionalProperties | jsonschema_rs.ValidationErrorKind.UnevaluatedProperties
        ):
            return kind.unexpected
        # The library reports `additionalProperties: false` without `properties` in this way, for the first argument.
        return [name for name, value in arguments.items() if value is None] if error.schema_path == ["additionalProperties"] else []

    def _find_default(self, schema_path: Sequence[str | int], name: str) -> object:
        """Return the default of the argument *name*, which the keyword at *schema_path* requires."""
        for holder in (self._find_rules(schema_path[:-1]), self.schema):
            properties = holder.get("properties")
            if (
                isinstance(properties, Mapping)
                and (default := self._read_default(cast("Mapping[str, object]", properties).get(name))) is not _MISSING
            ):
                return default
        return _MISSING

    def _find_rules(self, schema_path: Sequence[str | int]) -> Mapping[str, object]:
        """Return the part of the schema at *schema_path*; an empty one if it is not there, as behind a reference."""
        rules: object = self.schema
        for part in schema_path:
            is_list = isinstance(rules, list) and isinstance(part, int) and part < len(cast("list[object]", rules))
            if not is_list and not (isinstance(rules, Mapping) and part in rules):
                return {}
            rules = cast("Mapping[object, object]", rules)[part]
        return cast("Mapping[str, object]", rules) if isinstance(rules, Mapping) else {}

    def _read_default(self, rules: object) -> object:
        for _ in range(_MAX_REFERENCES):
            if not isinstance(rules, Mapping):
                break
            fields = cast("Mapping[str, object]", rules)
            if "default" in fields:
                return fields["default"]
            if not isinstance(fields.get("$ref"), str):
                break
            rules = resolve_reference(self.schema, cast("str", fields["$ref"]))
        return _MISSING


def _find_cause(
    error: jsonschema_rs.ValidationError, causes: Mapping[_Path, jsonschema_rs.ValidationError]
) -> jsonschema_rs.ValidationError:
    """Return the error of the arguments as they were sent that led to *error*: of a removed null, or of a missing argument."""
    path = tuple(error.instance_path)
    if isinstance(error.kind, jsonschema_rs.ValidationErrorKind.Required):
        return causes.get((*path, error.kind.property), error)
    return causes.get(path[:1], error) if path else error


def _apply(arguments: Mapping[str, object], changes: _Changes) -> dict[str, object]:
    """Return a copy of *arguments* with the changes. What does not change is shared."""
    copies: dict[_Path, object] = {(): dict(arguments)}
    for path, value in changes.items():
        for length in range(1, len(path)):
            if path[:length] not in copies:
                holder = cast("dict[str | int, object]", copies[path[: length - 1]])
                holder[path[length - 1]] = copies[path[:length]] = copy.copy(holder[path[length - 1]])
        parent = cast("dict[str | int, object]", copies[path[:-1]])
        if value is _MISSING:
            parent.pop(path[-1], None)
        else:
            parent[path[-1]] = value
    return cast("dict[str, object]", copies[()])
