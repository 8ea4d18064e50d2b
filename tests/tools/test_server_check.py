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
    """The URL of a server that accepts every connection and sends nothing, and its connections."""
    writers: list[asyncio.StreamWriter] = []

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        await reader.read()
        writer.close()

    async with await asyncio.start_server(accept, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}/mcp", writers
        for writer in writers:
            writer.close()


async def test_the_concurrent_checks_of_a_workspace_are_limited(silent: tuple[str, list[asyncio.StreamWriter]]) -> None:
    """A check may be a process, or wait for 30 s; a check over the limit is rejected, and finished ones free their slots."""
    url, writers = silent
    checker = ServerChecker(upstreams.open([]), timeout_s=20)
    running = [asyncio.create_task(checker.check(make_http_server(url, owner=None))) for _ in range(MAX_CONCURRENT_CHECKS)]
    await eventually(lambda: len(writers) >= MAX_CONCURRENT_CHECKS)

    with pytest.raises(ServerBusy):
        await checker.check(make_http_server(url, owner=None))
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)
    another = asyncio.create_task(checker.check(make_http_server(url, owner=None)))
    await eventually(lambda: len(writers) > MAX_CONCURRENT_CHECKS)

    another.cancel()
    await asyncio.gather(another, return_exceptions=True)
