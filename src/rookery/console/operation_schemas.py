"""The JSON schemas of operations, by which forms and lists are made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import cast

from pydantic import BaseModel
from pydantic.json_schema import JsonSchemaMode

from rookery.console.schema_form.schemas import JsonObject, Schema, SchemaReader, as_list, get_properties, get_type, is_object
from rookery.kernel.http.operations import Operation, parse_signature
from rookery.kernel.schema import SchemaGenerator


@dataclass(frozen=True, slots=True)
class SchemaField:
    """
    A field of a body, a query or a response.

    Attributes:
        rules: Its flat schema without null.
        item: The flat schema of the items of an array, or of the values of an object with any keys; else None.
    """

    name: str
    rules: Schema
    item: Schema | None
    description: str
    is_required: bool
    is_nullable: bool

    @property
    def label(self) -> str:
        """The name as people read it."""
        return self.name.rpartition(".")[2].replace("_", " ").capitalize()

    @property
    def kind(self) -> str | None:
        """The JSON type of its value; None: any."""
        return get_type(self.rules)

    @property
    def default(self) -> object:
        """Its default, or None."""
        return self.rules.get("default")

    @property
    def options(self) -> list[str]:
        """The texts that it allows; empty: any."""
        return [str(option) for option in as_list(self.rules.get("enum")) if option is not None]

    @property
    def is_time(self) -> bool:
        return self.rules.get("format") == "date-time"

    def get_limit(self, keyword: str) -> float | None:
        """Return the value of a keyword such as `maximum`."""
        value = self.rules.get(keyword)
        return value if isinstance(value, int | float) and not isinstance(value, bool) else None


class ObjectSchema:
    """The schema of an object, such as a body."""

    def __init__(self, root: JsonObject) -> None:
        self._reader = SchemaReader(root)
        self.fields = self._read_fields(self._reader.flatten(root), "")

    def list_children(self, field: SchemaField) -> dict[str, SchemaField]:
        """Return the fields of the object in *field* by their dotted names; empty: it is no object with fixed keys."""
        return self._read_fields(field.rules, f"{field.name}.") if field.kind == "object" else {}

    def find(self, path: str) -> SchemaField | None:
        """Return the field at a dotted path; None if it does not exist."""
        fields, child = self.fields, None
        names = path.split(".")
        for index in range(len(names)):
            child = fields.get(".".join(names[: index + 1]))
            if child is None:
                return None
            fields = self.list_children(child)
        return child

    def _read_fields(self, rules: Schema, prefix: str) -> dict[str, SchemaField]:
        required = as_list(rules.get("required"))
        fields = ((name, self._reader.flatten(part)) for name, part in get_properties(rules).items())
        return {prefix + name: self._read_field(prefix + name, part, is_required=name in required) for name, part in fields}

    def _read_field(self, name: str, rules: Schema, *, is_required: bool) -> SchemaField:
        branches = self._reader.list_branches(rules)
        flat = {**rules, **branches[0]} if len(branches) == 1 else rules
        patterns = flat.get("patternProperties")
        values = next(iter(patterns.values())) if is_object(patterns) and patterns else flat.get("additionalProperties")
        item = flat.get("items") if get_type(flat) == "array" else values
        description = str(rules.get("description") or flat.get("description") or "")
        return SchemaField(
            name, flat, self._reader.flatten(item) if is_object(item) else None, description, is_required, self._reader.is_nullable(rules)
        )


class OperationSchemas:
    """The schemas of all operations, by their ids."""

    def __init__(self, operations: Sequence[Operation]) -> None:
        self._operations = {operation.operation_id: operation for operation in reversed(operations)}

    def get_body(self, operation: str) -> ObjectSchema:
        """Return the schema of the body of an operation that has one."""
        return _read_model(cast("tuple[str, type[BaseModel]]", parse_signature(self._operations[operation].handler).body)[1])

    def get_query(self, operation: str) -> ObjectSchema:
        """Return the schema of the query of an operation that has one."""
        return _read_model(cast("tuple[str, type[BaseModel]]", parse_signature(self._operations[operation].handler).query)[1])

    def get_item(self, operation: str) -> ObjectSchema:
        """Return the schema of the items of a list, or of the response of another operation."""
        declared = self._operations[operation]
        return _read_model(cast("type[BaseModel]", declared.item_model or declared.response_model), "serialization")


@cache
def _read_model(model: type[BaseModel], mode: JsonSchemaMode = "validation") -> ObjectSchema:
    return ObjectSchema(model.model_json_schema(mode=mode, schema_generator=SchemaGenerator))


def get_value(item: object, path: str) -> object:
    """Return the value of an object or a model at a dotted path; None if a part of the path is missing."""
    for name in path.split("."):
        item = cast("Mapping[str, object]", item).get(name) if isinstance(item, Mapping) else getattr(item, name, None)
    return item
