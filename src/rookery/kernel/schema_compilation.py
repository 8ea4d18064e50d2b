"""Compilation of JSON schemas that other people write: those of tools and of answers. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import jsonschema_rs

DATA_KEYWORDS = frozenset({"const", "default", "enum", "example", "examples"})
"""Keywords whose values are data, so that "$ref" in them is not a reference."""

NAME_MAPS = frozenset({"$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties"})
"""Keywords whose value maps names to schemas: a property may be called `default` or `$ref`."""

_CONTENT_KEYWORDS = ("contentEncoding", "contentMediaType")
_MAX_NULLABLE_LEVELS = 64
"""Levels of a schema in which `nullable` is read."""


def compile_schema(schema: Mapping[str, object], *, max_regex_bytes: int | None = None) -> jsonschema_rs.Validator:
    """
    Return the validator of *schema*, in the draft that its `$schema` names. Without one, or with an unknown one, it is 2020-12.

    `format`, `contentEncoding` and `contentMediaType` only describe a value, in every draft. Authors write them for people and models: a
    "date-time" without a zone, a relative "uri" and an empty "email" are usual. `nullable: true` of OpenAPI 3.0 allows null. No reference
    to another document is fetched.

    Args:
        max_regex_bytes: Memory of a compiled `pattern`; larger ones are invalid. With it, patterns are matched in linear time.

    Raises:
        ValueError: The schema is invalid.
        TypeError: As `ValueError`.
        jsonschema_rs.ReferencingError: A reference cannot be resolved.
    """
    names = _list_names(schema)
    rules = cast("dict[str, object]", _allow_null(dict(schema))) if "nullable" in names else dict(schema)
    kind = jsonschema_rs.validator_cls_for(rules) if "$schema" in rules else jsonschema_rs.Draft202012Validator
    patterns = None if max_regex_bytes is None else jsonschema_rs.RegexOptions(size_limit=max_regex_bytes, dfa_size_limit=max_regex_bytes)
    is_asserting = kind in {jsonschema_rs.Draft6Validator, jsonschema_rs.Draft7Validator} and not names.isdisjoint(_CONTENT_KEYWORDS)
    return kind(
        rules,
        validate_formats=False,
        offline=True,
        pattern_options=patterns,
        keywords=dict.fromkeys(_CONTENT_KEYWORDS, _Annotation) if is_asserting else None,  # validation with own keywords takes longer
    )


class _Annotation:
    """A keyword that accepts every value. Drafts 6 and 7 let validators decode contents; later drafts forbid it."""

    def __init__(self, parent_schema: object, value: object, schema_path: object) -> None:
        del parent_schema, value, schema_path

    def validate(self, instance: object) -> None:
        """Accept *instance*."""


def _list_names(schema: Mapping[str, object]) -> set[str]:
    """Return the names of all keywords in *schema*, and of all properties."""
    names: set[str] = set()
    pending: list[object] = [schema]
    while pending:
        part = pending.pop()
        if isinstance(part, dict):
            rules = cast("dict[str, object]", part)
            names |= rules.keys()
            pending += rules.values()
        elif isinstance(part, list):
            pending += cast("list[object]", part)
    return names


def _allow_null(part: object, *, is_name_map: bool = False, level: int = 0) -> object:
    """Return a schema whose parts with `nullable: true` also accept null. Local references into it stay valid, except below a union."""
    if level > _MAX_NULLABLE_LEVELS:
        return part
    if isinstance(part, list):
        return [_allow_null(item, level=level + 1) for item in cast("list[object]", part)]
    if not isinstance(part, dict):
        return part
    fields = cast("dict[str, object]", part)
    rules = {
        key: item
        if not is_name_map and key in DATA_KEYWORDS
        else _allow_null(item, is_name_map=not is_name_map and key in NAME_MAPS, level=level + 1)
        for key, item in fields.items()
    }
    return rules if is_name_map or rules.get("nullable") is not True else _to_nullable(rules)


def _to_nullable(rules: dict[str, object]) -> dict[str, object]:
    types, choices = rules.get("type"), rules.get("enum")
    is_plain = rules.keys().isdisjoint({"$ref", "allOf", "anyOf", "oneOf", "not", "const", "if"})
    if not is_plain:
        return {"anyOf": [{"type": "null"}, rules]}
    if isinstance(types, str | list):
        rules["type"] = list(dict.fromkeys([*([types] if isinstance(types, str) else cast("list[object]", types)), "null"]))
    if isinstance(choices, list) and None not in choices:
        rules["enum"] = [*cast("list[object]", choices), None]
    return rules
