"""Memory on an empty store of each dialect, and its API in this process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest
from fastapi import FastAPI

from rookery.kernel.db import Database
from rookery.kernel.http import EdgeMiddleware, mount_routes
from rookery.kernel.http.edge import respond_not_found
from rookery.kernel.http.routes import RouteTable
from rookery.memory.api import MemoryApi
from tests.conftest import FakeClock
from tests.memory.makers import FakeGuard, MemoryRig, build_rig, make_agent, make_caller


@pytest.fixture
async def rig(database: Database, data_dir: Path, clock: FakeClock) -> AsyncIterator[MemoryRig]:
    """Memory on an empty store of each dialect in turn."""
    built = build_rig(database, data_dir, clock)
    yield built
    await built.close()


@pytest.fixture
def guard() -> FakeGuard:
    """The known callers: two workspaces, two agents, a key of one org, and the sandbox twin of a test key."""
    return FakeGuard(
        {
            "admin": make_caller(),
            "stranger": make_caller(workspace_id=2, public_workspace_id=2),
            "kim": make_agent("kim"),
            "lee": make_agent("lee"),
            "reader": make_caller(scopes=frozenset({"brain:read"})),
            "acme": make_caller(orgs=frozenset({"acme"})),
            "twin": make_caller(workspace_id=9, public_workspace_id=1, environment="test"),
        }
    )


@pytest.fixture
async def api(rig: MemoryRig, guard: FakeGuard) -> AsyncIterator[httpx2.AsyncClient]:
    """A client of the memory API; the header X-Test-Caller says as whom, `admin` without it."""
    brain = rig.services
    memory = MemoryApi(
        remember=brain.remember,
        records=brain.records,
        recall=brain.recall,
        search=brain.search,
        listing=brain.listing,
        feedback=brain.feedback,
        context=brain.context,
        serializer=brain.serializer,
    )
    mounted = RouteTable(FastAPI())
    mount_routes(mounted, "/v1/brain", memory.routes(), guard)
    mounted.app.router.default = respond_not_found
    shell = EdgeMiddleware(
        endpoints_by_path=mounted.endpoints_by_path,
        router=mounted.app.router,
        hosts={"rookery.test"},
        origins={"http://rookery.test"},
        public_url=lambda path: "https://shown.example",
    )
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(shell), base_url="http://rookery.test/v1/brain") as client:
        yield client
