"""
An MCP server that responds out of order, with other messages in between; only the standard library, so that it starts in 20 ms.

It waits for a batch of calls, whose size each call names, then responds in the order that they request. Stdio, protocol 2025-06-18.
"""

from __future__ import annotations

import json
import sys
from typing import cast

Message = dict[str, object]

WAITING: list[Message] = []


def write(*messages: Message) -> None:
    """Send messages, all at once."""
    sys.stdout.write("".join(json.dumps({"jsonrpc": "2.0", **message}) + "\n" for message in messages))
    sys.stdout.flush()


def inside(params: object, name: str) -> Message:
    """Return an object within an object; empty if it is missing."""
    return cast("dict[str, Message]", params).get(name) or {}


def text(value: object) -> Message:
    """Return a tool's result of one text."""
    return {"content": [{"type": "text", "text": str(value)}]}


def progress(token: object, value: object) -> Message:
    """Return a notice of progress."""
    return {"method": "notifications/progress", "params": {"progressToken": token, "progress": value}}


def make_messages(number: object, params: object) -> list[Message]:
    """Return the messages of one call: its response, and the extra messages that it requests."""
    arguments = inside(params, "arguments")
    response_id: object = str(number) if arguments.get("as_text") else number
    response: Message = {"id": response_id, "result": text(arguments["mark"])}
    extra_messages: dict[str, Message] = {
        "stranger": {"id": 2**40, "result": text("for nobody")},
        "unasked": {"id": "nobody's", "error": {"code": -32000, "message": "for nobody"}},
        "nobody": {"method": "notifications/progress", "params": {"progressToken": 2**40, "progress": 1}},
        "no number": progress(response_id, "half"),
        "progress": progress(response_id, arguments["mark"]),
        "log": {"method": "notifications/message", "params": {"level": "info", "data": "nearly"}},
    }
    extras = [extra_messages[name] for name in cast("list[str]", arguments.get("before", []))]
    return [*extras, response, *([{"id": number, "result": text("again")}] if arguments.get("twice") else [])]


def answer(number: object, method: str, params: Message) -> None:
    """Answer one request, now or with others."""
    if method == "initialize":
        info = {"name": "muddled", "version": "1"}
        write({"id": number, "result": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}, "logging": {}}, "serverInfo": info}})
    elif method == "tools/list":
        write({"id": number, "result": {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in ("echo", "muddle")]}})
    elif method == "tools/call" and params["name"] == "echo":
        write({"id": number, "result": text(json.dumps(params))})
    elif method == "tools/call":
        WAITING.append({"number": number, "params": params})
        if len(WAITING) == inside(params, "arguments")["batch"]:
            batch = sorted(WAITING, key=lambda entry: cast("int", inside(entry["params"], "arguments")["place"]))
            WAITING.clear()
            write(*(message for entry in batch for message in make_messages(entry["number"], entry["params"])))
    else:
        write({"id": number, "error": {"code": -32601, "message": f"unknown method {method}"}})


for line in sys.stdin:
    request = json.loads(line)
    if "id" in request and "method" in request:
        answer(request["id"], request["method"], request.get("params") or {})
