"""Isolation of two keys in a shared session of a tool server (the table in docs/reference/servers-json.md)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import Awaitable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import httpx2
import mcp_types as types
import pytest
from mcp import Client, MCPError
from mcp.client.context import ClientRequestContext

from rookery.engines import upstreams
from rookery.tools.models import CommandTarget
from rookery.tools.models import Server as Entry
from rookery.tools.ports import RequestOptions
from tests.conftest import eventually
from tests.processes import Server, run_server
from tests.tools.gateway.clients import ERAS, Json, client, later
from tests.tools.makers import SERVERS, make_caller, make_odd_entry

ROOT = Path(__file__).resolve().parents[3]
ACCEPT = {"Accept": "application/json, text/event-stream"}
HELLO: Json = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}


@dataclass(frozen=True, slots=True)
class GatewaySetup:
    """A running server and the keys of two agents of one workspace."""

    server: Server
    ada: str
    bob: str


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewaySetup]:
    """A server with tool servers of both eras, with the default isolation: both keys share their sessions."""
    folder = tmp_path_factory.mktemp("shared")
    command = {"command": sys.executable, "args": ["-m", "tests.conformance.everything"], "cwd": str(ROOT)}
    older: Json = {**command, "args": [*command["args"], "--older-era"]}
    servers: Json = {"odd": make_odd_entry(), "later": command, "older": older, "older-own": {**older, "isolation": "per_key"}}
    (folder / "servers.json").write_text(json.dumps({"mcpServers": servers}))
    with run_server(folder) as server:
        keys = [
            str(server.client.post("/api/v1/agent-keys", json={"name": name, "permissions": ["mcp:read", "mcp:write"]}).json()["key"])
            for name in ("ada", "bob")
        ]
        yield GatewaySetup(server, *keys)


class _RecordingUser:
    """A client's owner: remembers what is asked, and answers by name."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.asked: list[str] = []

    async def elicit(self, context: ClientRequestContext, params: types.ElicitRequestParams) -> types.ElicitResult:
        """Answer a form."""
        del context
        self.asked.append(params.message)
        return types.ElicitResult(action="accept", content={"username": self.name, "email": f"{self.name}@example.org"})

    async def sample(self, context: ClientRequestContext, params: types.CreateMessageRequestParams) -> types.CreateMessageResult:
        """Answer in the place of a model."""
        del context
        self.asked.append(str(params.messages))
        return types.CreateMessageResult(role="assistant", content=types.TextContent(type="text", text=self.name), model="m")


@pytest.mark.parametrize("mode", ERAS)
async def test_questions_of_an_older_server_reach_no_key_of_a_shared_session(gateway: GatewaySetup, mode: str) -> None:
    """Issue 14: sampling and elicitation: who pays and who answers is never another key; D-32, D-36."""
    ada, bob = _RecordingUser("ada"), _RecordingUser("bob")
    shared: list[str] = []
    async with _as(gateway, gateway.ada, "older", ada, mode) as first, _as(gateway, gateway.bob, "older", bob, mode) as second:
        for mcp in (first, second):
            await mcp.call_tool("test_simple_text", {})
        for mcp in (first, second):
            shared.append(await _outcome(mcp.call_tool("test_elicitation", {"message": "Who?"})))
            shared.append(await _outcome(mcp.call_tool("test_sampling", {"prompt": "Who?"})))
    async with _as(gateway, gateway.ada, "older-own", ada, mode) as first, _as(gateway, gateway.bob, "older-own", bob, mode) as second:
        own = [await _outcome(mcp.call_tool("test_sampling", {"prompt": mcp_name})) for mcp, mcp_name in ((first, "a"), (second, "b"))]

    assert all("isolation" in each for each in shared)
    assert len(ada.asked) == len(bob.asked) == 1
    assert "ada" in own[0]
    assert "bob" in own[1]


@pytest.mark.parametrize("mode", ERAS)
async def test_questions_of_a_later_server_reach_the_caller_of_their_call(gateway: GatewaySetup, mode: str) -> None:
    """Issue 14: in 2026-07-28 each question belongs to a call, so keys that call at once are asked for their own; D-36."""
    ada, bob = _RecordingUser("ada"), _RecordingUser("bob")
    async with _as(gateway, gateway.ada, "later", ada, mode) as first, _as(gateway, gateway.bob, "later", bob, mode) as second:
        answers = await asyncio.gather(
            *(
                mcp.call_tool("test_elicitation", {"message": name})
                for mcp, name in ((first, "for ada"), (second, "for bob"))
                for _ in range(5)
            )
        )

    assert set(ada.asked) == {"for ada"}
    assert set(bob.asked) == {"for bob"}
    assert ["ada@" in str(each.content) for each in answers] == [True] * 5 + [False] * 5
    assert ["bob@" in str(each.content) for each in answers] == [False] * 5 + [True] * 5


async def test_what_a_client_can_do_counts_for_its_own_calls(gateway: GatewaySetup) -> None:
    """Issue 14: capabilities of one key's client are never announced for another's; D-36."""
    able, unable = await asyncio.gather(
        later(
            gateway.server, "tools/call", {"name": "test_missing_capability", "arguments": {}}, "/mcp/later", key=gateway.ada, sampling={}
        ),
        later(gateway.server, "tools/call", {"name": "test_missing_capability", "arguments": {}}, "/mcp/later", key=gateway.bob),
    )

    assert "result" in able
    assert "error" in unable


async def test_the_log_level_of_one_key_changes_nothing_for_another(gateway: GatewaySetup) -> None:
    """Issue 14: logging/setLevel is kept for the client's own session and sent to no server; D-36."""
    heard: dict[str, list[str]] = {"ada": [], "bob": []}

    def logging(name: str) -> object:
        async def log(params: types.LoggingMessageNotificationParams) -> None:
            heard[name].append(str(params.data))

        return log

    async with (
        client(gateway.server, "/mcp/older-own", key=gateway.ada, mode="legacy", logging_callback=logging("ada")) as first,
        client(gateway.server, "/mcp/older-own", key=gateway.bob, mode="legacy", logging_callback=logging("bob")) as second,
    ):
        await second.session.send_request(types.SetLevelRequest(params=types.SetLevelRequestParams(level="emergency")), types.EmptyResult)
        await asyncio.gather(*(mcp.call_tool("test_tool_with_logging", {}) for mcp in (first, second)))
        await eventually(lambda: len(heard["ada"]) == 3)

    assert not heard["bob"]


async def test_log_notices_reach_no_key_of_a_shared_session(gateway: GatewaySetup) -> None:
    """Issue 14: a server does not say for whose call it logs, so what it says for one key would come to another; D-36."""
    heard: list[str] = []

    async def log(params: types.LoggingMessageNotificationParams) -> None:
        heard.append(str(params.data))

    async with client(gateway.server, "/mcp/older", key=gateway.ada, mode="legacy") as first:
        await first.call_tool("test_simple_text", {})
    async with client(gateway.server, "/mcp/older", key=gateway.bob, mode="legacy", logging_callback=log) as second:
        await second.call_tool("test_tool_with_logging", {})
        await second.call_tool("test_simple_text", {})
    async with client(gateway.server, "/mcp/older-own", key=gateway.bob, mode="legacy", logging_callback=log) as own:
        await own.call_tool("test_tool_with_logging", {})
        await eventually(lambda: len(heard) == 3)

    assert len(heard) == 3


async def test_progress_comes_to_the_call_that_asked_for_it(gateway: GatewaySetup) -> None:
    """Issue 14: two keys may choose the same progress token; each hears of its own call; D-36."""
    steps = {gateway.ada: 3, gateway.bob: 7}

    async def heard(key: str) -> set[int]:
        body: Json = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
        meta: Json = {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
            "progressToken": "the-same",
        }
        params: Json = {"name": "progress", "arguments": {"steps": steps[key], "pause": 0.02}, "_meta": meta}
        headers = {**ACCEPT, "MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "progress"}
        async with httpx2.AsyncClient(base_url=gateway.server.url, timeout=30) as http:
            answer = await http.post("/mcp/odd", json={**body, "params": params}, headers={**headers, "Authorization": f"Bearer {key}"})
        messages = [json.loads(line.removeprefix("data: ")) for line in answer.text.splitlines() if line.startswith("data: {")]
        return {int(each["params"]["total"]) for each in messages if each.get("method") == "notifications/progress"}

    told = await asyncio.gather(*(heard(key) for key in steps))

    assert told == [{3}, {7}]


async def test_no_key_cancels_the_call_of_another(gateway: GatewaySetup, tmp_path: Path) -> None:
    """Issue 14: notifications/cancelled counts within the client's own session, whatever request it names; D-36."""
    mine = {"Authorization": f"Bearer {gateway.ada}", **ACCEPT}
    theirs = {"Authorization": f"Bearer {gateway.bob}", **ACCEPT}
    opening: Json = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HELLO}
    call: Json = {
        "jsonrpc": "2.0",
        "id": 7,
        "method": "tools/call",
        "params": {"name": "slow", "arguments": {"seconds": 2, "mark": str(tmp_path / "mark")}},
    }
    cancel: Json = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}}
    async with httpx2.AsyncClient(base_url=gateway.server.url, timeout=30) as http:
        first, second = [
            {"Mcp-Session-Id": (await http.post("/mcp/odd", json=opening, headers=each)).headers["mcp-session-id"]}
            for each in (mine, theirs)
        ]
        running_call = asyncio.create_task(http.post("/mcp/odd", json=call, headers=mine | first))
        await eventually(lambda: _in_flight(gateway) > 0)
        refused = await http.post("/mcp/odd", json=cancel, headers=theirs | first)
        for number in (7, "7", *range((1 << 30) + 1, (1 << 30) + 30)):  # also the numbers that Rookery gives its own requests
            await http.post("/mcp/odd", json={**cancel, "params": {"requestId": number}}, headers=theirs | second)
        answer = await running_call

    assert refused.status_code == 404
    assert '"isError":true' not in answer.text
    assert '"result"' in answer.text


@pytest.mark.parametrize("server", ["older", "later"])
async def test_no_key_ends_the_subscription_of_another(gateway: GatewaySetup, server: str) -> None:
    """Issue 14: two keys hear of one resource by one subscription upstream; it ends with the last of them; D-36."""
    told: list[str] = []
    uri = "test://watched-resource"

    async def heard(message: object) -> None:
        if isinstance(message, types.ResourceUpdatedNotification):
            told.append(str(message.params.uri))

    subscribe = types.SubscribeRequest(params=types.SubscribeRequestParams(uri=uri))
    unsubscribe = types.UnsubscribeRequest(params=types.UnsubscribeRequestParams(uri=uri))
    async with client(gateway.server, f"/mcp/{server}", key=gateway.ada, mode="legacy", message_handler=heard) as first:
        await first.session.send_request(subscribe, types.EmptyResult)
        async with client(gateway.server, f"/mcp/{server}", key=gateway.bob, mode="legacy") as second:
            await second.session.send_request(unsubscribe, types.EmptyResult)
            await second.session.send_request(subscribe, types.EmptyResult)
            await second.session.send_request(unsubscribe, types.EmptyResult)
            await second.session.send_request(subscribe, types.EmptyResult)

        async def changed() -> bool:
            await first.call_tool("update_watched_resource", {})
            return bool(told)

        await eventually(changed)

    assert set(told) == {uri}


async def test_a_key_that_leaves_while_it_subscribes_takes_the_subscription_from_no_other(tmp_path: Path) -> None:
    """Issue 14: the second key was told that it hears of the resource while the first one's request was still under way; D-36."""
    gate, told = tmp_path / "gate", list[str | None]()
    command = CommandTarget(command=sys.executable, args=("-I", "-S", "-u", str(SERVERS / "subscribing.py"), str(gate)))
    connector = upstreams.open([])["stdio"]
    uri: Json = {"uri": "test://watched"}
    async with connector.connect(Entry(id="subscribing", name="subscribing", target=command), on_changed=lambda: None) as session:
        bob = RequestOptions(caller=make_caller(key_id="bob"), on_update=lambda _: None)
        ada = RequestOptions(caller=make_caller(key_id="ada"), on_update=told.append)
        leaving = asyncio.create_task(session.request("resources/subscribe", uri, bob))
        await asyncio.sleep(0)
        staying = asyncio.create_task(session.request("resources/subscribe", uri, ada))
        await asyncio.sleep(0)
        leaving.cancel()
        await asyncio.gather(leaving, return_exceptions=True)
        gate.touch()
        await staying
        await session.request("tools/call", {"name": "change", "arguments": {}}, RequestOptions(caller=make_caller()))

        await eventually(lambda: bool(told))

    assert told[0] == "test://watched"


async def test_no_key_goes_on_with_the_call_of_another(gateway: GatewaySetup) -> None:
    """Issue 14: a call that waits for its client's answers is found by its own key alone; D-36."""
    call: Json = {"name": "test_elicitation", "arguments": {"message": "Who?"}}
    first = await later(gateway.server, "tools/call", call, "/mcp/older-own", key=gateway.ada, elicitation={})
    result = cast("Json", first["result"])
    (name,) = cast("Json", result["inputRequests"])
    answers = {name: {"action": "accept", "content": {"username": "a", "email": "b"}}}
    go_on = {**call, "inputResponses": answers, "requestState": result["requestState"]}

    stolen = await later(gateway.server, "tools/call", go_on, "/mcp/older-own", key=gateway.bob, elicitation={})
    done = await later(gateway.server, "tools/call", go_on, "/mcp/older-own", key=gateway.ada, elicitation={})

    assert cast("Json", stolen["error"])["code"] == types.INVALID_PARAMS
    assert "action=accept" in str(done["result"])


def _as(gateway: GatewaySetup, key: str, server: str, person: _RecordingUser, mode: str) -> contextlib.AbstractAsyncContextManager[Client]:
    return client(gateway.server, f"/mcp/{server}", key=key, mode=mode, elicitation_callback=person.elicit, sampling_callback=person.sample)


async def _outcome(call: Awaitable[types.CallToolResult]) -> str:
    try:
        return str((await call).content)
    except MCPError as error:
        return error.message


def _in_flight(gateway: GatewaySetup) -> int:
    standing = gateway.server.client.get("/api/v1/mcp/servers/odd").json()["standing"]
    return int(standing["in_flight"])
