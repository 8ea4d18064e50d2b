"""Slow clients on real sockets: limits for their memory and time."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from rookery.kernel.http.connection import MAX_DISCARDED_BYTES, MAX_PIPELINED_REQUESTS
from rookery.kernel.http.connection_limit import ConnectionLimits, TransferLimits
from tests.conftest import eventually
from tests.kernel.toy_server import GET, LARGE_BODY_BYTES, Client, ToyServer, connect, run_toy_server

_SHORT_STALL = ConnectionLimits(transfer=TransferLimits(stall_timeout_s=0.2))


@pytest.fixture
async def toy() -> AsyncIterator[ToyServer]:
    """Yield a server with a large connection limit."""
    async with run_toy_server(idle_s=1) as toy:
        yield toy


async def test_a_response_that_is_not_read_is_dropped() -> None:
    """It uses memory, also on a connection that is closing."""
    limits = ConnectionLimits(transfer=TransferLimits(stall_timeout_s=0.2), sweep_interval_s=0.02)
    async with run_toy_server(limits) as toy:
        for number, request in enumerate((GET % b"/large", b"GET /large HTTP/1.0\r\nHost: a\r\n\r\n"), start=1):
            with socket.create_connection(("127.0.0.1", toy.port)) as client:
                client.sendall(request)
                await eventually(lambda number=number: (toy.limiter.evictions.stalled, len(toy.limiter)) == (number, 0))


@pytest.mark.parametrize("path", [b"/large", b"/pieces"])
async def test_a_slowly_read_response_arrives_completely(path: bytes) -> None:
    """A client above the minimum rate is never disconnected."""
    limits = ConnectionLimits(transfer=TransferLimits(min_bytes_per_s=300_000, stall_timeout_s=0.5), sweep_interval_s=0.05)
    loop, received = asyncio.get_running_loop(), 0
    async with run_toy_server(limits) as toy:
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
            client.connect(("127.0.0.1", toy.port))
            client.sendall(GET % path)
            client.setblocking(False)
            while received < LARGE_BODY_BYTES:
                chunk = await loop.sock_recv(client, 65536)
                assert chunk, "the server closed the connection"
                received += len(chunk)
                await asyncio.sleep(0.01)  # makes the client slow

        assert toy.limiter.evictions.stalled == 0


@pytest.mark.parametrize("frame", [b"Content-Length: 9000000\r\n\r\n", b"Transfer-Encoding: chunked\r\n\r\n"])
@pytest.mark.parametrize("content", [b"", b"a" * 2_000_000])
async def test_a_stalled_body_times_out_and_closes_the_connection(connections: AsyncExitStack, frame: bytes, content: bytes) -> None:
    """The time does not depend on the bytes that came before, or on a declared length."""
    if b"chunked" in frame and content:
        content = b"%x\r\n%b\r\n" % (len(content), content)
    async with run_toy_server(_SHORT_STALL) as toy:
        stalled = await connect(connections, toy, b"POST /body HTTP/1.1\r\nHost: a\r\n" + frame + content)

        head, content_of_response = await stalled.read_response()

        assert (head[:12], json.loads(content_of_response)["error"]) == (b"HTTP/1.1 408", "request_timeout")
        assert (await stalled.read_to_end(), b"connection: close" in head.lower()) == (b"", True)


@pytest.mark.parametrize("chunked", [False, True])
async def test_a_trickling_body_times_out_and_a_slow_one_does_not(connections: AsyncExitStack, *, chunked: bool) -> None:
    """Each chunk extends the time by its size at the minimum rate."""
    limits = ConnectionLimits(transfer=TransferLimits(min_bytes_per_s=20_000, stall_timeout_s=0.5))
    frame = b"Transfer-Encoding: chunked\r\n\r\n" if chunked else b"Content-Length: 400000\r\n\r\n"
    post = b"POST /body HTTP/1.1\r\nHost: a\r\nConnection: close\r\n" + frame

    async def send(toy: ToyServer, size: int) -> bytes:
        client, remaining = await connect(connections, toy, post), 400_000
        response = asyncio.create_task(client.read_to_end())
        while remaining and not response.done():
            chunk = b"x" * min(remaining, size)
            remaining -= len(chunk)
            client.writer.write(b"%x\r\n%b\r\n" % (len(chunk), chunk) if chunked else chunk)
            await asyncio.sleep(0.01)
        if chunked and not response.done():
            client.writer.write(b"0\r\n\r\n")
        return await response

    async with run_toy_server(limits) as toy:
        slow_response, trickle_response = await asyncio.gather(send(toy, 4000), send(toy, 5))

    assert slow_response.endswith(b'{"size":400000}')  # takes a second, more than the time limit
    assert trickle_response.startswith(b"HTTP/1.1 408 ")


async def test_an_unread_body_is_dropped_and_the_connection_stays_open(toy: ToyServer, connections: AsyncExitStack) -> None:
    """A client that sends all before reading can send the next request on the same connection."""
    client = await connect(connections, toy, b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5000000\r\n\r\n" + b"a" * 5_000_000)

    assert (await client.read_response())[1] == b"ok"
    assert await client.get() == b"ok"


async def test_an_unread_body_over_the_size_limit_closes_the_connection(connections: AsyncExitStack) -> None:
    """Dropping bytes costs time too."""
    async with run_toy_server() as toy:
        post = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000000\r\n\r\n"
        client = await connect(connections, toy, post + b"a" * (MAX_DISCARDED_BYTES + 1_000_000))

        assert (await client.read_to_end()).count(b"HTTP/1.1 ") == 1


async def test_a_body_that_declares_too_large_a_size_is_refused_before_it_arrives(connections: AsyncExitStack) -> None:
    """A proxy that sends faster than it reads may otherwise fail at its own limit before it reads the response: Caddy 2.6.2 answers 502."""
    async with run_toy_server() as toy:
        client = await connect(connections, toy, b"POST /body HTTP/1.1\r\nHost: a\r\nContent-Length: 100000000\r\n\r\n")

        assert (await client.read_response())[0].startswith(b"HTTP/1.1 413 ")


async def test_a_client_that_waits_for_consent_is_refused_before_it_sends_too_much(connections: AsyncExitStack) -> None:
    """`Expect: 100-continue`, as Apache and curl send it. The body never comes, so the connection closes."""
    async with run_toy_server() as toy:
        post = b"POST /body HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n"
        refused = await connect(connections, toy, post % 100_000_000)
        answer = await refused.read_to_end()
        accepted = await connect(connections, toy, post % 3)
        consent = await accepted.reader.readuntil(b"\r\n\r\n")
        accepted.writer.write(b"abc")

        assert answer.startswith(b"HTTP/1.1 413 ")
        assert b"connection: close" in answer
        assert consent.startswith(b"HTTP/1.1 100 ")
        assert (await accepted.read_response())[1] == b'{"size":3}'


async def test_an_unread_body_over_the_idle_time_closes_the_connection(toy: ToyServer, connections: AsyncExitStack) -> None:
    """Single bytes do not extend the time, which is one second here."""
    client = await connect(connections, toy, b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000000\r\n\r\n")
    trickle_task = asyncio.create_task(_trickle(client, b"a"))
    try:
        assert (await client.read_to_end()).count(b"HTTP/1.1 ") == 1
    finally:
        trickle_task.cancel()


async def test_a_connection_with_a_started_request_is_not_idle(toy: ToyServer, connections: AsyncExitStack) -> None:
    """The idle time does not apply during a head, or during a request in progress."""
    partial_request, busy = await connect(connections, toy), await connect(connections, toy)
    assert [await client.get() for client in (partial_request, busy)] == [b"ok"] * 2
    partial_request.writer.write(b"GET / HTTP/1.1\r\n")
    busy.writer.write((GET % b"/work") + (GET % b"/work"))
    await asyncio.sleep(1.3)  # longer than a connection may be idle
    partial_request.writer.write(b"Host: a\r\n\r\n")
    toy.released.set()

    assert (await partial_request.read_response())[1] == b"ok"
    assert [(await busy.read_response())[1] for _ in range(2)] == [b"ok"] * 2


async def test_empty_lines_between_requests_do_not_extend_the_idle_time(toy: ToyServer, connections: AsyncExitStack) -> None:
    """Empty lines are ignored, and are no request (RFC 9112)."""
    client = await connect(connections, toy)
    assert await client.get() == b"ok"
    trickle_task = asyncio.create_task(_trickle(client, b"\r\n"))
    try:
        assert await client.read_to_end() == b""
    finally:
        trickle_task.cancel()


async def _trickle(client: Client, piece: bytes) -> None:
    while not client.writer.is_closing():
        client.writer.write(piece)
        await asyncio.sleep(0.05)


async def test_a_trickling_head_has_the_time_limit_of_a_stalled_one(connections: AsyncExitStack) -> None:
    """This stops slowloris attacks, also on the second request of a connection."""
    async with run_toy_server(ConnectionLimits(head_timeout_s=2.0)) as toy:
        first, second = await connect(connections, toy, b"GET / HTTP/1.1\r\n"), await connect(connections, toy)
        assert await second.get() == b"ok"
        second.writer.write(b"GET / HTTP/1.1\r\n")
        trickles = [asyncio.create_task(_trickle(client, b"X-A: b\r\n")) for client in (first, second)]
        try:
            responses = [await client.read_to_end() for client in (first, second)]
        finally:
            for task in trickles:
                task.cancel()

    assert [response[:13] for response in responses] == [b"HTTP/1.1 408 "] * 2


@pytest.mark.parametrize(
    "endless_chunks", [b"1\r\na\r\n0\r\nX-A: " + b"a" * 3_000_000, b"1;" + b"a" * 3_000_000, b"1\r\na\r\n0\r\n" + b"X-A: b\r\n" * 300_000]
)
@pytest.mark.parametrize("path", [b"/", b"/body"])
async def test_trailers_and_chunk_extensions_are_limited(connections: AsyncExitStack, path: bytes, endless_chunks: bytes) -> None:
    """They are not part of the body, so the limit of the body does not apply to them."""
    head = b"POST %b HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" % path
    async with run_toy_server(_SHORT_STALL) as toy:
        client = await connect(connections, toy, head + endless_chunks)

        assert (await client.read_to_end()).count(b"HTTP/1.1 ") <= 1  # 0 if the reset overtook the response


async def test_the_number_of_pipelined_requests_is_limited(toy: ToyServer, connections: AsyncExitStack) -> None:
    """Accepted requests get their responses, and the last one has `Connection: close`."""
    client = await connect(connections, toy, (GET % b"/") * 5000)

    *_, last_response = responses = (await client.read_to_end()).split(b"HTTP/1.1 200 OK\r\n")[1:]

    assert MAX_PIPELINED_REQUESTS <= len(responses) <= MAX_PIPELINED_REQUESTS + 2
    assert [b"connection: close" in response for response in responses] == [response is last_response for response in responses]


async def test_pipelined_requests_get_responses_in_order(toy: ToyServer, connections: AsyncExitStack) -> None:
    """The connection is not evicted between two of its requests (RFC 9112)."""
    client = await connect(connections, toy, (GET % b"/work") * 2 + (GET % b"/nothing") * 3)
    await eventually(lambda: toy.working == 1)
    toy.released.set()

    assert [(await client.read_response())[1] for _ in range(5)] == [b"ok"] * 5


async def test_a_half_closed_connection_is_closed(toy: ToyServer, connections: AsyncExitStack) -> None:
    """It cannot be distinguished from a caller that has left."""
    client = await connect(connections, toy, b"POST /body HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nabc")
    await eventually(lambda: len(toy.limiter) == 1)
    client.writer.write_eof()

    assert await client.read_to_end() == b""
    await eventually(lambda: (toy.disconnected_paths, len(toy.limiter)) == (["/body"], 0))
