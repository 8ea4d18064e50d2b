"""The outermost middleware: request ids, hosts, origins, and the headers of each response."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping
from typing import cast
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rookery.kernel import tracing
from rookery.kernel.errors import RookeryError
from rookery.kernel.http.access_log import UNMATCHED_ROUTE, RequestMetrics
from rookery.kernel.http.responses import ERROR_FORMAT, CrossSiteCredentials, ErrorFormat, HostNotAllowed, error_response, respond_not_found
from rookery.kernel.http.routes import RequestGuard, RouteEndpoint, method_not_allowed
from rookery.kernel.ids import new_request_id
from rookery.kernel.metrics import Metrics
from rookery.kernel.request_context import CURRENT_REQUEST, RequestContext

_REQUEST_ID = re.compile(rb"(?!.*(?:(?:sk_(?:live|test)|whsec)_|ak_[A-Za-z0-9]{32}))[A-Za-z0-9._-]{1,128}")
"""The form of a request id. A value that contains a key is rejected, because the id is returned, logged and stored."""

_FIXED_HEADERS = ((b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store"))
_RATE_LIMIT_PREFIX = b"x-ratelimit-"
_UNROUTED_STATUSES = frozenset({404, 405})
"""Statuses of requests that match no route, and whose key has therefore not been checked."""
_MAX_PATH_SEGMENTS = 200
_MIN_FAILURE_STATUS = 500
"""The lowest status that marks a span as failed: the server's own errors (OpenTelemetry's HTTP conventions)."""

Headers = list[tuple[bytes, bytes]]


class _EdgeHeaders:
    """The headers that matter to every route, collected in one pass."""

    __slots__ = ("dest", "has_basic", "host", "mode", "origin", "request_id", "site")

    def __init__(self) -> None:
        self.host: bytes | None = None
        self.request_id: bytes | None = None
        self.origin: bytes | None = None
        self.site: bytes | None = None
        self.mode: bytes | None = None
        self.dest: bytes | None = None
        self.has_basic = False

    def add(self, name: bytes, value: bytes) -> None:
        """Store *value* if *name* is one of these headers. The last of repeated headers wins."""
        if name == b"host":
            self.host = value
        elif name == b"authorization":
            self.has_basic = self.has_basic or value[:6].lower() == b"basic "
        elif name == b"x-request-id":
            self.request_id = value
        elif name == b"origin":
            self.origin = value
        elif name == b"sec-fetch-site":
            self.site = value
        elif name == b"sec-fetch-mode":
            self.mode = value
        elif name == b"sec-fetch-dest":
            self.dest = value

    def is_navigation(self, method: str) -> bool:
        """
        Return whether a browser opens the URL in a window of its own, because the user followed a link on any site.

        The linking site cannot read the response, and a GET changes nothing. Requests of scripts, embedded content and forms do not
        count as navigation.
        """
        return method == "GET" and self.origin is None and self.mode == b"navigate" and self.dest == b"document"


class EdgeMiddleware:
    """
    The server's ASGI application for HTTP, with the checks and headers that every route needs.

    Args:
        endpoints_by_path: Endpoints of paths without parameters, by path, then method.
        router: Serves all other paths.
        hosts: Host names of this server, lower case, without ports.
        origins: Origins of this server (scheme://host[:port]).
        public_url: Returns the public scheme and host of a path, for links.
        error_format: Returns the error format of the route of a request. None: the common format.
        request_metrics: Counts each request. None: metrics that are not exposed.
        tracer: Receives spans. None: no tracing.
    """

    def __init__(
        self,
        *,
        endpoints_by_path: Mapping[str, Mapping[str, RouteEndpoint]],
        router: ASGIApp,
        hosts: Iterable[str],
        origins: Iterable[str],
        public_url: Callable[[str], str],
        guard: RequestGuard | None = None,
        error_format: Callable[[Scope], ErrorFormat | None] | None = None,
        request_metrics: RequestMetrics | None = None,
        tracer: tracing.Tracer | None = None,
    ) -> None:
        self._endpoints_by_path = endpoints_by_path
        self._router = router
        self._hosts = frozenset(host.lower() for host in hosts)
        self._origins = frozenset(origin.lower() for origin in origins)
        self._public_url = public_url
        self._guard = guard
        self._error_format = error_format
        self._request_metrics = request_metrics or RequestMetrics(Metrics())
        self._tracer = tracer
        self._known_hosts: dict[bytes, bool] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        edge_headers = _EdgeHeaders()
        for name, value in cast("Headers", scope["headers"]):
            edge_headers.add(name, value)
        identity = choose_request_id(None if edge_headers.request_id is None else edge_headers.request_id.decode("latin-1"))
        path = cast("str", scope["path"])
        state: dict[str, object] = {"request_id": identity, "headers": (), "address": self._public_url(path)}
        scope["state"] = state
        status = 0

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = int(message["status"])  # an HTTPStatus would be logged with its name
                if message["status"] in _UNROUTED_STATUSES and "route" not in state:
                    state["headers"] = await self._rate_limit_headers(scope)
                headers = cast("Headers", message["headers"])
                headers.append((b"x-request-id", identity.encode("ascii")))
                headers.extend(cast("Iterable[tuple[bytes, bytes]]", state["headers"]))
                present = {name.lower() for name, _ in headers}
                headers.extend(header for header in _FIXED_HEADERS if header[0] not in present)
            elif method == "HEAD":
                message = {**message, "body": b""}
            await send(message)

        method = cast("str", scope["method"])
        serving, traffic, started = RequestContext(identity, state), self._request_metrics, time.perf_counter()
        traced = None if self._tracer is None else _RequestSpan(self._tracer, scope, serving)
        token = CURRENT_REQUEST.set(serving)
        traffic.in_flight += 1
        try:
            await self._select_app(edge_headers, path, method)(scope, receive, send_with_headers)
        except Exception:
            status = status or 500
            raise
        finally:
            traffic.in_flight -= 1
            traffic.record(scope, status, time.perf_counter() - started)
            if traced is not None:
                traced.end(status)
            serving.finish()
            CURRENT_REQUEST.reset(token)

    async def _rate_limit_headers(self, scope: Scope) -> Iterable[tuple[bytes, bytes]]:
        """Return the rate limit headers for the key of a request that matches no route: every response to a valid key has them."""
        if self._guard is None:
            return ()
        try:
            return (await self._guard.admit(scope, required_scope=None, rate_limited=False)).headers
        except RookeryError as error:
            encoded_headers = ((name.lower().encode(), value.encode()) for name, value in error.headers.items())
            return [(name, value) for name, value in encoded_headers if name.startswith(_RATE_LIMIT_PREFIX)]

    def _select_app(self, edge_headers: _EdgeHeaders, path: str, method: str) -> ASGIApp:
        """Return the application that serves the request: an error, the endpoint of a fixed path, or the router."""
        if not self._is_allowed_host(edge_headers.host):
            error = HostNotAllowed("The Host header is not a known address of this server. The operator can set ROOKERY_ALLOWED_HOSTS.")
            return self._error_app(error)
        if (
            edge_headers.has_basic
            and self._is_cross_site(edge_headers.origin, edge_headers.site)
            and not edge_headers.is_navigation(method)
        ):
            error = CrossSiteCredentials("Basic credentials are not accepted in requests from other sites.")
            return self._error_app(error)
        methods = self._endpoints_by_path.get(path)
        if methods is not None:
            return methods.get(method) or method_not_allowed(methods)
        return respond_not_found if path.count("/") > _MAX_PATH_SEGMENTS else self._router

    def _error_app(self, error: RookeryError) -> ASGIApp:
        """Return an application that responds with *error*, in the error format of the requested route."""

        async def refuse(scope: Scope, receive: Receive, send: Send) -> None:
            if self._error_format is not None:
                cast("dict[str, object]", scope["state"])[ERROR_FORMAT] = self._error_format(scope)
            await error_response(error)(scope, receive, send)

        return refuse

    def _is_allowed_host(self, host: bytes | None) -> bool:
        if host is None:
            return False
        is_allowed = self._known_hosts.get(host)
        if is_allowed is None:
            is_allowed = (_parse_host_name(host) in self._hosts) or "*" in self._hosts
            if len(self._known_hosts) < 1000:
                self._known_hosts[host] = is_allowed
        return is_allowed

    def _is_cross_site(self, origin: bytes | None, site: bytes | None) -> bool:
        foreign = origin is not None and origin.decode("latin-1").lower() not in self._origins
        return foreign or (site is not None and site.lower() == b"cross-site")


class _RequestSpan:
    """The trace span of one request."""

    __slots__ = ("_context", "_scope", "_span", "_token")

    def __init__(self, tracer: tracing.Tracer, scope: Scope, serving: RequestContext) -> None:
        self._scope = scope
        self._context = serving
        self._span = tracer.start_request_span(cast("str", scope["method"]), cast("Headers", scope["headers"]))
        self._token = tracing.attach_span(self._span)
        serving.trace_id = self._span.trace_id

    def end(self, status: int) -> None:
        """End the span and name it after the route. The raw path, which may hold personal data, is not recorded."""
        state, caller = self._context.state, self._context.caller()
        route, error = cast("str", state.get("route", UNMATCHED_ROUTE)), cast("str | None", state.get("error"))
        attributes: dict[str, tracing.AttributeValue] = {
            "http.route": route,
            "http.response.status_code": status,
            "rookery.request_id": self._context.request_id,
        }
        if caller is not None:
            attributes |= {"rookery.workspace_id": caller.public_workspace_id, "rookery.key_id": caller.key_id}
        if error is not None:
            attributes["error.type"] = error
        self._span.rename(f"{self._scope['method']} {route}", attributes)
        tracing.detach_span(self._token)
        self._span.end(error=(error or str(status)) if status >= _MIN_FAILURE_STATUS else None)


def choose_request_id(header_value: str | None) -> str:
    """Return the id of a request: the caller's own if its form is valid, otherwise a new one."""
    return header_value if header_value is not None and _REQUEST_ID.fullmatch(header_value.encode("utf-8")) else new_request_id()


def _parse_host_name(host: bytes) -> str | None:
    try:
        return urlsplit("//" + host.decode("ascii").lower()).hostname
    except ValueError:
        return None
