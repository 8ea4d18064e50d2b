"""Sample values of JSON schemas, for answers of test keys. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

_SAMPLE_TEXT = "Answer for test keys"
_MAX_DEPTH = 32
_MAX_OPTIONAL_DEPTH = 4
"""Depth from which optional properties are omitted, at which a schema may refer to itself."""

_MAX_VALUES = 500
"""Values of a sample. A schema that refers to itself twice would otherwise have 2 to the power of the depth."""

_MAX_TEXT_CHARS = 10_000


class SampleBuilder:
    """Builds a small value of a JSON schema. It follows the usual keywords; the caller validates the result."""

    def __init__(self, root: Mapping[str, object]) -> None:
        self._root = root
        self._remaining_values = _MAX_VALUES

    def build(self, schema: object, *, depth: int = 0) -> object:
        """Return a value of *schema*, which is the root or a part of it."""
        self._remaining_values -= 1
        if not isinstance(schema, dict) or depth > _MAX_DEPTH or self._remaining_values < 0:
            return None
        rules = self._resolve(cast("dict[str, object]", schema))
        for name in ("const", "default"):
            if name in rules:
                return rules[name]
        for name in ("enum", "examples"):
            if values := _as_list(rules.get(name)):
                return values[0]
        for name in ("anyOf", "oneOf"):
            if options := _as_list(rules.get(name)):
                return self.build(options[0], depth=depth + 1)
        return self._build_typed(rules, depth)

    def _build_typed(self, rules: Mapping[str, object], depth: int) -> object:
        kinds = rules.get("type")
        kind = kinds if isinstance(kinds, str) else next(iter(_as_list(kinds)), "object" if "properties" in rules else "string")
        match kind:
            case "object":
                return self._build_object(rules, depth)
            case "array":
                return self._build_array(rules, depth)
            case "string":
                return _build_text(rules)
            case "integer" | "number":
                return _build_number(rules)
            case "boolean":
                return False
            case _:
                return None

    def _build_array(self, rules: Mapping[str, object], depth: int) -> list[object]:
        count = min(_as_int(rules.get("minItems"), 0), _MAX_VALUES)
        prefix = _as_list(rules.get("prefixItems"))
        items = [*prefix, *[rules.get("items", {})] * max(0, count - len(prefix))]
        return [self.build(item, depth=depth + 1) for item in items]

    def _build_object(self, rules: Mapping[str, object], depth: int) -> dict[str, object]:
        properties = rules.get("properties")
        known_properties = cast("dict[str, object]", properties) if isinstance(properties, dict) else {}
        names = [name for name in _as_list(rules.get("required")) if isinstance(name, str)]
        optional_names = list(known_properties) if depth < _MAX_OPTIONAL_DEPTH else []
        return {name: self.build(known_properties.get(name, {}), depth=depth + 1) for name in names or optional_names}

    def _resolve(self, schema: dict[str, object]) -> dict[str, object]:
        """Return *schema* with the keywords of its local reference and of `allOf`."""
        rules = schema
        for _ in range(_MAX_DEPTH):
            reference = rules.get("$ref")
            if not isinstance(reference, str):
                break
            target = self._find(reference)
            rules = {**target, **{name: value for name, value in rules.items() if name != "$ref"}}
        for part in _as_list(rules.get("allOf")):
            if isinstance(part, dict):
                rules = {**self._find_part(cast("dict[str, object]", part)), **rules}
        return rules

    def _find_part(self, part: dict[str, object]) -> dict[str, object]:
        reference = part.get("$ref")
        return self._find(reference) if isinstance(reference, str) else part

    def _find(self, reference: str) -> dict[str, object]:
        """Return the schema at a local JSON pointer; empty if it does not exist."""
        target: object = self._root
        for part in reference.removeprefix("#").split("/")[1:]:
            name = part.replace("~1", "/").replace("~0", "~")
            target = _as_object(target).get(name)
        return _as_object(target)


_FORMATS = {
    "date-time": "2000-01-01T00:00:00Z",
    "date": "2000-01-01",
    "time": "00:00:00Z",
    "email": "test@example.org",
    "uri": "https://example.org/",
    "uuid": "00000000-0000-0000-0000-000000000000",
}


def _build_text(rules: Mapping[str, object]) -> str:
    text = _FORMATS.get(str(rules.get("format")), _SAMPLE_TEXT)
    minimum, maximum = _as_int(rules.get("minLength"), 0), _as_int(rules.get("maxLength"), len(text) + _MAX_TEXT_CHARS)
    return text.ljust(min(minimum, _MAX_TEXT_CHARS), ".")[: max(0, maximum)]


def _build_number(rules: Mapping[str, object]) -> object:
    for name, step in (("minimum", 0), ("exclusiveMinimum", 1), ("maximum", 0), ("exclusiveMaximum", -1)):
        bound = rules.get(name)
        if isinstance(bound, int | float) and not isinstance(bound, bool):
            number = bound + step
            multiple = rules.get("multipleOf")
            return -(-number // multiple) * multiple if isinstance(multiple, int) and multiple > 0 else number
    return 0


def _as_list(value: object) -> list[object]:
    return cast("list[object]", value) if isinstance(value, list) else []


def _as_int(value: object, default: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else default


def _as_object(value: object) -> dict[str, object]:
    return cast("dict[str, object]", value) if isinstance(value, dict) else {}
