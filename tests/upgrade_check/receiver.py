"""One server on this host for both versions: it collects webhooks, and is an MCP server that returns the secret that it was sent."""

from __future__ import annotations

import json
import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import cast

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Delivery:
    """A webhook as it came."""

    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(slots=True)
class Receiver:
    """The webhooks that the server received so far."""

    port: int = 0
    deliveries: list[Delivery] = field(default_factory=list[Delivery])

    def url(self, path: str) -> str:
        """Return the address of a path."""
        return f"http://{LOOPBACK}:{self.port}/{path}"

    def list_deliveries(self, path: str, text: str) -> list[Delivery]:
        """Return the deliveries to a path whose body has a text."""
        return [delivery for delivery in list(self.deliveries) if delivery.path == f"/{path}" and text.encode() in delivery.body]


@contextmanager
def run_receiver() -> Generator[Receiver]:
    """Run the server until the block ends."""
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if self.path != "/mcp":
                receiver.deliveries.append(Delivery(self.path, {name.lower(): value for name, value in self.headers.items()}, body))
                self._send(b"{}")
                return
            answer = _answer(cast("dict[str, object]", json.loads(body)), self.headers.get("Authorization", ""))
            self._send(json.dumps(answer).encode() if answer else b"", 200 if answer else 202)

        def do_GET(self) -> None:
            self._send(b"", 405)

        def do_DELETE(self) -> None:
            self._send(b"", 200)

        def _send(self, body: bytes, status: int = 200) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            del format, args

    class Server(ThreadingHTTPServer):
        def handle_error(self, request: object, client_address: object) -> None:
            """Ignore connections that end with a killed server."""

    server = Server((LOOPBACK, 0), Handler)
    receiver.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _answer(message: Mapping[str, object], authorization: str) -> dict[str, object] | None:
    """Return the answer of an MCP server of the handshake era, or None for a notification."""
    method, params = message.get("method"), cast("dict[str, object]", message.get("params") or {})
    results: dict[str, object] = {
        "initialize": {
            "protocolVersion": params.get("protocolVersion"),
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "upgrade-check", "version": "1"},
        },
        "tools/list": {"tools": [{"name": "authorization", "description": "Return the header.", "inputSchema": {"type": "object"}}]},
        "tools/call": {"content": [{"type": "text", "text": authorization}]},
        "ping": {},
    }
    if "id" not in message:
        return None
    if method not in results:
        return {"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32601, "message": "unknown method"}}
    return {"jsonrpc": "2.0", "id": message["id"], "result": results[str(method)]}
