"""
A vector index in PostgreSQL with the extension pgvector (0.8 or newer), which any number of hosts share.

Workspaces of up to 10,000 chunks are searched exactly. A larger one is searched by an HNSW index, which is built when the first workspace
has become that large. A filtered search by the index may find too few memories, even in pgvector's iterative mode; then it is repeated
exactly.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar, cast

import structlog
from psycopg import sql

from rookery.engines.vectors import pgvector_sql
from rookery.engines.vectors.pgvector_sql import VersionTable, from_binary, group_by_memory, make_rows, render_condition, to_literal
from rookery.engines.vectors.search import validate_vectors
from rookery.kernel.errors import EngineUnavailable, StorageFull
from rookery.kernel.postgresql import PostgresConnection as Connection
from rookery.kernel.postgresql import PostgresPool
from rookery.memory.models import EmbeddedDocument, Vector, VectorHit
from rookery.memory.ports import ModelVersion, VectorFeature
from rookery.memory.visibility import VectorFilter

T = TypeVar("T")

ENGINE = "vectors"

_STATEMENT_TIMEOUT_S = 30
_LONG_TIMEOUT_S = 3600

MAX_EXACT_ROWS = 10_000
"""Chunks of a workspace that are compared one by one. 20,000 of 384 dimensions take 46 ms (p50 of 60 searches, measured)."""

_SIZE_TTL_S = 60.0
_DELETE_BATCH = 5_000
_SEARCH_EFFORT = 200
_CHUNKS_PER_MEMORY = 4
_SEARCH_MODE = sql.SQL("SELECT set_config('hnsw.iterative_scan', 'strict_order', true), set_config('hnsw.ef_search', %(effort)s, true)")

_log = structlog.stdlib.get_logger("rookery.vectors")


@dataclass(frozen=True, slots=True)
class _WorkspaceSize:
    """The size of a workspace, and the state of the index for it. Valid until a monotonic time."""

    is_large: bool
    has_index: bool
    until_s: float


class PgvectorIndex:
    """A `VectorEngine` for one model version."""

    lacks = frozenset({VectorFeature.ERASURE})

    def __init__(
        self, url: str, *, model: str, dimension: int, max_exact_rows: int = MAX_EXACT_ROWS, size_ttl_s: float = _SIZE_TTL_S
    ) -> None:
        self._version = ModelVersion(model=model, dimension=dimension)
        self._max_exact_rows = max_exact_rows
        options = {"statement_timeout": f"{_STATEMENT_TIMEOUT_S}s"}
        self._pool = PostgresPool(url, engine=ENGINE, options=options, on_missing_table=self._forget_table)
        self._table: VersionTable | None = None
        self._size_ttl_s = size_ttl_s
        self._sizes: dict[int, _WorkspaceSize] = {}
        self._index_build: asyncio.Task[None] | None = None

    async def start(self) -> None:
        async def check(connection: Connection) -> None:
            await connection.execute("SELECT 1")

        await self._pool.run(check)

    async def close(self) -> None:
        build, self._index_build = self._index_build, None
        if build is not None:
            build.cancel()
            await asyncio.gather(build, return_exceptions=True)
        await self._pool.close()
        self._table = None

    async def is_ready(self, workspace_id: int) -> bool:
        del workspace_id
        return True

    async def put(self, items: Sequence[EmbeddedDocument]) -> None:
        for item in items:
            validate_vectors(item.vectors, dimension=self._version.dimension)
        latest = {(item.document.workspace_id, item.document.memory_id): item for item in items}
        if not latest:
            return
        ordered = [latest[key] for key in sorted(latest)]  # two writers that lock rows in the same order do not block each other

        async def put(connection: Connection, table: VersionTable) -> None:
            async with connection.transaction(), connection.cursor() as cursor:
                await cursor.execute(table.next_put())
                ((put_id,),) = await cursor.fetchall()
                rows = [row for item in ordered for row in make_rows(item, cast("int", put_id))]
                await cursor.executemany(table.put(), rows)
                await cursor.executemany(
                    table.delete_chunks(),
                    [
                        {
                            "workspace_id": item.document.workspace_id,
                            "memory_id": item.document.memory_id,
                            "chunk": len(item.vectors),
                        }
                        for item in ordered
                    ],
                )

        await self._run_on_table(put)
        await self._build_index_if_large({workspace_id for workspace_id, _ in latest})

    async def search(self, vector: Vector, *, where: VectorFilter, limit: int) -> list[VectorHit]:
        validate_vectors([vector], dimension=self._version.dimension)
        rendered = render_condition(where)
        if rendered is None:
            return []
        condition, parameters = rendered
        parameters |= {"query": to_literal(vector)}

        async def search(connection: Connection, table: VersionTable) -> list[VectorHit]:
            if (await self._get_size(connection, table, where.workspace_id)).has_index:
                rows = await self._search_index(connection, table, condition, parameters, limit)
                if rows is not None:
                    return rows
            cursor = await connection.execute(table.search_exactly(condition), {**parameters, "at_most": limit})
            return [VectorHit(cast("str", memory_id), cast("float", similarity)) for memory_id, similarity in await cursor.fetchall()]

        return await self._run_on_table(search)

    async def fetch(self, workspace_id: int, ids: Collection[str]) -> Mapping[str, tuple[Vector, ...]]:
        if not ids:
            return {}

        async def fetch(connection: Connection, table: VersionTable) -> Mapping[str, tuple[Vector, ...]]:
            cursor = await connection.execute(table.fetch(), {"workspace_id": workspace_id, "ids": list(ids)})
            vectors = dict[str, tuple[Vector, ...]]()
            for memory_id, data in await cursor.fetchall():
                key = cast("str", memory_id)
                vectors[key] = (*vectors.get(key, ()), from_binary(cast("bytes", data)))
            return vectors

        return await self._run_on_table(fetch)

    async def drop(self, workspace_id: int, ids: Collection[str]) -> None:
        if not ids:
            return

        async def drop(connection: Connection, own_table: VersionTable) -> None:
            cursor = await connection.execute(pgvector_sql.LIST_VERSIONS)
            async with connection.transaction():
                for (version_id,) in await cursor.fetchall():
                    table = VersionTable(cast("int", version_id), 0, own_table.extension_schema)
                    await connection.execute(table.delete_memories(), {"workspace_id": workspace_id, "ids": sorted(ids)})

        await self._run_on_table(drop)

    async def drop_version(self, workspace_id: int, version: ModelVersion) -> None:
        async def find(connection: Connection, own_table: VersionTable) -> tuple[VersionTable, int] | None:
            table = await _find_table(connection, version, own_table.extension_schema)
            if table is None:
                return None
            cursor = await connection.execute(table.next_put())
            ((put_id,),) = await cursor.fetchall()
            return table, cast("int", put_id)

        target = await self._run_on_table(find)
        if target is None:
            return
        table, put_id = target
        parameters = {"workspace_id": workspace_id, "put_id": put_id, "at_most": _DELETE_BATCH}

        async def delete(connection: Connection) -> int:
            return (await connection.execute(table.delete_before(), parameters)).rowcount

        while await self._pool.run(delete):
            pass

    async def count(self, workspace_id: int) -> int:
        async def count(connection: Connection, table: VersionTable) -> int:
            cursor = await connection.execute(table.count(), {"workspace_id": workspace_id})
            ((total,),) = await cursor.fetchall()
            return cast("int", total)

        return await self._run_on_table(count)

    async def erase(self) -> None:
        """Free the space of deleted vectors for new rows. Their bytes stay in the files of the server until they are overwritten."""

        async def vacuum(connection: Connection, table: VersionTable) -> None:
            async with connection.cursor() as cursor:
                await self._set_timeout(connection, f"{_LONG_TIMEOUT_S}s")
                try:
                    await cursor.execute(table.vacuum())
                finally:
                    await self._set_timeout(connection, f"{_STATEMENT_TIMEOUT_S}s")

        await self._run_on_table(vacuum)

    async def _run_on_table(self, work: Callable[[Connection, VersionTable], Awaitable[T]]) -> T:
        """Run *work* on the table of this version, which is created if it is missing."""

        async def run(connection: Connection) -> T:
            table = self._table
            if table is None:
                table = self._table = await _find_or_create_table(connection, self._version)
            return await work(connection, table)

        return await self._pool.run(run)

    async def _set_timeout(self, connection: Connection, limit: str) -> None:
        await self._pool.set_option(connection, "statement_timeout", limit)

    def _forget_table(self) -> None:
        self._table = None

    async def _search_index(
        self, connection: Connection, table: VersionTable, condition: sql.Composable, parameters: Mapping[str, object], limit: int
    ) -> list[VectorHit] | None:
        """Return the best memories by the index; None if it found too few, so that only an exact search can tell."""
        at_most = _CHUNKS_PER_MEMORY * limit
        async with connection.transaction():
            await connection.execute(_SEARCH_MODE, {"effort": str(max(_SEARCH_EFFORT, min(at_most, 1_000)))})
            cursor = await connection.execute(table.search_index(condition), {**parameters, "at_most": at_most})
            rows = cast("list[tuple[str, float]]", await cursor.fetchall())
        best = group_by_memory(rows)
        if len(best) < limit:
            return None
        order = sorted(best.items(), key=lambda item: (-item[1], item[0]))
        return [VectorHit(memory_id, similarity) for memory_id, similarity in order[:limit]]

    async def _get_size(self, connection: Connection, table: VersionTable, workspace_id: int) -> _WorkspaceSize:
        """Return the size of a workspace, cached for a while."""
        size = self._sizes.get(workspace_id)
        if size is None or time.monotonic() >= size.until_s:
            cursor = await connection.execute(table.count_rows(), {"workspace_id": workspace_id, "at_most": self._max_exact_rows + 1})
            ((count,),) = await cursor.fetchall()
            is_large = table.is_indexable and cast("int", count) > self._max_exact_rows
            has_index = is_large and await _has_index(connection, table)
            size = self._sizes[workspace_id] = _WorkspaceSize(is_large, has_index, time.monotonic() + self._size_ttl_s)
        return size

    async def _build_index_if_large(self, workspace_ids: Collection[int]) -> None:
        """Start to build the index if one of the workspaces is large. Sizes are looked up once a minute."""
        if self._index_build is not None and not self._index_build.done():
            return
        now_s = time.monotonic()
        due = [workspace_id for workspace_id in workspace_ids if (size := self._sizes.get(workspace_id)) is None or now_s >= size.until_s]

        async def is_missing(connection: Connection, table: VersionTable) -> bool:
            sizes = [await self._get_size(connection, table, workspace_id) for workspace_id in due]
            return any(size.is_large and not size.has_index for size in sizes)

        if due and await self._run_on_table(is_missing):
            self._index_build = asyncio.create_task(self._build_index(), name="pgvector-index")

    async def _build_index(self) -> None:
        """Build the index, unless another process does so."""
        started_s = time.monotonic()

        async def build_behind_pooler(connection: Connection, table: VersionTable) -> bool:
            # A lock of the session would stay with another client's session.
            cursor = await connection.execute(table.find_index_build())
            if await cursor.fetchone() is not None or await _has_index(connection, table):
                return False
            await connection.execute(table.drop_index())
            await connection.execute(table.create_index())
            return True

        async def build(connection: Connection, table: VersionTable) -> bool:
            if self._pool.has_pooler:
                return await build_behind_pooler(connection, table)
            cursor = await connection.execute("SELECT pg_try_advisory_lock(%(lock)s)", {"lock": pgvector_sql.SETUP_LOCK + table.version_id})
            ((is_locked,),) = await cursor.fetchall()
            if not is_locked:
                return False
            try:
                if await _has_index(connection, table):
                    return False
                await self._set_timeout(connection, "0")
                await connection.execute(table.drop_index())
                await connection.execute(table.create_index())
            finally:
                await connection.execute("SELECT pg_advisory_unlock(%(lock)s)", {"lock": pgvector_sql.SETUP_LOCK + table.version_id})
                await self._set_timeout(connection, f"{_STATEMENT_TIMEOUT_S}s")
            return True

        try:
            if await self._run_on_table(build):
                _log.info("vectors.index_built", seconds=round(time.monotonic() - started_s, 1))
            self._sizes.clear()
        except (EngineUnavailable, StorageFull) as error:
            _log.warning("vectors.index_failed", reason=error.message)


async def _find_extension(connection: Connection) -> str | None:
    """
    Return the schema of pgvector; None if the database has no pgvector yet.

    Raises:
        EngineUnavailable: The role may not use the schema.
    """
    cursor = await connection.execute(pgvector_sql.FIND_EXTENSION)
    row = await cursor.fetchone()
    if row is None:
        return None
    schema, is_usable, role = cast("tuple[str, bool, str]", row)
    if not is_usable:
        grant = f'GRANT USAGE ON SCHEMA "{schema}" TO "{role}"'
        raise EngineUnavailable(ENGINE, f"pgvector is in the schema {schema}, which the role {role} may not use; run: {grant}")
    return schema


async def _find_table(connection: Connection, version: ModelVersion, extension_schema: str) -> VersionTable | None:
    cursor = await connection.execute(pgvector_sql.FIND_VERSION, {"model": version.model, "dimension": version.dimension})
    row = await cursor.fetchone()
    return None if row is None else VersionTable(cast("int", row[0]), version.dimension, extension_schema)


async def _find_or_create_table(connection: Connection, version: ModelVersion) -> VersionTable:
    schema = await _find_extension(connection)
    cursor = await connection.execute(pgvector_sql.FIND_VERSIONS_TABLE)
    ((exists,),) = await cursor.fetchall()
    table = await _find_table(connection, version, schema) if exists and schema is not None else None
    if table is not None:
        return table
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock(%(lock)s)", {"lock": pgvector_sql.SETUP_LOCK})
        await connection.execute(pgvector_sql.CREATE_EXTENSION)
        schema = await _find_extension(connection)
        if schema is None:
            raise EngineUnavailable(ENGINE, "the database has no extension vector")
        await connection.execute(pgvector_sql.CREATE_VERSIONS)
        table = await _find_table(connection, version, schema)
        if table is None:
            parameters = {"model": version.model, "dimension": version.dimension}
            cursor = await connection.execute(pgvector_sql.ADD_VERSION, parameters)
            ((version_id,),) = await cursor.fetchall()
            table = VersionTable(cast("int", version_id), version.dimension, schema)
            for statement in table.create():
                await connection.execute(statement)
    return table


async def _has_index(connection: Connection, table: VersionTable) -> bool:
    cursor = await connection.execute(table.find_index())
    row = await cursor.fetchone()
    return row is not None and bool(row[0])
