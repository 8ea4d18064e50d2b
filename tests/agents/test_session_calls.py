"""Tool calls that are part of an agent's session (D-38)."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest

from tests.agents.session_makers import end, inside, refused, show, started, told
from tests.conftest import FakeClock, House, Settings, eventually, open_house
from tests.tools.makers import entry

CALL = "/api/v1/mcp/tools/call"


@pytest.fixture
async def workshop(settings: Settings) -> AsyncIterator[House]:
    """A running server with a tool server that each session has for itself."""
    servers = {"odd": entry(isolation="per_session")}
    (settings.data_dir / "servers.json").write_text(json.dumps({"mcpServers": servers}))
    async with open_house(settings) as opened:
        yield opened


async def test_calls_are_tied_to_an_open_session_and_its_servers_end_with_it(workshop: House) -> None:
    """D-38: X-Session-ID is kept with the row and counted; unknown or ended is 422; per_session servers close at its end."""
    session = await started(workshop.agent)
    body = {"server": "odd", "tool": "echo", "arguments": {"text": "hi"}}
    sessions = workshop.rookery.tools.sessions

    assert told(await workshop.agent.post(CALL, body, **{"X-Session-ID": session}))["success"]
    (theirs,) = [each for each in sessions.list_sessions("odd") if each.is_open]
    await eventually(lambda: _calls(workshop, session, 1))
    assert refused(await workshop.agent.post(CALL, body, **{"X-Session-ID": "sess_none"})) == (422, "session_not_open")
    other = await workshop.api_key(workspace_id=await workshop.workspace("other"))
    assert refused(await other.post(CALL, body, **{"X-Session-ID": session})) == (422, "session_not_open")

    await end(workshop.agent, session)
    await eventually(lambda: not theirs.is_open)
    assert refused(await workshop.agent.post(CALL, body, **{"X-Session-ID": session})) == (422, "session_not_open")


async def _calls(house: House, session: str, number: int) -> bool:
    return inside(await show(house.agent, session), "stats")["tool_calls"] == number


async def test_a_call_is_activity_in_its_session(settings: Settings, clock: FakeClock) -> None:
    """D-38, D-62: who calls tools is still there, and is not abandoned."""
    async with open_house(settings, clock) as timed:
        session = await started(timed.agent)
        clock.advance(hours=20)
        told(await timed.agent.post(CALL, {"server": "brain", "tool": "search", "arguments": {"query": "x"}}, **{"X-Session-ID": session}))
        clock.advance(hours=20)
        await timed.rookery.agents.sessions.sweeper.sweep()

        assert (await show(timed.agent, session))["status"] == "active"
