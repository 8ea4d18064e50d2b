"""The parts of the story about tool servers: features, calls, and servers of a workspace."""

from __future__ import annotations

from typing import cast
from urllib.parse import parse_qsl, urlsplit

from tests.conftest import eventually
from tests.reference.recording.recorder import Json, Recorder, first_operation
from tests.tools.oauth_server import authorize, parse_hidden_fields

_BASE = "/api/v1/mcp"
_SERVERS = "/api/v1/servers"
_LOGIN = f"{_SERVERS}/{{serverId}}/login"


async def play(recorder: Recorder) -> None:
    """List features, call tools, read resources, fill in a prompt."""
    kim = recorder.instance.agent

    async def is_listed() -> bool:
        return (await kim.get(f"{_BASE}/servers/library/tools")).json().get("tools") not in (None, [])

    await eventually(is_listed)
    await recorder.send(kim, f"GET {_BASE}/servers")
    await recorder.send(kim, f"GET {_BASE}/servers/{{serverId}}", serverId="library")
    await recorder.send(kim, f"GET {_BASE}/servers/{{serverId}}/tools", serverId="library")
    await recorder.send(kim, f"GET {_BASE}/servers/{{serverId}}/resources", serverId="library")
    await recorder.send(kim, f"GET {_BASE}/servers/{{serverId}}/resource-templates", serverId="library")
    await recorder.send(kim, f"GET {_BASE}/servers/{{serverId}}/prompts", serverId="library")
    await recorder.send(kim, f"GET {_BASE}/servers/{{serverId}}/openapi.json", serverId="library", shorten_response=first_operation)
    await recorder.send(kim, f"GET {_BASE}/tools/search", query={"q": "which shelf is a book on", "limit": 3})
    call = {"server": "library", "tool": "find_book", "arguments": {"title": "Walden"}}
    await recorder.send(kim, f"POST {_BASE}/tools/call", call)
    await recorder.send(kim, "POST /mcp/tools/call", call)
    await recorder.send(kim, f"POST {_BASE}/servers/{{serverId}}/tools/{{tool}}", {"title": "Moby"}, serverId="library", tool="find_book")
    await recorder.send(kim, f"GET {_BASE}/resources/{{uri}}", uri="library://opening-hours")
    prompt = {"arguments": {"reader": "a sailor"}}
    await recorder.send(kim, f"POST {_BASE}/servers/{{serverId}}/prompts/{{name}}", prompt, serverId="library", name="recommend")
    meta: Json = {"io.modelcontextprotocol/protocolVersion": _ERA, "io.modelcontextprotocol/clientCapabilities": {}}
    listing = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": meta}}
    await recorder.send(kim, "POST /mcp", listing, headers=_MCP)
    await recorder.send(kim, "POST /mcp/{serverId}", listing, headers=_MCP, serverId="library")
    await _read_calls(recorder)


_ERA = "2026-07-28"
_MCP = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": _ERA, "Mcp-Method": "tools/list"}


async def _read_calls(recorder: Recorder) -> None:
    """Read the call records, which are written shortly after the calls."""
    kim, base = recorder.instance.admin, "/api/agent/tools"

    async def is_written() -> bool:
        return (await kim.get(f"{base}/calls?server=library")).json()["data"] != []

    await eventually(is_written)
    listed = await recorder.send(kim, f"GET {base}/calls", query={"server": "library", "success": "true", "per_page": 20})
    await recorder.send(kim, f"GET {base}/calls/{{id}}", id=cast("list[dict[str, object]]", listed["data"])[0]["id"])
    await recorder.send(kim, f"GET {base}/analytics", query={"server": "library"})
    await recorder.send(kim, f"GET {base}/analytics/{{serverId}}/{{tool}}", serverId="library", tool="find_book")


async def servers(recorder: Recorder) -> None:
    """Register a server, change it, log in, check it, and delete it."""
    admin = recorder.instance.admin
    entry = {
        "id": "weather",
        "url": recorder.upstream,
        "name": "Weather",
        "tagline": "Forecasts for three days.",
        "use_when": "Somebody asks what the weather will be.",
        "auth": "oauth",
        "timeout_s": 20,
    }
    await recorder.send(admin, f"POST {_SERVERS}", entry)
    await recorder.send(admin, f"GET {_SERVERS}", query={"per_page": 20})
    await recorder.send(admin, f"GET {_SERVERS}/{{id}}", id="weather")
    await recorder.send(admin, f"PATCH {_SERVERS}/{{id}}", {"tagline": "Forecasts for a week."}, id="weather")
    await recorder.send(admin, f"GET {_LOGIN}", serverId="weather")
    login = await recorder.send(admin, f"POST {_LOGIN}", serverId="weather")
    callback = urlsplit(authorize(cast("str", login["authorization_url"])))
    browser = recorder.instance.caller(None)
    query = dict(parse_qsl(callback.query))
    page = await browser.get(f"{callback.path}?{callback.query}")
    await recorder.send(browser, "GET /oauth/callback", query=query)
    await recorder.send(browser, "POST /oauth/callback", form=parse_hidden_fields(page.text))
    await recorder.send(admin, f"POST {_SERVERS}/{{id}}/check", id="weather")
    await recorder.send(admin, f"DELETE {_LOGIN}", serverId="weather")
    await recorder.send(admin, f"DELETE {_SERVERS}/{{id}}", id="weather")


async def discovery(recorder: Recorder) -> None:
    """Discover tool servers, as clients and registries do."""
    anonymous = recorder.instance.caller(None)
    await recorder.send(anonymous, "GET /.well-known/mcp-servers.json")
    await recorder.send(anonymous, "GET /.well-known/ai-catalog.json")
    await recorder.send(anonymous, "GET /mcp/server-card")
    await recorder.send(anonymous, "GET /mcp/{serverId}/server-card", serverId="brain")
    page = await recorder.send(anonymous, "GET /v0.1/servers", query={"limit": 10})
    name = cast("Json", cast("list[Json]", page["servers"])[0]["server"])["name"]
    await recorder.send(anonymous, "GET /v0.1/servers/{name}/versions", name=name)
    await recorder.send(anonymous, "GET /v0.1/servers/{name}/versions/{version}", name=name, version="latest")
    await recorder.send(anonymous, "GET /servers")
    await recorder.send(anonymous, "GET /connect", query={"server": "brain"})
    await recorder.send(anonymous, "GET /oauth/client.json")
