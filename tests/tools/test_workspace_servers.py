"""Servers that workspaces add over HTTP."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import httpx2
import pytest

from rookery.access.models import KeyRestrictions
from rookery.kernel.clock import utc_now
from rookery.kernel.config import Settings
from rookery.tools.models import ToolStop
from rookery.tools.servers.workspace_servers import MAX_SECRETS_PER_SERVER, MAX_SERVERS_PER_WORKSPACE
from tests.conftest import OPERATOR, Caller, Instance, eventually, run_instance
from tests.tools.makers import SERVERS, list_children, make_odd_entry

SERVERS_API = "/api/v1/servers"
SECRET = "s3cr3t-0123456789"
UNREACHABLE = "http://127.0.0.1:9/mcp"


@pytest.fixture(scope="module")
def upstream() -> Iterator[str]:
    """The URL of a server whose tool returns the header X-Key of its request."""
    with subprocess.Popen([sys.executable, "-I", "-S", str(SERVERS / "legacy.py")], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{int(process.stdout.readline())}/mcp"
        process.kill()


@pytest.fixture
def open_settings(settings: Settings) -> Settings:
    """Settings of a server whose operator lets workspaces reach this host."""
    return replace(settings, egress_allow=("127.0.0.0/8",))


@pytest.fixture
async def instance(open_settings: Settings) -> AsyncIterator[Instance]:
    """A running server that lets workspaces reach this host."""
    async with run_instance(open_settings) as opened:
        yield opened


async def add(caller: Caller, url: str, **fields: object) -> dict[str, object]:
    """Add a server; it must succeed."""
    response = await caller.post(SERVERS_API, {"id": "own", "url": url} | fields)
    assert response.status_code == 201, response.text
    return dict(response.json())


async def call(caller: Caller, tool: str = "header", server: str = "own", **arguments: object) -> httpx2.Response:
    """Call a tool."""
    return await caller.post("/api/v1/mcp/tools/call", {"server": server, "tool": tool, "arguments": arguments})


def text_of_response(response: httpx2.Response) -> object:
    """Return the first text of a call that succeeded."""
    assert response.status_code == 200, response.text
    return response.json()["result"]["content"][0]["text"]


def errors_of(response: httpx2.Response) -> dict[str, list[str]]:
    """Return the errors of a 422 by field."""
    assert response.status_code == 422, response.text
    return dict(response.json()["errors"])


async def test_an_added_server_can_be_called_changed_disabled_and_deleted(instance: Instance, upstream: str) -> None:
    """The lifecycle of a server that a workspace added."""
    key = await instance.api_key("servers:*", "mcp:*")

    created = await add(key, upstream, tagline="Ours")
    assert text_of_response(await call(key)) == ""
    assert (created["id"], created["type"], created["enabled"], created["secrets"], created["workspace_id"]) == (
        "own",
        "http",
        True,
        [],
        instance.workspace_id,
    )

    servers = (await key.get("/api/v1/mcp/servers")).json()["servers"]
    assert {"own": "Ours"}.items() <= {server["id"]: server["tagline"] for server in servers}.items()
    page = (await key.get(SERVERS_API)).json()
    assert ([server["id"] for server in page["data"]], page["meta"]["total"]) == (["own"], 1)

    assert (await key.send("PATCH", f"{SERVERS_API}/own", {"enabled": False})).json()["enabled"] is False
    disabled = await call(key)
    assert (disabled.status_code, disabled.json()["error"]) == (403, "disabled")
    changed = (await key.send("PATCH", f"{SERVERS_API}/own", {"enabled": None, "status": "deprecated", "tagline": None})).json()
    assert (changed["enabled"], changed["status"], changed["tagline"]) == (True, "deprecated", "")
    assert "deprecation" in (await call(key)).headers

    assert (await key.send("DELETE", f"{SERVERS_API}/own")).status_code == 204
    assert (await call(key)).status_code == 404
    assert (await key.get(f"{SERVERS_API}/own")).json()["error"] == "resource_not_found"


async def test_a_secret_reaches_the_server_and_nothing_else(instance: Instance, open_settings: Settings, upstream: str) -> None:
    """Secrets are write-only and encrypted: in no response, not in the audit log, not in the record store."""
    key = instance.admin
    created = await add(key, upstream, headers={"X-Key": "key ${TOKEN}"}, secrets={"TOKEN": SECRET})

    assert text_of_response(await call(key)) == f"key {SECRET}"
    assert (created["headers"], created["secrets"]) == ({"X-Key": "key ${TOKEN}"}, ["TOKEN"])
    responses = [await key.get(path) for path in (SERVERS_API, f"{SERVERS_API}/own", "/api/v1/audit", "/api/v1/mcp/servers/own")]
    assert all(SECRET not in response.text for response in responses)
    if open_settings.database_url.reveal() == "embedded:":
        assert all(SECRET.encode() not in file.read_bytes() for file in open_settings.data_dir.glob("records.db*"))

    await key.send("PATCH", f"{SERVERS_API}/own", {"secrets": {"TOKEN": "another"}})
    assert text_of_response(await call(key)) == "key another"


async def test_secrets_do_not_follow_a_server_to_another_host(instance: Instance, upstream: str) -> None:
    """Otherwise a caller who may change a server could have its secrets sent to another host."""
    key = instance.admin
    await add(key, upstream, headers={"X-Key": "${TOKEN}"}, secrets={"TOKEN": SECRET})
    other_host = upstream.replace("127.0.0.1", "127.0.0.2")

    rejected = await key.send("PATCH", f"{SERVERS_API}/own", {"url": other_host})
    assert list(errors_of(rejected)) == ["secrets"]
    assert (await key.send("PATCH", f"{SERVERS_API}/own", {"url": other_host, "secrets": {"TOKEN": "new"}})).status_code == 200
    same_host = await key.send("PATCH", f"{SERVERS_API}/own", {"url": f"{other_host}/other"})
    assert (same_host.status_code, same_host.json()["secrets"]) == (200, ["TOKEN"])


INVALID: list[tuple[dict[str, object], str]] = [
    ({"headers": {"Authorization": "Bearer abc"}}, "headers.Authorization"),
    ({"headers": {"X-Api-Key": "abc"}}, "headers.X-Api-Key"),
    ({"url": "http://127.0.0.1/mcp?api_key=abc"}, "url"),
    ({"url": "http://me:abc@127.0.0.1/mcp"}, "url"),
    ({"auth": {"client_id": "me", "client_secret": "abc"}}, "auth.client_secret"),
    ({"headers": {"X-Key": "${TOKEN}"}}, "headers.X-Key"),
    ({"headers": {"Host": "inner.example"}}, "headers.Host"),
    ({"headers": {"transfer-encoding": "chunked"}}, "headers.transfer-encoding"),
    ({"auth": {"client_id": "${TOKEN}"}, "secrets": {"TOKEN": "abc"}}, "auth.client_id"),
    ({"auth": {"resource": "https://h/${TOKEN}"}, "secrets": {"TOKEN": "abc"}}, "auth.resource"),
    ({"auth": {"resource": "https://h/mcp#part"}}, "auth.resource"),
    ({"headers": {"X-Team": "a\r\nX-Other: b"}}, "headers.X-Team"),
    ({"headers": {"X Team": "a"}}, "headers.X Team"),
    ({"url": "ftp://127.0.0.1/mcp"}, "url"),
    ({"url": "http://[::1"}, "url"),
    ({"url": "http://127.0.0.1:99999/mcp"}, "url"),
    ({"url": "http://127.0.0.1:x/mcp"}, "url"),
    ({"url": "http://127.0.0.1/m cp"}, "url"),
    ({"url": "http:///mcp"}, "url"),
    ({"url": None}, "url"),
    ({"url": "http://192.168.7.7/mcp"}, "url"),
    ({"url": "http://169.254.169.254/mcp"}, "url"),
    ({"command": "ls", "url": None}, "command"),
    ({"id": "brain"}, "id"),
    ({"id": "server-card"}, "id"),
    ({"id": "-own"}, "id"),
    ({"id": "own/er"}, "id"),
    ({"isolation": "none"}, "isolation"),
    ({"tools": {"timeouts": {"a*": 1000.0}}}, "tools.timeouts.a*"),
    ({"tools": {"cache_s": {"a*": -1.0}}}, "tools.cache_s.a*"),
    ({"idle_s": 1e9}, "idle_s"),
    ({"taglime": "x"}, "taglime"),
    ({"forward_headers": ["X-Tenant", "X-*"]}, "forward_headers"),
    ({"secrets": {"a b": "c"}}, "secrets.a b.[key]"),
]


async def test_an_invalid_server_is_rejected_with_the_field(instance: Instance) -> None:
    """Nothing is stored; secrets outside of `secrets` are rejected too."""
    for fields, field in INVALID:
        response = await instance.admin.post(SERVERS_API, {"id": "own", "url": UNREACHABLE} | fields)

        assert list(errors_of(response)) == [field]
    assert (await instance.admin.get(SERVERS_API)).json()["data"] == []


async def test_an_invalid_change_is_rejected_with_the_field(instance: Instance) -> None:
    """A change is validated as a new server is."""
    await add(instance.admin, UNREACHABLE, enabled=False, secrets={"TOKEN": SECRET})
    before = (await instance.admin.get(f"{SERVERS_API}/own")).json()
    for fields, field in INVALID:
        if "id" not in fields:
            response = await instance.admin.send("PATCH", f"{SERVERS_API}/own", {**fields, "secrets": {"TOKEN": None, **_secrets(fields)}})

            assert list(errors_of(response)) == [field]
    assert (await instance.admin.get(f"{SERVERS_API}/own")).json() == before


def _secrets(fields: dict[str, object]) -> dict[str, object]:
    secrets = fields.get("secrets", {})
    assert isinstance(secrets, dict)
    return {str(name): value for name, value in secrets.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType] - JSON


async def test_a_server_id_is_unique_in_a_workspace(instance: Instance) -> None:
    """Among the workspace's own servers and those of the servers file."""
    (instance.rookery.settings.servers_file).write_text('{"mcpServers": {"files": {"command": "true"}}}', encoding="utf-8")
    await add(instance.admin, UNREACHABLE, enabled=False)
    duplicate = await instance.admin.post(SERVERS_API, {"id": "own", "url": UNREACHABLE})

    async def is_seen() -> bool:
        return (await instance.admin.get("/api/v1/mcp/servers/files")).status_code == 200

    await eventually(is_seen)
    taken_by_file = await instance.admin.post(SERVERS_API, {"id": "files", "url": UNREACHABLE})

    assert [(response.status_code, response.json()["error"]) for response in (duplicate, taken_by_file)] == [(409, "conflict")] * 2


async def test_the_servers_of_a_workspace_are_limited(instance: Instance) -> None:
    """No workspace can fill the catalogue."""
    for number in range(MAX_SERVERS_PER_WORKSPACE):
        await add(instance.admin, UNREACHABLE, id=f"own-{number}", enabled=False)
    over_limit = await instance.admin.post(SERVERS_API, {"id": "own", "url": UNREACHABLE})
    other = await instance.api_key(workspace_id=await instance.workspace("other"))

    assert over_limit.status_code == 409
    await add(other, UNREACHABLE, enabled=False)


async def test_a_workspaces_servers_are_invisible_to_others(instance: Instance, upstream: str) -> None:
    """Two workspaces and a sandbox may use the same server id; each calls its own server."""
    strangers = await instance.workspace("other")
    callers = [instance.admin, await instance.api_key(workspace_id=strangers), await instance.api_key(environment="test")]
    for number, caller in enumerate(callers):
        assert (await call(caller)).status_code == 404
        assert (await caller.get(SERVERS_API)).json()["data"] == []
        await add(caller, upstream, headers={"X-Key": "${KEY}"}, secrets={"KEY": f"of {number}"}, sandbox=True)

    assert [text_of_response(await call(caller)) for caller in callers] == ["of 0", "of 1", "of 2"]
    await callers[1].send("DELETE", f"{SERVERS_API}/own")
    assert [(await call(caller)).status_code for caller in callers] == [200, 404, 200]


async def test_a_key_with_allowed_servers_manages_only_those(instance: Instance) -> None:
    """A server outside of the list is not found, and none can be added."""
    await add(instance.admin, UNREACHABLE, id="hidden", enabled=False)
    key = await instance.api_key(restrictions=KeyRestrictions(servers=frozenset({"own"})))

    rejected = await key.post(SERVERS_API, {"id": "else", "url": UNREACHABLE})
    await add(key, UNREACHABLE, enabled=False)

    assert rejected.status_code == 403
    assert [server["id"] for server in (await key.get(SERVERS_API)).json()["data"]] == ["own"]
    for method, body in (("GET", None), ("PATCH", {"tagline": "x"}), ("DELETE", None)):
        assert (await key.send(method, f"{SERVERS_API}/hidden", body)).status_code == 404


async def test_a_key_with_allowed_tools_manages_only_their_servers(instance: Instance) -> None:
    """A server hidden at /mcp/servers is hidden at /servers too."""
    await add(instance.admin, UNREACHABLE, id="hidden", enabled=False)
    key = await instance.api_key(restrictions=KeyRestrictions(tools=("own/*",)))

    assert (await key.post(SERVERS_API, {"id": "else", "url": UNREACHABLE})).status_code == 403
    assert (await key.get(SERVERS_API)).json()["data"] == []
    for method, path in (("GET", ""), ("PATCH", ""), ("DELETE", ""), ("POST", "/check")):
        assert (await key.send(method, f"{SERVERS_API}/hidden{path}", {} if method == "PATCH" else None)).status_code == 404
    await add(key, UNREACHABLE, enabled=False)


async def test_the_secrets_of_a_server_are_limited(instance: Instance) -> None:
    """Repeated changes cannot add secrets beyond the limit of a server."""
    await add(instance.admin, UNREACHABLE, enabled=False, secrets={f"A{number}": "x" for number in range(MAX_SECRETS_PER_SERVER)})
    over_limit = await instance.admin.send("PATCH", f"{SERVERS_API}/own", {"secrets": {"ONE_MORE": "x"}})
    replaced = await instance.admin.send("PATCH", f"{SERVERS_API}/own", {"secrets": {"ONE_MORE": "x", "A0": None}})

    assert list(errors_of(over_limit)) == ["secrets"]
    assert (replaced.status_code, len(replaced.json()["secrets"])) == (200, MAX_SECRETS_PER_SERVER)


async def test_an_address_is_checked_at_each_connection(open_settings: Settings, upstream: str) -> None:
    """An address that is no longer allowed is not connected to."""
    async with run_instance(open_settings) as instance:
        key = instance.admin.key
        await add(instance.admin, upstream)
        assert (await call(instance.admin)).status_code == 200

    async with run_instance(replace(open_settings, egress_allow=())) as instance:
        response = await call(instance.caller(key))
        check = await instance.caller(key).post(f"{SERVERS_API}/own/check")

    assert (response.status_code, response.json()["code"]) == (500, "server_unavailable")
    assert (check.json()["ok"], "loopback" in check.json()["error"]) == (False, True)


async def test_another_process_sees_a_change_shortly_after(instance: Instance, open_settings: Settings, upstream: str) -> None:
    """Any number of processes share a store; a change in one applies in all."""
    async with run_instance(open_settings) as other:
        other_caller = other.caller(instance.admin.key)
        assert (await call(other_caller)).status_code == 404
        await add(instance.admin, upstream, headers={"X-Key": "${KEY}"}, secrets={"KEY": "one"})

        async def call_result() -> object:
            response = await call(other_caller)
            return text_of_response(response) if response.status_code == 200 else response.status_code

        async def is_one() -> bool:
            return await call_result() == "one"

        async def is_two() -> bool:
            return await call_result() == "two"

        async def is_gone() -> bool:
            return await call_result() == 404

        await eventually(is_one)
        await instance.admin.send("PATCH", f"{SERVERS_API}/own", {"secrets": {"KEY": "two"}})
        await eventually(is_two)
        await instance.admin.send("DELETE", f"{SERVERS_API}/own")
        await eventually(is_gone)


async def test_two_changes_are_both_applied(instance: Instance) -> None:
    """Neither change overwrites the other."""
    await add(instance.admin, UNREACHABLE, enabled=False)
    other = await instance.api_key()

    await other.send("PATCH", f"{SERVERS_API}/own", {"tagline": "t"})
    await instance.admin.send("PATCH", f"{SERVERS_API}/own", {"use_when": "u"})

    server = (await instance.admin.get(f"{SERVERS_API}/own")).json()
    assert (server["tagline"], server["use_when"]) == ("t", "u")


async def test_commands_need_the_operators_setting(open_settings: Settings) -> None:
    """A key may start a program on this host only if ROOKERY_SERVER_COMMANDS allows it."""
    program = {"command": sys.executable, "args": ["-I", "-S", "-u", str(SERVERS / "odd.py")], "env": {"ODD": "${WORD}"}}
    before = {child.pid for child in list_children()}
    async with run_instance(replace(open_settings, server_commands=True)) as instance:
        response = await instance.admin.post(SERVERS_API, {"id": "own", **program, "secrets": {"WORD": SECRET}})
        check = (await instance.admin.post(f"{SERVERS_API}/own/check")).json()
        changed = await instance.admin.send("PATCH", f"{SERVERS_API}/own", {"args": ["-c", "print()"]})

        assert (response.status_code, response.json()["type"], check["error"]) == (201, "stdio", None)
        assert list(errors_of(changed)) == ["secrets"]
    await eventually(lambda: {child.pid for child in list_children()} <= before)


async def test_every_change_is_in_the_audit_log(instance: Instance) -> None:
    """Entries have actor, before and after; of secrets only their names."""
    await add(instance.admin, UNREACHABLE, enabled=False, headers={"X-Key": "${TOKEN}"}, secrets={"TOKEN": SECRET})
    await instance.admin.send("PATCH", f"{SERVERS_API}/own", {"tagline": "t", "secrets": {"TOKEN": "other"}})
    await instance.admin.send("DELETE", f"{SERVERS_API}/own")

    entries = (await instance.admin.get("/api/v1/audit?per_page=3")).json()["data"]
    assert [entry["action"] for entry in entries] == ["server.deleted", "server.changed", "server.created"]
    assert entries[1]["before"] == {"tagline": None, "secrets_given": None}
    assert entries[1]["after"] == {"tagline": "t", "secrets_given": ["TOKEN"]}
    assert {entry["subject"]["id"] for entry in entries} == {"own"}


async def test_a_server_is_deleted_with_its_workspace(instance: Instance, upstream: str) -> None:
    """A deleted workspace leaves no server behind, and no secret."""
    workspace_id = await instance.workspace("doomed")
    key = await instance.api_key(workspace_id=workspace_id)
    await add(key, upstream, secrets={"TOKEN": SECRET})
    await instance.rookery.access.workspaces.delete(workspace_id, by=OPERATOR)

    def is_gone() -> bool:
        return instance.rookery.tools.catalogue.find_by_key(f"{workspace_id}/own") is None

    await eventually(is_gone)
    assert await instance.rookery.tools.workspace_servers.list_for_workspace(workspace_id) == []


@pytest.mark.parametrize("database_url", ["embedded:"])
async def test_a_server_with_lost_secrets_reports_them_and_accepts_new_ones(open_settings: Settings, upstream: str) -> None:
    """Servers stay when the secret key is lost, and their error names the missing secrets."""
    async with run_instance(open_settings) as instance:
        key = instance.admin.key
        await add(instance.admin, upstream, headers={"X-Key": "${TOKEN}"}, secrets={"TOKEN": SECRET}, name="Own", replicas=2)
        _delete_secret_key(open_settings.data_dir)
        await instance.rookery.sealing.rotation.rotate(delete_unreadable=True)

    async with run_instance(open_settings) as instance:
        admin = instance.caller(key)
        server = (await admin.get(f"{SERVERS_API}/own")).json()
        failed = await call(admin)
        await admin.send("PATCH", f"{SERVERS_API}/own", {"secrets": {"TOKEN": "found"}})

        assert (server["secrets"], "TOKEN" in str(server["last_error"])) == ([], True)
        assert (server["name"], server["replicas"]) == ("Own", 2)
        assert (failed.status_code, failed.json()["code"]) == (500, "server_unavailable")
        assert text_of_response(await call(admin)) == "found"


def _delete_secret_key(data_dir: Path) -> None:
    (data_dir / "secret.key").unlink()


async def test_a_check_reports_the_features_or_the_error_of_a_server(instance: Instance, upstream: str) -> None:
    """A check connects now, in its own session."""
    await add(instance.admin, upstream)
    await add(instance.admin, upstream.replace("/mcp", "/login"), id="locked", enabled=False)

    good, locked = [(await instance.admin.post(f"{SERVERS_API}/{server_id}/check")).json() for server_id in ("own", "locked")]

    assert (good["ok"], good["software"], good["error"], "header" in good["tools"]) == (True, "legacy 1", None, True)
    assert (locked["ok"], locked["tools"], "login" in locked["advice"]) == (False, [], True)


async def test_a_server_of_the_installation_is_checked_by_keys_that_may_use_it(settings: Settings) -> None:
    """The check of a server in the file, without the operator's secrets; its settings stay the operator's."""
    secret = {"ODD_GATE": str(settings.servers_file), "BOARD_KEY": SECRET}
    shout = {"command": sys.executable, "args": ["-c", "import os, sys; sys.exit('bad key: ' + os.environ['BOARD_KEY'])"]}
    entries = {
        "odd": make_odd_entry("--task", env=secret, tools={"deny": ["slow"]}),
        "shout": {**shout, "env": secret},
        "off": make_odd_entry(enabled=False),
    }
    settings.servers_file.write_text(json.dumps({"mcpServers": entries}))
    async with run_instance(settings) as instance:
        reader = await instance.api_key("mcp:read", "servers:read")
        few = await instance.api_key("mcp:read", "servers:write", restrictions=KeyRestrictions(tools=("odd/e*",)))
        none = await instance.api_key("mcp:read", "servers:write", restrictions=KeyRestrictions(servers=frozenset({"brain"})))
        checked = (await instance.admin.post(f"{SERVERS_API}/odd/check")).json()
        shown = (await instance.admin.get("/api/v1/mcp/servers/odd")).json()
        listed = (await instance.admin.get("/api/v1/mcp/servers")).json()["servers"]
        failed = (await instance.admin.post(f"{SERVERS_API}/shout/check")).json()
        of_few = (await few.post(f"{SERVERS_API}/odd/check")).json()
        codes = [
            (await reader.post(f"{SERVERS_API}/odd/check")).status_code,
            (await none.post(f"{SERVERS_API}/odd/check")).status_code,
            (await instance.admin.post(f"{SERVERS_API}/off/check")).status_code,
            (await instance.admin.post(f"{SERVERS_API}/nothing/check")).status_code,
        ]
        stop = ToolStop(workspace_id=instance.workspace_id, server_id="odd", tool="", reason="for now", stopped_at=utc_now())
        await instance.rookery.tools.kill_switch.stop(stop, actor=OPERATOR)
        stopped = await instance.admin.post(f"{SERVERS_API}/odd/check")
        settings_of_odd = [await instance.admin.get(f"{SERVERS_API}/odd"), await instance.admin.send("DELETE", f"{SERVERS_API}/odd")]

    assert (checked["ok"], checked["hidden_tools"]) == (True, ["long"])
    assert set(checked["tools"]) == {tool["name"] for tool in shown["tools"]}
    assert "slow" not in checked["tools"]
    assert [tool["name"] for tool in shown["hidden_tools"]] == ["long"]
    assert {server["id"]: server["tool_count"] for server in listed}["odd"] == len(checked["tools"])
    assert all(name.startswith("e") for name in of_few["tools"])
    assert (failed["ok"], "bad key: " in failed["error"], SECRET in json.dumps(failed)) == (False, True, False)
    assert codes == [403, 404, 403, 404]
    assert (stopped.status_code, stopped.json()["error"]) == (403, "disabled")
    for response in settings_of_odd:
        assert (response.status_code, response.json()["error"]) == (404, "resource_not_found")
        assert "belongs to the installation" in response.json()["message"]
