"""An MCP server that shows the `_meta` of its calls, and their number; only the standard library."""

from __future__ import annotations

import json
import sys
from typing import cast

CALLS: list[object] = []
TOOLS = [{"name": "show", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}}]
PROMPTS = [{"name": "show"}]


def show(params: dict[str, object]) -> str:
    """Return the `_meta` of a request, without the key of Rookery's own request."""
    CALLS.append(params)
    meta = {name: value for name, value in cast("dict[str, object]", params.get("_meta") or {}).items() if name != "progressToken"}
    return json.dumps({"calls": len(CALLS), "meta": meta})


def answer(method: str, params: dict[str, object]) -> dict[str, object]:
    """Return the result of a request."""
    if method == "initialize":
        info = {"name": "meta", "version": "1"}
        return {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}, "prompts": {}}, "serverInfo": info}
    if method == "tools/call":
        return {"content": [{"type": "text", "text": show(params)}]}
    if method == "prompts/get":
        return {"messages": [{"role": "user", "content": {"type": "text", "text": show(params)}}]}
    return {"tools": TOOLS, "prompts": PROMPTS}


if __name__ == "__main__":
    for line in sys.stdin:
        request = json.loads(line)
        if "id" in request and "method" in request:
            result = answer(request["method"], request.get("params") or {})
            sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}) + "\n")
            sys.stdout.flush()
