"""
An MCP server over HTTP that answers requests with any error status, only the standard library: `refusing.py OPTIONS`.

Prints its port. `/mcp` is Streamable HTTP of the handshake era, or stateless with the option `modern`; `/sse` is the older kind.
`POST /control` with a JSON object changes the options, and returns what was received; `forget` clears that. The tool `slow` ends when
`release` is set.
"""

from __future__ import annotations

import json
import queue
import sys
import threading
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import cast
from urllib.parse import parse_qs, urlsplit

Json = dict[str, object]

OPTIONS: Json = {
    "refused": {},  # by method, or for tools/call by the tool: {"status", "body", "type", "headers"}
    "tokens": [],  # the accepted values of Authorization, for the methods in `guarded`
    "guarded": [],  # methods, or tools
    "modern": False,  # the stateless protocol
}
RECEIVED: list[Json] = []
STREAMS: dict[str, queue.Queue[bytes]] = {}
RELEASED = threading.Event()
ANY: Json = {"type": "object"}
TOOLS: list[Json] = [
    {"name": "slow", "inputSchema": ANY},
    {"name": "quick", "inputSchema": ANY, "annotations": {"readOnlyHint": True}},
    {"name": "write", "inputSchema": ANY},
]
RESULTS: dict[str, Json] = {
    "initialize": {
        "protocolVersion": "2025-06-18",
        "capabilities": {"tools": {}, "resources": {"subscribe": True}, "prompts": {}, "completions": {}},
        "serverInfo": {"name": "refusing", "version": "1"},
    },
    "tools/list": {"tools": TOOLS},
    "resources/list": {"resources": [{"uri": "docs://one", "name": "One"}]},
    "resources/templates/list": {"resourceTemplates": []},
    "resources/read": {"contents": [{"uri": "docs://one", "text": "one"}]},
    "prompts/list": {"prompts": [{"name": "greet"}]},
    "prompts/get": {"messages": [{"role": "user", "content": {"type": "text", "text": "hello"}}]},
    "completion/complete": {"completion": {"values": ["a"]}},
    "resources/subscribe": {},
    "resources/unsubscribe": {},
    "ping": {},
}


class Handler(BaseHTTPRequestHandler):
    """One request."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # otherwise the body waits 40 ms for the acknowledgement of the headers

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""

    def do_DELETE(self) -> None:
        self._send(200)

    def do_GET(self) -> None:
        if urlsplit(self.path).path != "/sse":
            return self._send(405)
        if self._refuse("GET"):
            return None
        session, stream = uuid.uuid4().hex, queue.Queue[bytes]()
        STREAMS[session] = stream
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        self.close_connection = True
        try:
            self.wfile.write(f"event: endpoint\ndata: /messages?session={session}\n\n".encode())
            while True:
                self.wfile.flush()
                self.wfile.write(b"event: message\ndata: " + stream.get() + b"\n\n")
        except OSError:
            return None

    def do_POST(self) -> None:
        message = cast("Json", json.loads(self.rfile.read(int(self.headers["content-length"]))))
        parts = urlsplit(self.path)
        if parts.path == "/control":
            return self._control(message)
        method = str(message.get("method"))
        params = cast("Json", message.get("params") or {})
        name = str(params["name"]) if method == "tools/call" else method
        RECEIVED.append({"name": name, "authorization": self.headers.get("authorization")})
        is_guarded = name in cast("list[str]", OPTIONS["guarded"])
        if is_guarded and self.headers.get("authorization") not in cast("list[str]", OPTIONS["tokens"]):
            return self._send(401, b'{"error": "invalid_token"}', {"content-type": "application/json"})
        if self._refuse(name):
            return None
        if "id" not in message:
            return self._send(202)
        answer: Json = {"jsonrpc": "2.0", "id": message["id"], **self._respond(method, name)}
        stream = STREAMS.get(parse_qs(parts.query).get("session", [""])[0])
        if stream is None:
            headers = {"mcp-session-id": uuid.uuid4().hex} if method == "initialize" else {}
            return self._send(200, json.dumps(answer).encode(), {"content-type": "application/json", **headers})
        self._send(202)
        return stream.put(json.dumps(answer).encode())

    def _respond(self, method: str, name: str) -> Json:
        if method == "server/discover" and OPTIONS["modern"]:
            capabilities = RESULTS["initialize"]["capabilities"]
            return {"result": {**_COMPLETE, "supportedVersions": ["2026-07-28"], "capabilities": capabilities}}
        if method == "tools/call":
            if name == "slow":
                RELEASED.wait(60)
            return {"result": {**_COMPLETE, "content": [{"type": "text", "text": str(self.headers.get("authorization"))}]}}
        if method not in RESULTS:
            return {"error": {"code": -32601, "message": "unknown method"}}
        return {"result": {**RESULTS[method], **_COMPLETE}}

    def _refuse(self, name: str) -> bool:
        refusal = cast("dict[str, Json]", OPTIONS["refused"]).get(name)
        if refusal is None:
            return False
        body = str(refusal.get("body", "")).encode()
        headers = {"content-type": str(refusal.get("type", "text/plain")), **cast("dict[str, str]", refusal.get("headers", {}))}
        self._send(cast("int", refusal["status"]), body, headers)
        return True

    def _control(self, fields: Json) -> None:
        if fields.pop("release", False):
            RELEASED.set()
        if fields.pop("forget", False):
            RECEIVED.clear()
        OPTIONS.update(fields)
        self._send(200, json.dumps(RECEIVED).encode(), {"content-type": "application/json"})

    def _send(self, status: int, body: bytes = b"", headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


_COMPLETE: Json = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}


class Server(ThreadingHTTPServer):
    """A server with a listen backlog for the connections of a gateway."""

    daemon_threads = True
    request_queue_size = 64


if __name__ == "__main__":
    OPTIONS.update(cast("Json", json.loads(sys.argv[1] if len(sys.argv) > 1 else "{}")))
    server = Server(("127.0.0.1", 0), Handler)
    sys.stdout.write(f"{server.server_address[1]}\n")
    sys.stdout.flush()
    server.serve_forever()
