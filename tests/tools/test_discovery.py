"""Discovery: which servers a caller sees in each document, and the set-up texts for clients."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shlex
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import cast

import pytest
from mcp_types.version import KNOWN_PROTOCOL_VERSIONS

from rookery.access.models import KeyRestrictions
from rookery.kernel.config import Settings
from rookery.kernel.secret import Secret
from rookery.tools.discovery.documents import PROTOCOL_VERSIONS
from tests.conftest import SECRET_KEY, Caller, Instance, eventually, run_instance
from tests.deadlines import HANG_S
from tests.processes import Server, run_rookery
from tests.real_servers import node
from tests.tools.makers import make_odd_entry

pytestmark = pytest.mark.embedded_store  # discovery runs no query that depends on the dialect

ADDRESS = "https://agents.example.org"
DOCUMENTS = ["/.well-known/mcp-servers.json", "/.well-known/ai-catalog.json", "/v0.1/servers", "/servers", "/connect"]
BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8"
MARKUP = "<script>alert('x')</script>"


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """Settings with a public address, and servers of every kind."""
    servers = {
        "odd": make_odd_entry(
            name="The odd one",
            tagline="Misbehaves",
            use_when="a test is run",
            related_servers=["old", "secret", "theirs"],
            icon="data:image/png;base64,aa",
        ),
        "old": make_odd_entry(status="deprecated", tagline=MARKUP),
        "secret": make_odd_entry(private=True),
        "theirs": make_odd_entry(workspaces=[999]),
        "off": make_odd_entry(enabled=False),
    }
    settings.servers_file.write_text(json.dumps({"mcpServers": servers}))
    return replace(settings, mcp_url=ADDRESS, base_url=ADDRESS, organization="The Rooks", egress_allow=("127.0.0.1/32",))


@pytest.fixture
async def instance(settings: Settings) -> AsyncIterator[Instance]:
    """A running server with these settings whose tool servers were listed."""
    async with run_instance(settings) as instance:
        for server in ("odd", "old"):

            async def count_tools(server: str = server) -> int:
                return int((await instance.admin.get(f"/api/v1/mcp/servers/{server}/tools")).json()["count"])

            await eventually(count_tools)
        yield instance


def server_ids(document: object, path: str) -> set[str]:
    """Return the ids of the servers that a document names."""
    content = cast("dict[str, list[dict[str, object]]]", document)
    if path == "/.well-known/ai-catalog.json":
        return {str(entry["identifier"]).rpartition(":")[2] for entry in content["entries"]}
    if path == "/v0.1/servers":
        return {str(cast("dict[str, object]", entry["server"])["name"]).partition("/")[2] for entry in content["servers"]}
    return {str(server["id"]) for server in content["servers"]}


async def test_callers_without_a_key_see_public_servers_only(instance: Instance) -> None:
    """Public are the built-in servers and those of the file, except private, disabled and workspace-only ones."""
    without_key, with_key = instance.caller(None), await instance.api_key("mcp:read")

    for path in DOCUMENTS[:4]:
        assert server_ids((await without_key.get(path)).json(), path) == {"agents", "brain", "content", "notify", "odd", "old", "scoring"}
        assert server_ids((await with_key.get(path)).json(), path) == {
            "agents",
            "brain",
            "content",
            "notify",
            "odd",
            "old",
            "scoring",
            "secret",
        }
        assert "theirs" not in (await with_key.get(path)).text
    assert "secret" not in (await without_key.get("/servers", Accept=BROWSER)).text


async def test_a_server_that_a_workspace_added_is_visible_to_it_alone(instance: Instance) -> None:
    """It is hidden without a key, visible to a key of the workspace, and hidden from other workspaces."""
    created = await instance.admin.post("/api/v1/servers", {"id": "ours", "url": "http://127.0.0.1:9/mcp"})
    assert created.status_code == 201, created.text
    stranger = await instance.api_key("mcp:read", workspace_id=await instance.workspace("another"))

    for path in DOCUMENTS[:4]:
        assert "ours" in server_ids((await instance.admin.get(path)).json(), path)
        for other in (stranger, instance.caller(None)):
            assert "ours" not in server_ids((await other.get(path)).json(), path)
    assert (await stranger.get("/mcp/ours/server-card")).json()["error"] == "server_not_found"


async def test_public_pages_check_a_key_that_is_sent(instance: Instance) -> None:
    """Its allow-lists apply, and an invalid key is rejected."""
    restricted = await instance.api_key("*", restrictions=KeyRestrictions(servers=frozenset({"odd"})))

    assert server_ids((await restricted.get("/servers")).json(), "/servers") == {"odd"}
    assert (await restricted.get("/mcp/brain/server-card")).status_code == 403
    assert (await instance.caller("sk_live_" + "x" * 32).get("/servers")).status_code == 401


async def test_production_requires_a_key(settings: Settings) -> None:
    """ROOKERY_PUBLIC_DISCOVERY is false in production by default; discovery then requires mcp:read."""
    for environment, configured, is_public in [("production", None, False), ("production", True, True), ("development", False, False)]:
        async with AsyncExitStack() as stack:
            changed = replace(settings, environment=environment, public_discovery=configured, secret_key=Secret(SECRET_KEY))
            instance = await stack.enter_async_context(run_instance(changed))
            anyone, unscoped = instance.caller(None), await instance.api_key("brain:read")
            for path in [*DOCUMENTS, "/mcp/server-card", "/mcp/odd/server-card"]:
                response = await anyone.get(path)
                assert response.status_code == (200 if is_public else 401), path
            if not is_public:
                assert (await unscoped.get("/servers")).json()["required_scope"] == "mcp:read"
                assert (await (await instance.api_key("mcp:read")).get("/servers")).status_code == 200


async def test_addresses_are_those_of_the_settings(instance: Instance) -> None:
    """No address in a document comes from a Host header."""
    anyone = instance.caller(None)

    for path in [*DOCUMENTS, "/mcp/server-card", "/mcp/odd/server-card", "/v0.1/servers/org.example.agents%2Fodd/versions/latest"]:
        text = (await anyone.get(path, Accept="application/json", Host="localhost", **{"X-Forwarded-Host": "evil.example"})).text
        origins = set(re.findall(r"https?://[^/\"\\]+", text)) - {"https://static.modelcontextprotocol.io"}
        assert origins <= {ADDRESS}, path
        assert "localhost" not in text


async def test_the_mcp_servers_document_has_every_field(instance: Instance) -> None:
    """/.well-known/mcp-servers.json in its documented shape."""
    document = (await instance.caller(None).get("/.well-known/mcp-servers.json")).json()

    odd = next(server for server in document["servers"] if server["id"] == "odd")
    assert (document["registry_version"], document["organization"]) == ("1.0", "The Rooks")
    assert odd == {
        "id": "odd",
        "name": "The odd one",
        "description": "Misbehaves",
        "tagline": "Misbehaves",
        "icon": "data:image/png;base64,aa",
        "status": "available",
        "use_when": "a test is run",
        "connection": {"type": "streamable-http", "url": f"{ADDRESS}/mcp/odd"},
        "capabilities": ["tools", "resources", "prompts"],
        "related_servers": ["old"],
    }


async def test_the_ai_catalog_links_to_each_servers_card(instance: Instance) -> None:
    """AI Catalog 1.0, each entry links to a card of SEP-2127, which names no tool."""
    anyone = instance.caller(None)
    catalog = (await anyone.get("/.well-known/ai-catalog.json")).json()

    assert (catalog["specVersion"], catalog["host"]["displayName"]) == ("1.0", "The Rooks")
    for entry in catalog["entries"]:
        assert re.fullmatch(r"urn:air:agents\.example\.org:mcp:[A-Za-z0-9-]+", entry["identifier"])
        assert entry["type"] == "application/mcp-server-card+json"
        response = await anyone.get(entry["url"].removeprefix(ADDRESS))
        card = response.json()
        assert response.headers["content-type"] == entry["type"]
        assert response.headers["access-control-allow-origin"] == "*"
        assert {"$schema", "name", "version", "description"} <= set(card) <= {
            "$schema", "name", "title", "version", "description", "websiteUrl", "remotes",
        }  # fmt: skip
        assert re.fullmatch(r"org\.example\.agents/[A-Za-z0-9._-]+", card["name"])
        assert 1 <= len(card["description"]) <= 100
        assert card["remotes"][0]["url"] == entry["url"].removesuffix("/server-card")
    assert (await anyone.get("/mcp/server-card")).json()["remotes"][0]["url"] == f"{ADDRESS}/mcp"
    for hidden in ("secret", "theirs", "off", "none"):
        assert (await anyone.get(f"/mcp/{hidden}/server-card")).json()["error"] == "server_not_found"


def test_cards_name_supported_protocol_versions() -> None:
    """The SDK that serves /mcp supports every version that a card names."""
    assert set(PROTOCOL_VERSIONS) <= set(KNOWN_PROTOCOL_VERSIONS)


async def test_the_registrys_list_is_read_page_by_page(instance: Instance) -> None:
    """/v0.1/servers in the registry's shape: cursor, limit, search, updated_since, version."""
    anyone = instance.caller(None)
    names: list[str] = []
    cursor = ""
    for _ in range(7):
        page = (await anyone.get(f"/v0.1/servers?limit=1{cursor}")).json()
        names += [entry["server"]["name"] for entry in page["servers"]]
        assert page["metadata"]["count"] == 1
        cursor = f"&cursor={page['metadata'].get('nextCursor')}"
    assert names == sorted(f"org.example.agents/{name}" for name in ("agents", "brain", "content", "notify", "odd", "old", "scoring"))
    assert cursor == "&cursor=None"

    async def search(query: str) -> list[str]:
        return [entry["server"]["name"].partition("/")[2] for entry in (await anyone.get(f"/v0.1/servers?{query}")).json()["servers"]]

    assert await search("search=OLD") == ["old"]
    assert await search("search=the+odd") == ["odd"]
    assert len(await search("version=latest")) == 7
    assert await search("version=9.9.9") == []
    assert await search("updated_since=2999-01-01T00:00:00Z") == []
    assert len(await search("updated_since=2020-01-01T00:00:00Z")) == 7
    for query in ("limit=0", "limit=101", "updated_since=yesterday", "page=2"):
        assert (await anyone.get(f"/v0.1/servers?{query}")).status_code == 422


async def test_a_server_of_the_registry_has_one_version(instance: Instance) -> None:
    """Versions, and one version by name, its slash raw or encoded."""
    anyone = instance.caller(None)
    base = "/v0.1/servers/org.example.agents"

    versions = (await anyone.get(f"{base}%2Fold/versions")).json()["servers"]
    latest = (await anyone.get(f"{base}/old/versions/latest")).json()

    assert versions == [latest]
    assert latest["server"]["remotes"][0]["type"] == "streamable-http"
    meta = latest["_meta"]["io.modelcontextprotocol.registry/official"]
    assert (meta["status"], meta["isLatest"]) == ("deprecated", True)
    assert (await anyone.get(f"{base}/old/versions/{latest['server']['version']}")).json() == latest
    for missing in ("old/versions/9.9.9", "none/versions", "secret/versions", "none/versions/latest"):
        assert (await anyone.get(f"{base}/{missing}")).json()["error"] == "resource_not_found"


async def test_a_browser_gets_a_page_and_a_program_json(instance: Instance) -> None:
    """/connect and /servers are pages for clients that accept HTML by name, and JSON for all others."""
    for accept, is_page in [
        (BROWSER, True),
        ("text/html", True),
        ("text/*", True),
        ("*/*", False),
        ("application/json", False),
        ("application/json, text/html;q=0.9", False),
        ("text/html;q=0.1, application/json", False),
        ("text/html;q=nonsense", False),
    ]:
        for path in ("/servers", "/connect"):
            response = await instance.caller(None).get(path, Accept=accept)
            assert response.headers["content-type"].startswith("text/html" if is_page else "application/json"), (path, accept)
            assert "accept" in response.headers["vary"].lower()


async def test_pages_contain_nothing_from_other_origins(instance: Instance) -> None:
    """No other host, no markup from a server; the policy allows only the page's own style and script."""
    for path in ("/servers", "/connect", "/connect?server=old", "/connect?mode=search"):
        response = await instance.caller(None).get(path, Accept=BROWSER)
        policy, page = response.headers["content-security-policy"], response.text

        assert MARKUP not in page
        for kind in ("style", "script"):
            (content,) = re.findall(rf"<{kind}>(.*?)</{kind}>", page, re.DOTALL)
            digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
            assert f"{kind}-src 'sha256-{digest}'" in policy
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert not re.findall(r"""(?:src|href)=["'](?:https?:)?//""", page)
        assert not re.findall(r"\son[a-z]+=|\sstyle=", page)
        assert response.headers["x-content-type-options"] == "nosniff"


async def test_every_client_has_a_set_up(instance: Instance) -> None:
    """Each text has the public address, and a variable or a placeholder instead of a key."""
    key = await instance.api_key("mcp:read")

    for query, url in [("", f"{ADDRESS}/mcp"), ("?server=odd", f"{ADDRESS}/mcp/odd"), ("?mode=search", f"{ADDRESS}/mcp?mode=search")]:
        response = await key.get(f"/connect{query}", Accept="application/json")
        body = response.json()
        clients = {client["client"]: client for client in body["clients"]}
        assert list(clients) == [
            "claude-code", "cursor", "vscode", "codex", "claude-desktop", "windsurf", "gemini", "zed", "opencode", "qwen-code", "copilot",
            "cline", "curl", "python", "javascript",
        ]  # fmt: skip
        assert body["url"] == url
        for name, client in clients.items():
            assert (url in client["text"]) == (name not in {"curl", "python", "javascript"}), name
        assert str(key.key) not in response.text
        page = unescape((await key.get(f"/connect{query}", Accept=BROWSER)).text)
        assert all(client["text"] in page for client in clients.values())
        assert all(unescape(client["command"]) in page for client in clients.values() if client["command"])
    assert (await key.get("/connect?server=none")).status_code == 404
    assert (await key.get("/connect?mode=other")).status_code == 422


async def test_the_page_names_search_and_how_to_get_a_key_before_any_client(instance: Instance) -> None:
    """The top of the page has both addresses and the commands that create a key."""
    anyone = instance.caller(None)

    for query, url in [("", f"{ADDRESS}/mcp"), ("?server=odd", f"{ADDRESS}/mcp/odd")]:
        page = unescape((await anyone.get(f"/connect{query}", Accept=BROWSER)).text)
        body = (await anyone.get(f"/connect{query}")).json()
        top = page.partition('aria-label="Clients"')[0]

        assert body["search_url"] == f"{url}?mode=search"
        assert url in top
        assert body["search_url"] in top
        assert body["key_commands"] in top
        assert "rookery agent-keys create" in top
        assert "rookery keys create" in top


async def test_claude_code_is_set_up_by_one_command_without_a_key(instance: Instance) -> None:
    """`claude mcp add` is one line, and a shell does not expand the variable in it."""
    for query, name, url in [("", "rookery", "/mcp"), ("?server=odd", "odd", "/mcp/odd"), ("?mode=search", "rookery", "/mcp?mode=search")]:
        clients = (await instance.caller(None).get(f"/connect{query}")).json()["clients"]
        command = next(client["command"] for client in clients if client["client"] == "claude-code")

        assert shlex.split(command) == [
            "claude", "mcp", "add", "--transport", "http", "--scope", "project", name, f"{ADDRESS}{url}",
            "--header", "Authorization: Bearer ${ROOKERY_KEY}",
        ]  # fmt: skip
        assert len(command.splitlines()) == 1


async def test_a_call_works_under_both_paths(instance: Instance) -> None:
    """POST {mcp_url}/mcp/tools/call equals POST /tools/call, errors included."""
    key: Caller = await instance.api_key("mcp:write")
    body = {"server": "odd", "tool": "echo", "arguments": {"text": "hi"}}

    short_path = (await key.post("/mcp/tools/call", body)).json()
    long_path = (await key.post("/api/v1/mcp/tools/call", body)).json()
    invalid = await key.post("/mcp/tools/call", {"server": "odd"})

    assert short_path | {"duration_ms": 0} == long_path | {"duration_ms": 0}
    assert (invalid.status_code, invalid.json()["error"], invalid.json()["success"]) == (400, "invalid_request", False)
    assert (await instance.caller(None).post("/mcp/tools/call", body)).status_code == 401


@pytest.fixture
def server_process(tmp_path: Path, model_folder: Path) -> Iterator[Server]:
    """A server in a process of its own."""
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "models").symlink_to(model_folder / "models")
    server = Server(folder)
    yield server
    server.stop()


def test_the_key_commands_of_the_page_create_working_keys(server_process: Server) -> None:
    """The page's commands, run unchanged on the server's data, create keys that list its tools."""
    commands = server_process.client.get("/connect").json()["key_commands"]
    commands_run = [shlex.split(line)[1:] for line in commands.splitlines() if line.startswith("rookery ")]

    assert len(commands_run) == 2
    for arguments in commands_run:
        process = run_rookery(*arguments, "--json", data_dir=server_process.folder)
        key = re.findall(r'"(?:plaintext_key|api_key|key)": "([^"]+)"', process.stdout)
        assert len(key) == 1, process.stdout
        response = server_process.client.get("/api/v1/mcp/servers/brain/tools", headers={"Authorization": f"Bearer {key[0]}"})
        assert response.status_code == 200, response.text
        assert response.json()["count"] > 0


def test_the_set_up_texts_run(server_process: Server, tmp_path: Path) -> None:
    """The texts for curl, Python and JavaScript, run unchanged, call a tool and list one server's tools."""
    environment = {"ROOKERY_KEY": server_process.keys["api_key"], "PATH": "/usr/bin:/bin"}
    runners = {"python": [sys.executable, "-I"], "javascript": [node()], "curl": ["sh", "-e"]}

    for query, expected in [("", "memories"), ("?server=brain", "remember")]:
        response = server_process.client.get(f"/connect{query}", headers={"Accept": "application/json"}).json()
        texts = {client["client"]: client["text"] for client in response["clients"]}
        for client, command in runners.items():
            file = tmp_path / f"{client}.mjs"
            file.write_text(texts[client])
            process = subprocess.run([*command, str(file)], env=environment, capture_output=True, text=True, timeout=HANG_S, check=False)
            assert (process.returncode, expected in process.stdout) == (0, True), (client, process.stdout, process.stderr)
            assert server_process.keys["api_key"] not in texts[client]
