"""Helpers that read the error body of a response of any protocol."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import httpx2


def error_body(response: httpx2.Response) -> dict[str, object]:
    """Return the error body of *response*; at `POST /mcp` it is the data of a JSON-RPC error with the same message."""
    return unwrap_error(cast("dict[str, object]", response.json()))


def unwrap_error(body: Mapping[str, object]) -> dict[str, object]:
    """Return the error body inside a response body."""
    error = body.get("error")
    if "jsonrpc" not in body or not isinstance(error, dict):
        return dict(body)
    inner = cast("dict[str, object]", error)
    data = inner.get("data")
    if not isinstance(data, dict) or "error" not in data:  # an error of the protocol itself
        return dict(body)
    wrapped = cast("dict[str, object]", data)
    assert inner["message"] == wrapped["message"]
    return wrapped
