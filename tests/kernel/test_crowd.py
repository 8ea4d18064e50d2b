"""More clients than there is room for, on real sockets: who goes, who stays, and who is told so (D-16)."""

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
from tests.kernel.clients import GET, LARGE, connect, serving, workers


@pytest.fixture
async def guests() -> AsyncIterator[AsyncExitStack]:
    """Whoever enters hangs up at the end of the test."""
    async with AsyncExitStack() as stack:
        yield stack


async def test_who_waits_longest_goes_when_one_more_comes(guests: AsyncExitStack) -> None:
    """D-16: strangers who never asked anything before those who did, and the longest waiting first."""
    async with serving(4) as toy:
        asked = await connect(guests, toy)
        assert await asked.ask() == b"ok"
        silent = await connect(guests, toy)
        half = await connect(guests, toy, b"GET / HT")
        [working] = await workers(guests, toy, 1)

        assert await (await connect(guests, toy)).ask() == b"ok"
        assert await silent.rest() == b""
        assert await (await connect(guests, toy)).ask() == b"ok"
        assert await half.rest() == b""
        assert await asked.ask() == b"ok"
        await workers(guests, toy, 2)
        assert (toy.crowd.evictions.closed, len(toy.crowd)) == (4, 4)
        toy.released.set()
        assert (await working.answer())[1] == b"ok"


async def test_a_full_server_says_so_to_newcomers_and_to_nobody_in_work(guests: AsyncExitStack) -> None:
    """D-10, D-16: 503 with a code of its own and Retry-After; what is in work is answered."""
    async with serving(3) as toy:
        working = await workers(guests, toy, 3)
        newcomer = await connect(guests, toy, GET % b"/")

        head, content = await newcomer.answer()

        assert head.startswith(b"HTTP/1.1 503 ")
        assert b"retry-after: 1\r\n" in head
        assert json.loads(content)["error"] == "server_full"
        assert await newcomer.rest() == b""
        toy.released.set()
        assert [(await each.answer())[1] for each in working] == [b"ok"] * 3
        assert await (await connect(guests, toy)).ask() == b"ok"


async def test_who_is_told_that_it_is_full_holds_nothing(guests: AsyncExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
    """D-16: the refusals are bounded too, in number and in time; beyond that, newcomers are hung up on."""
    monkeypatch.setattr(connection, "_MAX_REJECTED_CONNECTIONS", 2)
    monkeypatch.setattr(connection, "_LINGER_TIMEOUT_S", 0.5)
    async with serving(1) as toy:
        await workers(guests, toy, 1)
        stubborn = [await connect(guests, toy) for _ in range(3)]

        assert [await each.reader.read(8) for each in stubborn] == [b"HTTP/1.1", b"HTTP/1.1", b""]

        async def is_told() -> bool:
            return (await (await connect(guests, toy)).rest()).startswith(b"HTTP/1.1 503 ")

        await eventually(is_told)


async def test_one_address_does_not_get_all_connections(guests: AsyncExitStack) -> None:
    """D-16: it has half of them; past that it pays with its own, and with none of its own it is told so."""
    async with serving(8, owner=lambda address: None if address == "127.0.0.1" else address) as toy:
        silent = [await connect(guests, toy, source="127.0.0.2") for _ in range(4)]
        other = await connect(guests, toy, source="127.0.0.3")
        await workers(guests, toy, 4, source="127.0.0.2")
        refused = await connect(guests, toy, source="127.0.0.2")

        assert [await each.rest() for each in silent] == [b""] * 4
        assert (await refused.rest()).startswith(b"HTTP/1.1 503 ")
        assert await other.ask() == b"ok"
        await workers(guests, toy, 3)  # of an address that speaks for many
        assert len(toy.crowd) == 8


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A key and its certificate for 127.0.0.1, in one file."""
    return write_certificate(tmp_path_factory.mktemp("tls") / "both.pem")


async def test_silent_connections_keep_nobody_from_a_tls_server(certificate: Path, guests: AsyncExitStack) -> None:
    """D-16: a connection counts before its handshake, and one that is silent in it gives its place to others."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)
    trusting = ssl.create_default_context(cafile=certificate)
    async with serving(10, secure=context) as toy:
        silent = [await connect(guests, toy, b"\x16\x03\x01\x02" * (number % 2)) for number in range(15)]
        await eventually(lambda: len(toy.crowd) == 10)
        client = await connect(guests, toy, secure=trusting)

        assert await client.ask() == b"ok"
        assert await client.ask(b"/large") == b"x" * LARGE
        assert len(toy.crowd) == 10
        assert [await each.rest() for each in silent[:6]] == [b""] * 6


async def test_a_tls_handshake_has_an_end(certificate: Path, guests: AsyncExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
    """D-16: stalled, or no TLS at all; the place is free again."""
    monkeypatch.setattr(tls, "HANDSHAKE_TIMEOUT_S", 0.3)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)
    async with serving(10, secure=context) as toy:
        sent = [b"", b"\x16\x03\x01\x02\x00\x01", GET % b"/"]
        stalled = [await connect(guests, toy, each) for each in sent]
        for each in stalled:
            await each.rest()

        await eventually(lambda: len(toy.crowd) == 0)
