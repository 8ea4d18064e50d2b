"""The routes of tool servers through the whole application."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, MutableMapping
from urllib.parse import quote

import pytest

from rookery.access.models import KeyRestrictions
from rookery.kernel.config import Settings
from rookery.tools.store import calls as store
from tests.conftest import Instance, eventually, run_instance
from tests.deadlines import HANG_S
from tests.tools.makers import make_odd_entry

pytestmark = pytest.mark.embedded_store  # test_catalogue.py covers the differences between dialects

BASE = "/api/v1/mcp"


@pytest.fixture
async def instance(settings: Settings) -> AsyncIterator[Instance]:
    """A running server with two tool servers, one of them deprecated."""
    servers = {
        "odd": make_odd_entry(tagline="Misbehaves", related_servers=["old", "theirs"]),
        "old": make_odd_entry(status="deprecated"),
        "gone": {"command": "no-such-program"},
        "theirs": {"command": "no-such-program", "workspaces": [999]},
    }
    settings.servers_file.write_text(json.dumps({"mcpServers": servers}))
    async with run_instance(settings) as instance:
        yield instance


async def test_the_catalogue_has_the_field_names_of_the_specification(instance: Instance) -> None:
    """The catalogue has the field names of the specification."""
    key = await instance.api_key("mcp:read", "brain:read")

    server = (await key.get(f"{BASE}/servers/odd")).json()
    listing = (await key.get(f"{BASE}/servers")).json()
    tools = (await key.get(f"{BASE}/servers/odd/tools")).json()
    resources = (await key.get(f"{BASE}/servers/odd/resources")).json()
    templates = (await key.get(f"{BASE}/servers/odd/resource-templates")).json()
    prompts = (await key.get(f"{BASE}/servers/odd/prompts")).json()
    old = await key.get(f"{BASE}/servers/old")

    assert {(entry["id"], entry["status"]) for entry in listing["servers"]} >= {
        ("odd", "available"),
        ("old", "deprecated"),
        ("brain", "available"),
    }
    assert listing["count"] == len(listing["servers"])
    odd = next(entry for entry in listing["servers"] if entry["id"] == "odd")
    assert (odd["tagline"], odd["resource_count"], odd["health"]) == ("Misbehaves", 5, "online")
    assert {"id", "name", "tagline", "description", "tools", "resources"} <= set(server)
    assert tools["server"] == "odd"
    assert tools["tools"] == server["tools"]
    assert tools["count"] == odd["tool_count"] == len(tools["tools"]) > 16
    assert {"name", "description", "inputSchema"} <= set(tools["tools"][0])
    assert resources["count"] == 5
    assert resources["resources"][0] == {"uri": "odd://memo/insights", "name": "Insights", "mimeType": "text/plain"}
    assert templates["resource_templates"][0]["uriTemplate"] == "odd://demo/resource/{id}"
    assert prompts["prompts"][0]["name"] == "greet"
    assert old.headers["deprecation"].startswith("@")
    assert (await key.get(f"{BASE}/servers/none")).json()["error"] == "server_not_found"


async def test_a_call_returns_the_specified_fields_and_writes_a_row(instance: Instance) -> None:
    """A call returns the fields of the specification and writes one row."""
    key = await instance.api_key("mcp:write")
    session = str((await instance.admin.post("/api/agent/sessions", {"agent_type": "tester"})).json()["session"]["id"])

    response = await key.post(
        f"{BASE}/tools/call", {"server": "odd", "tool": "echo", "arguments": {"text": "hi"}}, **{"X-Session-ID": session}
    )
    direct = await key.post(f"{BASE}/servers/odd/tools/echo", {"text": "hi"})
    sessionless = await key.post(f"{BASE}/tools/call", {"server": "odd", "tool": "pid"})

    duration = response.json()["duration_ms"]
    assert isinstance(duration, int)
    result = {"content": [{"type": "text", "text": "hi"}], "structuredContent": {"text": "hi"}, "isError": False}
    assert response.json() == {"success": True, "server": "odd", "tool": "echo", "result": result, "duration_ms": duration}
    assert direct.json()["result"] == result
    assert sessionless.status_code == 200
    await instance.rookery.tools.call_log.flush()
    rows = await instance.rookery.db.read(lambda tx: store.CALLS.find_all(tx, instance.workspace_id, "-called_at", "-id"))
    assert [(row.tool, row.session_id, row.key_id, row.success) for row in rows] == [
        ("pid", None, key.key_id, True),
        ("echo", None, key.key_id, True),
        ("echo", session, key.key_id, True),
    ]
    assert all(row.upstream_ms is not None and 0 < row.upstream_ms < row.duration_ms for row in rows)


@pytest.mark.parametrize(
    ("body", "status", "code", "names"),
    [
        ("{", 400, "invalid_request", {"server": None, "tool": None}),
        ([], 400, "invalid_request", {"server": None, "tool": None}),
        ({"server": "odd"}, 400, "invalid_request", {"server": "odd", "tool": None}),
        ({"server": "odd", "tool": 5}, 400, "invalid_request", {"server": "odd", "tool": None}),
        ({"server": "odd", "tool": "echo", "args": {}}, 400, "invalid_request", {"server": "odd", "tool": "echo"}),
        ({"server": "odd", "tool": "echo", "arguments": []}, 400, "invalid_request", {"server": "odd", "tool": "echo"}),
        ({"server": "odd", "tool": "echo", "arguments": {"text": 5}}, 400, "invalid_arguments", {"server": "odd", "tool": "echo"}),
        ({"server": "even", "tool": "echo"}, 404, "server_not_found", {"server": "even", "tool": "echo"}),
        ({"server": "odd", "tool": "ecco"}, 404, "tool_not_found", {"server": "odd", "tool": "ecco"}),
    ],
)
async def test_a_rejected_call_names_its_server_and_tool(
    instance: Instance, body: object, status: int, code: str, names: dict[str, str | None]
) -> None:
    """Every 4xx is the common body plus success:false, server, tool."""
    text = body if isinstance(body, str) else json.dumps(body)
    response = await instance.admin.http.post(f"{BASE}/tools/call", content=text, headers={"Content-Type": "application/json"})

    error = response.json()
    assert (response.status_code, error["error"], error["success"]) == (status, code, False)
    assert {name: error[name] for name in ("server", "tool")} == names
    assert error["code"] == code
    assert isinstance(error["message"], str)
    if code == "invalid_arguments":
        assert set(error["errors"]) == {"/text"}


async def test_an_error_of_all_arguments_is_named_in_the_message(instance: Instance) -> None:
    """The root is "" in `errors`; the message names it "the arguments"."""
    response = await instance.admin.post(f"{BASE}/tools/call", {"server": "odd", "tool": "echo", "arguments": {}})

    assert (response.status_code, list(response.json()["errors"])) == (400, [""])
    assert response.json()["message"].startswith("The arguments do not match the tool's inputSchema: the arguments: ")


async def test_a_failing_tool_returns_500_with_its_code(instance: Instance) -> None:
    """A failing tool returns 500 with the code of the failure."""
    failed = await instance.admin.post(f"{BASE}/tools/call", {"server": "odd", "tool": "error"})
    unavailable = await instance.admin.post(f"{BASE}/tools/call", {"server": "gone", "tool": "any"})

    assert failed.status_code == unavailable.status_code == 500
    failed_body = failed.json()
    assert failed_body == {
        "success": False,
        "server": "odd",
        "tool": "error",
        "result": {"content": [{"type": "text", "text": "it did not work"}], "isError": True},
        "duration_ms": failed_body["duration_ms"],
        "error": "it did not work",
        "code": "tool_execution_error",
        "message": "The tool odd/error returned an error; `error` is its text. "
        "Correct what the text names before you call it again: the arguments, or what the tool depends on.",
    }
    assert unavailable.json()["code"] == "server_unavailable"
    assert "'gone'" in unavailable.json()["message"]
    assert "result" not in unavailable.json()


@pytest.mark.parametrize(
    ("tool", "arguments", "advice"),
    [
        ("error", {}, "Correct what the text names before you call it again"),
        ("refuse", {}, "The cause may be outside the arguments"),
        ("reject", {}, "Change the arguments before you call it again."),
        ("wrong", {}, "The server returned no valid result of odd/wrong"),
        ("crash", {}, "could not be reached, or exited during the call"),
    ],
)
async def test_the_message_of_a_failed_call_fits_its_cause(
    instance: Instance, tool: str, arguments: dict[str, object], advice: str
) -> None:
    """Only a server that rejects the arguments proves that other arguments help."""
    response = await instance.admin.post(f"{BASE}/tools/call", {"server": "odd", "tool": tool, "arguments": arguments})

    assert response.status_code == 500
    assert advice in response.json()["message"]


@pytest.mark.parametrize("path", [f"{BASE}/tools/call", "/mcp/tools/call"])
async def test_a_call_rejected_before_its_body_is_read_has_the_same_fields(instance: Instance, path: str) -> None:
    """401, 403 and 429 also have success, server and tool, null because the body was not read."""
    reader, limited = await instance.api_key("mcp:read"), await instance.agent_key("mcp:write", rate_limit=1)
    body = {"server": "odd", "tool": "pid"}
    await limited.post(path, body)
    responses = [await caller.post(path, body) for caller in (instance.caller(None), reader, limited)]

    assert [response.status_code for response in responses] == [401, 403, 429]
    for response in responses:
        error = response.json()
        assert (error["success"], error["server"], error["tool"]) == (False, None, None)
        assert error["code"] == error["error"]


@pytest.mark.parametrize("prefer", ["tool-errors=200", 'wait=5, Tool-Errors="200"; x'])
async def test_a_caller_may_receive_a_tools_own_error_with_200(instance: Instance, prefer: str) -> None:
    """`Prefer: tool-errors=200` is for clients that retry every 5xx; only errors of the tool itself become 200."""
    headers = {"Prefer": prefer}
    failed = await instance.admin.post(f"{BASE}/servers/odd/tools/error", {}, **headers)
    plain = await instance.admin.post(f"{BASE}/servers/odd/tools/error", {}, Prefer="tool-errors=500")
    streamed = await instance.admin.post(f"{BASE}/servers/odd/tools/error", {}, Accept="text/event-stream", **headers)
    unavailable = await instance.admin.post(f"{BASE}/servers/gone/tools/any", {}, **headers)
    unknown = await instance.admin.post(f"{BASE}/servers/odd/tools/ecco", {}, **headers)

    assert (failed.status_code, failed.headers["preference-applied"]) == (200, "tool-errors=200")
    assert {**failed.json(), "duration_ms": 0} == {**plain.json(), "duration_ms": 0}
    assert failed.json()["success"] is False
    assert (plain.status_code, "preference-applied" in plain.headers) == (500, False)
    assert (streamed.status_code, streamed.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
    assert (unavailable.status_code, unavailable.json()["code"]) == (500, "server_unavailable")
    assert unknown.status_code == 404


async def test_the_error_of_a_raw_question_mark_in_a_uri_says_how_to_encode_it(instance: Instance) -> None:
    """Text after a raw `?` is a query, which no resource accepts; the error names the encoding."""
    response = await instance.admin.get(f"{BASE}/resources/odd://memo/insights?x=1")

    assert response.status_code == 422
    assert "%3F" in response.json()["errors"]["x"][0]


async def test_failures_of_tools_do_not_count_as_failures_of_rookery(instance: Instance) -> None:
    """`rookery_http_failures_total`, which has an alert, counts neither failed tools nor unavailable servers."""
    await instance.admin.post(f"{BASE}/tools/call", {"server": "odd", "tool": "error"})
    await instance.admin.post(f"{BASE}/tools/call", {"server": "gone", "tool": "any"})
    await instance.admin.get(f"{BASE}/resources/odd://demo/broken")

    page = (await instance.admin.get("/metrics")).text
    assert 'rookery_http_errors_total{code="tool_execution_error"}' in page
    assert 'rookery_http_errors_total{code="resource_error"}' in page
    assert "rookery_http_failures_total{" not in page


async def test_the_usage_of_a_key_tells_the_errors_of_tools_from_those_of_its_calls(instance: Instance) -> None:
    """The status 500 of a tool's own error is no error of the server. A wrong request is one of its key."""
    key = await instance.api_key("mcp:write")
    for body in ({"server": "odd", "tool": "error"}, {"server": "gone", "tool": "any"}, {"server": "odd"}):
        await key.post(f"{BASE}/tools/call", body)

    sums = (await instance.admin.get("/api/v1/api-keys/usage?by=key,status")).json()["data"]
    calls = (await instance.admin.get(f"/api/v1/api-keys/{key.key_id}/usage")).json()["data"]
    errors = [(row["status"], row["errors"], row["upstream_errors"]) for row in sums if row["key_id"] == key.key_id]
    assert errors == [(400, 1, 0), (500, 0, 2)]
    assert sorted((call["status"], call["is_upstream_error"]) for call in calls) == [(400, False), (500, True), (500, True)]


async def test_resources_and_prompts_are_read_raw_or_encoded(instance: Instance) -> None:
    """Resource and prompt names are accepted raw and percent-encoded."""
    key = await instance.api_key("mcp:read")

    raw = await key.get(f"{BASE}/resources/odd://memo/insights")
    encoded = await key.get(f"{BASE}/resources/{quote('odd://memo/insights', safe='')}")
    unknown = await key.get(f"{BASE}/resources/odd://memo/none")
    broken = await key.get(f"{BASE}/resources/odd://demo/broken")
    prompt = await key.post(f"{BASE}/servers/odd/prompts/greet", {"arguments": {"who": "you"}})

    text = "content of memo://insights"
    contents = [{"uri": "odd://memo/insights", "mimeType": "text/plain", "text": text}]
    assert raw.json() == encoded.json() == {"uri": "odd://memo/insights", "content": {"contents": contents}}
    assert (unknown.status_code, unknown.json()["error"]) == (404, "resource_not_found")
    assert (broken.status_code, broken.json()["error"]) == (500, "resource_error")
    assert prompt.json()["messages"][0]["content"]["text"] == "Hello you"


async def test_each_route_requires_its_scope(instance: Instance) -> None:
    """Mcp:read lists and reads, mcp:write calls; write never implies read."""
    reader, writer = await instance.api_key("mcp:read"), await instance.api_key("mcp:write")

    rejected = await reader.post(f"{BASE}/tools/call", {"server": "odd", "tool": "pid"})

    assert (rejected.status_code, rejected.json()["required_scope"]) == (403, "mcp:write")
    assert rejected.json()["success"] is False
    for path in ("servers", "servers/odd", "servers/odd/tools", "servers/odd/resources", "resources/odd://memo/insights"):
        assert (await writer.get(f"{BASE}/{path}")).status_code == 403


async def test_memory_is_available_as_a_tool_server(instance: Instance) -> None:
    """The memory is available as a built-in tool server."""
    key = await instance.api_key("mcp:read", "mcp:write", "brain:read")

    tools = (await key.get(f"{BASE}/servers/brain/tools")).json()["tools"]
    rejected = await key.post(f"{BASE}/tools/call", {"server": "brain", "tool": "remember", "arguments": {}})

    assert {"recall", "search"} <= {tool["name"] for tool in tools}
    assert "remember" not in {tool["name"] for tool in tools}
    assert rejected.status_code in {400, 403}


async def test_a_caller_that_leaves_cancels_the_tool(instance: Instance, settings: Settings) -> None:
    """A disconnect of the client reaches the tool server."""
    marker = settings.data_dir / "cancelled"
    body = json.dumps({"server": "odd", "tool": "slow", "arguments": {"seconds": HANG_S, "mark": str(marker)}}).encode()
    body_sent = asyncio.Event()
    messages: list[MutableMapping[str, object]] = []

    async def receive() -> dict[str, object]:
        if not body_sent.is_set():
            body_sent.set()
            return {"type": "http.request", "body": body, "more_body": False}
        await eventually(settings.data_dir.joinpath("cancelled.started").exists)
        return {"type": "http.disconnect"}

    async def send(message: MutableMapping[str, object]) -> None:
        messages.append(message)

    path = f"{BASE}/tools/call"
    headers = [(b"host", b"localhost"), (b"content-type", b"application/json"), (b"authorization", f"Bearer {instance.admin.key}".encode())]
    scope: dict[str, object] = {"type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST", "scheme": "http"}
    scope |= {"path": path, "raw_path": path.encode(), "query_string": b"", "root_path": "", "headers": headers}
    scope |= {"client": ("127.0.0.1", 1), "server": ("localhost", 80)}

    await asyncio.wait_for(instance.transport.app(scope, receive, send), HANG_S)

    await eventually(marker.exists)
    await instance.rookery.tools.call_log.flush()
    rows = await instance.rookery.db.read(lambda tx: store.CALLS.find_all(tx, instance.workspace_id, "-called_at", "-id"))
    assert [row.code for row in rows] == ["client_left"]
    assert not any(message.get("status") == 200 for message in messages)


async def test_the_reason_of_an_unavailable_server_needs_servers_read(instance: Instance) -> None:
    """last_error needs servers:read."""
    without_scope, with_scope = await instance.api_key("mcp:read"), await instance.api_key("mcp:read", "servers:read")
    url = f"{BASE}/servers/gone"
    await eventually(lambda: _is_offline(instance))

    errors = [(await key.get(url)).json()["last_error"] for key in (without_scope, with_scope)]

    assert errors[0] is None
    assert "no-such-program" in errors[1]


async def _is_offline(instance: Instance) -> bool:
    key = await instance.api_key("mcp:read")
    return (await key.get(f"{BASE}/servers/gone")).json()["health"] == "offline"


async def test_every_rejected_call_names_its_server_and_tool(instance: Instance) -> None:
    """Every 4xx is the common body plus success:false, server, tool."""
    url, key, reader = f"{BASE}/servers/odd/tools/echo", await instance.api_key("mcp:write"), await instance.api_key("mcp:read")
    responses = [
        await instance.caller(None).post(url, {}),
        await reader.post(url, {}),
        await key.http.post(url, content=b"{"),
        await key.post(url, []),
        await key.http.post(url, content=b"{}", headers={"Content-Type": "text/plain"}),
        await key.post(f"{url}?x=1", {}),
        await key.post(url, {"text": 1}),
    ]

    assert [response.status_code for response in responses] == [401, 403, 400, 400, 415, 400, 400]
    for response in responses:
        body = response.json()
        assert (body["success"], body["server"], body["tool"]) == (False, "odd", "echo")
        assert isinstance(body["error"], str)


async def test_readiness_reports_an_invalid_servers_file_without_its_content(instance: Instance, settings: Settings) -> None:
    """Readiness needs no key, so it reports `degraded` and nothing of the file."""
    settings.servers_file.write_text('{"mcpServers": {"hunter2"')

    await eventually(lambda: _is_degraded(instance))

    response = await instance.caller(None).get("/readyz")
    assert (response.status_code, response.json()["engines"]["servers"]) == (
        200,
        "servers.json is invalid; the last valid version is in use",
    )


async def _is_degraded(instance: Instance) -> bool:
    return (await instance.caller(None).get("/readyz")).json()["status"] == "degraded"


async def test_related_servers_omit_servers_that_the_caller_may_not_see(instance: Instance) -> None:
    """An entry's related_servers may name servers of another workspace, or outside of a key's allow-list."""
    narrow = await instance.api_key("mcp:read", restrictions=KeyRestrictions(servers=frozenset({"odd"})))
    for key, related in ((instance.admin, ["old"]), (narrow, [])):
        servers = (await key.get(f"{BASE}/servers")).json()["servers"]

        assert [server["related_servers"] for server in servers if server["id"] == "odd"] == [related]
        assert (await key.get(f"{BASE}/servers/odd")).json()["related_servers"] == related


async def test_a_server_says_who_shares_its_session_and_how_many_calls_run_at_once(instance: Instance) -> None:
    """The keys of a workspace may read what others of it do with a browser or a shell."""
    odd, brain = [(await instance.admin.get(f"{BASE}/servers/{name}")).json() for name in ("odd", "brain")]

    assert (odd["isolation"], odd["sharing"]) == ("per_workspace", "All keys of the workspace share one session.")
    assert odd["concurrency"].startswith("Calls that may change something run one at a time in a session")
    assert brain["sharing"] == "It runs inside Rookery. Each call has the rights of its own key."


async def test_a_sandbox_sees_its_own_upstream_sessions_and_not_the_live_ones(instance: Instance) -> None:
    """Neither calls nor processes of the live workspace are visible in its sandbox."""
    test_key = await instance.api_key(environment="test")
    echo = {"server": "odd", "tool": "echo", "arguments": {"text": "x"}}
    assert (await instance.admin.post(f"{BASE}/tools/call", echo)).status_code == 200
    live, test = [(await key.get(f"{BASE}/servers/odd")).json()["standing"] for key in (instance.admin, test_key)]

    assert [session["state"] for session in live["sessions"]] == ["open"]
    assert {session["pid"] for session in live["sessions"]}.isdisjoint(session["pid"] for session in test["sessions"])
