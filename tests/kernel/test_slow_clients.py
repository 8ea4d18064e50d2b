"""Clients that are slow, on real sockets: what they may hold, and for how long (D-16)."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from rookery.kernel.http import connection, connection_limit, request_body
from rookery.kernel.http.connection import MAX_DISCARDED_BYTES, MAX_PIPELINED_REQUESTS
from tests.conftest import eventually
from tests.kernel.toy_server import GET, LARGE_BODY_BYTES, Client, ToyServer, connect, run_toy_server


@pytest.fixture
async def toy() -> AsyncIterator[ToyServer]:
    """A server with room for all."""
    async with run_toy_server() as running:
        yield running


@pytest.fixture
async def connections() -> AsyncIterator[AsyncExitStack]:
    """An exit stack that closes the test's connections."""
    async with AsyncExitStack() as stack:
        yield stack


async def test_an_answer_that_nobody_reads_is_given_up(
    toy: ToyServer, connections: AsyncExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D-16: it is memory of ours; also when the connection is closing anyway."""
    monkeypatch.setattr(connection_limit, "_SWEEP_INTERVAL_S", 0.02)
    monkeypatch.setattr(connection_limit, "STALL_TIMEOUT_S", 0.2)
    for sent in (GET % b"/large", b"GET /large HTTP/1.0\r\nHost: a\r\n\r\n"):
        with socket.create_connection(("127.0.0.1", toy.port)) as deaf:
            deaf.sendall(sent)
            await eventually(lambda: len(toy.limiter) == 1)
            await eventually(lambda: len(toy.limiter) == 0)

    assert toy.limiter.evictions.stalled == 2


@pytest.mark.parametrize("path", [b"/large", b"/pieces"])
async def test_an_answer_that_is_read_slowly_arrives_whole(toy: ToyServer, monkeypatch: pytest.MonkeyPatch, path: bytes) -> None:
    """D-16: slow is not silent: who keeps the least rate is never cut off, however long the answer takes."""
    monkeypatch.setattr(connection_limit, "_SWEEP_INTERVAL_S", 0.05)
    monkeypatch.setattr(connection_limit, "STALL_TIMEOUT_S", 0.5)
    monkeypatch.setattr(connection_limit, "MIN_BYTES_PER_S", 3_000_000)
    loop, received = asyncio.get_running_loop(), 0
    with socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        slow.connect(("127.0.0.1", toy.port))
        slow.sendall(GET % path)
        slow.setblocking(False)
        while received < LARGE_BODY_BYTES:
            received += len(await loop.sock_recv(slow, 65536))
            await asyncio.sleep(0.01)  # is what makes it slow

    assert toy.limiter.evictions.stalled == 0


@pytest.mark.parametrize("frame", [b"Content-Length: 9000000\r\n\r\n", b"Transfer-Encoding: chunked\r\n\r\n"])
@pytest.mark.parametrize("content", [b"", b"a" * 2_000_000])
async def test_a_body_that_stalls_is_given_up_and_the_connection_with_it(
    toy: ToyServer, connections: AsyncExitStack, monkeypatch: pytest.MonkeyPatch, frame: bytes, content: bytes
) -> None:
    """D-16: soon, however much came before, and whether its length is told or not."""
    monkeypatch.setattr(request_body, "_BODY_TIMEOUT_S", 0.2)
    if b"chunked" in frame and content:
        content = b"%x\r\n%b\r\n" % (len(content), content)
    stalled = await connect(connections, toy, b"POST /body HTTP/1.1\r\nHost: a\r\n" + frame + content)

    head, answer = await stalled.read_response()

    assert (head[:12], json.loads(answer)["error"]) == (b"HTTP/1.1 408", "request_timeout")
    assert (await stalled.read_to_end(), b"connection: close" in head.lower()) == (b"", True)


@pytest.mark.parametrize("chunked", [False, True])
async def test_a_body_that_trickles_is_given_up_and_a_slow_one_is_not(
    toy: ToyServer, connections: AsyncExitStack, monkeypatch: pytest.MonkeyPatch, *, chunked: bool
) -> None:
    """D-16: a least rate; each piece buys the time that it takes at that, so an honest body may take any time."""
    monkeypatch.setattr(request_body, "_BODY_TIMEOUT_S", 0.5)
    monkeypatch.setattr(connection_limit, "MIN_BYTES_PER_S", 100_000)
    frame = b"Transfer-Encoding: chunked\r\n\r\n" if chunked else b"Content-Length: 400000\r\n\r\n"
    post = b"POST /body HTTP/1.1\r\nHost: a\r\nConnection: close\r\n" + frame

    async def send(size: int) -> bytes:
        client, rest = await connect(connections, toy, post), 400_000
        answer = asyncio.create_task(client.read_to_end())
        while rest and not answer.done():
            piece = b"x" * min(rest, size)
            rest -= len(piece)
            client.writer.write(b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece)
            await asyncio.sleep(0.01)
        if chunked and not answer.done():
            client.writer.write(b"0\r\n\r\n")
        return await answer

    slow, trickle = await asyncio.gather(send(4000), send(5))

    assert slow.endswith(b'{"size":400000}')  # a second: more than the patience
    assert trickle.startswith(b"HTTP/1.1 408 ")


async def test_a_body_that_nobody_reads_is_dropped_and_the_connection_goes_on(toy: ToyServer, connections: AsyncExitStack) -> None:
    """D-16: who sends all before reading gets the refusal, and may send the next request on the same connection."""
    client = await connect(connections, toy, b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5000000\r\n\r\n" + b"a" * 5_000_000)

    assert (await client.read_response())[1] == b"ok"
    assert await client.get() == b"ok"


async def test_a_body_that_nobody_reads_ends_after_as_much_as_the_largest_has(connections: AsyncExitStack) -> None:
    """D-16: dropping it costs us too."""
    async with run_toy_server(idle_s=60) as toy:
        post = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000000\r\n\r\n"
        client = await connect(connections, toy, post + b"a" * (MAX_DISCARDED_BYTES + 1_000_000))

        assert (await client.read_to_end()).count(b"HTTP/1.1 ") == 1


async def test_a_body_that_nobody_reads_ends_after_as_long_as_a_connection_may_be_idle(toy: ToyServer, connections: AsyncExitStack) -> None:
    """D-16: one second here; a byte now and then does not lengthen it."""
    client = await connect(connections, toy, b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000000\r\n\r\n")
    trickle = asyncio.create_task(_trickle(client, b"a"))
    try:
        assert (await client.read_to_end()).count(b"HTTP/1.1 ") == 1
    finally:
        trickle.cancel()


async def test_a_request_that_has_begun_is_not_idle(toy: ToyServer, connections: AsyncExitStack) -> None:
    """D-16: the second that a connection may be idle does not end in the middle of a head, or of a request in work."""
    begun, working = await connect(connections, toy), await connect(connections, toy)
    assert [await each.get() for each in (begun, working)] == [b"ok"] * 2
    begun.writer.write(b"GET / HTTP/1.1\r\n")
    working.writer.write((GET % b"/work") + (GET % b"/work"))
    await asyncio.sleep(1.3)  # longer than a connection may be idle
    begun.writer.write(b"Host: a\r\n\r\n")
    toy.released.set()

    assert (await begun.read_response())[1] == b"ok"
    assert [(await working.read_response())[1] for _ in range(2)] == [b"ok"] * 2


async def test_empty_lines_between_requests_keep_nothing_open(toy: ToyServer, connections: AsyncExitStack) -> None:
    """RFC 9112, 2.2: they are passed over; D-16: they are no request, so the second that a connection may be idle goes on."""
    client = await connect(connections, toy)
    assert await client.get() == b"ok"
    trickle = asyncio.create_task(_trickle(client, b"\r\n"))
    try:
        assert await client.read_to_end() == b""
    finally:
        trickle.cancel()


async def _trickle(client: Client, piece: bytes) -> None:
    while not client.writer.is_closing():
        client.writer.write(piece)
        await asyncio.sleep(0.05)


async def test_a_head_that_trickles_has_as_long_as_one_that_stalls(
    toy: ToyServer, connections: AsyncExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D-16: slowloris; on the second request of a connection too."""
    monkeypatch.setattr(connection, "_HEAD_TIMEOUT_S", 0.3)
    first, second = await connect(connections, toy, b"GET / HTTP/1.1\r\n"), await connect(connections, toy)
    assert await second.get() == b"ok"
    second.writer.write(b"GET / HTTP/1.1\r\n")
    trickles = [asyncio.create_task(_trickle(each, b"X-A: b\r\n")) for each in (first, second)]
    try:
        answers = [await each.read_to_end() for each in (first, second)]
    finally:
        for trickle in trickles:
            trickle.cancel()

    assert [answer[:13] for answer in answers] == [b"HTTP/1.1 408 "] * 2


@pytest.mark.parametrize(
    "endless", [b"1\r\na\r\n0\r\nX-A: " + b"a" * 3_000_000, b"1;" + b"a" * 3_000_000, b"1\r\na\r\n0\r\n" + b"X-A: b\r\n" * 300_000]
)
@pytest.mark.parametrize("path", [b"/", b"/body"])
async def test_what_stands_around_chunks_is_bounded(
    toy: ToyServer, connections: AsyncExitStack, monkeypatch: pytest.MonkeyPatch, path: bytes, endless: bytes
) -> None:
    """D-16: trailers and extensions are no content, so no cap of a body meets them; the parser would keep them all."""
    monkeypatch.setattr(request_body, "_BODY_TIMEOUT_S", 0.2)
    client = await connect(connections, toy, b"POST %b HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" % path + endless)

    assert (await client.read_to_end()).count(b"HTTP/1.1 ") <= 1  # none: the reset overtook the answer


async def test_a_pipeline_has_an_end(toy: ToyServer, connections: AsyncExitStack) -> None:
    """D-16: 256 KiB of small requests would be 26 MB of large objects; as many as are taken are answered, the last says close."""
    client = await connect(connections, toy, (GET % b"/") * 5000)

    *_, last = answers = (await client.read_to_end()).split(b"HTTP/1.1 200 OK\r\n")[1:]

    assert MAX_PIPELINED_REQUESTS <= len(answers) <= MAX_PIPELINED_REQUESTS + 2
    assert [b"connection: close" in answer for answer in answers] == [answer is last for answer in answers]


async def test_requests_of_a_pipeline_are_answered_in_order(toy: ToyServer, connections: AsyncExitStack) -> None:
    """RFC 9112, 9.3.2; D-16: a place with a request in work is not given to others between two of them."""
    client = await connect(connections, toy, (GET % b"/work") * 2 + (GET % b"/nothing") * 3)
    await eventually(lambda: toy.working == 1)
    toy.released.set()

    assert [(await client.read_response())[1] for _ in range(5)] == [b"ok"] * 5


async def test_who_stops_sending_is_gone(toy: ToyServer, connections: AsyncExitStack) -> None:
    """D-16, D-34: a half-closed socket is one whose caller left: it cannot be told from one, and is not kept."""
    client = await connect(connections, toy, b"POST /body HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nabc")
    await eventually(lambda: len(toy.limiter) == 1)
    client.writer.write_eof()

    assert await client.read_to_end() == b""
    await eventually(lambda: (toy.disconnected_paths, len(toy.limiter)) == (["/body"], 0))
