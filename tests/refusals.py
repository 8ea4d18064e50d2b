"""The error body of an answer, whatever protocol the route speaks (D-10, D-36)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import httpx2


def error_body(answer: httpx2.Response) -> dict[str, object]:
    """Return D-10's body of *answer*; at `POST /mcp` it is the data of a JSON-RPC error, with the same sentence."""
    return unwrapped(cast("dict[str, object]", answer.json()))


def unwrapped(body: Mapping[str, object]) -> dict[str, object]:
    """Return D-10's body, given all of what was answered."""
    error = body.get("error")
    if "jsonrpc" not in body or not isinstance(error, dict):
        return dict(body)
    inner = cast("dict[str, object]", error)
    data = inner.get("data")
    if not isinstance(data, dict) or "error" not in data:  # an error of the protocol's own
        return dict(body)
    ours = cast("dict[str, object]", data)
    assert inner["message"] == ours["message"]
    return ours
