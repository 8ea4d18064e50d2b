"""Links in results stay as they are, and can be read back as they were given: at /mcp, at /mcp/{server} and over HTTP."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import cast
from urllib.parse import quote

import mcp_types as types
import pytest
from mcp import MCPError

from tests.conftest import eventually
from tests.processes import Server, run_server
from tests.tools.gateway.clients import ERAS, Json, open_client, post_later
from tests.tools.makers import SERVERS

LONG_ID = "x" * 60


@pytest.fixture(scope="module")
def linked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A running server with tool servers whose results name resources; two of them are alike."""
    folder = tmp_path_factory.mktemp("linked")
    command = {"command": sys.executable, "args": ["-I", "-S", str(SERVERS / "linking.py")]}
    entries = {name: {**command, "args": [*command["args"], name]} for name in ("kanban", "wiki", LONG_ID)}
    (folder / "servers.json").write_text(json.dumps({"mcpServers": entries}))
    with run_server(folder) as server:
        for name in entries:
            assert server.client.get(f"/api/v1/mcp/servers/{name}").json()["tools"]
        yield server


@pytest.fixture(scope="module")
def kanban_key(linked: Server) -> str:
    """A key that may use only one of the servers."""
    fields = {"name": "kanban alone", "permissions": ["mcp:read", "mcp:write"], "servers": ["kanban"]}
    response = linked.client.post("/api/v1/agent-keys", json=fields)
    assert response.status_code == 201, response.text
    return str(response.json()["key"])


async def _request(linked: Server, method: str, path: str = "/mcp", *, key: str | None = None, **params: object) -> Json:
    """Send one message and return its result."""
    body = await post_later(linked, method, params, path, key=key)
    assert "result" in body, body
    return cast("Json", body["result"])


async def _call(linked: Server, tool: str, path: str = "/mcp", *, key: str | None = None, **arguments: object) -> Json:
    """Call a tool and return its result."""
    return await _request(linked, "tools/call", path, key=key, name=tool, arguments=arguments)


def _first(result: Json) -> Json:
    """Return the first block, content or message of a result."""
    blocks = next(result[name] for name in ("content", "contents", "messages") if name in result)
    return cast("list[Json]", blocks)[0]


async def _link(linked: Server, uri: str, server: str = "kanban", **options: str) -> str:
    """Return the URI of a link as it arrives at /mcp."""
    linked_uri = _first(await _call(linked, f"{server}__link", uri=uri, **options))["uri"]
    embedded = cast("Json", _first(await _call(linked, f"{server}__embed", uri=uri, **options))["resource"])["uri"]
    assert embedded == linked_uri
    return str(linked_uri)


@pytest.mark.parametrize(
    "uri",
    [
        "https://example.org/report.pdf",
        "HTTP://example.org/?q=1#top",
        "mailto:anna@example.org",
        "data:text/plain,hello",
        "file:///example/document.pdf",
        "urn:isbn:9780131103627",
    ],
)
async def test_a_link_to_an_address_stays_and_can_be_read_back(linked: Server, kanban_key: str, uri: str) -> None:
    """Links need not be listed: the server that gave one is asked for it, over MCP and over HTTP."""
    assert await _link(linked, uri, key=kanban_key) == uri

    content = _first(await _request(linked, "resources/read", key=kanban_key, uri=uri))
    over_http = linked.client.get(f"/api/v1/mcp/resources/{quote(uri, safe='')}", headers={"Authorization": f"Bearer {kanban_key}"})

    assert content["uri"] == uri
    assert content["text"] == f"kanban read {uri}"
    assert over_http.json()["content"]["contents"][0]["text"] == f"kanban read {uri}"


@pytest.mark.parametrize(
    ("uri", "gateway_uri"),
    [
        ("note://kanban", "kanban://note/kanban"),
        ("https://example.org/listed.pdf", "kanban://https/example.org/listed.pdf"),
        ("item://5/text", "kanban://item/5/text"),
        ("board-of://unlisted", "kanban://board-of/unlisted"),
        ("ui://board/app.html", "ui://kanban/board/app.html"),
        ("ui://board/unlisted.html", "ui://kanban/board/unlisted.html"),
    ],
)
async def test_a_link_to_what_the_server_has_names_the_server(linked: Server, uri: str, gateway_uri: str) -> None:
    """Listed URIs, those of a template, and those that no other program could open become gateway URIs, which can be read."""
    assert await _link(linked, uri) == gateway_uri
    assert _first(await _call(linked, "link", "/mcp/kanban", uri=uri))["uri"] == uri

    content = _first(await _request(linked, "resources/read", uri=gateway_uri))

    assert content["uri"] == gateway_uri
    assert content["text"] == f"kanban read {uri}"


@pytest.mark.parametrize(
    ("sent", "read"),
    [
        ("kanban:/note/kanban", "kanban://note/kanban"),
        ("note:/kanban", "note://kanban"),
        ("kanban:/memo/x/y", "kanban://memo/x/y"),
        ("kanban://memo/x//y", "kanban://memo/x//y"),
        ("rookery:/instructions/kanban", "rookery://instructions/kanban"),
    ],
)
async def test_the_response_has_the_uri_that_was_read(linked: Server, sent: str, read: str) -> None:
    """Some proxies remove a slash, so the URI that arrives is not always one that exists."""
    response = linked.client.get(f"/api/v1/mcp/resources/{sent}").json()

    assert (response["uri"], response["content"]["contents"][0]["uri"]) == (read, read)


@pytest.mark.parametrize("mode", ERAS)
async def test_a_uri_of_one_server_alone_can_be_used_as_the_server_gave_it(linked: Server, mode: str) -> None:
    """Texts of results name URIs too: a listed one, or one of a template, is accepted without the server's id."""
    async with open_client(linked, mode=mode) as mcp:
        listed = await mcp.read_resource("note://wiki")
        templated = await mcp.read_resource("wiki-item://7/text")
        reference = types.ResourceTemplateReference(uri="wiki-item://{id}/text")
        completion = await mcp.complete(reference, {"name": "id", "value": ""})
    over_http = linked.client.get("/api/v1/mcp/resources/wiki-item://7/text")

    assert "wiki read note://wiki" in str(listed.contents)
    assert str(listed.contents[0].uri) == "note://wiki"
    assert "wiki read wiki-item://7/text" in str(templated.contents)
    assert completion.completion.values == ["wiki of wiki-item://{id}/text"]
    assert over_http.json()["content"]["contents"][0]["uri"] == "wiki-item://7/text"


@pytest.mark.parametrize("mode", ERAS)
@pytest.mark.parametrize(("uri", "gateway_uri"), [("note://both", "wiki://note/both"), ("item://6/text", "wiki://item/6/text")])
async def test_a_uri_of_several_servers_is_rejected_with_their_gateway_uris(
    linked: Server, kanban_key: str, mode: str, uri: str, gateway_uri: str
) -> None:
    """The caller selects one of them; a key that sees one server only need not."""
    async with open_client(linked, mode=mode) as mcp:
        with pytest.raises(MCPError) as ambiguous:
            await mcp.read_resource(uri)
        chosen = await mcp.read_resource(gateway_uri)
    over_http = linked.client.get(f"/api/v1/mcp/resources/{uri}")
    alone = _first(await _request(linked, "resources/read", key=kanban_key, uri=uri))

    assert ambiguous.value.code == types.INVALID_PARAMS
    assert gateway_uri in cast("Json", ambiguous.value.data)["candidates"]  # pyright: ignore[reportOperatorIssue] - a list
    assert over_http.status_code == 400
    assert over_http.json()["error"] == "ambiguous_name"
    assert gateway_uri in over_http.json()["candidates"]
    assert f"wiki read {uri}" in str(chosen.contents)
    assert alone["text"] == f"kanban read {uri}"


async def test_a_link_that_another_key_got_cannot_be_read(linked: Server, kanban_key: str) -> None:
    """Links in the results of one key do not decide where another key reads."""
    uri = "https://example.org/of-one-key.pdf"
    await _link(linked, uri, key=kanban_key)

    other = await post_later(linked, "resources/read", {"uri": uri})
    over_http = linked.client.get(f"/api/v1/mcp/resources/{quote(uri, safe='')}")

    assert cast("Json", other["error"])["data"] == {"uri": uri}
    assert over_http.status_code == 404


async def test_a_link_that_was_got_over_http_can_be_read_back(linked: Server) -> None:
    """Over HTTP, results are as the server sent them; two servers that gave the same link are told apart by gateway URIs."""
    uri = "demo-of-http://resource/1"
    for server in ("wiki", "kanban"):
        called = linked.client.post(f"/api/v1/mcp/servers/{server}/tools/link", json={"uri": uri})
        assert called.json()["result"]["content"][0]["uri"] == uri
        if server == "wiki":
            alone = linked.client.get(f"/api/v1/mcp/resources/{uri}")
            assert alone.json()["content"]["contents"][0]["text"] == f"wiki read {uri}"

    both = linked.client.get(f"/api/v1/mcp/resources/{uri}")
    chosen = linked.client.get(f"/api/v1/mcp/resources/{both.json()['candidates'][0]}")

    assert both.status_code == 400
    assert f"read {uri}" in chosen.text


async def test_a_link_can_be_read_back_after_a_restart(tmp_path: Path) -> None:
    """Clients hold the links of earlier results; also a process that was killed has stored them."""
    uris = ["https://example.org/a%20report.pdf", "file:///example/document.pdf", "memo-of://restart/1"]
    entry = {"command": sys.executable, "args": ["-I", "-S", str(SERVERS / "linking.py"), "kanban"]}
    (tmp_path / "servers.json").write_text(json.dumps({"mcpServers": {"kanban": entry}}))
    with run_server(tmp_path) as first:
        for uri in uris:
            assert first.client.post("/api/v1/mcp/servers/kanban/tools/link", json={"uri": uri}).is_success
        await eventually(lambda: _count_stored_links(first) == len(uris))
        first.kill()
    with run_server(tmp_path) as second:
        for uri in uris:
            over_http = second.client.get(f"/api/v1/mcp/resources/{quote(uri, safe='')}")
            over_mcp = _first(await _request(second, "resources/read", key=second.keys["api_key"], uri=uri))
            other_key = second.client.get(
                f"/api/v1/mcp/resources/{quote(uri, safe='')}", headers={"Authorization": f"Bearer {second.keys['agent_key']}"}
            )

            assert over_http.json()["content"]["contents"][0]["text"] == over_mcp["text"] == f"kanban read {uri}"
            assert (over_mcp["uri"], other_key.status_code) == (uri, 404)


def _count_stored_links(server: Server) -> int:
    with closing(sqlite3.connect(server.folder / "records.db")) as store:
        return int(store.execute("SELECT count(*) FROM tool_recent_links").fetchone()[0])


async def test_links_of_prompts_stay_and_can_be_read_back(linked: Server, kanban_key: str) -> None:
    """A prompt names resources as a tool does, and its `_meta` is kept."""
    prompt = await _request(linked, "prompts/get", key=kanban_key, name="kanban__quote")
    over_http = linked.client.post("/api/v1/mcp/servers/kanban/prompts/quote", json={}).json()
    uri = cast("Json", _first(prompt)["content"])["uri"]

    content = _first(await _request(linked, "resources/read", key=kanban_key, uri=uri))

    assert uri == "https://example.org/prompt.pdf"
    assert content["text"] == f"kanban read {uri}"
    for meta in (cast("Json", prompt["_meta"]), over_http["_meta"]):
        assert meta["example.org/view"] == {"cards": ["a", "b"]}
        assert "kanban" not in str(meta.get("io.modelcontextprotocol/serverInfo"))


@pytest.mark.parametrize(("path", "prefix", "interface"), [("/mcp", "kanban__", "ui://kanban/board/"), ("/mcp/kanban", "", "ui://board/")])
async def test_the_interface_of_an_app_has_one_uri_in_definition_list_read_and_result(
    linked: Server, path: str, prefix: str, interface: str
) -> None:
    """MCP Apps: a host reads the URI of the definition, and accepts `ui://` URIs alone."""
    tools = {str(tool["name"]): tool for tool in cast("list[Json]", (await _request(linked, "tools/list", path))["tools"])}
    resources = cast("list[Json]", (await _request(linked, "resources/list", path))["resources"])
    meta = cast("dict[str, Json]", tools[f"{prefix}show"]["_meta"])
    app_only = cast("dict[str, Json]", tools[f"{prefix}poll-kanban"]["_meta"])
    content = _first(await _request(linked, "resources/read", path, uri=f"{interface}app.html"))
    hidden = _first(await _request(linked, "resources/read", path, uri=f"{interface}hidden.html"))
    result = await _call(linked, f"{prefix}show", path)

    assert meta == {
        "ui": {"resourceUri": f"{interface}app.html", "visibility": ["model"]},
        "ui/resourceUri": f"{interface}app.html",
        "openai/outputTemplate": f"{interface}app.html",
    }
    assert app_only["ui"] == {"resourceUri": f"{interface}hidden.html", "visibility": ["app"]}
    assert tools[f"{prefix}link"]["_meta"] == {"example.org/help": "https://example.org/help"}
    assert [resource["_meta"] for resource in resources if resource["uri"] == f"{interface}app.html"] == [{"ui": {"prefersBorder": True}}]
    assert (content["uri"], content["_meta"]) == (f"{interface}app.html", {"ui": {"prefersBorder": True}})
    assert hidden["text"] == "kanban read ui://board/hidden.html"
    assert cast("dict[str, Json]", result["_meta"])["ui"] == {"resourceUri": f"{interface}app.html"}


async def test_an_interface_can_be_read_by_the_uri_of_its_server(linked: Server, kanban_key: str) -> None:
    """Apps and older hosts name it as the server does, listed or not; the URI of several servers is rejected."""
    read = [_first(await _request(linked, "resources/read", key=kanban_key, uri=f"ui://board/{page}.html")) for page in ("app", "hidden")]
    several = await post_later(linked, "resources/read", {"uri": "ui://board/app.html"})

    assert [content["uri"] for content in read] == ["ui://board/app.html", "ui://board/hidden.html"]
    assert [content["text"] for content in read] == ["kanban read ui://board/app.html", "kanban read ui://board/hidden.html"]
    assert "ui://kanban/board/app.html" in cast("str", cast("Json", several["error"])["message"])


@pytest.mark.parametrize("path", ["/mcp", "/mcp/kanban"])
async def test_meta_of_results_is_kept_without_the_name_of_the_software(linked: Server, path: str) -> None:
    """An interface gets its data in `_meta`; the protocol's own keys there concern one connection, and name the server's software."""
    prefix = "kanban__" if path == "/mcp" else ""
    meta = cast("Json", (await _call(linked, f"{prefix}show", path))["_meta"])
    linked_meta = _first(await _call(linked, f"{prefix}link", path, uri="https://example.org"))["_meta"]
    embedded = cast("Json", _first(await _call(linked, f"{prefix}embed", path, uri="https://example.org"))["resource"])
    over_http = linked.client.post("/api/v1/mcp/servers/kanban/tools/show", json={}).json()["result"]["_meta"]
    read_over_http = linked.client.get("/api/v1/mcp/resources/kanban://note/kanban").json()["content"]

    assert meta["example.org/view"] == over_http["example.org/view"] == {"cards": ["a", "b"]}
    assert "kanban" not in str(meta.get("io.modelcontextprotocol/serverInfo"))
    assert list(over_http) == ["example.org/view", "ui"]
    assert linked_meta == embedded["_meta"] == {"example.org/size": 3}
    assert read_over_http["_meta"]["example.org/view"] == {"cards": ["a", "b"]}
    assert read_over_http["contents"][0]["_meta"] == {"ui": {"prefersBorder": True}}


@pytest.mark.parametrize("mode", ERAS)
async def test_an_app_calls_the_tools_of_its_server_by_their_own_names(linked: Server, mode: str) -> None:
    """The host passes the calls of an interface on as they are; a name of several servers is rejected with its gateway names."""
    async with open_client(linked, mode=mode) as mcp:
        result = await mcp.call_tool("poll-wiki", {})
        with pytest.raises(MCPError) as ambiguous:
            await mcp.call_tool("show", {})
        with pytest.raises(MCPError) as unknown:
            await mcp.call_tool("poll-nothing", {})

    assert "poll-wiki of wiki" in str(result.content)
    assert ambiguous.value.code == unknown.value.code == types.INVALID_PARAMS
    assert "'kanban__show'" in ambiguous.value.message
    assert "'wiki__show'" in ambiguous.value.message


async def test_names_leave_room_for_the_prefix_of_the_client_and_longer_ones_are_accepted(linked: Server) -> None:
    """At most 50 characters; a client that stored a name of 64 characters, or the full one, can still use it."""
    names = [
        str(item["name"]) for kind in ("tools", "prompts") for item in cast("list[Json]", (await _request(linked, f"{kind}/list"))[kind])
    ]
    full = f"{LONG_ID}__poll-{LONG_ID}"
    digest = hashlib.sha256(full.encode()).hexdigest()[:6]
    valid_names = [f"{full[:43]}_{digest}", f"{full[:57]}_{digest}", full]
    results = [await _call(linked, name) for name in valid_names]

    assert max(len(name) for name in names) == 50
    assert valid_names[0] in names
    assert [_first(result)["text"] for result in results] == [f"poll-{LONG_ID} of {LONG_ID}"] * 3
