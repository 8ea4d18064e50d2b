"""
An MCP server that answers out of order, and says much in between; only the standard library, so that it starts in 20 ms.

Speaks the handshake of 2025-06-18 over stdio. It waits until as many calls as each says are there, then answers them as they ask for.
"""

from __future__ import annotations

import json
import sys
from typing import cast

Message = dict[str, object]

WAITING: list[Message] = []


def write(*messages: Message) -> None:
    """Send messages, all at once."""
    sys.stdout.write("".join(json.dumps({"jsonrpc": "2.0", **each}) + "\n" for each in messages))
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


def said(number: object, params: object) -> list[Message]:
    """Return what is said of one call: its answer, and around it what it asks for."""
    arguments = inside(params, "arguments")
    shown: object = str(number) if arguments.get("as_text") else number
    answer: Message = {"id": shown, "result": text(arguments["mark"])}
    before: dict[str, Message] = {
        "stranger": {"id": 2**40, "result": text("for nobody")},
        "unasked": {"id": "nobody's", "error": {"code": -32000, "message": "for nobody"}},
        "nobody": {"method": "notifications/progress", "params": {"progressToken": 2**40, "progress": 1}},
        "no number": progress(shown, "half"),
        "progress": progress(shown, arguments["mark"]),
        "log": {"method": "notifications/message", "params": {"level": "info", "data": "nearly"}},
    }
    around = [before[name] for name in cast("list[str]", arguments.get("before", []))]
    return [*around, answer, *([{"id": number, "result": text("again")}] if arguments.get("twice") else [])]


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
            together = sorted(WAITING, key=lambda each: cast("int", inside(each["params"], "arguments")["place"]))
            WAITING.clear()
            write(*(message for each in together for message in said(each["number"], each["params"])))
    else:
        write({"id": number, "error": {"code": -32601, "message": f"unknown method {method}"}})


for line in sys.stdin:
    asked = json.loads(line)
    if "id" in asked and "method" in asked:
        answer(asked["id"], asked["method"], asked.get("params") or {})
