"""A limit on the unanswered requests of a remote server."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from contextvars import Context
from typing import cast

import anyio
import mcp_types as types
from mcp.shared.jsonrpc_dispatcher import cancelled_request_id_from_params
from mcp.shared.message import SessionMessage

from rookery.engines.upstreams.connection_state import HttpConnectionState
from rookery.engines.upstreams.sdk import MessageReadStream, MessageWriteStream, ReadStream, Transport, TransportStreams, WriteStream

MAX_PENDING_REQUESTS = 128
"""Four times the number of requests that may wait for a person (`call_router`). Others are answered at once and never reach it."""


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
