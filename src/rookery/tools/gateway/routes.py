"""The addresses of the gateway: what is checked before the protocol's own server sees a request (D-36)."""

from __future__ import annotations

from collections.abc import Collection, MutableMapping
from dataclasses import dataclass
from typing import Annotated, Literal, cast
from urllib.parse import urlsplit

import structlog
from fastapi import Query as FromQuery
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from rookery.access.guard import caller_of
from rookery.kernel.errors import PermissionDenied, RookeryError
from rookery.kernel.http import Described, Route, allowed_on_full_disk, describe
from rookery.kernel.http.bodies import read_body, read_json
from rookery.kernel.http.replies import BadRequest, CrossSite, error_reply
from rookery.kernel.http.routes import Handler, InternalError
from rookery.kernel.wire import Query
from rookery.tools.errors import Disabled, ServerNotFound, TooManySessions
from rookery.tools.gateway.door import Gateway
from rookery.tools.gateway.json_rpc import JSON_RPC_ERRORS, keep_message_id
from rookery.tools.gateway.views import VIEW, View

_log = structlog.stdlib.get_logger("rookery.tools")


MAX_BODY = 4 * 1024 * 1024
_READ = "mcp:read"
_TAGS = ("MCP",)
_ERRORS = (
    "The address with a slash at its end is the same. Every error before the protocol answers its HTTP status and headers with a JSON-RPC "
    "error as the body: `error.message` is the sentence, `error.data` is the error body of the other routes (`error`, `message`, …)."
)

_PROTOCOLS_OWN = Described(says="The protocol's own refusal, in JSON-RPC's words.", media=("application/json",))
_REFUSALS: dict[int, Described] = dict.fromkeys((400, 404, 406), _PROTOCOLS_OWN)
_TAKEN = Described(says="Taken: a notification or an answer of the client's, to which nothing is said.")
_posts = describe(
    media=("application/json", "text/event-stream"),
    answers={**_REFUSALS, 202: _TAKEN},
    takes=("application/json",),
    sends=("Mcp-Session-Id",),
    errors=(TooManySessions,),
)
_opens = describe(answers=_REFUSALS, media=("text/event-stream",), sends=("Mcp-Session-Id",), errors=(TooManySessions,))
_of_server = describe(errors=(PermissionDenied, Disabled, ServerNotFound))


class Mode(Query):
    """How the tools are served."""

    mode: Literal["search"] | None = None
    """`search`: find_tool and call_tool in the place of all tools."""


@dataclass(frozen=True, slots=True)
class GatewayRoutes:
    """Hands requests on to the protocol's server."""

    gateway: Gateway
    origins: Collection[str]

    def routes(self) -> list[Route]:
        """Return the table: a message, the standing stream of a session, and its end, for all servers and for one."""
        return [
            Route(
                method="POST",
                path="/mcp",
                handler=self.post_all,
                needs=_READ,
                operation_id="send_mcp_message",
                summary="Send an MCP message",
                description=_ERRORS,
                tags=_TAGS,
                max_body=MAX_BODY,
                error_format=JSON_RPC_ERRORS,
                allows_slash=True,
            ),
            self._without_body("GET", "/mcp", self.open_all, "open_mcp_stream", summary="Open the event stream of an MCP session"),
            self._without_body("DELETE", "/mcp", self.open_all, "end_mcp_session", summary="End an MCP session"),
            Route(
                method="POST",
                path="/mcp/{server_id}",
                handler=self.post_one,
                needs=_READ,
                operation_id="send_server_mcp_message",
                summary="Send an MCP message to one server",
                description=_ERRORS,
                tags=_TAGS,
                max_body=MAX_BODY,
                error_format=JSON_RPC_ERRORS,
                allows_slash=True,
            ),
            self._without_body(
                "GET",
                "/mcp/{server_id}",
                self.open_one,
                "open_server_mcp_stream",
                summary="Open the event stream of an MCP session with one server",
            ),
            self._without_body(
                "DELETE", "/mcp/{server_id}", self.open_one, "end_server_mcp_session", summary="End an MCP session with one server"
            ),
        ]

    @staticmethod
    def _without_body(method: str, path: str, handler: Handler, operation_id: str, *, summary: str) -> Route:
        return Route(
            method=method,
            path=path,
            handler=handler,
            needs=_READ,
            operation_id=operation_id,
            summary=summary,
            tags=_TAGS,
            allows_slash=True,
        )

    @allowed_on_full_disk
    @_posts
    async def post_all(self, request: Request, query: Annotated[Mode, FromQuery()]) -> Response:
        """
        Process one JSON-RPC message of the Model Context Protocol.

        Tools, resources and prompts of all servers are served under gateway names.
        """
        return await self._posted(request, View(is_search=query.mode is not None))

    @allowed_on_full_disk
    @_posts
    @_of_server
    async def post_one(self, request: Request, server_id: str, query: Annotated[Mode, FromQuery()]) -> Response:
        """Process one JSON-RPC message of the Model Context Protocol for one tool server, with its own names and URIs."""
        return await self._posted(request, View(server_id=server_id, is_search=query.mode is not None))

    @_opens
    async def open_all(self, request: Request, query: Annotated[Mode, FromQuery()]) -> Response:
        """Open the event stream of an MCP session (GET), or end the session (DELETE)."""
        return self._passed(request, View(is_search=query.mode is not None), None)

    @_opens
    @_of_server
    async def open_one(self, request: Request, server_id: str, query: Annotated[Mode, FromQuery()]) -> Response:
        """Open the event stream of an MCP session with one server (GET), or end the session (DELETE)."""
        return self._passed(request, View(server_id=server_id, is_search=query.mode is not None), None)

    async def _posted(self, request: Request, view: View) -> Response:
        """
        Read the message as strictly as any body, and pass it on.

        Raises:
            RookeryError: It is no message of JSON-RPC; `_passed`'s.
        """
        raw = await read_body(request.receive, limit=MAX_BODY)
        message = read_json(raw)
        keep_message_id(cast("MutableMapping[str, object]", request.scope["state"]), message)
        if not isinstance(message, dict) or cast("dict[str, object]", message).get("jsonrpc") != "2.0":
            raise BadRequest('The body is not one message of JSON-RPC: an object with "jsonrpc": "2.0". Batches are not taken.')
        return self._passed(request, view, raw)

    def _passed(self, request: Request, view: View, body: bytes | None) -> Response:
        """
        Return what lets the protocol's server answer.

        Raises:
            CrossSite: A page of another site asks (the protocol wants it so, against DNS rebinding).
            RookeryError: There is no such server, or not for this key.
        """
        origin = request.headers.get("origin")
        if origin is not None and origin.lower() not in self.origins and not _is_local(origin):
            raise CrossSite(f"The origin {origin[:100]!r} is not this server's; see ROOKERY_CORS_ORIGINS.")
        if view.server_id is not None:
            self.gateway.catalogue.server(caller_of(request), view.server_id)
        cast("MutableMapping[str, object]", request.scope["state"])[VIEW] = view
        return _Passed(self.gateway, body)


def _is_local(origin: str) -> bool:
    """Tell whether a page comes from this machine by its own name, at whatever port: no rebound name does."""
    try:
        return urlsplit(origin).hostname in {"localhost", "127.0.0.1", "::1"}
    except ValueError:
        return False


class _Passed(Response):
    """An answer that the protocol's server sends itself; the status is known once it did."""

    def __init__(self, gateway: Gateway, body: bytes | None) -> None:
        super().__init__()
        self._gateway = gateway
        self._body = body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body, has_begun, has_ended = self._body, False, False

        async def once_more() -> Message:
            nonlocal body
            if body is None:
                return await receive()
            message: Message = {"type": "http.request", "body": body, "more_body": False}
            body = None
            return message

        async def noting(message: Message) -> None:
            nonlocal has_begun, has_ended
            if message["type"] == "http.response.start":
                has_begun, self.status_code = True, cast("int", message["status"])
            else:
                has_ended = not message.get("more_body", False)
            await send(message)

        try:
            await self._gateway.serve(scope, once_more, noting)
            if has_begun and not has_ended:  # the SDK leaves streams that it breaks off without their end
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        except Exception as error:
            if has_begun:
                raise
            if not isinstance(error, RookeryError):
                _log.exception("gateway.failed")
                error = InternalError("Something went wrong on our side; the log has more under this request id.")
            self.status_code = error.status
            await error_reply(error)(scope, receive, send)
