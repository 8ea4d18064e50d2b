"""Conversion of an upstream's result into the API's result or failure (D-34). No I/O."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import cast

import orjson

from rookery.tools.models import FailureCode, JsonObject

MAX_RESULT_BYTES = 10 * 1024 * 1024
"""Limit on the size of a result in bytes (D-34)."""

_PROTOCOL_FIELDS = frozenset({"resultType", "_meta", "ttlMs", "cacheScope"})
"""Fields of the protocol, not of the tool. `_meta` would reveal the upstream's software."""

_DEFAULT_ERROR = "The tool failed without an error message."


class ToolCallFailed(Exception):
    """The tool failed or could not be reached."""

    def __init__(self, code: FailureCode, error: str, result: bytes | None = None) -> None:
        super().__init__(error)
        self.code: FailureCode = code
        self.error = error or _DEFAULT_ERROR
        self.result = result


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """
    The result of a tool, as JSON.

    Attributes:
        requires_input: The content is {inputRequests, requestState?}, to be answered in another call.
        is_personal: The tool requested input from its caller, so other callers may not share the result.
    """

    content: bytes
    requires_input: bool = False
    is_personal: bool = False


def describe_failure(code: str, server_id: str, tool: str, error: str) -> str:
    """Return the message of a failed call: what failed and what the caller can do."""
    name = f"{server_id}/{tool}"
    if code == "tool_timeout":
        return f"{error} {name} may still have acted: check before you call it again."
    if code == "server_unavailable":
        return f"The server {server_id!r} could not be reached, or exited during the call: {error}"
    if code == "result_too_large":
        return f"{error} Request less from {name}."
    return f"The tool {name} returned an error; `error` is its text. Change the arguments before you call it again."


def parse_result(result: JsonObject) -> ToolResult:
    """
    Return the upstream's result without the protocol's own fields.

    Raises:
        ToolCallFailed: The result reports a failure, has an unknown type, or is too large.
    """
    kind = result.get("resultType", "complete")
    fields = {name: value for name, value in result.items() if name not in _PROTOCOL_FIELDS}
    if kind == "input_required":
        fields.setdefault("inputRequests", dict[str, object]())
        return ToolResult(content=_to_limited_json(fields), requires_input=True)
    if kind != "complete":
        raise ToolCallFailed("tool_execution_error", f"The server returned a result of an unknown type: {str(kind)[:100]}.")
    fields.setdefault("content", list[object]())
    fields.setdefault("isError", False)
    content = _to_limited_json(fields)
    if fields["isError"] is True:
        raise ToolCallFailed("tool_execution_error", _find_first_text(fields), content)
    return ToolResult(content=content)


def to_json(value: JsonObject) -> bytes:
    """
    Return *value* as JSON. Values that orjson rejects (integers beyond 64 bits, lone surrogates) use the slower json module.

    Raises:
        ToolCallFailed: *value* cannot be represented as JSON.
    """
    try:
        return orjson.dumps(value)
    except TypeError:
        try:
            return json.dumps(value, allow_nan=False).encode()
        except (TypeError, ValueError) as error:
            raise ToolCallFailed("tool_execution_error", f"The result cannot be represented as JSON: {error}") from error


def _to_limited_json(value: JsonObject) -> bytes:
    content = to_json(value)
    if len(content) > MAX_RESULT_BYTES:
        raise ToolCallFailed("result_too_large", "The result is larger than 10 MiB.")
    return content


def _find_first_text(result: JsonObject) -> str:
    content = result["content"]
    for block in cast("list[object]", content if isinstance(content, list) else []):
        if isinstance(block, dict):
            text = cast("dict[str, object]", block).get("text")
            if isinstance(text, str) and text:
                return text
    return ""
