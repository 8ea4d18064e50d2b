"""The parts of the story about tool servers: what there is, what it does, and servers of a workspace's own."""

from __future__ import annotations

from typing import cast
from urllib.parse import parse_qsl, urlsplit

from tests.conftest import eventually
from tests.reference.recording.recorder import Json, Recorder, first_operation
from tests.tools.oauth_server import authorize, parse_hidden_fields

_BASE = "/api/v1/mcp"
_SERVERS = "/api/v1/servers"
_LOGIN = f"{_SERVERS}/{{serverId}}/login"


async def play(tape: Recorder) -> None:
    """Look around, call tools, read resources, fill in a prompt."""
    kim = tape.instance.agent

    async def is_there() -> bool:
        return (await kim.get(f"{_BASE}/servers/library/tools")).json().get("tools") not in (None, [])

    await eventually(is_there, within_s=30)
    await tape.send(kim, f"GET {_BASE}/servers")
    await tape.send(kim, f"GET {_BASE}/servers/{{serverId}}", serverId="library")
    await tape.send(kim, f"GET {_BASE}/servers/{{serverId}}/tools", serverId="library")
    await tape.send(kim, f"GET {_BASE}/servers/{{serverId}}/resources", serverId="library")
    await tape.send(kim, f"GET {_BASE}/servers/{{serverId}}/resource-templates", serverId="library")
    await tape.send(kim, f"GET {_BASE}/servers/{{serverId}}/prompts", serverId="library")
    await tape.send(kim, f"GET {_BASE}/servers/{{serverId}}/openapi.json", serverId="library", cut=first_operation)
    await tape.send(kim, f"GET {_BASE}/tools/search", query={"q": "which shelf is a book on", "limit": 3})
    call = {"server": "library", "tool": "find_book", "arguments": {"title": "Walden"}}
    await tape.send(kim, f"POST {_BASE}/tools/call", call)
    await tape.send(kim, "POST /mcp/tools/call", call)
    await tape.send(kim, f"POST {_BASE}/servers/{{serverId}}/tools/{{tool}}", {"title": "Moby"}, serverId="library", tool="find_book")
    await tape.send(kim, f"GET {_BASE}/resources/{{uri}}", uri="library://opening-hours")
    filled = {"arguments": {"reader": "a sailor"}}
    await tape.send(kim, f"POST {_BASE}/servers/{{serverId}}/prompts/{{name}}", filled, serverId="library", name="recommend")
    meta: Json = {"io.modelcontextprotocol/protocolVersion": _ERA, "io.modelcontextprotocol/clientCapabilities": {}}
    listing = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": meta}}
    await tape.send(kim, "POST /mcp", listing, headers=_MCP)
    await tape.send(kim, "POST /mcp/{serverId}", listing, headers=_MCP, serverId="library")
    await _told(tape)


_ERA = "2026-07-28"
_MCP = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": _ERA, "Mcp-Method": "tools/list"}


async def _told(tape: Recorder) -> None:
    """Ask which calls there were; they are written down a moment after they were made."""
    kim, base = tape.instance.admin, "/api/agent/tools"

    async def is_written() -> bool:
        return (await kim.get(f"{base}/calls?server=library")).json()["data"] != []

    await eventually(is_written)
    await tape.send(kim, f"GET {base}/calls", query={"server": "library", "success": "true", "per_page": 20})
    await tape.send(kim, f"GET {base}/analytics", query={"server": "library"})
    await tape.send(kim, f"GET {base}/analytics/{{serverId}}/{{tool}}", serverId="library", tool="find_book")


async def servers(tape: Recorder) -> None:
    """Register a server of a workspace's own, look after it, log in at one, and remove it."""
    admin = tape.instance.admin
    entry = {
        "id": "weather",
        "url": tape.upstream,
        "name": "Weather",
        "tagline": "Forecasts for three days.",
        "use_when": "Somebody asks what the weather will be.",
        "auth": "oauth",
        "timeout_s": 20,
    }
    await tape.send(admin, f"POST {_SERVERS}", entry)
    await tape.send(admin, f"GET {_SERVERS}", query={"per_page": 20})
    await tape.send(admin, f"GET {_SERVERS}/{{id}}", id="weather")
    await tape.send(admin, f"PATCH {_SERVERS}/{{id}}", {"tagline": "Forecasts for a week."}, id="weather")
    await tape.send(admin, f"GET {_LOGIN}", serverId="weather")
    begun = await tape.send(admin, f"POST {_LOGIN}", serverId="weather")
    back = urlsplit(authorize(cast("str", begun["authorization_url"])))
    browser = tape.instance.caller(None)
    query = dict(parse_qsl(back.query))
    page = await browser.get(f"{back.path}?{back.query}")
    await tape.send(browser, "GET /oauth/callback", query=query)
    await tape.send(browser, "POST /oauth/callback", form=parse_hidden_fields(page.text))
    await tape.send(admin, f"POST {_SERVERS}/{{id}}/check", id="weather")
    await tape.send(admin, f"DELETE {_LOGIN}", serverId="weather")
    await tape.send(admin, f"DELETE {_SERVERS}/{{id}}", id="weather")


async def discovery(tape: Recorder) -> None:
    """Find out what tool servers there are, as clients and registries do."""
    nobody = tape.instance.caller(None)
    await tape.send(nobody, "GET /.well-known/mcp-servers.json")
    await tape.send(nobody, "GET /.well-known/ai-catalog.json")
    await tape.send(nobody, "GET /mcp/server-card")
    await tape.send(nobody, "GET /mcp/{serverId}/server-card", serverId="brain")
    found = await tape.send(nobody, "GET /v0.1/servers", query={"limit": 10})
    name = cast("Json", cast("list[Json]", found["servers"])[0]["server"])["name"]
    await tape.send(nobody, "GET /v0.1/servers/{name}/versions", name=name)
    await tape.send(nobody, "GET /v0.1/servers/{name}/versions/{version}", name=name, version="latest")
    await tape.send(nobody, "GET /servers")
    await tape.send(nobody, "GET /connect", query={"server": "brain"})
    await tape.send(nobody, "GET /oauth/client.json")
