"""Validation of arguments against a tool's inputSchema: JSON Schema 2020-12, compiled once per tool (D-34). No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import jsonschema_rs

from rookery.kernel.schema_cost import find_unsupported_reference, has_references, is_too_complex
from rookery.kernel.suggestions import find_nearest
from rookery.tools.errors import ArgumentsInvalid

_MAX_ERRORS = 50
_MAX_ERROR_LENGTH = 300


class ArgumentValidator:
    """
    A compiled inputSchema.

    A schema that cannot be compiled accepts everything, with the reason in `fault`; the upstream then validates the arguments.
    A $ref to another document is such a case. It is never fetched, because an upstream could make us read URLs and files of its choice.
    Arguments whose validation would take too long are left to the upstream as well: references that double with each level would block
    all callers.
    """

    def __init__(self, schema: Mapping[str, object]) -> None:
        self.fault: str | None = None
        properties = schema.get("properties")
        self._names = list(cast("Mapping[str, object]", properties)) if isinstance(properties, Mapping) else []
        self._validator: jsonschema_rs.Validator | None = None
        try:
            # Schemas name their dialect by $schema; 2020-12 is the protocol's default.
            kind = jsonschema_rs.validator_cls_for(dict(schema)) if "$schema" in schema else jsonschema_rs.Draft202012Validator
            self._validator = kind(dict(schema), offline=True)
        except (ValueError, TypeError, jsonschema_rs.ReferencingError) as error:
            self.fault = str(error).splitlines()[0][:_MAX_ERROR_LENGTH]
        self._schema = schema if has_references(schema) else None
        if self._schema is not None and self._validator is not None and (reference := find_unsupported_reference(self._schema)):
            self.fault = f"The reference {reference!r} is not supported; use local pointers such as #/$defs/name."[:_MAX_ERROR_LENGTH]
            self._validator = None

    def validate(self, arguments: Mapping[str, object]) -> None:
        """
        Validate *arguments* against the schema.

        Raises:
            ArgumentsInvalid: With all errors by JSON pointer, at most 50.
        """
        if self._validator is None or (self._schema is not None and is_too_complex(self._schema, arguments)):
            return
        if self._validator.is_valid(arguments):
            return
        errors: dict[str, list[str]] = {}
        for count, error in enumerate(self._validator.iter_errors(arguments)):
            if count == _MAX_ERRORS:
                break
            errors.setdefault(_to_json_pointer(error.instance_path), []).append(_shorten(self._describe_error(error, arguments)))
        raise ArgumentsInvalid(errors)

    def _describe_error(self, error: jsonschema_rs.ValidationError, arguments: Mapping[str, object]) -> str:
        """Return the error message. Unknown arguments are named, each with the nearest known name."""
        unknown_names = [name for name in arguments if name not in self._names]
        if error.instance_path or error.schema_path != ["additionalProperties"] or not unknown_names:
            return error.message
        near_names = {name: near_name for name in unknown_names if (near_name := find_nearest(name, self._names))}
        if not near_names:
            return f"{error.message}. Allowed: {', '.join(self._names) or 'none'}."
        suggestion = ", ".join(f"{near_name!r} instead of {name!r}" for name, near_name in near_names.items())
        return f"{error.message}. Did you mean {suggestion}?"


def _to_json_pointer(path: list[str | int]) -> str:
    """Return the JSON pointer (RFC 6901) of *path*; empty for the root."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in path)


def _shorten(text: str) -> str:
    return text if len(text) <= _MAX_ERROR_LENGTH else text[: _MAX_ERROR_LENGTH - 1] + "…"
