"""Servers that could not be listed at first, and work later: they come back by themselves, and clients are told."""

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
from tests.processes import Server, run_server
from tests.tools.gateway.clients import client
from tests.tools.makers import SERVERS

NAMES = ("waited", "wanted", "checked", "dead")


@dataclass(frozen=True, slots=True)
class GatewaySetup:
    """A running server, and the folder where a file mends the tool server of its name."""

    server: Server
    folder: Path

    def mend(self, name: str) -> None:
        """Let a server start from now on."""
        (self.folder / name).touch()

    def failures(self, name: str) -> int:
        """Return how often listing a server has failed."""
        return sum("tools.not_listed" in line and name in line for line in self.server.log().splitlines())

    def health(self, name: str) -> tuple[str, int]:
        """Return how a server does and how many tools it has, as the list of servers tells: looking changes nothing."""
        servers = self.server.client.get("/api/v1/mcp/servers").json()["servers"]
        (found,) = [each for each in servers if each["id"] == name]
        return found["health"], found["tool_count"]


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewaySetup]:
    """A server with tool servers that fail until they are mended."""
    folder = tmp_path_factory.mktemp("relisting")
    flaky = folder / "flaky.sh"
    flaky.write_text(f'#!/bin/sh\n[ -e "{folder}/$1" ] || exit 1\nexec {sys.executable} -I -S -u {SERVERS / "odd.py"}\n')
    flaky.chmod(0o755)
    (folder / "data").mkdir()
    entries = {name: {"command": str(flaky), "args": [name], "tagline": f"The {name} one"} for name in NAMES}
    (folder / "data" / "servers.json").write_text(json.dumps({"mcpServers": entries}))
    with run_server(folder / "data") as server:
        yield GatewaySetup(server, folder)


async def test_a_server_that_failed_is_tried_again_without_a_call(gateway: GatewaySetup) -> None:
    """Issue 14: a server whose first listing failed was invisible to MCP clients for ever; D-32."""
    told = asyncio.Event()

    async def heard(message: object) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            told.set()

    async with client(gateway.server, mode="legacy", message_handler=heard):
        await eventually(lambda: gateway.failures("waited") > 0)
        gateway.mend("waited")

        await eventually(lambda: gateway.health("waited")[0] == "online", within_s=45)
        await asyncio.wait_for(told.wait(), 10)


async def test_listing_tools_has_a_missing_server_tried_at_once(gateway: GatewaySetup) -> None:
    """Issue 14: tools/list does not wait, and the tools come with list_changed; D-32, D-36."""
    told = asyncio.Event()

    async def heard(message: object) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            told.set()

    await eventually(lambda: gateway.failures("wanted") >= 2, within_s=30)  # from here on it would be tried after 30 s
    gateway.mend("wanted")
    async with client(gateway.server, mode="legacy", message_handler=heard) as mcp:

        async def is_listed() -> bool:
            return "wanted__echo" in [tool.name for tool in (await mcp.list_tools()).tools]

        await eventually(is_listed, within_s=20)
        await asyncio.wait_for(told.wait(), 10)


async def test_a_check_that_succeeds_brings_a_server_back(gateway: GatewaySetup) -> None:
    """Issue 14: `rookery servers check` said yes, and the server stayed offline; D-32."""
    await eventually(lambda: gateway.failures("checked") >= 2, within_s=30)
    tried = gateway.failures("checked")
    gateway.mend("checked")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ROOKERY_")}
    command = [sys.executable, "-m", "rookery", "--data-dir", str(gateway.server.folder), "servers", "check", "checked"]
    check = await asyncio.create_subprocess_exec(*command, env=environment, stdout=asyncio.subprocess.PIPE)
    said, _ = await check.communicate()

    assert check.returncode == 0, said
    await eventually(lambda: gateway.health("checked")[0] == "online", within_s=20)
    assert gateway.health("checked")[1] > 0
    assert gateway.failures("checked") == tried


async def test_instructions_call_no_offline_server_usable(gateway: GatewaySetup) -> None:
    """Issue 14: /mcp's instructions listed servers that could not be reached; D-36."""
    await eventually(lambda: gateway.failures("dead") > 0)
    async with client(gateway.server, mode="legacy") as mcp:
        instructions = mcp.instructions or ""

    assert "- dead:" not in instructions
    assert "Offline now, not usable: " in instructions
    assert "dead" in instructions.splitlines()[-1]
    assert "- brain:" in instructions
