"""The message of an MCP client for a request refused before the MCP server runs."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import metadata
from typing import cast

import httpx2
import pytest
from mcp import MCPError

from tests.conftest import eventually
from tests.deadlines import HANG_S
from tests.processes import Server
from tests.tools.gateway.clients import ERAS, Json, open_client
from tests.tools.gateway.test_hostile_peers import ACCEPT, OPENING

UNKNOWN_KEY = "ak_" + "0" * 32


def post(gateway: Server, path: str = "/mcp", *, key: str | None = None, content: bytes | None = None, **headers: str) -> httpx2.Response:
    """Send the first message of a session, or *content* instead of it."""
    request_headers = {
        "Authorization": f"Bearer {key or gateway.keys['agent_key']}",
        **ACCEPT,
        "Content-Type": "application/json",
        **headers,
    }
    body: Mapping[str, object] = {"json": OPENING} if content is None else {"content": content}
    return httpx2.post(gateway.url + path, headers=request_headers, timeout=HANG_S, **body)  # pyright: ignore[reportArgumentType] - one of the two


async def open_error(gateway: Server, path: str, *, key: str, mode: str) -> str:
    """Return the error that the official client raises when it opens *path*."""
    messages = list[str]()
    try:
        async with open_client(gateway, path, key=key, mode=mode):
            pytest.fail("the client was admitted")
    except* MCPError as error_group:
        group: BaseExceptionGroup[BaseException] = error_group
        while (inner := group.exceptions[0]) and isinstance(inner, BaseExceptionGroup):
            group = cast("BaseExceptionGroup[BaseException]", inner)
        messages.append(str(inner))
    return messages[0]


@pytest.mark.parametrize("mode", ERAS)
async def test_the_official_client_shows_why_it_was_rejected(gateway: Server, mode: str) -> None:
    """The exception has the reason: an unknown key, a missing permission, an unknown server, or a used-up limit."""
    without_permission = gateway.client.post("/api/v1/agent-keys", json={"name": f"none-{mode}", "permissions": ["plans.read"]}).json()[
        "key"
    ]
    limited_key = {"name": f"once-{mode}", "permissions": ["mcp:read"], "rate_limit": 1}
    limited = gateway.client.post("/api/v1/agent-keys", json=limited_key).json()["key"]
    assert post(gateway, key=limited).status_code == 200

    unknown_key = await open_error(gateway, "/mcp", key=UNKNOWN_KEY, mode=mode)
    missing_permission = await open_error(gateway, "/mcp", key=without_permission, mode=mode)
    unknown_server = await open_error(gateway, "/mcp/nope", key=gateway.keys["agent_key"], mode=mode)
    over_limit = await open_error(gateway, "/mcp", key=limited, mode=mode)

    assert "This key is unknown." in unknown_key
    assert "mcp:read" in missing_permission
    assert "The server 'nope' does not exist." in unknown_server
    assert gateway.client.get("/api/v1/mcp/servers/nope").json()["message"] in unknown_server
    assert "limit" in over_limit


@pytest.mark.parametrize("path", ["/mcp/", "/mcp/odd/"])
@pytest.mark.parametrize("mode", ERAS)
async def test_a_trailing_slash_changes_nothing(gateway: Server, mode: str, path: str) -> None:
    """The documentation of other clients writes the address with a slash."""
    name = "odd__echo" if path == "/mcp/" else "echo"
    async with open_client(gateway, path, mode=mode) as mcp:

        async def is_listed() -> bool:
            return name in [tool.name for tool in (await mcp.list_tools()).tools]

        assert await eventually(is_listed)


@pytest.mark.parametrize(
    ("status", "code", "number", "options"),
    [
        (401, "unauthorised", -32600, {"key": UNKNOWN_KEY}),
        (404, "server_not_found", -32600, {"path": "/mcp/nope"}),
        (400, "host_not_allowed", -32600, {"Host": "elsewhere.example"}),
        (403, "cross_site", -32600, {"Origin": "https://elsewhere.example"}),
        (422, "validation_error", -32600, {"path": "/mcp?mode=all"}),
        (400, "invalid_json", -32700, {"content": b"{"}),
        (400, "invalid_request", -32600, {"content": b"[]"}),
        (413, "payload_too_large", -32600, {"content": b" " * (4 * 1024 * 1024 + 1)}),
    ],
)
def test_every_error_body_is_wrapped_in_a_json_rpc_error(
    gateway: Server, status: int, code: str, number: int, options: Mapping[str, str]
) -> None:
    """Status and headers stay, `error.data` is the error body, and `error.message` its message."""
    response = post(gateway, **options)  # pyright: ignore[reportArgumentType] - options by name
    body = cast("Json", response.json())
    error = cast("Json", body["error"])
    data = cast("Json", error["data"])

    assert (response.status_code, data["error"]) == (status, code)
    assert body["jsonrpc"] == "2.0"
    assert (error["code"], error["message"]) == (number, data["message"])
    assert body["id"] == (1 if code in {"server_not_found", "cross_site"} else None)
    assert "x-request-id" in response.headers
    assert ("www-authenticate" in response.headers) is (status == 401)


def test_errors_without_a_json_rpc_message_are_plain_error_bodies(gateway: Server) -> None:
    """GET and DELETE carry no JSON-RPC message, so their errors have the body of every other route."""
    headers = {"Authorization": f"Bearer {UNKNOWN_KEY}"}
    get_response = httpx2.get(gateway.url + "/mcp", headers=headers, timeout=HANG_S)
    delete_response = httpx2.delete(gateway.url + "/mcp/odd/", headers=headers, timeout=HANG_S)

    assert [response.json()["error"] for response in (get_response, delete_response)] == ["unauthorised", "unauthorised"]


@pytest.mark.parametrize("mode", ERAS)
async def test_the_gateway_has_the_version_of_the_package(gateway: Server, mode: str) -> None:
    """MCP clients, the registry, the cards and backups get the same version."""
    versions = {entry["server"]["version"] for entry in gateway.client.get("/v0.1/servers").json()["servers"]}
    async with open_client(gateway, mode=mode) as mcp:
        info = mcp.server_info

    assert {info.version if info else None} == versions == {metadata.version("rookery")}
