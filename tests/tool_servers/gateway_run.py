"""Runs a tool server behind a `rookery serve` process, and compares what arrives with what the server itself lists."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, cast

import httpx2

from tests.processes import Server, get_environment, is_running, run_server
from tests.tool_servers.comparison import compare_items, compare_results
from tests.tool_servers.installation import build_command
from tests.tool_servers.raw_run import LISTS, RawRun, fill_arguments
from tests.tool_servers.server_record import GatewayFacts
from tests.tool_servers.servers import ToolServer

Json = dict[str, object]

_LISTED_LIMIT_S = 90.0
_CHECK_LIMIT_S = 150.0
_LEFTOVER_LIMIT_S = 5.0
_VERSION = "2025-11-25"
_ROUTES = {"tools": "tools", "resources": "resources", "resources/templates": "resource-templates", "prompts": "prompts"}
_FIELDS = {"resource-templates": "resource_templates"}
_ADDRESSED = ("uri", "uriTemplate")
"""Fields whose values /mcp and the HTTP API translate, so that they name the server."""


class CheckReport(NamedTuple):
    """The result of `rookery servers check` for a server."""

    text: str
    era: str | None = None
    warnings: Sequence[str] = ()


def check_server(server: ToolServer, folder: Path, data: Path, *, has_credential: bool) -> CheckReport:
    """Run `rookery servers check` on a server, with its credential or without."""
    write_entries(data, {server.id: build_command(server, folder, has_credential=has_credential)}, folder)
    command = [sys.executable, "-m", "rookery", "--data-dir", str(data), "servers", "check", "--json"]
    result = subprocess.run(command, env=get_environment(), capture_output=True, text=True, timeout=_CHECK_LIMIT_S, check=False)
    lines = [line for line in result.stdout.splitlines() if line.startswith("[")]
    if not lines:
        return CheckReport((result.stderr.strip().splitlines() or ["no output"])[-1])
    report = cast("Json", json.loads(lines[0])[0])
    warnings = cast("list[str]", report["warnings"])
    if not report["ok"]:
        return CheckReport(str(report["error"]), warnings=warnings)
    text = "; ".join([f"yes, {len(cast('list[str]', report['tools']))} tools", *warnings])
    return CheckReport(text, cast("str | None", report["era"]), warnings)


def write_entries(data: Path, commands: Mapping[str, tuple[list[str], dict[str, str]]], folder: Path) -> None:
    """Write servers.json."""
    data.mkdir(exist_ok=True)
    entries = {
        id: {"command": command[0], "args": command[1:], "env": variables, "cwd": str(folder), "start_timeout_s": 60}
        for id, (command, variables) in commands.items()
    }
    (data / "servers.json").write_text(json.dumps({"mcpServers": entries}), encoding="utf-8")


def run_behind_rookery(server: ToolServer, folder: Path, data: Path, raw: RawRun) -> GatewayFacts:
    """Start Rookery with the server alone, read all lists over HTTP, `/mcp` and `/mcp/{id}`, and make the declared call over each."""
    report = check_server(server, folder, data, has_credential=True)
    with run_server(data, is_new_interpreter=True) as rookery:
        detail = _wait_listed(rookery, server)
        facts = GatewayFacts(era=report.era, health=str(detail["health"]), last_error=cast("str | None", detail.get("last_error")))
        facts.warnings = list(report.warnings)
        facts.hidden = {one["name"]: one["reason"] for one in cast("list[dict[str, str]]", detail.get("hidden_tools") or [])}
        sessions = {"/mcp": _Session(rookery, "/mcp"), "/mcp/{id}": _Session(rookery, f"/mcp/{server.id}")}
        _compare_lists(rookery, sessions, server, raw, facts)
        if raw.result is not None:
            facts.call = _compare_calls(rookery, sessions, server, fill_arguments(server.arguments, folder), raw.result)
        children = rookery.children()
    facts.leftover = _count_leftover(children)
    return facts


def _count_leftover(children: Sequence[int]) -> int:
    """Return how many of these processes run after some seconds."""
    deadline = time.monotonic() + _LEFTOVER_LIMIT_S
    while time.monotonic() < deadline and any(map(is_running, children)):
        time.sleep(0.05)
    return sum(map(is_running, children))


def _wait_listed(rookery: Server, server: ToolServer) -> Json:
    """Return the details of the server after it was listed, or after its start has failed."""
    deadline = time.monotonic() + _LISTED_LIMIT_S
    while True:
        detail = cast("Json", rookery.client.get(f"/api/v1/mcp/servers/{server.id}").json())
        is_decided = detail["health"] != "unknown" and (detail.get("seen_at") is not None or detail.get("last_error"))
        if is_decided or time.monotonic() > deadline:
            return detail
        time.sleep(0.1)


def _compare_lists(rookery: Server, sessions: Mapping[str, _Session], server: ToolServer, raw: RawRun, facts: GatewayFacts) -> None:
    for name, result_field in LISTS.items():
        original = [one for one in raw.lists[name] if name != "tools" or one["name"] not in facts.hidden]
        arrivals = {
            "http": _get_list(rookery, server, name),
            "/mcp": _post_list(sessions["/mcp"], name, result_field, f"{server.id}__", server.id),
            "/mcp/{id}": _post_list(sessions["/mcp/{id}"], name, result_field, "", ""),
        }
        for interface, items in arrivals.items():
            if name == "tools":
                facts.tools[interface] = len(items)
            elif interface == "http":
                facts.features.append(len(items))
            ignored = () if interface == "/mcp/{id}" else _ADDRESSED
            renamed = ("name",) if interface == "/mcp" and name in {"tools", "prompts"} else ()
            differences = _without_unstable(
                compare_items(original, items, ignored=(*ignored, *renamed)), raw.facts.unstable if name == "tools" else ()
            )
            if differences:
                facts.differences.setdefault(interface, []).extend(f"{result_field}: {one}" for one in differences)


def _without_unstable(differences: Sequence[str], unstable: Sequence[str]) -> list[str]:
    """Return the differences without those that two starts of the server itself have too."""
    own = {text.rpartition(" (")[0] for text in unstable}
    return [text for text in differences if text.rpartition(" (")[0] not in own]


def _get_list(rookery: Server, server: ToolServer, name: str) -> list[Json]:
    route = _ROUTES[name]
    response = rookery.client.get(f"/api/v1/mcp/servers/{server.id}/{route}")
    return cast("list[Json]", response.json().get(_FIELDS.get(route, route), []))


def _post_list(session: _Session, name: str, result_field: str, prefix: str, scheme: str) -> list[Json]:
    """Return a list over MCP; at `/mcp` only the items of the server, without those of the built-in ones."""
    answer = session.post(f"{name}/list", {})
    items = cast("list[Json]", cast("Json", answer.get("result") or {}).get(result_field, []))
    if name in {"tools", "prompts"}:
        return [item for item in items if str(item["name"]).startswith(prefix)]
    addresses = [(item, str(item.get("uri", item.get("uriTemplate")))) for item in items]
    return [item for item, address in addresses if not scheme or address.startswith((f"{scheme}:", f"ui://{scheme}/"))]


def _compare_calls(
    rookery: Server, sessions: Mapping[str, _Session], server: ToolServer, arguments: Json, original: Json
) -> dict[str, str]:
    """Make the declared call over each interface; return how its result compares with the original."""
    http = rookery.client.post(f"/api/v1/mcp/servers/{server.id}/tools/{server.call}", json=arguments).json()
    outcomes = {"http": compare_results(original, http["result"]) if http.get("result") else str(http.get("error", http))}
    for interface, session in sessions.items():
        name = _find_name(session, server, server.call) if interface == "/mcp" else server.call
        answer = session.post("tools/call", {"name": name, "arguments": arguments})
        result = cast("Json | None", answer.get("result"))
        outcomes[interface] = str(cast("Json", answer["error"]).get("message")) if result is None else compare_results(original, result)
    return outcomes


def _find_name(session: _Session, server: ToolServer, tool: str) -> str:
    """Return the name of a tool at `/mcp`."""
    listed = _post_list(session, "tools", "tools", f"{server.id}__", "")
    return next((str(one["name"]) for one in listed if str(one["name"]).endswith(f"__{tool}")), f"{server.id}__{tool}")


class _Session:
    """A session of an MCP client with Rookery, whose messages are sent by hand."""

    def __init__(self, rookery: Server, path: str) -> None:
        self._client, self._path = rookery.client, path
        self._headers = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": _VERSION}
        client: Json = {"protocolVersion": _VERSION, "capabilities": {}, "clientInfo": {"name": "tool-servers", "version": "1"}}
        response = self._send({"id": 1, "method": "initialize", "params": client})
        self._headers["Mcp-Session-Id"] = response.headers["mcp-session-id"]
        self._send({"method": "notifications/initialized"})

    def post(self, method: str, params: Mapping[str, object]) -> Json:
        """Send a request; return the response, also if it arrives as an event."""
        response = self._send({"id": 2, "method": method, "params": params})
        text = response.text
        if response.headers.get("content-type", "").startswith("text/event-stream"):
            text = next(line.removeprefix("data:") for line in reversed(text.splitlines()) if line.startswith("data:"))
        return cast("Json", json.loads(text))

    def _send(self, message: Mapping[str, object]) -> httpx2.Response:
        return self._client.post(self._path, json={"jsonrpc": "2.0", **message}, headers=self._headers)
