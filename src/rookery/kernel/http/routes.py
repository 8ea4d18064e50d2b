"""
The rows of the route tables, and the ASGI endpoint for each row.

This module reads the request itself: FastAPI's dependency solving costs more than the rest
of a small request.

The router of paths with parameters tries only the routes that begin like the requested path. Starlette's router tries all routes in
turn: 48 µs of CPU for the median of 222 routes and 90 for the slowest, against 5 and 13 here (`python -m benchmarks.routing`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from http import HTTPStatus
from typing import Protocol, cast
from urllib.parse import parse_qsl

import structlog
from pydantic import BaseModel, ValidationError
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Mount, Route
from starlette.routing import Route as BaseRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rookery.kernel.data_folder import DiskSpace
from rookery.kernel.errors import EngineUnavailable, RookeryError, ValidationFailed
from rookery.kernel.http.idempotency import IdempotencyHandler, RebuildResponse, build_request, read_idempotency_key, respond_with
from rookery.kernel.http.operations import (
    CALLER_PARAMETER,
    IF_MATCH_PARAMETER,
    SESSION_HEADER,
    AddContext,
    ItemPage,
    Operation,
    Output,
    parse_signature,
)
from rookery.kernel.http.request_body import (
    ClientDisconnected,
    UnsupportedMediaType,
    parse_json,
    read_body,
    replace_unstorable_escapes,
)
from rookery.kernel.http.responses import (
    ERROR_FORMAT,
    IS_UPSTREAM_ERROR,
    STATUS_CLIENT_CLOSED,
    ErrorFormat,
    MethodNotAllowed,
    error_response,
    json_response,
    page_response,
    respond_not_found,
)
from rookery.kernel.logs import FailureLog
from rookery.kernel.preconditions import NotVersioned, format_etag, parse_if_match
from rookery.kernel.request_context import ADMISSION
from rookery.kernel.schema import CursorQuery, PageQuery, map_validation_error, parse_model
from rookery.kernel.working_context import CallSession, WorkingContextFinder


class PathRouter:
    """
    An ASGI application that serves a request by the first added route that matches it, as Starlette's router does.

    Args:
        default: The application for paths that match no route.
    """

    def __init__(self, default: ASGIApp) -> None:
        self.default = default
        self._routes: list[tuple[str, Route | Mount]] = []
        self._starts: set[str] = set()
        self._routes_by_start: dict[str, Sequence[Route | Mount]] = {}

    def add(self, route: Route | Mount) -> None:
        """Add a route after all others."""
        start = f"{route.path}/" if isinstance(route, Mount) else _get_start(route.path)
        self._routes.append((start, route))
        self._starts.add(start)
        self._routes_by_start.clear()

    def match(self, scope: Scope) -> Iterator[tuple[Match, Scope, Route | Mount]]:
        """Yield the routes that match the path of *scope*, each with its match and its part of the scope."""
        for route in self._find_candidates(cast("str", scope["path"])):
            match, child_scope = route.matches(scope)
            if match is not Match.NONE:
                yield match, child_scope, route

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request. A route for another method serves it if no route matches completely."""
        other_method: tuple[Scope, Route | Mount] | None = None
        for match, child_scope, route in self.match(scope):
            if match is Match.FULL:
                scope.update(child_scope)
                await route.handle(scope, receive, send)
                return
            other_method = other_method or (child_scope, route)
        if other_method is None:
            await self.default(scope, receive, send)
        else:
            scope.update(other_method[0])
            await other_method[1].handle(scope, receive, send)

    def _find_candidates(self, path: str) -> Sequence[Route | Mount]:
        """Return the routes whose fixed start is a start of *path*, in their order."""
        start = path
        while start not in self._starts:
            if len(start) <= 1:
                return ()
            start = start[: start.rfind("/", 0, -1) + 1]
        candidates = self._routes_by_start.get(start)
        if candidates is None:
            candidates = self._routes_by_start[start] = [route for its_start, route in self._routes if start.startswith(its_start)]
        return candidates


def _get_start(path: str) -> str:
    """Return *path* up to the segment of its first parameter, or the whole path if it has none."""
    fixed, brace, _ = path.partition("{")
    return fixed[: fixed.rfind("/") + 1] if brace else path


_log = structlog.stdlib.get_logger("rookery.http")

NO_QUERY_MESSAGE = "this path takes no query parameters"

_MAX_QUERY_FIELDS = 100
_MAX_ERROR_FIELDS = 100
_SAFE_METHODS = frozenset({"GET", "HEAD"})
_EVENT_STREAM = "text/event-stream"
_KEY_HEADERS = frozenset({b"authorization", b"x-api-key"})


class AdmissionResult(Protocol):
    """The result of a successful admission: `headers` go on the response, `caller` into the request's state."""

    @property
    def caller(self) -> object: ...

    @property
    def headers(self) -> Iterable[tuple[bytes, bytes]]: ...

    def record(self, *, method: str, route: str, status: int, duration_ms: float, is_upstream_error: bool = False) -> None:
        """
        Record the call. Fast; never raises.

        Args:
            is_upstream_error: The status is that of an error of a tool, its server or a language model.
        """
        ...


class RequestGuard(Protocol):
    """The interface of the access check. `access.guard` implements it."""

    async def admit(self, scope: MutableMapping[str, object], *, required_scope: str | None, rate_limited: bool = True) -> AdmissionResult:
        """Return the admission, or raise the first reason to reject. Without *required_scope*, any valid key is admitted."""
        ...


class InternalError(RookeryError):
    """An unexpected exception in Rookery. The log has the details under the same request id."""


def needs_disk_space(route: Operation) -> bool:
    """Return whether a nearly full disk blocks the route with 507. By default it blocks POST, PUT and PATCH."""
    return route.method in {"POST", "PUT", "PATCH"} and not route.public and not route.allowed_on_full_disk


class RouteEndpoint:
    """A route as an ASGI application: admit, read, call the handler, respond, record."""

    def __init__(
        self,
        route: Operation,
        path: str,
        guard: RequestGuard,
        *,
        idempotency: IdempotencyHandler | None = None,
        disk: DiskSpace | None = None,
        contexts: WorkingContextFinder | None = None,
    ) -> None:
        self.route = route
        self._disk = disk if needs_disk_space(route) else None
        self.path = path
        self.idempotency = idempotency if route.idempotent else None
        self._guard = guard
        self._outages = FailureLog(_log, "http.outage_hidden")
        self._signature = parse_signature(route.handler)
        self._contexts = contexts
        self._add_context = route.add_context
        self._list_parameters = _list_fields(self._signature.query[1]) if self._signature.query else frozenset[str]()
        self.refuses_body = self._signature.body is None and not route.request_media_types and route.method not in _SAFE_METHODS
        compares_if_match = "If-Match" in route.all_request_headers and (self._signature.takes_if_match or self._signature.requires_request)
        self.refuses_if_match = route.method not in _SAFE_METHODS and not route.public and not compares_if_match
        self.answers_head = route.method == "GET" and _EVENT_STREAM not in route.media_types
        self.is_body_optional = route.body_optional or (route.method in {"POST", "DELETE"} and _accepts_empty_object(self.body))

    @property
    def body(self) -> type[BaseModel] | None:
        """The model of the JSON body; None if the route has no body or reads it itself."""
        return None if self._signature.body is None else self._signature.body[1]

    @property
    def query(self) -> type[BaseModel] | None:
        """The model of the query; None if the route has no query."""
        return None if self._signature.query is None else self._signature.query[1]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request. Exceptions become error responses, except those that end the process."""
        started = time.perf_counter()
        state = cast("dict[str, object]", scope["state"])
        state["route"] = self.path
        if self.route.error_format is not None:
            state[ERROR_FORMAT] = self.route.error_format
        body: list[object] = [None]  # filled by `_respond`, for error handlers
        admission: AdmissionResult | None = None
        try:
            if not self.route.public or (self.route.optional_auth and _has_key(scope)):
                admission = await self._admit(scope)
                state["caller"] = admission.caller
                state["headers"] = admission.headers
                state[ADMISSION] = admission
            if self._disk is not None:
                self._disk.require()
            if self.refuses_body and _has_body(scope):
                body[0] = _require_no_content(scope, await read_body(receive, limit=self.route.max_body_bytes, scope=scope))
                receive = _receive_after_body(receive)
            response = await self._respond(Request(scope, receive, send), receive, body)
        except ClientDisconnected:
            if admission is not None:
                elapsed_ms = (time.perf_counter() - started) * 1000
                admission.record(method=self.route.method, route=self.path, status=STATUS_CLIENT_CLOSED, duration_ms=elapsed_ms)
            return
        except RookeryError as error:
            response = self._error_response(error, body[0], cast("Mapping[str, str]", scope.get("path_params") or {}))
        except Exception:
            _log.exception("http.failed", route=self.path, method=self.route.method, request_id=state["request_id"])
            msg = "The server failed to process the request. The log of the server has the details under this request id."
            failure = InternalError(msg, request_id=state["request_id"])
            response = self._outage_response(failure) or error_response(failure)
        try:
            await response(scope, receive, send)
        finally:
            if admission is not None:
                elapsed_ms = (time.perf_counter() - started) * 1000
                admission.record(
                    method=self.route.method,
                    route=self.path,
                    status=response.status_code,
                    duration_ms=elapsed_ms,
                    is_upstream_error=bool(state.get(IS_UPSTREAM_ERROR)),
                )

    async def _admit(self, scope: Scope) -> AdmissionResult:
        is_counted = self.route.rate_limited and not self.route.counted_by_handler
        admission = self._guard.admit(scope, required_scope=self.route.required_scope, rate_limited=is_counted)
        limit_s = self.route.outage_after_s
        if limit_s is None:
            return await admission
        try:
            async with asyncio.timeout(limit_s):
                return await admission
        except TimeoutError:
            raise EngineUnavailable("database", f"the check of the key took longer than {limit_s:g} s") from None

    async def _respond(self, request: Request, receive: Receive, parsed_body: list[object]) -> Response:
        scope = request.scope
        idempotency_key = None if self.idempotency is None else read_idempotency_key(scope)
        arguments = await self._read_arguments(request, receive, parsed_body)
        if self.idempotency is None or idempotency_key is None:
            return await self._run(request, arguments)
        idempotent_request = build_request(cast("dict[str, object]", scope["state"]).get("caller"), scope, idempotency_key, parsed_body[0])
        rebuild: RebuildResponse | None = None if self.route.rebuild_response is None else partial(self._rebuild, request, arguments)
        return await self.idempotency.run(
            idempotent_request, partial(self._run, request, arguments), secret_fields=self.route.secret_fields, rebuild=rebuild
        )

    async def _read_arguments(self, request: Request, receive: Receive, parsed_body: list[object]) -> dict[str, object]:
        """Return the arguments of the handler, by name."""
        scope, signature = request.scope, self._signature
        arguments: dict[str, object] = {}
        query = cast("bytes", scope["query_string"])
        values: Mapping[str, object] = {}
        if (query or signature.query is not None) and not self.route.ignores_query:
            values = self._read_query(query, arguments)
        if self.refuses_if_match:
            _require_unconditional(scope)
        path_params = self._read_path(scope)
        arguments |= path_params
        if signature.query is not None and isinstance(list_query := arguments.get(signature.query[0]), CursorQuery):
            list_query.bind(self.route.list_name, {**values, **path_params})
        if signature.body is not None:
            await self._read_body(signature.body, scope, receive, parsed_body, arguments)
        if signature.request is not None:
            arguments[signature.request] = request
        if signature.takes_caller:
            arguments[CALLER_PARAMETER] = cast("dict[str, object]", scope["state"]).get("caller")
        if signature.takes_if_match:
            arguments[IF_MATCH_PARAMETER] = parse_if_match(request.headers.getlist("if-match"))
        return arguments

    def _read_path(self, scope: Scope) -> dict[str, str]:
        """Return the values of the path parameters, by name."""
        if not self._signature.path_parameters:
            return {}
        values = {name: cast("Mapping[str, str]", scope["path_params"])[name] for name in self._signature.path_parameters}
        for name, value in values.items():
            if "\x00" in value:
                raise ValidationFailed({name: ["must not contain the character NUL (U+0000)"]})
        return values

    async def _run(self, request: Request, arguments: Mapping[str, object]) -> Response:
        """Run the handler and return the response to its result."""
        operation = self.route
        respond = partial(self._to_response, request, arguments)
        if operation.committed is not None:
            respond = respond_with(operation.committed, respond)
        result = await operation.handler(**arguments)
        if isinstance(result, Response):
            return result
        if operation.is_large is not None and operation.is_large(result):
            return await asyncio.to_thread(respond, result)
        return respond(result)

    async def _rebuild(self, request: Request, arguments: Mapping[str, object], created_id: str) -> Response:
        rebuild = cast("Callable[[Request, str], Awaitable[object]]", self.route.rebuild_response)
        result = await rebuild(request, created_id)
        return result if isinstance(result, Response) else self._to_response(request, arguments, result)

    def _to_response(self, request: Request, arguments: Mapping[str, object], result: object) -> Response:
        operation = self.route
        if result is None:
            return Response(status_code=204)
        caller = cast("dict[str, object]", request.scope["state"]).get("caller")
        if isinstance(result, ItemPage):
            page = cast("ItemPage[object]", result)
            query = cast("PageQuery", arguments[cast("tuple[str, object]", self._signature.query)[0]])
            items = operation.to_items(caller, page.items)
            return page_response(request, items, query=query, total=page.total, end=page.end, summary=page.summary)
        output = operation.to_body(caller, result)
        if not isinstance(output, Output):
            return json_response(output, status=operation.status)
        headers = output.headers if output.version is None else {"ETag": format_etag(output.version), **output.headers}
        status = operation.status if output.status is None else output.status
        if output.body is None:
            return Response(status_code=status, headers=headers)
        return json_response(output.body, status=status, headers=headers)

    async def _read_body(
        self,
        parameter: tuple[str, type[BaseModel]],
        scope: Scope,
        receive: Receive,
        parsed_body: list[object],
        arguments: dict[str, object],
    ) -> None:
        name, model = parameter
        raw = await read_body(receive, limit=self.route.max_body_bytes, scope=scope)
        if not raw and self.is_body_optional:
            raw = b"{}"
        _require_json(scope, raw)
        body = parsed_body[0] = parse_json(replace_unstorable_escapes(raw) if self.route.replaces_unstorable else raw)
        if self._add_context is not None and isinstance(body, dict):
            body = await self._add_session_context(self._add_context, cast("dict[str, object]", body), scope)
        arguments[name] = parse_model(model, body)

    async def _add_session_context(self, add_context: AddContext, body: dict[str, object], scope: Scope) -> dict[str, object]:
        """Return *body* with the org and project of the session that the request names, as far as it names none."""
        session_id = body.get("session_id") or Headers(scope=scope).get(SESSION_HEADER)
        if not isinstance(session_id, str) or self._contexts is None:
            return body
        caller = cast("dict[str, object]", scope["state"]).get("caller")
        context = await self._contexts.find(caller, CallSession(session_id=session_id, is_required=True))
        if context is None:
            return body
        completed_body = dict(body)
        add_context(completed_body, context)
        return completed_body

    def _read_query(self, raw: bytes, arguments: dict[str, object]) -> Mapping[str, object]:
        """Add the model of the query to *arguments* and return the parameters as they were sent."""
        pairs = _parse_query_string(raw)
        if self._signature.query is None:
            if pairs:
                raise ValidationFailed({name: [NO_QUERY_MESSAGE] for name, _ in pairs})
            return {}
        name, model = self._signature.query
        values: dict[str, object] = {}
        for key, value in pairs:
            if key in self._list_parameters:
                cast("list[str]", values.setdefault(key, list[str]())).append(value)
            elif key in values:
                raise ValidationFailed({key: ["is given more than once"]})
            else:
                values[key] = value
        try:
            arguments[name] = model.__pydantic_validator__.validate_python(values)
        except ValidationError as error:
            raise map_validation_error(error, model) from None
        return values

    def _outage_response(self, error: RookeryError) -> Response | None:
        """Return the response that hides a failure of the server from its client, for routes that have one (`Operation.outage_body`)."""
        if self.route.outage_body is None or error.status < HTTPStatus.INTERNAL_SERVER_ERROR:
            return None
        self._outages.report(error, route=self.path)
        return json_response(self.route.outage_body)

    def _error_response(self, error: RookeryError, body: object, path: Mapping[str, str]) -> Response:
        outage_response = self._outage_response(error)
        if outage_response is not None:
            return outage_response
        return error_response(error if self.route.map_error is None else self.route.map_error(error, body, path))


class _EndpointRoute(BaseRoute):
    """A Starlette route that serves by its endpoint, and that responds to wrong methods with the usual error body."""

    def __init__(self, path: str, endpoint: RouteEndpoint, methods_of_path: set[str]) -> None:
        super().__init__(path, endpoint)
        self.methods = {endpoint.route.method, *(("HEAD",) if endpoint.answers_head else ())}
        self.route_endpoint = endpoint
        self._methods_of_path = methods_of_path

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the request, or respond with 405 and the methods of the path."""
        if scope["method"] in (self.methods or ()):
            await self.route_endpoint(scope, receive, send)
        else:
            await method_not_allowed(self._methods_of_path)(scope, receive, send)


def method_not_allowed(methods: Iterable[str]) -> Response:
    """Return the 405 response of a path that allows *methods*."""
    allowed = ", ".join(sorted(methods))
    return error_response(MethodNotAllowed(f"This path allows {allowed}.", headers={"Allow": allowed}))


@dataclass(slots=True)
class RouteTable:
    """
    The routes of a server. Fixed paths are found by a dictionary, paths with parameters by *router*.

    Attributes:
        disk: Rejects writes while the disk is nearly full. None: not checked.
        contexts: Finds the org and project of the session that a request names. None: nothing is filled in.
    """

    disk: DiskSpace | None = None
    contexts: WorkingContextFinder | None = None
    router: PathRouter = field(default_factory=lambda: PathRouter(respond_not_found))
    endpoints_by_path: dict[str, dict[str, RouteEndpoint]] = field(default_factory=dict[str, dict[str, RouteEndpoint]])
    endpoints: list[RouteEndpoint] = field(default_factory=list[RouteEndpoint])
    methods_by_path: dict[str, set[str]] = field(default_factory=dict[str, set[str]])

    def has_path(self, scope: Scope) -> bool:
        """Return whether a route has the path of *scope*, for any method."""
        return scope["path"] in self.endpoints_by_path or any(True for _ in self.router.match(scope))

    def find_error_format(self, scope: Scope) -> ErrorFormat | None:
        """Return the error format of a request that is rejected before it reaches its route. None: the common format."""
        endpoint = self.endpoints_by_path.get(scope["path"], {}).get(scope["method"])
        if endpoint is None:
            matches = (route for match, _, route in self.router.match(scope) if match is Match.FULL)
            endpoint = next((route.route_endpoint for route in matches if isinstance(route, _EndpointRoute)), None)
        return None if endpoint is None else endpoint.route.error_format


def mount_routes(
    table: RouteTable, prefix: str, routes: Iterable[Operation], guard: RequestGuard, idempotency: IdempotencyHandler | None = None
) -> None:
    """
    Add *routes* under *prefix*.

    Args:
        idempotency: Handles requests with an Idempotency-Key. Without it, all routes ignore that header.

    Raises:
        ValueError: Two routes have the same method and path, or a route cannot be idempotent.
    """
    for route in routes:
        if not route.path:
            continue
        path = prefix + route.path
        methods = table.methods_by_path.setdefault(path, set())
        if route.method in methods:
            msg = f"two routes for {route.method} {path}"
            raise ValueError(msg)
        if route.idempotent and (route.public or route.method != "POST"):
            msg = f"{route.method} {path} cannot take an Idempotency-Key: only a POST with a key can"
            raise ValueError(msg)
        endpoint = RouteEndpoint(route, path, guard, idempotency=idempotency, disk=table.disk, contexts=table.contexts)
        methods.update((route.method, *(("HEAD",) if endpoint.answers_head else ())))
        table.endpoints.append(endpoint)
        for served in (path, f"{path}/") if route.allows_slash else (path,):
            if "{" in path:
                table.router.add(_EndpointRoute(served, endpoint, methods))
            else:
                table.endpoints_by_path.setdefault(served, {})[route.method] = endpoint
                if endpoint.answers_head:
                    table.endpoints_by_path[served]["HEAD"] = endpoint


@cache
def _accepts_empty_object(model: type[BaseModel] | None) -> bool:
    """Return whether an empty object is valid for *model*."""
    if model is None or any(field.is_required() for field in model.model_fields.values()):
        return False
    try:
        model.__pydantic_validator__.validate_python({})
    except ValidationError:
        return False
    return True


def _has_body(scope: Scope) -> bool:
    return any(
        name == b"transfer-encoding" or (name == b"content-length" and value != b"0")
        for name, value in cast("list[tuple[bytes, bytes]]", scope["headers"])
    )


def _receive_after_body(receive: Receive) -> Receive:
    """Return a `receive` for after the body was read. It first yields an empty body, for a handler that reads it itself."""
    is_first = True

    async def receive_after() -> Message:
        nonlocal is_first
        if is_first:
            is_first = False
            return {"type": "http.request", "body": b"", "more_body": False}
        return await receive()

    return receive_after


def _require_no_content(scope: Scope, raw: bytes) -> object:
    """
    Check that a request to a route without a body has none; return its value, which is None or an empty object.

    Raises:
        InvalidJson: The body is not JSON.
        ValidationFailed: The body has fields or another value, which would be ignored.
    """
    if not raw:
        return None
    _require_json(scope, raw)
    value = parse_json(raw)
    if value is None or value == {}:
        return value
    if isinstance(value, dict):
        names = list(cast("dict[str, object]", value))[:_MAX_ERROR_FIELDS]
        raise ValidationFailed({name[:200]: ["unknown field; this path takes no body"] for name in names})
    raise ValidationFailed({"body": ["this path takes no body; send none, or an empty object"]})


def _require_unconditional(scope: Scope) -> None:
    """
    Check that the request has no If-Match except `*`, for writes to resources without versions.

    Raises:
        NotVersioned: If-Match contains ETags, which would be ignored.
    """
    headers = cast("list[tuple[bytes, bytes]]", scope["headers"])
    values = [value.decode("latin-1") for name, value in headers if name == b"if-match"]
    if values and parse_if_match(values) is not None:
        raise NotVersioned(cast("str", scope["path"])[:200])


def _has_key(scope: Scope) -> bool:
    return any(name in _KEY_HEADERS for name, _ in cast("list[tuple[bytes, bytes]]", scope["headers"]))


@cache  # the texts of annotations take 4 ms for all models, and every platform of a process has the same ones
def _list_fields(model: type[BaseModel]) -> frozenset[str]:
    return frozenset(
        name for name, info in model.model_fields.items() if "list[" in str(info.annotation) or "tuple[" in str(info.annotation)
    )


def _parse_query_string(raw: bytes) -> list[tuple[str, str]]:
    try:
        pairs = parse_qsl(raw.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=_MAX_QUERY_FIELDS)
    except ValueError as error:
        reason = "is not UTF-8" if isinstance(error, UnicodeDecodeError) else f"has more than {_MAX_QUERY_FIELDS} parameters"
        raise ValidationFailed({"query": [reason]}) from error
    for name, value in pairs:
        if "\x00" in name or "\x00" in value:
            raise ValidationFailed({name.replace("\x00", ""): ["must not contain the character NUL (U+0000)"]})
    return pairs


def _require_json(scope: Scope, raw: bytes) -> None:
    if not raw:
        raise ValidationFailed({"body": ["a JSON body is required"]})
    for name, value in cast("list[tuple[bytes, bytes]]", scope["headers"]):
        if name == b"content-type":
            kind = value.split(b";", 1)[0].strip().lower()
            if kind != b"application/json" and not kind.endswith(b"+json"):
                content_type = kind.decode("latin-1")[:100]
                msg = f"The Content-Type of the body is {content_type!r}. Send Content-Type: application/json."
                raise UnsupportedMediaType(msg)
            return
