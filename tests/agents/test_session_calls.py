"""Tool calls that are part of an agent's session."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest

from tests.agents.session_makers import end_session, error_of, get_nested, get_session, parse_body, start_session_id
from tests.conftest import FakeClock, Instance, Settings, eventually, run_instance
from tests.tools.makers import make_odd_entry

CALL = "/api/v1/mcp/tools/call"


@pytest.fixture
async def tool_instance(settings: Settings) -> AsyncIterator[Instance]:
    """A running server with a tool server of which each session gets its own."""
    servers = {"odd": make_odd_entry(isolation="per_session")}
    (settings.data_dir / "servers.json").write_text(json.dumps({"mcpServers": servers}))
    async with run_instance(settings) as instance:
        yield instance


async def test_calls_need_an_open_session_and_its_servers_stop_with_it(tool_instance: Instance) -> None:
    """X-Session-ID is stored with the call and counted. An unknown or ended session is 422; per_session servers stop at its end."""
    session = await start_session_id(tool_instance.agent)
    body = {"server": "odd", "tool": "echo", "arguments": {"text": "hi"}}
    sessions = tool_instance.rookery.tools.sessions

    assert parse_body(await tool_instance.agent.post(CALL, body, **{"X-Session-ID": session}))["success"]
    (server_session,) = [server_session_ for server_session_ in sessions.list_sessions("odd") if server_session_.is_open]
    await eventually(lambda: _calls(tool_instance, session, 1))
    assert error_of(await tool_instance.agent.post(CALL, body, **{"X-Session-ID": "sess_none"})) == (422, "session_not_open")
    other_caller = await tool_instance.api_key(workspace_id=await tool_instance.workspace("other"))
    assert error_of(await other_caller.post(CALL, body, **{"X-Session-ID": session})) == (422, "session_not_open")

    await end_session(tool_instance.agent, session)
    await eventually(lambda: not server_session.is_open)
    assert error_of(await tool_instance.agent.post(CALL, body, **{"X-Session-ID": session})) == (422, "session_not_open")


async def _calls(instance: Instance, session: str, number: int) -> bool:
    return get_nested(await get_session(instance.agent, session), "stats")["tool_calls"] == number


async def test_a_call_is_activity_in_its_session(settings: Settings, clock: FakeClock) -> None:
    """A session with tool calls is not abandoned."""
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
