"""The message of an MCP client for a request refused before the MCP server runs."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import metadata
from typing import cast

import httpx2
import pytest
from mcp import MCPError

from tests.conftest import eventually
from tests.processes import Server
from tests.tools.gateway.clients import ERAS, Json, client
from tests.tools.gateway.test_hostile_peers import ACCEPT, OPENING

UNKNOWN_KEY = "ak_" + "0" * 32


def post(gateway: Server, path: str = "/mcp", *, key: str | None = None, content: bytes | None = None, **headers: str) -> httpx2.Response:
    """Send the first message of a session, or *content* in its place."""
    sent = {"Authorization": f"Bearer {key or gateway.keys['agent_key']}", **ACCEPT, "Content-Type": "application/json", **headers}
    body: Mapping[str, object] = {"json": OPENING} if content is None else {"content": content}
    return httpx2.post(gateway.url + path, headers=sent, timeout=30, **body)  # pyright: ignore[reportArgumentType] - one of the two


async def sentence(gateway: Server, path: str, *, key: str, mode: str) -> str:
    """Return the error that the official client raises when it opens *path*."""
    said = list[str]()
    try:
        async with client(gateway, path, key=key, mode=mode):
            pytest.fail("the client was let in")
    except* MCPError as raised:
        group: BaseExceptionGroup[BaseException] = raised
        while (inner := group.exceptions[0]) and isinstance(inner, BaseExceptionGroup):
            group = cast("BaseExceptionGroup[BaseException]", inner)
        said.append(str(inner))
    return said[0]


@pytest.mark.parametrize("mode", ERAS)
async def test_the_official_client_shows_why_it_was_refused(gateway: Server, mode: str) -> None:
    """Issue 14: a wrong key, a missing permission, an unknown server, a used-up limit: the sentence is in the exception; D-36."""
    without = gateway.client.post("/api/v1/agent-keys", json={"name": f"none-{mode}", "permissions": ["plans.read"]}).json()["key"]
    once = {"name": f"once-{mode}", "permissions": ["mcp:read"], "rate_limit": 1}
    limited = gateway.client.post("/api/v1/agent-keys", json=once).json()["key"]
    assert post(gateway, key=limited).status_code == 200

    wrong = await sentence(gateway, "/mcp", key=UNKNOWN_KEY, mode=mode)
    missing = await sentence(gateway, "/mcp", key=without, mode=mode)
    nowhere = await sentence(gateway, "/mcp/nope", key=gateway.keys["agent_key"], mode=mode)
    over = await sentence(gateway, "/mcp", key=limited, mode=mode)

    assert "This key is unknown." in wrong
    assert "mcp:read" in missing
    assert "The server 'nope' does not exist." in nowhere
    assert gateway.client.get("/api/v1/mcp/servers/nope").json()["message"] in nowhere
    assert "limit" in over


@pytest.mark.parametrize("path", ["/mcp/", "/mcp/odd/"])
@pytest.mark.parametrize("mode", ERAS)
async def test_a_slash_at_the_end_changes_nothing(gateway: Server, mode: str, path: str) -> None:
    """Issue 14: other clients' documentation writes the address with a slash; D-36."""
    name = "odd__echo" if path == "/mcp/" else "echo"
    async with client(gateway, path, mode=mode) as mcp:

        async def is_listed() -> bool:
            return name in [tool.name for tool in (await mcp.list_tools()).tools]

        assert await eventually(is_listed)


@pytest.mark.parametrize(
    ("status", "code", "number", "sent"),
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
def test_every_refusal_is_the_error_body_inside_one_of_json_rpc(
    gateway: Server, status: int, code: str, number: int, sent: Mapping[str, str]
) -> None:
    """Issue 14: status and headers stay, `error.data` is D-10's body, and `error.message` its sentence; D-36, D-10."""
    answer = post(gateway, **sent)  # pyright: ignore[reportArgumentType] - by their own names
    body = cast("Json", answer.json())
    error = cast("Json", body["error"])
    data = cast("Json", error["data"])

    assert (answer.status_code, data["error"]) == (status, code)
    assert body["jsonrpc"] == "2.0"
    assert (error["code"], error["message"]) == (number, data["message"])
    assert body["id"] == (1 if code in {"server_not_found", "cross_site"} else None)
    assert "x-request-id" in answer.headers
    assert ("www-authenticate" in answer.headers) is (status == 401)


def test_without_a_message_the_error_body_is_ours(gateway: Server) -> None:
    """D-10: GET and DELETE carry no JSON-RPC message, so their refusals have the body of every other route."""
    headers = {"Authorization": f"Bearer {UNKNOWN_KEY}"}
    opened = httpx2.get(gateway.url + "/mcp", headers=headers)
    ended = httpx2.delete(gateway.url + "/mcp/odd/", headers=headers)

    assert [each.json()["error"] for each in (opened, ended)] == ["unauthorised", "unauthorised"]


@pytest.mark.parametrize("mode", ERAS)
async def test_the_gateway_has_the_version_of_the_package(gateway: Server, mode: str) -> None:
    """Issue 14: one thing has one version: what MCP clients are told is what the registry, the cards and backups say; D-35, D-36."""
    told = {each["server"]["version"] for each in gateway.client.get("/v0.1/servers").json()["servers"]}
    async with client(gateway, mode=mode) as mcp:
        info = mcp.server_info

    assert {info.version if info else None} == told == {metadata.version("rookery")}
