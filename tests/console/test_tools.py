"""The section Tools of the console: servers, their registration, the playground and the call log."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from rookery.console.rendering import MAX_PAGE_BYTES
from rookery.kernel.config import Settings
from tests.conftest import Instance, eventually, run_instance
from tests.console.browsing import BrowserUser, ConsoleUser, get_text
from tests.tools.makers import make_odd_entry
from tests.tools.servers import dialects

pytestmark = pytest.mark.embedded_store  # test_links.py opens every page on each record store

SCRIPT = "<script>alert('x')</script>"
DIALECTS = {"command": sys.executable, "args": ["-I", "-S", "-u", dialects.__file__]}


@pytest.fixture
async def instance(settings: Settings) -> AsyncIterator[Instance]:
    """A server with four tool servers, one of which ends at once. Arguments are stored, and workspaces may reach this host."""
    settings.data_dir.mkdir(parents=True, exist_ok=True)
    ends = {"command": sys.executable, "args": ["-c", "raise SystemExit('no licence found')"]}
    entries = {"odd": make_odd_entry("--task"), "calls": make_odd_entry(), "ends": ends, "dialects": DIALECTS}
    settings.servers_file.write_text(json.dumps({"mcpServers": entries}))
    async with run_instance(replace(settings, egress_allow=("127.0.0.0/8",), tool_arguments=True)) as opened:
        for name in ("odd", "calls", "dialects"):

            async def count_tools(name: str = name) -> int:
                return int((await opened.admin.get(f"/api/v1/mcp/servers/{name}/tools")).json()["count"])

            await eventually(count_tools)
        yield opened


def digest(text: str) -> str:
    """Return the digest by which the page recognizes that nobody changed the JSON."""
    return hashlib.sha256(text.encode()).hexdigest()[:32]


async def run(user: ConsoleUser, path: str, arguments: object, do: str = "run", **fields: str) -> str:
    """Submit the playground without scripts, and return the visible text of the page."""
    text = json.dumps(arguments)
    response = await user.post(path, {"do": do, "arguments": text, "base": digest(text), **fields})
    assert response.status_code in {200, 422}, response.text
    return get_text(response.text)


async def test_servers_are_listed_with_their_health_and_calls(user: ConsoleUser, instance: Instance) -> None:
    """Servers with health, counts and last error, filtered on the server."""
    await instance.admin.post("/api/v1/mcp/tools/call", {"server": "odd", "tool": "error"})
    text = await user.read("tools")
    assert "Shared memory" in text
    assert "error: it did not work" in text
    assert "Shared memory" not in await user.read("tools?q=odd")
    assert "No server matches" in await user.read("tools?q=nothing-like-this")


async def test_a_server_of_the_installation_shows_why_it_does_not_work_and_can_be_checked(user: ConsoleUser) -> None:
    """The reason is in the list, and the check of the page shows it now; hidden tools are counted."""

    async def read_list() -> str:
        text = await user.read("tools")
        return text if "no licence found" in text else ""

    assert "The server exited with code 1: no licence found" in await eventually(read_list)
    assert "Check" in await user.read("tools/ends")
    checked = await user.post("tools/_added/ends/check")
    assert (checked.status_code, "no licence found" in get_text(checked.text)) == (200, True)
    assert "1 hidden" in await user.read("tools/odd")
    assert ", 1 hidden, in" in get_text((await user.post("tools/_added/odd/check")).text)


async def test_a_server_shows_its_tools_and_figures(user: ConsoleUser, instance: Instance) -> None:
    """Tools, resources, prompts, sessions and analytics of one server; a server called as a page is reached too."""
    await instance.admin.post("/api/v1/mcp/tools/call", {"server": "odd", "tool": "echo", "arguments": {"text": "hi"}})
    text = await user.read("tools/odd")
    for part in ("Says it again.", "read-only", "Insights", "Greets.", "Sessions", "Calls of odd by day", "share one session."):
        assert part in text, part
    assert "Counts its calls." not in await user.read("tools/odd?q=echo")
    assert "No tool matches" in await user.read("tools/odd?q=nothing-like-this")
    assert "Says it again." in await user.read("tools/_calls")
    assert (await user.get("tools/none")).status_code == 404


async def test_controls_need_their_scopes(instance: Instance) -> None:
    """A control that the key may not use is not shown, and another tenant's server and call are not found."""
    added = await instance.admin.post("/api/v1/servers", {"id": "own", "url": "http://127.0.0.1:9/mcp"})
    assert added.status_code == 201, added.text
    await instance.admin.post("/api/v1/mcp/tools/call", {"server": "odd", "tool": "pid"})
    call = (await instance.admin.get("/api/agent/tools/calls")).json()["data"][0]
    reader = await instance.api_key("console:read", "mcp:read", "servers:read", "tools.read")
    other = await instance.api_key("*", workspace_id=await instance.workspace("other"))
    async with ConsoleUser(instance.rookery) as user:
        await user.sign_in(reader.key or "")
        assert "Add a server" not in await user.read("tools")
        assert "Pause" not in await user.read("tools/own")
        assert "has no scope mcp:write" in await user.read("tools/odd/echo")
        assert (await user.post("tools/odd/echo", {"do": "run"})).status_code == 403
        assert (await user.post("tools/_added/own/remove")).status_code == 403
    async with ConsoleUser(instance.rookery) as stranger:
        await stranger.sign_in(other.key or "")
        for path in ("tools/own", f"tools/calls/{call['id']}", "tools/_added/own", f"tools/odd/pid?replay={call['id']}"):
            assert (await stranger.get(path)).status_code == 404, path


async def test_a_server_is_added_changed_paused_and_removed(user: ConsoleUser) -> None:
    """Add and edit a server, with secrets that are never shown, and what is wrong at its field."""
    fields = {"id": "own", "url": "http://127.0.0.1:9/mcp", "type": "http", "timeout_s": "5", "isolation": "per_workspace", "auth": ""}
    refused = await user.post("tools/add", {**fields, "id": "no good", "headers": f"X-Note: {SCRIPT}"})
    assert (refused.status_code, "letters, digits and dashes" in refused.text) == (422, True)
    assert (SCRIPT in refused.text, "&lt;script&gt;" in refused.text) == (False, True)
    assert "is no header" in (await user.post("tools/add", {**fields, "headers": "nonsense"})).text
    added = await user.post("tools/add", {**fields, "headers": "Authorization: Bearer ${TOKEN}", "secrets": "TOKEN=s3cr3t-value"})
    assert added.headers["location"].endswith("tools/own?done=created"), added.text
    page = (await user.get("tools/_added/own")).text
    assert ("${TOKEN}" in page, "s3cr3t-value" in page) == (True, False)
    changed = {**fields, "name": "Mine", "headers": "Authorization: Bearer ${TOKEN}", "protocol": "2025-06-18"}
    await user.post("tools/_added/own", changed)
    assert {"Mine", "2025-06-18"} <= set((await user.read("tools/own")).split())
    assert '<option value="2025-06-18" selected>' in (await user.get("tools/_added/own")).text
    assert "protocol" in (await user.post("tools/_added/own", {**changed, "protocol": "soon"})).text
    forwarding = {"forward_headers": "X-Tenant\nX-Their-Login as Authorization", "forward_meta": "claudecode/*", "max_concurrency": "3"}
    await user.post("tools/_added/own", {**changed, **forwarding})
    shown, form = await user.read("tools/own"), (await user.get("tools/_added/own")).text
    assert {"X-Tenant", "claudecode/*", "3"} <= set(shown.split()), shown
    assert "X-Their-Login as Authorization</textarea>" in form
    assert "claudecode/*</textarea>" in form
    assert 'name="max_concurrency" type="text" value="3"' in form
    refused = await user.post("tools/_added/own", {**changed, "forward_headers": "X-*", "max_concurrency": "many"})
    assert "Write a number of calls." in refused.text
    assert "write each name in full" in (await user.post("tools/_added/own", {**changed, "forward_headers": "X-*"})).text
    await user.post("tools/_added/own", {**changed, "forward_headers": "", "forward_meta": "", "max_concurrency": ""})
    assert "X-Tenant" not in await user.read("tools/own")
    assert 'name="max_concurrency" type="text" value="64"' in (await user.get("tools/_added/own")).text
    moved = await user.post("tools/_added/own", {**fields, "url": "http://127.0.0.2:9/mcp", "headers": "Authorization: Bearer ${TOKEN}"})
    assert (moved.status_code, "sent elsewhere" in moved.text) == (422, True)
    assert 'class="alert"' in (await user.post("tools/_added/own/check")).text
    await user.post("tools/_added/own/pause")
    assert "This server is paused" in await user.read("tools/own")
    assert "paused" in await user.read("tools?health=paused")
    await user.post("tools/_added/own/resume")
    assert "This server is paused" not in await user.read("tools/own")
    await user.post("tools/_added/own/remove")
    assert (await user.get("tools/own")).status_code == 404


async def test_the_form_and_the_json_follow_each_other(user: ConsoleUser) -> None:
    """The JSON text is the value, and the form is a view of it, also without scripts."""
    value = {"kind": "a", "extra": [1]}
    fields = {"do": "sync", "arguments": json.dumps(value), "base": digest(json.dumps(value))}
    changed = await user.post("tools/odd/strict", {**fields, "f/kind": "1", "edit": "add:/points"})
    assert "&#34;kind&#34;: &#34;b&#34;" in changed.text
    assert 'name="f/points/0/x"' in changed.text
    assert "Only in the JSON: extra" in get_text(changed.text)
    json_wins = await user.post("tools/odd/strict", {"do": "sync", "arguments": '{"kind": "b"}', "base": digest("{}"), "f/kind": "0"})
    assert '<option value="1" selected>b</option>' in json_wins.text
    broken = await user.post("tools/odd/strict", {"do": "run", "arguments": "{", "base": "{"})
    assert (broken.status_code, "The arguments are not JSON" in broken.text) == (422, True)


@pytest.mark.parametrize("name", list(dialects.DRAFTS))
async def test_a_form_shows_the_arguments_of_a_schema_in_any_draft(user: ConsoleUser, name: str) -> None:
    """With integers beyond 64 bits, references of an odd name, and fields that stay unset."""
    page = (await user.get(f"tools/dialects/{name}")).text
    called = await run(user, f"tools/dialects/{name}", {"start": "2026-11-22T10:00:00"})

    assert ('name="f/start"' in page, 'name="f/数"' in page, str(2**70) in page) == (True, True, True)
    assert '{"start": "2026-11-22T10:00:00"}' in called


async def test_an_argument_with_a_default_is_not_marked_as_required(user: ConsoleUser) -> None:
    """The call fills in the default. The server sees which arguments were set."""
    page = get_text((await user.get("tools/dialects/arguments")).text)
    called = await run(user, "tools/dialects/arguments", {"path": "a"})

    assert "path required" in " ".join(page.split())
    assert "scale required" not in " ".join(page.split())
    assert '{"path": "a", "scale": "css"}' in called


async def test_a_call_shows_its_result_and_its_times(user: ConsoleUser) -> None:
    """The result, the duration with the shares of the server and of Rookery, and the size."""
    text = await run(user, "tools/odd/echo", {"text": SCRIPT})
    for part in ("successful", SCRIPT, "Tool server", "Rookery", "In the call log", "Structured content"):
        assert part in text, part
    failed = await run(user, "tools/odd/error", {})
    assert "tool_execution_error" in failed
    assert "it did not work" in failed


async def test_invalid_arguments_are_marked_at_their_fields(user: ConsoleUser) -> None:
    """Validation by the server, errors at their JSON pointer, and at the missing property itself."""
    value = {"kind": "c", "points": [{"x": 1.5}, {}]}
    response = await user.post("tools/odd/strict", {"do": "run", "arguments": json.dumps(value), "base": digest(json.dumps(value))})
    assert response.status_code == 422
    for pointer in ("/kind", "/points/0/x", "/points/1/x"):
        field = response.text.split(f'name="f{pointer}"')[1].split("</div>")[0]
        assert 'class="error"' in field, pointer


async def test_a_call_streams_its_output(user: ConsoleUser) -> None:
    """Progress as it arrives, then the result as a part of the page and as data for downloads."""
    response = await user.http.post(
        "tools/odd/progress",
        data={"do": "run", "arguments": '{"steps": 2, "pause": 0}'},
        headers={"Accept": "text/event-stream", "HX-Request": "true"},
    )
    events = [part.split("\n") for part in response.text.split("\n\n") if part.startswith("event")]
    names = [lines[0].removeprefix("event: ") for lines in events]
    assert names == ["progress", "progress", "result"], response.text[:500]
    result = json.loads(events[-1][1].removeprefix("data: "))
    assert "successful" in result["html"]
    assert "content" in result["raw"]


async def test_calls_are_filtered_and_replayed(user: ConsoleUser, instance: Instance) -> None:
    """The call log with filters, a call's detail, and its replay with the stored arguments."""
    await run(user, "tools/odd/echo", {"text": "hello"})
    await run(user, "tools/odd/error", {})
    assert "odd / echo" in await user.read("tools/calls?server=odd&tool=echo&success=ok")
    assert "odd / echo" not in await user.read("tools/calls?code=tool_execution_error")
    assert "No call matches" in await user.read("tools/calls?session=none&since=2026-01-01")
    assert (await user.get("tools/calls?since=yesterday")).status_code == 422
    call = (await instance.admin.get("/api/agent/tools/calls?tool=echo")).json()["data"][0]
    detail = await user.read(f"tools/calls/{call['id']}")
    assert "Replay" in detail
    assert '{"text":"hello"}' in detail
    assert "hello" in await user.read(f"tools/odd/echo?replay={call['id']}")
    assert (await user.get("tools/calls/none")).status_code == 404


async def test_long_texts_stay_within_the_bound(user: ConsoleUser) -> None:
    """Every page has a bound in bytes, and says what it cut."""
    value = json.dumps({"bytes": 3_000_000})
    response = await user.post("tools/odd/large", {"do": "run", "arguments": value, "base": digest(value)})
    assert (response.status_code, len(response.content) < MAX_PAGE_BYTES) == (200, True)
    assert "more characters" in response.text
    text = json.dumps({"text": "ä<" * 25_000}, ensure_ascii=False)
    response = await user.post("tools/odd/echo", {"do": "sync", "arguments": text, "base": digest(text)})
    assert (response.status_code, len(response.content) < MAX_PAGE_BYTES) == (200, True)
    assert (await user.post("tools/odd/echo", {"do": "run", "arguments": text * 9})).status_code == 413


async def test_destructive_tools_ask_first(user: ConsoleUser, instance: Instance) -> None:
    """A tool that its server calls destructive is confirmed, also without scripts."""
    page = await user.read("tools/brain/forget")
    assert "Run forget?" in page
    refused = await run(user, "tools/brain/forget", {"id": "x"})
    assert "Confirm the call" in refused
    assert "Confirm the call" not in await run(user, "tools/brain/forget", {"id": "x"}, "confirmed")


async def test_a_person_calls_a_tool(person: BrowserUser) -> None:
    """In a real browser, the form and the JSON follow each other, and a call shows its result or its errors."""
    await person.go("tools/brain/remember")
    await person.type('[name="f/content"]', "We deploy on Tuesdays.")
    await person.wait_for("document.querySelector('#arguments').value.includes('Tuesdays')")
    await person.click('button[value="add:/tags"]')
    await person.type('[name="f/tags/0"]', "deploy")
    await person.wait_for("JSON.parse(document.querySelector('#arguments').value).tags?.[0] === 'deploy'")
    assert await person.find_faults() == []
    await person.click("button[value=run]")
    await person.wait_for_text("In the call log")
    await person.wait_for_text("Tool server")
    assert await person.find_faults() == []
    await person.type("#arguments", '{"content": "x", "confidence": 7}')
    await person.wait_for("document.querySelector('[name=\"f/confidence\"]').value === '7'")
    await person.click("button[value=run]")
    await person.wait_for("!!document.querySelector('[name=\"f/confidence\"][aria-invalid]')")
    for path in ("tools/brain", "tools/calls", "tools/add"):
        await person.go(path)
        assert await person.find_faults() == [], path


async def test_the_form_keeps_what_it_does_not_show(user: ConsoleUser, instance: Instance) -> None:
    """Time-outs and caching of single tools, which the API sets, stay when the form changes which tools are offered."""
    rules = {"allow": ["a*"], "timeouts": {"slow": 5.0}, "cache_s": {"lookup": 60.0}}
    added = await instance.admin.post("/api/v1/servers", {"id": "own", "url": "http://127.0.0.1:9/mcp", "tools": rules})
    assert added.status_code == 201, added.text
    fields = {"name": "own", "url": "http://127.0.0.1:9/mcp", "type": "http", "timeout_s": "60", "isolation": "per_workspace"}
    response = await user.post("tools/_added/own", fields | {"has_rules": "yes", "allow": "", "deny": "b*"})
    assert response.status_code == 303, get_text(response.text)
    stored = (await instance.admin.get("/api/v1/servers/own")).json()["tools"]
    assert {name: stored[name] for name in ("deny", "timeouts", "cache_s")} == {
        "deny": ["b*"],
        "timeouts": {"slow": 5.0},
        "cache_s": {"lookup": 60.0},
    }


async def test_arguments_are_composed_without_the_right_to_call(instance: Instance) -> None:
    """Callers who may not call a tool still get the form and the snippets; the button is not shown, and a call is refused."""
    reader = await instance.api_key("console:read", "mcp:read")
    async with ConsoleUser(instance.rookery) as user:
        await user.sign_in(reader.key or "")
        page = await user.post("tools/odd/strict", {"do": "sync", "arguments": "{}", "base": digest("{}"), "f/kind": "1"})
        assert (page.status_code, "&#34;kind&#34;: &#34;b&#34;" in page.text, 'value="run"' in page.text) == (200, True, False)
        for fields in ({"do": "run", "arguments": "{}"}, {"do": "accept", "questions": "{}", "arguments": "{}"}):
            refused = await user.post("tools/odd/strict", fields)
            assert (refused.status_code, "mcp:write" in refused.text) == (403, True)
