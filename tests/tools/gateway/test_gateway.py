"""Rookery as an MCP server, by real clients of both eras."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable
from pathlib import Path
from typing import cast

import httpx2
import mcp_types as types
import pytest
from mcp import Client, MCPError
from mcp.client.context import ClientRequestContext

from tests.conftest import eventually
from tests.deadlines import HANG_S
from tests.error_bodies import error_body
from tests.processes import Server
from tests.tools.gateway.clients import ERAS, Json, open_client, post_later

MESSAGE = {"jsonrpc": "2.0", "id": 1, "method": "initialize"}
HELLO: Json = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}


def _create_key(gateway: Server, *permissions: str, **fields: object) -> str:
    """Create a key; return it."""
    response = gateway.client.post(
        "/api/v1/agent-keys", json={"name": f"k{len(fields)}{'-'.join(permissions)}"[:60], "permissions": permissions, **fields}
    )
    assert response.status_code == 201, response.text
    return str(response.json()["key"])


@pytest.mark.parametrize("mode", ERAS)
async def test_features_of_all_servers_have_gateway_names(gateway: Server, mode: str) -> None:
    """/mcp has tools, prompts and resources of every server, and embedded links can be read."""
    async with open_client(gateway, mode=mode) as mcp:
        await _wait_all_listed(mcp)
        tools = [tool.name for tool in (await mcp.list_tools()).tools]
        result = await mcp.call_tool("odd__echo", {"text": "hello"})
        prompt = await mcp.get_prompt("odd__greet", {"who": "you"})
        uris = [str(resource.uri) for resource in (await mcp.list_resources()).resources]
        memo = await mcp.read_resource("odd://memo/insights")
        templates = [template.uri_template for template in (await mcp.list_resource_templates()).resource_templates]
        embedded = await mcp.call_tool("later__test_embedded_resource", {})

    assert {"odd__echo", "brain__recall", "later__test_simple_text", "older__test_simple_text"} <= set(tools)
    assert cast("types.TextContent", result.content[0]).text == "hello"
    assert "Hello you" in str(prompt.messages)
    assert {"odd://memo/insights", "later://test/static-text"} <= set(uris)
    assert str(memo.contents[0].uri) == "odd://memo/insights"
    assert "odd://demo/resource/{id}" in templates
    assert "later://test/embedded-resource" in str(embedded.content)


@pytest.mark.parametrize("mode", ERAS)
async def test_one_server_is_served_under_its_own_names(gateway: Server, mode: str) -> None:
    """/mcp/{server} serves one server with its own names and uris."""
    async with open_client(gateway, "/mcp/odd", mode=mode) as mcp:
        tools = [tool.name for tool in (await mcp.list_tools()).tools]
        result = await mcp.call_tool("echo", {"text": "hello"})
        uris = [str(resource.uri) for resource in (await mcp.list_resources()).resources]
        memo = await mcp.read_resource("memo://insights")

    assert "echo" in tools
    assert not any("__" in name for name in tools)
    assert cast("types.TextContent", result.content[0]).text == "hello"
    assert "memo://insights" in uris
    assert str(memo.contents[0].uri) == "memo://insights"


@pytest.mark.parametrize("mode", ERAS)
async def test_search_mode_finds_and_calls(gateway: Server, mode: str) -> None:
    """?mode=search serves find_tool and call_tool instead of all tools."""
    async with open_client(gateway, "/mcp?mode=search", mode=mode) as mcp:
        await _wait_all_listed_over_http(gateway)
        tools = [tool.name for tool in (await mcp.list_tools()).tools]
        search = await mcp.call_tool("find_tool", {"query": "say something again", "server": "odd"})
        result = await mcp.call_tool("call_tool", {"name": "odd__echo", "arguments": {"text": "hello"}})
        invalid = await mcp.call_tool("find_tool", {"limit": 5})
        mistaken = await mcp.call_tool("call_tool", {"name": "odd__ecko", "arguments": {"text": "hello"}})
        described = await mcp.call_tool("find_tool", {"query": "answer a question from memory", "server": "brain"})
        with pytest.raises(MCPError) as unknown:
            await mcp.call_tool("odd__echo", {"text": "hello"})

    assert tools == ["find_tool", "call_tool", "call_read_only_tool"]
    assert mistaken.is_error
    assert "find_tool" in cast("types.TextContent", mistaken.content[0]).text
    assert "outputSchema" not in cast("types.TextContent", described.content[0]).text
    assert not any("outputSchema" in tool for tool in cast("list[Json]", cast("Json", described.structured_content)["tools"]))
    matches = cast("list[Json]", cast("Json", search.structured_content)["tools"])
    assert "odd__echo" in [tool["name"] for tool in matches]
    assert all(tool["inputSchema"] for tool in matches)
    assert cast("types.TextContent", result.content[0]).text == "hello"
    assert invalid.is_error
    assert unknown.value.code == types.INVALID_PARAMS


@pytest.mark.parametrize("mode", ERAS)
async def test_failures_are_results_and_unknown_names_are_protocol_errors(gateway: Server, mode: str) -> None:
    """A failed or rejected call is a result with the reason; an unknown name is a protocol error."""
    reader = _create_key(gateway, "mcp:read")
    async with open_client(gateway, mode=mode) as mcp:
        await _wait_all_listed(mcp)
        invalid = await mcp.call_tool("odd__echo", {"txt": 1})
        failed = await mcp.call_tool("odd__error", {})
        with pytest.raises(MCPError) as no_tool:
            await mcp.call_tool("nowhere__echo", {})
        with pytest.raises(MCPError) as no_resource:
            await mcp.read_resource("odd://memo/nothing")
        with pytest.raises(MCPError) as no_prompt:
            await mcp.get_prompt("odd__insult", {})
    async with open_client(gateway, "/mcp/odd", mode=mode, key=reader) as mcp:
        forbidden = await mcp.call_tool("echo", {"text": "hello"})

    assert invalid.is_error
    assert "do not match" in cast("types.TextContent", invalid.content[0]).text
    assert failed.is_error
    assert no_tool.value.code == types.INVALID_PARAMS
    assert no_resource.value.code == (-32002 if mode == "legacy" else types.INVALID_PARAMS)
    assert cast("Json", no_resource.value.data) == {"uri": "odd://memo/nothing"}
    assert no_prompt.value.code == types.INVALID_PARAMS
    assert forbidden.is_error
    assert "mcp:write" in cast("types.TextContent", forbidden.content[0]).text


@pytest.mark.parametrize("mode", ERAS)
async def test_instructions_name_the_servers_of_the_key_and_when_to_use_them(gateway: Server, mode: str) -> None:
    """Clients that load tools on demand show the model the instructions alone."""
    key = _create_key(gateway, "mcp:read", "mcp:write", "brain:read")
    async with open_client(gateway, mode=mode, key=key) as mcp:
        await _wait_all_listed(mcp)
    async with open_client(gateway, mode=mode, key=key) as mcp:
        lines = (mcp.instructions or "").splitlines()

    assert any(line.startswith("- brain: ") and "Recall before you start a task" in line for line in lines)
    assert any(line.startswith("- odd: ") for line in lines)
    assert not any(line.startswith(("- agents:", "- content:", "- notify:", "- scoring:")) for line in lines)


@pytest.mark.parametrize("mode", ERAS)
async def test_a_key_without_tools_gets_an_error(gateway: Server, mode: str) -> None:
    """An empty list would look like servers without tools."""
    no_servers = _create_key(gateway, "mcp:read", "mcp:write", servers=["nothing-like-it"])
    scopeless = _create_key(gateway, "mcp:read", servers=["brain"])
    async with open_client(gateway, mode=mode) as mcp:  # until then, the instructions say that servers are starting
        await _wait_all_listed(mcp)
    for key, message in ((no_servers, "cannot use any tool server"), (scopeless, "brain:read")):
        async with open_client(gateway, mode=mode, key=key) as mcp:
            with pytest.raises(MCPError, match=message):
                await mcp.list_tools()

            assert message in (mcp.instructions or "")


@pytest.mark.parametrize("mode", ERAS)
async def test_progress_is_forwarded_and_leaving_cancels(gateway: Server, tmp_path: Path, mode: str) -> None:
    """Progress has the client's own token; a call that the client cancels is cancelled upstream."""
    received: list[float] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        received.append(progress)

    async with open_client(gateway, mode=mode) as mcp:
        await _wait_all_listed(mcp)
        await mcp.call_tool("odd__progress", {"steps": 3, "pause": 0.01}, progress_callback=on_progress)
        mark = tmp_path / "mark"
        slow = asyncio.create_task(mcp.call_tool("odd__slow", {"seconds": HANG_S, "mark": str(mark)}))
        await eventually(tmp_path.joinpath("mark.started").exists)
        slow.cancel()
        with pytest.raises(asyncio.CancelledError):
            await slow
        await eventually(mark.exists)
        row = await eventually(lambda: _find_latest_row(gateway, "slow"))

    assert len(received) == 3
    assert received == sorted(received)
    assert cast("Json", row)["code"] == "client_left"


@pytest.mark.parametrize("server", ["older", "later"])
@pytest.mark.parametrize("mode", ERAS)
async def test_server_requests_reach_the_client_across_eras(gateway: Server, mode: str, server: str) -> None:
    """Elicitation and sampling work between clients and servers of both eras."""
    messages: list[str] = []

    async def elicit(context: ClientRequestContext, params: types.ElicitRequestParams) -> types.ElicitResult:
        messages.append(params.message)
        return types.ElicitResult(action="accept", content={"username": "ada", "email": "ada@example.org"})

    async def sample(context: ClientRequestContext, params: types.CreateMessageRequestParams) -> types.CreateMessageResult:
        return types.CreateMessageResult(role="assistant", content=types.TextContent(type="text", text="Paris"), model="m")

    async with open_client(gateway, f"/mcp/{server}", mode=mode, elicitation_callback=elicit, sampling_callback=sample) as mcp:
        elicited = await mcp.call_tool("test_elicitation", {"message": "Who are you?"})
        sampled = await mcp.call_tool("test_sampling", {"prompt": "The capital of France?"})
    async with open_client(gateway, f"/mcp/{server}", mode=mode) as mcp:
        unsupported = await _failure_text(mcp.call_tool("test_elicitation", {"message": "Who are you?"}))

    assert messages == ["Who are you?"]
    assert "ada@example.org" in str(elicited.content)
    assert "Paris" in str(sampled.content)
    assert "support" in unsupported


async def test_a_waiting_call_continues_for_its_own_key_only(gateway: Server) -> None:
    """A call that waits for input is found by its requestState and its key; a forged or used state is rejected."""
    call: Json = {"name": "test_elicitation", "arguments": {"message": "Who?"}}
    first = await post_later(gateway, "tools/call", call, "/mcp/older", elicitation={})
    result = cast("Json", first["result"])
    (name,) = cast("Json", result["inputRequests"])
    answers = {name: {"action": "accept", "content": {"username": "a", "email": "b"}}}
    forged = await post_later(
        gateway, "tools/call", {**call, "inputResponses": answers, "requestState": "rookery:guess"}, "/mcp/older", elicitation={}
    )
    unanswered = await post_later(gateway, "tools/call", {**call, "requestState": result["requestState"]}, "/mcp/older", elicitation={})
    continuation = {**call, "inputResponses": answers, "requestState": result["requestState"]}
    completed = await post_later(gateway, "tools/call", continuation, "/mcp/older", elicitation={})
    repeated = await post_later(gateway, "tools/call", continuation, "/mcp/older", elicitation={})

    assert result["resultType"] == "input_required"
    assert cast("Json", forged["error"])["code"] == types.INVALID_PARAMS
    assert name in str(unanswered["error"])
    assert "action=accept" in str(completed["result"])
    assert cast("Json", repeated["error"])["code"] == types.INVALID_PARAMS


async def test_a_changed_list_is_announced_in_both_eras(gateway: Server) -> None:
    """list_changed on a session's stream, and on a stream of the later era that subscribed to it."""
    announced = asyncio.Event()

    async def on_message(message: object) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            announced.set()

    async with open_client(gateway, mode="legacy", message_handler=on_message) as older, open_client(gateway, "/mcp/later") as newer:
        await _wait_all_listed(older)
        async with newer.listen(tools_list_changed=True) as changes:
            await older.call_tool("later__test_trigger_tool_change", {})
            async with asyncio.timeout(HANG_S):
                async for _ in changes:
                    break
                await announced.wait()
        tools = [tool.name for tool in (await older.list_tools()).tools]

    assert "later__test_added_0" in tools


@pytest.mark.parametrize("server", ["older", "later"])
async def test_a_changed_resource_is_announced_to_subscribers(gateway: Server, server: str) -> None:
    """Subscriptions are forwarded for sessions and for streams, at servers of both eras."""
    updates: list[str] = []
    was_updated = asyncio.Event()
    uri = f"{server}://test/watched-resource"

    async def on_message(message: object) -> None:
        if isinstance(message, types.ResourceUpdatedNotification):
            updates.append(str(message.params.uri))
            was_updated.set()

    async with open_client(gateway, mode="legacy", message_handler=on_message) as older, open_client(gateway, f"/mcp/{server}") as newer:
        await _wait_all_listed(older)
        await older.session.send_request(types.SubscribeRequest(params=types.SubscribeRequestParams(uri=uri)), types.EmptyResult)
        async with newer.listen(resource_subscriptions=["test://watched-resource"]) as changes:
            # A stream upstream begins shortly after the response; earlier changes are not announced. Further changes wait for a while,
            # so that none is announced after the end of the subscription.
            async def is_announced() -> bool:
                await older.call_tool(f"{server}__update_watched_resource", {})
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(was_updated.wait(), 2)
                return bool(updates)

            await eventually(is_announced)
            async with asyncio.timeout(HANG_S):
                first = await anext(aiter(changes))
        await older.session.send_request(types.UnsubscribeRequest(params=types.UnsubscribeRequestParams(uri=uri)), types.EmptyResult)
        await older.call_tool(f"{server}__test_simple_text", {})
        count = len(updates)
        await older.call_tool(f"{server}__update_watched_resource", {})
        await older.call_tool(f"{server}__test_tool_with_progress", {})

    assert set(updates) == {uri}
    assert getattr(first, "uri", None) == "test://watched-resource"
    assert len(updates) == count


async def test_log_notices_respect_the_level_of_the_session(gateway: Server) -> None:
    """Logs are forwarded, in the older era by the session's level."""
    messages: list[str] = []

    async def log(params: types.LoggingMessageNotificationParams) -> None:
        messages.append(str(params.data))

    async with open_client(gateway, "/mcp/older", mode="legacy", logging_callback=log) as mcp:
        await mcp.call_tool("test_tool_with_logging", {})
        await eventually(lambda: len(messages) == 3)
        await mcp.session.send_request(types.SetLevelRequest(params=types.SetLevelRequestParams(level="error")), types.EmptyResult)
        await mcp.call_tool("test_tool_with_logging", {})

    assert len(messages) == 3


async def test_a_session_belongs_to_its_key(gateway: Server) -> None:
    """Another key or another path cannot use the session; DELETE ends it."""
    other = _create_key(gateway, "mcp:read", "mcp:write")
    accept = {"Accept": "application/json, text/event-stream"}
    own_headers = {"Authorization": f"Bearer {gateway.keys['agent_key']}", **accept}
    async with httpx2.AsyncClient(base_url=gateway.url, timeout=HANG_S) as http:
        opened = await http.post("/mcp", json={**MESSAGE, "params": HELLO}, headers=own_headers)
        session = {"Mcp-Session-Id": opened.headers["mcp-session-id"]}
        ping = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
        own = await http.post("/mcp", json=ping, headers=own_headers | session)
        other_key = await http.post("/mcp", json=ping, headers={"Authorization": f"Bearer {other}", **accept} | session)
        other_path = await http.post("/mcp/odd", json=ping, headers=own_headers | session)
        ended = await http.request("DELETE", "/mcp", headers=own_headers | session)
        after_end = await http.post("/mcp", json=ping, headers=own_headers | session)

    assert [response.status_code for response in (opened, own, other_key, other_path, ended, after_end)] == [200, 200, 404, 404, 200, 404]


async def test_an_invalid_message_is_rejected_with_an_error_body(gateway: Server) -> None:
    """Invalid bodies, foreign pages and unknown servers are rejected before the MCP server runs."""
    key = {"Authorization": f"Bearer {gateway.keys['agent_key']}"}
    message = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    async with httpx2.AsyncClient(base_url=gateway.url, headers=key, timeout=HANG_S) as http:
        responses = [
            await http.post("/mcp", content=b"{"),
            await http.post("/mcp", json=[message]),
            await http.post("/mcp", json={"id": 1}),
            await http.post("/mcp/nowhere", json=message),
            await http.post("/mcp", json=message, headers={"Origin": "https://evil.example"}),
            await http.post("/mcp?mode=all", json=message),
            await http.post("/mcp", json=message, headers={"Authorization": "Bearer nonsense"}),
        ]

    codes = [(response.status_code, error_body(response)["error"]) for response in responses]
    assert codes == [
        (400, "invalid_json"),
        (400, "invalid_request"),
        (400, "invalid_request"),
        (404, "server_not_found"),
        (403, "cross_site"),
        (422, "validation_error"),
        (401, "unauthorised"),
    ]


async def _wait_all_listed(mcp: Client) -> None:
    """Wait until every server was listed once; the list of all servers never waits."""

    async def are_listed() -> bool:
        tools = {tool.name.partition("__")[0] for tool in (await mcp.list_tools()).tools}
        return {"odd", "later", "older"} <= tools

    await eventually(are_listed)


async def _wait_all_listed_over_http(gateway: Server) -> None:
    for server in ("odd", "later", "older"):
        await asyncio.to_thread(gateway.client.get, f"/api/v1/mcp/servers/{server}")


def _find_latest_row(gateway: Server, tool: str) -> Json | None:
    body = gateway.client.get("/api/agent/tools/calls").json()
    rows = cast("list[Json]", body["data"])
    return next((row for row in rows if row["tool"] == tool), None)


async def _failure_text(call: Awaitable[types.CallToolResult]) -> str:
    """Return the error text of a failed call, from its result or from its error."""
    try:
        result = await call
    except (MCPError, RuntimeError) as error:
        return str(error)
    assert result.is_error
    return json.dumps([block.model_dump(mode="json") for block in result.content])
