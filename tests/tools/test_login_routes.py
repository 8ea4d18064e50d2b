"""Logins at upstreams over HTTP with a page, and from a terminal beside a running server."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import cast
from urllib.parse import urlsplit

import httpx2
import pytest

from rookery.access.models import AuditEntry
from rookery.kernel.config import Settings
from tests.conftest import Caller, Instance, eventually, run_instance
from tests.deadlines import HANG_S
from tests.processes import Server, run_rookery, run_server
from tests.tools.makers import make_odd_entry as odd
from tests.tools.oauth_server import OAuthServer, authorize, parse_hidden_fields

pytestmark = pytest.mark.embedded_store  # test_logins.py covers the differences between dialects

LOGIN = "/api/v1/servers/guarded/login"


@pytest.fixture
async def instance(settings: Settings, oauth_server: OAuthServer) -> AsyncIterator[Instance]:
    """A running server whose file names it, one that needs no login, and one with a fault in its entry."""
    entry = {"url": f"{oauth_server.url}/mcp", "auth": "oauth", "name": "Guarded <b>"}
    entries = {
        "guarded": entry,
        "plain": {"url": f"{oauth_server.url}/mcp"},
        "faulty": {"url": f"{oauth_server.url}/mcp", "auth": {"type": "oauth", "resource": ""}},
    }
    settings.servers_file.write_text(json.dumps({"mcpServers": entries}))
    async with run_instance(settings) as running:
        yield running


async def begin_login(caller: Caller) -> str:
    """Begin a login; return the URL of the consent page."""
    response = await caller.post(LOGIN)
    assert response.status_code == 200, response.text
    return str(response.json()["authorization_url"])


async def open_callback_page(instance: Instance, url: str) -> httpx2.Response:
    """Grant consent, and open the callback page."""
    parts = urlsplit(authorize(url))
    assert parts.path == "/oauth/callback"
    return await instance.caller(None).get(f"{parts.path}?{parts.query}")


async def confirm(instance: Instance, page: httpx2.Response) -> httpx2.Response:
    """Submit the form of the callback page."""
    return await instance.caller(None).http.post("/oauth/callback", data=dict(parse_hidden_fields(page.text)))


async def get_health(caller: Caller) -> str:
    """Return the health of the server."""
    return str((await caller.get("/api/v1/mcp/servers/guarded")).json()["health"])


async def call(caller: Caller) -> dict[str, object]:
    """Call a tool of the server."""
    response = await caller.post("/api/v1/mcp/tools/call", {"server": "guarded", "tool": "write", "arguments": {}})
    return cast("dict[str, object]", response.json())


async def list_login_entries(instance: Instance) -> list[AuditEntry]:
    """Return the audit entries of logins in the workspace of *instance*."""
    entries = [entry async for entry in instance.rookery.access.audit.iter_entries(instance.workspace_id)]
    return [entry for entry in entries if entry.action.startswith("server.logged")]


def test_the_first_login_may_come_while_tool_servers_start(tmp_path: Path) -> None:
    """A login right after the start imports the OAuth library while the first sessions open; neither fails."""
    (tmp_path / "servers.json").write_text(json.dumps({"mcpServers": {"odd": odd()}}))
    with run_server(tmp_path, egress_allow="127.0.0.0/8") as server:
        added = server.client.post("/api/v1/servers", json={"id": "down", "url": "http://127.0.0.1:9/mcp", "auth": "oauth"})
        login = server.client.post("/api/v1/servers/down/login")
        listing = server.client.get("/api/v1/mcp/servers/odd/tools").json()

        assert added.status_code == 201
        assert (login.status_code, login.json()["error"]) == (422, "login_failed")
        assert "No connection to 127.0.0.1:9: the connection was refused" in login.json()["message"]
        assert listing["count"] > 0
        assert "DeadlockError" not in server.log()


async def test_a_workspace_logs_in_with_a_browser_and_its_calls_work(instance: Instance, oauth_server: OAuthServer) -> None:
    """Health goes from needs_login to online by a login, and back by a logout."""
    await eventually(lambda: has_health(instance, "needs_login"))
    failed = await call(instance.admin)
    assert "rookery servers login guarded" in str(failed["error"])

    page = await open_callback_page(instance, await begin_login(instance.admin))
    assert oauth_server.control()["granted"] == 0, "opening the page grants nothing"
    assert "Guarded &lt;b&gt;" in page.text
    assert "form-action 'self'" in page.headers["content-security-policy"]
    confirmed = await confirm(instance, page)

    assert (confirmed.status_code, "Logged in" in confirmed.text) == (200, True)
    await eventually(lambda: has_health(instance, "online"))
    assert (await call(instance.admin))["success"] is True
    assert (await instance.admin.get(LOGIN)).json() == {"server": "guarded", "logged_in": True}
    assert (await instance.admin.send("DELETE", LOGIN)).status_code == 204
    assert (await instance.admin.send("DELETE", LOGIN)).status_code == 404
    assert (await instance.admin.get(LOGIN)).json() == {"server": "guarded", "logged_in": False}
    assert (await call(instance.admin))["success"] is False
    assert [(entry.action, entry.subject_id) for entry in await list_login_entries(instance)] == [
        ("server.logged_in", "guarded"),
        ("server.logged_out", "guarded"),
    ]


async def has_health(instance: Instance, expected: str) -> bool:
    """Return whether the server has this health."""
    return await get_health(instance.admin) == expected


async def test_a_login_belongs_to_one_workspace(instance: Instance) -> None:
    """Another workspace can neither use, see nor delete it."""
    other = await instance.api_key(workspace_id=await instance.workspace("other"))
    await confirm(instance, await open_callback_page(instance, await begin_login(instance.admin)))
    await eventually(lambda: has_health(instance, "online"))

    assert (await call(other))["success"] is False
    assert (await other.get(LOGIN)).json()["logged_in"] is False
    assert (await other.send("DELETE", LOGIN)).status_code == 404
    assert (await call(instance.admin))["success"] is True


async def test_features_behind_a_login_are_listed_for_its_workspace_only(instance: Instance) -> None:
    """Tools and resources of an account are listed and readable only for its workspace."""
    other = await instance.api_key(workspace_id=await instance.workspace("other"))
    await confirm(instance, await open_callback_page(instance, await begin_login(instance.admin)))
    await eventually(lambda: has_health(instance, "online"))
    assert (await call(instance.admin))["success"] is True

    async def lists_private_resource(key: Caller) -> bool:
        response = await key.get("/api/v1/mcp/servers/guarded")
        assert response.json()["tool_count"] == 4
        return "secret plans" in response.text

    await eventually(lambda: lists_private_resource(instance.admin))
    assert not await lists_private_resource(other)
    responses = [await key.get("/api/v1/mcp/resources/guarded://docs/mine") for key in (instance.admin, other)]
    assert [("It is a plan." in response.text, response.status_code == 200) for response in responses] == [(True, True), (False, False)]


async def test_the_callback_of_a_login_is_accepted_once(instance: Instance) -> None:
    """Repeated, forged and empty callbacks are rejected."""
    page = await open_callback_page(instance, await begin_login(instance.admin))
    assert (await confirm(instance, page)).status_code == 200
    repeated = await confirm(instance, page)
    forged = await instance.caller(None).get("/oauth/callback?state=made-up&code=x&session_state=unknown-to-us")
    empty = await instance.caller(None).http.post("/oauth/callback")

    assert {response.status_code for response in (repeated, forged, empty)} == {400}
    assert "<form" not in forged.text


async def test_a_failed_login_is_reported_on_the_page(instance: Instance, oauth_server: OAuthServer) -> None:
    """A denied consent or a failing authorisation server ends the login with a message."""
    oauth_server.control(refuses="access_denied")
    page = await open_callback_page(instance, await begin_login(instance.admin))
    assert (page.status_code, "access_denied" in page.text, "<form" in page.text) == (400, True, False)
    oauth_server.control(refuses="")
    page = await open_callback_page(instance, await begin_login(instance.admin))
    oauth_server.control(token_status=503)
    failed = await confirm(instance, page)

    assert (failed.status_code, "503" in failed.text) == (422, True)

    oauth_server.control(token_status=0, takes="none")
    page = await open_callback_page(instance, await begin_login(instance.admin))
    assert (page.status_code, "invalid_target" in page.text, "&#34;resource&#34;: null" in page.text) == (400, True, True)


async def test_a_login_that_cannot_begin_reports_why(instance: Instance, oauth_server: OAuthServer) -> None:
    """Cases: a server without login, an unknown server, a faulty entry, and an authorisation server without registration."""
    without_login = await instance.admin.post("/api/v1/servers/plain/login")
    missing = await instance.admin.post("/api/v1/servers/nothing/login")
    faulty = await instance.admin.post("/api/v1/servers/faulty/login")
    oauth_server.control(registers=False)
    unregistered = await instance.admin.post(LOGIN)
    errors = [(response.status_code, response.json()["error"]) for response in (without_login, missing, faulty, unregistered)]

    assert errors == [(409, "no_login"), (404, "server_not_found"), (422, "login_failed"), (422, "login_failed")]
    assert "The entry of 'faulty' cannot be used: auth.resource must be an absolute URI" in faulty.json()["message"]
    assert "/oauth/callback" in unregistered.json()["message"]


async def test_the_login_at_a_workspaces_own_server_is_deleted_with_the_server(settings: Settings, oauth_server: OAuthServer) -> None:
    """Added over HTTP, at an address that the operator allows; a new server of the same id has no login."""
    entry = {
        "id": "ours",
        "url": f"{oauth_server.url}/mcp",
        "auth": {"type": "oauth", "client_id": "by hand", "client_secret": "${SECRET}", "resource": None},
    }
    oauth_server.control(client={"id": "by hand", "secret": "of the client"}, registers=False, takes="none")
    login, calls = "/api/v1/servers/ours/login", {"server": "ours", "tool": "write", "arguments": dict[str, object]()}
    async with run_instance(replace(settings, egress_allow=("127.0.0.0/8",))) as instance:
        created = await instance.admin.post("/api/v1/servers", {**entry, "secrets": {"SECRET": "of the client"}})
        assert created.status_code == 201, created.text
        assert created.json()["auth"]["resource"] is None
        page = await open_callback_page(instance, str((await instance.admin.post(login)).json()["authorization_url"]))
        assert (await confirm(instance, page)).status_code == 200
        result = (await instance.admin.post("/api/v1/mcp/tools/call", calls)).json()
        await instance.admin.send("DELETE", "/api/v1/servers/ours")
        await instance.admin.post("/api/v1/servers", {**entry, "secrets": {"SECRET": "of the client"}})
        login_state = (await instance.admin.get(login)).json()

    assert result["success"] is True, result
    assert login_state == {"server": "ours", "logged_in": False}


async def test_test_keys_cannot_log_in(instance: Instance) -> None:
    """A login acts for a real account."""
    tester = await instance.api_key(environment="test")
    responses = [await tester.post(LOGIN), await tester.send("DELETE", LOGIN)]

    assert [(response.status_code, response.json()["error"]) for response in responses] == [(403, "test_key_refused")] * 2


async def test_the_client_metadata_document_is_public(instance: Instance) -> None:
    """Its address is the configured one, whatever the Host header."""
    document = (await instance.caller(None).get("/oauth/client.json", host="localhost")).json()

    assert document["client_id"].endswith("/oauth/client.json")
    assert document["redirect_uris"] == [document["client_id"].replace("client.json", "callback")]
    assert "localhost" not in json.dumps(document)


def call_text(server: Server) -> str:
    """Call the tool; return its text, or "" while it fails."""
    body: dict[str, object] = {"server": "guarded", "tool": "write", "arguments": {}}
    response = server.client.post("/api/v1/mcp/tools/call", json=body).json()
    return str(response["result"]["content"][0]["text"]) if response["success"] else ""


async def test_an_operator_logs_in_beside_a_running_server(tmp_path: Path, oauth_server: OAuthServer) -> None:
    """The server uses the login of `rookery servers login` within seconds, and its log has no secret of it."""
    folder = tmp_path / "data"
    folder.mkdir()
    entry = {"url": f"{oauth_server.url}/mcp", "auth": "oauth"}
    (folder / "servers.json").write_text(json.dumps({"mcpServers": {"guarded": entry}}))
    with run_server(folder) as server:
        command = [sys.executable, "-m", "rookery", "--data-dir", str(folder), "servers"]
        with subprocess.Popen(
            [*command, "login", "guarded", "--json", "--wait", "300"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as login:
            assert login.stdout is not None
            assert login.stderr is not None
            url = next(line.strip() for line in login.stderr if line.startswith("http"))
            callback_url = authorize(url)
            forged = httpx2.get(callback_url.replace("state=", "state=x"), trust_env=False, timeout=HANG_S)
            callback = httpx2.get(callback_url, trust_env=False, timeout=HANG_S)
            output = json.loads(login.stdout.read())
            last_line = login.stderr.read().splitlines()[-1]
        text = await eventually(lambda: call_text(server))
        logout, second_logout = (run_rookery("servers", "logout", "guarded", data_dir=folder) for _ in range(2))
        log = server.log()

    assert login.returncode == 0
    assert output == {"server": "guarded", "workspace_id": None, "logged_in": True, "tools": 4, "error": None}
    assert last_line == "Logged in at guarded: it has 4 tools."
    assert (forged.status_code, callback.status_code) == (200, 200)
    assert (logout.returncode, second_logout.returncode) == (0, 1)
    token = json.loads(text)["authorization"].removeprefix("Bearer ")
    assert token not in log
    assert token.encode() not in b"".join(path.read_bytes() for path in folder.glob("records.db*"))


def test_a_login_that_nobody_consents_to_ends(tmp_path: Path, oauth_server: OAuthServer) -> None:
    """The command stops waiting after `--wait` seconds."""
    entry = {"url": f"{oauth_server.url}/mcp", "auth": "oauth"}
    (tmp_path / "servers.json").write_text(json.dumps({"mcpServers": {"guarded": entry}}))
    timed_out = run_rookery("servers", "login", "guarded", "--wait", "1", data_dir=tmp_path)
    unknown = run_rookery("servers", "login", "nobody", data_dir=tmp_path)

    assert (timed_out.returncode, "There was no consent within 1 s" in timed_out.stderr) == (1, True), timed_out.stderr
    assert (unknown.returncode, "The server 'nobody' does not exist" in unknown.stderr) == (1, True), unknown.stderr
