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
from rookery.kernel.http.bodies import ClientLeft, UnsupportedMediaType, read_body, read_json
from rookery.kernel.http.describing import notes_of
from rookery.kernel.http.idempotency import Once, Rebuild, asked_by, mark_of
from rookery.kernel.http.replies import ERROR_FORMAT, ErrorFormat, MethodNotAllowed, error_reply
from rookery.kernel.preconditions import NoVersion, if_match
from rookery.kernel.wire import refusal

_log = structlog.stdlib.get_logger("rookery.http")

MIB = 1024 * 1024
_MAX_QUERY_FIELDS = 100
_MAX_NAMED = 100
_SAFE = frozenset({"GET", "HEAD"})
_EVENT_STREAM = "text/event-stream"
_KEY_HEADERS = frozenset({b"authorization", b"x-api-key"})
_CLIENT_LEFT = 499
"""What the usage log says of a request whose caller was gone before the answer, as proxies do; it is never sent."""

Handler = Callable[..., Awaitable[Response]]
H = TypeVar("H", bound=Handler)


class Admission(Protocol):
    """Who was let in; `headers` go on the answer, `caller` into the request's state."""

    @property
    def caller(self) -> object: ...

    @property
    def headers(self) -> Iterable[tuple[bytes, bytes]]: ...

    def record(self, *, method: str, route: str, status: int, duration_ms: float) -> None:
        """Keep that this call was made (spec 5.3, step 7); quick, never raises."""
        ...


class Admit(Protocol):
    """Decides who may call; `access.guard` does, kernel does not know it."""

    async def admit(self, scope: MutableMapping[str, object], *, needs: str | None, spend: bool = True) -> Admission:
        """Return the admission, or raise the first reason to refuse (spec 5.3); *needs* None asks for a valid key only."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """
    One row of a domain's table.

    Attributes:
        handler: `async (request?, body?, query?, path parameters…) -> Response`; a Body model is the JSON body, a Query
            model in `Annotated[…, fastapi.Query()]` the query, a str of the same name a path parameter.
        needs: The scope; None: any valid key (D-27's status routes). It has no default: each route declares it.
        public: No key is asked for, and none is looked at, unless *greets*.
        greets: Of a public route: a key that is sent all the same is checked as anywhere, and shown what it may see.
        spends: Whether a call counts against the key's rate limit.
        once: Whether the route takes an Idempotency-Key (D-14): each POST that creates or sends does. Others pass over the header.
        secrets: Names of fields of its answer that are shown this once; an answer that has one is kept without it.
        operation_id: The name of the operation in the API description: a verb and its object in snake_case, such as `list_plans`. Routes
            with the same method, handler and name are one operation; the first is documented, the others are its aliases.
        description: What the operation does, beyond the docstring of its handler.
        rebuild: Builds the answer again from the id of what the route made, if its transaction stores only that id (`record_made`).
        errors: Refusals that it may answer with beyond those that follow from the row, for the documentation.
        may_be_empty: Whether a request without a body is one with an empty object. A POST or DELETE whose body has no required field is.
        refuse: Turns an error raised before or in the handler into the one to send; beside it is given the body as far as
            it could be read, and the parameters of the path.
        error_format: The body of every error of this route, if it is not D-10's.
        allows_slash: Whether the path with a slash at its end is the same route.
        ignores_query: Whether any query is accepted, and not read: for addresses that monitors request.
    """

    method: str
    path: str
    handler: Handler
    needs: str | None
    public: bool = False
    greets: bool = False
    spends: bool = True
    once: bool = False
    secrets: Sequence[str] = ()
    rebuild: Callable[[Request, str], Awaitable[Response]] | None = None
    status: int = 200
    answers: type[BaseModel] | None = None
    operation_id: str = ""
    summary: str = ""
    description: str = ""
    tags: Sequence[str] = ()
    errors: Sequence[type[RookeryError]] = ()
    max_body: int = MIB
    may_be_empty: bool = False
    refuse: Callable[[RookeryError, object, Mapping[str, str]], RookeryError] | None = None
    error_format: ErrorFormat | None = None
    allows_slash: bool = False
    ignores_query: bool = False


@dataclass(slots=True)
class _Plan:
    """What a handler's signature asks for."""

    request: str | None = None
    body: tuple[str, type[BaseModel]] | None = None
    query: tuple[str, type[BaseModel]] | None = None
    paths: list[str] = field(default_factory=list[str])


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


class Endpoint:
    """A route as an ASGI application: admit, read, call, answer, record."""

    def __init__(self, route: Route, path: str, admit: Admit, once: Once | None = None, disk: DiskSpace | None = None) -> None:
        self.route = route
        self._disk = disk if needs_disk_space(route) else None
        self.path = path
        self.once = once if route.once else None
        self._admit = admit
        self._plan = _plan(route.handler)
        self._lists = _list_fields(self._plan.query[1]) if self._plan.query else frozenset[str]()
        notes = notes_of(route.handler)
        self.refuses_body = self._plan.body is None and not notes.takes and route.method not in _SAFE
        self.refuses_if_match = route.method not in _SAFE and not route.public and "If-Match" not in notes.reads
        self.answers_head = route.method == "GET" and _EVENT_STREAM not in notes.media
        self.may_be_empty = route.may_be_empty or (route.method in {"POST", "DELETE"} and _is_optional(self.body))

    @property
    def body(self) -> type[BaseModel] | None:
        """The model of the JSON body; None: it takes none, or reads it by itself."""
        return None if self._plan.body is None else self._plan.body[1]

    @property
    def query(self) -> type[BaseModel] | None:
        """The model of the query; None: it takes none."""
        return None if self._plan.query is None else self._plan.query[1]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request; only what ends the process passes through."""
        started = time.perf_counter()
        state = cast("dict[str, object]", scope["state"])
        state["route"] = self.path
        if self.route.error_format is not None:
            state[ERROR_FORMAT] = self.route.error_format
        seen: list[object] = [None]
        admission: Admission | None = None
        try:
            if not self.route.public or (self.route.greets and _has_key(scope)):
                admission = await self._admit.admit(scope, needs=self.route.needs, spend=self.route.spends)
                state["caller"] = admission.caller
                state["headers"] = admission.headers
            if self._disk is not None:
                self._disk.require()
            if self.refuses_body and _has_body(scope):
                seen[0] = _require_no_content(scope, await read_body(receive, limit=self.route.max_body))
                receive = _after_body(receive)
            response = await self._answer(Request(scope, receive, send), receive, seen)
        except ClientLeft:
            if admission is not None:
                elapsed_ms = (time.perf_counter() - started) * 1000
                admission.record(method=self.route.method, route=self.path, status=_CLIENT_LEFT, duration_ms=elapsed_ms)
            return
        except RookeryError as error:
            response = self._refused(error, seen[0], cast("Mapping[str, str]", scope.get("path_params") or {}))
        except Exception:
            _log.exception("http.failed", route=self.path, method=self.route.method, request_id=state["request_id"])
            msg = "Something went wrong on our side; the log has more under this request id."
            response = error_reply(InternalError(msg, request_id=state["request_id"]))
        try:
            await response(scope, receive, send)
        finally:
            if admission is not None:
                elapsed_ms = (time.perf_counter() - started) * 1000
                admission.record(method=self.route.method, route=self.path, status=response.status_code, duration_ms=elapsed_ms)

    async def _answer(self, request: Request, receive: Receive, seen: list[object]) -> Response:
        scope, plan = request.scope, self._plan
        mark = None if self.once is None else mark_of(scope)
        arguments: dict[str, object] = {}
        query = cast("bytes", scope["query_string"])
        if (query or plan.query is not None) and not self.route.ignores_query:
            self._read_query(query, arguments)
        if self.refuses_if_match:
            _require_unconditional(scope)
        if plan.paths:
            path_params = cast("Mapping[str, str]", scope["path_params"])
            for name in plan.paths:
                value = path_params[name]
                if "\x00" in value:
                    raise ValidationFailed({name: ["must not contain the character NUL (U+0000)"]})
                arguments[name] = value
        if plan.body is not None:
            await self._read_body(plan.body, scope, receive, seen, arguments)
        if plan.request is not None:
            arguments[plan.request] = request
        if self.once is None or mark is None:
            return await self.route.handler(**arguments)
        asked = asked_by(cast("dict[str, object]", scope["state"]).get("caller"), scope, mark, seen[0])
        rebuild: Rebuild | None = None if self.route.rebuild is None else partial(self.route.rebuild, request)
        return await self.once.answer(asked, partial(self.route.handler, **arguments), secrets=self.route.secrets, rebuild=rebuild)

    async def _read_body(
        self, wanted: tuple[str, type[BaseModel]], scope: Scope, receive: Receive, seen: list[object], arguments: dict[str, object]
    ) -> None:
        name, model = wanted
        raw = await read_body(receive, limit=self.route.max_body)
        if not raw and self.may_be_empty:
            raw = b"{}"
        _must_be_json(scope, raw)
        seen[0] = read_json(raw)
        try:
            arguments[name] = model.__pydantic_validator__.validate_python(seen[0])
        except ValidationError as error:
            raise refusal(error, model) from None

    def _read_query(self, raw: bytes, arguments: dict[str, object]) -> None:
        pairs = _pairs(raw)
        if self._plan.query is None:
            if pairs:
                raise ValidationFailed({name: ["this address takes no query"] for name, _ in pairs})
            return
        name, model = self._plan.query
        values: dict[str, object] = {}
        for key, value in pairs:
            if key in self._lists:
                cast("list[str]", values.setdefault(key, list[str]())).append(value)
            elif key in values:
                raise ValidationFailed({key: ["is given more than once"]})
            else:
                values[key] = value
        try:
            arguments[name] = model.__pydantic_validator__.validate_python(values)
        except ValidationError as error:
            raise refusal(error, model) from None

    def _refused(self, error: RookeryError, seen: object, path: Mapping[str, str]) -> Response:
        return error_reply(error if self.route.refuse is None else self.route.refuse(error, seen, path))


class _Mounted(BaseRoute):
    """A route that serves by its Endpoint, and says 405 in our words."""

    def __init__(self, path: str, endpoint: Endpoint, methods_of_path: set[str]) -> None:
        super().__init__(path, endpoint)
        self.methods = {endpoint.route.method, *(("HEAD",) if endpoint.answers_head else ())}
        self.ours = endpoint
        self._methods_of_path = methods_of_path

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve, or refuse the method with those that the path has."""
        if scope["method"] in (self.methods or ()):
            await self.ours(scope, receive, send)
        else:
            await refuse_method(self._methods_of_path)(scope, receive, send)


def refuse_method(methods: Iterable[str]) -> Response:
    """Return the 405 of a path that has *methods*."""
    allowed = ", ".join(sorted(methods))
    return error_reply(MethodNotAllowed(f"This path takes {allowed}.", headers={"Allow": allowed}))


@dataclass(slots=True)
class Mounted:
    """
    All routes of a server: those of a fixed path by a look-up, the rest by the router of *app*.

    Attributes:
        disk: Refuses writes while the disk is nearly full; None: nothing is checked.
    """

    app: FastAPI
    disk: DiskSpace | None = None
    exact: dict[str, dict[str, Endpoint]] = field(default_factory=dict[str, dict[str, Endpoint]])
    endpoints: list[Endpoint] = field(default_factory=list[Endpoint])
    methods: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    formats: list[tuple[str, re.Pattern[str], ErrorFormat]] = field(default_factory=list[tuple[str, re.Pattern[str], ErrorFormat]])

    def error_format(self, method: str, path: str) -> ErrorFormat | None:
        """Return the format of errors at *path*, for what refuses a request before it reaches its route; None: D-10's."""
        return next((each for its_method, regex, each in self.formats if its_method == method and regex.match(path)), None)


def mount(mounted: Mounted, prefix: str, routes: Iterable[Route], admit: Admit, once: Once | None = None) -> None:
    """
    Add *routes* under *prefix*; two of the same method and path are a mistake in the tables (ValueError).

    Args:
        once: What answers requests with an Idempotency-Key; without it all routes pass over that header.
    """
    for route in routes:
        path = prefix + route.path
        methods = mounted.methods.setdefault(path, set())
        if route.method in methods:
            msg = f"two routes for {route.method} {path}"
            raise ValueError(msg)
        if route.once and (route.public or route.method != "POST"):
            msg = f"{route.method} {path} cannot take an Idempotency-Key: only a POST by somebody known can"
            raise ValueError(msg)
        endpoint = Endpoint(route, path, admit, once, mounted.disk)
        methods.update((route.method, *(("HEAD",) if endpoint.answers_head else ())))
        mounted.endpoints.append(endpoint)
        for served in (path, f"{path}/") if route.allows_slash else (path,):
            at = _Mounted(served, endpoint, methods)
            mounted.app.router.routes.append(at)
            if route.error_format is not None:
                mounted.formats.append((route.method, at.path_regex, route.error_format))
            if "{" not in path:
                mounted.exact.setdefault(served, {})[route.method] = endpoint
                if endpoint.answers_head:
                    mounted.exact[served]["HEAD"] = endpoint


def _is_optional(model: type[BaseModel] | None) -> bool:
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


def _after_body(receive: Receive) -> Receive:
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
    _must_be_json(scope, raw)
    value = read_json(raw)
    if value is None or value == {}:
        return value
    if isinstance(value, dict):
        names = list(cast("dict[str, object]", value))[:_MAX_NAMED]
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
    if given and if_match(given) is not None:
        raise NoVersion(cast("str", scope["path"])[:200])


def _has_key(scope: Scope) -> bool:
    return any(name in _KEY_HEADERS for name, _ in cast("list[tuple[bytes, bytes]]", scope["headers"]))


def _plan(handler: Handler) -> _Plan:
    plan = _Plan()
    for name, parameter in inspect.signature(handler, eval_str=True).parameters.items():
        kind: object = parameter.annotation
        if kind is Request:
            plan.request = name
        elif get_origin(kind) is Annotated:
            plan.query = (name, cast("type[BaseModel]", get_args(kind)[0]))
        elif isinstance(kind, type) and issubclass(kind, BaseModel):
            plan.body = (name, kind)
        elif kind is str:
            plan.paths.append(name)
        else:
            msg = f"{handler.__qualname__}: parameter {name!r} is none of Request, a body, Annotated[query, Query()], a str of the path"
            raise TypeError(msg)
    return plan


def _list_fields(model: type[BaseModel]) -> frozenset[str]:
    return frozenset(
        name for name, info in model.model_fields.items() if "list[" in str(info.annotation) or "tuple[" in str(info.annotation)
    )


def _pairs(raw: bytes) -> list[tuple[str, str]]:
    try:
        pairs = parse_qsl(raw.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=_MAX_QUERY_FIELDS)
    except ValueError as error:
        reason = "is not UTF-8" if isinstance(error, UnicodeDecodeError) else f"has more than {_MAX_QUERY_FIELDS} fields"
        raise ValidationFailed({"query": [reason]}) from error
    for name, value in pairs:
        if "\x00" in name or "\x00" in value:
            raise ValidationFailed({name.replace("\x00", ""): ["must not contain the character NUL (U+0000)"]})
    return pairs


def _must_be_json(scope: Scope, raw: bytes) -> None:
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
