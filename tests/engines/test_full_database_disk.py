"""The disk of the record store's PostgreSQL is full while 16 clients work."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import httpx2
import psycopg
import pytest

from rookery.migrations import migrate
from tests.conftest import SECRET_KEY, eventually
from tests.deadlines import HANG_S
from tests.embedding_service import run_embedding_service
from tests.engines.engine_clients import Clients
from tests.postgres import DURABLE_OPTIONS, PostgresServer, create_database, make_postgres_folder
from tests.processes import Server, run_server
from tests.small_disk import fill_disk, free_disk, mount_small_disks

pytestmark = pytest.mark.external_service

_SIZE_MIB = 96
_SETTINGS = {"vector_dimension": "32", "engine_timeout_ms": "60000", "log_format": "json", "secret_key": SECRET_KEY}
"""The time limit of engines is so long that a slow machine does not reach it."""
_HEALTHY = {"remember complete", "recall complete", "search complete"}
_READS_ONLY = {
    "recall New memories are found by meaning only: the full-text index",
    "recall New memories are found by words only: the vector index",
    "search New memories are found by meaning only: the full-text index",
}
"""The kinds of a recall and a search while the tables of the indexes cannot grow either."""
_MAX_WRITES = 2_000
"""Writes that surely fill what PostgreSQL has reserved on a full disk."""


@dataclass
class _Platform:
    """
    A server with one PostgreSQL for everything, whose data and whose write-ahead log are on small disks.

    Attributes:
        wrapper: What lets a command see the disks.
    """

    server: Server
    http: httpx2.AsyncClient
    postgres: PostgresServer
    wrapper: Sequence[str]
    data: Path
    wal: Path
    database_url: str

    async def remember(self, text: str) -> httpx2.Response:
        """Store a memory."""
        return await self.http.post("/v1/brain/remember", json={"content": text, "type": "fact"})

    async def fill(self, folder: Path) -> tuple[dict[str, str], httpx2.Response]:
        """Fill the disk of *folder* and write until a write is rejected. Return the ids of those stored, and the rejection."""
        fill_disk(self.wrapper, folder)
        stored = dict[str, str]()
        for number in range(_MAX_WRITES):
            text = f"{folder.name}{number} " + "ballast " * 200
            response = await self.remember(text)
            if not response.is_success:
                return stored, response
            stored[text] = str(response.json()["id"])
        pytest.fail("the disk does not become full")

    async def wait_until_healed(self, clients: Clients) -> None:
        """Wait until a round of requests has complete answers."""

        async def is_healed() -> bool:
            return (await clients.probe()).kinds.keys() == _HEALTHY

        await eventually(is_healed)

    async def wait_until_indexed(self) -> None:
        """Wait until no memory waits for indexing."""

        async def is_indexed() -> bool:
            return (await self.fetch("SELECT count(*) FROM memories WHERE indexed_at IS NULL")) == [(0,)]

        await eventually(is_indexed)

    async def fetch(self, statement: str) -> list[tuple[object, ...]]:
        """Run a query on the database."""
        async with await psycopg.AsyncConnection.connect(self.database_url, autocommit=True) as connection:
            return await (await connection.execute(statement.encode())).fetchall()


@pytest.fixture
async def platform(tmp_path: Path) -> AsyncIterator[_Platform]:
    """Run PostgreSQL on two small disks, and a server that has everything in it."""
    with ExitStack() as stack:
        folder = stack.enter_context(make_postgres_folder())
        data, wal = folder / "data", folder / "wal"
        data.mkdir()
        wal.mkdir()
        wrapper = stack.enter_context(mount_small_disks(data, wal, size_mib=_SIZE_MIB, is_root=False))
        postgres = PostgresServer(folder, DURABLE_OPTIONS, wrapper=wrapper, wal_directory=wal)
        stack.callback(postgres.stop)
        postgres.start()
        database = create_database(postgres.url, "records")
        migrate(database, data_dir=tmp_path)
        service = stack.enter_context(run_embedding_service())
        engines = {"database_url": database, "vectors": database, "texts": database, "embedder": service.openai_url()}
        server = stack.enter_context(run_server(tmp_path / "home", **engines, **_SETTINGS))  # pyright: ignore[reportArgumentType] - all are settings
        headers = {"Authorization": f"Bearer {server.keys['api_key']}"}
        limits = httpx2.Limits(max_connections=64)
        async with httpx2.AsyncClient(base_url=server.url, headers=headers, timeout=HANG_S, limits=limits) as http:
            yield _Platform(server, http, postgres, wrapper, data, wal, database)


async def test_a_full_disk_of_the_record_store_rejects_writes_and_loses_none(platform: _Platform) -> None:
    """
    Writes are a 507 while tables cannot grow, and reads work. Without room for its log, PostgreSQL stops, which is a 503.

    Both end when there is room again, after the second one when PostgreSQL runs again. Each acknowledged memory is stored.
    """
    clients = Clients(platform.http, "tables")
    async with clients.work():
        stored_meanwhile, full = await platform.fill(platform.data)
        await clients.work_during_fault()
        free_disk(platform.wrapper, platform.data)
    await platform.wait_until_healed(clients)
    await platform.wait_until_indexed()

    stopped_clients = Clients(platform.http, "log")
    async with stopped_clients.work():
        stored_before_stop, stopped = await platform.fill(platform.wal)
        await stopped_clients.work_during_fault()
        free_disk(platform.wrapper, platform.wal)
        platform.postgres.stop()
        platform.postgres.start()
    await platform.wait_until_healed(stopped_clients)

    acknowledged = clients.acknowledged | stored_meanwhile | stopped_clients.acknowledged | stored_before_stop
    stored = {memory_id for (memory_id,) in await platform.fetch("SELECT id FROM memories")}
    entries = [json.loads(line) for line in platform.server.log().splitlines() if line.startswith("{")]
    assert (full.status_code, full.json()["error"]) == (507, "storage_full")
    assert "disk of the PostgreSQL server is full" in full.json()["message"]
    assert "remember 507" in clients.during.kinds
    assert clients.during.kinds.keys() <= {"remember 507", *_READS_ONLY, *_HEALTHY}
    assert stopped.status_code in {503, 507}
    assert stopped_clients.during.kinds.keys() == {"remember 503 database", "recall 503 database", "search 503 database"}
    assert set(acknowledged.values()) <= stored
    assert [entry for entry in entries if entry["level"] in {"error", "critical"}] == []
