"""
Forwarding of MCP requests between the processes of a server.

A session lives in the process that opened it: its streams, its subscriptions, and calls that wait for input. The id of a session and the
`requestState` of a waiting call contain the number of their process. A request that reaches another one is passed on over a Unix socket,
after that process has checked the key, its rate limit and the path. The owner of the session checks the key again, but counts nothing.
While the owner cannot be reached, the process that received a request revives its session.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import cast

import httpx2
import orjson
import structlog
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from rookery.access.models import Caller
from rookery.kernel.errors import RookeryError
from rookery.kernel.http.routes import InternalError
from rookery.kernel.request_context import CURRENT_REQUEST, RequestContext
from rookery.kernel.server_group import ServerGroup
from rookery.tools.gateway.catalogue_views import VIEW_STATE_KEY, GatewayView
from rookery.tools.gateway.session_ids import SESSION_ENDED_BODY
from rookery.tools.ports import GatewayKeyVerifier

_log = structlog.stdlib.get_logger("rookery.tools")

FORWARDED_HEADER = "x-rookery-forwarded"
"""The caller and the view of a forwarded request. Only requests on the Unix socket are read for it."""

WAITING_STATE_PREFIX = "rookery:"
"""The prefix of the `requestState` of calls that wait for input in a process of this server."""

_SESSION_HEADER = b"mcp-session-id"
_WAITING_STATE = re.compile(rb'"requestState"\s*:\s*"' + WAITING_STATE_PREFIX.encode("ascii") + rb'([0-9A-Za-z_-]+)"')
_CONNECTION_HEADERS = frozenset(
    {b"connection", b"content-length", b"expect", b"host", b"keep-alive", b"te", b"transfer-encoding", b"upgrade"}
)
_CONNECT_TIMEOUT_S = 5.0
_REQUIRED_SCOPE = "mcp:read"
_INVALID_REQUEST, _INTERNAL_ERROR = -32600, -32603
_CALL_LOST = "The server process that ran this request has ended. The request may have taken effect. Repeat it only if that does no harm."

ServeRequest = Callable[[Scope, Receive, Send], Awaitable[None]]


class RequestForwarder:
    """Passes requests on to the process that has their session, and serves those that other processes pass on."""

    def __init__(self, group: ServerGroup, keys: GatewayKeyVerifier) -> None:
        self._group = group
        self._keys = keys
        self._clients: dict[int, httpx2.AsyncClient] = {}

    async def aclose(self) -> None:
        """Close all connections to other processes."""
        for client in self._clients.values():
            await client.aclose()

    def find_owner(self, scope: Scope, body: bytes | None) -> int | None:
        """Return the number of the process that a request belongs to; None if this one can serve it."""
        session_id = next((value for name, value in scope["headers"] if name == _SESSION_HEADER), None)
        if session_id is not None:
            return self._group.assign_owner(session_id.strip(b" \t").decode("latin-1"))
        waiting = _WAITING_STATE.search(body) if body is not None else None
        return None if waiting is None else self._group.find_owner(waiting[1].decode("ascii"))

    async def forward(self, number: int, scope: Scope, body: bytes | None, receive: Receive, send: Send) -> bool:
        """
        Answer a request with the response of process *number*.

        Returns:
            False if that process cannot be reached, or ended before it answered, and the request may be served here. Nothing was sent.

        Raises:
            InternalError: The process ended before it answered a tool call, which may have taken effect.
        """
        query = cast("bytes", scope["query_string"])
        target = cast("str", scope["path"]) + (f"?{query.decode('latin-1')}" if query else "")
        headers = [(name, value) for name, value in scope["headers"] if name not in _CONNECTION_HEADERS]
        headers = [(name, value) for name, value in headers if name != FORWARDED_HEADER.encode("ascii")]
        headers.append((FORWARDED_HEADER.encode("ascii"), _encode_origin(scope)))
        request = httpx2.Request(cast("str", scope["method"]), f"http://localhost{target}", headers=headers, content=body)
        answering = asyncio.ensure_future(self._answer(self._get_client(number), request, body, send))
        leaving = asyncio.ensure_future(_wait_disconnect(receive))
        try:
            await asyncio.wait({answering, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            leaving.cancel()
            if not answering.done():
                answering.cancel()  # closes the connection, so that the other process sees the client leave
                await asyncio.wait({answering})
        return answering.cancelled() or answering.result()

    async def serve_forwarded(self, scope: Scope, receive: Receive, send: Send, serve: ServeRequest) -> None:
        """Serve a request that another process has admitted and forwarded, with *serve*."""
        request = Request(scope)
        origin = orjson.loads(request.headers[FORWARDED_HEADER])
        request_id, address = cast("str", origin["request_id"]), cast("str", origin["address"])
        caller = await self._keys.find_caller(cast("str", origin["key_id"]), _REQUIRED_SCOPE, address=address, request_id=request_id)
        if caller is None:  # revoked since the other process checked it
            await Response(SESSION_ENDED_BODY, status_code=404, media_type="application/json")(scope, receive, send)
            return
        view = GatewayView(server_id=cast("str | None", origin["server_id"]), is_search=cast("bool", origin["is_search"]))
        headers = [(name, value) for name, value in scope["headers"] if name != FORWARDED_HEADER.encode("ascii")]
        state: dict[str, object] = {**scope.get("state", {}), "caller": caller, VIEW_STATE_KEY: view, "request_id": request_id}
        context = RequestContext(request_id, state)
        token = CURRENT_REQUEST.set(context)
        has_begun, has_ended = False, False

        async def send_and_track(message: Message) -> None:
            nonlocal has_begun, has_ended
            if message["type"] == "http.response.start":
                has_begun = True
            else:
                has_ended = not message.get("more_body", False)
            await send(message)

        try:
            await serve({**scope, "headers": headers, "state": state}, receive, send_and_track)
            if has_begun and not has_ended:  # the SDK does not complete the streams that it aborts
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        except RookeryError as error:
            if has_begun:
                raise
            await _build_error_response(error)(scope, receive, send)
        finally:
            context.finish()
            CURRENT_REQUEST.reset(token)

    async def _answer(self, client: httpx2.AsyncClient, request: httpx2.Request, body: bytes | None, send: Send) -> bool:
        try:
            response = await client.send(request, stream=True)
        except httpx2.TransportError as error:
            _log.info("gateway.owner_unreachable", reason=type(error).__name__)
            is_sent = not isinstance(error, (httpx2.ConnectError, httpx2.ConnectTimeout))
            if is_sent and _parse_message(body).get("method") == "tools/call":
                raise InternalError(_CALL_LOST) from error
            return False
        try:
            headers = [(name.lower(), value) for name, value in response.headers.raw if name.lower() not in _CONNECTION_HEADERS]
            await send({"type": "http.response.start", "status": response.status_code, "headers": headers})
            is_between_events = True
            try:
                async for chunk in response.aiter_raw():
                    is_between_events = chunk.endswith((b"\n\n", b"\r\n\r\n"))
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})
            except httpx2.TransportError as error:
                _log.info("gateway.owner_lost", reason=type(error).__name__)
                is_stream = response.headers.get("content-type", "").startswith("text/event-stream")
                error_event = _build_lost_event(body) if is_stream and is_between_events else b""
                await send({"type": "http.response.body", "body": error_event, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            await response.aclose()
        return True

    def _get_client(self, number: int) -> httpx2.AsyncClient:
        client = self._clients.get(number)
        if client is None:
            transport = httpx2.AsyncHTTPTransport(
                uds=str(self._group.socket_path(number)),
                limits=httpx2.Limits(max_connections=None, max_keepalive_connections=16, keepalive_expiry=30.0),
            )
            client = self._clients[number] = httpx2.AsyncClient(
                transport=transport, timeout=httpx2.Timeout(None, connect=_CONNECT_TIMEOUT_S), trust_env=False
            )
        return client


def _build_error_response(error: RookeryError) -> Response:
    number = _INTERNAL_ERROR if error.status >= HTTPStatus.INTERNAL_SERVER_ERROR else _INVALID_REQUEST
    content = {"jsonrpc": "2.0", "id": None, "error": {"code": number, "message": error.message, "data": error.body()}}
    return Response(orjson.dumps(content), error.status, dict(error.headers), "application/json")


def _parse_message(body: bytes | None) -> Mapping[str, object]:
    """Return the JSON-RPC message of a request; empty if the request has none."""
    message = orjson.loads(body) if body else None
    return cast("Mapping[str, object]", message) if isinstance(message, dict) else {}


def _build_lost_event(body: bytes | None) -> bytes:
    """Return the event that answers the request in *body* after its process has ended; clients would wait for the answer otherwise."""
    request_id = _parse_message(body).get("id")
    if request_id is None:
        return b""
    error = {"code": _INTERNAL_ERROR, "message": _CALL_LOST}
    return b"event: message\r\ndata: " + orjson.dumps({"jsonrpc": "2.0", "id": request_id, "error": error}) + b"\r\n\r\n"


async def _wait_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _encode_origin(scope: Scope) -> bytes:
    state = scope["state"]
    caller, view = cast("Caller", state["caller"]), cast("GatewayView", state[VIEW_STATE_KEY])
    return orjson.dumps(
        {
            "key_id": caller.key_id,
            "address": caller.address,
            "request_id": caller.request_id,
            "server_id": view.server_id,
            "is_search": view.is_search,
        }
    )
