"""
Error responses and failures of HTTP requests, as JSON-RPC errors of the request that they concern.

The SDK ends the whole session, with all its calls, when a request raises an exception, and hides the reason of an error status.
`ErrorMappingTransport` therefore returns a JSON-RPC error instead. A complete response with an error status concerns its request alone.
Only three things concern the session: no connection, a session that the server no longer knows, and a rejected login of the entry.
"""

from __future__ import annotations

import math
import re
import socket
from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from http import HTTPStatus
from typing import cast

import httpx2
import orjson
from mcp_types import ErrorData, JSONRPCError
from pydantic import ValidationError

from rookery.engines.upstreams.request_limit import HttpConnectionState
from rookery.engines.upstreams.response_bodies import (
    BoundedJsonBody,
    UndecodableError,
    build_error_body,
    decompress,
    read_error_body,
    remove_body,
)
from rookery.engines.upstreams.sdk import BROKEN_CODE, STATUS_CODE, UNREADABLE_CODE, UNSENT_CODE, mark_throttled
from rookery.kernel.clock import parse_retry_after, utc_now
from rookery.kernel.safe_texts import redact
from rookery.kernel.sentences import end_sentence
from rookery.kernel.tracing import propagation_headers
from rookery.tools.errors import ConnectFailed
from rookery.tools.models import HttpTarget, JsonObject, Server
from rookery.tools.servers.header_forwarding import forwards_login, has_own_login, is_login_header, list_caller_names

_MAX_REASON_CHARS = 300
_MAX_DEPTH = 3
_REASON_FIELDS = ("message", "error_description", "detail", "error", "title", "msg", "errors", "reason")
"""Fields of a JSON body that hold a reason, or an object or a list with one, in order of preference."""

_PLAIN_TYPES = frozenset({"", "text/plain", "application/json", "application/problem+json"})
_HTML = re.compile(r"\A\s*<|</[a-z]|<!doctype|<br\b", re.IGNORECASE)
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\s]+")
_MIN_SECRET_CHARS = 6
"""Shorter values are not redacted, because they occur in ordinary words."""

_SAME_METHOD = frozenset({307, 308})
"""Redirects that keep the method. With another one, the message would be lost."""
_MAX_REDIRECTS = 5
_COUNT_KEY = "rookery.redirects"
"""The extension of a request that counts the redirects which led to it. A redirected request has the extensions of the first."""

_DEFAULT_PORTS = {"http": 80, "https": 443}

FORWARDED_HEADERS: ContextVar[Mapping[str, str]] = ContextVar("rookery_forwarded_headers")
"""Headers of the caller that are sent with a request. The SDK sends each message in the context in which it was passed in."""

_REDIRECT = range(300, 400)
_WITHOUT_BODY = frozenset({202, 204, 205})
"""Successful statuses that mean: no result will follow. They are answers to notifications only."""
_MAX_RETRY_AFTER_S = 365 * 86_400

_SESSION_HEADER = "mcp-session-id"
_SESSION_LOST = "The session no longer exists on the server."


def find_reason(content_type: str, body: bytes, secrets: Iterable[str]) -> str:
    """Return the reason in *body* without *secrets*; empty if it has none, or is HTML or too long to be a message."""
    text = _find_text(content_type.partition(";")[0].strip().lower(), body)
    if text is None or _HTML.search(text):
        return ""
    line = _UNPRINTABLE.sub(" ", redact_reason(text, secrets)).strip()
    return line if len(line) <= _MAX_REASON_CHARS else line[: _MAX_REASON_CHARS - 1].rstrip() + "…"


def redact_reason(text: str, secrets: Iterable[str]) -> str:
    """Return *text* without *secrets*, and without keys and other credentials."""
    # With and without a scheme such as Bearer.
    hidden = {part for secret in secrets for part in (secret, secret.rpartition(" ")[2]) if len(part) >= _MIN_SECRET_CHARS}
    for value in sorted(hidden, key=len, reverse=True):
        text = text.replace(value, "***")
    return redact(text)


def _find_text(media_type: str, body: bytes) -> str | None:
    if "html" in media_type:
        return None
    try:
        document: object = orjson.loads(body)
    except orjson.JSONDecodeError:
        return _find_plain_text(body) if media_type in _PLAIN_TYPES else None
    return _find_in_json(document, _MAX_DEPTH)


def _find_in_json(value: object, depth: int) -> str | None:
    if isinstance(value, str):
        return value.strip() or None
    if depth == 0:
        return None
    if isinstance(value, list):
        items = cast("list[object]", value)
        return _find_in_json(items[0], depth - 1) if items else None
    if isinstance(value, dict):
        fields = cast("dict[str, object]", value)
        texts = (_find_in_json(fields.get(name), depth - 1) for name in _REASON_FIELDS)
        return next((text for text in texts if text is not None), None)
    return None


def _find_plain_text(body: bytes) -> str | None:
    """Return a short text, or a short first line of a longer one. Anything else is not a message."""
    try:
        text = body.decode().strip()
    except UnicodeDecodeError:
        return None
    if len(text) > _MAX_REASON_CHARS:
        text = text.split("\n", 1)[0].strip()
    return text if 0 < len(text) <= _MAX_REASON_CHARS else None


def follow_redirect(request: httpx2.Request, response: httpx2.Response) -> bool:
    """Return whether the SDK's client follows the redirect of *response*, and count it. After five, the last one is an error."""
    location = _find_location(request, response)
    if location is None or response.status_code not in _SAME_METHOD or not _is_same_origin(request.url, location):
        return False
    count = int(request.extensions.get(_COUNT_KEY, 0)) + 1
    request.extensions[_COUNT_KEY] = count
    return count <= _MAX_REDIRECTS


def describe_redirect(request: httpx2.Request, response: httpx2.Response) -> str:
    """Return a sentence about a redirect that was not followed; empty if *response* names no other URL. Queries may contain secrets."""
    location = _find_location(request, response)
    if location is None:
        return ""
    target = location.copy_with(userinfo=b"", query=None, fragment=None)
    if request.url.scheme == "https" and location.scheme == "http":
        secure = target.copy_with(scheme="https")
        return f"The redirect to {target} was not followed, because it is not encrypted. Set `url` in the entry to {secure}, if this works."
    if response.status_code in _SAME_METHOD and _is_same_origin(request.url, location):
        return f"After {_MAX_REDIRECTS} redirects, that to {target} was not followed."
    return f"The redirect to {target} was not followed. Set `url` in the entry to this address, if it is the right server."


def _find_location(request: httpx2.Request, response: httpx2.Response) -> httpx2.URL | None:
    """Return the URL that a redirect names; None for any other response."""
    if not response.has_redirect_location:
        return None
    try:
        return request.url.join(response.headers["location"])
    except httpx2.InvalidURL:
        return None


def _is_same_origin(url: httpx2.URL, location: httpx2.URL) -> bool:
    """Return whether *location* is on the server of *url*, or is the same server by HTTPS. The SDK follows no other redirect."""
    if location.userinfo and location.userinfo != url.userinfo:
        return False
    if (url.scheme, url.host, url.port) == (location.scheme, location.host, location.port):
        return True
    return url.host == location.host and (url.scheme, location.scheme) == ("http", "https") and url.port is None is location.port


def describe_connection_failure(url: httpx2.URL, error: Exception) -> str:
    """Return the address that was tried and the reason. The HTTP client names neither the port nor that nothing listens on it."""
    host = f"[{url.host}]" if ":" in url.host else url.host
    return f"No connection to {host}:{url.port or _DEFAULT_PORTS.get(url.scheme, '')}: {_describe_cause(error)}"


def _describe_cause(error: Exception) -> str:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ConnectionRefusedError):
            return "the connection was refused; no program listens on this port."
        if isinstance(cause, socket.gaierror):
            return "the host name has no address."
        cause = cause.__cause__ or cause.__context__
    if isinstance(error, httpx2.ConnectTimeout):
        return "it did not answer in time."
    return str(error) or type(error).__name__


class ErrorMappingTransport(httpx2.AsyncBaseTransport):
    """A transport that returns a JSON-RPC error for a failed POST instead of raising an exception."""

    def __init__(self, inner: httpx2.AsyncBaseTransport, state: HttpConnectionState, server: Server) -> None:
        self._inner = inner
        self._state = state
        self._server = server
        self._target = cast("HttpTarget", server.target)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send *request* with forwarded headers and trace headers. A failed POST returns a JSON-RPC error."""
        # Bytes as received: non-ASCII text would raise an error that ends the session with all its calls.
        request.headers.update(
            {name.encode("latin-1"): value.encode("latin-1", "replace") for name, value in FORWARDED_HEADERS.get({}).items()}
        )
        request.headers.update(propagation_headers())
        if request.method != "POST":
            return await self._handle_other(request)
        host = request.url.host
        try:
            response = await self._inner.handle_async_request(request)
        except ConnectFailed as error:
            self._state.needs_login = error.needs_login
            return self._end_session(HTTPStatus.UNAUTHORIZED, UNSENT_CODE, str(error))
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.UnsupportedProtocol) as error:
            return self._end_session(HTTPStatus.BAD_GATEWAY, UNSENT_CODE, describe_connection_failure(request.url, error))
        except httpx2.TransportError as error:
            text = f"The connection to {host} failed: {str(error) or type(error).__name__}"
            return self._end_session(HTTPStatus.BAD_GATEWAY, BROKEN_CODE, text)
        if response.status_code < _REDIRECT.start and not self._lacks_result(response, request):
            return _handle_success(response, request)
        try:
            return await self._handle_error_status(response, request)
        finally:
            await response.aclose()

    async def aclose(self) -> None:
        """Close the connections."""
        await self._inner.aclose()

    async def _handle_other(self, request: httpx2.Request) -> httpx2.Response:
        """Open an event stream or end a session. Bodies of other responses are not needed."""
        try:
            response = await self._inner.handle_async_request(request)
        except ConnectFailed as error:
            self._state.needs_login, self._state.last_error = error.needs_login, str(error)
            raise httpx2.ConnectError(str(error)) from error
        if request.method == "GET" and response.is_success:
            return decompress(response)
        try:
            # The event stream is the session of the older protocol. Newer versions work without one.
            if request.method == "GET" and self._target.kind == "sse":
                reason = self._find_reason(response, request, await read_error_body(response))
                self._state.last_error = self._describe_status(response, request, reason)
        finally:
            await response.aclose()
        return remove_body(response)

    async def _handle_error_status(self, response: httpx2.Response, request: httpx2.Request) -> httpx2.Response:
        """Map a response that is no result: return a JSON-RPC error body as it is, or a new one."""
        status = response.status_code
        if self._target.kind != "sse" and follow_redirect(request, response):
            return remove_body(response)
        body = await read_error_body(response)
        is_json = response.headers.get("content-type", "").lower().startswith("application/json")
        error = _parse_error(body) if is_json and status >= HTTPStatus.BAD_REQUEST else None
        reason = self._find_reason(response, request, body) if error is None else redact_reason(error.message, self._list_secrets(request))
        if self._is_session_lost(request, status, reason):
            return self._end_session(status, UNSENT_CODE, _SESSION_LOST)
        text = self._describe_status(response, request, reason)
        forwarded = FORWARDED_HEADERS.get({})
        if status == HTTPStatus.UNAUTHORIZED and not self._is_callers_login(forwarded) and has_own_login(self._server, self._target):
            return self._end_session(status, UNSENT_CODE, text)  # nothing was done, so a session with another login can retry
        retry_after_s = self._state.retry_after_s
        if error is None or status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
            data = {"status": status, "retry_after_s": retry_after_s, "concerns_caller": self._state.is_callers_login}
            # The SDK takes no error from the body of a response with another status.
            shown_status = status if status >= HTTPStatus.BAD_REQUEST else HTTPStatus.BAD_GATEWAY
            return _error_response(shown_status, build_error_body(STATUS_CODE, text, data))
        data = mark_throttled(error.data, retry_after_s) if self._state.is_throttled else error.data
        return _error_response(status, build_error_body(error.code, error.message, data))

    def _lacks_result(self, response: httpx2.Response, request: httpx2.Request) -> bool:
        """Return whether a successful response has no body, although it must contain the result of *request*."""
        if self._target.kind == "sse" or response.status_code not in _WITHOUT_BODY:
            return False
        message = cast("object", orjson.loads(request.content))
        return isinstance(message, dict) and {"id", "method"} <= cast("JsonObject", message).keys()

    def _is_session_lost(self, request: httpx2.Request, status: int, reason: str) -> bool:
        """Return whether the server no longer knows the session: 404 by the specification, 400 in many implementations."""
        if self._target.kind != "sse" and _SESSION_HEADER not in request.headers:
            return False
        return status == HTTPStatus.NOT_FOUND or (status == HTTPStatus.BAD_REQUEST and "session" in reason.lower())

    def _describe_status(self, response: httpx2.Response, request: httpx2.Request, reason: str) -> str:
        """Return the message of an error status. Record in the state what a failure to open the session needs of it."""
        status, forwarded = response.status_code, FORWARDED_HEADERS.get({})
        self._state.retry_after_s = _parse_retry_after(response)
        self._state.is_throttled = self._state.retry_after_s is not None or status == HTTPStatus.TOO_MANY_REQUESTS
        is_login = status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}
        is_callers = self._is_callers_login(forwarded)
        self._state.needs_login = is_login and not (forwarded and is_callers)
        self._state.is_callers_login = is_login and is_callers
        if is_login and forwarded and is_callers:
            names = " and ".join(list_caller_names(self._server, forwarded))
            entry = ", or that of its entry" if has_own_login(self._server, self._target, forwarded) else ""
            parts = [end_sentence(f"The server rejected the login in {names}{entry} ({status}){f': {reason}' if reason else ''}")]
        else:
            parts = [end_sentence(f"{request.url.host} returned status {status}{f': {reason}' if reason else _get_phrase(status)}")]
            if self._state.needs_login:
                parts.append(self._advise_login(response))
        if advice := describe_redirect(request, response):
            parts.append(redact_reason(advice, self._list_secrets(request)))
        if self._state.retry_after_s:
            parts.append(f"Retry after {self._state.retry_after_s} s.")
        return " ".join(parts)

    def _is_callers_login(self, forwarded: Mapping[str, str]) -> bool:
        """
        Return whether the login of a request is that of its caller: a forwarded header carries it, or the entry carries none.

        A header such as `X-Tenant` is no login if the entry has one.
        """
        if not self._server.forward_headers:
            return False
        return forwards_login(self._server, self._target, forwarded) or not has_own_login(self._server, self._target, forwarded)

    def _advise_login(self, response: httpx2.Response) -> str:
        """Return what to do about a missing or rejected login, with the command that creates one."""
        command = f"`rookery servers login {self._server.id}`"
        challenge = response.headers.get("www-authenticate", "").lower()
        if self._server.auth is not None and "insufficient_scope" in challenge:
            return f"The login lacks a scope: add it to scope in auth of the entry and log in again with {command}."
        if self._server.auth is not None:
            return f"The login was rejected: log in again with {command}."
        if not has_own_login(self._server, self._target) and (names := list_caller_names(self._server)):
            return f"The server requires a login: send it in {' or '.join(names)}."
        if "resource_metadata" in challenge:
            return f'The server requires a login: add "auth": "oauth" to its entry, then run {command}.'
        return "The server requires a login or another key."

    def _find_reason(self, response: httpx2.Response, request: httpx2.Request, body: bytes) -> str:
        return find_reason(response.headers.get("content-type", ""), body, self._list_secrets(request))

    def _list_secrets(self, request: httpx2.Request) -> set[str]:
        """Return the credentials that the request carried, and those of the entry. A server may repeat them in its reason."""
        own = {value for name, value in request.headers.items() if is_login_header(self._target, name, value)}
        return {*own, *self._target.secrets, *FORWARDED_HEADERS.get({}).values()}

    def _end_session(self, status: int, code: int, text: str) -> httpx2.Response:
        """Return an error that concerns the session, and record it as the reason of its end."""
        self._state.last_error, self._state.retry_after_s, self._state.is_throttled = text, None, False
        return _error_response(status, build_error_body(code, text))


def _handle_success(response: httpx2.Response, request: httpx2.Request) -> httpx2.Response:
    try:
        response = decompress(response)
    except UndecodableError as error:
        return _error_response(HTTPStatus.BAD_GATEWAY, build_error_body(UNREADABLE_CODE, f"{request.url.host} {error}"))
    if response.headers.get("content-type", "").startswith("application/json"):
        response.stream = BoundedJsonBody(cast("httpx2.AsyncByteStream", response.stream), request.content)
    return response


def _parse_error(body: bytes) -> ErrorData | None:
    """Return the error of a JSON-RPC message; None if *body* is not one."""
    try:
        message = JSONRPCError.model_validate({"id": None, **orjson.loads(body)}, by_name=False)
    except (orjson.JSONDecodeError, TypeError, ValidationError):
        return None
    return message.error


def _parse_retry_after(response: httpx2.Response) -> int | None:
    seconds = parse_retry_after(response.headers.get("retry-after"), utc_now())
    return None if seconds is None else min(math.ceil(seconds), _MAX_RETRY_AFTER_S)


def _get_phrase(status: int) -> str:
    """Return the standard phrase of a status in brackets; empty if it has none."""
    try:
        return f" ({HTTPStatus(status).phrase})"
    except ValueError:
        return ""


def _error_response(status: int, body: bytes) -> httpx2.Response:
    return httpx2.Response(status, headers={"content-type": "application/json"}, content=body)
