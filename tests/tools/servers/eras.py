"""
An MCP server over stdio, or over HTTP with `--http`, whose protocol the file `mode` in its folder names; only the standard library.

Writes a line to the file `log` in its folder at its start ("start") and for each method that it receives. The file `version` is its
version, the file `stderr` what it writes to standard error at its start. Modes:

- handshake: `initialize`; other methods before it get an error.
- strict: like handshake, but exits unless `initialize` is the first message, and `notifications/initialized` the second.
- polite: like strict, but answers the wrong first message with an error before it exits.
- silent: like handshake, but ignores unknown methods.
- modern: only 2026-07-28; `initialize` gets the error of an unsupported revision.
- deaf: only 2026-07-28; ignores `initialize`.
- locked: both eras, whichever comes first; the other one is then rejected.
- slow: like locked, but reads two messages before it answers the first.
- mute: answers nothing.
- dead: exits after its first message.
- broken: exits before it reads anything.
- sullen: like handshake, but rejects `initialize` too after `server/discover`.
- picky: like strict, but exits after `initialize` too, for another reason.
"""

from __future__ import annotations

import json
import os
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import cast

FOLDER = Path(sys.argv[-1])
MODE = (FOLDER / "mode").read_text().strip()
MODERN = "2026-07-28"
COMPLETE = {"resultType": "complete", "ttlMs": 0, "cacheScope": "public"}
TOOLS = {"tools": [{"name": "era", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}}]}
STATE: dict[str, str] = {}


def log(word: str) -> None:
    """Append a line to the log."""
    with (FOLDER / "log").open("a") as file:
        file.write(word + "\n")


def read(name: str) -> str:
    """Return the text of an optional file."""
    path = FOLDER / name
    return path.read_text() if path.exists() else ""


def answer(message: dict[str, object]) -> dict[str, object] | None:
    """Return the result or the error of a request. None: it is ignored."""
    method, params = str(message["method"]), cast("dict[str, object]", message.get("params") or {})
    about = {"name": "eras", "version": read("version") or "1"}
    is_modern_only = MODE in {"modern", "deaf"}
    before, STATE["last"] = STATE.get("last"), method
    if MODE == "sullen" and (before, method) == ("server/discover", "initialize"):
        return {"error": {"code": -32600, "message": "Already in use"}}
    if method == "server/discover" and (is_modern_only or (MODE in {"locked", "slow"} and STATE.setdefault("era", "modern") == "modern")):
        capabilities: dict[str, object] = {"tools": {}}
        meta = {"io.modelcontextprotocol/serverInfo": about}
        return {"result": {**COMPLETE, "supportedVersions": [MODERN], "capabilities": capabilities, "_meta": meta}}
    if method == "initialize" and not is_modern_only and STATE.setdefault("era", "handshake") == "handshake":
        offered = str(params["protocolVersion"])
        log(f"offered {offered}")
        return {"result": {"protocolVersion": min(offered, "2025-06-18"), "capabilities": {"tools": {}}, "serverInfo": about}}
    if method == "initialize":
        error = {"code": -32022, "message": "Unsupported protocol version", "data": {"supported": [MODERN], "requested": "2025-11-25"}}
        return None if MODE == "deaf" else {"error": error}
    if method in {"tools/list", "tools/call"}:
        is_modern = MODERN in json.dumps(params)
        extra = COMPLETE if is_modern else {}
        text = {"content": [{"type": "text", "text": MODERN if is_modern else "handshake"}]}
        return {"result": {**(TOOLS if method == "tools/list" else text), **extra}}
    return None if MODE == "silent" else {"error": {"code": -32601, "message": "Method not found"}}


def write(message: dict[str, object], response: dict[str, object] | None) -> None:
    """Send the response to a request."""
    if response is not None and "id" in message:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], **response}) + "\n")
        sys.stdout.flush()


def serve_stdio() -> None:
    """Serve until stdin ends."""
    if MODE == "broken":
        sys.exit("no token")
    expected = ["initialize", "notifications/initialized"] if MODE in {"strict", "polite", "picky"} else []
    waiting: list[dict[str, object]] = []
    number = 0
    for line in sys.stdin:
        message = json.loads(line)
        method = str(message["method"])
        log(method)
        number += 1
        if MODE == "dead" or (expected and method != expected[0]):
            if MODE == "polite":
                write(message, {"error": {"code": -32600, "message": "Expected initialize"}})
            sys.stderr.write(f"expect {(expected or ['nothing'])[0]} request\n")
            sys.stderr.flush()
            os._exit(1)
        if MODE == "picky":
            sys.exit(f"process {os.getpid()} has no token at {time.time()}")
        expected = expected[1:]
        if MODE == "mute":
            continue
        if MODE == "slow" and number == 1:
            waiting.append(message)
            continue
        for each in (*waiting, message):
            if "id" in each:
                write(each, answer(each))
        waiting.clear()


class Handler(BaseHTTPRequestHandler):
    """Answers one request with JSON."""

    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""

    def do_GET(self) -> None:
        self._send(405, b"")

    def do_DELETE(self) -> None:
        self._send(200, b"")

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        log(str(message["method"]))
        response = answer(message) if "id" in message else None
        if response is None:
            return self._send(202, b"")
        return self._send(200, json.dumps({"jsonrpc": "2.0", "id": message["id"], **response}).encode())

    def _send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


if __name__ == "__main__":
    log("start")
    sys.stderr.write(read("stderr"))
    sys.stderr.flush()
    if "--http" in sys.argv:
        http_server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        sys.stdout.write(f"{http_server.server_address[1]}\n")
        sys.stdout.flush()
        http_server.serve_forever()
    else:
        serve_stdio()
