"""An MCP server whose results are the number of calls so far; only the standard library, so that it starts in 20 ms."""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path
from typing import cast

LOCK = threading.Lock()
CALLS: list[str] = []
ANY: dict[str, object] = {"type": "object"}
READ_ONLY = {"readOnlyHint": True}
TOOLS = [
    {"name": "read", "inputSchema": ANY, "annotations": READ_ONLY},
    {"name": "read_late", "inputSchema": ANY, "annotations": READ_ONLY},
    {"name": "fail", "inputSchema": ANY, "annotations": READ_ONLY},
    {"name": "write", "inputSchema": ANY},
]


def send(message: dict[str, object]) -> None:
    """Write one message."""
    with LOCK:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()


def call(name: str, arguments: dict[str, object]) -> dict[str, object]:
    """Run a tool; `read_late` creates the file `gate` with the suffix `.started`, and waits for the file `gate` itself."""
    with LOCK:
        CALLS.append(name)
        text = str(len(CALLS))
    if name == "read_late":
        gate = Path(str(arguments["gate"]))
        Path(f"{gate}.started").touch()
        while not gate.exists():
            time.sleep(0.01)
    return {"content": [{"type": "text", "text": text + "." * int(str(arguments.get("pad", 0)))}], "isError": name == "fail"}


def answer(number: object, method: str, params: dict[str, object]) -> None:
    """Answer one request."""
    if method == "initialize":
        info = {"name": "counting", "version": "1"}
        send({"id": number, "result": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}})
    elif method == "tools/list":
        send({"id": number, "result": {"tools": TOOLS}})
    elif method == "tools/call":
        send({"id": number, "result": call(str(params["name"]), cast("dict[str, object]", params.get("arguments") or {}))})
    else:
        send({"id": number, "error": {"code": -32601, "message": "Method not found"}})


for line in sys.stdin:
    request = json.loads(line)
    if "id" in request and "method" in request:
        threading.Thread(target=answer, args=(request["id"], request["method"], request.get("params") or {}), daemon=True).start()
