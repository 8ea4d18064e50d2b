"""Idempotency-Key: a repeated request runs once and gets the same response."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field
from pathlib import Path

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel
from sqlalchemy import func, select, text
from starlette.responses import Response, StreamingResponse

from rookery.access.models import Tier
from rookery.app import build_route_table
from rookery.kernel.db import Database, Tx, open_database
from rookery.kernel.db.leases import make_worker_id
from rookery.kernel.errors import Conflict, PermissionDenied
from rookery.kernel.http import EdgeMiddleware, IdempotencyHandler, Operation, json_response, mount_routes, respond_with
from rookery.kernel.http.idempotency import MAX_STORED_BODY_BYTES
from rookery.kernel.http.routes import RouteTable
from rookery.kernel.idempotency_store import (
    LEASE,
    RETENTION,
    SEALED_COLUMN,
    IdempotencyClaim,
    IdempotencyStore,
    RequestInProgress,
    StoredResponse,
    fingerprint_request,
    stored_responses,
)
from rookery.kernel.ids import uuid7
from rookery.kernel.schema import QueryModel, RequestModel
from rookery.kernel.sealing import KeySource, SealContext, Sealer
from rookery.kernel.secret import Secret
from rookery.memory.store.tables import memories
from rookery.wiring import build_platform
from tests.conftest import OPERATOR, Caller, FakeClock, Instance, Settings, eventually, lend_model
from tests.deadlines import HANG_S
from tests.documentation import ROOT, code, table
from tests.guards import FakeGuard
from tests.processes import earlier_worker_id, run_server

KEY = Secret("the secret key of these tests, 0123456789")
COUNT_STATEMENT = select(func.count().label("n")).select_from(stored_responses)


class Note(RequestModel):
    """The request body of the toy routes."""

    text: str = ""
    size: float = 0.0


class Space(QueryModel):
    """The query of a creating route."""

    where: str = ""


@dataclass
class FakeCaller:
    """A caller with the fields that these routes use."""

    key_id: str
    workspace_id: int


def find_caller_by_key(headers: Mapping[bytes, bytes], required_scope: str | None) -> FakeCaller:
    """Return the caller of any key in the X-Key header except "revoked"."""
    key_id = headers.get(b"x-key", b"k").decode()
    if key_id == "revoked":
        raise PermissionDenied(str(required_scope))
    return FakeCaller(key_id, 1)


GUARD = FakeGuard(find_caller_by_key, headers=((b"x-ratelimit-remaining", b"7"),))


@dataclass
class ToyRoutes:
    """Routes of every kind; `done` counts their runs."""

    db: Database
    done: int = 0
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    is_writing: threading.Event = field(default_factory=threading.Event)
    write_gate: threading.Event = field(default_factory=threading.Event)
    background_task: asyncio.Task[FakeCaller] | None = None

    def routes(self) -> list[Operation]:
        """Return the routes."""
        return [
            Operation(
                method="POST",
                path="/things",
                handler=self.make,
                required_scope="x",
                status=201,
                idempotent=True,
                max_body_bytes=2 * MAX_STORED_BODY_BYTES,
            ),
            Operation(method="POST", path="/things/{name}/parts", handler=self.part, required_scope="x", idempotent=True),
            Operation(method="POST", path="/keys", handler=self.key, required_scope="x", idempotent=True, secret_fields=("plaintext_key",)),
            Operation(method="POST", path="/slow", handler=self.slow, required_scope="x", idempotent=True),
            Operation(method="POST", path="/wrong", handler=self.wrong, required_scope="x", idempotent=True),
            Operation(method="POST", path="/broken", handler=self.broken, required_scope="x", idempotent=True),
            Operation(method="POST", path="/lossy", handler=self.lossy, required_scope="x", idempotent=True),
            Operation(method="POST", path="/stream", handler=self.stream, required_scope="x", idempotent=True),
            Operation(method="POST", path="/leaving", handler=self.leaving, required_scope="x", idempotent=True),
            Operation(method="POST", path="/written", handler=self.written, required_scope="x", idempotent=True),
            Operation(method="POST", path="/questions", handler=self.make, required_scope="x"),
            Operation(method="GET", path="/things", handler=self.part_of, required_scope="x"),
        ]

    async def make(self, body: Note, query: Space) -> Response:
        """Create a thing; `size` is the size of the response."""
        self.done += 1
        thing = {"id": str(self.done), "text": body.text + "x" * int(body.size), "where": query.where}
        return json_response(thing, status=201, headers={"Location": f"/things/{self.done}"})

    async def part(self, name: str) -> Response:
        """Create a part of a thing, without a response body."""
        self.done += 1
        return Response(status_code=204, headers={"x-name": name})

    async def part_of(self) -> Response:
        """Return the number of runs."""
        self.done += 1
        return json_response({"done": self.done})

    async def key(self, body: Note) -> Response:
        """Create one or two keys and return them."""
        self.done += 1
        key = {"id": f"id-{self.done}", "plaintext_key": "sk_live_" + "s" * 32}
        return json_response(key if not body.size else {"data": [key, {**key, "id": "other"}]}, status=201)

    async def slow(self, body: Note) -> Response:
        """Wait until the gate is open."""
        self.done += 1
        await self.gate.wait()
        return json_response({"text": body.text})

    async def wrong(self) -> Response:
        """Raise a conflict in the first run."""
        self.done += 1
        if self.done == 1:
            raise Conflict("not now")
        return json_response({"done": self.done}, status=200 if self.done > 2 else 302)

    async def broken(self) -> Response:
        """Raise an unexpected error in the first run."""
        self.done += 1
        return json_response({"whole": 1 // (self.done - 1)})

    async def lossy(self) -> Response:
        """Run, and rename the table of the stored responses."""
        self.done += 1
        await self.db.write(lambda tx: tx.execute(text("ALTER TABLE kept_answers RENAME TO lost_answers")))
        return json_response({"done": self.done})

    async def leaving(self, body: Note) -> Response:
        """Start a task that writes after the request, and reject the request."""
        respond_with(FakeCaller, lambda made: json_response({"id": made.key_id}))
        self.background_task = asyncio.create_task(self.write_later(body.text))
        raise Conflict("not now")

    async def write_later(self, name: str) -> FakeCaller:
        """Write the result of the request when the gate is open."""
        await self.gate.wait()
        return await self.db.write(lambda tx: FakeCaller(name, 1))

    async def written(self, body: Note) -> Response:
        """Count a run in a transaction that waits until the gate of writes is open."""
        respond = respond_with(FakeCaller, lambda made: json_response({"id": made.key_id}))

        def work(tx: Tx) -> FakeCaller:
            self.is_writing.set()
            self.write_gate.wait(HANG_S)
            tx.after_commit(self._count)
            return FakeCaller(body.text, 1)

        return respond(await self.db.write(work))

    def _count(self) -> None:
        self.done += 1

    async def stream(self) -> Response:
        """Return a streaming response."""
        self.done += 1
        return StreamingResponse(iter([b"{}"]))


@dataclass
class Server:
    """A toy server on a record store."""

    client: httpx2.AsyncClient
    toy: ToyRoutes
    store: IdempotencyStore
    db: Database
    sealer: Sealer

    async def post(self, path: str = "/things", body: object = None, idempotency_key: str | None = "m", **headers: str) -> httpx2.Response:
        """POST *body* with an Idempotency-Key."""
        all_headers = headers if idempotency_key is None else {"Idempotency-Key": idempotency_key, **headers}
        return await self.client.post(path, json={"text": "a"} if body is None else body, headers=all_headers)

    async def rows(self) -> int:
        """Return the number of stored requests."""
        return (await self.db.read(lambda tx: tx.fetch_all(COUNT_STATEMENT)))[0].integer("n")


@asynccontextmanager
async def run_toy_server(db: Database, data_dir: Path, clock: FakeClock, *, renew_s: float = 20.0) -> AsyncGenerator[Server]:
    """Serve the toy routes; a second server may use the same store."""
    sealer = Sealer(db, KeySource(data_dir, configured=KEY), [SEALED_COLUMN], clock)
    await sealer.start()
    idempotency_store, toy, routes = IdempotencyStore(db, sealer, clock, uuid7), ToyRoutes(db), RouteTable()
    mount_routes(routes, "", toy.routes(), GUARD, IdempotencyHandler(idempotency_store, renew_interval_s=renew_s))
    app = EdgeMiddleware(
        endpoints_by_path=routes.endpoints_by_path,
        router=routes.router,
        hosts={"toy"},
        origins=(),
        public_url=lambda path: "http://toy",
    )
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://toy") as client:
        yield Server(client, toy, idempotency_store, db, sealer)


@pytest.fixture
async def server(database: Database, data_dir: Path, clock: FakeClock) -> AsyncIterator[Server]:
    """Yield a toy server on an empty store."""
    async with run_toy_server(database, data_dir, clock) as server:
        yield server


async def test_a_repeated_request_gets_the_same_response_without_a_second_run(server: Server) -> None:
    """Status, body and headers are repeated with Idempotent-Replay; the request id and rate limits are new."""
    first = await server.post()
    replay = await server.post(**{"X-Request-ID": "mine"})

    assert (first.status_code, server.toy.done) == (201, 1)
    assert "idempotent-replay" not in first.headers
    assert (replay.status_code, replay.content, replay.headers["location"]) == (201, first.content, "/things/1")
    assert (replay.headers["idempotent-replay"], replay.headers["x-request-id"]) == ("true", "mine")
    own_headers = {"idempotent-replay", "x-request-id"}
    assert {name: value for name, value in replay.headers.items() if name not in own_headers} == {
        name: value for name, value in first.headers.items() if name not in own_headers
    }


async def test_a_response_without_a_body_is_repeated(server: Server) -> None:
    """All 2xx responses are stored."""
    responses = [await server.client.post("/things/a/parts", headers={"Idempotency-Key": "m"}) for _ in range(2)]

    assert [(response.status_code, response.content, response.headers["x-name"]) for response in responses] == [(204, b"", "a")] * 2
    assert server.toy.done == 1


async def test_without_the_header_every_request_runs(server: Server) -> None:
    """Nothing is stored without the header."""
    for _ in range(2):
        assert (await server.post(idempotency_key=None)).status_code == 201

    assert (server.toy.done, await server.rows()) == (2, 0)


async def test_equal_json_values_are_the_same_request(server: Server) -> None:
    """Bodies are compared as JSON values, independent of order and notation."""
    headers = {"Idempotency-Key": "m", "Content-Type": "application/json"}
    await server.client.post("/things", content='{"size": 1.0, "text": "a"}', headers=headers)
    replay = await server.client.post("/things", content='{"text":"\\u0061", "size":1.0e0}', headers=headers)

    assert (replay.status_code, replay.headers["idempotent-replay"], server.toy.done) == (201, "true", 1)


@pytest.mark.parametrize(
    ("path", "body"), [("/things", {"text": "b"}), ("/things", {"text": "a", "size": 1}), ("/things?where=x", {"text": "a"})]
)
async def test_another_request_with_the_same_key_is_rejected(server: Server, path: str, body: dict[str, object]) -> None:
    """Another body or query gives 422 idempotency_mismatch, and does not run."""
    await server.post()
    mismatch = await server.post(path, body)

    assert (mismatch.status_code, mismatch.json()["error"], server.toy.done) == (422, "idempotency_mismatch", 1)
    assert (await server.post()).headers["idempotent-replay"] == "true"


async def test_an_idempotency_key_belongs_to_an_api_key_and_a_path(server: Server) -> None:
    """An API key never receives the response to another key's request."""
    responses = [
        await server.post(),
        await server.post(**{"X-Key": "other"}),
        await server.post(idempotency_key="n"),
        await server.post("/keys"),
        await server.client.post("/things/a/parts", headers={"Idempotency-Key": "m"}),
        await server.client.post("/things/b/parts", headers={"Idempotency-Key": "m"}),
    ]

    assert ["idempotent-replay" in response.headers for response in responses] == [False] * 6
    assert (server.toy.done, await server.rows()) == (6, 6)


@given(st.lists(st.tuples(st.text("ab/\x01"), st.text("ab "), st.text("ab/é")), min_size=2, max_size=2, unique=True))
def test_different_scopes_have_different_ids(scopes: list[tuple[str, str, str]]) -> None:
    """API key, Idempotency-Key and path are never mixed up, whatever they contain."""
    ids = {
        fingerprint_request(key_id=key, workspace_id=1, method="POST", path=path, idempotency_key=mark, query=b"", body=b"").id
        for key, mark, path in scopes
    }

    assert len(ids) == 2


@given(st.binary(max_size=3), st.binary(max_size=3), st.binary(max_size=3), st.binary(max_size=3))
def test_different_requests_have_different_fingerprints(query: bytes, body: bytes, other_query: bytes, other_body: bytes) -> None:
    """The end of the query cannot be read as the beginning of the body."""
    first, second = (
        fingerprint_request(
            key_id="k", workspace_id=1, method="POST", path="/", idempotency_key="m", query=query_bytes, body=content
        ).fingerprint
        for query_bytes, content in ((query, body), (other_query, other_body))
    )

    assert (first == second) is ((query, body) == (other_query, other_body))


async def test_of_many_concurrent_requests_one_runs(server: Server) -> None:
    """The others get 409 idempotency_in_progress with Retry-After, and later the same response."""
    requests = [asyncio.create_task(server.post("/slow")) for _ in range(50)]
    await eventually(lambda: sum(request.done() for request in requests) == 49)
    in_progress = [request.result() for request in requests if request.done()]
    assert {(response.status_code, response.json()["error"], response.headers["retry-after"]) for response in in_progress} == {
        (409, "idempotency_in_progress", "1")
    }
    mismatch = await server.post("/slow", {"text": "other"})
    assert (mismatch.status_code, mismatch.json()["error"]) == (422, "idempotency_mismatch")
    server.toy.gate.set()

    responses = await asyncio.gather(*requests)
    assert [response.status_code for response in responses].count(200) == 1
    assert (await server.post("/slow")).json() == {"text": "a"}
    assert server.toy.done == 1


async def test_only_one_of_two_processes_runs_the_request(server: Server, database_url: str, data_dir: Path, clock: FakeClock) -> None:
    """The record store decides for all processes."""
    second_db = open_database(database_url, data_dir=data_dir)
    async with run_toy_server(second_db, data_dir, clock) as second_server:
        for number in range(20):
            responses = await asyncio.gather(*(one_server.post(idempotency_key=str(number)) for one_server in (server, second_server)))
            statuses = sorted((response.status_code, "idempotent-replay" in response.headers) for response in responses)
            assert statuses in ([(201, False), (409, False)], [(201, False), (201, True)])
            assert server.toy.done + second_server.toy.done == number + 1
        bodies = [(await one_server.post(idempotency_key="3")).content for one_server in (server, second_server)]
        assert bodies[0] == bodies[1]
    await second_db.close()


async def test_rejected_and_failed_requests_may_be_repeated(server: Server) -> None:
    """Only 2xx responses are stored; other responses free the key."""
    rejected, redirected, first_success, replay = [await server.post("/wrong", {}) for _ in range(4)]

    assert [rejected.status_code, redirected.status_code, first_success.status_code, replay.status_code] == [409, 302, 200, 200]
    assert (replay.headers["idempotent-replay"], server.toy.done) == ("true", 3)
    server.toy.done = 0
    assert [(await server.post("/broken", {})).status_code for _ in range(3)] == [500, 200, 200]
    assert server.toy.done == 2


async def test_invalid_requests_store_nothing(server: Server) -> None:
    """Invalid and too large bodies are rejected as without the header."""
    invalid = await server.post(body={"texd": "a"})
    too_large = await server.client.post("/things", content=b'"' + b"x" * (2 * MAX_STORED_BODY_BYTES), headers={"Idempotency-Key": "m"})
    revoked = await server.post(**{"X-Key": "revoked"})

    assert [invalid.status_code, too_large.status_code, revoked.status_code] == [422, 413, 403]
    assert (await server.rows(), server.toy.done) == (0, 0)


@pytest.mark.parametrize(
    ("values", "is_good"),
    [
        ([b"a"], True),
        ([b'"8e03978e-40d5-43dd-bc93-6894a57f9324"'], True),
        ([b"!" * 255], True),
        ([b" two words "], True),
        ([b""], False),
        ([b"  "], False),
        ([b"!" * 256], False),
        ([b"a\tb"], False),
        ([b"caf\xc3\xa9"], False),
        ([b"\x7f"], False),
        ([b"a", b"a"], False),
    ],
)
async def test_the_header_has_1_to_255_printable_characters_and_occurs_once(server: Server, values: list[bytes], is_good: bool) -> None:
    """Other values are 422; routes without idempotency ignore the header."""
    headers = [(b"idempotency-key", value) for value in values]
    response = await server.client.post("/things", json={}, headers=headers)
    other_route = await server.client.post("/questions", json={}, headers=headers)

    assert response.status_code == (201 if is_good else 422)
    assert is_good or list(response.json()["errors"]) == ["Idempotency-Key"]
    assert other_route.status_code == 201


async def test_other_routes_ignore_the_header(server: Server) -> None:
    """Routes that neither create nor send can be repeated anyway."""
    for _ in range(2):
        recall_again = await server.post("/questions")
        read_again = await server.client.get("/things", headers={"Idempotency-Key": "m"})
        assert "idempotent-replay" not in {*recall_again.headers, *read_again.headers}

    assert (server.toy.done, await server.rows()) == (4, 0)


async def test_a_secret_is_returned_once(server: Server) -> None:
    """The response is stored without the secret; its replay is 409 secret_already_shown with the id."""
    first, replay = await server.post("/keys"), await server.post("/keys")
    await server.post("/keys", {"size": 2}, idempotency_key="two")
    replay_of_two = await server.post("/keys", {"size": 2}, idempotency_key="two")

    assert (first.status_code, first.json()["plaintext_key"]) == (201, "sk_live_" + "s" * 32)
    assert (replay.status_code, replay.json()["error"], replay.json()["id"]) == (409, "secret_already_shown", "id-1")
    assert (replay_of_two.status_code, replay_of_two.json()["ids"]) == (409, ["id-2", "other"])
    assert (await server.post("/keys", {"text": "b"})).json()["error"] == "idempotency_mismatch"
    assert server.toy.done == 2
    for row in await server.db.read(lambda tx: tx.fetch_all(select(stored_responses))):
        content = server.sealer.open(row.blob("sealed"), SealContext("kept answer", row.integer("workspace_id"), row.text("id")))
        assert b"sk_live" not in content


async def test_stored_responses_are_sealed(server: Server, data_dir: Path) -> None:
    """Responses may repeat content of callers; of the Idempotency-Key only a hash is stored."""
    await server.post(body={"text": "zanzibar"}, idempotency_key="serengeti")
    for row in await server.db.read(lambda tx: tx.fetch_all(select(stored_responses))):
        assert b"zanzibar" not in row.blob("sealed")
        assert "serengeti" not in row.text("id")

    for path in data_dir.glob("records.db*"):
        content = path.read_bytes()
        assert b"zanzibar" not in content
        assert b"serengeti" not in content


@pytest.mark.parametrize(("path", "body"), [("/things", {"size": MAX_STORED_BODY_BYTES}), ("/stream", {})])
async def test_a_request_with_a_response_too_large_to_store_does_not_run_again(server: Server, path: str, body: object) -> None:
    """Over 1 MiB only the status is stored, and the replay is 409 answer_not_kept."""
    first, replay = await server.post(path, body), await server.post(path, body)

    assert (replay.status_code, replay.json()["error"], replay.json()["answered"]) == (409, "answer_not_kept", first.status_code)
    assert server.toy.done == 1


async def test_a_response_is_stored_for_a_day(server: Server, clock: FakeClock) -> None:
    """After 24 hours the key is free, and the row is deleted."""
    await server.post()
    clock.advance(seconds=RETENTION.total_seconds() - 1)
    assert (await server.post()).headers["idempotent-replay"] == "true"
    assert await server.store.delete_expired() == 0
    clock.advance(seconds=1)

    assert "idempotent-replay" not in (await server.post()).headers
    assert server.toy.done == 2
    await server.post(idempotency_key="n")
    clock.advance(seconds=RETENTION.total_seconds())
    assert (await server.store.delete_expired(), await server.rows()) == (2, 0)


async def test_a_request_of_a_dead_process_may_run_again_after_its_lease(server: Server, clock: FakeClock) -> None:
    """The lease is 60 s; a process that lost it cannot overwrite the stored response."""
    request = fingerprint_request(key_id="k", workspace_id=1, method="POST", path="/x", idempotency_key="m", query=b"", body=b"1")
    expired_claim = await server.store.claim(request)
    assert isinstance(expired_claim, IdempotencyClaim)
    clock.advance(seconds=LEASE.total_seconds() - 1)
    with pytest.raises(RequestInProgress):
        await server.store.claim(request)
    clock.advance(seconds=1)

    new_claim = await server.store.claim(request)

    assert isinstance(new_claim, IdempotencyClaim)
    assert not await server.store.renew(expired_claim)
    assert not await server.store.store_separately(expired_claim, StoredResponse(status=200, body=b"late"))
    await server.store.release(expired_claim)
    assert await server.store.store_separately(new_claim, StoredResponse(status=201, body=b"new"))
    assert await server.store.claim(request) == StoredResponse(status=201, body=b"new")


async def test_a_task_that_outlives_its_request_stores_no_response(server: Server) -> None:
    """Its write succeeds, but is not stored as the response of the request."""
    rejected = await server.post("/leaving")
    assert server.toy.background_task is not None

    server.toy.gate.set()

    assert (rejected.status_code, await server.toy.background_task) == (409, FakeCaller("a", 1))
    assert (await server.post("/leaving")).status_code == 409
    await server.toy.background_task


async def test_a_long_request_keeps_its_lease(database: Database, data_dir: Path, clock: FakeClock) -> None:
    """The lease is renewed while the request runs."""
    async with run_toy_server(database, data_dir, clock, renew_s=0.01) as server:
        task = asyncio.create_task(server.post("/slow"))
        await eventually(server.rows)
        for _ in range(3):
            clock.advance(seconds=LEASE.total_seconds() - 1)
            min_until = (clock() + LEASE).timestamp() * 1_000_000
            renewed_rows = select(stored_responses.c.id).where(stored_responses.c.until >= int(min_until))
            await eventually(lambda renewed=renewed_rows: database.read(lambda tx: tx.fetch_all(renewed)))
            assert (await server.post("/slow")).status_code == 409
        server.toy.gate.set()

        assert (await task).status_code == 200
        assert server.toy.done == 1


async def test_a_request_does_not_run_without_the_store(data_dir: Path, server: Server, clock: FakeClock) -> None:
    """The response is 503 engine_unavailable before the handler runs."""
    missing_db = open_database("embedded:", data_dir=data_dir / "gone")
    idempotency_store, toy, routes = IdempotencyStore(missing_db, server.sealer, clock, uuid7), ToyRoutes(missing_db), RouteTable()
    mount_routes(routes, "", toy.routes(), GUARD, IdempotencyHandler(idempotency_store))
    app = EdgeMiddleware(
        endpoints_by_path=routes.endpoints_by_path,
        router=routes.router,
        hosts={"toy"},
        origins=(),
        public_url=lambda path: "http://toy",
    )
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://toy") as client:
        response = await client.post("/things", json={}, headers={"Idempotency-Key": "m"})
    await missing_db.close()

    assert (response.status_code, response.json()["error"], toy.done) == (503, "engine_unavailable", 0)


async def test_a_response_is_sent_even_if_it_cannot_be_stored(server: Server) -> None:
    """The key stays in use until the end of the lease."""
    response = await server.post("/lossy", {})
    assert (response.status_code, response.json()) == (200, {"done": 1})
    await server.db.write(lambda tx: tx.execute(text("ALTER TABLE lost_answers RENAME TO kept_answers")))

    assert (await server.post("/lossy", {})).json()["error"] == "idempotency_in_progress"


async def test_public_routes_and_other_methods_cannot_be_idempotent(server: Server) -> None:
    """The scope needs a key, and only POST routes create."""
    for route in (
        Operation(method="POST", path="/a", handler=server.toy.broken, required_scope=None, public=True, idempotent=True),
        Operation(method="PUT", path="/a", handler=server.toy.broken, required_scope="x", idempotent=True),
    ):
        with pytest.raises(ValueError, match="Idempotency-Key"):
            mount_routes(RouteTable(), "", [route], GUARD)


# --- the platform's own routes


NOT_IDEMPOTENT = {
    "POST /api/agent/hooks/{client}/{event}",  # by the session and turn of its payload
    "POST /api/v1/mcp/servers/{server_id}/prompts/{name:path}",
    "POST /api/v1/mcp/tools/call",
    "POST /mcp/tools/call",
    "POST /mcp",
    "POST /mcp/{server_id}",
    "POST /api/v1/servers/{server_id}/login",
    "POST /oauth/callback",
    "POST /api/v1/servers/{id}/check",
    "POST /api/agent/tasks/{task}/heartbeat",
    "POST /v1/tasks/{task}/heartbeat",
    "POST /api/agent/templates/{slug}/preview",
    "POST /v1/templates/{slug}/preview",
    "POST /api/agent/sessions/{session_id}/heartbeat",
    "POST /v1/sessions/{session_id}/heartbeat",
    "POST /api/v1/mcp/servers/{server_id}/tools/{tool:path}",
    *(
        f"POST {prefix}/{path}"
        for prefix in ("/api/agent", "/v1")
        for path in (
            "content/generations/{generation_id}/cancel",
            "content/batches/{batch_id}/cancel",
            "content/templates/{slug}/preview",
            "notify/subscribers/import",
            "notify/subscribers/{subscriber}/subscribe-link",
            "notify/campaigns/{campaign}/preview",
        )
    ),
    "POST /notify/subscribe/{token}",
    "POST /notify/unsubscribe/{token}",
    "POST /v1/score/content",
    "POST /v1/score/batch",
    "POST /v1/brain/recall",
    "POST /v1/brain/recall/{recall_id}/feedback",
    "POST /v1/brain/memories/{memory_id}/archive",
    "POST /v1/brain/memories/{memory_id}/restore",
    "POST /api/v1/api-keys/{key_id}/suspend",
    "POST /api/v1/api-keys/{key_id}/resume",
    "POST /api/v1/agent-keys/{key_id}/suspend",
    "POST /api/v1/agent-keys/{key_id}/resume",
    "POST /api/v1/agent-keys/{key_id}/revoke",
    "POST /api/v1/agent-keys/{key_id}/extend",
    "POST /api/v1/agent-keys/{key_id}/ips",
}
"""Routes that neither create nor send, and tool calls, which are not remembered."""

SECRETS = {"plaintext_key", "key", "secret"}
"""Names of response fields with secrets."""


def _routes(settings: Settings) -> Iterator[tuple[str, Operation]]:
    return (
        (f"{endpoint.route.method} {endpoint.path}", endpoint.route) for endpoint in build_route_table(build_platform(settings)).endpoints
    )


def test_every_route_that_creates_or_sends_is_idempotent(settings: Settings) -> None:
    """These are all POST routes except the listed ones."""
    post_routes = {name: route for name, route in _routes(settings) if route.method == "POST"}
    idempotent_paths = {
        endpoint.path for endpoint in build_route_table(build_platform(settings)).endpoints if endpoint.idempotency is not None
    }

    assert {name for name, route in post_routes.items() if not route.idempotent} == NOT_IDEMPOTENT
    assert idempotent_paths == {name.split()[1] for name, route in post_routes.items() if route.idempotent}


def test_the_how_to_lists_the_idempotent_routes(settings: Settings) -> None:
    """retry-safely.md lists exactly these routes, with the secrets of their responses."""
    routes_with_secrets = {name: list(route.secret_fields) for name, route in _routes(settings) if route.idempotent}
    documented = table(ROOT / "docs" / "how-to" / "retry-safely.md", "Route")

    assert {row[0].strip("`"): code(row[1]) for row in documented} == routes_with_secrets
    assert len(documented) == len(routes_with_secrets)


def test_no_stored_response_has_a_secret(settings: Settings) -> None:
    """Each idempotent route declares the secret fields of its response."""
    routes = [
        (name, route, _fields(route.response_model))
        for name, route in _routes(settings)
        if route.idempotent and route.response_model is not None
    ]
    undeclared = {name: SECRETS & fields for name, route, fields in routes if not (SECRETS & fields) <= {*route.secret_fields}}

    assert undeclared == {}
    assert any(route.secret_fields for _, route, _ in routes)


def test_no_stored_response_has_the_content_of_a_memory(settings: Settings) -> None:
    """A deletion must remove all content, so stored responses have none. The messages of a generation are not a memory."""
    for name, route in _routes(settings):
        if route.idempotent and route.response_model is not None and "Content" not in route.tags:
            assert "content" not in _fields(route.response_model), name


def _fields(model: type[BaseModel]) -> set[str]:
    schema = json.dumps(model.model_json_schema())
    properties = [
        definition["properties"]
        for definition in [json.loads(schema), *json.loads(schema).get("$defs", {}).values()]
        if "properties" in definition
    ]
    return {name for fields in properties for name in fields}


async def _memories(instance: Instance) -> int:
    count_statement = select(func.count().label("n")).select_from(memories)
    return (await instance.rookery.db.read(lambda tx: tx.fetch_all(count_statement)))[0].integer("n")


async def _remember(caller: Caller, content: str = "x", idempotency_key: str = "m") -> httpx2.Response:
    return await caller.post("/v1/brain/remember", {"type": "fact", "content": content}, **{"Idempotency-Key": idempotency_key})


async def test_a_repeated_remember_stores_one_memory(instance: Instance) -> None:
    """This holds for `remember` and its batch; a replay counts for the rate limit."""
    key = await instance.api_key("brain:write", rate_limit_tier=Tier.FREE)
    first, replay = await _remember(key), await _remember(key)
    batch_body = {"memories": [{"type": "fact", "content": str(number)} for number in range(3)]}
    batch_replies = [await key.post("/v1/brain/remember/batch", batch_body, **{"Idempotency-Key": "m"}) for _ in range(2)]

    assert (first.status_code, replay.status_code, replay.json()) == (201, 201, first.json())
    assert batch_replies[0].json() == batch_replies[1].json()
    assert await _memories(instance) == 4
    remaining = [int(response.headers["x-ratelimit-remaining"]) for response in (first, replay, *batch_replies)]
    assert remaining == [999, 998, 997, 996]
    rows = await instance.rookery.db.read(lambda tx: tx.fetch_all(select(stored_responses)))
    assert len(rows) == 2


async def test_a_repeated_creation_of_a_key_creates_one_key(instance: Instance) -> None:
    """The replay has the id of the first key, but not its secret."""
    key_body = {"name": "ci", "scopes": ["brain:read"]}
    first, replay = [await instance.admin.post("/api/v1/api-keys", key_body, **{"Idempotency-Key": "m"}) for _ in range(2)]

    assert (first.status_code, replay.status_code, replay.json()["error"]) == (201, 409, "secret_already_shown")
    assert replay.json()["id"] == first.json()["id"]
    assert [key["name"] for key in (await instance.admin.get("/api/v1/api-keys")).json()["data"]].count("ci") == 1


async def test_a_caller_without_access_gets_no_replay(instance: Instance) -> None:
    """The guard runs before the replay, so revoked keys get 401 and keys without the scope 403."""
    revoked_agent, agent_without_scope, other_key = await instance.agent_key(), await instance.agent_key(), await instance.api_key()
    for key in (revoked_agent, agent_without_scope):
        assert (await _remember(key)).status_code == 201
    keys = instance.rookery.access.agent_keys
    await keys.revoke(instance.workspace_id, revoked_agent.key_id, by=OPERATOR)
    await keys.set_permissions(instance.workspace_id, agent_without_scope.key_id, ["brain:read"], by=OPERATOR)

    assert [(await _remember(key)).status_code for key in (revoked_agent, agent_without_scope, other_key)] == [401, 403, 201]
    assert await _memories(instance) == 3


async def test_stored_responses_are_deleted_with_their_workspace(instance: Instance) -> None:
    """`workspace delete` also deletes those of the sandbox, and of no other workspace."""
    deleted_workspace = await instance.workspace("doomed")
    callers = [
        await instance.api_key(workspace_id=deleted_workspace),
        await instance.api_key(workspace_id=deleted_workspace, environment="test"),
        instance.admin,
    ]
    for caller in callers:
        assert (await _remember(caller)).status_code == 201
    await instance.rookery.access.workspaces.delete(deleted_workspace, by=OPERATOR)

    assert (await instance.rookery.db.read(lambda tx: tx.fetch_all(COUNT_STATEMENT)))[0].integer("n") == 1
    assert (await _remember(instance.admin)).headers["idempotent-replay"] == "true"


@pytest.fixture
def folder(tmp_path: Path, model_folder: Path) -> Path:
    """Return a data folder with a ready embedder."""
    lend_model(model_folder, tmp_path / "data")
    return tmp_path / "data"


def _query(database: Path, statement: str) -> list[object]:
    with closing(sqlite3.connect(database, timeout=HANG_S, isolation_level=None)) as connection:
        return [row[0] for row in connection.execute(statement).fetchall()]


async def test_a_request_of_a_server_killed_before_its_response_does_not_run_again(folder: Path) -> None:
    """After kill -9 between the write and the response, the repeated request gets the response."""
    body, key_header = {"type": "fact", "content": "x", "wait_ms": 5000}, {"Idempotency-Key": "m"}
    records = folder / "records.db"
    with run_server(folder) as server:
        # Nothing is indexed while this connection locks the file, so the request waits long after its memory was stored.
        server.client.post("/v1/brain/remember", json=body)
        lock_connection = sqlite3.connect(folder / "vectors.db", isolation_level=None)
        lock_connection.execute("BEGIN EXCLUSIVE")
        headers = {"Authorization": f"Bearer {server.keys['api_key']}", **key_header}
        request_task = asyncio.create_task(
            asyncio.to_thread(httpx2.post, f"{server.url}/v1/brain/remember", json=body, headers=headers, timeout=HANG_S)
        )
        await eventually(lambda: _query(records, "SELECT count(*) FROM memories") == [2])
        server.kill()
        lock_connection.close()
        with pytest.raises(httpx2.TransportError):
            await request_task

    with run_server(folder) as server:
        replay = server.client.post("/v1/brain/remember", json=body, headers=key_header)

        assert (replay.status_code, replay.headers["idempotent-replay"]) == (201, "true")
        assert _query(records, "SELECT count(*) FROM memories") == [2]
        assert replay.json()["id"] in _query(records, "SELECT id FROM memories")


async def test_a_claim_of_a_dead_process_is_free_immediately(server: Server, database: Database) -> None:
    """A claim of a dead process on this host ends before its lease."""
    request = fingerprint_request(key_id="k", workspace_id=1, method="POST", path="/x", idempotency_key="m", query=b"", body=b"1")
    assert isinstance(await server.store.claim(request), IdempotencyClaim)
    with pytest.raises(RequestInProgress):
        await server.store.claim(request)
    owner = earlier_worker_id(make_worker_id("x"))
    await database.write(lambda tx: tx.execute(stored_responses.update().values(owner=owner)))

    assert isinstance(await server.store.claim(request), IdempotencyClaim)


async def test_a_claim_of_an_earlier_process_with_this_pid_is_free_immediately(server: Server, database: Database) -> None:
    """A server that restarts in a container has the same process id, and takes over its claims."""
    request = fingerprint_request(key_id="k", workspace_id=1, method="POST", path="/x", idempotency_key="m", query=b"", body=b"1")
    claim = await server.store.claim(request)
    assert isinstance(claim, IdempotencyClaim)
    owner = earlier_worker_id(claim.worker_id)
    await database.write(lambda tx: tx.execute(stored_responses.update().values(owner=owner)))

    assert isinstance(await server.store.claim(request), IdempotencyClaim)
    with pytest.raises(RequestInProgress):
        await server.store.claim(request)
