"""The egress guard: allowed targets of requests to users' addresses."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import socket
import threading
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import IPv4Address, IPv6Address

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.kernel.egress import AddressRefused, EgressGuard, HostNotResolved
from rookery.kernel.egress.guard import DnsResolver
from rookery.kernel.egress.transport import GuardedTransport
from rookery.kernel.errors import WrongSettings
from tests.conftest import eventually
from tests.deadlines import HANG_S


class FakeResolver:
    """A name service that returns the next of *answers* at each lookup, and the last one from then on."""

    def __init__(self, *answers: Sequence[str]) -> None:
        self.answers = list(answers)
        self.lookup_count = 0

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        self.lookup_count += 1
        return self.answers[min(self.lookup_count, len(self.answers)) - 1]


def guard(*answers: Sequence[str], allow: Sequence[str] = (), private: bool = False) -> EgressGuard:
    """Return a guard whose name service has *answers* for every name."""
    return EgressGuard(allow=allow, allow_private=private, resolve=FakeResolver(*answers))


NEVER = {
    "loopback": ["127.0.0.1", "127.255.0.1", "::1", "::ffff:127.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::"],
    "link-local": ["169.254.0.1", "fe80::1", "fe80::1%eth0", "fec0::1"],
    "metadata": ["169.254.169.254", "fd00:ec2::254", "100.100.100.200", "168.63.129.16", "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe"],
    "multicast": ["224.0.0.1", "239.255.255.250", "ff02::1"],
    "reserved": ["0.0.0.0", "240.0.0.1", "255.255.255.255", "192.0.2.1", "198.51.100.7", "2001:db8::1", "::", "64:ff9b:1::a9fe:a9fe"],
}
PRIVATE = ["10.0.0.1", "172.16.3.4", "172.31.255.255", "192.168.1.1", "100.64.0.1", "fc00::1", "fd12:3456::1", "::ffff:10.0.0.1"]
PUBLIC = ["93.184.216.34", "8.8.8.8", "172.32.0.1", "2606:4700::1111", "::ffff:8.8.8.8"]


@pytest.mark.parametrize("address", [address for group in NEVER.values() for address in group])
async def test_special_addresses_are_never_allowed(address: str) -> None:
    """This holds for all notations of these addresses, and for names that resolve to them."""
    for private in (False, True):
        with pytest.raises(AddressRefused):
            await guard([address], private=private).resolve_allowed("tools.example", 443)
        with pytest.raises(AddressRefused):
            await guard(private=private).resolve_allowed(address, 443)


@pytest.mark.parametrize("address", PRIVATE)
async def test_private_networks_must_be_allowed_by_the_operator(address: str) -> None:
    """ROOKERY_EGRESS_PRIVATE allows private ranges."""
    with pytest.raises(AddressRefused, match="private"):
        await guard([address]).resolve_allowed("tools.example", 443)

    assert await guard([address], private=True).resolve_allowed("tools.example", 443)


@pytest.mark.parametrize("address", PUBLIC)
async def test_public_addresses_are_allowed(address: str) -> None:
    """All other addresses are allowed."""
    assert len(await guard([address]).resolve_allowed("tools.example", 443)) == 1


async def test_one_forbidden_address_rejects_the_name() -> None:
    """Every resolved address must be allowed, because any of them may be used."""
    with pytest.raises(AddressRefused):
        await guard(["93.184.216.34", "10.0.0.1"]).resolve_allowed("tools.example", 443)


async def test_the_error_does_not_contain_the_resolved_address() -> None:
    """Users without access to an internal network must not learn its addresses."""
    with pytest.raises(AddressRefused) as error:
        await guard(["10.11.12.13"]).resolve_allowed("db.corp.example", 443)

    assert "10.11.12.13" not in error.value.message


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]", "fe80::1%eth0", "169.254.169.254", "10.0.0.1", "::ffff:10.0.0.1", "localhost"])
async def test_the_error_contains_the_line_that_allows_the_address(host: str) -> None:
    """The operator writes the line into rookery.toml as it is; a name of this host needs both families."""
    with pytest.raises(AddressRefused) as error:
        await EgressGuard().resolve_allowed(host, 80)

    line = re.search(r"egress_allow = (\[.*?\]) in rookery.toml", error.value.message)
    assert line is not None, error.value.message
    assert "docs/how-to/manage-tool-servers.md#allowed-addresses" in error.value.message
    assert await EgressGuard(allow=json.loads(line[1])).resolve_allowed(host, 80)


async def test_the_error_for_a_private_address_names_both_settings() -> None:
    """`egress_private` allows all private networks, `egress_allow` one address."""
    with pytest.raises(AddressRefused, match=r"by egress_private = true or egress_allow with its address in rookery.toml, and a restart"):
        await guard(["10.0.0.1"]).resolve_allowed("db.corp.example", 443)


@pytest.mark.parametrize("host", ["2130706433", "0x7f.1", "127.1", "0177.0.0.1", "localhost"])
async def test_other_notations_of_this_host_are_rejected(host: str) -> None:
    """The result of the system's own name service counts."""
    with pytest.raises(AddressRefused):
        await EgressGuard().resolve_allowed(host, 80)


@given(st.integers(0, 2**32 - 1).map(IPv4Address) | st.integers(0, 2**128 - 1).map(IPv6Address))
async def test_only_global_addresses_and_ranges_of_the_operator_are_allowed(address: IPv4Address | IPv6Address) -> None:
    """ROOKERY_EGRESS_ALLOW allows further ranges."""
    try:
        await guard([str(address)]).resolve_allowed("tools.example", 443)
    except AddressRefused:
        assert await guard([str(address)], allow=[f"{address}/{address.max_prefixlen - 3}"]).resolve_allowed("tools.example", 443)
    else:
        assert address.is_global
        assert not address.is_multicast


@pytest.mark.parametrize(
    "url", ["ftp://tools.example/", "tools.example", "http://", "http://[::1", "file:///etc/passwd", "http://a:99999/"]
)
async def test_a_url_that_is_not_http_is_rejected(url: str) -> None:
    """Only http and https are allowed."""
    with pytest.raises(AddressRefused):
        await guard(["8.8.8.8"]).require_allowed_url(url)


async def test_a_name_without_addresses_is_rejected() -> None:
    """A name that cannot be checked is not allowed."""
    with pytest.raises(AddressRefused):
        await guard([]).resolve_allowed("tools.example", 443)


async def test_unanswered_lookups_do_not_block_other_threads() -> None:
    """Users choose the name servers of their hosts, so that lookups may be slow."""
    released = threading.Event()

    def block_lookup(host: str, port: int) -> Sequence[str]:
        released.wait(60)
        raise OSError(host, port)

    egress = EgressGuard(resolve=DnsResolver(block_lookup).resolve)
    lookups = [asyncio.create_task(egress.resolve_allowed(f"{number}.example", 443)) for number in range(64)]
    try:
        await asyncio.sleep(0)
        assert await asyncio.wait_for(asyncio.to_thread(threading.active_count), HANG_S) > 1
        assert not any(task.done() for task in lookups)
    finally:
        released.set()
        errors = await asyncio.gather(*lookups, return_exceptions=True)
    assert {type(error) for error in errors} == {HostNotResolved}


async def test_slow_names_have_their_own_queue_and_one_lookup_each() -> None:
    """Endpoints with slow names must not delay deliveries to others."""
    rounds, hosts = [threading.Event(), threading.Event()], list[str]()

    def resolve_slowly(host: str, port: int) -> Sequence[str]:
        if host == "good.example":
            return ["93.184.215.14"]
        hosts.append(host)
        rounds[hosts.count(host) - 1].wait(HANG_S)
        raise OSError(host, port)

    resolver = DnsResolver(resolve_slowly, slow_threshold_s=0)

    async def try_resolve(host: str) -> None:
        with contextlib.suppress(TimeoutError, OSError):
            async with asyncio.timeout(0.05):
                await resolver.resolve(host, 443)

    hanging_hosts = [f"{number}.example" for number in range(32)]
    try:
        await asyncio.gather(*map(try_resolve, hanging_hosts * 3))
        await eventually(lambda: sorted(hosts) == sorted(hanging_hosts))
        rounds[0].set()
        await eventually(lambda: not resolver.pending_count)
        await asyncio.gather(*map(try_resolve, hanging_hosts))
        assert await asyncio.wait_for(resolver.resolve("good.example", 443), HANG_S) == ["93.184.215.14"]
        assert len(hosts) < 2 * len(hanging_hosts)
    finally:
        for event in rounds:
            event.set()


def test_an_invalid_range_is_rejected() -> None:
    """The error is one clear line with the setting."""
    with pytest.raises(WrongSettings, match="ROOKERY_EGRESS_ALLOW"):
        EgressGuard(allow=["10.0.0.0/99"])


class _EchoHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""

    def do_GET(self) -> None:
        body = self.headers["host"].encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def port() -> Iterator[int]:
    """Yield the port of a server on 127.0.0.1 that returns the Host header."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _EchoHandler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server.server_address[1]
    server.shutdown()
    server.server_close()
    thread.join(10)


async def test_the_connection_uses_the_checked_address(port: int) -> None:
    """The name is resolved once for each connection, so that a second lookup cannot change the address."""
    names = FakeResolver(["127.0.0.1"], ["10.0.0.1"])
    transport = GuardedTransport(EgressGuard(allow=["127.0.0.1"], resolve=names))

    async with httpx2.AsyncClient(transport=transport) as client:
        first = await client.get(f"http://tools.example:{port}/")
        second = await client.get(f"http://tools.example:{port}/")

        assert (first.text, second.text, names.lookup_count) == (f"tools.example:{port}", f"tools.example:{port}", 1)
        with pytest.raises(httpx2.ConnectError, match="private"):
            await client.get(f"http://tools.example:{port + 1}/")


async def test_no_connection_is_opened_to_a_rejected_address() -> None:
    """The listening socket gets no connection."""
    with socket.socket() as listening_socket:
        listening_socket.bind(("127.0.0.1", 0))
        listening_socket.listen()
        listening_socket.settimeout(0.2)
        async with httpx2.AsyncClient(transport=GuardedTransport(guard(["127.0.0.1"]))) as client:
            with pytest.raises(httpx2.ConnectError, match="loopback"):
                await client.get(f"http://tools.example:{listening_socket.getsockname()[1]}/")

        with pytest.raises(TimeoutError):
            listening_socket.accept()


async def test_the_next_address_is_tried_if_the_first_refuses(port: int) -> None:
    """A name may have several addresses, and some may be down."""
    guard_with_two_addresses = guard(["127.0.0.9", "127.0.0.1"], allow=["127.0.0.0/8"])

    async with httpx2.AsyncClient(transport=GuardedTransport(guard_with_two_addresses)) as client:
        response = await client.get(f"http://tools.example:{port}/")

    assert response.status_code == 200


async def test_a_proxy_of_the_environment_is_ignored(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy would resolve the name again and could connect to any address."""
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")

    async with httpx2.AsyncClient(transport=GuardedTransport(guard(["127.0.0.1"], allow=["127.0.0.1"]))) as client:
        response = await client.get(f"http://tools.example:{port}/")

    assert response.status_code == 200
