"""
Connections to remote servers: Streamable HTTP, and the older HTTP with SSE (protocol 2024-11-05).

The SDK ends the whole session, with all its calls, when a request fails. `ErrorMappingTransport` therefore turns the failure of a POST (no
connection, no login, an invalid or too large body) into a JSON-RPC error of that request. The SDK's client of the older protocol also waits
for ever for the results of a failed POST, or of an event larger than 1 MiB; `open_sse_streams` fails that request alone, and the end of
the event stream ends the session.
"""

from __future__ import annotations

import asyncio
import contextlib
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextvars import Context, ContextVar
from typing import cast
from urllib.parse import urljoin

import anyio
import httpx2
import mcp_types as types
import orjson
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.jsonrpc_dispatcher import cancelled_request_id_from_params
from mcp.shared.message import SessionMessage
from mcp_types import ErrorData, JSONRPCError, JSONRPCRequest, jsonrpc_message_adapter

from rookery.engines.upstreams.mcp_session import McpSession, open_session
from rookery.engines.upstreams.sdk import (
    BROKEN_CODE,
    MAX_MESSAGE_BYTES,
    MAX_UNREAD_MESSAGES,
    TOO_LARGE_CODE,
    UNSENT_CODE,
    MessageReadStream,
    MessageWriteStream,
    ReadStream,
    Transport,
    TransportStreams,
    UnsentError,
    WriteStream,
)
from rookery.kernel.egress import EgressGuard
from rookery.kernel.egress.transport import GuardedTransport, get_tls_context
from rookery.kernel.tracing import propagation_headers
from rookery.tools.errors import ConnectFailed
from rookery.tools.models import ConnectionInfo, HttpTarget, JsonObject, Server, ServerFeatures
from rookery.tools.ports import RequestOptions, TokenProvider, UpstreamConnection, UpstreamMethod

_CONNECT_TIMEOUT_S = 10.0
_READ_TIMEOUT_S = 660.0
"""Longer than the longest call (600 s, D-34), which has its own timeout."""

_USER_AGENT = "rookery"
_LIMITS = httpx2.Limits(max_connections=None, max_keepalive_connections=32, keepalive_expiry=60.0)

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

MAX_PENDING_REQUESTS = 128
"""Four times the number of requests that may wait for a person (`call_router`). Others are answered at once and never reach it."""

_ENDPOINT_TIMEOUT_S = 20.0
_MAX_QUOTED_CHARS = 100
_MIN_ERROR_STATUS = 300


class HttpConnector:
    """A `Connector` for servers with a URL."""

    def __init__(self, tokens: TokenProvider | None = None, guard: EgressGuard | None = None) -> None:
        self._tokens = tokens
        self._guard = guard

    @contextlib.asynccontextmanager
    async def connect(
        self,
        server: Server,
        *,
        on_changed: Callable[[], None],
        workspace_id: int | None = None,
        on_stderr: Callable[[str], None] | None = None,
    ) -> AsyncGenerator[UpstreamConnection]:
        """Open a session with the server, with a login if its entry requires one."""
        del on_stderr  # no local process
        if not isinstance(server.target, HttpTarget):
            msg = f"{server.id} has no URL"
            raise TypeError(msg)
        address, state = server.target, HttpConnectionState()
        transport = build_transport(server, self._guard)
        if server.auth is not None:
            if self._tokens is None:
                raise ConnectFailed("Logins are not available here.", needs_login=True)
            await self._tokens.get_token(server, workspace_id)  # a missing login is reported before anything is sent
            transport = TokenTransport(transport, self._tokens, server, workspace_id)
        client = httpx2.AsyncClient(
            transport=ErrorMappingTransport(transport, state, server),
            headers={"user-agent": _USER_AGENT, **address.headers, "accept-encoding": ACCEPTED_ENCODINGS},
            timeout=httpx2.Timeout(_CONNECT_TIMEOUT_S, read=_READ_TIMEOUT_S),
        )
        try:
            streams = limit_requests(_open_streams(address, client, state), state, httpx2.URL(address.url).host)
            async with client, open_session(streams, state, on_changed=on_changed, roots=server.roots) as session:
                yield _HeaderForwardingSession(session) if server.forward_headers else session
        except ConnectFailed as error:
            raise ConnectFailed(str(error), needs_login=error.needs_login or state.needs_login) from error


def build_transport(server: Server, guard: EgressGuard | None) -> httpx2.AsyncBaseTransport:
    """Return the transport to *server*. For a server of a workspace, it rejects addresses that *guard* does not allow (D-82)."""
    if server.owner is None:
        return httpx2.AsyncHTTPTransport(verify=get_tls_context(), limits=_LIMITS)
    if guard is None:
        raise ConnectFailed("Servers of workspaces cannot be reached here.")
    return GuardedTransport(guard, limits=_LIMITS)


def _open_streams(address: HttpTarget, client: httpx2.AsyncClient, state: HttpConnectionState) -> Transport:
    if address.kind == "sse":
        return open_sse_streams(address.url, client, state)
    return streamable_http_client(address.url, http_client=client, max_sse_event_size=MAX_MESSAGE_BYTES)


class _HeaderForwardingSession:
    """An `UpstreamConnection` that forwards headers of the caller with each request."""

    def __init__(self, session: McpSession) -> None:
        self._session = session

    @property
    def info(self) -> ConnectionInfo:
        return self._session.info

    async def request(self, method: UpstreamMethod, params: JsonObject, options: RequestOptions) -> JsonObject:
        """Send a request with the caller's headers."""
        token = FORWARDED_HEADERS.set(options.headers)
        try:
            return await self._session.request(method, params, options)
        finally:
            FORWARDED_HEADERS.reset(token)

    async def list_features(self) -> ServerFeatures:
        return await self._session.list_features()

    async def wait_closed(self) -> str:
        return await self._session.wait_closed()


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


@contextlib.asynccontextmanager
async def limit_requests(transport: Transport, state: HttpConnectionState, host: str) -> AsyncGenerator[TransportStreams]:
    """
    Yield the streams of *transport*. They end, and *state* with them, when too many requests of *host* are unanswered (D-32).

    The SDK creates a task for each incoming request, and over HTTP writes one result after another. A server that sends requests without
    reading the results would accumulate them (20,000 tasks within seconds, measured), and any workspace can add a server.
    """
    async with transport as (read, write):
        pending = set[types.RequestId]()
        yield _LimitedReadStream(read, pending, state, host), _LimitedWriteStream(write, pending)


class _LimitedReadStream(MessageReadStream):
    """A read stream that records each incoming request until it is cancelled."""

    def __init__(
        self, inner: ReadStream[SessionMessage | Exception], pending: set[types.RequestId], state: HttpConnectionState, host: str
    ) -> None:
        self._inner = inner
        self._pending = pending
        self._state = state
        self._host = host

    @property
    def last_context(self) -> Context | None:
        """The context in which the last message was sent. The SDK reads it under this name."""
        return cast("Context | None", getattr(self._inner, "last_context", None))

    async def receive(self) -> SessionMessage | Exception:
        """
        Return the next message.

        Raises:
            EndOfStream: The stream has ended, or the limit is exceeded.
        """
        item = await self._inner.receive()
        message = item.message if isinstance(item, SessionMessage) else None
        if isinstance(message, types.JSONRPCRequest):
            self._pending.add(message.id)
            if len(self._pending) > MAX_PENDING_REQUESTS:
                self._state.last_error = f"{self._host} sends requests without reading the results."
                self._state.ended.set()
                raise anyio.EndOfStream
        elif isinstance(message, types.JSONRPCNotification) and message.method == "notifications/cancelled":
            cancelled_id = cancelled_request_id_from_params(message.params)
            if cancelled_id is not None:
                self._pending.discard(cancelled_id)
        return item

    async def aclose(self) -> None:
        await self._inner.aclose()


class _LimitedWriteStream(MessageWriteStream):
    """A write stream that removes each request once its result is sent."""

    def __init__(self, inner: WriteStream[SessionMessage], pending: set[types.RequestId]) -> None:
        self._inner = inner
        self._pending = pending

    async def send(self, item: SessionMessage, /) -> None:
        """Send one message."""
        await self._inner.send(item)
        if isinstance(item.message, types.JSONRPCResponse | types.JSONRPCError) and item.message.id is not None:
            self._pending.discard(item.message.id)

    async def aclose(self) -> None:
        await self._inner.aclose()


class SseReadStream(MessageReadStream):
    """A queue of incoming messages; implements the SDK's read stream."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[SessionMessage | None] = asyncio.Queue(MAX_UNREAD_MESSAGES)

    async def put(self, message: SessionMessage) -> None:
        """Add a message. Waits while the queue is full."""
        await self._queue.put(message)

    def end(self) -> None:
        """End the stream after the messages that are in the queue."""
        if self._queue.full():
            self._queue.get_nowait()
        self._queue.put_nowait(None)

    async def receive(self) -> SessionMessage | Exception:
        """Return the next message. Raises `EndOfStream` after the last one."""
        message = await self._queue.get()
        if message is None:
            self.end()
            raise anyio.EndOfStream
        return message


class SseWriteStream(MessageWriteStream):
    """A writer of outgoing messages; implements the SDK's write stream. Each is sent in the context of its sender."""

    def __init__(self, client: httpx2.AsyncClient, endpoint: str, stream: SseReadStream) -> None:
        self._client = client
        self._endpoint = endpoint
        self._stream = stream

    async def send(self, item: SessionMessage, /) -> None:
        """
        Post one message. If the server rejects a request, an error is put into the read stream as its response.

        Raises:
            UnsentError: The request did not reach the server.
        """
        content = item.message.model_dump_json(by_alias=True, exclude_unset=True).encode()
        async with self._client.stream(
            "POST", self._endpoint, content=content, headers={"content-type": "application/json"}, follow_redirects=False
        ) as response:
            if response.status_code < _MIN_ERROR_STATUS or not isinstance(item.message, JSONRPCRequest):
                return
            # 404: the event stream is unknown, so the server was restarted.
            code = UNSENT_CODE if response.status_code == _NOT_FOUND else BROKEN_CODE
            error = ErrorData(code=code, message=f"{response.request.url.host} returned status {response.status_code}.")
            if response.headers.get("content-type", "").startswith("application/json"):
                with contextlib.suppress(orjson.JSONDecodeError, KeyError, TypeError, ValueError):
                    error = ErrorData.model_validate(orjson.loads(await response.aread())["error"])
        if error.code == UNSENT_CODE:
            raise UnsentError  # the event stream may have ended too, and would report that the request was perhaps processed
        await self._stream.put(SessionMessage(JSONRPCError(jsonrpc="2.0", id=item.message.id, error=error)))


@contextlib.asynccontextmanager
async def open_sse_streams(url: str, client: httpx2.AsyncClient, state: HttpConnectionState) -> AsyncGenerator[TransportStreams]:
    """
    Open the event stream at *url* and yield the read and the write stream.

    Raises:
        ConnectFailed: There is no event stream, or its endpoint is missing, invalid or on another origin.
    """
    request = client.build_request("GET", url, headers={"accept": "text/event-stream", "cache-control": "no-store"})
    try:
        response = await client.send(request, stream=True, follow_redirects=False)
    except httpx2.TransportError as error:
        raise ConnectFailed(f"No connection to {request.url.host}: {str(error) or type(error).__name__}") from error
    try:
        if not response.is_success:
            raise ConnectFailed(state.last_error or f"{request.url.host} returned status {response.status_code}.")
        stream, endpoint = SseReadStream(), asyncio.get_running_loop().create_future()
        reader = asyncio.create_task(_read_events(response, url, stream, endpoint, state))
        try:
            async with asyncio.timeout(_ENDPOINT_TIMEOUT_S):
                post_url = await endpoint
            yield stream, SseWriteStream(client, post_url, stream)
        except TimeoutError:
            if endpoint.done() and not endpoint.cancelled():
                raise
            raise ConnectFailed(f"{request.url.host} did not send an endpoint event.") from None
        finally:
            reader.cancel()
            await asyncio.wait({reader})
    finally:
        await response.aclose()


async def _read_events(
    response: httpx2.Response, url: str, stream: SseReadStream, endpoint: asyncio.Future[str], state: HttpConnectionState
) -> None:
    """Read events until the stream ends, or an event is too large or invalid. Then end the session."""
    host = response.request.url.host
    try:
        async for event in httpx2.EventSource(response, max_event_size=MAX_MESSAGE_BYTES):
            if event.event == "endpoint" and not endpoint.done():
                endpoint.set_result(_resolve_endpoint(url, event.data))
            elif event.event == "message" and event.data:
                with contextlib.suppress(ValueError):  # ignore invalid messages
                    await stream.put(SessionMessage(jsonrpc_message_adapter.validate_json(event.data, by_name=False)))
        state.last_error = f"{host} closed the event stream."
    except httpx2.SSEError as error:
        state.last_error = f"{host}: {error}"
    except httpx2.TransportError as error:
        state.last_error = f"The connection to {host} failed: {str(error) or type(error).__name__}"
    except ConnectFailed as error:
        state.last_error = str(error)
    finally:
        state.ended.set()
        stream.end()
        if not endpoint.done():
            endpoint.set_exception(ConnectFailed(state.last_error))


def _resolve_endpoint(url: str, endpoint: str) -> str:
    """Return the URL for messages. It must have the server's origin: otherwise keys would be sent to another host."""
    server_url = httpx2.URL(url)
    try:
        post_url = urljoin(url, endpoint)
        endpoint_url = httpx2.URL(post_url)
    except (ValueError, httpx2.InvalidURL):
        raise ConnectFailed(f"{server_url.host} sent an invalid endpoint: {endpoint[:_MAX_QUOTED_CHARS]!r}") from None
    if (server_url.scheme, server_url.host, server_url.port) != (endpoint_url.scheme, endpoint_url.host, endpoint_url.port):
        raise ConnectFailed(
            f"The endpoint must have the server's origin {_origin(server_url)}, but the server sent {_origin(endpoint_url)}."
        )
    return post_url


def _origin(url: httpx2.URL) -> str:
    return f"{url.scheme}://{url.netloc.decode('ascii', 'replace')}"
