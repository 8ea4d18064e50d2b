"""
Private parts of the MCP SDK that this package needs, for the locked series 2.3, and the parts that all transports share.

The SDK exports the types of a transport's streams only from a private module. Its client has no public way to send a request without models
of request and result, to stamp a request for the negotiated protocol version, or to register the arguments that are sent in headers.
`tests/engines/test_mcp_sdk.py` checks each of these for the locked version. With another version, look for a public way first.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Protocol, Self, TypeAlias

import anyio
import mcp_types as types
from mcp import ClientSession
from mcp.client._transport import ReadStream, TransportStreams, WriteStream
from mcp.shared.dispatcher import CallOptions
from mcp.shared.message import SessionMessage

from rookery.tools.models import JsonObject

__all__ = ["ReadStream", "TransportStreams", "WriteStream"]

Transport: TypeAlias = AbstractAsyncContextManager[TransportStreams]

MAX_MESSAGE_BYTES = 10 * 1024 * 1024 + 64 * 1024
"""A result of 10 MiB (D-34) with its envelope."""

TOO_LARGE_CODE = -32097
"""JSON-RPC code of a transport error: the result is too large."""

UNSENT_CODE = -32096
"""JSON-RPC code of a transport error: the request was not sent."""

BROKEN_CODE = -32095
"""JSON-RPC code of a transport error: the request or its response was lost; the session may still work."""

UNREADABLE_CODE = -32094
"""JSON-RPC code of a transport error: the response is not valid JSON."""

MAX_UNREAD_MESSAGES = 1000
"""Maximum number of messages that a transport has read and the session has not processed. Beyond it, reading pauses."""


class UnsentError(Exception):
    """Raised by a transport when a request was not sent. The SDK itself does not distinguish that from a loss after sending."""


class TransportState(Protocol):
    """The state of a transport."""

    @property
    def pid(self) -> int | None:
        """Id of the server's process, if it is a child process."""
        ...

    def get_end_reason(self) -> str:
        """Return the reason of the connection's end, for errors; empty if unknown."""
        ...

    def is_ended(self) -> bool:
        """Return whether the connection is known to have ended."""
        ...

    async def wait_ended(self) -> None:
        """Wait until no message can arrive. Never return if that cannot be known."""
        ...


class RequestSender(Protocol):
    """A sender of raw requests, such as the SDK's dispatcher."""

    async def send_raw_request(self, method: str, params: Mapping[str, object] | None, opts: CallOptions | None = None) -> JsonObject:
        """Send a request and return its unchanged result."""
        ...


class MessageReadStream(Protocol):
    """The incoming messages of a session: the SDK's read stream."""

    async def receive(self) -> SessionMessage | Exception:
        """Return the next message. Raises `EndOfStream` after the last one."""
        ...

    async def aclose(self) -> None:
        """Do nothing; reading ends with the connection."""

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


class MessageWriteStream(Protocol):
    """The outgoing messages of a session: the SDK's write stream."""

    async def send(self, item: SessionMessage, /) -> None:
        """Send one message. Raises `UnsentError` if a request did not reach the server."""
        ...

    async def aclose(self) -> None:
        """Do nothing; writing ends with the connection."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None) -> None:
        await self.aclose()


def get_request_sender(session: ClientSession) -> RequestSender:
    """Return the dispatcher that the session's own `send_request` uses."""
    return session._dispatcher  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]


def stamp_request(session: ClientSession, message: dict[str, object], options: CallOptions) -> None:
    """Add to a request what the negotiated protocol version requires, as the session's own `send_request` does."""
    session._stamp(message, options)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]


def register_header_arguments(session: ClientSession, listing: types.ListToolsResult) -> types.ListToolsResult:
    """Register the arguments that are sent in headers too. Return the tools that declare them correctly (protocol 2026-07-28)."""
    return session._absorb_tool_listing(listing, complete=True)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
