"""The tools domain on an empty record store, its file in a folder of the test's own."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from rookery.kernel.db import Database, open_database
from tests.conftest import eventually
from tests.tools.makers import Tools, build_tools, list_children
from tests.tools.oauth_server import OAuthServer, run_oauth_server

Start = Callable[..., Awaitable[Tools]]


@pytest.fixture
async def db(data_dir: Path) -> AsyncIterator[Database]:
    """An empty embedded record store; test_store.py covers the dialects."""
    database = open_database("embedded:", data_dir=data_dir)
    yield database
    await database.close()


@pytest.fixture
def oauth_server() -> Iterator[OAuthServer]:
    """A server behind an authorisation server, for one test."""
    with run_oauth_server() as running:
        yield running


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The path of the servers file, which may not exist yet."""
    return tmp_path / "servers.json"


def write(file: Path, **servers: object) -> None:
    """Write the file of servers."""
    file.write_text(json.dumps({"mcpServers": servers}))


@pytest.fixture
async def start(db: Database, file: Path) -> AsyncIterator[Start]:
    """Start the domain with these entries in its file; it is closed at the end and must leave no process."""
    before = {child.pid for child in list_children()}
    async with AsyncExitStack() as stack:

        async def start_tools(servers: dict[str, object] | None = None, **options: object) -> Tools:
            if servers is not None:
                write(file, **servers)
            tools = build_tools(db, file, **options)  # pyright: ignore[reportArgumentType] - passed on unchanged
            stack.push_async_callback(tools.aclose)
            await tools.start()
            return tools

        yield start_tools
    await eventually(lambda: {child.pid for child in list_children()} <= before)
