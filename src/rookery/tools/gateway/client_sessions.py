"""
The sessions of MCP clients of the handshake era: their owners, their limits, and their revival.

A session lives in one process. If that process has ended, or the session ended because it was unused, the next request with its id revives
it, because most clients do not open another one. `ClientSessionManager` overrides private parts of the SDK's session manager;
`tests/tools/gateway/test_client_sessions.py` checks them for the locked version.

A client may end its session while another request is under way, for example after it cancelled a call. The SDK then fails to pass the
message on, writes two tracebacks, and answers a second time. None of this is an error of the server.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import cast

import anyio
import mcp_types as types
import structlog
from anyio.abc import TaskGroup
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser, AuthorizationContext, authorization_context
from mcp.server.auth.provider import AccessToken
from mcp.server.connection import Connection
from mcp.server.lowlevel import Server
from mcp.server.runner import serve_connection
from mcp.server.streamable_http import MCP_SESSION_ID_HEADER, StreamableHTTPServerTransport
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from mcp.shared.inbound import MCP_PROTOCOL_VERSION_HEADER
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp.shared.transport_context import TransportContext
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, LATEST_HANDSHAKE_VERSION, is_version_at_least
from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from rookery.access.models import Caller
from rookery.kernel.http.request_body import replay_body
from rookery.kernel.logs import FailureLog
from rookery.kernel.server_group import ServerGroup
from rookery.tools.errors import TooManySessions
from rookery.tools.gateway.catalogue_views import GatewayView
from rookery.tools.gateway.session_ids import SESSION_ENDED_BODY, ClientHandshake, ClientSessionIds, SessionOwner

_SESSION_CLOSED = (anyio.ClosedResourceError, anyio.BrokenResourceError)
"""The errors of a message for a session that no longer reads any."""

MAX_BODY_BYTES = 4 * 1024 * 1024
MAX_SESSIONS = 1000
MAX_SESSIONS_PER_KEY = 100
MAX_SESSIONS_PER_WORKSPACE = 250
_IDLE_TIMEOUT_S = 1800.0
_BUSY_RETRY_S = 5
"""Time after which another attempt is reasonable if all sessions are in use. A session gives way as soon as its last request ends."""
_OWNER_CHECK_INTERVAL_S = 2.0
"""Seconds between checks whether the processes that sessions belong to, and that could not be reached, are back."""
_OWNER_CHECK_TIMEOUT_S = 1.0
_RETRY_EVENT = b"retry: 5000\r\n\r\n"
"""
The first bytes of an event stream: the time after which its client connects again.

Without it, the SDKs for Python and TypeScript try twice within 2.5 s, and then never again. A restart takes longer.
"""
_RETRY_VERSION = "2025-11-25"
"""Clients of older protocol versions may take an event without data for an error."""


async def serve_while_open(serve: Callable[[Send], Awaitable[None]], send: Send, *, has_ended: Callable[[], bool]) -> bool:
    """
    Run *serve* with a `send` that sends nothing more once the session has ended, except the rest of an answer that has begun.

    Returns:
        False if the session ended before the answer began.
    """
    has_begun, is_complete = False, False

    async def send_answer(message: Message) -> None:
        nonlocal has_begun, is_complete
        if message["type"] == "http.response.start":
            if has_begun or (message["status"] == HTTPStatus.INTERNAL_SERVER_ERROR and has_ended()):
                return
            has_begun = True
        elif is_complete or not has_begun:
            return
        else:
            is_complete = not message.get("more_body", False)
        await send(message)

    try:
        await serve(send_answer)
    except Exception as error:
        if not is_session_closed(error) or not has_ended():
            raise
    return has_begun or not has_ended()


def is_session_closed(error: BaseException | None) -> bool:
    """Return whether *error*, or each error of a group, is only due to the end of a session."""
    if isinstance(error, BaseExceptionGroup):
        return all(is_session_closed(inner) for inner in cast("BaseExceptionGroup[BaseException]", error).exceptions)
    return isinstance(error, _SESSION_CLOSED)


class _EndedSessionFilter(logging.Filter):
    """Drops the tracebacks of messages for sessions that have ended."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not record.exc_info or not is_session_closed(record.exc_info[1])


def drop_tracebacks() -> None:
    """Keep tracebacks of ended sessions out of the log."""
    logger = logging.getLogger("mcp.server.streamable_http")
    if not any(isinstance(item, _EndedSessionFilter) for item in logger.filters):
        logger.addFilter(_EndedSessionFilter())


_log = structlog.stdlib.get_logger("rookery.tools")


OnRevival = Callable[[Request, Connection], None]
"""Called with the request that revives a session, and the new connection."""


@dataclass(slots=True, eq=False)
class _ClientSession:
    """
    A session.

    Attributes:
        used_at: Monotonic time at which its last request began or ended.
        call_count: Number of requests in progress, without event streams.
        ready: Set when the session accepts requests.
        missed_changes: True until a revived session has an event stream. Changes before that were not announced.
    """

    id: str
    owner: SessionOwner
    transport: StreamableHTTPServerTransport
    used_at: float
    call_count: int = 0
    stream_count: int = 0
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    connection: Connection | None = None
    missed_changes: bool = False

    @property
    def is_unused(self) -> bool:
        return not self.call_count and not self.stream_count

    @property
    def is_over(self) -> bool:
        """True if the transport accepts no further requests, and the server task is about to remove the session."""
        idle_scope = self.transport.idle_scope
        return self.transport.is_terminated or (idle_scope is not None and idle_scope.cancel_called)


class ClientSessionManager(StreamableHTTPSessionManager):
    """
    A session manager that binds sessions to their key and path, limits their number, and revives them.

    At a limit, the session that has been unused for longest ends. The limits are checked here and not in the `initialize` handler. By then
    the SDK has stored a session, even if the request is rejected.

    Attributes:
        on_revival: Receives each revived session.
        on_stream: Receives the connection of a revived session when its event stream opens.
    """

    on_revival: OnRevival
    on_stream: Callable[[Connection], None]

    def __init__(self, app: Server[None], ids: ClientSessionIds, group: ServerGroup) -> None:
        super().__init__(
            app=app,
            session_idle_timeout=_IDLE_TIMEOUT_S,
            max_sessions=None,
            max_request_body_size=MAX_BODY_BYTES,
            # The edge middleware checks hosts; the route checks origins.
            security_settings=TransportSecuritySettings(enable_dns_rebinding_protection=False),
        )
        drop_tracebacks()
        self._ids = ids
        self._group = group
        self._sessions: dict[str, _ClientSession] = {}
        self._is_returning = False

    async def end_session(self, session_id: str) -> None:
        """End a session whose key is no longer valid."""
        session = self._sessions.get(session_id)
        if session is not None:
            await self._discard_session(session_id, session.transport)

    async def _handle_stateful_request(self, scope: Scope, receive: Receive, send: Send) -> None:
        user = scope["user"]
        assert isinstance(user, AuthenticatedUser)  # noqa: S101 - the caller of handle_request sets it
        requestor = authorization_context(user)
        request = Request(scope, receive)
        session_id = request.headers.get(MCP_SESSION_ID_HEADER)
        if session_id is None:
            await self._open(request, requestor, send)
            return
        session, owner = self._find(session_id), _parse_owner(requestor)
        if request.method == "DELETE":
            await self._end(session_id, session, owner, request, send)
            return
        if session is None:
            session = await self._revive(session_id, requestor, request)
        if session is None or session.owner != owner:
            await _send_not_found(request, send)
            return
        await self._serve(session, request, send)

    def _find(self, session_id: str) -> _ClientSession | None:
        session = self._sessions.get(session_id)
        return None if session is None or session.is_over else session

    async def _serve(self, session: _ClientSession, request: Request, send: Send) -> None:
        """Serve a request in its session, which is in use until the request ends."""
        is_stream = request.method == "GET"
        sends_retry = is_stream and is_version_at_least(request.headers.get(MCP_PROTOCOL_VERSION_HEADER, ""), _RETRY_VERSION)

        async def send_and_announce(message: Message) -> None:
            await send(message)
            if message["type"] != "http.response.start" or message["status"] != HTTPStatus.OK:
                return
            if sends_retry:
                await send({"type": "http.response.body", "body": _RETRY_EVENT, "more_body": True})
            if session.missed_changes and session.connection is not None:
                session.missed_changes = False
                self.on_stream(session.connection)

        session.used_at = time.monotonic()
        session.stream_count += is_stream
        session.call_count += not is_stream
        try:
            await session.ready.wait()
            await self._handle(session, request, send_and_announce if is_stream else send)
        finally:
            session.used_at = time.monotonic()
            session.stream_count -= is_stream
            session.call_count -= not is_stream

    async def _handle(self, session: _ClientSession, request: Request, send: Send) -> None:
        """Pass a request to the transport of its session, which may end meanwhile."""

        async def handle(send_answer: Send) -> None:
            await session.transport.handle_request(request.scope, request.receive, send_answer)

        if not await serve_while_open(handle, send, has_ended=lambda: session.is_over):
            await _send_not_found(request, send)

    async def _end(self, session_id: str, session: _ClientSession | None, owner: SessionOwner, request: Request, send: Send) -> None:
        """End a session for its client, also if it lives in no process."""
        if session is not None and session.owner == owner:
            await self._ids.end(session_id, owner)  # before the answer, so that no process revives it after that
            await self._serve(session, request, send)
            if session.transport.is_terminated:
                await self._discard_session(session_id, session.transport)
        elif session is None and await self._ids.read(session_id, owner) is not None:
            await self._ids.end(session_id, owner)
            await Response(headers={MCP_SESSION_ID_HEADER: session_id})(request.scope, request.receive, send)
        else:
            await _send_not_found(request, send)

    # New sessions.

    async def _open(self, request: Request, requestor: AuthorizationContext, send: Send) -> None:
        """Open a session. Only a valid `initialize` gets an id by which the session can be revived."""
        owner = _parse_owner(requestor)
        body = await request.body()
        handshake = _parse_handshake(body)
        session_id = None if handshake is None else await self._ids.issue(owner, handshake)
        self._make_room(owner)
        transport = self._admit_session(requestor)
        assert transport is not None  # noqa: S101 - the SDK counts no sessions
        assert transport.mcp_session_id is not None  # noqa: S101 - only stateless transports have none
        self._forget(transport.mcp_session_id)
        transport.mcp_session_id = self._group.mark_owner(transport.mcp_session_id) if session_id is None else session_id
        session = self._register(transport.mcp_session_id, requestor, transport)
        session.ready.set()
        session.call_count += 1
        try:
            await self._serve_opening_request(transport, request.scope, replay_body(body, request.receive), send)
        finally:
            session.call_count -= 1
            session.used_at = time.monotonic()

    def _register(self, session_id: str, requestor: AuthorizationContext, transport: StreamableHTTPServerTransport) -> _ClientSession:
        session = _ClientSession(session_id, _parse_owner(requestor), transport, time.monotonic())
        self._sessions[session_id] = session
        self._server_instances[session_id] = transport
        self._session_owners[session_id] = requestor
        return session

    def _forget(self, session_id: str) -> None:
        self._sessions.pop(session_id, None)
        self._server_instances.pop(session_id, None)
        self._session_owners.pop(session_id, None)

    async def _discard_session(self, session_id: str, transport: StreamableHTTPServerTransport) -> None:
        """End a session. One that was revived with the same id meanwhile stays."""
        if self._server_instances.get(session_id) is transport:
            self._forget(session_id)
        await super()._discard_session("", transport)  # terminates the transport; no session has this id

    # Limits.

    def _make_room(self, owner: SessionOwner) -> None:
        """
        End a session at each limit that is reached: of the key, of the workspace, or of the workspace with the most sessions.

        Raises:
            TooManySessions: All sessions that could give way are in use.
        """
        sessions = self._sessions.values()
        of_key = [session for session in sessions if session.owner.key_id == owner.key_id]
        if len(of_key) >= MAX_SESSIONS_PER_KEY:
            self._evict(of_key, f"All {MAX_SESSIONS_PER_KEY} MCP sessions of this key are in use, the maximum.")
        of_workspace = [session for session in sessions if session.owner.workspace_id == owner.workspace_id]
        if len(of_workspace) >= MAX_SESSIONS_PER_WORKSPACE:
            self._evict(of_workspace, f"All {MAX_SESSIONS_PER_WORKSPACE} MCP sessions of this workspace's keys are in use, the maximum.")
        if len(sessions) >= MAX_SESSIONS:
            counts = Counter(session.owner.workspace_id for session in sessions)
            unused = {session.owner.workspace_id for session in sessions if session.is_unused}
            largest = max(unused, key=lambda workspace: (counts[workspace], -workspace), default=None)
            of_largest = [session for session in sessions if session.owner.workspace_id == largest]
            self._evict(of_largest, f"All {MAX_SESSIONS} MCP sessions of Rookery are in use, the maximum.")

    def _evict(self, sessions: Iterable[_ClientSession], problem: str) -> None:
        session = min((session for session in sessions if session.is_unused), key=lambda session: session.used_at, default=None)
        if session is None:
            raise TooManySessions(problem, retry_after_s=_BUSY_RETRY_S)
        _log.info("gateway.session_evicted", key_id=session.owner.key_id)
        self._forget(session.id)
        self._get_task_group().start_soon(self._discard_session, session.id, session.transport)

    # Revival.

    async def _revive(self, session_id: str, requestor: AuthorizationContext, request: Request) -> _ClientSession | None:
        """Return a new session with an id that Rookery issued; None if the id is not valid for the requestor."""
        owner = _parse_owner(requestor)
        handshake = await self._ids.read(session_id, owner)
        if handshake is None or handshake.protocol_version not in HANDSHAKE_PROTOCOL_VERSIONS:
            return None
        session = self._find(session_id)
        if session is not None:
            return session  # another request has just revived it
        self._forget(session_id)
        self._make_room(owner)
        transport = StreamableHTTPServerTransport(
            session_id, security_settings=self.security_settings, idle_timeout=self.session_idle_timeout
        )
        session = self._register(session_id, requestor, transport)
        session.missed_changes = True
        self._get_task_group().start_soon(self._run_revived, session, handshake, request)
        if not self._is_returning and self._group.assign_owner(session_id) is not None:
            self._is_returning = True
            self._get_task_group().start_soon(self._return_sessions)
        _log.info("gateway.session_revived", key_id=owner.key_id)
        return session

    async def _run_revived(self, session: _ClientSession, handshake: ClientHandshake, request: Request) -> None:
        """Run the message loop of a session that has its handshake behind it, until the session ends."""
        transport = session.transport
        try:
            async with transport.connect() as (read_stream, write_stream):
                dispatcher: JSONRPCDispatcher[TransportContext] = JSONRPCDispatcher(
                    read_stream, write_stream, inline_methods=frozenset({"initialize"})
                )
                session.connection = connection = _build_connection(dispatcher, session.id, handshake)
                self.on_revival(request, connection)
                idle_scope = transport.idle_scope
                assert idle_scope is not None  # noqa: S101 - the transport has an idle timeout
                session.ready.set()
                try:
                    with idle_scope:
                        await serve_connection(self.app, dispatcher, connection=connection, lifespan_state=self._lifespan_state)
                finally:
                    await self._discard_session(session.id, transport)
        except Exception:  # noqa: BLE001 - an error would end all sessions
            _log.exception("gateway.session_failed")
        finally:
            await self._discard_session(session.id, transport)
            session.ready.set()

    async def _return_sessions(self) -> None:
        """End sessions that were revived here in place of another process, once that process is back and no call of them is running."""
        failures = FailureLog(_log, "gateway.sessions_not_returned")
        try:
            while numbers := {number for number in map(self._group.assign_owner, self._sessions) if number is not None}:
                await asyncio.sleep(_OWNER_CHECK_INTERVAL_S)
                try:
                    await self._return_to(numbers)
                except Exception as error:  # noqa: BLE001 - the next round retries; an error would end all sessions
                    failures.report(error)
        finally:
            self._is_returning = False

    async def _return_to(self, numbers: set[int]) -> None:
        for number in numbers:
            if await self._group.fetch(number, "/healthz", timeout_s=_OWNER_CHECK_TIMEOUT_S) is None:
                continue
            for session in tuple(self._sessions.values()):
                if self._group.assign_owner(session.id) == number and not session.call_count:
                    await self._discard_session(session.id, session.transport)

    def _get_task_group(self) -> TaskGroup:
        assert self._task_group is not None  # noqa: S101 - requests are served only inside `run`
        return self._task_group


def build_user(caller: Caller, view: GatewayView) -> AuthenticatedUser:
    """Return the identity that binds a session to its key and path. Requests of other identities do not find the session."""
    owner = f"{caller.public_workspace_id}/{caller.key_id}"
    return AuthenticatedUser(AccessToken(token=caller.key_id, client_id=owner, scopes=[], subject=str(view)))


def _parse_owner(requestor: AuthorizationContext) -> SessionOwner:
    workspace_id, _, key_id = requestor["client_id"].partition("/")
    return SessionOwner(int(workspace_id), key_id, requestor["subject"] or "")


def _parse_handshake(body: bytes) -> ClientHandshake | None:
    """Return the handshake that *body* begins; None if it is not a valid `initialize` request."""
    try:
        message = types.jsonrpc_message_adapter.validate_json(body, by_name=False)
        if not isinstance(message, types.JSONRPCRequest) or message.method != "initialize":
            return None
        params = types.InitializeRequestParams.model_validate(message.params or {}, by_name=False)
    except ValidationError:
        return None
    requested = params.protocol_version
    return ClientHandshake(
        protocol_version=requested if requested in HANDSHAKE_PROTOCOL_VERSIONS else LATEST_HANDSHAKE_VERSION,
        name=params.client_info.name,
        version=params.client_info.version,
        capabilities=params.capabilities.model_dump(mode="json", by_alias=True, exclude_none=True),
    )


def _build_connection(dispatcher: JSONRPCDispatcher[TransportContext], session_id: str, handshake: ClientHandshake) -> Connection:
    """Return a connection in the state after the handshake."""
    connection = Connection.for_loop(dispatcher, session_id=session_id, protocol_version_hint=handshake.protocol_version)
    connection.client_params = types.InitializeRequestParams(
        protocol_version=handshake.protocol_version,
        capabilities=types.ClientCapabilities.model_validate(handshake.capabilities, by_name=False),
        client_info=types.Implementation(name=handshake.name, version=handshake.version),
    )
    connection.initialized.set()
    return connection


async def _send_not_found(request: Request, send: Send) -> None:
    response = Response(SESSION_ENDED_BODY, status_code=404, media_type="application/json")
    await response(request.scope, request.receive, send)
