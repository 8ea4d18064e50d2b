"""What a tool answered, as we answer it: the result in full, or why it is none (D-34). Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import cast

import orjson

from rookery.tools.models import FailureCode, JsonObject

MAX_RESULT_BYTES = 10 * 1024 * 1024
"""D-34."""

_PROTOCOL_FIELDS = frozenset({"resultType", "_meta", "ttlMs", "cacheScope"})
"""Fields of the wire, not of the tool; _meta would name the upstream's software."""

_DEFAULT_ERROR = "The tool failed without a word."


class ToolCallFailed(Exception):
    """The call came to a failure of the tool, or of reaching it."""

    def __init__(self, code: FailureCode, error: str, result: bytes | None = None) -> None:
        super().__init__(error)
        self.code: FailureCode = code
        self.error = error or _DEFAULT_ERROR
        self.result = result


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """
    What a tool answered, as JSON.

    Attributes:
        requires_input: It is no result yet: {inputRequests, requestState?}, to be answered in another call.
        is_personal: The tool asked its caller for something on the way, so that it is nobody else's.
    """

    content: bytes
    requires_input: bool = False
    is_personal: bool = False


def describe_failure(code: str, server_id: str, tool: str, error: str) -> str:
    """Return the sentence for a failed call: what failed, and what the caller can do."""
    name = f"{server_id}/{tool}"
    if code == "tool_timeout":
        return f"{error} {name} may still have acted: look before you call it again."
    if code == "server_unavailable":
        return f"The server {server_id!r} could not be reached, or ended during the call: {error}"
    if code == "result_too_large":
        return f"{error} Ask {name} for less."
    return f"The tool {name} answered with an error; `error` is its text. Change the arguments before you call it again."


def parse_result(result: JsonObject) -> ToolResult:
    """
    Return what the upstream answered, without the wire's own fields.

    Raises:
        Failed: It says that the tool failed, or is larger than we pass on.
    """
    kind = result.get("resultType", "complete")
    shown = {name: value for name, value in result.items() if name not in _PROTOCOL_FIELDS}
    if kind == "input_required":
        shown.setdefault("inputRequests", dict[str, object]())
        return ToolResult(content=_to_limited_json(shown), requires_input=True)
    if kind != "complete":
        raise ToolCallFailed("tool_execution_error", f"The server answered with a result of an unknown kind: {str(kind)[:100]}.")
    shown.setdefault("content", list[object]())
    shown.setdefault("isError", False)
    content = _to_limited_json(shown)
    if shown["isError"] is True:
        raise ToolCallFailed("tool_execution_error", _find_first_text(shown), content)
    return ToolResult(content=content)


def to_json(value: JsonObject) -> bytes:
    """
    Return *value* as JSON; what orjson does not take (integers past 64 bits, lone surrogates) the slower way.

    Raises:
        Failed: It has something in it that no JSON can say.
    """
    try:
        return orjson.dumps(value)
    except TypeError:
        try:
            return json.dumps(value, allow_nan=False).encode()
        except (TypeError, ValueError) as error:
            raise ToolCallFailed("tool_execution_error", f"The result is no JSON: {error}") from error


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
