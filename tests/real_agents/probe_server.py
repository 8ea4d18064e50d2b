"""A tool server whose results have marks, so that a run sees which part of a result a model gets. Only the standard library."""

from __future__ import annotations

import json
import sys
from typing import cast

TEXT_MARK = "MARK-OF-THE-TEXT"
STRUCTURED_MARK = "MARK-OF-THE-FIELDS"
ERROR_MARK = "MARK-OF-THE-ERROR"
LONG_NAME = "a_tool_whose_name_has_fifty_nine_characters_and_is_read_only"
_READ_ONLY = {"readOnlyHint": True, "openWorldHint": False}
_SIZE = {"type": "object", "properties": {"characters": {"type": "integer"}}, "required": ["characters"]}


def build_long_text(characters: int) -> str:
    """Return numbered lines of 20 characters, so that a part of the text shows its place."""
    return "".join(f"line {number:07} of it.\n" for number in range(characters // 20))


def call(name: str, arguments: dict[str, object]) -> dict[str, object]:
    """Return the result of a tool."""
    if name == "long_result":
        return {"content": [{"type": "text", "text": build_long_text(int(str(arguments["characters"])))}]}
    if name == "failing":
        return {"content": [{"type": "text", "text": ERROR_MARK}], "structuredContent": {"mark": STRUCTURED_MARK}, "isError": True}
    return {"content": [{"type": "text", "text": TEXT_MARK}], "structuredContent": {"mark": STRUCTURED_MARK}}


def main() -> None:
    """Answer the requests of the handshake era until the input ends."""
    names = {"halves": {}, "failing": {}, "long_result": _SIZE, LONG_NAME: {}}
    tools = [
        {
            "name": name,
            "description": f"A probe: {name}.",
            "inputSchema": schema or {"type": "object", "properties": {}},
            "annotations": _READ_ONLY,
        }
        for name, schema in names.items()
    ]
    for line in sys.stdin:
        message = cast("dict[str, object]", json.loads(line))
        method, params = message.get("method"), cast("dict[str, object]", message.get("params") or {})
        result: dict[str, object] | None = None
        if method == "initialize":
            server = {"name": "probe", "version": "1"}
            result = {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": server}
        elif method == "tools/list":
            result = {"tools": tools}
        elif method == "tools/call":
            result = call(str(params["name"]), cast("dict[str, object]", params.get("arguments") or {}))
        elif method == "ping":
            result = {}
        if "id" in message:
            outcome = {"error": {"code": -32601, "message": "unknown method"}} if result is None else {"result": result}
            print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **outcome}), flush=True)


if __name__ == "__main__":
    main()
