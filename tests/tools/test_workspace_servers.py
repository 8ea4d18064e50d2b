"""Servers that workspaces add over HTTP (D-31)."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import httpx2
import pytest

from rookery.access.models import KeyRestrictions
from rookery.kernel.config import Settings
from rookery.tools.servers.workspace_servers import MAX_SECRETS_PER_SERVER, MAX_SERVERS_PER_WORKSPACE
from tests.conftest import OPERATOR, Caller, Instance, eventually, run_instance
from tests.tools.makers import SERVERS, list_children

SERVERS_API = "/api/v1/servers"
SECRET = "s3cr3t-0123456789"
NOWHERE = "http://127.0.0.1:9/mcp"


@pytest.fixture(scope="module")
def upstream() -> Iterator[str]:
    """The address of a server that says what it was sent in the header X-Key."""
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
    answer = await caller.post(SERVERS_API, {"id": "own", "url": url} | fields)
    assert answer.status_code == 201, answer.text
    return dict(answer.json())


async def call(caller: Caller, tool: str = "header", server: str = "own", **arguments: object) -> httpx2.Response:
    """Call a tool."""
    return await caller.post("/api/v1/mcp/tools/call", {"server": server, "tool": tool, "arguments": arguments})


def said(answer: httpx2.Response) -> object:
    """Return the first text of a call that succeeded."""
    assert answer.status_code == 200, answer.text
    return answer.json()["result"]["content"][0]["text"]


def errors_of(answer: httpx2.Response) -> dict[str, list[str]]:
    """Return what a 422 says is wrong, by field."""
    assert answer.status_code == 422, answer.text
    return dict(answer.json()["errors"])


async def test_a_server_that_was_added_is_called_at_once_changed_switched_off_and_removed(instance: Instance, upstream: str) -> None:
    """D-31, D-33: the whole life of a server that a workspace added, with a key of its own."""
    key = await instance.api_key("servers:*", "mcp:*")

    made = await add(key, upstream, tagline="Ours")
    assert said(await call(key)) == ""
    assert (made["id"], made["type"], made["enabled"], made["secrets"], made["workspace_id"]) == (
        "own",
        "http",
        True,
        [],
        instance.workspace_id,
    )

    listed = (await key.get("/api/v1/mcp/servers")).json()["servers"]
    assert {"own": "Ours"}.items() <= {each["id"]: each["tagline"] for each in listed}.items()
    page = (await key.get(SERVERS_API)).json()
    assert ([each["id"] for each in page["data"]], page["meta"]["total"]) == (["own"], 1)

    assert (await key.send("PATCH", f"{SERVERS_API}/own", {"enabled": False})).json()["enabled"] is False
    refused = await call(key)
    assert (refused.status_code, refused.json()["error"]) == (403, "disabled")
    changed = (await key.send("PATCH", f"{SERVERS_API}/own", {"enabled": None, "status": "deprecated", "tagline": None})).json()
    assert (changed["enabled"], changed["status"], changed["tagline"]) == (True, "deprecated", "")
    assert "deprecation" in (await call(key)).headers

    assert (await key.send("DELETE", f"{SERVERS_API}/own")).status_code == 204
    assert (await call(key)).status_code == 404
    assert (await key.get(f"{SERVERS_API}/own")).json()["error"] == "resource_not_found"


async def test_a_secret_reaches_the_server_and_nothing_else(instance: Instance, open_settings: Settings, upstream: str) -> None:
    """D-07, D-31: secrets are write-only and sealed: in no answer, not in the audit log, not in the record store."""
    key = instance.admin
    made = await add(key, upstream, headers={"X-Key": "key ${TOKEN}"}, secrets={"TOKEN": SECRET})

    assert said(await call(key)) == f"key {SECRET}"
    assert (made["headers"], made["secrets"]) == ({"X-Key": "key ${TOKEN}"}, ["TOKEN"])
    shown = [await key.get(path) for path in (SERVERS_API, f"{SERVERS_API}/own", "/api/v1/audit", "/api/v1/mcp/servers/own")]
    assert all(SECRET not in answer.text for answer in shown)
    if open_settings.database_url.reveal() == "embedded:":
        assert all(SECRET.encode() not in file.read_bytes() for file in open_settings.data_dir.glob("records.db*"))

    await key.send("PATCH", f"{SERVERS_API}/own", {"secrets": {"TOKEN": "another"}})
    assert said(await call(key)) == "key another"


async def test_secrets_do_not_follow_a_server_to_another_host(instance: Instance, upstream: str) -> None:
    """D-31: who may change a server but not read its secrets would have them sent to a host of theirs."""
    key = instance.admin
    await add(key, upstream, headers={"X-Key": "${TOKEN}"}, secrets={"TOKEN": SECRET})
    elsewhere = upstream.replace("127.0.0.1", "127.0.0.2")

    refused = await key.send("PATCH", f"{SERVERS_API}/own", {"url": elsewhere})
    assert list(errors_of(refused)) == ["secrets"]
    assert (await key.send("PATCH", f"{SERVERS_API}/own", {"url": elsewhere, "secrets": {"TOKEN": "new"}})).status_code == 200
    same_host = await key.send("PATCH", f"{SERVERS_API}/own", {"url": f"{elsewhere}/other"})
    assert (same_host.status_code, same_host.json()["secrets"]) == (200, ["TOKEN"])


REFUSED: list[tuple[dict[str, object], str]] = [
    ({"headers": {"Authorization": "Bearer abc"}}, "headers.Authorization"),
    ({"headers": {"X-Api-Key": "abc"}}, "headers.X-Api-Key"),
    ({"url": "http://127.0.0.1/mcp?api_key=abc"}, "url"),
    ({"url": "http://me:abc@127.0.0.1/mcp"}, "url"),
    ({"auth": {"client_id": "me", "client_secret": "abc"}}, "auth.client_secret"),
    ({"headers": {"X-Key": "${TOKEN}"}}, "headers.X-Key"),
    ({"headers": {"Host": "inner.example"}}, "headers.Host"),
    ({"headers": {"transfer-encoding": "chunked"}}, "headers.transfer-encoding"),
    ({"auth": {"client_id": "${TOKEN}"}, "secrets": {"TOKEN": "abc"}}, "auth.client_id"),
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
    ({"taglime": "x"}, "taglime"),
    ({"secrets": {"a b": "c"}}, "secrets.a b.[key]"),
]


async def test_what_cannot_be_is_refused_by_the_field(instance: Instance) -> None:
    """D-10, D-31, D-82: in words, and nothing is kept; a secret that lies open is refused too."""
    for fields, field in REFUSED:
        answer = await instance.admin.post(SERVERS_API, {"id": "own", "url": NOWHERE} | fields)

        assert list(errors_of(answer)) == [field]
    assert (await instance.admin.get(SERVERS_API)).json()["data"] == []


async def test_a_change_to_what_cannot_be_is_refused_by_the_field_too(instance: Instance) -> None:
    """D-10, D-31: what a server is when it is changed is judged as when it is added."""
    await add(instance.admin, NOWHERE, enabled=False, secrets={"TOKEN": SECRET})
    before = (await instance.admin.get(f"{SERVERS_API}/own")).json()
    for fields, field in REFUSED:
        if "id" not in fields:
            answer = await instance.admin.send("PATCH", f"{SERVERS_API}/own", {**fields, "secrets": {"TOKEN": None, **_secrets(fields)}})

            assert list(errors_of(answer)) == [field]
    assert (await instance.admin.get(f"{SERVERS_API}/own")).json() == before


def _secrets(fields: dict[str, object]) -> dict[str, object]:
    given = fields.get("secrets", {})
    assert isinstance(given, dict)
    return {str(name): value for name, value in given.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType] - JSON


async def test_an_id_is_taken_once(instance: Instance) -> None:
    """D-30, D-31: by the workspace's own servers, and by those of all that it sees."""
    (instance.rookery.settings.servers_file).write_text('{"mcpServers": {"files": {"command": "true"}}}', encoding="utf-8")
    await add(instance.admin, NOWHERE, enabled=False)
    again = await instance.admin.post(SERVERS_API, {"id": "own", "url": NOWHERE})

    async def is_seen() -> bool:
        return (await instance.admin.get("/api/v1/mcp/servers/files")).status_code == 200

    await eventually(is_seen)
    of_the_file = await instance.admin.post(SERVERS_API, {"id": "files", "url": NOWHERE})

    assert [(each.status_code, each.json()["error"]) for each in (again, of_the_file)] == [(409, "conflict")] * 2


async def test_a_workspace_has_room_for_a_hundred(instance: Instance) -> None:
    """D-31: no workspace fills the catalogue."""
    for number in range(MAX_SERVERS_PER_WORKSPACE):
        await add(instance.admin, NOWHERE, id=f"own-{number}", enabled=False)
    one_more = await instance.admin.post(SERVERS_API, {"id": "own", "url": NOWHERE})
    other = await instance.api_key(workspace_id=await instance.workspace("other"))

    assert one_more.status_code == 409
    await add(other, NOWHERE, enabled=False)


async def test_what_one_workspace_added_no_other_sees(instance: Instance, upstream: str) -> None:
    """Spec 2.8, D-25: two workspaces, and a sandbox, may each have one of the same id; each calls its own."""
    strangers = await instance.workspace("other")
    callers = [instance.admin, await instance.api_key(workspace_id=strangers), await instance.api_key(environment="test")]
    for number, caller in enumerate(callers):
        assert (await call(caller)).status_code == 404
        assert (await caller.get(SERVERS_API)).json()["data"] == []
        await add(caller, upstream, headers={"X-Key": "${KEY}"}, secrets={"KEY": f"of {number}"}, sandbox=True)

    assert [said(await call(caller)) for caller in callers] == ["of 0", "of 1", "of 2"]
    await callers[1].send("DELETE", f"{SERVERS_API}/own")
    assert [(await call(caller)).status_code for caller in callers] == [200, 404, 200]


async def test_a_key_with_a_list_of_servers_manages_those_alone(instance: Instance) -> None:
    """D-23: a server outside the list is not there, and none is added outside of it."""
    await add(instance.admin, NOWHERE, id="hidden", enabled=False)
    key = await instance.api_key(restrictions=KeyRestrictions(servers=frozenset({"own"})))

    refused = await key.post(SERVERS_API, {"id": "else", "url": NOWHERE})
    await add(key, NOWHERE, enabled=False)

    assert refused.status_code == 403
    assert [each["id"] for each in (await key.get(SERVERS_API)).json()["data"]] == ["own"]
    for method, body in (("GET", None), ("PATCH", {"tagline": "x"}), ("DELETE", None)):
        assert (await key.send(method, f"{SERVERS_API}/hidden", body)).status_code == 404


async def test_a_key_with_a_list_of_tools_manages_the_servers_of_those_alone(instance: Instance) -> None:
    """D-23: what such a key does not see at /mcp/servers is not there at /servers either."""
    await add(instance.admin, NOWHERE, id="hidden", enabled=False)
    key = await instance.api_key(restrictions=KeyRestrictions(tools=("own/*",)))

    assert (await key.post(SERVERS_API, {"id": "else", "url": NOWHERE})).status_code == 403
    assert (await key.get(SERVERS_API)).json()["data"] == []
    for method, path in (("GET", ""), ("PATCH", ""), ("DELETE", ""), ("POST", "/check")):
        assert (await key.send(method, f"{SERVERS_API}/hidden{path}", {} if method == "PATCH" else None)).status_code == 404
    await add(key, NOWHERE, enabled=False)


async def test_secrets_do_not_pile_up(instance: Instance) -> None:
    """D-31: change after change adds to what is kept; of one server, and so of a workspace, there is a most."""
    await add(instance.admin, NOWHERE, enabled=False, secrets={f"A{number}": "x" for number in range(MAX_SECRETS_PER_SERVER)})
    one_more = await instance.admin.send("PATCH", f"{SERVERS_API}/own", {"secrets": {"ONE_MORE": "x"}})
    instead = await instance.admin.send("PATCH", f"{SERVERS_API}/own", {"secrets": {"ONE_MORE": "x", "A0": None}})

    assert list(errors_of(one_more)) == ["secrets"]
    assert (instead.status_code, len(instead.json()["secrets"])) == (200, MAX_SECRETS_PER_SERVER)


async def test_an_address_is_judged_at_each_connection_too(open_settings: Settings, upstream: str) -> None:
    """D-82: one that was allowed when it was added is not connected to once it is not."""
    async with run_instance(open_settings) as instance:
        key = instance.admin.key
        await add(instance.admin, upstream)
        assert (await call(instance.admin)).status_code == 200

    async with run_instance(replace(open_settings, egress_allow=())) as instance:
        answer = await call(instance.caller(key))
        checked = await instance.caller(key).post(f"{SERVERS_API}/own/check")

    assert (answer.status_code, answer.json()["code"]) == (500, "server_unavailable")
    assert (checked.json()["ok"], "loopback" in checked.json()["error"]) == (False, True)


async def test_another_process_sees_a_change_within_a_moment(instance: Instance, open_settings: Settings, upstream: str) -> None:
    """D-31: as many processes as one likes share a store; what one is told all do."""
    async with run_instance(open_settings) as other:
        elsewhere = other.caller(instance.admin.key)
        assert (await call(elsewhere)).status_code == 404
        await add(instance.admin, upstream, headers={"X-Key": "${KEY}"}, secrets={"KEY": "one"})

        async def says() -> object:
            answer = await call(elsewhere)
            return said(answer) if answer.status_code == 200 else answer.status_code

        async def is_one() -> bool:
            return await says() == "one"

        async def is_two() -> bool:
            return await says() == "two"

        async def is_gone() -> bool:
            return await says() == 404

        await eventually(is_one)
        await instance.admin.send("PATCH", f"{SERVERS_API}/own", {"secrets": {"KEY": "two"}})
        await eventually(is_two)
        await instance.admin.send("DELETE", f"{SERVERS_API}/own")
        await eventually(is_gone)


async def test_two_changes_at_once_are_both_whole(instance: Instance) -> None:
    """D-31: of two that start from the same state one is refused, or comes after the other; neither is half undone."""
    await add(instance.admin, NOWHERE, enabled=False)
    other = await instance.api_key()

    await other.send("PATCH", f"{SERVERS_API}/own", {"tagline": "t"})
    await instance.admin.send("PATCH", f"{SERVERS_API}/own", {"use_when": "u"})

    now = (await instance.admin.get(f"{SERVERS_API}/own")).json()
    assert (now["tagline"], now["use_when"]) == ("t", "u")


async def test_commands_are_for_operators_who_say_so(open_settings: Settings) -> None:
    """D-31: a key of the API starts no program on this host unless ROOKERY_SERVER_COMMANDS allows it."""
    program = {"command": sys.executable, "args": ["-I", "-S", "-u", str(SERVERS / "odd.py")], "env": {"ODD": "${WORD}"}}
    before = {each.pid for each in list_children()}
    async with run_instance(replace(open_settings, server_commands=True)) as instance:
        answer = await instance.admin.post(SERVERS_API, {"id": "own", **program, "secrets": {"WORD": SECRET}})
        checked = (await instance.admin.post(f"{SERVERS_API}/own/check")).json()
        moved = await instance.admin.send("PATCH", f"{SERVERS_API}/own", {"args": ["-c", "print()"]})

        assert (answer.status_code, answer.json()["type"], checked["error"]) == (201, "stdio", None)
        assert list(errors_of(moved)) == ["secrets"]
    await eventually(lambda: {each.pid for each in list_children()} <= before)


async def test_every_change_is_in_the_audit_log(instance: Instance) -> None:
    """D-29: who changed what of a server, from what to what; of secrets that they were given."""
    await add(instance.admin, NOWHERE, enabled=False, headers={"X-Key": "${TOKEN}"}, secrets={"TOKEN": SECRET})
    await instance.admin.send("PATCH", f"{SERVERS_API}/own", {"tagline": "t", "secrets": {"TOKEN": "other"}})
    await instance.admin.send("DELETE", f"{SERVERS_API}/own")

    entries = (await instance.admin.get("/api/v1/audit?per_page=3")).json()["data"]
    assert [each["action"] for each in entries] == ["server.deleted", "server.changed", "server.created"]
    assert entries[1]["before"] == {"tagline": None, "secrets_given": None}
    assert entries[1]["after"] == {"tagline": "t", "secrets_given": ["TOKEN"]}
    assert {each["subject"]["id"] for each in entries} == {"own"}


async def test_a_server_goes_with_its_workspace(instance: Instance, upstream: str) -> None:
    """D-31: a deleted workspace leaves no server behind, and no secret."""
    doomed = await instance.workspace("doomed")
    key = await instance.api_key(workspace_id=doomed)
    await add(key, upstream, secrets={"TOKEN": SECRET})
    await instance.rookery.access.workspaces.delete(doomed, by=OPERATOR)

    def is_gone() -> bool:
        return instance.rookery.tools.catalogue.find_by_key(f"{doomed}/own") is None

    await eventually(is_gone)
    assert await instance.rookery.tools.workspace_servers.list_for_workspace(doomed) == []


@pytest.mark.parametrize("database_url", ["embedded:"])
async def test_a_server_whose_secrets_are_lost_says_so_and_takes_new_ones(open_settings: Settings, upstream: str) -> None:
    """D-07: with the secret key lost, its servers stay, and say what they need."""
    async with run_instance(open_settings) as instance:
        key = instance.admin.key
        await add(instance.admin, upstream, headers={"X-Key": "${TOKEN}"}, secrets={"TOKEN": SECRET})
        _lose(open_settings.data_dir)
        await instance.rookery.sealing.rotation.rotate(delete_unreadable=True)

    async with run_instance(open_settings) as instance:
        admin = instance.caller(key)
        lost = (await admin.get(f"{SERVERS_API}/own")).json()
        refused = await call(admin)
        await admin.send("PATCH", f"{SERVERS_API}/own", {"secrets": {"TOKEN": "found"}})

        assert (lost["secrets"], "TOKEN" in str(lost["last_error"])) == ([], True)
        assert (refused.status_code, refused.json()["code"]) == (500, "server_unavailable")
        assert said(await call(admin)) == "found"


def _lose(data_dir: Path) -> None:
    (data_dir / "secret.key").unlink()


async def test_a_check_says_what_a_server_offers_or_what_is_wrong(instance: Instance, upstream: str) -> None:
    """D-37: reached now, in a session of its own."""
    await add(instance.admin, upstream)
    await add(instance.admin, upstream.replace("/mcp", "/login"), id="locked", enabled=False)

    good, locked = [(await instance.admin.post(f"{SERVERS_API}/{each}/check")).json() for each in ("own", "locked")]

    assert (good["ok"], good["software"], good["error"], "header" in good["tools"]) == (True, "legacy 1", None, True)
    assert (locked["ok"], locked["tools"], "login" in locked["advice"]) == (False, [], True)
