"""Traces over OTLP/HTTP against a test receiver: span contents, tenants, and the cost without a receiver."""

from __future__ import annotations

import asyncio
import json
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import cast

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from rookery.engines import traces
from rookery.engines.traces.otlp import OtlpTracer
from rookery.kernel import tracing
from rookery.kernel.config import Settings
from rookery.kernel.errors import WrongSettings
from rookery.kernel.secret import Secret
from tests.conftest import run_instance
from tests.deadlines import HANG_S
from tests.stopwatch import Stopwatch
from tests.tools.makers import SERVERS

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = f"00-{TRACE}-00f067aa0ba902b7-01"


@dataclass
class Receiver:
    """An OTLP receiver together with an MCP server with one tool that records headers and bodies."""

    url: str
    raw: list[bytes] = field(default_factory=list[bytes])
    spans: list[Span] = field(default_factory=list[Span])
    resources: list[dict[str, str]] = field(default_factory=list[dict[str, str]])
    calls: list[tuple[str | None, dict[str, object]]] = field(default_factory=list[tuple[str | None, dict[str, object]]])

    def spans_named(self, name: str) -> list[Span]:
        """Return the spans with the name."""
        return [span for span in self.spans if span.name == name]

    def children_of(self, span: Span) -> dict[str, Span]:
        """Return the direct children of a span, by name."""
        return {child.name: child for child in self.spans if child.parent_span_id == span.span_id}


def span_attributes(span: Span) -> dict[str, str | int]:
    """Return a span's attributes."""
    return _read(span.attributes)


def _read(pairs: Iterable[KeyValue]) -> dict[str, str | int]:
    return {pair.key: pair.value.int_value if pair.value.WhichOneof("value") == "int_value" else pair.value.string_value for pair in pairs}


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    receiver: Receiver


class _Handler(BaseHTTPRequestHandler):
    """The handler of both servers: /v1/traces is the receiver, other paths are the MCP server with the older protocol."""

    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""

    def do_GET(self) -> None:
        self._send(405, b"")

    def do_DELETE(self) -> None:
        self._send(200, b"")

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.path == "/v1/traces":
            self._take(body)
        else:
            self._answer(json.loads(body))

    def _take(self, body: bytes) -> None:
        receiver = cast("_Server", self.server).receiver
        receiver.raw.append(body)
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            receiver.resources.append({key: str(text) for key, text in _read(resource.resource.attributes).items()})
            receiver.spans.extend(span for scope in resource.scope_spans for span in scope.spans)
        self._send(200, b"", "application/x-protobuf")

    def _answer(self, message: dict[str, object]) -> None:
        method = message["method"]
        if "id" not in message:
            return self._send(202, b"")
        if method == "server/discover":
            return self._json(message, error={"code": -32601, "message": "unknown method"})
        if method == "tools/call":
            cast("_Server", self.server).receiver.calls.append((self.headers.get("traceparent"), message))
            return self._json(message, result={"content": [{"type": "text", "text": "done"}]})
        if method == "tools/list":
            return self._json(message, result={"tools": [{"name": "act", "inputSchema": {"type": "object"}}]})
        info = {"name": "upstream", "version": "1"}
        return self._json(message, result={"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info})

    def _json(self, message: dict[str, object], **answer: object) -> None:
        self._send(200, json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}).encode(), "application/json")

    def _send(self, status: int, body: bytes, media_type: str = "text/plain") -> None:
        self.send_response(status)
        self.send_header("Content-Type", media_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """Yield a receiver on the loopback address."""
    server = _Server(("127.0.0.1", 0), _Handler)
    receiver = server.receiver = Receiver(f"http://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield receiver
    server.shutdown()
    server.server_close()
    thread.join(5)


@pytest.fixture
def traced_settings(settings: Settings, receiver: Receiver) -> Settings:
    """Return settings of a server that sends its traces to the receiver."""
    return replace(settings, traces=Secret(receiver.url))


async def test_a_request_is_a_span_with_its_operations_as_children(traced_settings: Settings, receiver: Receiver) -> None:
    """The span has the route, the status and ids; embedding, searches and writes are its children."""
    async with run_instance(traced_settings) as instance:
        await instance.admin.remember()
        caller = await instance.api_key("*")
        response = await caller.post("/v1/brain/recall", {"query": "when", "mode": "hybrid"}, **{"X-Request-ID": "mine-1"})
        workspace_id = instance.workspace_id

    (recall,) = receiver.spans_named("POST /v1/brain/recall")
    (remember,) = receiver.spans_named("POST /v1/brain/remember")
    assert response.status_code == 200
    assert recall.kind == Span.SPAN_KIND_SERVER
    assert span_attributes(recall) == {
        "http.request.method": "POST",
        "http.route": "/v1/brain/recall",
        "http.response.status_code": 200,
        "rookery.request_id": "mine-1",
        "rookery.workspace_id": workspace_id,
        "rookery.key_id": caller.key_id,
    }
    assert receiver.children_of(recall).keys() == {"embedding", "vector search", "text search", "neighbours"}
    assert "database write" in receiver.children_of(remember)
    assert all(child.trace_id == recall.trace_id and not span_attributes(child) for child in receiver.children_of(recall).values())
    assert all(span.start_time_unix_nano <= span.end_time_unix_nano for span in receiver.spans)
    assert receiver.resources[0]["service.name"] == "rookery"


async def test_the_trace_of_the_caller_is_continued(traced_settings: Settings, receiver: Receiver) -> None:
    """A missing or invalid traceparent starts a new trace; an unsampled one is not sent (W3C trace context)."""
    async with run_instance(traced_settings) as instance:
        await instance.admin.get("/v1/brain/tags", traceparent=PARENT)
        await instance.admin.get("/v1/brain/scopes", traceparent="nonsense")
        await instance.admin.get("/v1/brain/memories", traceparent=PARENT[:-1] + "0")

    (tags,), (scopes,) = receiver.spans_named("GET /v1/brain/tags"), receiver.spans_named("GET /v1/brain/scopes")
    assert (tags.trace_id.hex(), tags.parent_span_id.hex()) == (TRACE, "00f067aa0ba902b7")
    assert (scopes.trace_id.hex() != TRACE, scopes.parent_span_id) == (True, b"")
    assert receiver.spans_named("GET /v1/brain/memories") == []


async def test_a_tool_server_joins_the_trace(traced_settings: Settings, receiver: Receiver) -> None:
    """The call is a child span of the request; the upstream gets the trace in a header and in _meta."""
    entry = {"mcpServers": {"upstream": {"type": "http", "url": f"{receiver.url}/mcp"}}}
    (traced_settings.data_dir / "servers.json").write_text(json.dumps(entry), encoding="utf-8")
    async with run_instance(traced_settings) as instance:
        call = {"server": "upstream", "tool": "act", "arguments": {"secret": "hunter2"}}
        response = await instance.admin.post("/api/v1/mcp/tools/call", call, traceparent=PARENT)

    assert response.json()["success"] is True, response.text
    (request,) = receiver.spans_named("POST /api/v1/mcp/tools/call")
    tool_span = receiver.children_of(request)["tool call"]
    ((traceparent, message),) = receiver.calls
    assert tool_span.kind == Span.SPAN_KIND_CLIENT
    assert span_attributes(tool_span) == {"rookery.server": "upstream", "rookery.tool": "act"}
    assert traceparent == f"00-{TRACE}-{tool_span.span_id.hex()}-01"
    assert f"00-{TRACE}-" in json.dumps(cast("dict[str, object]", message["params"])["_meta"])


async def test_a_tool_server_over_pipes_joins_the_trace(traced_settings: Settings, receiver: Receiver) -> None:
    """Pipes have no headers, so the trace is only in _meta."""
    entry = {"mcpServers": {"upstream": {"command": sys.executable, "args": ["-I", "-S", str(SERVERS / "muddled.py")]}}}
    (traced_settings.data_dir / "servers.json").write_text(json.dumps(entry), encoding="utf-8")
    async with run_instance(traced_settings) as instance:
        response = await instance.admin.post(
            "/api/v1/mcp/tools/call", {"server": "upstream", "tool": "echo", "arguments": {}}, traceparent=PARENT
        )

    (request,) = receiver.spans_named("POST /api/v1/mcp/tools/call")
    meta = json.loads(response.json()["result"]["content"][0]["text"])["_meta"]
    assert meta["traceparent"] == f"00-{TRACE}-{receiver.children_of(request)['tool call'].span_id.hex()}-01"


async def test_no_span_contains_data_of_callers(traced_settings: Settings, receiver: Receiver) -> None:
    """Spans have no key, argument, query, content, tag or path, and errors only have their code."""
    async with run_instance(traced_settings) as instance:
        key = str(instance.admin.key)
        await instance.admin.remember("The zanzibar secret.", tags=["zanzibar"], org="zanzibar")
        await instance.admin.post("/v1/brain/recall", {"query": "zanzibar", "mode": "hybrid", "keywords": ["zanzibar"]})
        await instance.admin.get(f"/v1/brain/search?q=zanzibar&key={key}")
        await instance.admin.get(f"/zanzibar/{key}", **{"X-Request-ID": key, "tracestate": f"k={key}", "traceparent": PARENT})
        await instance.admin.post(
            "/api/v1/mcp/tools/call", {"server": "brain", "tool": "search", "arguments": {"query": "zanzibar", "wrong": key}}
        )
        await instance.caller(f"sk_live_{'x' * 32}").get("/v1/brain/tags")

    sent_data = b"".join(receiver.raw)
    assert len(receiver.spans) > 6
    for secret in ("zanzibar", key, key[8:], "x" * 32, "deploy"):
        assert secret.encode() not in sent_data
    (unmatched_span,) = receiver.spans_named("GET unmatched")
    assert span_attributes(unmatched_span)["error.type"] == "not_found"
    assert unmatched_span.status.code == 0  # OpenTelemetry's HTTP conventions: a 4xx is no server error


async def test_a_server_failure_is_marked_with_its_code(traced_settings: Settings, receiver: Receiver) -> None:
    """A recall that falls back to full text succeeds, but its embedding span fails."""
    async with run_instance(traced_settings) as instance:
        await instance.rookery.engines.embedder.warm()
        await instance.rookery.engines.embedder.close()
        full_text_response, key = await instance.admin.post("/v1/brain/recall", {"query": "when"}), instance.admin.key
    async with run_instance(traced_settings) as instance:
        with sqlite3.connect(traced_settings.data_dir / "texts.db") as connection:
            connection.execute("DROP TABLE workspace")
        failed_response = await instance.caller(key).post("/v1/brain/recall", {"query": "when", "mode": "keyword"})

    first, second = receiver.spans_named("POST /v1/brain/recall")
    embedding_span = receiver.children_of(first)["embedding"]
    assert receiver.children_of(second)["text search"].status.code == 2
    assert (full_text_response.status_code, failed_response.status_code) == (200, 503)
    assert (span_attributes(second)["error.type"], second.status.code) == ("engine_unavailable", 2)
    assert "error.type" not in span_attributes(first)
    assert (span_attributes(embedding_span), embedding_span.status.code, embedding_span.status.message, list(embedding_span.events)) == (
        {"error.type": "EngineUnavailable"},
        2,
        "",
        [],
    )


async def test_spans_after_the_end_of_the_request_are_not_part_of_its_trace(receiver: Receiver) -> None:
    """A task that a request started, such as a session with a tool server, may run for days."""
    tracer = OtlpTracer(receiver.url)
    continued = asyncio.Event()

    async def run_in_background() -> None:
        with tracing.start_span("in time"):
            pass
        await continued.wait()
        with tracing.start_span("too late"):
            pass

    request = tracer.start_request_span("GET", [])
    token = tracing.attach_span(request)
    task = asyncio.create_task(run_in_background())
    await asyncio.sleep(0)
    tracing.detach_span(token)
    request.end()
    continued.set()
    await task
    with tracing.start_span("outside"):
        pass
    await tracer.close()

    assert {span.name for span in receiver.spans} == {"GET", "in time"}


# Without a receiver


def _refusing_url() -> str:
    """Return an address that refuses connections."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}"


@pytest.mark.parametrize("listens", [False, True], ids=["refuses", "never answers"])
async def test_a_receiver_that_is_down_costs_requests_nothing(settings: Settings, *, listens: bool) -> None:
    """Spans are dropped from a bounded buffer, and the server still stops quickly."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(64)
        url = f"http://127.0.0.1:{silent.getsockname()[1]}" if listens else _refusing_url()
        async with run_instance(replace(settings, traces=Secret(url))) as instance:
            slowest_s = 0.0
            with Stopwatch() as requests:
                for _ in range(600):  # more than a batch, so that the library sends in between
                    started = time.perf_counter()
                    assert (await instance.admin.get("/healthz")).status_code == 200
                    slowest_s = max(slowest_s, time.perf_counter() - started)
            closing = Stopwatch().start()
        closing.stop()

    assert slowest_s / requests.slowness < 2
    assert closing.reference_s < 8


async def test_the_last_spans_are_sent_at_the_end(receiver: Receiver) -> None:
    """Closing sends them without waiting for the interval, and may be repeated."""
    tracer = OtlpTracer(f"{receiver.url}/v1/traces")
    with Stopwatch() as watch:
        tracer.start_request_span("GET", []).end()
        await tracer.close()
        await tracer.close()
        tracer.start_request_span("GET", []).end()

    assert watch.reference_s < 3
    assert [span.name for span in receiver.spans] == ["GET"]


# The setting


@pytest.mark.parametrize("address", ["ftp://u:hunter2@h", "127.0.0.1:4318", "http://", "http://h/?q=hunter2", "otlp"])
def test_an_invalid_url_is_rejected(address: str) -> None:
    """The error is one line with the name of the setting and without its value, which may have a password."""
    with pytest.raises(WrongSettings) as error:
        traces.open(address)

    assert error.value.message.startswith("ROOKERY_TRACES: ")
    assert "hunter2" not in error.value.message


def test_without_the_extra_the_error_names_the_package_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """OpenTelemetry is optional; the setting without it stops the start with one line."""
    monkeypatch.setitem(sys.modules, "rookery.engines.traces.otlp", None)

    with pytest.raises(WrongSettings) as error:
        traces.open("http://127.0.0.1:4318")

    assert "pip install 'rookery[traces]'" in error.value.message
    assert traces.open("none") is None


def test_the_opentelemetry_sdk_is_loaded_only_if_configured() -> None:
    """Only `open` loads the libraries of an engine, so that a start is fast."""
    program = (
        "import sys, rookery.cli; sys.exit(any(name.startswith(('opentelemetry.sdk', 'opentelemetry.exporter')) for name in sys.modules))"
    )
    process = subprocess.run([sys.executable, "-c", program], cwd=Path(__file__).parent, check=False, timeout=HANG_S)

    assert process.returncode == 0
