"""The state of tool servers as commands see it, without starting them: whether they can start, and their health in a running Rookery."""

from __future__ import annotations

import os
import shutil
import urllib.request
from collections.abc import Mapping
from dataclasses import replace
from http.client import HTTPException
from pathlib import Path
from typing import cast

import orjson

from rookery.kernel.running_server import find_server
from rookery.tools.models import CommandTarget, Server
from rookery.tools.servers.health_file import ReportedHealth, read_health_file

_HEALTH_TIMEOUT_S = 3.0
_MAX_HEALTH_BYTES = 4 * 1024 * 1024


def find_start_fault(server: Server, environment: Mapping[str, str]) -> str | None:
    """Return why *server* cannot start: a fault of its entry, or a missing program or folder. None: no problem was found."""
    if server.fault is not None:
        return server.fault
    target = server.target
    if not isinstance(target, CommandTarget):
        return None
    if target.cwd is not None and not Path(target.cwd).is_dir():
        return f"The folder {target.cwd!r} does not exist."
    path = target.env.get("PATH") or environment.get("PATH") or os.defpath
    program = str(Path(target.cwd or ".", target.command)) if os.sep in target.command else target.command
    if shutil.which(program, path=path) is None:
        return f"The program {target.command!r} was not found. Install it on Rookery's host, or use its absolute path."
    return None


def fetch_health(folder: Path) -> dict[str, ReportedHealth]:
    """
    Return the health of each tool server, by id, in the Rookery that runs on a data folder; empty if none runs.

    It is the health that Rookery publishes without a key, with the reason from the file in the folder. In production, where it
    requires a key, it is the health of the file. No key is sent, because the address comes from a file in the folder and another
    program may listen there now. Over HTTPS the certificate must be valid for that address.
    """
    running = find_server(folder)
    if running is None:
        return {}
    file_reports = read_health_file(folder)
    published = _fetch_published_health(running.url)
    return file_reports | {server_id: _with_details(report, file_reports.get(server_id)) for server_id, report in published.items()}


def _with_details(published: ReportedHealth, in_file: ReportedHealth | None) -> ReportedHealth:
    """Return the published health with what only the file has, if both are of the same state. The file follows within a second."""
    if in_file is None or in_file.health != published.health:
        return published
    return replace(published, reason=in_file.reason, feature_count=in_file.feature_count)


def _fetch_published_health(url: str) -> dict[str, ReportedHealth]:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    request = urllib.request.Request(f"{url}/servers", headers={"Accept": "application/json"})  # noqa: S310 - it spoke HTTP to find_server
    try:
        with opener.open(request, timeout=_HEALTH_TIMEOUT_S) as response:
            document = cast("object", orjson.loads(response.read(_MAX_HEALTH_BYTES)))
    except (OSError, ValueError, HTTPException):
        return {}
    servers_value = cast("dict[str, object]", document).get("servers") if isinstance(document, dict) else None
    servers = cast("list[object]", servers_value) if isinstance(servers_value, list) else []
    health: dict[str, ReportedHealth] = {}
    for server in servers:
        fields = cast("dict[str, object]", server) if isinstance(server, dict) else {}
        name, state, tool_count = fields.get("id"), fields.get("health"), fields.get("tool_count")
        if isinstance(name, str) and isinstance(state, str):
            health[name] = ReportedHealth(health=state, tool_count=tool_count if isinstance(tool_count, int) else None)
    return health
