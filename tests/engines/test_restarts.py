"""
A burst of requests right after a server restarted, which closed all idle connections of its clients.

That of counters is in `test_valkey_counters`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("qdrant_edge", reason="qdrant-edge-py has no wheel for this platform")

from sqlalchemy import func, literal_column, select

from rookery.engines import embedders, text_generators
from rookery.engines.texts.elastic import ElasticTextIndex
from rookery.engines.texts.elastic_connection import parse_address as parse_elastic_address
from rookery.engines.vectors.qdrant import QdrantIndex
from rookery.engines.vectors.qdrant_connection import parse_address as parse_qdrant_address
from rookery.kernel.db import open_database
from rookery.kernel.postgresql import PostgresConnection, PostgresPool
from rookery.memory.visibility import build_vector_filter
from rookery.notifications.messages import SendOutcome
from tests.chat_service import run_chat_service
from tests.deadlines import HANG_S
from tests.embedding_service import run_embedding_service
from tests.engines.channel_contract import MESSAGE
from tests.engines.conftest import EAST, make_document, make_embedded, make_filter
from tests.engines.smtp_service import run_smtp_service
from tests.engines.test_email_channel import RECIPIENT, open_channel
from tests.engines.text_contract import any_of
from tests.engines.text_generator_contract import make_request
from tests.fault_proxy import FaultProxy
from tests.postgres import PostgresServer, make_postgres_folder, run_postgres
from tests.qdrant_stand_in import run_qdrant_stand_in
from tests.search_servers import Kind, make_data_folder, run_search_node

pytestmark = pytest.mark.external_service

BURST = 40
_SLEEP = select(func.pg_sleep(literal_column("0.05")))

Call = Callable[[], Awaitable[object]]


@pytest.fixture(scope="module")
def postgres() -> Generator[PostgresServer]:
    """A server that the tests restart."""
    with make_postgres_folder() as folder, run_postgres(folder) as server:
        yield server


async def _burst(call: Call) -> list[str]:
    """Make the calls of a burst at once, and return the errors."""
    results = await asyncio.gather(*(call() for _ in range(BURST)), return_exceptions=True)
    return [f"{type(result).__name__}: {result}" for result in results if isinstance(result, BaseException)]


async def _burst_over_restart(call: Call, restart: Callable[[], object]) -> tuple[list[str], list[str]]:
    """Fill the pool of connections by a burst, restart the server, and return the errors of both bursts."""
    before = await _burst(call)
    await asyncio.to_thread(restart)
    return before, await _burst(call)


@contextmanager
def _restarting_proxy(port: int) -> Generator[tuple[FaultProxy, Callable[[], None]]]:
    """Run a proxy before a server, and yield it with a function after which the server seems to have restarted."""
    with FaultProxy(port) as proxy:

        def restart() -> None:
            proxy.refuse()
            proxy.reset()
            proxy.heal()

        yield proxy, restart


def _restart(server: PostgresServer) -> None:
    server.stop()
    server.start()


async def test_the_record_store_answers_right_after_postgresql_restarted(postgres: PostgresServer, tmp_path: Path) -> None:
    """Each connection is looked at before it is used, which costs no round trip."""
    async with _open_database(f"{postgres.url}/postgres", tmp_path) as call:
        assert await _burst_over_restart(call, lambda: _restart(postgres)) == ([], [])


@asynccontextmanager
async def _open_database(url: str, folder: Path) -> AsyncGenerator[Call]:
    """Open a record store, and yield a call that takes one of its connections for a moment."""
    db = open_database(url, data_dir=folder)
    try:
        yield lambda: db.lookup(lambda tx: tx.fetch_all(_SLEEP))
    finally:
        await db.close()


async def test_engines_of_derived_data_answer_right_after_postgresql_restarted(postgres: PostgresServer) -> None:
    """Before, each idle connection failed once, and three failures paused the engine."""
    pool = PostgresPool(f"{postgres.url}/postgres", engine="vectors", options={}, on_missing_table=lambda: None)

    async def work(connection: PostgresConnection) -> None:
        await connection.execute("SELECT pg_sleep(0.05)")

    try:
        assert await _burst_over_restart(lambda: pool.run(work), lambda: _restart(postgres)) == ([], [])
    finally:
        await pool.close()


async def test_qdrant_answers_right_after_its_restart() -> None:
    """Idle connections that were closed are not used."""
    with run_qdrant_stand_in() as server, _restarting_proxy(server.port) as (proxy, restart):
        address = parse_qdrant_address(f"qdrant://127.0.0.1:{proxy.port}")
        index = QdrantIndex(address, model="small/1", dimension=4, query_timeout_s=HANG_S, write_timeout_s=HANG_S)
        try:
            await index.put([make_embedded()])
            where = build_vector_filter(make_filter())
            assert await _burst_over_restart(lambda: index.search(EAST, where=where, limit=1), restart) == ([], [])
            assert await _burst_over_restart(lambda: index.put([make_embedded()]), restart) == ([], [])
        finally:
            await index.close()


@pytest.mark.parametrize("kind", ["opensearch", "elasticsearch"])
async def test_elasticsearch_answers_right_after_its_restart(kind: Kind) -> None:
    """Idle connections that were closed are not used."""
    with make_data_folder() as data, run_search_node(kind, data) as node, _restarting_proxy(node.port) as (proxy, restart):
        index = ElasticTextIndex(parse_elastic_address(f"elasticsearch://127.0.0.1:{proxy.port}/restarts"), query_timeout_s=HANG_S)
        try:
            await index.put([make_document()])
            where = make_filter()
            assert await _burst_over_restart(lambda: index.search(any_of("heron"), access_filter=where, limit=1), restart) == ([], [])
            assert await _burst_over_restart(lambda: index.put([make_document()]), restart) == ([], [])
        finally:
            await index.close()


async def test_an_embedding_service_answers_right_after_its_restart(tmp_path: Path) -> None:
    """Idle connections that were closed are not used."""
    with run_embedding_service() as service, _restarting_proxy(service.port) as (proxy, restart):
        url = service.openai_url().replace(f":{service.port}/", f":{proxy.port}/")
        embedder = embedders.open(url, data_dir=tmp_path, dimension=32)
        try:
            assert await _burst_over_restart(lambda: embedder.embed_query("The heron."), restart) == ([], [])
        finally:
            await embedder.close()


async def test_a_provider_of_text_answers_right_after_its_restart() -> None:
    """Idle connections that were closed are not used."""
    with run_chat_service() as service, _restarting_proxy(service.port) as (proxy, restart):
        generator = text_generators.open(service.url().replace(f":{service.port}/", f":{proxy.port}/"))
        try:
            assert await _burst_over_restart(lambda: generator.complete(make_request()), restart) == ([], [])
        finally:
            await generator.close()


async def test_an_smtp_server_accepts_mails_right_after_its_restart(tmp_path: Path) -> None:
    """Idle connections that were closed are not used, and no mail is sent twice."""
    async with run_smtp_service(tmp_path) as service:
        channel = open_channel(service)
        try:
            outcomes = list[SendOutcome]()

            async def send() -> None:
                outcomes.append((await channel.send(replace(MESSAGE, target=RECIPIENT))).outcome)

            first = await _burst(send)
            service.close_connections()
            second = await _burst(send)
        finally:
            await channel.close()

    assert (first, second, outcomes) == ([], [], [SendOutcome.SENT] * 2 * BURST)
    assert len(service.mails) == 2 * BURST
