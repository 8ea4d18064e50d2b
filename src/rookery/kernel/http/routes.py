"""
One row a route, and the endpoint that each row becomes.

Starlette matches paths with parameters; reading the request is ours
(measured in notes on the platform, section 4.1: its dependency solving costs more than the rest of a small request).
"""

from __future__ import annotations

import inspect
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Protocol, TypeVar, cast, get_args, get_origin
from urllib.parse import parse_qsl

import structlog
from fastapi import FastAPI
from pydantic import BaseModel, ValidationError
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route as BaseRoute
from starlette.types import Message, Receive, Scope, Send

from rookery.kernel.disk_space import DiskSpace
from rookery.kernel.errors import RookeryError, ValidationFailed
from rookery.kernel.http.idempotency import IdempotencyHandler, RebuildResponse, build_request, read_idempotency_key
from rookery.kernel.http.openapi import get_route_docs
from rookery.kernel.http.request_body import ClientDisconnected, UnsupportedMediaType, parse_json, read_body
from rookery.kernel.http.responses import ERROR_FORMAT, ErrorFormat, MethodNotAllowed, error_response
from rookery.kernel.preconditions import NotVersioned, parse_if_match
from rookery.kernel.schema import map_validation_error

_log = structlog.stdlib.get_logger("rookery.http")

BYTES_PER_MIB = 1024 * 1024
_MAX_QUERY_FIELDS = 100
_MAX_ERROR_FIELDS = 100
_SAFE_METHODS = frozenset({"GET", "HEAD"})
_EVENT_STREAM = "text/event-stream"
_KEY_HEADERS = frozenset({b"authorization", b"x-api-key"})
_STATUS_CLIENT_CLOSED = 499
"""What the usage log says of a request whose caller was gone before the answer, as proxies do; it is never sent."""

Handler = Callable[..., Awaitable[Response]]
H = TypeVar("H", bound=Handler)


class AdmissionResult(Protocol):
    """Who was let in; `headers` go on the answer, `caller` into the request's state."""

    @property
    def caller(self) -> object: ...

    @property
    def headers(self) -> Iterable[tuple[bytes, bytes]]: ...

    def record(self, *, method: str, route: str, status: int, duration_ms: float) -> None:
        """Keep that this call was made (spec 5.3, step 7); quick, never raises."""
        ...


class RequestGuard(Protocol):
    """Decides who may call; `access.guard` does, kernel does not know it."""

    async def admit(self, scope: MutableMapping[str, object], *, required_scope: str | None, rate_limited: bool = True) -> AdmissionResult:
        """Return the admission, or raise the first reason to refuse (spec 5.3); *required_scope* None asks for a valid key only."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """
    One row of a domain's table.

    Attributes:
        handler: `async (request?, body?, query?, path parameters…) -> Response`; a Body model is the JSON body, a Query
            model in `Annotated[…, fastapi.Query()]` the query, a str of the same name a path parameter.
        required_scope: The scope; None: any valid key (D-27's status routes). It has no default: each route declares it.
        public: No key is asked for, and none is looked at, unless *optional_auth*.
        optional_auth: Of a public route: a key that is sent all the same is checked as anywhere, and shown what it may see.
        rate_limited: Whether a call counts against the key's rate limit.
        idempotent: Whether the route takes an Idempotency-Key (D-14): each POST that creates or sends does. Others pass over the header.
        secret_fields: Names of fields of its answer that are shown this once; an answer that has one is kept without it.
        operation_id: The name of the operation in the API description: a verb and its object in snake_case, such as `list_plans`. Routes
            with the same method, handler and name are one operation; the first is documented, the others are its aliases.
        description: What the operation does, beyond the docstring of its handler.
        rebuild_response: Builds the response again, for a route whose transaction stores only the id of what it made (`store_created_id`).
        errors: Refusals that it may answer with beyond those that follow from the row, for the documentation.
        body_optional: Whether a request without a body is one with an empty object. A POST or DELETE whose body has no required field is.
        map_error: Turns an error raised before or in the handler into the one to send; beside it is given the body as far as
            it could be read, and the parameters of the path.
        error_format: The body of every error of this route, if it is not D-10's.
        allows_slash: Whether the path with a slash at its end is the same route.
        ignores_query: Whether any query is accepted, and not read: for addresses that monitors request.
    """

    method: str
    path: str
    handler: Handler
    required_scope: str | None
    public: bool = False
    optional_auth: bool = False
    rate_limited: bool = True
    idempotent: bool = False
    secret_fields: Sequence[str] = ()
    rebuild_response: Callable[[Request, str], Awaitable[Response]] | None = None
    status: int = 200
    response_model: type[BaseModel] | None = None
    operation_id: str = ""
    summary: str = ""
    description: str = ""
    tags: Sequence[str] = ()
    errors: Sequence[type[RookeryError]] = ()
    max_body_bytes: int = BYTES_PER_MIB
    body_optional: bool = False
    map_error: Callable[[RookeryError, object, Mapping[str, str]], RookeryError] | None = None
    error_format: ErrorFormat | None = None
    allows_slash: bool = False
    ignores_query: bool = False


@dataclass(slots=True)
class _HandlerSignature:
    """What a handler's signature asks for."""

    request: str | None = None
    body: tuple[str, type[BaseModel]] | None = None
    query: tuple[str, type[BaseModel]] | None = None
    path_parameters: list[str] = field(default_factory=list[str])


class InternalError(RookeryError):
    """A mistake of ours; the log has the rest under the same request id."""


_ALLOWED_ON_FULL_DISK = "__rookery_allowed_on_full_disk__"


def allowed_on_full_disk(handler: H) -> H:
    """Serve the route also when the disk is nearly full: it reads, or it takes rights or memories away (D-17)."""
    setattr(handler, _ALLOWED_ON_FULL_DISK, True)
    return handler


def needs_disk_space(route: Route) -> bool:
    """Return whether the route is refused with 507 while the disk is nearly full: POST, PUT and PATCH are, unless they say otherwise."""
    return route.method in {"POST", "PUT", "PATCH"} and not route.public and not hasattr(route.handler, _ALLOWED_ON_FULL_DISK)


class RouteEndpoint:
    """A route as an ASGI application: admit, read, call, answer, record."""

    def __init__(
        self, route: Route, path: str, guard: RequestGuard, idempotency: IdempotencyHandler | None = None, disk: DiskSpace | None = None
    ) -> None:
        self.route = route
        self._disk = disk if needs_disk_space(route) else None
        self.path = path
        self.idempotency = idempotency if route.idempotent else None
        self._guard = guard
        self._signature = _parse_signature(route.handler)
        self._list_parameters = _list_fields(self._signature.query[1]) if self._signature.query else frozenset[str]()
        notes = get_route_docs(route.handler)
        self.refuses_body = self._signature.body is None and not notes.request_media_types and route.method not in _SAFE_METHODS
        self.refuses_if_match = route.method not in _SAFE_METHODS and not route.public and "If-Match" not in notes.request_headers
        self.answers_head = route.method == "GET" and _EVENT_STREAM not in notes.media_types
        self.is_body_optional = route.body_optional or (route.method in {"POST", "DELETE"} and _accepts_empty_object(self.body))

    @property
    def body(self) -> type[BaseModel] | None:
        """The model of the JSON body; None: it takes none, or reads it by itself."""
        return None if self._signature.body is None else self._signature.body[1]

    @property
    def query(self) -> type[BaseModel] | None:
        """The model of the query; None: it takes none."""
        return None if self._signature.query is None else self._signature.query[1]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request; only what ends the process passes through."""
        started = time.perf_counter()
        state = cast("dict[str, object]", scope["state"])
        state["route"] = self.path
        if self.route.error_format is not None:
            state[ERROR_FORMAT] = self.route.error_format
        seen: list[object] = [None]
        admission: AdmissionResult | None = None
        try:
            if not self.route.public or (self.route.optional_auth and _has_key(scope)):
                admission = await self._guard.admit(scope, required_scope=self.route.required_scope, rate_limited=self.route.rate_limited)
                state["caller"] = admission.caller
                state["headers"] = admission.headers
            if self._disk is not None:
                self._disk.require()
            if self.refuses_body and _has_body(scope):
                seen[0] = _require_no_content(scope, await read_body(receive, limit=self.route.max_body_bytes))
                receive = _receive_after_body(receive)
            response = await self._respond(Request(scope, receive, send), receive, seen)
        except ClientDisconnected:
            if admission is not None:
                elapsed_ms = (time.perf_counter() - started) * 1000
                admission.record(method=self.route.method, route=self.path, status=_STATUS_CLIENT_CLOSED, duration_ms=elapsed_ms)
            return
        except RookeryError as error:
            response = self._error_response(error, seen[0], cast("Mapping[str, str]", scope.get("path_params") or {}))
        except Exception:
            _log.exception("http.failed", route=self.path, method=self.route.method, request_id=state["request_id"])
            msg = "Something went wrong on our side; the log has more under this request id."
            response = error_response(InternalError(msg, request_id=state["request_id"]))
        try:
            await response(scope, receive, send)
        finally:
            if admission is not None:
                elapsed_ms = (time.perf_counter() - started) * 1000
                admission.record(method=self.route.method, route=self.path, status=response.status_code, duration_ms=elapsed_ms)

    async def _respond(self, request: Request, receive: Receive, seen: list[object]) -> Response:
        scope, plan = request.scope, self._signature
        mark = None if self.idempotency is None else read_idempotency_key(scope)
        arguments: dict[str, object] = {}
        query = cast("bytes", scope["query_string"])
        if (query or plan.query is not None) and not self.route.ignores_query:
            self._read_query(query, arguments)
        if self.refuses_if_match:
            _require_unconditional(scope)
        if plan.path_parameters:
            path_params = cast("Mapping[str, str]", scope["path_params"])
            for name in plan.path_parameters:
                value = path_params[name]
                if "\x00" in value:
                    raise ValidationFailed({name: ["must not contain the character NUL (U+0000)"]})
                arguments[name] = value
        if plan.body is not None:
            await self._read_body(plan.body, scope, receive, seen, arguments)
        if plan.request is not None:
            arguments[plan.request] = request
        if self.idempotency is None or mark is None:
            return await self.route.handler(**arguments)
        asked = build_request(cast("dict[str, object]", scope["state"]).get("caller"), scope, mark, seen[0])
        rebuild: RebuildResponse | None = None if self.route.rebuild_response is None else partial(self.route.rebuild_response, request)
        return await self.idempotency.run(
            asked, partial(self.route.handler, **arguments), secret_fields=self.route.secret_fields, rebuild=rebuild
        )

    async def _read_body(
        self, wanted: tuple[str, type[BaseModel]], scope: Scope, receive: Receive, seen: list[object], arguments: dict[str, object]
    ) -> None:
        name, model = wanted
        raw = await read_body(receive, limit=self.route.max_body_bytes)
        if not raw and self.is_body_optional:
            raw = b"{}"
        _require_json(scope, raw)
        seen[0] = parse_json(raw)
        try:
            arguments[name] = model.__pydantic_validator__.validate_python(seen[0])
        except ValidationError as error:
            raise map_validation_error(error, model) from None

    def _read_query(self, raw: bytes, arguments: dict[str, object]) -> None:
        pairs = _parse_query_string(raw)
        if self._signature.query is None:
            if pairs:
                raise ValidationFailed({name: ["this address takes no query"] for name, _ in pairs})
            return
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

    def _error_response(self, error: RookeryError, seen: object, path: Mapping[str, str]) -> Response:
        return error_response(error if self.route.map_error is None else self.route.map_error(error, seen, path))


class _EndpointRoute(BaseRoute):
    """A route that serves by its Endpoint, and says 405 in our words."""

    def __init__(self, path: str, endpoint: RouteEndpoint, methods_of_path: set[str]) -> None:
        super().__init__(path, endpoint)
        self.methods = {endpoint.route.method, *(("HEAD",) if endpoint.answers_head else ())}
        self.route_endpoint = endpoint
        self._methods_of_path = methods_of_path

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve, or refuse the method with those that the path has."""
        if scope["method"] in (self.methods or ()):
            await self.route_endpoint(scope, receive, send)
        else:
            await method_not_allowed(self._methods_of_path)(scope, receive, send)


def method_not_allowed(methods: Iterable[str]) -> Response:
    """Return the 405 of a path that has *methods_by_path*."""
    allowed = ", ".join(sorted(methods))
    return error_response(MethodNotAllowed(f"This path takes {allowed}.", headers={"Allow": allowed}))


@dataclass(slots=True)
class RouteTable:
    """
    All routes of a server: those of a fixed path by a look-up, the rest by the router of *app*.

    Attributes:
        disk: Refuses writes while the disk is nearly full; None: nothing is checked.
    """

    app: FastAPI
    disk: DiskSpace | None = None
    endpoints_by_path: dict[str, dict[str, RouteEndpoint]] = field(default_factory=dict[str, dict[str, RouteEndpoint]])
    endpoints: list[RouteEndpoint] = field(default_factory=list[RouteEndpoint])
    methods_by_path: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    error_formats: list[tuple[str, re.Pattern[str], ErrorFormat]] = field(default_factory=list[tuple[str, re.Pattern[str], ErrorFormat]])

    def find_error_format(self, method: str, path: str) -> ErrorFormat | None:
        """Return the format of errors at *path*, for what refuses a request before it reaches its route; None: D-10's."""
        return next((each for its_method, regex, each in self.error_formats if its_method == method and regex.match(path)), None)


def mount_routes(
    table: RouteTable, prefix: str, routes: Iterable[Route], guard: RequestGuard, idempotency: IdempotencyHandler | None = None
) -> None:
    """
    Add *routes* under *prefix*; two of the same method and path are a mistake in the tables (ValueError).

    Args:
        idempotency: What answers requests with an Idempotency-Key; without it all routes pass over that header.
    """
    for route in routes:
        path = prefix + route.path
        methods = table.methods_by_path.setdefault(path, set())
        if route.method in methods:
            msg = f"two routes for {route.method} {path}"
            raise ValueError(msg)
        if route.idempotent and (route.public or route.method != "POST"):
            msg = f"{route.method} {path} cannot take an Idempotency-Key: only a POST by somebody known can"
            raise ValueError(msg)
        endpoint = RouteEndpoint(route, path, guard, idempotency, table.disk)
        methods.update((route.method, *(("HEAD",) if endpoint.answers_head else ())))
        table.endpoints.append(endpoint)
        for served in (path, f"{path}/") if route.allows_slash else (path,):
            at = _EndpointRoute(served, endpoint, methods)
            table.app.router.routes.append(at)
            if route.error_format is not None:
                table.error_formats.append((route.method, at.path_regex, route.error_format))
            if "{" not in path:
                table.endpoints_by_path.setdefault(served, {})[route.method] = endpoint
                if endpoint.answers_head:
                    table.endpoints_by_path[served]["HEAD"] = endpoint


def _accepts_empty_object(model: type[BaseModel] | None) -> bool:
    """Return whether an empty object is a body of the model."""
    if model is None:
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
    """Return what to receive from once the body was read: an empty body first, for a handler that reads by itself."""
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
    Return what the body of a request to a route without a body holds: None, or an empty object.

    Raises:
        InvalidJson: It is not JSON.
        ValidationFailed: It holds fields or another value, which would be ignored.
    """
    if not raw:
        return None
    _require_json(scope, raw)
    value = parse_json(raw)
    if value is None or value == {}:
        return value
    if isinstance(value, dict):
        names = list(cast("dict[str, object]", value))[:_MAX_ERROR_FIELDS]
        raise ValidationFailed({name[:200]: ["unknown field; this address takes no body"] for name in names})
    raise ValidationFailed({"body": ["this address takes no body; send none, or an empty object"]})


def _require_unconditional(scope: Scope) -> None:
    """
    Do nothing if the request has no If-Match, or `*`: for writes that have no version to compare with (D-64).

    Raises:
        NoVersion: It names ETags, which would be ignored.
    """
    headers = cast("list[tuple[bytes, bytes]]", scope["headers"])
    given = [value.decode("latin-1") for name, value in headers if name == b"if-match"]
    if given and parse_if_match(given) is not None:
        raise NotVersioned(cast("str", scope["path"])[:200])


def _has_key(scope: Scope) -> bool:
    return any(name in _KEY_HEADERS for name, _ in cast("list[tuple[bytes, bytes]]", scope["headers"]))


def _parse_signature(handler: Handler) -> _HandlerSignature:
    plan = _HandlerSignature()
    for name, parameter in inspect.signature(handler, eval_str=True).parameters.items():
        kind: object = parameter.annotation
        if kind is Request:
            plan.request = name
        elif get_origin(kind) is Annotated:
            plan.query = (name, cast("type[BaseModel]", get_args(kind)[0]))
        elif isinstance(kind, type) and issubclass(kind, BaseModel):
            plan.body = (name, kind)
        elif kind is str:
            plan.path_parameters.append(name)
        else:
            msg = f"{handler.__qualname__}: parameter {name!r} is none of Request, a body, Annotated[query, Query()], a str of the path"
            raise TypeError(msg)
    return plan


def _list_fields(model: type[BaseModel]) -> frozenset[str]:
    return frozenset(
        name for name, info in model.model_fields.items() if "list[" in str(info.annotation) or "tuple[" in str(info.annotation)
    )


def _parse_query_string(raw: bytes) -> list[tuple[str, str]]:
    try:
        pairs = parse_qsl(raw.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=_MAX_QUERY_FIELDS)
    except ValueError as error:
        reason = "is not UTF-8" if isinstance(error, UnicodeDecodeError) else f"has more than {_MAX_QUERY_FIELDS} fields"
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
                shown = kind.decode("latin-1")[:100]
                msg = f"The body is declared as {shown!r}; send it with Content-Type: application/json."
                raise UnsupportedMediaType(msg)
            return
