"""Clients with a proven key are served before others, and the others in turn (benchmarks: `flood`)."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from functools import partial

from hypothesis import given
from hypothesis import strategies as st

from rookery.kernel.http.connection_limit import UnauthenticatedQueue
from tests.kernel.toy_server import GET, connect, run_toy_server


async def test_a_known_callers_next_request_goes_before_a_crowd_of_strangers() -> None:
    """
    A connection whose last response went to a known key is served first; unknown clients are served in turn.

    All requests are buffered before the server reads: it shares this loop, and nothing is awaited between the writes.
    """
    async with run_toy_server() as toy, AsyncExitStack() as connections:
        strangers = [await connect(connections, toy) for _ in range(50)]
        known = await connect(connections, toy)
        for each in (*strangers, known):
            await each.get(b"/known" if each is known else b"/strange")
        toy.started_paths.clear()
        for each in strangers:
            each.writer.write(GET % b"/strange")
        known.writer.write(GET % b"/known")

        answers = await asyncio.gather(*(each.read_response() for each in (*strangers, known)))

        assert [content for _, content in answers] == [b"ok"] * 51
        assert toy.started_paths.index("/known") < 10
        assert toy.started_paths.count("/strange") == 50


async def test_who_shows_a_wrong_key_after_a_right_one_is_a_stranger_again() -> None:
    """The last response decides: a proxy's connection carries many callers."""
    async with run_toy_server() as toy, AsyncExitStack() as connections:
        turned, *strangers = [await connect(connections, toy) for _ in range(50)]
        await turned.get(b"/known")
        await turned.get(b"/strange")
        toy.started_paths.clear()
        for each in strangers:
            each.writer.write(GET % b"/strange")
        turned.writer.write(GET % b"/turned")

        await asyncio.gather(*(each.read_response() for each in (*strangers, turned)))

        assert toy.started_paths.index("/turned") > 10


@given(st.lists(st.integers(0, 3), max_size=30))
def test_strangers_begin_in_the_order_in_which_they_came_one_a_turn(pauses: list[int]) -> None:
    """In any order of arrival no request is lost or overtaken, and no turn starts two."""
    turns, begun, each_turn = UnauthenticatedQueue(), list[int](), list[int]()

    async def story() -> None:
        for number, pause in enumerate(pauses):
            turns.start(partial(begun.append, number))
            for _ in range(pause):
                before = len(begun)
                await asyncio.sleep(0)
                each_turn.append(len(begun) - before)
        for _ in range(len(pauses) + 1):
            before = len(begun)
            await asyncio.sleep(0)
            each_turn.append(len(begun) - before)

    asyncio.run(story())

    assert begun == list(range(len(pauses)))
    assert max(each_turn) <= 1
    assert len(turns) == 0
