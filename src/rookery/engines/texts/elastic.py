"""
A full-text index in Elasticsearch or OpenSearch, by the part of their REST interface that both have.

The index is `{name}-1`, and requests use its alias `{name}`, so a write to a deleted index fails instead of creating one with guessed
fields. A refresh precedes each query, which then sees every earlier write of any process. Without changes it costs one round trip, and
concurrent queries share one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import TypeVar, cast

import orjson

from rookery.engines.texts.elastic_connection import (
    ENGINE,
    ElasticConnection,
    ElasticRejected,
    ElasticServer,
    describe_error,
    require_writable,
)
from rookery.engines.texts.elastic_query import (
    MAPPINGS,
    ElasticQuery,
    Json,
    build_query,
    document_key,
    render_document,
    to_memory_id,
)
from rookery.engines.texts.words import inverse_frequency
from rookery.kernel.clock import to_micros
from rookery.kernel.errors import EngineReadOnly, EngineUnavailable
from rookery.memory.models import AccessFilter, IndexDocument, TextHit, TextQuery
from rookery.memory.ports import TextFeature

T = TypeVar("T")

_QUERY_TIMEOUT_S = 5.0
_WRITE_TIMEOUT_S = 30.0
_ERASE_TIMEOUT_S = 3600.0

_BATCH_DOCUMENTS = 500
_MAX_WINDOW = 10_000
"""Results that one search may skip and return together: the servers' default. Later ones are reached by `search_after`."""

_MAX_EARLY_ATTEMPTS = 3

_RELEASE_POLL_INTERVAL_S = 1.0
_MAX_RELEASE_POLLS = 120


class ElasticTextIndex:
    """A `TextEngine` on a server of Elasticsearch or OpenSearch."""

    lacks = frozenset[TextFeature]()

    def __init__(self, server: ElasticServer, *, verify_ssl: bool = True, query_timeout_s: float = _QUERY_TIMEOUT_S) -> None:
        self._name = server.index
        self._query_timeout_s = query_timeout_s
        replicas = {"auto_expand_replicas": "0-1"} if server.replicas is None else {"number_of_replicas": server.replicas}
        # An erasure then removes all deleted documents, not only those of segments with many.
        self._settings = {"number_of_shards": server.shards, **replicas, "merge.policy.expunge_deletes_allowed": 0}
        self._connection = ElasticConnection(server, verify_ssl=verify_ssl)
        self._is_set_up = False
        self._setup_lock = asyncio.Lock()
        self._refreshes = _SharedRun(self._refresh)

    async def start(self) -> None:
        await self._run(self._refresh)

    async def close(self) -> None:
        await self._refreshes.close()
        await self._connection.close()

    async def setup(self) -> None:
        self._is_set_up = False
        try:
            await self._create_index()
        except ElasticRejected as error:
            raise EngineUnavailable(ENGINE, str(error)) from error

    async def put(self, documents: Sequence[IndexDocument], *, is_early: bool = False) -> None:
        latest = list({(document.workspace_id, document.memory_id): document for document in documents}.values())
        for start in range(0, len(latest), _BATCH_DOCUMENTS):
            batch = latest[start : start + _BATCH_DOCUMENTS]
            if is_early:
                await self._run(lambda batch=batch: self._put_newer(batch))
            else:
                await self._run(lambda batch=batch: self._write([line for document in batch for line in _index_lines(document)]))

    async def drop(self, workspace_id: int, ids: Collection[str]) -> None:
        keys = sorted(set(ids))
        for start in range(0, len(keys), _BATCH_DOCUMENTS):
            batch = keys[start : start + _BATCH_DOCUMENTS]
            lines: list[Json] = [{"delete": _address(workspace_id, memory_id)} for memory_id in batch]
            await self._run(lambda lines=lines: self._write(lines, ignored_statuses=(HTTPStatus.NOT_FOUND,)))

    async def search(self, query: TextQuery, *, access_filter: AccessFilter, limit: int, offset: int = 0) -> list[TextHit]:
        elastic_query = build_query(query, access_filter)
        if elastic_query is None:
            return []
        workspace_id = access_filter.workspace_id
        if query.is_question and offset == 0:
            return await self._run(lambda: self._answer(workspace_id, elastic_query, limit))
        return await self._run(lambda: self._list(workspace_id, elastic_query, limit, offset))

    async def list_ids(self, *, after: tuple[int, str] | None, limit: int) -> list[tuple[int, str]]:
        body: dict[str, object] = {"sort": [{"workspace_id": "asc"}, {"id": "asc"}], "_source": False, "size": min(limit, _MAX_WINDOW)}
        if after is not None:
            body["search_after"] = list(after)

        async def read() -> list[tuple[int, str]]:
            await self._refreshes.run()
            response = await self._connection.request("POST", f"/{self._name}/_search", body, timeout_s=self._query_timeout_s)
            sorts = (cast("list[object]", hit["sort"]) for hit in _read_hits(response))
            return [(int(str(workspace_id)), str(memory_id)) for workspace_id, memory_id in sorts]

        return await self._run(read)

    async def count(self, workspace_id: int, *, query: TextQuery | None = None, access_filter: AccessFilter | None = None) -> int:
        matching: Json = {"term": {"workspace_id": workspace_id}}
        if query is not None and access_filter is not None:
            elastic_query = build_query(query, access_filter)
            if elastic_query is None:
                return 0
            matching = elastic_query.matching

        async def count() -> int:
            await self._refreshes.run()
            return int(str((await self._ask(workspace_id, "_count", {"query": matching}))["count"]))

        return await self._run(count)

    async def erase(self) -> None:
        """
        Remove the words of deleted documents from the files of the index. Snapshots of the server are not changed.

        The server keeps deleted documents for copies that were away, and releases them about every 30 s.
        """

        async def erase() -> None:
            await self._refresh()
            await self._flush()
            await self._wait_until_released(await self._read_shards())
            path = f"/{self._name}/_forcemerge?only_expunge_deletes=true"
            await self._connection.request("POST", path, timeout_s=_ERASE_TIMEOUT_S)
            await self._refresh()  # searches leave the old files, which the flush then deletes
            await self._flush()

        await self._run(erase)

    async def _run(self, work: Callable[[], Awaitable[T]]) -> T:
        """Run *work*. Create the index before, once, and again if it was deleted."""
        try:
            if not self._is_set_up:
                await self._create_index()
            try:
                return await work()
            except ElasticRejected as error:
                if not error.is_index_missing:
                    raise
                self._is_set_up = False
                await self._create_index()
                return await work()
        except ElasticRejected as error:
            raise EngineUnavailable(ENGINE, str(error)) from error
        except (KeyError, TypeError, ValueError) as error:
            raise EngineUnavailable(ENGINE, "the server's answer has another form than expected") from error

    async def _create_index(self) -> None:
        async with self._setup_lock:
            if self._is_set_up:
                return
            if await self._is_complete():
                self._is_set_up = True
                return
            index = f"/{self._name}-1"
            no_filter: Json = {}
            body: Json = {"settings": {"index": self._settings}, "mappings": MAPPINGS, "aliases": {self._name: no_filter}}
            try:
                await self._connection.request("PUT", index, body, timeout_s=_WRITE_TIMEOUT_S)
            except ElasticRejected as error:
                if error.type != "resource_already_exists_exception":
                    raise
                await self._connection.request(
                    "PUT", f"{index}/_mapping", {"properties": MAPPINGS["properties"]}, timeout_s=_WRITE_TIMEOUT_S
                )
                await self._connection.request("PUT", f"{index}/_alias/{self._name}", no_filter, timeout_s=_WRITE_TIMEOUT_S)
            self._is_set_up = True

    async def _is_complete(self) -> bool:
        """Return whether the alias exists and its index has all fields. Reading is far faster than a change that changes nothing."""
        try:
            response = await self._connection.request("GET", f"/{self._name}/_mapping", timeout_s=self._query_timeout_s)
        except ElasticRejected as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise
            return False
        mapping = cast("Mapping[str, Mapping[str, Mapping[str, Json]]]", response).get(f"{self._name}-1")
        fields = cast("Json", MAPPINGS["properties"])
        return mapping is not None and mapping["mappings"].get("properties", {}).keys() >= fields.keys()

    async def _refresh(self) -> None:
        await self._connection.request("POST", f"/{self._name}/_refresh", timeout_s=self._query_timeout_s)

    async def _flush(self) -> None:
        await self._connection.request("POST", f"/{self._name}/_flush?force=true", timeout_s=_WRITE_TIMEOUT_S)

    async def _wait_until_released(self, shards: Mapping[str, _ShardState]) -> None:
        """Wait until the server may remove every deletion in *shards*."""
        last_writes = {shard: state.last_write for shard, state in shards.items()}
        for _ in range(_MAX_RELEASE_POLLS):
            if all(state.is_released(last_writes.get(shard, -1)) for shard, state in shards.items()):
                return
            await asyncio.sleep(_RELEASE_POLL_INTERVAL_S)
            shards = await self._read_shards()
        raise EngineUnavailable(ENGINE, "the server still keeps deleted documents for a copy of the index that is away")

    async def _read_shards(self) -> dict[str, _ShardState]:
        """Return the state of the first copy of each shard."""
        response = await self._connection.request("GET", f"/{self._name}/_stats/docs?level=shards", timeout_s=_WRITE_TIMEOUT_S)
        states = dict[str, _ShardState]()
        for index in cast("Mapping[str, Mapping[str, Mapping[str, list[Json]]]]", response["indices"]).values():
            for shard, (copy, *_) in index["shards"].items():
                leases = cast("list[Json]", cast("Json", copy["retention_leases"])["leases"])
                states[shard] = _ShardState(
                    last_write=int(str(cast("Json", copy["seq_no"])["max_seq_no"])),
                    kept_from=min((int(str(lease["retaining_seq_no"])) for lease in leases), default=None),
                )
        return states

    async def _ask(self, workspace_id: int, route: str, body: Json) -> dict[str, object]:
        path = f"/{self._name}/{route}?routing={workspace_id}"
        return await self._connection.request("POST", path, body, timeout_s=self._query_timeout_s)

    async def _list(self, workspace_id: int, query: ElasticQuery, limit: int, offset: int) -> list[TextHit]:
        """Return hits in the order of score and id."""
        await self._refreshes.run()
        body: dict[str, object] = {
            "query": query.matching,
            "sort": [{"_score": "desc"}, {"id": "asc"}],
            "_source": False,
            "track_total_hits": False,
        }
        hits = list[TextHit]()
        skipped = offset
        while len(hits) < limit:
            size = min(_MAX_WINDOW, skipped + limit - len(hits))
            page = _read_hits(await self._ask(workspace_id, "_search", {**body, "size": size}))
            found_hits = [
                TextHit(memory_id=str(sort[1]), score=float(str(sort[0]))) for sort in (cast("list[object]", hit["sort"]) for hit in page)
            ]
            hits += found_hits[skipped:]
            skipped = max(0, skipped - len(page))
            if len(page) < size:
                break
            body["search_after"] = page[-1]["sort"]
        return hits[:limit]

    async def _answer(self, workspace_id: int, query: ElasticQuery, limit: int) -> list[TextHit]:
        """Return the best hits of a question, and the coverage of the first. Both searches are one request."""
        await self._refreshes.run()
        counts = {name: {"filter": word} for name, word in query.words.items()}
        header: Json = {"routing": str(workspace_id)}
        searches: list[Json] = [
            header,
            {"query": query.matching, "size": min(limit, _MAX_WINDOW), "_source": False, "track_total_hits": False},
            header,
            {"query": {"bool": {"filter": query.filters}}, "size": 0, "track_total_hits": True, "aggs": counts},
        ]
        response = await self._connection.request("POST", f"/{self._name}/_msearch", _to_lines(searches), timeout_s=self._query_timeout_s)
        best, totals = (_require_success(part) for part in cast("list[dict[str, object]]", response["responses"]))
        hits = [TextHit(memory_id=to_memory_id(str(hit["_id"])), score=float(str(hit["_score"]))) for hit in _read_hits(best)]
        hits.sort(key=lambda hit: (-hit.score, hit.memory_id))
        if not hits or not query.words:
            return hits
        matched = {
            str(name)
            for hit in _read_hits(best)
            if to_memory_id(str(hit["_id"])) == hits[0].memory_id
            for name in cast("list[object]", hit.get("matched_queries", []))
        }
        coverage = _compute_coverage(query.words, matched, totals)
        return [TextHit(memory_id=hits[0].memory_id, score=hits[0].score, coverage=coverage), *hits[1:]]

    async def _put_newer(self, documents: Sequence[IndexDocument]) -> None:
        """Write those of *documents* that are newer than the stored ones. Another writer's document is read again and compared."""
        waiting = list(documents)
        for _ in range(_MAX_EARLY_ATTEMPTS):
            if not waiting:
                return
            addresses = [_address(document.workspace_id, document.memory_id) for document in waiting]
            body = {"docs": [{**address, "_source": ["updated_at_us"]} for address in addresses]}
            response = await self._connection.request("POST", f"/{self._name}/_mget", body, timeout_s=_WRITE_TIMEOUT_S)
            stored = cast("list[dict[str, object]]", response["docs"])
            for one in stored:
                if "error" in one:
                    raise ElasticRejected(HTTPStatus.NOT_FOUND, *describe_error(one["error"]))
            newer = [
                (document, state)
                for document, state in zip(waiting, stored, strict=True)
                if not state.get("found") or int(str(cast("Json", state["_source"])["updated_at_us"])) < to_micros(document.updated_at)
            ]
            lines = [line for document, state in newer for line in _conditional_lines(document, state)]
            conflicts = await self._write(lines, ignored_statuses=(HTTPStatus.CONFLICT,))
            waiting = [newer[number][0] for number in conflicts]

    async def _write(self, lines: Sequence[Json], *, ignored_statuses: Collection[int] = ()) -> list[int]:
        """Send a bulk request. Return the numbers of the operations that failed with one of *ignored_statuses*."""
        if not lines:
            return []
        path = f"/{self._name}/_bulk?require_alias=true"
        response = await self._connection.request("POST", path, _to_lines(lines), timeout_s=_WRITE_TIMEOUT_S)
        if not response["errors"]:
            return []
        ignored = list[int]()
        for number, item in enumerate(cast("list[dict[str, dict[str, object]]]", response["items"])):
            (result,) = item.values()
            if "error" not in result:
                continue
            status = int(str(result["status"]))
            require_writable(status, *describe_error(result["error"]))
            if status == HTTPStatus.FORBIDDEN:
                raise EngineReadOnly(ENGINE, f"the server allows this login no writes ({status})")
            error = ElasticRejected(status, *describe_error(result["error"]))
            if error.is_index_missing or status not in ignored_statuses:
                raise error
            ignored.append(number)
        return ignored


@dataclass(frozen=True, slots=True)
class _ShardState:
    """
    The writes of a shard.

    Attributes:
        last_write: The number of the last one; -1 without any.
        kept_from: The number of the first one that the server keeps, even if it was a deletion. None: it keeps none.
    """

    last_write: int
    kept_from: int | None

    def is_released(self, write: int) -> bool:
        """Return whether a deletion up to number *write* may be removed."""
        return self.kept_from is None or self.kept_from > write


class _SharedRun:
    """
    Runs a function for several callers together.

    A caller waits for a run that begins after its call. At most one run is in progress and one waits.
    """

    def __init__(self, work: Callable[[], Awaitable[None]]) -> None:
        self._work = work
        self._current: asyncio.Task[None] | None = None
        self._next: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Wait for a run. The cancellation of one caller does not cancel it for the others."""
        if self._current is None or self._current.done():
            self._current, self._next = _start(self._execute()), None
            await asyncio.shield(self._current)
            return
        if self._next is None:
            self._next = _start(self._run_after(self._current))
        await asyncio.shield(self._next)

    async def close(self) -> None:
        """Cancel the runs."""
        tasks = [task for task in (self._current, self._next) if task is not None]
        self._current = self._next = None
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run_after(self, previous: asyncio.Task[None]) -> None:
        await asyncio.wait([previous])
        self._current, self._next = self._next, None
        await self._execute()

    async def _execute(self) -> None:
        await self._work()


def _start(run: Coroutine[None, None, None]) -> asyncio.Task[None]:
    """Start a run whose callers may all be cancelled, so that nobody reads its error."""
    task = asyncio.create_task(run)
    task.add_done_callback(lambda task: None if task.cancelled() else task.exception())
    return task


def _address(workspace_id: int, memory_id: str) -> dict[str, object]:
    return {"_id": document_key(workspace_id, memory_id), "routing": str(workspace_id)}


def _index_lines(document: IndexDocument) -> tuple[Json, Json]:
    return {"index": _address(document.workspace_id, document.memory_id)}, render_document(document)


def _conditional_lines(document: IndexDocument, stored: Json) -> tuple[Json, Json]:
    """Return the operation that writes *document* only if the stored one is still as it was read."""
    address = _address(document.workspace_id, document.memory_id)
    if not stored.get("found"):
        return {"create": address}, render_document(document)
    condition = {"if_seq_no": stored["_seq_no"], "if_primary_term": stored["_primary_term"]}
    return {"index": {**address, **condition}}, render_document(document)


def _to_lines(objects: Iterable[object]) -> bytes:
    return b"".join(orjson.dumps(item) + b"\n" for item in objects)


def _require_success(response: dict[str, object]) -> dict[str, object]:
    """Return one response of a request with several searches; raises `ElasticRejected` if that search failed."""
    if "error" in response:
        raise ElasticRejected(int(str(response.get("status", 0))), *describe_error(response["error"]))
    return response


def _read_hits(response: Mapping[str, object]) -> list[dict[str, object]]:
    if response.get("timed_out") or cast("Json", response["_shards"])["failed"]:
        raise EngineUnavailable(ENGINE, "a part of the index did not answer")
    return cast("list[dict[str, object]]", cast("Json", response["hits"])["hits"])


def _compute_coverage(words: Iterable[str], matched: Collection[str], totals: Mapping[str, object]) -> float:
    """Return the share of *words* that the best hit has, weighted by their rarity among the readable documents."""
    _read_hits(totals)
    total = int(str(cast("Json", cast("Json", totals["hits"])["total"])["value"]))
    counts = cast("Mapping[str, Json]", totals["aggregations"])
    weights = {word: inverse_frequency(int(str(counts[word]["doc_count"])), total) for word in words}
    return sum(weight for word, weight in weights.items() if word in matched) / sum(weights.values())
