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
from tests.tools.makers import SERVERS

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = f"00-{TRACE}-00f067aa0ba902b7-01"


@dataclass
class Receiver:
    """An OTLP receiver, and beside it an MCP server of one tool that remembers the headers and bodies it got."""

    url: str
    raw: list[bytes] = field(default_factory=list[bytes])
    spans: list[Span] = field(default_factory=list[Span])
    resources: list[dict[str, str]] = field(default_factory=list[dict[str, str]])
    calls: list[tuple[str | None, dict[str, object]]] = field(default_factory=list[tuple[str | None, dict[str, object]]])

    def named(self, name: str) -> list[Span]:
        """Return the spans of that name."""
        return [span for span in self.spans if span.name == name]

    def below(self, span: Span) -> dict[str, Span]:
        """Return the spans right below one, by name."""
        return {each.name: each for each in self.spans if each.parent_span_id == span.span_id}


def about(span: Span) -> dict[str, str | int]:
    """Return a span's attributes."""
    return _read(span.attributes)


def _read(pairs: Iterable[KeyValue]) -> dict[str, str | int]:
    return {pair.key: pair.value.int_value if pair.value.WhichOneof("value") == "int_value" else pair.value.string_value for pair in pairs}


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    receiver: Receiver


class _Handler(BaseHTTPRequestHandler):
    """Both servers: /v1/traces is the receiver, everything else the MCP server of the handshake era, which answers with JSON."""

    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""

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
    """A receiver on the loopback."""
    server = _Server(("127.0.0.1", 0), _Handler)
    found = server.receiver = Receiver(f"http://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield found
    server.shutdown()
    server.server_close()
    thread.join(5)


@pytest.fixture
def traced(settings: Settings, receiver: Receiver) -> Settings:
    """Settings of a server that sends its traces to the receiver."""
    return replace(settings, traces=Secret(receiver.url))


async def test_a_request_is_a_span_with_what_it_waited_for_below_it(traced: Settings, receiver: Receiver) -> None:
    """D-11: the route as its name, status and ids; embedding, searches and writes below; all of it is there once the server has ended."""
    async with run_instance(traced) as instance:
        await instance.admin.remember()
        caller = await instance.api_key("*")
        answer = await caller.post("/v1/brain/recall", {"query": "when", "mode": "hybrid"}, **{"X-Request-ID": "mine-1"})
        workspace_id = instance.workspace_id

    (recall,) = receiver.named("POST /v1/brain/recall")
    (remember,) = receiver.named("POST /v1/brain/remember")
    assert answer.status_code == 200
    assert recall.kind == Span.SPAN_KIND_SERVER
    assert about(recall) == {
        "http.request.method": "POST",
        "http.route": "/v1/brain/recall",
        "http.response.status_code": 200,
        "rookery.request_id": "mine-1",
        "rookery.workspace_id": workspace_id,
        "rookery.key_id": caller.key_id,
    }
    assert receiver.below(recall).keys() == {"embedding", "vector search", "text search"}
    assert "database write" in receiver.below(remember)
    assert all(each.trace_id == recall.trace_id and not about(each) for each in receiver.below(recall).values())
    assert all(each.start_time_unix_nano <= each.end_time_unix_nano for each in receiver.spans)
    assert receiver.resources[0]["service.name"] == "rookery"


async def test_the_trace_of_the_caller_goes_on(traced: Settings, receiver: Receiver) -> None:
    """D-11, W3C trace context: a traceparent is honoured; without one, or with nonsense, a trace begins; unsampled is not sent."""
    async with run_instance(traced) as instance:
        await instance.admin.get("/v1/brain/tags", traceparent=PARENT)
        await instance.admin.get("/v1/brain/scopes", traceparent="nonsense")
        await instance.admin.get("/v1/brain/memories", traceparent=PARENT[:-1] + "0")

    (tags,), (scopes,) = receiver.named("GET /v1/brain/tags"), receiver.named("GET /v1/brain/scopes")
    assert (tags.trace_id.hex(), tags.parent_span_id.hex()) == (TRACE, "00f067aa0ba902b7")
    assert (scopes.trace_id.hex() != TRACE, scopes.parent_span_id) == (True, b"")
    assert receiver.named("GET /v1/brain/memories") == []


async def test_a_tool_server_joins_the_trace(traced: Settings, receiver: Receiver) -> None:
    """D-11, D-32: its span is below the request's; the upstream hears of it by header, and in _meta as MCP has it."""
    entry = {"mcpServers": {"upstream": {"type": "http", "url": f"{receiver.url}/mcp"}}}
    (traced.data_dir / "servers.json").write_text(json.dumps(entry), encoding="utf-8")
    async with run_instance(traced) as instance:
        call = {"server": "upstream", "tool": "act", "arguments": {"secret": "hunter2"}}
        answer = await instance.admin.post("/api/v1/mcp/tools/call", call, traceparent=PARENT)

    assert answer.json()["success"] is True, answer.text
    (request,) = receiver.named("POST /api/v1/mcp/tools/call")
    asked = receiver.below(request)["tool call"]
    ((told, message),) = receiver.calls
    assert asked.kind == Span.SPAN_KIND_CLIENT
    assert about(asked) == {"rookery.server": "upstream", "rookery.tool": "act"}
    assert told == f"00-{TRACE}-{asked.span_id.hex()}-01"
    assert f"00-{TRACE}-" in json.dumps(cast("dict[str, object]", message["params"])["_meta"])


async def test_a_tool_server_over_pipes_joins_the_trace(traced: Settings, receiver: Receiver) -> None:
    """D-11, D-32: there are no headers between us, so it hears of the trace in _meta alone."""
    entry = {"mcpServers": {"upstream": {"command": sys.executable, "args": ["-I", "-S", str(SERVERS / "muddled.py")]}}}
    (traced.data_dir / "servers.json").write_text(json.dumps(entry), encoding="utf-8")
    async with run_instance(traced) as instance:
        answer = await instance.admin.post(
            "/api/v1/mcp/tools/call", {"server": "upstream", "tool": "echo", "arguments": {}}, traceparent=PARENT
        )

    (request,) = receiver.named("POST /api/v1/mcp/tools/call")
    told = json.loads(answer.json()["result"]["content"][0]["text"])["_meta"]
    assert told["traceparent"] == f"00-{TRACE}-{receiver.below(request)['tool call'].span_id.hex()}-01"


async def test_no_span_holds_what_callers_say(traced: Settings, receiver: Receiver) -> None:
    """D-20, spec 5.2 rule 2: no key, argument, query, content, tag or path, in whatever form; errors by their code alone."""
    async with run_instance(traced) as instance:
        key = str(instance.admin.key)
        await instance.admin.remember("The zanzibar secret.", tags=["zanzibar"], org="zanzibar")
        await instance.admin.post("/v1/brain/recall", {"query": "zanzibar", "mode": "hybrid", "keywords": ["zanzibar"]})
        await instance.admin.get(f"/v1/brain/search?q=zanzibar&key={key}")
        await instance.admin.get(f"/zanzibar/{key}", **{"X-Request-ID": key, "tracestate": f"k={key}", "traceparent": PARENT})
        await instance.admin.post(
            "/api/v1/mcp/tools/call", {"server": "brain", "tool": "search", "arguments": {"query": "zanzibar", "wrong": key}}
        )
        await instance.caller(f"sk_live_{'x' * 32}").get("/v1/brain/tags")

    sent = b"".join(receiver.raw)
    assert len(receiver.spans) > 6
    for secret in ("zanzibar", key, key[8:], "x" * 32, "deploy"):
        assert secret.encode() not in sent
    (missing,) = receiver.named("GET unmatched")
    assert about(missing)["error.type"] == "not_found"
    assert missing.status.code == 0  # 4xx is the caller's: OpenTelemetry's conventions for HTTP


async def test_a_failure_of_ours_is_marked_by_its_code(traced: Settings, receiver: Receiver) -> None:
    """D-10: a span that failed says so, by a word; D-42: a recall by words alone has not failed, its embedding has."""
    async with run_instance(traced) as instance:
        await instance.rookery.embedder.warm()
        await instance.rookery.embedder.close()
        by_words, key = await instance.admin.post("/v1/brain/recall", {"query": "when"}), instance.admin.key
    async with run_instance(traced) as instance:
        with sqlite3.connect(traced.data_dir / "texts.db") as damaged:
            damaged.execute("DROP TABLE document")
        refused = await instance.caller(key).post("/v1/brain/recall", {"query": "when", "mode": "keyword"})

    first, second = receiver.named("POST /v1/brain/recall")
    below = receiver.below(first)["embedding"]
    assert receiver.below(second)["text search"].status.code == 2
    assert (by_words.status_code, refused.status_code) == (200, 503)
    assert (about(second)["error.type"], second.status.code) == ("engine_unavailable", 2)
    assert "error.type" not in about(first)
    assert (about(below), below.status.code, below.status.message, list(below.events)) == ({"error.type": "EngineUnavailable"}, 2, "", [])


async def test_what_outlives_its_request_is_no_part_of_its_trace(receiver: Receiver) -> None:
    """D-11: a task born in a request, such as a session with a tool server, may live for days."""
    tracer = OtlpTracer(receiver.url)
    go_on = asyncio.Event()

    async def later() -> None:
        with tracing.start_span("in time"):
            pass
        await go_on.wait()
        with tracing.start_span("too late"):
            pass

    request = tracer.start_request_span("GET", [])
    token = tracing.attach_span(request)
    task = asyncio.create_task(later())
    await asyncio.sleep(0)
    tracing.detach_span(token)
    request.end()
    go_on.set()
    await task
    with tracing.start_span("outside"):
        pass
    await tracer.close()

    assert {span.name for span in receiver.spans} == {"GET", "in time"}


# When nobody listens.


def _refusing() -> str:
    """Return an address that refuses connections."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}"


@pytest.mark.parametrize("answers", [False, True], ids=["refuses", "never answers"])
async def test_a_receiver_that_is_down_costs_requests_nothing(settings: Settings, *, answers: bool) -> None:
    """D-11: spans wait in a bounded buffer and are dropped; the end of the server is not held up for long."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(64)
        url = f"http://127.0.0.1:{silent.getsockname()[1]}" if answers else _refusing()
        async with run_instance(replace(settings, traces=Secret(url))) as instance:
            slowest = 0.0
            for _ in range(600):  # more than a batch, so that the library tries to send meanwhile
                started = time.perf_counter()
                assert (await instance.admin.get("/healthz")).status_code == 200
                slowest = max(slowest, time.perf_counter() - started)
            closing = time.monotonic()
        took_s = time.monotonic() - closing

    assert slowest < 2
    assert took_s < 8


async def test_the_last_spans_are_sent_at_the_end(receiver: Receiver) -> None:
    """D-11: closing does not wait for the next turn of the clock, and may be done twice."""
    tracer = OtlpTracer(f"{receiver.url}/v1/traces")
    started = time.monotonic()
    tracer.start_request_span("GET", []).end()
    await tracer.close()
    await tracer.close()
    tracer.start_request_span("GET", []).end()

    assert time.monotonic() - started < 3
    assert [span.name for span in receiver.spans] == ["GET"]


# The setting.


@pytest.mark.parametrize("address", ["ftp://u:hunter2@h", "127.0.0.1:4318", "http://", "http://h/?q=hunter2", "otlp"])
def test_what_is_no_address_refuses_to_start(address: str) -> None:
    """D-02: in one line that names the setting and not its value, which may hold a password."""
    with pytest.raises(WrongSettings) as refused:
        traces.open(address)

    assert refused.value.message.startswith("ROOKERY_TRACES: ")
    assert "hunter2" not in refused.value.message


def test_without_the_extra_the_setting_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """D-02: OpenTelemetry is optional; set without it, the start is refused in one line."""
    monkeypatch.setitem(sys.modules, "rookery.engines.traces.otlp", None)

    with pytest.raises(WrongSettings) as refused:
        traces.open("http://127.0.0.1:4318")

    assert "pip install 'rookery[traces]'" in refused.value.message
    assert traces.open("none") is None


def test_nothing_of_opentelemetry_s_sdk_is_loaded_unless_asked_for() -> None:
    """House 5.3: an engine's libraries are loaded by `open` alone; a start stays quick."""
    program = (
        "import sys, rookery.cli; sys.exit(any(name.startswith(('opentelemetry.sdk', 'opentelemetry.exporter')) for name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=Path(__file__).parent, check=False, timeout=30)

    assert done.returncode == 0
