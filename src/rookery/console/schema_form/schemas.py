"""Reads JSON Schemas: references, combinations, types, and which branch of a union a value belongs to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias, TypeGuard, cast
from urllib.parse import unquote

Schema: TypeAlias = Mapping[str, object]
JsonObject: TypeAlias = dict[str, object]

_MAX_LINKS = 24
"""References and combinations that are followed in one place. A schema that refers to itself ends there."""
_MAX_UNION_LEVELS = 3
_MAX_BRANCHES = 32
_UNION_KEYWORDS = ("oneOf", "anyOf")
_TYPE_HINTS: Mapping[str, tuple[str, ...]] = {
    "object": ("properties", "required", "additionalProperties", "patternProperties", "minProperties"),
    "array": ("items", "prefixItems", "minItems", "maxItems", "uniqueItems"),
    "string": ("minLength", "maxLength", "pattern", "format"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
}


class Missing:
    """The type of `MISSING`."""

    def __repr__(self) -> str:
        return "MISSING"


MISSING: Final = Missing()
"""The value of a key that is absent."""


def is_object(value: object) -> TypeGuard[JsonObject]:
    return isinstance(value, dict)


def is_array(value: object) -> TypeGuard[list[object]]:
    """Return whether a JSON value is a list."""
    return isinstance(value, list)


class SchemaReader:
    """Reads the parts of one schema. References are local JSON pointers; others describe any value."""

    def __init__(self, root: Schema) -> None:
        self._root = root

    def flatten(self, schema: object) -> Schema:
        """
        Return *schema* with its references and `allOf` merged into one object. `false` becomes `{"not": {}}`.

        A property that several parts describe becomes `{"allOf": […]}`, which is flattened when it is read.
        """
        merged: JsonObject = {}
        pending: list[object] = [schema]
        for _ in range(_MAX_LINKS):
            if not pending:
                return merged
            part = pending.pop(0)
            if part is False:
                return {"not": {}}
            if not is_object(part):
                continue
            rules = part
            own = {name: rule for name, rule in rules.items() if name not in {"$ref", "allOf"}}
            merged = _merge(merged, own) if merged else own
            if isinstance(rules.get("$ref"), str):
                pending.append(self._resolve(cast("str", rules["$ref"])))
            pending += as_list(rules.get("allOf"))
        return {}

    def list_branches(self, schema: Schema, levels: int = _MAX_UNION_LEVELS) -> list[Schema]:
        """
        Return the alternatives of a flat *schema*, each merged with what they share; one element if it has none.

        Alternatives are `oneOf`, `anyOf` and several types, also those of an alternative. The type null is not among them: `is_nullable`
        reports it.
        """
        if levels == 0:
            return [schema]
        for keyword in _UNION_KEYWORDS:
            parts = as_list(schema.get(keyword))
            if not parts:
                continue
            shared = {name: rule for name, rule in schema.items() if name not in {keyword, "title", "description", "default"}}
            merged = [self.flatten({"allOf": [part, shared]}) for part in parts if not _is_null(self.flatten(part))]
            branches = [branch for part in merged for branch in self.list_branches(part, levels - 1)]
            return branches[:_MAX_BRANCHES] or [{"type": "null"}]
        types = [kind for kind in as_list(schema.get("type")) if kind != "null"]
        if len(types) > 1 and "enum" not in schema and "const" not in schema:
            return [{**schema, "type": kind, "title": str(kind)} for kind in types]
        return [schema]

    def is_nullable(self, schema: Schema) -> bool:
        """Return whether a flat *schema* has null as an alternative, or is `nullable`. In an `enum` null is an ordinary option."""
        if schema.get("nullable") is True:
            return None not in as_list(schema.get("enum"))
        if "enum" in schema or "const" in schema:
            return False
        if "null" in as_list(schema.get("type")) and len(as_list(schema.get("type"))) > 1:
            return True
        return any(_is_null(self.flatten(part)) for keyword in _UNION_KEYWORDS for part in as_list(schema.get(keyword)))

    def find_branch(self, branches: Sequence[Schema], value: object, hint: int | None) -> int:
        """Return the index of the branch that *value* belongs to: *hint* if it is possible, else the one that describes it best."""
        if hint is not None and 0 <= hint < len(branches) and self._score(branches[hint], value) >= 0:
            return hint
        scores = [self._score(branch, value) for branch in branches]
        return scores.index(max(scores))

    def get_constants(self, schema: Schema) -> JsonObject:
        """Return the properties of a flat *schema* that allow one value only, by name."""
        constants: JsonObject = {}
        for name, part in get_properties(schema).items():
            rules = self.flatten(part)
            if "const" in rules:
                constants[name] = rules["const"]
            elif len(as_list(rules.get("enum"))) == 1 and name in as_list(schema.get("required")):
                constants[name] = as_list(rules["enum"])[0]
        return constants

    def make_value(self, schema: object) -> object:
        """Return a first value for *schema*, for a new row of a list: its default, or an empty value of its type."""
        rules = self.flatten(schema)
        if "default" in rules:
            return rules["default"]
        if "const" in rules:
            return rules["const"]
        if options := as_list(rules.get("enum")):
            return options[0]
        branch = self.list_branches(rules)[0]
        if branch is not rules and ("const" in branch or "enum" in branch):
            return self.make_value(branch)
        kind = get_type(branch)
        if kind == "object":
            return self.get_constants(branch)
        empty: dict[str | None, object] = {"string": "", "array": list[object](), "number": 0, "integer": 0, "boolean": False}
        return empty.get(kind)

    def change_branch(self, old: Schema, new: Schema, value: object) -> object:
        """
        Return *value* for another branch.

        Properties that only the *old* branch has are removed, those that allow one value get it, and the others stay. A value of another
        type is replaced by an empty one. An absent value stays absent, unless a property of the branch allows one value only.
        """
        constants = self.get_constants(new)
        if get_type(new) != "object":
            fits = isinstance(value, Missing) or has_type(value, get_type(new))
            return value if fits else self.make_value(new)
        if not is_object(value):
            return constants if constants or not isinstance(value, Missing) else MISSING
        dropped = get_properties(old).keys() - get_properties(new).keys()
        return {name: item for name, item in value.items() if name not in dropped} | constants

    def _score(self, branch: Schema, value: object) -> int:
        """Return how well a flat *branch* describes *value*; -1 if it cannot."""
        if isinstance(value, Missing):
            return 0
        if "const" in branch:
            return 4 if is_same(branch["const"], value) else -1
        if "enum" in branch:
            return 4 if any(is_same(option, value) for option in as_list(branch["enum"])) else -1
        kind = get_type(branch)
        if not has_type(value, kind):
            return -1
        if not is_object(value):
            return 1 if kind is None else 2
        fields = value
        constants = self.get_constants(branch)
        if any(name in fields and not is_same(fields[name], constant) for name, constant in constants.items()):
            return -1
        missing_count = sum(name not in fields for name in as_list(branch.get("required")))
        known_count = sum(name in fields for name in get_properties(branch))
        # The weights keep a branch with a matching constant above one that merely has more properties.
        return max(0, 100 + 20 * len(constants.keys() & fields.keys()) + known_count - 5 * missing_count)

    def _resolve(self, reference: str) -> object:
        """Return the part of the schema at a local JSON pointer; True, which describes any value, for one that does not exist."""
        if not reference.startswith("#"):
            return True
        target: object = dict(self._root)
        for part in reference.removeprefix("#").split("/")[1:]:
            name = unquote(part).replace("~1", "/").replace("~0", "~")
            if is_object(target):
                target = target.get(name, True)
            elif is_array(target) and name.isdecimal() and int(name[:9]) < len(target):
                target = target[int(name[:9])]
            else:
                return True
        return target


def as_list(value: object) -> list[object]:
    """Return a list unchanged, a text as a list of one, and anything else as an empty list."""
    if is_array(value):
        return value
    return [value] if isinstance(value, str) else []


def get_properties(schema: Schema) -> Mapping[str, object]:
    """Return the properties of a flat *schema*."""
    properties = schema.get("properties")
    return properties if is_object(properties) else {}


def get_type(schema: Schema) -> str | None:
    """Return the type that a flat *schema* names or implies; None: any value."""
    kinds = [kind for kind in as_list(schema.get("type")) if kind != "null"]
    if kinds:
        return str(kinds[0])
    if as_list(schema.get("type")):
        return "null"
    return next((kind for kind, keywords in _TYPE_HINTS.items() if any(keyword in schema for keyword in keywords)), None)


def has_type(value: object, kind: str | None) -> bool:
    """Return whether a JSON value has the type *kind*."""
    match kind:
        case "object":
            return is_object(value)
        case "array":
            return is_array(value)
        case "string":
            return isinstance(value, str)
        case "boolean":
            return isinstance(value, bool)
        case "integer":
            return isinstance(value, int | float) and not isinstance(value, bool) and value == value // 1
        case "number":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case "null":
            return value is None
        case _:
            return True


def is_same(left: object, right: object) -> bool:
    """Return whether two JSON values are equal. Unlike in Python, true is not 1."""
    return left == right and isinstance(left, bool) == isinstance(right, bool)


def _is_null(schema: Schema) -> bool:
    return schema.get("type") in ("null", ["null"]) or ("const" in schema and schema["const"] is None) or schema.get("enum") == [None]


def _merge(left: Schema, right: Schema) -> JsonObject:
    """Return a schema that describes what both describe. Of keywords that cannot be combined, the first one stays."""
    merged: JsonObject = {**right, **left}
    names, others = get_properties(left), get_properties(right)
    if names and others:
        shared = {name: {"allOf": [names[name], others[name]]} for name in names if name in others}
        merged["properties"] = {**names, **others, **shared}
    if "required" in left and "required" in right:
        merged["required"] = list(dict.fromkeys([*as_list(left["required"]), *as_list(right["required"])]))
    if "enum" in left and "enum" in right:
        merged["enum"] = [option for option in as_list(left["enum"]) if option in as_list(right["enum"])]
    if "type" in left and "type" in right:
        # An integer is a number, so that the narrower of the two stays.
        kinds = [kind for kind in as_list(left["type"]) if kind in as_list(right["type"])]
        narrow = "integer" in {*as_list(left["type"]), *as_list(right["type"])}
        merged["type"] = kinds or ("integer" if narrow else left["type"])
    return merged
