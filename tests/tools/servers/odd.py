"""
An MCP server that misbehaves on demand; only the standard library, so that it starts in 20 ms.

Speaks the handshake of 2025-06-18 over stdio. Flags (from its start on) and tools choose how it misbehaves. The tool `slow`
creates the file of its `mark` with the suffix `.started`, ends early once the one with `.end` exists, and creates the file itself
when it is cancelled.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import cast

FLAGS = set(sys.argv[1:])
LOCK = threading.Lock()
CANCELLED: set[object] = set()
CALLS: list[str] = []
"""Every tool called so far."""
LISTS: list[float] = []
"""The times at which its tools were listed."""
ANSWERS: dict[object, object] = {}
"""The responses to its own requests, by request id."""

ANY: dict[str, object] = {"type": "object", "properties": {}}
READ_ONLY = {"readOnlyHint": True}


def schema(**properties: object) -> dict[str, object]:
    """Return the schema of an object with exactly these properties."""
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


STRICT = {
    "$defs": {"point": {"type": "object", "properties": {"x": {"type": "integer"}, "y": {"type": ["integer", "null"]}}, "required": ["x"]}},
    "type": "object",
    "properties": {
        "kind": {"enum": ["a", "b"], "default": None},
        "points": {"type": "array", "items": {"$ref": "#/$defs/point"}, "minItems": 1},
        "odd/na~me": {"type": "string", "maxLength": 3},
    },
    "required": ["kind"],
    "unevaluatedProperties": False,
    "x-vendor": {"kept": None},
}
TOOLS: dict[str, dict[str, object]] = {
    "echo": {"description": "Says it again.", "inputSchema": schema(text={"type": "string"}), "annotations": READ_ONLY},
    "pid": {"description": "Names its process.", "inputSchema": ANY, "annotations": READ_ONLY},
    "count": {"description": "Counts its calls.", "inputSchema": ANY},
    "crash": {"description": "Ends the server.", "inputSchema": ANY},
    "crash_once": {
        "description": "Ends the server the first time.",
        "inputSchema": schema(mark={"type": "string"}),
        "annotations": READ_ONLY,
    },
    "slow": {"description": "Takes its time.", "inputSchema": schema(seconds={"type": "number"}, mark={"type": "string"})},
    "progress": {"description": "Tells how far it is.", "inputSchema": schema(steps={"type": "integer"}, pause={"type": "number"})},
    "large": {"description": "Says a lot.", "inputSchema": schema(bytes={"type": "integer"})},
    "wrong": {"description": "Answers no result.", "inputSchema": ANY},
    "error": {"description": "Fails politely.", "inputSchema": ANY},
    "refuse": {"description": "Fails by the protocol.", "inputSchema": ANY},
    "reject": {"description": "Rejects its arguments by the protocol.", "inputSchema": ANY},
    "strict": {"description": "Is strict.", "inputSchema": STRICT},
    "far": {
        "description": "Refers far away.",
        "inputSchema": {"type": "object", "properties": {"a": {"$ref": "http://127.0.0.1:9/schema"}}},
    },
    "grow": {"description": "Adds a tool.", "inputSchema": ANY},
    "jot": {"description": "Adds a resource.", "inputSchema": schema(title={"type": "string"})},
    "spawn": {"description": "Starts a process of its own.", "inputSchema": ANY},
    "env": {"description": "Shows its environment.", "inputSchema": ANY},
    "flood": {"description": "Tells the same over and over.", "inputSchema": schema(method={"type": "string"}, count={"type": "integer"})},
    "unread": {"description": "Asks, and reads no answer.", "inputSchema": ANY},
    "lists": {"description": "Counts how often it was asked for its tools.", "inputSchema": ANY},
    "ask": {
        "description": "Asks its caller's name, once or more.",
        "inputSchema": schema(count={"type": "integer"}),
        "annotations": READ_ONLY,
    },
    "unreadable": {"description": "Answers what cannot be read.", "inputSchema": schema(how={"type": "string"})},
    "vast": {"description": "Has a schema past 64 bits.", "inputSchema": {"type": "object", "maxProperties": 10**30}},
}
RESOURCES = [
    {"uri": "memo://insights", "name": "Insights", "mimeType": "text/plain"},
    {"uri": "odd://own/thing", "name": "Its own scheme"},
    {"uri": "file:///a%20b.txt", "name": "A file"},
    {"uri": "urn:isbn:9780131103627", "name": "A book"},
    {"uri": "demo://broken", "name": "Listed, but broken"},
]
TEMPLATES = [{"uriTemplate": "demo://resource/{id}", "name": "Any resource"}]
PROMPTS = [{"name": "greet", "description": "Greets.", "arguments": [{"name": "who", "required": True}]}]


def inside(params: object, name: str) -> dict[str, object]:
    """Return an object within an object; empty if it is missing."""
    return cast("dict[str, dict[str, object]]", params).get(name) or {}


def write(message: object) -> None:
    """Send one message."""
    with LOCK:
        sys.stdout.write(json.dumps(message) + "\n")
        sys.stdout.flush()


def text(value: object, **extra_tools: object) -> dict[str, object]:
    """Return a tool's result of one text."""
    return {"content": [{"type": "text", "text": str(value)}], **extra_tools}


def ask(number: int, count: int) -> str:
    """Ask the caller of request *number* that often for a name, and return the answers as JSON."""
    elicitation = {"message": "Who?", "requestedSchema": schema(name={"type": "string"})}
    names = [f"{number}-{index}" for index in range(count)]
    for request_id in names:
        write({"jsonrpc": "2.0", "id": request_id, "method": "elicitation/create", "params": elicitation})
    deadline = time.monotonic() + 4
    while time.monotonic() < deadline and not ANSWERS.keys() >= set(names):
        time.sleep(0.01)
    return json.dumps([ANSWERS.get(request_id) for request_id in names])


def call(  # noqa: C901, PLR0912 - a table of misdeeds
    number: int, name: str, arguments: dict[str, object], token: object
) -> object:
    """Return a tool's result, or misbehave as its name says."""
    CALLS.append(name)
    if name == "echo":
        return text(arguments["text"], structuredContent={"text": arguments["text"]})
    if name == "pid":
        return text(os.getpid())
    if name == "count":
        return text(CALLS.count("count"))
    if name == "crash":
        sys.stderr.write(f"going down with {os.environ.get('ODD_SECRET', 'nothing')}\n")
        sys.stderr.flush()
        os._exit(7)
    if name == "crash_once":
        marker = Path(str(arguments["mark"]))
        if not marker.exists():
            marker.touch()
            os._exit(7)
        return text("back again")
    if name == "slow":
        mark = str(arguments["mark"])
        if mark:
            Path(f"{mark}.started").touch()
        deadline = time.monotonic() + float(str(arguments["seconds"]))
        while time.monotonic() < deadline and not Path(f"{mark}.end").exists():
            if number in CANCELLED:
                Path(mark).touch()
                return None
            time.sleep(0.01)
        return text("done")
    if name == "progress":
        for step in range(int(str(arguments["steps"]))):
            time.sleep(float(str(arguments["pause"])))
            params = {"progressToken": token, "progress": step + 1, "total": arguments["steps"], "message": f"step {step + 1}"}
            write({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})
        return text("done")
    if name == "large":
        return text("x" * int(str(arguments["bytes"])))
    if name == "wrong":
        return {"content": "not a list", "isError": "maybe"}
    if name == "error":
        return text("it did not work", isError=True)
    if name == "jot":
        RESOURCES.append({"uri": f"jot://{arguments['title']}", "name": str(arguments["title"])})
        write({"jsonrpc": "2.0", "method": "notifications/resources/list_changed"})
        return text("jotted")
    if name == "grow":
        if "--quiet" not in FLAGS:
            write({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
        return text("grown")
    if name == "flood":
        payload: dict[str, object] = {"progressToken": token, "progress": 1, "message": "x" * 500, "level": "error", "data": "x" * 500}
        for _ in range(int(str(arguments["count"]))):
            write({"jsonrpc": "2.0", "method": f"notifications/{arguments['method']}", "params": payload})
        return text("done")
    if name == "unread":
        FLAGS.add("--unread")
        for index in range(100):
            write({"jsonrpc": "2.0", "id": f"{index}" + "x" * 1_000_000, "method": "ping"})
        return text("done")
    if name == "lists":
        return text(len(LISTS))
    if name == "ask":
        return text(ask(number, int(str(arguments["count"]))))
    if name == "spawn":
        child = subprocess.Popen(["sleep", "3600"], start_new_session=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        return text(child.pid)
    if name == "unreadable":
        content = {"deep": b"[" * 300 + b"]" * 300, "surrogate": b'"\\ud800"', "bytes": b'"\xff\xfe"', "cut": b'"'}[str(arguments["how"])]
        with LOCK:
            sys.stdout.buffer.write(b'{"jsonrpc": "2.0", "id": %d, "result": {"content": %s}}\n' % (number, content))
            sys.stdout.buffer.flush()
        return None
    if name == "env":
        return text(json.dumps(sorted(os.environ)))
    return text("ok")


def read(number: int, uri: str) -> object:
    """Return a resource's content, or None if it does not exist. Those whose names begin with "asked" depend on the caller's answer."""
    if uri.startswith("demo://resource/asked"):
        answers = ask(number, 1)
        while uri.endswith("in-vain"):
            time.sleep(1)
        return {"contents": [{"uri": uri, "mimeType": "text/plain", "text": answers}]}
    if uri == "demo://broken":
        raise RuntimeError("the disk is on fire")
    if uri in {str(resource["uri"]) for resource in RESOURCES} or uri.startswith("demo://resource/"):
        return {"contents": [{"uri": uri, "mimeType": "text/plain", "text": f"content of {uri}"}]}
    return None


def answer(number: int, method: str, params: dict[str, object]) -> None:  # noqa: C901, PLR0912 - a table of methods
    """Answer one request."""
    result: object = None
    error: dict[str, object] | None = None
    extra_tools: dict[str, dict[str, object]]
    if method == "initialize":
        capabilities = {"tools": {"listChanged": True}, "resources": {}, "prompts": {}}
        info = {"name": "odd", "version": "1"}
        result = {"protocolVersion": "2025-06-18", "capabilities": capabilities, "serverInfo": info, "instructions": "Be careful."}
    elif method == "tools/list":
        gate = os.environ.get("ODD_GATE")
        while gate and not Path(gate).exists():
            time.sleep(0.01)
        LISTS.extend([time.monotonic()] if "cursor" not in params else [])
        extra_tools = {"late": {"description": "Came later.", "inputSchema": ANY}} if "grow" in CALLS else {}
        tools = [{"name": name, **rest} for name, rest in {**TOOLS, **extra_tools}.items()]
        tools += [{"name": "bad", "inputSchema": "none"}, {"name": "worse"}] if "--bad-schema" in FLAGS else []
        tools += [{"name": f"more_{number}", "inputSchema": ANY} for number in range(6000)] if "--many" in FLAGS else []
        tools += [{"name": "long", "inputSchema": ANY, "execution": {"taskSupport": "required"}}] if "--task" in FLAGS else []
        tools = [] if "--empty" in FLAGS else tools
        start = int(str(params.get("cursor", 0)))
        step = 1000 if "--many" in FLAGS else 8
        result = {"tools": tools[start : start + step], **({"nextCursor": str(start + step)} if start + step < len(tools) else {})}
        if "--alternating" in FLAGS and "pid" in CALLS and len(LISTS) % 2:
            result = {"tools": []}
    elif method == "resources/list":
        result = {"resources": [] if "--empty" in FLAGS else RESOURCES}
    elif method == "resources/templates/list" and "--no-templates" not in FLAGS:
        result = {"resourceTemplates": [] if "--empty" in FLAGS else TEMPLATES}
    elif method == "prompts/list" and "--no-prompts" in FLAGS:
        error = {"code": -32603, "message": "the store of prompts is down"}
    elif method == "prompts/list" and "grow" in CALLS:
        result = {"prompts": [*PROMPTS, {"name": "grown"}]}
    elif method == "prompts/list":
        result = {"prompts": [] if "--empty" in FLAGS else PROMPTS}
    elif method == "prompts/get":
        who = inside(params, "arguments").get("who")
        if who is None:
            error = {"code": -32602, "message": "who is missing"}
        else:
            greeted = ask(number, 1) if who == "?" else who
            message = {"role": "user", "content": {"type": "text", "text": f"Hello {greeted}"}}
            result = {"description": "A greeting", "messages": [message]}
    elif method == "resources/read":
        try:
            result = read(number, str(params["uri"]))
        except RuntimeError as failure:
            error = {"code": -32603, "message": str(failure)}
        if result is None and error is None:
            error = {"code": -32002, "message": "Resource not found"}
    elif method == "tools/call" and params["name"] not in {"refuse", "reject"}:
        token = inside(params, "_meta").get("progressToken")
        result = call(number, str(params["name"]), inside(params, "arguments"), token)
        if result is None:
            return
    elif method == "tools/call":
        error = {"code": -32603, "message": "not today"} if params["name"] == "refuse" else {"code": -32602, "message": "not these"}
    else:
        error = {"code": -32601, "message": f"unknown method {method}"}
    if method == "tools/list" and "--no-tools" in FLAGS:
        result, error = None, {"code": -32603, "message": "the store of tools is down"}
    write({"jsonrpc": "2.0", "id": number, **({"result": result} if error is None else {"error": error})})
    if method == "tools/list" and "--restless" in FLAGS:
        write({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})


def main() -> None:  # noqa: C901 - a table of flags
    """Serve stdin until it ends; longer with `--deaf`."""
    if "--exit" in FLAGS:
        sys.stderr.write(f"cannot find my configuration {' '.join(sys.argv[1:])}\n")
        sys.exit(3)
    if "--deaf" in FLAGS:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "--grandchild" in FLAGS:
        subprocess.Popen(["sleep", "3600"], stdin=subprocess.DEVNULL)
    if "--noise" in FLAGS:
        sys.stdout.write("Welcome to odd!\n{not json\n\n[]\n\x00\xff\n")
        sys.stdout.flush()
    for line in sys.stdin:
        while "--unread" in FLAGS:
            time.sleep(1)
        message = json.loads(line)
        if "--hang" in FLAGS:
            continue
        if message.get("method") == "notifications/cancelled":
            CANCELLED.add(message["params"]["requestId"])
        if "id" in message and "method" not in message:
            ANSWERS[message["id"]] = message.get("result") or message["error"]["message"]
        if "id" in message and "method" in message:
            if "--noise" in FLAGS:
                sys.stdout.write("debug: handling a request\n")
            thread = threading.Thread(target=answer, args=(message["id"], message["method"], message.get("params") or {}), daemon=True)
            thread.start()
    while "--deaf" in FLAGS:
        time.sleep(1)


main()
