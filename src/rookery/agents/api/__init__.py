"""The operations of agent work: the HTTP API, under /api/agent and under /v1, and the tools of the MCP server `agents`."""

from __future__ import annotations

from collections.abc import Sequence

from rookery.kernel.http import Operation


def require_if_match(operations: Sequence[Operation]) -> list[Operation]:
    """
    Return *operations* after the check that each route that writes supports If-Match.

    Raises:
        ValueError: A route that writes does not document If-Match.
    """
    for operation in operations:
        if operation.method not in {"", "GET"} and "If-Match" not in operation.all_request_headers:
            msg = f"{operation.method} {operation.path} writes, so it must support If-Match: its handler takes `expected`"
            raise ValueError(msg)
    return list(operations)
