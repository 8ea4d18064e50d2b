"""JSON schemas of answers: compilation, and the validation of an answer. No I/O."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import islice

import jsonschema_rs
import orjson

from rookery.kernel.errors import ValidationFailed
from rookery.kernel.schema_compilation import compile_schema
from rookery.kernel.schema_cost import MAX_STEPS, find_unsupported_reference, is_too_complex

MAX_LISTED_ERRORS = 10
_MAX_ERROR_CHARS = 300
_MAX_REGEX_BYTES = 1 << 20
"""Memory of a compiled `pattern`; larger ones are invalid."""

_FENCED_BLOCK = re.compile(r"```[A-Za-z]*[ \t]*\r?\n(.*?)\r?\n?[ \t]*```", re.DOTALL)
"""A code block of Markdown, in which models often put JSON."""


class AnswerMismatch(Exception):
    """An answer is not JSON, or does not match the schema. The message describes it for people and for the model."""


class ResponseSchema:
    """A compiled JSON schema of answers, 2020-12 unless it names another draft. References to other documents are not fetched."""

    def __init__(self, schema: Mapping[str, object]) -> None:
        """
        Compile *schema*.

        Raises:
            ValidationFailed: It is no JSON schema.
        """
        self.schema = dict(schema)
        try:
            self._validator = compile_schema(self.schema, max_regex_bytes=_MAX_REGEX_BYTES)
        except (ValueError, TypeError, jsonschema_rs.ReferencingError) as error:
            reason = str(error).splitlines()[0][:_MAX_ERROR_CHARS]
            raise ValidationFailed({"schema": [f"is not a valid JSON schema: {reason}"]}) from None
        unsupported = find_unsupported_reference(self.schema)
        if unsupported is not None:
            text = f"is not a valid JSON schema here: {unsupported[:100]!r} is not supported; refer to definitions as #/$defs/NAME"
            raise ValidationFailed({"schema": [text]})

    def extract(self, answer: str) -> str:
        """
        Return the JSON of *answer*, which is the answer itself or its only code block.

        Raises:
            AnswerMismatch: It is not JSON, or does not match the schema.
        """
        text = _extract_json(answer)
        try:
            value: object = orjson.loads(text)
        except orjson.JSONDecodeError as error:
            raise AnswerMismatch(f"it is not JSON: {error.msg} (line {error.lineno}, column {error.colno})") from None
        if is_too_complex(self.schema, value):
            raise AnswerMismatch(f"it needs more than {MAX_STEPS:,} evaluations of subschemas, so it was not validated")
        if self._validator.is_valid(value):
            return text
        errors = [
            f"{_to_json_pointer(error.instance_path) or 'the value'}: {error.message}"[:_MAX_ERROR_CHARS]
            for error in islice(self._validator.iter_errors(value), MAX_LISTED_ERRORS)
        ]
        raise AnswerMismatch("; ".join(errors))


def _extract_json(answer: str) -> str:
    text = answer.strip()
    blocks = _FENCED_BLOCK.findall(text) if "```" in text and text[:1] not in {"{", "["} else []
    return blocks[0].strip() if len(blocks) == 1 else text


def _to_json_pointer(path: list[str | int]) -> str:
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in path)
