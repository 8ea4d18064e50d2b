"""Error statuses of servers over HTTP: each fails the request that it answers, and nothing else."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import cast

import httpx2
import pytest

from rookery.engines import upstreams
from rookery.kernel.config import Settings
from rookery.kernel.db import Database
from rookery.kernel.errors import RookeryError
from rookery.tools.calling.tool_call import CallOptions
from rookery.tools.errors import ConnectFailed, ResourceFailed
from rookery.tools.models import CallOutcome, HealthStatus
from rookery.tools.servers.server_check import ServerChecker
from rookery.tools.store.mcp_sessions import StoredProtocols
from tests.conftest import Instance, eventually, run_instance
from tests.tools.conftest import Start
from tests.tools.makers import CALLER, Tools, call, make_caller, make_http_server
from tests.tools.refusing_server import RefusingServer, run_refusing_server

pytestmark = pytest.mark.embedded_store  # nothing here depends on the dialect

JSON = "application/json"
LATER = "2026-07-28"
BASE = "/api/v1/mcp"
GOOD, EXPIRED = "Bearer good-token-1", "Bearer expired-token-2"
OTHER_KEY = make_caller(key_id="key-2")


@pytest.fixture
def refusing() -> Iterator[RefusingServer]:
    """A server that refuses nothing yet."""
    with run_refusing_server() as running:
        yield running


@asynccontextmanager
async def running_slow_call(tools: Tools, server: RefusingServer) -> AsyncGenerator[None]:
    """Run a call of the same session during the block; it must succeed."""
    slow = asyncio.create_task(call(tools, "slow", server="it"))
    await eventually(lambda: server.count("slow") == 1)
    yield
    assert not slow.done()
    server.control(release=True)
    assert (await slow).error is None


async def require_unaffected(tools: Tools, server: RefusingServer) -> None:
    """Fail unless the session works, was not opened again, and is shown as online without a failure."""
    assert (await call(tools, "write", server="it")).error is None
    assert server.count("initialize") == 0
    assert tools.sessions.failure_counts["it"] == 0
    entry = tools.catalogue.find_server(CALLER, "it")
    assert entry is not None
    assert tools.sessions.get_health_state(entry).health is HealthStatus.ONLINE


async def start_with(start: Start, server: RefusingServer, path: str = "/mcp", /, **fields: object) -> Tools:
    """Start the domain with the server as `it`, with an open session and its lists. Requests are counted from then on."""
    tools = await start({"it": server.make_entry(path, **fields)})
    outcome = await call(tools, "write", server="it")
    assert outcome.error is None, outcome.error
    server.control(forget=True)
    return tools


async def call_with(tools: Tools, tool: str, token: str, *, server: str = "it") -> CallOutcome:
    """Call a tool as the second key, with a login for the server."""
    return await tools.runner.call(OTHER_KEY, server, tool, {}, options=CallOptions(headers={"x-login": token}))


# The session


@pytest.mark.parametrize("path", ["/mcp", "/sse"])
async def test_an_error_status_fails_its_own_call_only(start: Start, refusing: RefusingServer, path: str) -> None:
    """Each status and body ends neither the session nor the call of another caller in it."""
    tools = await start_with(start, refusing, path)
    bodies = [
        ("text/html", "<html><body>Sorry</body></html>"),
        (JSON, '{"detail": "no"}'),
        ("text/plain", "no"),
        (JSON, "{broken"),
        ("", ""),
    ]
    statuses = (400, 402, 403, 408, 409, 413, 415, 422, 429, 451, 500, 501, 502, 503, 504, 529)
    async with running_slow_call(tools, refusing):
        for number, status in enumerate(statuses):
            type, body = bodies[number % len(bodies)]
            refusing.refuse("quick", status=status, body=body, type=type)
            outcome = await call(tools, "quick", server="it")
            assert outcome.code == "server_http_error"
            assert f"returned status {status}" in str(outcome.error)
            assert outcome.retry_after_s is None
        refusing.control(refused={})

    await require_unaffected(tools, refusing)
    assert refusing.count("quick") == len(statuses)  # a read-only tool is not repeated after an answer


@pytest.mark.parametrize(
    ("path", "status", "location", "error"),
    [
        *((path, status, "https://login.example.org/a?state=1", (f"returned status {status} ({phrase}). The redirect to "
           "https://login.example.org/a was not followed. Set `url` in the entry to this address, if it is the right server."))
          for path in ("/mcp", "/sse") for status, phrase in ((301, "Moved Permanently"), (302, "Found"), (307, "Temporary Redirect"))),
        *((path, 304, "", "returned status 304 (Not Modified).") for path in ("/mcp", "/sse")),
        ("/mcp", 307, "", "returned status 307 (Temporary Redirect)."),
        ("/mcp", 308, "/mcp", "returned status 308 (Permanent Redirect). After 5 redirects, that to {url}/mcp was not followed."),
        ("/mcp", 202, "", "returned status 202 (Accepted)."),
        ("/mcp", 204, "", "returned status 204 (No Content)."),
        ("/mcp", 205, "", "returned status 205 (Reset Content)."),
    ],
)  # fmt: skip
async def test_a_redirect_or_an_answer_without_a_result_fails_its_own_call_only(  # noqa: PLR0917 - parameters of the test
    start: Start, refusing: RefusingServer, path: str, status: int, location: str, error: str
) -> None:
    """They are HTTP errors as any other status; a redirect names where it leads."""
    tools = await start_with(start, refusing, path)
    async with running_slow_call(tools, refusing):
        refusing.refuse("quick", status=status, Location=location) if location else refusing.refuse("quick", status=status)
        outcome = await call(tools, "quick", server="it")
        refusing.control(refused={})

    assert (outcome.code, outcome.error) == ("server_http_error", f"127.0.0.1 {error.format(url=refusing.url)}")
    await require_unaffected(tools, refusing)


@pytest.mark.parametrize(("status", "encoding"), [(200, "br"), (429, "br"), (200, "gzip"), (503, "gzip")])
async def test_a_body_that_cannot_be_decoded_fails_its_own_call_only(
    start: Start, refusing: RefusingServer, status: int, encoding: str
) -> None:
    """The body is complete, so the connection and its other calls are sound."""
    tools = await start_with(start, refusing)
    async with running_slow_call(tools, refusing):
        refusing.refuse("quick", status=status, body="not encoded", type=JSON, Content_Encoding=encoding)
        outcome = await call(tools, "quick", server="it")
        assert outcome.code == ("tool_execution_error" if status == 200 else "server_http_error")
        refusing.control(refused={})

    await require_unaffected(tools, refusing)


async def test_repeated_refusals_open_no_breaker(start: Start, refusing: RefusingServer) -> None:
    """Ten failures of a session within a minute would pause all attempts."""
    tools = await start_with(start, refusing)
    refusing.refuse("quick", status=429)
    for _ in range(15):
        assert (await call(tools, "quick", server="it")).code == "server_http_error"

    await require_unaffected(tools, refusing)


@pytest.mark.parametrize("path", ["/mcp", "/sse"])
async def test_every_kind_of_request_fails_alone(start: Start, refusing: RefusingServer, path: str) -> None:
    """Resources, prompts, completion and subscriptions give the reason and the time to wait as calls do."""
    tools = await start_with(start, refusing, path)
    entry = tools.catalogue.get_server(CALLER, "it")
    prompt: dict[str, object] = {"ref": {"type": "ref/prompt", "name": "greet"}, "argument": {"name": "a", "value": ""}}

    async def subscribe() -> None:
        await tools.resources.subscribe(CALLER, entry, "docs://one", lambda _: None, options=CallOptions())

    requests = {
        "resources/read": lambda: tools.resources.read(CALLER, "it://docs/one"),
        "prompts/get": lambda: tools.resources.get_prompt(CALLER, entry, "greet", {}),
        "completion/complete": lambda: tools.resources.complete_argument(CALLER, entry, prompt),
        "resources/subscribe": subscribe,
    }
    async with running_slow_call(tools, refusing):
        refusing.refuse(*requests, status=429, body="slow down", Retry_After="7")
        for method, send in requests.items():
            with pytest.raises(RookeryError, match=r"status 429: slow down\. Retry after 7 s\.") as failed:
                await send()
            assert failed.value.detail["retry_after"] == 7, method
            assert failed.value.headers["Retry-After"] == "7"
            assert refusing.count(method) == 1

    await require_unaffected(tools, refusing)


async def test_a_refused_subscription_of_the_later_protocol_is_reported(start: Start) -> None:
    """There a subscription is a stream; the caller must not wait for updates that never come."""
    with run_refusing_server(modern=True) as server:
        tools = await start_with(start, server)
        entry = tools.catalogue.get_server(CALLER, "it")
        server.refuse("subscriptions/listen", status=503, body="no streams today")
        with pytest.raises(ResourceFailed, match="status 503: no streams today"):
            await tools.resources.subscribe(CALLER, entry, "docs://one", lambda _: None, options=CallOptions())

        assert (await call(tools, "write", server="it")).error is None


async def test_refused_notifications_change_nothing(start: Start, refusing: RefusingServer) -> None:
    """A server may reject the notification of a cancelled call."""
    tools = await start_with(start, refusing)
    refusing.refuse("notifications/cancelled", status=429)
    async with running_slow_call(tools, refusing):
        cancelled = asyncio.create_task(call(tools, "slow", server="it"))
        await eventually(lambda: refusing.count("slow") == 2)
        cancelled.cancel()
        await eventually(lambda: refusing.count("notifications/cancelled") == 1)

    await require_unaffected(tools, refusing)


@pytest.mark.parametrize("path", ["/mcp", "/sse"])
@pytest.mark.parametrize(("status", "body"), [(404, ""), (400, "Bad Request: No valid session ID provided")])
async def test_a_session_that_the_server_no_longer_knows_is_opened_again(
    start: Start, refusing: RefusingServer, path: str, status: int, body: str
) -> None:
    """404 by the specification; older servers of the official SDKs answer 400 with a plain text."""
    tools = await start_with(start, refusing, path)
    refusing.refuse("write", status=status, body=body)

    assert (await call(tools, "write", server="it")).code == "server_unavailable"
    assert refusing.count("write") == 2  # it was certainly not executed, so it is repeated in another session
    assert refusing.count("initialize") >= 1


# The reason and the time to wait


@pytest.mark.parametrize(
    ("body", "type", "reason"),
    [
        ('{"message": "Quota used up", "error": "quota"}', JSON, ": Quota used up."),
        ('{"error": {"message": "Rate limit reached!", "type": "requests"}}', JSON, ": Rate limit reached!"),
        ('{"error": "invalid_request", "error_description": "A field is missing."}', JSON, ": A field is missing."),
        ('{"detail": [{"loc": ["body"], "msg": "field required"}]}', JSON, ": field required."),
        ('{"type": "about:blank", "title": "Too large", "detail": "At most 1 MB"}', "application/problem+json", ": At most 1 MB."),
        ("overloaded,\n  try later", "text/plain; charset=utf-8", ": overloaded, try later."),
        ("busy", "", ": busy."),
        ("<html><body><h1>Too many</h1></body></html>", "text/html", " (Too Many Requests)."),
        ("<!DOCTYPE html><p>Too many</p>", "text/plain", " (Too Many Requests)."),
        ('{"message": "<p>Too many</p>"}', JSON, " (Too Many Requests)."),
        ("\x00\x01\x7f", "application/octet-stream", " (Too Many Requests)."),
        ("x" * 5000, "text/plain", " (Too Many Requests)."),
        ('{"message": {"nested": {"deep": {"message": "hidden"}}}}', JSON, " (Too Many Requests)."),
        ("[" * 50_000, JSON, " (Too Many Requests)."),
        ("", "text/plain", " (Too Many Requests)."),
    ],
)
async def test_the_error_has_the_servers_reason_but_no_html(
    start: Start, refusing: RefusingServer, body: str, type: str, reason: str
) -> None:
    """A short text that the body gives as its message, else the standard phrase of the status."""
    tools = await start_with(start, refusing)
    refusing.refuse("quick", status=429, body=body, type=type)

    assert (await call(tools, "quick", server="it")).error == f"127.0.0.1 returned status 429{reason}"


async def test_credentials_that_a_server_repeats_are_redacted(start: Start, refusing: RefusingServer) -> None:
    """The reason is shown and stored, so it must not contain the entry's or the caller's login."""
    fields = {"headers": {"X-Api-Key": "key-of-the-entry"}, "forward_headers": ["X-Login as Authorization"]}
    tools = await start_with(start, refusing, **fields)
    refusing.refuse("quick", status=422, body="Bearer token expired-token-2 and key-of-the-entry differ; sk_live_" + "a1B2" * 8)

    error = (await call_with(tools, "quick", EXPIRED)).error

    assert error == "127.0.0.1 returned status 422: Bearer token *** and *** differ; sk_live_…"


@pytest.mark.parametrize("with_json_rpc", [False, True])
@pytest.mark.parametrize(
    ("retry_after", "expected"), [("7", 7), ("0.2", 1), ("0", 0), ("date", 120), ("soon", None), ("-1", None), ("1e300", 365 * 86_400)]
)
async def test_the_time_to_wait_is_passed_on(
    start: Start, refusing: RefusingServer, retry_after: str, expected: int | None, with_json_rpc: bool
) -> None:
    """Retry-After is a number or a date (RFC 9110, 10.2.3), also beside a JSON-RPC error, which stays the server's own."""
    tools = await start_with(start, refusing)
    if retry_after == "date":
        retry_after = format_datetime(datetime.now(UTC) + timedelta(seconds=120), usegmt=True)
    error = {"jsonrpc": "2.0", "id": None, "error": {"code": -32000, "message": "slow down", "data": {"limit": 5}}}
    body, type = (json.dumps(error), JSON) if with_json_rpc else ("slow down", "text/plain")
    refusing.refuse("quick", status=429, body=body, type=type, Retry_After=retry_after)

    outcome = await call(tools, "quick", server="it")

    if expected == 120:
        assert outcome.retry_after_s in range(100, 122)
    else:
        assert outcome.retry_after_s == expected
    if with_json_rpc:
        assert (outcome.code, outcome.error) == ("tool_execution_error", "slow down")
        assert outcome.protocol_error is not None
        assert (outcome.protocol_error.number, outcome.protocol_error.data) == (-32000, {"limit": 5})
    else:
        wait = f" Retry after {outcome.retry_after_s} s." if outcome.retry_after_s else ""
        assert (outcome.code, outcome.error) == ("server_http_error", f"127.0.0.1 returned status 429: slow down.{wait}")


@pytest.mark.parametrize(("path", "method"), [("/mcp", "initialize"), ("/sse", "initialize"), ("/sse", "GET")])
async def test_a_refused_session_gives_its_reason(start: Start, refusing: RefusingServer, path: str, method: str) -> None:
    """The call that opens the session fails with the status, the reason and the time to wait."""
    refusing.refuse(method, status=503, body='{"message": "down for maintenance"}', type=JSON, Retry_After="90")
    tools = await start({"it": refusing.make_entry(path)})

    outcome = await call(tools, "write", server="it")

    assert outcome.code == "server_unavailable"
    assert "127.0.0.1 returned status 503: down for maintenance. Retry after 90 s." in str(outcome.error)
    assert outcome.retry_after_s == 90


SLOW_DOWN = json.dumps({"jsonrpc": "2.0", "id": None, "error": {"code": -32000, "message": "slow down"}})


@pytest.mark.parametrize("was_opened", [False, True])
@pytest.mark.parametrize(
    ("status", "retry_after_s", "body"), [(429, 7, "slow down"), (429, None, "slow down"), (429, None, SLOW_DOWN), (503, 7, SLOW_DOWN)]
)
async def test_a_server_that_asks_to_wait_gets_no_other_first_message(  # noqa: PLR0917 - one answer each
    db: Database, refusing: RefusingServer, was_opened: bool, status: int, retry_after_s: int | None, body: str
) -> None:
    """The answer says nothing about the revision: neither `server/discover` nor `initialize` follows the other one."""
    connector = upstreams.open([], protocols=StoredProtocols(db))["http"]
    server = make_http_server(f"{refusing.url}/mcp")
    if was_opened:  # the next session begins with `initialize`
        async with connector.connect(server, on_changed=lambda: None):
            pass
    headers = {} if retry_after_s is None else {"Retry_After": str(retry_after_s)}
    type = JSON if body == SLOW_DOWN else "text/plain"
    refusing.refuse("server/discover", "initialize", status=status, body=body, type=type, **headers)
    refusing.control(forget=True)

    with pytest.raises(ConnectFailed, match="slow down") as failed:
        async with connector.connect(server, on_changed=lambda: None):
            pass
    requests = [str(request["name"]) for request in refusing.control()]
    check = await ServerChecker(upstreams.open([])).check(server)

    assert requests == ["initialize" if was_opened else "server/discover"]
    assert failed.value.is_throttled
    assert failed.value.retry_after_s == retry_after_s
    assert check.advice == "The server is there, but takes no requests now. Check it again later."


async def test_no_session_is_opened_before_the_time_that_a_server_asked_for(start: Start, refusing: RefusingServer) -> None:
    """Retry-After at the opening holds for the next attempt too; calls until then say how long, and send nothing."""
    refusing.refuse("server/discover", "initialize", status=503, body="back at noon", Retry_After="90")
    tools = await start({"it": refusing.make_entry()})
    first = await call(tools, "write", server="it")
    requests = len(refusing.control())
    second = await call(tools, "write", server="it")

    for outcome in (first, second):
        assert "back at noon" in str(outcome.error)
        assert outcome.retry_after_s in range(80, 91)
    assert len(refusing.control()) == requests


async def test_a_refused_list_gives_its_reason(start: Start, refusing: RefusingServer) -> None:
    """A server whose tools were never listed shows the reason, and calls go through: it validates the arguments itself."""
    refusing.refuse("tools/list", status=500, body="no database")
    tools = await start({"it": refusing.make_entry()})
    outcome = await call(tools, "write", server="it")
    assert outcome.error is None
    state = tools.sessions.get_health_state(tools.catalogue.get_server(CALLER, "it"))
    assert state.health is HealthStatus.DEGRADED
    assert state.last_error == "Its tools could not be listed: 127.0.0.1 returned status 500: no database."


async def test_a_list_that_is_refused_for_now_changes_nothing(start: Start, refusing: RefusingServer) -> None:
    """The server asks for a pause, and its last lists stay in use."""
    tools = await start_with(start, refusing)
    entry = tools.catalogue.get_server(CALLER, "it")
    refusing.refuse("tools/list", status=429)
    count_before = refusing.count("tools/list")
    task = tools.catalogue.refresh(entry)
    assert task is not None
    await task
    assert refusing.count("tools/list") == count_before + 1
    refusing.control(refused={})

    await require_unaffected(tools, refusing)


# Rejected logins


@pytest.mark.parametrize("path", ["/mcp", "/sse"])
@pytest.mark.parametrize("isolation", ["shared", "per_key"])
@pytest.mark.parametrize("status", [401, 403])
async def test_a_callers_rejected_login_concerns_that_caller_only(
    start: Start, refusing: RefusingServer, path: str, isolation: str, status: int
) -> None:
    """The error names the caller's own header; the session, its calls and the health stay as they are."""
    tools = await start_with(start, refusing, path, isolation=isolation, forward_headers=["X-Login as Authorization"])
    refusing.refuse("quick", status=status, body='{"error": "invalid_token"}', type=JSON)
    async with running_slow_call(tools, refusing):
        for _ in range(12):
            outcome = await call_with(tools, "quick", EXPIRED)
            assert outcome.code == "server_http_error"
            assert outcome.error == f"The server rejected the login in X-Login ({status}): invalid_token."

    assert refusing.count("initialize") == (isolation == "per_key")  # the second key's own session, opened once
    assert tools.sessions.failure_counts["it"] == 0
    assert tools.sessions.get_health_state(tools.catalogue.get_server(CALLER, "it"), 1).health is HealthStatus.ONLINE


async def test_a_caller_without_the_login_learns_which_header_to_send(start: Start, refusing: RefusingServer) -> None:
    """No login of the entry was rejected, so other callers go on."""
    fields = {"isolation": "shared", "headers": {"X-Team": "blue"}, "forward_headers": ["X-Login as Authorization"]}
    tools = await start_with(start, refusing, **fields)
    refusing.control(guarded=["quick"], tokens=[GOOD])
    async with running_slow_call(tools, refusing):
        without = await call(tools, "quick", server="it")
        assert "The server requires a login: send it in X-Login." in str(without.error)
        assert (await call_with(tools, "quick", GOOD)).error is None

    await require_unaffected(tools, refusing)


async def test_a_rejection_beside_a_login_of_the_entry_names_both(start: Start, refusing: RefusingServer) -> None:
    """The server does not say which of the two it rejected, so the session stays open."""
    fields = {"headers": {"Authorization": EXPIRED}, "forward_headers": ["X-Login as X-Tenant"]}
    tools = await start_with(start, refusing, **fields)
    refusing.control(guarded=["quick"], tokens=[GOOD])

    assert (await call_with(tools, "quick", "acme")).error == (
        "The server rejected the login in X-Login, or that of its entry (401): invalid_token."
    )
    await require_unaffected(tools, refusing)


async def test_a_rejected_login_of_the_entry_concerns_the_session(start: Start, refusing: RefusingServer) -> None:
    """A new session may have another login, and the health shows what is wrong."""
    tools = await start_with(start, refusing, headers={"Authorization": EXPIRED}, forward_headers=["X-Login as Authorization"])
    refusing.control(guarded=["quick", "initialize"], tokens=[GOOD])

    outcome = await call(tools, "quick", server="it")

    assert (outcome.code, refusing.count("initialize")) == ("server_unavailable", 1)
    assert "The server requires a login or another key." in str(outcome.error)
    entry = tools.catalogue.get_server(CALLER, "it")
    assert tools.sessions.get_health_state(entry).health is HealthStatus.NEEDS_LOGIN


# Interfaces


@asynccontextmanager
async def run_with(settings: Settings, server: RefusingServer, **fields: object) -> AsyncGenerator[Instance]:
    """Run Rookery with the server as `it`."""
    settings.servers_file.write_text(json.dumps({"mcpServers": {"it": server.make_entry(**fields)}}))
    async with run_instance(settings) as instance:
        response = await instance.admin.post(f"{BASE}/tools/call", {"server": "it", "tool": "write"}, **{"X-Login": GOOD})
        assert response.status_code == 200, response.text
        yield instance


async def post_mcp(instance: Instance, method: str, params: dict[str, object], **headers: str) -> dict[str, object]:
    """Send one message of the later era to /mcp; return the JSON-RPC response."""
    prefix = "io.modelcontextprotocol/"
    meta: dict[str, object] = {f"{prefix}protocolVersion": LATER, f"{prefix}clientCapabilities": {}}
    headers |= {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": LATER, "Mcp-Method": method}
    name = params.get("name") or params.get("uri")
    if name is not None:
        headers["Mcp-Name"] = str(name)
    body: dict[str, object] = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
    return (await instance.admin.post("/mcp", body, **headers)).json()


async def test_callers_of_each_interface_learn_how_long_to_wait(settings: Settings, refusing: RefusingServer) -> None:
    """HTTP has the field and the header; MCP has the text and `_meta` of the result, or the data of the error."""
    async with run_with(settings, refusing) as instance:
        refusing.refuse("write", "resources/read", "prompts/get", status=429, body="slow down", Retry_After="7")
        called = await instance.admin.post(f"{BASE}/tools/call", {"server": "it", "tool": "write"})
        streamed = await instance.admin.post(f"{BASE}/servers/it/tools/write", {}, Accept="text/event-stream")
        read = await instance.admin.get(f"{BASE}/resources/it://docs/one")
        filled = await instance.admin.post(f"{BASE}/servers/it/prompts/greet", {"arguments": {}})
        result = cast("dict[str, object]", (await post_mcp(instance, "tools/call", {"name": "it__write", "arguments": {}}))["result"])
        error = cast("dict[str, object]", (await post_mcp(instance, "resources/read", {"uri": "it://docs/one"}))["error"])

    for response, code in ((called, "server_http_error"), (streamed, "server_http_error"), (read, None), (filled, None)):
        assert (response.status_code, response.headers["retry-after"], response.json()["retry_after"]) == (500, "7", 7), response.text
        assert response.json().get("code") == code
    assert called.json()["message"] == (
        "The server 'it' answered the call of it/write with an HTTP error: 127.0.0.1 returned status 429: slow down. Retry after 7 s."
    )
    assert result["isError"] is True
    assert cast("list[dict[str, object]]", result["content"])[0]["text"] == "127.0.0.1 returned status 429: slow down. Retry after 7 s."
    assert cast("dict[str, object]", result["_meta"])["rookery/error"] == {"error": "server_http_error", "retry_after": 7}
    assert "Retry after 7 s." in str(error["message"])
    assert cast("dict[str, object]", error["data"])["retry_after"] == 7


async def test_headers_are_forwarded_with_every_request_that_a_caller_causes(settings: Settings, refusing: RefusingServer) -> None:
    """Reading, prompts, completion and subscriptions act with the rights of the caller, as calls do."""
    fields = {"headers": {"Authorization": "Bearer service"}, "forward_headers": ["X-Login as Authorization"]}
    login = {"X-Login": GOOD}
    async with run_with(settings, refusing, **fields) as instance:
        await instance.admin.get(f"{BASE}/resources/it://docs/one", **login)
        await instance.admin.post(f"{BASE}/servers/it/prompts/greet", {"arguments": {}}, **login)
        await post_mcp(instance, "resources/read", {"uri": "it://docs/one"}, **login)
        await post_mcp(instance, "prompts/get", {"name": "it__greet"}, **login)
        completion: dict[str, object] = {"ref": {"type": "ref/prompt", "name": "it__greet"}, "argument": {"name": "a", "value": ""}}
        await post_mcp(instance, "completion/complete", completion, **login)

    expected = {"resources/read": 2, "prompts/get": 2, "completion/complete": 1}
    assert {name: refusing.list_authorizations(name) for name in expected} == {name: [GOOD] * count for name, count in expected.items()}


async def test_headers_are_forwarded_with_every_request_of_a_subscription(settings: Settings, refusing: RefusingServer) -> None:
    """Also when the subscription is renewed in a new session, and when it ends."""
    fields = {"headers": {"Authorization": "Bearer service"}, "forward_headers": ["X-Login as Authorization"]}
    headers = {"X-Login": GOOD, "Accept": "application/json, text/event-stream"}
    client = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}

    async with run_with(settings, refusing, **fields) as instance:

        async def send(method: str, **params: object) -> httpx2.Response:
            message: dict[str, object] = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
            return await instance.admin.post("/mcp", message, **headers)

        headers["Mcp-Session-Id"] = (await send("initialize", **client)).headers["mcp-session-id"]
        await send("resources/subscribe", uri="it://docs/one")
        refusing.refuse("quick", status=404)
        await instance.admin.post(f"{BASE}/tools/call", {"server": "it", "tool": "quick"})
        refusing.control(refused={})
        await eventually(lambda: refusing.count("resources/subscribe") == 2)
        headers["X-Login"] = "Bearer renewed"
        await send("resources/unsubscribe", uri="it://docs/one")

    assert refusing.list_authorizations("resources/subscribe") == [GOOD, GOOD]
    assert refusing.list_authorizations("resources/unsubscribe") == ["Bearer renewed"]
