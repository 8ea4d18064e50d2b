"""
The conversion of JSON Schema 2020-12, as pydantic generates it, to OpenAPI 3.0.3. Pure.

Parts that 3.0 cannot express are left out, so that a schema may become looser and never stricter. The one exception are items that the
server checks one by one (`x-items`): clients need their form. Values below `default`, `enum` and
`example` are data and stay unchanged.

Null is said by `nullable` alone, also beside `allOf` with a reference and beside an enum, which does not list it: all generators of clients
read that. An alternative that only null matches makes ogen 1.25.0 skip the operation, and null in an enum becomes a text in
oapi-codegen 2.8.2, or an error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import cast

Schema = dict[str, object]

_SUPPORTED_KEYWORDS = frozenset(
    "title description type format enum default multipleOf maximum minimum maxLength minLength pattern maxItems minItems uniqueItems "
    "maxProperties minProperties required discriminator readOnly writeOnly deprecated example nullable externalDocs xml".split()
)
"""Keywords with the same meaning in 3.0."""

_SINGLE_SCHEMA_KEYWORDS, _SCHEMA_LIST_KEYWORDS = ("not",), ("allOf", "oneOf", "anyOf")

_COMPONENTS_PREFIX = "#/components/schemas/"


def null_schema() -> Schema:
    """Return a schema that only null matches, for a value that is always null: 3.0.3 has no null type."""
    return {"type": "object", "enum": [None], "nullable": True}


def is_null_disputed(schema: Schema) -> bool:
    """
    Return whether validators disagree on null: it is allowed by `nullable`, but is not in the enum or in the schema that is referred to.

    Generators read such a schema as it is meant. Validators that follow the text of 3.0.3 reject null there.
    """
    return schema.get("nullable") is True and ("enum" in schema or "allOf" in schema)


def downgrade(schema: object, rename: Callable[[str], str] = str) -> Schema:
    """
    Return *schema* for OpenAPI 3.0.3.

    Args:
        rename: Returns the published name of a component.

    Raises:
        TypeError: *schema* is not a schema.
    """
    if schema is True:
        return {}
    if schema is False:
        return {"not": {}}
    if not isinstance(schema, Mapping):
        raise TypeError(schema)
    return _SchemaDowngrade(cast("Mapping[str, object]", schema), rename).run()


class _SchemaDowngrade:
    """The conversion of one schema. Inner schemas are converted separately."""

    def __init__(self, schema: Mapping[str, object], rename: Callable[[str], str]) -> None:
        self._source = schema
        self._rename = rename
        self._result: Schema = {name: value for name, value in schema.items() if name in _SUPPORTED_KEYWORDS or name.startswith("x-")}

    def run(self) -> Schema:
        self._convert_values()
        self._convert_bounds()
        self._convert_object()
        self._convert_array()
        self._convert_type()
        self._convert_combinations()
        return self._convert_reference()

    def _downgrade_inner(self, schema: object) -> Schema:
        return downgrade(schema, self._rename)

    def _convert_values(self) -> None:
        source, out = self._source, self._result
        if "const" in source:
            # A schema with both const and enum is written by hand, and const is one of the enum's values.
            out["enum"] = [source["const"]]
        examples = source.get("examples")
        if isinstance(examples, list) and examples and "example" not in out:
            out["example"] = cast("list[object]", examples)[0]
        discriminator = out.get("discriminator")
        if isinstance(discriminator, dict):
            mapping = cast("dict[str, dict[str, str]]", discriminator).get("mapping", {})
            out["discriminator"] = {
                **cast("Schema", discriminator),
                "mapping": {name: self._rename_reference(ref) for name, ref in mapping.items()},
            }
        if source.get("contentEncoding") == "base64":
            out.setdefault("format", "byte")
        elif "contentMediaType" in source:
            out.setdefault("format", "binary")

    def _convert_bounds(self) -> None:
        for exclusive, inclusive, tighter in (("exclusiveMinimum", "minimum", max), ("exclusiveMaximum", "maximum", min)):
            bound, other = self._source.get(exclusive), self._source.get(inclusive)
            if isinstance(bound, bool) or not isinstance(bound, (int, float)):
                continue
            if isinstance(other, (int, float)) and tighter(bound, other) != bound:
                continue
            self._result[inclusive], self._result[exclusive] = bound, True

    def _convert_object(self) -> None:
        source, out = self._source, self._result
        properties = source.get("properties")
        if isinstance(properties, Mapping):
            out["properties"] = {
                name: self._downgrade_inner(property_schema) for name, property_schema in cast("Mapping[str, object]", properties).items()
            }
        more, patterns = source.get("additionalProperties"), source.get("patternProperties")
        if isinstance(patterns, Mapping):
            # 3.0 has no patterns for names, so any of these schemas is allowed for any name.
            if isinstance(more, (bool, Mapping)) and more is not True:
                alternatives = [*cast("Mapping[str, object]", patterns).values(), *([] if more is False else [cast("object", more)])]
                schemas = [self._downgrade_inner(option) for option in alternatives]
                out["additionalProperties"] = schemas[0] if len(schemas) == 1 else {"anyOf": schemas}
        elif isinstance(more, bool):
            out["additionalProperties"] = more
        elif more is not None:
            out["additionalProperties"] = self._downgrade_inner(more)

    def _convert_array(self) -> None:
        source, out = self._source, self._result
        first, rest = source.get("prefixItems"), source.get("items")
        if "x-items" in source:  # the form of items that are checked one by one; the server also takes invalid ones
            out["x-items"], rest = self._downgrade_inner(rest), source["x-items"]
        if isinstance(first, list):
            item_schemas = [self._downgrade_inner(item) for item in cast("list[object]", first)]
            if rest is False:
                most = source.get("maxItems")
                out["maxItems"] = min(most, len(item_schemas)) if isinstance(most, int) else len(item_schemas)
            elif rest is not None and rest is not True:
                item_schemas.append(self._downgrade_inner(rest))
            is_open = rest is None or rest is True
            different = [item for number, item in enumerate(item_schemas) if item not in item_schemas[:number]]
            # Items after prefixItems are unrestricted, unless maxItems allows none.
            is_open = is_open and not (isinstance(source.get("maxItems"), int) and cast("int", source["maxItems"]) <= len(item_schemas))
            out["items"] = {} if is_open or not different else different[0] if len(different) == 1 else {"anyOf": different}
        elif rest is False:
            out["items"], out["maxItems"] = {}, 0
        elif rest is not None:
            out["items"] = self._downgrade_inner(rest)

    def _convert_type(self) -> None:
        out = self._result
        kinds = out.get("type")
        if isinstance(kinds, list):
            names = [name for name in cast("list[str]", kinds) if name != "null"]
            if len(names) < len(cast("list[str]", kinds)):
                out["nullable"] = True
            if len(names) == 1:
                out["type"] = names[0]
            else:
                del out["type"]
                alternatives = [{"type": name, **({"items": out.get("items", {})} if name == "array" else {})} for name in names]
                self._add_alternatives(self._move_null(alternatives))
        elif kinds == "null":
            out.update(null_schema())
        values = out.get("enum")
        if isinstance(values, list):
            self._convert_enum(cast("list[object]", values))
        if out.get("type") == "array":
            out.setdefault("items", {})

    def _convert_enum(self, values: list[object]) -> None:
        """
        Say by `nullable` whether null is one of the values. The type must allow it, too.

        Generators have no booleans of one value (oapi-codegen 2.8.2 refuses the document), so the description names it.
        """
        out, allows_null = self._result, None in values and (self._result.get("nullable", False) or "type" not in self._source)
        values = [value for value in values if value is not None]
        if not values and allows_null:
            out |= null_schema()
            return
        out["enum"] = values
        out.pop("nullable", None)
        if allows_null:
            out["nullable"] = True
        if out.get("type") == "boolean":
            del out["enum"]
            if len(values) == 1:
                out["description"] = f"{out.get('description', '')} Only `{str(values[0]).lower()}`.".strip()

    def _convert_combinations(self) -> None:
        for keyword in _SINGLE_SCHEMA_KEYWORDS:
            if keyword in self._source:
                self._result[keyword] = self._downgrade_inner(self._source[keyword])
        for keyword in _SCHEMA_LIST_KEYWORDS:
            options = self._source.get(keyword)
            if not isinstance(options, list):
                continue
            parts = cast("list[object]", options)
            others = [part for part in parts if part != {"type": "null"}]
            alternatives = [self._downgrade_inner(part) for part in others]
            if keyword == "allOf" or len(others) == len(parts):
                self._add_alternatives(alternatives, keyword)
            else:
                self._convert_nullable(keyword, alternatives)

    def _convert_nullable(self, keyword: str, alternatives: list[Schema]) -> None:
        """Allow null by `nullable`, beside the schema or the alternatives that are left. A type that excludes null stays."""
        out = self._result
        if "type" not in self._source or out.get("nullable"):
            out["nullable"] = True
        only = alternatives[0] if len(alternatives) == 1 else None
        if only is None:
            self._add_alternatives(self._move_null(alternatives), keyword)
        elif "$ref" in only or "not" in only or only.keys() & out.keys() - _ANNOTATION_KEYWORDS - {"nullable"}:
            self._add_alternatives([only], "allOf")
        else:
            out.update({name: value for name, value in only.items() if name not in out})
            if "anyOf" in only:
                out["anyOf"] = self._move_null(cast("list[Schema]", only["anyOf"]))

    def _move_null(self, alternatives: list[Schema]) -> list[Schema]:
        """Return the alternatives, of which the first with a type allows null if this schema does: `nullable` belongs beside a type."""
        typed = next((number for number, part in enumerate(alternatives) if "type" in part), None)
        if typed is None or "type" in self._result or not self._result.pop("nullable", False):
            return alternatives
        return [{**part, "nullable": True} if number == typed else part for number, part in enumerate(alternatives)]

    def _add_alternatives(self, alternatives: list[Schema], keyword: str = "anyOf") -> None:
        if keyword == "allOf":
            self._result["allOf"] = [*cast("list[Schema]", self._result.get("allOf", [])), *alternatives]
        elif keyword not in self._result:
            self._result[keyword] = alternatives
        else:
            self._result["allOf"] = [*cast("list[Schema]", self._result.get("allOf", [])), {keyword: alternatives}]

    def _convert_reference(self) -> Schema:
        reference = self._source.get("$ref")
        if not isinstance(reference, str):
            return self._result
        target: Schema = {"$ref": self._rename_reference(reference)}
        if not self._result:
            return target
        # 3.0 ignores everything beside a reference.
        return {**self._result, "allOf": [target, *cast("list[Schema]", self._result.get("allOf", []))]}

    def _rename_reference(self, reference: str) -> str:
        for prefix in (_COMPONENTS_PREFIX, "#/$defs/"):
            if reference.startswith(prefix):
                return _COMPONENTS_PREFIX + self._rename(reference.removeprefix(prefix))
        return reference


_ANNOTATION_KEYWORDS = frozenset({"title", "description", "default", "example"})
"""Keywords without effect on validation. Two schemas that differ only in these can be merged."""
