"""Rate limits of keys at /mcp, as real clients bear them."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Callable, Iterator
from typing import cast

import httpx2
import pytest

from tests.deadlines import HANG_S
from tests.processes import Server
from tests.tools.gateway.clients import ERAS, LATER, Json, open_client
from tests.tools.gateway.test_client_sessions import make_opening
from tests.tools.gateway.test_hostile_peers import make_later_message

NOTICE = re.compile(r"The rate limit of this key is exceeded\. Try again in ([0-9]+) s\.")
LIST: Json = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
CALL: Json = {"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": {"name": "odd__echo", "arguments": {"text": "hi"}}}
FREE: tuple[Json, ...] = (
    {"jsonrpc": "2.0", "method": "notifications/initialized"},
    {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}},
    {"jsonrpc": "2.0", "id": 9, "method": "ping"},
    {"jsonrpc": "2.0", "id": 9, "result": {}},
)


def create_key(gateway: Server, limit: int, **fields: object) -> str:
    """Create an agent key with *limit* requests a minute."""
    body = {"name": f"limited-{limit}-{id(fields)}", "permissions": ["mcp:read", "mcp:write"], "rate_limit": limit, **fields}
    return cast("str", gateway.client.post("/api/v1/agent-keys", json=body).json()["key"])


class Session:
    """A raw client with one session."""

    def __init__(self, gateway: Server, key: str) -> None:
        headers = {"Authorization": f"Bearer {key}", "Accept": "application/json, text/event-stream"}
        self.http = httpx2.Client(base_url=gateway.url, headers=headers, timeout=HANG_S)
        opened = self.http.post("/mcp", json=make_opening())
        assert opened.status_code == 200, opened.text
        self.http.headers["Mcp-Session-Id"] = opened.headers["mcp-session-id"]

    def send(self, message: Json) -> httpx2.Response:
        """Send a message in the session."""
        return self.http.post("/mcp", json=message)

    def remaining(self) -> int:
        """Return the requests that are left to the key."""
        return int(self.http.get("/api/agent/rate-limit").headers["x-ratelimit-remaining"])


OpenSession = Callable[[int], Session]


@pytest.fixture
def open_session(gateway: Server) -> Iterator[OpenSession]:
    """A function that opens a session of a new key with a number of requests a minute."""
    with contextlib.ExitStack() as stack:

        def open_one(limit: int) -> Session:
            session = Session(gateway, create_key(gateway, limit))
            stack.callback(session.http.close)
            return session

        yield open_one


def test_the_messages_that_the_protocol_needs_count_nothing(open_session: OpenSession) -> None:
    """Notifications, pings, answers of the client, the event stream and the end of a session; all others count once."""
    session = open_session(10)
    assert session.remaining() == 9

    statuses = [session.send(message).status_code for message in FREE]
    with session.http.stream("GET", "/mcp") as stream:
        statuses.append(stream.status_code)
    after_free = session.remaining()
    listed = session.send(LIST)
    malformed = session.send({"jsonrpc": "1.0"})

    assert statuses == [202, 202, 200, 202, 200]
    assert after_free == 9
    assert listed.headers["x-ratelimit-remaining"] == "8"
    assert (malformed.status_code, malformed.headers["x-ratelimit-remaining"]) == (400, "7")
    assert session.http.delete("/mcp").status_code == 200
    assert session.remaining() == 7


def test_a_client_over_its_limit_may_end_its_session(open_session: OpenSession) -> None:
    """A session whose end is refused would take one of the key's 100 places."""
    session = open_session(1)

    assert [session.send(message).status_code for message in FREE] == [202, 202, 200, 202]
    assert session.http.delete("/mcp").status_code == 200
    assert session.send(FREE[2]).status_code == 404


def test_a_call_over_the_limit_is_a_result_that_says_when_to_try_again(open_session: OpenSession) -> None:
    """HTTP 200, `isError`, the seconds in the text, in `_meta` and in Retry-After; the headers are those of a 429."""
    session = open_session(1)

    response = session.send(CALL)

    body = cast("Json", response.json())
    result = cast("Json", body["result"])
    match = NOTICE.fullmatch(str(cast("list[Json]", result["content"])[0]["text"]))
    assert match is not None
    error = cast("Json", cast("Json", result["_meta"])["rookery/error"])
    assert (response.status_code, body["id"], result["isError"]) == (200, 3, True)
    assert (error["error"], error["retry_after"]) == ("rate_limited", int(match[1]))
    assert response.headers["retry-after"] == match[1]
    assert (response.headers["x-ratelimit-limit"], response.headers["x-ratelimit-remaining"]) == ("1", "0")
    assert len(response.headers.get_list("x-ratelimit-limit")) == 1


@pytest.mark.parametrize(
    "message", [LIST, make_opening(), {"jsonrpc": "2.0", "id": 2, "method": "resources/read", "params": {"uri": "a:b"}}]
)
def test_another_request_over_the_limit_is_an_error_that_says_when_to_try_again(open_session: OpenSession, message: Json) -> None:
    """HTTP 200 with a JSON-RPC error: a 429 ends the session of many clients, and they show nothing of its body."""
    session = open_session(1)

    response = session.send(message)

    error = cast("Json", response.json()["error"])
    assert (response.status_code, response.json()["id"]) == (200, message["id"])
    assert NOTICE.fullmatch(str(error["message"]))
    assert cast("Json", error["data"])["error"] == "rate_limited"
    assert "retry-after" in response.headers


def test_a_call_of_the_later_era_over_the_limit_is_complete(gateway: Server) -> None:
    """2026-07-28 requires `resultType` in each result."""
    headers = {"Authorization": f"Bearer {create_key(gateway, 1)}", "Accept": "application/json, text/event-stream"}
    body, sent = make_later_message("tools/call", headers, name="odd__echo", arguments={"text": "hi"})
    with httpx2.Client(base_url=gateway.url, timeout=HANG_S) as http:
        first, second = (http.post("/mcp", json=body, headers=sent).json()["result"] for _ in range(2))

    assert sent["MCP-Protocol-Version"] == LATER
    assert [(result["resultType"], result["isError"]) for result in (first, second)] == [("complete", False), ("complete", True)]


@pytest.mark.parametrize("mode", ERAS)
async def test_the_official_client_goes_on_after_its_limit(gateway: Server, mode: str) -> None:
    """The model reads the seconds, and the session is as good as before. A limit of a tool says the seconds as well."""
    key = create_key(gateway, 600, tool_limits={"odd/echo": 1})
    async with open_client(gateway, mode=mode, key=key) as mcp:
        first = await mcp.call_tool("odd__echo", {"text": "hi"})
        limited = await mcp.call_tool("odd__echo", {"text": "hi"})
    exhausted = create_key(gateway, 3)
    async with open_client(gateway, mode=mode, key=exhausted) as mcp:
        results = [await mcp.call_tool("odd__pid", {}) for _ in range(4)]

    assert not first.is_error
    assert re.search(r"'odd/echo' at most 1 time per minute\. Try again in [0-9]+ s\.", str(limited.content))
    assert NOTICE.search(str(results[-1].content))
    assert results[-1].is_error


def test_a_get_without_a_session_has_no_stream(gateway: Server) -> None:
    """405 as the protocol has it. Clients that try the stream first stay silent on it, and report an error on 400."""
    headers = {"Authorization": f"Bearer {gateway.keys['agent_key']}", "Accept": "text/event-stream"}
    opened = httpx2.get(gateway.url + "/mcp", headers=headers, timeout=HANG_S)
    ended = httpx2.delete(gateway.url + "/mcp/odd", headers=headers, timeout=HANG_S)

    assert (opened.status_code, opened.headers["allow"]) == (405, "POST")
    assert (opened.json()["error"], ended.json()["error"], ended.status_code) == ("method_not_allowed", "invalid_request", 400)


def test_an_ended_session_is_named_as_sdks_name_it(open_session: OpenSession) -> None:
    """Google ADK opens another session only after exactly this code and message."""
    session = open_session(10)
    session.http.delete("/mcp")

    response = session.send(LIST)

    error = response.json()["error"]
    assert (response.status_code, error["code"], error["message"]) == (404, -32600, "Session terminated")
    assert "initialize" in error["data"]["message"]


async def test_requests_in_a_session_that_ends_leave_no_traceback(gateway: Server) -> None:
    """A client cancels a call and ends its session at once. Nothing of it is an error of the server."""
    headers = {"Authorization": f"Bearer {gateway.keys['api_key']}", "Accept": "application/json, text/event-stream"}
    async with httpx2.AsyncClient(base_url=gateway.url, headers=headers, timeout=HANG_S) as http:
        for _ in range(20):
            session = {"Mcp-Session-Id": (await http.post("/mcp", json=make_opening())).headers["mcp-session-id"]}
            messages = (FREE[1], CALL, FREE[0], LIST)
            sending = [http.post("/mcp", json=message, headers=session) for message in messages]
            answers = await asyncio.gather(*sending, http.delete("/mcp", headers=session))
            assert {answer.status_code for answer in answers} <= {200, 202, 404}

    assert "Traceback" not in gateway.log()
