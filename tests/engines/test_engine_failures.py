"""Each engine fails while 16 clients work. Nothing acknowledged is lost, and the platform heals by itself."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import psycopg
import pytest
import redis.asyncio

from rookery.engines.vectors.pgvector import PgvectorIndex
from rookery.migrations import migrate
from tests.conftest import eventually
from tests.deadlines import HANG_S
from tests.embedding_service import run_embedding_service
from tests.engines.engine_clients import COUNTED_LOCALLY, Clients
from tests.fault_proxy import FaultProxy
from tests.postgres import DURABLE_OPTIONS, PostgresServer, create_database, free_port, make_postgres_folder, run_postgres
from tests.processes import Server, get_environment, run_rookery, run_server
from tests.search_servers import make_data_folder, run_search_node
from tests.valkey import run_valkey

pytestmark = pytest.mark.external_service

_ENGINE_TIMEOUT_MS = 1000
_DIMENSION = 32
_LATENCY_S = 0.8
"""Above half of the time limit, so that a round trip exceeds it."""
_SHORT_LATENCY_S = 0.01
_HALF_ANSWERS_BYTES = {"texts": 150, "counters": 10, "database": 200}

_SECRET_KEY = "hE5Yk1b1m1cX0b9q2nJc8Qw4TzR7uVfA3sLdKpGyMxI="

_HEALTHY = frozenset({"remember complete", "recall complete", "search complete"})
_DEGRADED_KINDS: Mapping[str, frozenset[str]] = {
    "texts": frozenset(
        {
            "recall by meaning only: the full-text index",
            "recall New memories are found by meaning only: the full-text index",
            "search 503 texts",
            "search New memories are found by meaning only: the full-text index",
        }
    ),
    "vectors": frozenset({"recall by keywords only: the vector index", "recall New memories are found by words only: the vector index"}),
    "embedder": frozenset({"recall by keywords only: the embedder"}),
    "counters": frozenset({COUNTED_LOCALLY}),
    "database": frozenset({"remember 503 database", "recall 503 database", "search 503 database"}),
}
"""The kinds of answers while an engine has a fault, besides complete ones (docs/how-to/engine-failures.md)."""

_RECALL_FAILED = frozenset({"recall 503 texts", "recall 503 vectors"})
"""The kinds of a recall that found neither by words nor by meaning: engines of both sides failed."""

_KINDS_ON_A_SLOW_HOST = _RECALL_FAILED | frozenset(
    kind for engine, kinds in _DEGRADED_KINDS.items() if engine != "database" for kind in kinds
)
"""Kinds that are always possible, because time limits do not know how slow the host of the tests is."""

_MAX_RECALLED = 48
"""Acknowledged memories that are recalled after the faults of an engine. The presence of all is checked in the stores."""


Step = Callable[[], Awaitable[object]]


@dataclass(frozen=True)
class _Fault:
    """
    A fault of an engine.

    Attributes:
        is_total: The engine answers nothing in time, so that some answers must be degraded.
        is_long: It runs only with `--long`: another engine, or another fault of this one, takes the same way through the product.
    """

    engine: str
    name: str
    begin: Step
    end: Step
    is_total: bool = True
    is_long: bool = False


class _SearchNode:
    """An OpenSearch that can be killed and started again with its data."""

    def __init__(self, folder: Path, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self._folder = folder
        self._port = port
        self._running = ExitStack()

    def start(self) -> None:
        """Start it, and wait until it has its indices."""
        self._running.enter_context(run_search_node("opensearch", self._folder, port=self._port))

    def stop(self) -> None:
        """Kill it."""
        self._running.close()


class _Valkey:
    """A Valkey that can be killed and started again with its data."""

    def __init__(self, folder: Path, port: int) -> None:
        self._folder = folder
        self._port = port
        self._running = ExitStack()

    def start(self) -> None:
        """Start it."""
        self._running.enter_context(run_valkey(self._folder, port=self._port))

    def stop(self) -> None:
        """Kill it."""
        self._running.close()

    async def limit_memory(self, size: int) -> None:
        """Reject writes beyond *size* bytes; 0 allows all."""
        async with redis.asyncio.Redis(port=self._port) as client:
            await client.execute_command("CONFIG", "SET", "maxmemory", size)  # pyright: ignore[reportUnknownMemberType] - untyped


@dataclass
class _Platform:
    """A server whose engines are all behind proxies."""

    server: Server
    http: httpx2.AsyncClient
    proxies: Mapping[str, FaultProxy]
    database_url: str
    settings: Mapping[str, str]
    node: _SearchNode
    valkey: _Valkey
    postgres: PostgresServer
    acknowledged: dict[str, str] = field(default_factory=dict[str, str])

    async def fetch(self, statement: str) -> list[tuple[object, ...]]:
        """Run a statement on the database, past the proxies."""
        async with await psycopg.AsyncConnection.connect(self.database_url, autocommit=True) as connection:
            cursor = await connection.execute(statement.encode())
            return await cursor.fetchall() if cursor.description else []

    async def count_indexed(self) -> tuple[int, int, int]:
        """Return the numbers of records, of documents in the full-text index, and of memories in the vector index."""
        ((records, model, workspace_id),) = await self.fetch("SELECT count(*), max(indexed_model), max(workspace_id) FROM memories")
        async with httpx2.AsyncClient(base_url=self.node.url, timeout=HANG_S) as client:
            await client.post("/rookery-memories/_refresh")
            texts = (await client.get("/rookery-memories/_count")).json()["count"]
        vectors = PgvectorIndex(self.database_url, model=str(model), dimension=_DIMENSION)
        try:
            return int(str(records)), texts, await vectors.count(int(str(workspace_id)))
        finally:
            await vectors.close()

    async def refuse(self, engine: str) -> None:
        """Close the connections of *engine* and refuse new ones."""
        self.proxies[engine].refuse()
        self.proxies[engine].reset()

    async def partition(self, engine: str) -> None:
        """Let nothing pass to and from *engine*."""
        self.proxies[engine].partition()

    async def delay(self, engine: str, latency_s: float) -> None:
        """Slow *engine* down."""
        self.proxies[engine].latency_s = latency_s

    async def cut(self, engine: str) -> None:
        """Let only a part of each answer of *engine* pass."""
        self.proxies[engine].cut_after_bytes = _HALF_ANSWERS_BYTES[engine]
        self.proxies[engine].reset()

    async def heal(self, engine: str) -> None:
        """End the faults of *engine*."""
        self.proxies[engine].heal()

    async def end_sessions(self) -> None:
        """Let PostgreSQL end all sessions of the server, as it does when it stops."""
        await self.fetch(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )

    async def block_writes(self) -> None:
        """Let the full-text index reject writes, as a server does whose disk is full."""
        await self._set_block(value=True)

    async def allow_writes(self) -> None:
        """Let the full-text index accept writes again."""
        await self._set_block(value=None)

    async def _set_block(self, *, value: bool | None) -> None:
        async with httpx2.AsyncClient(base_url=self.node.url, timeout=HANG_S) as client:
            body = {"index.blocks.read_only_allow_delete": value}
            (await client.put("/rookery-memories/_settings", json=body)).raise_for_status()

    async def wait_until_indexed(self) -> None:
        """Wait until no memory waits for indexing."""

        async def is_idle() -> bool:
            ((waiting,),) = await self.fetch(
                "SELECT (SELECT count(*) FROM jobs) + (SELECT count(*) FROM memories WHERE indexed_at IS NULL)"
            )
            return waiting == 0

        await eventually(is_idle)

    async def wait_until_cleaned(self) -> None:
        """Wait until the words of memories that were not stored are removed, which the server tries again without a job."""

        async def has_equal_counts() -> bool:
            return len(set(await self.count_indexed())) == 1

        await eventually(has_equal_counts)


@pytest.fixture
async def platform(tmp_path: Path) -> AsyncIterator[_Platform]:
    """Run the engines, which keep each write that they have acknowledged, their proxies and a server."""
    with ExitStack() as stack:
        postgres = stack.enter_context(run_postgres(stack.enter_context(make_postgres_folder()), DURABLE_OPTIONS))
        records = create_database(postgres.url, "records")
        migrate(records, data_dir=tmp_path)
        parts = urlsplit(records)
        node_port, valkey_port = free_port(), free_port()
        node = _SearchNode(stack.enter_context(make_data_folder()), node_port)
        stack.callback(node.stop)
        node.start()
        service = stack.enter_context(run_embedding_service())
        targets = {
            "texts": node_port,
            "vectors": parts.port or 5432,
            "embedder": service.port,
            "counters": valkey_port,
            "database": parts.port or 5432,
        }
        proxies = {name: stack.enter_context(FaultProxy(port)) for name, port in targets.items()}

        def database_url(name: str) -> str:
            return parts._replace(netloc=f"{parts.username}@127.0.0.1:{proxies[name].port}").geturl()

        settings = {
            "database_url": database_url("database"),
            "vectors": database_url("vectors"),
            "texts": f"opensearch://127.0.0.1:{proxies['texts'].port}",
            "counters": f"redis://127.0.0.1:{proxies['counters'].port}",
            "embedder": service.openai_url().replace(str(service.port), str(proxies["embedder"].port)),
            "vector_dimension": str(_DIMENSION),
            "engine_timeout_ms": str(_ENGINE_TIMEOUT_MS),
            "secret_key": _SECRET_KEY,
            "log_format": "json",
        }
        (tmp_path / "valkey").mkdir()
        valkey = _Valkey(tmp_path / "valkey", valkey_port)
        stack.callback(valkey.stop)
        valkey.start()
        server = stack.enter_context(run_server(tmp_path / "home", **settings))  # pyright: ignore[reportArgumentType] - all are settings
        created = server.client.post(
            "/api/v1/agent-keys", json={"name": "c", "permissions": ["brain:read", "brain:write"], "rate_limit": 1_000_000}
        )
        assert created.status_code == 201, created.text
        headers = {"Authorization": f"Bearer {created.json()['key']}"}
        async with httpx2.AsyncClient(
            base_url=server.url, headers=headers, timeout=HANG_S, limits=httpx2.Limits(max_connections=64)
        ) as http:
            yield _Platform(server, http, proxies, records, settings, node, valkey, postgres)
        for proxy in proxies.values():
            proxy.heal()


def _list_faults(platform: _Platform, engine: str) -> list[_Fault]:
    """Return the faults of an engine."""
    heal = partial(platform.heal, engine)
    faults = [
        _Fault(engine, "refused", partial(platform.refuse, engine), heal, is_long=engine == "counters"),
        _Fault(engine, "partition", partial(platform.partition, engine), heal),
    ]
    if engine in _HALF_ANSWERS_BYTES:
        faults.append(_Fault(engine, "half", partial(platform.cut, engine), heal, is_long=engine in {"texts", "counters"}))
    if engine == "database":
        slow = partial(platform.delay, engine, _SHORT_LATENCY_S)
        return [
            *faults,
            _Fault(engine, "slow", slow, heal, is_total=False),
            _Fault(engine, "ended", platform.end_sessions, heal, is_total=False),
            _Fault(
                engine, "killed", partial(asyncio.to_thread, platform.postgres.kill), partial(asyncio.to_thread, platform.postgres.start)
            ),
        ]
    faults.append(_Fault(engine, "slow", partial(platform.delay, engine, _LATENCY_S), heal, is_long=engine != "texts"))
    if engine == "texts":
        node = platform.node
        faults += [
            _Fault(engine, "full", platform.block_writes, platform.allow_writes, is_total=False),
            _Fault(engine, "killed", partial(asyncio.to_thread, node.stop), partial(asyncio.to_thread, node.start)),
        ]
    if engine == "counters":
        valkey = platform.valkey
        faults += [
            _Fault(engine, "full", partial(valkey.limit_memory, 1), partial(valkey.limit_memory, 0)),
            _Fault(engine, "killed", partial(asyncio.to_thread, valkey.stop), partial(asyncio.to_thread, valkey.start)),
        ]
    return faults


async def test_each_engine_fails_and_heals_while_clients_work(
    platform: _Platform, subtests: pytest.Subtests, pytestconfig: pytest.Config
) -> None:
    """
    Each fault of each engine, in the middle of the work of 16 clients.

    Every answer is of a stated kind. The platform heals by itself. Each acknowledged memory is stored, indexed once, and recalled. A lost
    index is rebuilt by one command. The output has the time to heal and the durations of recall: `pytest -s` shows it.
    """
    for engine in _DEGRADED_KINDS:
        for fault in _list_faults(platform, engine):
            if fault.is_long and not pytestconfig.getoption("--long"):
                continue
            with subtests.test(engine=engine, fault=fault.name):
                await _check_fault(platform, fault)
        with subtests.test(engine=engine, check="nothing is lost"):
            await _check_stores(platform)
    with subtests.test(check="rebuild"):
        await _check_rebuild(platform)
    entries = [json.loads(line) for line in platform.server.log().splitlines() if line.startswith("{")]
    assert [entry for entry in entries if entry["level"] in {"error", "critical"}] == []
    assert {"engine.paused", "engine.resumed"} <= {entry["event"] for entry in entries}


async def _check_fault(platform: _Platform, fault: _Fault) -> None:
    clients = Clients(platform.http, f"{fault.engine}{fault.name}")
    async with clients.work():
        failed = time.perf_counter()
        try:
            await fault.begin()
            await clients.work_during_fault()
        finally:
            await fault.end()
            started = time.perf_counter()

        async def is_healed() -> bool:
            return (await clients.probe()).kinds.keys() == _HEALTHY

        await eventually(is_healed)
        heal_s = time.perf_counter() - started
    platform.acknowledged |= clients.acknowledged
    median_ms, p99_ms = clients.during.percentiles()
    times = f"fails for {started - failed:5.2f} s, heals in {heal_s:5.2f} s"
    figures = f"{times}; recall meanwhile: p50 {median_ms:7.1f} ms, p99 {p99_ms:7.1f} ms"
    print(f"{fault.engine:9} {fault.name:10} {figures}; {dict(clients.during.kinds)}")  # noqa: T201 - the figures of the documentation
    degraded = _DEGRADED_KINDS[fault.engine]
    for answers in (clients.before, clients.during):
        assert answers.kinds.keys() - degraded <= _HEALTHY | _KINDS_ON_A_SLOW_HOST
    if fault.is_total:
        # On a slow host, the other side of recall may be paused meanwhile. Then recall fails, which it does only if this engine fails too.
        effects = degraded | _RECALL_FAILED if fault.engine in {"texts", "vectors", "embedder"} else degraded
        assert clients.during.kinds.keys() & effects


async def _check_stores(platform: _Platform) -> None:
    """Check that each acknowledged memory is stored, is indexed once, and is recalled, and that the indexes have nothing else."""
    await platform.wait_until_indexed()
    await platform.wait_until_cleaned()
    stored_ids = {memory_id for (memory_id,) in await platform.fetch("SELECT id FROM memories")}
    assert set(platform.acknowledged.values()) <= stored_ids
    assert await platform.count_indexed() == (len(stored_ids),) * 3
    words = list(platform.acknowledged)[:: max(1, len(platform.acknowledged) // _MAX_RECALLED)]
    slots = asyncio.Semaphore(8)

    async def is_recalled(word: str) -> bool:
        async def recall() -> httpx2.Response | None:
            response = await platform.http.post("/v1/brain/recall", json={"query": f"where is {word}?", "top_k": 3})
            return response if response.is_success and "notice" not in response.json() else None

        async with slots:
            response = await eventually(recall)
        return response is not None and platform.acknowledged[word] in [memory["id"] for memory in response.json()["memories"]]

    recalled = await asyncio.gather(*(is_recalled(word) for word in words))
    assert [word for word, is_there in zip(words, recalled, strict=True) if not is_there] == []


async def _check_rebuild(platform: _Platform) -> None:
    """Check that one command rebuilds both indexes after they were lost, while the server runs."""
    async with httpx2.AsyncClient(base_url=platform.node.url, timeout=HANG_S) as client:
        (await client.delete("/rookery-memories-1")).raise_for_status()
    ((table,),) = await platform.fetch("SELECT tablename FROM pg_tables WHERE tablename ~ '^rookery_vectors_[0-9]+$'")
    await platform.fetch(f"TRUNCATE {table}")
    environment = get_environment() | {f"ROOKERY_{name.upper()}": value for name, value in platform.settings.items()}
    rebuilt = await asyncio.to_thread(run_rookery, "brain:reindex", "--json", data_dir=platform.server.folder, environment=environment)
    assert rebuilt.returncode == 0, rebuilt.stderr
    report = json.loads(rebuilt.stdout)
    assert await platform.count_indexed() == (report["successes"],) * 3
    await _check_stores(platform)
