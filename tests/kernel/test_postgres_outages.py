"""The record store on PostgreSQL while the server cannot be reached, and after that."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest
from psycopg import sql
from sqlalchemy import func, insert, literal, literal_column, select

from rookery.kernel.config import Settings
from rookery.kernel.db import Database, Tx, open_database
from rookery.kernel.db.instrumented import InstrumentedDatabase
from rookery.kernel.db.postgresql import PostgresDatabase
from rookery.kernel.engine_breakers import EngineBreakers
from rookery.kernel.errors import EngineReadOnly, EngineUnavailable
from rookery.kernel.jobs import jobs
from rookery.kernel.metrics import Metrics
from rookery.kernel.postgresql import PostgresConnection, PostgresPool
from rookery.kernel.secret import Secret
from tests.conftest import eventually
from tests.deadlines import HANG_S
from tests.fault_proxy import FaultProxy
from tests.stopwatch import Stopwatch

pytestmark = pytest.mark.external_service

_SELECT_ONE = select(literal(1).label("one"))
_SELECT_PROCESS = select(func.pg_backend_pid().label("process"), func.pg_sleep(literal_column("0.1")))
_SLEEP = select(func.pg_sleep(literal_column("4")))
_POOL_SIZE = 10
_INSERT = insert(jobs)
_SELECT_READY = select(jobs.c.id).with_for_update(skip_locked=True)
_JOB = {"id": "a", "kind": "K", "workspace_id": 1, "payload": "heron", "attempts": 0, "run_at": 0, "created_at": 0}


@pytest.fixture
def proxy(postgres_database: str) -> Iterator[FaultProxy]:
    """A proxy in front of the server."""
    with FaultProxy(urlsplit(postgres_database).port or 5432) as proxy:
        yield proxy


@pytest.fixture
def url(postgres_database: str, proxy: FaultProxy) -> str:
    """The address of the database through the proxy."""
    parts = urlsplit(postgres_database)
    return parts._replace(netloc=f"{parts.username}@127.0.0.1:{proxy.port}").geturl()


@pytest.fixture
async def store(url: str, proxy: FaultProxy, tmp_path: Path) -> AsyncIterator[Database]:
    """A record store behind the proxy."""
    db = open_database(url, data_dir=tmp_path)
    assert isinstance(db, PostgresDatabase)
    await _ask(db)
    yield db
    proxy.heal()
    await db.close()


async def _ask(db: Database) -> int:
    row = await db.lookup(lambda tx: tx.fetch_one(_SELECT_ONE))
    assert row is not None
    return row.integer("one")


async def test_a_lost_connection_ends_its_statement_and_is_replaced(url: str, proxy: FaultProxy, postgres_database: str) -> None:
    """The server works, and new connections too, but nothing arrives on those that are open."""
    del postgres_database
    store = PostgresDatabase(url, statement_timeout_s=1)

    async def all_connections_are_open() -> bool:
        rows = await asyncio.gather(*(store.lookup(lambda tx: tx.fetch_one(_SELECT_PROCESS)) for _ in range(_POOL_SIZE)))
        return len({row.integer("process") for row in rows if row is not None}) == _POOL_SIZE

    await eventually(all_connections_are_open)
    proxy.freeze()
    async with asyncio.timeout(HANG_S):
        outcomes = await asyncio.gather(*(_ask(store) for _ in range(_POOL_SIZE)), return_exceptions=True)
        answers = await asyncio.gather(*(_ask(store) for _ in range(_POOL_SIZE)))
    proxy.heal()
    await store.close()

    assert {str(outcome).partition(" for ")[0] for outcome in outcomes} == {
        "The database engine is unavailable: a statement has had no answer"
    }
    assert answers == [1] * _POOL_SIZE


async def test_a_lost_network_ends_transactions_in_bounded_time_and_the_pool_recovers(store: Database, proxy: FaultProxy) -> None:
    """More transactions than connections: each fails, none hangs; after that all connections work again without a restart."""
    proxy.partition()
    async with asyncio.timeout(HANG_S):
        outcomes = await asyncio.gather(*(_ask(store) for _ in range(_POOL_SIZE + 6)), return_exceptions=True)
    proxy.heal()

    async def all_connections_work() -> bool:
        answers = await asyncio.gather(*(_ask(store) for _ in range(_POOL_SIZE)), return_exceptions=True)
        return answers == [1] * _POOL_SIZE

    await eventually(all_connections_work)
    assert {type(outcome) for outcome in outcomes} == {EngineUnavailable}
    assert {str(outcome) for outcome in outcomes} == {"The database engine is unavailable: no answer within 3 s"}


async def test_a_slow_statement_of_a_healthy_server_is_not_given_up(store: Database) -> None:
    """The server answers on a second connection, so the statement is only slow."""
    with Stopwatch() as stopwatch:
        assert await store.read(lambda tx: tx.fetch_one(_SLEEP)) is not None

    assert stopwatch.elapsed_s >= 4


async def test_refused_and_reset_connections_are_opened_again(store: Database, proxy: FaultProxy) -> None:
    """A server that restarts: its clients get an error at once, and the next request after the restart works."""
    proxy.refuse()
    proxy.reset()
    for _ in range(3):
        with pytest.raises(EngineUnavailable):
            await _ask(store)
    proxy.heal()

    assert await _ask(store) == 1


async def test_requests_do_not_wait_for_a_lost_record_store(store: Database, url: str, proxy: FaultProxy, tmp_path: Path) -> None:
    """After three failures each request fails at once, and the next one after the pause finds the healed store."""
    now_s = [0.0]
    settings = Settings(data_dir=tmp_path, database_url=Secret(url))
    breaker = EngineBreakers(settings, monotonic=lambda: now_s[0]).database
    guarded = InstrumentedDatabase(store, Metrics(), breaker=breaker)
    proxy.partition()
    outcomes = await asyncio.gather(*(_ask(guarded) for _ in range(3)), return_exceptions=True)
    checks = proxy.connection_count
    for _ in range(20):
        with pytest.raises(EngineUnavailable) as error:
            await _ask(guarded)
        assert error.value.headers == {"Retry-After": "2"}
    assert proxy.connection_count == checks
    proxy.heal()
    now_s[0] += 2

    assert {type(outcome) for outcome in outcomes} == {EngineUnavailable}
    assert await _ask(guarded) == 1
    assert EngineBreakers(Settings()).database is None, "a file needs none"


async def test_an_address_may_set_what_rookery_sets_too(postgres_database: str) -> None:
    """Addresses of managed servers often have a time-out."""
    store = PostgresDatabase(f"{postgres_database}?connect_timeout=5&keepalives_idle=30&application_name=heron")
    answer = await _ask(store)
    await store.close()

    assert answer == 1


async def test_a_transaction_that_the_server_ends_is_unavailable_and_the_next_one_works(postgres_database: str) -> None:
    """An operator has set idle_in_transaction_session_timeout, and the process slept between two statements."""
    store = PostgresDatabase(f"{postgres_database}?options=-c%20idle_in_transaction_session_timeout%3D100")

    def pause(tx: Tx) -> None:
        tx.fetch_one(_SELECT_ONE)
        time.sleep(0.5)  # as a stopped process does
        tx.fetch_one(_SELECT_ONE)

    with pytest.raises(EngineUnavailable):
        await store.read(pause)
    answer = await _ask(store)
    await store.close()

    assert answer == 1


def _make_read_only(database: str, *, is_read_only: bool) -> None:
    """Let new sessions of *database* accept only reads, or writes too, and end the others. A session keeps what it began with."""
    parts = urlsplit(database)
    name = parts.path.removeprefix("/")
    with psycopg.connect(parts._replace(path="/postgres").geturl(), autocommit=True) as connection:
        option = sql.SQL("SET default_transaction_read_only = on" if is_read_only else "RESET default_transaction_read_only")
        connection.execute(sql.SQL("ALTER DATABASE {} {}").format(sql.Identifier(name), option))
        if is_read_only:
            ended = "SELECT pg_terminate_backend(pid, 30000) FROM pg_stat_activity WHERE datname = %s"
            connection.execute(ended, [name])


async def test_a_server_that_accepts_only_reads_is_unavailable_for_writes_until_it_accepts_them(
    store: Database, postgres_database: str, tmp_path: Path
) -> None:
    """
    PostgreSQL is a standby after a failover, or its operator has made it read-only.

    Reads go on, and are not paused because of the writes. Sessions that began meanwhile stay read-only, so they are replaced.
    """
    breaker = EngineBreakers(Settings(data_dir=tmp_path, database_url=Secret(postgres_database))).database
    guarded = InstrumentedDatabase(store, Metrics(), breaker=breaker)

    async def write() -> int:
        return await guarded.write(lambda tx: tx.execute(_INSERT, _JOB))

    _make_read_only(postgres_database, is_read_only=True)
    for _ in range(5):
        with pytest.raises(EngineReadOnly, match="The database engine is unavailable: PostgreSQL accepts only reads"):
            await write()
        with pytest.raises(EngineReadOnly):
            await guarded.lookup(lambda tx: tx.fetch_one(_SELECT_READY))
    answers = await asyncio.gather(*(_ask(guarded) for _ in range(_POOL_SIZE)))
    _make_read_only(postgres_database, is_read_only=False)

    async def is_written() -> bool:
        try:
            return await write() == 1
        except EngineReadOnly:
            return False

    await eventually(is_written)
    assert answers == [1] * _POOL_SIZE


@pytest.fixture
async def pool(postgres_empty: str) -> AsyncIterator[PostgresPool]:
    """Connections of an engine of derived data."""
    pool = PostgresPool(postgres_empty, engine="vectors", options={}, on_missing_table=lambda: None)
    yield pool
    await pool.close()


async def test_engines_of_derived_data_connect_again_after_a_refusal_of_writes(pool: PostgresPool, postgres_empty: str) -> None:
    """The vectors and full texts in PostgreSQL heal by themselves too."""

    async def write(connection: PostgresConnection) -> None:
        await connection.execute("CREATE TABLE IF NOT EXISTS written (id integer)")

    await pool.run(write)
    _make_read_only(postgres_empty, is_read_only=True)

    async def is_refused() -> bool:
        try:
            await pool.run(write)
        except EngineReadOnly:
            return True
        except EngineUnavailable:  # a connection that PostgreSQL has ended
            return False
        return False

    await eventually(is_refused)
    _make_read_only(postgres_empty, is_read_only=False)
    await eventually(lambda: _succeeds(pool, write))


async def _succeeds(pool: PostgresPool, work: Callable[[PostgresConnection], Awaitable[None]]) -> bool:
    try:
        await pool.run(work)
    except EngineUnavailable:
        return False
    return True


async def test_an_unexpected_error_of_postgresql_has_no_values(store: Database) -> None:
    """The error is logged, and the values of a statement may be the content of a memory."""
    with pytest.raises(psycopg.DataError) as error:
        await store.write(lambda tx: tx.execute(_INSERT, {**_JOB, "workspace_id": "nest"}))
    with pytest.raises(psycopg.DataError) as many:
        await store.write(lambda tx: tx.execute_many(_INSERT, [{**_JOB, "run_at": 2**70}, {**_JOB, "id": "b"}]))

    assert "heron" not in str(error.value)
    assert "heron" not in str(many.value)
