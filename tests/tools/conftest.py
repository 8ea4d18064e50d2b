"""The tools domain on an empty record store, its file in a folder of the test's own."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from rookery.access.audit_log import AuditLog
from rookery.access.store.workspaces import add_workspace
from rookery.engines import upstreams
from rookery.kernel.db import Database, open_database
from rookery.kernel.egress import EgressGuard
from rookery.kernel.sealing import KeySource, Sealer
from rookery.kernel.secret import Secret
from rookery.tools.servers.logins import Logins
from rookery.tools.store import logins as store
from tests.conftest import SECRET_KEY, FakeClock, eventually
from tests.tools.makers import Tools, build_tools, list_children
from tests.tools.oauth_server import OAuthServer, run_oauth_server

Start = Callable[..., Awaitable[Tools]]
MakeLogins = Callable[[], Awaitable[Logins]]


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
async def make_logins(database: Database, tmp_path: Path, clock: FakeClock) -> AsyncIterator[MakeLogins]:
    """Return a function that opens the logins of another process; the store has the workspaces 1 and 2."""
    all_logins: list[Logins] = []
    for name in ("one", "two"):
        await database.write(lambda tx, name=name: add_workspace(tx, name, parent_id=None, at=0))

    async def open_logins() -> Logins:
        sealer = Sealer(database, KeySource(tmp_path, configured=Secret(SECRET_KEY), previous=None), [store.SEALED_COLUMN], clock)
        await sealer.start()
        authorities = upstreams.authorities(EgressGuard(), clock=lambda: clock().timestamp())
        logins = Logins(database, sealer, AuditLog(database, clock), authorities, clock=clock)
        await logins.refresh()
        all_logins.append(logins)
        return logins

    yield open_logins
    for logins in all_logins:
        await logins.aclose()


@pytest.fixture
async def logins(make_logins: MakeLogins) -> Logins:
    """The logins of a process."""
    return await make_logins()


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
