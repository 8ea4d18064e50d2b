from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from rookery.engines import upstreams
from rookery.tools.errors import ServerBusy
from rookery.tools.servers.server_check import MAX_CONCURRENT_CHECKS, ServerChecker
from tests.conftest import eventually
from tests.tools.makers import make_http_server


@pytest.fixture
async def silent() -> AsyncIterator[tuple[str, list[asyncio.StreamWriter]]]:
    """The address of a server that takes every connection and says nothing, and who connected."""
    there: list[asyncio.StreamWriter] = []

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there.append(writer)
        await reader.read()
        writer.close()

    async with await asyncio.start_server(take, "127.0.0.1", 0) as listening:
        port = listening.sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}/mcp", there
        for writer in there:
            writer.close()


async def test_a_workspace_checks_a_few_servers_at_once_and_no_more(silent: tuple[str, list[asyncio.StreamWriter]]) -> None:
    """D-37: a check may be a process, or wait for 30 s; one more is refused, and places come back."""
    url, there = silent
    checker = ServerChecker(upstreams.open([]), timeout_s=20)
    running = [asyncio.create_task(checker.check(make_http_server(url, owner=None))) for _ in range(MAX_CONCURRENT_CHECKS)]
    await eventually(lambda: len(there) >= MAX_CONCURRENT_CHECKS)

    with pytest.raises(ServerBusy):
        await checker.check(make_http_server(url, owner=None))
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)
    again = asyncio.create_task(checker.check(make_http_server(url, owner=None)))
    await eventually(lambda: len(there) > MAX_CONCURRENT_CHECKS)

    again.cancel()
    await asyncio.gather(again, return_exceptions=True)
