"""Failures of Qdrant: down, slow, full, overloaded, wrong or another program. Large workspaces and the form of requests."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping
from contextlib import asynccontextmanager

import numpy as np
import pytest

pytest.importorskip("qdrant_edge", reason="qdrant-edge-py has no wheel for this platform")

from rookery.engines.vectors.qdrant import QdrantIndex
from rookery.engines.vectors.qdrant_connection import parse_address
from rookery.kernel.errors import EngineReadOnly, EngineUnavailable, StorageFull
from rookery.memory.models import Vector
from rookery.memory.ports import ModelVersion
from rookery.memory.visibility import build_vector_filter, filter_ids
from tests.conftest import eventually
from tests.deadlines import HANG_S
from tests.engines.conftest import EAST, find_ids, make_embedded, make_filter, vector
from tests.fault_proxy import FaultProxy
from tests.qdrant_stand_in import Answer, QdrantStandIn, run_qdrant_stand_in

pytestmark = pytest.mark.external_service

_DIMENSION = 16
_KEY = "a-secret-key"

Call = Callable[[QdrantIndex], Awaitable[object]]

_CALLS: dict[str, Call] = {
    "put": lambda index: index.put([make_embedded()]),
    "search": lambda index: index.search(EAST, where=build_vector_filter(make_filter()), limit=1),
    "fetch": lambda index: index.fetch(1, ["a"]),
    "drop": lambda index: index.drop(1, ["a"]),
    "drop_version": lambda index: index.drop_version(1, ModelVersion(model="small/1", dimension=4)),
    "count": lambda index: index.count(1),
    "start": lambda index: index.start(),
}
"""Each call of the port that sends requests."""


@pytest.fixture
def server() -> Generator[QdrantStandIn]:
    """Run a server of the test's own."""
    with run_qdrant_stand_in() as stand_in:
        yield stand_in


@asynccontextmanager
async def _open(address: str, **options: float) -> AsyncGenerator[QdrantIndex]:
    timeouts = {"query_timeout_s": HANG_S, "write_timeout_s": HANG_S}
    index = QdrantIndex(parse_address(address), model="small/1", dimension=4, **{**timeouts, **options})  # pyright: ignore[reportArgumentType] - numbers by name
    try:
        yield index
    finally:
        await index.close()


@pytest.mark.parametrize("name", _CALLS)
async def test_a_server_that_is_down_is_unavailable(name: str, server: QdrantStandIn) -> None:
    """Every call raises the error of the port, without the address and the key, and with advice. It works when the server is back."""
    with FaultProxy(server.port) as proxy:
        async with _open(f"qdrant://:{_KEY}@127.0.0.1:{proxy.port}") as index:
            proxy.refuse()
            with pytest.raises(EngineUnavailable) as error:
                await _CALLS[name](index)
            proxy.heal()
            await _CALLS[name](index)

    assert error.value.engine == "vectors"
    assert "Qdrant cannot be reached" in error.value.message
    assert "check that it runs" in error.value.message
    assert not {_KEY, "127.0.0.1", str(proxy.port)} & set(re.split(r"[^\w.]+", error.value.message))


@pytest.mark.parametrize("name", _CALLS)
async def test_a_server_that_does_not_answer_is_unavailable_in_time(name: str, server: QdrantStandIn) -> None:
    """The time of a call is limited as a whole, and the index works again when the network does."""
    with FaultProxy(server.port) as proxy:
        async with _open(server.address(port=proxy.port)) as index:
            await index.put([make_embedded()])
        async with _open(server.address(port=proxy.port), query_timeout_s=0.5, write_timeout_s=0.5, long_timeout_s=0.5) as index:
            proxy.partition()
            with pytest.raises(EngineUnavailable, match=r"gave no answer within 0\.5 s; check that it runs and is not overloaded"):
                await _CALLS[name](index)
        proxy.heal()
        async with _open(server.address(port=proxy.port)) as index:
            await _CALLS[name](index)


async def test_the_time_limit_holds_for_an_answer_that_trickles(server: QdrantStandIn) -> None:
    """A limit for each read would never end such a call: bytes arrive all the time."""
    async with _open(server.address()) as index:
        await index.put([make_embedded(f"m{number}") for number in range(200)])
    with FaultProxy(server.port) as proxy:
        async with _open(server.address(port=proxy.port), write_timeout_s=1.0) as index:
            await index.count(1)
            proxy.bytes_per_s = 200
            with pytest.raises(EngineUnavailable, match="no answer within 1 s"):
                await index.fetch(1, [f"m{number}" for number in range(200)])


async def test_an_answer_that_is_cut_off_is_an_outage(server: QdrantStandIn) -> None:
    """Half an answer is not parsed."""
    with FaultProxy(server.port) as proxy:
        proxy.cut_after_bytes = 40
        async with _open(server.address(port=proxy.port)) as index:
            with pytest.raises(EngineUnavailable, match="cannot be reached"):
                await index.count(1)


async def test_a_key_that_may_only_read_is_told_from_a_wrong_one(server: QdrantStandIn) -> None:
    """Searches go on, so only writes are refused."""
    async with _open(server.address()) as index:
        await index.put([make_embedded()])
        server.answers.append(Answer(status=403))
        with pytest.raises(EngineReadOnly, match=r"refused the API key \(403\) for a write"):
            await index.put([make_embedded("b")])

        assert await find_ids(index) == ["a"]


async def test_a_connection_that_was_closed_while_idle_is_replaced(server: QdrantStandIn) -> None:
    """A restart of the server costs no request."""
    with FaultProxy(server.port) as proxy:
        async with _open(server.address(port=proxy.port)) as index:
            await index.put([make_embedded()])
            proxy.reset()
            assert await find_ids(index) == ["a"]


_FAILURES = [
    (Answer(status=503), EngineUnavailable, r"failed \(503\): prepared; see its log"),
    (Answer(status=500), EngineUnavailable, r"failed \(500\): prepared"),
    (Answer(status=408), EngineUnavailable, r"failed \(408\)"),
    (Answer(status=401, body=b"Must provide an API key"), EngineUnavailable, r"refused the API key \(401\); set a key"),
    (Answer(status=403), EngineUnavailable, r"refused the API key \(403\)"),
    (Answer(status=429), EngineUnavailable, r"limits the rate of requests \(429\)"),
    (Answer(status=400), EngineUnavailable, r"rejected a request: prepared \(400\); see its log"),
    (Answer(status=422), EngineUnavailable, r"rejected a request: prepared \(422\)"),
    (Answer(status=507), StorageFull, "The disk of Qdrant is full: free some space"),
    (
        Answer(status=500, body=b'{"status": {"error": "Service internal error: No space left on device: WAL buffer size exceeds"}}'),
        StorageFull,
        "is full",
    ),
    (Answer(status=200, body=b"<html>"), EngineUnavailable, r"did not answer in JSON \(200\); check that no other program"),
    (Answer(status=200, body=b"[]"), EngineUnavailable, "did not answer in JSON"),
    (Answer(status=200, body=b"{}"), EngineUnavailable, "answer of another form than expected"),
    (Answer(status=200, body=b'{"result": null}'), EngineUnavailable, "answer of another form"),
    (Answer(status=200, body=b'{"result": [[]]}'), EngineUnavailable, "answer of another form"),
    (
        Answer(status=200, body=b'{"result": {"points": [{}], "count": "x", "status": {}}}'),
        EngineUnavailable,
        "answer of another form|has not",
    ),
    (Answer(status=502, body=b"Bad gateway"), EngineUnavailable, r"did not answer in JSON \(502\)"),
    (Answer(status=404, body=b"not here"), EngineUnavailable, r"did not answer in JSON \(404\)"),
]


@pytest.mark.parametrize(
    ("answer", "error_class", "text"), _FAILURES, ids=[f"{answer.status} {text[:24]}" for answer, _, text in _FAILURES]
)
@pytest.mark.parametrize("name", ["put", "search", "fetch", "drop", "drop_version", "count"])
async def test_a_failed_answer_becomes_an_error_of_the_port(
    name: str, answer: Answer, error_class: type[Exception], text: str, server: QdrantStandIn
) -> None:
    """No error of HTTP or JSON leaks, and the next call works."""
    async with _open(server.address()) as index:
        await index.put([make_embedded()])
        await find_ids(index)  # the size of the workspace is known now
        server.answers.append(answer)
        with pytest.raises(error_class, match=text):
            await _CALLS[name](index)
        server.answers.clear()
        await _CALLS[name](index)


@pytest.mark.parametrize(("header", "expected"), [({"Retry-After": "7"}, "7"), ({"Retry-After": "soon"}, "5"), ({}, "5")])
async def test_the_wait_that_a_rate_limit_names_is_passed_on(server: QdrantStandIn, header: Mapping[str, str], expected: str) -> None:
    """Qdrant's strict mode can limit the requests of a minute."""
    async with _open(server.address()) as index:
        await index.count(1)
        server.answers.append(Answer(status=429, headers=header))
        with pytest.raises(EngineUnavailable) as error:
            await index.count(1)

    assert error.value.headers == {"Retry-After": expected}


async def test_a_write_that_was_only_queued_is_an_error(server: QdrantStandIn) -> None:
    """A write is complete when searches see it."""
    async with _open(server.address()) as index:
        await index.count(1)
        for body in (b'{"result": [{"operation_id": 1, "status": "acknowledged"}]}', b'{"result": [{"status": "wait_timeout"}]}'):
            server.answers.append(Answer(status=200, body=body))
            with pytest.raises(EngineUnavailable, match=r"has not finished a write \((acknowledged|wait_timeout)\)"):
                await index.put([make_embedded()])


async def test_a_key_is_sent_with_each_request(server: QdrantStandIn) -> None:
    """A wrong or missing key is an error with advice, without the key."""
    server.api_key = _KEY
    async with _open(f"qdrant://:{_KEY}@127.0.0.1:{server.port}") as index:
        await index.put([make_embedded()])
    for credentials in ("", ":another-key@"):
        async with _open(f"qdrant://{credentials}127.0.0.1:{server.port}") as index:
            with pytest.raises(EngineUnavailable, match="refused the API key") as error:
                await index.put([make_embedded()])
            assert "another-key" not in str(error.value)


async def test_an_older_server_is_rejected(server: QdrantStandIn) -> None:
    """The error names both versions."""
    server.version = "1.16.3"
    async with _open(server.address()) as index:
        with pytest.raises(EngineUnavailable, match=r"has version 1\.16\.3; use version 1\.17 or newer"):
            await index.count(1)


async def test_a_collection_of_other_vectors_is_rejected(server: QdrantStandIn) -> None:
    """Another program may have created it. Its points are not touched."""
    async with _open(server.address("mine")) as index:
        await index.count(1)
    (name,) = server.collections
    settings = server.collections[name].settings
    vectors = settings.vectors
    assert vectors is not None
    server.delete(name)
    server.create(name, settings.model_copy(update={"vectors": vectors.model_copy(update={"size": 5})}))  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType] - one dense vector
    async with _open(server.address("mine")) as index:
        with pytest.raises(EngineUnavailable, match=rf"has a collection '{name}' of other vectors \(size 5, .*delete the collection"):
            await index.put([make_embedded()])


async def test_deleted_collections_and_indexes_are_created_again(server: QdrantStandIn) -> None:
    """The index is derived data; `rookery brain:reindex` fills it again."""
    async with _open(server.address()) as index:
        await index.put([make_embedded("a")])
        server.delete(next(iter(server.collections)))
        assert await find_ids(index) == []
        await index.put([make_embedded("b")])
        server.delete(next(iter(server.collections)))
        await index.put([make_embedded("c")])
        assert await find_ids(index) == ["c"]
        next(iter(server.collections.values())).indexes.pop("expires_at")
        assert await find_ids(index) == ["c"]


async def test_processes_that_start_together_create_one_collection(server: QdrantStandIn) -> None:
    """Concurrent first uses, in one process or several, are not errors."""
    async with _open(server.address()) as first, _open(server.address()) as second:
        await asyncio.gather(*(index.put([make_embedded(f"m{number}")]) for number in range(5) for index in (first, second)))
        assert await find_ids(first) == await find_ids(second) == [f"m{number}" for number in range(5)]

    assert len(server.collections) == 1


async def test_many_callers_of_a_server_that_is_down_wait_once(server: QdrantStandIn) -> None:
    """They share one attempt. One after the other would wait for hours."""
    with FaultProxy(server.port) as proxy:
        proxy.partition()
        async with _open(server.address(port=proxy.port), query_timeout_s=0.5) as index:
            results = await asyncio.gather(*(index.count(1) for _ in range(50)), return_exceptions=True)

        assert {type(result) for result in results} == {EngineUnavailable}
        assert proxy.connection_count <= 1


async def test_cancelled_requests_leave_no_connection_behind(server: QdrantStandIn) -> None:
    """After many cancelled requests, the pool serves as many as before."""
    async with _open(server.address()) as index:
        await index.put([make_embedded(f"m{number}") for number in range(20)])
        for turn in range(60):
            tasks = [asyncio.create_task(find_ids(index)) for _ in range(15)]
            await asyncio.wait(tasks[: 1 + turn % 14], return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        results = await asyncio.gather(*(find_ids(index) for _ in range(40)))
        assert {len(result) for result in results} == {10}


async def test_an_index_can_be_closed_during_its_set_up(server: QdrantStandIn) -> None:
    """No task is left."""
    with FaultProxy(server.port) as proxy:
        proxy.partition()
        index = QdrantIndex(parse_address(server.address(port=proxy.port)), model="small/1", dimension=4)
        starting = asyncio.create_task(index.start())
        await eventually(lambda: any(task.get_name() == "qdrant-setup" for task in asyncio.all_tasks()))
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        await index.close()

        assert not any(task.get_name() == "qdrant-setup" for task in asyncio.all_tasks())


async def test_a_search_of_many_tied_chunks_is_complete(server: QdrantStandIn) -> None:
    """Ties are sorted by id even if more chunks tie than the first request returns."""
    ids = [f"m{number:03}" for number in range(300)]
    async with _open(server.address()) as index:
        await index.put([make_embedded(memory_id, *[EAST] * 3) for memory_id in reversed(ids)])

        assert await find_ids(index, limit=2) == ids[:2]
        hits = await index.search(vector(0, 1), where=filter_ids(1, ids[:250]), limit=250)
        assert [hit.memory_id for hit in hits] == ids[:250]


async def test_a_large_workspace_is_searched_by_its_graph(server: QdrantStandIn) -> None:
    """Results of the graph are nearly exact, and a filter that the graph serves badly is searched exactly."""
    vectors_by_id = _make_vectors(3_000)
    index = QdrantIndex(
        parse_address(server.address("large") + "?quantization=scalar&on_disk=true&shards=1&replicas=2"),
        model="small/1",
        dimension=_DIMENSION,
        max_exact_chunks=1_000,
        query_timeout_s=HANG_S,
        write_timeout_s=HANG_S,
    )
    await index.put(
        [make_embedded(name, numbers, org="rare" if name.endswith("77") else "acme") for name, numbers in vectors_by_id.items()]
    )
    await index.put([make_embedded("small", vectors_by_id["m0000"], workspace_id=2)])
    server.optimize()
    queries = list(_make_vectors(20, seed=9).values())
    shares = [await _measure_recall(index, vectors_by_id, query) for query in queries]
    rare = await find_ids(index, queries[0], limit=40, access_filter=make_filter(org="rare"))
    small = await find_ids(index, queries[0], limit=1, access_filter=make_filter(2))
    await index.close()

    searches = [request.body["params"] for request in server.requests if request.route.endswith("/points/query")]
    assert sum(shares) / len(shares) > 0.95
    assert sorted(rare) == [name for name in vectors_by_id if name.endswith("77")]
    assert small == ["small"]
    assert ["exact" in parameters for parameters in searches] == [False] * 20 + [False, True] + [True]


async def test_the_collection_is_made_for_many_workspaces(server: QdrantStandIn) -> None:
    """A graph for each workspace and none over all, an index for each field of a filter, strict mode, and what the address names."""
    async with _open(server.address("mine") + "?quantization=scalar&on_disk=true&shards=3&replicas=2") as index:
        await index.put([make_embedded("a", tags=("x",))])
        await find_ids(index)
    created = next(request for request in server.requests if request.route == "PUT /collections/*")
    body = created.body

    assert created.collection.startswith("mine-")
    assert body["hnsw_config"] == {"m": 0, "payload_m": 16, "on_disk": True}
    assert body["vectors"] == {"size": 4, "distance": "Dot", "on_disk": True}
    assert body["quantization_config"] == {"scalar": {"type": "int8", "quantile": 0.99, "always_ram": True}}
    assert (body["shard_number"], body["replication_factor"], body["write_consistency_factor"]) == (3, 2, 2)
    assert body["strict_mode_config"]["enabled"] is True
    assert body["metadata"] == {"program": "rookery", "model": "small/1", "dimension": 4}
    indexes = [request.body for request in server.requests if request.route == "PUT /collections/*/index"]
    assert {"field_name": "tenant", "field_schema": {"type": "keyword", "is_tenant": True}} in indexes
    writes = [request for request in server.requests if "points/batch" in request.route or request.route.endswith("/index")]
    assert all(request.parameters == {"wait": "true", "ordering": "medium"} for request in writes)


async def test_a_point_has_the_fields_of_the_specification(server: QdrantStandIn) -> None:
    """workspace_id, org, project, agent_id, type, tags, confidence, source, content, and created_at as ISO 8601."""
    async with _open(server.address()) as index:
        await index.put([make_embedded("a", EAST, EAST)])
    (request,) = (request for request in server.requests if request.route == "POST /collections/*/points/batch")
    body = request.body
    first, second = (point["payload"] for point in body["operations"][0]["upsert"]["points"])

    assert (
        first.items()
        >= {
            "workspace_id": 1,
            "org": "acme",
            "project": "api",
            "agent_id": None,
            "type": "observation",
            "confidence": 0.5,
            "source": "manual",
            "content": "the heron nests on the roof",
            "created_at": "2026-11-21T09:30:00.000000Z",
        }.items()
    )
    assert first["tags"] == []
    assert "content" not in second


async def test_a_recall_is_one_request(server: QdrantStandIn) -> None:
    """The size of a workspace is counted once a minute."""
    async with _open(server.address()) as index:
        await index.put([make_embedded()])
        await find_ids(index)
        count_before = len(server.requests)
        for _ in range(10):
            await find_ids(index)

    assert [request.route for request in server.requests[count_before:]] == ["POST /collections/*/points/query"] * 10


def _make_vectors(count: int, *, seed: int = 1) -> dict[str, Vector]:
    numbers = np.random.default_rng(seed).standard_normal((count, _DIMENSION)).astype("<f4")
    numbers /= np.linalg.norm(numbers, axis=1, keepdims=True)
    return {f"m{number:04}": row.tobytes() for number, row in enumerate(numbers)}


async def _measure_recall(index: QdrantIndex, vectors_by_id: Mapping[str, Vector], query: Vector) -> float:
    matrix = np.frombuffer(b"".join(vectors_by_id.values()), "<f4").reshape(-1, _DIMENSION)
    best = np.argsort(-(matrix @ np.frombuffer(query, "<f4")))[:10]
    names = list(vectors_by_id)
    found = await find_ids(index, query, limit=10)
    return len(set(found) & {names[number] for number in best}) / 10
