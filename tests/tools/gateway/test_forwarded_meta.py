"""Keys of the `_meta` of clients that tool servers get."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from typing import cast

import pytest

from tests.processes import Server, run_server
from tests.tools.gateway.clients import Json, open_client
from tests.tools.servers import meta

CODEX: Json = {
    "x-codex-turn-metadata": {"workspaces": {"/srv/shop": {"associated_remote_urls": {"origin": "https://git.example.org/shop.git"}}}},
    "callId": "call_1",
    "threadId": "t-1",
}
CLAUDE_CODE: Json = {"claudecode/toolUseId": "toolu_1"}
TRACE: Json = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "tracestate": "a=b", "baggage": "tenant=shop"}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with the same tool server three times: as it is by default, with an allowed key, and with a cache."""
    folder = tmp_path_factory.mktemp("meta")
    entry = {"command": sys.executable, "args": ["-I", "-S", "-u", meta.__file__]}
    cache = {"tools": {"cache_s": {"*": 300}}}
    servers = {
        "closed": entry,
        "named": {**entry, "forward_meta": ["claudecode/*", "tenant"]},
        "cached": {**entry, **cache},
        "named-cached": {**entry, **cache, "forward_meta": ["tenant"]},
    }
    (folder / "servers.json").write_text(json.dumps({"mcpServers": servers}))
    with run_server(folder) as server:
        yield server


async def show(gateway: Server, server: str, sent: Mapping[str, object], mode: str = "legacy") -> Json:
    """Call the tool with *sent* as `_meta`; return what the tool server got, and the number of its calls."""
    async with open_client(gateway, f"/mcp/{server}", mode=mode) as mcp:
        result = await mcp.call_tool("show", {}, meta=dict(sent))  # pyright: ignore[reportArgumentType] - any keys
    return cast("Json", json.loads(str(getattr(result.content[0], "text", ""))))


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_a_tool_server_gets_nothing_of_what_a_client_says_about_its_user(gateway: Server, mode: str) -> None:
    """The keys of coding agents do not reach it; the trace context of the protocol does."""
    got = await show(gateway, "closed", {**CODEX, **CLAUDE_CODE, **TRACE}, mode)

    received = cast("Json", got["meta"])
    assert {name: value for name, value in received.items() if not name.startswith("io.modelcontextprotocol/")}.keys() <= TRACE.keys()
    assert received["baggage"] == "tenant=shop"


async def test_a_prompt_is_requested_with_as_little(gateway: Server) -> None:
    """Every request to a server is treated alike."""
    async with open_client(gateway, "/mcp/closed", mode="legacy") as mcp:
        result = await mcp.get_prompt("show", meta=dict(CODEX))  # pyright: ignore[reportArgumentType] - any keys
    got = json.loads(str(getattr(result.messages[0].content, "text", "")))

    assert not CODEX.keys() & got["meta"].keys()


async def test_an_entry_names_the_keys_that_its_server_gets(gateway: Server) -> None:
    """`forward_meta` has patterns. A value that contains a Rookery key is never sent on."""
    key = gateway.keys["agent_key"]

    got = await show(gateway, "named", {**CODEX, **CLAUDE_CODE, "tenant": "shop"})
    leaking = await show(gateway, "named", {"claudecode/key": {"nested": f"Bearer {key}"}, "tenant": "shop"})

    received = cast("Json", got["meta"])
    assert (received["claudecode/toolUseId"], received["tenant"]) == ("toolu_1", "shop")
    assert not CODEX.keys() & received.keys()
    assert "claudecode/key" not in cast("Json", leaking["meta"])


async def test_keys_that_a_server_does_not_get_do_not_spoil_its_cache(gateway: Server) -> None:
    """Claude Code and Codex put a new id into each call. A key that the server gets may change its result."""
    calls = [(await show(gateway, "cached", {"claudecode/toolUseId": f"toolu_{n}", "callId": n}))["calls"] for n in range(2)]
    named = [(await show(gateway, "named-cached", {"tenant": tenant, "callId": n}))["calls"] for n, tenant in enumerate("aab")]

    assert calls == [1, 1]
    assert named == [1, 1, 2]
