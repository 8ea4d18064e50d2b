"""
The negotiation of the protocol revision with a server.

Revision 2026-07-28 begins with `server/discover`, all earlier ones with `initialize`. The SDK's own negotiation always sends
`server/discover` first and waits 10 s for its answer. Some servers exit on an unknown first message, and others ignore it. Here the first
message is the one that the server answered last time. A silent server gets the other message on the same connection, and a server that
exits is started once more with the other message first (`Negotiation.after_exit`). A server that answers with an error gets the other
message too, except if the error asks to wait, such as status 429: that says nothing about the revision.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Coroutine
from typing import Literal, TypeAlias, TypeVar

import mcp_types as types
from mcp import ClientSession, MCPError
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, LATEST_HANDSHAKE_VERSION, LATEST_MODERN_VERSION, MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from rookery.engines.upstreams import sdk
from rookery.tools.errors import ConnectFailed, HandshakeRefused
from rookery.tools.models import DEFAULT_START_TIMEOUT_S, ConnectionInfo, NegotiatedProtocol, Server, ServerProtocol
from rookery.tools.ports import NegotiatedProtocols

FirstMessage: TypeAlias = Literal["server/discover", "initialize"]

_SILENCE_S = 2.0
"""Silence after which a server of unknown revision gets `initialize` too. A program may still be starting, so both are then valid."""
_MODERN_PATIENCE, _HANDSHAKE_PATIENCE = 1 / 3, 2 / 3
"""
Silence after which a server gets the other message although it answered the first one last time, as a share of its start time-out.

It is longer after `initialize`: some servers exit on any message but the one that completes the handshake.
"""

_UNSUPPORTED_CODES = frozenset({types.METHOD_NOT_FOUND, types.INVALID_REQUEST, types.INVALID_PARAMS, types.UNSUPPORTED_PROTOCOL_VERSION})
"""JSON-RPC codes with which servers reject a revision or its first message."""

_Result: TypeAlias = types.InitializeResult | types.DiscoverResult
T = TypeVar("T")


class Negotiation:
    """
    The negotiation in one connection.

    Args:
        handshake_version: The revision that `initialize` offers.
        silence_s: Silence after which the other message is sent too. None: it is sent only if the first one is answered with an error.
        is_fixed: The entry demands this revision, so the other message is never sent.

    Attributes:
        first: The first message.
        has_probed: `server/discover` was sent, on which a server may have exited.
        is_modern: The server answered `server/discover` with a supported revision.
    """

    def __init__(
        self,
        first: FirstMessage = "server/discover",
        *,
        handshake_version: str = LATEST_HANDSHAKE_VERSION,
        silence_s: float | None = _SILENCE_S,
        is_fixed: bool = False,
    ) -> None:
        self.first: FirstMessage = first
        self._handshake_version = handshake_version
        self._silence_s = silence_s
        self._is_fixed = is_fixed
        self.has_probed = False
        self.is_modern = False
        self._lacks_discovery = False

    @classmethod
    def plan(cls, server: Server, stored_protocol: NegotiatedProtocol | None = None) -> Negotiation:
        """Return the negotiation with *server*, which negotiated *stored_protocol* last time."""
        if server.protocol is ServerProtocol.HANDSHAKE:
            return cls("initialize", is_fixed=True)
        if server.protocol in MODERN_PROTOCOL_VERSIONS:
            return cls("server/discover", is_fixed=True)
        if server.protocol is not ServerProtocol.AUTO:
            return cls("initialize", handshake_version=server.protocol.value, is_fixed=True)
        if stored_protocol is not None:
            is_modern = stored_protocol.version in MODERN_PROTOCOL_VERSIONS
            limit_s = server.effective_start_timeout_s or DEFAULT_START_TIMEOUT_S
            if is_modern:
                return cls("server/discover", silence_s=limit_s * _MODERN_PATIENCE)
            return cls("initialize", silence_s=limit_s * _HANDSHAKE_PATIENCE)
        # HTTP with SSE belongs to revision 2024-11-05.
        return cls("initialize", silence_s=None) if server.kind == "sse" else cls()

    def after_exit(self) -> Negotiation | None:
        """Return the negotiation for another start of a server that exited in this one. None: another start would not help."""
        if self._is_fixed:
            return None
        return Negotiation("initialize", silence_s=None) if self.has_probed else Negotiation()

    async def run(self, session: ClientSession) -> None:
        """
        Negotiate, and set up *session* for the result.

        Raises:
            MCPError: The server rejected the messages, or the connection was closed.
            ConnectFailed: The server supports no revision that Rookery and the entry allow.
        """
        try:
            result = await (self._initialize_first(session) if self.first == "initialize" else self._discover_first(session))
        except MCPError as error:
            if self._is_fixed and error.code in _UNSUPPORTED_CODES:
                demanded = self._handshake_version if self.first == "initialize" else LATEST_MODERN_VERSION
                raise ConnectFailed(f"The server does not support protocol {demanded}, as its entry demands: {error.message}") from error
            raise
        session.adopt(result)
        if isinstance(result, types.InitializeResult):
            await session.send_notification(types.InitializedNotification())

    def describe(self, info: ConnectionInfo) -> NegotiatedProtocol:
        """Return what the next start needs to know about a connection with these facts."""
        version = LATEST_MODERN_VERSION if self.is_modern else info.protocol_version or LATEST_HANDSHAKE_VERSION
        return NegotiatedProtocol(version=version, software=info.software)

    async def _discover_first(self, session: ClientSession) -> _Result:
        if self._is_fixed:
            return _require(await self._discover(session))
        async with _run_task(self._discover(session)) as probe:
            if not await _is_done_within(probe, self._silence_s):
                async with _run_task(self._initialize(session)) as handshake:
                    return await _choose(probe, handshake)
            discovery = await probe
        if discovery is not None:
            return discovery
        try:
            return await self._initialize(session)
        except MCPError as error:
            if error.code != types.UNSUPPORTED_PROTOCOL_VERSION:
                if self._lacks_discovery and sdk.is_own_error(error):
                    raise HandshakeRefused(error.message) from error
                raise
            # A server that names its revisions here is modern after all: it was not ready when it was probed.
            discovery = await self._discover(session)
            if discovery is None:
                raise
            return discovery

    async def _initialize_first(self, session: ClientSession) -> _Result:
        if self._is_fixed:
            return await self._initialize(session)
        async with _run_task(self._initialize(session)) as handshake:
            if not await _is_done_within(handshake, self._silence_s):
                async with _run_task(self._discover(session)) as probe:
                    return await _choose(probe, handshake)
            try:
                return await handshake
            except MCPError as error:
                if error.code == types.CONNECTION_CLOSED or sdk.is_throttled(error):
                    raise
                # The server may have been replaced by one that supports only newer revisions.
                discovery = await self._discover(session)
                if discovery is None:
                    raise
                return discovery

    async def _initialize(self, session: ClientSession) -> types.InitializeResult:
        """Send `initialize` and return its result, without effect on *session*."""
        try:
            result = await sdk.send_initialize(session, self._handshake_version)
        except ValidationError as error:
            problem = error.errors(include_url=False, include_input=False)[0]
            location = "/".join(str(part) for part in problem["loc"])
            raise ConnectFailed(f"The server's result of `initialize` is invalid: {location}: {problem['msg']}") from error
        if result.protocol_version not in HANDSHAKE_PROTOCOL_VERSIONS:
            supported = ", ".join(HANDSHAKE_PROTOCOL_VERSIONS)
            raise ConnectFailed(f"The server answered `initialize` with protocol {result.protocol_version!r}; supported are {supported}.")
        return result

    async def _discover(self, session: ClientSession) -> types.DiscoverResult | None:
        """
        Send `server/discover` and return its result, without effect on *session*. None: the server is not modern.

        Raises:
            MCPError: The connection was closed, the server takes no requests for now, or it rejects the revision that its entry demands.
        """
        self.has_probed = True
        version = LATEST_MODERN_VERSION
        while True:
            try:
                result = types.DiscoverResult.model_validate(await sdk.send_discover(session, version))
            except ValidationError:
                return None
            except MCPError as error:
                mutual = _find_mutual_version(error)
                if mutual is not None and mutual != version:
                    version = mutual
                    continue
                if self._is_fixed or error.code == types.CONNECTION_CLOSED or sdk.is_throttled(error):
                    raise
                self._lacks_discovery = error.code == types.METHOD_NOT_FOUND
                return None
            self.is_modern = any(supported in MODERN_PROTOCOL_VERSIONS for supported in result.supported_versions)
            return result if self.is_modern else None


async def find_negotiated(protocols: NegotiatedProtocols | None, server: Server) -> NegotiatedProtocol | None:
    """Return what *server* negotiated last. None: unknown, or its entry names the revision."""
    return None if protocols is None or server.protocol is not ServerProtocol.AUTO else await protocols.find(server)


async def save_negotiated(
    protocols: NegotiatedProtocols | None,
    server: Server,
    stored_protocol: NegotiatedProtocol | None,
    negotiated: NegotiatedProtocol,
    *,
    was_probed: bool,
) -> None:
    """
    Store what *server* negotiated, if that is new.

    A server that was not probed, and has another name or version than last time, was replaced. It may support a newer revision, so the
    next start probes it.
    """
    if protocols is None or server.protocol is not ServerProtocol.AUTO or negotiated == stored_protocol:
        return
    is_replaced = stored_protocol is not None and stored_protocol.software != negotiated.software and not was_probed
    await protocols.save(server, None if is_replaced else negotiated)


async def _choose(probe: asyncio.Task[types.DiscoverResult | None], handshake: asyncio.Task[types.InitializeResult]) -> _Result:
    """
    Return the result of the handshake if the server answers it, else that of the probe. Both messages are sent.

    A server that supports both eras and answers both messages continues with the last one that it received, which is the handshake.
    """
    await asyncio.wait({probe, handshake}, return_when=asyncio.FIRST_COMPLETED)
    discovery = _get_result(probe)
    if discovery is not None and not await _is_done_within(handshake, _SILENCE_S):
        return discovery
    try:
        return await handshake
    except MCPError as error:
        if error.code != types.CONNECTION_CLOSED and await _is_done_within(probe, _SILENCE_S):
            discovery = _get_result(probe)
            if discovery is not None:
                return discovery
        raise


def _require(discovery: types.DiscoverResult | None) -> types.DiscoverResult:
    if discovery is None:
        raise ConnectFailed(f"The server does not support protocol {LATEST_MODERN_VERSION}, as its entry demands.")
    return discovery


def _find_mutual_version(error: MCPError) -> str | None:
    """Return the newest of our revisions that the error of an unsupported revision names."""
    if error.code != types.UNSUPPORTED_PROTOCOL_VERSION:
        return None
    try:
        supported = types.UnsupportedProtocolVersionErrorData.model_validate(error.error.data).supported
    except ValidationError:
        return None
    return next((version for version in reversed(MODERN_PROTOCOL_VERSIONS) if version in supported), None)


def _get_result(task: asyncio.Task[T]) -> T | None:
    """Return the result of *task*. None: it is running or failed."""
    return task.result() if task.done() and not task.cancelled() and task.exception() is None else None


async def _is_done_within(task: asyncio.Task[T], timeout_s: float | None) -> bool:
    await asyncio.wait({task}, timeout=timeout_s)
    return task.done()


@contextlib.asynccontextmanager
async def _run_task(work: Coroutine[None, None, T]) -> AsyncGenerator[asyncio.Task[T]]:
    """Run *work* in a task, which is cancelled on exit."""
    task = asyncio.create_task(work)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait({task})
        if not task.cancelled():
            task.exception()  # marks it as retrieved: the other task's outcome counts
