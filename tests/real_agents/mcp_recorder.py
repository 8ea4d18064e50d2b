"""A proxy between a client and Rookery that records each request, and passes streams on as they come."""

from __future__ import annotations

import contextlib
import http.client
import json
import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import cast

Json = dict[str, object]

_PASS_LIMIT_S = 120.0
_HOP_HEADERS = frozenset({"connection", "keep-alive", "transfer-encoding", "content-length", "host"})


@dataclass(frozen=True, kw_only=True)
class SeenRequest:
    """
    A request of a client.

    Attributes:
        rpc: The method of the message in its body.
        version: The protocol version that it names, in `initialize` or its header.
        authorization: The credential that it carries; see `describe_authorization`.
        client: The name and version by which the client introduces itself.
        meta: The names in `_meta` of a tool call.
        arguments: The arguments of a tool call.
        status: The status of the answer; 0 if Rookery did not accept the connection, which is then closed without an answer.
    """

    method: str
    path: str
    rpc: str
    version: str
    authorization: str
    client: str
    meta: tuple[str, ...]
    arguments: Mapping[str, object] = field(default_factory=dict[str, object])
    status: int = 0

    @property
    def label(self) -> str:
        """The method of its message, or that of HTTP with the path."""
        return self.rpc or (self.method if self.path.startswith("/mcp") else f"{self.method} {self.path}")


class _QuietServer(ThreadingHTTPServer):
    """A server for clients that may be killed in the middle of a request."""

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore it: the client is gone."""


class McpRecorder:
    """The proxy. It listens on a port of 127.0.0.1, and keeps its address while Rookery restarts behind it."""

    def __init__(self, target_port: int, key: str) -> None:
        self.key = key
        self.requests = list[SeenRequest]()
        self.server = _QuietServer(("127.0.0.1", 0), self._build_handler(target_port))
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def _build_handler(self, target_port: int) -> type[BaseHTTPRequestHandler]:
        recorder = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, format: str, *args: object) -> None:
                pass

            def _pass_on(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                seen = recorder.describe(self.command, self.path, dict(self.headers.items()), body)
                upstream = http.client.HTTPConnection("127.0.0.1", target_port, timeout=_PASS_LIMIT_S)
                status = 0
                try:
                    headers = {name: value for name, value in self.headers.items() if name.lower() not in _HOP_HEADERS}
                    upstream.request(self.command, self.path, body or None, headers)
                    response = upstream.getresponse()
                    status = response.status
                    recorder.add(seen, status)
                    self._send(response)
                except (OSError, http.client.HTTPException):
                    if not status:
                        recorder.add(seen, status)
                    self.close_connection = True
                finally:
                    upstream.close()

            do_GET = do_POST = do_DELETE = do_PUT = do_OPTIONS = do_HEAD = _pass_on  # noqa: N815 - the names of http.server

            def _send(self, response: http.client.HTTPResponse) -> None:
                self.send_response(response.status)
                for name, value in response.getheaders():
                    if name.lower() not in _HOP_HEADERS:
                        self.send_header(name, value)
                length = response.getheader("content-length")
                is_empty = self.command == "HEAD" or response.status in {204, 304}
                if length is not None or is_empty:
                    self.send_header("content-length", length or "0")
                    self.end_headers()
                    self.wfile.write(b"" if is_empty else response.read())
                    return
                self.send_header("transfer-encoding", "chunked")
                self.end_headers()
                while part := response.read1(65_536):
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
                self.wfile.write(b"0\r\n\r\n")

        return Handler

    def describe(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> SeenRequest:
        """Return the record of a request."""
        lowered = {name.lower(): value for name, value in headers.items()}
        message: Json = {}
        with contextlib.suppress(ValueError):
            parsed: object = json.loads(body or b"{}")
            message = cast("Json", parsed) if isinstance(parsed, dict) else {}
        params = _object(message.get("params"))
        meta = _object(params.get("_meta"))
        client = _object(params.get("clientInfo") or meta.get("io.modelcontextprotocol/clientInfo"))
        version = params.get("protocolVersion") or lowered.get("mcp-protocol-version") or ""
        return SeenRequest(
            method=method,
            path=path.partition("?")[0],
            rpc=str(message.get("method", "")),
            version=str(version),
            authorization=describe_authorization(lowered.get("authorization"), self.key),
            client=" ".join(str(client[name]) for name in ("name", "version") if name in client),
            meta=tuple(sorted(meta)) if message.get("method") == "tools/call" else (),
            arguments=_object(params.get("arguments")),
        )

    def add(self, seen: SeenRequest, status: int) -> None:
        """Record a request with the status of its answer."""
        self.requests.append(replace(seen, status=status))


def describe_authorization(value: str | None, key: str) -> str:
    """Return what a header of authorization has: "none", "key", "no key", "another key", or the text in place of a key."""
    if value is None:
        return "none"
    text = value.removeprefix("Bearer").strip()
    if not text:
        return "no key"
    return "key" if text == key else f"`{value.strip()}`" if "$" in text or "{" in text else "another key"


def _object(value: object) -> Json:
    return cast("Json", value) if isinstance(value, dict) else {}


@contextmanager
def record_requests(target_port: int, key: str) -> Generator[McpRecorder]:
    """Run a proxy in front of a port until the block ends."""
    recorder = McpRecorder(target_port, key)
    recorder.server.daemon_threads = True
    threading.Thread(target=recorder.server.serve_forever, name="mcp-recorder", daemon=True).start()
    try:
        yield recorder
    finally:
        recorder.server.shutdown()
        recorder.server.server_close()
