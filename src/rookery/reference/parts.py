"""A part of the OpenAPI document: the operations of some tags, with what they refer to. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import cast

from rookery.kernel.errors import ValidationFailed
from rookery.kernel.sentences import suggest
from rookery.reference.downgrade import Schema

_WEBHOOKS_TAG = "Webhooks"
"""The tag to which `x-webhooks` belongs."""

_EXAMPLE_KEYWORDS = frozenset({"example", "examples"})
"""Keywords whose values are data, in which a `$ref` is not a reference."""


def select_tags(document: Schema, names: Sequence[str]) -> Schema:
    """
    Return the part of *document* with the operations of these tags, in the order of the document. Case is ignored.

    Raises:
        ValidationFailed: A tag does not exist.
    """
    tags = _resolve_tags([str(tag["name"]) for tag in cast("list[Schema]", document["tags"])], names)
    paths: Schema = {}
    for path, item in cast("dict[str, Schema]", document["paths"]).items():
        selected = {name: value for name, value in item.items() if not _is_operation(value) or not tags.isdisjoint(_list_tags(value))}
        if any(map(_is_operation, selected.values())):
            paths[path] = selected
    groups = [
        {**group, "tags": [name for name in cast("list[str]", group["tags"]) if name in tags]}
        for group in cast("list[Schema]", document["x-tagGroups"])
    ]
    part = {
        **document,
        "tags": [tag for tag in cast("list[Schema]", document["tags"]) if tag["name"] in tags],
        "x-tagGroups": [group for group in groups if group["tags"]],
        "paths": paths,
    }
    if _WEBHOOKS_TAG not in tags:
        part.pop("x-webhooks", None)
    return drop_unused(part)


def drop_unused(document: Schema) -> Schema:
    """Remove components without references, such as models of queries, which are documented as parameters."""
    components = cast("dict[str, dict[str, object]]", document["components"])
    schemes = {name for operation in _list_operations(document) for choice in _list_choices(operation) for name in choice}
    outside = {key: value for key, value in document.items() if key != "components"}
    reached_references, pending = set[str](), [outside]
    while pending:
        for reference in _list_references(pending.pop()):
            if reference not in reached_references:
                reached_references.add(reference)
                _, _, kind, name = reference.split("/")
                pending.append(cast("Schema", components[kind][name]))
    used_components = {
        kind: {
            name: entry
            for name, entry in entries.items()
            if (name in schemes if kind == "securitySchemes" else f"#/components/{kind}/{name}" in reached_references)
        }
        for kind, entries in components.items()
    }
    security = [choice for choice in _list_choices(document) if choice.keys() <= schemes]
    return {**document, "security": security, "components": used_components}


def _resolve_tags(existing: Sequence[str], names: Sequence[str]) -> frozenset[str]:
    by_lower_case = {name.casefold(): name for name in existing}
    for name in names:
        if name.casefold() not in by_lower_case:
            suggestion = suggest(name, existing) or "."
            raise ValidationFailed({"tags": [f"{name!r} is not a tag{suggestion} The tags are {', '.join(existing)}."]})
    return frozenset(by_lower_case[name.casefold()] for name in names)


def _is_operation(value: object) -> bool:
    """Return whether a value of a path item is an operation; `servers` is a list."""
    return isinstance(value, dict)


def _list_tags(operation: object) -> list[str]:
    return cast("list[str]", cast("Schema", operation)["tags"])


def _list_operations(document: Schema) -> Iterator[Schema]:
    for item in cast("dict[str, Schema]", document["paths"]).values():
        yield from (cast("Schema", value) for value in item.values() if _is_operation(value))


def _list_choices(holder: Schema) -> Collection[Schema]:
    return cast("list[Schema]", holder["security"])


def _list_references(value: object) -> list[str]:
    references = list[str]()
    pending = [value]
    while pending:
        node = pending.pop()
        if isinstance(node, dict):
            fields = cast("dict[str, object]", node)
            reference = fields.get("$ref")
            if isinstance(reference, str):
                references.append(reference)
            pending += (value for name, value in fields.items() if name not in _EXAMPLE_KEYWORDS)
        elif isinstance(node, list):
            pending += cast("list[object]", node)
    return references
