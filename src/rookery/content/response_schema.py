"""JSON schemas of answers: compilation, and the validation of an answer. No I/O."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
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


_MAX_SEARCHED_CHARS = 200_000
_MAX_SEARCHES = 200
"""Bounds of the search for JSON in a text: its last characters, and the brackets in them that may begin a value."""

_BRACKET = re.compile(r"[{\[]")
_DECODER = json.JSONDecoder()
_AFTER_ANSWER = re.compile(r"\s*(?:```|</answer>|<\|[a-z_]+\|>)?\s*", re.IGNORECASE)
"""The text that may follow the JSON at the end of an answer."""


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
        Return the JSON of *answer*: the answer itself, its only code block, or an object or array that matches the schema in its text.

        In a text with several, it is the one at its end.

        Raises:
            AnswerMismatch: It is not JSON, or does not match the schema.
        """
        text = _extract_json(answer)
        try:
            value: object = orjson.loads(text)
        except orjson.JSONDecodeError as error:
            if (embedded := self._find_embedded(answer)) is not None:
                return embedded
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

    def _find_embedded(self, answer: str) -> str | None:
        """Return the matching object or array at the end of *answer*, or the only one if text without brackets follows it."""
        if self._validator.is_valid("a text"):  # any text matches, so that brackets in it mean nothing
            return None
        text = answer[-_MAX_SEARCHED_CHARS:]
        values = [(start, end) for start, end in _list_json(text) if self._matches(text[start:end])]
        if not values:
            return None
        start, end = values[-1]
        is_last = _AFTER_ANSWER.fullmatch(text, end) is not None
        return text[start:end] if is_last or (len(values) == 1 and _BRACKET.search(text, end) is None) else None

    def _matches(self, text: str) -> bool:
        try:
            value: object = orjson.loads(text)
        except orjson.JSONDecodeError:
            return False
        return not is_too_complex(self.schema, value) and self._validator.is_valid(value)


def _list_json(text: str) -> Iterator[tuple[int, int]]:
    """Yield the start and the end of each object and array in *text* that is in no other."""
    position = 0
    for _ in range(_MAX_SEARCHES):
        bracket = _BRACKET.search(text, position)
        if bracket is None:
            return
        position = bracket.end()
        try:
            _, end = _DECODER.raw_decode(text, bracket.start())
        except (ValueError, RecursionError):
            continue
        yield bracket.start(), end
        position = end


def _extract_json(answer: str) -> str:
    text = answer.strip()
    blocks = _FENCED_BLOCK.findall(text) if "```" in text and text[:1] not in {"{", "["} else []
    return blocks[0].strip() if len(blocks) == 1 else text


def _to_json_pointer(path: list[str | int]) -> str:
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in path)
