"""
What an upstream asks of us and has no answer to yet, bounded (D-32).

The SDK makes a task of each request that comes, and over HTTP writes one answer after another. An upstream that asks on without
taking the answers would have us hold all of them (20,000 tasks within seconds, measured), and any workspace may have added it.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from contextvars import Context
from types import TracebackType
from typing import Self, cast

import anyio
import mcp_types as types
from mcp.client._transport import ReadStream, TransportStreams, WriteStream  # the SDK names its contract nowhere else
from mcp.shared.jsonrpc_dispatcher import cancelled_request_id_from_params
from mcp.shared.message import SessionMessage

from rookery.engines.upstreams.error_transport import HttpConnectionState
from rookery.engines.upstreams.mcp_session import Transport

MAX_PENDING_REQUESTS = 128
"""Four times the questions that may wait for a person (`line`); what is answered at once is never so many."""


@contextlib.asynccontextmanager
async def limit_requests(transport: Transport, state: HttpConnectionState, host: str) -> AsyncGenerator[TransportStreams]:
    """Yield the streams of *transport*, which end, and *state* with them, when too many requests of *host* wait for answers."""
    async with transport as (read, write):
        asked = set[types.RequestId]()
        yield _LimitedReadStream(read, asked, state, host), _LimitedWriteStream(write, asked)


class _LimitedReadStream:
    """The read stream: notes each request that comes, and each that the upstream takes back."""

    def __init__(
        self, inner: ReadStream[SessionMessage | Exception], pending: set[types.RequestId], state: HttpConnectionState, host: str
    ) -> None:
        self._inner = inner
        self._pending = pending
        self._state = state
        self._host = host

    @property
    def last_context(self) -> Context | None:
        """The context in which the last message was sent; the SDK asks for it by this name."""
        return cast("Context | None", getattr(self._inner, "last_context", None))

    async def receive(self) -> SessionMessage | Exception:
        """
        Return the next message.

        Raises:
            EndOfStream: There is none any more, or the upstream is given up.
        """
        item = await self._inner.receive()
        message = item.message if isinstance(item, SessionMessage) else None
        if isinstance(message, types.JSONRPCRequest):
            self._pending.add(message.id)
            if len(self._pending) > MAX_PENDING_REQUESTS:
                self._state.last_error = f"{self._host} asks without end and takes none of the answers."
                self._state.ended.set()
                raise anyio.EndOfStream
        elif isinstance(message, types.JSONRPCNotification) and message.method == "notifications/cancelled":
            taken_back = cancelled_request_id_from_params(message.params)
            if taken_back is not None:
                self._pending.discard(taken_back)
        return item

    async def aclose(self) -> None:
        """Take no more."""
        await self._inner.aclose()

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


class _LimitedWriteStream:
    """The write stream: notes each answer that was taken."""

    def __init__(self, inner: WriteStream[SessionMessage], pending: set[types.RequestId]) -> None:
        self._inner = inner
        self._pending = pending

    async def send(self, item: SessionMessage, /) -> None:
        """Send one message."""
        await self._inner.send(item)
        if isinstance(item.message, types.JSONRPCResponse | types.JSONRPCError) and item.message.id is not None:
            self._pending.discard(item.message.id)

    async def aclose(self) -> None:
        """Send no more."""
        await self._inner.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None) -> None:
        await self.aclose()
