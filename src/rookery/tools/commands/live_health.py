"""The health of tool servers as the running Rookery shows it to everybody (D-33, D-35)."""

from __future__ import annotations

import urllib.request
from http.client import HTTPException
from pathlib import Path
from typing import cast

import orjson

from rookery.kernel.running_server import find_server

_TIMEOUT_S = 3.0
_MAX_RESPONSE_BYTES = 4 * 1024 * 1024


def fetch_health(folder: Path) -> dict[str, str]:
    """
    Return the health of each tool server, by id, that the Rookery on a data folder shows without a key.

    Empty if none runs, or if it asks for a key, as production does. No key is sent: the address comes from a note in the folder,
    and another program may listen there by now. Over HTTPS the certificate must be valid for that address.
    """
    running = find_server(folder)
    if running is None:
        return {}
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    request = urllib.request.Request(f"{running.url}/servers", headers={"Accept": "application/json"})  # noqa: S310 - it spoke HTTP to find_server
    try:
        with opener.open(request, timeout=_TIMEOUT_S) as answer:
            document = cast("object", orjson.loads(answer.read(_MAX_RESPONSE_BYTES)))
    except (OSError, ValueError, HTTPException):
        return {}
    listed = cast("dict[str, object]", document).get("servers") if isinstance(document, dict) else None
    servers = cast("list[object]", listed) if isinstance(listed, list) else []
    health: dict[str, str] = {}
    for each in servers:
        fields = cast("dict[str, object]", each) if isinstance(each, dict) else {}
        name, shown = fields.get("id"), fields.get("health")
        if isinstance(name, str) and isinstance(shown, str):
            health[name] = shown
    return health
