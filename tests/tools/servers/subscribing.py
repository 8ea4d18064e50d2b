"""
An MCP server of the older era with one resource, which answers a subscription only after a file exists.

Only the standard library. Its argument is the file; the tool `change` announces a change of the resource if a client has subscribed.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path

GATE = Path(sys.argv[1])
LOCK = threading.Lock()
URI = "test://watched"
SUBSCRIBED: set[str] = set()


def send(message: dict[str, object]) -> None:
    """Write one message."""
    with LOCK:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()


def subscribe(number: object) -> None:
    """Answer a subscription once the gate is open."""
    deadline = time.monotonic() + 30
    while not GATE.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    SUBSCRIBED.add(URI)
    send({"id": number, "result": {}})


def answer(method: str, number: object) -> None:
    """Answer one request."""
    if method == "resources/subscribe":
        threading.Thread(target=subscribe, args=(number,), daemon=True).start()
        return
    result: dict[str, object] = {}
    if method == "initialize":
        result = {
            "protocolVersion": "2025-06-18",
            "capabilities": {"tools": {}, "resources": {"subscribe": True}},
            "serverInfo": {"name": "subscribing", "version": "1"},
        }
    elif method == "tools/list":
        result = {"tools": [{"name": "change", "inputSchema": {"type": "object"}}]}
    elif method == "resources/list":
        result = {"resources": [{"uri": URI, "name": "watched"}]}
    elif method == "resources/templates/list":
        result = {"resourceTemplates": []}
    elif method == "resources/unsubscribe":
        SUBSCRIBED.discard(URI)
    elif method == "tools/call":
        if URI in SUBSCRIBED:
            send({"method": "notifications/resources/updated", "params": {"uri": URI}})
        result = {"content": [{"type": "text", "text": f"{len(SUBSCRIBED)} subscribed"}]}
    elif method != "ping":
        send({"id": number, "error": {"code": -32601, "message": "Method not found"}})
        return
    send({"id": number, "result": result})


for line in sys.stdin:
    request = json.loads(line)
    if "id" in request and "method" in request:
        answer(request["method"], request["id"])
