"""Python types of the schemas in the OpenAPI document."""

from __future__ import annotations

import keyword
import re
from collections.abc import Mapping, Sequence
from typing import cast

from rookery.reference.components import OR_NULL, OR_NULL_SUFFIX

Schema = Mapping[str, object]

_PREFIX = "#/components/schemas/"
_MODEL_ATTRIBUTES = frozenset({"schema", "json", "copy", "dict", "construct", "validate", "fields", "register"})
"""Attributes of pydantic's models, which a field may not replace."""


def snake_case(name: str) -> str:
    """Return *name* in snake_case: `inputSchema` becomes `input_schema`, `X-Session-ID` `x_session_id`."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name.replace("-", "_").replace(".", "_"))
    return re.sub(r"_+", "_", words).lower().strip("_")


def to_argument(name: str) -> str:
    """Return the name of an argument: snake_case, with an underscore after a keyword of Python."""
    name = snake_case(name)
    return f"{name}_" if keyword.iskeyword(name) else name


def to_attribute(name: str) -> str:
    """Return the name of a model's field, with an underscore after a name that the model itself uses."""
    name = to_argument(name)
    return f"{name}_" if name in _MODEL_ATTRIBUTES else name


def get_reference(schema: Schema) -> str | None:
    """Return the name of the component that *schema* refers to, directly or as the only part of `allOf`."""
    reference = schema.get("$ref")
    if isinstance(reference, str):
        return reference.removeprefix(_PREFIX).removesuffix(OR_NULL_SUFFIX)
    part = _get_only_part(schema)
    return None if part is None else get_reference(part)


def _get_only_part(schema: Schema) -> Schema | None:
    """Return the only part of `allOf`, beside the note that it may be null."""
    parts = [part for part in cast("Sequence[Schema]", schema.get("allOf", ())) if part != OR_NULL]
    return parts[0] if len(parts) == 1 else None


class TypeWriter:
    """
    Writes types.

    Args:
        components: The schemas of the document.
        is_input: Write types of arguments: components are TypedDicts, times may be text, and lists any sequence.

    Attributes:
        used: The names of the objects that were written, which need a definition.
    """

    def __init__(self, components: Mapping[str, Schema], *, is_input: bool) -> None:
        self._components = components
        self._is_input = is_input
        self.used: dict[str, None] = {}

    def write(self, schema: Schema) -> str:
        """Return the type of *schema*."""
        text = self._write(schema)
        is_nullable = schema.get("nullable") is True or str(schema.get("$ref")).endswith(OR_NULL_SUFFIX)
        return f"{text} | None" if is_nullable and not text.endswith("None") else text

    def _write(self, schema: Schema) -> str:
        name = get_reference(schema)
        if name is not None:
            return self._write_component(name)
        schema = _get_only_part(schema) or schema
        choices = [*cast("Sequence[Schema]", schema.get("anyOf", ())), *cast("Sequence[Schema]", schema.get("oneOf", ()))]
        if choices:
            types = [part for choice in choices for part in self._split(self.write(choice))]
            return " | ".join(sorted(dict.fromkeys(types), key=lambda text: text == "None"))
        if "enum" in schema:
            return self._write_enum(cast("Sequence[object]", schema["enum"]))
        return self._write_simple(schema)

    @staticmethod
    def _split(text: str) -> list[str]:
        """Return the type without null, and null if it is one of its values."""
        return [text.removesuffix(" | None"), "None"] if text.endswith(" | None") else [text]

    def _write_component(self, name: str) -> str:
        component = self._components[name]
        if "properties" not in component:
            return self.write(component)
        self.used[name] = None
        return f"inputs.{name}" if self._is_input else f"models.{name}"

    def _write_enum(self, values: Sequence[object]) -> str:
        texts = ", ".join(map(repr, values))
        literal = f"Literal[{texts}]".replace("'", '"')
        is_text = all(isinstance(value, str) for value in values)
        return f"{literal} | str" if is_text and not self._is_input else literal  # a newer server may have more values

    def _write_simple(self, schema: Schema) -> str:
        kind = schema.get("type")
        if kind == "string":
            if schema.get("format") in {"date-time", "date"}:
                moment = "datetime" if schema["format"] == "date-time" else "date"
                return f"{moment} | str" if self._is_input else moment
            return "str"
        if kind == "array":
            any_item = schema.get("x-items")  # what the server takes beside items of the documented form
            item = self.write(cast("Schema", schema.get("items", {})))
            if any_item and self._is_input:
                item = f"{item} | {self.write(cast('Schema', any_item))}"
            return f"Sequence[{item}]" if self._is_input else f"list[{item}]"
        if kind == "object":
            values = schema.get("additionalProperties")
            value = self.write(cast("Schema", values)) if isinstance(values, Mapping) else "object"
            return f"Mapping[str, {value}]" if self._is_input else f"dict[str, {value}]"
        return {"integer": "int", "number": "float", "boolean": "bool"}.get(str(kind), "object")
