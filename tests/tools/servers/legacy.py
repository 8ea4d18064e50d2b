"""
An MCP server over HTTP of the handshake era, with sessions that it forgets on demand; only the standard library.

Prints its port. The path sets the behaviour: /mcp is normal, /login returns 401, /down 503, /half breaks off, /junk is not JSON.
`forget` forgets every session; `half` breaks off its own response; `flood` sends pings without end and reads no response.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import cast

SESSIONS: set[str] = set()
ANY: dict[str, object] = {"type": "object", "properties": {}}
READ_ONLY = {"readOnlyHint": True}
TOOLS: list[dict[str, object]] = [
    {"name": "pid", "inputSchema": ANY, "annotations": READ_ONLY},
    {"name": "write", "inputSchema": ANY},
    {"name": "forget", "inputSchema": ANY},
    {"name": "half", "inputSchema": ANY},
    {"name": "flood", "inputSchema": ANY},
    {"name": "large", "inputSchema": ANY},
    {"name": "header", "inputSchema": ANY},
]


class Handler(BaseHTTPRequestHandler):
    """Answers one request with JSON, never a stream."""

    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""

    def do_GET(self) -> None:
        self._send(405, b"")

    def do_DELETE(self) -> None:
        SESSIONS.discard(self.headers.get("mcp-session-id", ""))
        self._send(200, b"")

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.path == "/login":
            return self._send(401, b"")
        if self.path == "/down":
            return self._send(503, b"<html>down</html>", "text/html")
        if self.path == "/junk":
            return self._send(200, b"{]")
        if self.path == "/half":
            return self._half()
        if "id" not in message:
            return self._send(202, b"")
        if "method" not in message:
            time.sleep(30)
            return self._send(202, b"")
        return self._answer(message)

    def _answer(self, message: dict[str, object]) -> None:
        method, session = message["method"], self.headers.get("mcp-session-id", "")
        headers: dict[str, str] = {}
        if method == "initialize":
            session = uuid.uuid4().hex
            SESSIONS.add(session)
            headers["mcp-session-id"] = session
            info = {"name": "legacy", "version": "1"}
            result: object = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}
        elif method == "server/discover":
            return self._json(message, error={"code": -32601, "message": "unknown method"})
        elif session not in SESSIONS:
            return self._json(message, status=404, error={"code": -32600, "message": "Session not found"})
        elif method == "tools/list":
            result = {"tools": TOOLS}
        else:
            name = str(cast("dict[str, object]", message["params"])["name"])
            if name == "half":
                return self._half()
            if name == "flood":
                return self._flood()
            if name == "forget":
                SESSIONS.clear()
            text = {"pid": str(os.getpid()), "large": "x" * (11 * 1024 * 1024), "header": self.headers.get("x-key", "")}.get(name, "ok")
            result = {"content": [{"type": "text", "text": text}]}
        return self._json(message, headers=headers, result=result)

    def _json(self, message: dict[str, object], status: int = 200, headers: dict[str, str] | None = None, **body: object) -> None:
        self._send(status, json.dumps({"jsonrpc": "2.0", "id": message["id"], **body}).encode(), headers=headers)

    def _send(self, status: int, body: bytes, kind: str = "application/json", headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def _flood(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        self.close_connection = True
        with contextlib.suppress(OSError):
            for number in range(20_000):
                self.wfile.write(b'data: {"jsonrpc":"2.0","id":"%d","method":"ping"}\n\n' % number)

    def _half(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", "1000")
        self.end_headers()
        self.wfile.write(b'{"jsonrpc": "2.0"')
        self.wfile.flush()
        self.close_connection = True


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    sys.stdout.write(f"{server.server_address[1]}\n")
    sys.stdout.flush()
    server.serve_forever()
