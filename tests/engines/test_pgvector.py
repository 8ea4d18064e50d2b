"""The vector index in PostgreSQL: the contract on a real server, the index of large workspaces, and failures."""

from __future__ import annotations

import asyncio
import random
import zlib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import quote

import numpy as np
import psycopg
import pytest
from psycopg import sql

from rookery.engines import vectors
from rookery.engines.vectors.pgvector import PgvectorIndex
from rookery.kernel.errors import EngineUnavailable
from rookery.memory.models import Vector
from rookery.memory.ports import VectorFeature, VectorIndex
from rookery.memory.visibility import build_vector_filter
from tests.conftest import eventually
from tests.engines.conftest import EAST, find_ids, make_embedded, make_filter
from tests.engines.engine_contracts import HowTested
from tests.engines.vector_contract import VectorContract

pytestmark = pytest.mark.external_service

_DIMENSION = 16


class TestPgvector(VectorContract):
    """The contract. Each folder has a schema of its own."""

    engine = "`postgresql:`"
    lacks = PgvectorIndex.lacks
    tested_on = HowTested.REAL_SERVER
    tested_with = "PostgreSQL 18 with pgvector"

    server: str

    @pytest.fixture(autouse=True)
    def use_server(self, postgres_empty: str) -> None:
        """Use a database of this test's own."""
        type(self).server = postgres_empty

    def open_engine(self, folder: Path, *, model: str, dimension: int) -> VectorIndex:
        """Open the schema of *folder*."""
        return vectors.open(_select_schema(self.server, folder), data_dir=folder, model=model, dimension=dimension)

    async def test_labels_and_tags_of_the_same_name_differ(self, raw_index: VectorIndex) -> None:
        """A label of metadata begins with NUL in the filter, which PostgreSQL cannot store."""
        await raw_index.put([make_embedded("tag", EAST, tags=("x",)), make_embedded("label", EAST, labels=frozenset({"x"}))])

        assert await find_ids(raw_index, access_filter=make_filter(tags=frozenset({"x"}))) == ["tag"]
        assert await find_ids(raw_index, access_filter=make_filter(labels=frozenset({"x"}))) == ["label"]

    async def test_cancelled_requests_leave_no_connection_behind(self, raw_index: VectorIndex) -> None:
        """After many cancelled requests, all connections of the pool are free."""
        await raw_index.put([make_embedded(f"m{number}") for number in range(20)])
        source = random.Random(2)
        for _ in range(200):
            tasks = [asyncio.create_task(find_ids(raw_index)) for _ in range(15)]
            await asyncio.wait(tasks[: source.randrange(1, 15)], return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        results = await asyncio.gather(*(find_ids(raw_index) for _ in range(40)))
        assert {len(result) for result in results} == {10}

    async def test_deleted_tables_are_created_again(self, raw_index: VectorIndex) -> None:
        """The index is derived data; `rookery brain:reindex` fills it again."""
        await raw_index.put([make_embedded("a")])
        async with await psycopg.AsyncConnection.connect(self.server, autocommit=True) as connection:
            cursor = await connection.execute(
                "SELECT table_schema || '.' || table_name FROM information_schema.tables WHERE table_name LIKE 'rookery_vector%'"
            )
            for (name,) in await cursor.fetchall():
                await connection.execute(f"DROP TABLE {name} CASCADE".encode())

        assert await find_ids(raw_index) == []
        await raw_index.put([make_embedded("b")])
        assert await find_ids(raw_index) == ["b"]


async def test_a_large_workspace_is_searched_by_an_index(postgres_empty: str) -> None:
    """The index is built while others write. Its results are exact where the exact search is used, and nearly so elsewhere."""
    vectors_by_id = _make_vectors(1_500)
    async with _open(postgres_empty, max_exact_rows=1_000) as index:
        for start in range(0, len(vectors_by_id), 500):
            names = list(vectors_by_id)[start : start + 500]
            await index.put([make_embedded(name, vectors_by_id[name], org="rare" if name.endswith("77") else "acme") for name in names])
        await index.put([make_embedded("small", _make_vectors(1)["m0000"], workspace_id=2)])
        await eventually(lambda: _has_index(postgres_empty))
        async with _open(postgres_empty, max_exact_rows=1_000) as other:
            shares = [await _measure_recall(other, vectors_by_id, query) for query in list(_make_vectors(20, seed=9).values())]
            rare = await find_ids(other, _make_vectors(1, seed=9)["m0000"], limit=20, access_filter=make_filter(org="rare"))

    assert sum(shares) / len(shares) > 0.95
    assert sorted(rare) == [name for name in vectors_by_id if name.endswith("77")], "a rare filter is searched exactly"


async def test_a_server_that_is_down_is_unavailable(tmp_path: Path) -> None:
    """The error contains no password."""
    index = vectors.open("postgresql://user:secret@127.0.0.1:1/none", data_dir=tmp_path, model="small/1", dimension=4)
    with pytest.raises(EngineUnavailable) as error:
        await index.count(1)
    await index.close()

    assert error.value.engine == "vectors"
    assert "secret" not in str(error.value)
    assert VectorFeature.ERASURE in PgvectorIndex.lacks


def _select_schema(server: str, folder: Path) -> str:
    schema = f"s{zlib.crc32(bytes(folder)):x}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute("CREATE EXTENSION IF NOT EXISTS vector SCHEMA public")
        connection.execute(f"CREATE SCHEMA IF NOT EXISTS {schema}".encode())
    return f"{server}{'&' if '?' in server else '?'}options={quote(f'-c search_path={schema},public')}"


@asynccontextmanager
async def _open(server: str, *, max_exact_rows: int) -> AsyncGenerator[PgvectorIndex]:
    index = PgvectorIndex(server, model="small/1", dimension=_DIMENSION, max_exact_rows=max_exact_rows, size_ttl_s=0.0)
    try:
        yield index
    finally:
        await index.close()


def _make_vectors(count: int, *, seed: int = 1) -> dict[str, Vector]:
    numbers = np.random.default_rng(seed).standard_normal((count, _DIMENSION)).astype("<f4")
    numbers /= np.linalg.norm(numbers, axis=1, keepdims=True)
    return {f"m{number:04}": row.tobytes() for number, row in enumerate(numbers)}


async def _measure_recall(index: PgvectorIndex, vectors_by_id: dict[str, Vector], query: Vector) -> float:
    matrix = np.frombuffer(b"".join(vectors_by_id.values()), "<f4").reshape(-1, _DIMENSION)
    best = np.argsort(-(matrix @ np.frombuffer(query, "<f4")))[:10]
    names = list(vectors_by_id)
    hits = await index.search(query, where=build_vector_filter(make_filter()), limit=10)
    return len({hit.memory_id for hit in hits} & {names[number] for number in best}) / 10


async def _has_index(server: str) -> bool:
    async with await psycopg.AsyncConnection.connect(server) as connection:
        cursor = await connection.execute(
            "SELECT count(*) FROM pg_index JOIN pg_class ON indexrelid = oid WHERE relname LIKE '%_hnsw' AND indisvalid"
        )
        row = await cursor.fetchone()
        return row is not None and bool(row[0])


@pytest.mark.parametrize("options", ["", "-csearch_path=rook"], ids=["usual search path", "own search path"])
async def test_pgvector_may_be_in_a_schema_outside_of_the_search_path(options: str, postgres_empty: str) -> None:
    """Hosted PostgreSQL has it in `extensions`. Types, operators, casts and the index of large workspaces work from there."""
    async with await psycopg.AsyncConnection.connect(postgres_empty, autocommit=True) as connection:
        await connection.execute("CREATE SCHEMA rook")
        await connection.execute("CREATE SCHEMA extensions")
        await connection.execute("CREATE EXTENSION vector SCHEMA extensions")
        async with _open_large(f"{postgres_empty}?options={quote(options)}") as index:
            await index.put([make_embedded(f"m{number}") for number in range(40)])
            await _wait_for_index(connection, options)
            assert await index.count(1) == 40
            assert len(await find_ids(index)) == 10
            assert len((await index.fetch(1, ["m1"]))["m1"]) == 1
            await connection.execute("CREATE SCHEMA elsewhere")
            await connection.execute("ALTER EXTENSION vector SET SCHEMA elsewhere")
            assert len(await find_ids(index)) == 10
            await index.drop(1, ["m1"])
            assert await index.count(1) == 39


@asynccontextmanager
async def _open_large(url: str) -> AsyncGenerator[PgvectorIndex]:
    """Open an index in which 30 chunks are a large workspace."""
    index = PgvectorIndex(url, model="small/1", dimension=4, max_exact_rows=30, size_ttl_s=0.0)
    try:
        yield index
    finally:
        await index.close()


async def _wait_for_index(connection: psycopg.AsyncConnection[tuple[object, ...]], options: str) -> None:
    name = "rook.rookery_vectors_1_hnsw" if options else "public.rookery_vectors_1_hnsw"

    async def is_valid() -> bool:
        cursor = await connection.execute("SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass(%s)", [name])
        row = await cursor.fetchone()
        return row is not None and bool(row[0])

    assert await eventually(is_valid)


async def test_a_schema_that_the_role_may_not_use_is_named_with_the_command(postgres_empty: str) -> None:
    """The reason is in `/readyz` and `rookery doctor`."""
    role = f"guest_{zlib.crc32(postgres_empty.encode()):x}"
    async with await psycopg.AsyncConnection.connect(postgres_empty, autocommit=True) as connection:
        await connection.execute("CREATE SCHEMA extensions")
        await connection.execute("CREATE EXTENSION vector SCHEMA extensions")
        await connection.execute(sql.SQL("CREATE ROLE {} LOGIN").format(sql.Identifier(role)))
        try:
            async with _open_large(postgres_empty.replace("postgres@", f"{role}@")) as index:
                with pytest.raises(EngineUnavailable, match=f'run: GRANT USAGE ON SCHEMA "extensions" TO "{role}"'):
                    await index.count(1)
        finally:
            await connection.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(role)))
