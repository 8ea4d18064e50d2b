"""Who has shown a right key is served before strangers, and every stranger in turn (benchmarks: `flood`)."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from functools import partial

from hypothesis import given
from hypothesis import strategies as st

from rookery.kernel.http.connection_limit import UnauthenticatedQueue
from tests.kernel.clients import GET, connect, serving


async def test_a_known_callers_next_request_goes_before_a_crowd_of_strangers() -> None:
    """
    A connection whose last answer went to somebody known is served first; no stranger is left out.

    All requests lie ready before the server looks again: it shares this loop, and nothing is awaited between the writes.
    """
    async with serving() as toy, AsyncExitStack() as guests:
        strangers = [await connect(guests, toy) for _ in range(50)]
        known = await connect(guests, toy)
        for each in (*strangers, known):
            await each.ask(b"/known" if each is known else b"/strange")
        toy.begun.clear()
        for each in strangers:
            each.writer.write(GET % b"/strange")
        known.writer.write(GET % b"/known")

        answers = await asyncio.gather(*(each.answer() for each in (*strangers, known)))

        assert [content for _, content in answers] == [b"ok"] * 51
        assert toy.begun.index("/known") < 10
        assert toy.begun.count("/strange") == 50


async def test_who_shows_a_wrong_key_after_a_right_one_is_a_stranger_again() -> None:
    """What counts is the last answer: a proxy's connection carries many callers."""
    async with serving() as toy, AsyncExitStack() as guests:
        turned, *strangers = [await connect(guests, toy) for _ in range(50)]
        await turned.ask(b"/known")
        await turned.ask(b"/strange")
        toy.begun.clear()
        for each in strangers:
            each.writer.write(GET % b"/strange")
        turned.writer.write(GET % b"/turned")

        await asyncio.gather(*(each.answer() for each in (*strangers, turned)))

        assert toy.begun.index("/turned") > 10


@given(st.lists(st.integers(0, 3), max_size=30))
def test_strangers_begin_in_the_order_in_which_they_came_one_a_turn(pauses: list[int]) -> None:
    """However they arrive (so many turns of the loop between two), none is lost, none overtakes, and no turn begins two."""
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
