"""
Errors of `POST /mcp` before the MCP server processes a message: the body of D-10 inside a JSON-RPC error.

MCP clients parse the body of a rejected request only if it is JSON-RPC, and show its message.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import cast

from rookery.kernel.errors import RookeryError
from rookery.kernel.http.responses import ErrorFormat, RequestState

PARSE_ERROR, INVALID_REQUEST, INTERNAL_ERROR = -32700, -32600, -32603
"""Error codes of JSON-RPC 2.0, section 5.1. SDKs use -32000 for a closed connection and -32001 for a time-out."""

_MESSAGE_ID_KEY = "json_rpc_id"
_FIRST_SERVER_ERROR = 500


def store_message_id(state: MutableMapping[str, object], message: object) -> None:
    """Store the id of *message* in the request's state, for use in error responses."""
    request_id = cast("Mapping[str, object]", message).get("id") if isinstance(message, dict) else None
    if isinstance(request_id, (str, int)) and not isinstance(request_id, bool):
        state[_MESSAGE_ID_KEY] = request_id


def _get_error_number(error: RookeryError) -> int:
    if error.code == "invalid_json":
        return PARSE_ERROR
    return INTERNAL_ERROR if error.status >= _FIRST_SERVER_ERROR else INVALID_REQUEST


def _build_body(error: RookeryError, state: RequestState) -> Mapping[str, object]:
    return {
        "jsonrpc": "2.0",
        "id": state.get(_MESSAGE_ID_KEY),
        "error": {"code": _get_error_number(error), "message": error.message, "data": error.body()},
    }


JSON_RPC_ERRORS = ErrorFormat(
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
