"""
The work of validating a value against a JSON schema, counted before it is done. No I/O.

A validator evaluates each reference again in each branch. So a small schema whose definitions refer to each other twice takes hours, and
would block the event loop. References that cannot be followed here are not allowed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import cast
from urllib.parse import unquote

MAX_STEPS = 50_000
"""Maximum evaluations of subschemas for one value; at most about 0.1 s."""

_SAME_VALUE_LISTS = ("allOf", "anyOf", "oneOf")
_SAME_VALUE = ("not", "if", "then", "else")
_SAME_VALUE_MAPS = ("dependentSchemas", "dependencies")
_EACH_PROPERTY = ("additionalProperties", "unevaluatedProperties", "propertyNames")
_EACH_ITEM = ("items", "additionalItems", "unevaluatedItems", "contains")
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_FORBIDDEN = ("$dynamicRef", "$recursiveRef", "$id")


def has_references(schema: object) -> bool:
    """Return whether a schema refers to parts of itself. Without references, the work of a validation grows with schema and value alone."""
    pending = [schema]
    while pending:
        part = pending.pop()
        if isinstance(part, dict):
            rules = cast("dict[str, object]", part)
            if not rules.keys().isdisjoint(_REFERENCES):
                return True
            pending += rules.values()
        elif isinstance(part, list):
            pending += cast("list[object]", part)
    return False


def find_unsupported_reference(root: Mapping[str, object]) -> str | None:
    """Return the first reference or base URI that prevents the count; None if all of them can be followed."""
    pending: list[object] = [root]
    while pending:
        part = pending.pop()
        if isinstance(part, list):
            pending += cast("list[object]", part)
        if not isinstance(part, dict):
            continue
        rules = cast("dict[str, object]", part)
        # In `properties` these names have schemas as values, which are no texts.
        for name in _FORBIDDEN:
            if isinstance(rules.get(name), str) and not (name == "$id" and part is root):
                return name
        reference = rules.get("$ref")
        is_local = isinstance(reference, str) and reference.startswith("#/") and _is_schema(resolve_reference(root, reference))
        if isinstance(reference, str) and reference != "#" and not is_local:
            return reference
        pending += rules.values()
    return None


def is_too_complex(root: Mapping[str, object], value: object, *, max_steps: int = MAX_STEPS) -> bool:
    """Return whether validating *value* may take more than *max_steps* evaluations. The count stops there."""
    pending: list[tuple[object, object]] = [(root, value)]
    steps = 0
    while pending:
        schema, instance = pending.pop()
        steps += 1
        if steps > max_steps:
            return True
        if isinstance(schema, dict):
            pending += _list_evaluations(root, cast("dict[str, object]", schema), instance)
    return False


def _list_evaluations(root: Mapping[str, object], rules: Mapping[str, object], instance: object) -> Iterator[tuple[object, object]]:
    """Yield the subschemas that are evaluated, each with its part of the instance."""
    reference = rules.get("$ref")
    if isinstance(reference, str):
        yield resolve_reference(root, reference), instance
    for name in _SAME_VALUE_LISTS:
        yield from ((part, instance) for part in _list_parts(rules.get(name)))
    yield from ((rules[name], instance) for name in _SAME_VALUE if name in rules)
    for name in _SAME_VALUE_MAPS:
        yield from ((part, instance) for part in _list_parts(rules.get(name)))
    if isinstance(instance, dict):
        fields = cast("dict[str, object]", instance)
        properties = rules.get("properties")
        if isinstance(properties, dict):
            yield from ((part, fields[name]) for name, part in cast("dict[str, object]", properties).items() if name in fields)
        general = [rules[name] for name in _EACH_PROPERTY if name in rules] + _list_parts(rules.get("patternProperties"))
        yield from ((part, field) for part in general for field in fields.values())
    elif isinstance(instance, list):
        items = cast("list[object]", instance)
        for name in ("prefixItems", "items"):
            parts = rules.get(name)
            if isinstance(parts, list):
                yield from ((part, item) for part, item in zip(cast("list[object]", parts), items, strict=False))
        yield from ((rules[name], item) for name in _EACH_ITEM if isinstance(rules.get(name), dict) for item in items)


def _is_schema(value: object) -> bool:
    return isinstance(value, dict | bool)


def _list_parts(value: object) -> list[object]:
    if isinstance(value, dict):
        return list(cast("dict[str, object]", value).values())
    return cast("list[object]", value) if isinstance(value, list) else []


def resolve_reference(root: Mapping[str, object], reference: str) -> object:
    """Return the part of *root* at a local JSON pointer; None if it does not exist."""
    target: object = root
    for part in reference.removeprefix("#").split("/")[1:]:
        name = unquote(part).replace("~1", "/").replace("~0", "~")
        if isinstance(target, dict):
            target = cast("Mapping[str, object]", target).get(name)
        elif isinstance(target, list) and name.isdecimal() and int(name[:9]) < len(cast("list[object]", target)):
            target = cast("list[object]", target)[int(name[:9])]
        else:
            return None
    return target
