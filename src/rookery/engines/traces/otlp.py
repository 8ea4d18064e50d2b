"""
Export spans over OTLP/HTTP with the OpenTelemetry SDK.

The tracer provider is private and not the global one. Otherwise libraries with their own tracing (the MCP SDK, FastAPI) would export their
spans too, with arguments of calls in them.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable, Mapping
from contextvars import Token
from importlib import metadata

from opentelemetry import context as otel_context
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from rookery.kernel.ids import uuid7
from rookery.kernel.safe_texts import redact
from rookery.kernel.tracing import AttributeValue

_PATH = "/v1/traces"
_SEND_TIMEOUT_S = 2.5
"""Timeout of one export with its retries. The receiver is expected nearby. Shorter than `_CLOSE_TIMEOUT_S`."""

_SEND_INTERVAL_MS = 2000
_CLOSE_TIMEOUT_S = 3.0
_PROPAGATION = TraceContextTextMapPropagator()


class OtlpTracer:
    """An implementation of `kernel.tracing.Tracer`. The SDK's thread starts with the first span, so a process may fork before that."""

    def __init__(self, address: str) -> None:
        base = address.rstrip("/")
        self._endpoint = base if base.endswith(_PATH) else base + _PATH
        self._provider: TracerProvider | None = None
        self._tracer: Tracer | None = None
        self._closed = False

    def start_request_span(self, method: str, headers: Iterable[tuple[bytes, bytes]]) -> OtlpSpan:
        """Start the span of a request; see `Tracer`."""
        tracer = self._tracer or self._open()
        parent = _parse_parent(headers)
        span = tracer.start_span(method, parent, kind=SpanKind.SERVER, attributes={"http.request.method": method})
        return OtlpSpan(tracer, span, parent or Context())

    async def close(self) -> None:
        """Export pending spans; see `Tracer`."""
        provider, self._provider = self._provider, None
        self._closed = True
        if provider is None:
            return
        # A daemon thread, since the SDK waits up to 30 s for a receiver that does not answer.
        thread = threading.Thread(target=provider.shutdown, name="traces-close", daemon=True)
        thread.start()
        await asyncio.to_thread(thread.join, _CLOSE_TIMEOUT_S)

    def _open(self) -> Tracer:
        resource = Resource.create(
            {"service.name": "rookery", "service.version": metadata.version("rookery"), "service.instance.id": uuid7()}
        )
        provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        if not self._closed:
            exporter = OTLPSpanExporter(endpoint=self._endpoint, timeout=_SEND_TIMEOUT_S)
            provider.add_span_processor(BatchSpanProcessor(exporter, schedule_delay_millis=_SEND_INTERVAL_MS))
            self._provider = provider
        self._tracer = provider.get_tracer("rookery")
        return self._tracer


class OtlpSpan:
    """
    An implementation of `kernel.tracing.Span`.

    While it is open, it is also OpenTelemetry's current span, so the MCP SDK sends the trace to tool servers (`_meta`).
    """

    __slots__ = ("_context", "_span", "_token", "_tracer")

    def __init__(self, tracer: Tracer, span: Span, parent: Context) -> None:
        self._tracer = tracer
        self._span = span
        self._context = set_span_in_context(span, parent)
        self._token: Token[Context] | None = otel_context.attach(self._context)

    @property
    def is_open(self) -> bool:
        return self._span.is_recording()

    @property
    def trace_id(self) -> str:
        return f"{self._span.get_span_context().trace_id:032x}"

    def start_child(self, name: str, attributes: Mapping[str, AttributeValue], *, is_remote: bool) -> OtlpSpan:
        kind = SpanKind.CLIENT if is_remote else SpanKind.INTERNAL
        return OtlpSpan(self._tracer, self._tracer.start_span(name, self._context, kind=kind, attributes=attributes), self._context)

    def propagation_headers(self) -> Mapping[str, str]:
        carrier: dict[str, str] = {}
        _PROPAGATION.inject(carrier, self._context)
        return carrier

    def rename(self, name: str, attributes: Mapping[str, AttributeValue]) -> None:
        self._span.update_name(name)
        self._span.set_attributes(attributes)

    def end(self, *, error: str | None = None) -> None:
        if error is not None:
            self._span.set_attribute("error.type", error)
            self._span.set_status(Status(StatusCode.ERROR))
        self._span.end()
        if self._token is not None:
            token, self._token = self._token, None
            otel_context.detach(token)


def _parse_parent(headers: Iterable[tuple[bytes, bytes]]) -> Context | None:
    """Return the trace context of the caller's headers (W3C Trace Context); None without one."""
    carrier: dict[str, str] = {}
    for name, value in headers:
        if name in {b"traceparent", b"tracestate"}:
            text = value.decode("latin-1")
            # tracestate is forwarded to other services, so a value with a key of Rookery is dropped.
            if redact(text) == text:
                carrier[name.decode("ascii")] = text
    return _PROPAGATION.extract(carrier) if "traceparent" in carrier else None
