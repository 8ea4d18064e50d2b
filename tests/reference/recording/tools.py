"""The parts of the story about tool servers: what there is, what it does, and servers of a workspace's own."""

from __future__ import annotations

from typing import cast
from urllib.parse import parse_qsl, urlsplit

from tests.conftest import eventually
from tests.reference.recording.tape import Json, Tape, beginning
from tests.tools.guarding import consent, form_of

_BASE = "/api/v1/mcp"
_SERVERS = "/api/v1/servers"
_LOGIN = f"{_SERVERS}/{{serverId}}/login"


async def play(tape: Tape) -> None:
    """Look around, call tools, read resources, fill in a prompt."""
    kim = tape.house.agent

    async def is_there() -> bool:
        return (await kim.get(f"{_BASE}/servers/library/tools")).json().get("tools") not in (None, [])

    await eventually(is_there, within_s=30)
    await tape.ask(kim, f"GET {_BASE}/servers")
    await tape.ask(kim, f"GET {_BASE}/servers/{{serverId}}", serverId="library")
    await tape.ask(kim, f"GET {_BASE}/servers/{{serverId}}/tools", serverId="library")
    await tape.ask(kim, f"GET {_BASE}/servers/{{serverId}}/resources", serverId="library")
    await tape.ask(kim, f"GET {_BASE}/servers/{{serverId}}/resource-templates", serverId="library")
    await tape.ask(kim, f"GET {_BASE}/servers/{{serverId}}/prompts", serverId="library")
    await tape.ask(kim, f"GET {_BASE}/servers/{{serverId}}/openapi.json", serverId="library", cut=beginning)
    await tape.ask(kim, f"GET {_BASE}/tools/search", query={"q": "which shelf is a book on", "limit": 3})
    call = {"server": "library", "tool": "find_book", "arguments": {"title": "Walden"}}
    await tape.ask(kim, f"POST {_BASE}/tools/call", call)
    await tape.ask(kim, "POST /mcp/tools/call", call)
    await tape.ask(kim, f"POST {_BASE}/servers/{{serverId}}/tools/{{tool}}", {"title": "Moby"}, serverId="library", tool="find_book")
    await tape.ask(kim, f"GET {_BASE}/resources/{{uri}}", uri="library://opening-hours")
    filled = {"arguments": {"reader": "a sailor"}}
    await tape.ask(kim, f"POST {_BASE}/servers/{{serverId}}/prompts/{{name}}", filled, serverId="library", name="recommend")
    meta: Json = {"io.modelcontextprotocol/protocolVersion": _ERA, "io.modelcontextprotocol/clientCapabilities": {}}
    listing = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": meta}}
    await tape.ask(kim, "POST /mcp", listing, headers=_MCP)
    await tape.ask(kim, "POST /mcp/{serverId}", listing, headers=_MCP, serverId="library")
    await _told(tape)


_ERA = "2026-07-28"
_MCP = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": _ERA, "Mcp-Method": "tools/list"}


async def _told(tape: Tape) -> None:
    """Ask which calls there were; they are written down a moment after they were made."""
    kim, base = tape.house.admin, "/api/agent/tools"

    async def is_written() -> bool:
        return (await kim.get(f"{base}/calls?server=library")).json()["data"] != []

    await eventually(is_written)
    await tape.ask(kim, f"GET {base}/calls", query={"server": "library", "success": "true", "per_page": 20})
    await tape.ask(kim, f"GET {base}/analytics", query={"server": "library"})
    await tape.ask(kim, f"GET {base}/analytics/{{serverId}}/{{tool}}", serverId="library", tool="find_book")


async def servers(tape: Tape) -> None:
    """Register a server of a workspace's own, look after it, log in at one, and remove it."""
    admin = tape.house.admin
    entry = {
        "id": "weather",
        "url": tape.upstream,
        "name": "Weather",
        "tagline": "Forecasts for three days.",
        "use_when": "Somebody asks what the weather will be.",
        "auth": "oauth",
        "timeout_s": 20,
    }
    await tape.ask(admin, f"POST {_SERVERS}", entry)
    await tape.ask(admin, f"GET {_SERVERS}", query={"per_page": 20})
    await tape.ask(admin, f"GET {_SERVERS}/{{id}}", id="weather")
    await tape.ask(admin, f"PATCH {_SERVERS}/{{id}}", {"tagline": "Forecasts for a week."}, id="weather")
    await tape.ask(admin, f"GET {_LOGIN}", serverId="weather")
    begun = await tape.ask(admin, f"POST {_LOGIN}", serverId="weather")
    back = urlsplit(consent(cast("str", begun["authorization_url"])))
    browser = tape.house.caller(None)
    query = dict(parse_qsl(back.query))
    page = await browser.get(f"{back.path}?{back.query}")
    await tape.ask(browser, "GET /oauth/callback", query=query)
    await tape.ask(browser, "POST /oauth/callback", form=form_of(page.text))
    await tape.ask(admin, f"POST {_SERVERS}/{{id}}/check", id="weather")
    await tape.ask(admin, f"DELETE {_LOGIN}", serverId="weather")
    await tape.ask(admin, f"DELETE {_SERVERS}/{{id}}", id="weather")


async def discovery(tape: Tape) -> None:
    """Find out what tool servers there are, as clients and registries do."""
    nobody = tape.house.caller(None)
    await tape.ask(nobody, "GET /.well-known/mcp-servers.json")
    await tape.ask(nobody, "GET /.well-known/ai-catalog.json")
    await tape.ask(nobody, "GET /mcp/server-card")
    await tape.ask(nobody, "GET /mcp/{serverId}/server-card", serverId="brain")
    found = await tape.ask(nobody, "GET /v0.1/servers", query={"limit": 10})
    name = cast("Json", cast("list[Json]", found["servers"])[0]["server"])["name"]
    await tape.ask(nobody, "GET /v0.1/servers/{name}/versions", name=name)
    await tape.ask(nobody, "GET /v0.1/servers/{name}/versions/{version}", name=name, version="latest")
    await tape.ask(nobody, "GET /servers")
    await tape.ask(nobody, "GET /connect", query={"server": "brain"})
    await tape.ask(nobody, "GET /oauth/client.json")
