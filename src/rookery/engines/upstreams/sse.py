"""
The older HTTP with SSE (protocol 2024-11-05).

The SDK's client of this protocol waits for ever for the results of a failed POST, or of an event larger than 1 MiB. `open_sse_streams`
fails that request alone, and the end of the event stream ends the session.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from urllib.parse import urljoin

import anyio
import httpx2
import orjson
from mcp.shared.message import SessionMessage
from mcp_types import ErrorData, JSONRPCError, JSONRPCRequest, jsonrpc_message_adapter

from rookery.engines.upstreams.http_errors import describe_connection_failure
from rookery.engines.upstreams.request_limit import HttpConnectionState
from rookery.engines.upstreams.sdk import (
    MAX_MESSAGE_BYTES,
    MAX_UNREAD_MESSAGES,
    UNSENT_CODE,
    MessageReadStream,
    MessageWriteStream,
    TransportStreams,
    UnsentError,
)
from rookery.tools.errors import ConnectFailed

_ENDPOINT_TIMEOUT_S = 20.0
_MAX_QUOTED_CHARS = 100
_MIN_ERROR_STATUS = 300


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
            error = ErrorData.model_validate(orjson.loads(await response.aread())["error"])  # by `ErrorMappingTransport`
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
        raise ConnectFailed(describe_connection_failure(request.url, error)) from error
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
