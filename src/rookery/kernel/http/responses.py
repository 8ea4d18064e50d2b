"""Responses: JSON by pydantic's serialiser or orjson, pages of lists, files of CSV, and the error body."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import cast
from urllib.parse import parse_qsl, urlencode

import orjson
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from rookery.kernel.clock import format_iso
from rookery.kernel.errors import RookeryError
from rookery.kernel.pages import CURSOR_FIELD, Position
from rookery.kernel.safe_texts import csv_header, csv_lines, redact
from rookery.kernel.schema import Links, Meta, PageQuery

JSON_MEDIA_TYPE = b"application/json"

STATUS_CLIENT_CLOSED = 499
"""The status recorded for a client that disconnected before the response, as proxies log it. It is never sent."""

RequestState = Mapping[str, object]
"""The state of one request, `scope["state"]`."""

IS_UPSTREAM_ERROR = "is_upstream_error"
"""The key of the request state for a flag: True if a tool server caused the error."""

ERROR_FORMAT = "error_format"
"""The key of the request state for the `ErrorFormat`."""

CSV_MEDIA_TYPE = "text/csv"

_ROWS_PER_CHUNK = 2_000
_CONTENT_TYPE = f"{CSV_MEDIA_TYPE}; charset=utf-8"


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorFormat:
    """
    The error body of another protocol, for routes whose clients need it.

    Attributes:
        body: Returns the body for an error and the state of the request.
        name: The name of its schema in the OpenAPI document.
        schema: The JSON schema of the body.
    """

    body: Callable[[RookeryError, RequestState], Mapping[str, object]]
    name: str
    schema: Mapping[str, object]


class RouteNotFound(RookeryError):
    """No route has this path."""

    status, code = 404, "not_found"
    fields = "`nearest`: similar paths, if there are any. `error_description`: the message, at the paths of an OAuth sign-in"


class MethodNotAllowed(RookeryError):
    """The path does not support this method."""

    status, code = 405, "method_not_allowed"
    fields = "header `Allow`"


class HostNotAllowed(RookeryError):
    """The `Host` header is not one of the server's addresses; see `ROOKERY_ALLOWED_HOSTS`."""

    status, code = 400, "host_not_allowed"


class CrossSiteCredentials(RookeryError):
    """A browser sent Basic credentials for a page of another site."""

    status, code = 403, "cross_site"


class BadRequest(RookeryError):
    """The request is not valid HTTP."""

    status, code = 400, "invalid_request"


def json_response(
    value: BaseModel | Mapping[str, object] | Sequence[object], *, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """Return *value* as JSON. Datetimes in plain mappings become ISO 8601 with Z."""
    if isinstance(value, BaseModel):
        content = value.__pydantic_serializer__.to_json(value, by_alias=True)
    else:
        content = orjson.dumps(value, default=_to_serializable, option=orjson.OPT_PASSTHROUGH_DATETIME)
    return _build_response(content, status, headers)


def error_response(error: RookeryError) -> Response:
    """Return the response for *error*, in the common format or in that of the request's `ErrorFormat`."""
    return _ErrorResponse(error)


def set_error(state: MutableMapping[str, object], code: str, *, is_upstream: bool) -> None:
    """
    Store the error code of a request in its state, for metrics, logs and traces.

    Args:
        is_upstream: A tool, its server or a language model caused the error.
    """
    state["error"], state[IS_UPSTREAM_ERROR] = code, is_upstream


class _ErrorResponse(Response):
    def __init__(self, error: RookeryError) -> None:
        super().__init__(b"", error.status)
        self._error = error
        self._write(error.body())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        state = cast("dict[str, object] | None", scope.get("state"))
        if state is not None:
            set_error(state, self._error.code, is_upstream=self._error.is_upstream)
            error_format = state.get(ERROR_FORMAT)
            if isinstance(error_format, ErrorFormat):
                self._write(error_format.body(self._error, state))
        await super().__call__(scope, receive, send)

    def _write(self, value: Mapping[str, object]) -> None:
        self.body = orjson.dumps(value, default=_to_serializable, option=orjson.OPT_PASSTHROUGH_DATETIME)
        _build_response(self.body, self._error.status, self._error.headers, self)


def _build_response(content: bytes, status: int, headers: Mapping[str, str] | None, response: Response | None = None) -> Response:
    response = response or Response(content, status)
    response.raw_headers = [
        (b"content-type", JSON_MEDIA_TYPE),
        (b"content-length", str(len(content)).encode()),
        *((name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in (headers or {}).items()),
    ]
    return response


def _to_serializable(value: object) -> object:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", by_alias=True)
    if hasattr(value, "astimezone"):
        return format_iso(value)  # pyright: ignore[reportArgumentType] - of the values sent, only datetimes have it
    if isinstance(value, (set, frozenset, tuple)):
        return list(value)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType] - a container of JSON values
    msg = f"{type(value).__name__} cannot be sent as JSON"
    raise TypeError(msg)


async def respond_not_found(scope: Scope, receive: Receive, send: Send) -> None:
    """Respond with 404 to a path that matches no route."""
    safe_path = redact(cast("str", scope["path"]))[:200]  # a key in the path must not end up in the caller's logs
    await error_response(RouteNotFound(f"The path {safe_path!r} does not exist."))(scope, receive, send)


def prefers(accept: str | None, kind: str, *, over: str) -> bool:
    """Return whether an Accept header gives the media type *kind* a higher quality than *over*. Without a header it does not."""
    return _get_quality(accept or "*/*", kind) > _get_quality(accept or "*/*", over)


def _get_quality(accept: str, kind: str) -> float:
    """Return the quality of *kind*, 0 to 1, from the most specific media range that matches it."""
    exactness = {"*/*": 1, f"{kind.partition('/')[0]}/*": 2, kind: 3}
    best, quality = 0, 0.0
    for part in accept.split(","):
        name, _, parameters = part.partition(";")
        rank = exactness.get(name.strip().lower(), 0)
        if rank > best:
            best, quality = rank, _parse_weight(parameters)
    return quality


def _parse_weight(parameters: str) -> float:
    for parameter in parameters.split(";"):
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "q":
            try:
                return float(value)
            except ValueError:
                return 0.0
    return 1.0


def wants_csv(request: Request, parameter: str | None) -> bool:
    """Return whether a request asks for CSV: by its parameter `format`, which is *parameter*, or else by its Accept header."""
    if parameter is not None:
        return parameter == "csv"
    return prefers(request.headers.get("accept"), CSV_MEDIA_TYPE, over=JSON_MEDIA_TYPE.decode())


def csv_response(rows: Iterable[Mapping[str, object]], columns: Sequence[str], *, file_name: str) -> Response:
    """Return a CSV file for download."""
    return Response(csv_header(columns) + csv_lines(rows, columns), headers=_build_headers(file_name), media_type=_CONTENT_TYPE)


def stream_csv_response(rows: AsyncIterable[Mapping[str, object]], columns: Sequence[str], *, file_name: str) -> Response:
    """Return a CSV file for download, written while its rows are read, so that memory stays bounded."""

    async def chunks() -> AsyncGenerator[str]:
        yield csv_header(columns)
        buffered: list[Mapping[str, object]] = []
        async for row in rows:
            buffered.append(row)
            if len(buffered) >= _ROWS_PER_CHUNK:
                yield csv_lines(buffered, columns)
                buffered = []
        yield csv_lines(buffered, columns)

    return StreamingResponse(chunks(), headers=_build_headers(file_name), media_type=_CONTENT_TYPE)


def _build_headers(file_name: str) -> dict[str, str]:
    return {"Content-Disposition": f'attachment; filename="{file_name}"'}


def page_response(
    request: Request,
    items: Sequence[BaseModel | Mapping[str, object]],
    *,
    query: PageQuery,
    total: int,
    end: Position | None = None,
    summary: Mapping[str, object] | None = None,
) -> Response:
    """
    Return *items* as one page of *total* items. The links keep the other query parameters of the request.

    The link to the next page has a cursor if the request has one, and the number of the page otherwise.

    Args:
        end: The position of the last item, if there is a next page.
        summary: Fields of the whole list, sent beside the fields of the page.
    """
    last = max(1, -(-total // query.per_page))
    base = cast("str", request.scope["state"]["address"]) + request.url.path
    own = {*query.offset_fields, CURSOR_FIELD}
    parameters = [(name, value) for name, value in parse_qsl(request.url.query, keep_blank_values=True) if name not in own]
    next_cursor = query.encode_cursor(end)

    def link(value: int | str, name: str = "page") -> str:
        return f"{base}?{urlencode([*parameters, (name, str(value))])}"

    if query.cursor is None:
        following = link(query.page + 1) if query.page < last else None
    else:
        following = None if next_cursor is None else link(next_cursor, CURSOR_FIELD)
    links = Links(
        first=link(1),
        last=link(last),
        prev=link(min(query.number - 1, last)) if query.number > 1 else None,
        next=following,
    )
    meta = Meta(current_page=query.number, per_page=query.per_page, total=total, next_cursor=next_cursor)
    return json_response({"data": list(items), "links": links, "meta": meta, **(summary or {})})
