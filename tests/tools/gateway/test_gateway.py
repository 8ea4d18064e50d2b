"""Rookery as an MCP server, by real clients of both eras."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable
from typing import cast

import httpx2
import mcp_types as types
import pytest
from mcp import Client, MCPError
from mcp.client.context import ClientRequestContext

from tests.conftest import eventually
from tests.error_bodies import error_body
from tests.processes import Server
from tests.tools.gateway.clients import ERAS, Json, client, later

MESSAGE = {"jsonrpc": "2.0", "id": 1, "method": "initialize"}
HELLO: Json = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}


def _made(gateway: Server, *permissions: str, **fields: object) -> str:
    """Make a key; return it."""
    answer = gateway.client.post(
        "/api/v1/agent-keys", json={"name": f"k{len(fields)}{'-'.join(permissions)}"[:60], "permissions": permissions, **fields}
    )
    assert answer.status_code == 201, answer.text
    return str(answer.json()["key"])


@pytest.mark.parametrize("mode", ERAS)
async def test_all_servers_stand_side_by_side(gateway: Server, mode: str) -> None:
    """D-36, D-30: tools, prompts and resources of every server by the gateway's names; what they link to can be read."""
    async with client(gateway, mode=mode) as mcp:
        await _all_seen(mcp)
        tools = [tool.name for tool in (await mcp.list_tools()).tools]
        said = await mcp.call_tool("odd__echo", {"text": "hello"})
        prompt = await mcp.get_prompt("odd__greet", {"who": "you"})
        uris = [str(each.uri) for each in (await mcp.list_resources()).resources]
        memo = await mcp.read_resource("odd://memo/insights")
        templates = [each.uri_template for each in (await mcp.list_resource_templates()).resource_templates]
        embedded = await mcp.call_tool("later__test_embedded_resource", {})

    assert {"odd__echo", "brain__recall", "later__test_simple_text", "older__test_simple_text"} <= set(tools)
    assert cast("types.TextContent", said.content[0]).text == "hello"
    assert "Hello you" in str(prompt.messages)
    assert {"odd://memo/insights", "later://test/static-text"} <= set(uris)
    assert str(memo.contents[0].uri) == "odd://memo/insights"
    assert "odd://demo/resource/{id}" in templates
    assert "later://test/embedded-resource" in str(embedded.content)


@pytest.mark.parametrize("mode", ERAS)
async def test_one_server_speaks_by_its_own_names(gateway: Server, mode: str) -> None:
    """D-36: /mcp/{server} serves one server with its own names and uris."""
    async with client(gateway, "/mcp/odd", mode=mode) as mcp:
        tools = [tool.name for tool in (await mcp.list_tools()).tools]
        said = await mcp.call_tool("echo", {"text": "hello"})
        uris = [str(each.uri) for each in (await mcp.list_resources()).resources]
        memo = await mcp.read_resource("memo://insights")

    assert "echo" in tools
    assert not any("__" in name for name in tools)
    assert cast("types.TextContent", said.content[0]).text == "hello"
    assert "memo://insights" in uris
    assert str(memo.contents[0].uri) == "memo://insights"


@pytest.mark.parametrize("mode", ERAS)
async def test_search_mode_finds_and_calls(gateway: Server, mode: str) -> None:
    """D-36: ?mode=search serves find_tool and call_tool in the place of all tools."""
    async with client(gateway, "/mcp?mode=search", mode=mode) as mcp:
        await _all_seen_by_rest(gateway)
        tools = [tool.name for tool in (await mcp.list_tools()).tools]
        found = await mcp.call_tool("find_tool", {"query": "say something again", "server": "odd"})
        said = await mcp.call_tool("call_tool", {"name": "odd__echo", "arguments": {"text": "hello"}})
        wrong = await mcp.call_tool("find_tool", {"limit": 5})
        with pytest.raises(MCPError) as unknown:
            await mcp.call_tool("odd__echo", {"text": "hello"})

    assert tools == ["find_tool", "call_tool"]
    listed = cast("list[Json]", cast("Json", found.structured_content)["tools"])
    assert "odd__echo" in [each["name"] for each in listed]
    assert all(each["inputSchema"] for each in listed)
    assert cast("types.TextContent", said.content[0]).text == "hello"
    assert wrong.is_error
    assert unknown.value.code == types.INVALID_PARAMS


@pytest.mark.parametrize("mode", ERAS)
async def test_failures_are_for_the_model_and_mistakes_for_the_client(gateway: Server, mode: str) -> None:
    """D-36, D-34: what a tool or the platform refuses is a result that says why; what does not exist is an error of the protocol."""
    reader = _made(gateway, "mcp:read")
    async with client(gateway, mode=mode) as mcp:
        await _all_seen(mcp)
        misfit = await mcp.call_tool("odd__echo", {"txt": 1})
        failed = await mcp.call_tool("odd__error", {})
        with pytest.raises(MCPError) as no_tool:
            await mcp.call_tool("nowhere__echo", {})
        with pytest.raises(MCPError) as no_resource:
            await mcp.read_resource("odd://memo/nothing")
        with pytest.raises(MCPError) as no_prompt:
            await mcp.get_prompt("odd__insult", {})
    async with client(gateway, "/mcp/odd", mode=mode, key=reader) as mcp:
        may_not = await mcp.call_tool("echo", {"text": "hello"})

    assert misfit.is_error
    assert "do not match" in cast("types.TextContent", misfit.content[0]).text
    assert failed.is_error
    assert no_tool.value.code == types.INVALID_PARAMS
    assert no_resource.value.code == (-32002 if mode == "legacy" else types.INVALID_PARAMS)
    assert cast("Json", no_resource.value.data) == {"uri": "odd://memo/nothing"}
    assert no_prompt.value.code == types.INVALID_PARAMS
    assert may_not.is_error
    assert "mcp:write" in cast("types.TextContent", may_not.content[0]).text


@pytest.mark.parametrize("mode", ERAS)
async def test_a_key_that_sees_no_tool_is_told_so(gateway: Server, mode: str) -> None:
    """D-36: not an empty list, which looks like servers without tools (the complaint of litellm's users)."""
    blind = _made(gateway, "mcp:read", "mcp:write", servers=["nothing-like-it"])
    scopeless = _made(gateway, "mcp:read", servers=["brain"])
    for key, said in ((blind, "cannot use any tool server"), (scopeless, "brain:read")):
        async with client(gateway, mode=mode, key=key) as mcp:
            with pytest.raises(MCPError, match=said):
                await mcp.list_tools()

            assert said in (mcp.instructions or "")


@pytest.mark.parametrize("mode", ERAS)
async def test_progress_comes_through_and_leaving_cancels(gateway: Server, mode: str) -> None:
    """D-36: progress of the upstream's, with the client's own token; a call that the client gives up is cancelled upstream."""
    heard: list[float] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        heard.append(progress)

    async with client(gateway, mode=mode) as mcp:
        await _all_seen(mcp)
        await mcp.call_tool("odd__progress", {"steps": 3, "pause": 0.01}, progress_callback=on_progress)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await mcp.call_tool("odd__slow", {"seconds": 60, "mark": ""})
        row = await eventually(lambda: _latest(gateway, "slow"))

    assert len(heard) == 3
    assert heard == sorted(heard)
    assert cast("Json", row)["code"] == "client_left"


@pytest.mark.parametrize("server", ["older", "later"])
@pytest.mark.parametrize("mode", ERAS)
async def test_what_a_server_asks_reaches_the_client_in_whichever_era(gateway: Server, mode: str, server: str) -> None:
    """D-36: elicitation and sampling, between clients and servers of both eras, each as its own era does it."""
    asked: list[str] = []

    async def elicit(context: ClientRequestContext, params: types.ElicitRequestParams) -> types.ElicitResult:
        asked.append(params.message)
        return types.ElicitResult(action="accept", content={"username": "ada", "email": "ada@example.org"})

    async def sample(context: ClientRequestContext, params: types.CreateMessageRequestParams) -> types.CreateMessageResult:
        return types.CreateMessageResult(role="assistant", content=types.TextContent(type="text", text="Paris"), model="m")

    async with client(gateway, f"/mcp/{server}", mode=mode, elicitation_callback=elicit, sampling_callback=sample) as mcp:
        told = await mcp.call_tool("test_elicitation", {"message": "Who are you?"})
        sampled = await mcp.call_tool("test_sampling", {"prompt": "The capital of France?"})
    async with client(gateway, f"/mcp/{server}", mode=mode) as mcp:
        unable = await _failure(mcp.call_tool("test_elicitation", {"message": "Who are you?"}))

    assert asked == ["Who are you?"]
    assert "ada@example.org" in str(told.content)
    assert "Paris" in str(sampled.content)
    assert "support" in unable


async def test_a_waiting_call_goes_on_for_its_own_key_alone(gateway: Server) -> None:
    """D-36: a call that waits for input is found by its requestState and its key; a made-up or used state is refused."""
    call: Json = {"name": "test_elicitation", "arguments": {"message": "Who?"}}
    first = await later(gateway, "tools/call", call, "/mcp/older", elicitation={})
    result = cast("Json", first["result"])
    (name,) = cast("Json", result["inputRequests"])
    answers = {name: {"action": "accept", "content": {"username": "a", "email": "b"}}}
    made_up = await later(
        gateway, "tools/call", {**call, "inputResponses": answers, "requestState": "rookery:guess"}, "/mcp/older", elicitation={}
    )
    unanswered = await later(gateway, "tools/call", {**call, "requestState": result["requestState"]}, "/mcp/older", elicitation={})
    go_on = {**call, "inputResponses": answers, "requestState": result["requestState"]}
    done = await later(gateway, "tools/call", go_on, "/mcp/older", elicitation={})
    again = await later(gateway, "tools/call", go_on, "/mcp/older", elicitation={})

    assert result["resultType"] == "input_required"
    assert cast("Json", made_up["error"])["code"] == types.INVALID_PARAMS
    assert name in str(unanswered["error"])
    assert "action=accept" in str(done["result"])
    assert cast("Json", again["error"])["code"] == types.INVALID_PARAMS


async def test_a_changed_list_is_told_in_both_eras(gateway: Server) -> None:
    """D-36: list_changed on a session's stream, and on a stream of the later era that asked for it."""
    told = asyncio.Event()

    async def heard(message: object) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            told.set()

    async with client(gateway, mode="legacy", message_handler=heard) as older, client(gateway, "/mcp/later") as newer:
        await _all_seen(older)
        async with newer.listen(tools_list_changed=True) as changes:
            await older.call_tool("later__test_trigger_tool_change", {})
            async with asyncio.timeout(20):
                async for _ in changes:
                    break
                await told.wait()
        tools = [tool.name for tool in (await older.list_tools()).tools]

    assert "later__test_added_0" in tools


@pytest.mark.parametrize("server", ["older", "later"])
async def test_a_changed_resource_is_told_to_who_subscribed(gateway: Server, server: str) -> None:
    """D-36: subscriptions passed through: of a session, and of a stream of the later era, at servers of both."""
    told: list[str] = []
    uri = f"{server}://test/watched-resource"

    async def heard(message: object) -> None:
        if isinstance(message, types.ResourceUpdatedNotification):
            told.append(str(message.params.uri))

    async with client(gateway, mode="legacy", message_handler=heard) as older, client(gateway, f"/mcp/{server}") as newer:
        await _all_seen(older)
        await older.session.send_request(types.SubscribeRequest(params=types.SubscribeRequestParams(uri=uri)), types.EmptyResult)
        async with newer.listen(resource_subscriptions=["test://watched-resource"]) as changes:
            # A stream upstream begins a little after the answer; what changed before is for nobody.
            async def changed() -> bool:
                await older.call_tool(f"{server}__update_watched_resource", {})
                return bool(told)

            await eventually(changed)
            async with asyncio.timeout(20):
                first = await anext(aiter(changes))
        await older.session.send_request(types.UnsubscribeRequest(params=types.UnsubscribeRequestParams(uri=uri)), types.EmptyResult)
        await older.call_tool(f"{server}__test_simple_text", {})
        count = len(told)
        await older.call_tool(f"{server}__update_watched_resource", {})
        await older.call_tool(f"{server}__test_tool_with_progress", {})

    assert set(told) == {uri}
    assert getattr(first, "uri", None) == "test://watched-resource"
    assert len(told) == count


async def test_log_notices_come_from_the_level_on_that_was_asked_for(gateway: Server) -> None:
    """D-36: logging passed through, in the older era by the session's level."""
    heard: list[str] = []

    async def log(params: types.LoggingMessageNotificationParams) -> None:
        heard.append(str(params.data))

    async with client(gateway, "/mcp/older", mode="legacy", logging_callback=log) as mcp:
        await mcp.call_tool("test_tool_with_logging", {})
        await eventually(lambda: len(heard) == 3)
        await mcp.session.send_request(types.SetLevelRequest(params=types.SetLevelRequestParams(level="error")), types.EmptyResult)
        await mcp.call_tool("test_tool_with_logging", {})

    assert len(heard) == 3


async def test_a_session_is_its_keys_own(gateway: Server) -> None:
    """D-36: to another key, or at another address, the session is not there; DELETE ends it."""
    other = _made(gateway, "mcp:read", "mcp:write")
    accept = {"Accept": "application/json, text/event-stream"}
    mine = {"Authorization": f"Bearer {gateway.keys['agent_key']}", **accept}
    async with httpx2.AsyncClient(base_url=gateway.url, timeout=30) as http:
        opened = await http.post("/mcp", json={**MESSAGE, "params": HELLO}, headers=mine)
        session = {"Mcp-Session-Id": opened.headers["mcp-session-id"]}
        ping = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
        ours = await http.post("/mcp", json=ping, headers=mine | session)
        theirs = await http.post("/mcp", json=ping, headers={"Authorization": f"Bearer {other}", **accept} | session)
        elsewhere = await http.post("/mcp/odd", json=ping, headers=mine | session)
        ended = await http.request("DELETE", "/mcp", headers=mine | session)
        gone = await http.post("/mcp", json=ping, headers=mine | session)

    assert [each.status_code for each in (opened, ours, theirs, elsewhere, ended, gone)] == [200, 200, 404, 404, 200, 404]


async def test_what_is_no_message_is_refused_in_the_platforms_words(gateway: Server) -> None:
    """D-36, D-10, D-16: bodies are read as strictly as anywhere; foreign pages and unknown servers are refused before the protocol."""
    key = {"Authorization": f"Bearer {gateway.keys['agent_key']}"}
    message = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    async with httpx2.AsyncClient(base_url=gateway.url, headers=key, timeout=30) as http:
        answers = [
            await http.post("/mcp", content=b"{"),
            await http.post("/mcp", json=[message]),
            await http.post("/mcp", json={"id": 1}),
            await http.post("/mcp/nowhere", json=message),
            await http.post("/mcp", json=message, headers={"Origin": "https://evil.example"}),
            await http.post("/mcp?mode=all", json=message),
            await http.post("/mcp", json=message, headers={"Authorization": "Bearer nonsense"}),
        ]

    codes = [(each.status_code, error_body(each)["error"]) for each in answers]
    assert codes == [
        (400, "invalid_json"),
        (400, "invalid_request"),
        (400, "invalid_request"),
        (404, "server_not_found"),
        (403, "cross_site"),
        (422, "validation_error"),
        (401, "unauthorised"),
    ]


async def _all_seen(mcp: Client) -> None:
    """Wait until every server was seen once: what is listed for all is never waited for."""

    async def seen() -> bool:
        tools = {tool.name.partition("__")[0] for tool in (await mcp.list_tools()).tools}
        return {"odd", "later", "older"} <= tools

    await eventually(seen, within_s=30)


async def _all_seen_by_rest(gateway: Server) -> None:
    for server in ("odd", "later", "older"):
        await asyncio.to_thread(gateway.client.get, f"/api/v1/mcp/servers/{server}")


def _latest(gateway: Server, tool: str) -> Json | None:
    answer = gateway.client.get("/api/agent/tools/calls").json()
    rows = cast("list[Json]", answer["data"])
    return next((row for row in rows if row["tool"] == tool), None)


async def _failure(call: Awaitable[types.CallToolResult]) -> str:
    """Return how a call failed, as a result or as an error."""
    try:
        result = await call
    except (MCPError, RuntimeError) as error:
        return str(error)
    assert result.is_error
    return json.dumps([each.model_dump(mode="json") for each in result.content])
