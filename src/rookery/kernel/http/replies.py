"""Answers as bytes: JSON by pydantic's own serialiser or orjson, and the one body of errors (D-10)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

import orjson
from pydantic import BaseModel
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from rookery.kernel.clock import iso
from rookery.kernel.errors import RookeryError

JSON = b"application/json"


class UnknownRoute(RookeryError):
    """No route has this path."""

    status, code = 404, "not_found"


class MethodNotAllowed(RookeryError):
    """The path is known, the method is not one of its."""

    status, code = 405, "method_not_allowed"


class HostNotAllowed(RookeryError):
    """The Host header names an address that is not ours (D-09)."""

    status, code = 400, "host_not_allowed"


class CrossSite(RookeryError):
    """A browser sent Basic credentials for a page that is not ours (D-09)."""

    status, code = 403, "cross_site"


class BadRequest(RookeryError):
    """The request's form is wrong before its content can be looked at."""

    status, code = 400, "invalid_request"


def reply(
    value: BaseModel | Mapping[str, object] | Sequence[object], *, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """Return *value* as JSON; datetimes inside plain mappings become ISO 8601 with Z."""
    if isinstance(value, BaseModel):
        content = value.__pydantic_serializer__.to_json(value, by_alias=True)
    else:
        content = orjson.dumps(value, default=_plain, option=orjson.OPT_PASSTHROUGH_DATETIME)
    return _response(content, status, headers)


def error_reply(error: RookeryError) -> Response:
    """Return D-10's body of *error*."""
    content = orjson.dumps(error.body(), default=_plain, option=orjson.OPT_PASSTHROUGH_DATETIME)
    return _response(content, error.status, error.headers, _Refusal(error.code, content, error.status))


class _Refusal(Response):
    """An error's answer, which leaves its code in the request's state: metrics, log lines and traces tell refusals apart by it."""

    def __init__(self, code: str, content: bytes, status: int) -> None:
        super().__init__(content, status)
        self._code = code

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if "state" in scope:
            cast("dict[str, object]", scope["state"])["error"] = self._code
        await super().__call__(scope, receive, send)


def _response(content: bytes, status: int, headers: Mapping[str, str] | None, response: Response | None = None) -> Response:
    response = response or Response(content, status)
    response.raw_headers = [
        (b"content-type", JSON),
        (b"content-length", str(len(content)).encode()),
        *((name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in (headers or {}).items()),
    ]
    return response


def _plain(value: object) -> object:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", by_alias=True)
    if hasattr(value, "astimezone"):
        return iso(value)  # pyright: ignore[reportArgumentType] - only datetimes have it among what we send
    if isinstance(value, (set, frozenset, tuple)):
        return list(value)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType] - a container of JSON values
    msg = f"{type(value).__name__} cannot be sent as JSON"
    raise TypeError(msg)
