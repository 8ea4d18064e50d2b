"""
Cost of observability per request: `python -m benchmarks.metrics`.

Medians of interleaved rounds, in microseconds of this process's CPU time. A request here goes through the edge middleware to a route that
does nothing, without sockets; the cost is measured for each part, and by the same middleware without them.
"""

from __future__ import annotations

import asyncio
import io
import logging
import statistics
import time
from collections.abc import Awaitable, Callable, MutableMapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import structlog
from starlette.responses import Response
from starlette.types import ASGIApp

from rookery.engines.traces.otlp import OtlpTracer
from rookery.kernel import logs
from rookery.kernel.http import EdgeMiddleware, Operation, json_response, mount_routes
from rookery.kernel.http.access_log import RequestMetrics
from rookery.kernel.http.routes import AdmissionResult, RouteTable
from rookery.kernel.metrics import Metrics
from rookery.kernel.request_context import CURRENT_REQUEST, RequestContext
from rookery.kernel.tracing import Tracer, start_span

ROUNDS = 25
CALLS = 500
STATE: dict[str, object] = {"route": "/v1/brain/memories/{memory_id}"}
SCOPE = {"type": "http", "method": "GET", "path": "/x", "state": STATE}


class Sink(BaseHTTPRequestHandler):
    """A receiver that accepts every request."""

    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""

    def do_POST(self) -> None:
        """Accept a request."""
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()


class RejectingGuard:
    """A guard that is never called, because the route is public."""

    async def admit(self, scope: MutableMapping[str, object], *, required_scope: str | None, rate_limited: bool = True) -> AdmissionResult:
        """Reject the request."""
        raise LookupError(required_scope, rate_limited, scope)


class NullRecorder(RequestMetrics):
    """A recorder that records nothing, to measure the rest of the middleware."""

    def record(self, scope: MutableMapping[str, object], status: int, duration_s: float) -> None:
        """Ignore the request."""


async def empty_handler() -> Response:
    """Return an empty response."""
    return json_response({})


def build_edge(traffic: RequestMetrics, tracer: Tracer | None = None) -> ASGIApp:
    """Return the edge middleware around one route."""
    mounted = RouteTable()
    mount_routes(
        mounted, "", [Operation(method="GET", path="/nothing", handler=empty_handler, required_scope=None, public=True)], RejectingGuard()
    )
    return EdgeMiddleware(
        endpoints_by_path=mounted.endpoints_by_path,
        router=mounted.router,
        hosts={"localhost"},
        origins=(),
        public_url="http://localhost{}".format,
        request_metrics=traffic,
        tracer=tracer,
    )


def make_request(app: ASGIApp) -> Callable[[], Awaitable[None]]:
    """Return a function that sends one request to *app*."""

    async def receive() -> MutableMapping[str, object]:
        return {"type": "http.disconnect"}

    async def send(message: MutableMapping[str, object]) -> None:
        del message

    async def ask() -> None:
        headers = [(b"host", b"localhost"), (b"accept", b"*/*")]
        scope = {"type": "http", "method": "GET", "path": "/nothing", "query_string": b"", "headers": headers, "client": ("127.0.0.1", 1)}
        await app(scope, receive, send)

    return ask


def time_rounds(work: Callable[[], object]) -> Callable[[], Awaitable[None]]:
    """Return a function that runs *work* a hundred times, because one run is short compared with the await."""

    async def run() -> None:
        for _ in range(100):
            work()

    return run


def serve() -> None:
    """Bind the context of log lines as the edge middleware does."""
    serving = RequestContext("req_benchmark", STATE)
    token = CURRENT_REQUEST.set(serving)
    serving.finish()
    CURRENT_REQUEST.reset(token)


def bind() -> None:
    """Bind the context with structlog's context variables."""
    tokens = structlog.contextvars.bind_contextvars(request_id="req_benchmark")
    structlog.contextvars.reset_contextvars(**tokens)


def spanned() -> None:
    """Open a span while tracing is off."""
    with start_span("nothing"):
        pass


async def main() -> None:
    """Measure, and print one line per figure."""
    sink = ThreadingHTTPServer(("127.0.0.1", 0), Sink)
    Thread(target=sink.serve_forever, daemon=True).start()
    tracer = OtlpTracer(f"http://127.0.0.1:{sink.server_address[1]}")
    logs.configure_logging("info", io.StringIO())
    metrics = Metrics()
    traffic, counter = RequestMetrics(metrics), metrics.add_counter("rookery_a_total", "A.", "kind")
    cases: dict[str, tuple[Callable[[], Awaitable[None]], int]] = {
        "a request, observed": (make_request(build_edge(RequestMetrics(Metrics()))), 1),
        "a request, its figures not counted": (make_request(build_edge(NullRecorder(Metrics()))), 1),
        "a request with a line in the access log": (make_request(build_edge(RequestMetrics(Metrics(), access_log=True))), 1),
        "a request that is traced": (make_request(build_edge(RequestMetrics(Metrics()), tracer)), 1),
        "counting and timing one request": (time_rounds(lambda: traffic.record(SCOPE, 200, 0.004)), 100),
        "one count": (time_rounds(lambda: counter.add("a")), 100),
        "a request's id for log lines": (time_rounds(serve), 100),
        "the same by structlog's contextvars": (time_rounds(bind), 100),
        "a span where nothing is traced": (time_rounds(spanned), 100),
    }
    times_by_case: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(ROUNDS):
        for name, (call, times) in cases.items():
            rounds = CALLS // times or 1
            started = time.thread_time()
            for _ in range(rounds):
                await call()
            times_by_case[name].append((time.thread_time() - started) / (rounds * times) * 1_000_000)
    for name, figures in times_by_case.items():
        print(f"{name:42} {statistics.median(figures):6.2f} µs   (best {min(figures):.2f})")
    for _ in range(60):
        for method in ("GET", "POST"):
            traffic.record({**SCOPE, "method": method, "state": {"route": f"/{_}"}}, 200, 0.01)
    started = time.thread_time()
    text, _ = await metrics.scrape("")
    print(f"{'a scrape of 120 routes':42} {(time.thread_time() - started) * 1000:6.2f} ms of the loop's, {len(text) / 1024:.0f} KiB")
    await tracer.close()
    sink.shutdown()
    logging.getLogger().handlers = []


if __name__ == "__main__":
    asyncio.run(main())
