"""
HTTP transports between the MCP client and the network, which limit a failure to one request.

The SDK ends the whole session, with all its calls, when a request fails. `ErrorMappingTransport` therefore turns the failure of a POST (no
connection, no login, an invalid or too large body) into a JSON-RPC error of that request.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator, Mapping
from contextvars import ContextVar
from typing import cast

import httpx2
import orjson

from rookery.engines.upstreams.mcp_session import BROKEN_CODE, MAX_MESSAGE_BYTES, TOO_LARGE_CODE, UNSENT_CODE
from rookery.kernel.tracing import propagation_headers
from rookery.tools.errors import ConnectFailed
from rookery.tools.models import Server
from rookery.tools.ports import TokenProvider

FORWARDED_HEADERS: ContextVar[Mapping[str, str]] = ContextVar("rookery_forwarded_headers")
"""Headers of the caller that are sent with a request. The SDK sends each message in the context in which it was passed in."""

ACCEPTED_ENCODINGS = "gzip, deflate"
"""Accepted content encodings: those that the standard library can decompress in bounded steps."""

_UNAUTHORISED = 401
_FORBIDDEN = 403
_NOT_FOUND = 404
_BAD_REQUEST = 400
_REDIRECT = range(300, 400)
_DECOMPRESS_STEP_BYTES = 64 * 1024
_ERROR_BODY_TIMEOUT_S = 10.0
_MAX_ERROR_BODY_BYTES = 64 * 1024
"""Limits for reading the body of an error response."""

_SESSION_HEADER = "mcp-session-id"


class HttpConnectionState:
    """The state of an HTTP connection: its last error and whether it has ended. Implements `TransportState`."""

    pid = None

    def __init__(self) -> None:
        self.last_error = ""
        self.needs_login = False
        self.ended = asyncio.Event()

    def get_end_reason(self) -> str:
        """Return the last error."""
        return self.last_error

    def is_ended(self) -> bool:
        """Return whether the connection has ended."""
        return self.ended.is_set()

    async def wait_ended(self) -> None:
        """Wait for the end. The end of a Streamable HTTP session is only found by a request."""
        await self.ended.wait()


class TokenTransport(httpx2.AsyncBaseTransport):
    """A transport that adds the access token of a login. A rejected token is renewed once."""

    def __init__(self, inner: httpx2.AsyncBaseTransport, tokens: TokenProvider, server: Server, workspace_id: int | None) -> None:
        self._inner = inner
        self._tokens = tokens
        self._server = server
        self._workspace_id = workspace_id

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """
        Send *request* with a token.

        Raises:
            ConnectFailed: There is no valid login.
        """
        token = await self._tokens.get_token(self._server, self._workspace_id)
        request.headers["authorization"] = f"Bearer {token}"
        response = await self._inner.handle_async_request(request)
        if response.status_code != _UNAUTHORISED:
            return response
        await response.aclose()
        token = await self._tokens.get_token(self._server, self._workspace_id, rejected_token=token)
        request.headers["authorization"] = f"Bearer {token}"
        return await self._inner.handle_async_request(request)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._inner.aclose()


class ErrorMappingTransport(httpx2.AsyncBaseTransport):
    """A transport that returns a JSON-RPC error for a failed POST instead of raising an exception."""

    def __init__(self, inner: httpx2.AsyncBaseTransport, state: HttpConnectionState, server: Server) -> None:
        self._inner = inner
        self._state = state
        self._server = server

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
            return self._record_failure(_UNAUTHORISED, UNSENT_CODE, str(error))
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.UnsupportedProtocol) as error:
            return self._record_failure(502, UNSENT_CODE, f"No connection to {host}: {str(error) or type(error).__name__}")
        except httpx2.TransportError as error:
            return self._record_failure(502, BROKEN_CODE, f"The connection to {host} failed: {str(error) or type(error).__name__}")
        if response.status_code < _REDIRECT.start:
            return self._handle_success(response, request)
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
            return _decompress(response)
        await response.aclose()
        if request.method == "GET" and response.status_code in {_UNAUTHORISED, _FORBIDDEN}:
            self._record_login_required(response, request.url.host)
        return _remove_body(response)

    def _handle_success(self, response: httpx2.Response, request: httpx2.Request) -> httpx2.Response:
        try:
            response = _decompress(response)
        except httpx2.TransportError as error:
            return self._record_failure(502, BROKEN_CODE, f"{request.url.host} {error}")
        if response.headers.get("content-type", "").startswith("application/json"):
            response.stream = _BoundedJsonBody(cast("httpx2.AsyncByteStream", response.stream), request.content)
        return response

    async def _handle_error_status(self, response: httpx2.Response, request: httpx2.Request) -> httpx2.Response:
        """Map a response with a status of 300 or more: return a JSON-RPC error body as it is, or a new one."""
        status, host = response.status_code, request.url.host
        if status in _REDIRECT:
            return _remove_body(response)  # the SDK follows it within the same origin, with the same method
        if status in {_UNAUTHORISED, _FORBIDDEN}:
            self._record_login_required(response, host)
            # 401: nothing was done, so a session with another login can retry. 403 concerns this request alone.
            return _error_response(status, UNSENT_CODE if status == _UNAUTHORISED else BROKEN_CODE, self._state.last_error)
        body = await _read_error_body(response)
        error = _parse_error_message(body) if response.headers.get("content-type", "").startswith("application/json") else None
        if _SESSION_HEADER in request.headers and (
            status == _NOT_FOUND or (status == _BAD_REQUEST and error is not None and "session" in error.lower())
        ):
            # Servers of older protocol versions answer this for an unknown session: 404 by the specification, 400 in many implementations.
            return self._record_failure(status, UNSENT_CODE, "The session no longer exists on the server.")
        if error is not None:
            return httpx2.Response(status, headers={"content-type": "application/json"}, content=body)
        if status == _NOT_FOUND:
            return _remove_body(response)
        return self._record_failure(status, BROKEN_CODE, f"{host} returned status {status}.")

    def _record_login_required(self, response: httpx2.Response, host: str) -> None:
        """Record that the server requires a login, with the command that creates it."""
        command = f"`rookery servers login {self._server.id}`"
        challenge = response.headers.get("www-authenticate", "").lower()
        if self._server.auth is not None and "insufficient_scope" in challenge:
            advice = f"The login lacks a scope: add it to scope in auth of the entry and log in again with {command}."
        elif self._server.auth is not None:
            advice = f"The login was rejected: log in again with {command}."
        elif "resource_metadata" in challenge:
            advice = f'The server requires a login: add "auth": "oauth" to its entry, then run {command}.'
        else:
            advice = "The server requires a login or another key."
        self._state.needs_login = True
        self._state.last_error = f"{host} returned status {response.status_code}. {advice}"

    def _record_failure(self, status: int, code: int, text: str) -> httpx2.Response:
        self._state.last_error = text
        return _error_response(status, code, text)


class _BoundedJsonBody(httpx2.AsyncByteStream):
    """A JSON body of limited size. Errors replace the body, since the SDK has no other way to receive them."""

    def __init__(self, inner: httpx2.AsyncByteStream, request_body: bytes) -> None:
        self._inner = inner
        self._request_body = request_body

    async def __aiter__(self) -> AsyncIterator[bytes]:
        chunks: list[bytes] = []
        size = 0
        try:
            async for chunk in self._inner:
                size += len(chunk)
                if size > MAX_MESSAGE_BYTES:
                    chunks = [self._error(TOO_LARGE_CODE, "The result is larger than 10 MiB.")]
                    break
                chunks.append(chunk)
        except httpx2.TransportError as error:
            chunks = [self._error(BROKEN_CODE, f"The response ended early: {str(error) or type(error).__name__}")]
        for chunk in chunks:
            yield chunk

    async def aclose(self) -> None:
        await self._inner.aclose()

    def _error(self, code: int, text: str) -> bytes:
        # Unlike an error status, this body needs the request's id; otherwise its caller waits for ever.
        return _error_body(code, text, orjson.loads(self._request_body).get("id"))


class _DecompressedBody(httpx2.AsyncByteStream):
    """A body that is decompressed in small steps, so that a reader can stop before kilobytes become gigabytes."""

    def __init__(self, inner: httpx2.AsyncByteStream, encoding: str) -> None:
        self._inner = inner
        self._encoding = encoding

    async def __aiter__(self) -> AsyncIterator[bytes]:
        decompressor = zlib.decompressobj(zlib.MAX_WBITS | 16 if self._encoding == "gzip" else zlib.MAX_WBITS)
        is_first = True
        async for chunk in self._inner:
            if is_first and self._encoding == "deflate" and chunk and chunk[0] & 0x0F != 8:
                decompressor = zlib.decompressobj(-zlib.MAX_WBITS)  # without the zlib header, which some servers omit against RFC 9110
            is_first = False
            rest, part = chunk, b""
            while rest or len(part) == _DECOMPRESS_STEP_BYTES:
                try:
                    part = decompressor.decompress(rest, _DECOMPRESS_STEP_BYTES)
                except zlib.error as error:
                    raise httpx2.ReadError(f"the body is not valid {self._encoding}: {error}") from error
                rest = decompressor.unconsumed_tail
                if part:
                    yield part
                if decompressor.eof:
                    return

    async def aclose(self) -> None:
        await self._inner.aclose()


def _decompress(response: httpx2.Response) -> httpx2.Response:
    """
    Return *response* with a decompressed body.

    Raises:
        ReadError: The encoding is not one of `ACCEPTED_ENCODINGS`.
    """
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    if encoding in {"", "identity"}:
        return response
    if encoding not in {"gzip", "deflate"}:
        raise httpx2.ReadError(f"returned the encoding {encoding[:32]!r}, which was not requested.")
    headers = [(name, value) for name, value in response.headers.multi_items() if name not in {"content-encoding", "content-length"}]
    body = _DecompressedBody(cast("httpx2.AsyncByteStream", response.stream), encoding)
    return httpx2.Response(response.status_code, headers=headers, stream=body, extensions=response.extensions)


def _remove_body(response: httpx2.Response) -> httpx2.Response:
    """Return *response* without its body and the headers that describe it."""
    dropped = {"content-encoding", "content-length", "transfer-encoding"}
    headers = [(name, value) for name, value in response.headers.multi_items() if name not in dropped]
    return httpx2.Response(response.status_code, headers=headers, content=b"")


async def _read_error_body(response: httpx2.Response) -> bytes:
    """Return the body of an error response; empty if it is too large, incomplete or late."""
    body = bytearray()
    try:
        async with asyncio.timeout(_ERROR_BODY_TIMEOUT_S):
            async for chunk in cast("httpx2.AsyncByteStream", _decompress(response).stream):
                body += chunk
                if len(body) > _MAX_ERROR_BODY_BYTES:
                    return b""
    except (httpx2.TransportError, TimeoutError):
        return b""
    return bytes(body)


def _parse_error_message(body: bytes) -> str | None:
    """Return the message of a JSON-RPC error; None if *body* is not one."""
    try:
        document: object = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    error = cast("dict[str, object]", document).get("error") if isinstance(document, dict) else None
    if not isinstance(error, dict):
        return None
    message = cast("dict[str, object]", error).get("message")
    return message if isinstance(message, str) else None


def _error_response(status: int, code: int, text: str) -> httpx2.Response:
    return httpx2.Response(status, headers={"content-type": "application/json"}, content=_error_body(code, text))


def _error_body(code: int, text: str, request_id: object = None) -> bytes:
    return orjson.dumps({"jsonrpc": "2.0", "id": request_id, "error": {"code": code, "message": text}})
