"""Tool calls that are part of an agent's session (D-38)."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest

from tests.agents.session_makers import end_session, error_of, get_nested, get_session, parse_body, start_session_id
from tests.conftest import FakeClock, Instance, Settings, eventually, run_instance
from tests.tools.makers import make_odd_entry

CALL = "/api/v1/mcp/tools/call"


@pytest.fixture
async def workshop(settings: Settings) -> AsyncIterator[Instance]:
    """A running server with a tool server that each session has for itself."""
    servers = {"odd": make_odd_entry(isolation="per_session")}
    (settings.data_dir / "servers.json").write_text(json.dumps({"mcpServers": servers}))
    async with run_instance(settings) as opened:
        yield opened


async def test_calls_are_tied_to_an_open_session_and_its_servers_end_with_it(workshop: Instance) -> None:
    """D-38: X-Session-ID is kept with the row and counted; unknown or ended is 422; per_session servers close at its end."""
    session = await start_session_id(workshop.agent)
    body = {"server": "odd", "tool": "echo", "arguments": {"text": "hi"}}
    sessions = workshop.rookery.tools.sessions

    assert parse_body(await workshop.agent.post(CALL, body, **{"X-Session-ID": session}))["success"]
    (theirs,) = [each for each in sessions.list_sessions("odd") if each.is_open]
    await eventually(lambda: _calls(workshop, session, 1))
    assert error_of(await workshop.agent.post(CALL, body, **{"X-Session-ID": "sess_none"})) == (422, "session_not_open")
    other = await workshop.api_key(workspace_id=await workshop.workspace("other"))
    assert error_of(await other.post(CALL, body, **{"X-Session-ID": session})) == (422, "session_not_open")

    await end_session(workshop.agent, session)
    await eventually(lambda: not theirs.is_open)
    assert error_of(await workshop.agent.post(CALL, body, **{"X-Session-ID": session})) == (422, "session_not_open")


async def _calls(instance: Instance, session: str, number: int) -> bool:
    return get_nested(await get_session(instance.agent, session), "stats")["tool_calls"] == number


async def test_a_call_is_activity_in_its_session(settings: Settings, clock: FakeClock) -> None:
    """D-38, D-62: who calls tools is still there, and is not abandoned."""
    async with run_instance(settings, clock) as clocked_instance:
        session = await start_session_id(clocked_instance.agent)
        clock.advance(hours=20)
        parse_body(
            await clocked_instance.agent.post(
                CALL, {"server": "brain", "tool": "search", "arguments": {"query": "x"}}, **{"X-Session-ID": session}
            )
        )
        clock.advance(hours=20)
        await clocked_instance.rookery.agents.sessions.sweeper.sweep()

        assert (await get_session(clocked_instance.agent, session))["status"] == "active"
