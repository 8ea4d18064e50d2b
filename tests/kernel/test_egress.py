"""The egress guard: allowed targets of requests to users' addresses (D-82)."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import IPv4Address, IPv6Address

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.kernel.egress import AddressRefused, EgressGuard
from rookery.kernel.egress.dns import DnsResolver
from rookery.kernel.egress.transport import GuardedTransport
from rookery.kernel.errors import WrongSettings
from tests.conftest import eventually


class Names:
    """A name service of the test's own; each question is answered by the next of *answers*, the last one for ever."""

    def __init__(self, *answers: Sequence[str]) -> None:
        self.answers = list(answers)
        self.asked = 0

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        self.asked += 1
        return self.answers[min(self.asked, len(self.answers)) - 1]


def guard(*answers: Sequence[str], allow: Sequence[str] = (), private: bool = False) -> EgressGuard:
    """Make a guard by whose name service every name has *answers*."""
    return EgressGuard(allow=allow, allow_private=private, resolve=Names(*answers))


NEVER = {
    "loopback": ["127.0.0.1", "127.255.0.1", "::1", "::ffff:127.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::"],
    "link-local": ["169.254.0.1", "fe80::1", "fe80::1%eth0", "fec0::1"],
    "metadata": ["169.254.169.254", "fd00:ec2::254", "100.100.100.200", "168.63.129.16", "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe"],
    "multicast": ["224.0.0.1", "239.255.255.250", "ff02::1"],
    "reserved": ["0.0.0.0", "240.0.0.1", "255.255.255.255", "192.0.2.1", "198.51.100.7", "2001:db8::1", "::", "64:ff9b:1::a9fe:a9fe"],
}
PRIVATE = ["10.0.0.1", "172.16.3.4", "172.31.255.255", "192.168.1.1", "100.64.0.1", "fc00::1", "fd12:3456::1", "::ffff:10.0.0.1"]
PUBLIC = ["93.184.216.34", "8.8.8.8", "172.32.0.1", "2606:4700::1111", "::ffff:8.8.8.8"]


@pytest.mark.parametrize("address", [each for group in NEVER.values() for each in group])
async def test_an_address_that_is_nobody_elses_is_never_connected_to(address: str) -> None:
    """D-82: loopback, link-local, metadata, multicast, reserved: never, in whatever clothes, by a name or as it is."""
    for private in (False, True):
        with pytest.raises(AddressRefused):
            await guard([address], private=private).resolve_allowed("tools.example", 443)
        with pytest.raises(AddressRefused):
            await guard(private=private).resolve_allowed(address, 443)


@pytest.mark.parametrize("address", PRIVATE)
async def test_private_networks_are_for_those_whose_operator_says_so(address: str) -> None:
    """D-82: private ranges by ROOKERY_EGRESS_PRIVATE alone."""
    with pytest.raises(AddressRefused, match="private"):
        await guard([address]).resolve_allowed("tools.example", 443)

    assert await guard([address], private=True).resolve_allowed("tools.example", 443)


@pytest.mark.parametrize("address", PUBLIC)
async def test_a_public_address_is_connected_to(address: str) -> None:
    """D-82: the rest of the world."""
    assert len(await guard([address]).resolve_allowed("tools.example", 443)) == 1


async def test_one_bad_address_among_good_ones_refuses_the_name() -> None:
    """D-82: every resolved address must be allowed, or which one is taken is a matter of luck."""
    with pytest.raises(AddressRefused):
        await guard(["93.184.216.34", "10.0.0.1"]).resolve_allowed("tools.example", 443)


async def test_a_refusal_does_not_tell_what_a_name_stands_for() -> None:
    """D-82: who may not reach an inner network is not told its addresses either."""
    with pytest.raises(AddressRefused) as refused:
        await guard(["10.11.12.13"]).resolve_allowed("db.corp.example", 443)

    assert "10.11.12.13" not in refused.value.message


@pytest.mark.parametrize("host", ["2130706433", "0x7f.1", "127.1", "0177.0.0.1", "localhost"])
async def test_other_spellings_of_this_host_do_not_get_past(host: str) -> None:
    """D-82: what counts is what the name service makes of it; this one is the machine's own."""
    with pytest.raises(AddressRefused):
        await EgressGuard().resolve_allowed(host, 80)


@given(st.integers(0, 2**32 - 1).map(IPv4Address) | st.integers(0, 2**128 - 1).map(IPv6Address))
async def test_what_is_not_everybodys_is_refused_and_a_range_of_the_operator_lets_it_in(address: IPv4Address | IPv6Address) -> None:
    """D-82: nothing but global addresses, unless ROOKERY_EGRESS_ALLOW has them."""
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
async def test_what_is_no_address_of_the_web_is_refused(url: str) -> None:
    """D-82: http and https alone."""
    with pytest.raises(AddressRefused):
        await guard(["8.8.8.8"]).require_allowed_url(url)


async def test_a_name_without_addresses_is_refused() -> None:
    """D-82: what cannot be judged is not allowed."""
    with pytest.raises(AddressRefused):
        await guard([]).resolve_allowed("tools.example", 443)


async def test_names_that_are_never_answered_hold_nobody_else_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """D-82: users choose the name servers of their hosts; slow lookups must not block other threads' work."""
    answered = threading.Event()

    def silent(host: str, port: int, **_: object) -> list[object]:
        answered.wait(60)
        raise OSError(host, port)

    monkeypatch.setattr(socket, "getaddrinfo", silent)
    egress = EgressGuard()
    asking = [asyncio.create_task(egress.resolve_allowed(f"{number}.example", 443)) for number in range(64)]
    try:
        await asyncio.sleep(0)
        assert await asyncio.wait_for(asyncio.to_thread(threading.active_count), 4) > 1
        assert not any(task.done() for task in asking)
    finally:
        answered.set()
        refused = await asyncio.gather(*asking, return_exceptions=True)
    assert {type(each) for each in refused} == {AddressRefused}


async def test_names_that_were_not_answered_wait_behind_their_own_kind_and_are_asked_for_once() -> None:
    """D-82, issue 7: endpoints at names that hang, tried every minute, delay no delivery to another."""
    rounds, asked = [threading.Event(), threading.Event()], list[str]()

    def ask(host: str, port: int) -> Sequence[str]:
        if host == "good.example":
            return ["93.184.215.14"]
        asked.append(host)
        rounds[asked.count(host) - 1].wait(30)
        raise OSError(host, port)

    names = DnsResolver(ask, slow_threshold_s=0)

    async def tried(host: str) -> None:
        with contextlib.suppress(TimeoutError, OSError):
            async with asyncio.timeout(0.05):
                await names.resolve(host, 443)

    hanging = [f"{number}.example" for number in range(32)]
    try:
        await asyncio.gather(*map(tried, hanging * 3))
        assert sorted(asked) == sorted(hanging)
        rounds[0].set()
        await eventually(lambda: not names.pending_count)
        await asyncio.gather(*map(tried, hanging))
        assert await asyncio.wait_for(names.resolve("good.example", 443), 10) == ["93.184.215.14"]
        assert len(asked) < 2 * len(hanging)
    finally:
        for each in rounds:
            each.set()


def test_a_wrong_range_refuses_to_start() -> None:
    """D-02: in one clear line."""
    with pytest.raises(WrongSettings, match="ROOKERY_EGRESS_ALLOW"):
        EgressGuard(allow=["10.0.0.0/99"])


class _EchoHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        body = self.headers["host"].encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def port() -> Iterator[int]:
    """The port of a server on 127.0.0.1 that says by which name it was asked."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _EchoHandler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server.server_address[1]
    server.shutdown()
    server.server_close()
    thread.join(10)


async def test_the_connection_goes_to_the_address_that_was_judged(port: int) -> None:
    """D-82: the name's meaning is asked for once a connection; a name that no other service knows is reached all the same."""
    names = Names(["127.0.0.1"], ["10.0.0.1"])
    transport = GuardedTransport(EgressGuard(allow=["127.0.0.1"], resolve=names))

    async with httpx2.AsyncClient(transport=transport) as client:
        first = await client.get(f"http://tools.example:{port}/")
        kept = await client.get(f"http://tools.example:{port}/")

        assert (first.text, kept.text, names.asked) == (f"tools.example:{port}", f"tools.example:{port}", 1)
        with pytest.raises(httpx2.ConnectError, match="private"):
            await client.get(f"http://tools.example:{port + 1}/")


async def test_a_refused_address_is_not_even_knocked_at() -> None:
    """D-82: at the socket: nothing is sent there, no connection made."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        listening.settimeout(0.2)
        async with httpx2.AsyncClient(transport=GuardedTransport(guard(["127.0.0.1"]))) as client:
            with pytest.raises(httpx2.ConnectError, match="loopback"):
                await client.get(f"http://tools.example:{listening.getsockname()[1]}/")

        with pytest.raises(TimeoutError):
            listening.accept()


async def test_the_next_address_is_tried_when_nobody_answers_at_the_first(port: int) -> None:
    """D-82: a name may have several addresses, not all of them up."""
    several = guard(["127.0.0.9", "127.0.0.1"], allow=["127.0.0.0/8"])

    async with httpx2.AsyncClient(transport=GuardedTransport(several)) as client:
        answer = await client.get(f"http://tools.example:{port}/")

    assert answer.status_code == 200


async def test_a_proxy_of_the_environment_is_passed_over(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """D-82: a proxy would resolve the name after us, and connect wherever it likes."""
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")

    async with httpx2.AsyncClient(transport=GuardedTransport(guard(["127.0.0.1"], allow=["127.0.0.1"]))) as client:
        answer = await client.get(f"http://tools.example:{port}/")

    assert answer.status_code == 200
