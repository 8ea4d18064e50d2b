"""Request metrics and the access log: a count and a duration for each request, and a log line if the operator enables it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import cast
from urllib.parse import parse_qsl

import structlog
from starlette.types import Scope

from rookery.kernel.http.responses import IS_UPSTREAM_ERROR, STATUS_CLIENT_CLOSED
from rookery.kernel.metrics import MetricDescription, Metrics, MetricSample, MetricSource
from rookery.kernel.request_context import RequestCaller

_log = structlog.stdlib.get_logger("rookery.requests")

UNMATCHED_ROUTE = "unmatched"
"""The route label of requests that match no route: unknown paths and methods, foreign hosts. It keeps the number of labels bounded."""

_KNOWN_METHODS = frozenset("GET HEAD POST PUT PATCH DELETE OPTIONS".split())
_MAX_PATH_LENGTH = 500


class RequestMetrics:
    """
    The metrics of the requests to this process.

    Args:
        metrics: The registry that exposes the figures.
        access_log: Log a line for each request.
        client_address: Returns the client address of a scope, as far as it is known without a key.

    Attributes:
        in_flight: Requests being served. `EdgeMiddleware` counts them.
    """

    def __init__(self, metrics: Metrics, *, access_log: bool = False, client_address: Callable[[Scope], str] | None = None) -> None:
        self.in_flight = 0
        self._is_logged = access_log
        self._client_address = client_address or _peer_address
        self._statuses: dict[tuple[str, str, int], int] = {}
        self._errors = metrics.add_counter(
            "rookery_http_errors_total",
            "Requests answered with an error, by error code: rejected (4xx) and failed (5xx), including failures of tools.",
            "code",
        )
        self._failures = metrics.add_counter(
            "rookery_http_failures_total",
            "Requests that Rookery failed to serve (5xx), by error code, without failures of tools and tool servers.",
            "route",
            "code",
        )
        self._durations = metrics.add_histogram(
            "rookery_http_request_duration_seconds", "Time from the head of a request to the end of its response.", "method", "route"
        )
        metrics.add_source(MetricSource(name="http", metrics=_METRICS, read=self._samples))

    def record(self, scope: Scope, status: int, duration_s: float) -> None:
        """
        Count one finished request.

        Args:
            scope: Its state holds the matched route and the error code, if any.
            status: The status sent; 0 if nothing was sent.
        """
        state = cast("Mapping[str, object]", scope["state"])
        method, route, status = (
            cast("str", scope["method"]),
            cast("str", state.get("route", UNMATCHED_ROUTE)),
            status or STATUS_CLIENT_CLOSED,
        )
        if route is UNMATCHED_ROUTE and method not in _KNOWN_METHODS:
            method = "OTHER"
        name = (method, route, status)
        statuses = self._statuses
        statuses[name] = statuses.get(name, 0) + 1
        self._durations.observe(duration_s, method, route)
        if status >= 400:
            code = state.get("error")
            if code is not None:
                self._errors.add(cast("str", code))
            if status >= HTTPStatus.INTERNAL_SERVER_ERROR and not state.get(IS_UPSTREAM_ERROR):
                self._failures.add(route, cast("str", code or "none"))
        if self._is_logged:
            self._log_request(scope, method, route, status, duration_s)

    def _log_request(self, scope: Scope, method: str, route: str, status: int, seconds: float) -> None:
        state = cast("Mapping[str, object]", scope["state"])
        caller = state.get("caller")
        raw_query = cast("bytes", scope.get("query_string", b""))
        _log.info(
            "request",
            method=method,
            route=route,
            path=cast("str", scope["path"])[:_MAX_PATH_LENGTH],
            query=_query_field_names(raw_query) if raw_query else [],
            status=status,
            error=state.get("error"),
            duration_ms=round(seconds * 1000, 3),
            address=caller.address if isinstance(caller, RequestCaller) else self._client_address(scope),
        )

    async def _samples(self) -> Sequence[MetricSample]:
        requests: list[MetricSample] = [
            ("rookery_http_requests_total", (method, route, str(status)), count)
            for (method, route, status), count in self._statuses.items()
        ]
        return [*requests, ("rookery_http_requests_in_flight", (), self.in_flight)]


_METRICS = (
    MetricDescription(
        "rookery_http_requests_total",
        "counter",
        "Requests answered; status 499: the client disconnected first.",
        ("method", "route", "status"),
    ),
    MetricDescription("rookery_http_requests_in_flight", "gauge", "Requests being served now."),
)


def _query_field_names(raw_query: bytes) -> list[str]:
    """Return the names of the query parameters. The values may be secret and are not logged."""
    try:
        pairs = parse_qsl(raw_query.decode("latin-1"), keep_blank_values=True, max_num_fields=50)
    except ValueError:
        return ["…"]
    return sorted({name[:50] for name, _ in pairs})


def _peer_address(scope: Scope) -> str:
    client = cast("tuple[str, int] | None", scope.get("client"))
    return client[0] if client else "unknown"
