"""
The older HTTP with SSE (protocol 2024-11-05): one stream of events brings all answers, each message is a POST of its own.

The SDK's client for it ends the session with one POST that fails, or with one event past a mebibyte, and leaves its calls
waiting; so this is ours. What happens to a POST is that request's business, and the end of the stream is the session's.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from types import TracebackType
from typing import Self
from urllib.parse import urljoin

import anyio
import httpx2
import orjson
from mcp.client._transport import TransportStreams  # the SDK names its contract nowhere else
from mcp.shared.message import SessionMessage
from mcp_types import ErrorData, JSONRPCError, JSONRPCRequest, jsonrpc_message_adapter

from rookery.engines.upstreams.error_transport import HttpConnectionState
from rookery.engines.upstreams.mcp_session import BROKEN_CODE, MAX_MESSAGE_BYTES, UNSENT_CODE, UnsentError
from rookery.tools.errors import ConnectFailed

_MAX_UNREAD_MESSAGES = 1000
"""Messages read but not yet taken; beyond, the stream is left full until they are."""

_ENDPOINT_TIMEOUT_S = 20.0
_MAX_QUOTED_CHARS = 100
_MIN_ERROR_STATUS = 300
_NOT_FOUND = 404


class SseReadStream:
    """The messages that come, in the SDK's contract for a read stream."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[SessionMessage | None] = asyncio.Queue(_MAX_UNREAD_MESSAGES)

    async def put(self, message: SessionMessage) -> None:
        """Add a message; waits while too many are there."""
        await self._queue.put(message)

    def end(self) -> None:
        """Let there be no more after what is there."""
        if self._queue.full():
            self._queue.get_nowait()
        self._queue.put_nowait(None)

    async def receive(self) -> SessionMessage | Exception:
        """Return the next message."""
        message = await self._queue.get()
        if message is None:
            self.end()
            raise anyio.EndOfStream
        return message

    async def aclose(self) -> None:
        """Take no more."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None) -> None:
        await self.aclose()


class SseWriteStream:
    """The messages that go, in the SDK's contract for a write stream: each in the context of who sends it."""

    def __init__(self, client: httpx2.AsyncClient, endpoint: str, stream: SseReadStream) -> None:
        self._client = client
        self._endpoint = endpoint
        self._stream = stream

    async def send(self, item: SessionMessage, /) -> None:
        """
        Post one message; one that is refused is answered here, with an error to whoever asked.

        Raises:
            Unsent: The request surely did not reach whom it was meant for.
        """
        content = item.message.model_dump_json(by_alias=True, exclude_unset=True).encode()
        async with self._client.stream(
            "POST", self._endpoint, content=content, headers={"content-type": "application/json"}, follow_redirects=False
        ) as response:
            if response.status_code < _MIN_ERROR_STATUS or not isinstance(item.message, JSONRPCRequest):
                return
            # 404: it knows nothing of our stream, so it has been started anew.
            code = UNSENT_CODE if response.status_code == _NOT_FOUND else BROKEN_CODE
            error = ErrorData(code=code, message=f"{response.request.url.host} answered {response.status_code}.")
            if response.headers.get("content-type", "").startswith("application/json"):
                with contextlib.suppress(orjson.JSONDecodeError, KeyError, TypeError, ValueError):
                    error = ErrorData.model_validate(orjson.loads(await response.aread())["error"])
        if error.code == UNSENT_CODE:
            raise UnsentError  # the stream may be over too, and would say that the request was perhaps taken
        await self._stream.put(SessionMessage(JSONRPCError(jsonrpc="2.0", id=item.message.id, error=error)))

    async def aclose(self) -> None:
        """Send no more."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None) -> None:
        await self.aclose()


@contextlib.asynccontextmanager
async def open_sse_streams(url: str, client: httpx2.AsyncClient, state: HttpConnectionState) -> AsyncGenerator[TransportStreams]:
    """
    Open the stream of events at *url* and yield what is read from it and written beside it.

    Raises:
        ConnectFailed: There is no such stream, or it names no place of its own to write to.
    """
    request = client.build_request("GET", url, headers={"accept": "text/event-stream", "cache-control": "no-store"})
    try:
        response = await client.send(request, stream=True, follow_redirects=False)
    except httpx2.TransportError as error:
        raise ConnectFailed(f"No connection to {request.url.host}: {str(error) or type(error).__name__}") from error
    try:
        if not response.is_success:
            raise ConnectFailed(state.last_error or f"{request.url.host} answered {response.status_code}.")
        stream, endpoint = SseReadStream(), asyncio.get_running_loop().create_future()
        reading = asyncio.create_task(_read_events(response, url, stream, endpoint, state))
        try:
            async with asyncio.timeout(_ENDPOINT_TIMEOUT_S):
                place = await endpoint
            yield stream, SseWriteStream(client, place, stream)
        except TimeoutError:
            if endpoint.done() and not endpoint.cancelled():
                raise
            raise ConnectFailed(f"{request.url.host} did not say where to write to.") from None
        finally:
            reading.cancel()
            await asyncio.wait({reading})
    finally:
        await response.aclose()


async def _read_events(
    response: httpx2.Response, url: str, stream: SseReadStream, endpoint: asyncio.Future[str], state: HttpConnectionState
) -> None:
    """Read events until there are no more, or one that is too large or cannot be: then the session is over."""
    host = response.request.url.host
    try:
        async for event in httpx2.EventSource(response, max_event_size=MAX_MESSAGE_BYTES):
            if event.event == "endpoint" and not endpoint.done():
                endpoint.set_result(_resolve_endpoint(url, event.data))
            elif event.event == "message" and event.data:
                with contextlib.suppress(ValueError):  # what is no message is for nobody
                    await stream.put(SessionMessage(jsonrpc_message_adapter.validate_json(event.data, by_name=False)))
        state.last_error = f"{host} closed the stream of events."
    except httpx2.SSEError as error:
        state.last_error = f"{host}: {error}"
    except httpx2.TransportError as error:
        state.last_error = f"The connection to {host} broke: {str(error) or type(error).__name__}"
    except ConnectFailed as error:
        state.last_error = str(error)
    finally:
        state.ended.set()
        stream.end()
        if not endpoint.done():
            endpoint.set_exception(ConnectFailed(state.last_error))


def _resolve_endpoint(url: str, endpoint: str) -> str:
    """Return where to write to; elsewhere than at the server's own origin, our keys would go to somebody else."""
    ours = httpx2.URL(url)
    try:
        place = urljoin(url, endpoint)
        theirs = httpx2.URL(place)
    except (ValueError, httpx2.InvalidURL):
        raise ConnectFailed(f"{ours.host} names an address to write to that is none: {endpoint[:_MAX_QUOTED_CHARS]!r}") from None
    if (ours.scheme, ours.host, ours.port) != (theirs.scheme, theirs.host, theirs.port):
        raise ConnectFailed(f"The server wants us to write to {_origin(theirs)} instead of {_origin(ours)}; we do not.")
    return place


def _origin(url: httpx2.URL) -> str:
    return f"{url.scheme}://{url.netloc.decode('ascii', 'replace')}"
