"""Private parts of the MCP SDK that `rookery.engines.upstreams.sdk` needs, checked for the locked version."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from importlib.metadata import version

import mcp
import mcp.client
import mcp.shared
import mcp_types as types
import pytest
from mcp import Client, ClientSession, MCPError, StdioServerParameters
from mcp.client.stdio import stdio_client

from rookery.engines.upstreams import sdk
from tests.tools.makers import SERVERS

_SERIES = "2.3"
_STREAM_TYPES = {"ReadStream", "TransportStreams", "WriteStream"}


@pytest.fixture
async def session() -> AsyncIterator[ClientSession]:
    """Yield a session of the SDK alone with a real server."""
    program = StdioServerParameters(command=sys.executable, args=["-I", "-S", str(SERVERS / "muddled.py")])
    async with Client(stdio_client(program), mode="auto") as client:
        yield client.session


def test_the_statements_about_the_sdk_are_those_of_the_locked_version() -> None:
    """With another version, look for public ways first; see `rookery.engines.upstreams.sdk`."""
    assert version("mcp").startswith(f"{_SERIES}.")


def test_the_sdk_does_not_export_the_types_of_streams() -> None:
    """If it does, import them from there."""
    public = {name for module in (mcp, mcp.client, mcp.shared) for name in vars(module)}

    assert _STREAM_TYPES & public == set()
    assert vars(sdk).keys() >= _STREAM_TYPES


def test_a_session_of_the_sdk_sends_only_models() -> None:
    """If a public method sends a request without a model of its result, use it."""
    assert [name for name in dir(ClientSession) if not name.startswith("_") and "raw" in name] == []


async def test_the_dispatcher_of_a_session_sends_stamped_requests(session: ClientSession) -> None:
    """`get_request_sender` and `stamp_request` do what the session's own `send_request` does."""
    message: dict[str, object] = {"method": "tools/list", "params": {}}
    sdk.stamp_request(session, message, {})

    result = await sdk.get_request_sender(session).send_raw_request("tools/list", {}, {})

    assert message["method"] == "tools/list"
    assert types.ListToolsResult.model_validate(result, by_name=False) == await session.list_tools()


async def test_initialize_offers_a_version_and_leaves_the_session_as_it_is(session: ClientSession) -> None:
    """If the session's own method can offer a certain version, use it instead of `send_initialize`."""
    version_before = session.protocol_version

    result = await sdk.send_initialize(session, "2025-06-18")

    assert result.protocol_version == "2025-06-18"
    assert session.protocol_version == version_before


async def test_the_probe_returns_the_error_of_an_older_server(session: ClientSession) -> None:
    """`send_discover` sends what the session's own method sends, without its time-out."""
    with pytest.raises(MCPError) as error:
        await sdk.send_discover(session, "2026-07-28")
    with pytest.raises(MCPError) as own_error:
        await session.send_discover("2026-07-28")

    assert error.value.code == own_error.value.code


async def test_the_arguments_of_tools_are_registered_from_a_listing(session: ClientSession) -> None:
    """`register_header_arguments` returns the tools that declare their headers correctly."""
    listing = await session.list_tools()

    assert [tool.name for tool in sdk.register_header_arguments(session, listing).tools] == [tool.name for tool in listing.tools]
