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
from tests.deadlines import HANG_S
from tests.processes import Server, run_server
from tests.tools.gateway.clients import ERAS, Json, open_client, post_later
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
    """The user of a client, which records requests and answers with its name."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.messages: list[str] = []

    async def elicit(self, context: ClientRequestContext, params: types.ElicitRequestParams) -> types.ElicitResult:
        """Answer an elicitation."""
        del context
        self.messages.append(params.message)
        return types.ElicitResult(action="accept", content={"username": self.name, "email": f"{self.name}@example.org"})

    async def sample(self, context: ClientRequestContext, params: types.CreateMessageRequestParams) -> types.CreateMessageResult:
        """Answer a sampling request as a model."""
        del context
        self.messages.append(str(params.messages))
        return types.CreateMessageResult(role="assistant", content=types.TextContent(type="text", text=self.name), model="m")


@pytest.mark.parametrize("mode", ERAS)
async def test_requests_of_an_older_server_reach_no_key_of_a_shared_session(gateway: GatewaySetup, mode: str) -> None:
    """Sampling and elicitation never go to another key."""
    ada, bob = _RecordingUser("ada"), _RecordingUser("bob")
    shared: list[str] = []
    async with _open_as(gateway, gateway.ada, "older", ada, mode) as first, _open_as(gateway, gateway.bob, "older", bob, mode) as second:
        for mcp in (first, second):
            await mcp.call_tool("test_simple_text", {})
        for mcp in (first, second):
            shared.append(await _result_text(mcp.call_tool("test_elicitation", {"message": "Who?"})))
            shared.append(await _result_text(mcp.call_tool("test_sampling", {"prompt": "Who?"})))
    async with (
        _open_as(gateway, gateway.ada, "older-own", ada, mode) as first,
        _open_as(gateway, gateway.bob, "older-own", bob, mode) as second,
    ):
        own = [await _result_text(mcp.call_tool("test_sampling", {"prompt": prompt})) for mcp, prompt in ((first, "a"), (second, "b"))]

    assert all("isolation" in outcome for outcome in shared)
    assert len(ada.messages) == len(bob.messages) == 1
    assert "ada" in own[0]
    assert "bob" in own[1]


@pytest.mark.parametrize("mode", ERAS)
async def test_requests_of_a_later_server_reach_the_caller_of_their_call(gateway: GatewaySetup, mode: str) -> None:
    """In 2026-07-28 each server request belongs to a call, so concurrent keys get their own requests."""
    ada, bob = _RecordingUser("ada"), _RecordingUser("bob")
    async with _open_as(gateway, gateway.ada, "later", ada, mode) as first, _open_as(gateway, gateway.bob, "later", bob, mode) as second:
        results = await asyncio.gather(
            *(
                mcp.call_tool("test_elicitation", {"message": name})
                for mcp, name in ((first, "for ada"), (second, "for bob"))
                for _ in range(5)
            )
        )

    assert set(ada.messages) == {"for ada"}
    assert set(bob.messages) == {"for bob"}
    assert ["ada@" in str(result.content) for result in results] == [True] * 5 + [False] * 5
    assert ["bob@" in str(result.content) for result in results] == [False] * 5 + [True] * 5


async def test_the_capabilities_of_a_client_apply_to_its_own_calls(gateway: GatewaySetup) -> None:
    """The capabilities of one client are never announced for another."""
    with_sampling, without_sampling = await asyncio.gather(
        post_later(
            gateway.server, "tools/call", {"name": "test_missing_capability", "arguments": {}}, "/mcp/later", key=gateway.ada, sampling={}
        ),
        post_later(gateway.server, "tools/call", {"name": "test_missing_capability", "arguments": {}}, "/mcp/later", key=gateway.bob),
    )

    assert "result" in with_sampling
    assert "error" in without_sampling


async def test_the_log_level_of_one_key_changes_nothing_for_another(gateway: GatewaySetup) -> None:
    """logging/setLevel applies to the client's own session and is not forwarded."""
    notices: dict[str, list[str]] = {"ada": [], "bob": []}

    def record_log(name: str) -> object:
        async def log(params: types.LoggingMessageNotificationParams) -> None:
            notices[name].append(str(params.data))

        return log

    async with (
        open_client(gateway.server, "/mcp/older-own", key=gateway.ada, mode="legacy", logging_callback=record_log("ada")) as first,
        open_client(gateway.server, "/mcp/older-own", key=gateway.bob, mode="legacy", logging_callback=record_log("bob")) as second,
    ):
        await second.session.send_request(types.SetLevelRequest(params=types.SetLevelRequestParams(level="emergency")), types.EmptyResult)
        await asyncio.gather(*(mcp.call_tool("test_tool_with_logging", {}) for mcp in (first, second)))
        await eventually(lambda: len(notices["ada"]) == 3)

    assert not notices["bob"]


async def test_log_notices_reach_no_key_of_a_shared_session(gateway: GatewaySetup) -> None:
    """A log does not name its call, so in a shared session it could reach the wrong key."""
    notices: list[str] = []

    async def log(params: types.LoggingMessageNotificationParams) -> None:
        notices.append(str(params.data))

    async with open_client(gateway.server, "/mcp/older", key=gateway.ada, mode="legacy") as first:
        await first.call_tool("test_simple_text", {})
    async with open_client(gateway.server, "/mcp/older", key=gateway.bob, mode="legacy", logging_callback=log) as second:
        await second.call_tool("test_tool_with_logging", {})
        await second.call_tool("test_simple_text", {})
    async with open_client(gateway.server, "/mcp/older-own", key=gateway.bob, mode="legacy", logging_callback=log) as own:
        await own.call_tool("test_tool_with_logging", {})
        await eventually(lambda: len(notices) == 3)

    assert len(notices) == 3


async def test_progress_reaches_the_call_that_requested_it(gateway: GatewaySetup) -> None:
    """Two keys may choose the same progress token; each gets the progress of its own call."""
    steps = {gateway.ada: 3, gateway.bob: 7}

    async def load_totals(key: str) -> set[int]:
        body: Json = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
        meta: Json = {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
            "progressToken": "the-same",
        }
        params: Json = {"name": "progress", "arguments": {"steps": steps[key], "pause": 0.02}, "_meta": meta}
        headers = {**ACCEPT, "MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "progress"}
        async with httpx2.AsyncClient(base_url=gateway.server.url, timeout=HANG_S) as http:
            response = await http.post("/mcp/odd", json={**body, "params": params}, headers={**headers, "Authorization": f"Bearer {key}"})
        messages = [json.loads(line.removeprefix("data: ")) for line in response.text.splitlines() if line.startswith("data: {")]
        return {int(message["params"]["total"]) for message in messages if message.get("method") == "notifications/progress"}

    totals = await asyncio.gather(*(load_totals(key) for key in steps))

    assert totals == [{3}, {7}]


async def test_no_key_cancels_the_call_of_another(gateway: GatewaySetup, tmp_path: Path) -> None:
    """notifications/cancelled applies within the client's own session only."""
    own_headers = {"Authorization": f"Bearer {gateway.ada}", **ACCEPT}
    other_headers = {"Authorization": f"Bearer {gateway.bob}", **ACCEPT}
    opening: Json = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HELLO}
    call: Json = {
        "jsonrpc": "2.0",
        "id": 7,
        "method": "tools/call",
        "params": {"name": "slow", "arguments": {"seconds": HANG_S, "mark": str(tmp_path / "mark")}},
    }
    cancel: Json = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}}
    async with httpx2.AsyncClient(base_url=gateway.server.url, timeout=HANG_S) as http:
        first, second = [
            {"Mcp-Session-Id": (await http.post("/mcp/odd", json=opening, headers=headers)).headers["mcp-session-id"]}
            for headers in (own_headers, other_headers)
        ]
        running_call = asyncio.create_task(http.post("/mcp/odd", json=call, headers=own_headers | first))
        await eventually(tmp_path.joinpath("mark.started").exists)
        rejected = await http.post("/mcp/odd", json=cancel, headers=other_headers | first)
        for number in (7, "7", *range((1 << 30) + 1, (1 << 30) + 30)):  # also the numbers that Rookery gives its own requests
            await http.post("/mcp/odd", json={**cancel, "params": {"requestId": number}}, headers=other_headers | second)
        tmp_path.joinpath("mark.end").touch()
        response = await running_call

    assert rejected.status_code == 404
    assert '"isError":true' not in response.text
    assert '"result"' in response.text


@pytest.mark.parametrize("server", ["older", "later"])
async def test_no_key_ends_the_subscription_of_another(gateway: GatewaySetup, server: str) -> None:
    """Two keys share one upstream subscription, which ends with the last of them."""
    updates: list[str] = []
    uri = "test://watched-resource"

    async def on_message(message: object) -> None:
        if isinstance(message, types.ResourceUpdatedNotification):
            updates.append(str(message.params.uri))

    subscribe = types.SubscribeRequest(params=types.SubscribeRequestParams(uri=uri))
    unsubscribe = types.UnsubscribeRequest(params=types.UnsubscribeRequestParams(uri=uri))
    async with open_client(gateway.server, f"/mcp/{server}", key=gateway.ada, mode="legacy", message_handler=on_message) as first:
        await first.session.send_request(subscribe, types.EmptyResult)
        async with open_client(gateway.server, f"/mcp/{server}", key=gateway.bob, mode="legacy") as second:
            await second.session.send_request(unsubscribe, types.EmptyResult)
            await second.session.send_request(subscribe, types.EmptyResult)
            await second.session.send_request(unsubscribe, types.EmptyResult)
            await second.session.send_request(subscribe, types.EmptyResult)

        async def is_announced() -> bool:
            await first.call_tool("update_watched_resource", {})
            return bool(updates)

        await eventually(is_announced)

    assert set(updates) == {uri}


async def test_a_key_that_leaves_while_subscribing_does_not_end_the_subscription_of_another(tmp_path: Path) -> None:
    """The second key subscribes while the request of the first, which then leaves, is still pending."""
    gate, updates = tmp_path / "gate", list[str | None]()
    command = CommandTarget(command=sys.executable, args=("-I", "-S", "-u", str(SERVERS / "subscribing.py"), str(gate)))
    connector = upstreams.open([])["stdio"]
    uri: Json = {"uri": "test://watched"}
    async with connector.connect(Entry(id="subscribing", name="subscribing", target=command), on_changed=lambda: None) as session:
        bob = RequestOptions(caller=make_caller(key_id="bob"), on_update=lambda _: None)
        ada = RequestOptions(caller=make_caller(key_id="ada"), on_update=updates.append)
        leaving = asyncio.create_task(session.request("resources/subscribe", uri, bob))
        await asyncio.sleep(0)
        staying = asyncio.create_task(session.request("resources/subscribe", uri, ada))
        await asyncio.sleep(0)
        leaving.cancel()
        await asyncio.gather(leaving, return_exceptions=True)
        gate.touch()
        await staying
        await session.request("tools/call", {"name": "change", "arguments": {}}, RequestOptions(caller=make_caller()))

        await eventually(lambda: bool(updates))

    assert updates[0] == "test://watched"


async def test_no_key_continues_the_call_of_another(gateway: GatewaySetup) -> None:
    """A call that waits for input is found by its own key only."""
    call: Json = {"name": "test_elicitation", "arguments": {"message": "Who?"}}
    first = await post_later(gateway.server, "tools/call", call, "/mcp/older-own", key=gateway.ada, elicitation={})
    result = cast("Json", first["result"])
    (name,) = cast("Json", result["inputRequests"])
    answers = {name: {"action": "accept", "content": {"username": "a", "email": "b"}}}
    continuation = {**call, "inputResponses": answers, "requestState": result["requestState"]}

    stolen = await post_later(gateway.server, "tools/call", continuation, "/mcp/older-own", key=gateway.bob, elicitation={})
    completed = await post_later(gateway.server, "tools/call", continuation, "/mcp/older-own", key=gateway.ada, elicitation={})

    assert cast("Json", stolen["error"])["code"] == types.INVALID_PARAMS
    assert "action=accept" in str(completed["result"])


def _open_as(
    gateway: GatewaySetup, key: str, server: str, person: _RecordingUser, mode: str
) -> contextlib.AbstractAsyncContextManager[Client]:
    return open_client(
        gateway.server, f"/mcp/{server}", key=key, mode=mode, elicitation_callback=person.elicit, sampling_callback=person.sample
    )


async def _result_text(call: Awaitable[types.CallToolResult]) -> str:
    try:
        return str((await call).content)
    except MCPError as error:
        return error.message
