"""Logging in at upstreams from the outside: over HTTP with a page of ours, and from a terminal beside a running server (D-31, D-33)."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import cast
from urllib.parse import urlsplit

import httpx2
import pytest

from rookery.access.models import AuditEntry
from rookery.kernel.config import Settings
from tests.conftest import Caller, Instance, eventually, run_instance
from tests.processes import Server, run_server
from tests.tools.makers import make_odd_entry as odd
from tests.tools.oauth_server import OAuthServer, authorize, parse_hidden_fields, run_oauth_server

LOGIN = "/api/v1/servers/guarded/login"


@pytest.fixture
def database_url() -> str:
    """The embedded store alone: what differs by dialect is tested in test_logins.py."""
    return "embedded:"


@pytest.fixture
def oauth_server() -> Iterator[OAuthServer]:
    """A server behind an authorisation server."""
    with run_oauth_server() as it:
        yield it


@pytest.fixture
async def instance(settings: Settings, oauth_server: OAuthServer) -> AsyncIterator[Instance]:
    """A running server whose file names it, and one that asks for no login."""
    entry = {"url": f"{oauth_server.url}/mcp", "auth": "oauth", "name": "Guarded <b>"}
    settings.servers_file.write_text(json.dumps({"mcpServers": {"guarded": entry, "plain": {"url": f"{oauth_server.url}/mcp"}}}))
    async with run_instance(settings) as opened:
        yield opened


async def begin(caller: Caller) -> str:
    """Begin a login; return where consent is given."""
    answer = await caller.post(LOGIN)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["authorization_url"])


async def arrive(instance: Instance, url: str) -> httpx2.Response:
    """Open the page to which consent leads."""
    parts = urlsplit(authorize(url))
    assert parts.path == "/oauth/callback"
    return await instance.caller(None).get(f"{parts.path}?{parts.query}")


async def confirm(instance: Instance, page: httpx2.Response) -> httpx2.Response:
    """Press the page's button."""
    return await instance.caller(None).http.post("/oauth/callback", data=dict(parse_hidden_fields(page.text)))


async def health(caller: Caller) -> str:
    """Return how the server does."""
    return str((await caller.get("/api/v1/mcp/servers/guarded")).json()["health"])


async def call(caller: Caller) -> dict[str, object]:
    """Call a tool of the server."""
    answer = await caller.post("/api/v1/mcp/tools/call", {"server": "guarded", "tool": "write", "arguments": {}})
    return cast("dict[str, object]", answer.json())


async def audited(instance: Instance) -> list[AuditEntry]:
    """Return what the audit log of the first workspace says of logins."""
    found = [entry async for entry in instance.rookery.access.audit.iter_entries(instance.workspace_id)]
    return [entry for entry in found if entry.action.startswith("server.logged")]


def test_the_first_login_may_come_while_tool_servers_start(tmp_path: Path) -> None:
    """Issue 14: a login just after the start loads the protocol's library beside the first sessions; neither fails. D-31, D-16."""
    (tmp_path / "servers.json").write_text(json.dumps({"mcpServers": {"odd": odd()}}))
    with run_server(tmp_path, egress_allow="127.0.0.0/8") as server:
        added = server.client.post("/api/v1/servers", json={"id": "down", "url": "http://127.0.0.1:9/mcp", "auth": "oauth"})
        login = server.client.post("/api/v1/servers/down/login")
        listed = server.client.get("/api/v1/mcp/servers/odd/tools").json()

        assert added.status_code == 201
        assert (login.status_code, login.json()["error"]) == (422, "login_failed")
        assert "No connection to 127.0.0.1" in login.json()["message"]
        assert listed["count"] > 0
        assert "DeadlockError" not in server.log()


async def test_a_workspace_logs_in_with_a_browser_and_its_calls_work(instance: Instance, oauth_server: OAuthServer) -> None:
    """D-31, D-33: needs_login, then a page, then online; and out again."""
    await eventually(lambda: is_health(instance, "needs_login"))
    refused = await call(instance.admin)
    assert "rookery servers login guarded" in str(refused["error"])

    page = await arrive(instance, await begin(instance.admin))
    assert oauth_server.control()["granted"] == 0, "looking at the page does nothing"
    assert "Guarded &lt;b&gt;" in page.text
    assert "form-action 'self'" in page.headers["content-security-policy"]
    done = await confirm(instance, page)

    assert (done.status_code, "Logged in" in done.text) == (200, True)
    await eventually(lambda: is_health(instance, "online"))
    assert (await call(instance.admin))["success"] is True
    assert (await instance.admin.get(LOGIN)).json() == {"server": "guarded", "logged_in": True}
    assert (await instance.admin.send("DELETE", LOGIN)).status_code == 204
    assert (await instance.admin.send("DELETE", LOGIN)).status_code == 404
    assert (await instance.admin.get(LOGIN)).json() == {"server": "guarded", "logged_in": False}
    assert (await call(instance.admin))["success"] is False
    assert [(entry.action, entry.subject_id) for entry in await audited(instance)] == [
        ("server.logged_in", "guarded"),
        ("server.logged_out", "guarded"),
    ]


async def is_health(instance: Instance, wanted: str) -> bool:
    """Tell whether the server does so."""
    return await health(instance.admin) == wanted


async def test_one_workspaces_login_is_no_others(instance: Instance) -> None:
    """D-24, D-31: neither used, nor seen, nor forgotten by another."""
    other = await instance.api_key(workspace_id=await instance.workspace("other"))
    await confirm(instance, await arrive(instance, await begin(instance.admin)))
    await eventually(lambda: is_health(instance, "online"))

    assert (await call(other))["success"] is False
    assert (await other.get(LOGIN)).json()["logged_in"] is False
    assert (await other.send("DELETE", LOGIN)).status_code == 404
    assert (await call(instance.admin))["success"] is True


async def test_what_lies_behind_one_workspaces_login_is_listed_to_no_other(instance: Instance) -> None:
    """Spec 2.8, D-32: tools and resources of an account are listed and readable only for its workspace."""
    other = await instance.api_key(workspace_id=await instance.workspace("other"))
    await confirm(instance, await arrive(instance, await begin(instance.admin)))
    await eventually(lambda: is_health(instance, "online"))
    assert (await call(instance.admin))["success"] is True

    async def lists_it(key: Caller) -> bool:
        shown = await key.get("/api/v1/mcp/servers/guarded")
        assert shown.json()["tool_count"] == 4
        return "secret plans" in shown.text

    await eventually(lambda: lists_it(instance.admin))
    assert not await lists_it(other)
    read = [await key.get("/api/v1/mcp/resources/guarded://docs/mine") for key in (instance.admin, other)]
    assert [("It is a plan." in each.text, each.status_code == 200) for each in read] == [(True, True), (False, False)]


async def test_the_answer_to_a_login_counts_once(instance: Instance) -> None:
    """D-31: a reloaded page, and a forged answer."""
    page = await arrive(instance, await begin(instance.admin))
    assert (await confirm(instance, page)).status_code == 200
    again = await confirm(instance, page)
    made_up = await instance.caller(None).get("/oauth/callback?state=made-up&code=x&session_state=unknown-to-us")
    empty = await instance.caller(None).http.post("/oauth/callback")

    assert {each.status_code for each in (again, made_up, empty)} == {400}
    assert "<form" not in made_up.text


async def test_a_refusal_is_told_on_the_page(instance: Instance, oauth_server: OAuthServer) -> None:
    """D-31: a denied consent or a failing authorisation server ends the login with a message."""
    oauth_server.control(refuses="access_denied")
    page = await arrive(instance, await begin(instance.admin))
    assert (page.status_code, "access_denied" in page.text, "<form" in page.text) == (400, True, False)
    oauth_server.control(refuses="")
    page = await arrive(instance, await begin(instance.admin))
    oauth_server.control(token_status=503)
    failed = await confirm(instance, page)

    assert (failed.status_code, "503" in failed.text) == (422, True)


async def test_a_login_that_cannot_be_begun_says_why(instance: Instance, oauth_server: OAuthServer) -> None:
    """D-10, D-31: for a server without login, an unknown server, or an invalid authorisation server."""
    plain = await instance.admin.post("/api/v1/servers/plain/login")
    missing = await instance.admin.post("/api/v1/servers/nothing/login")
    oauth_server.control(registers=False)
    alone = await instance.admin.post(LOGIN)
    told = [(answer.status_code, answer.json()["error"]) for answer in (plain, missing, alone)]

    assert told == [(409, "no_login"), (404, "server_not_found"), (422, "login_failed")]
    assert "/oauth/callback" in alone.json()["message"]


async def test_a_workspace_logs_in_at_a_server_of_its_own_and_the_login_goes_with_it(settings: Settings, oauth_server: OAuthServer) -> None:
    """D-31, D-82: added over HTTP, at an address that the operator allows; a new server of the same id has no login."""
    entry = {
        "id": "ours",
        "url": f"{oauth_server.url}/mcp",
        "auth": {"type": "oauth", "client_id": "by hand", "client_secret": "${SECRET}"},
    }
    oauth_server.control(client={"id": "by hand", "secret": "of the client"}, registers=False)
    login, calls = "/api/v1/servers/ours/login", {"server": "ours", "tool": "write", "arguments": dict[str, object]()}
    async with run_instance(replace(settings, egress_allow=("127.0.0.0/8",))) as instance:
        made = await instance.admin.post("/api/v1/servers", {**entry, "secrets": {"SECRET": "of the client"}})
        assert made.status_code == 201, made.text
        page = await arrive(instance, str((await instance.admin.post(login)).json()["authorization_url"]))
        assert (await confirm(instance, page)).status_code == 200
        called = (await instance.admin.post("/api/v1/mcp/tools/call", calls)).json()
        await instance.admin.send("DELETE", "/api/v1/servers/ours")
        await instance.admin.post("/api/v1/servers", {**entry, "secrets": {"SECRET": "of the client"}})
        again = (await instance.admin.get(login)).json()

    assert called["success"] is True, called
    assert again == {"server": "ours", "logged_in": False}


async def test_test_keys_log_in_nowhere(instance: Instance) -> None:
    """D-25: a login acts for a real account."""
    tester = await instance.api_key(environment="test")
    answers = [await tester.post(LOGIN), await tester.send("DELETE", LOGIN)]

    assert [(answer.status_code, answer.json()["error"]) for answer in answers] == [(403, "test_key_refused")] * 2


async def test_what_we_are_as_a_client_is_public(instance: Instance) -> None:
    """D-31: client id metadata; the address is D-01's, whatever Host says."""
    document = (await instance.caller(None).get("/oauth/client.json", host="localhost")).json()

    assert document["client_id"].endswith("/oauth/client.json")
    assert document["redirect_uris"] == [document["client_id"].replace("client.json", "callback")]
    assert "localhost" not in json.dumps(document)


def succeeded(server: Server) -> str:
    """Call the tool; return what it says, nothing while it fails."""
    body: dict[str, object] = {"server": "guarded", "tool": "write", "arguments": {}}
    answer = server.client.post("/api/v1/mcp/tools/call", json=body).json()
    return str(answer["result"]["content"][0]["text"]) if answer["success"] else ""


async def test_an_operator_logs_in_beside_a_running_server(tmp_path: Path, oauth_server: OAuthServer) -> None:
    """D-31, D-37: `rookery servers login`; the server uses it within a second or two, and its log has no secret of it."""
    folder = tmp_path / "data"
    folder.mkdir()
    entry = {"url": f"{oauth_server.url}/mcp", "auth": "oauth"}
    (folder / "servers.json").write_text(json.dumps({"mcpServers": {"guarded": entry}}))
    with run_server(folder) as server:
        command = [sys.executable, "-m", "rookery", "--data-dir", str(folder), "servers"]
        with subprocess.Popen(
            [*command, "login", "guarded", "--json", "--wait", "60"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as login:
            assert login.stdout is not None
            assert login.stderr is not None
            url = next(line.strip() for line in login.stderr if line.startswith("http"))
            back = authorize(url)
            stranger = httpx2.get(back.replace("state=", "state=x"), trust_env=False)
            landed = httpx2.get(back, trust_env=False)
            said = json.loads(login.stdout.read())
            last = login.stderr.read().splitlines()[-1]
        called = await eventually(lambda: succeeded(server))
        out = subprocess.run([*command, "logout", "guarded"], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        again = subprocess.run([*command, "logout", "guarded"], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        log = server.log()

    assert login.returncode == 0
    assert said == {"server": "guarded", "workspace_id": None, "logged_in": True, "tools": 4, "error": None}
    assert last == "Logged in at guarded: it has 4 tools."
    assert (stranger.status_code, landed.status_code) == (200, 200)
    assert (out.returncode, again.returncode) == (0, 1)
    token = json.loads(called)["authorization"].removeprefix("Bearer ")
    assert token not in log
    assert token.encode() not in b"".join(path.read_bytes() for path in folder.glob("records.db*"))


def test_a_login_that_nobody_consents_to_ends(tmp_path: Path, oauth_server: OAuthServer) -> None:
    """D-31: it waits no longer than it said, and leaves nothing listening."""
    entry = {"url": f"{oauth_server.url}/mcp", "auth": "oauth"}
    (tmp_path / "servers.json").write_text(json.dumps({"mcpServers": {"guarded": entry}}))
    command = [sys.executable, "-m", "rookery", "--data-dir", str(tmp_path), "servers", "login", "guarded", "--wait", "1"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    unknown = subprocess.run([*command[:-3], "nobody"], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)

    assert (done.returncode, "There was no consent within 1 s" in done.stderr) == (1, True), done.stderr
    assert (unknown.returncode, "The server 'nobody' does not exist" in unknown.stderr) == (1, True), unknown.stderr
