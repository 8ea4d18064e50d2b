"""
ETags of responses and If-Match of requests (RFC 9110, 13.1.1; D-64).

A handler that compares If-Match is marked with `by_etag`. It passes the result of `read_if_match` to its domain function, which compares it
inside the transaction of the change. A handler whose response has an ETag is marked with `with_etag` and returns `json_with_etag`.
"""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from rookery.kernel.http.openapi import document_route
from rookery.kernel.http.responses import json_response
from rookery.kernel.preconditions import ExpectedETags, PreconditionFailed, format_etag, parse_if_match

with_etag = document_route(response_headers=("ETag",))
"""Mark a handler that returns a `json_with_etag` response."""

by_etag = document_route(request_headers=("If-Match",), errors=(PreconditionFailed,))
"""Mark a handler that compares the result of `read_if_match` with the version of the resource."""


def read_if_match(request: Request) -> ExpectedETags:
    """Return the ETags in If-Match; None if any version is accepted."""
    return parse_if_match(request.headers.getlist("if-match"))


def json_with_etag(
    response: BaseModel | Mapping[str, object], version: int | str, *, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """Return *response* as JSON with the ETag of *version*."""
    return json_response(response, status=status, headers={"ETag": format_etag(version), **(headers or {})})
