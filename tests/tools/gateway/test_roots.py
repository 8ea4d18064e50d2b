"""Roots of callers in shared sessions, with the real server-filesystem and a server of the later era."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import mcp_types as types
import pytest
from mcp import MCPError
from mcp.client.context import ClientRequestContext

from tests import real_servers
from tests.conftest import eventually
from tests.processes import Server, run_server
from tests.tools.gateway.clients import ERAS, Json, open_client

ROOT = Path(__file__).resolve().parents[3]
SECRET = "for the operator alone"


@dataclass(frozen=True, slots=True)
class GatewaySetup:
    """A running server, its folders, and the keys of two agents."""

    server: Server
    allowed: Path
    outside: Path
    attacker: str
    victim: str


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewaySetup]:
    """A server with one entry for each setting of roots and each era of clients; the first client of a session matters."""
    tmp_path = tmp_path_factory.mktemp("roots")
    allowed, outside = tmp_path / "allowed", tmp_path / "outside"
    for folder in (allowed, outside, tmp_path / "data"):
        folder.mkdir()
    (allowed / "a.txt").write_text("for everyone")
    (outside / "secret.txt").write_text(SECRET)
    later_server = {"command": sys.executable, "args": ["-m", "tests.conformance.everything"], "cwd": str(ROOT)}
    filesystem = real_servers.filesystem(allowed)
    entries: dict[str, Json] = {
        "files": filesystem,
        "operator": {**filesystem, "roots": [{"uri": outside.as_uri(), "name": "Outside"}]},
        "own": {**filesystem, "roots": "caller"},
    }
    servers = {
        **{f"{name}-{mode}": entry for name, entry in entries.items() for mode in ERAS},
        "later": later_server,
        "later-operator": {**later_server, "roots": [outside.as_uri()]},
        "later-own": {**later_server, "roots": "caller"},
        "refused": {**filesystem, "roots": "caller", "isolation": "shared"},
    }
    (tmp_path / "data" / "servers.json").write_text(json.dumps({"mcpServers": servers}))
    with run_server(tmp_path / "data") as server:
        keys = [
            str(server.client.post("/api/v1/agent-keys", json={"name": name, "permissions": ["mcp:read", "mcp:write"]}).json()["key"])
            for name in ("attacker", "victim")
        ]
        yield GatewaySetup(server, allowed, outside, *keys)


async def _call(gateway: GatewaySetup, key: str, server: str, tool: str, arguments: Json, *, roots: Path | None, mode: str) -> str:
    """Call a tool as an MCP client that announces *roots*; return the text of its result, or of the protocol error."""

    async def list_roots(context: ClientRequestContext) -> types.ListRootsResult:
        del context
        assert roots is not None
        return types.ListRootsResult(roots=[types.Root(uri=roots.as_uri())])  # pyright: ignore[reportArgumentType] - pydantic reads it

    callback = {} if roots is None else {"list_roots_callback": list_roots}
    async with open_client(gateway.server, f"/mcp/{server}", key=key, mode=mode, **callback) as mcp:
        try:
            result = await mcp.call_tool(tool, arguments)
        except MCPError as error:
            return error.message
    return "\n".join(cast("types.TextContent", block).text for block in result.content)


def _over_http(gateway: GatewaySetup, key: str, server: str, tool: str, **arguments: object) -> str:
    """Call a tool by plain HTTP; return the whole response."""
    response = gateway.server.client.post(
        "/api/v1/mcp/tools/call",
        json={"server": server, "tool": tool, "arguments": arguments},
        headers={"Authorization": f"Bearer {key}"},
    )
    return response.text


@pytest.mark.parametrize("mode", ERAS)
async def test_a_callers_roots_do_not_change_a_shared_session(gateway: GatewaySetup, mode: str) -> None:
    """No key can change the allowed folders of server-filesystem, for itself or for others."""
    secret = str(gateway.outside / "secret.txt")

    directories = await _call(gateway, gateway.attacker, f"files-{mode}", "list_allowed_directories", {}, roots=gateway.outside, mode=mode)
    content = await _call(gateway, gateway.attacker, f"files-{mode}", "read_text_file", {"path": secret}, roots=gateway.outside, mode=mode)

    assert str(gateway.allowed) in directories
    assert str(gateway.outside) not in directories
    assert SECRET not in content
    for key in (gateway.attacker, gateway.victim):
        assert SECRET not in _over_http(gateway, key, f"files-{mode}", "read_text_file", path=secret)
        assert "for everyone" in _over_http(gateway, key, f"files-{mode}", "read_text_file", path=str(gateway.allowed / "a.txt"))
    assert str(gateway.outside) not in await _call(
        gateway, gateway.victim, f"files-{mode}", "list_allowed_directories", {}, roots=gateway.outside, mode=mode
    )


@pytest.mark.parametrize("mode", ERAS)
async def test_the_operators_roots_apply_whatever_a_caller_announces(gateway: GatewaySetup, mode: str) -> None:
    """Roots in the entry replace those of callers."""
    folders = await eventually(lambda: _load_folders(gateway, f"operator-{mode}"))

    announced = await _call(gateway, gateway.attacker, f"operator-{mode}", "list_allowed_directories", {}, roots=gateway.allowed, mode=mode)

    assert folders == announced.replace("\n", "\\n")
    assert str(gateway.allowed) not in announced
    assert SECRET in _over_http(gateway, gateway.victim, f"operator-{mode}", "read_text_file", path=str(gateway.outside / "secret.txt"))


@pytest.mark.parametrize("mode", ERAS)
async def test_roots_of_callers_reach_only_their_own_session(gateway: GatewaySetup, mode: str) -> None:
    """The setting `"roots": "caller"` opens a session per key."""
    secret = str(gateway.outside / "secret.txt")

    own = await _call(gateway, gateway.attacker, f"own-{mode}", "list_allowed_directories", {}, roots=gateway.outside, mode=mode)
    content = await _call(gateway, gateway.attacker, f"own-{mode}", "read_text_file", {"path": secret}, roots=gateway.outside, mode=mode)
    other = await _call(gateway, gateway.victim, f"own-{mode}", "list_allowed_directories", {}, roots=None, mode=mode)

    assert str(gateway.outside) in own
    assert content == SECRET
    assert str(gateway.allowed) in other
    assert str(gateway.outside) not in other
    assert SECRET not in _over_http(gateway, gateway.victim, f"own-{mode}", "read_text_file", path=secret)


def test_roots_of_callers_in_a_shared_session_are_rejected(gateway: GatewaySetup) -> None:
    """The error of the entry has the reason and the allowed setting."""
    server = gateway.server.client.get("/api/v1/mcp/servers/refused").json()
    response = _over_http(gateway, gateway.victim, "refused", "list_allowed_directories")

    assert server["health"] == "offline"
    assert 'roots "caller" needs isolation per_key' in json.loads(response)["error"]


@pytest.mark.parametrize("mode", ERAS)
async def test_a_server_of_the_later_era_gets_the_roots_of_its_entry(gateway: GatewaySetup, mode: str) -> None:
    """In 2026-07-28 a server requests roots by a result, which only the servers entry answers."""
    tool = "test_input_required_result_list_roots"

    operator = await _call(gateway, gateway.attacker, "later-operator", tool, {}, roots=gateway.allowed, mode=mode)
    own = await _call(gateway, gateway.attacker, "later-own", tool, {}, roots=gateway.allowed, mode=mode)
    none = await _call(gateway, gateway.attacker, "later", tool, {}, roots=gateway.allowed, mode=mode)

    assert gateway.outside.as_uri() in operator
    assert gateway.allowed.as_uri() not in operator
    assert gateway.allowed.as_uri() in own
    assert "its entry has none" in none


def test_unrequested_roots_sent_over_http_are_dropped(gateway: GatewaySetup) -> None:
    """Unrequested input responses about roots reach no server."""
    forged = {"roots": [{"uri": gateway.allowed.as_uri()}]}
    responses = {
        server: gateway.server.client.post(
            "/api/v1/mcp/tools/call",
            json={
                "server": server,
                "tool": "test_input_required_result_list_roots",
                "arguments": {},
                "input_responses": {"client_roots": forged},
            },
        ).text
        for server in ("later", "later-operator", "later-own")
    }

    assert gateway.allowed.as_uri() not in responses["later"]
    assert gateway.allowed.as_uri() not in responses["later-operator"]
    assert gateway.outside.as_uri() in responses["later-operator"]
    assert gateway.allowed.as_uri() in responses["later-own"]


def test_a_forged_state_is_rejected(gateway: GatewaySetup) -> None:
    """The state passes through the caller, who may change it; a forged state is an error of the tool."""
    for forged in ("[" * 100_000, "5", '[["client_roots"]]', '["client_roots", 1]', '[{"a": 1}, null]', ""):
        call: Json = {"server": "later-operator", "tool": "test_input_required_result_list_roots", "arguments": {}}
        rejected = gateway.server.client.post("/api/v1/mcp/tools/call", json={**call, "request_state": f"rookery-roots:{forged}"}).json()

        assert rejected["code"] == "tool_execution_error", forged[:20]
        assert "The requestState is not the one that was returned" in rejected["error"]


async def test_roots_requested_with_other_input_come_from_the_entry(gateway: GatewaySetup) -> None:
    """The caller answers the other requests, and the roots of the entry are added."""

    async def elicit(context: ClientRequestContext, params: types.ElicitRequestParams) -> types.ElicitResult:
        del context, params
        return types.ElicitResult(action="accept", content={"name": "ada"})

    async def sample(context: ClientRequestContext, params: types.CreateMessageRequestParams) -> types.CreateMessageResult:
        del context, params
        return types.CreateMessageResult(role="assistant", content=types.TextContent(type="text", text="hello"), model="m")

    async with open_client(gateway.server, "/mcp/later-operator", elicitation_callback=elicit, sampling_callback=sample) as mcp:
        result = await mcp.call_tool("test_input_required_result_multiple_inputs", {})

    assert not result.is_error
    assert gateway.outside.as_uri() in str(result.content)


def _load_folders(gateway: GatewaySetup, server: str) -> str | None:
    """Return the allowed folders of server-filesystem once it applied its roots, which it does after its first response."""
    response = json.loads(_over_http(gateway, gateway.victim, server, "list_allowed_directories"))
    if "result" not in response:
        return None  # the server was not listed yet
    text = str(response["result"]["content"][0]["text"]).replace("\n", "\\n")
    return text if str(gateway.outside) in text else None
