"""
Each feature of the protocol, used by a real server of the newest release, over HTTP, `/mcp` and `/mcp/{server_id}`.

`server-everything` has resource links, templates, prompts, completion, progress, logging, elicitation, sampling and a task,
`server-filesystem` images and audio, and `server-budget-allocator` an MCP App. `context7` is a TypeScript server of the later era.
"""

from __future__ import annotations

import base64
import json
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import mcp_types as types
import pytest
from mcp import Client, MCPError
from mcp.client.context import ClientRequestContext

from tests import real_servers
from tests.conftest import eventually
from tests.processes import Server, run_server
from tests.tools.gateway.clients import ERAS, Json, open_client

ADDRESSES = ("/mcp", "/mcp/everything")
APP_TYPE = "text/html;profile=mcp-app"
API = "/api/v1/mcp"
IDS = ("everything", "files", "budget", "context7")


@dataclass(frozen=True)
class GatewaySetup:
    """A running server, and the folder that `files` may read."""

    server: Server
    folder: Path

    def call(self, server: str, tool: str, **arguments: object) -> Json:
        """Call a tool over HTTP; return its result."""
        response = self.server.client.post(f"{API}/servers/{server}/tools/{tool}", json=arguments)
        assert response.status_code == 200, response.text
        return cast("Json", response.json()["result"])

    def get(self, path: str) -> Json:
        """Return the body of a GET request below `/api/v1/mcp`."""
        response = self.server.client.get(f"{API}/{path}")
        assert response.status_code == 200, response.text
        return cast("Json", response.json())

    def read(self, uri: str) -> Json:
        """Return the first content of a resource."""
        return cast("list[Json]", cast("Json", self.get(f"resources/{uri}")["content"])["contents"])[0]


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewaySetup]:
    """A running server with these tool servers, all listed; the sessions of `everything` belong to one key each."""
    data, folder = tmp_path_factory.mktemp("data"), tmp_path_factory.mktemp("files")
    entries = {
        "everything": {**real_servers.everything(), "isolation": "per_key"},
        "files": real_servers.filesystem(folder),
        "budget": real_servers.budget_allocator(),
        "context7": real_servers.context7(),
    }
    (data / "servers.json").write_text(json.dumps({"mcpServers": entries}))
    (folder / "dot.png").write_bytes(make_png())
    (folder / "beep.wav").write_bytes(make_wav())
    with run_server(data) as server:
        setup = GatewaySetup(server, folder)
        for id in IDS:
            assert setup.get(f"servers/{id}/tools")["count"]
        yield setup


def make_png() -> bytes:
    """Make a picture of one grey point."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\x00\x80")) + chunk(b"IEND", b"")


def make_wav() -> bytes:
    """Make eight samples of sound."""
    data = bytes(range(0, 256, 32))
    return (
        struct.pack("<4sI4s4sIHHIIHH4sI", b"RIFF", 36 + len(data), b"WAVE", b"fmt ", 16, 1, 1, 8000, 8000, 1, 8, b"data", len(data)) + data
    )


def own_name(address: str, name: str, server: str = "everything") -> str:
    """Return the name of a tool or prompt at an address."""
    return f"{server}__{name}" if address == "/mcp" else name


def scheme_of(address: str) -> str:
    """Return how URIs of the everything server begin at an address."""
    return "everything://demo/resource/" if address == "/mcp" else "demo://resource/"


def first_text(result: types.CallToolResult) -> str:
    """Return the text of the first block."""
    return cast("types.TextContent", result.content[0]).text


@pytest.mark.parametrize(("file", "kind", "mime_type"), [("dot.png", "image", "image/png"), ("beep.wav", "audio", "audio/wav")])
async def test_images_and_audio_arrive_byte_for_byte(gateway: GatewaySetup, file: str, kind: str, mime_type: str) -> None:
    """A picture and a sound of server-filesystem have their type and their bytes at every address."""
    path = gateway.folder / file
    blocks = [cast("list[Json]", gateway.call("files", "read_media_file", path=str(path))["content"])[0]]
    for address in ("/mcp", "/mcp/files"):
        async with open_client(gateway.server, address) as mcp:
            result = await mcp.call_tool(own_name(address, "read_media_file", "files"), {"path": str(path)})
            blocks.append(result.content[0].model_dump(mode="json", by_alias=True))

    for block in blocks:
        assert (block["type"], block["mimeType"]) == (kind, mime_type)
        assert base64.b64decode(str(block["data"])) == path.read_bytes()


@pytest.mark.parametrize("mode", ERAS)
@pytest.mark.parametrize("address", ADDRESSES)
async def test_resource_links_can_be_read_where_they_were_given(gateway: GatewaySetup, address: str, mode: str) -> None:
    """The links of a result name resources that the same client can read, also if no list has them."""
    async with open_client(gateway.server, address, mode=mode) as mcp:
        result = await mcp.call_tool(own_name(address, "get-resource-links"), {"count": 2})
        links = [block for block in result.content if isinstance(block, types.ResourceLink)]
        contents = [(await mcp.read_resource(str(link.uri))).contents[0] for link in links]

    assert [link.mime_type for link in links] == ["text/plain", "text/plain"]
    assert [str(content.uri) for content in contents] == [str(link.uri) for link in links]
    assert {type(content) for content in contents} == {types.TextResourceContents, types.BlobResourceContents}


def test_resource_links_over_http_are_those_of_the_server(gateway: GatewaySetup) -> None:
    """The HTTP API returns the links of a result unchanged, with name, description and type."""
    links = [
        block
        for block in cast("list[Json]", gateway.call("everything", "get-resource-links", count=2)["content"])
        if block["type"] == "resource_link"
    ]

    assert [link["uri"] for link in links] == ["demo://resource/dynamic/blob/1", "demo://resource/dynamic/text/2"]
    assert all(link["name"] and link["description"] and link["mimeType"] for link in links)


@pytest.mark.parametrize("mode", ERAS)
@pytest.mark.parametrize("address", ADDRESSES)
async def test_templates_are_listed_and_what_they_describe_is_read(gateway: GatewaySetup, address: str, mode: str) -> None:
    """A client fills a template in and reads text and bytes."""
    async with open_client(gateway.server, address, mode=mode) as mcp:
        templates = [template.uri_template for template in (await mcp.list_resource_templates()).resource_templates]
        text = await mcp.read_resource(scheme_of(address) + "dynamic/text/7")
        blob = await mcp.read_resource(scheme_of(address) + "dynamic/blob/8")

    assert {f"{scheme_of(address)}dynamic/{kind}/{{resourceId}}" for kind in ("text", "blob")} <= set(templates)
    assert "Resource 7" in cast("types.TextResourceContents", text.contents[0]).text
    assert b"Resource 8" in base64.b64decode(cast("types.BlobResourceContents", blob.contents[0]).blob)


def test_templates_over_http_lead_to_the_same_resources(gateway: GatewaySetup) -> None:
    """The HTTP API lists the templates, and reads a resource that one describes."""
    templates = cast("list[Json]", gateway.get("servers/everything/resource-templates")["resource_templates"])
    content = gateway.read("everything://demo/resource/dynamic/text/7")

    assert "everything://demo/resource/dynamic/text/{resourceId}" in {template["uriTemplate"] for template in templates}
    assert (content["mimeType"], "Resource 7" in str(content["text"])) == ("text/plain", True)


@pytest.mark.parametrize("mode", ERAS)
@pytest.mark.parametrize("address", ADDRESSES)
async def test_titles_and_annotations_are_those_of_the_server(gateway: GatewaySetup, address: str, mode: str) -> None:
    """Tools and prompts keep their titles, and tools their annotations and output schema, over MCP and HTTP."""
    async with open_client(gateway.server, address, mode=mode) as mcp:
        tools = {tool.name: tool for tool in (await mcp.list_tools()).tools}
        prompts = {prompt.name: prompt.title for prompt in (await mcp.list_prompts()).prompts}
    over_http = {tool["name"]: tool for tool in cast("list[Json]", gateway.get("servers/everything/tools")["tools"])}

    structured = tools[own_name(address, "get-structured-content")]
    assert structured.title == over_http["get-structured-content"]["title"] == "Get Structured Content Tool"
    assert structured.output_schema == over_http["get-structured-content"]["outputSchema"]
    assert structured.annotations is not None
    assert structured.annotations.model_dump(by_alias=True, exclude_none=True) == over_http["get-structured-content"]["annotations"]
    assert prompts[own_name(address, "completable-prompt")] == "Team Management"


@pytest.mark.parametrize("mode", ERAS)
@pytest.mark.parametrize("address", ADDRESSES)
async def test_progress_of_a_long_operation_reaches_its_caller(gateway: GatewaySetup, address: str, mode: str) -> None:
    """Each step is announced once, in order, with the total."""
    steps: list[tuple[float, float | None]] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        steps.append((progress, total))

    async with open_client(gateway.server, address, mode=mode) as mcp:
        name = own_name(address, "trigger-long-running-operation")
        await mcp.call_tool(name, {"duration": 0.1, "steps": 4}, progress_callback=on_progress)

    assert steps == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_progress_and_logs_are_events_over_http(gateway: GatewaySetup) -> None:
    """The stream of a call has its progress, and the message that a tool logs while it runs."""
    progress = _stream(gateway, "trigger-long-running-operation", {"duration": 0.1, "steps": 2})
    logs = _stream(gateway, "toggle-simulated-logging", {})
    gateway.call("everything", "toggle-simulated-logging")

    assert [(name, data.get("progress")) for name, data in progress] == [("progress", 1), ("progress", 2), ("result", None)]
    assert [name for name, _ in logs] == ["log", "result"]
    assert "level" in str(logs[0][1]["data"])


@pytest.mark.parametrize("address", ADDRESSES)
async def test_a_log_message_of_a_session_reaches_its_client(gateway: GatewaySetup, address: str) -> None:
    """A message that server-everything logs while it is called arrives with its level, which is random."""
    levels: list[str] = []

    async def log(params: types.LoggingMessageNotificationParams) -> None:
        levels.append(params.level)

    async with open_client(gateway.server, address, mode="legacy", logging_callback=log) as mcp:
        await mcp.session.send_request(types.SetLevelRequest(params=types.SetLevelRequestParams(level="debug")), types.EmptyResult)
        started = await mcp.call_tool(own_name(address, "toggle-simulated-logging"), {})
        assert first_text(started).startswith("Started")
        await eventually(lambda: bool(levels))
        stopped = await mcp.call_tool(own_name(address, "toggle-simulated-logging"), {})

    assert first_text(stopped).startswith("Stopped")
    assert set(levels) <= {"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}


@pytest.mark.parametrize("mode", ERAS)
@pytest.mark.parametrize("address", ADDRESSES)
async def test_arguments_are_completed_with_their_context(gateway: GatewaySetup, address: str, mode: str) -> None:
    """The values of one argument of a prompt depend on another, and variables of templates are completed too."""
    prompt = types.PromptReference(type="ref/prompt", name=own_name(address, "completable-prompt"))
    template = types.ResourceTemplateReference(type="ref/resource", uri=f"{scheme_of(address)}dynamic/text/{{resourceId}}")
    async with open_client(gateway.server, address, mode=mode) as mcp:
        departments = await mcp.complete(prompt, {"name": "department", "value": "S"})
        names = await mcp.complete(prompt, {"name": "name", "value": ""}, {"department": "Sales"})
        numbers = await mcp.complete(template, {"name": "resourceId", "value": "12"})

    assert departments.completion.values == ["Sales", "Support"]
    assert names.completion.values == ["David", "Eve", "Frank"]
    assert numbers.completion.values == ["12"]


@pytest.mark.parametrize("mode", ERAS)
@pytest.mark.parametrize("address", ADDRESSES)
async def test_elicitation_and_sampling_reach_the_client_of_the_call(gateway: GatewaySetup, address: str, mode: str) -> None:
    """A form with every kind of field, and a prompt for the client's model, are answered by the client that called."""
    forms: list[Json] = []

    async def elicit(context: ClientRequestContext, params: types.ElicitRequestParams) -> types.ElicitResult:
        forms.append(cast("types.ElicitRequestFormParams", params).requested_schema)
        return types.ElicitResult(action="accept", content={"name": "Ada", "check": True, "integer": 42})

    async def sample(context: ClientRequestContext, params: types.CreateMessageRequestParams) -> types.CreateMessageResult:
        return types.CreateMessageResult(role="assistant", content=types.TextContent(type="text", text="caw"), model="m")

    async with open_client(gateway.server, address, mode=mode, elicitation_callback=elicit, sampling_callback=sample) as mcp:
        elicited = await mcp.call_tool(own_name(address, "trigger-elicitation-request"), {})
        sampled = await mcp.call_tool(own_name(address, "trigger-sampling-request"), {"prompt": "?", "maxTokens": 10})

    assert {"name", "check", "email", "birthdate", "integer"} <= set(cast("Json", forms[0]["properties"]))
    assert "Ada" in str(elicited.content)
    assert "caw" in str(sampled.content)


def test_a_server_of_the_older_era_cannot_ask_a_caller_over_http(gateway: GatewaySetup) -> None:
    """Its request needs an open session of an MCP client; the error of the call says that nobody can answer."""
    response = gateway.server.client.post(f"{API}/servers/everything/tools/trigger-elicitation-request", json={})

    assert response.json()["code"] == "tool_execution_error"
    assert "No caller can answer" in response.json()["error"]


@pytest.mark.parametrize("mode", ERAS)
@pytest.mark.parametrize("address", ADDRESSES)
async def test_a_tool_that_runs_only_as_a_task_is_not_offered(gateway: GatewaySetup, address: str, mode: str) -> None:
    """`simulate-research-query` is in no list, a call says why, and the page of the server names it with the reason."""
    name = own_name(address, "simulate-research-query")
    async with open_client(gateway.server, address, mode=mode) as mcp:
        tools = [tool.name for tool in (await mcp.list_tools()).tools]
        reason = await _call_error(mcp, name)
    hidden = cast("list[dict[str, str]]", gateway.get("servers/everything")["hidden_tools"])
    rejected = gateway.server.client.post(f"{API}/servers/everything/tools/simulate-research-query", json={"topic": "kettles"})

    assert name not in tools
    assert "only as a task" in reason
    assert [(one["name"], "only as a task" in one["reason"]) for one in hidden] == [("simulate-research-query", True)]
    assert (rejected.status_code, "only as a task" in rejected.text) == (403, True)


@pytest.mark.parametrize("mode", ERAS)
async def test_an_app_works_at_the_address_of_its_server(gateway: GatewaySetup, mode: str) -> None:
    """MCP Apps: the tool names a `ui://` resource, which is listed and read as an application of its own type."""
    async with open_client(gateway.server, "/mcp/budget", mode=mode) as mcp:
        (tool,) = (await mcp.list_tools()).tools
        address = cast("Json", cast("Json", tool.meta)["ui"])["resourceUri"]
        listed = {str(resource.uri): resource.mime_type for resource in (await mcp.list_resources()).resources}
        page = (await mcp.read_resource(str(address))).contents[0]
        result = await mcp.call_tool(tool.name, {})

    assert str(address).startswith("ui://")
    assert listed[str(address)] == APP_TYPE
    assert (str(page.uri), page.mime_type) == (address, APP_TYPE)
    assert "<html" in cast("types.TextResourceContents", page).text.lower()
    assert not result.is_error
    assert "config" in cast("Json", result.structured_content)


@pytest.mark.parametrize("mode", ERAS)
async def test_an_app_works_at_the_address_of_all_servers(gateway: GatewaySetup, mode: str) -> None:
    """MCP Apps: at `/mcp` the reference names the server, `ui://{server}/…`, and is the same in definition, list and read."""
    async with open_client(gateway.server, mode=mode) as mcp:
        tool = next(tool for tool in (await mcp.list_tools()).tools if tool.name == "budget__get-budget-data")
        meta = cast("Json", tool.meta)
        address = str(cast("Json", meta["ui"])["resourceUri"])
        listed = {str(resource.uri): resource.mime_type for resource in (await mcp.list_resources()).resources}
        page = (await mcp.read_resource(address)).contents[0]

    assert address == meta["ui/resourceUri"] == "ui://budget/budget-allocator/mcp-app.html"
    assert listed[address] == APP_TYPE
    assert (str(page.uri), page.mime_type) == (address, APP_TYPE)
    assert "<html" in cast("types.TextResourceContents", page).text.lower()


def test_an_app_is_read_over_http_by_the_reference_of_its_tool(gateway: GatewaySetup) -> None:
    """MCP Apps: the HTTP API reads the `ui://` URI as the server gave it."""
    (tool,) = cast("list[Json]", gateway.get("servers/budget/tools")["tools"])
    address = str(cast("Json", cast("Json", tool["_meta"])["ui"])["resourceUri"])

    assert gateway.read(address)["mimeType"] == APP_TYPE


def test_a_link_of_a_result_is_read_over_http_as_it_was_given(gateway: GatewaySetup) -> None:
    """A resource link of server-everything names a resource that no list has, and the HTTP API reads it."""
    content = cast("list[Json]", gateway.call("everything", "get-resource-links", count=2)["content"])
    uris = [str(block["uri"]) for block in content if block["type"] == "resource_link"]

    assert [gateway.read(uri)["mimeType"] for uri in uris] == ["text/plain", "text/plain"]


def test_the_icon_and_the_description_of_a_server_are_shown(gateway: GatewaySetup) -> None:
    """Context7 gives itself an icon and a description, which its page shows where the entry has none."""
    page = gateway.get("servers/context7")

    assert str(page["icon"]).startswith("https://context7.com/")
    assert "documentation" in str(page["description"])


def test_an_app_is_listed_and_read_over_http(gateway: GatewaySetup) -> None:
    """MCP Apps: the HTTP API keeps the reference of the tool, and returns the application."""
    (tool,) = cast("list[Json]", gateway.get("servers/budget/tools")["tools"])
    (resource,) = cast("list[Json]", gateway.get("servers/budget/resources")["resources"])
    page = gateway.read(str(resource["uri"]))

    assert str(cast("Json", cast("Json", tool["_meta"])["ui"])["resourceUri"]).startswith("ui://")
    assert (resource["mimeType"], page["mimeType"]) == (APP_TYPE, APP_TYPE)
    assert "<html" in str(page["text"]).lower()


@pytest.mark.parametrize("mode", ERAS)
async def test_a_later_server_in_typescript_keeps_titles_and_instructions(gateway: GatewaySetup, mode: str) -> None:
    """Context7 speaks the later era; its tools and its instructions arrive for clients of both eras."""
    async with open_client(gateway.server, "/mcp/context7", mode=mode) as mcp:
        tools = {tool.name: tool for tool in (await mcp.list_tools()).tools}
        instructions = mcp.instructions or ""

    assert all(tool.title and tool.annotations for tool in tools.values())
    assert "documentation" in instructions


def _stream(gateway: GatewaySetup, tool: str, arguments: Json) -> list[tuple[str, Json]]:
    """Return name and data of each event of a streamed call of the everything server."""
    path = f"{API}/servers/everything/tools/{tool}"
    events, name = list[tuple[str, Json]](), ""
    with gateway.server.client.stream("POST", path, json=arguments, headers={"Accept": "text/event-stream"}) as response:
        for line in response.iter_lines():
            if line.startswith("event: "):
                name = line.removeprefix("event: ")
            elif line.startswith("data: "):
                events.append((name, json.loads(line.removeprefix("data: "))))
    return events


async def _call_error(mcp: Client, name: str) -> str:
    """Return why a call failed, from its result or from the error of the protocol."""
    try:
        result = await mcp.call_tool(name, {"topic": "kettles"})
    except MCPError as error:
        return error.message
    assert result.is_error
    return first_text(result)
