"""
An MCP server that is made for one client: each call reads its file, and replaces it a little later. Only the standard library.

Speaks the handshake of 2025-06-18 over stdio. The argument is the file.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import cast

Json = dict[str, object]

FILE = Path(sys.argv[1])
TOOL: Json = {"name": "note", "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}}
WRITE_DELAY_S = 0.005


def call(params: Json) -> Json:
    """Add the text to the lines of the file."""
    lines = FILE.read_text(encoding="utf-8") if FILE.exists() else ""
    time.sleep(WRITE_DELAY_S)
    arguments = cast("dict[str, str]", params["arguments"])
    FILE.write_text(f"{lines}{arguments['text']}\n", encoding="utf-8")
    return {"content": [{"type": "text", "text": "noted"}]}


def answer(method: str, params: Json) -> Json:
    """Return the result of a request."""
    match method:
        case "initialize":
            info: Json = {"name": "rewriting", "version": "1"}
            return {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}
        case "tools/list":
            return {"tools": [TOOL]}
        case "tools/call":
            return call(params)
        case _:
            return {}


for line in sys.stdin:
    message = cast("Json", json.loads(line))
    if "id" in message and "method" in message:
        result = answer(str(message["method"]), cast("Json", message.get("params") or {}))
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)  # noqa: T201 - the transport
