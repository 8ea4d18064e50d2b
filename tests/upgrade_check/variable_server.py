"""A tool server over pipes that returns the secret of its environment. Only the standard library."""

from __future__ import annotations

import json
import os
import sys
from typing import cast


def main() -> None:
    """Answer the requests of the handshake era until the input ends."""
    for line in sys.stdin:
        message = cast("dict[str, object]", json.loads(line))
        params = cast("dict[str, object]", message.get("params") or {})
        results: dict[str, object] = {
            "initialize": {
                "protocolVersion": params.get("protocolVersion"),
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "variable", "version": "1"},
            },
            "tools/list": {"tools": [{"name": "secret", "description": "Return the variable.", "inputSchema": {"type": "object"}}]},
            "tools/call": {"content": [{"type": "text", "text": os.environ.get("SECRET", "")}]},
            "ping": {},
        }
        if "id" in message:
            method = str(message.get("method"))
            outcome = {"result": results[method]} if method in results else {"error": {"code": -32601, "message": "unknown method"}}
            print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **outcome}), flush=True)


if __name__ == "__main__":
    main()
