"""Memory on an empty store of each dialect, and its API in this process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import httpx2
import pytest

from rookery.access.models import Caller, missing_scope_error
from rookery.kernel.db import Database
from rookery.kernel.http import EdgeMiddleware, mount_routes
from rookery.kernel.http.routes import RouteTable
from tests.conftest import FakeClock
from tests.guards import FakeGuard
from tests.memory.makers import MemoryRig, build_rig, make_agent, make_caller, make_memory_api


@pytest.fixture
async def rig(database: Database, data_dir: Path, clock: FakeClock) -> AsyncIterator[MemoryRig]:
    """Yield the memory domain on an empty store of each dialect in turn."""
    rig = build_rig(database, data_dir, clock)
    yield rig
    await rig.close()


@pytest.fixture
def guard() -> FakeGuard:
    """Return a guard for callers of two workspaces, two agents, a key limited to one org, and a test key with its sandbox workspace."""
    callers = {
        "admin": make_caller(),
        "stranger": make_caller(workspace_id=2, public_workspace_id=2),
        "kim": make_agent("kim"),
        "lee": make_agent("lee"),
        "reader": make_caller(scopes=frozenset({"brain:read"})),
        "acme": make_caller(orgs=frozenset({"acme"})),
        "twin": make_caller(workspace_id=9, public_workspace_id=1, environment="test"),
    }

    def find_caller(headers: Mapping[bytes, bytes], required_scope: str | None) -> Caller:
        caller = callers[headers.get(b"x-test-caller", b"admin").decode()]
        if required_scope is not None and not caller.has_scope(required_scope):
            raise missing_scope_error(caller.key_kind, required_scope)
        return caller

    return FakeGuard(find_caller)


@pytest.fixture
async def api(rig: MemoryRig, guard: FakeGuard) -> AsyncIterator[httpx2.AsyncClient]:
    """Yield a client of the memory API. The header X-Test-Caller names the caller; the default is `admin`."""
    routes = RouteTable()
    mount_routes(routes, "/v1/brain", make_memory_api(rig).operations(), guard)
    app = EdgeMiddleware(
        endpoints_by_path=routes.endpoints_by_path,
        router=routes.router,
        hosts={"rookery.test"},
        origins={"http://rookery.test"},
        public_url=lambda path: "https://shown.example",
    )
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://rookery.test/v1/brain") as client:
        yield client
