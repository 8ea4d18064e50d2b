"""More clients than the connection limit, on real sockets: evicted, kept and rejected connections (D-16)."""

from __future__ import annotations

import json
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from rookery.kernel.http import connection, tls
from tests.certificates import write_certificate
from tests.conftest import eventually
from tests.kernel.toy_server import GET, LARGE_BODY_BYTES, connect, open_busy_connections, run_toy_server


@pytest.fixture
async def connections() -> AsyncIterator[AsyncExitStack]:
    """An exit stack that closes the test's connections."""
    async with AsyncExitStack() as stack:
        yield stack


async def test_who_waits_longest_goes_when_one_more_comes(connections: AsyncExitStack) -> None:
    """D-16: strangers who never asked anything before those who did, and the longest waiting first."""
    async with run_toy_server(4) as toy:
        asked = await connect(connections, toy)
        assert await asked.get() == b"ok"
        silent = await connect(connections, toy)
        half = await connect(connections, toy, b"GET / HT")
        [working] = await open_busy_connections(connections, toy, 1)

        assert await (await connect(connections, toy)).get() == b"ok"
        assert await silent.read_to_end() == b""
        assert await (await connect(connections, toy)).get() == b"ok"
        assert await half.read_to_end() == b""
        assert await asked.get() == b"ok"
        await open_busy_connections(connections, toy, 2)
        assert (toy.limiter.evictions.closed, len(toy.limiter)) == (4, 4)
        toy.released.set()
        assert (await working.read_response())[1] == b"ok"


async def test_a_full_server_says_so_to_newcomers_and_to_nobody_in_work(connections: AsyncExitStack) -> None:
    """D-10, D-16: 503 with a code of its own and Retry-After; what is in work is answered."""
    async with run_toy_server(3) as toy:
        working = await open_busy_connections(connections, toy, 3)
        newcomer = await connect(connections, toy, GET % b"/")

        head, content = await newcomer.read_response()

        assert head.startswith(b"HTTP/1.1 503 ")
        assert b"retry-after: 1\r\n" in head
        assert json.loads(content)["error"] == "server_full"
        assert await newcomer.read_to_end() == b""
        toy.released.set()
        assert [(await each.read_response())[1] for each in working] == [b"ok"] * 3
        assert await (await connect(connections, toy)).get() == b"ok"


async def test_who_is_told_that_it_is_full_holds_nothing(connections: AsyncExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
    """D-16: the refusals are bounded too, in number and in time; beyond that, newcomers are hung up on."""
    monkeypatch.setattr(connection, "_MAX_REJECTED_CONNECTIONS", 2)
    monkeypatch.setattr(connection, "_LINGER_TIMEOUT_S", 0.5)
    async with run_toy_server(1) as toy:
        await open_busy_connections(connections, toy, 1)
        stubborn = [await connect(connections, toy) for _ in range(3)]

        assert [await each.reader.read(8) for each in stubborn] == [b"HTTP/1.1", b"HTTP/1.1", b""]

        async def is_told() -> bool:
            return (await (await connect(connections, toy)).read_to_end()).startswith(b"HTTP/1.1 503 ")

        await eventually(is_told)


async def test_one_address_does_not_get_all_connections(connections: AsyncExitStack) -> None:
    """D-16: one client has half of the slots; beyond that its own connections are evicted, or new ones rejected."""
    async with run_toy_server(8, owner=lambda address: None if address == "127.0.0.1" else address) as toy:
        silent = [await connect(connections, toy, source="127.0.0.2") for _ in range(4)]
        other = await connect(connections, toy, source="127.0.0.3")
        await open_busy_connections(connections, toy, 4, source="127.0.0.2")
        refused = await connect(connections, toy, source="127.0.0.2")

        assert [await each.read_to_end() for each in silent] == [b""] * 4
        assert (await refused.read_to_end()).startswith(b"HTTP/1.1 503 ")
        assert await other.get() == b"ok"
        await open_busy_connections(connections, toy, 3)  # of an address that speaks for many
        assert len(toy.limiter) == 8


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A key and its certificate for 127.0.0.1, in one file."""
    return write_certificate(tmp_path_factory.mktemp("tls") / "both.pem")


async def test_silent_connections_keep_nobody_from_a_tls_server(certificate: Path, connections: AsyncExitStack) -> None:
    """D-16: a connection counts before its handshake, and one that is silent in it gives its place to others."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)
    trusting = ssl.create_default_context(cafile=certificate)
    async with run_toy_server(10, tls_context=context) as toy:
        silent = [await connect(connections, toy, b"\x16\x03\x01\x02" * (number % 2)) for number in range(15)]
        await eventually(lambda: len(toy.limiter) == 10)
        client = await connect(connections, toy, tls_context=trusting)

        assert await client.get() == b"ok"
        assert await client.get(b"/large") == b"x" * LARGE_BODY_BYTES
        assert len(toy.limiter) == 10
        assert [await each.read_to_end() for each in silent[:6]] == [b""] * 6


async def test_a_tls_handshake_has_an_end(certificate: Path, connections: AsyncExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
    """D-16: stalled, or no TLS at all; the place is free again."""
    monkeypatch.setattr(tls, "HANDSHAKE_TIMEOUT_S", 0.3)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)
    async with run_toy_server(10, tls_context=context) as toy:
        sent = [b"", b"\x16\x03\x01\x02\x00\x01", GET % b"/"]
        stalled = [await connect(connections, toy, each) for each in sent]
        for each in stalled:
            await each.read_to_end()

        await eventually(lambda: len(toy.limiter) == 0)
