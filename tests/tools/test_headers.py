"""Forwarded headers of callers, and limits on HTTP upstreams (D-31, D-32)."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, ExitStack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.kernel.config import Settings
from rookery.tools.errors import ConnectFailed, ConnectionLost, ResultTooLarge, UpstreamError, UpstreamErrorResponse
from rookery.tools.models import HttpTarget, OAuthConfig, Server
from rookery.tools.ports import RequestOptions, UpstreamConnection
from rookery.tools.servers.header_forwarding import find_forwarding_fault, select_forwarded_headers
from tests.conftest import run_instance
from tests.tools.makers import CONNECTORS, SERVERS, free_port, make_caller, text_of
from tests.tools.oauth_server import OAuthServer, run_oauth_server

CALLER = make_caller()
KEY = "sk_live_" + "a1B2" * 8


@pytest.fixture
def database_url() -> str:
    """The embedded store alone: nothing here differs by dialect."""
    return "embedded:"


@pytest.fixture(scope="module")
def open_server() -> Iterator[OAuthServer]:
    """A server of the handshake era that wants no token."""
    with run_oauth_server(open=True) as running:
        yield running


@pytest.fixture
def tricky() -> Iterator[OAuthServer]:
    """The same, for one test alone."""
    with run_oauth_server(open=True) as running:
        yield running


@pytest.fixture(scope="module")
def modern() -> Iterator[str]:
    """The address of a server of the stateless era."""
    port = free_port()
    with subprocess.Popen(
        [sys.executable, str(SERVERS / "served.py"), str(port), "http"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if b"running on" in line:
                break
        yield f"http://127.0.0.1:{port}/mcp"
        process.kill()


def connect(server: Server) -> AbstractAsyncContextManager[UpstreamConnection]:
    """Return a session to enter."""
    return CONNECTORS[server.kind].connect(server, on_changed=lambda: None)


async def call(
    connection: UpstreamConnection, tool: str, *, headers: dict[str, str] | None = None, **arguments: object
) -> dict[str, object]:
    """Call a tool."""
    asking = RequestOptions(caller=CALLER, headers=headers or {})
    return await connection.request("tools/call", {"name": tool, "arguments": arguments}, asking)


async def arrived(connection: UpstreamConnection, headers: dict[str, str]) -> dict[str, str]:
    """Call the tool that tells which headers came with the call."""
    return json.loads(text_of(await call(connection, "headers", headers=headers)))


# Which go on.


@given(name=st.from_regex(r"[A-Za-z0-9-]{1,40}", fullmatch=True), value=st.text(st.characters(min_codepoint=32, max_codepoint=126)))
def test_nothing_goes_on_that_is_not_named(name: str, value: str) -> None:
    """D-31: forward_headers is a list of what goes on, not of what does not."""
    server = Server(id="x", name="x", target=HttpTarget(url="http://x"), forward_headers=("X-Only-This",))

    assert set(select_forwarded_headers(server, {name.lower(): value})) <= {"x-only-this"}


@pytest.mark.parametrize(
    "name",
    "Authorization X-API-Key Cookie Host Connection Content-Length Transfer-Encoding Upgrade Proxy-Authorization Keep-Alive TE Trailer "
    "Accept-Encoding Mcp-Session-Id Mcp-Protocol-Version Mcp-Method X-Forwarded-For Traceparent X-Workspace-ID".split(),
)
def test_what_is_ours_or_the_connections_never_goes_on(name: str) -> None:
    """D-31: not when it is named, in any case of letters, and not under another name either if it is what callers send to us."""
    server = Server(id="x", name="x", target=HttpTarget(url="http://x"), forward_headers=(name, name.upper(), f"{name} as X-Other"))

    assert find_forwarding_fault(name) is not None
    assert select_forwarded_headers(server, {name.lower(): "secret"}) == {}


@pytest.mark.parametrize("name", ["", "two words", "X-A as", "X-A as X B", "X:Y", "X-A as Host", "X-A as Mcp-Session-Id", "é"])
def test_a_name_that_is_none_is_told(name: str) -> None:
    """D-31: a slip in an entry is said when it is read."""
    assert find_forwarding_fault(name) is not None


def test_a_header_may_go_on_under_another_name() -> None:
    """D-31: the upstream's Authorization, beside Rookery's own."""
    server = Server(id="x", name="x", target=HttpTarget(url="http://x"), forward_headers=("X-Upstream-Authorization as Authorization",))

    assert select_forwarded_headers(server, {"x-upstream-authorization": "Bearer theirs"}) == {"authorization": "Bearer theirs"}


def test_a_login_is_not_replaced_by_a_header() -> None:
    """D-31: with auth, Authorization is the login's."""
    names = ("X-Upstream-Authorization as Authorization",)
    server = Server(id="x", name="x", target=HttpTarget(url="http://x"), forward_headers=names, auth=OAuthConfig())

    assert select_forwarded_headers(server, {"x-upstream-authorization": "Bearer theirs"}) == {}


@pytest.mark.parametrize("value", [KEY, f"Bearer {KEY}", "ak_" + "a1B2" * 8])
def test_a_key_of_ours_stays_here_whatever_its_header_is_called(value: str) -> None:
    """D-31: a client that sends its Rookery key everywhere must not hand it to upstreams."""
    server = Server(id="x", name="x", target=HttpTarget(url="http://x"), forward_headers=("X-Token",))

    assert select_forwarded_headers(server, {"x-token": value}) == {}
    assert select_forwarded_headers(server, {"x-token": "theirs"}) == {"x-token": "theirs"}


# How they get there.


@pytest.mark.parametrize("kind", ["handshake", "stateless", "sse"])
async def test_headers_go_with_the_call_that_brought_them_and_no_other(kind: str, open_server: OAuthServer, modern: str) -> None:
    """D-31, D-32: many callers at once in one session, in both eras, and over the older SSE as far as a POST is theirs."""
    address = modern if kind == "stateless" else open_server.url + ("/sse" if kind == "sse" else "/mcp")
    target = HttpTarget(url=address, kind="sse" if kind == "sse" else "http", headers={"X-Static": "always"})
    server = Server(id="x", name="x", target=target, forward_headers=("X-Tenant",))
    async with connect(server) as session:
        said = await asyncio.gather(*(arrived(session, {"x-tenant": str(number)}) for number in range(20)))
        without = await arrived(session, {})

    assert [headers["x-tenant"] for headers in said] == [str(number) for number in range(20)]
    assert {headers["x-static"] for headers in said} == {"always"}
    assert "x-tenant" not in without


async def test_a_callers_header_replaces_the_entrys_own(open_server: OAuthServer) -> None:
    """D-31: the entry's is the default, theirs is more exact."""
    target = HttpTarget(url=f"{open_server.url}/mcp", headers={"X-Tenant": "nobody"})
    async with connect(Server(id="x", name="x", target=target, forward_headers=("X-Tenant",))) as session:
        assert (await arrived(session, {"x-tenant": "acme"}))["x-tenant"] == "acme"
        assert (await arrived(session, {}))["x-tenant"] == "nobody"


async def test_a_header_outside_of_ascii_goes_on_as_it_came_and_ends_nobodys_session(open_server: OAuthServer) -> None:
    """D-31, D-32: one caller's header is no reason for the calls of all others in the session to fail."""
    async with connect(Server(id="x", name="x", target=HttpTarget(url=f"{open_server.url}/mcp"), forward_headers=("X-Tenant",))) as session:
        odd, plain = await asyncio.gather(arrived(session, {"x-tenant": "caf\u00e9"}), arrived(session, {"x-tenant": "acme"}))

    assert (odd["x-tenant"], plain["x-tenant"]) == ("caf\u00e9", "acme")


async def test_headers_of_a_request_reach_the_server_that_names_them_through_the_whole_platform(
    settings: Settings, open_server: OAuthServer
) -> None:
    """D-31: from HTTP to HTTP; the key, cookies and what is not named stay here."""
    names = ["X-Tenant", "X-Upstream-Authorization as Authorization"]
    entry = {"url": f"{open_server.url}/mcp", "forward_headers": names}
    settings.servers_file.write_text(json.dumps({"mcpServers": {"it": entry}}))
    async with run_instance(settings) as instance:
        more = {"X-Tenant": "acme", "X-Upstream-Authorization": "Bearer theirs", "Cookie": "a=b", "X-Other": "no"}
        answer = await instance.admin.post("/api/v1/mcp/tools/call", {"server": "it", "tool": "headers"}, **more)
    headers = json.loads(answer.json()["result"]["content"][0]["text"])

    assert (headers["x-tenant"], headers["authorization"]) == ("acme", "Bearer theirs")
    assert not {"cookie", "x-other", "x-api-key", "x-upstream-authorization"} & set(headers)
    assert str(instance.admin.key) not in json.dumps(headers)


# What upstreams over HTTP may do to us.


@pytest.mark.parametrize("packed", ["gzip", "deflate", "raw"])
async def test_a_packed_answer_is_read(packed: str, tricky: OAuthServer) -> None:
    """RFC 9110 8.4: gzip, and deflate with zlib's head or, as some send it, without."""
    tricky.control(packed=packed)
    async with connect(tricky.make_entry()) as session:
        assert len(text_of(await call(session, "large", size=200_000))) == 200_000


@pytest.mark.parametrize("packed", ["gzip", "raw"])
async def test_a_small_answer_that_unpacks_to_a_huge_one_costs_that_call_alone(packed: str, tricky: OAuthServer) -> None:
    """D-34: 10 MiB count after unpacking, and what is past them is never unpacked."""
    tricky.control(packed=packed)
    async with connect(tricky.make_entry()) as session:
        with pytest.raises(ResultTooLarge):
            await call(session, "large", size=60 * 1024 * 1024)

        assert text_of(await call(session, "large", size=3)) == "xxx"


async def test_an_encoding_that_nobody_asked_for_is_a_failure_in_words(tricky: OAuthServer) -> None:
    """D-32: we cannot unpack it in bounded steps."""
    async with connect(tricky.make_entry()) as session:
        tricky.control(packed="br")
        with pytest.raises(UpstreamError, match="encoding 'br'"):
            await call(session, "large", size=3)


async def test_a_redirect_to_another_host_is_not_followed(tricky: OAuthServer, open_server: OAuthServer) -> None:
    """D-32: what was meant for one server, keys and all, goes to no other."""
    target = HttpTarget(url=f"{tricky.url}/mcp", headers={"X-Key": "secret"})
    async with connect(Server(id="x", name="x", target=target)) as session:
        tricky.control(redirect=f"{open_server.url}/elsewhere")
        with pytest.raises(UpstreamError, match="not followed"):
            await call(session, "large", size=3)

    assert open_server.redirected_headers() == []


async def test_a_session_forgotten_with_a_400_is_given_up_like_one_forgotten_with_a_404(tricky: OAuthServer) -> None:
    """Notes on MCP 3.2: many legacy servers answer 400 to a session they do not know; the next one works."""
    for told_by_400 in (False, True):
        tricky.control(forgets_with_400=told_by_400)
        async with connect(tricky.make_entry()) as session:
            tricky.control(drop=True)
            with pytest.raises(ConnectionLost) as lost:
                await call(session, "large", size=3)

            assert not lost.value.was_handled
            assert "no longer exists" in await asyncio.wait_for(session.wait_closed(), 5)


@pytest.mark.parametrize("path", ["/mcp", "/sse"])
async def test_a_server_that_was_started_anew_behind_our_back_is_known_not_to_have_acted(path: str) -> None:
    """Notes on MCP 3.2: the call may be asked again in a new session, whatever the tool does."""
    port = free_port()
    with ExitStack() as first:
        server = first.enter_context(run_oauth_server(open=True, port=port)).make_entry(path=path)
        async with connect(server) as session:
            await call(session, "write")
            first.close()
            with run_oauth_server(open=True, port=port) as second:
                with pytest.raises(ConnectionLost) as lost:
                    await call(session, "write")
                counted = second.control()

    assert (lost.value.was_handled, counted["calls"]) == (False, 0)


async def test_a_refusal_of_one_call_leaves_the_session_to_the_others(tricky: OAuthServer) -> None:
    """D-32: 403 is an answer to that request."""
    async with connect(tricky.make_entry()) as session:
        with pytest.raises((ConnectionLost, UpstreamErrorResponse)):
            await call(session, "forbidden")

        assert text_of(await call(session, "large", size=3)) == "xxx"


async def test_a_server_that_asks_for_a_login_says_how_to_give_it_one(tricky: OAuthServer) -> None:
    """D-33: needs_login, and what to do about it."""
    tricky.control(open=False)
    for path in ("/mcp", "/sse"):
        with pytest.raises(ConnectFailed, match=r'"auth": "oauth".*rookery servers login guarded') as failed:
            await connect(tricky.make_entry(path=path)).__aenter__()

        assert failed.value.needs_login


# The older SSE.


async def test_results_over_sse_may_be_as_large_as_over_anything_else(tricky: OAuthServer) -> None:
    """D-34: 10 MiB; the SDK's own client ends the session at one."""
    async with connect(tricky.make_entry(path="/sse")) as session:
        assert len(text_of(await call(session, "large", size=5 * 1024 * 1024))) == 5 * 1024 * 1024


@pytest.mark.parametrize(
    ("endpoint", "words"),
    [
        ("//127.0.0.2:9/messages", r"origin http://127\.0\.0\.1:\d+, but the server sent http://127\.0\.0\.2:9"),
        ("http://[::1/", "invalid endpoint"),
    ],
)
async def test_a_stream_that_says_to_write_elsewhere_is_not_used(tricky: OAuthServer, endpoint: str, words: str) -> None:
    """D-31: the redirect would send our keys to another host; the error says where."""
    tricky.control(endpoint=endpoint)

    with pytest.raises(ConnectFailed, match=words):
        async with connect(tricky.make_entry(path="/sse")):
            pass


async def test_the_end_of_the_stream_fails_the_calls_in_flight_at_once(tricky: OAuthServer) -> None:
    """D-32: no caller waits for an answer that cannot come."""
    async with connect(tricky.make_entry(path="/sse")) as session:
        tricky.control(drop=True)

        assert "closed the event stream" in await asyncio.wait_for(session.wait_closed(), 10)
        with pytest.raises(ConnectionLost):
            await call(session, "large", size=3)
