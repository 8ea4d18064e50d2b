"""
Tracing: the time of a request as spans of a trace, which its caller may have started (W3C trace context).

Tracing is off unless `EdgeMiddleware` has a tracer. With a tracer, each request has a span, and `start_span` adds spans below it.
Outside of a request, or after its end, `start_span` does nothing. No span holds a key, an argument, a query or the content of a memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextvars import ContextVar, Token
from types import TracebackType
from typing import Protocol

AttributeValue = str | int | bool


class Span(Protocol):
    """A span of a trace. Call `end` exactly once."""

    @property
    def is_open(self) -> bool:
        """True if the span is recorded and not ended, so that it can have children."""
        ...

    @property
    def trace_id(self) -> str: ...

    def start_child(self, name: str, attributes: Mapping[str, AttributeValue], *, is_remote: bool) -> Span:
        """Start a span below this one. *is_remote*: it waits for another server."""
        ...

    def propagation_headers(self) -> Mapping[str, str]:
        """Return the headers that let another server join the trace: `traceparent`, and `tracestate` if there is one."""
        ...

    def rename(self, name: str, attributes: Mapping[str, AttributeValue]) -> None:
        """Set the final name and attributes."""
        ...

    def end(self, *, error: str | None = None) -> None:
        """End the span. *error*: the error code or the exception class of a failure, never a message."""
        ...


class Tracer(Protocol):
    """The receiver of spans. It never blocks: spans that cannot be sent are dropped."""

    def start_request_span(self, method: str, headers: Iterable[tuple[bytes, bytes]]) -> Span:
        """Start the span of a request, within the caller's trace if the headers contain one."""
        ...

    async def close(self) -> None:
        """Send the remaining spans within a few seconds. A second call does nothing."""
        ...


_CURRENT_SPAN: ContextVar[Span | None] = ContextVar("rookery_span", default=None)


class _NoopSpan:
    """The result of `start_span` when nothing is traced."""

    __slots__ = ()

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        return


_NOOP_SPAN = _NoopSpan()


class SpanScope:
    """A context manager that ends a span after its block, and records the class of an exception as its error."""

    __slots__ = ("_span", "_token")

    def __init__(self, span: Span) -> None:
        self._span = span
        self._token: Token[Span | None] | None = None

    def __enter__(self) -> None:
        self._token = _CURRENT_SPAN.set(self._span)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._span.end(error=None if kind is None else kind.__name__)
        if self._token is not None:
            _CURRENT_SPAN.reset(self._token)


def start_span(name: str, *, is_remote: bool = False, **attributes: AttributeValue) -> SpanScope | _NoopSpan:
    """
    Return a context manager that traces its block within a traced request; otherwise it does nothing.

    Doing nothing takes 0.3 µs (`python -m benchmarks.metrics`).

    Args:
        is_remote: The block waits for another server, which may join the trace.
    """
    parent = _CURRENT_SPAN.get()
    if parent is None or not parent.is_open:
        return _NOOP_SPAN
    return SpanScope(parent.start_child(name, attributes, is_remote=is_remote))


def attach_span(span: Span) -> Token[Span | None]:
    """Make *span* the parent of spans that start from here on. Call `detach_span` afterwards."""
    return _CURRENT_SPAN.set(span)


def detach_span(token: Token[Span | None]) -> None:
    """Undo `attach_span`."""
    _CURRENT_SPAN.reset(token)


def propagation_headers() -> Mapping[str, str]:
    """Return the trace headers for a request to another server; empty when nothing is traced."""
    current = _CURRENT_SPAN.get()
    return {} if current is None else current.propagation_headers()
