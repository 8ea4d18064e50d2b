"""Validation of arguments against a tool's inputSchema, compiled once per tool, and their completion. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import jsonschema_rs

from rookery.kernel.schema_compilation import compile_schema
from rookery.kernel.schema_cost import find_unsupported_reference, has_references, is_too_complex
from rookery.kernel.sentences import find_nearest, suggest
from rookery.tools.argument_completion import MAX_ERRORS, ArgumentCompleter
from rookery.tools.errors import ArgumentsInvalid

_MAX_ERROR_LENGTH = 300
_MAX_NAME_LENGTH = 200


class ArgumentValidator:
    """
    A compiled inputSchema.

    A schema that cannot be compiled accepts everything, with the reason in `fault`; the upstream then validates the arguments.
    A $ref to another document is such a case. It is never fetched, because an upstream could make us read URLs and files of its choice.
    Arguments whose validation would take too long are left to the upstream as well: references that double with each level would block
    all callers.

    Args:
        is_builtin: The schema of a built-in tool, whose models have a default for every field that is not required, at any depth, and
            reject unknown arguments. It lists all arguments that they accept.
        is_destructive: The tool destroys what its arguments name, so none of them is guessed.
    """

    def __init__(self, schema: Mapping[str, object], *, is_builtin: bool = False, is_destructive: bool = False) -> None:
        self.fault: str | None = None
        properties = schema.get("properties")
        self._names = list(cast("Mapping[str, object]", properties)) if isinstance(properties, Mapping) else []
        self._validator: jsonschema_rs.Validator | None = None
        try:
            self._validator = compile_schema(schema)
        except (ValueError, TypeError, jsonschema_rs.ReferencingError) as error:
            self.fault = str(error).splitlines()[0][:_MAX_ERROR_LENGTH]
        self._schema, self._has_references, self._is_builtin = schema, has_references(schema), is_builtin
        self._is_destructive = is_destructive
        if self._has_references and self._validator is not None and (reference := find_unsupported_reference(schema)):
            self.fault = f"The reference {reference!r} is not supported; use local pointers such as #/$defs/name."[:_MAX_ERROR_LENGTH]
            self._validator = None

    def validate(self, arguments: Mapping[str, object]) -> Mapping[str, object]:
        """
        Return the arguments to send: *arguments* itself if it is valid.

        Nulls that the schema neither accepts nor requires are left out, and a missing required argument gets its default. A built-in tool
        also accepts the text of a list, an object, a number or a boolean.

        Raises:
            ArgumentsInvalid: With all errors by JSON pointer, at most 50.
        """
        if self._validator is None or (self._has_references and is_too_complex(self._schema, arguments)):
            return arguments
        if self._validator.is_valid(arguments):
            return arguments
        completer = ArgumentCompleter(self._validator, self._schema, is_builtin=self._is_builtin, is_destructive=self._is_destructive)
        completed, invalid = completer.complete(arguments)
        if not invalid:
            return completed
        errors: dict[str, list[str]] = {}
        for error in invalid:
            errors.setdefault(_to_json_pointer(error.instance_path), []).append(_shorten(self._describe_error(error, arguments)))
        if self._is_builtin:
            errors |= self._find_unknown(arguments)
        raise ArgumentsInvalid(errors)

    def _find_unknown(self, arguments: Mapping[str, object]) -> dict[str, list[str]]:
        """Return the errors of unknown arguments, which the models of a built-in tool would report after the others are corrected."""
        names = [name for name in arguments if name not in self._names][:MAX_ERRORS]
        return {_to_json_pointer([name[:_MAX_NAME_LENGTH]]): [f"unknown argument{suggest(name, self._names)}"] for name in names}

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


def drop_nulls(arguments: object) -> object:
    """Return arguments without nulls, which clients send for what is not set. Null itself becomes an empty object."""
    if not isinstance(arguments, dict):
        return {} if arguments is None else arguments
    return {name: value for name, value in cast("dict[str, object]", arguments).items() if value is not None}
