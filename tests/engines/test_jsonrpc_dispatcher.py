"""Our own requests over a server's pipes: whose answer is whose, and in what order things are heard."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rookery.engines import upstreams
from rookery.tools.errors import ConnectionLost
from rookery.tools.models import CommandTarget, JsonObject, Server
from rookery.tools.ports import RequestOptions, UpstreamConnection
from tests.tools.makers import SERVERS, make_caller, make_odd_server, text_of

CALLER = make_caller()
CONNECTORS = upstreams.open([])
MUDDLED = Server(id="muddled", name="muddled", target=CommandTarget(command=sys.executable, args=("-I", "-S", str(SERVERS / "muddled.py"))))
_SOON_S = 30.0
NOISE = ["stranger", "unasked", "nobody", "no number", "progress", "log"]


@pytest.fixture
async def session() -> AsyncIterator[UpstreamConnection]:
    """A session with the server that answers out of order."""
    async with CONNECTORS["stdio"].connect(MUDDLED, on_changed=lambda: None) as connection:
        yield connection


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The planned answer to one of several calls."""

    as_text: bool
    twice: bool
    before: list[str]


plans = st.lists(
    st.builds(Plan, as_text=st.booleans(), twice=st.booleans(), before=st.lists(st.sampled_from(NOISE), max_size=3)), min_size=1, max_size=9
)


async def muddle(session: UpstreamConnection, heard: list[object], **arguments: object) -> str:
    """Make one of several calls; what is heard of it on the way goes into *heard*, and so does its end."""

    async def progressed(done: float, total: float | None, message: str | None) -> None:
        heard.append((done, total, message))

    async def logged(notice: JsonObject) -> None:
        heard.append(notice["data"])

    asking = RequestOptions(caller=CALLER, on_progress=progressed, on_log=logged)
    result = await session.request("tools/call", {"name": "muddle", "arguments": arguments}, asking)
    heard.append("over")
    return text_of(result)


@settings(max_examples=25)
@given(plans, st.randoms(use_true_random=False))
async def test_each_caller_gets_its_own_answer_whatever_comes_between(plans: list[Plan], random: Random) -> None:
    """D-34: answers out of order, with ids as text, twice, and strangers' between; progress is its caller's, and comes before the end."""
    places = list(range(len(plans)))
    random.shuffle(places)
    heard: list[list[object]] = [[] for _ in plans]

    async with CONNECTORS["stdio"].connect(MUDDLED, on_changed=lambda: None) as session:
        asked = [
            muddle(session, heard[each], batch=len(plans), place=places[each], mark=each, **asdict(plan)) for each, plan in enumerate(plans)
        ]
        answers = await asyncio.wait_for(asyncio.gather(*asked), _SOON_S)

    assert answers == [str(each) for each in range(len(plans))]
    for each, plan in enumerate(plans):
        assert heard[each][-1] == "over"
        assert [one for one in heard[each] if isinstance(one, tuple)] == [(float(each), None, None)] * plan.before.count("progress")


async def test_what_the_server_says_right_before_its_answer_is_heard_before_it(session: UpstreamConnection) -> None:
    """D-34: a log line and progress that came with the answer in one piece are not lost, nor late."""
    for _ in range(50):
        heard: list[object] = []

        await muddle(session, heard, batch=1, place=0, mark=3, before=["log", "progress", "log"])

        assert sorted(heard[:-1], key=str) == [(3.0, None, None), "nearly", "nearly"]
        assert heard[-1] == "over"


async def test_numbers_that_no_machine_holds_reach_the_tool_as_they_are(session: UpstreamConnection) -> None:
    """D-34: arguments go on as they came, also integers past 64 bits."""
    params: JsonObject = {"name": "echo", "arguments": {"number": 10**30, "text": "ü\u2028"}}

    result = await session.request("tools/call", params, RequestOptions(caller=CALLER))

    assert json.loads(text_of(result))["arguments"] == params["arguments"]


async def test_a_server_that_ends_fails_every_call_that_waits_for_it() -> None:
    """D-32: the error says how the process ended; no caller keeps waiting."""
    async with CONNECTORS["stdio"].connect(make_odd_server(), on_changed=lambda: None) as session:
        slow: JsonObject = {"name": "slow", "arguments": {"seconds": 60, "mark": "none"}}
        waiting = [asyncio.ensure_future(session.request("tools/call", slow, RequestOptions(caller=CALLER))) for _ in range(5)]
        # Once this is answered theirs are on their way, too, and are read before the one that ends the server.
        await session.request("tools/call", {"name": "count", "arguments": {}}, RequestOptions(caller=CALLER))
        with pytest.raises(ConnectionLost):
            await session.request("tools/call", {"name": "crash", "arguments": {}}, RequestOptions(caller=CALLER))

        lost = await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), _SOON_S)
        with pytest.raises(ConnectionLost) as unsent:
            await session.request("tools/call", {"name": "count", "arguments": {}}, RequestOptions(caller=CALLER))

    assert [type(each) for each in lost] == [ConnectionLost] * 5
    assert all(isinstance(each, ConnectionLost) and each.was_handled and "exited with code 7" in str(each) for each in lost)
    assert not unsent.value.was_handled
