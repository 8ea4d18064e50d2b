"""The state of a connection to a remote server, and a limit on its unanswered requests."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from contextvars import Context
from typing import cast

import anyio
import mcp_types as types
from mcp.shared.jsonrpc_dispatcher import cancelled_request_id_from_params
from mcp.shared.message import SessionMessage

from rookery.engines.upstreams.sdk import MessageReadStream, MessageWriteStream, ReadStream, Transport, TransportStreams, WriteStream

MAX_PENDING_REQUESTS = 128
"""Four times the number of requests that may wait for a person (`call_router`). Others are answered at once and never reach it."""


class HttpConnectionState:
    """
    The state of an HTTP connection. Implements `TransportState`.

    Attributes:
        last_error: The last error that concerned the session.
        needs_login: The last error was a missing or rejected login of the server's entry.
        is_callers_login: The last error status was a login of the caller that the server rejected, or missed.
        retry_after_s: The seconds of Retry-After of the last error status; None if it had none.
        is_throttled: The last error status allows no further request for now: it had Retry-After, or was 429.
        ended: Set when the connection has ended.
    """

    pid = None

    def __init__(self) -> None:
        self.last_error = ""
        self.needs_login = False
        self.is_callers_login = False
        self.retry_after_s: int | None = None
        self.is_throttled = False
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


@contextlib.asynccontextmanager
async def limit_requests(transport: Transport, state: HttpConnectionState, host: str) -> AsyncGenerator[TransportStreams]:
    """
    Yield the streams of *transport*. They end, and *state* with them, when too many requests of *host* are unanswered.

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
        await self._inner.send(item)
        if isinstance(item.message, types.JSONRPCResponse | types.JSONRPCError) and item.message.id is not None:
            self._pending.discard(item.message.id)

    async def aclose(self) -> None:
        await self._inner.aclose()
