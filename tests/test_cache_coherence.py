"""
Changes through one server process, read through another on the same PostgreSQL.

The table "Caches" of docs/architecture.md has the times. What it says is seen at once is not waited for here.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from urllib.parse import quote

import httpx2
import pytest

from tests.conftest import SECRET_KEY, eventually
from tests.deadlines import HANG_S
from tests.processes import Server, run_rookery, run_server
from tests.stopwatch import Stopwatch
from tests.tools.makers import SERVERS, make_odd_entry

pytestmark = pytest.mark.external_service

_KEYS, _AGENT_KEYS, _SERVERS, _CALL = "/api/v1/api-keys", "/api/v1/agent-keys", "/api/v1/servers", "/api/v1/mcp/tools/call"
_SEARCH = {"server": "brain", "tool": "search", "arguments": {"query": "x"}}
_MAX_SERVER_DELAY_S = 3.0
"""The servers of workspaces are polled every 0.5 s. The rest is for the first call, which opens a session."""


@pytest.fixture(scope="module")
def upstream() -> Iterator[str]:
    """The URL of a tool server."""
    with subprocess.Popen([sys.executable, "-I", "-S", str(SERVERS / "legacy.py")], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{int(process.stdout.readline())}/mcp"
        process.kill()


@pytest.fixture
def servers(postgres_database: str, data_dir: Path) -> Iterator[tuple[Server, Server]]:
    """Two server processes on one record store."""
    start = partial(run_server, data_dir, database_url=postgres_database, secret_key=SECRET_KEY, egress_allow="127.0.0.0/8")
    with start() as first, start() as second:
        yield first, second


def _connect(server: Server, key: str) -> httpx2.Client:
    return httpx2.Client(base_url=server.url, headers={"Authorization": f"Bearer {key}"}, timeout=HANG_S)


def _post(server: Server, path: str, **body: object) -> dict[str, object]:
    response = server.client.post(path, json=body)
    assert response.is_success, response.text
    return dict(response.json())


async def _wait_for_status(server: Server, body: Mapping[str, object], status: int) -> None:
    """Wait until a call at *server* has this status. Fail if that takes longer than the servers of workspaces may be outdated."""
    with Stopwatch() as watch:
        await eventually(lambda: server.client.post(_CALL, json=body).status_code == status)
    assert watch.reference_s < _MAX_SERVER_DELAY_S


def test_changes_of_keys_limits_and_workspaces_are_seen_at_once(servers: tuple[Server, Server]) -> None:
    """Architecture, "Caches": keys, scopes, tiers, rate limits and deleted workspaces, after the other process has cached the key."""
    first, second = servers
    created = _post(first, _KEYS, name="key", scopes=["brain:read", "brain:write"], rate_limit_tier="pro")
    agent = _post(first, _AGENT_KEYS, name="agent", permissions=["brain:read"], rate_limit=600)
    workspace = _post(first, "/api/v1/workspaces", name="other")
    tenant = _post(first, f"/api/v1/workspaces/{workspace['workspace_id']}/api-keys", name="tenant", scopes=["brain:read"])
    one, agent_one = f"{_KEYS}/{created['id']}", f"{_AGENT_KEYS}/{agent['id']}"
    with (
        _connect(second, str(created["plaintext_key"])) as key,
        _connect(second, str(agent["key"])) as agent_key,
        _connect(second, str(tenant["plaintext_key"])) as tenant_key,
    ):

        def get(client: httpx2.Client) -> tuple[int, str | None]:
            response = client.get("/v1/brain/tags")
            return response.status_code, None if response.is_success else response.json()["error"]

        def get_limit(client: httpx2.Client) -> int:
            return int(client.get("/v1/brain/tags").headers["X-RateLimit-Limit"])

        assert [get(client) for client in (key, agent_key, tenant_key)] == [(200, None)] * 3
        limit = get_limit(key)

        first.client.patch(one, json={"rate_limit_tier": "free"}).raise_for_status()
        assert get_limit(key) == 1_000 < limit
        first.client.patch(agent_one, json={"rate_limit": 2}).raise_for_status()
        assert get(agent_key) == (200, None), "one of the two requests of the new limit was made before"
        assert get(agent_key) == (429, "rate_limited")

        first.client.patch(one, json={"scopes": ["brain:write"]}).raise_for_status()
        assert get(key) == (403, "scope_missing")
        first.client.patch(one, json={"scopes": ["brain:read"]}).raise_for_status()
        assert get(key) == (200, None)
        first.client.post(f"{one}/suspend").raise_for_status()
        assert get(key) == (401, "key_revoked")
        first.client.post(f"{one}/resume").raise_for_status()
        assert get(key) == (200, None)
        first.client.post(f"{agent_one}/revoke").raise_for_status()
        assert get(agent_key) == (401, "key_revoked")
        first.client.delete(one).raise_for_status()
        assert get(key) == (401, "unauthorised")

        assert get(tenant_key) == (200, None)
        first.client.delete(f"/api/v1/workspaces/{workspace['workspace_id']}").raise_for_status()
        assert get(tenant_key) == (401, "unauthorised")


def test_a_stopped_tool_rejects_calls_at_once(servers: tuple[Server, Server], postgres_database: str, data_dir: Path) -> None:
    """Architecture, "Caches": `rookery tools stop` in a process of its own, and both servers have called the tool before."""
    environment = {"ROOKERY_DATABASE_URL": postgres_database, "ROOKERY_SECRET_KEY": SECRET_KEY, "ROOKERY_MIN_FREE_DISK_MB": "0"}

    def call() -> list[int]:
        return [server.client.post(_CALL, json=_SEARCH).status_code for server in servers]

    for _ in range(2):
        assert call() == [200, 200]
        stopped = run_rookery("tools", "stop", "brain/search", "--all-workspaces", data_dir=data_dir, environment=environment)
        assert stopped.returncode == 0, stopped.stderr
        assert call() == [403, 403]
        started = run_rookery("tools", "start", "brain/search", "--all-workspaces", data_dir=data_dir, environment=environment)
        assert started.returncode == 0, started.stderr


async def test_servers_of_workspaces_are_seen_within_their_time(servers: tuple[Server, Server], upstream: str) -> None:
    """Architecture, "Caches": a tool server that was added, changed, disabled and removed over HTTP at another process."""
    first, second = servers
    body: dict[str, object] = {"server": "own", "tool": "header", "arguments": {}}

    assert second.client.post(_CALL, json=body).status_code == 404
    _post(first, _SERVERS, id="own", url=upstream)
    await _wait_for_status(second, body, 200)
    first.client.patch(f"{_SERVERS}/own", json={"enabled": False}).raise_for_status()
    await _wait_for_status(second, body, 403)
    first.client.patch(f"{_SERVERS}/own", json={"enabled": True}).raise_for_status()
    await _wait_for_status(second, body, 200)
    first.client.delete(f"{_SERVERS}/own").raise_for_status()
    await _wait_for_status(second, body, 404)


async def test_a_link_of_a_result_is_read_by_another_server(servers: tuple[Server, Server], data_dir: Path) -> None:
    """Architecture, "Caches": a link that no list has, over HTTP, by the key that got it and by no other."""
    first, second = servers
    entry = {"command": sys.executable, "args": ["-I", "-S", str(SERVERS / "linking.py"), "linking"]}
    (data_dir / "servers.json").write_text(json.dumps({"mcpServers": {"linking": entry}}), encoding="utf-8")
    uri = "https://example.org/a%20report.pdf"
    path = f"/api/v1/mcp/resources/{quote(uri, safe='')}"
    await eventually(lambda: all(server.client.get("/api/v1/mcp/servers/linking").is_success for server in servers))
    assert second.client.get(path).status_code == 404

    _post(first, "/api/v1/mcp/servers/linking/tools/link", uri=uri)

    with Stopwatch() as watch:
        await eventually(lambda: second.client.get(path).is_success)
    assert watch.reference_s < _MAX_SERVER_DELAY_S
    assert second.client.get(path).json()["content"]["contents"][0]["text"] == f"linking read {uri}"
    with _connect(second, second.keys["agent_key"]) as other:
        assert other.get(path).status_code == 404


async def test_a_changed_list_of_tools_is_seen_by_processes_without_a_session(servers: tuple[Server, Server], data_dir: Path) -> None:
    """
    Architecture, "Caches": `servers.json`, and the tools of a server, which one process lists again after a call.

    The session is shared: what a session of one workspace or key shows is its own, and no other process has this session. The session
    of the second process, which listed the server, ends within this time too.
    """
    first, second = servers
    entry = make_odd_entry(isolation="shared", idle_s=1)
    (data_dir / "servers.json").write_text(json.dumps({"mcpServers": {"odd": entry}}), encoding="utf-8")

    def list_tools(server: Server) -> set[str]:
        response = server.client.get("/api/v1/mcp/servers/odd/tools")
        return {tool["name"] for tool in response.json()["tools"]} if response.is_success else set()

    with Stopwatch() as watch:
        await eventually(lambda: all("grow" in list_tools(server) for server in servers))
    assert watch.reference_s < _MAX_SERVER_DELAY_S
    assert "late" not in list_tools(second)
    first.client.post(_CALL, json={"server": "odd", "tool": "grow", "arguments": {}}).raise_for_status()
    await eventually(lambda: "late" in list_tools(first))
    with Stopwatch() as watch:
        await eventually(lambda: "late" in list_tools(second))
    assert watch.reference_s < _MAX_SERVER_DELAY_S
