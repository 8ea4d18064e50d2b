"""The settings of deploy/ for each proxy, used with the real program in front of a real server."""

from __future__ import annotations

import json
import ssl
import sys
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar, cast
from urllib.parse import quote

import httpx2
import pytest

from tests.deadlines import HANG_S
from tests.deploy.files import DEPLOY, ROOT
from tests.deploy.proxies import IDLE_LIMIT_S, PREFIX, PREFIX_LINES, PREPARE, run_proxy
from tests.processes import Server, run_server
from tests.tools.gateway.clients import LATER
from tests.tools.makers import SERVERS, make_odd_entry

CLIENT = "127.0.0.2"
"""The address from which requests come. The proxies connect to Rookery from 127.0.0.1."""
CLAIMED = "203.0.113.9"
"""The address that the client claims in its headers."""
EVENTS = {"Accept": "text/event-stream"}
MCP = {"Accept": "application/json, text/event-stream"}
CALL = "/api/v1/mcp/tools/call"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Proxied:
    """A server behind a proxy, and a client of the proxy."""

    proxy: str
    server: Server
    client: httpx2.Client

    @property
    def tells_of_clients(self) -> bool:
        """True if it closes the connection of a request whose client has left; Apache does so when it next writes to the client."""
        return self.proxy != "apache2"

    def open_session(self) -> str:
        """Return the id of a new agent session."""
        response = self.client.post("/api/agent/sessions", json={"agent_type": "tester", "goal": "Stream"})
        return cast("str", response.json()["session"]["id"])

    def wait_logged(self, text: str, offset: int) -> dict[str, object]:
        """Return the line of the access log that contains *text*; it is written when a response has ended."""

        def find() -> dict[str, object] | None:
            lines = self.server.log()[offset:].split("\n")[:-1]
            return next((json.loads(line) for line in lines if text in line), None)

        return wait_for(find)


def wait_for(look: Callable[[], T | None]) -> T:
    """Return the first true result of *look*."""
    deadline = time.monotonic() + HANG_S
    while time.monotonic() < deadline:
        if result := look():
            return result
        time.sleep(0.02)
    pytest.fail("nothing came")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with tools that wait, and resources of any URI."""
    with _run_rookery(tmp_path_factory.mktemp("rookery"), "https://127.0.0.1") as running:
        yield running


@contextmanager
def _run_rookery(folder: Path, base_url: str) -> Generator[Server]:
    longest = {"timeout_s": 600}
    talker, wiki = (
        {"command": sys.executable, "args": [str(SERVERS / name), *words]} for name, *words in (["talker.py"], ["linking.py", "wiki"])
    )
    servers = {"talker": talker | longest, "wiki": wiki, "odd": make_odd_entry(**longest)}
    (folder / "servers.json").write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")
    with run_server(folder, access_log="true", log_format="json", trusted_proxies="127.0.0.1", base_url=base_url) as running:
        for name in servers:
            wait_for(lambda name=name: running.client.get(f"/api/v1/mcp/servers/{name}/tools").json()["count"])
        yield running


@pytest.fixture(scope="module", params=PREPARE)
def proxied(request: pytest.FixtureRequest, server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxied]:
    """The server behind each proxy with its file of deploy/."""
    proxy = cast("str", request.param)
    with _run_proxied(proxy, server, tmp_path_factory.mktemp(proxy)) as running:
        yield running


@contextmanager
def _run_proxied(proxy: str, server: Server, folder: Path, prefix: str = "") -> Generator[Proxied]:
    upstream = cast("int", httpx2.URL(server.url).port)
    with run_proxy(proxy, folder / "site", upstream, prefix=prefix) as site:
        context = ssl.create_default_context(cafile=site.certificate)
        transport = httpx2.HTTPTransport(verify=context, local_address=CLIENT)
        headers = {"Authorization": f"Bearer {server.keys['api_key']}"}
        base_url = f"https://127.0.0.1:{site.port}{prefix}"
        with httpx2.Client(transport=transport, base_url=base_url, headers=headers, timeout=HANG_S) as client:
            yield Proxied(proxy, server, client)


def test_the_api_is_there_and_metrics_are_not(proxied: Proxied) -> None:
    """TLS, transport security, and no metrics for the outside."""
    ready = proxied.client.get("/readyz")

    assert (ready.status_code, ready.json()["status"]) == (200, "ok")
    assert ready.headers["Strict-Transport-Security"].startswith("max-age=31536000")
    assert proxied.client.get("/metrics").status_code in {404, 503}


def test_what_a_client_claims_of_its_address_is_not_believed(proxied: Proxied) -> None:
    """A client's own header counts neither alone nor beside the others."""
    for header in ("X-Forwarded-For", "X-Real-IP", "Forwarded"):
        offset = len(proxied.server.log())
        value = f"for={CLAIMED}" if header == "Forwarded" else CLAIMED
        proxied.client.get("/v1/brain/tags", headers={header: value})
        assert proxied.wait_logged("/v1/brain/tags", offset)["address"] == CLIENT, header


def test_an_event_of_a_session_arrives_at_once(proxied: Proxied) -> None:
    """The stream is open while the event is read, so a proxy that collects would never pass it on."""
    session = proxied.open_session()
    with proxied.client.stream("GET", f"/api/agent/sessions/{session}/stream") as stream:
        proxied.client.post(f"/api/agent/sessions/{session}/events", json={"type": "note", "message": "at once"})
        assert any("at once" in line for line in stream.iter_lines())


def test_the_progress_of_a_tool_arrives_at_once(proxied: Proxied, tmp_path: Path) -> None:
    """The tool ends only after its progress has been read."""
    gate = tmp_path / "gate"
    arguments = {"gate": str(gate), "mark": str(tmp_path / "mark")}
    with proxied.client.stream("POST", CALL, json=_call("talker", "until", arguments), headers=EVENTS) as stream:
        lines = stream.iter_lines()
        assert any(line == "event: progress" for line in lines)
        gate.touch()
        assert any(line == "event: result" for line in lines)


def test_the_stream_of_an_mcp_session_arrives_at_once(proxied: Proxied) -> None:
    """GET /mcp."""
    with proxied.client.stream("GET", "/mcp", headers=EVENTS | _open_mcp_session(proxied)) as stream:
        assert next(line for line in stream.iter_lines() if line)


def _open_mcp_session(proxied: Proxied) -> dict[str, str]:
    """Open a session of the older era, and return the headers of its requests."""
    params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "tester", "version": "1"}}
    opened = proxied.client.post("/mcp", json={"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}, headers=MCP)
    headers = {"Mcp-Session-Id": opened.headers["Mcp-Session-Id"], "MCP-Protocol-Version": "2025-11-25"}
    proxied.client.post("/mcp", json={"jsonrpc": "2.0", "method": "notifications/initialized"}, headers=MCP | headers)
    return headers


def test_a_client_that_leaves_a_streamed_call_cancels_the_tool(proxied: Proxied, tmp_path: Path) -> None:
    """With each proxy, also if it notices the client only when it writes."""
    arguments = {"gate": str(tmp_path / "gate"), "mark": str(tmp_path / "mark")}
    with proxied.client.stream("POST", CALL, json=_call("talker", "until", arguments), headers=EVENTS) as stream:
        assert any(line == "event: progress" for line in stream.iter_lines())
    wait_for((tmp_path / "mark").exists)


def test_a_client_that_leaves_a_call_cancels_the_tool(proxied: Proxied, tmp_path: Path) -> None:
    """Without a stream, Apache has nothing to write by which it could notice."""
    if not proxied.tells_of_clients:
        pytest.skip("Apache does not watch the client of a request that it waits for; the guide says so")
    mark = tmp_path / "mark"
    call = _call("odd", "slow", {"seconds": 500, "mark": str(mark)})
    try:
        proxied.client.post(CALL, json=call, timeout=httpx2.Timeout(HANG_S, read=1))
    except httpx2.ReadTimeout:
        wait_for(mark.exists)


def test_an_mcp_client_that_leaves_a_call_cancels_the_tool(proxied: Proxied, tmp_path: Path) -> None:
    """With each proxy, because a long call over MCP becomes a stream. Earlier protocols do not take it as a cancellation."""
    mark = tmp_path / "mark"
    capabilities = dict[str, object]()
    meta = {"io.modelcontextprotocol/protocolVersion": LATER, "io.modelcontextprotocol/clientCapabilities": capabilities}
    params = {"name": "odd__slow", "arguments": {"seconds": 500, "mark": str(mark)}, "_meta": meta}
    headers = {**MCP, "MCP-Protocol-Version": LATER, "Mcp-Method": "tools/call", "Mcp-Name": "odd__slow"}
    body = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params}
    with pytest.raises(httpx2.ReadTimeout):
        proxied.client.post("/mcp", json=body, headers=headers, timeout=httpx2.Timeout(HANG_S, read=1))

    wait_for(mark.exists)


def test_a_client_that_leaves_a_stream_frees_its_place(proxied: Proxied) -> None:
    """The stream of a session and that of MCP end in the server, which logs them then."""
    session = proxied.open_session()
    offset = len(proxied.server.log())
    path = f"/api/agent/sessions/{session}/stream"
    with proxied.client.stream("GET", path) as stream:
        next(stream.iter_lines())
    proxied.wait_logged(path, offset)


def test_a_resource_is_the_one_that_was_named(proxied: Proxied) -> None:
    """%2F and // in a URI arrive as they were sent."""
    for uri in ("wiki://memo/a//b", "wiki://memo/a%2Fb", "wiki://memo/a b?c#d"):
        own = uri.replace("wiki://memo/", "memo://")
        answer = proxied.client.get(f"/api/v1/mcp/resources/{quote(uri, safe='')}").json()
        assert (answer["uri"], answer["content"]["contents"][0]["text"]) == (uri, f"wiki read {own}"), uri
    raw = proxied.client.get("/api/v1/mcp/resources/wiki://memo/a//b").json()
    assert raw["uri"] == "wiki://memo/a//b"


@pytest.mark.parametrize("size", [11_000_000, 18_000_000, 100_000_000])
def test_a_body_that_is_too_large_gets_the_error_of_the_api(proxied: Proxied, size: int) -> None:
    """JSON, not a page of the proxy."""
    response = proxied.client.post("/v1/brain/remember/batch", content=b" " * size, headers={"Content-Type": "application/json"})

    assert response.status_code == 413, response.text
    assert response.json()["error"] == "payload_too_large"


@pytest.mark.parametrize(("size", "status"), [(9_000, 200), (50_000, 200), (70_000, 431)])
def test_a_long_header_reaches_the_server(proxied: Proxied, size: int, status: int) -> None:
    """A token of 9 kB is accepted, and Rookery itself refuses a head of more than 64 KiB."""
    response = proxied.client.get("/v1/brain/tags", headers={"X-Long": "x" * size})

    assert response.status_code == status
    assert status == 200 or response.json()["error"] == "headers_too_large"


def test_an_idle_stream_outlives_the_time_limit_of_the_proxy(proxied: Proxied) -> None:
    """Comments come more often than the limit, which is shortened here."""
    session = proxied.open_session()
    with proxied.client.stream("GET", f"/api/agent/sessions/{session}/stream") as stream:
        lines = stream.iter_lines()
        opened_at = time.monotonic()
        while time.monotonic() < opened_at + IDLE_LIMIT_S + 1:
            next(lines)
        proxied.client.post(f"/api/agent/sessions/{session}/events", json={"type": "note", "message": "still there"})
        assert any("still there" in line for line in lines)


@pytest.fixture(scope="module")
def server_below_a_path(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server whose address has a path."""
    with _run_rookery(tmp_path_factory.mktemp("below"), f"https://127.0.0.1{PREFIX}") as running:
        running.client.get("/docs/openapi.json")  # the first one takes longer than the shortened limits of the proxies, if others work too
        yield running


@pytest.mark.parametrize("proxy", PREPARE)
def test_a_server_below_a_path_works(proxy: str, server_below_a_path: Server, tmp_path: Path) -> None:
    """With the lines of the guide, which remove the path and leave the rest as it came."""
    with _run_proxied(proxy, server_below_a_path, tmp_path, PREFIX) as proxied:
        document = proxied.client.get("/docs/openapi.json")
        assert document.status_code == 200, document.text
        encoded = [quote(uri, safe="") for uri in ("wiki://memo/a//b", "wiki://memo/a%2Fb?c")]
        uris = [proxied.client.get(f"/api/v1/mcp/resources/{uri}").json()["uri"] for uri in encoded]
        raw = proxied.client.get("/api/v1/mcp/resources/wiki://memo/a//b")

    assert document.json()["servers"][0]["url"] == f"https://127.0.0.1{PREFIX}"
    assert uris == ["wiki://memo/a//b", "wiki://memo/a%2Fb?c"]
    if proxy == "traefik":  # it refuses what its own cleaning would change
        assert raw.status_code == 400
    else:
        assert raw.json()["uri"] == "wiki://memo/a//b"


def test_the_guide_has_the_lines_for_a_path() -> None:
    """The test above uses the files that readers find; each line that is replaced is in a file."""
    guide = (ROOT / "docs" / "how-to" / "behind-a-proxy.md").read_text(encoding="utf-8")
    files = "".join(path.read_text(encoding="utf-8") for path in DEPLOY.iterdir() if path.is_file())

    for lines in PREFIX_LINES.values():
        for line, replacement in lines:
            assert line in files
            for part in replacement.replace(line, "").split("\n"):
                assert part.strip() in guide, part


def _call(server: str, tool: str, arguments: object) -> dict[str, object]:
    return {"server": server, "tool": tool, "arguments": arguments}
