"""Idempotency-Key: a marked request is done once, and its repetition gets the same answer (D-14)."""

from __future__ import annotations

import asyncio
import json
import socket
import sqlite3
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, MutableMapping
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, cast

import httpx2
import pytest
from fastapi import FastAPI
from fastapi import Query as FromQuery
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel
from sqlalchemy import func, select, text
from starlette.responses import Response, StreamingResponse

from rookery.access.models import Tier
from rookery.app import build_route_table
from rookery.kernel.db import Database, open_database
from rookery.kernel.errors import Conflict, PermissionDenied
from rookery.kernel.http import EdgeMiddleware, IdempotencyHandler, Route, json_response, mount_routes, respond_with
from rookery.kernel.http.edge import respond_not_found
from rookery.kernel.http.idempotency import MAX_STORED_BODY_BYTES
from rookery.kernel.http.routes import AdmissionResult, RouteTable
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
from tests.documentation import ROOT, code, table
from tests.processes import earlier_worker_id, run_server

KEY = Secret("the secret key of these tests, 0123456789")
COUNTED = select(func.count().label("n")).select_from(stored_responses)


class Note(RequestModel):
    """The request body of the toy routes."""

    text: str = ""
    size: float = 0.0


class Space(QueryModel):
    """A query, which a creating route may have too."""

    where: str = ""


@dataclass
class FakeCaller:
    """A caller, as far as these routes are concerned."""

    key_id: str
    workspace_id: int


class FakeAdmission:
    """An admission of the key that X-Key names."""

    headers: tuple[tuple[bytes, bytes], ...] = ((b"x-ratelimit-remaining", b"7"),)

    def __init__(self, caller: FakeCaller) -> None:
        self.caller = caller

    def record(self, *, method: str, route: str, status: int, duration_ms: float) -> None:
        """Do nothing; the request is not recorded."""


class FakeGuard:
    """Admits every key but the one that was revoked."""

    async def admit(self, scope: MutableMapping[str, object], *, required_scope: str | None, rate_limited: bool = True) -> AdmissionResult:
        """Let in, or raise."""
        named = dict(cast("list[tuple[bytes, bytes]]", scope["headers"])).get(b"x-key", b"k").decode()
        if named == "revoked":
            raise PermissionDenied(str(required_scope))
        return FakeAdmission(FakeCaller(named, 1))


@dataclass
class ToyRoutes:
    """Routes of every kind; `done` is how often work was done."""

    db: Database
    done: int = 0
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    later: asyncio.Task[FakeCaller] | None = None

    def routes(self) -> list[Route]:
        """Return the table."""
        return [
            Route(
                method="POST",
                path="/things",
                handler=self.make,
                required_scope="x",
                status=201,
                idempotent=True,
                max_body_bytes=2 * MAX_STORED_BODY_BYTES,
            ),
            Route(method="POST", path="/things/{name}/parts", handler=self.part, required_scope="x", idempotent=True),
            Route(method="POST", path="/keys", handler=self.key, required_scope="x", idempotent=True, secret_fields=("plaintext_key",)),
            Route(method="POST", path="/slow", handler=self.slow, required_scope="x", idempotent=True),
            Route(method="POST", path="/wrong", handler=self.wrong, required_scope="x", idempotent=True),
            Route(method="POST", path="/broken", handler=self.broken, required_scope="x", idempotent=True),
            Route(method="POST", path="/lossy", handler=self.lossy, required_scope="x", idempotent=True),
            Route(method="POST", path="/stream", handler=self.stream, required_scope="x", idempotent=True),
            Route(method="POST", path="/leaving", handler=self.leaving, required_scope="x", idempotent=True),
            Route(method="POST", path="/questions", handler=self.make, required_scope="x"),
            Route(method="GET", path="/things", handler=self.part_of, required_scope="x"),
        ]

    async def make(self, body: Note, query: Annotated[Space, FromQuery()]) -> Response:
        """Make a thing; `size` is that of the answer."""
        self.done += 1
        made = {"id": str(self.done), "text": body.text + "x" * int(body.size), "where": query.where}
        return json_response(made, status=201, headers={"Location": f"/things/{self.done}"})

    async def part(self, name: str) -> Response:
        """Make a part of a thing; there is no body."""
        self.done += 1
        return Response(status_code=204, headers={"x-name": name})

    async def part_of(self) -> Response:
        """Tell how much was done."""
        self.done += 1
        return json_response({"done": self.done})

    async def key(self, body: Note) -> Response:
        """Make a key, or two, and show them."""
        self.done += 1
        one = {"id": f"id-{self.done}", "plaintext_key": "sk_live_" + "s" * 32}
        return json_response(one if not body.size else {"data": [one, {**one, "id": "other"}]}, status=201)

    async def slow(self, body: Note) -> Response:
        """Work until the gate opens."""
        self.done += 1
        await self.gate.wait()
        return json_response({"text": body.text})

    async def wrong(self) -> Response:
        """Refuse the first time."""
        self.done += 1
        if self.done == 1:
            raise Conflict("not now")
        return json_response({"done": self.done}, status=200 if self.done > 2 else 302)

    async def broken(self) -> Response:
        """Fail by a mistake the first time."""
        self.done += 1
        return json_response({"whole": 1 // (self.done - 1)})

    async def lossy(self) -> Response:
        """Work, and lose the table in which the answer is to be kept."""
        self.done += 1
        await self.db.write(lambda tx: tx.execute(text("ALTER TABLE kept_answers RENAME TO lost_answers")))
        return json_response({"done": self.done})

    async def leaving(self, body: Note) -> Response:
        """Start a task that writes long after the request, which is refused."""
        respond_with(FakeCaller, lambda made: json_response({"id": made.key_id}))
        self.later = asyncio.create_task(self.write_later(body.text))
        raise Conflict("not now")

    async def write_later(self, name: str) -> FakeCaller:
        """Write, once the gate opens, what the request was to return."""
        await self.gate.wait()
        return await self.db.write(lambda tx: FakeCaller(name, 1))

    async def stream(self) -> Response:
        """Answer in pieces."""
        self.done += 1
        return StreamingResponse(iter([b"{}"]))


@dataclass
class Server:
    """A toy server on a record store."""

    client: httpx2.AsyncClient
    toy: ToyRoutes
    kept: IdempotencyStore
    db: Database
    sealer: Sealer

    async def post(self, path: str = "/things", body: object = None, mark: str | None = "m", **headers: str) -> httpx2.Response:
        """POST *body*, marked."""
        marked = headers if mark is None else {"Idempotency-Key": mark, **headers}
        return await self.client.post(path, json={"text": "a"} if body is None else body, headers=marked)

    async def rows(self) -> int:
        """Return how many requests are known."""
        return (await self.db.read(lambda tx: tx.fetch_all(COUNTED)))[0].integer("n")


@asynccontextmanager
async def run_toy_server(db: Database, data_dir: Path, clock: FakeClock, *, renew_s: float = 20.0) -> AsyncGenerator[Server]:
    """Serve the toy routes; another server may be on the same store."""
    sealer = Sealer(db, KeySource(data_dir, configured=KEY), [SEALED_COLUMN], clock)
    await sealer.start()
    kept, toy, mounted = IdempotencyStore(db, sealer, clock, uuid7), ToyRoutes(db), RouteTable(FastAPI())
    mount_routes(mounted, "", toy.routes(), FakeGuard(), IdempotencyHandler(kept, renew_interval_s=renew_s))
    mounted.app.router.default = respond_not_found
    shell = EdgeMiddleware(
        endpoints_by_path=mounted.endpoints_by_path,
        router=mounted.app.router,
        hosts={"toy"},
        origins=(),
        public_url=lambda path: "http://toy",
    )
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(shell), base_url="http://toy") as client:
        yield Server(client, toy, kept, db, sealer)


@pytest.fixture
async def server(database: Database, data_dir: Path, clock: FakeClock) -> AsyncIterator[Server]:
    """A toy server on an empty store."""
    async with run_toy_server(database, data_dir, clock) as started:
        yield started


async def test_a_repetition_gets_the_same_answer_and_nothing_is_done_again(server: Server) -> None:
    """D-14: status, body and headers of the first answer, with Idempotent-Replay; its own request id and rate headers."""
    first = await server.post()
    again = await server.post(**{"X-Request-ID": "mine"})

    assert (first.status_code, server.toy.done) == (201, 1)
    assert "idempotent-replay" not in first.headers
    assert (again.status_code, again.content, again.headers["location"]) == (201, first.content, "/things/1")
    assert (again.headers["idempotent-replay"], again.headers["x-request-id"]) == ("true", "mine")
    own = {"idempotent-replay", "x-request-id"}
    assert {name: value for name, value in again.headers.items() if name not in own} == {
        name: value for name, value in first.headers.items() if name not in own
    }


async def test_an_answer_without_a_body_is_repeated_too(server: Server) -> None:
    """D-14: whatever is 2xx is kept; a route that takes no body compares none."""
    answers = [await server.client.post("/things/a/parts", headers={"Idempotency-Key": "m"}) for _ in range(2)]

    assert [(each.status_code, each.content, each.headers["x-name"]) for each in answers] == [(204, b"", "a")] * 2
    assert server.toy.done == 1


async def test_without_the_header_everything_is_done_each_time(server: Server) -> None:
    """D-14: the header is the caller's choice; nothing is kept without it."""
    for _ in range(2):
        assert (await server.post(mark=None)).status_code == 201

    assert (server.toy.done, await server.rows()) == (2, 0)


async def test_the_same_value_written_otherwise_is_the_same_request(server: Server) -> None:
    """D-14: bodies are compared as JSON values: what a client's second attempt writes in another order is no other body."""
    headers = {"Idempotency-Key": "m", "Content-Type": "application/json"}
    await server.client.post("/things", content='{"size": 1.0, "text": "a"}', headers=headers)
    again = await server.client.post("/things", content='{"text":"\\u0061", "size":1.0e0}', headers=headers)

    assert (again.status_code, again.headers["idempotent-replay"], server.toy.done) == (201, "true", 1)


@pytest.mark.parametrize(
    ("path", "body"), [("/things", {"text": "b"}), ("/things", {"text": "a", "size": 1}), ("/things?where=x", {"text": "a"})]
)
async def test_another_request_under_the_same_mark_is_refused(server: Server, path: str, body: dict[str, object]) -> None:
    """D-14: other body, or other query: 422 idempotency_mismatch, and nothing is done."""
    await server.post()
    other = await server.post(path, body)

    assert (other.status_code, other.json()["error"], server.toy.done) == (422, "idempotency_mismatch", 1)
    assert (await server.post()).headers["idempotent-replay"] == "true"


async def test_a_mark_belongs_to_a_key_and_a_path(server: Server) -> None:
    """D-14: the scope is key id, method and path; a key never receives the response to another key's request."""
    answers = [
        await server.post(),
        await server.post(**{"X-Key": "other"}),
        await server.post(mark="n"),
        await server.post("/keys"),
        await server.client.post("/things/a/parts", headers={"Idempotency-Key": "m"}),
        await server.client.post("/things/b/parts", headers={"Idempotency-Key": "m"}),
    ]

    assert ["idempotent-replay" in each.headers for each in answers] == [False] * 6
    assert (server.toy.done, await server.rows()) == (6, 6)


@given(st.lists(st.tuples(st.text("ab/\x01"), st.text("ab "), st.text("ab/é")), min_size=2, max_size=2, unique=True))
def test_no_two_scopes_are_one(scopes: list[tuple[str, str, str]]) -> None:
    """D-14: key, mark and path are told apart, whatever is in them."""
    ids = {
        fingerprint_request(key_id=key, workspace_id=1, method="POST", path=path, idempotency_key=mark, query=b"", body=b"").id
        for key, mark, path in scopes
    }

    assert len(ids) == 2


@given(st.binary(max_size=3), st.binary(max_size=3), st.binary(max_size=3), st.binary(max_size=3))
def test_no_two_requests_have_one_fingerprint(query: bytes, body: bytes, other_query: bytes, other_body: bytes) -> None:
    """D-14: what ends the query cannot begin the body."""
    one, other = (
        fingerprint_request(key_id="k", workspace_id=1, method="POST", path="/", idempotency_key="m", query=each, body=content).fingerprint
        for each, content in ((query, body), (other_query, other_body))
    )

    assert (one == other) is ((query, body) == (other_query, other_body))


async def test_of_many_at_once_one_is_done(server: Server) -> None:
    """D-14: still running is 409 with Retry-After, under a code of its own; then everybody gets the one answer."""
    requests = [asyncio.create_task(server.post("/slow")) for _ in range(50)]
    await eventually(lambda: sum(each.done() for each in requests) == 49)
    refused = [each.result() for each in requests if each.done()]
    assert {(each.status_code, each.json()["error"], each.headers["retry-after"]) for each in refused} == {
        (409, "idempotency_in_progress", "1")
    }
    other = await server.post("/slow", {"text": "other"})
    assert (other.status_code, other.json()["error"]) == (422, "idempotency_mismatch")
    server.toy.gate.set()

    answers = await asyncio.gather(*requests)
    assert [each.status_code for each in answers].count(200) == 1
    assert (await server.post("/slow")).json() == {"text": "a"}
    assert server.toy.done == 1


async def test_of_two_processes_one_does_it(server: Server, database_url: str, data_dir: Path, clock: FakeClock) -> None:
    """D-14, D-01: the record store decides, for all processes on it."""
    other_db = open_database(database_url, data_dir=data_dir)
    async with run_toy_server(other_db, data_dir, clock) as other:
        for number in range(20):
            pair = await asyncio.gather(*(each.post(mark=str(number)) for each in (server, other)))
            statuses = sorted((each.status_code, "idempotent-replay" in each.headers) for each in pair)
            assert statuses in ([(201, False), (409, False)], [(201, False), (201, True)])
            assert server.toy.done + other.toy.done == number + 1
        answers = [(await each.post(mark="3")).content for each in (server, other)]
        assert answers[0] == answers[1]
    await other_db.close()


async def test_what_was_refused_or_failed_may_be_tried_again(server: Server) -> None:
    """D-14: only 2xx are kept; a refusal, a redirection and a mistake of ours free the mark."""
    refused, redirected, done, again = [await server.post("/wrong", {}) for _ in range(4)]

    assert [refused.status_code, redirected.status_code, done.status_code, again.status_code] == [409, 302, 200, 200]
    assert (again.headers["idempotent-replay"], server.toy.done) == ("true", 3)
    server.toy.done = 0
    assert [(await server.post("/broken", {})).status_code for _ in range(3)] == [500, 200, 200]
    assert server.toy.done == 2


async def test_what_cannot_be_understood_reserves_nothing(server: Server) -> None:
    """D-16: a body that is wrong, or too large, is refused as ever."""
    wrong = await server.post(body={"texd": "a"})
    large = await server.client.post("/things", content=b'"' + b"x" * (2 * MAX_STORED_BODY_BYTES), headers={"Idempotency-Key": "m"})
    keyless = await server.post(**{"X-Key": "revoked"})

    assert [wrong.status_code, large.status_code, keyless.status_code] == [422, 413, 403]
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
async def test_the_mark_is_1_to_255_printable_characters_once(server: Server, values: list[bytes], is_good: bool) -> None:
    """D-14, D-10: anything else is 422; routes without idempotency ignore the header."""
    headers = [(b"idempotency-key", value) for value in values]
    answer = await server.client.post("/things", json={}, headers=headers)
    elsewhere = await server.client.post("/questions", json={}, headers=headers)

    assert answer.status_code == (201 if is_good else 422)
    assert is_good or list(answer.json()["errors"]) == ["Idempotency-Key"]
    assert elsewhere.status_code == 201


async def test_other_routes_pass_over_the_header(server: Server) -> None:
    """D-14: what neither creates nor sends may be repeated as it is."""
    for _ in range(2):
        asked_again = await server.post("/questions")
        read_again = await server.client.get("/things", headers={"Idempotency-Key": "m"})
        assert "idempotent-replay" not in {*asked_again.headers, *read_again.headers}

    assert (server.toy.done, await server.rows()) == (4, 0)


async def test_a_secret_is_shown_once(server: Server) -> None:
    """D-14: such an answer is kept without the secret: its replay is 409 secret_already_shown, with the id of what was made."""
    first, again = await server.post("/keys"), await server.post("/keys")
    await server.post("/keys", {"size": 2}, mark="two")
    two = await server.post("/keys", {"size": 2}, mark="two")

    assert (first.status_code, first.json()["plaintext_key"]) == (201, "sk_live_" + "s" * 32)
    assert (again.status_code, again.json()["error"], again.json()["id"]) == (409, "secret_already_shown", "id-1")
    assert (two.status_code, two.json()["ids"]) == (409, ["id-2", "other"])
    assert (await server.post("/keys", {"text": "b"})).json()["error"] == "idempotency_mismatch"
    assert server.toy.done == 2
    for row in await server.db.read(lambda tx: tx.fetch_all(select(stored_responses))):
        opened = server.sealer.open(row.blob("sealed"), SealContext("kept answer", row.integer("workspace_id"), row.text("id")))
        assert b"sk_live" not in opened


async def test_what_is_kept_cannot_be_read_in_the_store(server: Server, data_dir: Path) -> None:
    """D-07: answers may repeat what callers wrote, so they are sealed; the mark itself is kept as a hash."""
    await server.post(body={"text": "zanzibar"}, mark="serengeti")
    for row in await server.db.read(lambda tx: tx.fetch_all(select(stored_responses))):
        assert b"zanzibar" not in row.blob("sealed")
        assert "serengeti" not in row.text("id")

    for path in data_dir.glob("records.db*"):
        content = path.read_bytes()
        assert b"zanzibar" not in content
        assert b"serengeti" not in content


@pytest.mark.parametrize(("path", "body"), [("/things", {"size": MAX_STORED_BODY_BYTES}), ("/stream", {})])
async def test_an_answer_too_large_to_keep_is_not_done_again(server: Server, path: str, body: object) -> None:
    """D-14: over 1 MiB only that it was answered is kept: 409 answer_not_kept, with the status."""
    first, again = await server.post(path, body), await server.post(path, body)

    assert (again.status_code, again.json()["error"], again.json()["answered"]) == (409, "answer_not_kept", first.status_code)
    assert server.toy.done == 1


async def test_an_answer_is_kept_for_a_day(server: Server, clock: FakeClock) -> None:
    """D-14: 24 hours; then the mark is free, and the row is swept."""
    await server.post()
    clock.advance(seconds=RETENTION.total_seconds() - 1)
    assert (await server.post()).headers["idempotent-replay"] == "true"
    assert await server.kept.delete_expired() == 0
    clock.advance(seconds=1)

    assert "idempotent-replay" not in (await server.post()).headers
    assert server.toy.done == 2
    await server.post(mark="n")
    clock.advance(seconds=RETENTION.total_seconds())
    assert (await server.kept.delete_expired(), await server.rows()) == (2, 0)


async def test_a_request_whose_process_died_may_be_tried_again_after_its_lease(server: Server, clock: FakeClock) -> None:
    """D-14: kill -9 in the middle does not block for ever: 60 s; who lost the lease then keeps nothing over the other's answer."""
    request = fingerprint_request(key_id="k", workspace_id=1, method="POST", path="/x", idempotency_key="m", query=b"", body=b"1")
    dead = await server.kept.claim(request)
    assert isinstance(dead, IdempotencyClaim)
    clock.advance(seconds=LEASE.total_seconds() - 1)
    with pytest.raises(RequestInProgress):
        await server.kept.claim(request)
    clock.advance(seconds=1)

    heir = await server.kept.claim(request)

    assert isinstance(heir, IdempotencyClaim)
    assert not await server.kept.renew(dead)
    assert not await server.kept.store_separately(dead, StoredResponse(status=200, body=b"late"))
    await server.kept.release(dead)
    assert await server.kept.store_separately(heir, StoredResponse(status=201, body=b"new"))
    assert await server.kept.claim(request) == StoredResponse(status=201, body=b"new")


async def test_a_task_that_outlives_its_request_stores_no_response(server: Server) -> None:
    """D-14: what a request started writes later with the request's context; its write is not undone, and answers no repetition."""
    refused = await server.post("/leaving")
    assert server.toy.later is not None

    server.toy.gate.set()

    assert (refused.status_code, await server.toy.later) == (409, FakeCaller("a", 1))
    assert (await server.post("/leaving")).status_code == 409
    await server.toy.later


async def test_a_long_request_keeps_its_lease(database: Database, data_dir: Path, clock: FakeClock) -> None:
    """D-14: the lease is renewed while the request is worked, however long that is."""
    async with run_toy_server(database, data_dir, clock, renew_s=0.01) as server:
        running = asyncio.create_task(server.post("/slow"))
        await eventually(server.rows)
        for _ in range(3):
            clock.advance(seconds=LEASE.total_seconds() - 1)
            until = (clock() + LEASE).timestamp() * 1_000_000
            renewed = select(stored_responses.c.id).where(stored_responses.c.until >= int(until))
            await eventually(lambda renewed=renewed: database.read(lambda tx: tx.fetch_all(renewed)))
            assert (await server.post("/slow")).status_code == 409
        server.toy.gate.set()

        assert (await running).status_code == 200
        assert server.toy.done == 1


async def test_without_the_store_nothing_is_begun(data_dir: Path, server: Server, clock: FakeClock) -> None:
    """D-14: record store down: 503 before the handler runs, with the code of D-10."""
    nowhere = open_database("embedded:", data_dir=data_dir / "gone")
    kept, toy, mounted = IdempotencyStore(nowhere, server.sealer, clock, uuid7), ToyRoutes(nowhere), RouteTable(FastAPI())
    mount_routes(mounted, "", toy.routes(), FakeGuard(), IdempotencyHandler(kept))
    shell = EdgeMiddleware(
        endpoints_by_path=mounted.endpoints_by_path,
        router=mounted.app.router,
        hosts={"toy"},
        origins=(),
        public_url=lambda path: "http://toy",
    )
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(shell), base_url="http://toy") as client:
        answer = await client.post("/things", json={}, headers={"Idempotency-Key": "m"})
    await nowhere.close()

    assert (answer.status_code, answer.json()["error"], toy.done) == (503, "engine_unavailable", 0)


async def test_who_cannot_keep_the_answer_still_gives_it(server: Server) -> None:
    """D-14: what was done is told, also when it cannot be kept; until the lease is over the mark is taken."""
    answer = await server.post("/lossy", {})
    assert (answer.status_code, answer.json()) == (200, {"done": 1})
    await server.db.write(lambda tx: tx.execute(text("ALTER TABLE lost_answers RENAME TO kept_answers")))

    assert (await server.post("/lossy", {})).json()["error"] == "idempotency_in_progress"


async def test_a_public_route_cannot_take_the_header(server: Server) -> None:
    """D-14: the scope is a key's; and of methods POST alone creates."""
    for route in (
        Route(method="POST", path="/a", handler=server.toy.broken, required_scope=None, public=True, idempotent=True),
        Route(method="PUT", path="/a", handler=server.toy.broken, required_scope="x", idempotent=True),
    ):
        with pytest.raises(ValueError, match="Idempotency-Key"):
            mount_routes(RouteTable(FastAPI()), "", [route], FakeGuard())


# --- the platform's own routes


REPEATABLE = {
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
"""Routes that neither create nor send: what they do twice is as once; D-14 leaves out the calls of tools."""

SECRETS = {"plaintext_key", "key", "secret"}
"""Names of fields in which answers show a secret."""


def _routes(settings: Settings) -> Iterator[tuple[str, Route]]:
    return ((f"{each.route.method} {each.path}", each.route) for each in build_route_table(build_platform(settings)).endpoints)


def test_every_route_that_creates_or_sends_takes_the_header(settings: Settings) -> None:
    """D-14: every POST, but for those that are named here."""
    posts = {name: route for name, route in _routes(settings) if route.method == "POST"}
    marked = {each.path for each in build_route_table(build_platform(settings)).endpoints if each.idempotency is not None}

    assert {name for name, route in posts.items() if not route.idempotent} == REPEATABLE
    assert marked == {name.split()[1] for name, route in posts.items() if route.idempotent}


def test_the_how_to_names_the_routes_that_take_the_header(settings: Settings) -> None:
    """House 5.7, D-14: retry-safely.md names each, with the secret that its answer shows, and no other."""
    real = {name: list(route.secret_fields) for name, route in _routes(settings) if route.idempotent}
    shown = table(ROOT / "docs" / "how-to" / "retry-safely.md", "Route")

    assert {row[0].strip("`"): code(row[1]) for row in shown} == real
    assert len(shown) == len(real)


def test_no_answer_that_is_kept_has_a_secret(settings: Settings) -> None:
    """D-14: each marked route says which fields of its answer are secrets."""
    routes = [
        (name, route, _fields(route.response_model))
        for name, route in _routes(settings)
        if route.idempotent and route.response_model is not None
    ]
    shown = {name: SECRETS & fields for name, route, fields in routes if not (SECRETS & fields) <= {*route.secret_fields}}

    assert shown == {}
    assert any(route.secret_fields for _, route, _ in routes)


def test_no_answer_that_is_kept_has_a_memorys_content(settings: Settings) -> None:
    """D-41: deleting blanks the content in stored answers; so none of them has any, whatever a route will be marked."""
    for name, route in _routes(settings):
        if route.idempotent and route.response_model is not None:
            assert "content" not in _fields(route.response_model), name


def _fields(model: type[BaseModel]) -> set[str]:
    schema = json.dumps(model.model_json_schema())
    properties = [
        each["properties"] for each in [json.loads(schema), *json.loads(schema).get("$defs", {}).values()] if "properties" in each
    ]
    return {name for each in properties for name in each}


async def _memories(instance: Instance) -> int:
    counted = select(func.count().label("n")).select_from(memories)
    return (await instance.rookery.db.read(lambda tx: tx.fetch_all(counted)))[0].integer("n")


async def _remember(caller: Caller, content: str = "x", mark: str = "m") -> httpx2.Response:
    return await caller.post("/v1/brain/remember", {"type": "fact", "content": content}, **{"Idempotency-Key": mark})


async def test_a_memory_is_remembered_once(instance: Instance) -> None:
    """D-14 on spec 4.3: remember and its batch; a replay spends the rate limit as any request does."""
    key = await instance.api_key("brain:write", tier=Tier.FREE)
    first, again = await _remember(key), await _remember(key)
    batch = {"memories": [{"type": "fact", "content": str(number)} for number in range(3)]}
    batches = [await key.post("/v1/brain/remember/batch", batch, **{"Idempotency-Key": "m"}) for _ in range(2)]

    assert (first.status_code, again.status_code, again.json()) == (201, 201, first.json())
    assert batches[0].json() == batches[1].json()
    assert await _memories(instance) == 4
    left = [int(each.headers["x-ratelimit-remaining"]) for each in (first, again, *batches)]
    assert left == [999, 998, 997, 996]
    rows = await instance.rookery.db.read(lambda tx: tx.fetch_all(select(stored_responses)))
    assert len(rows) == 2


async def test_a_key_is_made_once_and_shown_once(instance: Instance) -> None:
    """D-14 on D-29: a repeated creation makes no second key, and tells the id of the first."""
    new = {"name": "ci", "scopes": ["brain:read"]}
    first, again = [await instance.admin.post("/api/v1/api-keys", new, **{"Idempotency-Key": "m"}) for _ in range(2)]

    assert (first.status_code, again.status_code, again.json()["error"]) == (201, 409, "secret_already_shown")
    assert again.json()["id"] == first.json()["id"]
    assert [each["name"] for each in (await instance.admin.get("/api/v1/api-keys")).json()["data"]].count("ci") == 1


async def test_who_is_not_let_in_gets_no_replay(instance: Instance) -> None:
    """D-14, D-20: the guard comes first: a revoked key is 401, one that lost the scope is 403, and another key's mark is its own."""
    agent, narrowed, other = await instance.agent_key(), await instance.agent_key(), await instance.api_key()
    for each in (agent, narrowed):
        assert (await _remember(each)).status_code == 201
    keys = instance.rookery.access.agent_keys
    await keys.revoke(instance.workspace_id, agent.key_id, by=OPERATOR)
    await keys.set_permissions(instance.workspace_id, narrowed.key_id, ["brain:read"], by=OPERATOR)

    assert [(await _remember(each)).status_code for each in (agent, narrowed, other)] == [401, 403, 201]
    assert await _memories(instance) == 3


async def test_kept_answers_go_with_their_workspace(instance: Instance) -> None:
    """D-14, D-04: `workspace delete` also deletes the sandbox twin's rows (D-25), and no other workspace's."""
    doomed = await instance.workspace("doomed")
    callers = [await instance.api_key(workspace_id=doomed), await instance.api_key(workspace_id=doomed, environment="test"), instance.admin]
    for each in callers:
        assert (await _remember(each)).status_code == 201
    await instance.rookery.access.workspaces.delete(doomed, by=OPERATOR)

    assert (await instance.rookery.db.read(lambda tx: tx.fetch_all(COUNTED)))[0].integer("n") == 1
    assert (await _remember(instance.admin)).headers["idempotent-replay"] == "true"


@pytest.fixture
def folder(tmp_path: Path, model_folder: Path) -> Path:
    """A data folder in which the embedder is ready."""
    lend_model(model_folder, tmp_path / "data")
    return tmp_path / "data"


def _ask(database: Path, statement: str) -> list[object]:
    with closing(sqlite3.connect(database, timeout=10, isolation_level=None)) as connection:
        return [row[0] for row in connection.execute(statement).fetchall()]


async def test_a_server_killed_before_its_answer_does_not_do_it_again(folder: Path) -> None:
    """D-14; issue 14 (attack 1): kill -9 between the write and its answer: the repetition gets the answer, and there is one record."""
    body, mark = {"type": "fact", "content": "x", "wait_ms": 5000}, {"Idempotency-Key": "m"}
    records = folder / "records.db"
    with run_server(folder) as server:
        # Nothing is indexed while we hold the file, so the request waits for it, long after its memory was stored.
        server.client.post("/v1/brain/remember", json=body)
        holding = sqlite3.connect(folder / "vectors.db", isolation_level=None)
        holding.execute("BEGIN EXCLUSIVE")
        keyed = {"Authorization": f"Bearer {server.keys['api_key']}", **mark}
        asking = asyncio.create_task(
            asyncio.to_thread(httpx2.post, f"{server.url}/v1/brain/remember", json=body, headers=keyed, timeout=30)
        )
        await eventually(lambda: _ask(records, "SELECT count(*) FROM memories") == [2])
        server.kill()
        holding.close()
        with pytest.raises(httpx2.TransportError):
            await asking

    with run_server(folder) as server:
        again = server.client.post("/v1/brain/remember", json=body, headers=mark)

        assert (again.status_code, again.headers["idempotent-replay"]) == (201, "true")
        assert _ask(records, "SELECT count(*) FROM memories") == [2]
        assert again.json()["id"] in _ask(records, "SELECT id FROM memories")


async def test_a_claim_of_a_dead_process_is_free_at_once(server: Server, database: Database) -> None:
    """D-14: what a process of this host claimed and never did may be done as soon as that process is gone, not after its lease."""
    request = fingerprint_request(key_id="k", workspace_id=1, method="POST", path="/x", idempotency_key="m", query=b"", body=b"1")
    assert isinstance(await server.kept.claim(request), IdempotencyClaim)
    with pytest.raises(RequestInProgress):
        await server.kept.claim(request)
    gone = await asyncio.create_subprocess_exec("true")
    await gone.wait()
    owner = f"{socket.gethostname()}:{gone.pid}:x"
    await database.write(lambda tx: tx.execute(stored_responses.update().values(owner=owner)))

    assert isinstance(await server.kept.claim(request), IdempotencyClaim)


async def test_a_claim_of_an_earlier_process_with_this_pid_is_free_at_once(server: Server, database: Database) -> None:
    """D-14: a server that restarts in a container has the same process id, and takes over what it claimed before."""
    request = fingerprint_request(key_id="k", workspace_id=1, method="POST", path="/x", idempotency_key="m", query=b"", body=b"1")
    claim = await server.kept.claim(request)
    assert isinstance(claim, IdempotencyClaim)
    owner = earlier_worker_id(claim.worker_id)
    await database.write(lambda tx: tx.execute(stored_responses.update().values(owner=owner)))

    assert isinstance(await server.kept.claim(request), IdempotencyClaim)
    with pytest.raises(RequestInProgress):
        await server.kept.claim(request)
