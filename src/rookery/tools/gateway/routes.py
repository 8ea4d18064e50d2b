"""The gateway's operations: the checks before the MCP server receives a request."""

from __future__ import annotations

from collections.abc import Collection, Mapping, MutableMapping
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import Annotated, Literal, cast
from urllib.parse import urlsplit

import structlog
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from rookery.access.guard import count_request
from rookery.access.models import Caller
from rookery.kernel.errors import PermissionDenied, RookeryError
from rookery.kernel.http import DocumentedResponse, Operation
from rookery.kernel.http.compression import compress_json
from rookery.kernel.http.request_body import parse_json, read_body, replay_body
from rookery.kernel.http.responses import BadRequest, CrossSiteCredentials, ErrorFormat, MethodNotAllowed, RequestState, error_response
from rookery.kernel.http.routes import InternalError
from rookery.kernel.schema import QueryModel
from rookery.tools.errors import ServerNotFound, ToolDisabled, TooManySessions
from rookery.tools.gateway.catalogue_views import VIEW_STATE_KEY, GatewayView
from rookery.tools.gateway.lazy_app import Gateway
from rookery.tools.gateway.limits import count_message

_log = structlog.stdlib.get_logger("rookery.tools")


MAX_BODY_BYTES = 4 * 1024 * 1024
_PARSE_ERROR, _INVALID_REQUEST, _INTERNAL_ERROR = -32700, -32600, -32603
"""Error codes of JSON-RPC 2.0, section 5.1. SDKs use -32000 for a closed connection and -32001 for a time-out."""

_MESSAGE_ID_KEY = "json_rpc_id"


def _store_message_id(state: MutableMapping[str, object], message: object) -> None:
    """Store the id of *message* in the request's state, for use in error responses."""
    request_id = cast("Mapping[str, object]", message).get("id") if isinstance(message, dict) else None
    if isinstance(request_id, (str, int)) and not isinstance(request_id, bool):
        state[_MESSAGE_ID_KEY] = request_id


def _parse_message(request: Request, raw: bytes) -> Mapping[str, object]:
    """
    Return the message of *request*, and store its id for error responses.

    Raises:
        InvalidJson, ValidationFailed, BadRequest: *raw* is not a JSON-RPC message.
    """
    message = parse_json(raw)
    _store_message_id(cast("MutableMapping[str, object]", request.scope["state"]), message)
    if not isinstance(message, dict) or cast("dict[str, object]", message).get("jsonrpc") != "2.0":
        raise BadRequest('The body must be one JSON-RPC message, an object with "jsonrpc": "2.0". Batches are not supported.')
    return cast("Mapping[str, object]", message)


def _require_session(request: Request) -> None:
    """
    Check that a GET or DELETE names its session.

    Raises:
        MethodNotAllowed: A GET without a session. Clients try it before they open one, and take a 405 to mean that there is no stream.
        BadRequest: A DELETE without a session.
    """
    if "mcp-session-id" in request.headers:
        return
    hint = "Open a session with `initialize`, and send its id in Mcp-Session-Id."
    if request.method == "GET":
        raise MethodNotAllowed(f"There is no event stream without a session. {hint}", headers={"Allow": "POST"})
    raise BadRequest(f"The request names no session to end. {hint}")


def _to_error_number(error: RookeryError) -> int:
    if error.code == "invalid_json":
        return _PARSE_ERROR
    return _INTERNAL_ERROR if error.status >= HTTPStatus.INTERNAL_SERVER_ERROR else _INVALID_REQUEST


def _build_body(error: RookeryError, state: RequestState) -> Mapping[str, object]:
    return {
        "jsonrpc": "2.0",
        "id": state.get(_MESSAGE_ID_KEY),
        "error": {"code": _to_error_number(error), "message": error.message, "data": error.body()},
    }


_JSON_RPC_ERRORS = ErrorFormat(
    body=_build_body,
    name="JsonRpcError",
    schema={
        "title": "JsonRpcError",
        "type": "object",
        "description": "A JSON-RPC error (JSON-RPC 2.0, section 5.1). Its `data` is the error body of the other routes.",
        "required": ["jsonrpc", "id", "error"],
        "properties": {
            "jsonrpc": {"type": "string", "enum": ["2.0"]},
            "id": {
                "description": "The id of the rejected message; null if the request was rejected before its body was read.",
                "anyOf": [{"type": "string", "nullable": True}, {"type": "integer"}],
            },
            "error": {
                "type": "object",
                "required": ["code", "message"],
                "properties": {
                    "code": {"type": "integer", "description": "-32700: not JSON; -32600: any other 4xx; -32603: any 5xx."},
                    "message": {"type": "string", "description": "The same sentence as `data.message`."},
                    "data": {"$ref": "#/components/schemas/Error"},
                },
            },
        },
    },
)
"""
The error format of requests that are rejected before the MCP server processes them.

MCP clients parse the body of a rejected request only if it is JSON-RPC, and show its message.
"""

_READ_SCOPE = "mcp:read"
_ERRORS_DESCRIPTION = (
    "A trailing slash in the path is accepted. Errors before the protocol layer keep their HTTP status and headers, with a JSON-RPC "
    "error as the body: `error.message` is the sentence, `error.data` is the error body of the other routes (`error`, `message`, …)."
)

_PROTOCOL_ERROR = DocumentedResponse(description="A protocol error, as a JSON-RPC error object.", error_format=_JSON_RPC_ERRORS)
_PROTOCOL_ERRORS: dict[int, DocumentedResponse] = dict.fromkeys((400, 404, 406), _PROTOCOL_ERROR)
_ANSWER_TYPES = ("application/json", "text/event-stream")
_ANSWER = DocumentedResponse(
    description="The answer to the message. Over the rate limit of the key, it is a result with `isError` or an error, with `rate_limited` "
    "and the header Retry-After: many clients end their session after a 429.",
    media_types=_ANSWER_TYPES,
)
_ACCEPTED = DocumentedResponse(description="Accepted: a notification or a response of the client. The response has no body.")
_SESSION = ("Mcp-Session-Id",)
"""The request headers of the stream and of the end of a session."""

_operation = partial(Operation, required_scope=_READ_SCOPE, tags=("MCP",), allows_slash=True, response_headers=("Mcp-Session-Id",))
_post = partial(_operation, method="POST", description=_ERRORS_DESCRIPTION, max_body_bytes=MAX_BODY_BYTES, error_format=_JSON_RPC_ERRORS,
                counted_by_handler=True, media_types=_ANSWER_TYPES, request_media_types=("application/json",),
                response_headers=("Mcp-Session-Id", "Retry-After"),
                responses={**_PROTOCOL_ERRORS, 200: _ANSWER, 202: _ACCEPTED})  # fmt: skip
_stream = partial(_operation, request_headers=_SESSION, media_types=("text/event-stream",), responses=_PROTOCOL_ERRORS, rate_limited=False)
_end = partial(_operation, method="DELETE", request_headers=_SESSION, responses=_PROTOCOL_ERRORS, rate_limited=False)


class GatewayModeQuery(QueryModel):
    """The mode in which tools are served."""

    mode: Annotated[
        Literal["search"] | None, Field(description="`search`: serve find_tool, call_tool and call_read_only_tool in place of all tools.")
    ] = None


@dataclass(frozen=True, slots=True)
class GatewayApi:
    """The operations that forward requests to the MCP server."""

    gateway: Gateway
    origins: Collection[str]

    def operations(self) -> list[Operation]:
        """Return the operations for messages, the session's event stream and its end, for all servers and for one."""
        every, one = "/mcp", "/mcp/{server_id}"
        errors = (TooManySessions, PermissionDenied, ToolDisabled, ServerNotFound)
        return [
            _post(path=every, handler=self.post_all, operation_id="send_mcp_message", summary="Send an MCP message",
                  errors=(TooManySessions,), allowed_on_full_disk=True),
            _stream(method="GET", path=every, handler=self.open_all, operation_id="open_mcp_stream",
                    summary="Open the event stream of an MCP session", errors=(TooManySessions, MethodNotAllowed)),
            _end(path=every, handler=self.open_all, operation_id="end_mcp_session", summary="End an MCP session",
                 errors=(TooManySessions,)),
            _post(path=one, handler=self.post_one, operation_id="send_server_mcp_message", summary="Send an MCP message to one server",
                  errors=errors, allowed_on_full_disk=True),
            _stream(method="GET", path=one, handler=self.open_one, operation_id="open_server_mcp_stream",
                    summary="Open the event stream of an MCP session with one server", errors=(*errors, MethodNotAllowed)),
            _end(path=one, handler=self.open_one, operation_id="end_server_mcp_session",
                 summary="End an MCP session with one server", errors=errors),
        ]  # fmt: skip

    async def post_all(self, caller: Caller, request: Request, query: GatewayModeQuery) -> Response:
        """
        Process one JSON-RPC message of the Model Context Protocol.

        Tools, resources and prompts of all servers are served under gateway names.
        """
        return await self._handle_post(caller, request, GatewayView(is_search=query.mode is not None))

    async def post_one(self, caller: Caller, request: Request, server_id: str, query: GatewayModeQuery) -> Response:
        """Process one JSON-RPC message of the Model Context Protocol for one tool server, with its own names and URIs."""
        return await self._handle_post(caller, request, GatewayView(server_id=server_id, is_search=query.mode is not None))

    async def open_all(self, caller: Caller, request: Request, query: GatewayModeQuery) -> Response:
        """Open the event stream of an MCP session (GET), or end the session (DELETE)."""
        _require_session(request)
        return self._forward(caller, request, GatewayView(is_search=query.mode is not None), None)

    async def open_one(self, caller: Caller, request: Request, server_id: str, query: GatewayModeQuery) -> Response:
        """Open the event stream of an MCP session with one server (GET), or end the session (DELETE)."""
        _require_session(request)
        return self._forward(caller, request, GatewayView(server_id=server_id, is_search=query.mode is not None), None)

    async def _handle_post(self, caller: Caller, request: Request, view: GatewayView) -> Response:
        """
        Validate the message as strictly as any request body, count it, and forward it.

        Raises:
            RookeryError: The body is not a JSON-RPC message; see also `_forward`.
        """
        try:
            raw = await read_body(request.receive, limit=MAX_BODY_BYTES, scope=request.scope)
            message = _parse_message(request, raw)
        except RookeryError:
            await count_request(request)
            raise
        answer = await count_message(request, message)
        if answer is not None:
            return answer
        method = message.get("method")
        return self._forward(caller, request, view, raw, is_list=isinstance(method, str) and method.endswith("/list"))

    def _forward(self, caller: Caller, request: Request, view: GatewayView, body: bytes | None, *, is_list: bool = False) -> Response:
        """
        Return a response that the MCP server writes.

        Raises:
            CrossSiteCredentials: The request comes from a page of another site. The protocol requires this check against DNS rebinding.
            RookeryError: The server does not exist, is disabled, or is not allowed for this key.
        """
        origin = request.headers.get("origin")
        if origin is not None and origin.lower() not in self.origins and not _is_local(origin):
            raise CrossSiteCredentials(f"The origin {origin[:100]!r} is not allowed. Add it to ROOKERY_CORS_ORIGINS.")
        if view.server_id is not None:
            self.gateway.catalogue.get_server(caller, view.server_id)
        cast("MutableMapping[str, object]", request.scope["state"])[VIEW_STATE_KEY] = view
        return _ForwardedResponse(self.gateway, body, is_list=is_list)


def _is_local(origin: str) -> bool:
    """Return whether a page comes from this machine by a loopback name, on any port. A rebound DNS name never does."""
    try:
        return urlsplit(origin).hostname in {"localhost", "127.0.0.1", "::1"}
    except ValueError:
        return False


class _ForwardedResponse(Response):
    """
    A response that the MCP server sends itself. The status is known once it starts.

    Long JSON is compressed, and so are the streams of lists, which contain one long event.
    """

    def __init__(self, gateway: Gateway, body: bytes | None, *, is_list: bool) -> None:
        super().__init__()
        self._gateway = gateway
        self._body = body
        self._is_list = is_list

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        has_begun, has_ended = False, False
        send_compressed = compress_json(scope, send, streams=self._is_list)
        receive_buffered = receive if self._body is None else replay_body(self._body, receive)

        async def send_and_track(message: Message) -> None:
            nonlocal has_begun, has_ended
            if message["type"] == "http.response.start":
                has_begun, self.status_code = True, cast("int", message["status"])
            else:
                has_ended = not message.get("more_body", False)
            await send_compressed(message)

        try:
            await self._gateway.serve(scope, receive_buffered, send_and_track, body=self._body)
            if has_begun and not has_ended:  # the SDK does not complete the streams that it aborts
                await send_compressed({"type": "http.response.body", "body": b"", "more_body": False})
        except Exception as error:
            if has_begun:
                raise
            if not isinstance(error, RookeryError):
                _log.exception("gateway.failed")
                error = InternalError("Internal error. The server log has the details under this request id.")
            self.status_code = error.status
            await error_response(error)(scope, receive, send)
