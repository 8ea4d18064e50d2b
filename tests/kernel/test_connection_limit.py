"""More clients than the connection limit, on real sockets: evicted, kept and rejected connections."""

from __future__ import annotations

import json
import ssl
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from rookery.kernel.http.connection_limit import ConnectionLimits
from tests.certificates import write_certificate
from tests.conftest import eventually
from tests.kernel.toy_server import GET, LARGE_BODY_BYTES, connect, open_busy_connections, run_toy_server


async def test_the_longest_idle_connection_is_evicted_for_a_new_one(connections: AsyncExitStack) -> None:
    """Connections without any request are evicted before others, the longest idle first."""
    async with run_toy_server(ConnectionLimits(max_connections=4)) as toy:
        active = await connect(connections, toy)
        assert await active.get() == b"ok"
        silent = await connect(connections, toy)
        partial = await connect(connections, toy, b"GET / HT")
        [busy] = await open_busy_connections(connections, toy, 1)

        assert await (await connect(connections, toy)).get() == b"ok"
        assert await silent.read_to_end() == b""
        assert await (await connect(connections, toy)).get() == b"ok"
        assert await partial.read_to_end() == b""
        assert await active.get() == b"ok"
        await open_busy_connections(connections, toy, 2)
        assert (toy.limiter.evictions.closed, len(toy.limiter)) == (4, 4)
        toy.released.set()
        assert (await busy.read_response())[1] == b"ok"


async def test_a_full_server_rejects_new_connections_and_serves_busy_ones(connections: AsyncExitStack) -> None:
    """The response is 503 server_full with Retry-After."""
    async with run_toy_server(ConnectionLimits(max_connections=3)) as toy:
        busy = await open_busy_connections(connections, toy, 3)
        newcomer = await connect(connections, toy, GET % b"/")

        head, content = await newcomer.read_response()

        assert head.startswith(b"HTTP/1.1 503 ")
        assert b"retry-after: 1\r\n" in head
        assert json.loads(content)["error"] == "server_full"
        assert await newcomer.read_to_end() == b""
        toy.released.set()
        assert [(await client.read_response())[1] for client in busy] == [b"ok"] * 3
        assert await (await connect(connections, toy)).get() == b"ok"


async def test_rejected_connections_are_limited(connections: AsyncExitStack) -> None:
    """Their number and time are limited; further connections are closed without a response."""
    limits = ConnectionLimits(max_connections=1, max_rejected_connections=2, linger_timeout_s=2.0)
    async with run_toy_server(limits) as toy:
        await open_busy_connections(connections, toy, 1)
        rejected = [await connect(connections, toy) for _ in range(3)]

        assert [await client.reader.read(8) for client in rejected] == [b"HTTP/1.1", b"HTTP/1.1", b""]

        async def is_rejected_with_503() -> bool:
            return (await (await connect(connections, toy)).read_to_end()).startswith(b"HTTP/1.1 503 ")

        await eventually(is_rejected_with_503)


async def test_one_address_does_not_get_all_connections(connections: AsyncExitStack) -> None:
    """One client has at most half of the slots; then its own connections are evicted, or new ones rejected."""
    async with run_toy_server(
        ConnectionLimits(max_connections=8), owner=lambda address: None if address == "127.0.0.1" else address
    ) as toy:
        silent = [await connect(connections, toy, source="127.0.0.2") for _ in range(4)]
        other_address = await connect(connections, toy, source="127.0.0.3")
        await open_busy_connections(connections, toy, 4, source="127.0.0.2")
        rejected = await connect(connections, toy, source="127.0.0.2")

        assert [await client.read_to_end() for client in silent] == [b""] * 4
        assert (await rejected.read_to_end()).startswith(b"HTTP/1.1 503 ")
        assert await other_address.get() == b"ok"
        await open_busy_connections(connections, toy, 3)  # of an address without a limit, such as a proxy
        assert len(toy.limiter) == 8


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a file with a key and its certificate for 127.0.0.1."""
    return write_certificate(tmp_path_factory.mktemp("tls") / "both.pem")


async def test_silent_connections_do_not_block_a_tls_server(certificate: Path, connections: AsyncExitStack) -> None:
    """A connection counts before its handshake, and is evicted if it is silent."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)
    client_context = ssl.create_default_context(cafile=certificate)
    async with run_toy_server(ConnectionLimits(max_connections=10), tls_context=context) as toy:
        silent = [await connect(connections, toy, b"\x16\x03\x01\x02" * (number % 2)) for number in range(15)]
        await eventually(lambda: len(toy.limiter) == 10)
        client = await connect(connections, toy, tls_context=client_context)

        assert await client.get() == b"ok"
        assert await client.get(b"/large") == b"x" * LARGE_BODY_BYTES
        assert len(toy.limiter) == 10
        assert [await client.read_to_end() for client in silent[:6]] == [b""] * 6


async def test_a_tls_handshake_has_a_time_limit(certificate: Path, connections: AsyncExitStack) -> None:
    """Stalled handshakes and input without TLS free their slots."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)
    async with run_toy_server(ConnectionLimits(max_connections=10, handshake_timeout_s=0.3), tls_context=context) as toy:
        first_bytes = [b"", b"\x16\x03\x01\x02\x00\x01", GET % b"/"]
        stalled = [await connect(connections, toy, first) for first in first_bytes]
        for client in stalled:
            await client.read_to_end()

        await eventually(lambda: len(toy.limiter) == 0)
