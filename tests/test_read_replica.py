"""A read replica of the record store: a real streaming replica of PostgreSQL."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import psycopg
import pytest
from sqlalchemy import Integer, cast, func, insert, select

from rookery.kernel.config import Settings
from rookery.kernel.db import Database, fetch_count, open_database
from rookery.kernel.errors import WrongSettings
from rookery.kernel.ids import uuid7
from rookery.kernel.jobs import jobs
from rookery.kernel.request_context import CURRENT_REQUEST, RequestContext
from rookery.kernel.secret import Secret
from rookery.migrations import migrate
from tests.conftest import Caller, eventually, run_instance
from tests.memory.makers import make_caller
from tests.postgres import REPLICATION_OPTIONS, create_database, make_postgres_folder, start_postgres, start_replica

T = TypeVar("T")

_INSERT = insert(jobs)
_JOB = {"kind": "K", "workspace_id": 1, "payload": "{}", "attempts": 0, "run_at": 0, "created_at": 0}
_COUNT = select(func.count()).select_from(jobs)
_IS_REPLICA = select(cast(func.pg_is_in_recovery(), Integer))

pytestmark = pytest.mark.external_service


@dataclass(frozen=True)
class Servers:
    """The addresses of a migrated database on a primary and on its replica."""

    primary: str
    replica: str


@pytest.fixture(scope="module")
def servers() -> Generator[Servers]:
    """A primary and a streaming replica of it."""
    with (
        make_postgres_folder() as first,
        make_postgres_folder() as second,
        start_postgres(first, REPLICATION_OPTIONS) as primary,
        start_replica(second, primary) as replica,
    ):
        migrate(create_database(primary, "records"), data_dir=first)
        yield Servers(f"{primary}/records", f"{replica}/records")


@pytest.fixture
async def store(servers: Servers, tmp_path: Path) -> AsyncIterator[Database]:
    """A record store with a replica that may lag by a second."""
    db = open_database(servers.primary, data_dir=tmp_path, replica_url=servers.replica, max_replica_lag_s=1)
    yield db
    await db.close()


async def _is_on_replica(store: Database) -> bool:
    return await store.read_from_replica(lambda tx: fetch_count(tx, _IS_REPLICA)) == 1


async def _is_on_primary(store: Database) -> bool:
    return not await _is_on_replica(store)


async def _count(store: Database) -> int:
    return await store.read_from_replica(lambda tx: fetch_count(tx, _COUNT))


async def _add(store: Database) -> None:
    row = {"id": uuid7(), **_JOB}
    await store.write(lambda tx: tx.execute(_INSERT, row))


async def test_a_list_has_the_writes_of_its_process(store: Database) -> None:
    """The replica serves lists, but none without the last write."""
    before = await _count(store)
    for number in range(1, 11):
        await eventually(lambda: _is_on_replica(store))
        assert await _count(store) == before + number - 1
        await _add(store)
        assert await _is_on_primary(store)
        assert await _count(store) == before + number
    for read in (store.read, store.lookup):
        assert await read(lambda tx: fetch_count(tx, _IS_REPLICA)) == 0


async def test_writes_of_others_do_not_keep_a_request_from_the_replica(store: Database) -> None:
    """A busy server writes all the time. Only writes by requests of the same workspace count for a list that a request reads."""

    async def run_request(workspace_id: int, work: Callable[[], Awaitable[T]]) -> T:
        CURRENT_REQUEST.set(RequestContext("a request", {"caller": replace(make_caller(), public_workspace_id=workspace_id)}))
        return await work()

    async def is_on_replica_while_others_write() -> bool:
        await asyncio.gather(_add(store), asyncio.create_task(run_request(2, lambda: _add(store))))
        return await asyncio.create_task(run_request(1, lambda: _is_on_replica(store)))

    await eventually(is_on_replica_while_others_write)
    await asyncio.create_task(run_request(1, lambda: _add(store)))
    assert not await asyncio.create_task(run_request(1, lambda: _is_on_replica(store)))


async def test_a_replica_that_lags_more_than_its_bound_serves_nothing(store: Database, servers: Servers) -> None:
    """The primary serves while the replica lags by more than the set bound, also for commits of other processes."""
    await eventually(lambda: _is_on_replica(store))
    async with (
        await psycopg.AsyncConnection.connect(servers.primary, autocommit=True) as primary,
        await psycopg.AsyncConnection.connect(servers.replica, autocommit=True) as replica,
    ):
        before = await _count(store)
        await replica.execute("SELECT pg_wal_replay_pause()")
        try:
            await primary.execute(
                "INSERT INTO jobs (id, kind, workspace_id, payload, attempts, run_at, created_at) VALUES (%s, 'K', 1, '{}', 0, 0, 0)",
                [uuid7()],
            )
            await eventually(lambda: _is_on_primary(store))
            assert await _count(store) == before + 1
            for _ in range(20):
                assert await _is_on_primary(store)
        finally:
            await replica.execute("SELECT pg_wal_replay_resume()")
        await eventually(lambda: _is_on_replica(store))
        assert await _count(store) == before + 1


async def test_without_the_replica_the_primary_serves(store: Database, servers: Servers, tmp_path: Path) -> None:
    """A replica that is down, or whose connections break, fails no read."""
    await eventually(lambda: _is_on_replica(store))
    async with await psycopg.AsyncConnection.connect(servers.replica, autocommit=True) as replica:
        for _ in range(5):
            await replica.execute(
                "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = 'records' AND pid <> pg_backend_pid()"
            )
            assert await _count(store) >= 0
    await eventually(lambda: _is_on_replica(store))

    nowhere = open_database(servers.primary, data_dir=tmp_path, replica_url="postgresql://postgres@127.0.0.1:1/records")
    for _ in range(5):
        assert await _is_on_primary(nowhere)
    await nowhere.close()


async def test_lists_over_http_are_those_of_the_tenant(servers: Servers, settings: Settings) -> None:
    """A client finds what it has stored in the list that it requests next, and no other workspace does."""
    settings = replace(settings, database_url=Secret(servers.primary), database_replica=Secret(servers.replica))
    async with run_instance(settings) as instance:
        other = await instance.api_key(workspace_id=await instance.workspace("other"))
        for number in range(3):
            await instance.admin.remember(f"We deploy on Tuesdays at {number}.")
            assert await _count_memories(instance.admin) == number + 1
        await eventually(lambda: _is_on_replica(instance.rookery.db))
        assert await _count_memories(instance.admin) == 3
        assert await _count_memories(other) == 0


async def _count_memories(caller: Caller) -> int:
    return len((await caller.get("/v1/brain/memories")).json()["data"])


def test_a_replica_needs_a_primary(tmp_path: Path) -> None:
    """Settings that contradict each other stop the start."""
    for url, replica_url in (("embedded:", "postgresql://a/b"), ("postgresql://a/b", "embedded:")):
        with pytest.raises(WrongSettings, match="ROOKERY_DATABASE_REPLICA"):
            open_database(url, data_dir=tmp_path, replica_url=replica_url)


@pytest.fixture
def database_url(servers: Servers) -> str:
    """The address of the record store of `settings`."""
    return servers.primary
