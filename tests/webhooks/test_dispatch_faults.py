"""What goes wrong while deliveries are under way, and that none is lost by it (issue 7, D-81)."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import cast

import httpx2
import orjson
import pytest
from sqlalchemy import delete, select, update
from structlog.testing import capture_logs

from rookery.kernel.db import Database, Tx, open_database
from rookery.memory.store.tables import memories
from rookery.webhooks.models import DeliveryState, EndpointChange, Outcome, ReceiverResponse
from rookery.webhooks.store import queue
from rookery.webhooks.store.tables import deliveries, endpoints, events
from tests.conftest import FakeClock, eventually, lend_model
from tests.processes import Server
from tests.webhooks.office import Office, office
from tests.webhooks.receiver import Receiver, Reply, receiver


@pytest.fixture
async def there() -> AsyncIterator[Receiver]:
    """A receiver that thanks for everything."""
    async with receiver() as up:
        yield up


@pytest.fixture
async def post(database: Database, data_dir: Path, clock: FakeClock) -> AsyncIterator[Office]:
    """Webhooks that are at work, on a store of each dialect in turn."""
    async with office(database, data_dir, clock) as at_work:
        yield at_work


async def test_a_receiver_that_never_answers_delays_no_other(post: Office, there: Receiver) -> None:
    """Issue 7: 500 events for both; behind the dead one, each four of them would be ten seconds."""
    async with receiver(lambda _: Reply(way="silence")) as dead:
        waiting = await post.endpoint(dead.url)
        healthy = await post.endpoint(there.url)
        await post.tell(*map(str, range(500)))
        found = await post.ended(healthy)

        assert {each.state for each in found} == {DeliveryState.DELIVERED}
        assert len(there.received) == 500
        assert dead.most_at_once == waiting.concurrency
        await post.services.dispatcher.stop()


class _Odd:
    """A receiver whose answer no store takes: half a character."""

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> ReceiverResponse:
        return ReceiverResponse(status=200, headers={}, excerpt="\ud800")

    async def close(self) -> None:
        """Do nothing."""


async def test_what_cannot_be_written_down_stops_nobody_elses_deliveries(
    database: Database, data_dir: Path, clock: FakeClock, there: Receiver
) -> None:
    """Issue 7: one poisoned row, of whichever tenant, must not hold up all others; it is put aside, and the log of ours says so."""
    async with office(database, data_dir, clock, is_dispatching=False) as post:
        dispatcher = post.services.dispatcher
        dispatcher.pause_s = 0.01
        honest, dispatcher.sender = dispatcher.sender, replace(dispatcher.sender, client=_Odd())
        unreadable, odd = await post.endpoint(there.url), await post.endpoint(there.url)
        await post.tell("first")
        poison = update(endpoints).where(endpoints.c.id == unreadable.id).values(disabled_reason="of another version")
        await database.write(lambda tx: tx.execute(poison))
        with capture_logs() as logged:
            await dispatcher.start()
            (delivery,) = await post.ended(odd)
            assert (delivery.state, delivery.status) == (DeliveryState.DELIVERED, 200)

            dispatcher.sender = honest
            other = await post.endpoint(there.url)
            await post.tell("second")
            assert [each.state for each in await post.ended(other)] == [DeliveryState.DELIVERED]
    assert {each["event"] for each in logged} == {"webhooks.turn_failed", "webhooks.put_aside"}
    assert len(there.received) == 2  # "second", by the odd one's endpoint too


async def test_a_delivery_whose_event_is_gone_fails_alone(post: Office, there: Receiver, database: Database) -> None:
    """D-17: an event that is forgotten while somebody resends its delivery leaves one that has nothing to send."""
    endpoint = await post.endpoint(there.url, enabled=False)
    await post.tell("first")
    (held,) = await post.log(endpoint)
    await database.write(lambda tx: tx.execute(delete(events).where(events.c.id == held.event_id)))
    await post.services.endpoints.update(post.tenant, endpoint.id, EndpointChange(enabled=True))
    await post.services.deliveries.resend_failed(post.tenant, endpoint.id)
    await post.tell("second")

    found = await post.ended(endpoint)
    assert [(each.state.value, each.error) for each in found] == [("failed", "its event no longer exists"), ("delivered", None)]
    assert len(there.received) == 1


async def test_two_processes_send_each_delivery_once(
    database: Database, database_url: str, data_dir: Path, clock: FakeClock, there: Receiver
) -> None:
    """Issue 7: several may dispatch from one store."""
    second = open_database(database_url, data_dir=data_dir)
    try:
        async with office(database, data_dir, clock) as one, office(second, data_dir, clock, tenant=one.tenant) as two:
            endpoints = [await one.endpoint(there.url), await two.endpoint(there.url), await two.endpoint(there.url, strict_order=True)]
            for start in range(0, 100, 10):
                await one.tell(*map(str, range(start, start + 5)))
                await two.tell(*map(str, range(start + 5, start + 10)))
            for endpoint in endpoints:
                await one.ended(endpoint)
    finally:
        await second.close()

    assert Counter(Counter(there.ids()).values()) == {3: 100}


async def test_what_a_dead_process_of_another_host_had_is_taken_over_when_its_lease_is_over(
    database: Database, data_dir: Path, clock: FakeClock, there: Receiver
) -> None:
    """D-51 for deliveries: an interrupted attempt stays in the log, and costs none of the four."""
    async with office(database, data_dir, clock, is_dispatching=False) as idle:
        endpoint = await idle.endpoint(there.url)
        await idle.tell("first")
        until = clock() + timedelta(seconds=30)
        await database.write(lambda tx: queue.claim(tx, [(endpoint, 1)], worker_id="elsewhere:1:x", now=clock(), until=until))
        async with office(database, data_dir, clock, tenant=idle.tenant) as post:
            await post.services.dispatcher.wait_until_idle()
            assert there.received == []

            await post.pass_time(seconds=30)
            (delivery,) = await post.ended(endpoint)
            view = await post.view(endpoint)

    assert (delivery.state, delivery.attempt_count, delivery.used_attempts) == (DeliveryState.DELIVERED, 2, 1)
    assert [each.outcome for each in view.attempts] == [Outcome.INTERRUPTED, Outcome.SUCCESS]


async def test_a_stop_gives_back_what_is_not_sent_and_says_what_was_interrupted(
    database: Database, data_dir: Path, clock: FakeClock, there: Receiver
) -> None:
    """Issue 7: the log tells the truth; the next process goes on at once."""
    there.gate = asyncio.Event()
    async with office(database, data_dir, clock) as first:
        endpoint = await first.endpoint(there.url, concurrency=1)
        await first.tell("first", "second")
        await eventually(lambda: there.waiting == 1)
        await first.services.dispatcher.stop()
        sent, unsent = await first.view(endpoint), await first.view(endpoint, 1)
        there.gate.set()
        async with office(database, data_dir, clock, tenant=first.tenant) as then:
            ended = await then.ended(endpoint)

    assert (sent.delivery.state, [each.outcome for each in sent.attempts]) == (DeliveryState.PENDING, [Outcome.INTERRUPTED])
    assert (unsent.delivery.state, unsent.delivery.attempt_count, unsent.attempts) == (DeliveryState.PENDING, 0, ())
    assert [(each.state.value, each.attempt_count) for each in ended] == [("delivered", 2), ("delivered", 1)]


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks at processes through /proc")
@pytest.mark.timeout(180)
async def test_kill_9_loses_nothing_between_birth_claim_send_and_record(tmp_path: Path, model_folder: Path, there: Receiver) -> None:
    """
    Issue 7: at least once; every attempt of the dead server stays in the log, as interrupted.

    And deliveries are born in the transaction of what they announce: of memories also that were never acknowledged.
    """
    folder, acknowledged = tmp_path / "home", list[str]()
    lend_model(model_folder, folder)
    there.gate, there.gated = asyncio.Event(), "/slow"
    slow = f"http://127.0.0.1:{there.port}/slow"
    async with _server(folder) as server:
        strict = _hook(server, {"url": slow, "strict_order": True})
        quick = _hook(server, {"url": there.url, "concurrency": 8})
        writing = [asyncio.create_task(asyncio.to_thread(_remember, server, 12, acknowledged)) for _ in range(4)]
        await eventually(lambda: len(there.received) > 20 and there.waiting, within_s=60)
        # To the one a delivery is sent and not recorded, and those behind it are claimed or not; to the other, whatever is under way.
        server.kill()
        await asyncio.gather(*writing)
    stored, said, told = await _kept(folder)
    assert set(acknowledged) <= stored
    assert sorted(said.values()) == sorted(stored)
    assert told == dict.fromkeys(said, 2)

    there.gate.set()
    async with _server(folder) as server:
        await eventually(
            lambda: len(_log(server, strict, "delivered")) == len(_log(server, quick, "delivered")) == len(stored), within_s=60
        )
        log = _log(server, strict)
        attempts = [_attempts(server, strict, each) for each in log]

    came = {path: [each.headers["webhook-id"] for each in there.received if each.path == path] for path in ("/slow", "/hook")}
    assert list(dict.fromkeys(came["/slow"])) == [each["event_id"] for each in reversed(log)]
    assert set(came["/hook"]) == set(came["/slow"])
    assert attempts[-1] == ["interrupted", "success"]
    assert {tuple(each) for each in attempts} <= {("interrupted", "success"), ("success",)}


async def _kept(folder: Path) -> tuple[set[str], dict[str, str], Counter[str]]:
    """Return what the store of a dead server has: memories, the memory that each event tells of, and how many deliveries each has."""

    def read(tx: Tx) -> tuple[set[str], dict[str, str], Counter[str]]:
        stored = {row.text("id") for row in tx.fetch_all(select(memories.c.id))}
        bodies = tx.fetch_all(select(events.c.id, events.c.body))
        said = {row.text("id"): cast("str", orjson.loads(row.blob("body"))["data"]["id"]) for row in bodies}
        return stored, said, Counter(row.text("event_id") for row in tx.fetch_all(select(deliveries.c.event_id)))

    db = open_database("embedded:", data_dir=folder)
    try:
        return await db.read(read)
    finally:
        await db.close()


@asynccontextmanager
async def _server(folder: Path) -> AsyncGenerator[Server]:
    """Run a server, and keep this process's loop, where the receiver is, free meanwhile."""
    server = await asyncio.to_thread(Server, folder, egress_allow="127.0.0.0/8")
    try:
        yield server
    finally:
        if server.process.poll() is None:
            await asyncio.to_thread(server.kill)


def _hook(server: Server, fields: dict[str, object]) -> str:
    answer = server.client.post("/api/v1/webhooks", json={"events": ["memory.stored"], **fields}).raise_for_status()
    return cast("str", answer.json()["id"])


def _remember(server: Server, count: int, acknowledged: list[str]) -> None:
    """Remember so many things, or as many as the server lives for."""
    with (
        contextlib.suppress(httpx2.TransportError),
        httpx2.Client(base_url=server.url, headers=dict(server.client.headers), timeout=30) as client,
    ):
        for number in range(count):
            body = {"type": "fact", "content": f"Fact {number} of {threading.get_ident()}, told to others."}
            acknowledged.append(client.post("/v1/brain/remember", json=body).raise_for_status().json()["id"])


def _log(server: Server, hook: str, state: str | None = None) -> list[dict[str, object]]:
    """Return the deliveries of an endpoint, newest first."""
    which = {} if state is None else {"state": state}
    answer = server.client.get(f"/api/v1/webhooks/{hook}/deliveries", params={"per_page": 100, **which}).raise_for_status()
    return cast("list[dict[str, object]]", answer.json()["data"])


def _attempts(server: Server, hook: str, delivery: dict[str, object]) -> list[str]:
    answer = server.client.get(f"/api/v1/webhooks/{hook}/deliveries/{delivery['id']}").raise_for_status().json()
    return [cast("str", each["outcome"]) for each in answer["attempts"]]
