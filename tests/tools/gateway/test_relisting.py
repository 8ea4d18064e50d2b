"""Servers that could not be listed at first and work later: they recover, and clients are notified."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import mcp_types as types
import pytest

from tests.conftest import eventually
from tests.deadlines import HANG_S
from tests.processes import Server, run_server
from tests.stopwatch import Stopwatch
from tests.tools.gateway.clients import open_client
from tests.tools.makers import SERVERS

NAMES = ("waited", "wanted", "checked", "dead")


@dataclass(frozen=True, slots=True)
class GatewaySetup:
    """A running server, and the folder where a file of a server's name lets that tool server start."""

    server: Server
    folder: Path

    def allow_start(self, name: str) -> None:
        """Let a server start."""
        (self.folder / name).touch()

    def count_failures(self, name: str) -> int:
        """Return the number of failed listings of a server."""
        return sum("tools.not_listed" in line and name in line for line in self.server.log().splitlines())

    def get_health(self, name: str) -> tuple[str, int]:
        """Return health and number of tools from the list of servers, which does not connect to the server."""
        servers = self.server.client.get("/api/v1/mcp/servers").json()["servers"]
        (server,) = [entry for entry in servers if entry["id"] == name]
        return server["health"], server["tool_count"]


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewaySetup]:
    """A server with tool servers that fail until they may start."""
    folder = tmp_path_factory.mktemp("relisting")
    flaky = folder / "flaky.sh"
    flaky.write_text(f'#!/bin/sh\n[ -e "{folder}/$1" ] || exit 1\nexec {sys.executable} -I -S -u {SERVERS / "odd.py"}\n')
    flaky.chmod(0o755)
    (folder / "data").mkdir()
    entries = {name: {"command": str(flaky), "args": [name], "tagline": f"The {name} one"} for name in NAMES}
    (folder / "data" / "servers.json").write_text(json.dumps({"mcpServers": entries}))
    with run_server(folder / "data") as server:
        yield GatewaySetup(server, folder)


async def test_a_server_that_failed_is_retried_without_a_call(gateway: GatewaySetup) -> None:
    """A server whose first listing failed becomes visible to MCP clients later."""
    announced = asyncio.Event()

    async def on_message(message: object) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            announced.set()

    async with open_client(gateway.server, mode="legacy", message_handler=on_message):
        await eventually(lambda: gateway.count_failures("waited") > 0)
        gateway.allow_start("waited")

        await eventually(lambda: gateway.get_health("waited")[0] == "online")
        await asyncio.wait_for(announced.wait(), HANG_S)


async def test_listing_tools_retries_a_missing_server_at_once(gateway: GatewaySetup) -> None:
    """tools/list does not wait; list_changed announces the tools."""
    announced = asyncio.Event()

    async def on_message(message: object) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            announced.set()

    await eventually(lambda: gateway.count_failures("wanted") >= 2)  # the next automatic attempt would be 30 s later
    gateway.allow_start("wanted")
    async with open_client(gateway.server, mode="legacy", message_handler=on_message) as mcp:

        async def is_listed() -> bool:
            return "wanted__echo" in [tool.name for tool in (await mcp.list_tools()).tools]

        with Stopwatch() as watch:
            await eventually(is_listed)
        assert watch.reference_s < 20
        await asyncio.wait_for(announced.wait(), HANG_S)


async def test_a_successful_check_brings_a_server_online(gateway: GatewaySetup) -> None:
    """After a successful `rookery servers check` the server is online."""
    await eventually(lambda: gateway.count_failures("checked") >= 2)
    gateway.allow_start("checked")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ROOKERY_")}
    command = [sys.executable, "-m", "rookery", "--data-dir", str(gateway.server.folder), "servers", "check", "checked"]
    check = await asyncio.create_subprocess_exec(*command, env=environment, stdout=asyncio.subprocess.PIPE)
    output, _ = await check.communicate()

    failures_before = gateway.count_failures("checked")  # an attempt from before the file was there has failed by now
    assert check.returncode == 0, output
    with Stopwatch() as watch:
        await eventually(lambda: gateway.get_health("checked")[0] == "online")
    assert watch.reference_s < 20
    assert gateway.get_health("checked")[1] > 0
    assert gateway.count_failures("checked") == failures_before


async def test_instructions_list_offline_servers_as_unusable(gateway: GatewaySetup) -> None:
    """The instructions of /mcp separate servers that are offline."""
    await eventually(lambda: gateway.count_failures("dead") > 0)
    async with open_client(gateway.server, mode="legacy") as mcp:
        instructions = mcp.instructions or ""

    assert "- dead:" not in instructions
    offline = next(line for line in instructions.splitlines() if line.startswith("Offline now, not usable: "))
    assert "dead" in offline
    assert "- brain:" in instructions
