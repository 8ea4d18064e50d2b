"""
The errors of `POST /mcp` before the protocol's own server sees a message: D-10's body inside a JSON-RPC error.

MCP clients read the body of a refused request only if it is JSON-RPC, and show the sentence in it.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import cast

from rookery.kernel.errors import RookeryError
from rookery.kernel.http.responses import ErrorFormat, RequestState

PARSE_ERROR, INVALID_REQUEST, INTERNAL_ERROR = -32700, -32600, -32603
"""JSON-RPC 2.0, section 5.1. The numbers -32000 and -32001 mean a closed connection and a time-out to the SDKs."""

_MESSAGE_ID_KEY = "json_rpc_id"
_FIRST_SERVER_ERROR = 500


def store_message_id(state: MutableMapping[str, object], message: object) -> None:
    """Store the id of *message* in the request's state, so that an error answers it."""
    found = cast("Mapping[str, object]", message).get("id") if isinstance(message, dict) else None
    if isinstance(found, (str, int)) and not isinstance(found, bool):
        state[_MESSAGE_ID_KEY] = found


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
        "description": "An error as MCP clients read it (JSON-RPC 2.0, section 5.1). The body of any other route is its `data`.",
        "required": ["jsonrpc", "id", "error"],
        "properties": {
            "jsonrpc": {"type": "string", "enum": ["2.0"]},
            "id": {
                "description": "The id of the refused message; null if the request was refused before its body was read.",
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
