"""Forwarded headers of callers, and limits on HTTP upstreams."""

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
from rookery.tools.errors import ConnectFailed, ConnectionLost, ResultTooLarge, UpstreamError, UpstreamStatusError
from rookery.tools.models import HttpTarget, OAuthConfig, Server
from rookery.tools.ports import RequestOptions, UpstreamConnection
from rookery.tools.servers.header_forwarding import find_forwarding_fault, select_forwarded_headers
from tests.conftest import run_instance
from tests.deadlines import HANG_S
from tests.postgres import free_port
from tests.tools.makers import CONNECTORS, SERVERS, make_caller, text_of
from tests.tools.oauth_server import OAuthServer, run_oauth_server

pytestmark = pytest.mark.embedded_store  # nothing here depends on the dialect

CALLER = make_caller()
KEY = "sk_live_" + "a1B2" * 8


@pytest.fixture(scope="module")
def open_server() -> Iterator[OAuthServer]:
    """A server with the initialize handshake that requires no token."""
    with run_oauth_server(open=True) as running:
        yield running


@pytest.fixture
def misbehaving() -> Iterator[OAuthServer]:
    """A server without tokens for one test, which may change its options."""
    with run_oauth_server(open=True) as running:
        yield running


@pytest.fixture(scope="module")
def stateless_url() -> Iterator[str]:
    """The address of a server with the stateless protocol."""
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
    options = RequestOptions(caller=CALLER, headers=headers or {})
    return await connection.request("tools/call", {"name": tool, "arguments": arguments}, options)


async def call_headers(connection: UpstreamConnection, headers: dict[str, str]) -> dict[str, str]:
    """Call the tool that returns the headers of its request, and return them."""
    return json.loads(text_of(await call(connection, "headers", headers=headers)))


# Which headers are forwarded.


@given(name=st.from_regex(r"[A-Za-z0-9-]{1,40}", fullmatch=True), value=st.text(st.characters(min_codepoint=32, max_codepoint=126)))
def test_only_named_headers_are_forwarded(name: str, value: str) -> None:
    """forward_headers is an allow-list."""
    server = Server(id="x", name="x", target=HttpTarget(url="http://x"), forward_headers=("X-Only-This",))

    assert set(select_forwarded_headers(server, {name.lower(): value})) <= {"x-only-this"}


@pytest.mark.parametrize(
    "name",
    "Authorization X-API-Key Cookie Host Connection Content-Length Transfer-Encoding Upgrade Proxy-Authorization Keep-Alive TE Trailer "
    "Accept-Encoding Mcp-Session-Id Mcp-Protocol-Version Mcp-Method X-Forwarded-For Traceparent X-Workspace-ID".split(),
)
def test_reserved_headers_are_never_forwarded(name: str) -> None:
    """Headers of Rookery or of the connection are rejected in any letter case and under any other name."""
    server = Server(id="x", name="x", target=HttpTarget(url="http://x"), forward_headers=(name, name.upper(), f"{name} as X-Other"))

    assert find_forwarding_fault(name) is not None
    assert select_forwarded_headers(server, {name.lower(): "secret"}) == {}


@pytest.mark.parametrize("name", ["", "two words", "X-A as", "X-A as X B", "X:Y", "X-A as Host", "X-A as Mcp-Session-Id", "é"])
def test_an_invalid_header_name_is_reported(name: str) -> None:
    """A mistake in an entry is reported when the entry is read."""
    assert find_forwarding_fault(name) is not None


def test_a_header_may_be_forwarded_under_another_name() -> None:
    """The upstream's Authorization, beside Rookery's own."""
    server = Server(id="x", name="x", target=HttpTarget(url="http://x"), forward_headers=("X-Upstream-Authorization as Authorization",))

    assert select_forwarded_headers(server, {"x-upstream-authorization": "Bearer theirs"}) == {"authorization": "Bearer theirs"}


def test_a_login_is_not_replaced_by_a_header() -> None:
    """With auth, Authorization is the login's."""
    names = ("X-Upstream-Authorization as Authorization",)
    server = Server(id="x", name="x", target=HttpTarget(url="http://x"), forward_headers=names, auth=OAuthConfig())

    assert select_forwarded_headers(server, {"x-upstream-authorization": "Bearer theirs"}) == {}


@pytest.mark.parametrize("value", [KEY, f"Bearer {KEY}", "ak_" + "a1B2" * 8])
def test_a_rookery_key_is_never_forwarded_in_any_header(value: str) -> None:
    """A client that sends its Rookery key everywhere must not hand it to upstreams."""
    server = Server(id="x", name="x", target=HttpTarget(url="http://x"), forward_headers=("X-Token",))

    assert select_forwarded_headers(server, {"x-token": value}) == {}
    assert select_forwarded_headers(server, {"x-token": "theirs"}) == {"x-token": "theirs"}


# How headers are forwarded.


@pytest.mark.parametrize("kind", ["handshake", "stateless", "sse"])
async def test_headers_are_forwarded_with_their_own_call_only(kind: str, open_server: OAuthServer, stateless_url: str) -> None:
    """Many callers share one session, in both protocol eras and over the older SSE."""
    url = stateless_url if kind == "stateless" else open_server.url + ("/sse" if kind == "sse" else "/mcp")
    target = HttpTarget(url=url, kind="sse" if kind == "sse" else "http", headers={"X-Static": "always"})
    server = Server(id="x", name="x", target=target, forward_headers=("X-Tenant",))
    async with connect(server) as session:
        received = await asyncio.gather(*(call_headers(session, {"x-tenant": str(number)}) for number in range(20)))
        plain = await call_headers(session, {})

    assert [headers["x-tenant"] for headers in received] == [str(number) for number in range(20)]
    assert {headers["x-static"] for headers in received} == {"always"}
    assert "x-tenant" not in plain


async def test_a_callers_header_replaces_the_entrys_own(open_server: OAuthServer) -> None:
    """The header of the entry is the default."""
    target = HttpTarget(url=f"{open_server.url}/mcp", headers={"X-Tenant": "nobody"})
    async with connect(Server(id="x", name="x", target=target, forward_headers=("X-Tenant",))) as session:
        assert (await call_headers(session, {"x-tenant": "acme"}))["x-tenant"] == "acme"
        assert (await call_headers(session, {}))["x-tenant"] == "nobody"


async def test_a_non_ascii_header_is_forwarded_unchanged_and_ends_no_session(open_server: OAuthServer) -> None:
    """One caller's header must not fail the calls of others in the session."""
    async with connect(Server(id="x", name="x", target=HttpTarget(url=f"{open_server.url}/mcp"), forward_headers=("X-Tenant",))) as session:
        non_ascii, plain = await asyncio.gather(
            call_headers(session, {"x-tenant": "caf\u00e9"}), call_headers(session, {"x-tenant": "acme"})
        )

    assert (non_ascii["x-tenant"], plain["x-tenant"]) == ("caf\u00e9", "acme")


async def test_headers_of_a_request_reach_the_server_whose_entry_names_them(settings: Settings, open_server: OAuthServer) -> None:
    """The key, cookies and unnamed headers are not forwarded."""
    names = ["X-Tenant", "X-Upstream-Authorization as Authorization"]
    entry = {"url": f"{open_server.url}/mcp", "forward_headers": names}
    settings.servers_file.write_text(json.dumps({"mcpServers": {"it": entry}}))
    async with run_instance(settings) as instance:
        request_headers = {"X-Tenant": "acme", "X-Upstream-Authorization": "Bearer theirs", "Cookie": "a=b", "X-Other": "no"}
        response = await instance.admin.post("/api/v1/mcp/tools/call", {"server": "it", "tool": "headers"}, **request_headers)
    headers = json.loads(response.json()["result"]["content"][0]["text"])

    assert (headers["x-tenant"], headers["authorization"]) == ("acme", "Bearer theirs")
    assert not {"cookie", "x-other", "x-api-key", "x-upstream-authorization"} & set(headers)
    assert str(instance.admin.key) not in json.dumps(headers)


@pytest.mark.parametrize("name", ["*", "X-*", "x-tenant-?", "x-[ab]", "X-* as X-Tenant"])
def test_a_glob_of_headers_is_refused_with_the_reason(name: str) -> None:
    """It would forward nothing: names of headers are literal, while those of `forward_meta` are globs."""
    assert find_forwarding_fault(name) == (f"{name!r} is no name of a header: write each name in full. Only `forward_meta` takes globs.")


# Misbehaving upstreams over HTTP.


@pytest.mark.parametrize("packed", ["gzip", "deflate", "raw"])
async def test_a_compressed_response_is_read(packed: str, misbehaving: OAuthServer) -> None:
    """RFC 9110 8.4: gzip, and deflate with the zlib header or without it."""
    misbehaving.control(packed=packed)
    async with connect(misbehaving.make_entry()) as session:
        assert len(text_of(await call(session, "large", size=200_000))) == 200_000


@pytest.mark.parametrize("packed", ["gzip", "raw"])
async def test_a_decompression_bomb_fails_only_its_own_call(packed: str, misbehaving: OAuthServer) -> None:
    """The limit of 10 MiB applies after decompression, and decompression stops there."""
    misbehaving.control(packed=packed)
    async with connect(misbehaving.make_entry()) as session:
        with pytest.raises(ResultTooLarge):
            await call(session, "large", size=60 * 1024 * 1024)

        assert text_of(await call(session, "large", size=3)) == "xxx"


async def test_an_unrequested_encoding_fails_with_its_name(misbehaving: OAuthServer) -> None:
    """Such an encoding cannot be decompressed in bounded steps."""
    async with connect(misbehaving.make_entry()) as session:
        misbehaving.control(packed="br")
        with pytest.raises(UpstreamError, match="encoding 'br'"):
            await call(session, "large", size=3)


async def test_a_redirect_to_another_host_is_not_followed(misbehaving: OAuthServer, open_server: OAuthServer) -> None:
    """A request for one server, with its keys, goes to no other."""
    target = HttpTarget(url=f"{misbehaving.url}/mcp", headers={"X-Key": "secret"})
    async with connect(Server(id="x", name="x", target=target)) as session:
        misbehaving.control(redirect=f"{open_server.url}/elsewhere")
        with pytest.raises(UpstreamError, match="not followed"):
            await call(session, "large", size=3)

    assert open_server.redirected_headers() == []


async def test_a_session_lost_with_a_400_is_closed_like_one_lost_with_a_404(misbehaving: OAuthServer) -> None:
    """Notes on MCP 3.2: many legacy servers return 400 for an unknown session; a new session works."""
    for with_400 in (False, True):
        misbehaving.control(forgets_with_400=with_400)
        async with connect(misbehaving.make_entry()) as session:
            misbehaving.control(drop=True)
            with pytest.raises(ConnectionLost) as error:
                await call(session, "large", size=3)

            assert not error.value.was_handled
            assert "no longer exists" in await asyncio.wait_for(session.wait_closed(), HANG_S)


@pytest.mark.parametrize("path", ["/mcp", "/sse"])
async def test_a_call_lost_by_a_restarted_server_is_marked_as_not_handled(path: str) -> None:
    """Notes on MCP 3.2: the call may be retried in a new session, whatever the tool does."""
    port = free_port()
    with ExitStack() as first_server:
        server = first_server.enter_context(run_oauth_server(open=True, port=port)).make_entry(path=path)
        async with connect(server) as session:
            await call(session, "write")
            first_server.close()
            with run_oauth_server(open=True, port=port) as second:
                with pytest.raises(ConnectionLost) as error:
                    await call(session, "write")
                counts = second.control()

    assert (error.value.was_handled, counts["calls"]) == (False, 0)


async def test_a_rejected_call_does_not_end_the_session(misbehaving: OAuthServer) -> None:
    """403 answers that request only."""
    async with connect(misbehaving.make_entry()) as session:
        with pytest.raises(UpstreamStatusError, match="status 403: not for you") as error:
            await call(session, "forbidden")

        assert error.value.status == 403
        assert text_of(await call(session, "large", size=3)) == "xxx"


async def test_the_error_of_a_server_that_needs_a_login_says_how_to_log_in(misbehaving: OAuthServer) -> None:
    """The error has needs_login and the command."""
    misbehaving.control(open=False)
    for path in ("/mcp", "/sse"):
        with pytest.raises(ConnectFailed, match=r'"auth": "oauth".*rookery servers login guarded') as failed:
            await connect(misbehaving.make_entry(path=path)).__aenter__()

        assert failed.value.needs_login


# The older SSE.


async def test_results_over_sse_have_the_same_size_limit(misbehaving: OAuthServer) -> None:
    """The limit is 10 MiB; the client of the SDK ends the session at 1 MiB."""
    async with connect(misbehaving.make_entry(path="/sse")) as session:
        assert len(text_of(await call(session, "large", size=5 * 1024 * 1024))) == 5 * 1024 * 1024


@pytest.mark.parametrize(
    ("endpoint", "message"),
    [
        ("//127.0.0.2:9/messages", r"origin http://127\.0\.0\.1:\d+, but the server sent http://127\.0\.0\.2:9"),
        ("http://[::1/", "invalid endpoint"),
    ],
)
async def test_a_stream_with_an_endpoint_of_another_origin_is_rejected(misbehaving: OAuthServer, endpoint: str, message: str) -> None:
    """Such an endpoint would send keys to another host; the error names it."""
    misbehaving.control(endpoint=endpoint)

    with pytest.raises(ConnectFailed, match=message):
        async with connect(misbehaving.make_entry(path="/sse")):
            pass


async def test_the_end_of_the_stream_fails_the_calls_in_flight_at_once(misbehaving: OAuthServer) -> None:
    """No caller waits for a response that cannot come."""
    async with connect(misbehaving.make_entry(path="/sse")) as session:
        misbehaving.control(drop=True)

        assert "closed the event stream" in await asyncio.wait_for(session.wait_closed(), HANG_S)
        with pytest.raises(ConnectionLost):
            await call(session, "large", size=3)
