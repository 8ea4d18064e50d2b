"""
A vector index in Qdrant (1.17 or newer), which any number of hosts share.

Each model version has a collection, with a point for each chunk. Workspaces of up to 10,000 chunks are searched exactly. A larger one is
searched by its own graph, and again exactly if that finds too few memories.

The index uses Qdrant's REST interface directly. qdrant-client limits the time of each phase of a request but not that of the whole, raises
errors of several families, one of them for an answer that is not JSON, and needs gRPC.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import TypeVar, cast
from urllib.parse import quote

from rookery.engines.vectors import qdrant_requests as requests
from rookery.engines.vectors.qdrant_connection import QdrantConnection, QdrantRejected, QdrantServer
from rookery.engines.vectors.qdrant_requests import Json
from rookery.engines.vectors.search import validate_vectors
from rookery.memory.models import EmbeddedDocument, Vector, VectorHit
from rookery.memory.ports import ModelVersion, VectorFeature
from rookery.memory.visibility import VectorFilter

T = TypeVar("T")

_QUERY_TIMEOUT_S = 5.0
_WRITE_TIMEOUT_S = 30.0
_LONG_TIMEOUT_S = 600.0

MAX_EXACT_CHUNKS = 10_000
"""Chunks of a workspace that are compared one by one."""

_SIZE_TTL_S = 60.0
_MAX_SIZES = 10_000
_CHUNKS_PER_MEMORY = 4
_MAX_BATCH_NUMBERS = 500_000
"""Numbers of the vectors that a request writes or returns: about 6 MB of JSON. Qdrant accepts 32 MB."""

_MAX_BATCH_IDS = 1_000
_MIN_VERSION = (1, 17)
_VERSION = re.compile(r"(\d+)\.(\d+)\.\d+.*")
_MISSING_INDEX_REASON = "index required"
_WRITE_OPTIONS = "wait=true&ordering=medium"
"""Answer when the write is in effect, and give concurrent writes the same order on all copies."""


@dataclass(frozen=True, slots=True)
class _WorkspaceSize:
    """A size class: large workspaces are searched by their graph. Valid until a monotonic time."""

    is_large: bool
    until_s: float


class QdrantIndex:
    """A `VectorEngine` for one model version."""

    lacks = frozenset({VectorFeature.ERASURE})

    def __init__(
        self,
        server: QdrantServer,
        *,
        model: str,
        dimension: int,
        verify_ssl: bool = True,
        max_exact_chunks: int = MAX_EXACT_CHUNKS,
        size_ttl_s: float = _SIZE_TTL_S,
        query_timeout_s: float = _QUERY_TIMEOUT_S,
        write_timeout_s: float = _WRITE_TIMEOUT_S,
        long_timeout_s: float = _LONG_TIMEOUT_S,
    ) -> None:
        self._server = server
        self._version = ModelVersion(model=model, dimension=dimension)
        self._name = requests.name_collection(server.collection, self._version)
        self._connection = QdrantConnection(server, verify_ssl=verify_ssl)
        self._max_exact_chunks = max_exact_chunks
        self._size_ttl_s = size_ttl_s
        self._query_timeout_s = query_timeout_s
        self._write_timeout_s = write_timeout_s
        self._long_timeout_s = long_timeout_s
        self._sizes: dict[int, _WorkspaceSize] = {}
        self._is_set_up = False
        self._setup: asyncio.Task[None] | None = None

    async def start(self) -> None:
        await self.count(0)

    async def close(self) -> None:
        setup, self._setup = self._setup, None
        if setup is not None:
            setup.cancel()
            await asyncio.gather(setup, return_exceptions=True)
        await self._connection.close()

    async def is_ready(self, workspace_id: int) -> bool:
        del workspace_id
        return True

    async def put(self, items: Sequence[EmbeddedDocument]) -> None:
        """
        Replace all vectors of each document's memory.

        A search meanwhile finds the memory by old or new vectors. After two concurrent writes of one memory, a mix of both may stay. The
        `Indexer` with the older ones then notices that the memory has changed, and writes again.
        """
        for item in items:
            validate_vectors(item.vectors, dimension=self._version.dimension)
        latest = {(item.document.workspace_id, item.document.memory_id): item for item in items}
        for batch in self._split(list(latest.values())):
            await self._run(lambda batch=batch: self._write("points/batch", requests.build_put(batch)), timeout_s=self._write_timeout_s)

    async def search(self, vector: Vector, *, where: VectorFilter, limit: int) -> list[VectorHit]:
        validate_vectors([vector], dimension=self._version.dimension)
        condition = requests.render_filter(where)
        if condition is None:
            return []

        async def search() -> list[VectorHit]:
            names_memories = "memory_id" in where.required
            if not names_memories and await self._is_large(where.workspace_id):
                best = _group_by_memory(await self._query(vector, condition, limit=_CHUNKS_PER_MEMORY * limit, is_exact=False))
                if len(best) >= limit:
                    return _sort(best)[:limit]
            return await self._search_exactly(vector, condition, limit)

        return await self._run(search, timeout_s=self._query_timeout_s)

    async def fetch(self, workspace_id: int, ids: Collection[str]) -> Mapping[str, tuple[Vector, ...]]:
        vectors = dict[str, tuple[Vector, ...]]()
        for batch in _split_ids(ids):
            vectors |= await self._run(lambda batch=batch: self._fetch(workspace_id, batch), timeout_s=self._write_timeout_s)
        return vectors

    async def drop(self, workspace_id: int, ids: Collection[str]) -> None:
        for batch in _split_ids(ids):
            condition = requests.match_memories(workspace_id, batch)

            async def drop(condition: Json = condition) -> None:
                for name in await self._list_collections():
                    await self._delete(name, condition, timeout_s=self._write_timeout_s)

            await self._run(drop, timeout_s=self._write_timeout_s)

    async def drop_version(self, workspace_id: int, version: ModelVersion) -> None:
        """Delete all vectors of *version*. Qdrant executes it as one operation, so vectors written later stay."""
        name = requests.name_collection(self._server.collection, version)
        condition = requests.match_workspace(workspace_id)
        await self._run(
            lambda: self._delete(name, condition, timeout_s=self._long_timeout_s, is_repeatable=False), timeout_s=self._long_timeout_s
        )

    async def count(self, workspace_id: int) -> int:
        return await self._run(
            lambda: self._count(requests.match_first_chunks(workspace_id), is_exact=True), timeout_s=self._query_timeout_s
        )

    async def erase(self) -> None:
        """Do nothing. Qdrant removes deleted vectors from its files when it rewrites a segment, which no request can cause."""

    async def _run(self, work: Callable[[], Awaitable[T]], *, timeout_s: float) -> T:
        """Run *work* within a total time. Create the collection and its indexes before, once, and again if they were deleted."""
        connection = self._connection
        try:
            async with asyncio.timeout(timeout_s):
                await self._require_setup()
                try:
                    return await work()
                except QdrantRejected as error:
                    if error.status != HTTPStatus.NOT_FOUND and _MISSING_INDEX_REASON not in error.reason.lower():
                        raise
                self._is_set_up = False
                await self._require_setup()
                return await work()
        except TimeoutError as error:
            raise connection.fail_late(timeout_s) from error
        except QdrantRejected as error:
            raise connection.fail(f"rejected a request: {error}", advice="see its log, and the settings of the collection") from error
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            advice = "check that the address is one of Qdrant 1.17 or newer"
            raise connection.fail("gave an answer of another form than expected", advice=advice) from error

    async def _require_setup(self) -> None:
        """Wait for the set-up. Concurrent callers share one, which continues if one of them gives up."""
        if self._is_set_up:
            return
        if self._setup is None or self._setup.done():
            self._setup = asyncio.create_task(self._set_up(), name="qdrant-setup")
            self._setup.add_done_callback(_mark_as_read)
        await asyncio.shield(self._setup)

    async def _set_up(self) -> None:
        """Create the collection and the indexes that are missing."""
        await self._require_version()
        info = await self._find_collection()
        if info is None:
            info = await self._create_collection()
        self._require_compatible(info)
        present = cast("Mapping[str, object]", info["payload_schema"])
        for field, schema in requests.INDEXES.items():
            if field not in present:
                await self._create_index(field, schema)
        self._is_set_up = True

    async def _require_version(self) -> None:
        response = await self._connection.request("GET", "/", timeout_s=self._query_timeout_s)
        match = _VERSION.fullmatch(str(response["version"]))
        if match is not None and (int(match[1]), int(match[2])) < _MIN_VERSION:
            raise self._connection.fail(f"has version {match[0]}", advice="use version 1.17 or newer")

    async def _find_collection(self) -> Mapping[str, object] | None:
        try:
            response = await self._connection.request("GET", self._path(self._name), timeout_s=self._query_timeout_s)
        except QdrantRejected as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise
            return None
        return cast("Mapping[str, object]", response["result"])

    async def _create_collection(self) -> Mapping[str, object]:
        body = requests.create_collection(self._server, self._version)
        rejection: QdrantRejected | None = None
        try:
            await self._connection.request("PUT", self._path(self._name), body, timeout_s=self._write_timeout_s)
        except QdrantRejected as error:
            rejection = error  # another process may have created it at the same time
        info = await self._find_collection()
        if info is None:
            raise rejection or QdrantRejected(HTTPStatus.NOT_FOUND, f"the collection {self._name} disappeared")
        return info

    def _require_compatible(self, info: Mapping[str, object]) -> None:
        """Raise `EngineUnavailable` if a collection of the name has other vectors than ours."""
        vectors = cast("Mapping[str, Mapping[str, Json]]", info["config"])["params"]["vectors"]
        dimension, distance = vectors.get("size"), vectors.get("distance")
        if (dimension, distance) != (self._version.dimension, requests.DISTANCE) or vectors.get("multivector_config"):
            text = f"has a collection {self._name!r} of other vectors (size {dimension}, distance {distance})"
            advice = (
                f"Rookery needs size {self._version.dimension} and distance {requests.DISTANCE}: delete the collection, or name another "
                "one in ROOKERY_VECTORS, and run: rookery brain:reindex"
            )
            raise self._connection.fail(text, advice=advice)

    async def _create_index(self, field: str, schema: Json) -> None:
        path = f"{self._path(self._name)}/index?{_WRITE_OPTIONS}"
        body: Json = {"field_name": field, "field_schema": schema}
        await self._connection.request("PUT", path, body, timeout_s=self._write_timeout_s)

    async def _search_exactly(self, vector: Vector, condition: Json, limit: int) -> list[VectorHit]:
        """Return the best memories of all that match. Chunks that are as similar as the last one may follow it, so more are requested."""
        at_most = _CHUNKS_PER_MEMORY * limit
        while True:
            points = await self._query(vector, condition, limit=at_most, is_exact=True)
            hits = _sort(_group_by_memory(points))
            if len(points) < at_most:
                return hits[:limit]
            last_score = _read_score(points[-1])
            if len(hits) >= limit and hits[limit - 1].similarity > last_score:
                return hits[:limit]
            at_most *= _CHUNKS_PER_MEMORY

    async def _fetch(self, workspace_id: int, ids: Collection[str]) -> dict[str, tuple[Vector, ...]]:
        """Return the vectors of memories, read in pages."""
        chunks = dict[str, dict[int, Vector]]()
        limit = max(1, _MAX_BATCH_NUMBERS // self._version.dimension)
        offset: object = None
        while True:
            body = requests.build_fetch(workspace_id, ids, limit=limit, offset=offset)
            page = cast("Json", await self._read("points/scroll", body))
            for point in cast("list[Json]", page["points"]):
                payload = cast("Mapping[str, object]", point["payload"])
                chunks.setdefault(str(payload["memory_id"]), {})[int(str(payload["chunk"]))] = requests.to_vector(point["vector"])
            offset = page.get("next_page_offset")
            if offset is None:
                return {memory_id: tuple(vectors[number] for number in sorted(vectors)) for memory_id, vectors in chunks.items()}

    async def _query(self, vector: Vector, condition: Json, *, limit: int, is_exact: bool) -> list[Json]:
        is_quantized = self._server.quantization != "none"
        body = requests.build_search(vector, condition, limit=limit, is_exact=is_exact, is_quantized=is_quantized)
        return cast("list[Json]", cast("Json", await self._read("points/query", body))["points"])

    async def _is_large(self, workspace_id: int) -> bool:
        """Return whether a workspace is searched by its graph. Its size is an estimate, cached for a while."""
        size = self._sizes.get(workspace_id)
        if size is None or time.monotonic() >= size.until_s:
            count = await self._count(requests.match_workspace(workspace_id), is_exact=False)
            if len(self._sizes) >= _MAX_SIZES:
                self._sizes.clear()
            size = self._sizes[workspace_id] = _WorkspaceSize(count > self._max_exact_chunks, time.monotonic() + self._size_ttl_s)
        return size.is_large

    async def _count(self, condition: Json, *, is_exact: bool) -> int:
        result = await self._read("points/count", {"filter": condition, "exact": is_exact})
        return int(str(cast("Json", result)["count"]))

    async def _read(self, route: str, body: Json) -> object:
        path = f"{self._path(self._name)}/{route}"
        return (await self._connection.request("POST", path, body, timeout_s=self._write_timeout_s))["result"]

    async def _write(self, route: str, body: Json) -> None:
        path = f"{self._path(self._name)}/{route}?{_WRITE_OPTIONS}"
        response = await self._connection.request("POST", path, body, timeout_s=self._write_timeout_s, is_write=True)
        self._require_completed(cast("list[Json]", response["result"]))

    async def _delete(self, name: str, condition: Json, *, timeout_s: float, is_repeatable: bool = True) -> None:
        """Delete the points of a filter. A missing collection has none."""
        path = f"{self._path(name)}/points/delete?{_WRITE_OPTIONS}"
        try:
            response = await self._connection.request(
                "POST", path, {"filter": condition}, timeout_s=timeout_s, is_repeatable=is_repeatable, is_write=True
            )
        except QdrantRejected as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise
            return
        self._require_completed([cast("Json", response["result"])])

    def _require_completed(self, results: Sequence[Json]) -> None:
        """Raise `EngineUnavailable` if the server only queued a write, so that a search may not see it."""
        for result in results:
            if result["status"] != "completed":
                raise self._connection.fail(f"has not finished a write ({result['status']})", advice="check that it is not overloaded")

    async def _list_collections(self) -> list[str]:
        """Return the collections of all versions."""
        response = await self._connection.request("GET", "/collections", timeout_s=self._query_timeout_s)
        names = [str(collection["name"]) for collection in cast("dict[str, list[Json]]", response["result"])["collections"]]
        return sorted(name for name in names if requests.is_version_collection(name, self._server.collection))

    def _split(self, items: Sequence[EmbeddedDocument]) -> Iterator[list[EmbeddedDocument]]:
        """Split documents into batches that a request can have. A document is never split."""
        batch, size = list[EmbeddedDocument](), 0
        for item in items:
            if batch and size + len(item.vectors) > _MAX_BATCH_NUMBERS // self._version.dimension:
                yield batch
                batch, size = [], 0
            batch.append(item)
            size += len(item.vectors)
        if batch:
            yield batch

    @staticmethod
    def _path(name: str) -> str:
        return f"/collections/{quote(name, safe='')}"


def _mark_as_read(setup: asyncio.Task[None]) -> None:
    if not setup.cancelled():
        setup.exception()  # otherwise it is logged if all callers gave up


def _split_ids(ids: Collection[str]) -> Iterator[list[str]]:
    ordered = sorted(set(ids))
    return (ordered[start : start + _MAX_BATCH_IDS] for start in range(0, len(ordered), _MAX_BATCH_IDS))


def _group_by_memory(points: Sequence[Json]) -> dict[str, float]:
    """Return the best similarity of each memory."""
    best = dict[str, float]()
    for point in points:
        memory_id = str(cast("Json", point["payload"])["memory_id"])
        best[memory_id] = max(_read_score(point), best.get(memory_id, -2.0))
    return best


def _read_score(point: Json) -> float:
    return float(str(point["score"]))


def _sort(best: Mapping[str, float]) -> list[VectorHit]:
    return [VectorHit(memory_id, similarity) for memory_id, similarity in sorted(best.items(), key=lambda item: (-item[1], item[0]))]
