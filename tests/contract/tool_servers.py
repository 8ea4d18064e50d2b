"""Tool servers."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

from tests.contract.statements import Api, assert_error, statement, statement_per_value, statements_about_fields

BASE = "/api/v1/mcp"


def get_summary(api: Api) -> dict[str, Any]:
    """Return the summary of the toolbox."""
    return next(server for server in api.get(f"{BASE}/servers").json()["servers"] if server["id"] == "toolbox")


def server(api: Api) -> dict[str, Any]:
    """Return the toolbox."""
    return api.get(f"{BASE}/servers/toolbox").json()


def call_echo(api: Api) -> dict[str, Any]:
    """Call a tool and return the response."""
    return api.call("toolbox", "echo", text="hello").json()


statements_about_fields(
    "ServerSummary",
    {"id": "string", "name": "string", "tagline": "string", "status": "string", "tool_count": "integer", "resource_count": "integer"},
    get_summary,
)
statements_about_fields("ServerList", {"servers": "array", "count": "integer"}, lambda api: api.get(f"{BASE}/servers").json())
statements_about_fields(
    "Server",
    {"id": "string", "name": "string", "tagline": "string", "description": "string", "tools": "array", "resources": "array"},
    server,
)
statements_about_fields("Tool", {"name": "string", "description": "string", "inputSchema": "object"}, lambda api: server(api)["tools"][0])
statements_about_fields(
    "Resource",
    {"uri": "string", "name": "string", "description": "string", "mimeType": "string"},
    lambda api: server(api)["resources"][0],
)
statements_about_fields(
    "ToolList",
    {"server": "string", "tools": "array", "count": "integer"},
    lambda api: api.get(f"{BASE}/servers/toolbox/tools").json(),
)
statements_about_fields(
    "ResourceList",
    {"server": "string", "resources": "array", "count": "integer"},
    lambda api: api.get(f"{BASE}/servers/toolbox/resources").json(),
)
statements_about_fields(
    "ToolCallResponse",
    {"success": "boolean", "server": "string", "tool": "string", "result": "object", "duration_ms": "integer"},
    call_echo,
)
statements_about_fields("A failed ToolCallResponse", {"error": "string"}, lambda api: api.call("toolbox", "fail").json())
statements_about_fields(
    "ResourceResponse",
    {"uri": "string", "content": "object"},
    lambda api: api.get(f"{BASE}/resources/toolbox://memo/notes").json(),
)


@statement("ServerList.count is the number of servers.")
def _(api: Api) -> None:
    body = api.get(f"{BASE}/servers").json()
    assert body["count"] == len(body["servers"])


@statement("ToolCallResponse has the server and tool of the request.")
def _(api: Api) -> None:
    body = call_echo(api)
    assert (body["server"], body["tool"]) == ("toolbox", "echo")


@statement("The uri of a resource has the form server://path.")
def _(api: Api) -> None:
    assert server(api)["resources"][0]["uri"] == "toolbox://memo/notes"


@statement("inputSchema is the tool's own schema.")
def _(api: Api) -> None:
    tool = next(tool for tool in server(api)["tools"] if tool["name"] == "echo")
    assert tool["inputSchema"]["properties"]["text"]["type"] == "string"


def has_status(api: Api, expected: tuple[str, str]) -> None:
    """Assert that a server has the status of its entry."""
    name, status = expected
    assert api.get(f"{BASE}/servers/{name}").json().get("status", status) == status
    assert next(server for server in api.get(f"{BASE}/servers").json()["servers"] if server["id"] == name)["status"] == status


statement_per_value(
    "A server has the status of its entry: {}.",
    [("toolbox", "available"), ("trial", "beta"), ("legacy", "deprecated")],
    has_status,
)


@statement("GET /servers returns 200 with a ServerList.")
def _(api: Api) -> None:
    assert api.get(f"{BASE}/servers").status_code == 200


@statement("GET /servers/{serverId} returns 200 with its tools and resources.")
def _(api: Api) -> None:
    body = server(api)
    assert {tool["name"] for tool in body["tools"]} >= {"echo", "fail"}
    assert body["resources"]


@statement("GET /servers/{serverId} returns 404 if the server is not found.")
def _(api: Api) -> None:
    assert_error(api.get(f"{BASE}/servers/nope"), 404)


@statement("GET /servers/{serverId}/tools returns 200.")
def _(api: Api) -> None:
    assert api.get(f"{BASE}/servers/toolbox/tools").status_code == 200


@statement("GET /servers/{serverId}/resources returns 200.")
def _(api: Api) -> None:
    assert api.get(f"{BASE}/servers/toolbox/resources").status_code == 200


@statement("POST /tools/call returns 200.")
def _(api: Api) -> None:
    response = api.call("toolbox", "echo", text="hello")
    assert response.status_code == 200
    assert response.json()["result"]["content"][0]["text"] == "hello"


@statement("POST /tools/call returns 400 for an invalid request.")
def _(api: Api) -> None:
    assert_error(api.post(f"{BASE}/tools/call", {"server": "toolbox"}), 400, "invalid_request")


@statement("POST /tools/call returns 401 without a key.")
def _(api: Api) -> None:
    assert_error(api.call("toolbox", "echo", key=None, text="x"), 401)


@statement("POST /tools/call returns 404 if the server is not found.")
def _(api: Api) -> None:
    assert_error(api.call("nope", "echo"), 404, "server_not_found")


@statement("POST /tools/call returns 404 if the tool is not found.")
def _(api: Api) -> None:
    assert_error(api.call("toolbox", "nope"), 404, "tool_not_found")


@statement("POST /tools/call returns 500 if the tool fails.")
def _(api: Api) -> None:
    assert api.call("toolbox", "fail").status_code == 500


@statement("GET /resources/{uri} returns 200 with a ResourceResponse.")
def _(api: Api) -> None:
    response = api.get(f"{BASE}/resources/toolbox://memo/notes")
    assert response.status_code == 200
    assert response.json()["uri"] == "toolbox://memo/notes"


statement_per_value(
    "Without a key {} returns 401.",
    ["/servers", "/servers/toolbox", "/servers/toolbox/tools", "/servers/toolbox/resources", "/resources/toolbox://memo/notes"],
    lambda api, path: assert_error(api.get(f"{BASE}{path}", key=None), 401),
)


@statement("The first four routes have the tag Discovery, the last two Execution.")
def _(api: Api) -> None:
    paths = api.get("/api/docs/openapi").json()["paths"]
    tags = {path: next(iter(paths[path].values()))["tags"] for path in paths if path.startswith(f"{BASE}/")}
    discovery = [f"{BASE}/servers", f"{BASE}/servers/{{serverId}}", f"{BASE}/servers/{{serverId}}/tools"]
    assert all(tags[path] == ["Discovery"] for path in [*discovery, f"{BASE}/servers/{{serverId}}/resources"])
    assert tags[f"{BASE}/tools/call"] == tags[f"{BASE}/resources/{{uri}}"] == ["Execution"]


statement_per_value(
    "The host of the API serves {}.",
    ["/v1/plans", "/docs/openapi.json", "/api/agent/plans"],
    lambda api, path: _is_ok(api.get(path)),
)
statement_per_value(
    "The host of the catalogue serves {}.",
    ["/.well-known/mcp-servers.json", "/servers", "/connect"],
    lambda api, path: _is_ok(api.get(path)),
)


def _is_ok(response: Any) -> None:  # noqa: ANN401 - a response
    assert response.status_code == 200, response.text


@statement("The host of the catalogue serves POST /mcp/tools/call.")
def _(api: Api) -> None:
    response = api.post("/mcp/tools/call", {"server": "toolbox", "tool": "echo", "arguments": {"text": "hello"}})
    assert response.json()["result"]["content"][0]["text"] == "hello"


@statement("A listing of plans is requested with a Bearer agent key.")
def _(api: Api) -> None:
    _is_ok(api.get("/api/agent/plans", key=api.agent))


@statement("Authorization: Bearer is accepted.")
def _(api: Api) -> None:
    _is_ok(api.get(f"{BASE}/servers"))


@statement("X-API-Key is accepted.")
def _(api: Api) -> None:
    _is_ok(api.send("GET", f"{BASE}/servers", key=None, headers={"X-API-Key": api.key}))


@statement("A key has three segments, separated by underscores.")
def _(api: Api) -> None:
    assert [len(part) for part in api.key.split("_")] == [2, 4, 32]


@statement("A percent-encoded uri is decoded once.")
def _(api: Api) -> None:
    assert api.get(f"{BASE}/resources/{quote('toolbox://memo/notes', safe='')}").json()["uri"] == "toolbox://memo/notes"


@statement("content of a resource has contents with uri, mimeType and text.")
def _(api: Api) -> None:
    (content,) = api.get(f"{BASE}/resources/toolbox://memo/notes").json()["content"]["contents"]
    assert content["text"] == "everything is fine"
    assert content["uri"]
    assert content["mimeType"] == "text/plain"


@statement("An unknown resource is 404.")
def _(api: Api) -> None:
    assert_error(api.get(f"{BASE}/resources/toolbox://memo/nope"), 404)


@statement("A server's resource templates are listed.")
def _(api: Api) -> None:
    _is_ok(api.get(f"{BASE}/servers/toolbox/resource-templates"))


@statement("A server's prompts are listed.")
def _(api: Api) -> None:
    assert "greeting" in api.get(f"{BASE}/servers/toolbox/prompts").text


@statement("A prompt is rendered with its arguments.")
def _(api: Api) -> None:
    response = api.post(f"{BASE}/servers/toolbox/prompts/greeting", {"arguments": {"name": "Ann"}})
    assert "Greet Ann." in response.text, response.text


@statement("A server is added over HTTP by its URL, listed, shown, changed and removed.")
def _(api: Api) -> None:
    response = api.post("/api/v1/servers", {"id": "added", "url": "http://127.0.0.1:9/mcp"})
    assert response.status_code == 201, response.text
    assert "added" in api.get("/api/v1/servers").text
    assert api.send("PATCH", "/api/v1/servers/added", {"tagline": "Another"}).json()["tagline"] == "Another"
    assert api.get("/api/v1/servers/added").json()["tagline"] == "Another"
    assert api.send("DELETE", "/api/v1/servers/added").status_code == 204
    assert_error(api.get("/api/v1/servers/added"), 404)


@statement("A server with a command cannot be added over HTTP.")
def _(api: Api) -> None:
    assert_error(api.post("/api/v1/servers", {"id": "command", "command": "true"}), 422)


@statement("Secrets of an added server are never returned.")
def _(api: Api) -> None:
    body = {
        "id": "sealed",
        "url": "http://127.0.0.1:9/mcp",
        "headers": {"Authorization": "Bearer ${TOKEN}"},
        "secrets": {"TOKEN": "hush-hush"},
    }
    response = api.post("/api/v1/servers", body)
    assert response.status_code == 201, response.text
    assert "hush-hush" not in response.text + api.get("/api/v1/servers/sealed").text + api.get("/api/v1/servers").text
    api.send("DELETE", "/api/v1/servers/sealed")


def is_reserved(api: Api, name: str) -> None:
    """Assert that the id of a new server is rejected."""
    assert api.post("/api/v1/servers", {"id": name, "url": "http://127.0.0.1:9/mcp"}).status_code in {409, 422}


statement_per_value(
    "The id {} of a built-in server is reserved.",
    ["brain", "agents", "tools"],
    is_reserved,
)


@statement("The built-in servers are listed with the others.")
def _(api: Api) -> None:
    assert {server["id"] for server in api.get(f"{BASE}/servers").json()["servers"]} >= {"brain", "agents", "toolbox"}


@statement("A crash during a call fails only that call; the next one succeeds.")
def _(api: Api) -> None:
    assert api.call("trial", "crash").status_code == 500
    assert api.call("trial", "echo", text="again").json()["success"] is True


@statement("A call of a server that cannot start is 500 server_unavailable, not 404.")
def _(api: Api) -> None:
    response = api.call("missing", "anything")
    assert (response.status_code, response.json()["code"]) == (500, "server_unavailable")


@statement("A working server has the health online.")
def _(api: Api) -> None:
    call_echo(api)
    assert get_summary(api)["health"] == "online"


@statement("A disabled server is 403 disabled.")
def _(api: Api) -> None:
    assert_error(api.call("off", "echo", text="x"), 403, "disabled")


@statement("Calls of a deprecated server succeed with the header Deprecation.")
def _(api: Api) -> None:
    response = api.call("legacy", "echo", text="x")
    assert response.status_code == 200
    assert response.headers["Deprecation"].startswith("@")


@statement("Arguments that do not match inputSchema are 400 invalid_arguments with errors.")
def _(api: Api) -> None:
    body = assert_error(api.call("toolbox", "echo", text=3), 400, "invalid_arguments")
    assert body["errors"]


def error_names_the_call(api: Api, case: tuple[str, int]) -> None:
    """Assert that the error of a call has success, server and tool."""
    name, status = case
    key = {"no key": None, "no scope": api.api_key("brain:read")["plaintext_key"]}.get(name, api.key)
    server_id = {"unknown server": "nope", "disabled server": "off"}.get(name, "toolbox")
    arguments = {} if name == "wrong arguments" else {"text": "x"}
    response = api.call(server_id, "nope" if name == "unknown tool" else "echo", key=key, **arguments)
    assert response.status_code == status
    body = response.json()
    assert body["success"] is False, body
    assert {"server", "tool"} <= body.keys(), body


statement_per_value(
    "The error of a call has success false, server and tool: {}.",
    [
        ("no key", 401),
        ("no scope", 403),
        ("unknown server", 404),
        ("unknown tool", 404),
        ("wrong arguments", 400),
        ("disabled server", 403),
    ],
    error_names_the_call,
)


@statement("A tool's own failure is 500 with code tool_execution_error, the result and its duration.")
def _(api: Api) -> None:
    body = api.call("toolbox", "fail").json()
    assert (body["success"], body["code"], body["result"]["isError"]) == (False, "tool_execution_error", True)
    assert body["duration_ms"] >= 0


@statement("A call over its time limit is 500 with code tool_timeout.")
def _(api: Api) -> None:
    response = api.call("slow", "wait", seconds=20)
    assert (response.status_code, response.json()["code"]) == (500, "tool_timeout")


@statement("result is the protocol's whole tool result.")
def _(api: Api) -> None:
    assert {"content", "isError"} <= call_echo(api)["result"].keys()


@statement("Accept: text/event-stream streams, and ends with the result.")
def _(api: Api) -> None:
    response = api.post(
        f"{BASE}/tools/call", {"server": "toolbox", "tool": "echo", "arguments": {"text": "hello"}}, Accept="text/event-stream"
    )
    assert response.headers["content-type"].startswith("text/event-stream")
    assert "hello" in response.text


@statement("POST /servers/{id}/tools/{tool} accepts the arguments as the body.")
def _(api: Api) -> None:
    assert api.post(f"{BASE}/servers/toolbox/tools/echo", {"text": "bare"}).json()["result"]["content"][0]["text"] == "bare"


@statement("GET /servers is HTML for a browser.")
def _(api: Api) -> None:
    assert api.get("/servers", Accept="text/html").headers["content-type"].startswith("text/html")


@statement("GET /servers is JSON otherwise.")
def _(api: Api) -> None:
    assert "servers" in api.get("/servers", Accept="application/json").json()


@statement("GET /connect is JSON for Accept: application/json.")
def _(api: Api) -> None:
    assert api.get("/connect", Accept="application/json").json()


statement_per_value(
    "GET /connect has the configuration for {}.",
    ["claude", "cursor", "vscode", "codex", "curl", "python", "javascript"],
    lambda api, client: _contains(api.get("/connect", Accept="application/json").text.lower().replace(" ", ""), client),
)


def _contains(text: str, part: str) -> None:
    assert part in text


@statement("mcp-servers.json has registry_version, organization and servers.")
def _(api: Api) -> None:
    assert {"registry_version", "organization", "servers"} <= api.get("/.well-known/mcp-servers.json").json().keys()


@statement("Each server in mcp-servers.json has the documented fields.")
def _(api: Api) -> None:
    body = next(server for server in api.get("/.well-known/mcp-servers.json").json()["servers"] if server["id"] == "toolbox")
    assert body.keys() >= {
        "id",
        "name",
        "description",
        "tagline",
        "icon",
        "status",
        "use_when",
        "connection",
        "capabilities",
        "related_servers",
    }
    assert body["connection"].keys() >= {"type", "url"}


def is_public(api: Api, path: str) -> None:
    """Assert that a page without a key shows only servers that are not private."""
    response = api.get(path, key=None, Accept="application/json")
    assert response.status_code == 200
    assert "toolbox" in response.text
    assert '"hidden"' not in response.text
    assert "/hidden" not in response.text


statement_per_value(
    "Without a key {} shows the servers that are not private.",
    ["/.well-known/mcp-servers.json", "/.well-known/ai-catalog.json", "/v0.1/servers", "/servers"],
    is_public,
)


def rpc(api: Api, path: str, method: str, params: object = None, *, key: str | None = "", **headers: str) -> Any:  # noqa: ANN401 - a response
    """Send a stateless request of protocol version 2025-11-25, after its initialisation."""
    accept = {"Accept": "application/json, text/event-stream"}
    initialization = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "contract", "version": "1"}}
    initialize_response = api.send(
        "POST", path, {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": initialization}, key=key, headers=accept | headers
    )
    if initialize_response.status_code != 200 or method == "initialize":
        return initialize_response
    session = {name: initialize_response.headers[name] for name in ("mcp-session-id",) if name in initialize_response.headers}
    request_headers = accept | headers | session | {"MCP-Protocol-Version": "2025-11-25"}
    api.send("POST", path, {"jsonrpc": "2.0", "method": "notifications/initialized"}, key=key, headers=request_headers)
    return api.send("POST", path, {"jsonrpc": "2.0", "id": 2, "method": method, "params": params or {}}, key=key, headers=request_headers)


def result_of(response: Any) -> dict[str, Any]:  # noqa: ANN401 - a response
    """Return the result of a message, sent as JSON or as an event."""
    assert response.status_code == 200, response.text
    text = response.text
    lines = [line.removeprefix("data:") for line in text.splitlines() if line.startswith("data:")]
    return json.loads(lines[-1] if lines else text)["result"]


@statement("/mcp lists every tool as {server}__{tool}.")
def _(api: Api) -> None:
    assert "toolbox__echo" in {tool["name"] for tool in result_of(rpc(api, "/mcp", "tools/list"))["tools"]}


@statement("/mcp calls a tool.")
def _(api: Api) -> None:
    body = result_of(rpc(api, "/mcp", "tools/call", {"name": "toolbox__echo", "arguments": {"text": "hello"}}))
    assert body["content"][0]["text"] == "hello"


@statement("/mcp/{server} serves one server with its own names.")
def _(api: Api) -> None:
    assert "echo" in {tool["name"] for tool in result_of(rpc(api, "/mcp/toolbox", "tools/list"))["tools"]}


@statement("?mode=search serves find_tool and call_tool instead.")
def _(api: Api) -> None:
    assert {tool["name"] for tool in result_of(rpc(api, "/mcp?mode=search", "tools/list"))["tools"]} == {
        "find_tool",
        "call_tool",
        "call_read_only_tool",
    }


@statement("/mcp lists resources and prompts.")
def _(api: Api) -> None:
    assert any("memo" in resource["uri"] for resource in result_of(rpc(api, "/mcp", "resources/list"))["resources"])
    assert any("greeting" in prompt["name"] for prompt in result_of(rpc(api, "/mcp", "prompts/list"))["prompts"])


@statement("/mcp without a key is 401.")
def _(api: Api) -> None:
    assert rpc(api, "/mcp", "initialize", key=None).status_code == 401


@statement("A server has an OpenAPI document with an operation for each tool.")
def _(api: Api) -> None:
    document = api.get(f"{BASE}/servers/toolbox/openapi.json").json()
    assert document["openapi"].startswith("3.1")
    assert sum("echo" in path for path in document["paths"]) == 1


@statement("GET /tools/search finds tools.")
def _(api: Api) -> None:
    assert "echo" in api.get(f"{BASE}/tools/search?q=return+the+text").text


@statement("Every call is recorded with server, tool, success and duration.")
def _(api: Api) -> None:
    call_echo(api)
    api.get("/api/agent/tools/calls?server=toolbox")
    row = api.get("/api/agent/tools/calls?per_page=1").json()["data"][0]
    assert row.keys() >= {"server", "tool", "success", "duration_ms"}


@statement("Analytics has calls, errors, error_rate and the percentiles of each tool.")
def _(api: Api) -> None:
    call_echo(api)
    body = api.get("/api/agent/tools/analytics").json()
    row = next(iter(body.get("data") or body.get("tools")))
    assert row.keys() >= {"calls", "errors", "error_rate", "p50_ms", "p95_ms", "p99_ms", "max_ms", "last_called_at"}


@statement("An unknown X-Session-ID is 422.")
def _(api: Api) -> None:
    body = {"server": "toolbox", "tool": "echo", "arguments": {"text": "x"}}
    assert api.post(f"{BASE}/tools/call", body, X_Session_ID="sess_nope").status_code == 422


@statement("A test key may call only read-only tools, and servers marked as sandbox.")
def _(api: Api) -> None:
    key = api.api_key("*", environment="test")["plaintext_key"]
    assert api.call("toolbox", "echo", key=key, text="x").status_code == 200
    assert api.call("box", "write", key=key, text="x").status_code == 200
    assert_error(api.call("toolbox", "write", key=key, text="x"), 403, "test_key_refused")
