"""Clients with a verified key are served before others, and the others in turn (benchmark `flood`)."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from functools import partial

from hypothesis import given
from hypothesis import strategies as st

from rookery.kernel.http.connection_limit import UnauthenticatedQueue
from tests.kernel.toy_server import GET, connect, run_toy_server


async def test_the_next_request_of_a_known_caller_precedes_those_of_many_unknown_ones() -> None:
    """
    A connection whose last response went to a known key is served first; unknown clients are served in turn.

    All requests are buffered before the server reads: it shares this loop, and nothing is awaited between the writes.
    """
    async with run_toy_server() as toy, AsyncExitStack() as connections:
        unknown_clients = [await connect(connections, toy) for _ in range(50)]
        known_client = await connect(connections, toy)
        for client in (*unknown_clients, known_client):
            await client.get(b"/known" if client is known_client else b"/strange")
        toy.started_paths.clear()
        for client in unknown_clients:
            client.writer.write(GET % b"/strange")
        known_client.writer.write(GET % b"/known")

        responses = await asyncio.gather(*(client.read_response() for client in (*unknown_clients, known_client)))

        assert [content for _, content in responses] == [b"ok"] * 51
        assert toy.started_paths.index("/known") < 10
        assert toy.started_paths.count("/strange") == 50


async def test_a_client_that_sends_a_wrong_key_after_a_right_one_is_unknown_again() -> None:
    """The last response decides, because a proxy's connection may carry many callers."""
    async with run_toy_server() as toy, AsyncExitStack() as connections:
        former_known_client, *unknown_clients = [await connect(connections, toy) for _ in range(50)]
        await former_known_client.get(b"/known")
        await former_known_client.get(b"/strange")
        toy.started_paths.clear()
        for client in unknown_clients:
            client.writer.write(GET % b"/strange")
        former_known_client.writer.write(GET % b"/turned")

        await asyncio.gather(*(client.read_response() for client in (*unknown_clients, former_known_client)))

        assert toy.started_paths.index("/turned") > 10


@given(st.lists(st.integers(0, 3), max_size=30))
def test_requests_start_in_order_of_arrival_one_per_turn(pauses: list[int]) -> None:
    """No request is lost or overtaken, and no turn of the loop starts two."""
    queue, started, started_per_turn = UnauthenticatedQueue(), list[int](), list[int]()

    async def run() -> None:
        for number, pause in enumerate(pauses):
            queue.start(partial(started.append, number))
            for _ in range(pause):
                started_before = len(started)
                await asyncio.sleep(0)
                started_per_turn.append(len(started) - started_before)
        for _ in range(len(pauses) + 1):
            started_before = len(started)
            await asyncio.sleep(0)
            started_per_turn.append(len(started) - started_before)

    asyncio.run(run())

    assert started == list(range(len(pauses)))
    assert max(started_per_turn) <= 1
    assert len(queue) == 0
