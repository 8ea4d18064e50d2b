"""
Private parts of the MCP SDK that this package needs, for the locked series 2.3, and the parts that all transports share.

The SDK exports the types of a transport's streams only from a private module. Its client has no public way to send a request without models
of request and result, to stamp a request for the negotiated protocol version, to register the arguments that are sent in headers, or to
offer a certain protocol version.
`tests/engines/test_mcp_sdk.py` checks each of these for the locked version. With another version, look for a public way first.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Protocol, Self, TypeAlias, cast

import anyio
import mcp_types as types
from mcp import ClientSession, MCPError
from mcp.client._transport import ReadStream, TransportStreams, WriteStream
from mcp.shared.dispatcher import CallOptions
from mcp.shared.inbound import MCP_METHOD_HEADER, MCP_PROTOCOL_VERSION_HEADER
from mcp.shared.message import SessionMessage

from rookery.tools.errors import UpstreamErrorResponse, UpstreamStatusError
from rookery.tools.models import JsonObject

__all__ = ["ReadStream", "TransportStreams", "WriteStream"]

Transport: TypeAlias = AbstractAsyncContextManager[TransportStreams]

MAX_MESSAGE_BYTES = 10 * 1024 * 1024 + 64 * 1024
"""A result of 10 MiB with its envelope."""

TOO_LARGE_CODE = -32097
"""JSON-RPC code of a transport error: the result is too large."""

UNSENT_CODE = -32096
"""JSON-RPC code of a transport error: the request was not sent."""

BROKEN_CODE = -32095
"""JSON-RPC code of a transport error: the request or its response was lost; the session may still work."""

UNREADABLE_CODE = -32094
"""JSON-RPC code of a transport error: the response is not valid JSON."""

STATUS_CODE = -32093
"""JSON-RPC code of a complete HTTP response with an error status. The data is {status, retry_after_s}."""

_TRANSPORT_CODES = frozenset({TOO_LARGE_CODE, UNSENT_CODE, BROKEN_CODE, UNREADABLE_CODE, STATUS_CODE})
_CLOSED_MESSAGE = "Connection closed"
"""The SDK's message of requests whose connection has ended. Servers use its code for errors of their own."""

_THROTTLED_KEY = "rookery/throttled"
"""Marks the data of a server's own JSON-RPC error whose HTTP response allows no further request for now."""

MAX_UNREAD_MESSAGES = 1000
"""Maximum number of messages that a transport has read and the session has not processed. Beyond it, reading pauses."""


_DISCOVER_METHOD = "server/discover"


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


def mark_throttled(data: object, retry_after_s: int | None) -> JsonObject:
    """Return the data of a JSON-RPC error marked as that of a throttled request, with the seconds of Retry-After if it had any."""
    return {_THROTTLED_KEY: retry_after_s, "data": data}


def to_error_response(error: MCPError) -> UpstreamErrorResponse:
    """Return a server's own JSON-RPC error, with the data that it sent and what `mark_throttled` added."""
    data = cast("object", error.data)
    fields = cast("JsonObject", data) if isinstance(data, dict) else JsonObject()
    if _THROTTLED_KEY not in fields:
        return UpstreamErrorResponse(error.code, error.message, cast("object", data))
    seconds = fields[_THROTTLED_KEY]
    retry_after_s = seconds if isinstance(seconds, int) else None
    return UpstreamErrorResponse(error.code, error.message, fields.get("data"), retry_after_s=retry_after_s, is_throttled=True)


def is_throttled(error: MCPError) -> bool:
    """Return whether *error* is a complete HTTP response that allows no further request for now."""
    response = to_status_error(error.message, error.data) if error.code == STATUS_CODE else to_error_response(error)
    return response.is_throttled


def is_own_error(error: MCPError) -> bool:
    """Return whether *error* is a JSON-RPC error that the server sent, and none of its transport."""
    is_closed = error.code == types.CONNECTION_CLOSED and error.message == _CLOSED_MESSAGE
    return not is_closed and error.code not in _TRANSPORT_CODES and not is_throttled(error)


def to_status_error(message: str, data: object) -> UpstreamStatusError:
    """Return the error of a JSON-RPC error with `STATUS_CODE`. Invalid data counts as missing."""
    fields = cast("JsonObject", data) if isinstance(data, dict) else JsonObject()
    status, retry_after_s = fields.get("status"), fields.get("retry_after_s")
    error = UpstreamStatusError(
        status if isinstance(status, int) else 0, message, retry_after_s=retry_after_s if isinstance(retry_after_s, int) else None
    )
    error.concerns_caller = fields.get("concerns_caller") is True
    return error


async def send_initialize(session: ClientSession, version: str) -> types.InitializeResult:
    """Offer *version* in an `initialize` request. Unlike the session's own method, do not set up the session with the result."""
    params = types.InitializeRequestParams(
        protocol_version=version,
        capabilities=session._build_capabilities(version),  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
        client_info=session._client_info,  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    )
    return await session.send_request(types.InitializeRequest(params=params), types.InitializeResult)


async def send_discover(session: ClientSession, version: str) -> JsonObject:
    """Send `server/discover`, as the session's own method does, without its time-out of 10 s: a program may still be downloading."""
    capabilities = session._build_capabilities(version)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    meta: JsonObject = {
        types.PROTOCOL_VERSION_META_KEY: version,
        types.CLIENT_INFO_META_KEY: session._client_info.model_dump(by_alias=True, mode="json", exclude_none=True),  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
        types.CLIENT_CAPABILITIES_META_KEY: capabilities.model_dump(by_alias=True, mode="json", exclude_none=True),
    }
    opts: CallOptions = {"cancel_on_abandon": False, "headers": {MCP_PROTOCOL_VERSION_HEADER: version, MCP_METHOD_HEADER: _DISCOVER_METHOD}}
    result = await get_request_sender(session).send_raw_request(_DISCOVER_METHOD, {"_meta": meta}, opts)
    if isinstance(ttl := result.get("ttlMs"), (int, float)) and ttl < 0:
        result["ttlMs"] = 0  # otherwise the whole result would be invalid
    return result


def get_request_sender(session: ClientSession) -> RequestSender:
    """Return the dispatcher that the session's own `send_request` uses."""
    return session._dispatcher  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]


def stamp_request(session: ClientSession, message: dict[str, object], options: CallOptions) -> None:
    """Add to a request what the negotiated protocol version requires, as the session's own `send_request` does."""
    session._stamp(message, options)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]


def register_header_arguments(session: ClientSession, listing: types.ListToolsResult) -> types.ListToolsResult:
    """Register the arguments that are sent in headers too. Return the tools that declare them correctly (protocol 2026-07-28)."""
    return session._absorb_tool_listing(listing, complete=True)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
