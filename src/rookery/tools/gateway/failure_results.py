"""The results of tool calls that failed without a result of the tool. No SDK is imported, so that a call can fail before it is."""

from __future__ import annotations

from rookery.tools.models import JsonObject

_ERROR_META_KEY = "rookery/error"
"""The `_meta` key that holds the HTTP API's error body of a rejected call, for programs."""


def build_failure_result(text: str, detail: JsonObject) -> JsonObject:
    """Return an error result with *text*, for the model."""
    return {"content": [{"type": "text", "text": text}], "isError": True, "_meta": {_ERROR_META_KEY: detail}}
