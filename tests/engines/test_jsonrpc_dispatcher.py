"""Requests over a server's pipes: matching of responses, and the order of notifications."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rookery.engines import upstreams
from rookery.tools.errors import ConnectionLost
from rookery.tools.models import CommandTarget, JsonObject, Server
from rookery.tools.ports import RequestOptions, UpstreamConnection
from tests.deadlines import HANG_S
from tests.tools.makers import SERVERS, make_caller, make_odd_server, text_of

CALLER = make_caller()
CONNECTORS = upstreams.open([])
MUDDLED = Server(id="muddled", name="muddled", target=CommandTarget(command=sys.executable, args=("-I", "-S", str(SERVERS / "muddled.py"))))
UNRELATED_MESSAGES = ["stranger", "unasked", "nobody", "no number", "progress", "log"]


@pytest.fixture
async def session() -> AsyncIterator[UpstreamConnection]:
    """Yield a session with the server that responds out of order."""
    async with CONNECTORS["stdio"].connect(MUDDLED, on_changed=lambda: None) as connection:
        yield connection


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The planned response to one of several calls."""

    as_text: bool
    twice: bool
    before: list[str]


plans = st.lists(
    st.builds(Plan, as_text=st.booleans(), twice=st.booleans(), before=st.lists(st.sampled_from(UNRELATED_MESSAGES), max_size=3)),
    min_size=1,
    max_size=9,
)


async def call_muddled(session: UpstreamConnection, notices: list[object], **arguments: object) -> str:
    """Make one of several calls and append its notifications and its end to *notices*."""

    async def on_progress(done: float, total: float | None, message: str | None) -> None:
        notices.append((done, total, message))

    async def on_log(notice: JsonObject) -> None:
        notices.append(notice["data"])

    options = RequestOptions(caller=CALLER, on_progress=on_progress, on_log=on_log)
    result = await session.request("tools/call", {"name": "muddle", "arguments": arguments}, options)
    notices.append("over")
    return text_of(result)


@settings(max_examples=25)
@given(plans, st.randoms(use_true_random=False))
async def test_each_caller_gets_its_own_response_in_any_order_of_messages(plans: list[Plan], random: Random) -> None:
    """Responses come out of order, repeated, with text ids and between unrelated ones; progress precedes the response."""
    positions = list(range(len(plans)))
    random.shuffle(positions)
    notices: list[list[object]] = [[] for _ in plans]

    async with CONNECTORS["stdio"].connect(MUDDLED, on_changed=lambda: None) as session:
        calls = [
            call_muddled(session, notices[number], batch=len(plans), place=positions[number], mark=number, **asdict(plan))
            for number, plan in enumerate(plans)
        ]
        results = await asyncio.wait_for(asyncio.gather(*calls), HANG_S)

    assert results == [str(number) for number in range(len(plans))]
    for number, plan in enumerate(plans):
        assert notices[number][-1] == "over"
        assert [notice for notice in notices[number] if isinstance(notice, tuple)] == [(float(number), None, None)] * plan.before.count(
            "progress"
        )


async def test_notifications_sent_before_a_response_arrive_before_it(session: UpstreamConnection) -> None:
    """This also holds for notifications in the same chunk of data as the response."""
    for _ in range(50):
        notices: list[object] = []

        await call_muddled(session, notices, batch=1, place=0, mark=3, before=["log", "progress", "log"])

        assert sorted(notices[:-1], key=str) == [(3.0, None, None), "nearly", "nearly"]
        assert notices[-1] == "over"


async def test_large_integers_reach_the_tool_unchanged(session: UpstreamConnection) -> None:
    """Arguments pass through unchanged, also integers beyond 64 bits."""
    params: JsonObject = {"name": "echo", "arguments": {"number": 10**30, "text": "ü\u2028"}}

    result = await session.request("tools/call", params, RequestOptions(caller=CALLER))

    assert json.loads(text_of(result))["arguments"] == params["arguments"]


async def test_a_server_that_exits_fails_every_pending_call(tmp_path: Path) -> None:
    """The error has the exit code of the process, and no caller keeps waiting."""
    async with CONNECTORS["stdio"].connect(make_odd_server(), on_changed=lambda: None) as session:
        slow_call: JsonObject = {"name": "slow", "arguments": {"seconds": 60, "mark": str(tmp_path / "mark")}}
        pending_calls = [asyncio.ensure_future(session.request("tools/call", slow_call, RequestOptions(caller=CALLER))) for _ in range(5)]
        # After this response the pending calls are sent too, and the server reads them before the one that ends it.
        await session.request("tools/call", {"name": "count", "arguments": {}}, RequestOptions(caller=CALLER))
        with pytest.raises(ConnectionLost):
            await session.request("tools/call", {"name": "crash", "arguments": {}}, RequestOptions(caller=CALLER))

        errors = await asyncio.wait_for(asyncio.gather(*pending_calls, return_exceptions=True), HANG_S)
        with pytest.raises(ConnectionLost) as unsent_error:
            await session.request("tools/call", {"name": "count", "arguments": {}}, RequestOptions(caller=CALLER))

    assert [type(error) for error in errors] == [ConnectionLost] * 5
    assert all(isinstance(error, ConnectionLost) and error.was_handled and "exited with code 7" in str(error) for error in errors)
    assert not unsent_error.value.was_handled
