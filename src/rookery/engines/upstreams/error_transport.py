"""
What stands between an MCP client and the network: one request that fails costs that request alone.

The SDK lets it end the whole session with all its other calls. So `ErrorMappingTransport` turns what happens to one POST (no connection, no
login, a broken body, too much of it) into a JSON-RPC error for that request.
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
"""The caller's headers that go with what is being asked; the SDK sends each message in the context that it was given in."""

ACCEPTED_ENCODINGS = "gzip, deflate"
"""What we ask for: those that the standard library unpacks in bounded steps."""

_UNAUTHORISED = 401
_FORBIDDEN = 403
_NOT_FOUND = 404
_BAD_REQUEST = 400
_REDIRECT = range(300, 400)
_DECOMPRESS_STEP_BYTES = 64 * 1024
_ERROR_BODY_TIMEOUT_S = 10.0
_MAX_ERROR_BODY_BYTES = 64 * 1024
"""How long, and how much, we read of why a request was refused."""

_SESSION_HEADER = "mcp-session-id"


class HttpConnectionState:
    """What is known of a connection over HTTP: its last failure, and whether it is over; see `Wire`."""

    pid = None

    def __init__(self) -> None:
        self.last_error = ""
        self.needs_login = False
        self.ended = asyncio.Event()

    def get_end_reason(self) -> str:
        """Return the last failure."""
        return self.last_error

    def is_ended(self) -> bool:
        """Tell whether nothing can be sent any more."""
        return self.ended.is_set()

    async def wait_ended(self) -> None:
        """Wait for the end; of Streamable HTTP it is found by using it."""
        await self.ended.wait()


class TokenTransport(httpx2.AsyncBaseTransport):
    """A transport whose requests carry the access token of a login; one that is refused is renewed once."""

    def __init__(self, inner: httpx2.AsyncBaseTransport, tokens: TokenProvider, server: Server, workspace_id: int | None) -> None:
        self._inner = inner
        self._tokens = tokens
        self._server = server
        self._workspace_id = workspace_id

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """
        Send *request* with a token.

        Raises:
            ConnectFailed: There is none.
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
    """A transport that answers a POST that fails with a JSON-RPC error instead of raising."""

    def __init__(self, inner: httpx2.AsyncBaseTransport, state: HttpConnectionState, server: Server) -> None:
        self._inner = inner
        self._state = state
        self._server = server

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send *request*, in the trace that it belongs to; what goes wrong with a POST is told in its answer."""
        # In the bytes that they came in: text of a header may be outside of ASCII, and would end the session with all its calls.
        request.headers.update(
            {name.encode("latin-1"): value.encode("latin-1", "replace") for name, value in FORWARDED_HEADERS.get({}).items()}
        )
        request.headers.update(propagation_headers())
        if request.method != "POST":
            return await self._handle_other(request)
        host = request.url.host
        try:
            response = await self._inner.handle_async_request(request)
        except ConnectFailed as failed:
            self._state.needs_login = failed.needs_login
            return self._record_failure(_UNAUTHORISED, UNSENT_CODE, str(failed))
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.UnsupportedProtocol) as error:
            return self._record_failure(502, UNSENT_CODE, f"No connection to {host}: {str(error) or type(error).__name__}")
        except httpx2.TransportError as error:
            return self._record_failure(502, BROKEN_CODE, f"The connection to {host} broke: {str(error) or type(error).__name__}")
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
        """Open a stream of events, or end a session: of any other answer to these nobody needs the body."""
        try:
            response = await self._inner.handle_async_request(request)
        except ConnectFailed as failed:
            self._state.needs_login, self._state.last_error = failed.needs_login, str(failed)
            raise httpx2.ConnectError(str(failed)) from failed
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
        """Return what the caller is told of an answer of 300 or more: a JSON-RPC error as it came, else one of ours."""
        status, host = response.status_code, request.url.host
        if status in _REDIRECT:
            return _remove_body(response)  # the SDK follows it if it stays at its origin, with the method it has
        if status in {_UNAUTHORISED, _FORBIDDEN}:
            self._record_login_required(response, host)
            # 401: nothing was done, and a session with another login may do it; 403 is an answer to this request alone.
            return _error_response(status, UNSENT_CODE if status == _UNAUTHORISED else BROKEN_CODE, self._state.last_error)
        body = await _read_error_body(response)
        error = _parse_error_message(body) if response.headers.get("content-type", "").startswith("application/json") else None
        if _SESSION_HEADER in request.headers and (
            status == _NOT_FOUND or (status == _BAD_REQUEST and error is not None and "session" in error.lower())
        ):
            # What legacy servers answer to a session that they forgot: 404 by the protocol, 400 by many.
            return self._record_failure(status, UNSENT_CODE, "The server forgot the session.")
        if error is not None:
            return httpx2.Response(status, headers={"content-type": "application/json"}, content=body)
        if status == _NOT_FOUND:
            return _remove_body(response)
        return self._record_failure(status, BROKEN_CODE, f"{host} answered {status}.")

    def _record_login_required(self, response: httpx2.Response, host: str) -> None:
        """Note that the upstream wants to know who asks, and what to do about it."""
        command = f"`rookery servers login {self._server.id}`"
        challenge = response.headers.get("www-authenticate", "").lower()
        if self._server.auth is not None and "insufficient_scope" in challenge:
            told = f"The login does not reach that far: name the scope in auth of its entry and log in again with {command}."
        elif self._server.auth is not None:
            told = f"The login is not enough for it: log in again with {command}."
        elif "resource_metadata" in challenge:
            told = f'It asks for a login: say "auth": "oauth" in its entry, then {command}.'
        else:
            told = "It asks for a login or another key."
        self._state.needs_login = True
        self._state.last_error = f"{host} answered {response.status_code}. {told}"

    def _record_failure(self, status: int, code: int, text: str) -> httpx2.Response:
        self._state.last_error = text
        return _error_response(status, code, text)


class _BoundedJsonBody(httpx2.AsyncByteStream):
    """A JSON body of bounded size; what is wrong with it becomes the body, since the SDK knows no other way to be told."""

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
            chunks = [self._error(BROKEN_CODE, f"The answer broke off: {str(error) or type(error).__name__}")]
        for chunk in chunks:
            yield chunk

    async def aclose(self) -> None:
        await self._inner.aclose()

    def _error(self, code: int, text: str) -> bytes:
        # Unlike that of a status of failure, this body must carry the request's id, or its caller waits for ever.
        return _error_body(code, text, orjson.loads(self._request_body).get("id"))


class _DecompressedBody(httpx2.AsyncByteStream):
    """A packed body unpacked in small steps: who reads it can stop before a few kilobytes have become gigabytes."""

    def __init__(self, inner: httpx2.AsyncByteStream, encoding: str) -> None:
        self._inner = inner
        self._encoding = encoding

    async def __aiter__(self) -> AsyncIterator[bytes]:
        unpacking = zlib.decompressobj(zlib.MAX_WBITS | 16 if self._encoding == "gzip" else zlib.MAX_WBITS)
        is_first = True
        async for chunk in self._inner:
            if is_first and self._encoding == "deflate" and chunk and chunk[0] & 0x0F != 8:
                unpacking = zlib.decompressobj(-zlib.MAX_WBITS)  # without zlib's head, as some send it against RFC 9110
            is_first = False
            rest, part = chunk, b""
            while rest or len(part) == _DECOMPRESS_STEP_BYTES:
                try:
                    part = unpacking.decompress(rest, _DECOMPRESS_STEP_BYTES)
                except zlib.error as error:
                    raise httpx2.ReadError(f"it is no {self._encoding}: {error}") from error
                rest = unpacking.unconsumed_tail
                if part:
                    yield part
                if unpacking.eof:
                    return

    async def aclose(self) -> None:
        await self._inner.aclose()


def _decompress(response: httpx2.Response) -> httpx2.Response:
    """
    Return *response* with its body as it was before it was packed.

    Raises:
        ReadError: It is packed in a way that we did not ask for.
    """
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    if encoding in {"", "identity"}:
        return response
    if encoding not in {"gzip", "deflate"}:
        raise httpx2.ReadError(f"answered in the encoding {encoding[:32]!r}, which was not asked for.")
    headers = [(name, value) for name, value in response.headers.multi_items() if name not in {"content-encoding", "content-length"}]
    body = _DecompressedBody(cast("httpx2.AsyncByteStream", response.stream), encoding)
    return httpx2.Response(response.status_code, headers=headers, stream=body, extensions=response.extensions)


def _remove_body(response: httpx2.Response) -> httpx2.Response:
    """Return *response* as if it had none, its headers as they are but for what describes a body."""
    dropped = {"content-encoding", "content-length", "transfer-encoding"}
    headers = [(name, value) for name, value in response.headers.multi_items() if name not in dropped]
    return httpx2.Response(response.status_code, headers=headers, content=b"")


async def _read_error_body(response: httpx2.Response) -> bytes:
    """Return as much of a refusal's body as could be an error of the protocol; nothing of one that does not come."""
    found = bytearray()
    try:
        async with asyncio.timeout(_ERROR_BODY_TIMEOUT_S):
            async for chunk in cast("httpx2.AsyncByteStream", _decompress(response).stream):
                found += chunk
                if len(found) > _MAX_ERROR_BODY_BYTES:
                    return b""
    except (httpx2.TransportError, TimeoutError):
        return b""
    return bytes(found)


def _parse_error_message(body: bytes) -> str | None:
    """Return the message of a JSON-RPC error; None: it is none."""
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
